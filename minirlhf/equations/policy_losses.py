"""Policy objectives that the algorithms maximise, per token or per sequence.

An objective takes ``logps, old_logps, advantages, mask``, each ``(B, T)``, and returns ``(B, T)``, or ``(B, 1)`` if a
sequence has one ratio. :mod:`~minirlhf.equations.aggregation` reduces them to a scalar. They are *maximised*. The
decorators check the tensors and put zeros outside the mask, so entries outside the mask have no effect; gradients run
through ``logps`` only.

A clip range ``epsilon`` > 0 is also the upper one unless ``epsilon_high`` > 0 is given. Log-ratios are clamped to ±30,
so that ratios are finite.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.masking import last_index, masked_mean, masked_sum, zero_where_masked
from minirlhf.core.validate import MASK, NOT_NEGATIVE, POSITIVE, Arguments, Rule, sampled, takes, under_mask

# exp(±30) ≈ 10^±13: a larger ratio means that the run has diverged. Clamping keeps values and gradients finite.
LOG_RATIO_LIMIT = 30.0

# -- building blocks of the formulas -----------------------------------------------------------------------------


def _one_per_response(name: str, advantages: Tensor, arguments: Arguments) -> Tensor:
    under_mask().apply(name, advantages, arguments)
    advantage = advantages.detach().gather(-1, last_index(arguments.mask)[:, None])  # (B, 1)
    if bool(((advantages != advantage) & arguments.mask.bool()).any()):
        raise ArgumentError(
            f"{name} of shape {tuple(advantages.shape)} differ within a row; a sequence-level objective needs one "
            "advantage per completion",
            argument=name,
            problem="differ within a row",
        )
    return advantage


ONE_PER_RESPONSE = Rule("(B, T), one value in each row; the body gets (B, 1)", _one_per_response)
_BOTH_LOGPS = {"mask": MASK, "logps": sampled(gradient=True), "old_logps": sampled(gradient=False)}
ratio_inputs = takes(**_BOTH_LOGPS)
objective = takes(**_BOTH_LOGPS, advantages=sampled(gradient=False))
sequence_objective = takes(**_BOTH_LOGPS, advantages=ONE_PER_RESPONSE)


def clip_interval(epsilon: float, epsilon_high: float | None, delta: float | None = None) -> tuple[float, float]:
    """Return ``(1 − epsilon, 1 + epsilon_high)``; ``epsilon_high=None`` means ``epsilon``.

    Both ranges must be > 0, and ``delta`` must be > 1 + epsilon_high.
    """
    if not epsilon > 0.0:
        raise ArgumentError(f"epsilon = {epsilon!r}; expected a number > 0", argument="epsilon", value=epsilon)
    if epsilon_high is not None and not epsilon_high > 0.0:
        raise ArgumentError(
            f"epsilon_high = {epsilon_high!r}; expected a number > 0", argument="epsilon_high", value=epsilon_high
        )
    low, high = 1.0 - epsilon, 1.0 + (epsilon if epsilon_high is None else epsilon_high)
    if delta is not None and not delta > high:
        raise ArgumentError(
            f"delta = {delta!r}; expected a number > 1 + epsilon_high = {high}",
            argument="delta",
            value=delta,
            expected=high,
        )
    return low, high


def _exp(log_ratio: Tensor) -> Tensor:
    return _limited(log_ratio).exp()


def _limited(log_ratio: Tensor) -> Tensor:
    return log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


# -- one ratio per token -----------------------------------------------------------------------------------------


@objective
@equation(
    "eq:reinforce-objective",
    "eq:entropy-gradient",
    source='Williams (1992), "Simple statistical gradient-following algorithms for connectionist reinforcement '
    'learning".',
    gradient=("logps",),
)
def reinforce(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """``A_t · log π(a_t)``: its gradient is the policy gradient if the batch is on-policy. ``old_logps`` is not used."""
    return advantages * logps


@ratio_inputs
@equation(
    "eq:policy-ratio",
    source='Schulman et al. (2017), "Proximal Policy Optimization Algorithms", section 3.',
    gradient=("logps",),
)
def policy_ratio(logps: Tensor, old_logps: Tensor, mask: Tensor) -> Tensor:
    """``ρ_t = π(a_t) / π_old(a_t)``: reweights samples of the old policy for the new one; 0 outside the mask."""
    return zero_where_masked(_exp(logps - old_logps), mask)


@objective
@equation(
    "eq:importance-weighted",
    source='Schulman et al. (2017), "Proximal Policy Optimization Algorithms", eq. 6 (conservative policy iteration).',
    gradient=("logps",),
)
def importance_weighted(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """``ρ_t · A_t``, the surrogate without a clip: corrects action probabilities, has unbounded variance."""
    return _exp(logps - old_logps) * advantages


@objective
@equation(
    "eq:ppo-clip",
    "eq:ppo-clip-gradient",
    "eq:ppo-first-step",
    "eq:ppo-no-clip",
    "eq:clip-higher",
    "eq:clipped-surrogate",
    source='Schulman et al. (2017), "Proximal Policy Optimization Algorithms", eq. 7; ``epsilon_high``: Yu et al. '
    '(2025), DAPO; ``delta``: Ye et al. (2020), "Mastering Complex Control in MOBA Games with Deep '
    'Reinforcement Learning" (dual clip).',
    gradient=("logps",),
)
def ppo_clip(
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    epsilon: float = 0.2,
    epsilon_high: float | None = None,
    delta: float | None = None,
) -> Tensor:
    """``min(ρA, clip(ρ, 1 − ε, 1 + ε_high)·A)``: no gain from moving the ratio out of the interval.

    The clip removes a gradient; it does not bound the ratio. ``epsilon_high > epsilon`` is DAPO's
    clip-higher. With ``A < 0`` the term ``ρA`` is unbounded below. ``delta`` bounds it (two-sided or dual
    clip): the first ρ becomes ``min(ρ, δ)``.

    Args:
        epsilon: lower clip range, > 0; also the upper one unless ``epsilon_high`` is given.
        epsilon_high: upper clip range, > 0; None: the same as ``epsilon``.
        delta: upper bound of the ratio for negative advantages, > 1 + ``epsilon_high``.
    """
    low, high = clip_interval(epsilon, epsilon_high, delta)
    ratio = _exp(logps - old_logps)
    bounded = ratio if delta is None else ratio.clamp(max=delta)
    return torch.minimum(bounded * advantages, ratio.clamp(low, high) * advantages)


@takes(**_BOTH_LOGPS, advantages=sampled(gradient=False), beta=NOT_NEGATIVE)
@equation(
    "eq:ppo-penalty",
    source='Schulman et al. (2017), "Proximal Policy Optimization Algorithms", eq. 8, with the KL estimated from '
    "the samples.",
    gradient=("logps",),
)
def ppo_penalty(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor, *, beta: float) -> Tensor:
    """``ρA − β·(ρ − 1 − log ρ)``: a penalty on KL(π_old‖π) in place of the clip.

    The expectation of the bracket under π_old is the KL divergence. The bracket is never negative.

    Args:
        beta: penalty coefficient, ≥ 0; the paper adapts it to a KL target.
    """
    log_ratio = _limited(logps - old_logps)
    return log_ratio.exp() * advantages - beta * (torch.expm1(log_ratio) - log_ratio)


@objective
@equation(
    "eq:cispo",
    source='MiniMax (2025), "MiniMax-M1: Scaling Test-Time Compute Efficiently with Lightning Attention" (CISPO).',
    gradient=("logps",),
    stop_gradient=True,
)
def cispo(
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    epsilon: float | None = None,
    epsilon_high: float = 4.0,
    per_sequence: bool = False,
) -> Tensor:
    """``sg[clip(ρ, 1 − ε, 1 + ε_high)] · A · log π``: REINFORCE with a clipped weight; every token keeps a gradient.

    Args:
        epsilon: lower clip range, > 0; None: no lower bound, as in the paper's experiments.
        epsilon_high: the weight is at most ``1 + epsilon_high``; TRL's option of this name is the bound itself.
        per_sequence: use one ratio per completion (:func:`sequence_ratio`) in place of the token ratios.
    """
    low, high = clip_interval(1.0 if epsilon is None else epsilon, epsilon_high)
    ratio = _ratio(logps.detach(), old_logps, mask, per_sequence)
    return ratio.clamp(low, high) * advantages * logps


@takes(**_BOTH_LOGPS, advantages=sampled(gradient=False), sapo_temperature_pos=POSITIVE, sapo_temperature_neg=POSITIVE)
@equation("eq:sapo", source='Gao et al. (2025), "Soft Adaptive Policy Optimization".', gradient=("logps",))
def sapo(
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    sapo_temperature_pos: float = 1.0,
    sapo_temperature_neg: float = 1.05,
    per_sequence: bool = False,
) -> Tensor:
    """``4/τ · sigmoid(τ(ρ − 1)) · A``: a soft gate in place of the clip, narrower for larger τ: by default for A < 0.

    At ρ = 1 its slope equals the slope of ``ρA``. The slope decreases smoothly on both sides, and to 0 as ρ → ∞.

    Args:
        sapo_temperature_pos: temperature τ > 0 of the soft gate for positive advantages.
        sapo_temperature_neg: temperature τ > 0 of the soft gate for advantages ≤ 0.
        per_sequence: use one ratio per completion (:func:`sequence_ratio`) in place of the token ratios.
    """
    ratio = _ratio(logps, old_logps, mask, per_sequence)
    positive = 4.0 / sapo_temperature_pos * torch.sigmoid(sapo_temperature_pos * (ratio - 1))
    negative = 4.0 / sapo_temperature_neg * torch.sigmoid(sapo_temperature_neg * (ratio - 1))
    return torch.where(advantages > 0, positive, negative) * advantages


@takes(mask=MASK, logps=sampled(gradient=True), ptx_coef=NOT_NEGATIVE)
@equation(
    "eq:ptx",
    source='Ouyang et al. (2022), "Training language models to follow instructions with human feedback", eq. 2.',
    gradient=("logps",),
)
def pretraining(logps: Tensor, mask: Tensor, *, ptx_coef: float) -> Tensor:
    """``γ log π(x_t)`` on pretraining texts, against forgetting: the "ptx" term of PPO for language models.

    Its expectation over texts is ``−γ·KL(texts‖π)`` plus a constant: a forward KL, whereas the penalty on
    KL(π‖π_ref) is a reverse KL.

    Args:
        ptx_coef: γ ≥ 0.
    """
    return ptx_coef * logps


# -- one ratio per sequence --------------------------------------------------------------------------------------


@ratio_inputs
@equation("eq:gspo-ratio", source='Zheng et al. (2025), "Group Sequence Policy Optimization".', gradient=("logps",))
def sequence_ratio(logps: Tensor, old_logps: Tensor, mask: Tensor) -> Tensor:
    """``s = (π(y) / π_old(y))^(1/|y|)``, the geometric mean of the token ratios, ``(B, 1)``."""
    return _exp(masked_mean(logps - old_logps, mask, -1)).unsqueeze(-1)


def _ratio(logps: Tensor, old_logps: Tensor, mask: Tensor, per_sequence: bool) -> Tensor:
    """``(B, T)``: each token's ratio, or the ratio of its completion at every token."""
    if per_sequence:
        return sequence_ratio(logps, old_logps, mask).expand_as(mask)
    return _exp(logps - old_logps)


