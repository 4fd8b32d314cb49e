"""Preference pairs with a known truth: labels by a gold reward, with the noise and the biases one asks for.

The labeller prefers reply a to reply b with probability σ((s_a − s_b) / temperature), the Bradley-Terry model, where a
reply's score s is its gold reward plus whatever the labeller is biased towards; afterwards a share of the labels is
flipped. Everything is keyed: a pair depends on the seed and its number alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError
from minirlhf.core.randomness import derive_seed, keyed_uniforms, numpy_generator
from minirlhf.core.validate import require_range
from minirlhf.data.tasks.base import Split, Task
from minirlhf.data.types import PreferencePair
from minirlhf.equations.comparisons import flipped_label
from minirlhf.equations.reward_losses import bradley_terry

Bias: TypeAlias = Callable[[str, str], float]  # (prompt, reply) -> what the labeller adds to the gold reward
Sampler: TypeAlias = Callable[[str, np.random.Generator], str]  # (prompt, rng) -> a reply

_ATTEMPTS = 1000


def length_bias(weight: float) -> Bias:
    """A labeller who likes every word more by ``weight``."""
    return lambda prompt, reply: weight * len(reply.split())


def preference_probability(a: Tensor, b: Tensor, *, temperature: float = 0.5, flip: float = 0.0) -> Tensor:
    """Probability that reply a is called better than reply b: Bradley-Terry at a temperature, then flipped labels.

    Args:
        a, b: scores of the replies, any shape, the same.
        temperature: of the labeller; at 0 the higher score always wins and a tie is a coin toss.
        flip: probability that the label is then turned round.

    Returns:
        The same shape: ``p + flip·(1 − 2p)`` with ``p = σ((a − b) / temperature)``.

    Raises:
        ValueError: shapes differ, a score is not finite, temperature < 0, or ``flip`` outside [0, 1].
    """
    require_range(0.0, math.inf, temperature=temperature)
    require_range(0.0, 1.0, flip=flip)
    p = bradley_terry(a / temperature, b / temperature) if temperature > 0 else 0.5 * (1 + torch.sign(a - b))
    return flipped_label(p, flip=flip)


@dataclass(frozen=True)
class SimulatedAnnotator:
    """How replies are compared.

    Attributes:
        temperature: see :func:`preference_probability`.
        flip: see :func:`preference_probability`.
        biases: what the labeller adds to the gold reward of a reply.
    """

    temperature: float = 0.5
    flip: float = 0.0
    biases: tuple[Bias, ...] = ()

    def score(self, task: Task, prompt: str, reply: str) -> float:
        """The gold reward plus the biases."""
        return task.grade(prompt, reply) + sum(bias(prompt, reply) for bias in self.biases)


def label_pairs(
    task: Task, triples: Iterable[tuple[str, str, str]], *, labeller: SimulatedAnnotator | None = None, seed: int = 0
) -> list[PreferencePair]:
    """Label given ``(prompt, reply a, reply b)``; two equal replies say nothing and are left out.

    The margin of a pair is the gap between its two scores, as the labeller sees them.
    """
    judge = labeller or SimulatedAnnotator()
    kept = [(n, triple) for n, triple in enumerate(triples) if triple[1] != triple[2]]
    if not kept:
        return []
    scores = torch.tensor(
        [[judge.score(task, prompt, a), judge.score(task, prompt, b)] for _, (prompt, a, b) in kept],
        dtype=torch.float64,
    )  # (N, 2)
    prefers_a = preference_probability(scores[:, 0], scores[:, 1], temperature=judge.temperature, flip=judge.flip)
    wins = keyed_uniforms([derive_seed(seed, "label", n) for n, _ in kept], 1)[:, 0] < prefers_a  # (N,)
    margins = (scores[:, 0] - scores[:, 1]).abs()
    return [
        PreferencePair(prompt, a if first else b, b if first else a, margin=margin)
        for (_, (prompt, a, b)), first, margin in zip(kept, wins.tolist(), margins.tolist(), strict=True)
    ]


def sample_pairs(
    task: Task,
    count: int,
    *,
    split: Split = "train",
    sampler: Sampler | None = None,
    labeller: SimulatedAnnotator | None = None,
    min_gap: float = 0.0,
    seed: int = 0,
) -> list[PreferencePair]:
    """``count`` labelled pairs of replies to prompts of a split.

    Args:
        task: the world; its prompts are taken in turn.
        count: number of pairs.
        split: of the prompts.
        sampler: writes a reply; the task's own demonstrator by default.
        labeller: without noise beyond its temperature and without bias by default.
        min_gap: the two replies differ by at least this much in *gold* reward: how clear the comparisons are.
        seed: pairs depend on it and their number alone, so more pairs begin with the same ones.

    Raises:
        ValueError: the sampler hardly ever gives two different replies so far apart.
    """
    write = sampler or task.demonstration
    prompts = task.prompts(split)
    triples = []
    for n in range(count):
        prompt, rng = prompts[n % len(prompts)], numpy_generator(seed, "pair", n)
        for _ in range(_ATTEMPTS):
            a, b = write(prompt, rng), write(prompt, rng)
            if a != b and abs(task.grade(prompt, a) - task.grade(prompt, b)) >= min_gap:
                break
        else:
            said = f"no two different replies to {prompt!r} with {min_gap=} in {_ATTEMPTS} attempts"
            raise ArgumentError(said, argument="sampler", value=prompt, expected=min_gap, problem="duplicate")
        triples.append((prompt, a, b))
    return label_pairs(task, triples, labeller=labeller, seed=seed)
