"""Regularisers besides the KL of RLHF: their optimal policies, moving references and adaptive coefficients.

Functions of whole distributions take log-probabilities ``(..., N)``, normalised along the last axis, and rewards of
that shape; they return normalised log-probabilities. β and c are in units of reward per nat. No completion has
probability 0 under π_ref, unless stated otherwise.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import NOT_NEGATIVE, POSITIVE, number, shape, takes
from minirlhf.equations import rlhf

_tilts = takes(rewards="... N", ref_logps="... N", beta=POSITIVE)

# -- optimal policies --------------------------------------------------------------------------------------------


@_tilts
@equation(
    "eq:forward-kl-optimum",
    source='by a Lagrange multiplier; with the α-divergences in Wang et al. (2024), "Beyond reverse KL: '
    'generalizing direct preference optimization with diverse divergence constraints".',
    gradient=(),
)
def forward_kl_optimal_logps(ref_logps: Tensor, rewards: Tensor, *, beta: float) -> Tensor:
    """The policy with the largest E[r] − β KL(π_ref‖π): π = β π_ref/(λ − r), with the λ > max r that makes it sum to 1.

    On one-token completions it is the fixed point of training on reward minus β·k3, with k3 as a loss. With texts for π_ref and γ for β it is also the
    optimum of reward plus PPO's pretraining term. The probability of a completion relative to π_ref falls like
    1/(λ − r), not like exp(r/β).
    """
    ref_logps, rewards = ref_logps.detach(), rewards.detach()
    max_reward = rewards.amax(-1, keepdim=True)
    weights = beta * ref_logps.exp()
    low, high = torch.zeros_like(max_reward), torch.full_like(max_reward, beta)  # λ − max r; the sum is ≤ 1 at high
    for _ in range(100):
        middle = (low + high) / 2
        too_much = (weights / (middle + max_reward - rewards)).sum(-1, keepdim=True) > 1
        low, high = torch.where(too_much, middle, low), torch.where(too_much, high, middle)
    return (weights.log() - (high + max_reward - rewards).log()).log_softmax(-1)


@takes(rewards="... N", ref_logps="... N", beta=NOT_NEGATIVE, coef=POSITIVE)
@equation(
    "eq:entropy-optimum",
    source="by completing the KL, as in RLHF's optimum; without a reference Williams and Peng (1991), \"Function "
    'optimization using connectionist reinforcement learning algorithms".',
)
def entropy_bonus_optimal_logps(ref_logps: Tensor, rewards: Tensor, *, beta: float, coef: float) -> Tensor:
    """The policy with the largest E[r] − β KL(π‖π_ref) + c H(π): π ∝ π_ref^(β/(β+c)) exp(r/(β+c)).

    The bonus flattens the reference like a temperature of (β + c)/β, before the reward tilts it. β = 0 gives
    softmax(r/c), independent of the reference.
    """
    return ((beta * ref_logps + rewards) / (beta + coef)).log_softmax(-1)


@takes(ref_logps="... N", correct=shape("... N"))
@equation(
    "eq:nearest-correct",
    source='the projection on an event, e.g. Csiszár (1975), "I-divergence geometry of probability distributions '
    'and minimization problems".',
)
def nearest_correct_logps(ref_logps: Tensor, correct: Tensor) -> Tensor:
    """The policy with the smallest KL(π‖π_ref) among those that are always correct: π_ref conditioned on correctness.

    Its KL is −log π_ref(correct). Every prompt needs a correct completion; wrong completions get −inf. ``correct`` is 1
    or True. The KL of any other policy π over the correct completions is larger by KL(π‖this policy).
    """
    is_correct = correct.bool()
    if not bool(is_correct.any(-1).all()):
        raise ArgumentError(
            f"correct of shape {tuple(correct.shape)} has a row without a correct completion; expected one per prompt",
            argument="correct",
            problem="empty",
        )
    return ref_logps.masked_fill(~is_correct, -torch.inf).log_softmax(-1)


# -- a moving reference ------------------------------------------------------------------------------------------


@takes(reference=shape("..."), policy=shape("..."), rate=number("[0, 1]"))
@equation(
    "eq:moving-reference",
    source='Gorbatovski et al. (2024), "Learn your reference model for real good alignment", soft and hard update.',
    gradient=(),
)
def moving_average(reference: Tensor, policy: Tensor, *, rate: float) -> Tensor:
    """The next reference: (1 − rate) · reference + rate · policy, of weights or of log-probabilities, any shape.

    A rate of 1 copies the policy (a hard refresh), 0 leaves the reference alone. An average of logits is, up to
    normalisation, the geometric mean of the distributions.
    """
    return torch.lerp(reference.detach(), policy.detach(), rate)


@takes(rewards="... N", ref_logps="... N", beta=POSITIVE, rate=number("[0, 1]"), refreshes=NOT_NEGATIVE)
@equation("eq:refreshed-optimum", source="by induction from RLHF's optimum.")
def refreshed_optimal_logps(ref_logps: Tensor, rewards: Tensor, *, beta: float, rate: float, refreshes: int) -> Tensor:
    """The optimum after ``refreshes`` updates of the reference, each moving log π_ref by ``rate`` to the optimum.

    Each update adds rate · r/β to log π_ref. So after n updates the optimum is the optimum for the initial reference
    and β/(1 + n · rate): a moving reference relaxes the constraint without bound, at a speed that the rate sets. The
    result is exact for a policy with one logit per completion, and for rate 1. It is not exact for averaged token
    logits, whose rows are normalised separately.
    """
    return rlhf.optimal_logps(ref_logps, rewards, beta=beta / (1 + refreshes * rate))


# -- an adaptive coefficient -------------------------------------------------------------------------------------


@takes(rewards="N", ref_logps="N", beta=POSITIVE, rate=POSITIVE)
@equation(
    "eq:adaptive-kl-factor",
    source='derived here, from the controller of Ziegler et al. (2019), "Fine-tuning language models from human '
    'preferences", and the slope of the frontier.',
)
def adaptive_kl_factor(ref_logps: Tensor, rewards: Tensor, *, beta: float, rate: float) -> Tensor:
    """Factor of the adaptive controller's error per update, near the β that has the target KL.

    It is 1 − rate · Var[r]/(β² KL) under the optimum for this β, with rate = num_samples/horizon, for a policy that is
    always at its optimum. The controller converges if the factor is between −1 and 1. Below −1 it oscillates forever,
    limited by its clip.
    """
    logps = rlhf.optimal_logps(ref_logps, rewards, beta=beta)
    kl = (logps.exp() * (logps - ref_logps)).sum(-1)
    _, slope = rlhf.frontier_rates(ref_logps, rewards, beta=beta)  # dKL/dβ
    return 1 + rate * beta * slope / kl
