"""The ledger of chapter 13: objectives of the group-relative family. DAPO's clip and lengths, sequence ratios, soft and one-sided clips."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.core.exact import ToyLM
from minirlhf.core.masking import last_index, zero_where_masked
from minirlhf.equations import aggregation as agg
from minirlhf.equations import off_policy, shaping
from minirlhf.equations import policy_losses as pg
from minirlhf_course.ledger.inputs.rollouts import clip_cases
from minirlhf_course.ledger.registry import Comparison, Draw, chain, check


def _of_response(advantages, mask):
    """The one advantage of each completion, ``(B, 1)``, where its last token stands."""
    return advantages.gather(-1, last_index(mask)[:, None])


def _float64(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


# -- DAPO --------------------------------------------------------------------------------------------------------


@check(
    "eq:clip-higher",
    "threshold",
    "A token with positive advantage has a gradient until its probability is π_old(1 + ε_high): a small absolute "
    "change for a rare token.",
    of=pg.ppo_clip,
    against="probability at which the derivative becomes 0, by bisection, is π_old(1 + ε_high)",
    wrong={
        "one range for both sides": lambda *inputs, epsilon, epsilon_high: pg.ppo_clip(*inputs, epsilon=epsilon),
        "lower range raised": lambda *inputs, epsilon, epsilon_high: pg.ppo_clip(
            *inputs, epsilon=epsilon_high, epsilon_high=epsilon
        ),
        "added to the probability": lambda logps, old, a, mask, *, epsilon, epsilon_high: torch.minimum(
            logps.exp() * a, (old.exp() + epsilon_high) * a
        ),
    },
)
def _(ppo_clip, draw: Draw) -> Comparison:
    old = torch.cat([draw.uniform(1, 2, low=0.005, high=0.02), draw.uniform(1, 2, low=0.5, high=0.7)], 1)
    low, high = old.clone(), old * 2
    ones = torch.ones_like(old)
    for _ in range(45):
        middle = (low + high) / 2
        logps = middle.log().requires_grad_()
        objective = ppo_clip(logps, old.log(), ones, ones.bool(), epsilon=0.2, epsilon_high=0.28)
        pushed = torch.autograd.grad(objective.sum(), logps)[0] > 0
        low, high = torch.where(pushed, middle, low), torch.where(pushed, high, middle)
    return low, old * 1.28


@check(
    "eq:dapo-overlong",
    "value",
    "0 up to L − c tokens, then 1/c for each token up to L, at most 1 in all.",
    of=shaping.soft_overlong,
    against="−1/c for every token inside the last c tokens of the budget, counted one by one",
    wrong={
        "no floor": lambda n, *, max_completion_length, soft_punish_cache: (
            -((n - max_completion_length + soft_punish_cache) / soft_punish_cache).clamp(min=0)
        ),
        "charged from the first token": lambda n, *, max_completion_length, soft_punish_cache: (
            -(n / max_completion_length).clamp(max=1)
        ),
        "all or nothing": lambda n, *, max_completion_length, soft_punish_cache: -(n > max_completion_length).double(),
    },
)
def _(soft_overlong, draw: Draw) -> Comparison:
    budget, cache = draw.integer(12, 20), draw.integer(3, 8)
    lengths = range(1, budget + 6)
    charged = [sum(budget - cache < t <= budget for t in range(1, n + 1)) for n in lengths]
    got = soft_overlong(_float64(list(lengths)), max_completion_length=budget, soft_punish_cache=cache)
    return got, -_float64(charged) / cache


# -- one ratio per sequence --------------------------------------------------------------------------------------


def _two_models(draw: Draw) -> tuple[ToyLM, Tensor, Tensor, Tensor, Tensor]:
    """A model, the token log-probabilities of its completions and of a frozen older one (NaN on padding), mask, advantages."""
    lm, older = draw.toy(2, 3), draw.toy(2, 3)
    mask = lm.completions().mask
    old_logps = torch.where(mask, older.completion_token_logps()[0].detach(), torch.nan)
    logps = torch.where(mask, lm.completion_token_logps()[0], torch.nan)
    advantages = torch.where(mask, (draw.uniform(4, low=0.5, high=2) * _float64([1, -1, 1, -1]))[:, None], torch.nan)
    return lm, logps, old_logps, advantages, mask


def _sequence_cases(draw: Draw) -> tuple[Tensor, Tensor, Tensor, Tensor, list[float]]:
    """Six rows: advantage ± with the sequence ratio below, inside and above [.8, 1.28]; ragged, NaN on padding; and the ratios."""
    mask = torch.arange(4)[None, :] < torch.tensor([4, 3, 2, 1, 3, 4])[:, None]
    target = torch.cat([draw.uniform(1, low=x, high=x + 0.1).log() for x in (0.5, 0.95, 1.5) * 2])
    noise = torch.where(mask, draw.normal(6, 4), 0.0)
    noise = noise - noise.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)
    old_logps = torch.where(mask, draw.logps(6, 4) - 2, torch.nan)
    logps = old_logps + noise + target[:, None]
    advantages = draw.uniform(6, low=0.5, high=2.0) * _float64([1, 1, 1, -1, -1, -1])
    return logps, old_logps, torch.where(mask, advantages[:, None], torch.nan), mask, target.exp().tolist()


def _arithmetic_ratio(logps: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    return pg.policy_ratio(logps, old, mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)


@check(
    "eq:gspo-ratio",
    "value",
    "(π(y)/π_old(y))^(1/|y|).",
    of=pg.sequence_ratio,
    against="probabilities of whole completions, the |y|-th root of their quotient",
    wrong={
        "no root": lambda logps, old, mask: pg.sequence_ratio(logps, old, mask) ** mask.sum(-1, keepdim=True),
        "root of the padded length": lambda logps, old, mask: (
            pg.sequence_ratio(logps, old, mask) ** (mask.sum(-1, keepdim=True) / mask.shape[1])
        ),
        "arithmetic mean of the token ratios": _arithmetic_ratio,
    },
)
def _(sequence_ratio, draw: Draw) -> Comparison:
    lm, older = draw.toy(2, 3), draw.toy(2, 3)
    completions = lm.completions()
    got = sequence_ratio(lm.completion_token_logps()[0], older.completion_token_logps()[0], completions.mask)
    quotient = lm.distribution()[0] / older.distribution()[0]
    return got.squeeze(-1), quotient ** (1 / completions.lengths.double())


def _sequence_clip(draw: Draw) -> dict[str, float]:
    """Ranges whose ends lie between the ratios of :func:`_sequence_cases`."""
    return {
        "epsilon": float(draw.uniform(low=0.1, high=0.35)),
        "epsilon_high": float(draw.uniform(low=0.38, high=0.47)),
    }


def _sequence_objective(ratio: float, advantage: float, clip: dict[str, float]) -> float:
    low, high = 1 - clip["epsilon"], 1 + clip["epsilon_high"]
    if advantage > 0:
        return advantage * (high if ratio > high else ratio)
    return advantage * (low if ratio < low else ratio)


def _token_clip_mean(logps, old, a, mask, *, epsilon, epsilon_high):
    """GRPO's objective averaged over the tokens: one ratio per token."""
    tokens = pg.ppo_clip(logps, old, a, mask, epsilon=epsilon, epsilon_high=epsilon_high)
    return tokens.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)