@takes(
    **_BOTH_LOGPS,
    advantages=ONE_PER_RESPONSE,
    vespo_k_pos=POSITIVE,
    vespo_lambda_pos=POSITIVE,
    vespo_k_neg=POSITIVE,
    vespo_lambda_neg=POSITIVE,
)
@equation(
    "eq:vespo",
    source='Shen et al. (2026), "VESPO: Variational Sequence-level Soft Policy Optimization for Off-Policy LLM '
    "Training\", arXiv:2602.10693, with the names and numbers of TRL's documentation.",
    gradient=("logps",),
    stop_gradient=True,
)
def vespo(
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    vespo_k_pos: float = 2.0,
    vespo_lambda_pos: float = 3.0,
    vespo_k_neg: float = 3.0,
    vespo_lambda_neg: float = 2.0,
) -> Tensor:
    """``sg[φ(w)] · A · log π(y_t)`` with ``w = π(y)/π_old(y)`` of the completion and ``φ(w) = w^k e^(λ(1 − w))``.

    φ(1) = 1. φ has its maximum at ``w = k/λ`` and decreases to 0 on both sides, so a completion whose probability has
    changed a lot, in either direction, has a small weight. w is the exact importance weight, without GSPO's exponent
    1/|y|.

    Args:
        vespo_k_pos: k > 0 of the weight w^k e^(λ(1 − w)) for advantages ≥ 0.
        vespo_lambda_pos: λ > 0 of the weight w^k e^(λ(1 − w)) for advantages ≥ 0.
        vespo_k_neg: k > 0 of the weight w^k e^(λ(1 − w)) for negative advantages.
        vespo_lambda_neg: λ > 0 of the weight w^k e^(λ(1 − w)) for negative advantages.
    """
    log_w = _limited(masked_sum(logps.detach() - old_logps, mask, -1)).unsqueeze(-1)  # (B, 1)
    non_negative, scalar = advantages >= 0, advantages.new_tensor
    k = torch.where(non_negative, scalar(vespo_k_pos), scalar(vespo_k_neg))
    rate = torch.where(non_negative, scalar(vespo_lambda_pos), scalar(vespo_lambda_neg))
    return (k * log_w - rate * torch.expm1(log_w)).exp() * advantages * logps


