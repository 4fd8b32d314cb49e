"""Chapter 19: the cases that its text works by hand, what its equations refuse, and what they say of one another."""

import functools
import itertools
import math

import pytest
import torch
from facts import raises

from minirlhf.core import exact, statistics
from minirlhf.core.errors import ArgumentError
from minirlhf.equations import evaluation
from minirlhf.trainers.evaluation import wilson_interval
from minirlhf_course.chapters.ch19_evaluation import equations as ch19
from minirlhf_course.chapters.ch19_evaluation import experiments


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def close(got, want, digits=9):
    got, want = (torch.as_tensor(x, dtype=torch.float64) for x in (got, want))
    torch.testing.assert_close(got, want, atol=0.6 * 10**-digits, rtol=0)


# -- worked by hand ----------------------------------------------------------------------------------------------


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


def test_items_needed_is_infinite_where_seeds_are_too_few():
    effect, floor = 0.02, 0.02 / (1.959963984540054 + 0.8416212335729143)
    few = evaluation.items_needed(effect, seed=1.001 * floor**2, item=0.1, reply=0.1)
    assert few == math.inf
    assert evaluation.items_needed(effect, seed=1.001 * floor**2, item=0.1, reply=0.1, seeds=2) < math.inf


def test_items_needed_for_the_power_of_no_difference_is_zero():
    """α/2 on the side of the difference: from there on each further bit of power costs items, and below it there is nothing to pay."""
    needed = [evaluation.items_needed(0.1, seed=1.0, item=0.1, reply=0.1, power=p) for p in (0.01, 0.025, 0.0251, 0.03)]
    assert needed[:2] == [0.0, 0.0] and 0 < needed[2] < needed[3]


def test_coverage_of_wilson_is_near_95_percent_where_wald_fails():
    n, truth = 30, numbers(0.97)
    counts, trials = torch.arange(n + 1).double(), torch.full((n + 1,), float(n), dtype=torch.float64)
    wald = ch19.coverage(*evaluation.wald_interval(counts, trials), truth)
    wilson = ch19.coverage(*evaluation.wilson_interval(counts, trials), truth)
    ends = numbers(*(experiments.bootstrap_interval(s, n) for s in range(n + 1)))
    bootstrap = ch19.coverage(ends[:, 0], ends[:, 1], truth)
    # An interval that all successes leave without width misses whenever all succeed.
    assert float(wald) <= 1 - 0.97**30 and float(bootstrap) <= 1 - 0.97**30
    assert float(wilson) > 0.93


def test_coverage_counts_the_ends_of_an_interval():
    """Wald's of all or of no successes is the truth of 1 or 0, and nothing else."""
    counts, trials = torch.arange(5).double(), torch.full((5,), 4.0, dtype=torch.float64)
    close(ch19.coverage(*evaluation.wald_interval(counts, trials), numbers(0.0, 1.0)), [1.0, 1.0])


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
        (ch19.resampling_law, (4, 3), "successes"),
        (ch19.paired_variance, (numbers(1), numbers(2)), "ours"),
        (ch19.leaderboard_information, (numbers([0, 1], [2, 0]), numbers(0, 0)), "games"),
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
