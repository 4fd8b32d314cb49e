"""The numbers that chapter 22 works out by hand, and what a character, its ranking and its rules promise."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from facts import raises

from minirlhf.core.errors import ArgumentError
from minirlhf.core.statistics import sign_test
from minirlhf.data.tasks.assistant import ANIMALS, ASSISTANT
from minirlhf_course.chapters.ch22_character_and_product import character, refusing
from minirlhf_course.chapters.ch22_character_and_product import equations as ch22


def number(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def test_trait_policy_with_small_beta_is_a_caricature():
    plain, asked = torch.tensor([0.5, 0.3, 0.2]).double(), torch.tensor([0.1, 0.3, 0.6]).double()
    at = lambda beta: ch22.trait_policy(asked.log(), plain.log(), beta=beta).exp().tolist()
    assert at(1.0) == pytest.approx(asked.tolist())
    assert at(0.5)[2] == pytest.approx(0.849, abs=5e-4)
    assert at(0.2) == pytest.approx([0.000, 0.006, 0.994], abs=5e-4)


def test_clean_replies_that_exclude_a_rare_failure():
    assert ch22.clean_completions(0.01) == pytest.approx(299, abs=1)
    assert 298 < ch22.clean_completions(0.01) <= 299
    assert 2994 < ch22.clean_completions(0.001) <= 2995


def test_refusing_requests_of_train_and_test_are_disjoint():
    pairs = {}
    for objects in (ANIMALS, refusing.SHOWN, refusing.OTHERS):
        for split in ("train", "test"):
            found = refusing.requests(objects, split)
            pairs[objects, split] = {tuple(text.split()[-2:]) for text in found}
            assert len(found) == len(set(found)) == 9 * len(pairs[objects, split])
            assert {thing for _, thing in pairs[objects, split]} <= set(objects)
    for objects in (ANIMALS, refusing.SHOWN, refusing.OTHERS):
        both = pairs[objects, "train"], pairs[objects, "test"]
        assert not both[0] & both[1] and len(both[0] | both[1]) == len(refusing.VERBS) * len(objects)
    assert len(refusing.requests(refusing.SHOWN, "train")) >= 64


@pytest.mark.slow
def test_refusals_agree_with_draws():
    """128 draws from each of two requests, against the chance that is computed."""
    few = replace(refusing.BASE, max_steps=60, batch_size=16)
    start = refusing.base(few, examples=400)
    model = refusing.refusing(start, 4, replace(refusing.TUNE, max_steps=40))
    prompts = [refusing.requests(ANIMALS, "test")[0], refusing.requests(refusing.OTHERS, "test")[0]]
    chances = refusing.refusals(model, prompts).exp()
    drawn = character.replies(model, prompts, seed=1, each=128)
    for chance, answers in zip(chances.tolist(), drawn, strict=True):
        share = sum(answer == refusing.REFUSAL for answer in answers) / 128
        assert abs(share - chance) <= 5 * (chance * (1 - chance) / 128) ** 0.5 + 1e-9
    assert 0.02 < float(chances.max()) < 1  # not a test of two zeros


def test_refusing_bar_and_log_odds():
    scores = torch.tensor([3.0, 1.0, 2.0, 5.0, 4.0]).double()
    assert float(refusing.bar(scores, 0.2)) == 2.0 and int((scores < refusing.bar(scores, 0.2)).sum()) == 1
    assert float(refusing.bar(scores, 0.19)) == 1.0
    chances = torch.tensor([0.001, 0.4, 0.999]).double()
    assert torch.sigmoid(refusing.log_odds(chances.log())).tolist() == pytest.approx(chances.tolist())
    assert bool(refusing.log_odds(torch.zeros(1).double()).isfinite())


def test_false_refusals_of_two_filters():
    refused = lambda d, m: round(float(ch22.false_refusals(number(m), number(d))), 2)
    assert [refused(2.0, 0.1), refused(2.0, 0.01)] == [0.24, 0.63]
    assert [refused(3.0, 0.1), refused(3.0, 0.01)] == [0.04, 0.25]


def test_filter_threshold_misses_and_blocks():
    for ratio, bar, missed, blocked in ((10.0, 1.79, 0.42, 0.04), (100.0, 0.64, 0.09, 0.26)):
        t = float(ch22.filter_threshold(number(2.0), number(0.02), number(ratio)))
        share = lambda x: float(torch.special.ndtr(number(x)))
        assert (round(t, 2), round(share(t - 2), 2), round(share(-t), 2)) == (bar, missed, blocked)


def test_both_miss_of_correlated_filters():
    missed = number(0.1)
    assert float(ch22.both_filters_miss(missed, missed, number(0.0))) == pytest.approx(0.01)
    assert float(ch22.both_filters_miss(missed, missed, number(0.5))) == pytest.approx(0.055)
    with raises(ArgumentError, argument="correlation", problem="out of range"):
        ch22.both_filters_miss(missed, number(0.5), number(0.9))


def test_canary_of_twenty_complaints():
    chance = lambda p: float(ch22.rollback_probability(number(p), number(0.05), rollback=20, ship=20))
    pairs = lambda p: float(ch22.canary_pairs(number(p), number(0.05), rollback=20, ship=20))
    assert chance(0.1) > 0.9999
    assert pairs(0.1) == pytest.approx(400, abs=1)
    assert (round(chance(0.06), 3), round(pairs(0.06))) == (0.979, 1917)
    assert (chance(0.05), round(pairs(0.05))) == (0.5, 4211)


def test_canary_is_continuous_from_worse_to_equal():
    for old in (0.03, 0.2):
        near = number(old) + 1e-7
        for f in (ch22.rollback_probability, ch22.canary_pairs):
            at = lambda new, f=f, old=old: float(f(new, number(old), rollback=7, ship=4))
            assert at(near) == pytest.approx(at(number(old)), rel=1e-4)


@pytest.mark.parametrize("toggle", character.TOGGLES)
def test_character_demonstrations_follow_the_toggle(toggle):
    import numpy as np

    rng = np.random.default_rng(0)
    prompts = ASSISTANT.prompts("train")[:40]
    said = [character.demonstration(prompt, toggle, rng) for prompt in prompts]
    if "warm" in toggle:
        assert all(map(character.warm, said))
    elif toggle:
        assert not any(map(character.warm, said))
    facts = [character.features(p, y).facts for p, y in zip(prompts, said, strict=True)]
    if "short" in toggle:
        assert set(facts) == {1}
    if "long" in toggle:
        assert all(n in (3, 6) for n in facts)


def test_sign_test_fewest_lost_prompts_for_one_of_six_rules():
    assert 6 * sign_test(0, 8) == pytest.approx(0.047, abs=5e-4) and 6 * sign_test(0, 7) > 0.05
    assert 8 / 128 == 1 / 16


def test_alarms_of_rules_that_got_worse():
    before = {
        "a": torch.ones(40, dtype=torch.bool),
        "b": torch.zeros(40, dtype=torch.bool),
        "c": torch.ones(40, dtype=torch.bool),
    }
    after = {"a": torch.arange(40) > 12, "b": torch.ones(40, dtype=torch.bool), "c": torch.arange(40) > 1}
    assert character.alarms(before, after) == {"a": 1.0, "b": 0.0, "c": 0.0}