@sequence_objective
@equation(
    "eq:gspo-objective",
    "eq:gspo-gradient",
    source='Zheng et al. (2025), "Group Sequence Policy Optimization".',
    gradient=("logps",),
)
def gspo(
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    epsilon: float = 3e-4,
    epsilon_high: float | None = None,
    delta: float | None = None,
) -> Tensor:
    """``min(sA, clip(s, 1 − ε, 1 + ε_high)·A)``, ``(B, 1)``: the clip applies to whole completions.

    Args:
        epsilon: lower clip range, > 0, far smaller than PPO's; also the upper one unless ``epsilon_high`` is given.
        epsilon_high: upper clip range, > 0; the paper, the recipe and :func:`minirlhf.losses.gspo_loss` use 4e-4.
        delta: as in :func:`ppo_clip`, for ``s``; not in the paper.
    """
    low, high = clip_interval(epsilon, epsilon_high, delta)
    ratio = sequence_ratio(logps, old_logps, mask)
    bounded = ratio if delta is None else ratio.clamp(max=delta)
    return torch.minimum(bounded * advantages, ratio.clamp(low, high) * advantages)


@objective
@equation(
    "eq:gspo-token",
    source='Zheng et al. (2025), "Group Sequence Policy Optimization" (GSPO-token).',
    gradient=("logps",),
    stop_gradient=True,
)
def gspo_token(
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    epsilon: float = 3e-4,
    epsilon_high: float | None = None,
    delta: float | None = None,
) -> Tensor:
    """GSPO with an advantage per token: ``s_t = sg[s]·π(a_t)/sg[π(a_t)]`` in place of ``s``.

    Every ``s_t`` has the value of ``s`` and the gradient of its own token. With one advantage per completion,
    its mean over tokens equals :func:`gspo` in value and gradient.

    Args:
        epsilon, epsilon_high, delta: as in :func:`gspo`.
    """
    low, high = clip_interval(epsilon, epsilon_high, delta)
    ratio = sequence_ratio(logps, old_logps, mask).detach() * (logps - logps.detach()).exp()  # (B, T)
    bounded = ratio if delta is None else ratio.clamp(max=delta)
    return torch.minimum(bounded * advantages, ratio.clamp(low, high) * advantages)


