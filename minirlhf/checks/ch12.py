"""The ledger of chapter 12: policy gradients for language models."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import torch
from torch import Tensor

from minirlhf.checks.rollouts import clip_cases, expected_gradient, mean_over_group, reward_gradient
from minirlhf.core import exact
from minirlhf.core.checks import Comparison, Draw, chain, check
from minirlhf.core.masking import last_index, masked_sum, zero_where_masked
from minirlhf.equations import advantages as adv
from minirlhf.equations import aggregation as agg
from minirlhf.equations import diagnostics, kl, off_policy, shaping, value_losses
from minirlhf.equations import policy_losses as pg

# -- the objective of a fresh batch ------------------------------------------------------------------------------


@check(
    "eq:reinforce-objective",
    "expected gradient",
    of=pg.reinforce,
    against="∇J, J = Σ π(y) r(y) over every response",
    wrong={
        "π in place of log π": lambda logps, old, a, mask: zero_where_masked(a * logps.exp(), mask),
        "only the last token gets credit": lambda logps, old, a, mask: (
            a * logps * torch.nn.functional.one_hot(last_index(mask), mask.shape[1])
        ),
        "mean over the tokens of a response": lambda logps, old, a, mask: (
            pg.reinforce(logps, old, a, mask) / mask.sum(-1, keepdim=True)
        ),
    },
)
def _(reinforce, draw: Draw) -> Comparison:
    "Averaged over all responses, the gradient of Σ_t r·log π(a_t) is the gradient of the expected reward."
    lm = draw.toy(3, 3)
    logps, mask = lm.response_token_logps()[0], lm.responses().mask
    rewards = draw.normal(len(mask))
    objective = reinforce(logps, logps.detach(), rewards[:, None].expand(mask.shape), mask)
    chance = lm.distribution()[0].detach()
    return exact.gradient((chance[:, None] * objective).sum(), lm.table), reward_gradient(lm, rewards)


@check(
    "eq:token-advantage",
    "value",
    of=adv.broadcast_to_tokens,
    against="reward times log-probability of the whole response, by enumeration",
    wrong={
        "rows read sample-major": lambda a, mask: adv.broadcast_to_tokens(a.T.reshape(a.shape), mask),
        "shared out over the tokens": lambda a, mask: adv.broadcast_to_tokens(a, mask) / mask.sum(-1, keepdim=True),
    },
)
def _(broadcast_to_tokens, draw: Draw) -> Comparison:
    "With the same advantage on every token the objectives of its tokens add up to A·log π(y); rows are prompt-major."
    lm = draw.toy(2, 3, num_prompts=2)  # 4 responses to each of 2 prompts
    advantages, mask = draw.normal(2, 4), lm.responses().mask.repeat(2, 1)
    logps = lm.response_token_logps().detach().flatten(0, 1)
    objective = pg.reinforce(logps, logps, broadcast_to_tokens(advantages, mask), mask)
    return objective.sum(-1).view(2, 4), advantages * lm.distribution().detach().log()


# -- baselines that need no group --------------------------------------------------------------------------------


@check(
    "eq:reinforce-advantage",
    "expected gradient",
    of=adv.raw_reward,
    against="∇J over every pair of responses",
    wrong={
        "mean of the group subtracted": adv.group_center,
        "scaled by the deviation of the group": adv.group_zscore,
    },
)
def _(raw_reward, draw: Draw) -> Comparison:
    "The reward itself as advantage gives the true gradient on average."
    lm = draw.toy(3, 2)
    rewards = draw.normal(len(lm.responses().tokens))
    return expected_gradient(lm, rewards, 2, mean_over_group(raw_reward)), reward_gradient(lm, rewards)


@check(
    "eq:batch-baseline",
    "expected gradient",
    of=adv.batch_center,
    against="(N − 1)/N · ∇J over every batch of three responses",
    wrong={
        "no baseline": adv.raw_reward,
        "mean of the others": adv.leave_one_out,
        "median of the batch": lambda r: r - r.median(),
    },
)
def _(batch_center, draw: Draw) -> Comparison:
    "A batch mean that includes the own reward shrinks the expected gradient by (N − 1)/N."
    lm = draw.toy(2, 2)
    rewards = draw.normal(len(lm.responses().tokens))

    def each_batch(groups: Tensor) -> Tensor:
        return torch.cat([batch_center(group[None]) for group in groups])

    got = expected_gradient(lm, rewards, 3, mean_over_group(each_batch))
    return got, reward_gradient(lm, rewards) * 2 / 3


@check(
    "eq:remax-advantage",
    "expected gradient",
    of=adv.remax,
    against="∇J over every pair of responses",
    wrong={
        "the best sample as the baseline": lambda r, greedy: r - r.max(-1, keepdim=True).values,
        "mean of the samples and the greedy response": lambda r, greedy: (
            r - (r.sum(-1, keepdim=True) + greedy[:, None]) / (r.shape[-1] + 1)
        ),
    },
)
def _(remax, draw: Draw) -> Comparison:
    "The greedy response is no sample, so subtracting its reward leaves the expected gradient as it is."
    lm = draw.toy(3, 2)
    rewards = draw.normal(len(lm.responses().tokens))
    greedy = rewards[lm.distribution()[0].argmax()]
    got = expected_gradient(lm, rewards, 2, mean_over_group(lambda r: remax(r, greedy.expand(len(r)))))
    return got, reward_gradient(lm, rewards)


@check(
    "eq:remax-advantage",
    "value",
    of=adv.remax,
    against="the greedy response, graded like any sample, has advantage 0",
    wrong={
        "baseline of another prompt": lambda r, greedy: r - greedy.flip(0)[:, None],
        "sign reversed": lambda r, greedy: greedy[:, None] - r,
    },
)
def _(remax, draw: Draw) -> Comparison:
    "A sample equal to the greedy response gets 0, one that earns c more gets c."
    greedy, more = draw.uniform(3, low=-1, high=1) + torch.arange(3) * 3, draw.uniform(3, low=0.5, high=1.0)
    return remax(torch.stack([greedy, greedy + more], 1), greedy), torch.stack([torch.zeros(3), more], 1)


@check(
    "eq:reinforce-pp-advantage",
    "value",
    of=adv.batch_zscore,
    against="mean and standard deviation of the list of valid rewards (Python's statistics)",
    wrong={
        "statistics of each group": adv.group_zscore,
        "other divisor of the variance": lambda r, valid, *, ddof, eps: adv.batch_zscore(
            r, valid, ddof=1 - ddof, eps=eps
        ),
        "invalid rewards counted as 0": lambda r, valid, *, ddof, eps: adv.batch_zscore(
            torch.where(valid, r, 0.0), None, ddof=ddof, eps=eps
        ),
        "no centring": lambda r, valid, *, ddof, eps: torch.where(valid, r / r[valid].std(), 0.0),
    },
)
def _(batch_zscore, draw: Draw) -> Iterator[Comparison]:
    "One mean and one deviation for the whole batch; what is not valid counts nowhere."
    rewards, valid = 2 + draw.normal(3, 4), torch.tensor([[1, 1, 1, 1], [1, 0, 1, 1], [0, 1, 0, 0]]).bool()
    rewards[~valid] = torch.nan
    kept = rewards[valid].tolist()
    for ddof, deviation in ((0, statistics.pstdev(kept)), (1, statistics.stdev(kept))):
        expected = torch.where(valid, (rewards - statistics.fmean(kept)) / (deviation + 0.1), 0.0)
        yield batch_zscore(rewards, valid, ddof=ddof, eps=0.1), expected


@check(
    "eq:whitening",
    "value",
    of=adv.whiten,
    against="mean and variance of the list of sampled tokens (Python's statistics)",
    wrong={
        "padding counted": lambda x, mask, *, shift_mean: adv.whiten(
            zero_where_masked(x, mask), torch.ones_like(mask), shift_mean=shift_mean
        ),
        "mean always removed": lambda x, mask, *, shift_mean: adv.whiten(x, mask),
        "not scaled": lambda x, mask, *, shift_mean: zero_where_masked(x - x[mask].mean() if shift_mean else x, mask),
    },
    tolerance=1e-7,
)
def _(whiten, draw: Draw) -> Iterator[Comparison]:
    "Over the sampled tokens the variance becomes 1 and the mean 0, or stays what it was with shift_mean=False."
    mask = draw.mask(3, 6)
    x = torch.where(mask, 3 + draw.normal(3, 6), torch.nan)
    x[mask] += torch.linspace(-1, 1, int(mask.sum()), dtype=torch.float64)
    mean = statistics.fmean(x[mask].tolist())
    for shift_mean, kept_mean in ((True, 0.0), (False, mean)):
        white = whiten(x, mask, shift_mean=shift_mean)[mask].tolist()
        yield statistics.fmean(white), kept_mean
        yield statistics.variance(white), 1.0


# -- RLOO --------------------------------------------------------------------------------------------------------


@check(
    "eq:rloo-advantage",
    "value",
    of=adv.leave_one_out,
    against="the mean of the others, listed one by one",
    wrong={
        "own reward in the mean": adv.group_center,
        "divided by G": lambda r, valid: adv.leave_one_out(r, valid) * (r.shape[1] - 1) / r.shape[1],
        "invalid rewards counted as 0": lambda r, valid: adv.leave_one_out(torch.where(valid, r, 0.0)),
    },
)
def _(leave_one_out, draw: Draw) -> Comparison:
    "r_i minus the mean of the other valid rewards of its group; a group with one valid reward drops out."
    rewards, valid = 1 + draw.normal(3, 4), torch.tensor([[1, 1, 1, 1], [1, 0, 1, 1], [0, 1, 0, 0]]).bool()
    rewards[~valid] = torch.nan
    expected = torch.zeros(3, 4, dtype=torch.float64)
    for p in range(2):
        for i in valid[p].nonzero().flatten().tolist():
            others = [float(rewards[p, j]) for j in range(4) if j != i and valid[p, j]]
            expected[p, i] = float(rewards[p, i]) - statistics.fmean(others)
    return leave_one_out(rewards, valid), expected


@check(
    "eq:rloo-advantage",
    "expected gradient",
    of=adv.leave_one_out,
    against="∇J over every group of three responses",
    wrong={
        "own reward in the mean": adv.group_center,
        "scaled by the deviation": adv.group_zscore,
        "best of the others as the baseline, own included": lambda r: r - r.max(-1, keepdim=True).values,
    },
)
def _(leave_one_out, draw: Draw) -> Comparison:
    "The mean of the others is independent of the own response: the expected gradient is the true one."
    lm = draw.toy(2, 2)
    rewards = draw.normal(len(lm.responses().tokens))
    return expected_gradient(lm, rewards, 3, mean_over_group(leave_one_out)), reward_gradient(lm, rewards)


# -- ratios, PPO -------------------------------------------------------------------------------------------------


@check(
    "eq:policy-ratio",
    "value",
    of=pg.policy_ratio,
    against="expectation under π, summed over the vocabulary",
    wrong={
        "ratio upside down": lambda logps, old, mask: pg.policy_ratio(old, logps, mask),
        "log-ratio": lambda logps, old, mask: zero_where_masked(logps - old, mask),
    },
)
def _(policy_ratio, draw: Draw) -> Comparison:
    "Weighted by ρ, an average over samples of π_old is the average under π: Σ π_old ρ f = Σ π f."
    new, old, f = draw.distribution(3, 5), draw.distribution(3, 5), draw.normal(3, 5)
    ratio = policy_ratio(new.log(), old.log(), torch.ones(3, 5, dtype=torch.bool))
    return exact.expectation(old, ratio * f), exact.expectation(new, f)


@check(
    "eq:importance-weighted",
    "gradient",
    of=pg.importance_weighted,
    against="∇Σ π A over the vocabulary, while the samples come from π_old",
    wrong={
        "no ratio: stale samples as if fresh": pg.reinforce,
        "clipped": pg.ppo_clip,
        "ratio without gradient": lambda logps, old, a, mask: logps * 0 + (logps.detach() - old).exp() * a,
    },
)
def _(importance_weighted, draw: Draw) -> Comparison:
    "Averaged over samples of π_old, the gradient of ρA is the policy gradient of π, not of π_old."
    logits = (torch.tensor([[1.0, 0.5, 0.0, -0.5]]) + draw.uniform(1, 4, high=0.2)).requires_grad_()
    old, a = logits.detach().flip(-1).softmax(-1), draw.uniform(1, 4, low=0.5, high=1.5)  # the first ratio is above 1.2
    objective = importance_weighted(logits.log_softmax(-1), old.log(), a, torch.ones(1, 4, dtype=torch.bool))
    wanted = (logits.softmax(-1) * a).sum()
    return exact.gradient((old * objective).sum(), logits), exact.gradient(wanted, logits)


EPSILON, EPSILON_HIGH, DELTA = 0.2, 0.28, 3.0
CLIP = {"epsilon": EPSILON, "epsilon_high": EPSILON_HIGH, "delta": DELTA}


def _clip_is_active(ratio: float, advantage: float) -> bool:
    if advantage > 0:
        return ratio > 1 + EPSILON_HIGH
    return ratio < 1 - EPSILON or ratio > DELTA


def _clipped_ratio(ratio: float, advantage: float) -> float:
    if not _clip_is_active(ratio, advantage):
        return ratio
    return 1 + EPSILON_HIGH if advantage > 0 else (1 - EPSILON if ratio < 1 else DELTA)


def _without_minimum(logps, old, a, mask, *, epsilon, epsilon_high, delta):
    ratio = pg.policy_ratio(logps, old, mask).clamp(1 - epsilon, 1 + epsilon_high)
    return ratio * zero_where_masked(a, mask)


def _maximum(logps, old, a, mask, *, epsilon, epsilon_high, delta):
    return -pg.ppo_clip(logps, old, -a, mask, epsilon=epsilon, epsilon_high=epsilon_high)


def _ppo(**changed):
    return lambda *inputs, **options: pg.ppo_clip(*inputs, **{**options, **changed})


@check(
    "eq:ppo-clip",
    "value",
    of=pg.ppo_clip,
    against="the cases of the sign of A and the place of ρ, written out",
    wrong={
        "clip without the minimum": _without_minimum,
        "maximum in place of the minimum": _maximum,
        "upper range ignored": _ppo(epsilon_high=None),
        "two-sided bound ignored": _ppo(delta=None),
    },
)
def _(ppo_clip, draw: Draw) -> Comparison:
    "Good actions earn at most (1 + ε_high)A, bad ones at most (1 − ε)A, and never less than δA."
    cases = clip_cases(draw)
    return ppo_clip(*cases.inputs, **CLIP), cases.table(lambda ratio, a: _clipped_ratio(ratio, a) * a)


@check(
    "eq:ppo-clip-gradient",
    "gradient",
    of=pg.ppo_clip,
    against="finite differences of the cases",
    wrong={
        "clip without the minimum: no way back": _without_minimum,
        "maximum in place of the minimum": _maximum,
        "no clip": lambda logps, old, a, mask, **_: pg.importance_weighted(logps, old, a, mask),
    },
    tolerance=1e-7,
    follows="eq:ppo-clip",
)
def _(ppo_clip, draw: Draw) -> Comparison:
    "ρA·∇log π where the clip is idle, exactly 0 where it is active: in each of the six cases, and beyond δ."
    cases = clip_cases(draw)

    def written_out(log_ratio: Tensor) -> Tensor:
        pairs = zip(log_ratio.exp().flatten().tolist(), cases.advantages[:, :4].flatten().tolist(), strict=True)
        return torch.tensor(sum(_clipped_ratio(ratio, a) * a for ratio, a in pairs), dtype=torch.float64)

    expected = exact.finite_difference(written_out, cases.ratios.log())
    return cases.gradient(ppo_clip, **CLIP)[:, :4], expected


@check(
    "eq:ppo-first-step",
    "gradient",
    of=pg.ppo_clip,
    against="gradient of the clipped objective at ρ = 1, and of REINFORCE",
    wrong={
        "ratio without gradient": lambda logps, old, a, mask: pg.ppo_clip(logps.detach(), old, a, mask) + 0 * logps,
        "ratio of log-probabilities": lambda logps, old, a, mask: zero_where_masked(logps / old * a, mask),
        "log-probability clipped": lambda logps, old, a, mask: zero_where_masked(logps.clamp(min=-0.04) * a, mask),
    },
    follows="eq:ppo-clip-gradient",
)
def _(ppo_clip, draw: Draw) -> Iterator[Comparison]:
    "On the first step of a batch ρ = 1: nothing is clipped, and PPO's gradient is A·∇log π, REINFORCE's."
    mask = draw.mask(3, 4)
    old, a = draw.logps(3, 4), draw.normal(3, 4)
    logps = old.clone().requires_grad_()
    got = exact.gradient(ppo_clip(logps, old, a, mask).sum(), logps)
    yield got, exact.gradient(pg.reinforce(logps, old, a, mask).sum(), logps)
    yield got, (1.0 * a * mask).flatten()


@check(
    "eq:ppo-no-clip",
    "limit",
    of=pg.ppo_clip,
    against="probability ratio times advantage, from the probabilities",
    wrong={
        "range cut at 1": lambda *inputs, epsilon: pg.ppo_clip(*inputs, epsilon=min(epsilon, 1.0)),
        "default range": lambda *inputs, epsilon: pg.ppo_clip(*inputs),
    },
)
def _(ppo_clip, draw: Draw) -> Comparison:
    "For ε → ∞ the clip disappears: ρA, the importance-weighted policy gradient."
    cases = clip_cases(draw)
    return ppo_clip(*cases.inputs, epsilon=1e6), cases.table(lambda ratio, a: ratio * a)


chain(
    "ppo-first-step",
    "From PPO's clip to REINFORCE: the first gradient step",
    ["eq:ppo-clip", "eq:ppo-clip-gradient", "eq:ppo-first-step"],
    module=__name__,
)


@check(
    "eq:ppo-penalty",
    "expected value",
    of=pg.ppo_penalty,
    against="Σ π A − β KL(π_old‖π) over the vocabulary",
    wrong={
        "KL the other way round": lambda logps, old, a, mask, *, beta: (
            pg.importance_weighted(logps, old, a, mask) - beta * (logps - old).exp() * kl.k3(logps, old)
        ),
        "penalty added": lambda logps, old, a, mask, *, beta: (
            2 * pg.importance_weighted(logps, old, a, mask) - pg.ppo_penalty(logps, old, a, mask, beta=beta)
        ),
        "halved squared log-ratio": lambda logps, old, a, mask, *, beta: (
            pg.importance_weighted(logps, old, a, mask) - beta * 0.5 * (logps - old) ** 2
        ),
    },
)
def _(ppo_penalty, draw: Draw) -> Comparison:
    "Under π_old the penalty averages to β·KL(π_old‖π)."
    new, old = draw.distribution(3, 4), draw.distribution(3, 4, scale=1.5)
    a, beta = draw.normal(3, 4), float(draw.uniform(low=0.5, high=2.0))
    objective = ppo_penalty(new.log(), old.log(), a, torch.ones(3, 4, dtype=torch.bool), beta=beta)
    return exact.expectation(old, objective), exact.expectation(new, a) - beta * exact.divergence(old, new)


# -- aggregation -------------------------------------------------------------------------------------------------


def _batch(draw: Draw) -> tuple[Tensor, Tensor, list[list[float]]]:
    """An objective with NaN on its padding, its mask, and the same numbers as lists."""
    mask = torch.arange(7)[None, :] < torch.tensor([2, 7, draw.integer(3, 6), 1])[:, None]
    objective = torch.where(mask, 1 + draw.uniform(4, 7), torch.nan)
    return objective, mask, [row[kept].tolist() for row, kept in zip(objective, mask, strict=True)]


def _padded(rule):
    """The rule applied as if padding were tokens."""
    return lambda mask, **options: torch.where(mask, rule(torch.ones_like(mask), **options), 0.0)


@check(
    "eq:sequence-mean",
    "value",
    of=agg.sequence_mean,
    against="mean of the rows' means, from lists",
    wrong={
        "padding counted": _padded(agg.sequence_mean),
        "mean over all tokens": agg.token_mean,
        "sum over the rows": lambda mask, **o: agg.sequence_mean(mask, **o) * len(mask),
    },
)
def _(sequence_mean, draw: Draw) -> Iterator[Comparison]:
    "Mean over responses of the mean over tokens; with dropped rows, the rule on the rows that are left (or divided by all)."
    objective, mask, rows = _batch(draw)
    means = [statistics.fmean(row) for row in rows]
    keep = torch.tensor([True, False, True, True])
    yield agg.aggregate(objective, sequence_mean(mask), mask), statistics.fmean(means)
    dropped = sequence_mean(mask, keep=keep)
    yield agg.aggregate(objective, dropped, mask), statistics.fmean(means[:1] + means[2:])
    all_counted = sequence_mean(mask, keep=keep, renormalise=False)
    yield agg.aggregate(objective, all_counted, mask), (sum(means) - means[1]) / 4


@check(
    "eq:length-bias",
    "expected gradient",
    of=agg.sequence_mean,
    against="(G − 1)/G · (∇E[r/|y|] − J·∇E[1/|y|]) over every response",
    wrong={
        "sum over tokens, no length bias": agg.sequence_sum,
        "padded length": _padded(agg.sequence_mean),
    },
)
def _(sequence_mean, draw: Draw) -> Comparison:
    "With group-centred rewards the mean per response does not climb J: it weighs each response by 1/|y|."
    lm = draw.toy(2, 3)
    responses, probs = lm.responses(), lm.distribution()[0]
    rewards, size = draw.normal(len(responses.mask)), 2

    def coefficient(group_rewards: Tensor, index: Tensor) -> Tensor:
        weights = sequence_mean(responses.mask[index.flatten()]) * len(index)  # each group is a batch of its own
        per_token = weights.sum(-1).view(index.shape) / responses.lengths[index]
        return per_token * (group_rewards - group_rewards.mean(-1, keepdim=True))

    got = expected_gradient(lm, rewards, size, coefficient)
    inverse = 1 / responses.lengths.double()
    value = exact.expectation(probs, rewards).detach()
    wanted = exact.expectation(probs, rewards * inverse) - value * exact.expectation(probs, inverse)
    return got, exact.gradient(wanted, lm.table) * (size - 1) / size


@check(
    "eq:token-mean",
    "value",
    of=agg.token_mean,
    against="mean of all tokens in one list; the means of the rows weighted by their lengths",
    wrong={
        "padding counted": _padded(agg.token_mean),
        "mean of the rows' means": agg.sequence_mean,
    },
    follows="eq:sequence-mean",
)
def _(token_mean, draw: Draw) -> Iterator[Comparison]:
    "Every token of the batch counts the same: the sequence mean with each row weighted by its share of the tokens."
    objective, mask, rows = _batch(draw)
    total = sum(len(row) for row in rows)
    keep = torch.tensor([True, False, True, True])
    yield agg.aggregate(objective, token_mean(mask), mask), statistics.fmean(x for row in rows for x in row)
    yield token_mean(mask), agg.sequence_mean(mask) * mask.sum(-1, keepdim=True) * len(rows) / total
    left = [x for row in rows[:1] + rows[2:] for x in row]
    yield agg.aggregate(objective, token_mean(mask, keep=keep), mask), statistics.fmean(left)
    yield agg.aggregate(objective, token_mean(mask, keep=keep, renormalise=False), mask), sum(left) / total


@check(
    "eq:fixed-length",
    "value",
    of=agg.fixed_length,
    against="sum of all tokens over rows times budget, from lists; the token mean times the used share of the budget",
    wrong={
        "divided by the tokens": lambda mask, *, max_completion_length, **o: agg.token_mean(mask, **o),
        "divided by the longest row": lambda mask, *, max_completion_length, **o: agg.fixed_length(
            mask, max_completion_length=mask.shape[1], **o
        ),
    },
    follows="eq:token-mean",
)
def _(fixed_length, draw: Draw) -> Iterator[Comparison]:
    "A divisor that no response can change: the token mean times (tokens in the batch)/(rows · budget)."
    objective, mask, rows = _batch(draw)
    budget = draw.integer(8, 20)
    weights = fixed_length(mask, max_completion_length=budget)
    yield agg.aggregate(objective, weights, mask), sum(map(sum, rows)) / (len(rows) * budget)
    yield weights, agg.token_mean(mask) * mask.sum() / (len(rows) * budget)


@check(
    "eq:sequence-sum",
    "value",
    of=agg.sequence_sum,
    against="mean of the rows' sums, from lists; the fixed length times its budget",
    wrong={
        "mean per row": agg.sequence_mean,
        "sum over the rows": lambda mask, **o: agg.sequence_sum(mask, **o) * len(mask),
    },
    follows="eq:fixed-length",
)
def _(sequence_sum, draw: Draw) -> Iterator[Comparison]:
    "Mean over responses of the sum over tokens: log-probabilities of whole responses, the fixed length without its constant."
    objective, mask, rows = _batch(draw)
    yield agg.aggregate(objective, sequence_sum(mask), mask), statistics.fmean(map(sum, rows))
    yield sequence_sum(mask), agg.fixed_length(mask, max_completion_length=5) * 5
    keep = torch.tensor([True, False, True, True])
    left = rows[:1] + rows[2:]
    yield agg.aggregate(objective, sequence_sum(mask, keep=keep), mask), statistics.fmean(map(sum, left))


chain(
    "aggregation",
    "From the mean per response to the plain sum: what each normaliser changes",
    ["eq:sequence-mean", "eq:token-mean", "eq:fixed-length", "eq:sequence-sum"],
    module=__name__,
)


@check(
    "eq:aggregate",
    "split",
    of=agg.aggregate,
    against="mean of all tokens in one list",
    wrong={
        "normalised in each micro-batch": lambda objective, weights, mask: (
            zero_where_masked(objective, mask).sum() / mask.sum() / 4
        ),
        "padding weighted": lambda objective, weights, mask: (
            weights.clamp(min=0.01) * objective.nan_to_num(1.0)
        ).sum(),
    },
)
def _(aggregate, draw: Draw) -> Comparison:
    "Weights come from the whole batch, so micro-batches of one row add up to the batch: no accumulation can change the loss."
    objective, mask, rows = _batch(draw)
    weights = agg.token_mean(mask)
    parts = [aggregate(objective[[i]], weights[[i]], mask[[i]]) for i in range(len(rows))]
    return torch.stack(parts).sum(), statistics.fmean(x for row in rows for x in row)


@check(
    "eq:aggregate",
    "one value per sequence",
    of=agg.aggregate,
    against="mean of the sequences' values",
    wrong={
        "weight of one token": lambda objective, weights, mask: (weights[:, :1] * objective).sum(),
        "each token counted": lambda objective, weights, mask: (mask * objective).mean(),
    },
)
def _(aggregate, draw: Draw) -> Comparison:
    "A (B, 1) objective weighs as much as all tokens of its row together."
    _, mask, _ = _batch(draw)
    objective = 1 + draw.uniform(4, 1)
    return aggregate(objective, agg.sequence_mean(mask), mask), statistics.fmean(objective.flatten().tolist())


# -- rewards -----------------------------------------------------------------------------------------------------


def _shaped(rewards, logps, ref_logps, mask, *, beta, estimator, sign=-1.0, where=None):
    shaped = sign * beta * zero_where_masked(estimator(logps, ref_logps), mask)
    last = last_index(mask) if where is None else torch.full((len(mask),), where)
    return shaped.scatter_add(-1, last[:, None], rewards[:, None])


@check(
    "eq:kl-shaped-rewards",
    "expected return",
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
def _(kl_shaped_token_rewards, draw: Draw) -> Comparison:
    "The token rewards of a response sum to r − β log(π/π_ref), on average the objective of RLHF."
    lm, ref = draw.toy(3, 3), draw.toy(3, 3)
    rewards, beta = draw.normal(len(lm.responses().mask)), float(draw.uniform(low=0.3, high=1.0))
    logps, ref_logps = (m.response_token_logps()[0].detach() for m in (lm, ref))
    shaped = kl_shaped_token_rewards(rewards, logps, ref_logps, lm.responses().mask, beta=beta, estimator=kl.k1)
    probs, ref_probs = (m.distribution()[0].detach() for m in (lm, ref))
    got = exact.expectation(probs, shaped.sum(-1))
    return got, exact.regularised_value(probs, ref_probs, rewards, beta)


@check(
    "eq:kl-shaped-rewards",
    "expected gradient",
    of=shaping.kl_shaped_token_rewards,
    against="∇(E[r] − β KL(π‖π_ref)) over every response",
    wrong={
        "KL rewarded": lambda *a, **o: _shaped(*a, **o, sign=1.0),
        "reward on the first token": lambda *a, **o: _shaped(*a, **o, where=0),
        "KL forgotten": lambda *a, **o: _shaped(*a, **o, sign=0.0),
    },
)
def _(kl_shaped_token_rewards, draw: Draw) -> Comparison:
    "REINFORCE with the rewards still to come as credit climbs E[r] − β KL: the charge may be treated as a plain reward."
    lm, ref = draw.toy(3, 3), draw.toy(3, 3)
    mask = lm.responses().mask
    rewards, beta = draw.normal(len(mask)), float(draw.uniform(low=0.3, high=1.0))
    logps, ref_logps = lm.response_token_logps()[0], ref.response_token_logps()[0].detach()
    shaped = kl_shaped_token_rewards(rewards, logps.detach(), ref_logps, mask, beta=beta, estimator=kl.k1)
    to_come = shaped.flip(-1).cumsum(-1).flip(-1)
    probs, ref_probs = lm.distribution()[0], ref.distribution()[0].detach()
    got = (probs.detach()[:, None] * to_come * logps).sum()
    wanted = exact.regularised_value(probs, ref_probs, rewards, beta)
    return exact.gradient(got, lm.table), exact.gradient(wanted, lm.table)


@check(
    "eq:missing-eos",
    "expected value",
    of=shaping.missing_eos_penalty,
    against="E[r] − penalty · P(cut off) over every response",
    wrong={
        "finished responses punished": lambda r, done, *, penalty: r - penalty * done,
        "reward replaced": lambda r, done, *, penalty: torch.where(done, r, -penalty),
    },
)
def _(missing_eos_penalty, draw: Draw) -> Iterator[Comparison]:
    "The penalty costs the policy its probability of being cut off, nothing else."
    for _ in range(2):
        lm = draw.toy(3, 2)
        finished, probs = lm.responses().terminated, lm.distribution()[0].detach()
        rewards, penalty = 1 + draw.uniform(len(probs)), float(draw.uniform(low=0.5, high=2.0))
        got = exact.expectation(probs, missing_eos_penalty(rewards, finished, penalty=penalty))
        yield got, exact.expectation(probs, rewards) - penalty * (1 - probs[finished].sum())


@check(
    "eq:length-penalty",
    "expected value",
    of=shaping.length_penalty,
    against="E[r] − α Σ_t P(at least t tokens)",
    wrong={
        "padded length": lambda r, n, *, coefficient: r - coefficient * 3,
        "reward per token": lambda r, n, *, coefficient: r / n,
        "the first token free": lambda r, n, *, coefficient: r - coefficient * (n - 1),
    },
)
def _(length_penalty, draw: Draw) -> Iterator[Comparison]:
    "Each token that is written costs α."
    for _ in range(2):
        lm = draw.toy(3, 3)
        mask, probs = lm.responses().mask, lm.distribution()[0].detach()
        rewards, alpha = draw.normal(len(probs)), float(draw.uniform(low=0.1, high=0.5))
        got = exact.expectation(probs, length_penalty(rewards, lm.responses().lengths, coefficient=alpha))
        yield got, exact.expectation(probs, rewards) - alpha * (probs[:, None] * mask).sum()


# -- the critic --------------------------------------------------------------------------------------------------


@check(
    "eq:value-mse",
    "gradient",
    of=value_losses.value_mse,
    against="V − E[R] over a distribution of returns",
    wrong={
        "no factor ½": lambda v, r, mask: 2 * value_losses.value_mse(v, r, mask),
        "absolute error": lambda v, r, mask: (v - r).abs(),
        "returns regress on the value": lambda v, r, mask: value_losses.value_mse(r - v + v.detach(), r, mask),
    },
)
def _(value_mse, draw: Draw) -> Iterator[Comparison]:
    "On average the gradient is V − E[R]: the loss is smallest where the value is the expected return."
    probs, returns = draw.distribution(5), draw.normal(5)
    for low in (-1.0, 0.3, 1.0):
        value = (exact.expectation(probs, returns) + draw.uniform(low=low, high=low + 0.5)).requires_grad_()
        loss = value_mse(value.expand(1, 5), returns[None], torch.ones(1, 5, dtype=torch.bool))
        yield exact.gradient((probs * loss[0]).sum(), value), (value - exact.expectation(probs, returns)).view(1)


def _value_cases(draw: Draw) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Inside the range; outside on the way to the target; outside and past it; outside on the way from it; padding."""
    old = 2 + draw.uniform(1, 4)
    moved = torch.tensor([[0.1, 0.6, 0.9, -0.7]]) + draw.uniform(1, 4, low=-0.05, high=0.05)
    target = torch.tensor([[0.7, 1.5, 0.3, 1.0]]) + draw.uniform(1, 4, low=-0.05, high=0.05)
    nothing = torch.full((1, 1), torch.nan, dtype=torch.float64)
    values, old_values, returns = (torch.cat([x, nothing], 1) for x in (old + moved, old, old + target))
    return values, old_values, returns, torch.tensor([[True] * 4 + [False]])


