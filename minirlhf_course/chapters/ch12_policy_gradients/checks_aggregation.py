"""The ledger of chapter 12: from tokens to one number. Weights of the whole batch, whatever the micro-batches."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.core.masking import zero_where_masked
from minirlhf.equations import aggregation as agg
from minirlhf_course.ledger.inputs.rollouts import expected_gradient
from minirlhf_course.ledger.registry import Comparison, Draw, chain, check

# -- aggregation -------------------------------------------------------------------------------------------------


def _batch(draw: Draw) -> tuple[Tensor, Tensor, list[list[float]]]:
    """An objective with NaN on its padding, its mask, and the same numbers as lists."""
    mask = torch.arange(7)[None, :] < torch.tensor([2, 7, draw.integer(3, 6), 1])[:, None]
    objective = torch.where(mask, 1 + draw.uniform(4, 7), torch.nan)
    return objective, mask, [row[kept].tolist() for row, kept in zip(objective, mask, strict=True)]


def _padded(rule):
    """The rule applied as if padding were tokens."""
    return lambda mask, **options: torch.where(mask, rule(torch.ones_like(mask), **options), 0.0)


def _dropped(rule, batch, value) -> Iterator[Comparison]:
    """What a rule makes of a batch with one row left, with three, and with none; ``value`` is of rows, and of those that count."""
    objective, mask, rows = batch
    for keep in ([False, False, False, True], [True, False, True, True]):
        left, weights = [row for row, kept in zip(rows, keep, strict=True) if kept], torch.tensor(keep)
        yield agg.aggregate(objective, rule(mask, keep=weights), mask), value(left, left)
        yield agg.aggregate(objective, rule(mask, keep=weights, renormalise=False), mask), value(left, rows)
    yield rule(mask, keep=torch.zeros(4, dtype=torch.bool)), torch.zeros(mask.shape)


@check(
    "eq:sequence-mean",
    "value",
    "Mean over responses of the mean over tokens; dropped rows are left out of the sum, and of the divisor too "
    "unless renormalise=False.",
    of=agg.sequence_mean,
    against="mean of the rows' means, from lists",
    wrong={
        "padding counted": _padded(agg.sequence_mean),
        "mean over all tokens": agg.token_mean,
        "sum over the rows": lambda mask, **o: agg.sequence_mean(mask, **o) * len(mask),
    },
)
def _(sequence_mean, draw: Draw) -> Iterator[Comparison]:
    objective, mask, rows = _batch(draw)
    means = [statistics.fmean(row) for row in rows]
    yield agg.aggregate(objective, sequence_mean(mask), mask), statistics.fmean(means)
    mean = lambda left, counted: sum(map(statistics.fmean, left)) / len(counted)
    yield from _dropped(sequence_mean, (objective, mask, rows), mean)


@check(
    "eq:length-bias",
    "expected gradient",
    "With group-centred rewards the mean per response does not follow ∇J: each response is weighted by 1/|y|.",
    of=agg.sequence_mean,
    against="(G − 1)/G · (∇E[r/|y|] − J·∇E[1/|y|]) over every response",
    wrong={
        "sum over tokens, no length bias": agg.sequence_sum,
        "padded length": _padded(agg.sequence_mean),
    },
)
def _(sequence_mean, draw: Draw) -> Comparison:
    lm = draw.toy(2, 3)
    responses, probs = lm.completions(), lm.distribution()[0]
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
    "Every token of the batch has the same weight: the sequence mean with each row weighted by its fraction of "
    "the tokens.",
    of=agg.token_mean,
    against="mean of all tokens in one list; the means of the rows weighted by their lengths",
    wrong={
        "padding counted": _padded(agg.token_mean),
        "mean of the rows' means": agg.sequence_mean,
    },
    follows="eq:sequence-mean",
)
def _(token_mean, draw: Draw) -> Iterator[Comparison]:
    objective, mask, rows = _batch(draw)
    total = sum(len(row) for row in rows)
    yield agg.aggregate(objective, token_mean(mask), mask), statistics.fmean(x for row in rows for x in row)
    yield token_mean(mask), agg.sequence_mean(mask) * mask.sum(-1, keepdim=True) * len(rows) / total
    mean = lambda left, counted: sum(map(sum, left)) / sum(map(len, counted))
    yield from _dropped(token_mean, (objective, mask, rows), mean)


@check(
    "eq:fixed-length",
    "value",
    "A divisor that does not depend on the responses: the token mean times (tokens in the batch)/(rows · budget).",
    of=agg.fixed_length,
    against=(
        "sum of all tokens over rows times budget, from lists; the token mean times the used fraction of the budget"
    ),
    wrong={
        "divided by the tokens": lambda mask, *, max_completion_length, **o: agg.token_mean(mask, **o),
        "divided by the longest row": lambda mask, *, max_completion_length, **o: agg.fixed_length(
            mask, max_completion_length=mask.shape[1], **o
        ),
    },
    follows="eq:token-mean",
)
def _(fixed_length, draw: Draw) -> Iterator[Comparison]:
    objective, mask, rows = _batch(draw)
    budget = draw.integer(8, 20)
    weights = fixed_length(mask, max_completion_length=budget)
    yield agg.aggregate(objective, weights, mask), sum(map(sum, rows)) / (len(rows) * budget)
    yield weights, agg.token_mean(mask) * mask.sum() / (len(rows) * budget)
    rule = lambda mask, **options: fixed_length(mask, max_completion_length=budget, **options)
    mean = lambda left, counted: sum(map(sum, left)) / (len(counted) * budget)
    yield from _dropped(rule, (objective, mask, rows), mean)


@check(
    "eq:sequence-sum",
    "value",
    "Mean over responses of the sum over tokens: log-probabilities of whole responses, the fixed length without its "
    "constant.",
    of=agg.sequence_sum,
    against="mean of the rows' sums, from lists; the fixed length times its budget",
    wrong={
        "mean per row": agg.sequence_mean,
        "sum over the rows": lambda mask, **o: agg.sequence_sum(mask, **o) * len(mask),
    },
    follows="eq:fixed-length",
)
def _(sequence_sum, draw: Draw) -> Iterator[Comparison]:
    objective, mask, rows = _batch(draw)
    yield agg.aggregate(objective, sequence_sum(mask), mask), statistics.fmean(map(sum, rows))
    yield sequence_sum(mask), agg.fixed_length(mask, max_completion_length=5) * 5
    yield from _dropped(sequence_sum, (objective, mask, rows), lambda left, counted: sum(map(sum, left)) / len(counted))


chain(
    "aggregation",
    "From the mean per response to the plain sum: what each normaliser changes",
    ["eq:sequence-mean", "eq:token-mean", "eq:fixed-length", "eq:sequence-sum"],
    module=__name__,
)


@check(
    "eq:aggregate",
    "split",
    "Weights come from the whole batch, so micro-batches of one row sum to the batch: gradient accumulation does "
    "not change the loss.",
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
    objective, mask, rows = _batch(draw)
    weights = agg.token_mean(mask)
    parts = [aggregate(objective[[i]], weights[[i]], mask[[i]]) for i in range(len(rows))]
    return torch.stack(parts).sum(), statistics.fmean(x for row in rows for x in row)


@check(
    "eq:aggregate",
    "one value per sequence",
    "A (B, 1) objective has the weight of all tokens of its row together.",
    of=agg.aggregate,
    against="mean of the sequences' values",
    wrong={
        "weight of one token": lambda objective, weights, mask: (weights[:, :1] * objective).sum(),
        "each token counted": lambda objective, weights, mask: (mask * objective).mean(),
    },
)
def _(aggregate, draw: Draw) -> Comparison:
    _, mask, _ = _batch(draw)
    objective = 1 + draw.uniform(4, 1)
    return aggregate(objective, agg.sequence_mean(mask), mask), statistics.fmean(objective.flatten().tolist())
