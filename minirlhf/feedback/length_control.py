"""The length-controlled win rate: what a judge would say if the answers had been equally long, by a regression on verdicts."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.equations.style import length_controlled_win_rate, length_term
from minirlhf.feedback.biases import fit_pairs


@dataclass(frozen=True)
class Controlled:
    """A regression of verdicts on differences of length.

    Attributes:
        win_rate: of our answers, at equal length.
        low, high: its 95 % interval.
        liking: φ, by how much longer answers are liked: nats between equal lengths and a difference that is far beyond the usual.
        liking_error: its standard error.
    """

    win_rate: float
    low: float
    high: float
    liking: float
    liking_error: float


def length_controlled(
    scores: Tensor, ours: Tensor, theirs: Tensor, prompts: Sequence[Hashable] | None = None
) -> Controlled:
    """Fit σ(θ + φ t) to verdicts, t as in :func:`length_term`, and predict at t = 0.

    There is no term for the difficulty of an instruction: it takes the verdicts on many models to know it.

    Args:
        scores: ``(N,)``, 1 where ours won, 0 where it lost, ½ for a tie.
        ours, theirs: ``(N,)`` lengths.
        prompts: N of them; pairs of one prompt are not independent, and the interval is over prompts. By default all differ.

    Raises:
        ValueError: all differences are alike, or they decide every verdict.
    """
    term = length_term(ours.double(), theirs.double())
    x = torch.stack([torch.ones_like(term), term], -1)  # (N, 2)
    fit = fit_pairs(x, scores.double())
    p = torch.sigmoid(x @ fit.weights)
    pull = x * (scores - p)[:, None]
    numbers: dict[Hashable, int] = {}
    cluster = torch.tensor(
        [numbers.setdefault(key, len(numbers)) for key in (range(len(scores)) if prompts is None else prompts)]
    )
    pulls = torch.zeros(len(numbers), 2, dtype=x.dtype).index_add(0, cluster, pull)
    bread = torch.linalg.inv((x * (p * (1 - p))[:, None]).T @ x)
    errors = (bread @ (pulls.T @ pulls) @ bread).diagonal().sqrt().tolist()  # the sandwich, clustered
    skill, liking = fit.weights.tolist()
    rate = lambda theta: float(length_controlled_win_rate(torch.zeros(1, dtype=x.dtype), skill=theta, sensitivity=0.0))
    reach = 1.96 * errors[0]
    return Controlled(rate(skill), rate(skill - reach), rate(skill + reach), liking, errors[1])