def _unrooted_gspo(logps, old, a, mask, *, epsilon, epsilon_high):
    ratio = pg.sequence_ratio(logps, old, mask) ** mask.sum(-1, keepdim=True)
    advantage = _of_response(a, mask)
    return torch.minimum(ratio * advantage, ratio.clamp(1 - epsilon, 1 + epsilon_high) * advantage)


@check(
    "eq:gspo-objective",
    "value",
    "Each completion contributes s·A, with s clipped in the direction in which A would move it.",
    of=pg.gspo,
    against="the cases of the sign of A and the position of s, written out",
    wrong={
        "one ratio per token": _token_clip_mean,
        "ratio without its root": _unrooted_gspo,
        "upper range ignored": lambda *a, epsilon, epsilon_high: pg.gspo(*a, epsilon=epsilon, epsilon_high=None),
    },
    follows="eq:gspo-ratio",
)
def _(gspo, draw: Draw) -> Iterator[Comparison]:
    *inputs, ratios = _sequence_cases(draw)
    clip, signed = _sequence_clip(draw), inputs[2][:, 0].tolist()
    expected = [[_sequence_objective(s, a, clip)] for s, a in zip(ratios, signed, strict=True)]
    yield gspo(*inputs, **clip), _float64(expected)
    logps, old, a, mask = inputs
    inside = [1, 4]
    yield gspo(*inputs, **clip)[inside], (pg.sequence_ratio(logps, old, mask) * a[:, :1])[inside]


