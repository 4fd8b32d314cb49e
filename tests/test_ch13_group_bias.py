"""The two biases of group methods: exact steps against sampled ones, limits, worked numbers."""

import math
from functools import partial

import pytest
import torch
from facts import raises

from minirlhf.core import exact
from minirlhf.core.errors import ArgumentError
from minirlhf.equations.advantages import group_center, group_zscore, leave_one_out, process_zscore
from minirlhf.equations.aggregation import fixed_length, sequence_mean, sequence_sum, token_mean
from minirlhf.equations.difficulty import maxrl
from minirlhf_course.chapters.ch13_group_relative_methods.group_bias import (
    StoppingPolicy,
    expected_step,
    prompt_weight,
    sampled_step,
)

START = StoppingPolicy.start(0.3, 9.0)


def mean_of_samples(policy, weights, times=300):
    generator = torch.Generator().manual_seed(0)
    steps = torch.stack([sampled_step(policy, weights=weights, generator=generator) for _ in range(times)])
    return steps.mean(0), steps.std(0) / math.sqrt(times)


def test_stopping_policy_has_the_pass_rate_and_length_asked_for():
    assert float(START.logps().exp().sum()) == pytest.approx(1)
    assert START.describe()["pass_rate"] == pytest.approx(0.3)
    assert START.describe()["length"] == pytest.approx(9, abs=0.01)  # the budget of 64 takes very little away


def test_stopping_policy_token_logps_add_up_to_logps():
    policy = StoppingPolicy(torch.tensor([0.3, 1.0, -0.5], dtype=torch.float64), budget=5)
    right = torch.tensor([False] * 4 + [True] * 4)
    mask = torch.arange(5) < policy.lengths().repeat(2)[:, None]
    torch.testing.assert_close(policy.token_logps(right, mask).sum(-1), policy.logps().flatten())


@pytest.mark.parametrize("per_token_mean", [True, False])
def test_grpo_expected_step_is_the_mean_of_sampled_steps(per_token_mean):
    weights = sequence_mean if per_token_mean else sequence_sum
    mean, error = mean_of_samples(START, weights)
    wanted = expected_step(START, per_token_mean=per_token_mean, num_generations=8)
    assert ((mean - wanted).abs() < 4 * error).all()


def test_grpo_mean_per_response_alone_changes_lengths():
    biased = expected_step(START, per_token_mean=True, num_generations=8)
    assert biased[2] > 0.01 and biased[1] < -0.01  # wrong ones grow, right ones shrink
    assert expected_step(START, per_token_mean=False, num_generations=8)[1:].abs().max() < 1e-12
    for weights in (token_mean, partial(fixed_length, max_completion_length=64)):
        mean, error = mean_of_samples(START, weights)
        scale = float(mean[0] / biased[0])  # compare at equal progress of the pass rate
        assert (mean[1:].abs() < 0.2 * scale * biased[1:].abs() + 4 * error[1:]).all()


def test_grpo_lengths_rest_if_correctness_cannot_be_seen():
    blind = StoppingPolicy.start(0.3, 9.0, sees_correctness=False)
    assert expected_step(blind, per_token_mean=True, num_generations=8)[1:].abs().max() < 1e-12


def test_prompt_weight_of_grpo_rloo_and_maxrl():
    rates = torch.tensor([0.05, 0.3, 0.5, 0.9], dtype=torch.float64)
    torch.testing.assert_close(prompt_weight(rates, group_center, num_generations=4), torch.full_like(rates, 0.75))
    torch.testing.assert_close(prompt_weight(rates, leave_one_out, num_generations=4), torch.ones_like(rates))
    # many samples: 1/sqrt(p(1 − p)) for the z-score, 1/p for MaxRL
    many = prompt_weight(rates[1:], partial(group_zscore, ddof=0, eps=0.0), num_generations=512)
    torch.testing.assert_close(many, (rates[1:] * (1 - rates[1:])).rsqrt(), rtol=0.01, atol=0)
    torch.testing.assert_close(prompt_weight(rates[1:], maxrl, num_generations=512), 1 / rates[1:], rtol=0.01, atol=0)


def test_prompt_weight_of_maxrl_is_a_derivative():
    """MaxRL: the derivative of −Σ_{k<G} (1 − p)^k / k."""
    p = torch.tensor([0.2], dtype=torch.float64)
    slope = exact.finite_difference(lambda x: -sum(((1 - x) ** k).sum() / k for k in range(1, 8)), p)
    torch.testing.assert_close(prompt_weight(p, maxrl, num_generations=8), slope)


def test_group_bias_refuses_arguments():
    with raises(ArgumentError, argument="budget"):
        StoppingPolicy(torch.zeros(3), budget=1)
    with raises(ArgumentError, argument="parameters", value=(2,)):
        StoppingPolicy(torch.zeros(2))
    with raises(ArgumentError, argument="pass_rates"):
        prompt_weight(torch.tensor([0.0]), group_center, num_generations=4)
    with raises(ArgumentError, argument="num_generations"):
        prompt_weight(torch.tensor([0.5]), group_center, num_generations=1)


@pytest.mark.parametrize(
    ("one_logit", "constant", "middle", "ends"), [(True, 1.2, 0.714, 2.16), (False, 6.0, 6.43, 6.48)]
)
def test_prompt_weight_noise_depends_on_the_score(one_logit, constant, middle, ends):
    """One reply with reward 0 or 1 to each prompt, pass rates uniform: the variance of the sum of moves over their squared mean.

    With one logit the score is r − p; with a score whose size does not know the reward (a direction of its own, of length 1,
    beside which the logit's part is small) the constant weight is the best.
    """
    p = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
    for w, wanted in ((torch.ones_like(p), constant), (p * (1 - p), middle), ((p * (1 - p)).rsqrt(), ends)):
        mean = w * (p * (1 - p) * (1 - p) + (1 - p) * (-p) * (-p))  # E[w (r − p) · (r − p)]
        if one_logit:
            variance = p * (w * (1 - p) ** 2) ** 2 + (1 - p) * (w * p**2) ** 2 - mean**2
        else:
            variance = p * (w * (1 - p)) ** 2 + (1 - p) * (w * p) ** 2  # E[A²] times a squared length of 1
        assert float(variance.mean() / mean.mean() ** 2) == pytest.approx(wanted, rel=2e-3)


def test_process_zscore_of_nine_right_steps_and_one_wrong_one():
    grades = torch.tensor([[1.0] * 5, [1.0] * 4 + [0.0]], dtype=torch.float64)
    ends = torch.ones(2, 5, dtype=torch.bool)
    found = process_zscore(grades, ends, ends, num_generations=2, ddof=0, eps=0.0)
    steps = found - torch.cat([found[:, 1:], torch.zeros(2, 1, dtype=torch.float64)], 1)  # of each step by itself
    torch.testing.assert_close(steps, torch.tensor([[1 / 3] * 5, [1 / 3] * 4 + [-3.0]], dtype=torch.float64))
