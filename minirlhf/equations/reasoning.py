"""Reasoning with answers that can be compared: votes, a reward from the vote itself, rewards that say nothing, and how RL scales.

``answers`` are integers, one for each of N replies to a prompt; equal numbers are equal answers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.validate import FINITE, NOT_NEGATIVE, POSITIVE, distribution, finite, shape, takes


@takes(answers=shape("... N"), weights=finite("... N", "[0, inf)"))
def vote_totals(answers: Tensor, weights: Tensor) -> Tensor:
    """For every reply the votes for its answer: W(a_i) = Σ_j w_j [a_j = a_i], ``(..., N)``. The largest total wins.

    Weights of 1 are the majority vote; the probabilities of a verifier make a weighted one.

    Label: eq:weighted-vote
    Source: Li et al. (2023), "Making Language Models Better Reasoners with Step-Aware Verifier"; with weights of 1 Wang et al. (2023),
        "Self-Consistency Improves Chain of Thought Reasoning in Language Models".
    """
    same = answers.unsqueeze(-1) == answers.unsqueeze(-2)  # (..., N, N)
    return (same * weights.unsqueeze(-2)).sum(-1)


@takes(answers=shape("P G"))
def majority_reward(answers: Tensor) -> Tensor:
    """1 for the replies that give the group's most frequent answer, else 0, ``(P, G)``; of several, the one that came first.

    Label: eq:majority-reward
    Source: Zuo et al. (2025), "TTRL: Test-Time Reinforcement Learning".
    """
    totals = vote_totals(answers, torch.ones(answers.shape, device=answers.device))
    first = (totals == totals.amax(-1, keepdim=True)).byte().argmax(-1, keepdim=True)
    return (answers == answers.gather(-1, first)).to(totals.dtype)


@takes(probs=distribution("... A"), old_probs=distribution("... A"), epsilon=NOT_NEGATIVE)
def random_reward_push(probs: Tensor, old_probs: Tensor, *, epsilon: float) -> Tensor:
    """Expected gradient of the clipped objective in the logits when the advantage is a fair coin, ±1: ``(..., A)``.

    Σ_y π(y) c_y (e_y − π), with c_y = ½ where the ratio π/π_old lies below 1 − ε, −½ where it lies above 1 + ε, 0 between. Without
    clipping it is 0: a reward that knows nothing moves no logit on average. The coins are ones that π has not met: where a reply and its coin
    are learned from again, π has been moved by them. Kinks, a ratio of exactly 1 ± ε, are left out.

    Label: eq:random-reward-push
    Source: derived in chapter 16; the bias was found by Shao et al. (2025), "Spurious Rewards: Rethinking Training Signals in RLVR".
    Args:
        probs: π, of the policy that is updated.
        old_probs: π_old, of the policy that sampled, positive.
        epsilon: ε of the clip.
    """
    ratio = probs / old_probs
    pull = 0.5 * ((ratio < 1 - epsilon).to(probs.dtype) - (ratio > 1 + epsilon).to(probs.dtype))
    push = probs * pull
    return push - probs * push.sum(-1, keepdim=True)


@takes(compute=finite("...", "(0, inf)"), start=FINITE, ceiling=FINITE, exponent=POSITIVE, midpoint=POSITIVE)
def compute_curve(compute: Tensor, *, start: float, ceiling: float, exponent: float, midpoint: float) -> Tensor:
    """A sigmoid in log compute: R₀ + (A − R₀) / (1 + (C_mid / C)^B), ``(...)``.

    Label: eq:compute-curve
    Source: Khatri et al. (2025), "The Art of Scaling Reinforcement Learning Compute for LLMs", equation 1.
    Args:
        compute: C, whatever it is counted in; samples will do.
        start: R₀, the reward before training.
        ceiling: A, what it tends to.
        exponent: B, how steep it is.
        midpoint: C_mid, where half of the gain is made.
    """
    return start + (ceiling - start) / (1 + (midpoint / compute) ** exponent)
