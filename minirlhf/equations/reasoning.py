"""Reasoning with answers that can be compared: voting, and the scaling of RL.

``answers`` are integers, one for each of N completions of a prompt; equal integers are equal answers.
"""

from __future__ import annotations

from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.validate import FINITE, POSITIVE, finite, shape, takes


@takes(answers=shape("... N"), weights=finite("... N", "[0, inf)"))
@equation(
    "eq:weighted-vote",
    source='Li et al. (2023), "Making Language Models Better Reasoners with Step-Aware Verifier"; with weights of '
    '1 Wang et al. (2023), "Self-Consistency Improves Chain of Thought Reasoning in Language Models".',
)
def vote_totals(answers: Tensor, weights: Tensor) -> Tensor:
    """Votes for each completion's answer: W(a_i) = Σ_j w_j [a_j = a_i], ``(..., N)``. The largest total wins.

    Weights of 1 give the majority vote; the probabilities of a verifier give a weighted vote.
    """
    same = answers.unsqueeze(-1) == answers.unsqueeze(-2)  # (..., N, N)
    return (same * weights.unsqueeze(-2)).sum(-1)


@takes(compute=finite("...", "(0, inf)"), start=FINITE, ceiling=FINITE, exponent=POSITIVE, midpoint=POSITIVE)
@equation(
    "eq:compute-curve",
    source='Khatri et al. (2025), "The Art of Scaling Reinforcement Learning Compute for LLMs", equation 1.',
)
def compute_curve(compute: Tensor, *, start: float, ceiling: float, exponent: float, midpoint: float) -> Tensor:
    """A sigmoid in log compute: R₀ + (A − R₀) / (1 + (C_mid / C)^B), ``(...)``.

    Args:
        compute: C, in any unit, for example samples.
        start: R₀, the reward before training.
        ceiling: A, the asymptotic reward.
        exponent: B, the steepness.
        midpoint: C_mid, the compute at which half of the gain is reached.
    """
    return start + (ceiling - start) / (1 + (midpoint / compute) ** exponent)
