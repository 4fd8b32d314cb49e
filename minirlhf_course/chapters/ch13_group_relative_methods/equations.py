"""The equations that only chapter 13 needs: the speed of an entropy, and the variance of a group's gradient.

Metrics are scalars over ``(B, T)``, for logging only; no gradient flows. Rewards and ``valid`` are ``(P, G)``.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.masking import masked_mean, zero_where_masked
from minirlhf.core.validate import MASK, finite, require_range, takes, under_mask

# -- diagnostics -------------------------------------------------------------------------------------------------


@torch.no_grad()
@takes(logits="... V", advantages="... V")
@equation(
    "eq:entropy-covariance",
    source='Cui et al. (2025), "The entropy mechanism of reinforcement learning for reasoning language models".',
    gradient=(),
)
def entropy_rate(logits: Tensor, advantages: Tensor) -> Tensor:
    """−Cov_π(log π, π A): change of a distribution's entropy per unit of step size, if logit a changes by π(a) A(a).

    This change of the logits is the gradient of E_π[A] for advantages with mean 0 under π. A mean other than 0 is
    subtracted from the advantages first.

    Returns: ``(...)``, nats per unit of step size, to first order in it.
    """
    logps = logits.log_softmax(-1)
    probs = logps.exp()

    def mean(x: Tensor) -> Tensor:
        return (probs * x).sum(-1, keepdim=True)

    logit_steps = probs * (advantages - mean(advantages))  # (..., V)
    return -mean((logps - mean(logps)) * (logit_steps - mean(logit_steps)))[..., 0]


@torch.no_grad()
@takes(mask=MASK, logps=under_mask(), advantages=under_mask())
@equation(
    "eq:token-covariance",
    source='Cui et al. (2025), "The entropy mechanism of reinforcement learning for reasoning language models".',
    gradient=(),
)
def token_covariances(logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Each token's part of the covariance of log-probability and advantage over the batch: ``(log π − mean)(A − mean)``.

    Clip-Cov takes the gradient of a few tokens between two bounds of this number; KL-Cov penalises the tokens with the
    largest ones.

    Args: logps, advantages ``(B, T)``; the means are over all tokens under the mask.
    Returns: ``(B, T)``, 0 on padding. The mean over the tokens is their covariance.
    """
    values = (logps - masked_mean(logps, mask)) * (advantages - masked_mean(advantages, mask))
    return zero_where_masked(values, mask)


# -- difficulty --------------------------------------------------------------------------------------------------


@equation("eq:bnpo-variance", source='Xiao, Zhang & Cao (2025), "BNPO: Beta Normalization Policy Optimization".')
def bnpo_variance(a: float, b: float, *, shape: tuple[float, float]) -> float:
    """``∫ p(1 − p) Beta(p; a, b) / Beta(p; shape)² dp``, to which the variance of BNPO's gradient is proportional.

    The variance is over prompts whose pass rates follow Beta(a, b), if the size of ∇log π does not depend on the
    reward. It is the absolute variance. All weights cannot shrink at once to reduce it, because a density
    integrates to 1.

    Args: a, b and both numbers of ``shape`` > 0.
    Returns: inf where the integral diverges, from ``shape`` = (a + 3)/2, (b + 3)/2 on.
    """
    u, v = shape
    require_range(0, float("inf"), a=a, b=b, u=u, v=v)
    left, right = a + 3 - 2 * u, b + 3 - 2 * v
    if left <= 0 or right <= 0:
        return math.inf

    def log_beta(x: float, y: float) -> float:
        return math.lgamma(x) + math.lgamma(y) - math.lgamma(x + y)

    return math.exp(2 * log_beta(u, v) - log_beta(a, b) + log_beta(left, right))


@takes(
    prompt_variance=finite("...", "[0, inf)"),
    own_variance=finite("...", "[0, inf)"),
    baseline_variance=finite("...", "[0, inf)"),
)
@equation("eq:group-size", source="derived here; the variance of a U-statistic (Hoeffding 1948).")
def group_gradient_variance(
    prompt_variance: Tensor,
    own_variance: Tensor,
    baseline_variance: Tensor,
    *,
    num_prompts: int,
    num_generations: int,
) -> Tensor:
    """Variance of a batch's policy gradient with the leave-one-out baseline: ``(V + (S + W/(G − 1))/G) / P``.

    The variance of a vector is the sum of the variances of its components. For the gradients ``g(x)`` of the prompts, V
    is their variance over prompts, S the mean over prompts of the variance of ``(r − J(x)) ∇log π(y)`` for one
    completion, and W the mean of ``Var(r)·E|∇log π(y)|² + |g(x)|²``, which the estimated baseline adds.
    """
    within = own_variance + baseline_variance / (num_generations - 1)
    return (prompt_variance + within / num_generations) / num_prompts


@takes(prompt_variance=finite("...", "(0, inf)"), baseline_variance=finite("...", "[0, inf)"))
@equation("eq:best-group-size", source="derived here, from :func:`group_gradient_variance`.")
def best_group_size(prompt_variance: Tensor, baseline_variance: Tensor) -> Tensor:
    """Group size with the least gradient variance if P·G is fixed: ``1 + sqrt(W/V)``, not rounded."""
    return 1 + (baseline_variance / prompt_variance).sqrt()
