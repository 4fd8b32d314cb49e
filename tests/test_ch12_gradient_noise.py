"""Mean and noise of gradient estimators, against every ordered batch written out."""

import itertools

import pytest
import torch

from minirlhf.core.exact import ToyLM
from minirlhf.equations.advantages import batch_center, batch_zscore, group_center, leave_one_out, raw_reward
from minirlhf_course.chapters.ch12_policy_gradients import gradient_noise as noise


def by_hand(lm, rewards, advantage, size):
    """Mean and variance over all ordered batches."""
    probs, scores = lm.distribution().detach(), noise.token_scores(lm).sum(2)
    groups = list(itertools.product(range(probs.shape[1]), repeat=size))
    mean, second = 0.0, 0.0
    for batch in itertools.product(groups, repeat=lm.num_prompts):
        index = torch.tensor(batch)  # (P, G)
        chance = probs.gather(1, index).prod()
        factors = advantage(rewards.gather(1, index)) / index.numel()
        estimate = sum(factors[p, i] * scores[p, index[p, i]] for p in range(len(index)) for i in range(size))
        mean, second = mean + chance * estimate, second + chance * estimate.square().sum()
    return mean, float(second - mean.square().sum())


@pytest.mark.parametrize(
    ("prompts", "size", "advantage"),
    [(1, 3, raw_reward), (1, 3, leave_one_out), (1, 2, group_center), (2, 2, batch_center), (2, 2, batch_zscore)],
)
def test_gradient_noise_of_groups_counts_every_batch(prompts, size, advantage):
    lm = ToyLM(2, 2, num_prompts=prompts, seed=3)
    rewards = torch.randn(prompts, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    got = noise.of_groups(lm, rewards, advantage, num_generations=size)
    mean, variance = by_hand(lm, rewards, advantage, size)
    assert torch.allclose(got.mean, mean)
    assert got.variance == pytest.approx(variance)
    assert got.noise == pytest.approx(variance / float(mean @ mean))


def test_gradient_noise_of_leave_one_out_is_unbiased_and_smaller():
    lm, rewards = ToyLM(3, 2, seed=1), torch.tensor([[3.0, 2.0, 4.0, 3.5, 2.5, 5.0, 1.0]], dtype=torch.float64)
    wanted = noise.true_gradient(lm, rewards)
    plain = noise.of_groups(lm, rewards, raw_reward, num_generations=3)
    relative = noise.of_groups(lm, rewards, leave_one_out, num_generations=3)
    for moments in (plain, relative):
        assert torch.allclose(moments.mean, wanted)
        assert moments.cosine(wanted) == pytest.approx(1.0)
    assert relative.variance < 0.5 * plain.variance


def test_gradient_noise_of_tokens_is_that_of_groups_of_one():
    lm, rewards = ToyLM(3, 2, seed=2), torch.arange(7.0, dtype=torch.float64)
    one = noise.of_groups(lm, rewards[None], raw_reward, num_generations=1)
    tokens = noise.of_tokens(lm, rewards[:, None].expand(7, 2), num_samples=1)
    assert torch.allclose(one.mean, tokens.mean)
    assert one.variance == pytest.approx(tokens.variance)
    assert noise.of_tokens(lm, rewards[:, None].expand(7, 2), num_samples=4).variance == pytest.approx(one.variance / 4)


def test_gradient_noise_of_exact_advantages_is_unbiased():
    lm, rewards = ToyLM(3, 2, seed=2), torch.arange(7.0, dtype=torch.float64)
    value, action = lm.action_values(rewards)
    moments = noise.of_tokens(lm, action - value, num_samples=1)
    assert torch.allclose(moments.mean, noise.true_gradient(lm, rewards[None]))


def test_gradient_noise_of_importance_weighted_samples_is_unbiased():
    lm, other, rewards = ToyLM(3, 2, seed=2), ToyLM(3, 2, seed=5), torch.arange(7.0, dtype=torch.float64)
    sampler, wanted = other.distribution()[0].detach(), noise.true_gradient(lm, rewards[None])
    weights = lm.distribution()[0].detach() / sampler
    plain, weighted = (
        noise.of_tokens(lm, (rewards * w)[:, None].expand(7, 2), num_samples=1, sampler=sampler)
        for w in (torch.ones(7), weights)
    )
    assert torch.allclose(weighted.mean, wanted)
    assert plain.cosine(wanted) < 0.99
