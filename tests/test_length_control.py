"""The win rate at equal length: what it recovers, its symmetry, its interval, and what it refuses."""

import pytest
import torch
from facts import raises

from minirlhf.core.errors import UserError
from minirlhf.core.randomness import generator
from minirlhf.equations.style import length_controlled_probability, length_term
from minirlhf.feedback.judge import Verdicts
from minirlhf.feedback.length_control import length_controlled
from minirlhf_cli.files.judge_files import JudgedFiles, Pair


@pytest.fixture
def lengths():
    rng = generator("test of length control")
    return torch.randint(5, 60, (2, 80), generator=rng).double()


def verdicts(ours, theirs, skill=0.4, liking=1.3):
    term = length_term(ours, theirs)
    return length_controlled_probability(term, torch.zeros_like(term), skill=skill, liking=liking, sensitivity=0.0)


def test_length_controlled_recovers_skill_and_liking(lengths):
    found = length_controlled(verdicts(*lengths), *lengths)
    assert found.win_rate == pytest.approx(float(torch.sigmoid(torch.tensor(0.4))), abs=1e-6)
    assert found.length_bias == pytest.approx(1.3, abs=1e-6)


def test_length_controlled_exchanged_sides_give_complement(lengths):
    scores = (verdicts(*lengths) > torch.rand(80, generator=generator("verdicts"))).double()
    one, other = length_controlled(scores, *lengths), length_controlled(1 - scores, *lengths.flip(0))
    assert one.win_rate + other.win_rate == pytest.approx(1) and one.length_bias == pytest.approx(other.length_bias)
    assert one.low + other.high == pytest.approx(1) and one.low < one.win_rate < one.high


def test_length_controlled_repeated_pair_keeps_interval(lengths):
    scores = (verdicts(*lengths) > torch.rand(80, generator=generator("verdicts"))).double()
    once = length_controlled(scores, *lengths)
    # (the deviation has the divisor N − 1, so the terms of doubled pairs are a little larger)
    twice = length_controlled(scores.repeat(2), *lengths.repeat(1, 2), [*range(80)] * 2)
    apart = length_controlled(scores.repeat(2), *lengths.repeat(1, 2))
    assert twice.high - twice.low == pytest.approx(once.high - once.low, rel=0.02)
    assert apart.high - apart.low < 0.75 * (once.high - once.low)


def test_length_controlled_constant_or_decisive_lengths_raise_value_error(lengths):
    with raises(ValueError, argument="ours", problem="all equal"):
        length_controlled(torch.ones(80), lengths[0], lengths[0] + 3)
    with raises(ValueError, argument="x", problem="separable"):
        length_controlled((lengths[0] > lengths[1]).double(), *lengths)


def said(text):
    return [{"role": "assistant", "content": text}]


def judged(ours, theirs, scores):
    pairs = [
        Pair([{"role": "user", "content": f"question {i}"}], said("x" * a), said("y" * b))
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True))
    ]
    words = tuple("A" if s == 1 else "B" for s in scores)
    return JudgedFiles(pairs, [], Verdicts(words, words), None)


def test_judged_files_length_controlled_equals_function(lengths):
    scores = (verdicts(*lengths) > torch.rand(80, generator=generator("verdicts"))).double()
    rate, liking = judged(lengths[0].int().tolist(), lengths[1].int().tolist(), scores.tolist()).length_controlled()
    expected = length_controlled(scores, *lengths)
    assert (rate.value, rate.low, rate.high) == pytest.approx((expected.win_rate, expected.low, expected.high))
    assert liking.value == pytest.approx(expected.length_bias) and liking.low < liking.value < liking.high


def test_judged_files_length_controlled_verdicts_by_length_raise_user_error():
    with raises(UserError, argument="--length-controlled", value=3):
        judged([5, 9, 4], [3, 2, 8], [1.0, 1.0, 0.0]).length_controlled()
