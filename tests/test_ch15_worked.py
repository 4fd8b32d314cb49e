"""Numbers that chapter 15 works out by hand, computed from the library; the page's are held to them by book/typed_numbers.toml."""

import dataclasses
import math

import pytest
import torch

from minirlhf.data.tasks.assistant import gold
from minirlhf.equations import ai_feedback
from minirlhf_course import evidence
from minirlhf_course.chapters.ch15_ai_feedback import counted, rules
from minirlhf_course.chapters.ch15_ai_feedback import equations as ch15
from minirlhf_course.chapters.ch15_ai_feedback.judges import JudgesPlan

#: Of the example of close calls: what labels of people and of an AI cost and tell.
PRICES = {"cost": 10.0, "information": 0.09, "ai_cost": 1.0, "ai_information": 0.25}


def number(x):
    """In double precision."""
    return torch.tensor(x, dtype=torch.float64)


def printed(value, digits=2):
    """As the book prints it."""
    return round(float(value), digits)


def sigma(x):
    return 1 / (1 + math.exp(-x))


def study_mean(study, name):
    values = evidence.StudyResults(study).values(name)
    return sum(values) / len(values)


def test_counted_world_has_192_replies():
    assert len(counted.REPLIES) == 192 == 4**3 * 3


def test_flaws_left_after_rounds_of_revision():
    flaws = {"principles": 4, "repair": 0.6, "harm": 0.2}
    left = [ch15.remaining_flaws(start=1.0, rounds=n, **flaws) for n in (1, 4, 10)]
    assert [printed(x) for x in left] == [0.85, 0.56, 0.33]
    assert ch15.remaining_flaws(start=1.0, rounds=2000, **flaws) == pytest.approx(0.25)  # repair and harm balance
    assert ch15.remaining_flaws(start=0.8, rounds=0, **flaws) == 0.8


def test_group_consensus_of_two_groups_and_two_statements():
    found = ch15.group_consensus(number([[100, 0], [90, 3]]), number([[100, 3], [100, 3]])).tolist()
    assert found == pytest.approx([101 / 102 / 5, 91 / 102 * 4 / 5], abs=1e-9)
    assert [printed(x) for x in found] == [0.20, 0.71]


def test_both_orders_average_log_odds_and_not_probabilities():
    first, second = sigma(1 + 2), 1 - sigma(-1 + 2)
    assert [printed(x, 3) for x in (first, second, (first + second) / 2)] == [0.953, 0.269, 0.611]
    lean, _ = ai_feedback.split_position_bias(number(1.0 + 2.0), number(-1.0 + 2.0))
    assert printed(torch.sigmoid(lean), 3) == 0.731


def test_swap_outcomes_count_the_pairs_that_pass():
    passing = [sum(ch15.swap_outcomes(number(0.7), number(b))) for b in (0.0, 3.0)]
    assert [round(100 * float(p)) for p in passing] == [56, 11]


def test_self_preference_is_seen_where_own_replies_are_further_ahead():
    """Two kinds of replies, judged without a liking for either."""
    seen = number([sigma(2.0)] * 3 + [sigma(0.5)] * 2)
    assert printed(ch15.self_preference(seen, torch.ones(5), number([1, 1, 1, 0, 0]))) == 0.26


def test_screened_accuracy_of_a_meta_judge():
    p, t, f = 0.7, 0.9, 0.3
    assert float(ch15.meta_judge_precision(number(p), number(t), number(f))) == pytest.approx(0.875)
    assert (printed(p / (1 - p), 1), 0.875 / 0.125) == (2.3, 7)
    assert p * t + (1 - p) * f == pytest.approx(0.72)


def test_label_crossover_where_people_and_ai_are_worth_the_same():
    assert (round(10 / 0.09), 1 / 0.25) == (111, 4)
    found = ch15.label_crossover(number([0.3, 0.1]), **PRICES).tolist()
    assert [round(x, -1) for x in found] == [1190, 10710] and round(found[1], -2) == 10_700
    assert round(found[0] / PRICES["cost"]) == 119


def test_ai_budget_takes_the_first_money():
    fixed = ch15.ai_budget(1e6, bias=0.3, **PRICES)
    assert round(0.25 / 0.009, 1) == 27.8 and round(fixed, -1) == 190
    assert ch15.ai_budget(100, bias=0.3, **PRICES) == 100


def test_rules_of_seen_actions_tell_of_unseen_ones():
    """Whoever knows the rules takes each name to be, with equal chances, in any category whose rules fit its seen actions."""
    shares = []
    for seed in range(5):
        book, seen, unseen = rules.drawn(seed, rules.RulesPlan())
        fits = {
            name: [c for c in rules.CATEGORIES if all(book.rules[c, s] == book.action((n, s)) for n, s in seen if n == name)]
            for name in rules.NAMES
        }  # fmt: skip
        right = [
            sum(book.rules[c, s] == book.action((name, s)) for c in fits[name]) / len(fits[name]) for name, s in unseen
        ]
        shares.append(sum(right) / len(right))
    assert printed(sum(shares) / 5) == 0.88


def test_constitution_with_one_strong_principle_twice_does_harm():
    """ "Be brief" charges four times what gold does; doubled, it alone does much harm, and the others do better without it."""
    names = tuple(counted.PRINCIPLES)
    everyone = counted.constitution(names)
    twice = {name: counted.constitution((*names, name)) - everyone for name in names}
    assert min(twice, key=lambda name: twice[name]) == "be brief" and sorted(twice.values())[0] < 5 * sorted(twice.values())[1] < 0  # fmt: skip
    assert counted.constitution(tuple(set(names) - {"be brief"})) > everyone + 0.1
    word = counted.REPLIES[0]
    longer = dataclasses.replace(word, filler=1, length=word.length + 1)
    charged = counted.PRINCIPLES["be brief"](word) - counted.PRINCIPLES["be brief"](longer)
    dearer = dataclasses.replace(word, length=word.length + 1)
    assert charged == 0.8 == pytest.approx(4 * (gold(word) - gold(dearer)) / counted.TEMPERATURE)


