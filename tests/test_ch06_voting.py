"""Chapter 06's laboratory: Arrow by exhaustion, Condorcet's counts, the money pump, and groups that are found."""

import itertools
import math

import pytest
import torch
from facts import raises

from minirlhf.core.errors import ArgumentError
from minirlhf.equations import reward_losses, social_choice
from minirlhf_course.chapters.ch06_nature_of_preferences import cycles, groups, voting
from minirlhf_course.chapters.ch06_nature_of_preferences import equations as ch06
from minirlhf_course.chapters.ch06_nature_of_preferences.equations import reward_spread


def test_arrow_census_leaves_two_dictators():
    census = voting.arrow_census()
    sound = census.transitive & census.pareto
    assert (len(census.rules), int(census.transitive.sum()), int(sound.sum())) == (4096, 94, 2)
    assert sorted(voting.dictated_by(rule) for rule in census.rules[sound]) == [1, 2]


def test_arrow_census_agrees_with_rules_played_by_hand():
    """A hundred rules, each on every profile, read from the table one pair at a time."""
    census = voting.arrow_census()
    for number in torch.randperm(4096, generator=torch.Generator().manual_seed(0))[:100].tolist():
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


def test_majority_cycles_are_counted():
    assert [voting.majority_cycles(n) for n in (1, 3, 5, 7)] == [(0, 6), (12, 216), (540, 7776), (21000, 279936)]
    with raises(ArgumentError, argument="voters", value=2):
        voting.majority_cycles(2)


def test_money_pump_takes_from_a_cycle_and_not_from_an_order():
    circle = torch.tensor([[0, 1, 0], [0, 0, 1], [1, 0, 0]]).bool()
    held, paid = cycles.money_pump(circle, fee=2.0, offers=9)
    assert held[0] == held[3] == held[9] and paid[-1] == 18.0
    for order in itertools.permutations(range(3)):
        line = torch.tensor([[order.index(a) < order.index(b) for b in range(3)] for a in range(3)])
        held, paid = cycles.money_pump(line, fee=1.0, offers=9, start=order[-1])
        assert held[-1] == order[0] and paid[-1] <= 2.0


def test_elo_ratings_only_move_points():
    generator = torch.Generator().manual_seed(0)
    games = torch.stack([cycles.play(cycles.ring(0.7), 50, generator) for _ in range(4)])
    assert cycles.win_matrix(games[0], 3).sum() == 50 and bool((cycles.win_matrix(games[0], 3).diag() == 0).all())
    ratings = cycles.elo_ratings(games, 3, k=16.0)
    assert ratings.shape == (4, 51, 3)
    torch.testing.assert_close(ratings.sum(-1), torch.zeros(4, 51, dtype=torch.float64))


def test_misfit_is_zero_where_bradley_terry_holds():
    chances = social_choice.mixture_preference(torch.tensor([[1.0, 0.2, -0.5]]).double(), torch.ones(1).double())
    assert cycles.misfit(100 * chances).item() == pytest.approx(0.0, abs=1e-6)
    assert cycles.misfit(100 * cycles.ring(0.6)).item() > 10


REMEDIES = {  # the chapter's table: worth to the two groups, half and half, and at 60 to 40
    "one reward model for all labels": (0.067, 0.067, 0.103, 0.030),
    "the mean of the utilities": (0.085, 0.085, 0.306, -0.143),
    "mean minus standard deviation": (0.169, 0.169, 0.231, 0.102),
    "maximum of the worst group": (0.085, 0.085, 0.085, 0.085),
    "the policy of a random person": (0.033, 0.033, 0.194, -0.128),
    "each their own": (0.838, 0.838, 0.838, 0.838),
}


def test_remedies_for_two_groups_have_the_worth_of_the_table():
    half, most = (groups.remedies(groups.OPPOSITE, groups.shares(share), noise=0.1) for share in (0.5, 0.6))
    assert half.keys() == REMEDIES.keys()
    for name, printed in REMEDIES.items():
        assert [*half[name].tolist(), *most[name].tolist()] == pytest.approx(printed, abs=5.1e-4), name


def test_policy_for_mean_less_spread_costs_more_than_it_is_worth():
    weights = groups.shares(0.5)
    mean, spread = reward_spread(groups.OPPOSITE, weights)
    for policy, kl, net in (
        (groups.policy_for(mean - spread), 0.563, -0.112),
        (groups.best_for_the_worst_off(groups.OPPOSITE), 0.019, 0.076),
    ):
        found = float((policy * (policy * len(policy)).log()).sum())
        assert found == pytest.approx(kl, abs=5.1e-4)
        assert (groups.OPPOSITE @ policy - groups.BETA * found).tolist() == pytest.approx([net, net], abs=5.1e-4)


