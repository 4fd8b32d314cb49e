"""Numbers that chapter 19 and its slides work out by hand, computed from the library and from the study; book/typed_numbers.toml holds the words to them."""

import math
from statistics import fmean

import pytest
import torch

from minirlhf.equations import evaluation
from minirlhf.equations.estimators import pass_at_k
from minirlhf_course import evidence
from minirlhf_course.chapters.ch19_evaluation import equations as ch19
from minirlhf_course.chapters.ch19_evaluation import experiments

TEN, NONE = (torch.tensor(x, dtype=torch.float64) for x in (10.0, 0.0))


def printed(values, digits=2):
    """As the book prints them."""
    return [round(float(x), digits) for x in values]


def test_pass_at_5_of_ten_replies_of_which_three_are_right():
    assert (math.comb(7, 5), math.comb(10, 5)) == (21, 252)
    assert printed([1 - 21 / 252, pass_at_k(10, 3, k=5)], 4) == [0.9167, 0.9167]


def test_wilson_interval_of_ten_of_ten_begins_at_72_hundredths():
    low, high = evaluation.wilson_interval(TEN, TEN)
    assert printed([low]) == [0.72] and float(high) == 1.0


def test_win_rate_interval_of_ten_ties_and_the_variance_of_a_vote():
    assert printed(evaluation.win_rate_interval(NONE, TEN, NONE)) == [0.36, 0.64]
    assert printed(evaluation.wilson_interval(TEN / 2, TEN)) == [0.24, 0.76]
    vote = torch.tensor([1.0] * 3 + [0.5] * 4 + [0.0] * 3)  # 30 % wins, 40 % ties
    assert float(vote.var(correction=0)) == pytest.approx(0.15)


def test_coverages_at_the_right_end_of_the_figure():
    at_the_end, at_ninety = experiments.coverages(30, 0.995), experiments.coverages(30, 0.9)
    assert printed([at_the_end["wilson"]]) == [0.86] and max(at_the_end["wald"], at_the_end["bootstrap"]) < 0.2
    assert min(at_ninety["wald"], at_ninety["bootstrap"]) > 0.8


def test_design_effect_of_150_items_in_fives():
    effect = float(ch19.design_effect(torch.tensor(5.0), torch.tensor(0.4)))
    assert effect == pytest.approx(2.6) and round(150 / effect) == 58


def test_items_needed_to_tell_70_from_75_percent():
    """Unpaired items: the variance of one item's difference is .70 · .30 + .75 · .25."""
    noise = 0.70 * 0.30 + 0.75 * 0.25
    assert noise == pytest.approx(0.3975)
    needed = evaluation.items_needed(0.05, item=noise, reply=0.0)
    assert needed == pytest.approx((1.959963984540054 + 0.8416212335729143) ** 2 * noise / 0.05**2, abs=6e-7)
    assert math.ceil(needed) == 1248 and noise / needed == pytest.approx(0.0025 / 7.85, rel=1e-3)
    assert evaluation.items_needed(0.025, item=noise, reply=0.0) == pytest.approx(4 * needed)


def test_normalised_scores_and_pointwise_information_choose_three_answers():
    """The table of the page: yes; in the spring; photosynthesis."""
    logps, priors = (torch.tensor(x, dtype=torch.float64) for x in ([-2.0, -4.5, -7.0], [-1.0, -5.0, -10.0]))
    lengths = torch.tensor([1, 3, 4], dtype=torch.float64)
    columns = [
        evaluation.normalised_scores(logps, lengths, exponent=0.0),
        evaluation.normalised_scores(logps, lengths, exponent=1.0),
        evaluation.pointwise_information(logps, priors),
    ]
    assert [printed(column) for column in columns] == [[-2.0, -4.5, -7.0], [-2.00, -1.50, -1.75], [-1.0, 0.5, 3.0]]
    assert [int(column.argmax()) for column in columns] == [0, 1, 2]


def test_study_ch19_has_the_numbers_of_the_slides():
    found = evidence.result("ch19")
    means = lambda *names: [fmean(evidence.values(found, name)) for name in names]
    assert printed(means("A_pass_1", "A_pass_8", "A_all_8", "A_vote_9")) == [0.48, 0.54, 0.33, 0.50]
    assert printed(means("B_pass_1", "B_pass_8", "B_vote_9")) == [0.40, 0.98, 0.27]
    assert printed(means("B_all_8"), 3) == [0.001]
    assert printed(means("coverage_wald", "coverage_bootstrap", "coverage_wilson")) == [0.60, 0.59, 0.94]
    assert printed(means("climb_500_private")) == [0.50]
