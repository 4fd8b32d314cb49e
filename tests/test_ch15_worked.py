"""Numbers that chapter 15 works out by hand, computed from the library."""

import dataclasses
import math
from pathlib import Path

import pytest
import torch

from minirlhf import evidence
from minirlhf.chapters.ch15_ai_feedback import counted, rules
from minirlhf.data.tasks.assistant import gold
from minirlhf.equations import ai_feedback

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "book" / "15-ai-feedback.md").read_text(encoding="utf-8")
#: Of the example of close calls: what labels of people and of an AI cost and tell.
PRICES = {"cost": 10.0, "information": 0.09, "ai_cost": 1.0, "ai_information": 0.25}


def number(x):
    """In double precision."""
    return torch.tensor(x, dtype=torch.float64)


def digits(x, count=2):
    """As the book prints it: no leading zero."""
    return f"{float(x):.{count}f}".removeprefix("0")


def sigma(x):
    return 1 / (1 + math.exp(-x))


def test_the_counted_world_has_192_replies():
    assert len(counted.REPLIES) == 192 == 4**3 * 3 and "The numbers come from a world of 192 replies." in PAGE


def test_four_principles_and_ten_rounds():
    left = [ai_feedback.flaws_left(start=1.0, rounds=n, principles=4, repair=0.6, harm=0.2) for n in (1, 4, 10)]
    assert [digits(x) for x in left] == [".85", ".56", ".33"]
    assert "= .85$ of the flaws are left, after four $.56$, after ten $.33$" in PAGE
    assert ai_feedback.flaws_left(start=1.0, rounds=1000, principles=4, repair=0.6, harm=0.2) == pytest.approx(0.25)


def test_two_groups_and_two_statements():
    found = ai_feedback.group_consensus(number([[100, 0], [90, 3]]), number([[100, 3], [100, 3]]))
    assert [digits(x) for x in found] == [".20", ".71"] and "G = \\frac{101}{102}\\cdot\\frac15 = .20$" in PAGE
    assert "$\\frac{91}{102}\\cdot\\frac45 = .71$" in PAGE


def test_means_of_probabilities_are_no_means_of_log_odds():
    first, second = sigma(1 + 2), 1 - sigma(-1 + 2)
    assert (digits(first, 3), digits(second, 3)) == (".953", ".269")
    assert digits((first + second) / 2, 3) == ".611" and "their mean is .611" in PAGE
    lean, _ = ai_feedback.both_orders(number(1.0 + 2.0), number(-1.0 + 2.0))
    assert digits(torch.sigmoid(lean), 3) == ".731" and "$\\sigma(d)$ is .731" in PAGE


def test_how_many_pairs_pass_the_swap_test():
    passing = [sum(ai_feedback.swap_outcomes(number(0.7), number(b))) for b in (0.0, 3.0)]
    assert [round(100 * float(p)) for p in passing] == [56, 11]
    assert "no liking 56 % of them pass" in PAGE and "with $b = 3$ it is 11 %" in PAGE


def test_a_judge_without_self_preference_that_seems_to_have_one():
    seen = number([sigma(2.0)] * 3 + [sigma(0.5)] * 2)
    found = ai_feedback.self_preference(seen, torch.ones(5), number([1, 1, 1, 0, 0]))
    assert digits(found) == ".26" and "$s = \\sigma(2)-\\sigma(.5) = .26$" in PAGE


def test_a_meta_judge():
    p, t, f = 0.7, 0.9, 0.3
    assert float(ai_feedback.screened_accuracy(number(p), number(t), number(f))) == pytest.approx(0.875)
    assert (
        p / (1 - p) == pytest.approx(2.3, abs=0.05)
        and 0.875 / 0.125 == 7
        and p * t + (1 - p) * f == pytest.approx(0.72)
    )
    assert "the odds rise from 2.3 to 7, so $p' = .875$, of 72 % of the verdicts" in PAGE


def test_where_people_and_ai_are_worth_the_same():
    assert (round(10 / 0.09), 1 / 0.25) == (111, 4)
    found = ai_feedback.label_crossover(number([0.3, 0.1]), **PRICES).tolist()
    assert [round(x, -1) for x in found] == [1190, 10710] and round(found[0] / PRICES["cost"]) == 119
    assert "1,190 units (119 people's labels) for a bias of .3 nats, and 10,700 for .1" in PAGE


def test_the_first_money_goes_to_the_ai():
    fixed = ai_feedback.ai_budget(1e6, bias=0.3, **PRICES)
    assert round(0.25 / 0.009, 1) == 27.8 and round(fixed, -1) == 190
    assert "$(\\sqrt{27.8}-1)/(.09\\cdot.25) = 190$" in PAGE
    assert ai_feedback.ai_budget(100, bias=0.3, **PRICES) == 100


def test_what_the_actions_seen_tell_of_the_others():
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
    assert digits(sum(shares) / 5) == ".88" and "would be right on .88 of the questions not seen" in PAGE


def test_one_strong_principle():
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


