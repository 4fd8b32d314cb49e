"""The oracle for Markov decision processes against linear algebra, value iteration and a process solved by hand."""

import math

import pytest
import torch
from facts import raises

from minirlhf.core import exact_mdp
from minirlhf.core.errors import ArgumentError
from minirlhf_course.ledger.registry import Draw

GAMMA = 0.8


@pytest.fixture
def process(suite_seed):
    """``start, transitions, rewards, policy`` of a random process with 3 states and 2 actions."""
    draw = Draw("exact_mdp", suite_seed)
    return draw.distribution(3), draw.distribution(3, 2, 3), draw.normal(3, 2), draw.distribution(3, 2)


def close(a, b, atol=1e-12):
    torch.testing.assert_close(a, b, rtol=0, atol=atol)


def solved(transitions, rewards, policy):
    """State values from (I − γ P) V = r."""
    moves = torch.einsum("sa,sat->st", policy, transitions)
    return torch.linalg.solve(torch.eye(len(moves)).double() - GAMMA * moves, (policy * rewards).sum(-1))


@pytest.mark.parametrize("horizon", [0, 1, 3])
def test_trajectories_are_all_listed_once(process, horizon):
    start, transitions, _, policy = process
    paths = exact_mdp.trajectories(3, 2, horizon)
    assert paths.states.shape == (3 * 6**horizon, horizon + 1)
    rows = torch.cat([paths.states, paths.actions], 1).tolist()
    assert len({tuple(row) for row in rows}) == len(rows)
    close(exact_mdp.probabilities(paths, start, transitions, policy).sum(), torch.tensor(1.0).double())


def test_expected_return_and_visits_over_trajectories_and_over_time_agree(process):
    start, transitions, rewards, policy = process
    paths = exact_mdp.trajectories(3, 2, 4)
    probs = exact_mdp.probabilities(paths, start, transitions, policy)
    discount = GAMMA ** torch.arange(4).double()
    by_paths = (probs * (exact_mdp.step_rewards(paths, rewards) * discount).sum(-1)).sum()
    close(exact_mdp.expected_return(start, transitions, rewards, policy, gamma=GAMMA, steps=4), by_paths)
    visits = torch.zeros(3, 2).double()
    for p, states, actions in zip(probs, paths.states.tolist(), paths.actions.tolist(), strict=True):
        for t, a in enumerate(actions):
            visits[states[t], a] += GAMMA**t * p
    close(exact_mdp.visits(start, transitions, policy, gamma=GAMMA, steps=4), visits)


def test_state_and_action_values_solve_the_bellman_equations(process):
    start, transitions, rewards, policy = process
    state = exact_mdp.state_values(transitions, rewards, policy, gamma=GAMMA)
    action = exact_mdp.action_values(transitions, rewards, policy, gamma=GAMMA)
    close(state, solved(transitions, rewards, policy))
    close(action, rewards + GAMMA * transitions @ state)
    close((policy * action).sum(-1), state)
    close(exact_mdp.expected_return(start, transitions, rewards, policy, gamma=GAMMA), start @ state)
    total = exact_mdp.visits(start, transitions, policy, gamma=GAMMA).sum()
    close(total, torch.tensor(1 / (1 - GAMMA)).double())


def test_state_values_have_the_gradient_of_the_solved_values(process):
    start, transitions, rewards, policy = process
    gradients = []
    for value in (
        lambda p: exact_mdp.state_values(transitions, rewards, p, gamma=GAMMA),
        lambda p: solved(transitions, rewards, p),
    ):
        logits = policy.log().requires_grad_()
        (start @ value(logits.softmax(-1))).backward()
        gradients.append(logits.grad)
    close(*gradients, atol=1e-11)


def test_best_values_are_the_fixed_point_of_value_iteration(process):
    _, transitions, rewards, _ = process
    state, action = exact_mdp.best_values(transitions, rewards, gamma=GAMMA)
    found = torch.zeros(3, 2).double()
    for _ in range(400):
        found = rewards + GAMMA * transitions @ found.amax(-1)
    close(action, found)
    close(state, found.amax(-1))


def test_state_values_and_best_values_by_hand():
    """State 0: wait for 0 or leave for 1; state 1: nothing more. Leaving with probability p at each step."""
    transitions = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]]).double()
    rewards = torch.tensor([[0.0, 1.0], [0.0, 0.0]]).double()
    p = 0.3
    policy = torch.tensor([[1 - p, p], [0.5, 0.5]], dtype=torch.float64)
    value = p / (1 - GAMMA * (1 - p))
    close(
        exact_mdp.state_values(transitions, rewards, policy, gamma=GAMMA),
        torch.tensor([value, 0.0], dtype=torch.float64),
    )
    best, _ = exact_mdp.best_values(transitions, rewards, gamma=GAMMA)
    close(best, torch.tensor([1.0, 0.0]).double())
    assert len(list(exact_mdp.deterministic_policies(2, 2))) == 4


def test_horizon_for_reaches_the_precision():
    assert exact_mdp.horizon_for(0.0) == 1
    for gamma in (0.1, 0.9, 0.99):
        steps = exact_mdp.horizon_for(gamma)
        assert gamma**steps <= 1e-15 < gamma ** (steps - 1)
    for gamma in (1.0, -0.1, math.nan):
        with raises(ArgumentError, argument="gamma", value=gamma):
            exact_mdp.horizon_for(gamma)