@check(
    "eq:gspo-gradient",
    "gradient",
    "The gradient is that of REINFORCE with the sequence ratio: every token of a completion has the same weight "
    "s·A/|y|.",
    of=pg.gspo,
    against="s·A/|y| on each token of a completion that is not clipped, 0 on the others",
    wrong={
        "one ratio per token": _token_clip_mean,
        "ratio without its root": _unrooted_gspo,
        "not divided by the length": pg.luspo,
        "never clipped": lambda *a, **_: pg.gspo(*a, epsilon=1e6),
    },
    follows="eq:gspo-objective",
)
def _(gspo, draw: Draw) -> Comparison:
    logps, old, a, mask, ratios = _sequence_cases(draw)
    free = logps.clone().requires_grad_()
    got = torch.autograd.grad(gspo(free, old, a, mask, **_sequence_clip(draw)).sum(), free)[0]
    active = [False, False, True, True, False, False]  # clipped: A > 0 and s above, A < 0 and s below
    weight = _float64([0.0 if clipped else s for s, clipped in zip(ratios, active, strict=True)])
    return got, torch.where(mask, (weight * a[:, 0] / mask.sum(-1))[:, None], 0.0)


def _attached_gspo_token(logps, old, a, mask, **options):
    """GSPO-token whose sequence ratio keeps its gradient."""
    tokens = pg.gspo_token(logps, old, a, mask, **options)
    return tokens + pg.gspo(logps, old, a, mask, **options) - tokens.detach()


@check(
    "eq:gspo-token",
    "value and gradient",
    "With one advantage per completion and the mean over its tokens, GSPO-token equals GSPO in value and gradient.",
    of=pg.gspo_token,
    against="GSPO from the probabilities of whole completions, differentiated by the table",
    wrong={
        "ratio of the token": pg.ppo_clip,
        "sequence ratio with its own gradient too": _attached_gspo_token,
        "no ratio": lambda logps, old, a, mask, **_: pg.reinforce(logps, old, a, mask),
    },
    follows="eq:gspo-gradient",
)
def _(gspo_token, draw: Draw) -> Iterator[Comparison]:
    lm, logps, old, a, mask = _two_models(draw)
    objective = gspo_token(logps, old, a, mask, epsilon=1e6, epsilon_high=1e6)
    value = agg.aggregate(objective, agg.sequence_mean(mask), mask)
    older = zero_where_masked(old, mask).sum(-1).exp()
    ratio = (lm.distribution()[0] / older) ** (1 / mask.sum(-1).double())
    wanted = (ratio * a[:, 0]).mean()
    yield value, wanted
    yield exact.gradient(value, lm.table), exact.gradient(wanted, lm.table)


