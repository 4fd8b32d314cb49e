"""The policy gradient, its variance, and trust regions: worked examples, limits, bad input."""

import math

import pytest
import torch

from minirlhf.core import exact
from minirlhf.equations import mdp
from minirlhf.equations.policy_gradient import (
    gradient_variance,
    log_derivative,
    optimal_baseline,
    own_mean_shrinkage,
    policy_gradient,
    policy_gradient_expectation,
    policy_gradient_theorem,
    trajectory_logp,
    trajectory_score,
    value_gradient,
)
from minirlhf.equations.returns import returns_to_go, subtract_baseline, total_return
from minirlhf.equations.trust_region import (
    adaptive_penalty,
    conjugate_gradient,
    fisher_vector_product,
    performance_difference,
    quadratic_kl,
    surrogate_gain,
    trust_region_step,
)
from minirlhf.ledger.inputs.processes import endless, episodes
from minirlhf.ledger.registry import Draw


def f64(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def close(a, b, atol=1e-12):
    torch.testing.assert_close(a, b, rtol=0, atol=atol)


@pytest.fixture(params=range(5))
def draw(request, fresh_seed):
    return Draw("policy gradient", fresh_seed, request.param)


# -- worked examples -------------------------------------------------------------------------------------------------

PROBS, SCORES, Q = f64(0.9, 0.1), f64([0.1], [-0.9]), f64(1.0, 0.0)  # one logit: ∇log σ(θ) = 1 − π, ∇log σ(−θ) = −π


@pytest.mark.parametrize(("baseline", "variance"), [(0.0, 0.0009), (0.9, 0.0576), (0.1, 0.0)])
def test_the_value_is_not_the_best_baseline(baseline, variance):
    close(gradient_variance(PROBS, SCORES * (Q - baseline)[:, None]), f64(variance)[0])
    close(log_derivative(PROBS, Q - baseline, SCORES), f64(0.09))  # the mean does not move


def test_the_best_baseline():
    close(optimal_baseline(PROBS, SCORES, Q), f64(0.1)[0])
    assert (PROBS * Q).sum().item() == pytest.approx(0.9)


def test_a_mean_with_the_own_sample_shrinks_the_gradient():
    assert [own_mean_shrinkage(k) for k in (1, 2, 4)] == [0.0, 0.5, 0.75]


def test_the_gradient_vanishes_at_the_best_short_corridor():
    """Three states that look alike, right is reversed in the second: p* = 2 − √2, J* = −11.6569, no discount."""
    transitions = torch.zeros(4, 2, 4).double()  # actions: left, right
    for s, (left_to, right_to) in enumerate([(0, 1), (2, 0), (1, 3), (3, 3)]):
        transitions[s, 0, left_to] = transitions[s, 1, right_to] = 1.0
    rewards = f64([-1, -1], [-1, -1], [-1, -1], [0, 0])
    slope_of = f64([-1], [1]).expand(4, 2, 1)  # dπ/dp of (left, right)
    for p in (0.3, 2 - math.sqrt(2), 0.9):
        policy = f64(1 - p, p).expand(4, 2)
        values = mdp.policy_values(transitions, rewards, policy, gamma=1.0)
        q = mdp.action_values(transitions, rewards, values, gamma=1.0)
        got = value_gradient(transitions, policy, slope_of, q, gamma=1.0)[0, 0].item()
        numerator, denominator = 2 * p - 4, p * (1 - p)  # J = (2p − 4) / (p (1 − p))
        assert got == pytest.approx((2 * denominator - numerator * (1 - 2 * p)) / denominator**2, abs=1e-9)
        assert values[0].item() == pytest.approx(numerator / denominator)
        if p == 2 - math.sqrt(2):
            assert got == pytest.approx(0.0, abs=1e-9)
            assert values[0].item() == pytest.approx(-11.6569, abs=5e-5)


# -- properties ------------------------------------------------------------------------------------------------------


def test_the_best_baseline_beats_every_other(draw):
    probs, scores, q = draw.distribution(4), draw.normal(4, 3), draw.normal(4)
    scores = scores - probs @ scores  # a score has mean zero
    best = optimal_baseline(probs, scores, q)
    lowest = gradient_variance(probs, scores * (q - best)[:, None])
    for other in (best - 0.1, best + 0.1, (probs * q).sum(), q.mean(), torch.tensor(0.0).double()):
        assert gradient_variance(probs, scores * (q - other)[:, None]) >= lowest - 1e-12


def test_variance_falls_from_total_return_to_reward_to_go_with_values(draw):
    """All six choices have the same mean; on these episodes each step of the derivation lowers the variance."""
    e = episodes(draw)
    to_go = returns_to_go(e.rewards, e.mask)
    variances = []
    for psi in (total_return(e.rewards, e.mask), to_go, subtract_baseline(to_go, e.values, e.mask)):
        estimates = trajectory_score(psi[..., None] * e.scores, e.mask)
        close(e.probs @ estimates, policy_gradient(e.probs, e.scores, psi, e.mask))
        variances.append(gradient_variance(e.probs, estimates).item())
    assert variances == sorted(variances, reverse=True)


def test_impossible_trajectories_have_probability_zero():
    start, actions = f64(0.0, -math.inf), f64([-0.5, -0.5], [-0.5, -0.5])
    moves, mask = f64([0.0, math.nan], [0.0, 0.0]), torch.tensor([[1, 0], [1, 1]])
    close(trajectory_logp(start, actions, moves, mask).exp(), f64(math.exp(-0.5), 0.0))


def test_steps_after_the_end_do_not_matter(draw):
    e = episodes(draw)
    noise = torch.full_like(e.rewards, math.nan)
    scores = torch.where(e.mask[..., None], e.scores, noise[..., None])
    psi = torch.where(e.mask, e.action_values, noise)
    close(
        policy_gradient(e.probs, scores, psi, e.mask),
        policy_gradient(e.probs, e.scores, e.action_values, e.mask),
    )


# -- trust regions ---------------------------------------------------------------------------------------------------


def test_the_surrogate_is_exact_to_first_order(draw):
    """What it misses of the true gain shrinks with the step: below 1 % at a length of 0.001."""
    m = endless(draw)
    new = m.theta + 1e-3 * (m.gradient() / m.gradient().norm()).view(3, 2)
    true = performance_difference(m.occupancy(new), m.advantages(), gamma=m.gamma)
    close(true, m.objective(new) - m.objective(m.theta))
    gain = surrogate_gain(m.occupancy(m.theta).sum(-1), new.softmax(-1), m.advantages(), gamma=m.gamma)
    assert abs(gain - true) < 0.01 * abs(true)
    assert gain != true


def test_the_penalty_doubles_stays_and_halves():
    """A target of .01 nats: beyond .015 β doubles, below .00667 it halves."""
    assert [adaptive_penalty(3.0, kl, target=0.01) for kl in (0.016, 0.014, 0.007, 0.006)] == [6.0, 3.0, 3.0, 1.5]


def test_the_penalty_jumps_across_the_band_where_kl_goes_as_one_over_beta_squared():
    beta, seen = 1.0, set()
    for _ in range(20):
        beta = adaptive_penalty(beta, 0.0251 / beta**2, target=0.01)
        seen.add(beta)
    assert seen == {1.0, 2.0}


def test_a_whole_trust_region_step(draw):
    """Gradient, conjugate gradients, scaling: the divergence comes out at max_kl and the objective rises."""
    m, max_kl = endless(draw), 1e-4
    theta = m.theta.clone().requires_grad_()
    weights = m.occupancy(m.theta).sum(-1)
    kl = (weights * exact.divergence(m.policy, theta.softmax(-1))).sum()

    def product(v):
        return fisher_vector_product(kl, [theta], v, damping=1e-6)

    # A softmax has as many flat directions as states; the gradient has no part in them.
    direction = conjugate_gradient(product, m.gradient(), iterations=6)
    step = trust_region_step(direction, product(direction), max_kl=max_kl)
    close(quadratic_kl(step, product(step)), f64(max_kl)[0])
    new = m.theta + step.view(3, 2)
    moved = (weights * exact.divergence(m.policy, new.softmax(-1))).sum().item()
    assert moved == pytest.approx(max_kl, rel=0.05)
    assert m.objective(new) > m.objective(m.theta)
    plain = m.gradient() / m.gradient().norm() * step.norm()
    assert (
        m.gradient() @ step <= m.gradient() @ plain + 1e-12
    )  # Euclidean steepest ascent of the same length gains more


def test_conjugate_gradients_stop_when_done():
    calls = []

    def product(v):
        calls.append(v)
        return 2.0 * v

    close(conjugate_gradient(product, f64(1, 2, 3), iterations=50), f64(0.5, 1.0, 1.5))
    assert len(calls) == 1
    close(conjugate_gradient(product, f64(0, 0, 0), iterations=50), f64(0, 0, 0))


def test_several_parameter_tensors(draw):
    """Parameters of any shapes are one vector, in their order."""
    a, b = draw.normal(2, 3).requires_grad_(), draw.normal(3).requires_grad_()
    v = draw.normal(9)

    def divergence(x, y):
        return exact.divergence((a + b).detach().softmax(-1), (x + y).softmax(-1)).mean()

    got = fisher_vector_product(divergence(a, b), [a, b], v)
    hessian = torch.autograd.functional.hessian(
        lambda flat: divergence(flat[:6].view(2, 3), flat[6:]), torch.cat([a.detach().flatten(), b.detach()])
    )
    close(got, hessian @ v)


# -- bad input -------------------------------------------------------------------------------------------------------

HALF, JAC = torch.full((2,), 0.5), torch.zeros(2, 2, 3)
STAY = torch.eye(2)[:, None].expand(2, 2, 2)
EVEN = torch.full((2, 2), 0.5)
ONE = torch.ones(1, requires_grad=True)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: trajectory_logp(HALF, torch.zeros(2, 3), torch.zeros(2, 2), torch.ones(2, 3)),
            "transition_logps has shape",
        ),
        (lambda: trajectory_logp(HALF, torch.zeros(2, 3), torch.zeros(2, 3), torch.zeros(2, 3)), "mask of shape"),
        (lambda: log_derivative(HALF * 3, HALF, torch.zeros(2, 1)), r"probs of shape \(2,\)"),
        (lambda: log_derivative(HALF, HALF * math.nan, torch.zeros(2, 1)), "values of shape"),
        (lambda: log_derivative(HALF, HALF, torch.zeros(3, 1)), r"scores has shape \(3, 1\)"),
        (lambda: trajectory_score(torch.zeros(2, 3), torch.ones(2, 3)), r"scores has shape \(2, 3\)"),
        (lambda: trajectory_score(torch.full((2, 3, 1), math.nan), torch.ones(2, 3)), r"scores of shape \(2, 3, 1\)"),
        (
            lambda: policy_gradient(HALF, torch.zeros(2, 3, 1), torch.zeros(2), torch.ones(2, 3)),
            r"psi has shape \(2,\)",
        ),
        (lambda: value_gradient(STAY, EVEN, JAC[:1], EVEN, gamma=0.5), "policy_jacobian has shape"),
        (lambda: value_gradient(STAY, EVEN, JAC + 1, EVEN, gamma=1.0), "cannot reach a terminal state"),
        (lambda: policy_gradient_theorem(HALF * 2, JAC, EVEN, gamma=0.5), "state_occupancy of shape"),
        (lambda: policy_gradient_theorem(HALF, JAC, EVEN, gamma=1.0), "gamma = 1.0"),
        (lambda: policy_gradient_expectation(EVEN, JAC, EVEN, gamma=0.5), "occupancy of shape"),
        (lambda: gradient_variance(HALF, torch.zeros(2)), r"estimates has shape \(2,\)"),
        (lambda: optimal_baseline(HALF, torch.zeros(2, 1), HALF), r"scores of shape \(2, 1\) is zero"),
        (lambda: own_mean_shrinkage(0), "num_samples = 0"),
        (lambda: performance_difference(EVEN, EVEN, gamma=0.5), "new_occupancy of shape"),
        (lambda: surrogate_gain(HALF, EVEN * 2, EVEN, gamma=0.5), "new_policy of shape"),
        (lambda: fisher_vector_product(ONE, [ONE], torch.ones(1)), r"kl has shape \(1,\)"),
        (lambda: fisher_vector_product(torch.tensor(1.0), [ONE], torch.ones(1)), "requires_grad False"),
        (lambda: fisher_vector_product((ONE**2).sum(), [ONE], torch.ones(2)), r"vector has shape \(2,\)"),
        (lambda: fisher_vector_product((ONE**2).sum(), [ONE], torch.ones(1), damping=-1.0), "damping = -1.0"),
        (lambda: quadratic_kl(torch.ones(2), torch.ones(3)), "fisher_times_step has shape"),
        (lambda: conjugate_gradient(lambda v: v, torch.ones(2, 1), iterations=1), r"b has shape \(2, 1\)"),
        (lambda: conjugate_gradient(lambda v: v, torch.ones(2), iterations=0), "iterations = 0"),
        (lambda: conjugate_gradient(lambda v: -v, torch.ones(2), iterations=1), "not positive definite"),
        (lambda: trust_region_step(torch.ones(2), torch.ones(2), max_kl=0.0), "max_kl = 0.0"),
        (lambda: trust_region_step(torch.ones(2), -torch.ones(2), max_kl=0.1), "direction of shape"),
        (lambda: adaptive_penalty(0.0, 0.1, target=0.1), "beta = 0.0"),
        (lambda: adaptive_penalty(1.0, float("nan"), target=0.1), "observed = nan"),
        (lambda: adaptive_penalty(1.0, 0.1, target=0.0), "target = 0.0"),
        (lambda: adaptive_penalty(1.0, 0.1, target=0.1, band=1.0), "band = 1.0"),
    ],
)
def test_bad_input_names_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()