def _value_clip_written_out(value: float, old: float, target: float) -> float:
    plain = 0.5 * (value - target) ** 2
    if abs(value - old) <= 0.2:
        return plain
    clipped = 0.5 * (old + (0.2 if value > old else -0.2) - target) ** 2
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


@check("eq:value-clip", "value", of=value_losses.value_clip, against="the cases, written out", wrong=VALUE_WRONG)
def _(value_clip, draw: Draw) -> Comparison:
    "The squared error, or that of the value stopped at the edge of the range, whichever is larger."
    cases = _value_cases(draw)
    rows = zip(*(x[0, :4].tolist() for x in cases[:3]), strict=True)
    expected = [*(_value_clip_written_out(*row) for row in rows), 0.0]
    return value_clip(*cases, cliprange_value=0.2)[0], torch.tensor(expected, dtype=torch.float64)


@check(
    "eq:value-clip",
    "gradient",
    of=value_losses.value_clip,
    against="finite differences of the cases",
    wrong=VALUE_WRONG,
    tolerance=1e-7,
)
def _(value_clip, draw: Draw) -> Comparison:
    "0 once the value has moved more than c towards its target, V − R where it moved away or past it."
    values, old, returns, mask = _value_cases(draw)
    free = values.clone().requires_grad_()
    got = exact.gradient(value_clip(free, old, returns, mask, cliprange_value=0.2).sum(), free)[:4]

    def written_out(x: Tensor) -> Tensor:
        rows = zip(x.tolist(), old[0, :4].tolist(), returns[0, :4].tolist(), strict=True)
        return torch.tensor(sum(_value_clip_written_out(*row) for row in rows), dtype=torch.float64)

    return got, exact.finite_difference(written_out, values[0, :4])


