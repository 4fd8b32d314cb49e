"""Choices of one decider and of many: worked examples, properties, bad input."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minirlhf.equations import choice, reward_losses
from minirlhf.equations import social_choice as sc


def any_seed(test):
    """The test on many seeds, however long a busy machine takes for one."""
    return settings(deadline=None, max_examples=40)(given(st.integers(0, 2**31))(test))


def numbers(seed, *shape):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def even_odds(rewards):
    """``(..., K, K)``: Bradley–Terry's probabilities of these rewards."""
    return reward_losses.bradley_terry(*torch.broadcast_tensors(rewards[..., :, None], rewards[..., None, :]))


# -- one decider -------------------------------------------------------------------------------------------------


@any_seed
def test_utilities_have_neither_a_zero_nor_a_unit(seed):
    probs, utilities = numbers(seed, 6, 4).softmax(-1), numbers(seed + 1, 4)
    plain = choice.expected_utility(probs, utilities.expand(6, 4))
    other = choice.expected_utility(probs, (3 * utilities - 7).expand(6, 4))
    torch.testing.assert_close(other, 3 * plain - 7)


def test_the_choice_reverses_with_the_reference_point():
    """1 for sure against 2 by the toss of a coin, from 0 and from 2."""
    z = torch.tensor([1.0, 2.0], dtype=torch.float64)
    coin = torch.tensor(0.5, dtype=torch.float64)
    sure, gamble = choice.prospect_value(z)
    assert sure.item() == pytest.approx(1.0)
    assert (choice.probability_weight(coin).item(), gamble.item()) == pytest.approx((0.421, 1.840), abs=1e-3)
    assert choice.probability_weight(coin, gamma=0.69).item() == pytest.approx(0.454, abs=5e-4)
    assert (choice.probability_weight(coin) * gamble).item() == pytest.approx(0.774, abs=5e-4)
    sure, gamble = choice.prospect_value(-z)
    assert sure.item() == pytest.approx(-2.25)
    assert (choice.probability_weight(coin, gamma=0.69) * gamble).item() == pytest.approx(-1.880, abs=5e-4)


