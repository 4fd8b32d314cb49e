"""Divergences between policies: exact, estimated from samples, and regularised in training. In nats.

Throughout, π is the policy that is trained and that samples, and π_ref is the reference policy. *Reverse* KL is
KL(π‖π_ref), *forward* KL is KL(π_ref‖π). Functions of whole distributions take logits ``(..., V)`` of π and of π_ref
and return ``(...)``. Log-probabilities are logits too, and −inf marks an impossible token. The sums use float32 or
wider. Functions of samples take the log-probabilities of the tokens that π sampled, in any shape, and return that
shape. NaN passes through, so that a mask can drop it afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.logprobs import token_entropies
from minirlhf.core.masking import zero_where_masked
from minirlhf.core.validate import FINITE, MASK, NOT_NEGATIVE, POSITIVE, number, sampled, shape, takes

_two_policies = takes(logits=shape("... V"), ref_logits=shape("... V"))

# -- exact: sums over the vocabulary -----------------------------------------------------------------------------


def _log_softmax(logits: Tensor) -> Tensor:
    is_half_precision = logits.dtype in (torch.float16, torch.bfloat16)  # too coarse to sum over a vocabulary
    return logits.log_softmax(-1, dtype=torch.float32 if is_half_precision else None)


def _divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Σ p (log p − log q) with 0 log 0 = 0, also in the gradient: −inf is replaced before the multiplication."""
    impossible = log_p == -math.inf
    log_ratio = log_p.masked_fill(impossible, 0.0) - log_q.masked_fill(impossible, 0.0)
    return (log_p.exp() * log_ratio).sum(-1)


@_two_policies
@equation("eq:reverse-kl", source='Kullback and Leibler (1951), "On information and sufficiency".')
def reverse_kl(logits: Tensor, ref_logits: Tensor) -> Tensor:
    """Reverse KL divergence KL(π‖π_ref) = Σ π (log π − log π_ref); +inf where π allows what π_ref forbids.

    The expectation is under the policy, so the KL is large where π puts mass and π_ref does not: mode seeking.
    On logits ``(B, T, V)`` the result is the full-distribution KL of every position.
    """
    return _divergence(_log_softmax(logits), _log_softmax(ref_logits))


@_two_policies
@equation("eq:forward-kl", source='Kullback and Leibler (1951), "On information and sufficiency".')
def forward_kl(logits: Tensor, ref_logits: Tensor) -> Tensor:
    """Forward KL divergence KL(π_ref‖π) = Σ π_ref (log π_ref − log π); +inf where π forbids what π_ref allows.

    The expectation is under the reference (or the data, or a teacher), so the KL is large where π misses mass: mode
    covering. Its gradient is the gradient of the supervised loss −Σ π_ref log π.
    """
    return _divergence(_log_softmax(ref_logits), _log_softmax(logits))


@takes(logits=shape("... V"), ref_logits=shape("... V"), beta=number("(0, 1)"))
@equation(
    "eq:generalised-jsd",
    source='Agarwal et al. (2024), "On-policy distillation of language models", with π_ref as the teacher.',
)
def generalised_jsd(logits: Tensor, ref_logits: Tensor, *, beta: float = 0.5) -> Tensor:
    """Generalised Jensen–Shannon divergence β KL(π_ref‖m) + (1−β) KL(π‖m) with m = β π_ref + (1−β) π.

    The entropy of (β, 1−β) bounds it for any supports. Divided by β it tends to the forward KL as β → 0. Divided by 1−β
    it tends to the reverse KL as β → 1.
    """
    log_p, log_q = _log_softmax(logits), _log_softmax(ref_logits)
    impossible = (log_p == -math.inf) & (log_q == -math.inf)  # under both; logaddexp has no gradient at these tokens
    weighted = (log_q + math.log(beta), log_p + math.log1p(-beta))
    log_m = torch.logaddexp(*(x.masked_fill(impossible, 0.0) for x in weighted))
    return beta * _divergence(log_q, log_m) + (1 - beta) * _divergence(log_p, log_m)


# -- f-divergences: D_f(π‖π_ref) = Σ π_ref f(π/π_ref); each f as a function of the log-ratio u = log(π/π_ref) ----------


@takes(logits=shape("... V"), ref_logits=shape("... V"))
@equation(
    "eq:f-divergence",
    source='Csiszár (1967), "Information-type measures of difference of probability distributions".',
)
def f_divergence(f: Callable[[Tensor], Tensor], logits: Tensor, ref_logits: Tensor) -> Tensor:
    """f-divergence D_f(π‖π_ref) = Σ π_ref f(π/π_ref) for a convex f with f(1) = 0; logits finite.

    f, one of ``f_*`` below, maps log-ratios to f(ratio) elementwise. The ratio overflows where the log-ratio
    exceeds about 88 in float32 and 709 in float64.
    """
    log_p, log_q = _log_softmax(logits), _log_softmax(ref_logits)
    return (log_q.exp() * f(log_p - log_q)).sum(-1)


