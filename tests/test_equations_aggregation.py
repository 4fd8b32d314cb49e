"""Weights of the whole batch: micro-batches, dropped rows, precision, bad arguments. Values and padding: the ledger."""

import functools
import math

import pytest
import torch
from facts import raises

from minirlhf.core.errors import ArgumentError
from minirlhf.equations.aggregation import (
    aggregate,
    fixed_length,
    high_entropy_weights,
    sequence_mean,
    sequence_sum,
    token_mean,
)

RULES = {
    "sequence_mean": sequence_mean,
    "token_mean": token_mean,
    "fixed_length": functools.partial(fixed_length, max_completion_length=9),
    "sequence_sum": sequence_sum,
}
each_rule = pytest.mark.parametrize("rule", [pytest.param(f, id=name) for name, f in RULES.items()])


def batch(seed, rows=4, width=6):
    """Ragged rows with holes, as tool output leaves them, and an objective that is NaN outside the mask."""
    rng = torch.Generator().manual_seed(seed)
    mask = torch.rand(rows, width, generator=rng) < 0.6
    mask[torch.arange(rows), torch.randint(width, (rows,), generator=rng)] = True
    objective = torch.randn(rows, width, dtype=torch.float64, generator=rng)
    return torch.where(mask, objective, torch.nan), mask


def right_padded(*lengths):
    return torch.arange(max(lengths))[None, :] < torch.tensor(lengths)[:, None]


def partitions(items):
    """Every way to split a list into non-empty parts."""
    if not items:
        yield []
        return
    first, *rest = items
    for smaller in partitions(rest):
        yield [[first], *smaller]
        for i, part in enumerate(smaller):
            yield [*smaller[:i], [first, *part], *smaller[i + 1 :]]


# -- worked examples ---------------------------------------------------------------------------------------------


def test_sequence_mean_and_token_mean_of_two_lengths_by_hand():
    mask = right_padded(5, 10)
    losses = torch.tensor([[1.0] * 4 + [10.0] + [torch.nan] * 5, [1.0] * 9 + [10.0]], dtype=torch.float64)
    assert aggregate(losses, sequence_mean(mask), mask).item() == pytest.approx(2.35, abs=1e-12)
    assert aggregate(losses, token_mean(mask), mask).item() == pytest.approx(2.2, abs=1e-12)


# -- properties --------------------------------------------------------------------------------------------------


@each_rule
@pytest.mark.parametrize("columns", [6, 1])
@pytest.mark.parametrize("seed", range(5))
def test_aggregate_over_any_micro_batches_gives_the_same_loss_and_gradient(rule, columns, seed):
    objective, mask = batch(seed)
    if columns == 1:
        objective = torch.nan_to_num(objective).sum(-1, keepdim=True)
    weights = rule(mask)

    def step(parts):
        leaf = objective.clone().requires_grad_()
        losses = [-aggregate(leaf[part], weights[part], mask[part]) for part in parts]
        for loss in losses:
            loss.backward()  # as an accumulating trainer does
        return sum(losses).detach(), leaf.grad

    whole = step([[0, 1, 2, 3]])
    splits = list(partitions([0, 1, 2, 3]))
    assert len(splits) == 15
    for parts in splits:
        torch.testing.assert_close(step(parts), whole)


@each_rule
def test_aggregation_rules_take_a_mask_of_numbers(rule):
    _, mask = batch(3)
    for dtype in (torch.int64, torch.float32):
        assert torch.equal(rule(mask.to(dtype)), rule(mask))


# -- rows that are left out --------------------------------------------------------------------------------------


@each_rule
@pytest.mark.parametrize("seed", range(5))
def test_aggregation_rules_with_dropped_rows_renormalise_or_not(rule, seed):
    _, mask = batch(seed)
    keep = torch.tensor([True, False, True, False])
    weights = rule(mask, keep=keep)
    assert (weights[~keep] == 0).all()
    torch.testing.assert_close(weights[keep], rule(mask[keep]))
    torch.testing.assert_close(rule(mask, keep=keep, renormalise=False), rule(mask) * keep[:, None])


@each_rule
@pytest.mark.parametrize("renormalise", [True, False])
def test_aggregation_rules_with_nothing_kept_give_zero(rule, renormalise):
    objective, mask = batch(1)
    leaf = objective.clone().requires_grad_()
    weights = rule(mask, keep=torch.zeros(4, dtype=torch.bool), renormalise=renormalise)
    loss = aggregate(leaf, weights, mask)
    loss.backward()
    assert loss == 0
    assert not weights.any()
    assert not leaf.grad.any()


# -- precision ---------------------------------------------------------------------------------------------------


@each_rule
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2)])
def test_aggregate_in_lower_precision_stays_within_its_error(rule, dtype, error):
    objective, mask = batch(5)
    low = objective.abs().to(dtype)  # one sign: nothing cancels
    value = aggregate(low, rule(mask), mask)
    assert value.dtype == dtype
    assert value.double().item() == pytest.approx(aggregate(low.double(), rule(mask), mask).item(), rel=error)


# -- bad input ---------------------------------------------------------------------------------------------------


@each_rule
@pytest.mark.parametrize(
    ("mask", "value"),
    [(torch.ones(4), (4,)), (torch.tensor([[1, 0], [0, 0]]), [1]), (torch.tensor([[1.0, 0.5]]), None)],
)
def test_aggregation_rules_name_a_bad_mask(rule, mask, value):
    with raises(ArgumentError, argument="mask", value=value):
        rule(mask)


@each_rule
@pytest.mark.parametrize("shape", [(3,), (4, 1)])
def test_aggregation_rules_reject_keep_of_another_shape(rule, shape):
    with raises(ArgumentError, argument="keep", value=shape, expected="(B)"):
        rule(batch(0)[1], keep=torch.ones(shape, dtype=torch.bool))


@pytest.mark.parametrize("length", [0, math.nan])
def test_fixed_length_rejects_a_budget_that_is_not_positive(length):
    with raises(ArgumentError, argument="max_completion_length", value=length):
        fixed_length(torch.ones(2, 3), max_completion_length=length)


@pytest.mark.parametrize("name", ["objective", "weights"])
@pytest.mark.parametrize("shape", [(4,), (1, 6), (4, 5)])
def test_aggregate_broadcasts_nothing(name, shape):
    objective, mask = batch(0)
    arguments = {"objective": objective, "weights": token_mean(mask), "mask": mask} | {name: torch.zeros(shape)}
    with raises(ArgumentError, argument=name, value=shape):
        aggregate(**arguments)


def test_aggregate_rejects_a_sampled_token_that_is_not_finite():
    objective, mask = batch(0)
    objective[mask.nonzero()[0].unbind()] = torch.nan
    with raises(ArgumentError, argument="objective", value=1, problem="not finite"):
        aggregate(objective, token_mean(mask), mask)


@pytest.mark.parametrize(("share", "count", "kept"), [(0.55, 100, 55), (0.07, 100, 7), (0.28, 100, 28), (0.2, 7, 2)])
def test_high_entropy_weights_keeps_the_share_rounded_up_and_no_more(share, count, kept):
    mask = torch.ones(1, count, dtype=torch.bool)
    entropies = torch.arange(count, dtype=torch.float64)[None]
    weights = high_entropy_weights(token_mean(mask), entropies, mask, top_entropy_quantile=share)
    assert int((weights > 0).sum()) == kept
