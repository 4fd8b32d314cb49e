"""Votes, rewards of the vote, prices of length: examples of chapter 16, bad arguments. Values: the ledger."""

import math

import pytest
import torch
from facts import called, raises

from minirlhf.core.errors import ArgumentError
from minirlhf.equations import reasoning, shaping
from minirlhf_course.chapters.ch16_reasoning import equations as ch16


def test_vote_totals_with_weights_overrule_the_majority_by_hand():
    """The example of chapter 16: two votes of .2 and .3 against one of .9."""
    answers, weights = torch.tensor([7, 7, 3]), torch.tensor([0.2, 0.3, 0.9])
    assert reasoning.vote_totals(answers, torch.ones(3)).tolist() == [2.0, 2.0, 1.0]
    assert torch.allclose(reasoning.vote_totals(answers, weights), torch.tensor([0.5, 0.5, 0.9]))


def test_majority_reward_breaks_ties_by_order():
    answers = torch.tensor([[4, 4, 1, 4], [2, 3, 3, 2]])
    assert ch16.majority_reward(answers).tolist() == [[1, 1, 0, 1], [1, 0, 0, 1]]


def test_repeated_tokens_count_from_the_second_occurrence():
    tokens = torch.tensor([[1, 2, 3, 1, 2, 4, 9, 9]])
    mask = torch.tensor([[1, 1, 1, 1, 1, 1, 0, 0]])
    found = ch16.repeated_tokens(tokens, mask, n=2)
    assert found.tolist() == [[False, False, False, True, True, False, False, False]]
    assert not ch16.repeated_tokens(tokens, mask, n=3).any()
    assert ch16.repeated_tokens(tokens[:, :2], mask[:, :2], n=5).shape == (1, 2)  # shorter than a run


def test_length_rewards_of_four_completions_by_hand():
    """The table of chapter 16: right and wrong, of four tokens and of eight."""
    c, n = torch.tensor([1.0, 1.0, 0.0, 0.0]), torch.tensor([4, 8, 4, 8])
    six = torch.full((4,), 6)
    rows = [
        (ch16.lcpo_exact(c, n, six, alpha=0.05), [0.9, 0.9, -0.1, -0.1]),
        (ch16.lcpo_max(c, n, six, alpha=0.05, offset=0.5), [0.6, 0.4, 0.0, 0.0]),
        (c + ch16.kimi_length_reward(c[None], n[None])[0], [1.5, 0.5, 0.0, -0.5]),
        (ch16.cosine_length_reward(c, n, max_completion_length=10), [1.65, 1.10, -6.55, -0.95]),
        (c + shaping.soft_overlong(n, max_completion_length=10, soft_punish_cache=4), [1.0, 0.5, 0.0, -0.5]),
    ]
    for found, printed in rows:
        assert torch.allclose(found, torch.tensor(printed), atol=0.006)


@pytest.mark.parametrize(
    ("call", "argument", "value"),
    [
        (
            lambda: ch16.cosine_length_reward(torch.ones(2), torch.ones(2), max_completion_length=0),
            "max_completion_length",
            0,
        ),
        (lambda: ch16.repeated_tokens(torch.ones(1, 2), torch.ones(1, 2), n=0), "n", 0),
        (lambda: reasoning.vote_totals(torch.ones(3), torch.tensor([1.0, -1.0, 1.0])), "weights", None),
        (lambda: ch16.majority_reward(torch.ones(3)), "answers", (3,)),
        (lambda: ch16.random_reward_gradient(torch.ones(3), torch.ones(3) / 3, epsilon=0.2), "probs", [[]]),
        (
            lambda: reasoning.compute_curve(torch.tensor([0.0]), start=0.0, ceiling=1.0, exponent=1.0, midpoint=1.0),
            "compute",
            None,
        ),
        (
            lambda: reasoning.compute_curve(torch.ones(1), start=0.0, ceiling=math.inf, exponent=1.0, midpoint=1.0),
            "ceiling",
            math.inf,
        ),
    ],
    ids=called,
)
def test_reasoning_names_a_bad_argument(call, argument, value):
    with raises(ArgumentError, argument=argument, value=value):
        call()
