"""Reasoning with answers that can be compared: voting, majority rewards, uninformative rewards, scaling of RL.

``answers`` are integers, one for each of N completions of a prompt; equal integers are equal answers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.validate import FINITE, NOT_NEGATIVE, POSITIVE, distribution, finite, shape, takes


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


@takes(answers=shape("P G"))
@equation("eq:majority-reward", source='Zuo et al. (2025), "TTRL: Test-Time Reinforcement Learning".')
def majority_reward(answers: Tensor) -> Tensor:
    """1 for completions with the group's most frequent answer (if tied, the first such answer), else 0, ``(P, G)``."""
    totals = vote_totals(answers, torch.ones(answers.shape, device=answers.device))
    first = (totals == totals.amax(-1, keepdim=True)).byte().argmax(-1, keepdim=True)
    return (answers == answers.gather(-1, first)).to(totals.dtype)


@takes(probs=distribution("... A"), old_probs=distribution("... A"), epsilon=NOT_NEGATIVE)
@equation(
    "eq:random-reward-push",
    source='derived in chapter 16; the bias was found by Shao et al. (2025), "Spurious Rewards: Rethinking '
    'Training Signals in RLVR".',
)
def random_reward_gradient(probs: Tensor, old_probs: Tensor, *, epsilon: float) -> Tensor:
    """Expected logit gradient of the clipped objective for random advantages, ±1 with probability ½: ``(..., A)``.

    It is Σ_y π(y) c_y (e_y − π), with c_y = ½ if the ratio π/π_old is below 1 − ε, −½ if it is above 1 + ε, otherwise
    0. Without clipping it is 0: an uninformative reward has no effect on the logits on average. The advantages must be
    independent of π, which does not hold if π has already been updated on the same completions and advantages. The
    kinks, ratios of exactly 1 ± ε, are ignored.

    Args:
        probs: π, the current policy.
        old_probs: π_old, the policy that sampled, positive.
        epsilon: ε of the clip.
    """
    ratio = probs / old_probs
    coefficients = 0.5 * ((ratio < 1 - epsilon).to(probs.dtype) - (ratio > 1 + epsilon).to(probs.dtype))
    weighted = probs * coefficients
    return weighted - probs * weighted.sum(-1, keepdim=True)


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
