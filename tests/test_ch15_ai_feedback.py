"""Chapter 15: cases worked by hand, what its equations refuse and say of one another, and that the counted world is what it says."""

import math

import pytest
import torch

from minirlhf.chapters.ch15_ai_feedback import counted
from minirlhf.data.tasks.assistant import features, gold
from minirlhf.equations import ai_feedback as ai
from minirlhf.equations.comparisons import flipped_information


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def close(got, want, digits=9):
    got, want = (torch.as_tensor(x, dtype=torch.float64) for x in (got, want))
    torch.testing.assert_close(got, want, atol=0.6 * 10**-digits, rtol=0)


# -- worked by hand ----------------------------------------------------------------------------------------------


def test_a_judge_that_always_says_a_has_no_preference():
    """Both leans are 3: the replies are equally good to it, and the first place is worth 3 nats."""
    prefers, place = ai.both_orders(numbers(3.0), numbers(3.0))
    assert float(prefers) == 0.0 and float(place) == 3.0


def test_the_mean_of_two_probabilities_is_not_the_probability_of_the_mean_lean():
    """Difference 1, liking 2: the mean of σ(3) and 1 − σ(1) is .611, and σ(1) is .731."""
    close((torch.sigmoid(numbers(3.0)) + 1 - torch.sigmoid(numbers(1.0))) / 2, numbers(0.611), digits=3)
    prefers, _ = ai.both_orders(numbers(3.0), numbers(1.0))
    close(torch.sigmoid(prefers), numbers(0.731), digits=3)


def test_the_swap_test_buys_accuracy_with_pairs():
    """Right among the pairs that pass it: odds e^{2d}, whatever the liking; the liking costs pairs."""
    difference = torch.full((3,), 0.7, dtype=torch.float64)
    right, wrong = ai.swap_outcomes(difference, numbers(0.0, 1.0, 3.0))
    close(right / wrong, torch.full((3,), math.exp(1.4), dtype=torch.float64))
    kept = right + wrong
    assert bool((kept.diff() < 0).all())


def test_a_group_of_three_can_stop_a_majority_of_a_hundred():
    all_agree = ai.group_consensus(numbers(90.0, 3.0), numbers(100.0, 3.0))
    small_group_against = ai.group_consensus(numbers(100.0, 0.0), numbers(100.0, 3.0))
    close(all_agree, 91 / 102 * 4 / 5)
    close(small_group_against, 101 / 102 * 1 / 5)


def test_revision_ends_where_repair_and_harm_balance():
    assert ai.flaws_left(start=1.0, rounds=2000, principles=4, repair=0.6, harm=0.2) == pytest.approx(0.25)
    assert ai.flaws_left(start=0.8, rounds=0, principles=4, repair=0.6, harm=0.2) == 0.8


PRICES = {"cost": 10.0, "information": 0.09, "ai_cost": 1.0, "ai_information": 0.25}


def test_a_mixture_is_never_worse_than_either_and_the_split_is_the_best_of_a_thousand():
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


def test_beyond_a_fixed_sum_all_money_goes_to_people():
    found = [ai.ai_budget(budget, bias=0.3, **PRICES) for budget in (10.0, 1e3, 1e4, 1e5)]
    assert found[0] == 10.0 and found[1] == found[2] == found[3]


def test_a_noisy_rubric_without_noise_is_the_rubric():
    met, weights = numbers(1.0, 0.0, 1.0), numbers(3.0, 2.0, 1.0)
    mean, variance = ai.rubric_noise(met, weights, miss=numbers(0.0, 0.0, 0.0), invent=numbers(0.0, 0.0, 0.0))
    close(mean, ai.rubric_reward(met, weights))
    close(mean, 4 / 6)
    assert float(variance) == 0.0