@check(
    "eq:gspo-token",
    "clip",
    "All tokens of a completion are clipped or none: each has the value of GSPO and, if clipped, no gradient.",
    of=pg.gspo_token,
    against="the cases of the sign of A and the position of s, on every token",
    wrong={
        "ratio of the token": pg.ppo_clip,
        "never clipped": lambda *a, **_: pg.gspo_token(*a, epsilon=1e6),
    },
)
def _(gspo_token, draw: Draw) -> Iterator[Comparison]:
    logps, old, a, mask, ratios = _sequence_cases(draw)
    free = logps.clone().requires_grad_()
    clip = _sequence_clip(draw)
    objective = gspo_token(free, old, a, mask, **clip)
    values = _float64([_sequence_objective(s, x, clip) for s, x in zip(ratios, a[:, 0].tolist(), strict=True)])
    yield objective, torch.where(mask, values[:, None], 0.0)
    active = [False, False, True, True, False, False]
    weight = _float64([0.0 if clipped else s for s, clipped in zip(ratios, active, strict=True)])
    yield torch.autograd.grad(objective.sum(), free)[0], torch.where(mask, (weight * a[:, 0])[:, None], 0.0)
    most = float(draw.uniform(low=1.475, high=1.495))  # below the last row's ratio, whose advantage is negative
    bounded = gspo_token(free, old, a, mask, **clip, delta=most)
    yield bounded[-1], torch.where(mask[-1], most * a[-1, 0], 0.0)
    yield torch.autograd.grad(bounded[-1].sum(), free)[0], torch.zeros(mask.shape)
    yield bounded[:-1], objective[:-1]


@check(
    "eq:luspo",
    "gradient",
    "The gradient of the sum over the tokens of GSPO-token: a token has the weight s·A, whatever the length.",
    of=pg.luspo,
    against="s·A on each token of a completion that is not clipped, whatever its length",
    wrong={
        "not multiplied by the length": pg.gspo,
        "multiplied by the padded length": lambda logps, old, a, mask, **o: pg.gspo(logps, old, a, mask, **o) * 4,
        "one ratio per token": pg.ppo_clip,
    },
    follows="eq:gspo-token",
)
def _(luspo, draw: Draw) -> Iterator[Comparison]:
    logps, old, a, mask, ratios = _sequence_cases(draw)
    free = logps.clone().requires_grad_()
    clip = _sequence_clip(draw)
    got = torch.autograd.grad(luspo(free, old, a, mask, **clip).sum(), free)[0]
    active = [False, False, True, True, False, False]
    weight = _float64([0.0 if clipped else s for s, clipped in zip(ratios, active, strict=True)])
    yield got, torch.where(mask, (weight * a[:, 0])[:, None], 0.0)
    yield got, torch.autograd.grad(pg.gspo_token(free, old, a, mask, **clip).sum(), free)[0]
    values = [[_sequence_objective(s, x, clip)] for s, x in zip(ratios, a[:, 0].tolist(), strict=True)]
    yield luspo(logps, old, a, mask, **clip), _float64(values) * mask.sum(-1, keepdim=True)
    most = float(draw.uniform(low=1.475, high=1.495))  # below the last row's ratio, whose advantage is negative
    yield luspo(logps, old, a, mask, **clip, delta=most)[-1], (most * a[-1, :1] * mask[-1].sum())


chain(
    "sequence-ratio",
    "GSPO: from the sequence ratio to its gradient, to one advantage per token, to equal tokens",
    ["eq:gspo-ratio", "eq:gspo-objective", "eq:gspo-gradient", "eq:gspo-token", "eq:luspo"],
    module=__name__,
)


# -- other ways to hold the ratio --------------------------------------------------------------------------------


@check(
    "eq:cispo",
    "gradient",
    "The weight is bounded by 1 + ε_high and every token keeps a gradient: REINFORCE with a bounded importance weight.",
    of=pg.cispo,
    against="min(ρ, 1 + ε_high)·A on every token, from the cases",
    wrong={
        "PPO's clip": lambda *a, epsilon_high: pg.ppo_clip(*a, epsilon_high=epsilon_high),
        "weight with its own gradient": lambda logps, old, a, mask, *, epsilon_high: (
            pg.policy_ratio(logps, old, mask).clamp(max=1 + epsilon_high) * pg.reinforce(logps, old, a, mask)
        ),
        "ε_high as the bound itself": lambda *a, epsilon_high: pg.cispo(*a, epsilon_high=epsilon_high + 1),
        "no clip": lambda logps, old, a, mask, *, epsilon_high: pg.importance_weighted(logps, old, a, mask),
    },
)
def _(cispo, draw: Draw) -> Comparison:
    cases = clip_cases(draw)
    high = cases.clip["epsilon_high"]
    return cases.gradient(cispo, epsilon_high=high), cases.table(lambda ratio, a: min(ratio, 1 + high) * a)