def test_best_for_the_worst_off_is_beaten_by_no_policy():
    """Against ten thousand policies, on tastes that are not symmetric."""
    rewards = torch.tensor([[1.0, 0.2, -1.0], [-0.4, 0.1, 0.6]], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    policies = (2 * torch.randn(10_000, 3, generator=generator, dtype=torch.float64)).softmax(-1)
    found = groups.best_for_the_worst_off(rewards)

    def smallest(policy):
        kl = (policy * (policy * 3).log()).sum(-1, keepdim=True)
        return (policy @ rewards.T - groups.BETA * kl).amin(-1)

    assert bool((smallest(policies) <= smallest(found[None]) + 1e-9).all())


def test_pooled_reward_is_small_where_groups_disagree():
    """At 60 to 40 a fitted difference of .054 where the mean utilities differ by .40; one pair alone has log-odds of .41."""
    fitted = groups.pooled_reward(groups.OPPOSITE, groups.shares(0.6), noise=0.1)
    assert (fitted[0] - fitted[2]).item() == pytest.approx(0.054, abs=5e-4)
    mean = groups.shares(0.6) @ groups.OPPOSITE
    assert (mean[0] - mean[2]).item() == pytest.approx(0.40)
    alone = groups.pooled_reward(groups.OPPOSITE[:, [0, 2]], groups.shares(0.6), noise=0.1) / 0.1
    assert (alone[0] - alone[1]).item() == pytest.approx(0.41, abs=5e-3)


def test_pooled_reward_winner_depends_on_label_noise():
    winners = {
        noise: groups.REPLIES[
            int(groups.pooled_reward(groups.MILD_AND_STRONG, groups.shares(0.6), noise=noise).argmax())
        ]
        for noise in (0.05, 0.1, 0.25, 0.5, 1.0)
    }
    assert winners == {0.05: "short", 0.1: "middle", 0.25: "middle", 0.5: "long", 1.0: "long"}


def test_choice_models_give_the_numbers_worked_by_hand():
    """One example under three models of a ranking; Borda with a third reply; three voters; gains and losses."""
    r = torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64)
    first, second = float(r.softmax(-1)[0]), float(r[1:].softmax(-1)[0])
    assert (first, second) == pytest.approx((0.665241, 0.731059), abs=5e-7)
    assert reward_losses.plackett_luce_logp(r).exp().item() == pytest.approx(first * second)
    worst = reward_losses.plackett_luce_logp(r.flip(-1)).exp().item()
    assert worst == pytest.approx(0.024, abs=5e-4)
    orders = torch.tensor(list(itertools.permutations(range(3))))
    mallows = reward_losses.mallows_logp(orders, dispersion=1.0).exp()
    assert (mallows[0].item(), mallows[-1].item()) == pytest.approx(
        (first * second, worst)
    )  # equal gaps: the same ends
    votes = torch.tensor([[0.5, 0.6, 0.6], [0.4, 0.5, 1.0], [0.4, 0.0, 0.5]], dtype=torch.float64)
    assert social_choice.borda_scores(votes).tolist() == pytest.approx([0.600, 0.700, 0.200])
    assert ch06.majority_accuracy(torch.tensor(0.6), voters=3).item() == pytest.approx(0.648)
    coin, two = torch.tensor(0.5, dtype=torch.float64), torch.tensor(2.0, dtype=torch.float64)
    weights = [ch06.probability_weight(coin, gamma=g).item() for g in (0.61, 0.69)]
    assert [*weights, ch06.prospect_value(two).item()] == pytest.approx([0.421, 0.454, 1.840], abs=5e-4)


def test_money_pump_starts_with_what_is_held():
    line = torch.tensor([[0, 1, 1], [0, 0, 1], [0, 0, 0]]).bool()
    assert cycles.money_pump(line, fee=0.5, offers=2, start=2) == ([2, 0, 0], [0.0, 0.5, 0.5])


def test_ring_of_four_leaves_opposite_answers_even():
    win = 0.7
    by_hand = [[0.5, win, 0.5, 1 - win], [1 - win, 0.5, win, 0.5], [0.5, 1 - win, 0.5, win], [win, 0.5, 1 - win, 0.5]]
    torch.testing.assert_close(cycles.ring(win, 4), torch.tensor(by_hand, dtype=torch.float64))


