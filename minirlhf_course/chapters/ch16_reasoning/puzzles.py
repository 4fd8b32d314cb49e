"""Knights and knaves with a strict format: what a reward for the answer, a reward for the format, and their sum teach.

    A says part , B says A same C , C says all
    think try k k k no try k k n yes no try k n k yes no try k n n yes yes yes answer k n n

The strict format is a chain that begins with ``think``, then ``answer``, once, and one kind for each person. Half of
the demonstrations follow it; the others give a direct answer, begin their chain without ``think``, or give the answer
twice. All are right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from minirlhf.data.formats import Problem
from minirlhf.data.tasks.base import Split
from minirlhf.data.tasks.knights_and_knaves import KINDS, KnightsAndKnaves, read, solutions
from minirlhf.feedback.rewards import Reward, task_problems, task_reward
from minirlhf.models.sampling import Sampling
from minirlhf.recipes import DR_GRPO
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import RLPlan, SFTPlan, Trained
from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.evaluation import evaluate
from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch16_reasoning.equations import composite_reward

GAME = KnightsAndKnaves(thinking_share=1.0)
SLOPPY = 0.5
LEVELS = (1, 2, 3)  # no level 0: a puzzle with only single-person statements never has exactly one solution


@dataclass(frozen=True)
class Puzzles:
    """A :class:`~minirlhf.data.tasks.base.Task`: puzzles of three people, and a demonstrator that does not always
    follow the format."""

    name = "puzzles"
    words = GAME.words
    max_completion_length = GAME.max_completion_length

    def prompts(self, split: Split) -> list[str]:
        """Return the prompts of knights and knaves with three people."""
        return GAME.prompts(split)

    def reference(self, prompt: str) -> str:
        """Return a chain in the strict format."""
        return GAME.reference(prompt)

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """Return a completion in the strict format, or in one of three other formats; always right."""
        full = GAME.demonstration(prompt, rng)
        if rng.random() >= SLOPPY:
            return full
        answer = full[full.index("answer") :]
        return (answer, full.removeprefix("think "), f"{full} {answer}")[int(rng.integers(3))]

    def grade(self, prompt: str, completion: str) -> float:
        """Return 1 if the kinds after the last ``answer`` are the solution, in any format."""
        statements = read(prompt)
        solved = solutions(statements) if statements else []
        _, marker, kinds = completion.rpartition("answer ")
        expected = [KINDS[0] if knight else KINDS[1] for knight in solved[0]] if len(solved) == 1 else None
        return float(bool(marker) and kinds.split() == expected)


def difficulty(prompt: str) -> int:
    """Return how many of the three statements are about more than one person."""
    return sum(len(statement.split()) != 2 for statement in read(prompt) or [])


def in_form(completion: str) -> float:
    """Return 1 for the strict format: a chain after ``think``, ``answer`` once, one kind for each person; right or
    wrong."""
    return float(completion.startswith("think ") and GAME.well_formed(completion))


WORLD = Puzzles()
SFT = SFTPlan(6400, SFTConfig(max_steps=700, batch_size=64, learning_rate=3e-3, lr_scheduler_type="linear"))
RL = RLPlan(DR_GRPO, OnlineConfig(max_steps=60, batch_size=12, num_generations=8, learning_rate=5e-4))
#: The reward of each run: the weights of the format and of the answer.
RUNS = {"answer": (0.0, 1.0), "both": (0.2, 0.8), "form": (1.0, 0.0)}


def reward_of(name: str) -> Reward:
    """Return the weighted sum of a run of :data:`RUNS`."""
    weights = torch.tensor(RUNS[name])

    def reward(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
        form = torch.tensor(formed(problems, completions))
        right = torch.tensor(task_reward(WORLD)(problems, completions))
        return composite_reward(torch.stack([form, right], -1), weights).tolist()

    return reward


def formed(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
    """Return :func:`in_form` of each completion."""
    return [in_form(text) for text in completions]


def train(name: str, begin: Trained, seed: int, plan: RLPlan = RL) -> Trained:
    """Train one run from a copy of ``begin``."""
    plan = replace(plan, training=replace(plan.training, seed=seed))
    return pipeline.rl(WORLD, begin, plan, reward=reward_of(name), quiet=True)


def measured(policy: Trained, split: Split, count: int) -> dict[str, float]:
    """Measure a policy on the first puzzles of a split.

    Accuracy (``right``), and the fractions of completions in the strict format (``form``), right and in the format
    (``both``), and with a chain, with or without its ``think`` (``chains``); accuracy also by :func:`difficulty`, and
    of chains and of direct answers; and :func:`thoughts`. 0 where there is nothing to count.
    """
    problems = task_problems(WORLD, split)[:count]
    result = evaluate(
        policy.model, problems, task_reward(WORLD), tokenizer=policy.tokenizer,
        sampling=Sampling(max_completion_length=WORLD.max_completion_length), seed=1000,
    )  # fmt: skip
    prompts = [problem.prompt[-1]["content"] for problem in result.problems]
    levels = np.array([difficulty(prompt) for prompt in prompts])
    right, form = result.rewards.numpy(), np.array(formed(result.problems, result.completions))
    chains = np.array([is_chain(text) for text in result.completions])
    metrics = {"right": _mean(right), "form": _mean(form), "both": _mean(right * form), "chains": _mean(chains)}
    metrics |= {f"right_{level}": _mean(right[levels == level]) for level in LEVELS}
    metrics |= {"right_chains": _mean(right[chains]), "right_bare": _mean(right[~chains])}
    return metrics | thoughts(prompts, result.completions)


def is_chain(text: str) -> bool:
    """Return whether a completion begins as a chain does, with or without its ``think``."""
    return text.startswith(("think", "try"))


def thoughts(prompts: Sequence[str], completions: Sequence[str]) -> dict[str, float]:
    """Return statistics of the chains in completions; 0 where there is nothing to count.

    ``tries`` and ``asked``: how many assignments of kinds a chain tries and how many verdicts it gives. ``verdicts``
    and ``agreeing``: the fraction of verdicts that are right, and the fraction that should be a yes. ``follows``: the
    fraction of chains that answer with the kinds of their last try. ``hollow``: the fraction of all completions that
    are in the format and try nothing.
    """
    chains = [(prompt, text) for prompt, text in zip(prompts, completions, strict=True) if is_chain(text)]
    correct, agreeing = [], []
    for prompt, text in chains:
        words = text.split()
        for word, grade in zip(words, GAME.grade_steps(prompt, words), strict=True):
            if not math.isnan(grade):
                correct.append(grade)
                agreeing.append(float((word == "yes") == bool(grade)))
    return {
        "tries": _mean([float(text.split().count("try")) for _, text in chains]),
        "asked": len(correct) / max(len(chains), 1),
        "verdicts": _mean(correct),
        "agreeing": _mean(agreeing),
        "follows": _mean([_follows(text) for _, text in chains]),
        "hollow": _mean([in_form(text) * ("try" not in text.split()) for text in completions]),
    }


def _follows(text: str) -> float:
    chain, answer_marker, kinds = text.rpartition("answer ")
    _, try_marker, attempt = chain.rpartition("try ")
    return float(bool(answer_marker and try_marker) and kinds.split() == attempt.split()[: GAME.people])


def _mean(values: np.ndarray | Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else 0.0
