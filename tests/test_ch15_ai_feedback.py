"""Chapter 15: cases worked by hand, what its equations refuse and say of one another, and that the counted world is what it says."""

import functools
import math

import pytest
import torch
from facts import raises

from minirlhf.chapters.ch15_ai_feedback import counted
from minirlhf.core.errors import ArgumentError
from minirlhf.data.tasks.assistant import features, gold
from minirlhf.equations import ai_feedback as ai
from minirlhf.equations.comparisons import flipped_information


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def close(got, want, digits=9):
    got, want = (torch.as_tensor(x, dtype=torch.float64) for x in (got, want))
    torch.testing.assert_close(got, want, atol=0.6 * 10**-digits, rtol=0)


# -- worked by hand ----------------------------------------------------------------------------------------------


def test_both_orders_of_a_judge_that_always_says_a():
    """Both leans are 3: the replies are equally good to it, and the first place is worth 3 nats."""
    prefers, place = ai.both_orders(numbers(3.0), numbers(3.0))
    assert float(prefers) == 0.0 and float(place) == 3.0


def test_swap_outcomes_have_the_same_odds_and_fewer_pairs_under_bias():
    """Right among the pairs that pass it: odds e^{2d}, whatever the liking; the liking costs pairs."""
    difference = torch.full((3,), 0.7, dtype=torch.float64)
    right, wrong = ai.swap_outcomes(difference, numbers(0.0, 1.0, 3.0))
    close(right / wrong, torch.full((3,), math.exp(1.4), dtype=torch.float64))
    kept = right + wrong
    assert bool((kept.diff() < 0).all())


PRICES = {"cost": 10.0, "information": 0.09, "ai_cost": 1.0, "ai_information": 0.25}


def test_ai_budget_is_the_best_split_of_a_thousand():
    """Close calls, a fifth of people's labels turned round: (1 − 2·.2)²/4 = .09."""
    close(flipped_information(numbers(0.0), flip=0.2), numbers(0.09))
    budget, bias = 2000.0, 0.3

    def error(spent):
        left = torch.tensor(budget - spent, dtype=torch.float64)
        variance = ai.label_error(left, numbers(0.0)[0], cost=10.0, information=0.09)
        model = ai.label_error(torch.tensor(spent).double(), numbers(bias)[0], cost=1.0, information=0.25)
        mixed = ai.mixed_error(variance, model)
        assert float(mixed) <= min(float(variance), float(model))
        return float(mixed)

    best = ai.ai_budget(budget, bias=bias, **PRICES)
    grid = [error(budget * k / 1000) for k in range(1, 1000)]
    assert error(best) <= min(grid) + 1e-12
    assert 0 < best < budget


def test_ai_budget_beyond_a_fixed_sum_goes_to_people():
    found = [ai.ai_budget(budget, bias=0.3, **PRICES) for budget in (10.0, 1e3, 1e4, 1e5)]
    assert found[0] == 10.0 and found[1] == found[2] == found[3]


def test_rubric_noise_of_zero_is_the_rubric():
    met, weights = numbers(1.0, 0.0, 1.0), numbers(3.0, 2.0, 1.0)
    mean, variance = ai.rubric_noise(met, weights, miss=numbers(0.0, 0.0, 0.0), invent=numbers(0.0, 0.0, 0.0))
    close(mean, ai.rubric_reward(met, weights))
    close(mean, 4 / 6)
    assert float(variance) == 0.0


def test_knockout_depends_on_the_draw():
    """1 beats 0, 0 beats 2 and 3, who beat 1: 0 wins for certain unless it meets 1 first."""
    beats = {(1, 0), (0, 2), (0, 3), (2, 1), (3, 1), (2, 3)}
    wins = torch.tensor([[1.0 if (i, j) in beats else 0.0 for j in range(4)] for i in range(4)], dtype=torch.float64)
    assert ai.knockout(wins).tolist() == [0.0, 0.0, 1.0, 0.0]
    order = torch.tensor([0, 2, 1, 3])
    assert ai.knockout(wins[order][:, order]).tolist() == [1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("function", "arguments", "facts"),
    [
        (
            functools.partial(ai.letter_preference, first=1, second=1),
            [numbers(1.0, 2.0)],
            {"argument": "first, second", "value": (1, 1)},
        ),
        (ai.knockout, [torch.full((3, 3), 0.5).double()], {"argument": "wins", "problem": "shape"}),
        (ai.knockout, [torch.full((2, 2), 0.6).double()], {"argument": "wins", "problem": "not symmetric"}),
        (ai.group_consensus, [numbers(3.0), numbers(2.0)], {"argument": "agrees"}),
        (ai.screened_accuracy, [numbers(0.5), numbers(0.0), numbers(0.0)], {"argument": "keeps_right"}),
        (
            ai.self_preference,
            [numbers(1.0, 0.0), torch.tensor([True, False]), torch.tensor([True, True])],
            {"argument": "gold, own"},
        ),
    ],
    ids=["letter_preference", "knockout shape", "knockout", "group_consensus", "screened_accuracy", "self_preference"],
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
