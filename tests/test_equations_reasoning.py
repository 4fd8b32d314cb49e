"""Votes, a reward from the vote, rewards that say nothing, the curve of reward against compute."""

import math
from itertools import product

import pytest
import torch

from minirlhf.equations import reasoning, shaping
from minirlhf.equations.policy_losses import ppo_clip


def test_a_weighted_vote_can_overrule_the_majority():
    answers, weights = torch.tensor([7, 7, 3]), torch.tensor([0.2, 0.3, 0.9])
    assert reasoning.vote_totals(answers, torch.ones(3)).tolist() == [2.0, 2.0, 1.0]
    assert torch.allclose(reasoning.vote_totals(answers, weights), torch.tensor([0.5, 0.5, 0.9]))


def test_the_majority_is_rewarded_whether_it_is_right_or_not():
    answers = torch.tensor([[4, 4, 1, 4], [2, 3, 3, 2]])
    assert reasoning.majority_reward(answers).tolist() == [[1, 1, 0, 1], [1, 0, 0, 1]]


def test_every_group_has_a_majority():
    groups = torch.tensor(list(product(range(3), repeat=4)))
    rewards = reasoning.majority_reward(groups)
    assert bool((rewards.sum(-1) >= 2).all())  # four ballots on three answers: some answer has two
    for group, reward in zip(groups, rewards, strict=True):
        assert len(set(group[reward == 1].tolist())) == 1


def test_a_coin_moves_nothing_without_a_clip_and_nothing_within_it():
    old = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    new = torch.tensor([0.6, 0.2, 0.2], dtype=torch.float64)
    assert not reasoning.random_reward_push(new, old, epsilon=1e6).any()
    assert not reasoning.random_reward_push(old, old, epsilon=0.2).any()
    push = reasoning.random_reward_push(new, old, epsilon=0.1)
    assert push[0] < 0 < push[1]  # the clip pulls both back
    assert abs(float(push.sum())) < 1e-12


def test_an_action_that_is_likely_enough_is_never_pushed_down():
    """Its probability would have to exceed (1 + ε) times the old one, which is more than 1: the bias for the habit."""
    old, epsilon = torch.tensor([0.85, 0.15], dtype=torch.float64), 0.2
    for share in torch.linspace(0.01, 0.99, 50, dtype=torch.float64):
        new = torch.stack([share, 1 - share])
        mask, logps = torch.ones(2, 1, dtype=torch.bool), new.log()[:, None].requires_grad_()
        loss = sum(
            (old * ppo_clip(logps, old.log()[:, None], torch.full((2, 1), sign), mask, epsilon=epsilon)[:, 0]).sum()
            for sign in (1.0, -1.0)
        )
        assert float(torch.autograd.grad(loss, logps)[0][0]) >= 0


def test_half_of_the_gain_is_made_at_the_midpoint():
    found = reasoning.compute_curve(torch.tensor([1e-9, 50.0, 1e9]), start=0.2, ceiling=0.8, exponent=2.0, midpoint=50)
    assert torch.allclose(found, torch.tensor([0.2, 0.5, 0.8]), atol=1e-6)


def test_the_cosine_begins_and_ends_where_it_is_told():
    right, lengths = torch.tensor([1.0, 1.0, 0.0, 0.0, 1.0, 0.0]), torch.tensor([0, 5, 0, 5, 10, 10])
    found = shaping.cosine_length_reward(right, lengths, max_completion_length=10)
    assert torch.allclose(found, torch.tensor([2.0, 1.5, -10.0, -5.0, -10.0, -10.0]))
    near = shaping.cosine_length_reward(torch.tensor([1.0, 0.0]), torch.tensor([999, 999]), max_completion_length=1000)
    assert torch.allclose(near, torch.tensor([1.0, 0.0]), atol=1e-4)


def test_a_run_is_charged_from_its_second_occurrence_on():
    tokens = torch.tensor([[1, 2, 3, 1, 2, 4, 9, 9]])
    mask = torch.tensor([[1, 1, 1, 1, 1, 1, 0, 0]])
    found = shaping.repeated_tokens(tokens, mask, n=2)
    assert found.tolist() == [[False, False, False, True, True, False, False, False]]
    assert not shaping.repeated_tokens(tokens, mask, n=3).any()
    assert shaping.repeated_tokens(tokens[:, :2], mask[:, :2], n=5).shape == (1, 2)  # shorter than a run


def test_five_prices_of_length_on_the_same_four_replies():
    """The table of chapter 16: right and wrong, of four tokens and of eight."""
    c, n = torch.tensor([1.0, 1.0, 0.0, 0.0]), torch.tensor([4, 8, 4, 8])
    six = torch.full((4,), 6)
    rows = [
        (shaping.lcpo_exact(c, n, six, alpha=0.05), [0.9, 0.9, -0.1, -0.1]),
        (shaping.lcpo_max(c, n, six, alpha=0.05, offset=0.5), [0.6, 0.4, 0.0, 0.0]),
        (c + shaping.kimi_length_reward(c[None], n[None])[0], [1.5, 0.5, 0.0, -0.5]),
        (shaping.cosine_length_reward(c, n, max_completion_length=10), [1.65, 1.10, -6.55, -0.95]),
        (c + shaping.soft_overlong(n, max_completion_length=10, soft_punish_cache=4), [1.0, 0.5, 0.0, -0.5]),
    ]
    for found, printed in rows:
        assert torch.allclose(found, torch.tensor(printed), atol=0.006)


@pytest.mark.parametrize("call", [
    lambda: shaping.cosine_length_reward(torch.ones(2), torch.ones(2), max_completion_length=0),
    lambda: shaping.repeated_tokens(torch.ones(1, 2), torch.ones(1, 2), n=0),
    lambda: reasoning.vote_totals(torch.ones(3), torch.tensor([1.0, -1.0, 1.0])),
    lambda: reasoning.majority_reward(torch.ones(3)),
    lambda: reasoning.random_reward_push(torch.ones(3), torch.ones(3) / 3, epsilon=0.2),
    lambda: reasoning.compute_curve(torch.tensor([0.0]), start=0.0, ceiling=1.0, exponent=1.0, midpoint=1.0),
    lambda: reasoning.compute_curve(torch.ones(1), start=0.0, ceiling=math.inf, exponent=1.0, midpoint=1.0),
])  # fmt: skip
def test_what_makes_no_sense_is_refused(call):
    with pytest.raises(ValueError):
        call()