@equation("eq:f-reverse-kl", source="Csiszár (1967).")
def f_reverse_kl(log_ratio: Tensor) -> Tensor:
    """The f of the reverse KL: f(t) = t log t, at t = exp(log_ratio)."""
    return log_ratio.exp() * log_ratio


@equation("eq:f-forward-kl", source="Csiszár (1967).")
def f_forward_kl(log_ratio: Tensor) -> Tensor:
    """The f of the forward KL: f(t) = −log t, at t = exp(log_ratio)."""
    return -log_ratio


@equation("eq:f-jensen-shannon", source='Lin (1991), "Divergence measures based on the Shannon entropy".')
def f_jensen_shannon(log_ratio: Tensor) -> Tensor:
    """The f of the Jensen–Shannon divergence: f(t) = ½ [t log t − (t + 1) log((t + 1)/2)].

    Some papers omit the ½; their divergence is twice this one.
    """
    ratio = log_ratio.exp()
    log_mixture = torch.nn.functional.softplus(log_ratio) - math.log(2.0)  # log((t + 1)/2)
    return 0.5 * (ratio * (log_ratio - log_mixture) - log_mixture)


@equation(
    "eq:f-alpha",
    source='Amari (1985), "Differential-geometrical methods in statistics"; in this parametrisation Wang et al. '
    '(2024), "Beyond reverse KL: generalizing direct preference optimization with diverse divergence '
    'constraints".',
)
def f_alpha(log_ratio: Tensor, *, alpha: float) -> Tensor:
    """The f of the α-divergence: f(t) = (t^(1−α) − (1−α) t − α) / (α (α − 1)), α neither 0 nor 1.

    α → 0 gives the reverse KL and α → 1 the forward KL (both up to a multiple of t − 1, which sums to 0).
    """
    if not math.isfinite(alpha) or alpha in (0.0, 1.0):
        raise ArgumentError(
            f"alpha = {alpha!r}; expected a finite number other than 0 and 1 (use the KL there)",
            argument="alpha",
            value=alpha,
        )
    power = torch.expm1((1 - alpha) * log_ratio)
    return (power - (1 - alpha) * torch.expm1(log_ratio)) / (alpha * (alpha - 1))


@equation("eq:f-chi-squared", source="Pearson (1900); as an f-divergence Csiszár (1967).")
def f_chi_squared(log_ratio: Tensor) -> Tensor:
    """The f of Pearson's χ² divergence: f(t) = (t − 1)². The divergence is the variance of the ratio under π_ref."""
    return torch.expm1(log_ratio) ** 2


@equation("eq:f-total-variation", source="Csiszár (1967).")
def f_total_variation(log_ratio: Tensor) -> Tensor:
    """The f of the total variation distance: f(t) = ½ |t − 1|; the divergence lies in [0, 1]."""
    return 0.5 * torch.expm1(log_ratio).abs()


# -- estimated from samples of π ---------------------------------------------------------------------------------


@takes(logps=shape("..."), ref_logps=shape("..."))
@equation("eq:k1", source='Schulman (2020), "Approximating KL divergence".')
def k1(logps: Tensor, ref_logps: Tensor) -> Tensor:
    """The estimator k1 = log π − log π_ref of KL(π‖π_ref), for tokens sampled from π.

    Unbiased, but often negative and of high variance. As a loss it does not regularise: on on-policy samples its expected
    gradient is 0, and it only adds variance.
    """
    return logps - ref_logps


@equation("eq:k2", source='Schulman (2020), "Approximating KL divergence".')
def k2(logps: Tensor, ref_logps: Tensor) -> Tensor:
    """The estimator k2 = ½ (log π − log π_ref)² of KL(π‖π_ref), for tokens sampled from π.

    Biased (third order in the difference), never negative. As a loss its expected gradient is the gradient of
    KL(π‖π_ref).
    """
    return 0.5 * k1(logps, ref_logps) ** 2


@equation("eq:k3", "eq:k3-nonnegative", "eq:k3-gradient", source='Schulman (2020), "Approximating KL divergence".')
def k3(logps: Tensor, ref_logps: Tensor) -> Tensor:
    """The estimator k3 = (r − 1) − log r of KL(π‖π_ref), r = π_ref/π, for tokens sampled from π.

    Unbiased, as k1 is, and never negative, because log r lies below its tangent r − 1. As a loss its expected gradient
    is the gradient of the *forward* KL, KL(π_ref‖π): dk3/dlogps = 1 − r. Overflows where the probability under π_ref is
    e^88 times the probability under π (float32).
    """
    log_r = -k1(logps, ref_logps)
    return torch.expm1(log_r) - log_r


@takes(mask=MASK, logits=shape("B T V"), ref_logits=shape("B T V"))
@equation(
    "eq:full-kl",
    source='the chain rule, Cover and Thomas (2006), "Elements of information theory", theorem 2.5.3.',
)
def full_kl(logits: Tensor, ref_logits: Tensor, mask: Tensor) -> Tensor:
    """KL of completions ``(B,)`` as a sum over positions: Σ_t KL(π(·|prefix)‖π_ref(·|prefix)) over the mask.

    By the chain rule of KL, the expectation of this sum over completions of π is the KL between the distributions of
    completions. It mostly has less variance than the sum of k1, and needs two rows of logits instead of two numbers per
    token. As a loss it lacks the part of the gradient that comes from the choice of prefixes.
    """
    return _position_kls(logits, ref_logits, mask).sum(-1)