@check(
    "eq:cispo",
    "lower bound",
    "With ε the weight is clipped to [1 − ε, 1 + ε_high].",
    of=pg.cispo,
    against="the cases, with ρ also bounded below by 1 − ε",
    wrong={
        "no lower bound": lambda *a, epsilon, epsilon_high: pg.cispo(*a, epsilon_high=epsilon_high),
        "symmetric": lambda *a, epsilon, epsilon_high: pg.cispo(*a, epsilon=epsilon, epsilon_high=epsilon),
    },
)
def _(cispo, draw: Draw) -> Comparison:
    cases = clip_cases(draw)
    low, high = cases.clip["epsilon"], cases.clip["delta"] - 1
    got = cases.gradient(cispo, epsilon=low, epsilon_high=high)
    return got, cases.table(lambda ratio, a: max(1 - low, min(ratio, 1 + high)) * a)


def _temperatures(draw: Draw) -> dict[str, float]:
    return {
        "sapo_temperature_pos": float(draw.uniform(low=1.2, high=1.8)),
        "sapo_temperature_neg": float(draw.uniform(low=2.2, high=3.0)),
    }


@check(
    "eq:sapo",
    "gradient",
    "The gradient of ρA times a gate that is 1 at ρ = 1 and decreases with τ|ρ − 1|, never to 0.",
    of=pg.sapo,
    against="ρA/cosh²(τ(ρ − 1)/2), from the cases",
    wrong={
        "temperatures exchanged": lambda *a, sapo_temperature_pos, sapo_temperature_neg: pg.sapo(
            *a, sapo_temperature_pos=sapo_temperature_neg, sapo_temperature_neg=sapo_temperature_pos
        ),
        "no gate": lambda logps, old, a, mask, **_: pg.importance_weighted(logps, old, a, mask),
        "hard clip": lambda logps, old, a, mask, **_: pg.ppo_clip(logps, old, a, mask),
        "factor 4/τ forgotten": lambda *a, **o: 0.25 * pg.sapo(*a, **o),
    },
)
def _(sapo, draw: Draw) -> Comparison:
    cases, tau = clip_cases(draw), _temperatures(draw)
    positive, negative = tau.values()

    def gated(ratio: float, a: float) -> float:
        return ratio * a / math.cosh((positive if a > 0 else negative) * (ratio - 1) / 2) ** 2

    return cases.gradient(sapo, **tau), cases.table(gated)


@check(
    "eq:sapo",
    "value",
    "The gate is a logistic curve around ρ = 1, from 0 to 4/τ.",
    of=pg.sapo,
    against="2/τ·(1 + tanh(τ(ρ − 1)/2))·A, from the cases",
    wrong={
        "shifted to 0 at ρ = 1": lambda logps, old, a, mask, **o: (
            pg.sapo(logps, old, a, mask, **o) - pg.sapo(old, old, a, mask, **o)
        ),
        "ratio not centred": lambda logps, old, a, mask, **o: zero_where_masked(
            4 * torch.sigmoid(pg.policy_ratio(logps, old, mask)) * a, mask
        ),
    },
)
def _(sapo, draw: Draw) -> Comparison:
    cases, temperatures = clip_cases(draw), _temperatures(draw)
    positive, negative = temperatures.values()

    def curve(ratio: float, a: float) -> float:
        tau = positive if a > 0 else negative
        return 2 / tau * (1 + math.tanh(tau * (ratio - 1) / 2)) * a

    return sapo(*cases.inputs, **temperatures), cases.table(curve)


def _gmpo_clip_after(logps, old, a, mask, *, epsilon, epsilon_high):
    ratio = pg.sequence_ratio(logps, old, mask).clamp(math.exp(-epsilon), math.exp(epsilon_high))
    return ratio * _of_response(a, mask)


