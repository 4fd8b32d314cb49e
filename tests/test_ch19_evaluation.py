"""Chapter 19: the cases that its text works by hand, what its equations refuse, and what they say of one another."""

import functools
import itertools
import math

import pytest
import torch
from facts import raises

from minirlhf.chapters.ch19_evaluation import experiments
from minirlhf.core import exact, statistics
from minirlhf.core.errors import ArgumentError
from minirlhf.equations import comparisons, estimators, evaluation
from minirlhf.equations.social_choice import bradley_terry_fit
from minirlhf.trainers.evaluation import wilson_interval


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def close(got, want, digits=9):
    got, want = (torch.as_tensor(x, dtype=torch.float64) for x in (got, want))
    torch.testing.assert_close(got, want, atol=0.6 * 10**-digits, rtol=0)


# -- worked by hand ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "c", "k", "known"), [(10, 3, 5, 11 / 12), (5, 2, 3, 0.9), (4, 1, 4, 1.0)])
def test_pass_at_k_of_the_examples(n, c, k, known):
    close(estimators.pass_at_k(n, c, k=k), known)


def test_wilson_and_wald_intervals_of_ten_of_ten():
    """Wilson's interval of n successes of n ends at n/(n + z²); Wald's has no width."""
    low, high = wilson_interval(10, 10)
    close(low, 10 / (10 + 1.959963984540054**2))
    assert high == 1.0
    none, all_of_it = evaluation.wald_interval(numbers(10.0), numbers(10.0))
    assert none == all_of_it == 1.0


def test_sign_test_of_seven_against_one():
    """Eight items on which two models differ, seven for the one: 2 (1 + 8)/256."""
    close(statistics.sign_test(7, 1), 18 / 256)


# -- what they say of one another --------------------------------------------------------------------------------


def test_difference_variance_of_one_reply_to_each_item_is_that_of_a_coin():
    """Var(p_i) + E[p_i(1 − p_i)] = p̄(1 − p̄): with one reply nobody sees how the difficulty is spread."""
    chances = torch.rand(50, dtype=torch.float64)
    item, reply = chances.var(correction=0), (chances * (1 - chances)).mean()
    found = evaluation.difference_variance(torch.zeros_like(item), item, reply, seeds=1, items=50, replies=1)
    close(found, chances.mean() * (1 - chances.mean()) / 50)


def test_items_needed_is_infinite_where_seeds_are_too_few():
    effect, floor = 0.02, 0.02 / (1.959963984540054 + 0.8416212335729143)
    few = evaluation.items_needed(effect, seed=1.001 * floor**2, item=0.1, reply=0.1)
    assert few == math.inf
    assert evaluation.items_needed(effect, seed=1.001 * floor**2, item=0.1, reply=0.1, seeds=2) < math.inf


def test_items_needed_for_the_power_of_no_difference_is_zero():
    """α/2 on the side of the difference: from there on each further bit of power costs items, and below it there is nothing to pay."""
    needed = [evaluation.items_needed(0.1, seed=1.0, item=0.1, reply=0.1, power=p) for p in (0.01, 0.025, 0.0251, 0.03)]
    assert needed[:2] == [0.0, 0.0] and 0 < needed[2] < needed[3]


def test_items_needed_agrees_with_smallest_effect():
    """Two homes, chapter 7's for labels and this one's for items, one test."""
    n = evaluation.items_needed(0.03, item=0.11, reply=0.2, replies=4, alpha=0.02, power=0.9)
    variance = (0.11 + 0.2 / 4) / n
    close(comparisons.smallest_effect(numbers(1 / variance), alpha=0.02, power=0.9), [0.03])


def test_coverage_of_wilson_is_near_95_percent_where_wald_fails():
    n, truth = 30, numbers(0.97)
    counts, trials = torch.arange(n + 1).double(), torch.full((n + 1,), float(n), dtype=torch.float64)
    wald = evaluation.coverage(*evaluation.wald_interval(counts, trials), truth)
    wilson = evaluation.coverage(*evaluation.wilson_interval(counts, trials), truth)
    ends = numbers(*(experiments.bootstrap_interval(s, n) for s in range(n + 1)))
    bootstrap = evaluation.coverage(ends[:, 0], ends[:, 1], truth)
    # An interval that all successes leave without width misses whenever all succeed.
    assert float(wald) <= 1 - 0.97**30 and float(bootstrap) <= 1 - 0.97**30
    assert float(wilson) > 0.93


def test_coverage_counts_the_ends_of_an_interval():
    """Wald's of all or of no successes is the truth of 1 or 0, and nothing else."""
    counts, trials = torch.arange(5).double(), torch.full((5,), 4.0, dtype=torch.float64)
    close(evaluation.coverage(*evaluation.wald_interval(counts, trials), numbers(0.0, 1.0)), [1.0, 1.0])


def test_leaderboard_variance_of_a_batch_is_that_of_each():
    games, rewards = torch.randint(1, 9, (3, 4, 4)).double().triu(1), torch.randn(3, 4, dtype=torch.float64)
    games = games + games.mT
    for equation in (evaluation.leaderboard_information, evaluation.leaderboard_variance):
        close(equation(games, rewards), torch.stack([equation(g, r) for g, r in zip(games, rewards, strict=True)]))


