"""Tables, Bellman equations and learning from samples: worked examples, limits, invariances, bad input."""

import math

import pytest
import torch

from minirlhf.core import exact_mdp
from minirlhf.equations.mdp import (
    action_values,
    advantage_function,
    bellman_expectation,
    bellman_optimality,
    discounted_return,
    greedy_policy,
    marginalise,
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
from minirlhf.ledger.inputs.processes import random_process
from minirlhf.ledger.registry import Draw


def f64(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def close(a, b, atol=1e-12):
    torch.testing.assert_close(a, b, rtol=0, atol=atol)


@pytest.fixture(params=range(5))
def draw(request, fresh_seed):
    return Draw("mdp", fresh_seed, request.param)


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


def test_the_return_of_one_path():
    path = [0, 1, 2, 5]  # s1 s2 s3 s6
    assert discounted_return(CHAIN_REWARDS[path], gamma=0.5).item() == -2.5
    close(discounted_return(torch.stack([CHAIN_REWARDS[path]] * 2), gamma=0.5), f64(-2.5, -2.5))
    assert discounted_return(CHAIN_REWARDS[path], gamma=0.0).item() == -1.0
    assert discounted_return(CHAIN_REWARDS[path], gamma=1.0).item() == -5.0


def test_the_bellman_matrix_solution():
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


def test_a_policy_turns_it_into_a_reward_process():
    transitions, rewards = marginalise(MOVES, PAY, EVEN)
    close(rewards, f64(-0.5, -1.5, -1.0, 5.5, 0.0))
    close(transitions[3], f64(0.0, 0.1, 0.2, 0.2, 0.5))
    expected = f64(-1.2256, -1.6767, 0.5189, 6.0756, 0.0)
    close(mrp_values(transitions, rewards, gamma=0.5), expected, 5e-5)
    close(policy_values(MOVES, PAY, EVEN, gamma=0.5), expected, 5e-5)


def test_the_occupancy_of_one_action_under_two_policies():
    for policy, expected in ((EVEN, 0.0962), (CAUTIOUS, 0.2006)):
        got = occupancy(MOVES, policy, START, gamma=0.5)
        assert got[3, 1].item() == pytest.approx(expected, abs=5e-5)
        assert got.sum().item() == pytest.approx(1.0)


# -- grids ---------------------------------------------------------------------------------------------------------

STEPS = [(-1, 0), (1, 0), (0, -1), (0, 1)]


def grid(size, jumps=(), ends=(), off_grid=-1.0, per_step=0.0):
    """Four moves on a square; ``jumps`` maps a cell to (where every move leads, reward); walls cost ``off_grid``."""
    transitions, rewards = torch.zeros(size**2, 4, size**2).double(), torch.full((size**2, 4), per_step).double()
    for row in range(size):
        for column in range(size):
            cell = row * size + column
            for a, (down, right) in enumerate(STEPS):
                to_row, to_column = row + down, column + right
                if cell in ends:
                    to, reward = cell, 0.0
                elif cell in dict(jumps):
                    to, reward = dict(jumps)[cell]
                elif 0 <= to_row < size and 0 <= to_column < size:
                    to, reward = to_row * size + to_column, per_step
                else:
                    to, reward = cell, per_step + off_grid
                transitions[cell, a, to], rewards[cell, a] = 1.0, reward
    return transitions, rewards


def uniform(states):
    return torch.full((states, 4), 0.25).double()


def test_the_five_by_five_grid():
    """A (top, second) pays 10 and leads to the bottom; B (top, fourth) pays 5 and leads to the middle row."""
    transitions, rewards = grid(5, jumps=[(1, (21, 10.0)), (3, (13, 5.0))])
    values = policy_values(transitions, rewards, uniform(25), gamma=0.9)
    close(values[:5], f64(3.3, 8.8, 4.4, 5.3, 1.5), 0.05)
    close(values[20:], f64(-1.9, -1.3, -1.2, -1.4, -2.0), 0.05)
    best = torch.zeros(25).double()
    for _ in range(400):
        best = bellman_optimality(transitions, rewards, best, gamma=0.9)
    close(best[:5], f64(22.0, 24.4, 22.0, 19.4, 17.5), 0.05)
    policy = greedy_policy(action_values(transitions, rewards, best, gamma=0.9))
    close(policy_values(transitions, rewards, policy, gamma=0.9), best, 1e-9)


def test_the_four_by_four_grid():
    """−1 per move, two opposite corners end it, no discount."""
    transitions, rewards = grid(4, ends=(0, 15), off_grid=0.0, per_step=-1.0)
    values = policy_values(transitions, rewards, uniform(16), gamma=1.0).view(4, 4)
    rows = [[0, -14, -20, -22], [-14, -18, -20, -20], [-20, -20, -18, -14], [-22, -20, -14, 0]]
    close(values, f64(*rows), 1e-10)
    swept = torch.zeros(16).double()
    for _ in range(1000):
        swept = bellman_expectation(transitions, rewards, uniform(16), swept, gamma=1.0)
    close(swept.view(4, 4), values, 1e-9)


def test_policy_iteration_on_the_four_by_four_grid():
    transitions, rewards = grid(4, ends=(0, 15), off_grid=0.0, per_step=-1.0)
    policy = greedy_policy(
        action_values(transitions, rewards, policy_values(transitions, rewards, uniform(16), gamma=1.0), gamma=1.0)
    )
    close(
        policy_values(transitions, rewards, policy, gamma=1.0).view(4, 4),
        f64([0, -1, -2, -3], [-1, -2, -3, -2], [-2, -3, -2, -1], [-3, -2, -1, 0]),
    )


def test_the_random_walk():
    """Five states in a row, a coin at each step, 1 for leaving on the right: values 1/6 … 5/6 without discount."""
    transitions, rewards = torch.zeros(7, 7).double(), torch.zeros(7).double()
    transitions[0, 0] = transitions[6, 6] = 1.0
    for s in range(1, 6):
        transitions[s, s - 1] = transitions[s, s + 1] = 0.5
    rewards[5] = 0.5  # expected: half of the time it leaves
    close(mrp_values(transitions, rewards, gamma=1.0), f64(0, 1, 2, 3, 4, 5, 0) / 6)


def short_corridor(right):
    """Three states that look the same; in the second, right is left. −1 per step; ``right`` is the chance to go right."""
    transitions = torch.zeros(4, 2, 4).double()  # actions: left, right
    for s, (left_to, right_to) in enumerate([(0, 1), (2, 0), (1, 3), (3, 3)]):
        transitions[s, 0, left_to] = transitions[s, 1, right_to] = 1.0
    rewards = f64([-1, -1], [-1, -1], [-1, -1], [0, 0])
    return transitions, rewards, torch.stack([1 - right, right]).expand(4, 2)


def test_the_short_corridor():
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
    with pytest.raises(ValueError, match="cannot reach a terminal state"):
        policy_values(*short_corridor(torch.tensor(1.0).double()), gamma=1.0)


# -- properties ------------------------------------------------------------------------------------------------------


def test_without_a_future_there_is_only_the_reward(draw):
    p = random_process(draw)
    close(policy_values(*p[:3], gamma=0.0), (p.policy * p.rewards).sum(-1))
    close(bellman_optimality(p.transitions, p.rewards, draw.normal(3), gamma=0.0), p.rewards.amax(-1))
    close(occupancy(p.transitions, p.policy, draw.distribution(3).fill_(1 / 3), gamma=0.0), p.policy / 3)


def test_with_an_endless_horizon_only_the_average_reward_counts(draw):
    """(1 − γ) V tends to the mean reward under the stationary distribution, the same in all states."""
    p = random_process(draw)
    moves, rewards = marginalise(*p[:3])
    stationary = torch.linalg.matrix_power(moves, 1 << 10)[0]
    scaled = (1 - 0.999999) * mrp_values(moves, rewards, gamma=0.999999)
    close(scaled, (stationary @ rewards).expand(3), 1e-4)


def test_rewards_shifted_by_a_constant_shift_all_values_alike(draw):
    p = random_process(draw)
    shifted = policy_values(p.transitions, p.rewards + 2.0, p.policy, gamma=p.gamma)
    close(shifted, policy_values(*p[:3], gamma=p.gamma) + 2.0 / (1 - p.gamma), 1e-11)


def test_the_names_of_the_states_do_not_matter(draw):
    p, order = random_process(draw), draw.permutation(3)
    renamed = p.transitions[order][:, :, order], p.rewards[order], p.policy[order]
    close(policy_values(*renamed, gamma=p.gamma), policy_values(*p[:3], gamma=p.gamma)[order])
    start = draw.distribution(3)
    close(
        occupancy(renamed[0], renamed[2], start[order], gamma=p.gamma),
        occupancy(p.transitions, p.policy, start, gamma=p.gamma)[order],
    )


def test_the_operators_are_monotone_contractions(draw):
    p, low = random_process(draw), draw.normal(3)
    high = low + draw.uniform(3)
    for operator in (
        lambda v: bellman_expectation(*p[:3], v, gamma=p.gamma),
        lambda v: bellman_optimality(p.transitions, p.rewards, v, gamma=p.gamma),
    ):
        assert (operator(low) <= operator(high)).all()
        assert (operator(high) - operator(low)).abs().max() <= p.gamma * (high - low).abs().max() + 1e-12


def test_values_and_advantages_hang_together(draw):
    p = random_process(draw, actions=3)
    v = policy_values(*p[:3], gamma=p.gamma)
    q = action_values(p.transitions, p.rewards, v, gamma=p.gamma)
    close(values_from_actions(q, p.policy), v)
    close((p.policy * advantage_function(q, p.policy)).sum(-1), torch.zeros(3).double())
    close(advantage_function(q, greedy_policy(q)).amax(-1), torch.zeros(3).double())


def test_the_occupancy_solves_the_flow_equation(draw):
    """What is in a state came from the start or from a predecessor."""
    p, start = random_process(draw), draw.distribution(3)
    nu = occupancy(p.transitions, p.policy, start, gamma=p.gamma)
    close(nu.sum(-1), (1 - p.gamma) * start + p.gamma * torch.einsum("sa,sat->t", nu, p.transitions))
    close(nu / nu.sum(-1, keepdim=True), p.policy)


def test_single_precision(draw):
    """float32 within 1e-5 of float64 (at γ ≤ .55: the condition of the system is below 4)."""
    p, start = random_process(draw), draw.distribution(3)
    low = [x.float() for x in p[:3]]
    got = policy_values(*low, gamma=p.gamma)
    assert got.dtype == torch.float32
    close(got.double(), policy_values(*p[:3], gamma=p.gamma), 1e-5)
    low_nu = occupancy(low[0], low[2], start.float(), gamma=p.gamma)
    close(low_nu.double(), occupancy(p.transitions, p.policy, start, gamma=p.gamma), 1e-5)


def test_a_process_that_has_ended_is_worth_nothing():
    assert mrp_values(torch.eye(2).double(), torch.zeros(2).double(), gamma=1.0).tolist() == [0.0, 0.0]


# -- targets ---------------------------------------------------------------------------------------------------------


def test_targets_ignore_what_is_said_of_terminal_states():
    rewards, ended = f64(1.0, 2.0), torch.tensor([False, True])
    q = f64([3.0, 5.0], [math.nan, math.inf])
    close(td_target(rewards, f64(4.0, math.nan), ended, gamma=0.5), f64(3.0, 2.0))
    close(sarsa_target(rewards, q, torch.tensor([0, -1]), ended, gamma=0.5), f64(2.5, 2.0))
    close(q_learning_target(rewards, q, ended, gamma=0.5), f64(3.5, 2.0))
    close(double_dqn_target(rewards, f64([1, 0], [0, 0]), q, ended, gamma=0.5), f64(2.5, 2.0))


def test_one_network_in_both_roles_is_q_learning(draw):
    rewards, q, ended = draw.normal(6), draw.normal(6, 3), draw.uniform(6) < 0.5
    close(double_dqn_target(rewards, q, q, ended, gamma=0.9), q_learning_target(rewards, q, ended, gamma=0.9))


def test_n_steps_reach_from_td_to_monte_carlo(draw):
    rewards, value = draw.normal(4, 5), draw.normal(4)
    running = torch.zeros(4, dtype=torch.bool)
    close(n_step_target(rewards[:, :1], value, gamma=0.9), td_target(rewards[:, 0], value, running, gamma=0.9))
    close(n_step_target(rewards, 0 * value, gamma=0.9), discounted_return(rewards, gamma=0.9))


def test_expected_sarsa_over_the_greedy_policy_is_q_learning(draw):
    """Sarsa averaged over ε-greedy next actions tends to Q-learning as ε → 0."""
    rewards, q, ended = draw.normal(4), draw.normal(4, 3), torch.zeros(4, dtype=torch.bool)
    for epsilon, gap in ((0.0, 0.0), (0.1, 0.1)):
        policy = epsilon_greedy(q, epsilon=epsilon)
        each = torch.stack(
            [sarsa_target(rewards, q, torch.full((4,), a), ended, gamma=0.9) for a in range(3)], -1
        )  # (N, A)
        expected = q_learning_target(rewards, q, ended, gamma=0.9) - 0.9 * gap * (q.amax(-1) - q.mean(-1))
        close((policy * each).sum(-1), expected)


# -- bandits ---------------------------------------------------------------------------------------------------------


def test_epsilon_greedy_between_greedy_and_uniform(draw):
    q = draw.normal(2, 4)
    close(epsilon_greedy(q, epsilon=0.0), greedy_policy(q))
    close(epsilon_greedy(q, epsilon=1.0), torch.full((2, 4), 0.25).double())
    close(epsilon_greedy(f64(0, 0, 1), epsilon=0.3), f64(0.1, 0.1, 0.8))


def test_ucb_prefers_what_it_does_not_know():
    means, counts = f64(0.9, 0.5, 0.1), torch.tensor([100, 4, 0])
    scores = ucb_scores(means, counts, step=104)
    assert scores[2] == math.inf
    assert scores[1] > scores[0] > means[0]
    assert ucb_scores(means[:2], torch.tensor([100_000, 4_000]), step=104_000).argmax() == 0


def test_regret_grows_with_every_wrong_pull():
    means = f64(0.2, 0.9)
    close(regret(means, torch.tensor([0, 1, 0, 1])), f64(0.7, 0.7, 1.4, 1.4))
    close(regret(means, torch.tensor([[1, 1], [0, 0]])), f64([0, 0], [0.7, 1.4]))


def test_the_posterior_learns(draw):
    a, b = beta_posterior(f64(0.0, 700.0), f64(0.0, 300.0))
    close(a / (a + b), f64(0.5, 701 / 1002))


# -- bad input -------------------------------------------------------------------------------------------------------

BAD_ROWS = torch.full((2, 2), 0.6)
ENDED = torch.tensor([False, True])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: mrp_values(BAD_ROWS, torch.zeros(2), gamma=0.5),
            r"transitions of shape \(2, 2\) .* at \[\[0\], \[1\]\]",
        ),
        (lambda: mrp_values(f64([1.5, -0.5], [0, 1]), f64(0, 0), gamma=0.5), "negative"),
        (lambda: mrp_values(torch.eye(2), torch.zeros(3), gamma=0.5), r"rewards has shape \(3,\)"),
        (lambda: mrp_values(torch.eye(2), torch.zeros(2), gamma=1.5), "gamma = 1.5"),
        (lambda: mrp_values(torch.eye(2), torch.tensor([0.0, math.nan]), gamma=0.5), "rewards of shape"),
        (lambda: mrp_values(torch.eye(2), torch.tensor([0.0, 1.0]), gamma=1.0), r"state\(s\) \[1\] cannot reach"),
        (lambda: mrp_values(f64([0, 1], [1, 0]), f64(1, -1), gamma=1.0), r"state\(s\) \[0, 1\] cannot reach"),
        (lambda: policy_values(MOVES, PAY, EVEN * 2, gamma=0.5), r"policy of shape \(5, 2\)"),
        (lambda: policy_values(MOVES, PAY[:, :1], EVEN, gamma=0.5), r"rewards has shape \(5, 1\)"),
        (lambda: policy_values(MOVES, PAY, EVEN * math.nan, gamma=0.5), r"policy of shape \(5, 2\)"),
        (lambda: action_values(MOVES, PAY, torch.zeros(4), gamma=0.5), r"values has shape \(4,\)"),
        (lambda: values_from_actions(PAY, EVEN.T), r"policy has shape \(2, 5\)"),
        (lambda: greedy_policy(torch.zeros(3)), r"action_values has shape \(3,\)"),
        (lambda: occupancy(MOVES, EVEN, START, gamma=1.0), "gamma = 1.0"),
        (lambda: occupancy(MOVES, EVEN, torch.zeros(5), gamma=0.5), r"start of shape \(5,\)"),
        (lambda: occupancy(MOVES, EVEN, START[:4], gamma=0.5), r"start has shape \(4,\)"),
        (lambda: discounted_return(torch.tensor(1.0), gamma=0.5), r"rewards has shape \(\)"),
        (lambda: discounted_return(torch.ones(2), gamma=-0.1), "gamma = -0.1"),
        (lambda: td_target(torch.ones(2), torch.ones(3), ENDED, gamma=0.5), r"next_values has shape \(3,\)"),
        (
            lambda: td_target(torch.ones(2), torch.ones(2), ENDED.float(), gamma=0.5),
            "terminated of shape .* expected bool",
        ),
        (lambda: td_target(torch.ones(2), torch.tensor([math.nan, 0.0]), ENDED, gamma=0.5), "next_values of shape"),
        (lambda: n_step_target(torch.ones(2), torch.ones(2), gamma=0.5), r"rewards has shape \(2,\)"),
        (
            lambda: sarsa_target(torch.ones(2), torch.ones(2, 3), torch.tensor([3, 0]), ENDED, gamma=0.5),
            r"next_actions of shape \(2,\) holds an action outside 0 .. 2",
        ),
        (
            lambda: sarsa_target(torch.ones(2), torch.ones(2, 3), torch.ones(2), ENDED, gamma=0.5),
            "next_actions .* integers",
        ),
        (
            lambda: q_learning_target(torch.ones(2), torch.ones(2), ENDED, gamma=0.5),
            r"next_action_values has shape \(2,\)",
        ),
        (
            lambda: double_dqn_target(torch.ones(2), torch.ones(2, 3), torch.ones(2, 2), ENDED, gamma=0.5),
            r"target_action_values has shape \(2, 2\)",
        ),
        (lambda: epsilon_greedy(torch.ones(2), epsilon=1.1), "epsilon = 1.1"),
        (lambda: ucb_scores(torch.ones(2), torch.tensor([1, -1]), step=3), "counts of shape"),
        (lambda: ucb_scores(torch.ones(2), torch.ones(2), step=0), "step = 0"),
        (lambda: regret(torch.ones(2), torch.tensor([0, 2])), r"actions of shape \(2,\)"),
        (lambda: beta_posterior(torch.ones(2), -torch.ones(2)), "failures of shape"),
        (lambda: beta_posterior(torch.ones(2), torch.ones(2), prior=(0.0, 1.0)), "prior"),
    ],
)
def test_bad_input_names_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_oracle_agrees_on_the_worked_example():
    """The same five-state process, by summing over time instead of solving."""
    close(exact_mdp.state_values(MOVES, PAY, EVEN, gamma=0.5), policy_values(MOVES, PAY, EVEN, gamma=0.5))
    close(0.5 * exact_mdp.visits(START, MOVES, EVEN, gamma=0.5), occupancy(MOVES, EVEN, START, gamma=0.5))