@any_seed
def test_small_chances_count_for_more_and_large_ones_for_less(seed):
    p = torch.rand(5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    assert bool((choice.probability_weight(0.01 + 0.1 * p) > 0.01 + 0.1 * p).all())
    assert bool((choice.probability_weight(0.6 + 0.3 * p) < 0.6 + 0.3 * p).all())
    ends = torch.tensor([0.0, 1.0])
    torch.testing.assert_close(choice.probability_weight(ends), ends)


@any_seed
def test_nobody_who_knows_the_sign_gains_by_asking_and_nobody_loses(seed):
    probs, u = numbers(seed, 3, 5).softmax(-1), numbers(seed + 1, 3, 5)
    assert bool((choice.deference_gain(probs, u) >= -1e-12).all())
    torch.testing.assert_close(choice.deference_gain(probs, u.abs()), torch.zeros(3, dtype=torch.float64))
    torch.testing.assert_close(choice.deference_gain(probs, -u.abs()), torch.zeros(3, dtype=torch.float64))


@any_seed
def test_a_sure_machine_loses_by_asking_somebody_who_errs(seed):
    u = numbers(seed, 5)
    assert bool((choice.deference_gain(torch.ones(5, 1), u[:, None], noise=1.0) < 0).all())


# -- ratings -----------------------------------------------------------------------------------------------------


@any_seed
def test_exact_win_rates_give_the_rewards_back(seed):
    rewards = numbers(seed, 2, 5)
    fitted = sc.bradley_terry_fit(even_odds(rewards), tolerance=1e-13)
    torch.testing.assert_close(fitted, rewards - rewards.mean(-1, keepdim=True), atol=1e-7, rtol=0)


@any_seed
def test_no_step_of_zermelo_lowers_the_likelihood(seed):
    wins = numbers(seed, 4, 4).exp()
    wins = wins - torch.diag(wins.diag())
    rewards, likelihoods = numbers(seed + 1, 4), []
    for _ in range(6):
        likelihoods.append(float((wins * even_odds(rewards).log()).sum()))
        rewards = sc.zermelo_step(wins, rewards)
    assert all(b >= a - 1e-10 for a, b in itertools.pairwise(likelihoods))


def test_on_a_ring_everybody_is_rated_alike():
    ring = torch.tensor([[0.5, 0.7, 0.3], [0.3, 0.5, 0.7], [0.7, 0.3, 0.5]], dtype=torch.float64)
    torch.testing.assert_close(sc.bradley_terry_fit(ring), torch.zeros(3, dtype=torch.float64))
    assert sc.cycle_log_odds(ring).item() == pytest.approx(3 * math.log(7 / 3))


@pytest.mark.parametrize("wins", [[[0.0, 3.0], [0.0, 0.0]], [[0.0, 1, 5, 5], [1, 0, 5, 5], [0, 0, 0, 1], [0, 0, 1, 0]]])
def test_without_a_maximum_there_is_no_fit(wins):
    with pytest.raises(ValueError, match="no rewards of greatest likelihood exist"):
        sc.bradley_terry_fit(torch.tensor(wins, dtype=torch.float64), max_steps=300)


def test_a_fit_that_is_given_too_few_steps_says_so():
    wins = torch.tensor([[0.0, 9.0, 3.0], [1.0, 0.0, 8.0], [2.0, 1.0, 0.0]], dtype=torch.float64)
    sc.bradley_terry_fit(wins)
    with pytest.raises(ValueError, match="in 3 steps"):
        sc.bradley_terry_fit(wins, max_steps=3)


def test_a_fit_stops_as_soon_as_the_balance_is_within_the_tolerance():
    """With equal rewards the first has 2 wins too few, the others 1 too many each, of 16: an eighth, and a sixteenth."""
    wins = torch.tensor([[0, 1, 1], [3, 0, 4], [3, 4, 0]], dtype=torch.float64)
    torch.testing.assert_close(sc.bradley_terry_fit(wins, tolerance=0.125), torch.zeros(3, dtype=torch.float64))
    step = torch.tensor([2 / 4, 7 / 6, 7 / 6], dtype=torch.float64).log()  # wins over half of the games
    torch.testing.assert_close(sc.bradley_terry_fit(wins, tolerance=0.1), step - step.mean())


@any_seed
def test_ratings_say_nothing_about_circles(seed):
    torch.testing.assert_close(
        sc.cycle_log_odds(even_odds(numbers(seed, 4, 6))), torch.zeros(4, dtype=torch.float64), atol=1e-9, rtol=0
    )


# -- many people -------------------------------------------------------------------------------------------------


@any_seed
def test_one_reward_model_for_many_people_has_bordas_order(seed):
    probs = sc.mixture_preference(numbers(seed, 3, 5), numbers(seed + 1, 3).softmax(-1))
    fitted = sc.bradley_terry_fit(probs, tolerance=1e-12)
    assert fitted.argsort().tolist() == sc.borda_scores(probs).argsort().tolist()


def test_a_bad_reply_changes_which_of_two_better_ones_wins():
    """60 % a ≻ b ≻ c, 40 % b ≻ c ≻ a, without noise: everybody finds c worse than b."""
    votes = torch.tensor([[0.5, 0.6, 0.6], [0.4, 0.5, 1.0], [0.4, 0.0, 0.5]], dtype=torch.float64)
    assert sc.borda_scores(votes[:2, :2])[0] > sc.borda_scores(votes[:2, :2])[1]
    torch.testing.assert_close(sc.borda_scores(votes), torch.tensor([0.6, 0.7, 0.2], dtype=torch.float64))


def test_three_of_ten_are_wrong_and_three_voters_are_better_than_one():
    one = torch.tensor([0.6, 0.5, 0.3], dtype=torch.float64)
    three = sc.majority_accuracy(one, voters=3)
    torch.testing.assert_close(three, torch.tensor([0.648, 0.5, 0.216], dtype=torch.float64))
    assert sc.majority_accuracy(one, voters=501)[0] > 0.9999 and sc.majority_accuracy(one, voters=501)[2] < 0.0001


def test_voters_who_are_always_right_or_always_wrong():
    sure = sc.majority_accuracy(torch.tensor([0.0, 1.0]), voters=5)
    torch.testing.assert_close(sure, torch.tensor([0.0, 1.0]))


def test_opposite_tastes_have_no_mean_and_all_the_spread():
    rewards = torch.tensor([[1.0, 0.2, -1.0], [-1.0, 0.2, 1.0]], dtype=torch.float64)
    mean, spread = sc.reward_spread(rewards, torch.tensor([0.5, 0.5], dtype=torch.float64))
    torch.testing.assert_close(mean, torch.tensor([0.0, 0.2, 0.0], dtype=torch.float64))
    torch.testing.assert_close(spread, torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sc.majority_accuracy(torch.tensor(0.6), voters=4), "voters = 4; expected an odd number"),
        (lambda: sc.cycle_log_odds(torch.full((2, 2), 0.5)), r"probs has shape \(2, 2\); expected"),
        (lambda: sc.borda_scores(torch.full((1, 1), 0.5)), r"probs has shape \(1, 1\); expected"),
        (lambda: sc.bradley_terry_balance(torch.ones(2, 3), torch.ones(3)), "wins has shape"),
        (lambda: sc.mixture_preference(torch.ones(2, 3), torch.ones(2)), "weights of shape"),
        (lambda: choice.deference_gain(torch.ones(1), torch.ones(1), noise=-1.0), "noise = -1.0"),
        (lambda: choice.probability_weight(torch.tensor(1.5)), "probs of shape"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
