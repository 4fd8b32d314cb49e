"""The KL-regularised objective: worked example, limits, invariances, precision, bad input."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minirlhf.core import exact
from minirlhf.equations import kl, rlhf

REF, REWARDS = torch.tensor([[0.5, 0.3, 0.2], [1.0, 0.0, -1.0]], dtype=torch.float64)
OPTIMUM = torch.tensor([0.784399, 0.173139, 0.042463], dtype=torch.float64)
SEEDS, BETAS = st.integers(0, 2**31), st.floats(0.05, 20.0)


def problem(seed, size=5):
    rng = torch.Generator().manual_seed(seed)
    ref = torch.randn(size, dtype=torch.float64, generator=rng).log_softmax(-1)
    return ref, 2 * torch.randn(size, dtype=torch.float64, generator=rng)


def test_worked_example():
    best = rlhf.optimal_logps(REF.log(), REWARDS, beta=1.0)
    torch.testing.assert_close(best.exp(), OPTIMUM, atol=5e-7, rtol=0)
    assert rlhf.optimal_value(REF.log(), REWARDS, beta=1.0).item() == pytest.approx(0.549691, abs=5e-7)
    for form in (rlhf.rlhf_objective, rlhf.regrouped_objective, rlhf.objective_from_optimum):
        assert form(best, REF.log(), REWARDS, beta=1.0).item() == pytest.approx(0.549691, abs=5e-7)


def test_worked_example_read_backwards():
    """The implicit reward of the optimum is the reward less its β log Z, so differences come out exactly."""
    implicit = rlhf.implicit_reward(rlhf.optimal_logps(REF.log(), REWARDS, beta=1.0), REF.log(), beta=1.0)
    torch.testing.assert_close(implicit, REWARDS - 0.549691, atol=5e-7, rtol=0)
    torch.testing.assert_close(implicit.diff(), REWARDS.diff())


def test_worked_example_as_a_budget():
    best = rlhf.optimal_logps(REF.log(), REWARDS, beta=0.7)
    spent = float(exact.divergence(best.exp(), REF))
    assert rlhf.beta_for_kl(REF.log(), REWARDS, budget=spent) == pytest.approx(0.7, rel=1e-9)


@given(SEEDS, BETAS)
def test_no_other_policy_is_better_than_the_optimum(seed, beta):
    ref, rewards = problem(seed)
    other, _ = problem(seed + 1)
    value = rlhf.optimal_value(ref, rewards, beta=beta)
    assert rlhf.rlhf_objective(other, ref, rewards, beta=beta) <= value + 1e-9
    torch.testing.assert_close(
        rlhf.rlhf_objective(rlhf.optimal_logps(ref, rewards, beta=beta), ref, rewards, beta=beta), value
    )


@given(SEEDS, BETAS, st.floats(-100, 100))
def test_a_constant_per_prompt_moves_the_value_and_nothing_else(seed, beta, constant):
    ref, rewards = problem(seed)
    before, after = rewards, rewards + constant
    shift = rlhf.optimal_value(ref, after, beta=beta) - rlhf.optimal_value(ref, before, beta=beta)
    assert shift.item() == pytest.approx(constant, abs=1e-9)
    torch.testing.assert_close(
        rlhf.optimal_logps(ref, after, beta=beta), rlhf.optimal_logps(ref, before, beta=beta), atol=1e-9, rtol=1e-9
    )


@given(SEEDS)
def test_smaller_beta_means_more_reward_and_more_kl(seed):
    ref, rewards = problem(seed)
    policies = [rlhf.optimal_logps(ref, rewards, beta=beta).exp() for beta in (4.0, 2.0, 1.0, 0.5)]
    gained = torch.stack([exact.expectation(p, rewards) for p in policies])
    spent = torch.stack([exact.divergence(p, ref.exp()) for p in policies])
    assert (gained.diff() > 0).all()
    assert (spent.diff() > 0).all()


def test_limits_of_beta():
    best = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(rlhf.optimal_logps(REF.log(), REWARDS, beta=1e-6).exp(), best)
    torch.testing.assert_close(rlhf.optimal_logps(REF.log(), REWARDS, beta=1e9).exp(), REF)
    assert rlhf.optimal_value(REF.log(), REWARDS, beta=1e-6).item() == pytest.approx(1.0, abs=1e-5)
    assert rlhf.optimal_value(REF.log(), REWARDS, beta=1e9).item() == pytest.approx(0.3, abs=1e-5)


def test_what_the_reference_cannot_say_the_optimum_does_not_say():
    ref = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64).log()
    rewards = torch.tensor([0.0, 1.0, 100.0], dtype=torch.float64)
    best = rlhf.optimal_logps(ref, rewards, beta=1.0)
    assert best[2] == -math.inf
    assert rlhf.rlhf_objective(best, ref, rewards, beta=1.0) == pytest.approx(
        rlhf.optimal_value(ref, rewards, beta=1.0).item()
    )
    assert rlhf.beta_for_kl(ref, rewards, budget=0.1) > 0


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_extreme_rewards_stay_finite_and_right(dtype, bound):
    ref = REF.to(dtype).log()
    rewards = torch.tensor([1e4, 0.0, -1e4], dtype=dtype)
    best = rlhf.optimal_logps(ref, rewards, beta=0.01)
    assert best.isfinite().all()
    value = rlhf.optimal_value(ref, rewards, beta=0.01)
    assert value.dtype == dtype
    assert value.item() == pytest.approx(1e4 + 0.01 * math.log(0.5), rel=bound)


def test_error_of_bfloat16_is_within_a_hundredth():
    best = rlhf.optimal_logps(REF.log().bfloat16(), REWARDS.bfloat16(), beta=1.0)
    assert (best.exp().double() - OPTIMUM).abs().max() < 0.01


def test_padding_of_a_regularised_return_never_matters():
    logps = torch.tensor([[-1.0, -2.0, math.nan], [-0.5, math.inf, math.nan]], requires_grad=True)
    ref_logps = torch.tensor([[-2.0, -1.0, math.nan], [-1.5, -1.0, -math.inf]])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    returns = rlhf.regularised_return(logps, ref_logps, torch.tensor([1.0, 2.0]), mask, beta=0.5)
    torch.testing.assert_close(returns, torch.tensor([1.0, 1.5]))
    (gradient,) = torch.autograd.grad(returns.sum(), logps)
    torch.testing.assert_close(gradient, -0.5 * mask)


def test_gibbs_terms_are_never_negative():
    p, q = problem(1)[0], problem(2)[0]
    assert (rlhf.gibbs_terms(p, q) >= 0).all()
    torch.testing.assert_close(rlhf.gibbs_terms(p, q).sum(), kl.reverse_kl(p, q))


LOGPS = torch.full((2, 4), 0.25).log()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rlhf.optimal_logps(LOGPS, torch.zeros(4), beta=1.0), r"ref_logps has shape \(2, 4\)"),
        (lambda: rlhf.optimal_logps(LOGPS, torch.zeros(2, 4), beta=0.0), "beta = 0.0"),
        (lambda: rlhf.optimal_value(LOGPS, torch.zeros(2, 4), beta=-1.0), "beta = -1.0"),
        (
            lambda: rlhf.rlhf_objective(LOGPS, LOGPS, torch.full((2, 4), math.nan), beta=1.0),
            r"rewards of shape \(2, 4\)",
        ),
        (
            lambda: rlhf.rlhf_objective(LOGPS + 1, LOGPS, torch.zeros(2, 4), beta=1.0),
            r"logps of shape \(2, 4\) is not norm",
        ),
        (lambda: rlhf.log_partition(LOGPS * math.nan, torch.zeros(2, 4), beta=1.0), "ref_logps of shape"),
        (lambda: rlhf.implicit_reward(LOGPS, LOGPS[0], beta=1.0), r"ref_logps has shape \(4,\)"),
        (lambda: rlhf.implicit_reward(LOGPS, LOGPS, beta=math.nan), "beta = nan"),
        (lambda: rlhf.beta_for_kl(LOGPS, torch.zeros(2, 4), budget=0.1), r"rewards has shape \(2, 4\)"),
        (lambda: rlhf.beta_for_kl(LOGPS[0], torch.zeros(4), budget=0.1), "all equal"),
        (lambda: rlhf.beta_for_kl(LOGPS[0], torch.arange(4.0), budget=1.5), "budget = 1.5; expected less than"),
        (lambda: rlhf.beta_for_kl(LOGPS[0], torch.arange(4.0), budget=0.0), "budget = 0.0"),
        (
            lambda: rlhf.regularised_return(LOGPS, LOGPS, torch.zeros(4), torch.ones(2, 4), beta=1.0),
            r"rewards has shape \(4,\)",
        ),
        (
            lambda: rlhf.regularised_return(LOGPS, LOGPS, torch.zeros(2), torch.zeros(2, 4), beta=1.0),
            "no sampled token",
        ),
        (lambda: rlhf.regularised_return(LOGPS, LOGPS, torch.zeros(2), torch.ones(2, 4), beta=-0.1), "beta = -0.1"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
