"""Returns and advantages over the tokens that a policy sampled.

Tensors are ``(B, T)``, and results are 0 outside the mask. "Next" is the next *sampled* token: if a tool or the
environment wrote tokens in between, the step skips them, and they do not discount. Rewards and values are read at
sampled tokens only; ``values`` are the values before each token. ``bootstrap (B,)`` is the value after the last sampled
token: the value of the last state of a truncated completion, and 0 (None) for a terminated one.

"GAE paper" stands for Schulman et al. (2016), "High-dimensional continuous control using generalized advantage
estimation".
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.masking import masked_sum, zero_where_masked
from minirlhf.core.validate import MASK, POSITIVE, UNIT, Arguments, Rule, at_least, finite, shape, takes, under_mask

_REWARDS = {"mask": MASK, "rewards": under_mask(), "gamma": UNIT, "bootstrap": finite("B")}
_RESIDUALS = {"mask": MASK, "residuals": under_mask(), "gamma": UNIT}

# -- returns -------------------------------------------------------------------------------------------------------


@takes(mask=MASK, rewards=under_mask(), gamma=UNIT)
@equation(
    "eq:total-return",
    source='Williams (1992), "Simple statistical gradient-following algorithms for connectionist reinforcement '
    'learning".',
)
def total_return(rewards: Tensor, mask: Tensor, *, gamma: float = 1.0) -> Tensor:
    """Total return R(τ) = Σ_k γ^k r_k, the same at every token."""
    discount = gamma ** (mask.long().cumsum(-1) - 1).to(rewards.dtype)  # (B, T), γ^(number of earlier tokens)
    total = masked_sum(discount * rewards, mask, -1)  # (B,)
    return zero_where_masked(total[:, None].expand_as(rewards), mask)


@takes(**_REWARDS)
@equation("eq:returns-to-go", source="Williams (1992), as for :func:`total_return`.")
def returns_to_go(rewards: Tensor, mask: Tensor, *, gamma: float = 1.0, bootstrap: Tensor | None = None) -> Tensor:
    """Reward-to-go G_t = Σ_{k≥t} γ^(k−t) r_k: the rewards from token t on, the only ones that it can affect."""
    return _accumulate(rewards, mask, gamma, bootstrap)


@takes(mask=MASK, returns=under_mask(), baseline=under_mask())
@equation(
    "eq:baseline-identity",
    source='Williams (1992); Greensmith, Bartlett and Baxter (2004), "Variance reduction techniques for gradient '
    'estimates in reinforcement learning".',
)
def subtract_baseline(returns: Tensor, baseline: Tensor, mask: Tensor) -> Tensor:
    """Returns minus a baseline, G_t − b(s_t): E[∇log π · b] = 0, so it changes the gradient's variance, not its mean.

    The baseline may depend on everything before the token, and on other samples. It must not depend on the
    token itself.
    """
    return zero_where_masked(returns - baseline, mask)


# -- one step and n steps ------------------------------------------------------------------------------------------


@takes(**_REWARDS, values=under_mask())
@equation("eq:td-residual", source='Sutton (1988), "Learning to predict by the methods of temporal differences".')
def td_residuals(
    rewards: Tensor, values: Tensor, mask: Tensor, *, gamma: float = 1.0, bootstrap: Tensor | None = None
) -> Tensor:
    """TD residual δ_t = r_t + γ V(s_{t+1}) − V(s_t), an estimate of the advantage from one step."""
    return zero_where_masked(rewards + gamma * _at_next(values, mask, bootstrap) - values, mask)


@takes(**_REWARDS, values=under_mask(), n=at_least(1))
@equation("eq:n-step-advantage", source="GAE paper.")
def n_step_advantages(
    rewards: Tensor, values: Tensor, mask: Tensor, *, n: int, gamma: float = 1.0, bootstrap: Tensor | None = None
) -> Tensor:
    """n-step advantage A^(n)_t = r_t + γ r_{t+1} + … + γ^(n−1) r_{t+n−1} + γ^n V(s_{t+n}) − V(s_t).

    If fewer than n tokens are left, it ends at the last token with the bootstrap.
    """
    target = values
    for _ in range(min(n, mask.shape[-1])):  # one more backup V ← r + γ V' per step
        target = rewards + gamma * _at_next(target, mask, bootstrap)
    return zero_where_masked(target - values, mask)


@takes(**_RESIDUALS, n=at_least(1))
@equation("eq:n-step-telescoped", source="GAE paper.")
def n_step_from_residuals(residuals: Tensor, mask: Tensor, *, n: int, gamma: float = 1.0) -> Tensor:
    """n-step advantage from :func:`td_residuals`, Σ_{l<n} γ^l δ_{t+l}: the intermediate values cancel."""
    total = torch.zeros_like(residuals)
    for _ in range(min(n, mask.shape[-1])):
        total = residuals + gamma * _at_next(total, mask, None)
    return zero_where_masked(total, mask)


# -- GAE -----------------------------------------------------------------------------------------------------------


@takes(lam=UNIT)
@equation("eq:gae-mixture", source="GAE paper.")
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
    """
    width = mask.shape[-1]
    total = torch.zeros_like(rewards)
    for n in range(1, width + 1):
        # All terms from n = T on are equal. The last one gets their total weight, Σ_{k≥T} (1−λ) λ^(k−1) = λ^(T−1).
        weight = (1 - lam) * lam ** (n - 1) if n < width else lam ** (width - 1)
        total = total + weight * n_step_advantages(rewards, values, mask, n=n, gamma=gamma, bootstrap=bootstrap)
    return total


