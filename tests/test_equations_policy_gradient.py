"""The policy gradient and trust regions: whole steps, limits, bad arguments. Values: the ledger."""

import math

import pytest
import torch
from facts import called, raises

from minirlhf.core import exact
from minirlhf.core.errors import ArgumentError
from minirlhf.equations.policy_gradient import (
    gradient_variance,
    group_mean_shrinkage,
    optimal_baseline,
    policy_gradient,
    trajectory_score,
)
from minirlhf.equations.trust_region import (
    adaptive_penalty,
    conjugate_gradient,
    fisher_vector_product,
    performance_difference,
    quadratic_kl,
    surrogate_gain,
    trust_region_step,
)
from minirlhf_course.chapters.ch04_policy_gradients_to_ppo.equations import (
    log_derivative,
    policy_gradient_expectation,
    policy_gradient_theorem,
    trajectory_logp,
    value_gradient,
)
from minirlhf_course.ledger.inputs.processes import endless
from minirlhf_course.ledger.registry import Draw


def f64(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def close(a, b, atol=1e-12):
    torch.testing.assert_close(a, b, rtol=0, atol=atol)


@pytest.fixture(params=range(2))
def draw(request, suite_seed):
    return Draw("policy gradient", suite_seed, request.param)


# -- properties ------------------------------------------------------------------------------------------------------


def test_trajectory_logp_of_an_impossible_trajectory_is_minus_infinity():
    start, actions = f64(0.0, -math.inf), f64([-0.5, -0.5], [-0.5, -0.5])
    moves, mask = f64([0.0, math.nan], [0.0, 0.0]), torch.tensor([[1, 0], [1, 1]])
    close(trajectory_logp(start, actions, moves, mask).exp(), f64(math.exp(-0.5), 0.0))


# -- trust regions ---------------------------------------------------------------------------------------------------


def test_trust_region_step_reaches_max_kl_and_raises_the_objective(draw):
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


def test_conjugate_gradient_stops_when_done():
    calls = []

    def product(v):
        calls.append(v)
        return 2.0 * v

    close(conjugate_gradient(product, f64(1, 2, 3), iterations=50), f64(0.5, 1.0, 1.5))
    assert len(calls) == 1
    close(conjugate_gradient(product, f64(0, 0, 0), iterations=50), f64(0, 0, 0))


def test_fisher_vector_product_takes_several_parameter_tensors(draw):
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
    ("call", "argument", "value"),
    [
        (
            lambda: trajectory_logp(HALF, torch.zeros(2, 3), torch.zeros(2, 2), torch.ones(2, 3)),
            "transition_logps",
            (2, 2),
        ),
        (lambda: trajectory_logp(HALF, torch.zeros(2, 3), torch.zeros(2, 3), torch.zeros(2, 3)), "mask", [0, 1]),
        (lambda: log_derivative(HALF * 3, HALF, torch.zeros(2, 1)), "probs", [[]]),
        (lambda: log_derivative(HALF, HALF * math.nan, torch.zeros(2, 1)), "values", 2),
        (lambda: log_derivative(HALF, HALF, torch.zeros(3, 1)), "scores", (3, 1)),
        (lambda: trajectory_score(torch.zeros(2, 3), torch.ones(2, 3)), "scores", (2, 3)),
        (lambda: trajectory_score(torch.full((2, 3, 1), math.nan), torch.ones(2, 3)), "scores", 6),
        (lambda: policy_gradient(HALF, torch.zeros(2, 3, 1), torch.zeros(2), torch.ones(2, 3)), "psi", (2,)),
        (lambda: value_gradient(STAY, EVEN, JAC[:1], EVEN, gamma=0.5), "policy_jacobian", (1, 2, 3)),
        (lambda: value_gradient(STAY, EVEN, JAC + 1, EVEN, gamma=1.0), "transitions", [0, 1]),
        (lambda: policy_gradient_theorem(HALF * 2, JAC, EVEN, gamma=0.5), "state_occupancy", [[]]),
        (lambda: policy_gradient_theorem(HALF, JAC, EVEN, gamma=1.0), "gamma", 1.0),
        (lambda: policy_gradient_expectation(EVEN, JAC, EVEN, gamma=0.5), "occupancy", [[]]),
        (lambda: gradient_variance(HALF, torch.zeros(2)), "estimates", (2,)),
        (lambda: optimal_baseline(HALF, torch.zeros(2, 1), HALF), "scores", None),
        (lambda: group_mean_shrinkage(0), "num_samples", 0),
        (lambda: performance_difference(EVEN, EVEN, gamma=0.5), "new_occupancy", [[]]),
        (lambda: surrogate_gain(HALF, EVEN * 2, EVEN, gamma=0.5), "new_policy", [[0], [1]]),
        (lambda: fisher_vector_product(ONE, [ONE], torch.ones(1)), "kl", ((1,), True)),
        (lambda: fisher_vector_product(torch.tensor(1.0), [ONE], torch.ones(1)), "kl", ((), False)),
        (lambda: fisher_vector_product((ONE**2).sum(), [ONE], torch.ones(1), damping=-1.0), "damping", -1.0),
        (lambda: quadratic_kl(torch.ones(2), torch.ones(3)), "fisher_times_step", (3,)),
        (lambda: conjugate_gradient(lambda v: v, torch.ones(2, 1), iterations=1), "b", (2, 1)),
        (lambda: conjugate_gradient(lambda v: v, torch.ones(2), iterations=0), "iterations", 0),
        (lambda: conjugate_gradient(lambda v: -v, torch.ones(2), iterations=1), "matvec", -2.0),
        (lambda: trust_region_step(torch.ones(2), torch.ones(2), max_kl=0.0), "max_kl", 0.0),
        (lambda: trust_region_step(torch.ones(2), -torch.ones(2), max_kl=0.1), "direction", -2.0),
        (lambda: adaptive_penalty(0.0, 0.1, target=0.1), "beta", 0.0),
        (lambda: adaptive_penalty(1.0, math.nan, target=0.1), "observed", math.nan),
        (lambda: adaptive_penalty(1.0, 0.1, target=0.1, band=1.0), "band, factor", (1.0, 2.0)),
        (lambda: fisher_vector_product((ONE**2).sum(), [ONE], torch.ones(2)), "vector", (2,)),
        (lambda: adaptive_penalty(1.0, 0.1, target=0.0), "target", 0.0),
    ],
    ids=called,
)
def test_policy_gradient_and_trust_region_name_a_bad_argument(call, argument, value):
    with raises(ArgumentError, argument=argument, value=value):
        call()