@check(
    "eq:gmpo",
    "value and gradient",
    "A·(Π ρ̂)^(1/|y|), where each ρ̂ is bounded above by e^ε_high if A > 0 and below by e^−ε if A < 0.",
    of=pg.gmpo,
    against="|y|-th root of the product of the clipped ratios, by plain Python, and its finite differences",
    wrong={
        "arithmetic mean": lambda logps, old, a, mask, *, epsilon, epsilon_high: _token_clip_mean(
            logps, old, a, mask, epsilon=1 - math.exp(-epsilon), epsilon_high=math.exp(epsilon_high) - 1
        ),
        "clipped after the mean": _gmpo_clip_after,
        "clipped on both sides, without the worse of the two": lambda logps, old, a, mask, *, epsilon, epsilon_high: (
            pg.gmpo(torch.minimum(torch.maximum(logps, old - epsilon), old + epsilon_high), old, a, mask, epsilon=9.0)
        ),
        "range 1 ± ε": lambda logps, old, a, mask, *, epsilon, epsilon_high: pg.gmpo(
            logps, old, a, mask, epsilon=-math.log(1 - epsilon), epsilon_high=math.log(1 + epsilon_high)
        ),
        "one range for both sides": lambda *inputs, epsilon, epsilon_high: pg.gmpo(*inputs, epsilon=epsilon),
    },
    tolerance=1e-7,
)
def _(gmpo, draw: Draw) -> Iterator[Comparison]:
    cases = clip_cases(draw)
    low, high = 1 - cases.clip["epsilon"], 1 + cases.clip["epsilon_high"]
    clip = {"epsilon": -math.log(low), "epsilon_high": math.log(high)}
    one_of_each = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)  # so that both sides of the range matter
    advantages = (cases.advantages[:, :1].abs() * one_of_each).expand(2, 8)
    signed = advantages[:, 0].tolist()

    def written_out(log_ratio: Tensor) -> list[float]:
        values = []
        for row, a in zip(log_ratio.exp().tolist(), signed, strict=True):
            stopped = [min(x, high) if a > 0 else max(x, low) for x in row]
            values.append(a * math.prod(stopped) ** (1 / 7))
        return values

    free = cases.logps.clone().requires_grad_()
    objective = gmpo(free, cases.old_logps, advantages, cases.mask, **clip)
    yield objective.squeeze(-1), _float64(written_out(cases.ratios.log()))
    slope = exact.finite_difference(lambda x: _float64(sum(written_out(x))), cases.ratios.log())
    yield torch.autograd.grad(objective.sum(), free)[0][:, :7], slope


@check(
    "eq:off-policy-mask",
    "value",
    "Only a completion with a negative advantage whose log-probability fell by more than δ per token is masked.",
    of=off_policy.off_policy_keep,
    against="geometric mean of the quotients π/μ of each completion against e^−δ",
    wrong={
        "good completions dropped too": lambda logps, mu, a, mask, **o: off_policy.off_policy_keep(
            logps, mu, -a.abs(), mask, **o
        ),
        "sum over the tokens": lambda logps, mu, a, mask, *, off_policy_mask_threshold: (
            (a[:, 0] >= 0) | (zero_where_masked(mu - logps, mask).sum(-1) <= off_policy_mask_threshold)
        ),
        "drift the other way round": lambda logps, mu, a, mask, **o: off_policy.off_policy_keep(
            mu, logps, a, mask, **o
        ),
        "nothing dropped": lambda logps, mu, a, mask, **_: torch.ones(len(mask), dtype=torch.bool),
    },
)
def _(off_policy_keep, draw: Draw) -> Iterator[Comparison]:
    logps, mu, a, mask, ratios = _sequence_cases(
        draw
    )  # s below .6, near 1, above 1.5, first with A > 0, then with A < 0
    slack = _float64([1.0, 1.0, 1.0, 1.0, 0.8, 1.0])  # the fifth has drifted by .2 per token, .6 in all
    geometric = (_float64(ratios) * slack).tolist()
    for threshold in (0.3, 0.15):
        for advantages in (a, 0 * a):  # an advantage of 0 is not negative
            keep = off_policy_keep(
                logps + slack.log()[:, None], mu, advantages, mask, off_policy_mask_threshold=threshold
            )
            signed = advantages[:, 0].tolist()
            wanted = [x >= 0 or s >= math.exp(-threshold) for s, x in zip(geometric, signed, strict=True)]
            yield keep.double(), _float64([float(x) for x in wanted])