@takes(**_RESIDUALS, lam=UNIT)
@equation("eq:gae-sum", source="GAE paper.")
def gae_sum(residuals: Tensor, mask: Tensor, *, gamma: float = 1.0, lam: float = 0.95) -> Tensor:
    """GAE as a discounted sum of the TD residuals, Σ_l (γλ)^l δ_{t+l}, written as one matrix product per row."""
    rank = mask.long().cumsum(-1)  # (B, T), 1-based index among the sampled tokens
    distance = rank[:, None, :] - rank[:, :, None]  # (B, T, T), sampled tokens from t to t'
    powers = (gamma * lam) ** distance.clamp(min=0).to(residuals.dtype)
    weights = torch.where(distance >= 0, powers, distance.new_zeros((), dtype=residuals.dtype))
    total = torch.einsum("btk,bk->bt", weights, zero_where_masked(residuals, mask))
    return zero_where_masked(total, mask)


def _lam(name: str, lam: float | Tensor, arguments: Arguments) -> float | Tensor:
    rule = finite("B", "[0, 1]") if isinstance(lam, Tensor) else UNIT
    rule.apply(name, lam, arguments)
    return lam


@takes(mask=shape("B T"), lam=Rule("in [0, 1], one number or (B,)", _lam))
@equation(
    "eq:gae",
    source='Schulman et al. (2016), "High-dimensional continuous control using generalized advantage estimation".',
)
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

    λ = 0 gives the TD residual, which has low variance and is biased if the values are wrong. λ = 1 gives the
    return minus the value, which is unbiased.

    Args:
        rewards, values: ``(B, T)``; the value is the one before each token.
        gamma: discount, in [0, 1].
        lam: λ in [0, 1], one number or ``(B,)``.
        bootstrap: ``(B,)``, the value after the last sampled token of a truncated completion.
    """
    residuals = td_residuals(rewards, values, mask, gamma=gamma, bootstrap=bootstrap)
    return _accumulate(residuals, mask, gamma * lam, None)


@takes(mask=MASK, advantages=under_mask(), values=under_mask())
@equation("eq:lambda-return", source='Watkins (1989), "Learning from delayed rewards".')
def lambda_returns(advantages: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """λ-return G^λ_t = A^GAE_t + V(s_t), with the same values as in :func:`gae`: the target of the critic."""
    return zero_where_masked(advantages + values, mask)


@takes(lengths=finite("B", "[1, inf)"), alpha=POSITIVE)
@equation(
    "eq:length-adaptive-lambda",
    source='Yue et al. (2025), "VAPO: Efficient and reliable reinforcement learning for advanced reasoning tasks".',
)
def length_adaptive_lambda(lengths: Tensor, *, alpha: float = 0.05) -> Tensor:
    """Length-adaptive λ = 1 − 1/(αl), so that GAE's weights Σ_k λ^k = 1/(1−λ) add up to αl.

    αl is a constant fraction of the completion. Completions shorter than 1/α tokens get λ = 0, because the
    formula would be negative.

    Args:
        lengths: sampled tokens per completion.
    Returns: ``(B,)`` in [0, 1), float64 unless lengths is a float tensor.
    """
    length = lengths if lengths.is_floating_point() else lengths.double()
    return (1 - 1 / (alpha * length)).clamp(min=0.0)


# -- importance sampling -------------------------------------------------------------------------------------------


@takes(mask=MASK, logps=under_mask(), behavior_logps=under_mask())
@equation(
    "eq:importance-weights",
    source='Precup, Sutton and Singh (2000), "Eligibility traces for off-policy policy evaluation".',
)
def importance_weights(logps: Tensor, behavior_logps: Tensor, mask: Tensor) -> Tensor:
    """Per-decision weights w_t = Π_{k≤t} π(a_k|s_k)/b(a_k|s_k), which correct for sampling from b instead of π.

    w_t corrects a reward at t. The weight of the last token is the weight of the whole completion. Its variance
    grows exponentially with the length. It is +inf if it exceeds the range of the dtype.
    """
    log_weights = zero_where_masked(logps - behavior_logps, mask).cumsum(-1)
    return zero_where_masked(log_weights.exp(), mask)


# -- helpers -------------------------------------------------------------------------------------------------------


def _at_next(x: Tensor, mask: Tensor, last: Tensor | None) -> Tensor:
    """``x`` at the next sampled token, ``last (B,)`` if there is none: ``(B, T)``; reads no entry outside the mask."""
    width = x.shape[-1]
    position = torch.where(mask.bool(), torch.arange(width, device=x.device), width)  # (B, T), T where not sampled
    this_or_next = position.flip(-1).cummin(-1).values.flip(-1)
    following = torch.nn.functional.pad(this_or_next[:, 1:], (0, 1), value=width)
    last = x.new_zeros(len(x)) if last is None else last
    return torch.cat([x, last[:, None]], -1).gather(-1, following)


def _accumulate(x: Tensor, mask: Tensor, decay: float | Tensor, last: Tensor | None) -> Tensor:
    """y_t = x_t + decay · y_{t+1} over the sampled tokens, starting from ``last (B,)`` after the end; 0 elsewhere."""
    columns = []
    carry = x.new_zeros(len(x)) if last is None else last
    for t in reversed(range(x.shape[-1])):
        carry = torch.where(mask[:, t].bool(), x[:, t] + decay * carry, carry)
        columns.append(carry)
    return zero_where_masked(torch.stack(columns[::-1], -1), mask)
