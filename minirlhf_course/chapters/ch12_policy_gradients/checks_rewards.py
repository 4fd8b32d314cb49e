"""The ledger of chapter 12: shaped rewards, the critic, what to watch, samples of another policy."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.core.masking import last_index, masked_sum, zero_where_masked
from minirlhf.equations import diagnostics, kl, off_policy, shaping, value_losses
from minirlhf.equations import policy_losses as pg
from minirlhf_course.ledger.inputs.rollouts import clip_cases
from minirlhf_course.ledger.registry import Comparison, Draw, check

# -- rewards -----------------------------------------------------------------------------------------------------


def _shaped(rewards, logps, ref_logps, mask, *, beta, estimator, sign=-1.0, where=None):
    shaped = sign * beta * zero_where_masked(estimator(logps, ref_logps), mask)
    last = last_index(mask) if where is None else torch.full((len(mask),), where)
    return shaped.scatter_add(-1, last[:, None], rewards[:, None])


@check(
    "eq:kl-shaped-rewards",
    "expected return",
    "With any unbiased estimator as the penalty of the tokens, the expected return is the objective of RLHF.",
    of=shaping.kl_shaped_token_rewards,
    against="E[r] − β KL(π‖π_ref) over every response",
    wrong={
        "KL rewarded": lambda *a, **o: _shaped(*a, **o, sign=1.0),
        "reward in the last column, also where that is padding": lambda *a, **o: zero_where_masked(
            _shaped(*a, **o, where=-1 % a[3].shape[1]), a[3]
        ),
        "reward on every token": lambda r, logps, ref, mask, *, beta, estimator: zero_where_masked(
            r[:, None] - beta * estimator(logps, ref), mask
        ),
        "KL of the last token only": lambda r, logps, ref, mask, *, beta, estimator: zero_where_masked(
            (r[:, None] - beta * estimator(logps, ref)) * torch.nn.functional.one_hot(last_index(mask), mask.shape[1]),
            mask,
        ),
    },
)
def _(kl_shaped_token_rewards, draw: Draw) -> Iterator[Comparison]:
    lm, ref = draw.toy(3, 3), draw.toy(3, 3)
    rewards, beta = draw.normal(len(lm.completions().mask)), float(draw.uniform(low=0.3, high=1.0))
    logps, ref_logps = (m.completion_token_logps()[0].detach() for m in (lm, ref))
    probs, ref_probs = (m.distribution()[0].detach() for m in (lm, ref))
    for estimator in (kl.k1, kl.k3):  # unbiased both, token by token
        shaped = kl_shaped_token_rewards(
            rewards, logps, ref_logps, lm.completions().mask, beta=beta, estimator=estimator
        )
        got = exact.expectation(probs, shaped.sum(-1))
        yield got, exact.regularised_value(probs, ref_probs, rewards, beta)


@check(
    "eq:kl-shaped-rewards",
    "expected gradient",
    "REINFORCE with returns-to-go that include the penalties has the gradient of E[r] − β KL: the penalty may be "
    "treated as reward.",
    of=shaping.kl_shaped_token_rewards,
    against="∇(E[r] − β KL(π‖π_ref)) over every response",
    wrong={
        "KL rewarded": lambda *a, **o: _shaped(*a, **o, sign=1.0),
        "reward on the first token": lambda *a, **o: _shaped(*a, **o, where=0),
        "KL forgotten": lambda *a, **o: _shaped(*a, **o, sign=0.0),
    },
)
def _(kl_shaped_token_rewards, draw: Draw) -> Comparison:
    lm, ref = draw.toy(3, 3), draw.toy(3, 3)
    mask = lm.completions().mask
    rewards, beta = draw.normal(len(mask)), float(draw.uniform(low=0.3, high=1.0))
    logps, ref_logps = lm.completion_token_logps()[0], ref.completion_token_logps()[0].detach()
    shaped = kl_shaped_token_rewards(rewards, logps.detach(), ref_logps, mask, beta=beta, estimator=kl.k1)
    to_come = shaped.flip(-1).cumsum(-1).flip(-1)
    probs, ref_probs = lm.distribution()[0], ref.distribution()[0].detach()
    got = (probs.detach()[:, None] * to_come * logps).sum()
    wanted = exact.regularised_value(probs, ref_probs, rewards, beta)
    return exact.gradient(got, lm.table), exact.gradient(wanted, lm.table)


@check(
    "eq:missing-eos",
    "expected value",
    "The penalty lowers the objective by penalty times the probability of truncation.",
    of=shaping.missing_eos_penalty,
    against="E[r] − penalty · P(truncated) over every response",
    wrong={
        "finished responses punished": lambda r, done, *, penalty: r - penalty * done,
        "reward replaced": lambda r, done, *, penalty: torch.where(done, r, -penalty),
    },
)
def _(missing_eos_penalty, draw: Draw) -> Iterator[Comparison]:
    for _ in range(2):
        lm = draw.toy(3, 2)
        finished, probs = lm.completions().terminated, lm.distribution()[0].detach()
        rewards, penalty = 1 + draw.uniform(len(probs)), float(draw.uniform(low=0.5, high=2.0))
        got = exact.expectation(probs, missing_eos_penalty(rewards, finished, penalty=penalty))
        yield got, exact.expectation(probs, rewards) - penalty * (1 - probs[finished].sum())


@check(
    "eq:length-penalty",
    "expected value",
    "The expected penalty is α times the expected number of tokens.",
    of=shaping.length_penalty,
    against="E[r] − α Σ_t P(at least t tokens)",
    wrong={
        "padded length": lambda r, n, *, coefficient: r - coefficient * 3,
        "reward per token": lambda r, n, *, coefficient: r / n,
        "the first token free": lambda r, n, *, coefficient: r - coefficient * (n - 1),
    },
)
def _(length_penalty, draw: Draw) -> Iterator[Comparison]:
    for _ in range(2):
        lm = draw.toy(3, 3)
        mask, probs = lm.completions().mask, lm.distribution()[0].detach()
        rewards, alpha = draw.normal(len(probs)), float(draw.uniform(low=0.1, high=0.5))
        got = exact.expectation(probs, length_penalty(rewards, lm.completions().lengths, coefficient=alpha))
        yield got, exact.expectation(probs, rewards) - alpha * (probs[:, None] * mask).sum()


# -- the critic --------------------------------------------------------------------------------------------------


@check(
    "eq:value-mse",
    "gradient",
    "The expected gradient is V − E[R]: the loss is smallest if the value is the expected return.",
    of=value_losses.value_mse,
    against="V − E[R] over a distribution of returns",
    wrong={
        "no factor ½": lambda v, r, mask: 2 * value_losses.value_mse(v, r, mask),
        "absolute error": lambda v, r, mask: (v - r).abs(),
        "returns regress on the value": lambda v, r, mask: value_losses.value_mse(r - v + v.detach(), r, mask),
    },
)
def _(value_mse, draw: Draw) -> Iterator[Comparison]:
    probs, returns = draw.distribution(5), draw.normal(5)
    for low in (-1.0, 0.3, 1.0):
        value = (exact.expectation(probs, returns) + draw.uniform(low=low, high=low + 0.5)).requires_grad_()
        loss = value_mse(value.expand(1, 5), returns[None], torch.ones(1, 5, dtype=torch.bool))
        yield exact.gradient((probs * loss[0]).sum(), value), (value - exact.expectation(probs, returns)).view(1)


def _value_cases(draw: Draw) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Inside the range; above it on the way to the target, and past it; below it on the way from the target, and to it; padding."""
    old = 2 + draw.uniform(1, 5)
    moved = torch.tensor([[0.1, 0.6, 0.9, -0.7, -0.6]]) + draw.uniform(1, 5, low=-0.05, high=0.05)
    target = torch.tensor([[0.7, 1.5, 0.3, 1.0, -1.5]]) + draw.uniform(1, 5, low=-0.05, high=0.05)
    nothing = torch.full((1, 1), torch.nan, dtype=torch.float64)
    values, old_values, returns = (torch.cat([x, nothing], 1) for x in (old + moved, old, old + target))
    return values, old_values, returns, torch.tensor([[True] * 5 + [False]])