def test_kept_judge_of_the_last_policy_matches_the_study():
    """Pairs of different gold, and who orders them rightly; means over the study's seeds."""
    seen = []
    for seed in range(10):
        known = counted.labels(100, seed, "people at the start")
        reward, policy = counted.fit(counted.standardised(counted.COUNTS), *known.parts), counted.REFERENCE
        for _ in range(12):
            policy = counted.tilt(policy.log(), reward, strength=0.5).exp()
        first, second, _ = counted._all_pairs()
        weight = policy[first] * policy[second]
        weight = weight / weight.sum()
        right = (reward[first] > reward[second]).double()
        by_gold = torch.sigmoid((counted.GOLD[first] - counted.GOLD[second]) / counted.TEMPERATURE)
        same_facts = (counted.COUNTS[first, 0] == counted.COUNTS[second, 0]).double()
        seen.append(
            [weight @ right, weight @ by_gold, policy @ counted.COUNTS[:, 0], weight @ same_facts, (weight * right) @ same_facts / (weight @ same_facts)]
        )  # fmt: skip
    judge, gold_orders, facts, manners, right_in_manners = number(seen).mean(0).tolist()
    assert judge == pytest.approx(study_mean("ch15", "kept_accuracy_12"), abs=1e-6)
    assert gold_orders == pytest.approx(study_mean("ch15", "kept_person"), abs=1e-6)
    assert facts == pytest.approx(study_mean("ch15", "kept_facts"), abs=1e-6)
    assert facts > 2.95 and manners > 0.8 and right_in_manners < 0.35


def test_leads_of_labels_in_a_family_of_six_are_certain_or_not():
    seen, arms = evidence.StudyResults("ch15"), ("human", "ai", "pool", "corrected")

    def apart(bias, budget, one, other):
        names = [f"bias_{bias}_{arm}_{budget}" for arm in arms]
        family = evidence.differences({name: seen.values(name) for name in names})
        pair = f"bias_{bias}_{one}_{budget}", f"bias_{bias}_{other}_{budget}"
        assert len(family) == 6
        return (family.get(pair) or family[pair[::-1]]).significant

    leads = [(0.3, 500, "ai", "human"), (0.1, 2000, "ai", "human")]
    assert not any(apart(*lead) for lead in leads)
    others = [(0.3, 2000, "human", "ai"), (0.3, 32000, "human", "corrected"), (0.1, 32000, "human", "ai"), (0.6, 2000, "human", "ai")]  # fmt: skip
    assert all(apart(*lead) for lead in others)


def test_own_replies_win_before_a_judge_without_self_preference():
    """From the share of better ones ``o``, of wins, and the difference ``s`` of the judge's shares right on either kind."""
    o, wins, s = (study_mean("ch15_judges", key) for key in ("own_better", "own_wins", "self_preference"))
    own = (wins - (1 - o) * (1 + s)) / (2 * o - 1)  # o own + (1 − o)(1 − (own − s)) = wins
    right = o * own + (1 - o) * (own - s)
    assert 0.5 < right < own < 1
    assert printed(o * right + (1 - o) * (1 - right)) == 0.45


def test_principles_have_their_prices():
    nothing, fact = dict.fromkeys(("facts", "polite", "praise", "filler"), 0), counted.Features(1, 0, 0, 0, 0, 0, 2)
    worth = lambda name, **more: counted.PRINCIPLES[name](
        counted.Features(**{**nothing, **more}, repeats=0, wrong=0, length=sum(more.values()) + more.get("facts", 0))
    )
    assert worth("state facts", facts=2) == 3 and worth("be polite", polite=2) == worth("be warm", praise=2) == 2
    assert worth("do not flatter", polite=3, praise=2) == -4.5 and worth("do not ramble", filler=2) == -3
    assert worth("be brief", polite=1) == -0.8 and counted.PRINCIPLES["be brief"](fact) == pytest.approx(-1.6)
    assert len(counted.PRINCIPLES) == 6


def test_constitution_with_brevity_at_the_price_of_gold(monkeypatch):
    shown = {
        (r.facts, r.polite, r.praise, r.filler): float(gold)
        for r, gold in zip(counted.REPLIES, counted.GOLD, strict=True)
    }
    price = 0.1 / counted.TEMPERATURE  # gold's charge for a word, in nats
    assert price == 0.2
    ramble = [counted.gold(counted.Features(1, 1, 1, 0, 0, 0, length)) for length in (4, 5)]
    assert ramble[0] - ramble[1] == pytest.approx(0.1) and shown[1, 1, 1, 0] == pytest.approx(ramble[0])
    monkeypatch.setitem(counted.PRINCIPLES, "be brief", lambda reply: -price * reply.length)
    every = tuple(counted.PRINCIPLES)
    found = [counted.constitution(names) for names in (every, (*every, "be brief"))]
    assert [printed(x) for x in found] == [1.62, 1.48]


def test_judges_plan_has_the_cost_of_its_school():
    plan = JudgesPlan()
    assert plan.school.pairs == 9600 and plan.school.pairs * plan.price == 96_000
    assert 1 + plan.aligned.max_steps // plan.every == 9  # looks
