"""Choices of one decider and of many: fits that stop or do not exist, limits, bad arguments. Values: the ledger."""

import pytest
import torch
from facts import called, raises

from minirlhf.core.errors import ArgumentError
from minirlhf.equations import social_choice as sc
from minirlhf_course.chapters.ch06_nature_of_preferences import equations as ch06

# -- one decider -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_probability_weight_raises_small_and_lowers_large_chances(seed):
    p = torch.rand(5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    assert bool((ch06.probability_weight(0.01 + 0.1 * p) > 0.01 + 0.1 * p).all())
    assert bool((ch06.probability_weight(0.6 + 0.3 * p) < 0.6 + 0.3 * p).all())
    ends = torch.tensor([0.0, 1.0])
    torch.testing.assert_close(ch06.probability_weight(ends), ends)


# -- ratings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wins", [[[0.0, 3.0], [0.0, 0.0]], [[0.0, 1, 5, 5], [1, 0, 5, 5], [0, 0, 0, 1], [0, 0, 1, 0]]])
def test_bradley_terry_fit_rejects_wins_without_a_maximum(wins):
    with raises(ArgumentError, argument="wins", problem="no maximum"):
        sc.bradley_terry_fit(torch.tensor(wins, dtype=torch.float64), max_steps=300)


def test_bradley_terry_fit_rejects_too_few_steps():
    wins = torch.tensor([[0.0, 9.0, 3.0], [1.0, 0.0, 8.0], [2.0, 1.0, 0.0]], dtype=torch.float64)
    sc.bradley_terry_fit(wins)
    with raises(ArgumentError, argument="wins", value=3, problem="not converged"):
        sc.bradley_terry_fit(wins, max_steps=3)


def test_bradley_terry_fit_stops_within_the_tolerance():
    """With equal rewards the first has 2 wins too few, the others 1 too many each, of 16: an eighth, and a sixteenth."""
    wins = torch.tensor([[0, 1, 1], [3, 0, 4], [3, 4, 0]], dtype=torch.float64)
    torch.testing.assert_close(sc.bradley_terry_fit(wins, tolerance=0.125), torch.zeros(3, dtype=torch.float64))
    step = torch.tensor([2 / 4, 7 / 6, 7 / 6], dtype=torch.float64).log()  # wins over half of the games
    torch.testing.assert_close(sc.bradley_terry_fit(wins, tolerance=0.1), step - step.mean())


# -- many people -------------------------------------------------------------------------------------------------


def test_majority_accuracy_of_certain_voters():
    sure = ch06.majority_accuracy(torch.tensor([0.0, 1.0]), voters=5)
    torch.testing.assert_close(sure, torch.tensor([0.0, 1.0]))


@pytest.mark.parametrize(
    ("call", "argument", "value"),
    [
        (lambda: ch06.majority_accuracy(torch.tensor(0.6), voters=4), "voters", 4),
        (lambda: sc.cycle_log_odds(torch.full((2, 2), 0.5)), "probs", (2, 2)),
        (lambda: sc.borda_scores(torch.full((1, 1), 0.5)), "probs", (1, 1)),
        (lambda: sc.bradley_terry_balance(torch.ones(2, 3), torch.ones(3)), "wins", (2, 3)),
        (lambda: sc.mixture_preference(torch.ones(2, 3), torch.ones(2)), "weights", [[]]),
        (lambda: ch06.deference_gain(torch.ones(1), torch.ones(1), noise=-1.0), "noise", -1.0),
        (lambda: ch06.probability_weight(torch.tensor(1.5)), "probs", None),
    ],
    ids=called,
)
def test_social_choice_and_choice_name_a_bad_argument(call, argument, value):
    with raises(ArgumentError, argument=argument, value=value):
        call()