def _value_clip_written_out(value: float, old: float, target: float, *, c: float) -> float:
    plain = 0.5 * (value - target) ** 2
    if abs(value - old) <= c:
        return plain
    clipped = 0.5 * (old + (c if value > old else -c) - target) ** 2
    return plain if plain > clipped else clipped


def _value_minimum(values, old, returns, mask, *, cliprange_value):
    near = torch.maximum(torch.minimum(values, old + cliprange_value), old - cliprange_value)
    return 0.5 * zero_where_masked(torch.minimum((values - returns) ** 2, (near - returns) ** 2), mask)


VALUE_WRONG = {
    "minimum in place of the maximum": _value_minimum,
    "not clipped": lambda values, old, returns, mask, *, cliprange_value: value_losses.value_mse(values, returns, mask),
    "clipped around 0": lambda values, old, returns, mask, *, cliprange_value: value_losses.value_clip(
        values, old * 0, returns, mask, cliprange_value=cliprange_value
    ),
}


@check(
    "eq:value-clip",
    "value",
    "The larger of the squared error and the squared error of the clipped value.",
    of=value_losses.value_clip,
    against="the cases, written out",
    wrong=VALUE_WRONG,
)
def _(value_clip, draw: Draw) -> Comparison:
    cases, c = _value_cases(draw), float(draw.uniform(low=0.25, high=0.4))
    rows = zip(*(x[0, :5].tolist() for x in cases[:3]), strict=True)
    expected = [*(_value_clip_written_out(*row, c=c) for row in rows), 0.0]
    return value_clip(*cases, cliprange_value=c)[0], torch.tensor(expected, dtype=torch.float64)


