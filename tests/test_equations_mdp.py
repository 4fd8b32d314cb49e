"""Tables, Bellman equations and learning from samples: published examples, limits, precision, bad arguments."""

import math

import pytest
import torch
from facts import called, raises

from minirlhf.core.errors import ArgumentError
from minirlhf.equations.mdp import (
    action_values,
    discounted_return,
    greedy_policy,
    mrp_values,
    occupancy,
    policy_values,
    values_from_actions,
)
from minirlhf.equations.value_learning import (
    beta_posterior,
    double_dqn_target,
    epsilon_greedy,
    n_step_target,
    q_learning_target,
    regret,
    sarsa_target,
    td_target,
    ucb_scores,
)
from minirlhf_course.ledger.inputs.processes import random_process
from minirlhf_course.ledger.registry import Draw


def f64(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def close(a, b, atol=1e-12):
    torch.testing.assert_close(a, b, rtol=0, atol=atol)


@pytest.fixture(params=range(2))
def draw(request, suite_seed):
    return Draw("mdp", suite_seed, request.param)


# -- the reward process with six states ----------------------------------------------------------------------------

CHAIN = f64(
    [0.9, 0.1, 0.0, 0.0, 0.0, 0.0],
    [0.5, 0.0, 0.5, 0.0, 0.0, 0.0],
    [0.0, 0.0, 0.0, 0.6, 0.0, 0.4],
    [0.0, 0.0, 0.0, 0.0, 0.3, 0.7],
    [0.0, 0.2, 0.3, 0.5, 0.0, 0.0],
    [0.0, 0.0, 0.0, 0.0, 0.0, 1.0],
)
CHAIN_REWARDS = f64(-1, -2, -2, 10, 1, 0)


def test_mrp_values_of_the_six_state_process_by_hand():
    values = mrp_values(CHAIN, CHAIN_REWARDS, gamma=0.5)
    close(values, f64(-2.0195, -2.2145, 1.1614, 10.5381, 3.5873, 0.0), 5e-5)


# -- the decision process with five states and two actions ---------------------------------------------------------

STAY, S1, S2, S3, S4, S5 = (torch.eye(5).double()[i] for i in (0, 0, 1, 2, 3, 4))
MOVES = torch.stack(
    [
        torch.stack([STAY, S2]),
        torch.stack([S1, S3]),
        torch.stack([S4, S5]),
        torch.stack([S5, 0.2 * S2 + 0.4 * S3 + 0.4 * S4]),
        torch.stack([S5, S5]),
    ]
)
PAY = f64([-1, 0], [-1, -2], [-2, 0], [10, 1], [0, 0])
EVEN = torch.full((5, 2), 0.5).double()
CAUTIOUS = f64([0.6, 0.4], [0.3, 0.7], [0.5, 0.5], [0.1, 0.9], [0.5, 0.5])
START = f64(1, 1, 1, 1, 0) / 4


def test_occupancy_of_one_action_under_two_policies_by_hand():
    for policy, expected in ((EVEN, 0.0962), (CAUTIOUS, 0.2006)):
        got = occupancy(MOVES, policy, START, gamma=0.5)
        assert got[3, 1].item() == pytest.approx(expected, abs=5e-5)
        assert got.sum().item() == pytest.approx(1.0)


# -- the short corridor ---------------------------------------------------------------------------------------------------------


def short_corridor(right):
    """Three states that look the same; in the second, right is left. −1 per step; ``right`` is the chance to go right."""
    transitions = torch.zeros(4, 2, 4).double()  # actions: left, right
    for s, (left_to, right_to) in enumerate([(0, 1), (2, 0), (1, 3), (3, 3)]):
        transitions[s, 0, left_to] = transitions[s, 1, right_to] = 1.0
    rewards = f64([-1, -1], [-1, -1], [-1, -1], [0, 0])
    return transitions, rewards, torch.stack([1 - right, right]).expand(4, 2)


def test_policy_values_of_the_short_corridor_by_hand():
    """The best stochastic policy goes right with p* = 2 − √2 and needs 11.6569 steps; both greedy ones never arrive."""
    p = f64(2 - math.sqrt(2))[0].requires_grad_()
    value = policy_values(*short_corridor(p), gamma=1.0)[0]
    assert value.item() == pytest.approx(-11.6569, abs=5e-5)
    assert value.item() == pytest.approx(-6 - 4 * math.sqrt(2), abs=1e-9)
    (slope,) = torch.autograd.grad(value, p)
    assert abs(slope.item()) < 1e-9
    for other in (0.3, 0.5, 0.6, 0.9):
        q = torch.tensor(other).double()
        found = policy_values(*short_corridor(q), gamma=1.0)[0].item()
        assert found == pytest.approx((2 * other - 4) / (other * (1 - other)), abs=1e-5)  # closed form
        assert found < value.item()
    with raises(ArgumentError, argument="transitions", value=[0, 1], problem="not terminating"):
        policy_values(*short_corridor(torch.tensor(1.0).double()), gamma=1.0)


# -- properties ------------------------------------------------------------------------------------------------------


def test_policy_values_and_occupancy_in_single_precision(draw):
    """float32 within 1e-5 of float64 (at γ ≤ .55: the condition of the system is below 4)."""
    p, start = random_process(draw), draw.distribution(3)
    low = [x.float() for x in p[:3]]
    got = policy_values(*low, gamma=p.gamma)
    assert got.dtype == torch.float32
    close(got.double(), policy_values(*p[:3], gamma=p.gamma), 1e-5)
    low_nu = occupancy(low[0], low[2], start.float(), gamma=p.gamma)
    close(low_nu.double(), occupancy(p.transitions, p.policy, start, gamma=p.gamma), 1e-5)


def test_mrp_values_of_an_ended_process_are_zero():
    assert mrp_values(torch.eye(2).double(), torch.zeros(2).double(), gamma=1.0).tolist() == [0.0, 0.0]


# -- targets ---------------------------------------------------------------------------------------------------------


def test_value_learning_targets_ignore_values_of_terminal_states():
    rewards, ended = f64(1.0, 2.0), torch.tensor([False, True])
    q = f64([3.0, 5.0], [math.nan, math.inf])
    close(td_target(rewards, f64(4.0, math.nan), ended, gamma=0.5), f64(3.0, 2.0))
    close(sarsa_target(rewards, q, torch.tensor([0, -1]), ended, gamma=0.5), f64(2.5, 2.0))
    close(q_learning_target(rewards, q, ended, gamma=0.5), f64(3.5, 2.0))
    close(double_dqn_target(rewards, f64([1, 0], [0, 0]), q, ended, gamma=0.5), f64(2.5, 2.0))


# -- bandits ---------------------------------------------------------------------------------------------------------


def test_epsilon_greedy_shares_ties_and_reaches_greedy_and_uniform(draw):
    q = draw.normal(2, 4)
    close(epsilon_greedy(q, epsilon=0.0), greedy_policy(q))
    close(epsilon_greedy(q, epsilon=1.0), torch.full((2, 4), 0.25).double())
    close(epsilon_greedy(f64(0, 0, 1), epsilon=0.3), f64(0.1, 0.1, 0.8))


def test_ucb_scores_prefer_untried_arms():
    means, counts = f64(0.9, 0.5, 0.1), torch.tensor([100, 4, 0])
    scores = ucb_scores(means, counts, step=104)
    assert scores[2] == math.inf
    assert scores[1] > scores[0] > means[0]
    assert ucb_scores(means[:2], torch.tensor([100_000, 4_000]), step=104_000).argmax() == 0


# -- bad input -------------------------------------------------------------------------------------------------------

BAD_ROWS = torch.full((2, 2), 0.6)
ENDED = torch.tensor([False, True])


@pytest.mark.parametrize(
    ("call", "argument", "value"),
    [
        (lambda: mrp_values(BAD_ROWS, torch.zeros(2), gamma=0.5), "transitions", [[0], [1]]),
        (lambda: mrp_values(f64([1.5, -0.5], [0, 1]), f64(0, 0), gamma=0.5), "transitions", [[0]]),
        (lambda: mrp_values(torch.eye(2), torch.zeros(2), gamma=1.5), "gamma", 1.5),
        (lambda: policy_values(MOVES, PAY, EVEN * 2, gamma=0.5), "policy", [[0], [1], [2], [3], [4]]),
        (lambda: policy_values(MOVES, PAY[:, :1], EVEN, gamma=0.5), "rewards", (5, 1)),
        (lambda: policy_values(MOVES, PAY, EVEN * math.nan, gamma=0.5), "policy", [[0], [1], [2], [3], [4]]),
        (lambda: action_values(MOVES, PAY, torch.zeros(4), gamma=0.5), "values", (4,)),
        (lambda: values_from_actions(PAY, EVEN.T), "policy", (2, 5)),
        (lambda: greedy_policy(torch.zeros(3)), "action_values", (3,)),
        (lambda: occupancy(MOVES, EVEN, START, gamma=1.0), "gamma", 1.0),
        (lambda: occupancy(MOVES, EVEN, torch.zeros(5), gamma=0.5), "start", [[]]),
        (lambda: occupancy(MOVES, EVEN, START[:4], gamma=0.5), "start", (4,)),
        (lambda: discounted_return(torch.tensor(1.0), gamma=0.5), "rewards", ()),
        (lambda: discounted_return(torch.ones(2), gamma=-0.1), "gamma", -0.1),
        (lambda: td_target(torch.ones(2), torch.ones(3), ENDED, gamma=0.5), "next_values", (3,)),
        (lambda: td_target(torch.ones(2), torch.ones(2), ENDED.float(), gamma=0.5), "terminated", torch.float32),
        (lambda: td_target(torch.ones(2), torch.tensor([math.nan, 0.0]), ENDED, gamma=0.5), "next_values", 1),
        (lambda: n_step_target(torch.ones(2), torch.ones(2), gamma=0.5), "rewards", (2,)),
        (
            lambda: sarsa_target(torch.ones(2), torch.ones(2, 3), torch.tensor([3, 0]), ENDED, gamma=0.5),
            "next_actions",
            None,
        ),
        (
            lambda: sarsa_target(torch.ones(2), torch.ones(2, 3), torch.ones(2), ENDED, gamma=0.5),
            "next_actions",
            torch.float32,
        ),
        (lambda: q_learning_target(torch.ones(2), torch.ones(2), ENDED, gamma=0.5), "next_action_values", (2,)),
        (
            lambda: double_dqn_target(torch.ones(2), torch.ones(2, 3), torch.ones(2, 2), ENDED, gamma=0.5),
            "target_action_values",
            (2, 2),
        ),
        (lambda: epsilon_greedy(torch.ones(2), epsilon=1.1), "epsilon", 1.1),
        (lambda: ucb_scores(torch.ones(2), torch.tensor([1, -1]), step=3), "counts", None),
        (lambda: ucb_scores(torch.ones(2), torch.ones(2), step=0), "step", 0),
        (lambda: regret(torch.ones(2), torch.tensor([0, 2])), "actions", None),
        (lambda: beta_posterior(torch.ones(2), -torch.ones(2)), "failures", None),
        (lambda: beta_posterior(torch.ones(2), torch.ones(2), prior=(0.0, 1.0)), "prior[0]", 0.0),
        (lambda: mrp_values(torch.eye(2), torch.zeros(3), gamma=0.5), "rewards", (3,)),
        (lambda: mrp_values(torch.eye(2), torch.tensor([0.0, 1.0]), gamma=1.0), "transitions", [1]),
        (lambda: mrp_values(f64([0, 1], [1, 0]), f64(1, -1), gamma=1.0), "transitions", [0, 1]),
    ],
    ids=called,
)
def test_mdp_and_value_learning_name_a_bad_argument(call, argument, value):
    with raises(ArgumentError, argument=argument, value=value):
        call()