# -- one ratio for a completion ------------------------------------------------------------------------------------


def _ragged(draw: Draw) -> tuple[list[Tensor], list[list[float]]]:
    """Two rows with an advantage above 0 and two below, three tokens or fewer, NaN behind the mask; and their token log-ratios."""
    mask = torch.tensor([[True, True, True], [True, False, False], [True, True, False], [True, True, True]])
    drift = torch.tensor([0.3, -0.4, 0.5, 0.05], dtype=torch.float64)[:, None] + draw.uniform(4, 3, low=-0.1, high=0.1)
    old = torch.where(mask, draw.logps(4, 3) - 1, torch.nan)
    sign = torch.tensor([[1.0], [1.0], [-1.0], [-1.0]], dtype=torch.float64)
    advantages = (draw.uniform(4, 1, low=0.5, high=2.0) * sign).expand(4, 3)
    rows = [[float(x) for x, inside in zip(row, m, strict=True) if inside] for row, m in zip(drift, mask, strict=True)]
    return [old + drift, old, advantages, mask], rows


def _slopes(objective, inputs: list[Tensor], **options: float) -> Tensor:
    """The derivative by each token's log-probability, ``(4, 3)``, zeros outside the mask."""
    logps = zero_where_masked(inputs[0], inputs[3]).requires_grad_()
    (slope,) = torch.autograd.grad(zero_where_masked(objective(logps, *inputs[1:], **options), inputs[3]).sum(), logps)
    return slope


def _on_tokens(rows: list[list[float]], values: list[float]) -> Tensor:
    """One value per completion on each of its tokens, ``(4, 3)``."""
    return _float64([[v if t < len(row) else 0.0 for t in range(3)] for row, v in zip(rows, values, strict=True)])


def _vespo_shape(draw: Draw) -> dict[str, float]:
    centres = {"vespo_k_pos": 1.5, "vespo_lambda_pos": 2.5, "vespo_k_neg": 2.5, "vespo_lambda_neg": 1.2}
    return {name: centre + float(draw.uniform(low=-0.15, high=0.15)) for name, centre in centres.items()}


@check(
    "eq:vespo",
    "gradient", "Every token of a completion has the weight φ(w)·A, w the completion's exact ratio; on fresh samples that is "
    "REINFORCE.",
    of=pg.vespo,
    against="w^k e^(λ(1 − w))·A from the completions' own ratios",
    wrong={
        "the root of the ratio": lambda logps, old, a, mask, **o: (
            pg.vespo(logps, logps.detach() - pg.sequence_ratio(logps, old, mask).log() / mask.sum(-1, keepdim=True), a, mask, **o)
        ),
        "the kernel's own gradient kept": lambda logps, old, a, mask, *, vespo_k_pos, vespo_lambda_pos, vespo_k_neg, vespo_lambda_neg: (
            lambda w, k, rate: w**k * torch.exp(rate * (1 - w)) * a * logps
        )(
            (logps - zero_where_masked(old, mask)).mul(mask).sum(-1, keepdim=True).exp(),
            torch.where(a > 0, vespo_k_pos, vespo_k_neg),
            torch.where(a > 0, vespo_lambda_pos, vespo_lambda_neg),
        ),
        "k and λ exchanged": lambda *inputs, vespo_k_pos, vespo_lambda_pos, vespo_k_neg, vespo_lambda_neg: pg.vespo(
            *inputs, vespo_k_pos=vespo_lambda_pos, vespo_lambda_pos=vespo_k_pos,
            vespo_k_neg=vespo_lambda_neg, vespo_lambda_neg=vespo_k_neg,
        ),
        "the two signs exchanged": lambda *inputs, vespo_k_pos, vespo_lambda_pos, vespo_k_neg, vespo_lambda_neg: pg.vespo(
            *inputs, vespo_k_pos=vespo_k_neg, vespo_lambda_pos=vespo_lambda_neg,
            vespo_k_neg=vespo_k_pos, vespo_lambda_neg=vespo_lambda_pos,
        ),
        "no kernel": lambda logps, old, a, mask, **_: pg.reinforce(logps, old, a, mask),
    },
)  # fmt: skip
def _(vespo, draw: Draw) -> Iterator[Comparison]:
    (inputs, rows), shape = _ragged(draw), _vespo_shape(draw)
    expected = []
    for row, advantage in zip(rows, inputs[2][:, 0].tolist(), strict=True):
        sign = "pos" if advantage > 0 else "neg"
        k, rate = shape[f"vespo_k_{sign}"], shape[f"vespo_lambda_{sign}"]
        w = math.prod(math.exp(x) for x in row)
        expected.append(w**k * math.exp(rate * (1 - w)) * advantage)
    yield _slopes(vespo, inputs, **shape), _on_tokens(rows, expected)
    fresh = [inputs[0], inputs[0], *inputs[2:]]
    yield _slopes(vespo, fresh, **shape), _on_tokens(rows, inputs[2][:, 0].tolist())