@check(
    "eq:value-clip",
    "gradient",
    "0 if the value has moved more than c towards its target without passing it; V − R within the range, and if "
    "it has moved away from the target or well past it.",
    of=value_losses.value_clip,
    against="finite differences of the cases",
    wrong=VALUE_WRONG,
    tolerance=1e-7,
)
def _(value_clip, draw: Draw) -> Comparison:
    (values, old, returns, mask), c = _value_cases(draw), float(draw.uniform(low=0.25, high=0.4))
    free = values.clone().requires_grad_()
    got = exact.gradient(value_clip(free, old, returns, mask, cliprange_value=c).sum(), free)[:5]

    def written_out(x: Tensor) -> Tensor:
        rows = zip(x.tolist(), old[0, :5].tolist(), returns[0, :5].tolist(), strict=True)
        return torch.tensor(sum(_value_clip_written_out(*row, c=c) for row in rows), dtype=torch.float64)

    return got, exact.finite_difference(written_out, values[0, :5])


# -- what to watch -----------------------------------------------------------------------------------------------


@check(
    "eq:clip-fraction",
    "value",
    "The clip fraction is the fraction of sampled tokens with a nonzero advantage whose gradient is 0.",
    of=diagnostics.clip_fraction,
    against="the fraction of tokens with a nonzero advantage for which PPO's objective has no gradient",
    wrong={
        "every ratio outside the interval counted": lambda logps, old, a, mask, **o: (
            ((pg.policy_ratio(logps, old, mask) - 1).abs() > o["epsilon"])[mask].double().mean()
        ),
        "divided by the padded width": lambda *a, **o: diagnostics.clip_fraction(*a, **o) * 0.8,
        "two-sided bound ignored": lambda *a, **o: diagnostics.clip_fraction(*a, **{**o, "delta": None}),
        "upper range ignored": lambda *a, **o: diagnostics.clip_fraction(*a, **{**o, "epsilon_high": None}),
    },
)
def _(clip_fraction, draw: Draw) -> Iterator[Comparison]:
    cases = clip_cases(draw)
    one_sided = {name: value for name, value in cases.clip.items() if name != "delta"}
    least = {"epsilon": 0.01, "epsilon_high": 0.02, "delta": 1.03}  # leaves nearly all
    nobody_gains = cases.advantages.nan_to_num() * (cases.ratios.new_tensor([1.0, 0.0] * 4))  # no gradient, yet no clip
    for options in (cases.clip, one_sided, {"epsilon": cases.clip["epsilon"]}, least):
        silent = cases.gradient(pg.ppo_clip, **options)[cases.mask] == 0
        yield clip_fraction(*cases.inputs, **options), silent.double().mean()
        mute = silent & (nobody_gains[cases.mask] != 0)
        inputs = (*cases.inputs[:2], nobody_gains, cases.mask)
        yield clip_fraction(*inputs, **options), mute.double().mean()


@check(
    "eq:approx-kl",
    "expected value",
    "Its expectation over tokens of π_old (here uniform) is KL(π_old‖π).",
    of=diagnostics.approx_kl,
    against="KL(π_old‖π) summed over the vocabulary",
    wrong={
        "halved squared log-ratio": lambda logps, old, mask: 0.5 * ((logps - old)[mask] ** 2).mean(),
        "KL the other way round": lambda logps, old, mask: diagnostics.approx_kl(old, logps, mask),
        "mean log-ratio, sign reversed": lambda logps, old, mask: (logps - old)[mask].mean(),
        "padding counted": lambda logps, old, mask: diagnostics.approx_kl(logps, old, mask) * mask.sum() / mask.numel(),
    },
)
def _(approx_kl, draw: Draw) -> Iterator[Comparison]:
    old, nothing = torch.full((4,), 0.25, dtype=torch.float64), torch.tensor([torch.nan], dtype=torch.float64)
    for _ in range(3):
        new = draw.distribution(4, scale=1.5)
        logps, old_logps = torch.cat([new.log(), nothing])[None], torch.cat([old.log(), nothing])[None]
        yield approx_kl(logps, old_logps, torch.tensor([[True] * 4 + [False]])), exact.divergence(old, new)


