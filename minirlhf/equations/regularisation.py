"""What holds a policy, beside the KL of RLHF: where each regulariser comes to rest, and how references and prices move.

Functions of whole distributions take log-probabilities ``(..., N)``, normalised along the last axis, and rewards of that
shape; they return normalised log-probabilities. β and c are in units of reward per nat. No response has probability 0
under π_ref, unless said otherwise.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import NOT_NEGATIVE, POSITIVE, number, shape, takes
from minirlhf.equations import rlhf

_tilts = takes(rewards="... N", ref_logps="... N", beta=POSITIVE)

# -- where it comes to rest --------------------------------------------------------------------------------------


@_tilts
def forward_kl_optimal_logps(ref_logps: Tensor, rewards: Tensor, *, beta: float) -> Tensor:
    """The policy with the largest E[r] − β KL(π_ref‖π): π = β π_ref/(λ − r), with the λ > max r that makes it sum to 1.

    Where k3 as a loss brings one-token responses to rest, and, with texts for π_ref and γ for β, reward plus PPO's
    pretraining term. A response that the reference gives keeps a share that falls like 1/(λ − r), not like exp(r/β).
    No gradient flows.

    Label: eq:forward-kl-optimum
    Source: by a Lagrange multiplier; with the α-divergences in Wang et al. (2024), "Beyond reverse KL: generalizing
        direct preference optimization with diverse divergence constraints".
    """
    ref_logps, rewards = ref_logps.detach(), rewards.detach()
    best = rewards.amax(-1, keepdim=True)
    weights = beta * ref_logps.exp()
    low, high = torch.zeros_like(best), torch.full_like(best, beta)  # of λ − max r: at high the sum is at most 1
    for _ in range(100):
        middle = (low + high) / 2
        too_much = (weights / (middle + best - rewards)).sum(-1, keepdim=True) > 1
        low, high = torch.where(too_much, middle, low), torch.where(too_much, high, middle)
    return (weights.log() - (high + best - rewards).log()).log_softmax(-1)


@takes(rewards="... N", ref_logps="... N", beta=NOT_NEGATIVE, coef=POSITIVE)
def entropy_bonus_optimal_logps(ref_logps: Tensor, rewards: Tensor, *, beta: float, coef: float) -> Tensor:
    """The policy with the largest E[r] − β KL(π‖π_ref) + c H(π): π ∝ π_ref^(β/(β+c)) exp(r/(β+c)).

    The bonus flattens the reference, as a temperature of (β + c)/β would, before the reward tilts it. β = 0 leaves
    softmax(r/c), whatever the reference.

    Label: eq:entropy-optimum
    Source: by completing the KL, as in RLHF's optimum; without a reference Williams and Peng (1991), "Function
        optimization using connectionist reinforcement learning algorithms".
    """
    return ((beta * ref_logps + rewards) / (beta + coef)).log_softmax(-1)


@takes(ref_logps="... N", correct=shape("... N"))
def nearest_correct_logps(ref_logps: Tensor, correct: Tensor) -> Tensor:
    """Of all policies that give correct responses only, the one with the smallest KL(π‖π_ref): π_ref given that it is correct.

    Its KL is −log π_ref(correct), at least one correct response per prompt; wrong responses get −inf. ``correct`` is
    1 or True. Any other policy over the correct responses is further away by its KL from this one.

    Label: eq:nearest-correct
    Source: the projection on an event, e.g. Csiszár (1975), "I-divergence geometry of probability distributions and
        minimization problems".
    """
    right = correct.bool()
    if not bool(right.any(-1).all()):
        raise ArgumentError(
            f"correct of shape {tuple(correct.shape)} has a row without a correct response",
            argument="correct",
            problem="empty",
        )
    return ref_logps.masked_fill(~right, -torch.inf).log_softmax(-1)


# -- a reference that follows ------------------------------------------------------------------------------------


@takes(reference=shape("..."), policy=shape("..."), rate=number("[0, 1]"))
def moving_average(reference: Tensor, policy: Tensor, *, rate: float) -> Tensor:
    """The next reference: (1 − rate) · reference + rate · policy, of weights or of log-probabilities, any shape.

    A rate of 1 copies the policy (a hard refresh), 0 leaves the reference alone. Logits averaged are distributions
    multiplied: the geometric mean, up to normalisation. No gradient flows.

    Label: eq:moving-reference
    Source: Gorbatovski et al. (2024), "Learn your reference model for real good alignment", soft and hard update.
    """
    return torch.lerp(reference.detach(), policy.detach(), rate)


@takes(rewards="... N", ref_logps="... N", beta=POSITIVE, rate=number("[0, 1]"), refreshes=NOT_NEGATIVE)
def refreshed_optimal_logps(ref_logps: Tensor, rewards: Tensor, *, beta: float, rate: float, refreshes: int) -> Tensor:
    """The optimum after a number of refreshes, each of which moves log π_ref by ``rate`` towards the optimum of the moment.

    log π_ref gains rate · r/β each time, so the n-th optimum is that of β/(1 + n · rate) and the first reference:
    the constraint is not kept, it is sold, at a speed that the rate sets. Exact for one logit a reply, and for rate 1;
    of token logits the rows are normalised one by one.

    Label: eq:refreshed-optimum
    Source: by induction from RLHF's optimum.
    """
    return rlhf.optimal_logps(ref_logps, rewards, beta=beta / (1 + refreshes * rate))


# -- a price that follows ----------------------------------------------------------------------------------------


@takes(rewards="N", ref_logps="N", beta=POSITIVE, rate=POSITIVE)
def adaptive_kl_factor(ref_logps: Tensor, rewards: Tensor, *, beta: float, rate: float) -> Tensor:
    """By what an error of the adaptive controller is multiplied at each update, near the β that has the target KL.

    1 − rate · Var[r]/(β² KL) under the optimum for that β, with rate = num_samples/horizon, for a policy that is always
    at its optimum: between −1 and 1 the controller settles; below −1 it swings for ever, as far as its clip lets it.

    Label: eq:adaptive-kl-factor
    Source: derived here, from the controller of Ziegler et al. (2019), "Fine-tuning language models from human
        preferences", and the slope of the frontier.
    """
    logps = rlhf.optimal_logps(ref_logps, rewards, beta=beta)
    spent = (logps.exp() * (logps - ref_logps)).sum(-1)
    _, slope = rlhf.frontier_rates(ref_logps, rewards, beta=beta)  # dKL/dβ
    return 1 + rate * beta * slope / spent
