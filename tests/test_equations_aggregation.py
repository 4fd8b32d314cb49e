"""Weights of the whole batch: worked examples, every split into micro-batches, padding, dropped rows, precision, bad input."""

import functools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minirlhf.equations.aggregation import aggregate, fixed_length, sequence_mean, sequence_sum, token_mean

RULES = {
    "sequence_mean": sequence_mean,
    "token_mean": token_mean,
    "fixed_length": functools.partial(fixed_length, max_completion_length=9),
    "sequence_sum": sequence_sum,
}
each_rule = pytest.mark.parametrize("rule", [pytest.param(f, id=name) for name, f in RULES.items()])
fresh = settings(deadline=None, max_examples=25)
SEEDS = st.integers(0, 2**31)


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


def test_five_and_ten_tokens_whose_last_loses_ten():
    mask = right_padded(5, 10)
    losses = torch.tensor([[1.0] * 4 + [10.0] + [torch.nan] * 5, [1.0] * 9 + [10.0]], dtype=torch.float64)
    assert aggregate(losses, sequence_mean(mask), mask).item() == pytest.approx(2.35, abs=1e-12)
    assert aggregate(losses, token_mean(mask), mask).item() == pytest.approx(2.2, abs=1e-12)


def gradient_of_ratios(weights, mask, advantage=2.0):
    ratio = torch.ones(mask.shape, dtype=torch.float64, requires_grad=True)
    aggregate(advantage * ratio, weights, mask).backward()
    return ratio.grad


@pytest.mark.parametrize(
    ("rule", "short", "long"),
    [
        (sequence_mean, 0.25, 0.1429),
        (functools.partial(fixed_length, max_completion_length=7), 0.1429, 0.1429),
        (token_mean, 0.1818, 0.1818),
    ],
)
def test_four_and_seven_tokens_with_advantage_two(rule, short, long):
    mask = right_padded(4, 7)
    expected = torch.tensor([[short] * 4 + [0.0] * 3, [long] * 7]).double()
    torch.testing.assert_close(gradient_of_ratios(rule(mask), mask), expected, atol=5e-5, rtol=0)


def test_accumulation_with_local_means_turns_a_token_mean_into_a_sequence_mean():
    """Micro-batches of one row, each normalised by its own tokens and averaged: .25 and .1429 instead of .1818."""
    mask = right_padded(4, 7)
    local = torch.cat([token_mean(mask[[i]]) / 2 for i in range(2)])
    torch.testing.assert_close(local, sequence_mean(mask))
    assert gradient_of_ratios(local, mask)[:, 0].tolist() == pytest.approx([0.25, 1 / 7])
    assert gradient_of_ratios(token_mean(mask), mask)[:, 0].tolist() == pytest.approx([2 / 11, 2 / 11])


# -- properties --------------------------------------------------------------------------------------------------


@each_rule
@pytest.mark.parametrize("columns", [6, 1])
@fresh
@given(seed=SEEDS)
def test_every_split_into_micro_batches_gives_the_same_loss_and_gradient(rule, columns, seed):
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
@fresh
@given(seed=SEEDS)
def test_padding_never_matters(rule, seed):
    objective, mask = batch(seed)
    value = aggregate(objective, rule(mask), mask)
    other = torch.where(mask, objective, 1e30)
    wider = torch.cat([torch.zeros(4, 3, dtype=torch.bool), mask], 1)  # padded on the left as well
    assert aggregate(other, rule(mask), mask) == value
    widened = torch.cat([torch.full((4, 3), torch.inf), objective], 1)
    torch.testing.assert_close(aggregate(widened, rule(wider), wider), value)
    assert (rule(mask)[~mask] == 0).all()


