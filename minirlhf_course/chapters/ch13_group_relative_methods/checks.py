"""The ledger of chapter 13: group-relative methods."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.core.exact import ToyLM
from minirlhf.core.masking import zero_where_masked
from minirlhf.equations import advantages as adv
from minirlhf.equations import difficulty
from minirlhf_course.ledger.inputs.rollouts import all_groups, expected_gradient, mean_over_group, reward_gradient
from minirlhf_course.ledger.registry import Comparison, Draw, chain, check


def _float64(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


# -- baselines of the group --------------------------------------------------------------------------------------


def _graded(draw: Draw) -> tuple[Tensor, Tensor]:
    """Rewards ``(3, 4)``, NaN where not valid: a full group, one with three valid, one with a single one (drops out)."""
    valid = torch.tensor([[1, 1, 1, 1], [1, 0, 1, 1], [0, 1, 0, 0]]).bool()
    rewards = draw.uniform(3, 4, high=0.4) + _float64([[1.0, 1.5, 2.0, 2.5], [4.0, 4.0, 5.0, 6.5], [3.0] * 4])
    return torch.where(valid, rewards, torch.nan), valid


def _centred(rewards: Tensor, valid: Tensor) -> Tensor:
    """Each valid reward of the first two groups minus the mean of its list, 0 elsewhere."""
    result = torch.zeros(rewards.shape, dtype=torch.float64)
    for p in range(2):
        row = rewards[p][valid[p]].tolist()
        result[p, valid[p]] = _float64([r - statistics.fmean(row) for r in row])
    return result


DEVIATIONS = ((0, 0.01, statistics.pstdev), (1, 0.1, statistics.stdev))  # ddof, eps, and the deviation's name in Python


def _invalid_as_zero(f: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda r, valid, **options: f(torch.where(valid, r, 0.0), None, **options)


@check(
    "eq:drgrpo-advantage",
    "value",
    "r_i minus the mean of the valid rewards of its group; a group with one valid reward drops out.",
    of=adv.group_center,
    against="each reward minus the mean of its list",
    wrong={
        "mean of the batch": adv.batch_center,
        "mean of the others": adv.leave_one_out,
        "invalid rewards counted as 0": _invalid_as_zero(adv.group_center),
    },
)
def _(group_center, draw: Draw) -> Comparison:
    rewards, valid = _graded(draw)
    return group_center(rewards, valid), _centred(rewards, valid)


@check(
    "eq:drgrpo-advantage",
    "expected gradient",
    "The own reward in the mean scales the expected gradient by (G − 1)/G; its direction is the true gradient.",
    of=adv.group_center,
    against="(G − 1)/G · ∇J over every group of three completions",
    wrong={
        "mean of the others": adv.leave_one_out,
        "no baseline": adv.raw_reward,
        "scaled by the deviation": adv.group_zscore,
    },
)
def _(group_center, draw: Draw) -> Comparison:
    lm = draw.toy(2, 2)
    rewards = draw.normal(len(lm.completions().tokens))
    got = expected_gradient(lm, rewards, 3, mean_over_group(group_center))
    return got, reward_gradient(lm, rewards) * 2 / 3


@check(
    "eq:rloo-sum-form",
    "step",
    "r_i − (Σ_j r_j − r_i)/(G − 1) = (G r_i − Σ_j r_j)/(G − 1).",
    of=adv.leave_one_out,
    against="(G·r_i − Σ_j r_j)/(G − 1), the mean of the others with its sum completed",
    wrong={
        "own reward in the mean": adv.group_center,
        "divided by G": lambda r: adv.leave_one_out(r) * (r.shape[1] - 1) / r.shape[1],
    },
    follows="eq:rloo-advantage",
)
def _(leave_one_out, draw: Draw) -> Comparison:
    rows = draw.normal(2, 5).tolist()
    return leave_one_out(_float64(rows)), _float64([[(5 * r - sum(row)) / 4 for r in row] for row in rows])


@check(
    "eq:rloo-scaled-center",
    "step",
    "(G r_i − Σ_j r_j)/(G − 1) = G/(G − 1)·(r_i − mean): RLOO is Dr. GRPO times G/(G − 1).",
    of=adv.group_center,
    against="(G·r_i − Σ_j r_j)/(G − 1), divided by G/(G − 1); and the mean of the others, list by list",
    wrong={
        "mean of the others": adv.leave_one_out,
        "divided by G − 1": lambda r: adv.group_center(r) * r.shape[1] / (r.shape[1] - 1),
        "mean of the batch": adv.batch_center,
    },
    follows="eq:rloo-sum-form",
)
def _(group_center, draw: Draw) -> Iterator[Comparison]:
    rewards = draw.normal(2, 5)
    scaled = group_center(rewards) * 5 / 4
    yield scaled, _float64([[(5 * r - sum(row)) / 4 for r in row] for row in rewards.tolist()])
    others = [[r - statistics.fmean(row[:i] + row[i + 1 :]) for i, r in enumerate(row)] for row in rewards.tolist()]
    yield scaled, _float64(others)


chain(
    "rloo-is-scaled-drgrpo",
    "RLOO = G/(G − 1) · Dr. GRPO",
    ["eq:rloo-advantage", "eq:rloo-sum-form", "eq:rloo-scaled-center"],
    module=__name__,
)


@check(
    "eq:grpo-advantage",
    "value",
    "(r_i − mean)/(std + ε) of each group, with either divisor of the variance; equal rewards give exact zeros.",
    of=adv.group_zscore,
    against="mean and standard deviation of each list (Python's statistics)",
    wrong={
        "other divisor of the variance": lambda r, valid, *, ddof, eps: adv.group_zscore(
            r, valid, ddof=1 - ddof, eps=eps
        ),
        "deviation of the batch": adv.lite_ppo,
        "not scaled": lambda r, valid, **_: adv.group_center(r, valid),
        "invalid rewards counted as 0": _invalid_as_zero(adv.group_zscore),
    },
)
def _(group_zscore, draw: Draw) -> Iterator[Comparison]:
    rewards, valid = _graded(draw)
    for ddof, eps, deviation in DEVIATIONS:
        scale = [deviation(rewards[p][valid[p]].tolist()) + eps for p in range(2)]
        centred = _centred(rewards, valid)
        yield group_zscore(rewards, valid, ddof=ddof, eps=eps), centred / _float64([*scale, 1.0])[:, None]
    equal = draw.normal(2, 1).expand(2, 3)
    yield group_zscore(equal, torch.ones(2, 3).bool(), ddof=0, eps=0.0), torch.zeros(2, 3)


def _binary_task(draw: Draw) -> tuple[ToyLM, Tensor, Tensor]:
    """A model of three completions, rewards 0 and 1 (one completion succeeds), and its probability of success."""
    lm = draw.toy(2, 2, scale=0.4)  # no completion is nearly certain
    rewards = torch.zeros(3, dtype=torch.float64)
    rewards[draw.integer(0, 2)] = 1.0
    return lm, rewards, exact.expectation(lm.distribution()[0], rewards)


def _weight_of_prompt(rate: float, size: int, weight: Callable[[float], float]) -> float:
    """Factor of ∇p that ``w(p̂)(r − p̂)/G`` has on average: the sum over how many of the other G − 1 samples succeed."""
    total = 0.0
    for k in range(size):
        chance = math.comb(size - 1, k) * rate**k * (1 - rate) ** (size - 1 - k)
        if k < size - 1:  # own success: k + 1 of G
            total += chance * weight((k + 1) / size) * (1 - (k + 1) / size)
        if k > 0:  # own failure: k of G; E[∇log π | failure]·P(failure) = −∇p
            total += chance * weight(k / size) * k / size
    return total


@check(
    "eq:difficulty-bias",
    "expected gradient",
    "For rewards 0 and 1 the division by the deviation multiplies a prompt's gradient by a weight that depends "
    "on its pass rate.",
    of=adv.group_zscore,
    against="∇p times a binomial sum over the successes of the others",
    wrong={
        "not scaled: the same weight for every prompt": lambda r, **_: adv.group_center(r),
        "other divisor of the variance": lambda r, *, ddof, eps: adv.group_zscore(r, ddof=1 - ddof, eps=eps),
        "divided by the variance": lambda r, *, ddof, eps: (
            adv.group_center(r) / r.var(-1, correction=0, keepdim=True).clamp(min=1e-9)
        ),
    },
)
def _(group_zscore, draw: Draw) -> Comparison:
    lm, rewards, rate = _binary_task(draw)
    got = expected_gradient(lm, rewards, 4, mean_over_group(lambda r: group_zscore(r, ddof=0, eps=0.0)))
    factor = _weight_of_prompt(float(rate.detach()), 4, lambda p: 1 / math.sqrt(p * (1 - p)))
    return got, reward_gradient(lm, rewards) * factor


@check(
    "eq:lite-ppo-advantage",
    "value",
    "Centred within the group, divided by the deviation of all rewards of the batch.",
    of=adv.lite_ppo,
    against="mean of each list, standard deviation of all rewards in one list (Python's statistics)",
    wrong={
        "deviation of the group": adv.group_zscore,
        "deviation after centring": adv.reinforce_pp_baseline,
        "mean of the batch": adv.batch_zscore,
        "invalid rewards counted as 0": _invalid_as_zero(adv.lite_ppo),
    },
)
def _(lite_ppo, draw: Draw) -> Iterator[Comparison]:
    rewards, valid = _graded(draw)
    centred = _centred(rewards, valid)
    batch = rewards[:2][valid[:2]].tolist()
    for ddof, eps, deviation in DEVIATIONS:
        yield lite_ppo(rewards, valid, ddof=ddof, eps=eps), centred / (deviation(batch) + eps)


@check(
    "eq:reinforce-pp-baseline",
    "value",
    "Centred within the group, divided by the deviation of all centred rewards of the batch.",
    of=adv.reinforce_pp_baseline,
    against="standard deviation of the list of all centred rewards (Python's statistics)",
    wrong={
        "deviation of the rewards": adv.lite_ppo,
        "deviation of the group": adv.group_zscore,
        "mean of the batch": adv.batch_zscore,
        "invalid rewards counted as 0": _invalid_as_zero(adv.reinforce_pp_baseline),
    },
)
def _(reinforce_pp_baseline, draw: Draw) -> Iterator[Comparison]:
    rewards, valid = _graded(draw)
    centred = _centred(rewards, valid)
    left = centred[:2][valid[:2]].tolist()
    for ddof, eps, deviation in DEVIATIONS:
        yield reinforce_pp_baseline(rewards, valid, ddof=ddof, eps=eps), centred / (deviation(left) + eps)


@check(
    "eq:grpo-process",
    "value",
    "The advantage of a token is the sum of the normalised rewards of its own and all later steps; the steps of "
    "a whole group are normalised together.",
    of=adv.process_zscore,
    against="the normalised rewards of later steps added up token by token",
    wrong={
        "steps already taken": lambda r, ends, mask, **o: zero_where_masked(
            adv.process_zscore(r, ends, mask, **o)[:, :1] - adv.process_zscore(r, ends, mask, **o), mask
        ),
        "summed, then normalised": lambda r, ends, mask, *, num_generations, **o: adv.broadcast_to_tokens(
            adv.group_zscore((zero_where_masked(r, ends)).sum(-1).view(-1, num_generations), **o), mask
        ),
        "not normalised": lambda r, ends, mask, **_: zero_where_masked(
            zero_where_masked(r, ends).flip(-1).cumsum(-1).flip(-1), mask
        ),
    },
)
def _(process_zscore, draw: Draw) -> Iterator[Comparison]:
    mask = torch.arange(6)[None, :] < torch.tensor([6, 4, 5, 6])[:, None]
    ends = torch.tensor([[0, 1, 0, 1, 0, 1], [0, 0, 0, 1, 0, 0], [1, 0, 0, 0, 1, 0], [0, 0, 1, 0, 0, 1]]).bool()
    rewards = torch.where(ends, draw.normal(4, 6) + _float64([[3.0], [1.0], [2.0], [5.0]]), torch.nan)
    for size, (ddof, eps, spread) in itertools.product((2, 4), DEVIATIONS):
        expected = torch.zeros(4, 6, dtype=torch.float64)
        for group in torch.arange(4).view(-1, size).tolist():
            steps = [x for i in group for x in rewards[i][ends[i]].tolist()]
            mean, deviation = statistics.fmean(steps), spread(steps) + eps
            for i in group:
                for t, s in itertools.product(range(int(mask[i].sum())), range(6)):
                    if s >= t and ends[i, s]:
                        expected[i, t] += (float(rewards[i, s]) - mean) / deviation
        yield process_zscore(rewards, ends, mask, num_generations=size, ddof=ddof, eps=eps), expected


# -- how much a prompt counts ------------------------------------------------------------------------------------


@check(
    "eq:pass-rate-weighting",
    "expected gradient",
    "w(p̂)(r − p̂) changes the weight of a prompt, not the direction of its gradient.",
    of=difficulty.pass_rate_weighting,
    against="∇p times a binomial sum over the successes of the others",
    wrong={
        "weight forgotten": lambda r, *, weight: adv.group_center(r),
        "weight of the failures": lambda r, *, weight: difficulty.pass_rate_weighting(
            r, weight=lambda p: weight(1 - p)
        ),
        "mean of the others subtracted": lambda r, *, weight: difficulty.pass_rate_weighting(r, weight=weight) * 4 / 3,
    },
)
def _(pass_rate_weighting, draw: Draw) -> Comparison:
    lm, rewards, rate = _binary_task(draw)
    power = float(draw.uniform(low=0.5, high=1.5))
    got = expected_gradient(
        lm, rewards, 4, mean_over_group(lambda r: pass_rate_weighting(r, weight=lambda p: p**-power))
    )
    return got, reward_gradient(lm, rewards) * _weight_of_prompt(float(rate.detach()), 4, lambda p: p**-power)


@check(
    "eq:maxrl-advantage",
    "expected gradient",
    "With G samples MaxRL follows the gradient of the expansion of log p truncated after G − 1 terms.",
    of=difficulty.maxrl,
    against="gradient of −Σ_{k<G} (1 − p)^k / k, p summed over every completion",
    wrong={
        "scaled by the deviation": adv.group_zscore,
        "not scaled": adv.group_center,
        "leave-one-out": lambda r: difficulty.maxrl(r) * 4 / 3,
        "no baseline": lambda r: difficulty.maxrl(r) + (r.sum(-1, keepdim=True) > 0),
    },
)
def _(maxrl, draw: Draw) -> Comparison:
    lm, rewards, rate = _binary_task(draw)
    wanted = -torch.stack([(1 - rate) ** k / k for k in range(1, 4)]).sum()
    return expected_gradient(lm, rewards, 4, mean_over_group(maxrl)), exact.gradient(wanted, lm.table)


@check(
    "eq:pass-rate-weighting",
    "value",
    "Each group gets w(mean)·(r − mean); groups of equal rewards get 0, whatever the weight function is there.",
    of=difficulty.pass_rate_weighting,
    against="w(mean)·(r − mean) of each list",
    wrong={
        "weight forgotten": lambda r, valid, *, weight: adv.group_center(r, valid),
        "invalid rewards counted as 0": _invalid_as_zero(difficulty.pass_rate_weighting),
        "weight of the batch": lambda r, valid, *, weight: (
            adv.group_center(r, valid) * weight(r[valid].mean().view(1, 1))
        ),
    },
)
def _(pass_rate_weighting, draw: Draw) -> Iterator[Comparison]:
    rewards = _float64([[0.0, 0.5, 1.0, 0.5], [0.0] * 4, [1.0] * 4, [1.0, 0.0, 0.0, 0.25], [0.5, 1.0, 0.0, 0.0]])
    valid = torch.tensor([[1] * 4, [1] * 4, [1] * 4, [1, 1, 0, 1], [0, 1, 0, 0]]).bool()
    power = float(draw.uniform(low=0.5, high=1.5))
    for weight in (lambda p: p**-power, lambda p: (1 - p) ** -power):
        expected = torch.zeros(5, 4, dtype=torch.float64)
        for p, kept in enumerate(valid):
            row = rewards[p][kept].tolist()
            if len(set(row)) > 1:
                mean = statistics.fmean(row)
                expected[p, kept] = _float64([weight(mean) * (r - mean) for r in row])
        yield pass_rate_weighting(torch.where(valid, rewards, torch.nan), valid, weight=weight), expected


@check(
    "eq:bnpo-advantage",
    "special cases",
    "BNPO contains the centred reward and, up to the constant of the Beta density, GRPO's z-score.",
    of=difficulty.bnpo,
    against="centred rewards at (1, 1), π/8 times the z-score at (3/2, 3/2), from lists",
    wrong={
        "multiplied by the density": lambda r, *, shape: adv.group_center(r) ** 2 / difficulty.bnpo(r, shape=shape),
        "shape ignored": lambda r, *, shape: adv.group_center(r),
        "density not normalised": lambda r, *, shape: (
            difficulty.bnpo(r, shape=shape)
            / math.exp(math.lgamma(shape[0]) + math.lgamma(shape[1]) - math.lgamma(sum(shape)))
        ),
    },
)
def _(bnpo, draw: Draw) -> Iterator[Comparison]:
    rows = [[1.0] * k + [0.0] * (5 - k) for k in (1, 2, 3, 4)]
    rewards = _float64(rows)[:, draw.permutation(5)]
    means = rewards.mean(-1, keepdim=True)
    yield bnpo(rewards, shape=(1.0, 1.0)), rewards - means
    deviations = _float64([[statistics.pstdev(row)] for row in rows])
    yield bnpo(rewards, shape=(1.5, 1.5)), (rewards - means) / deviations * math.pi / 8


@check(
    "eq:bnpo-advantage",
    "fitted",
    "Without a shape it uses that of the pass rates of all groups with at least two graded completions; "
    "zero-variance groups get 0.",
    of=difficulty.bnpo,
    against="the Beta density, from gamma functions, with the shape of these groups",
    wrong={
        "shape of GRPO": lambda r, valid: difficulty.bnpo(r, valid, shape=(1.5, 1.5)),
        "invalid rewards counted as 0": lambda r, valid: difficulty.bnpo(torch.where(valid, r, 0.0)),
        "not normalised": adv.group_center,
    },
)
def _(bnpo, draw: Draw) -> Iterator[Comparison]:
    rewards = _float64([[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 1, 1, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 0, 1], [1] * 5])
    valid = torch.tensor([[1] * 5, [1, 0, 1, 1, 1], [1, 1, 1, 0, 1], [1] * 5, [0, 1, 0, 1, 0], [0, 0, 0, 0, 1]]).bool()
    order = draw.permutation(6)
    rewards, valid = rewards[order], valid[order]
    lists = [row[kept].tolist() for row, kept in zip(rewards, valid, strict=True)]
    rates = [statistics.fmean(row) for row in lists if len(row) >= 2]
    m, v = statistics.fmean(rates), statistics.variance(rates)
    a, b = 1 + m * (m * (1 - m) / v - 1) / 3, 1 + (1 - m) * (m * (1 - m) / v - 1) / 3
    whole = math.gamma(a) * math.gamma(b) / math.gamma(a + b)
    expected = torch.zeros(6, 5, dtype=torch.float64)
    for p, row in enumerate(lists):
        rate = statistics.fmean(row)
        if 0 < rate < 1:
            density = rate ** (a - 1) * (1 - rate) ** (b - 1) / whole
            expected[p, valid[p]] = _float64([(r - rate) / density for r in row])
    yield bnpo(torch.where(valid, rewards, torch.nan), valid), expected


@check(
    "eq:bnpo-shape",
    "optimality",
    "For pass rates from Beta(a, b) the variance is stationary at (1 + a/3, 1 + b/3); pass rates that fit no "
    "Beta distribution get equal weights.",
    of=difficulty.bnpo_shape,
    against="derivative 0 of the gradient's variance ∫ p(1 − p) Beta(p; a, b)/Beta(p; α, β)² dp",
    wrong={
        "the fitted Beta itself": lambda rates: tuple(3 * (x - 1) for x in difficulty.bnpo_shape(rates)),
        "GRPO's shape": lambda rates: (1.5, 1.5),
        "no normalisation": lambda rates: (1.0, 1.0),
    },
    tolerance=1e-8,
)
def _(bnpo_shape, draw: Draw) -> Iterator[Comparison]:
    for unfit in ([0.4, 0.4, 0.4], [0.0, 1.0], [0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.3], []):
        yield torch.tensor(bnpo_shape(_float64(unfit))), torch.ones(2)
    a, b = float(draw.uniform(low=1.8, high=2.2)), float(draw.uniform(low=2.5, high=2.9))
    mean, variance = a / (a + b), a * b / ((a + b) ** 2 * (a + b + 1))
    apart = math.sqrt(variance / 2)  # two rates with this mean and this sample variance
    shape = bnpo_shape(_float64([mean - apart, mean + apart]))

    def log_beta(x: Tensor, y: Tensor) -> Tensor:
        return torch.lgamma(x) + torch.lgamma(y) - torch.lgamma(x + y)

    def log_variance(x: Tensor) -> Tensor:  # the integral is again a Beta function
        return 2 * log_beta(x[0], x[1]) + log_beta(a + 3 - 2 * x[0], b + 3 - 2 * x[1])

    yield exact.finite_difference(log_variance, _float64(shape)), torch.zeros(2)


@check(
    "eq:dynamic-sampling",
    "expected value",
    "The groups that are kept are those with at least one success and one failure.",
    of=difficulty.nonzero_variance_groups,
    against="1 − p^G − (1 − p)^G over every group of outcomes",
    wrong={
        "only all-failed groups dropped": lambda r: r.sum(-1) > 0,
        "only all-solved groups dropped": lambda r: r.sum(-1) < r.shape[-1],
        "nothing dropped": lambda r: torch.ones(len(r), dtype=torch.bool),
    },
)
def _(nonzero_variance_groups, draw: Draw) -> Iterator[Comparison]:
    p = draw.uniform(low=0.2, high=0.8)
    outcomes = all_groups(2, 4).double()  # every group of four, 1 = success
    chance = torch.where(outcomes > 0, p, 1 - p).prod(-1)
    yield exact.expectation(chance, nonzero_variance_groups(outcomes).double()), 1 - p**4 - (1 - p) ** 4
    graded = all_groups(3, 3).double() / 2  # 0, ½ and 1: one of them may be the mean
    yield nonzero_variance_groups(graded).double(), _float64([float(len(set(row)) > 1) for row in graded.tolist()])


@check(
    "eq:dead-group",
    "value",
    "p^G + (1 − p)^G is the probability that all rewards of a group are equal.",
    of=difficulty.zero_variance_group_probability,
    against="the probability of the groups of outcomes whose advantages are all 0, enumerated",
    wrong={
        "all solved only": lambda p, *, num_generations: p**num_generations,
        "chance that the group lives": lambda p, *, num_generations: (
            1 - p**num_generations - (1 - p) ** num_generations
        ),
        "one sample fewer": lambda p, *, num_generations: difficulty.zero_variance_group_probability(
            p, num_generations=num_generations - 1
        ),
    },
)
def _(zero_variance_group_probability, draw: Draw) -> Iterator[Comparison]:
    for size in (2, 5):
        p = draw.uniform(low=0.1, high=0.35)
        outcomes = all_groups(2, size).double()
        chance = torch.where(outcomes > 0, p, 1 - p).prod(-1)
        silent = (adv.group_zscore(outcomes, ddof=0) == 0).all(-1)
        yield zero_variance_group_probability(p, num_generations=size), exact.expectation(chance, silent.double())


@check(
    "eq:gfpo-filter",
    "value",
    "The subset of k valid completions with the largest total score is kept; of equal scores the earliest.",
    of=difficulty.gfpo_filter,
    against="the subset with the largest total score among all subsets",
    wrong={
        "the worst kept": lambda s, valid, *, num_kept: difficulty.gfpo_filter(-s, valid, num_kept=num_kept),
        "one fewer kept": lambda s, valid, *, num_kept: difficulty.gfpo_filter(s, valid, num_kept=max(num_kept - 1, 2)),
        "invalid completions kept": lambda s, valid, *, num_kept: difficulty.gfpo_filter(
            s.nan_to_num(9.0), num_kept=num_kept
        ),
    },
)
def _(gfpo_filter, draw: Draw) -> Iterator[Comparison]:
    valid = torch.tensor([[1, 1, 1, 1, 1], [1, 0, 1, 1, 1], [1, 1, 1, 1, 1]]).bool()
    ties = _float64([2.0, 1.0, 1.0, 1.0, 3.0])[draw.permutation(5)]
    scores = torch.where(valid, torch.cat([draw.normal(2, 5), ties[None]]), torch.nan)
    for kept in (2, 3, 4):
        expected = torch.zeros(3, 5)
        for p, row in enumerate(scores.tolist()):
            subsets = itertools.combinations(valid[p].nonzero().flatten().tolist(), kept)
            best = max(subsets, key=lambda subset: (sum(row[i] for i in subset), [-i for i in subset]))
            expected[p, list(best)] = 1.0
        yield gfpo_filter(scores, valid, num_kept=kept).double(), expected