def test_in_a_knockout_the_luck_of_the_draw_counts():
    """1 beats 0, 0 beats 2 and 3, who beat 1: 0 wins for certain unless it meets 1 first."""
    beats = {(1, 0), (0, 2), (0, 3), (2, 1), (3, 1), (2, 3)}
    wins = torch.tensor([[1.0 if (i, j) in beats else 0.0 for j in range(4)] for i in range(4)], dtype=torch.float64)
    assert ai.knockout(wins).tolist() == [0.0, 0.0, 1.0, 0.0]
    order = torch.tensor([0, 2, 1, 3])
    assert ai.knockout(wins[order][:, order]).tolist() == [1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: ai.letter_preference(numbers(1.0, 2.0), first=1, second=1),
            "expected two tokens of a vocabulary of 2",
        ),
        (lambda: ai.knockout(torch.full((3, 3), 0.5).double()), "expected 2, 4, 8"),
        (lambda: ai.knockout(torch.full((2, 2), 0.6).double()), r"wins\[i, j\] \+ wins\[j, i\] = 1"),
        (lambda: ai.group_consensus(numbers(3.0), numbers(2.0)), "expected agrees ≤ votes"),
        (lambda: ai.screened_accuracy(numbers(0.5), numbers(0.0), numbers(0.0)), "some verdict is let through"),
        (
            lambda: ai.self_preference(numbers(1.0, 0.0), torch.tensor([True, False]), torch.tensor([True, True])),
            "preferred replies of the judge and of others",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call()


# -- the world of counted replies --------------------------------------------------------------------------------


def test_a_counted_reply_is_worth_what_such_a_reply_of_the_assistant_world_is_worth():
    said = features("tell me about cats", "sure! clever cats purr and nap um")
    twin = next(i for i, r in enumerate(counted.REPLIES) if (r.facts, r.polite, r.praise, r.filler) == (2, 1, 1, 1))
    assert gold(said) == pytest.approx(float(counted.GOLD[twin]) + 0.1 * (counted.REPLIES[twin].length - said.length))


def test_a_fitted_reward_has_a_slope_of_zero_in_its_loss():
    made = counted.labels(300, 0, "somebody", flip=0.1)
    feats = counted.standardised(counted.MET)
    weights = torch.linalg.lstsq(feats, counted.fit(feats, *made.parts)).solution.requires_grad_()
    gap = (feats[made.first] - feats[made.second]) @ weights
    loss = torch.nn.functional.binary_cross_entropy_with_logits(gap, made.wins) + counted.L2 * weights.square().sum()
    (slope,) = torch.autograd.grad(loss, weights)
    assert float(slope.abs().max()) < 1e-9


def test_labels_follow_who_gives_them():
    made = counted.labels(40_000, 1, "people", flip=0.2)
    gap = counted.GOLD[made.first] - counted.GOLD[made.second]
    certain = gap.abs() > 3 * 0.5 * 2
    right = ((gap > 0).double() == made.wins)[certain].double()
    assert float(right.mean()) == pytest.approx(0.8, abs=5 * 0.4 / math.sqrt(len(right)))


def test_a_tilt_goes_as_far_as_it_was_told():
    """Of all policies at that distance none has more of the reward; a constant added to it changes nothing."""
    assert counted.gold_at(counted.GOLD, 1.0) > counted.gold_at(counted.MET.sum(-1), 1.0)
    assert counted.gold_at(counted.GOLD + 5.0, 1.0) == pytest.approx(counted.gold_at(counted.GOLD, 1.0), abs=1e-9)
    assert counted.gold_at(counted.GOLD, 0.0) == pytest.approx(float(counted.REFERENCE @ counted.GOLD), abs=1e-6)


def test_both_orders_undo_a_liking_for_a_place_and_not_a_taste():
    fair, biased = counted.judge_accuracies(0.0), counted.judge_accuracies(2.0)
    assert fair["one"] == pytest.approx(fair["both"]) == pytest.approx(biased["both"])
    assert biased["one"] < fair["one"]
    assert fair["majority"] == pytest.approx(1.0) and biased["both_majority"] == pytest.approx(1.0)
    assert counted.judge_accuracies(2.0, taste=0.3)["both_majority"] < 0.9
