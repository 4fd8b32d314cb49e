"""Over-optimisation: limits, extremes, constraints, bad arguments. Values: the ledger."""

import math

import pytest
import torch
from facts import called, raises

from minirlhf.core.errors import ArgumentError
from minirlhf.equations import overoptimization as over
from minirlhf_course.chapters.ch20_overoptimization import equations as ch20


def world(seed, size=8):
    """A reference policy and two independent standard normal rewards of its responses."""
    rng = torch.Generator().manual_seed(seed)
    numbers = torch.randn(3, size, dtype=torch.float64, generator=rng)
    return numbers[0].log_softmax(-1), numbers[1], numbers[2]


# -- functional forms --------------------------------------------------------------------------------------------


def test_gold_best_of_n_and_gold_rl_start_at_zero():
    start = torch.zeros(1)
    assert ch20.gold_best_of_n(start, alpha=1.0, beta=1.0) == 0
    assert ch20.gold_rl(start, alpha=1.0, beta=1.0) == 0
    assert ch20.gold_rl(start, alpha=1.0, beta=0.0) == 0


# -- tilted policies ---------------------------------------------------------------------------------------------


def test_tilt_of_extreme_strength_is_finite():
    ref, proxy, gold = world(1)
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        logps = over.tilt(ref.to(dtype), proxy.to(dtype), strength=1e4)
        assert logps.isfinite().all()
        assert over.tilt_slope(logps, gold.to(dtype), proxy.to(dtype)).isfinite()
        assert logps.exp().argmax() == proxy.to(dtype).argmax()


# -- bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "argument", "value"),
    [
        (lambda: ch20.gold_rl(torch.tensor([-0.1]), alpha=1.0, beta=1.0), "distance", None),
        (lambda: ch20.gold_best_of_n(torch.tensor([math.nan]), alpha=1.0, beta=1.0), "distance", None),
        (lambda: ch20.gold_rl_peak(alpha=1.0, beta=0.0), "beta", 0.0),
        (lambda: ch20.gold_best_of_n_peak(alpha=-1.0, beta=1.0), "alpha", -1.0),
        (lambda: over.tilt(torch.zeros(3), torch.zeros(2), strength=1.0), "ref_logps", (3,)),
        (lambda: over.tilt(torch.zeros(3), torch.zeros(3), strength=math.inf), "strength", math.inf),
        (lambda: over.tilt_slope(torch.zeros(2, 3), torch.zeros(3), torch.zeros(3)), "values", (3,)),
        (lambda: ch20.tilt_kl_slope(torch.zeros(3), torch.zeros(3) * math.nan, strength=1.0), "values", 3),
        (lambda: over.linear_gold(torch.zeros(1), correlation=1.5, gold_std=1.0), "correlation", 1.5),
        (lambda: ch20.quadratic_gold_coefficients(torch.zeros(2), torch.ones(2), torch.eye(2)), "direction", None),
        (lambda: ch20.quadratic_gold_coefficients(torch.ones(2), torch.ones(2), torch.eye(3)), "curvature", (3, 3)),
        (lambda: over.worst_case(torch.zeros(3)), "rewards", (3,)),
        (lambda: over.uncertainty_weighted(torch.zeros(2, 3), coef=-1.0), "coef", -1.0),
        (lambda: over.uncertainty_weighted(torch.full((2, 3), math.nan), coef=1.0), "rewards", 6),
    ],
    ids=called,
)
def test_overoptimization_names_a_bad_argument(call, argument, value):
    with raises(ArgumentError, argument=argument, value=value):
        call()


# -- constraints, approval, detectors ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_constraint_multipliers_hold_binding_constraints_and_free_others(seed):
    ref, proxy, cost = world(seed)
    costs = torch.stack([cost, -cost, proxy])
    limits = costs @ ref.exp() + torch.tensor([0.05, 0.3, 0.1], dtype=torch.float64)
    prices = ch20.constraint_multipliers(ref, proxy, costs, limits, strength=3.0)
    spent = costs @ over.tilt(ref, proxy - prices @ costs, strength=3.0).exp()
    assert (prices >= 0).all()
    assert (spent <= limits + 1e-6).all()
    torch.testing.assert_close(spent[prices > 1e-6], limits[prices > 1e-6], atol=1e-6, rtol=0)


@pytest.mark.parametrize("unit", [1e-2, 1e-3])
def test_constraint_multipliers_scale_with_the_unit_of_the_costs(unit):
    """Also where the costs hardly vary, and a fixed ridge on the curvature would dwarf it."""
    ref, proxy, cost = world(2)
    costs = torch.stack([cost, -cost, proxy])
    limits = costs @ ref.exp() + torch.tensor([0.05, 0.3, 0.1], dtype=torch.float64)
    prices = ch20.constraint_multipliers(ref, proxy, costs, limits, strength=3.0)
    scaled = ch20.constraint_multipliers(ref, proxy, unit * costs, unit * limits, strength=3.0)
    torch.testing.assert_close(unit * scaled, prices, atol=1e-9, rtol=0)


def test_constraint_multipliers_reject_infeasible_limits():
    ref, proxy, cost = world(0)
    with raises(ArgumentError, argument="limits", problem="infeasible"):
        ch20.constraint_multipliers(ref, proxy, cost[None], cost.min()[None] - 1, strength=1.0)
    with raises(ArgumentError, argument="costs", value=(8,)):
        ch20.constraint_multipliers(ref, proxy, cost, cost.max()[None], strength=1.0)
    forbidden = ref.masked_fill(cost == cost.min(), -math.inf).log_softmax(-1)  # the cheapest response cannot be given
    with raises(ArgumentError, argument="limits", problem="infeasible"):
        ch20.constraint_multipliers(forbidden, proxy, cost[None], cost.min()[None] + 1e-9, strength=1.0)


def test_decoupled_approval_rises_where_tampering_praises_itself():
    """The guarantee is for feedback that is moved alike for all; here acting makes the same action look better."""
    logps = torch.zeros(2, dtype=torch.float64).log_softmax(-1).requires_grad_()
    praise = torch.tensor([[0.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    (grad,) = torch.autograd.grad(over.decoupled_approval(logps, praise), logps)
    assert grad[1] > grad[0]
