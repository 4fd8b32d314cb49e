"""The length-controlled win rate: a regression on verdicts predicts the win rate of completions of equal length."""

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
        win_rate: win rate of the candidate's completions at equal length.
        low, high: its 95 % confidence interval.
        length_bias: φ, the change of the log-odds, in nats, from equal lengths to a difference far beyond the
            usual.
        length_bias_error: standard error of φ.
    """

    win_rate: float
    low: float
    high: float
    length_bias: float
    length_bias_error: float


def length_controlled(
    scores: Tensor, ours: Tensor, theirs: Tensor, prompts: Sequence[Hashable] | None = None
) -> Controlled:
    """Fit σ(θ + φ t) to verdicts, t as in :func:`length_term`, and predict at t = 0.

    There is no term for the difficulty of an instruction, because its estimation needs verdicts on many models.

    Args:
        scores: ``(N,)``, 1 if the candidate won, 0 if it lost, ½ for a tie.
        ours, theirs: ``(N,)``, lengths of the candidate's and of the baseline's completions.
        prompts: N of them. Pairs of one prompt are not independent, so the interval clusters by prompt. By default all
            differ.

    Raises:
        ValueError: all length differences are equal, or they predict every verdict.
    """
    term = length_term(ours.double(), theirs.double())
    x = torch.stack([torch.ones_like(term), term], -1)  # (N, 2)
    fit = fit_pairs(x, scores.double())
    p = torch.sigmoid(x @ fit.weights)
    residuals = x * (scores - p)[:, None]
    cluster_ids: dict[Hashable, int] = {}
    index = torch.tensor(
        [cluster_ids.setdefault(key, len(cluster_ids)) for key in (range(len(scores)) if prompts is None else prompts)]
    )
    sums = torch.zeros(len(cluster_ids), 2, dtype=x.dtype).index_add(0, index, residuals)
    bread = torch.linalg.inv((x * (p * (1 - p))[:, None]).T @ x)
    errors = (bread @ (sums.T @ sums) @ bread).diagonal().sqrt().tolist()  # cluster-robust sandwich
    skill, length_bias = fit.weights.tolist()
    rate = lambda theta: float(length_controlled_win_rate(torch.zeros(1, dtype=x.dtype), skill=theta, sensitivity=0.0))
    margin = 1.96 * errors[0]
    return Controlled(rate(skill), rate(skill - margin), rate(skill + margin), length_bias, errors[1])
