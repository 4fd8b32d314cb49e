"""Chapter 04 without sampling: listed episodes and their estimators, exact steps in the corridors."""

import math
from functools import partial

import pytest
import torch
from facts import raises

from minirlhf.core import exact, exact_mdp
from minirlhf.core.errors import ArgumentError
from minirlhf.equations import returns
from minirlhf.equations.policy_losses import importance_weighted, ppo_clip
from minirlhf_course.chapters.ch04_policy_gradients_to_ppo import estimates, steps

# -- estimators --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def listed():
    theta = torch.tensor([[0.0, 0.3], [0.2, -0.1], [0.0, 0.5], [0.0, 0.0]], dtype=torch.float64)
    return estimates.list_episodes(estimates.hill(), theta, horizon=4)


def test_policy_gradient_estimators_have_the_true_gradient_as_their_mean(listed):
    process = estimates.hill()

    def objective(theta):
        return exact_mdp.expected_return(
            process.start, process.transitions, process.expected_rewards, theta.softmax(-1), gamma=1.0, steps=4
        )

    truth = exact.finite_difference(objective, listed.theta).flatten()
    torch.testing.assert_close(listed.gradient(), truth, atol=1e-8, rtol=0)
    for psi in listed.choices().values():
        assert listed.bias_and_variance(psi)[0] < 1e-20


def test_policy_gradient_variance_falls_from_total_return_to_advantage(listed):
    variance = {name: listed.bias_and_variance(psi)[1] for name, psi in listed.choices().items()}
    order = ["total return", "reward-to-go", "reward-to-go − V", "TD residual", "advantage"]
    assert [variance[x] for x in order] == sorted((variance[x] for x in order), reverse=True)
    assert variance["advantage"] < variance["Q"] < variance["reward-to-go"]


def test_policy_gradient_variance_of_drawn_episodes_is_the_summed_one(listed, suite_seed):
    psi = listed.choices()["reward-to-go − V"]
    rng = torch.Generator().manual_seed(suite_seed)
    assert listed.sampled_variance(psi, count=20_000, rng=rng) == pytest.approx(
        listed.bias_and_variance(psi)[1], rel=0.15
    )


def test_gae_with_a_wrong_critic_biases_all_but_the_full_return(listed):
    found = []
    for lam in (0.0, 0.5, 0.9, 1.0):
        psi = returns.gae(listed.rewards, 0.5 * listed.values, listed.mask, lam=lam)
        found.append(listed.bias_and_variance(psi))
    biases, variances = zip(*found, strict=True)
    assert biases[0] > biases[1] > biases[2] > 1e-4 and biases[3] < 1e-20
    assert list(variances) == sorted(variances)


def test_list_episodes_refuses_too_many_and_wrong_shapes():
    with raises(ArgumentError, argument="horizon", value=9):
        estimates.list_episodes(estimates.hill(), torch.zeros(4, 2, dtype=torch.float64), horizon=9)
    with raises(ArgumentError, argument="theta"):
        estimates.list_episodes(estimates.hill(), torch.zeros(3, 2, dtype=torch.float64), horizon=2)


# -- steps -------------------------------------------------------------------------------------------------------


def logit(p):
    return torch.tensor([math.log(p / (1 - p))], dtype=torch.float64)


def test_value_of_the_short_corridor_is_its_closed_form():
    """Without discount J(p) = −2(2 − p)/(p(1 − p)): best at p = 2 − √2, where it is −11.6569."""
    process = steps.corridor(3, {1})
    world = steps.Exact(process, steps.alike(process), 1 - 1e-9)
    best = 2 - math.sqrt(2)
    assert float(world.value(logit(best))) == pytest.approx(-11.6569, abs=1e-3)
    for p in (0.2, 0.5, best, 0.8):
        assert float(world.value(logit(p))) == pytest.approx(-2 * (2 - p) / (p * (1 - p)), rel=1e-5)


@pytest.fixture(scope="module")
def world():
    process = steps.corridor(7, {2, 5})
    return steps.Exact(process, steps.place(process, scale=3.0), 0.95)


START = torch.zeros(2, dtype=torch.float64)


def test_surrogate_agrees_with_value_to_first_order_only(world):
    slope, truth = (
        exact.finite_difference(f, START) for f in (lambda t: world.surrogate(START, t), lambda t: world.value(t))
    )
    torch.testing.assert_close(slope, truth, atol=1e-6, rtol=0)
    far = START + world.natural_step(START, max_kl=0.3)
    assert world.surrogate(START, far) > 3 and world.value(far) < world.value(START)


def test_natural_step_spends_its_kl_and_gains_more_than_the_gradient(world):
    step = world.natural_step(START, max_kl=1e-4)
    assert float(world.kl(START, START + step)) == pytest.approx(1e-4, rel=0.02)
    slope = exact.finite_difference(lambda t: world.value(t), START)
    plain = slope * (1e-4 / float(world.kl(START, START + slope * 1e-3))) ** 0.5 * 1e-3
    assert float(world.kl(START, START + plain)) == pytest.approx(1e-4, rel=0.05)
    assert world.value(START + step) > world.value(START + plain)


def test_ppo_clip_stops_the_passes_and_importance_weights_go_on(world):
    clipped = world.ascend(START, ppo_clip, passes=200, learning_rate=0.05)
    free = world.ascend(START, importance_weighted, passes=200, learning_rate=0.05)
    assert len(clipped) == 201 and torch.equal(clipped[0], START)
    torch.testing.assert_close(clipped[1], free[1])  # on the first pass no ratio has left 1
    assert world.kl(START, clipped[-1]) < 0.1 < 1 < world.kl(START, free[-1])
    assert world.value(free[-1]) < world.value(START) < world.value(clipped[-1])


def test_exact_steps_refuse_arguments(world):
    with raises(ArgumentError, argument="features"):
        steps.Exact(world.process, world.features[:3], 0.9)
    with raises(ArgumentError, argument="num_cells", value=0):
        steps.corridor(0, ())
    with raises(ArgumentError, argument="exchanged", value=[3]):
        steps.corridor(3, {3})
    with raises(ArgumentError, argument="passes", value=0):
        world.ascend(START, partial(ppo_clip, epsilon=0.1), passes=0, learning_rate=0.1)
