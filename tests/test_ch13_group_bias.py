"""The two biases of group methods: exact steps against sampled ones, limits, worked numbers."""

import math
from functools import partial

import pytest
import torch

from minirlhf.chapters.ch13_group_relative_methods.group_bias import (
    StoppingPolicy,
    expected_step,
    prompt_weight,
    sampled_step,
)
from minirlhf.core import exact
from minirlhf.equations.advantages import group_center, group_zscore, leave_one_out
from minirlhf.equations.aggregation import fixed_length, sequence_mean, sequence_sum, token_mean
from minirlhf.equations.difficulty import maxrl

START = StoppingPolicy.start(0.3, 9.0)


def mean_of_samples(policy, weights, times=300):
    generator = torch.Generator().manual_seed(0)
    steps = torch.stack([sampled_step(policy, weights=weights, generator=generator) for _ in range(times)])
    return steps.mean(0), steps.std(0) / math.sqrt(times)


def test_the_responses_are_a_distribution_of_the_asked_for_length():
    assert float(START.logps().exp().sum()) == pytest.approx(1)
    assert START.describe()["pass_rate"] == pytest.approx(0.3)
    assert START.describe()["length"] == pytest.approx(9, abs=0.01)  # the budget of 64 takes very little away


def test_tokens_of_a_response_multiply_to_its_probability():
    policy = StoppingPolicy(torch.tensor([0.3, 1.0, -0.5], dtype=torch.float64), budget=5)
    right = torch.tensor([False] * 4 + [True] * 4)
    mask = torch.arange(5) < policy.lengths().repeat(2)[:, None]
    torch.testing.assert_close(policy.token_logps(right, mask).sum(-1), policy.logps().flatten())


@pytest.mark.parametrize("per_token_mean", [True, False])
def test_the_expected_step_is_the_mean_of_sampled_steps(per_token_mean):
    weights = sequence_mean if per_token_mean else sequence_sum
    mean, error = mean_of_samples(START, weights)
    wanted = expected_step(START, per_token_mean=per_token_mean, num_generations=8)
    assert ((mean - wanted).abs() < 4 * error).all()


def test_only_the_mean_per_response_changes_lengths():
    biased = expected_step(START, per_token_mean=True, num_generations=8)
    assert biased[2] > 0.01 and biased[1] < -0.01  # wrong ones grow, right ones shrink
    assert expected_step(START, per_token_mean=False, num_generations=8)[1:].abs().max() < 1e-12
    for weights in (token_mean, partial(fixed_length, max_completion_length=64)):
        mean, error = mean_of_samples(START, weights)
        scale = float(mean[0] / biased[0])  # compare at equal progress of the pass rate
        assert (mean[1:].abs() < 0.2 * scale * biased[1:].abs() + 4 * error[1:]).all()


def test_nothing_drifts_if_correctness_cannot_be_seen():
    blind = StoppingPolicy.start(0.3, 9.0, sees_correctness=False)
    assert expected_step(blind, per_token_mean=True, num_generations=8)[1:].abs().max() < 1e-12


def test_weights_of_a_prompt():
    rates = torch.tensor([0.05, 0.3, 0.5, 0.9], dtype=torch.float64)
    torch.testing.assert_close(prompt_weight(rates, group_center, num_generations=4), torch.full_like(rates, 0.75))
    torch.testing.assert_close(prompt_weight(rates, leave_one_out, num_generations=4), torch.ones_like(rates))
    # many samples: 1/sqrt(p(1 − p)) for the z-score, 1/p for MaxRL
    many = prompt_weight(rates[1:], partial(group_zscore, ddof=0, eps=0.0), num_generations=512)
    torch.testing.assert_close(many, (rates[1:] * (1 - rates[1:])).rsqrt(), rtol=0.01, atol=0)
    torch.testing.assert_close(prompt_weight(rates[1:], maxrl, num_generations=512), 1 / rates[1:], rtol=0.01, atol=0)


def test_weights_of_a_prompt_are_a_derivative():
    """MaxRL: the derivative of −Σ_{k<G} (1 − p)^k / k."""
    p = torch.tensor([0.2], dtype=torch.float64)
    slope = exact.finite_difference(lambda x: -sum(((1 - x) ** k).sum() / k for k in range(1, 8)), p)
    torch.testing.assert_close(prompt_weight(p, maxrl, num_generations=8), slope)


def test_bad_input():
    with pytest.raises(ValueError, match="budget"):
        StoppingPolicy(torch.zeros(3), budget=1)
    with pytest.raises(ValueError, match=r"\(2,\)"):
        StoppingPolicy(torch.zeros(2))
    with pytest.raises(ValueError, match="pass_rates"):
        prompt_weight(torch.tensor([0.0]), group_center, num_generations=4)
    with pytest.raises(ValueError, match="num_generations"):
        prompt_weight(torch.tensor([0.5]), group_center, num_generations=1)