@each_rule
@fresh
@given(seed=SEEDS)
def test_the_order_of_the_rows_never_matters(rule, seed):
    objective, mask = batch(seed)
    order = torch.randperm(4, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(rule(mask)[order], rule(mask[order]))
    value = aggregate(objective, rule(mask), mask)
    torch.testing.assert_close(aggregate(objective[order], rule(mask[order]), mask[order]), value)


@fresh
@given(seed=SEEDS)
def test_means_have_weights_that_sum_to_one(seed):
    _, mask = batch(seed)
    for rule in (sequence_mean, token_mean):
        assert rule(mask).sum().item() == pytest.approx(1)
    torch.testing.assert_close(sequence_mean(mask).sum(-1), torch.full((4,), 0.25, dtype=torch.float64))


def test_equal_lengths_leave_no_difference():
    mask = right_padded(5, 5, 5)
    torch.testing.assert_close(sequence_mean(mask), token_mean(mask))
    torch.testing.assert_close(sequence_mean(mask), fixed_length(mask, max_completion_length=5))
    torch.testing.assert_close(sequence_mean(mask) * 5, sequence_sum(mask))


@each_rule
def test_a_mask_of_numbers_is_a_mask(rule):
    _, mask = batch(3)
    for dtype in (torch.int64, torch.float32):
        assert torch.equal(rule(mask.to(dtype)), rule(mask))


# -- rows that are left out --------------------------------------------------------------------------------------


@each_rule
@fresh
@given(seed=SEEDS)
def test_dropped_rows_leave_the_denominator_or_stay_in_it(rule, seed):
    _, mask = batch(seed)
    keep = torch.tensor([True, False, True, False])
    weights = rule(mask, keep=keep)
    assert (weights[~keep] == 0).all()
    torch.testing.assert_close(weights[keep], rule(mask[keep]))
    torch.testing.assert_close(rule(mask, keep=keep, renormalise=False), rule(mask) * keep[:, None])


@each_rule
@pytest.mark.parametrize("renormalise", [True, False])
def test_nothing_kept_is_a_step_of_zero(rule, renormalise):
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
def test_lower_precision_stays_within_its_error(rule, dtype, error):
    objective, mask = batch(5)
    low = objective.abs().to(dtype)  # one sign: nothing cancels
    value = aggregate(low, rule(mask), mask)
    assert value.dtype == dtype
    assert value.double().item() == pytest.approx(aggregate(low.double(), rule(mask), mask).item(), rel=error)


# -- bad input ---------------------------------------------------------------------------------------------------


@each_rule
@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.ones(4), r"mask has shape \(4,\); expected \(B, T\)"),
        (torch.tensor([[1, 0], [0, 0]]), r"mask of shape \(2, 2\) has no sampled token in row\(s\) \[1\]"),
        (torch.tensor([[1.0, 0.5]]), r"mask of shape \(1, 2\) holds values other than 0 and 1"),
    ],
)
def test_a_bad_mask_is_named(rule, mask, message):
    with pytest.raises(ValueError, match=message):
        rule(mask)


@each_rule
@pytest.mark.parametrize("shape", [(3,), (4, 1), (4, 6)])
def test_keep_is_one_flag_per_row(rule, shape):
    with pytest.raises(ValueError, match=r"keep has shape .*expected \(B\)"):
        rule(batch(0)[1], keep=torch.ones(shape, dtype=torch.bool))


@pytest.mark.parametrize("length", [0, -3, float("nan")])
def test_the_budget_is_positive(length):
    with pytest.raises(ValueError, match="max_completion_length"):
        fixed_length(torch.ones(2, 3), max_completion_length=length)


@pytest.mark.parametrize("name", ["objective", "weights"])
@pytest.mark.parametrize("shape", [(4,), (6,), (1, 6), (3, 6), (4, 5)])
def test_nothing_is_broadcast(name, shape):
    objective, mask = batch(0)
    arguments = {"objective": objective, "weights": token_mean(mask), "mask": mask} | {name: torch.zeros(shape)}
    with pytest.raises(ValueError, match=rf"{name} has shape \({shape[0]}"):
        aggregate(**arguments)


def test_weights_of_one_column_are_no_weights():
    objective, mask = batch(0)
    with pytest.raises(ValueError, match="weights has shape"):
        aggregate(objective, torch.ones(4, 1), mask)


def test_a_sampled_token_that_is_not_finite_is_an_error():
    objective, mask = batch(0)
    objective[mask.nonzero()[0].unbind()] = torch.nan
    with pytest.raises(ValueError, match=r"objective of shape \(4, 6\) holds 1 non-finite"):
        aggregate(objective, token_mean(mask), mask)
