"""Returns and advantages over the tokens that a policy sampled.

Everything is ``(B, T)``. "Next" is the next *sampled* token: where the mask has a hole, because a tool or the environment
wrote there, the step jumps across it, and no discount is lost on the way. Rewards and values count at sampled tokens
only. ``bootstrap (B,)`` is the value after the last sampled token: that of the state in which a response was cut off, and
0 (the default) if it ended by itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.masking import masked_sum, zero_where_masked
from minirlhf.core.validate import (
    require_finite,
    require_finite_where,
    require_mask,
    require_positive,
    require_range,
    require_shapes,
)

# -- returns -------------------------------------------------------------------------------------------------------


def total_return(rewards: Tensor, mask: Tensor, *, gamma: float = 1.0) -> Tensor:
    """Total return R(τ) = Σ_k γ^k r_k, the same at every token.

    Label: eq:total-return
    Source: Williams (1992), "Simple statistical gradient-following algorithms for connectionist reinforcement learning".
    Args: rewards ``(B, T)``; mask ``(B, T)``; gamma in [0, 1].
    Returns: ``(B, T)``, 0 outside the mask.
    Raises: ValueError if shapes differ, the mask has an empty row, rewards is not finite under it, or gamma is outside [0, 1].
    """
    _require(mask, gamma, rewards=rewards)
    discount = gamma ** (mask.long().cumsum(-1) - 1).to(rewards.dtype)  # (B, T), γ to the number of tokens before
    total = masked_sum(discount * rewards, mask, -1)  # (B,)
    return zero_where_masked(total[:, None].expand_as(rewards), mask)


def returns_to_go(rewards: Tensor, mask: Tensor, *, gamma: float = 1.0, bootstrap: Tensor | None = None) -> Tensor:
    """Reward-to-go G_t = Σ_{k≥t} γ^(k−t) r_k: what comes after an action, which is all that it can have caused.

    Label: eq:returns-to-go
    Source: Williams (1992), "Simple statistical gradient-following algorithms for connectionist reinforcement learning".
    Args: rewards ``(B, T)``; mask ``(B, T)``; gamma in [0, 1]; bootstrap ``(B,)``, zeros if None.
    Returns: ``(B, T)``, 0 outside the mask.
    Raises: ValueError as :func:`total_return`, or if bootstrap is not ``(B,)`` and finite.
    """
    last = _require(mask, gamma, bootstrap, rewards=rewards)
    return _accumulate(rewards, mask, gamma, last)


def subtract_baseline(returns: Tensor, baseline: Tensor, mask: Tensor) -> Tensor:
    """Returns less a baseline, G_t − b(s_t). The gradient keeps its expectation, E[∇log π · b] = 0, and loses variance.

    The baseline may know all that came before the token (of this sample, and anything of others), not the token itself.

    Label: eq:baseline-identity
    Source: Williams (1992); Greensmith, Bartlett and Baxter (2004), "Variance reduction techniques for gradient estimates
        in reinforcement learning".
    Args: returns ``(B, T)``; baseline ``(B, T)``; mask ``(B, T)``.
    Returns: ``(B, T)``, 0 outside the mask.
    Raises: ValueError if shapes differ, the mask has an empty row, or a value under it is not finite.
    """
    _require(mask, 1.0, returns=returns, baseline=baseline)
    return zero_where_masked(returns - baseline, mask)


# -- one step and n steps ------------------------------------------------------------------------------------------


def td_residuals(
    rewards: Tensor, values: Tensor, mask: Tensor, *, gamma: float = 1.0, bootstrap: Tensor | None = None
) -> Tensor:
    """TD residual δ_t = r_t + γ V(s_{t+1}) − V(s_t), an estimate of the advantage from one step.

    Label: eq:td-residual
    Source: Sutton (1988), "Learning to predict by the methods of temporal differences".
    Args: rewards ``(B, T)``; values ``(B, T)`` before each token; mask ``(B, T)``; gamma in [0, 1]; bootstrap ``(B,)``.
    Returns: ``(B, T)``, 0 outside the mask.
    Raises: ValueError as :func:`returns_to_go`, for values too.
    """
    last = _require(mask, gamma, bootstrap, rewards=rewards, values=values)
    return zero_where_masked(rewards + gamma * _at_next(values, mask, last) - values, mask)


def n_step_advantages(
    rewards: Tensor,
    values: Tensor,
    mask: Tensor,
    *,
    n: int,
    gamma: float = 1.0,
    bootstrap: Tensor | None = None,
) -> Tensor:
    """n-step advantage A^(n)_t = r_t + γ r_{t+1} + … + γ^(n−1) r_{t+n−1} + γ^n V(s_{t+n}) − V(s_t).

    Where fewer than n tokens are left, it ends at the last one with the bootstrap.

    Label: eq:n-step-advantage
    Source: Schulman et al. (2016), "High-dimensional continuous control using generalized advantage estimation".
    Args: rewards, values, mask ``(B, T)``; n ≥ 1 tokens; gamma in [0, 1]; bootstrap ``(B,)``.
    Returns: ``(B, T)``, 0 outside the mask.
    Raises: ValueError as :func:`td_residuals`, or if n < 1.
    """
    last = _require(mask, gamma, bootstrap, rewards=rewards, values=values)
    _require_steps(n)
    target = values
    for _ in range(min(n, mask.shape[-1])):  # one more backup V ← r + γ V' per step
        target = rewards + gamma * _at_next(target, mask, last)
    return zero_where_masked(target - values, mask)


def n_step_from_residuals(residuals: Tensor, mask: Tensor, *, n: int, gamma: float = 1.0) -> Tensor:
    """n-step advantage as a sum of TD residuals, A^(n)_t = Σ_{l<n} γ^l δ_{t+l}: the values between cancel in pairs.

    Label: eq:n-step-telescoped
    Source: Schulman et al. (2016), "High-dimensional continuous control using generalized advantage estimation".
    Args: residuals ``(B, T)`` of :func:`td_residuals` with the same gamma; mask ``(B, T)``; n ≥ 1.
    Returns: ``(B, T)``, 0 outside the mask.
    Raises: ValueError if shapes differ, the mask has an empty row, residuals is not finite under it, or n < 1.
    """
    last = _require(mask, gamma, residuals=residuals)
    _require_steps(n)
    total = torch.zeros_like(residuals)
    for _ in range(min(n, mask.shape[-1])):
        total = residuals + gamma * _at_next(total, mask, last)
    return zero_where_masked(total, mask)


# -- GAE -----------------------------------------------------------------------------------------------------------


def gae_mixture(
    rewards: Tensor,
    values: Tensor,
    mask: Tensor,
    *,
    gamma: float = 1.0,
    lam: float = 0.95,
    bootstrap: Tensor | None = None,
) -> Tensor:
    """GAE by its definition, (1−λ) Σ_{n≥1} λ^(n−1) A^(n)_t: an exponential mixture of all n-step advantages.

    Takes O(T²) steps; :func:`gae` computes the same in O(T).

    Label: eq:gae-mixture
    Source: Schulman et al. (2016), "High-dimensional continuous control using generalized advantage estimation".
    Args: rewards, values, mask ``(B, T)``; gamma and lam in [0, 1]; bootstrap ``(B,)``.
    Returns: ``(B, T)``, 0 outside the mask.
    Raises: ValueError as :func:`gae`.
    """
    require_range(0.0, 1.0, lam=lam)
    width = mask.shape[-1]
    total = torch.zeros_like(rewards)
    for n in range(1, width + 1):
        # From n = T on, all are equal: the last one carries the rest of the weight, Σ_{k≥T} (1−λ) λ^(k−1) = λ^(T−1).
        weight = (1 - lam) * lam ** (n - 1) if n < width else lam ** (width - 1)
        total = total + weight * n_step_advantages(rewards, values, mask, n=n, gamma=gamma, bootstrap=bootstrap)
    return total


def gae_sum(residuals: Tensor, mask: Tensor, *, gamma: float = 1.0, lam: float = 0.95) -> Tensor:
    """GAE as a discounted sum of TD residuals, Σ_l (γλ)^l δ_{t+l}, written as one matrix product per row.

    Label: eq:gae-sum
    Source: Schulman et al. (2016), "High-dimensional continuous control using generalized advantage estimation".
    Args: residuals ``(B, T)`` of :func:`td_residuals` with the same gamma; mask ``(B, T)``; gamma and lam in [0, 1].
    Returns: ``(B, T)``, 0 outside the mask.
    Raises: ValueError if shapes differ, the mask has an empty row, or residuals is not finite under it.
    """
    _require(mask, gamma, residuals=residuals)
    require_range(0.0, 1.0, lam=lam)
    rank = mask.long().cumsum(-1)  # (B, T), the how-many-th sampled token
    ahead = rank[:, None, :] - rank[:, :, None]  # (B, T, T), tokens from t to t'
    weights = torch.where(
        ahead >= 0, (gamma * lam) ** ahead.clamp(min=0).to(residuals.dtype), ahead.new_zeros((), dtype=residuals.dtype)
    )
    total = torch.einsum("btk,bk->bt", weights, zero_where_masked(residuals, mask))
    return zero_where_masked(total, mask)


def gae(
    rewards: Tensor,
    values: Tensor,
    mask: Tensor,
    *,
    gamma: float = 1.0,
    lam: float | Tensor = 0.95,
    bootstrap: Tensor | None = None,
) -> Tensor:
    """Generalised advantage estimation by the recursion A_t = δ_t + γλ A_{t+1} over the sampled tokens.

    λ = 0 is the TD residual (little variance, biased by wrong values), λ = 1 the return minus the value (unbiased).

    Label: eq:gae
    Source: Schulman et al. (2016), "High-dimensional continuous control using generalized advantage estimation".
    Args: rewards ``(B, T)``; values ``(B, T)``, V before each token; mask ``(B, T)``; gamma in [0, 1]; lam in [0, 1], one
        number or ``(B,)``; bootstrap ``(B,)``, the value after the last sampled token of a response that was cut off.
    Returns: ``(B, T)``, 0 outside the mask.
    Raises: ValueError if shapes differ, the mask has an empty row, a value under it is not finite, or gamma or lam is
        outside [0, 1].
    """
    residuals = td_residuals(rewards, values, mask, gamma=gamma, bootstrap=bootstrap)
    if isinstance(lam, Tensor):
        require_shapes(mask=(mask, "B T"), lam=(lam, "B"))
        if not bool(((lam >= 0) & (lam <= 1)).all()):
            raise ValueError(f"lam of shape {tuple(lam.shape)} holds a number outside [0, 1]")
    else:
        require_range(0.0, 1.0, lam=lam)
    return _accumulate(residuals, mask, gamma * lam, residuals.new_zeros(len(mask)))


def lambda_returns(advantages: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """λ-return G^λ_t = A^GAE_t + V(s_t): the target of the critic that goes with GAE.

    Label: eq:lambda-return
    Source: Watkins (1989), "Learning from delayed rewards".
    Args: advantages ``(B, T)`` of :func:`gae`; values ``(B, T)``, the same that it was given; mask ``(B, T)``.
    Returns: ``(B, T)``, 0 outside the mask.
    Raises: ValueError if shapes differ, the mask has an empty row, or a value under it is not finite.
    """
    _require(mask, 1.0, advantages=advantages, values=values)
    return zero_where_masked(advantages + values, mask)


def length_adaptive_lambda(lengths: Tensor, *, alpha: float = 0.05) -> Tensor:
    """Length-adaptive λ = 1 − 1/(αl), so that GAE's weights Σ_k λ^k = 1/(1−λ) add up to αl: a constant share of the response.

    A response shorter than 1/α tokens gets λ = 0, for which the formula would be negative.

    Label: eq:length-adaptive-lambda
    Source: Yue et al. (2025), "VAPO: Efficient and reliable reinforcement learning for advanced reasoning tasks".
    Args: lengths ``(B,)``, sampled tokens per response, ≥ 1; alpha > 0.
    Returns: ``(B,)`` in [0, 1), float64 unless lengths is a float tensor.
    Raises: ValueError if lengths is not ``(B,)``, one is below 1, or alpha is not positive.
    """
    require_shapes(lengths=(lengths, "B"))
    require_positive(alpha=alpha)
    if not bool((lengths >= 1).all()):
        raise ValueError(f"lengths of shape {tuple(lengths.shape)} holds a number below 1")
    length = lengths if lengths.is_floating_point() else lengths.double()
    return (1 - 1 / (alpha * length)).clamp(min=0.0)


# -- importance sampling -------------------------------------------------------------------------------------------


def importance_weights(logps: Tensor, behavior_logps: Tensor, mask: Tensor) -> Tensor:
    """Per-decision importance weights w_t = Π_{k≤t} π(a_k|s_k)/b(a_k|s_k), for samples of b as if they were of π.

    w_t corrects a reward at t; the weight of the last token is that of the whole response. Its variance grows
    exponentially with the length.

    Label: eq:importance-weights
    Source: Precup, Sutton and Singh (2000), "Eligibility traces for off-policy policy evaluation".
    Args: logps ``(B, T)`` under π; behavior_logps ``(B, T)`` under the policy that sampled; mask ``(B, T)``.
    Returns: ``(B, T)``, ≥ 0, 0 outside the mask; +inf where a weight exceeds the range of the dtype.
    Raises: ValueError if shapes differ, the mask has an empty row, or a value under it is not finite.
    """
    _require(mask, 1.0, logps=logps, behavior_logps=behavior_logps)
    log_weights = zero_where_masked(logps - behavior_logps, mask).cumsum(-1)
    return zero_where_masked(log_weights.exp(), mask)


# -- helpers -------------------------------------------------------------------------------------------------------


def _at_next(x: Tensor, mask: Tensor, last: Tensor) -> Tensor:
    """``x`` at the next sampled token, ``last (B,)`` where there is none: ``(B, T)``; reads no entry outside the mask."""
    width = x.shape[-1]
    position = torch.where(mask.bool(), torch.arange(width, device=x.device), width)  # (B, T), T where not sampled
    this_or_next = position.flip(-1).cummin(-1).values.flip(-1)
    following = torch.nn.functional.pad(this_or_next[:, 1:], (0, 1), value=width)
    return torch.cat([x, last[:, None]], -1).gather(-1, following)


def _accumulate(x: Tensor, mask: Tensor, decay: float | Tensor, last: Tensor) -> Tensor:
    """y_t = x_t + decay · y_{t+1} over the sampled tokens, starting from ``last (B,)`` behind the end; 0 elsewhere."""
    columns = []
    carry = last
    for t in reversed(range(x.shape[-1])):
        carry = torch.where(mask[:, t].bool(), x[:, t] + decay * carry, carry)
        columns.append(carry)
    return zero_where_masked(torch.stack(columns[::-1], -1), mask)


def _require(mask: Tensor, gamma: float, bootstrap: Tensor | None = None, **tensors: Tensor) -> Tensor:
    """Check the arguments and return the bootstrap ``(B,)``, zeros if there is none."""
    require_shapes(mask=(mask, "B T"), **{name: (x, "B T") for name, x in tensors.items()})
    require_mask(mask)
    require_finite_where(mask, **tensors)
    require_range(0.0, 1.0, gamma=gamma)
    if bootstrap is None:
        return next(iter(tensors.values())).new_zeros(len(mask))
    require_shapes(mask=(mask, "B T"), bootstrap=(bootstrap, "B"))
    require_finite(bootstrap=bootstrap)
    return bootstrap


def _require_steps(n: int) -> None:
    if n < 1:
        raise ValueError(f"n = {n!r}; expected an integer of at least 1")
