"""Chapter 15: cases worked by hand, what its equations refuse and say of one another, and that the counted world is what it says."""

import functools
import math

import pytest
import torch
from facts import raises

from minirlhf.core.errors import ArgumentError
from minirlhf.data.tasks.assistant import features, gold
from minirlhf_course.chapters.ch15_ai_feedback import counted
from minirlhf_course.chapters.ch15_ai_feedback import equations as ch15


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def close(got, want, digits=9):
    got, want = (torch.as_tensor(x, dtype=torch.float64) for x in (got, want))
    torch.testing.assert_close(got, want, atol=0.6 * 10**-digits, rtol=0)


# -- worked by hand ----------------------------------------------------------------------------------------------


PRICES = {"cost": 10.0, "information": 0.09, "ai_cost": 1.0, "ai_information": 0.25}


@pytest.mark.parametrize(
    ("function", "arguments", "facts"),
    [
        (
            functools.partial(ch15.letter_preference, first=1, second=1),
            [numbers(1.0, 2.0)],
            {"argument": "first, second", "value": (1, 1)},
        ),
        (ch15.knockout, [torch.full((3, 3), 0.5).double()], {"argument": "wins", "problem": "shape"}),
        (ch15.knockout, [torch.full((2, 2), 0.6).double()], {"argument": "wins", "problem": "not symmetric"}),
        (ch15.group_consensus, [numbers(3.0), numbers(2.0)], {"argument": "agrees"}),
        (ch15.meta_judge_precision, [numbers(0.5), numbers(0.0), numbers(0.0)], {"argument": "keeps_right"}),
        (
            ch15.self_preference,
            [numbers(1.0, 0.0), torch.tensor([True, False]), torch.tensor([True, True])],
            {"argument": "gold, own"},
        ),
    ],
    ids=[
        "letter_preference",
        "knockout shape",
        "knockout",
        "group_consensus",
        "meta_judge_precision",
        "self_preference",
    ],
)
def test_ai_feedback_refuses_arguments(function, arguments, facts):
    with raises(ArgumentError, **facts):
        function(*arguments)


# -- the world of counted replies --------------------------------------------------------------------------------


def test_counted_gold_is_that_of_the_assistant_world():
    said = features("tell me about cats", "sure! clever cats purr and nap um")
    twin = next(i for i, r in enumerate(counted.REPLIES) if (r.facts, r.polite, r.praise, r.filler) == (2, 1, 1, 1))
    assert gold(said) == pytest.approx(float(counted.GOLD[twin]) + 0.1 * (counted.REPLIES[twin].length - said.length))


def test_counted_fit_zeroes_the_gradient():
    made = counted.labels(300, 0, "somebody", flip=0.1)
    feats = counted.standardised(counted.MET)
    weights = torch.linalg.lstsq(feats, counted.fit(feats, *made.parts)).solution.requires_grad_()
    gap = (feats[made.first] - feats[made.second]) @ weights
    loss = torch.nn.functional.binary_cross_entropy_with_logits(gap, made.wins) + counted.L2 * weights.square().sum()
    (slope,) = torch.autograd.grad(loss, weights)
    assert float(slope.abs().max()) < 1e-9


def test_counted_labels_follow_flip_rate():
    made = counted.labels(40_000, 1, "people", flip=0.2)
    gap = counted.GOLD[made.first] - counted.GOLD[made.second]
    certain = gap.abs() > 3 * 0.5 * 2
    right = ((gap > 0).double() == made.wins)[certain].double()
    assert float(right.mean()) == pytest.approx(0.8, abs=5 * 0.4 / math.sqrt(len(right)))


def test_counted_gold_at_a_kl_is_best_for_gold():
    """Of all policies at that distance none has more of the reward; a constant added to it changes nothing."""
    assert counted.gold_at(counted.GOLD, 1.0) > counted.gold_at(counted.MET.sum(-1), 1.0)
    assert counted.gold_at(counted.GOLD + 5.0, 1.0) == pytest.approx(counted.gold_at(counted.GOLD, 1.0), abs=1e-9)
    assert counted.gold_at(counted.GOLD, 0.0) == pytest.approx(float(counted.REFERENCE @ counted.GOLD), abs=1e-6)


def test_judge_accuracies_of_both_orders_undo_position_bias_only():
    fair, biased = counted.judge_accuracies(0.0), counted.judge_accuracies(2.0)
    assert fair["one"] == pytest.approx(fair["both"]) == pytest.approx(biased["both"])
    assert biased["one"] < fair["one"]
    assert fair["majority"] == pytest.approx(1.0) and biased["both_majority"] == pytest.approx(1.0)
    assert counted.judge_accuracies(2.0, taste=0.3)["both_majority"] < 0.9


def test_direct_feedback_without_bias_is_the_gold_reward():
    measured = counted.direct_feedback(0.0, distances=(1.0,))
    close(measured["direct_1"], counted.gold_at(counted.GOLD, 1.0))
    assert measured["levels_1"] < measured["direct_1"] and measured["model_1"] < measured["direct_1"]


def test_direct_feedback_in_many_levels_is_the_score():
    measured = counted.direct_feedback(0.3, levels=100_000, distances=(2.0,))
    close(measured["levels_2"], measured["direct_2"], digits=3)


def test_direct_feedback_keeps_the_bias_and_loses_the_model_error():
    found = {bias: counted.direct_feedback(bias) for bias in (0.1, 0.3, 0.6)}
    for measured in found.values():
        for distance in (1, 2, 4):
            assert measured[f"direct_{distance}"] > measured[f"model_{distance}"]
            assert measured[f"direct_{distance}"] < counted.gold_at(counted.GOLD, distance)
    assert found[0.6]["model_4"] < found[0.6]["model_2"]
    assert all(found[bias][f"levels_{d}"] < found[bias][f"model_{d}"] for bias in (0.1, 0.3) for d in (1, 2, 4))
