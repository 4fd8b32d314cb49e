"""The ledger of chapter 04: returns and advantages over the sampled tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.core.masking import masked_whiten
from minirlhf.equations import policy_gradient as pg
from minirlhf.equations import returns
from minirlhf_course.ledger.registry import Comparison, Draw, chain, check

# -- advantages over sampled tokens ----------------------------------------------------------------------------------


class _Tokens(NamedTuple):
    """Rewards and values over a mask with holes and padding; what stands outside the mask is huge."""

    rewards: Tensor
    values: Tensor
    mask: Tensor
    gamma: float
    lam: float
    bootstrap: Tensor


def _tokens(draw: Draw) -> _Tokens:
    rows = [[1, 1, 0, 1, 1], [0, 1, 0, 0, 1], [1, 1, 1, 0, 0], [1, 0, 1, 1, 1]]
    mask = torch.tensor(rows, dtype=torch.bool)[draw.permutation(4)]
    gamma, lam = draw.uniform(2, low=0.6, high=0.8).tolist()
    terminated = torch.arange(4) == draw.integer(0, 3)
    return _Tokens(
        rewards=torch.where(mask, draw.uniform(4, 5, low=0.5, high=1.5), 1e6),
        values=torch.where(mask, draw.uniform(4, 5, low=1.0, high=3.0), -1e6),
        mask=mask,
        gamma=gamma,
        lam=lam,
        bootstrap=draw.uniform(4, low=2.0, high=4.0).masked_fill(terminated, 0.0),
    )


def _per_token(t: _Tokens, row: Callable[[list[float], list[float], float], list[float]]) -> Tensor:
    """Apply plain Python to the sampled tokens of each row, (rewards, values, bootstrap) -> one number per token."""
    out = torch.zeros_like(t.rewards)
    for i, kept in enumerate(t.mask):
        numbers = row(t.rewards[i, kept].tolist(), t.values[i, kept].tolist(), float(t.bootstrap[i]))
        out[i, kept] = torch.tensor(numbers, dtype=torch.float64)
    return out


def _n_step_returns(t: _Tokens, n: int) -> Tensor:
    """r_t + … + γ^(n−1) r_{t+n−1} + γ^n V, written out token by token; ends early with the bootstrap."""

    def row(r: list[float], v: list[float], last: float) -> list[float]:
        out = []
        for i in range(len(r)):
            steps = min(n, len(r) - i)
            future = v[i + steps] if i + steps < len(r) else last
            out.append(sum(t.gamma**k * r[i + k] for k in range(steps)) + t.gamma**steps * future)
        return out

    return _per_token(t, row)


def _by_position(rewards: Tensor, mask: Tensor, gamma: float, bootstrap: Tensor) -> Tensor:
    """The mistake: every position is a step, sampled or not."""
    everything = torch.ones_like(mask)
    out = returns.returns_to_go(torch.where(mask, rewards, 0.0), everything, gamma=gamma, bootstrap=bootstrap)
    return torch.where(mask, out, 0.0)


def _next_position(rewards: Tensor, values: Tensor, mask: Tensor, *, gamma: float, bootstrap: Tensor) -> Tensor:
    """The mistake: the next position is looked at, although a tool wrote there."""
    shifted = torch.cat([torch.where(mask, values, 0.0)[:, 1:], bootstrap[:, None]], -1)
    return torch.where(mask, rewards + gamma * shifted - values, 0.0)


def _options(t: _Tokens) -> dict[str, Any]:
    return {"gamma": t.gamma, "bootstrap": t.bootstrap}


@check(
    "eq:returns-to-go",
    "value",
    "G_t sums the rewards of the sampled tokens from t on, discounted by the number of tokens in between.",
    of=returns.returns_to_go,
    against="nested sums over the sampled tokens, in plain Python",
    wrong={
        "discounted per position, also across tool output": lambda rewards, mask, *, gamma, bootstrap: _by_position(
            rewards, mask, gamma, bootstrap
        ),
        "bootstrap forgotten": lambda rewards, mask, *, gamma, bootstrap: returns.returns_to_go(
            rewards, mask, gamma=gamma
        ),
        "bootstrap also after the end": lambda rewards, mask, *, gamma, bootstrap: returns.returns_to_go(
            rewards, mask, gamma=gamma, bootstrap=torch.ones_like(bootstrap)
        ),
    },
)
def _(returns_to_go, draw: Draw) -> Comparison:
    t = _tokens(draw)
    expected = _per_token(
        t, lambda r, v, last: [sum(t.gamma**k * x for k, x in enumerate([*r[i:], last])) for i in range(len(r))]
    )
    return returns_to_go(t.rewards, t.mask, gamma=t.gamma, bootstrap=t.bootstrap), expected


@check(
    "eq:td-residual",
    "value",
    "In a language model the transition is deterministic, so the TD residual with exact values is the advantage.",
    of=returns.td_residuals,
    against="the oracle's action value minus its state value",
    wrong={
        "reward less value, no next state": lambda rewards, values, mask: torch.where(mask, rewards - values, 0.0),
        "value after the token": lambda rewards, values, mask: returns.td_residuals(rewards, values.roll(-1, -1), mask),
    },
)
def _(td_residuals, draw: Draw) -> Comparison:
    lm = draw.toy(3, 3)
    responses = lm.completions()
    reward = draw.normal(len(responses.mask))
    v, q = lm.action_values(reward)
    final = torch.zeros_like(v)
    final[torch.arange(len(final)), responses.lengths - 1] = reward
    return td_residuals(final, v, responses.mask), q - v


@check(
    "eq:td-residual",
    "holes",
    "The next value is that of the next sampled token, or the bootstrap value after the last one; other "
    "positions have no influence.",
    of=returns.td_residuals,
    against="plain Python over the sampled tokens",
    wrong={
        "next position, also where a tool wrote": _next_position,
        "bootstrap forgotten": lambda rewards, values, mask, *, gamma, bootstrap: returns.td_residuals(
            rewards, values, mask, gamma=gamma
        ),
        "discount forgotten": lambda rewards, values, mask, *, gamma, bootstrap: returns.td_residuals(
            rewards, values, mask, bootstrap=bootstrap
        ),
    },
)
def _(td_residuals, draw: Draw) -> Comparison:
    t = _tokens(draw)
    expected = _n_step_returns(t, 1) - torch.where(t.mask, t.values, 0.0)
    return td_residuals(t.rewards, t.values, t.mask, **_options(t)), expected


@check(
    "eq:n-step-advantage",
    "value",
    "n rewards, plus the value n tokens later, minus the current value.",
    of=returns.n_step_advantages,
    against="written out token by token in plain Python",
    wrong={
        "one step too many": lambda rewards, values, mask, *, n, **o: returns.n_step_advantages(
            rewards, values, mask, n=n + 1, **o
        ),
        "value not subtracted": lambda rewards, values, mask, **o: torch.where(
            mask, returns.n_step_advantages(rewards, values, mask, **o) + values, 0.0
        ),
    },
)
def _(n_step_advantages, draw: Draw) -> Iterator[Comparison]:
    t = _tokens(draw)
    for n in (1, 2, 3, 7):
        expected = _n_step_returns(t, n) - torch.where(t.mask, t.values, 0.0)
        yield n_step_advantages(t.rewards, t.values, t.mask, n=n, **_options(t)), expected


@check(
    "eq:n-step-telescoped",
    "value",
    "The discounted sum of n TD residuals is the n-step advantage: the intermediate values cancel.",
    of=returns.n_step_from_residuals,
    against="the n-step advantage",
    wrong={
        "residuals not discounted": lambda residuals, mask, *, n, gamma: returns.n_step_from_residuals(
            residuals, mask, n=n
        ),
        "one residual too many": lambda residuals, mask, *, n, gamma: returns.n_step_from_residuals(
            residuals, mask, n=n + 1, gamma=gamma
        ),
    },
    follows="eq:n-step-advantage",
)
def _(n_step_from_residuals, draw: Draw) -> Iterator[Comparison]:
    t = _tokens(draw)
    residuals = returns.td_residuals(t.rewards, t.values, t.mask, **_options(t))
    for n in (1, 2, 3):
        got = n_step_from_residuals(residuals, t.mask, n=n, gamma=t.gamma)
        yield got, returns.n_step_advantages(t.rewards, t.values, t.mask, n=n, **_options(t))


def _mixture_without_rest(rewards: Tensor, values: Tensor, mask: Tensor, *, lam: float, **o: Any) -> Tensor:
    parts = [
        (1 - lam) * lam ** (n - 1) * returns.n_step_advantages(rewards, values, mask, n=n, **o)
        for n in range(1, mask.shape[1] + 1)
    ]
    return sum(parts[1:], parts[0])


@check(
    "eq:gae-mixture",
    "value",
    "GAE weights the n-step advantages by (1−λ)λ^(n−1); beyond the last token they are all equal.",
    of=returns.gae_mixture,
    against="300 terms of the infinite mixture, each a sum of TD residuals",
    wrong={
        "weights not normalised": lambda rewards, values, mask, *, lam, **o: (
            returns.gae_mixture(rewards, values, mask, lam=lam, **o) / (1 - lam)
        ),
        "weight beyond the end of the response lost": _mixture_without_rest,
    },
    follows="eq:n-step-telescoped",
)
def _(gae_mixture, draw: Draw) -> Comparison:
    t = _tokens(draw)
    residuals = returns.td_residuals(t.rewards, t.values, t.mask, **_options(t))
    terms = [returns.n_step_from_residuals(residuals, t.mask, n=n, gamma=t.gamma) for n in range(1, 6)]
    expected = sum(
        ((1 - t.lam) * t.lam ** (n - 1) * terms[min(n, 5) - 1] for n in range(2, 301)), (1 - t.lam) * terms[0]
    )
    return gae_mixture(t.rewards, t.values, t.mask, lam=t.lam, **_options(t)), expected


@check(
    "eq:gae-sum",
    "value",
    "After exchanging the sums, each residual has the weight (γλ)^l.",
    of=returns.gae_sum,
    against="the mixture of n-step advantages",
    wrong={
        "γ forgotten in the weights": lambda residuals, mask, *, gamma, lam: returns.gae_sum(residuals, mask, lam=lam),
        "λ forgotten in the weights": lambda residuals, mask, *, gamma, lam: returns.gae_sum(
            residuals, mask, gamma=gamma, lam=1.0
        ),
    },
    follows="eq:gae-mixture",
)
def _(gae_sum, draw: Draw) -> Comparison:
    t = _tokens(draw)
    residuals = returns.td_residuals(t.rewards, t.values, t.mask, **_options(t))
    got = gae_sum(residuals, t.mask, gamma=t.gamma, lam=t.lam)
    return got, returns.gae_mixture(t.rewards, t.values, t.mask, lam=t.lam, **_options(t))


def _gae_by_position(rewards: Tensor, values: Tensor, mask: Tensor, *, lam: float, **o: Any) -> Tensor:
    everything = torch.ones_like(mask)
    clean_rewards, clean_values = torch.where(mask, rewards, 0.0), torch.where(mask, values, 0.0)
    return torch.where(mask, returns.gae(clean_rewards, clean_values, everything, lam=lam, **o), 0.0)


_GAE_MISTAKES: dict[str, Callable[..., Tensor]] = {
    "every position is a step, also tool output": _gae_by_position,
    "bootstrap forgotten at truncation": lambda rewards, values, mask, *, bootstrap, **o: returns.gae(
        rewards, values, mask, **o
    ),
    "λ forgotten in the recursion": lambda rewards, values, mask, *, lam, **o: returns.gae(
        rewards, values, mask, lam=1.0, **o
    ),
}


@check(
    "eq:gae",
    "value",
    "One backward pass, A_t = δ_t + γλ A_{t+1} over the sampled tokens, gives the sum.",
    of=returns.gae,
    against="the sum of TD residuals",
    wrong=_GAE_MISTAKES,
    follows="eq:gae-sum",
)
def _(gae, draw: Draw) -> Comparison:
    t = _tokens(draw)
    residuals = returns.td_residuals(t.rewards, t.values, t.mask, **_options(t))
    got = gae(t.rewards, t.values, t.mask, lam=t.lam, **_options(t))
    return got, returns.gae_sum(residuals, t.mask, gamma=t.gamma, lam=t.lam)


@check(
    "eq:gae",
    "limits",
    "λ = 0 gives the TD residual, λ = 1 the return (with the bootstrap value at its end) minus the value.",
    of=returns.gae,
    against="one-step and full returns in plain Python",
    wrong={
        **_GAE_MISTAKES,
        "λ and 1 − λ exchanged": lambda rewards, values, mask, *, lam, **o: returns.gae(
            rewards, values, mask, lam=1 - lam, **o
        ),
    },
)
def _(gae, draw: Draw) -> Iterator[Comparison]:
    t = _tokens(draw)
    values = torch.where(t.mask, t.values, 0.0)
    yield gae(t.rewards, t.values, t.mask, lam=0.0, **_options(t)), _n_step_returns(t, 1) - values
    yield gae(t.rewards, t.values, t.mask, lam=1.0, **_options(t)), _n_step_returns(t, 5) - values


@check(
    "eq:gae",
    "gradient",
    "With the exact values of a language model, GAE gives the exact policy gradient for every λ.",
    of=returns.gae,
    against="differentiating the expected reward, summed over all responses",
    wrong={
        "value after the token": lambda rewards, values, mask, *, lam: returns.gae(
            rewards, values.roll(-1, -1), torch.ones_like(mask), lam=lam
        ),
        "reward minus value, no future": lambda rewards, values, mask, *, lam: torch.where(mask, rewards - values, 0.0),
    },
)
def _(gae, draw: Draw) -> Iterator[Comparison]:
    lm = draw.toy(3, 2)
    responses = lm.completions()
    reward = torch.arange(len(responses.mask), dtype=torch.float64)[draw.permutation(len(responses.mask))]
    final = torch.zeros(responses.mask.shape, dtype=torch.float64)
    final[torch.arange(len(final)), responses.lengths - 1] = reward
    logps = lm.completion_token_logps()[0]
    scores = torch.stack([torch.stack([exact.gradient(x, lm.table) for x in row]) for row in logps])  # (N, T, D)
    probs, (v, _) = lm.distribution()[0], lm.action_values(reward)
    expected = exact.gradient((probs * reward).sum(), lm.table)
    for lam in (0.0, 0.6, 1.0):
        psi = gae(final, v, responses.mask, lam=lam)
        yield pg.policy_gradient(probs.detach(), scores, psi, responses.mask), expected


@check(
    "eq:lambda-return",
    "value",
    "The target of the value model is the same mixture of n-step returns: advantage plus value, before whitening.",
    of=returns.lambda_returns,
    against="the mixture of n-step returns, in plain Python",
    wrong={
        "advantages whitened first": lambda advantages, values, mask: returns.lambda_returns(
            masked_whiten(advantages, mask), values, mask
        ),
        "values forgotten": lambda advantages, values, mask: advantages,
    },
)
def _(lambda_returns, draw: Draw) -> Comparison:
    t = _tokens(draw)
    terms = [_n_step_returns(t, n) for n in range(1, 6)]
    expected = sum(
        ((1 - t.lam) * t.lam ** (n - 1) * terms[min(n, 5) - 1] for n in range(2, 301)), (1 - t.lam) * terms[0]
    )
    advantages = returns.gae(t.rewards, t.values, t.mask, lam=t.lam, **_options(t))
    return lambda_returns(advantages, t.values, t.mask), expected


@check(
    "eq:length-adaptive-lambda",
    "value",
    "The weights of the TD residuals sum to α times the length; below 1/α tokens only the first has a weight.",
    of=returns.length_adaptive_lambda,
    against="GAE's weights Σ λ^k, added up",
    wrong={
        "fixed λ = .95": lambda lengths, *, alpha: torch.full_like(lengths, 0.95),
        "α forgotten": lambda lengths, *, alpha: 1 - 1 / lengths,
        "negative for short responses": lambda lengths, *, alpha: 1 - 1 / (alpha * lengths),
    },
)
def _(length_adaptive_lambda, draw: Draw) -> Iterator[Comparison]:
    alpha = float(draw.uniform(1, low=0.04, high=0.08))
    lengths = torch.tensor([round(0.75 / alpha), 40, 90, 250], dtype=torch.float64)
    for lam, expected in zip(
        length_adaptive_lambda(lengths, alpha=alpha), (alpha * lengths).clamp(min=1.0), strict=True
    ):
        yield (lam ** torch.arange(1500)).sum(), expected


# -- the derivation --------------------------------------------------------------------------------------------------

chain(
    "gae-telescoping",
    "GAE: from a mixture of n-step advantages to one backward recursion",
    ["eq:n-step-advantage", "eq:n-step-telescoped", "eq:gae-mixture", "eq:gae-sum", "eq:gae"],
    module=__name__,
)