def test_what_the_last_policy_of_a_kept_judge_still_differs_in():
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
    assert judge == pytest.approx(sum(evidence.Seen("ch15").values("kept_accuracy_12")) / 10, abs=1e-6)
    told = lambda name: sum(evidence.Seen("ch15").values(name)) / 10
    assert gold_orders == pytest.approx(told("kept_person"), abs=1e-6) and facts == pytest.approx(
        told("kept_facts"), abs=1e-6
    )
    assert facts > 2.95 and manners > 0.8 and right_in_manners < 0.35


def test_leads_that_are_not_certain_in_a_family_of_six():
    seen, arms = evidence.Seen("ch15"), ("human", "ai", "pool", "corrected")

    def apart(bias, budget, one, other):
        names = [f"bias_{bias}_{arm}_{budget}" for arm in arms]
        family = evidence.differences({name: seen.values(name) for name in names})
        pair = f"bias_{bias}_{one}_{budget}", f"bias_{bias}_{other}_{budget}"
        assert len(family) == 6
        return (family.get(pair) or family[pair[::-1]]).apart

    leads = [(0.3, 500, "ai", "human"), (0.1, 2000, "ai", "human")]
    assert not any(apart(*lead) for lead in leads), "the page says that these are not certain"
    others = [(0.3, 2000, "human", "ai"), (0.3, 32000, "human", "corrected"), (0.1, 32000, "human", "ai"), (0.6, 2000, "human", "ai")]  # fmt: skip
    assert all(apart(*lead) for lead in others)


def test_how_often_own_replies_win_before_a_judge_without_a_liking_for_them():
    """From the share of better ones ``o``, of wins, and the difference ``s`` of the judge's shares right on either kind."""
    o, wins, s = (
        sum(evidence.Seen("ch15_judges").values(key)) / 5 for key in ("own_better", "own_wins", "self_preference")
    )
    own = (wins - (1 - o) * (1 + s)) / (2 * o - 1)  # o own + (1 − o)(1 − (own − s)) = wins
    right = o * own + (1 - o) * (own - s)
    assert 0.5 < right < own < 1
    assert digits(o * right + (1 - o) * (1 - right)) == ".45" and "(.45 would win before a judge" in PAGE


def test_the_principles_and_their_prices():
    paid = {
        "state facts": "1.5 a fact",
        "be polite": "2 for the first polite word",
        "be warm": "2 for the first word of praise",
        "do not flatter": "−1.5 for each further word of either kind",
        "be brief": "−.8 a word; a fact has two",
        "do not ramble": "−1.5 a filler word",
    }
    assert list(paid) == list(counted.PRINCIPLES)
    nothing, fact = dict.fromkeys(("facts", "polite", "praise", "filler"), 0), counted.Features(1, 0, 0, 0, 0, 0, 2)
    worth = lambda name, **more: counted.PRINCIPLES[name](
        counted.Features(**{**nothing, **more}, repeats=0, wrong=0, length=sum(more.values()) + more.get("facts", 0))
    )
    assert worth("state facts", facts=2) == 3 and worth("be polite", polite=2) == worth("be warm", praise=2) == 2
    assert worth("do not flatter", polite=3, praise=2) == -4.5 and worth("do not ramble", filler=2) == -3
    assert worth("be brief", polite=1) == -0.8 and counted.PRINCIPLES["be brief"](fact) == pytest.approx(-1.6)
    assert all(f"| {name} | {what} |" in PAGE for name, what in paid.items())
    assert "a fact costs 1.6 by it, and earns 1.5" in PAGE


def test_brevity_at_golds_own_price(monkeypatch):
    shown = {
        (r.facts, r.polite, r.praise, r.filler): float(gold)
        for r, gold in zip(counted.REPLIES, counted.GOLD, strict=True)
    }
    price = 0.1 / counted.TEMPERATURE  # gold's charge for a word, in nats
    assert price == 0.2 and "what gold charges for a word, .2 nats" in PAGE
    ramble = [counted.gold(counted.Features(1, 1, 1, 0, 0, 0, length)) for length in (4, 5)]
    assert ramble[0] - ramble[1] == pytest.approx(0.1) and shown[1, 1, 1, 0] == pytest.approx(ramble[0])
    monkeypatch.setitem(counted.PRINCIPLES, "be brief", lambda reply: -price * reply.length)
    every = tuple(counted.PRINCIPLES)
    found = [counted.constitution(names) for names in (every, (*every, "be brief"))]
    assert [f"{x:.2f}" for x in found] == ["1.62", "1.48"]
    assert "the six would lead to 1.62, and to 1.48 with it twice" in PAGE


def test_what_the_school_of_the_judge_would_have_cost():
    from minirlhf.chapters.ch15_ai_feedback.judges import JudgesPlan

    plan = JudgesPlan()
    assert plan.school.pairs == 9600 and plan.school.pairs * plan.price == 96_000
    assert "its 9,600 labels, at ten each, are 96,000 units" in PAGE
    looks = 1 + plan.aligned.max_steps // plan.every
    assert looks == 9 and "the best of nine looks" in PAGE
