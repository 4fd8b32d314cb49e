"""Preference pairs with known gold rewards: labels by a simulated annotator with configurable noise and biases.

The annotator prefers completion a to completion b with probability σ((s_a − s_b) / temperature), the Bradley-Terry
model. The score s of a completion is its gold reward plus the annotator's biases. Afterwards a fraction of the labels
is flipped. All random numbers are keyed: a pair depends only on the seed and its index.
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

Bias: TypeAlias = Callable[[str, str], float]  # (prompt, completion) -> the bias added to the gold reward
Sampler: TypeAlias = Callable[[str, np.random.Generator], str]  # (prompt, rng) -> a completion

_ATTEMPTS = 1000


def length_bias(weight: float) -> Bias:
    """Return a bias that adds ``weight`` per word."""
    return lambda prompt, completion: weight * len(completion.split())


def preference_probability(a: Tensor, b: Tensor, *, temperature: float = 0.5, flip: float = 0.0) -> Tensor:
    """Return the probability that a is labelled better than b: Bradley-Terry at a temperature, then flipped labels.

    Args:
        a, b: scores of the completions, any shape, the same for both.
        temperature: of the annotator; at 0 the higher score always wins and a tie has probability ½.
        flip: probability that the label is then flipped.

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
    """A simulated annotator: how it compares completions.

    Attributes:
        temperature: see :func:`preference_probability`.
        flip: see :func:`preference_probability`.
        biases: functions whose values the annotator adds to the gold reward of a completion.
    """

    temperature: float = 0.5
    flip: float = 0.0
    biases: tuple[Bias, ...] = ()

    def score(self, task: Task, prompt: str, reply: str) -> float:
        """Return the gold reward plus the biases."""
        return task.grade(prompt, reply) + sum(bias(prompt, reply) for bias in self.biases)


def label_pairs(
    task: Task, triples: Iterable[tuple[str, str, str]], *, labeller: SimulatedAnnotator | None = None, seed: int = 0
) -> list[PreferencePair]:
    """Label the given ``(prompt, completion a, completion b)``; two equal completions carry no information and are left
    out.

    The margin of a pair is the absolute difference of its two scores, with the annotator's biases.
    """
    annotator = labeller or SimulatedAnnotator()
    distinct = [(n, triple) for n, triple in enumerate(triples) if triple[1] != triple[2]]
    if not distinct:
        return []
    scores = torch.tensor(
        [[annotator.score(task, prompt, a), annotator.score(task, prompt, b)] for _, (prompt, a, b) in distinct],
        dtype=torch.float64,
    )  # (N, 2)
    prefers_a = preference_probability(
        scores[:, 0], scores[:, 1], temperature=annotator.temperature, flip=annotator.flip
    )
    wins = keyed_uniforms([derive_seed(seed, "label", n) for n, _ in distinct], 1)[:, 0] < prefers_a  # (N,)
    margins = (scores[:, 0] - scores[:, 1]).abs()
    return [
        PreferencePair(prompt, a if a_wins else b, b if a_wins else a, margin=margin)
        for (_, (prompt, a, b)), a_wins, margin in zip(distinct, wins.tolist(), margins.tolist(), strict=True)
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
    """Return ``count`` labelled pairs of completions of the prompts of a split.

    Args:
        task: its prompts are used in turn.
        count: number of pairs.
        split: of the prompts.
        sampler: writes a completion; by default the demonstrator of the task.
        labeller: the annotator; by default it has no bias and no noise beyond its temperature.
        min_gap: minimum difference in *gold* reward of the two completions: how clear the comparisons are.
        seed: a pair depends only on the seed and its index, so a larger ``count`` begins with the same pairs.

    Raises:
        ValueError: the sampler almost never gives two different completions with this gap.
    """
    sample = sampler or task.demonstration
    prompts = task.prompts(split)
    triples = []
    for n in range(count):
        prompt, rng = prompts[n % len(prompts)], numpy_generator(seed, "pair", n)
        for _ in range(_ATTEMPTS):
            a, b = sample(prompt, rng), sample(prompt, rng)
            if a != b and abs(task.grade(prompt, a) - task.grade(prompt, b)) >= min_gap:
                break
        else:
            message = f"no two different replies to {prompt!r} with {min_gap=} in {_ATTEMPTS} attempts"
            raise ArgumentError(message, argument="sampler", value=prompt, expected=min_gap, problem="duplicate")
        triples.append((prompt, a, b))
    return label_pairs(task, triples, labeller=labeller, seed=seed)
