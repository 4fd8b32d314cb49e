"""How sure a measured number is: what the ledger's draws do not reach, limits and how often an interval holds the truth."""

import math
from statistics import NormalDist

import pytest
import torch

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
def test_an_interval_of_a_win_rate_holds_the_truth_as_often_as_it_says(shares, wilson):
    """Over all outcomes of thirty votes, exactly; Wilson's of so many votes holds it too often, the more ties the more."""
    low, high = evaluation.win_rate_interval(*THIRTY.T)
    wide = evaluation.wilson_interval(THIRTY[:, 0] + THIRTY[:, 1] / 2, torch.full((len(THIRTY),), 30.0).double())
    truth, law = shares[0] + shares[1] / 2, chances(shares)
    assert float(law.sum()) == pytest.approx(1)
    assert 0.94 < float(law[(low <= truth) & (truth <= high)].sum()) < 0.97
    assert float(law[(wide[0] <= truth) & (truth <= wide[1])].sum()) > wilson
    assert float((law * (high - low)).sum()) < float((law * (wide[1] - wide[0])).sum())


def test_what_was_seen_lies_in_the_interval_of_a_win_rate_and_it_turns_round_with_the_sides():
    low, high = evaluation.win_rate_interval(*THIRTY.T)
    seen = (THIRTY[:, 0] + THIRTY[:, 1] / 2) / 30
    assert bool(((low >= -1e-12) & (low <= seen + 1e-12) & (seen <= high + 1e-12) & (high <= 1)).all())
    turned = evaluation.win_rate_interval(*THIRTY.T.flip(0))
    torch.testing.assert_close(turned, (1 - high, 1 - low))


def test_no_votes_have_no_interval():
    nothing = torch.zeros(1)
    with pytest.raises(ValueError, match="wins"):
        evaluation.win_rate_interval(nothing, nothing, nothing)


def test_no_items_are_needed_for_what_a_test_finds_where_there_is_nothing():
    assert NormalDist().inv_cdf(0.75) + NormalDist().inv_cdf(0.25) == 0  # just as often
    assert evaluation.items_needed(0.1, item=0.3, reply=0.2, alpha=0.5, power=0.25) == 0
    assert evaluation.items_needed(0.1, item=0.3, reply=0.2, alpha=0.1, power=0.05) == 0
    assert evaluation.items_needed(0.1, item=0.3, reply=0.2, alpha=0.1, power=0.04) == 0
    # α = .1 and power .2: 1.645 − .842 standard errors, and those are √(.5/n)
    assert evaluation.items_needed(0.1, item=0.3, reply=0.2, alpha=0.1, power=0.2) == pytest.approx(
        50 * 0.80323**2, rel=1e-4
    )


def test_no_number_of_items_is_enough_where_the_seeds_hide_the_difference():
    assert evaluation.items_needed(0.1, seed=0.01, item=0.3, reply=0.2, seeds=2) == math.inf
    reach = NormalDist().inv_cdf(1 - 0.05 / 2) + NormalDist().inv_cdf(0.8)
    assert evaluation.items_needed(0.1, seed=(0.1 / reach) ** 2, item=0.3, reply=0.2) == math.inf


def test_an_item_that_is_shorter_than_a_run_overlaps_with_nothing():
    assert evaluation.ngram_overlap("ab", {("a", "b", "c")}, n=3) == 0
    assert evaluation.ngram_overlap("abc", {("a", "b", "c")}, n=3) == 1
