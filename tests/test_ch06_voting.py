"""Chapter 06's laboratory: Arrow by exhaustion, Condorcet's counts, the money pump, and groups that are found."""

import itertools

import pytest
import torch

from minirlhf.chapters.ch06_nature_of_preferences import cycles, groups, voting
from minirlhf.equations import social_choice


def test_of_4096_rules_94_never_go_in_a_circle_and_two_of_them_follow_unanimity():
    census = voting.arrow_census()
    sound = census.transitive & census.pareto
    assert (len(census.rules), int(census.transitive.sum()), int(sound.sum())) == (4096, 94, 2)
    assert sorted(voting.dictated_by(rule) for rule in census.rules[sound]) == [1, 2]


def test_the_census_agrees_with_a_rule_that_is_played_by_hand():
    """A hundred rules, each on every profile, read from the table one pair at a time."""
    census = voting.arrow_census()
    for number in torch.randperm(4096)[:100].tolist():
        rule, circles = census.rules[number], []
        for first, second in itertools.product(voting.ORDERS, repeat=2):
            ahead = set()
            for pair, (x, y) in enumerate(voting.PAIRS):
                case = [int(order.index(x) < order.index(y)) for order in (first, second)]
                ahead.add((x, y) if rule[pair, case[0], case[1]] else (y, x))
            wins = [sum(winner == x for winner, _ in ahead) for x in "abc"]
            circles.append(wins == [1, 1, 1])  # in an order somebody wins twice
        assert census.cyclic[number].tolist() == circles
        assert bool(census.pareto[number]) == all(bool(t[1, 1]) and not bool(t[0, 0]) for t in rule)


def test_majorities_that_go_in_a_circle_are_counted():
    assert [voting.majority_cycles(n) for n in (1, 3, 5, 7)] == [(0, 6), (12, 216), (540, 7776), (21000, 279936)]
    with pytest.raises(ValueError, match="voters = 2"):
        voting.majority_cycles(2)


def test_a_circle_is_pumped_and_a_line_is_not():
    circle = torch.tensor([[0, 1, 0], [0, 0, 1], [1, 0, 0]]).bool()
    held, paid = cycles.money_pump(circle, fee=2.0, offers=9)
    assert held[0] == held[3] == held[9] and paid[-1] == 18.0
    for order in itertools.permutations(range(3)):
        line = torch.tensor([[order.index(a) < order.index(b) for b in range(3)] for a in range(3)])
        held, paid = cycles.money_pump(line, fee=1.0, offers=9, start=order[-1])
        assert held[-1] == order[0] and paid[-1] <= 2.0


def test_games_are_counted_and_elo_only_moves_points():
    generator = torch.Generator().manual_seed(0)
    games = torch.stack([cycles.play(cycles.ring(0.7), 50, generator) for _ in range(4)])
    assert cycles.win_matrix(games[0], 3).sum() == 50 and bool((cycles.win_matrix(games[0], 3).diag() == 0).all())
    ratings = cycles.elo_ratings(games, 3, k=16.0)
    assert ratings.shape == (4, 51, 3)
    torch.testing.assert_close(ratings.sum(-1), torch.zeros(4, 51, dtype=torch.float64))


def test_where_bradley_terry_holds_exactly_nothing_is_left_over():
    chances = social_choice.mixture_preference(torch.tensor([[1.0, 0.2, -0.5]]).double(), torch.ones(1).double())
    assert cycles.misfit(100 * chances).item() == pytest.approx(0.0, abs=1e-6)
    assert cycles.misfit(100 * cycles.ring(0.6)).item() > 10


def test_opposite_tastes_leave_a_flat_reward_and_each_their_own_serves_all():
    served = groups.remedies(groups.OPPOSITE, groups.shares(0.5), noise=0.1)
    assert served["one reward model for all labels"].tolist() == pytest.approx([0.067, 0.067], abs=1e-3)
    assert served["everybody their own"].tolist() == pytest.approx([0.838, 0.838], abs=1e-3)
    for share in (0.5, 0.6):
        worst = {
            name: float(w.min())
            for name, w in groups.remedies(groups.OPPOSITE, groups.shares(share), noise=0.1).items()
        }
        assert worst["the best for the worst off"] >= worst["the mean of the utilities"] - 1e-9


def test_hidden_groups_are_found_from_many_labels_of_each():
    taste = torch.tensor([[1.5, 0.5, -0.5, -1.5], [-1.5, -0.5, 0.5, 1.5]], dtype=torch.float64)
    generator = torch.Generator().manual_seed(3)
    made = groups.label(taste, 30, 60, generator)
    assert bool((made.wins.sum((1, 2)) == 60).all())
    belongs, _ = groups.find_groups(made.wins, generator)
    right = float(((belongs > 0.5) == (made.group == 0)).double().mean())
    assert max(right, 1 - right) > 0.9