def test_leaderboard_variance_is_that_of_the_bradley_terry_fit():
    """Turn one game of sixty thousand round and fit again: the difference of the two moves by its variance."""
    rewards = numbers(-0.6, 0.1, 0.5)
    games = numbers([0, 3e4, 1e4], [3e4, 0, 2e4], [1e4, 2e4, 0])
    wins = games * torch.sigmoid(rewards[:, None] - rewards[None, :])
    moved = wins.clone()
    moved[0, 1] += 1.0
    moved[1, 0] -= 1.0
    shift = bradley_terry_fit(moved, tolerance=1e-14) - bradley_terry_fit(wins, tolerance=1e-14)
    variance = evaluation.leaderboard_variance(games, rewards)
    torch.testing.assert_close(shift[0] - shift[1], variance[0, 1], rtol=1e-3, atol=0)


def test_answering_gain_changes_sign_at_the_threshold():
    """A penalty of t/(1 − t) makes a threshold of t: points are won above it only."""
    for t in (0.5, 0.75, 0.9):
        gain = evaluation.answering_gain(numbers(t - 0.01, t, t + 0.01), penalty=t / (1 - t))
        assert gain[0] < 0 < gain[2]
        close(gain[1], 0.0)


def test_brier_score_of_one_half_is_a_quarter():
    outcomes = numbers(1, 0, 0, 1)
    said = torch.full((4,), 0.5, dtype=torch.float64)
    close(evaluation.brier_score(said, outcomes), 0.25)
    close(torch.stack(evaluation.brier_parts(said, outcomes)), [0.0, 0.0, 0.25])


def test_selected_score_of_many_coins_is_above_one_half():
    half = numbers(0.5)
    scores = [float(evaluation.selected_score(half, items=100, tries=k)) for k in (1, 10, 100, 1000)]
    close(scores[0], 0.5)
    assert all(a + 0.02 < b for a, b in itertools.pairwise(scores))


def test_ngram_overlap_of_a_copy_a_stranger_and_a_short_item():
    text = ["the", "cat", "sat", "on", "the", "mat"]
    seen = set(evaluation.ngrams(text, n=3))
    assert evaluation.ngram_overlap(text, seen, n=3) == 1.0
    assert evaluation.ngram_overlap(["a", "dog", "ran", "in", "that", "fog"], seen, n=3) == 0.0
    assert evaluation.ngram_overlap(["the", "cat"], seen, n=3) == 0.0
    # One word of six changed in the middle breaks three of the four runs.
    assert evaluation.ngram_overlap(["the", "cat", "sat", "upon", "the", "mat"], seen, n=3) == 0.25


# -- what they refuse --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "arguments", "argument"),
    [
        (evaluation.wilson_interval, (numbers(3), numbers(2)), "successes"),
        (evaluation.wald_interval, (numbers(0), numbers(0)), "successes"),
        (wilson_interval, (3, 2), "successes"),
        (evaluation.resampling_law, (4, 3), "successes"),
        (evaluation.paired_variance, (numbers(1), numbers(2)), "ours"),
        (evaluation.leaderboard_information, (numbers([0, 1], [2, 0]), numbers(0, 0)), "games"),
        (functools.partial(evaluation.items_needed, item=1.0, reply=0.0), (0.0,), "effect"),
        (functools.partial(evaluation.ngram_overlap, n=0), ("abc", set()), "n"),
    ],
    ids=["wilson", "wald", "wilson of a run", "resampling", "paired", "leaderboard", "items_needed", "ngram_overlap"],
)
def test_evaluation_refuses_arguments_by_name(function, arguments, argument):
    with raises(ArgumentError, argument=argument):
        function(*arguments)


# -- the worlds of its study -------------------------------------------------------------------------------------


def test_vote_is_the_sum_over_all_sequences_of_answers():
    law, right = numbers(0.4, 0.35, 0.25), 0.0
    for answers in itertools.product(range(3), repeat=4):
        counts = [answers.count(a) for a in range(3)]
        if counts[0] == max(counts):
            right += math.prod(float(law[a]) for a in answers) / counts.count(max(counts))
    close(experiments.vote(law, 4), right)


def test_rankings_differ_by_measure():
    found = experiments.rankings()
    close(found["A_pass_8"], 1 - (0.05**8 + 0.99**8) / 2)
    close(found["B_all_8"], 0.4**8)
    assert found["A_pass_1"] > found["B_pass_1"] and found["A_all_8"] > found["B_all_8"]
    assert found["A_vote_9"] > found["B_vote_9"] and found["A_pass_8"] < found["B_pass_8"]


def test_study_models_are_right_at_70_and_75_percent():
    for shift, mean in ((1.3842, 0.70), (1.7827, 0.75)):
        found = exact.gaussian_expectation(lambda x, shift=shift: torch.sigmoid(2.0 * x + shift))
        close(found, mean, 4)


def test_climbing_raises_the_public_score_only():
    found = experiments.climbing(3, submissions=400, items=2000)
    assert found["public"] > 0.6
    assert abs(found["private"] - 0.5) < 5 * 0.5 / math.sqrt(2000)
