"""Over-optimisation: the fitted forms, the tilted family with its controls, ensembles, bad input."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minirlhf.core import exact
from minirlhf.equations import overoptimization as over
from minirlhf.equations import rlhf

SEEDS = st.integers(0, 2**31)
ALPHA, BETA = st.floats(0.1, 3.0), st.floats(0.1, 3.0)


def world(seed, size=8):
    """A reference policy and two independent standard normal rewards of its responses."""
    rng = torch.Generator().manual_seed(seed)
    numbers = torch.randn(3, size, dtype=torch.float64, generator=rng)
    return numbers[0].log_softmax(-1), numbers[1], numbers[2]


# -- functional forms --------------------------------------------------------------------------------------------


def test_peaks_by_hand():
    assert over.gold_best_of_n_peak(alpha=2.0, beta=0.5) == (2.0, 2.0)
    assert over.gold_rl_peak(alpha=1.0, beta=1.0) == (1.0, 1.0)
    assert over.gold_rl_peak(alpha=1.0, beta=0.5) == pytest.approx((math.e, math.e / 2))


@settings(deadline=None)  # the machine may be busy
@given(ALPHA, BETA)
def test_the_peak_is_above_everything_else(alpha, beta):
    for form, peak in ((over.gold_best_of_n, over.gold_best_of_n_peak), (over.gold_rl, over.gold_rl_peak)):
        place, height = peak(alpha=alpha, beta=beta)
        curve = form(place * torch.linspace(0, 4, 401).double(), alpha=alpha, beta=beta)
        assert curve.argmax() == 100
        assert curve.max().item() == pytest.approx(height)


def test_both_forms_start_at_zero():
    start = torch.zeros(1)
    assert over.gold_best_of_n(start, alpha=1.0, beta=1.0) == 0
    assert over.gold_rl(start, alpha=1.0, beta=1.0) == 0
    assert over.gold_rl(start, alpha=1.0, beta=0.0) == 0


# -- tilted policies ---------------------------------------------------------------------------------------------


@settings(deadline=None)  # the machine may be busy
@given(SEEDS, st.floats(0.05, 20.0))
def test_the_tilt_is_the_rlhf_optimum(seed, strength):
    ref, proxy, _ = world(seed)
    torch.testing.assert_close(
        over.tilt(ref, proxy, strength=strength), rlhf.optimal_logps(ref, proxy, beta=1 / strength)
    )


@settings(deadline=None)  # the machine may be busy
@given(SEEDS, st.floats(-2, 2), st.floats(-2, 2))
def test_tilts_add_up(seed, first, second):
    ref, proxy, _ = world(seed)
    twice = over.tilt(over.tilt(ref, proxy, strength=first), proxy, strength=second)
    torch.testing.assert_close(twice, over.tilt(ref, proxy, strength=first + second))
    torch.testing.assert_close(over.tilt(ref, proxy, strength=0.0), ref)


def gold_along(ref, proxy, gold, strengths):
    return torch.stack([exact.expectation(over.tilt(ref, proxy, strength=s).exp(), gold) for s in strengths])


STRENGTHS = torch.linspace(0, 6, 61).tolist()


@settings(deadline=None)  # the machine may be busy
@given(SEEDS)
def test_a_proxy_that_is_the_gold_reward_never_over_optimises(seed):
    ref, gold, _ = world(seed)
    curve = gold_along(ref, 2 * gold + 3, gold, STRENGTHS)
    assert (curve.diff() > -1e-14).all()  # it may stand still, to rounding, once the best response has all the mass
    assert curve[1] > curve[0]


def test_gold_turns_down_where_its_covariance_with_the_proxy_changes_sign():
    """Facts help; filler helps only the proxy. First facts are added, then filler crowds them out."""
    facts = torch.tensor([0.0, 1.0, 2.0, 2.0, 0.0, 0.0]).double()
    filler = torch.tensor([0.0, 0.0, 0.0, 1.0, 3.0, 4.0]).double()
    gold, proxy = facts - filler, facts + filler
    ref = torch.tensor([0.5, 0.3, 0.15, 0.04, 0.009, 0.001]).double().log()
    curve = gold_along(ref, proxy, gold, STRENGTHS)
    top = int(curve.argmax())
    assert 0 < top < 60
    assert curve[-1] < curve[0] < curve[top]
    slopes = [over.tilt_slope(over.tilt(ref, proxy, strength=s), gold, proxy) for s in STRENGTHS]
    assert slopes[top - 1] > 0 > slopes[top + 1]
    assert (gold_along(ref, proxy, proxy, STRENGTHS).diff() > 0).all()


def test_extreme_strengths_stay_finite():
    ref, proxy, gold = world(1)
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        logps = over.tilt(ref.to(dtype), proxy.to(dtype), strength=1e4)
        assert logps.isfinite().all()
        assert over.tilt_slope(logps, gold.to(dtype), proxy.to(dtype)).isfinite()
        assert logps.exp().argmax() == proxy.to(dtype).argmax()


def test_gaussian_lines_by_hand():
    distance = torch.tensor([0.0, 1.0, 2.0])
    torch.testing.assert_close(over.linear_gold(distance, correlation=0.5, gold_std=2.0), distance * math.sqrt(2))
    assert (over.linear_gold(distance, correlation=0.0, gold_std=2.0) == 0).all()
    direction, slope = torch.tensor([3.0, 4.0]), torch.tensor([1.0, 0.0])
    alpha, beta = over.quadratic_gold_coefficients(direction, slope, torch.eye(2))
    assert (alpha, beta) == pytest.approx((math.sqrt(2) * 0.6, 1.0))


# -- ensembles ---------------------------------------------------------------------------------------------------


@settings(deadline=None)  # the machine may be busy
@given(SEEDS, st.floats(0, 5))
def test_ensembles_do_not_see_the_order_of_their_members(seed, coef):
    rewards = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    for combine in (over.worst_case, lambda r: over.uncertainty_weighted(r, coef=coef)):
        value = combine(rewards)
        torch.testing.assert_close(combine(rewards.flip(0)), value)
        torch.testing.assert_close(combine(rewards + 3), value + 3)
        assert (value <= rewards.mean(0) + 1e-12).all()
        torch.testing.assert_close(combine(rewards[:1]), rewards[0])


def test_ensembles_by_hand():
    rewards = torch.tensor([[1.0, 0.0], [3.0, 0.0]])
    assert over.worst_case(rewards).tolist() == [1.0, 0.0]
    assert over.uncertainty_weighted(rewards, coef=0.5).tolist() == [1.5, 0.0]
    assert over.uncertainty_weighted(rewards, coef=0.0).tolist() == [2.0, 0.0]


# -- bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: over.gold_rl(torch.tensor([-0.1]), alpha=1.0, beta=1.0), "clip the KL at 0"),
        (lambda: over.gold_best_of_n(torch.tensor([math.nan]), alpha=1.0, beta=1.0), r"distance of shape \(1,\)"),
        (lambda: over.gold_rl_peak(alpha=1.0, beta=0.0), "beta = 0.0"),
        (lambda: over.gold_best_of_n_peak(alpha=-1.0, beta=1.0), "alpha = -1.0"),
        (lambda: over.tilt(torch.zeros(3), torch.zeros(2), strength=1.0), r"ref_logps has shape \(3,\)"),
        (lambda: over.tilt(torch.zeros(3), torch.zeros(3), strength=math.inf), "strength = inf"),
        (lambda: over.tilt_slope(torch.zeros(2, 3), torch.zeros(3), torch.zeros(3)), r"values has shape \(3,\)"),
        (lambda: over.tilt_kl_slope(torch.zeros(3), torch.zeros(3) * math.nan, strength=1.0), "holds 3 non-finite"),
        (lambda: over.linear_gold(torch.zeros(1), correlation=1.5, gold_std=1.0), "correlation = 1.5"),
        (lambda: over.quadratic_gold_coefficients(torch.zeros(2), torch.ones(2), torch.eye(2)), "direction of shape"),
        (lambda: over.quadratic_gold_coefficients(torch.ones(2), torch.ones(2), torch.eye(3)), "curvature has shape"),
        (lambda: over.worst_case(torch.zeros(3)), r"rewards has shape \(3,\)"),
        (lambda: over.uncertainty_weighted(torch.zeros(2, 3), coef=-1.0), "coef = -1.0"),
        (lambda: over.uncertainty_weighted(torch.full((2, 3), math.nan), coef=1.0), "rewards of shape"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# -- constraints, approval, detectors ----------------------------------------------------------------------------


@settings(deadline=None)  # the machine may be busy
@given(SEEDS)
def test_constraints_that_bind_hold_and_others_are_free(seed):
    ref, proxy, cost = world(seed)
    costs = torch.stack([cost, -cost, proxy])
    limits = costs @ ref.exp() + torch.tensor([0.05, 0.3, 0.1], dtype=torch.float64)
    prices = over.constraint_multipliers(ref, proxy, costs, limits, strength=3.0)
    spent = costs @ over.tilt(ref, proxy - prices @ costs, strength=3.0).exp()
    assert (prices >= 0).all()
    assert (spent <= limits + 1e-6).all()
    torch.testing.assert_close(spent[prices > 1e-6], limits[prices > 1e-6], atol=1e-6, rtol=0)


def test_constraints_that_nobody_can_meet():
    ref, proxy, cost = world(0)
    with pytest.raises(ValueError, match="no policy spends less"):
        over.constraint_multipliers(ref, proxy, cost[None], cost.min()[None] - 1, strength=1.0)
    with pytest.raises(ValueError, match="costs has shape"):
        over.constraint_multipliers(ref, proxy, cost, cost.max()[None], strength=1.0)
    forbidden = ref.masked_fill(cost == cost.min(), -math.inf).log_softmax(-1)  # the cheapest response cannot be given
    with pytest.raises(ValueError, match="no policy spends less"):
        over.constraint_multipliers(forbidden, proxy, cost[None], cost.min()[None] + 1e-9, strength=1.0)


def test_decoupled_approval_can_still_be_bribed_if_tampering_praises_itself():
    """The guarantee is for feedback that is moved alike for all; here acting makes the same action look better."""
    logps = torch.zeros(2, dtype=torch.float64).log_softmax(-1).requires_grad_()
    praise = torch.tensor([[0.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    (grad,) = torch.autograd.grad(over.decoupled_approval(logps, praise), logps)
    assert grad[1] > grad[0]


@settings(deadline=None)  # the machine may be busy
@given(SEEDS)
def test_auc_is_one_half_for_a_score_that_knows_nothing_and_turns_round_with_it(seed):
    rng = torch.Generator().manual_seed(seed)
    a, b, scores = torch.rand(3, 9, dtype=torch.float64, generator=rng)
    assert over.roc_auc(torch.zeros(9), a, b).item() == pytest.approx(0.5)
    assert over.roc_auc(scores, a, a).item() == pytest.approx(0.5)
    assert (over.roc_auc(scores, a, b) + over.roc_auc(-scores, a, b)).item() == pytest.approx(1.0)


def test_auc_needs_both_classes():
    with pytest.raises(ValueError, match="negatives of shape"):
        over.roc_auc(torch.zeros(3), torch.ones(3), torch.zeros(3))
