"""How sure a measured number is: what the ledger's draws do not reach, limits and how often an interval holds the truth."""

import math
from statistics import NormalDist

import pytest
import torch
from facts import raises

from minirlhf.core.errors import ArgumentError
from minirlhf.equations import evaluation

THIRTY = torch.tensor([(w, t, 30 - w - t) for w in range(31) for t in range(31 - w)], dtype=torch.float64)  # (C, 3)


def chances(shares):
    """``(C,)``: how likely each of these counts of thirty votes is."""
    ways = math.lgamma(31) - torch.lgamma(THIRTY + 1).sum(-1)
    return (ways + (THIRTY * torch.tensor(shares, dtype=torch.float64).log()).sum(-1)).exp()


@pytest.mark.parametrize(
    ("shares", "wilson"),
    [((0.3, 0.4, 0.3), 0.98), ((0.45, 0.1, 0.45), 0.95), ((0.6, 0.3, 0.1), 0.98), ((0.1, 0.8, 0.1), 0.999), ((0.9, 0.05, 0.05), 0.97)],
)  # fmt: skip
def test_win_rate_interval_has_its_nominal_coverage(shares, wilson):
    """Over all outcomes of thirty votes, exactly; Wilson's of so many votes holds it too often, the more ties the more."""
    low, high = evaluation.win_rate_interval(*THIRTY.T)
    wide = evaluation.wilson_interval(THIRTY[:, 0] + THIRTY[:, 1] / 2, torch.full((len(THIRTY),), 30.0).double())
    truth, law = shares[0] + shares[1] / 2, chances(shares)
    assert float(law.sum()) == pytest.approx(1)
    assert 0.94 < float(law[(low <= truth) & (truth <= high)].sum()) < 0.97
    assert float(law[(wide[0] <= truth) & (truth <= wide[1])].sum()) > wilson
    assert float((law * (high - low)).sum()) < float((law * (wide[1] - wide[0])).sum())


def test_win_rate_interval_holds_the_observed_rate_and_is_symmetric_in_the_sides():
    low, high = evaluation.win_rate_interval(*THIRTY.T)
    seen = (THIRTY[:, 0] + THIRTY[:, 1] / 2) / 30
    assert bool(((low >= -1e-12) & (low <= seen + 1e-12) & (seen <= high + 1e-12) & (high <= 1)).all())
    turned = evaluation.win_rate_interval(*THIRTY.T.flip(0))
    torch.testing.assert_close(turned, (1 - high, 1 - low))


def test_win_rate_interval_rejects_no_votes():
    nothing = torch.zeros(1)
    with raises(ArgumentError, argument="wins", problem="empty"):
        evaluation.win_rate_interval(nothing, nothing, nothing)


def test_items_needed_for_a_power_below_the_size_is_zero():
    assert NormalDist().inv_cdf(0.75) + NormalDist().inv_cdf(0.25) == 0  # just as often
    assert evaluation.items_needed(0.1, item=0.3, reply=0.2, alpha=0.5, power=0.25) == 0
    assert evaluation.items_needed(0.1, item=0.3, reply=0.2, alpha=0.1, power=0.05) == 0
    assert evaluation.items_needed(0.1, item=0.3, reply=0.2, alpha=0.1, power=0.04) == 0
    # α = .1 and power .2: 1.645 − .842 standard errors, and those are √(.5/n)
    assert evaluation.items_needed(0.1, item=0.3, reply=0.2, alpha=0.1, power=0.2) == pytest.approx(
        50 * 0.80323**2, rel=1e-4
    )


def test_items_needed_with_too_much_variance_between_seeds_is_infinite():
    assert evaluation.items_needed(0.1, seed=0.01, item=0.3, reply=0.2, seeds=2) == math.inf
    reach = NormalDist().inv_cdf(1 - 0.05 / 2) + NormalDist().inv_cdf(0.8)
    assert evaluation.items_needed(0.1, seed=(0.1 / reach) ** 2, item=0.3, reply=0.2) == math.inf


def test_ngram_overlap_of_an_item_shorter_than_n_is_zero():
    assert evaluation.ngram_overlap("ab", {("a", "b", "c")}, n=3) == 0
    assert evaluation.ngram_overlap("abc", {("a", "b", "c")}, n=3) == 1