@equation("eq:luspo", source='Liu et al. (2026), "Length-Unbiased Sequence Policy Optimization".', gradient=("logps",))
def luspo(
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    epsilon: float = 3e-4,
    epsilon_high: float | None = None,
    delta: float | None = None,
) -> Tensor:
    """``|y| · gspo``, ``(B, 1)``: no length bias: tokens of all completions have the same weight.

    Args:
        epsilon, epsilon_high, delta: as in :func:`gspo`.
    """
    per_sequence = gspo(logps, old_logps, advantages, mask, epsilon=epsilon, epsilon_high=epsilon_high, delta=delta)
    return per_sequence * mask.bool().sum(-1, keepdim=True)


@sequence_objective
@equation("eq:gmpo", source='Zhao et al. (2025), "Geometric-Mean Policy Optimization".', gradient=("logps",))
def gmpo(
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    epsilon: float = 0.4,
    epsilon_high: float | None = None,
) -> Tensor:
    """``A · (Π_t ρ̂_t)^(1/|y|)``, ``(B, 1)``: the geometric mean over tokens, each ρ clipped on the log scale.

    ``ρ̂`` is the one of ρ and its clip to ``[e^−ε, e^ε_high]`` that makes the objective smaller.

    Args:
        epsilon: lower clip range of ``log ρ``, > 0; also the upper one unless ``epsilon_high`` is given.
        epsilon_high: upper clip range of ``log ρ``, > 0.
    """
    clip_interval(epsilon, epsilon_high)  # only checks the arguments
    log_ratio = logps - old_logps
    clipped = log_ratio.clamp(-epsilon, epsilon if epsilon_high is None else epsilon_high)
    pessimistic = torch.where(advantages > 0, torch.minimum(log_ratio, clipped), torch.maximum(log_ratio, clipped))
    return advantages * _exp(masked_mean(pessimistic, mask, -1)).unsqueeze(-1)
