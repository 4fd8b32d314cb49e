"""The KL-regularised objective: impossible answers, extremes, precision, bad arguments. Values and limits: the ledger."""

import math

import pytest
import torch
from facts import called, raises

from minirlhf.core import exact
from minirlhf.core.errors import ArgumentError
from minirlhf.equations import rlhf
from minirlhf_course.chapters.ch05_rlhf_problem import equations as ch05

REF, REWARDS = torch.tensor([[0.5, 0.3, 0.2], [1.0, 0.0, -1.0]], dtype=torch.float64)
OPTIMUM = torch.tensor([0.784399, 0.173139, 0.042463], dtype=torch.float64)


def test_rlhf_objective_and_optimum_by_hand():
    best = rlhf.optimal_logps(REF.log(), REWARDS, beta=1.0)
    torch.testing.assert_close(best.exp(), OPTIMUM, atol=5e-7, rtol=0)
    assert rlhf.optimal_value(REF.log(), REWARDS, beta=1.0).item() == pytest.approx(0.549691, abs=5e-7)
    for form in (ch05.rlhf_objective, ch05.regrouped_objective, ch05.objective_from_optimum):
        assert form(best, REF.log(), REWARDS, beta=1.0).item() == pytest.approx(0.549691, abs=5e-7)


def test_beta_for_kl_inverts_the_kl_of_the_optimum():
    best = rlhf.optimal_logps(REF.log(), REWARDS, beta=0.7)
    spent = float(exact.divergence(best.exp(), REF))
    assert rlhf.beta_for_kl(REF.log(), REWARDS, budget=spent) == pytest.approx(0.7, rel=1e-9)


def test_rlhf_optimum_excludes_what_the_reference_excludes():
    ref = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64).log()
    rewards = torch.tensor([0.0, 1.0, 100.0], dtype=torch.float64)
    best = rlhf.optimal_logps(ref, rewards, beta=1.0)
    assert best[2] == -math.inf
    assert ch05.rlhf_objective(best, ref, rewards, beta=1.0) == pytest.approx(
        rlhf.optimal_value(ref, rewards, beta=1.0).item()
    )
    assert rlhf.beta_for_kl(ref, rewards, budget=0.1) > 0


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_rlhf_optimum_of_extreme_rewards_is_finite_and_right(dtype, bound):
    ref = REF.to(dtype).log()
    rewards = torch.tensor([1e4, 0.0, -1e4], dtype=dtype)
    best = rlhf.optimal_logps(ref, rewards, beta=0.01)
    assert best.isfinite().all()
    value = rlhf.optimal_value(ref, rewards, beta=0.01)
    assert value.dtype == dtype
    assert value.item() == pytest.approx(1e4 + 0.01 * math.log(0.5), rel=bound)


def test_rlhf_optimum_in_bfloat16_errs_by_less_than_a_hundredth():
    best = rlhf.optimal_logps(REF.log().bfloat16(), REWARDS.bfloat16(), beta=1.0)
    assert (best.exp().double() - OPTIMUM).abs().max() < 0.01


LOGPS = torch.full((2, 4), 0.25).log()


@pytest.mark.parametrize(
    ("call", "argument", "value"),
    [
        (lambda: rlhf.optimal_logps(LOGPS, torch.zeros(4), beta=1.0), "ref_logps", (2, 4)),
        (lambda: rlhf.optimal_logps(LOGPS, torch.zeros(2, 4), beta=0.0), "beta", 0.0),
        (lambda: rlhf.optimal_value(LOGPS, torch.zeros(2, 4), beta=-1.0), "beta", -1.0),
        (lambda: ch05.rlhf_objective(LOGPS, LOGPS, torch.full((2, 4), math.nan), beta=1.0), "rewards", 8),
        (lambda: ch05.rlhf_objective(LOGPS + 1, LOGPS, torch.zeros(2, 4), beta=1.0), "logps", None),
        (lambda: rlhf.log_partition(LOGPS * math.nan, torch.zeros(2, 4), beta=1.0), "ref_logps", None),
        (lambda: rlhf.implicit_reward(LOGPS, LOGPS[0], beta=1.0), "ref_logps", (4,)),
        (lambda: rlhf.implicit_reward(LOGPS, LOGPS, beta=math.nan), "beta", math.nan),
        (lambda: rlhf.beta_for_kl(LOGPS, torch.zeros(2, 4), budget=0.1), "rewards", (2, 4)),
        (lambda: rlhf.beta_for_kl(LOGPS[0], torch.zeros(4), budget=0.1), "rewards", None),
        (lambda: rlhf.beta_for_kl(LOGPS[0], torch.arange(4.0), budget=1.5), "budget", 1.5),
        (lambda: rlhf.beta_for_kl(LOGPS[0], torch.arange(4.0), budget=0.0), "budget", 0.0),
        (lambda: rlhf.regularised_return(LOGPS, LOGPS, torch.zeros(4), torch.ones(2, 4), beta=1.0), "rewards", (4,)),
        (lambda: rlhf.regularised_return(LOGPS, LOGPS, torch.zeros(2), torch.zeros(2, 4), beta=1.0), "mask", [0, 1]),
        (lambda: rlhf.regularised_return(LOGPS, LOGPS, torch.zeros(2), torch.ones(2, 4), beta=-0.1), "beta", -0.1),
    ],
    ids=called,
)
def test_rlhf_names_a_bad_argument(call, argument, value):
    with raises(ArgumentError, argument=argument, value=value):
        call()