# -- what to watch -----------------------------------------------------------------------------------------------


@check(
    "eq:clip-fraction",
    "value",
    of=diagnostics.clip_fraction,
    against="share of the tokens to which PPO's objective gives no gradient",
    wrong={
        "every ratio outside the interval counted": lambda logps, old, a, mask, **o: (
            ((pg.policy_ratio(logps, old, mask) - 1).abs() > o["epsilon"])[mask].double().mean()
        ),
        "divided by the padded width": lambda *a, **o: diagnostics.clip_fraction(*a, **o) * 0.8,
        "two-sided bound ignored": lambda *a, **o: diagnostics.clip_fraction(*a, **{**o, "delta": None}),
    },
)
def _(clip_fraction, draw: Draw) -> Comparison:
    "The clip fraction is the share of sampled tokens whose gradient is 0."
    cases = clip_cases(draw)
    silent = cases.gradient(pg.ppo_clip, **CLIP)[cases.mask] == 0
    return clip_fraction(*cases.inputs, **CLIP), silent.double().mean()


@check(
    "eq:approx-kl",
    "expected value",
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
    "Averaged over tokens that π_old draws (here uniformly), it is KL(π_old‖π)."
    old, nothing = torch.full((4,), 0.25, dtype=torch.float64), torch.tensor([torch.nan], dtype=torch.float64)
    for _ in range(3):
        new = draw.distribution(4, scale=1.5)
        logps, old_logps = torch.cat([new.log(), nothing])[None], torch.cat([old.log(), nothing])[None]
        yield approx_kl(logps, old_logps, torch.tensor([[True] * 4 + [False]])), exact.divergence(old, new)


@check(
    "eq:explained-variance",
    "value",
    of=diagnostics.explained_variance,
    against="variances of the lists of sampled tokens (Python's statistics)",
    wrong={
        "squared error in place of the variance": lambda v, r, mask: (
            1 - ((r - v)[mask] ** 2).mean() / r[mask].var(correction=0)
        ),
        "squared correlation": lambda v, r, mask: torch.corrcoef(torch.stack([v[mask], r[mask]]))[0, 1] ** 2,
        "padding counted": lambda v, r, mask: diagnostics.explained_variance(
            v.nan_to_num(), r.nan_to_num(), torch.ones_like(mask)
        ),
    },
)
def _(explained_variance, draw: Draw) -> Iterator[Comparison]:
    "The share of the returns' variance that the values account for: 1 for a perfect critic up to a constant, 0 for a constant."
    mask = torch.arange(6)[None, :] < torch.tensor([6, 4, 2])[:, None]
    returns = torch.where(mask, 2 + draw.normal(3, 6), torch.nan)
    values = 1 + 0.4 * returns + torch.where(mask, draw.normal(3, 6), torch.nan)
    left = statistics.pvariance((returns - values)[mask].tolist())
    yield explained_variance(values, returns, mask), 1 - left / statistics.pvariance(returns[mask].tolist())
    yield explained_variance(returns + 3, returns, mask), 1.0
    yield explained_variance(torch.ones_like(returns), returns, mask), 0.0


# -- samples of another policy -----------------------------------------------------------------------------------


@check(
    "eq:truncated-importance-weight",
    "expected value",
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
    "Samples of μ, weighted, are as good as samples of min(π_old, Cμ): exact but for what μ under-sampled by more than C."
    mu = torch.tensor([0.7, 0.2, 0.1]) + draw.uniform(3, low=-0.02, high=0.02)
    old = torch.tensor([0.2, 0.3, 0.5]) + draw.uniform(3, low=-0.02, high=0.02)
    mu, old, f = mu / mu.sum(), old / old.sum(), 1 + draw.uniform(3)
    mask = torch.ones(1, 3, dtype=torch.bool)
    weight = truncated_importance_weight(old.log()[None], mu.log()[None], mask, importance_sampling_cap=2.0)[0]
    return exact.expectation(mu, weight * f), (torch.minimum(old, 2.0 * mu) * f).sum()


@check(
    "eq:truncated-importance-weight",
    "gradient",
    of=off_policy.truncated_importance_weight,
    against="no derivative by the log-probabilities",
    wrong={
        "gradient kept": lambda old, mu, mask: pg.policy_ratio(old, mu, mask).clamp(max=2.0),
    },
)
def _(truncated_importance_weight, draw: Draw) -> Comparison:
    "The weight is data: multiplied by log π it scales the gradient and adds none of its own."
    mu, logps = draw.logps(2, 3), draw.logps(2, 3)
    logps = torch.minimum(logps, mu + 0.5).requires_grad_()
    weight = truncated_importance_weight(logps, mu, torch.ones(2, 3, dtype=torch.bool))
    got = exact.gradient(masked_sum(weight * logps, torch.ones(2, 3)), logps)
    return got, ((logps - mu).exp().clamp(max=2.0)).flatten()
