"""Chapter 21: the examples that its text works by hand, and what its lab promises."""

import math

import pytest
import torch

from minirlhf.data.seven_words import bags, gold, replies
from minirlhf.feedback.proxies import labelled_better
from minirlhf_course.chapters.ch21_style_and_information import chain, chatty, markup


def test_seven_words_pair_worked_by_hand():
    assert len(replies()) == 19607
    assert gold("fact") == pytest.approx(1.05) and gold("fact um") == pytest.approx(0.60)
    better = lambda a, b: float(labelled_better(torch.tensor(a), torch.tensor(b)))
    seen = [gold(text) + chain.BIAS * len(text.split()) for text in ("fact", "fact um", "fact um um")]
    assert seen[:2] == pytest.approx([1.55, 1.60])
    assert better(seen[1], seen[0]) == pytest.approx(0.525, abs=5e-4)
    assert better(gold("fact um"), gold("fact")) == pytest.approx(0.289, abs=5e-4)
    # The second um: .15 for its length, .3 for itself, .5 for repeating, and the labels pay .5.
    assert gold("fact um") - gold("fact um um") == pytest.approx(0.15 + 0.3 + 0.5)
    assert seen[2] < seen[1]


def test_odds_of_ten_percent_are_half_way_from_one_to_fifty_five():
    odds = lambda share: share / (1 - share)
    assert odds(0.1) / odds(0.01) == pytest.approx(11) and odds(0.55) / odds(0.1) == pytest.approx(11)


def test_chatty_words_run_away_at_the_critical_strength():
    """½ e^{λ/4} reaches one at 4 log 2: there all numbers of words from 0 to the limit are equally likely."""
    critical = 4 * math.log(2)
    assert 2.5 < critical < 3
    assert (chatty.PER_WORD, chatty.COST) == (0.25, 0.05)
    assert chatty.told(critical)["fillers"] == pytest.approx(chatty.MOST / 2)


def test_markup_settings_and_reference():
    assert markup.SHARES == {"list": 0.05, "bold": 0.05} and markup.LIKED == {"list": 0.6, "bold": 0.4}
    assert (markup.LISTED, markup.POINTLESS) == (0.3, -0.2)
    world = markup.looks()
    assert float(world.probs.sum()) == pytest.approx(1)
    assert float(world.probs @ world.counts[:, 7]) == pytest.approx(0.05)


def test_redrawn_policy_keeps_style_of_one_and_replies_of_the_other():
    world = bags()
    style = chain.words(world)
    policy = chain.policy_at(world.ref_logps, world.gold, kl=0.7)
    mixed = chain.redrawn(policy, world.ref_logps, style)
    assert float(mixed.exp().sum()) == pytest.approx(1)
    for s in style.unique():
        here = style == s
        assert float(mixed[here].exp().sum()) == pytest.approx(float(policy[here].exp().sum()))
        torch.testing.assert_close(mixed[here].log_softmax(0), world.ref_logps[here].log_softmax(0))
    torch.testing.assert_close(chain.redrawn(policy, policy, style), policy)