@check(
    "eq:explained-variance",
    "value",
    "The fraction of the returns' variance that the values explain: 1 if they predict every return up to a "
    "constant, 0 for a constant.",
    of=diagnostics.explained_variance,
    against="variances of the lists of sampled tokens (Python's statistics)",
    wrong={
        "squared error in place of the variance": lambda v, r, mask: (
            1 - ((r - v)[mask] ** 2).mean() / r[mask].var(correction=0)
        ),
        "squared correlation": lambda v, r, mask: torch.corrcoef(torch.stack([v[mask], r[mask]]))[0, 1] ** 2,
        "0 where there is nothing to explain": lambda v, r, mask: diagnostics.explained_variance(
            v, r, mask
        ).nan_to_num(),
        "padding counted": lambda v, r, mask: diagnostics.explained_variance(
            v.nan_to_num(), r.nan_to_num(), torch.ones_like(mask)
        ),
    },
)
def _(explained_variance, draw: Draw) -> Iterator[Comparison]:
    mask = torch.arange(6)[None, :] < torch.tensor([6, 4, 2])[:, None]
    returns = torch.where(mask, 2 + draw.normal(3, 6), torch.nan)
    values = 1 + 0.4 * returns + torch.where(mask, draw.normal(3, 6), torch.nan)
    left = statistics.pvariance((returns - values)[mask].tolist())
    yield explained_variance(values, returns, mask), 1 - left / statistics.pvariance(returns[mask].tolist())
    yield explained_variance(returns + 3, returns, mask), 1.0
    yield explained_variance(torch.ones_like(returns), returns, mask), 0.0
    yield explained_variance(values / 9, returns / 9, mask), explained_variance(values, returns, mask)
    equal = torch.full_like(returns, float(draw.normal()))
    yield explained_variance(values, equal, mask).isnan().double(), 1.0


# -- samples of another policy -----------------------------------------------------------------------------------


@check(
    "eq:truncated-importance-weight",
    "expected value",
    "Weighted samples of μ have the expectation under min(π_old, Cμ): exact except for tokens that μ "
    "under-samples by more than C.",
    of=off_policy.truncated_importance_weight,
    against="Σ min(π_old, Cμ) f over the vocabulary",
    wrong={
        "no cap": lambda old, mu, mask, *, importance_sampling_cap: pg.policy_ratio(old, mu, mask),
        "upside down": lambda old, mu, mask, *, importance_sampling_cap: off_policy.truncated_importance_weight(
            mu, old, mask, importance_sampling_cap=importance_sampling_cap
        ),
        "tokens above the cap dropped": lambda old, mu, mask, *, importance_sampling_cap: (
            lambda w: torch.where(w > importance_sampling_cap, 0.0, w)
        )(pg.policy_ratio(old, mu, mask)),
    },
)
def _(truncated_importance_weight, draw: Draw) -> Comparison:
    mu = torch.tensor([0.7, 0.2, 0.1]) + draw.uniform(3, low=-0.02, high=0.02)
    old = torch.tensor([0.2, 0.3, 0.5]) + draw.uniform(3, low=-0.02, high=0.02)
    mu, old, f = mu / mu.sum(), old / old.sum(), 1 + draw.uniform(3)
    mask = torch.ones(1, 3, dtype=torch.bool)
    cap = float(draw.away_from([2.0], low=1.6, high=2.8, margin=0.1))
    weight = truncated_importance_weight(old.log()[None], mu.log()[None], mask, importance_sampling_cap=cap)[0]
    return exact.expectation(mu, weight * f), (torch.minimum(old, cap * mu) * f).sum()


@check(
    "eq:truncated-importance-weight",
    "gradient",
    "The weight has no gradient: multiplied by log π it only scales the gradient.",
    of=off_policy.truncated_importance_weight,
    against="no derivative by the log-probabilities",
    wrong={
        "gradient kept": lambda old, mu, mask: pg.policy_ratio(old, mu, mask).clamp(max=2.0),
    },
)
def _(truncated_importance_weight, draw: Draw) -> Comparison:
    mu, logps = draw.logps(2, 3), draw.logps(2, 3)
    logps = torch.minimum(logps, mu + 0.5).requires_grad_()
    weight = truncated_importance_weight(logps, mu, torch.ones(2, 3, dtype=torch.bool))
    got = exact.gradient(masked_sum(weight * logps, torch.ones(2, 3)), logps)
    return got, ((logps - mu).exp().clamp(max=2.0)).flatten()
