"""Masked statistics are the plain ones of the kept entries, whatever stands elsewhere."""

import math

import pytest
import torch

from minirlhf.core import masking
from minirlhf_course.ledger.registry import Draw


@pytest.fixture
def case(suite_seed):
    """Numbers and a mask with holes; the numbers outside it are NaN and infinities."""
    draw = Draw("masking", suite_seed)
    x, mask = draw.normal(5, 7, scale=3.0), draw.holed_mask(5, 7)
    mask[0, 0], mask[1, 1], mask[2, 2] = False, False, False
    poisoned = torch.where(mask, x, torch.tensor(math.nan, dtype=x.dtype))
    poisoned[0, 0], poisoned[1, 1] = math.inf, -math.inf
    return x, poisoned, mask


def test_masked_sum_and_mean_are_those_of_the_kept_entries(case):
    x, poisoned, mask = case
    assert masking.masked_sum(poisoned, mask).item() == pytest.approx(sum(x[mask].tolist()))
    assert masking.masked_mean(poisoned, mask).item() == pytest.approx(x[mask].mean().item())
    rows = torch.stack([row[kept].mean() for row, kept in zip(x, mask, strict=True)])
    torch.testing.assert_close(masking.masked_mean(poisoned, mask, -1), rows)
    columns = torch.stack([column[kept].sum() for column, kept in zip(x.T, mask.T, strict=True)])
    torch.testing.assert_close(masking.masked_sum(poisoned, mask, 0), columns)


@pytest.mark.parametrize("ddof", [0, 1])
def test_masked_var_is_that_of_the_kept_entries(case, ddof):
    x, poisoned, mask = case
    torch.testing.assert_close(masking.masked_var(poisoned, mask, ddof), x[mask].var(correction=ddof))


@pytest.mark.parametrize("shift_mean", [True, False])
def test_masked_whiten_has_unit_variance_and_keeps_or_loses_its_mean(case, shift_mean):
    x, poisoned, mask = case
    white = masking.masked_whiten(poisoned, mask, shift_mean=shift_mean)
    assert (white[~mask] == 0).all()
    assert white[mask].var().item() == pytest.approx(1.0, abs=1e-7)
    assert white[mask].mean().item() == pytest.approx(0.0 if shift_mean else x[mask].mean().item(), abs=1e-12)


@pytest.mark.parametrize(
    "function",
    [
        masking.zero_where_masked,
        masking.masked_sum,
        masking.masked_mean,
        masking.masked_var,
        masking.masked_whiten,
    ],
)
def test_masked_functions_give_no_gradient_to_masked_entries(case, function):
    """The value would be right even if the gradient were NaN: 0 · NaN is NaN in the backward pass."""
    x, poisoned, mask = case
    gradients = []
    for values in (x, poisoned):
        leaf = values.clone().requires_grad_()
        (function(leaf, mask) ** 3).sum().backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(gradients[0], gradients[1])
    assert (gradients[0][~mask] == 0).all()
    assert (gradients[0][mask] != 0).any()


def test_masked_var_and_last_index_take_integer_masks(case):
    x, _, mask = case
    for dtype in (torch.int64, torch.float32):
        torch.testing.assert_close(masking.masked_var(x, mask.to(dtype)), masking.masked_var(x, mask), rtol=0, atol=0)
        assert torch.equal(masking.last_index(mask.to(dtype)), masking.last_index(mask))


def test_masked_mean_of_an_empty_row_is_nan():
    mask = torch.tensor([[True, False], [False, False]])
    mean = masking.masked_mean(torch.ones(2, 2), mask, -1)
    assert mean[0] == 1
    assert mean[1].isnan()


@pytest.mark.parametrize(
    ("mask", "length", "last"),
    [
        ([1, 1, 1, 0, 0], 3, 2),  # padded on the right
        ([0, 0, 1, 1, 1], 3, 4),  # on the left
        ([0, 1, 0, 1, 0], 2, 3),  # a hole, as tool output leaves it
        ([1, 0, 0, 0, 0], 1, 0),
    ],
)
def test_lengths_and_last_index_of_padded_rows(mask, length, last):
    mask = torch.tensor([mask, [1, 1, 1, 1, 1]]).bool()
    assert masking.lengths(mask).tolist() == [length, 5]
    assert masking.last_index(mask).tolist() == [last, 4]