@takes(mask=MASK, logits=shape("B T V"), ref_logits=shape("B T V"), logps=sampled(gradient=True))
@equation(
    "eq:full-kl-gradient",
    source='the product rule along the chain rule of KL; Tang and Munos (2025), "On a few pitfalls in KL '
    'divergence gradient estimation for RL".',
    stop_gradient=True,
)
def full_kl_with_score(logits: Tensor, ref_logits: Tensor, logps: Tensor, mask: Tensor) -> Tensor:
    """:func:`full_kl`, ``(B,)``, with the part of the gradient that comes from the choice of prefixes.

    Each sampled token gets the credit for the KLs of the positions *after* it: Σ_t [∇KL_t + ∇log π(y_t) Σ_{k>t} KL_k].
    The expectation over completions of π is ∇KL(π‖π_ref) of whole completions. A token-level KL in the loss has only
    the sum of ∇KL_t. As a formula, ``Σ_t KL_t + sg[Σ_{k>t} KL_k] · (log π(y_t) − sg[log π(y_t)])``.

    Args:
        logps: log-probabilities of the tokens that π sampled.
    """
    position_kls = zero_where_masked(_position_kls(logits, ref_logits, mask), mask)
    return with_prefix_credit(position_kls, logps, mask).sum(-1)


@takes(mask=MASK, values=sampled(gradient=True), logps=sampled(gradient=True))
@equation(
    "eq:prefix-credit",
    source="the product rule, as in :func:`full_kl_with_score`, for any divergence of two distributions.",
    stop_gradient=True,
)
def with_prefix_credit(values: Tensor, logps: Tensor, mask: Tensor) -> Tensor:
    """Values of positions, ``(B, T)``, with the gradient of their expected sum over a completion that π has sampled.

    A value depends on its prefix, and so on the tokens sampled before it. Each token gets the credit for the values
    *after* it: ``v_t + sg[Σ_{k>t} v_k] · (log π(y_t) − sg[log π(y_t)])``. Without this term a loss lacks the part of
    the gradient that comes from the choice of prefixes.

    Args:
        values: each a function of the distributions at its position.
        logps: log-probabilities of the tokens that π sampled.
    """
    future_sums = values.detach().flip(-1).cumsum(-1).flip(-1) - values.detach()
    return values + future_sums * (logps - logps.detach())


def _position_kls(logits: Tensor, ref_logits: Tensor, mask: Tensor) -> Tensor:
    """KL(π‖π_ref) at each position, ``(B, T)``, 0 outside the mask."""
    padding = ~mask.bool().unsqueeze(-1)  # filled before the softmax, so that no NaN there reaches a gradient
    return reverse_kl(logits.masked_fill(padding, 0.0), ref_logits.masked_fill(padding, 0.0))


# -- regularisation ----------------------------------------------------------------------------------------------


@takes(beta=POSITIVE, observed=FINITE, target=POSITIVE, horizon=POSITIVE, num_samples=POSITIVE, error_clip=POSITIVE)
@equation(
    "eq:adaptive-kl",
    source='Ziegler et al. (2019), "Fine-tuning language models from human preferences", section 2.2.',
)
def adaptive_kl_beta(
    beta: float, observed: float, *, target: float, horizon: float, num_samples: int = 1, error_clip: float = 0.2
) -> float:
    """The next coefficient of a proportional controller: β (1 + clip(observed/target − 1) · num_samples/horizon).

    A KL above the target raises β, a KL below the target lowers it. The clip limits the effect of one unusual batch.

    Args:
        observed: estimated KL of the batch, which may be negative.
        target: the desired KL, > 0.
        horizon, num_samples: in the same unit, e.g. 10,000 and the completions per batch; it is an error if beta could
            reach 0 in one update (error_clip · num_samples ≥ horizon).
        error_clip: .2 in the paper.
    """
    if error_clip * num_samples >= horizon:
        raise ArgumentError(
            f"horizon = {horizon!r} is too short for num_samples = {num_samples}: beta could reach 0",
            argument="horizon",
            value=horizon,
            expected=num_samples,
        )
    error = min(max(observed / target - 1.0, -error_clip), error_clip)
    return beta * (1.0 + error * num_samples / horizon)


@takes(coef=NOT_NEGATIVE)
@equation(
    "eq:entropy-bonus",
    source='Williams and Peng (1991), "Function optimization using connectionist reinforcement learning algorithms".',
)
def entropy_bonus(logits: Tensor, *, coef: float) -> Tensor:
    """Entropy bonus coef · H(π), to be added to an objective: it rewards a policy of high entropy.

    H(π) = log V − KL(π‖uniform), so it is a KL penalty whose reference is the uniform distribution.
    """
    return coef * token_entropies(logits)