@check(
    "eq:cispo",
    "per sequence",
    "All tokens of a completion share its ratio and the bound on it.",
    of=pg.cispo,
    against="min(s, 1 + ε_high)·A on every token, s the geometric mean of the ratios",
    wrong={
        "each token's own ratio": lambda *inputs, epsilon_high, per_sequence: pg.cispo(
            *inputs, epsilon_high=epsilon_high
        ),
        "no bound": lambda *inputs, epsilon_high, per_sequence: pg.cispo(*inputs, epsilon_high=1e6, per_sequence=True),
    },
)
def _(cispo, draw: Draw) -> Comparison:
    inputs, rows = _ragged(draw)
    ratios = [math.exp(sum(row) / len(row)) for row in rows]
    expected = [min(s, 1.2) * a for s, a in zip(ratios, inputs[2][:, 0].tolist(), strict=True)]
    return _slopes(cispo, inputs, epsilon_high=0.2, per_sequence=True), _on_tokens(rows, expected)


@check(
    "eq:sapo",
    "per sequence",
    "The gate depends on the geometric mean of a completion's ratios.",
    of=pg.sapo,
    against="sA/cosh²(τ(s − 1)/2)/|y| on every token of the mean over the completion",
    wrong={
        "each token's own ratio": lambda *inputs, per_sequence, **options: pg.sapo(*inputs, **options),
        "no gate": lambda *inputs, **_: pg.gspo(*inputs, epsilon=1e6),
    },
)
def _(sapo, draw: Draw) -> Comparison:
    inputs, rows = _ragged(draw)
    lengths = _float64([[len(row)] for row in rows])
    expected = []
    for row, a in zip(rows, inputs[2][:, 0].tolist(), strict=True):
        s, tau = math.exp(sum(row) / len(row)), 1.3 if a > 0 else 1.8
        expected.append(s * a / math.cosh(tau * (s - 1) / 2) ** 2 / len(row))
    options = {"sapo_temperature_pos": 1.3, "sapo_temperature_neg": 1.8, "per_sequence": True}
    return _slopes(sapo, inputs, **options) / lengths, _on_tokens(rows, expected)


@check(
    "eq:gspo-objective",
    "two-sided",
    "If A < 0 the objective of a completion is at least δ·A; if A > 0 δ has no effect.",
    of=pg.gspo,
    against="the cases of s and A, written out",
    wrong={
        "no second bound": lambda *inputs, delta, **options: pg.gspo(*inputs, **options),
        "on each token's ratio": lambda *inputs, **options: pg.ppo_clip(*inputs, **options)[:, :1],
    },
)
def _(gspo, draw: Draw) -> Comparison:
    (inputs, rows), most = _ragged(draw), float(draw.uniform(low=1.2, high=1.35))
    expected = []
    for row, a in zip(rows, inputs[2][:, 0].tolist(), strict=True):
        s = math.exp(sum(row) / len(row))
        expected.append([min(s, 1.1) * a if a > 0 else max(0.9, min(s, most)) * a])
    return gspo(*inputs, epsilon=0.1, delta=most), _float64(expected)
