"""The equations that only chapter 9 needs: other divergences, an estimator with its score, other regularisers.

π is the policy that is trained and that samples, and π_ref is the reference policy. Functions of whole distributions
take logits ``(..., V)`` of both, or normalised log-probabilities ``(..., N)`` with rewards of that shape; −inf marks an
impossible token. No completion has probability 0 under π_ref, unless stated otherwise. Functions of samples take the
log-probabilities of the tokens that π sampled, in any shape, and return that shape. All are in nats; β and c are in
units of reward per nat.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import NOT_NEGATIVE, POSITIVE, number, shape, takes
from minirlhf.equations import rlhf
from minirlhf.equations.kl import generalised_jsd, k1

# -- exact: sums over the vocabulary -----------------------------------------------------------------------------


@equation("eq:js-divergence", source='Lin (1991), "Divergence measures based on the Shannon entropy".')
def js_divergence(logits: Tensor, ref_logits: Tensor) -> Tensor:
    """Jensen–Shannon divergence ½ KL(π‖m) + ½ KL(π_ref‖m), with m = ½ (π + π_ref). Symmetric, at most log 2."""
    return generalised_jsd(logits, ref_logits, beta=0.5)


# -- estimated from samples of π ---------------------------------------------------------------------------------


@equation("eq:k3-zero-mean", source='Schulman (2020), "Approximating KL divergence".')
def ratio_minus_one(logps: Tensor, ref_logps: Tensor) -> Tensor:
    """r − 1 with r = π_ref/π: its mean under π is 0 wherever π covers π_ref, because Σ π (π_ref/π) = 1."""
    return torch.expm1(-k1(logps, ref_logps))


@equation("eq:k3-control-variate", source='Schulman (2020), "Approximating KL divergence".')
def k1_with_control_variate(logps: Tensor, ref_logps: Tensor, *, weight: float) -> Tensor:
    """k1 + weight · (r − 1): unbiased for KL(π‖π_ref) at every weight; the weight sets the variance."""
    return k1(logps, ref_logps) + weight * ratio_minus_one(logps, ref_logps)


@takes(logps=shape("..."), values=shape("..."))
@equation(
    "eq:estimator-gradient",
    source='the product rule; for KL estimates Tang and Munos (2025), "On a few pitfalls in KL divergence gradient '
    'estimation for RL".',
    stop_gradient=True,
)
def with_score(values: Tensor, logps: Tensor) -> Tensor:
    """The same values, with a gradient whose expectation is the gradient of E_π[value]: ∇value + value · ∇log π.

    As a formula, ``value + sg[value] · (log π − sg[log π])``. An estimate depends on π twice: through its value and
    through the probability of the sample. A loss has only the first part of the gradient, a reward only the second.
    This function has both parts. ``logps`` are the log-probabilities of the samples: of tokens with one estimate per
    token, or of completions ``(B,)`` with one estimate per completion.
    """
    return values + values.detach() * (logps - logps.detach())


@takes(shift=shape("..."))
@equation(
    "eq:gaussian-estimators",
    source='Gaussian moments; the numbers of Schulman (2020), "Approximating KL divergence", at shifts .1 and 1.',
)
def gaussian_estimators(shift: Tensor) -> tuple[Tensor, Tensor]:
    """Bias and standard deviation of k1, k2 and k3 in units of the KL, ``(..., 3)`` each, for normal distributions.

    π = N(0, 1) and π_ref = N(shift, 1). The KL is shift²/2; the shift is not 0. The standard deviation of k1 grows
    without bound as the two distributions approach each other, the standard deviation of k3 as they move apart. From a
    KL of .628 on, k3 has the larger one.
    """
    square = shift**2
    zeros = torch.zeros_like(shift)
    std = torch.stack([shift.abs(), square * (square + 2).sqrt() / 2, (torch.expm1(square) - square).sqrt()], -1)
    return torch.stack([zeros, square / 4, zeros], -1), 2 * std / square[..., None]


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