def test_play_meets_all_pairs_and_writes_winners_first():
    surely = torch.ones(4, 4, dtype=torch.float64).triu(1)
    played = cycles.play(surely, 400, torch.Generator().manual_seed(0))
    assert set(map(tuple, played.tolist())) == {(a, b) for a in range(4) for b in range(a + 1, 4)}


def test_elo_ratings_give_half_of_k_for_a_first_win():
    games = torch.tensor([[[0, 1]], [[2, 0]]])
    path = cycles.elo_ratings(games, 3, k=12.0)
    assert path[:, -1].tolist() == [[6.0, -6.0, 0.0], [-6.0, 0.0, 6.0]]


def test_misfit_counts_each_game_once():
    """Also where a pair met only once; a ring, so that all rewards are equal and every chance is one half."""
    wins = torch.tensor([[0, 1, 0], [0, 0, 1], [1, 0, 0]], dtype=torch.float64)
    assert cycles.misfit(wins).item() == pytest.approx(2 * 3 * math.log(2))


def test_label_follows_the_preference_of_the_group():
    rewards = torch.tensor([[90.0, 60.0, 30.0, 0.0], [0.0, 30.0, 60.0, 90.0]], dtype=torch.float64)
    labels = groups.label(rewards, 40, 25, torch.Generator().manual_seed(1))
    assert labels.group.bincount().tolist() == [20, 20]
    assert labels.wins.sum((1, 2)).tolist() == [25.0] * 40
    upper, lower = torch.ones(4, 4).triu(1).bool(), torch.ones(4, 4).tril(-1).bool()
    for group, right in ((0, upper), (1, lower)):
        wins = labels.wins[labels.group == group].sum(0)
        assert torch.equal(wins > 0, right)


def test_fit_smoothed_adds_half_a_win_to_either_side():
    fitted = groups.fit_smoothed(torch.tensor([[0.0, 3.0], [0.0, 0.0]], dtype=torch.float64))
    assert (fitted[0] - fitted[1]).item() == pytest.approx(math.log(3.5 / 0.5), abs=1e-3)


def likelihood_and_posterior(wins, rewards, share):
    """Of two groups: the log-likelihood of everybody's labels, and each person's chance of the first; by loops."""
    total, chances = 0.0, []
    for person in wins:
        logs = [math.log(share), math.log(1 - share)]
        for g, a, b in itertools.product(range(2), range(wins.shape[-1]), range(wins.shape[-1])):
            logs[g] -= float(person[a, b]) * math.log1p(math.exp(float(rewards[g, b] - rewards[g, a])))
        top = max(logs)
        both = top + math.log(sum(math.exp(x - top) for x in logs))
        total += both
        chances.append(math.exp(logs[0] - both))
    return total, torch.tensor(chances, dtype=torch.float64)


@pytest.mark.slow
def test_find_groups_rests_in_both_steps_and_keeps_the_likeliest_start():
    """Three people of four belong to one group, so that the shares matter; labels are few, so that doubts are left."""
    rewards = torch.tensor([[1.0, 0.0, -1.0], [-1.0, 0.3, 1.0]], dtype=torch.float64)
    labels = groups.label(rewards, 32, 6, torch.Generator().manual_seed(3))
    wins = labels.wins[(labels.group == 0) | (torch.arange(32) % 6 == 1)]
    belongs, found = groups.find_groups(wins, torch.Generator().manual_seed(4), starts=1, steps=400)
    _, again = likelihood_and_posterior(wins, found, float(belongs.mean()))
    torch.testing.assert_close(belongs, again, atol=2e-3, rtol=0)
    for g, weight in enumerate((belongs, 1 - belongs)):
        fitted = groups.fit_smoothed(torch.einsum("n,nab->ab", weight, wins))
        torch.testing.assert_close(found[g], fitted, atol=2e-3, rtol=0)
    one = torch.Generator().manual_seed(5)
    alone = [groups.find_groups(wins, one, starts=1, steps=4) for _ in range(5)]
    best = groups.find_groups(wins, torch.Generator().manual_seed(5), starts=5, steps=4)
    values = [likelihood_and_posterior(wins, r, float(b.mean()))[0] for b, r in alone]
    assert max(values) - min(values) > 0.1, "the starts should differ"
    assert torch.equal(best[0], alone[values.index(max(values))][0])
