"""The two parts of the gold reward of the assistant task as separate rewards: content and manners.

Their sum is the gold reward; a policy trained on one of them is a specialist.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt

from minirlhf.data.formats import Problem
from minirlhf.data.tasks.assistant import Features, features
from minirlhf.feedback.rewards import Reward


def content(counts: Features) -> float:
    """Return the reward for facts, minus penalties for filler, repetition, false claims and length."""
    f = counts
    return 1.2 * sqrt(f.facts) - 0.3 * f.filler - 0.5 * f.repeats - 0.5 * f.wrong - 0.1 * f.length


def manners(counts: Features) -> float:
    """Return the reward for one polite word and one word of praise; more of them is penalised as flattery."""
    f = counts
    return (0.7 * min(f.polite, 1) - 0.6 * max(f.polite - 1, 0)) + (0.6 * min(f.praise, 1) - 0.6 * max(f.praise - 1, 0))


def facet_reward(facet: Callable[[Features], float]) -> Reward:
    """Return a reward that grades one facet of a completion, such as :func:`content`."""

    def reward(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
        return [
            facet(features(problem.prompt[-1]["content"], completion))
            for problem, completion in zip(problems, completions, strict=True)
        ]

    return reward
