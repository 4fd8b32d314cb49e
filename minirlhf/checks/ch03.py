"""The ledger of chapter 03: Markov decision processes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from minirlhf.core import exact, exact_mdp
from minirlhf.core.checks import Comparison, Draw, check
from minirlhf.equations import mdp, value_learning


class _Process(NamedTuple):
    transitions: Tensor  # (S, A, S)
    rewards: Tensor  # (S, A)
    policy: Tensor  # (S, A)
    gamma: float


def _process(draw: Draw, states: int = 3, actions: int = 2, terminal: bool = False) -> _Process:
    """A random decision process; on demand its last state is terminal."""
    transitions, rewards = draw.distribution(states, actions, states), draw.normal(states, actions)
    if terminal:
        transitions[-1], rewards[-1] = torch.eye(states, dtype=torch.float64)[-1], 0.0
    return _Process(
        transitions, rewards, draw.distribution(states, actions), float(draw.uniform(1, low=0.4, high=0.55))
    )


def _backwards(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The mistake of reading P(s'|s) as P(s|s'): the matrix is transposed (and normalised again)."""

    def reversed_time(transitions: Tensor, *rest: Tensor, gamma: float) -> Tensor:
        flipped = transitions.transpose(0, -1)
        return function(flipped / flipped.sum(-1, keepdim=True), *rest, gamma=gamma)

    return reversed_time


# -- reward processes ----------------------------------------------------------------------------------------------


@check(
    "eq:return",
    "value",
    of=mdp.discounted_return,
    against="the recursion G_t = r_t + γ G_{t+1}",
    wrong={
        "first reward discounted too": lambda rewards, *, gamma: gamma * mdp.discounted_return(rewards, gamma=gamma),
        "discounted from the end": lambda rewards, *, gamma: mdp.discounted_return(rewards.flip(-1), gamma=gamma),
        "not discounted": lambda rewards, *, gamma: rewards.sum(-1),
    },
)
def _(discounted_return, draw: Draw) -> Comparison:
    "The return is the first reward plus γ times the return of what follows."
    rewards, gamma = draw.uniform(5, low=0.5, high=1.5).cumsum(0), float(draw.uniform(1, low=0.3, high=0.9))
    expected = 0.0
    for r in reversed(rewards.tolist()):
        expected = r + gamma * expected
    return discounted_return(rewards, gamma=gamma), expected


@check(
    "eq:bellman-matrix",
    "value",
    of=mdp.mrp_values,
    against="expected discounted rewards summed over time",
    wrong={
        "transitions read backwards": _backwards(mdp.mrp_values),
        "reward of the next state": lambda transitions, rewards, *, gamma: mdp.mrp_values(
            transitions, transitions @ rewards, gamma=gamma
        ),
        "γ forgotten in the matrix": lambda transitions, rewards, *, gamma: mdp.mrp_values(
            transitions, rewards, gamma=gamma**2
        ),
    },
)
def _(mrp_values, draw: Draw) -> Comparison:
    "Solving (I − γP) V = r gives the expected return from each state."
    p = _process(draw, states=4, actions=1)
    expected = exact_mdp.state_values(p.transitions, p.rewards, torch.ones(4, 1, dtype=torch.float64), gamma=p.gamma)
    return mrp_values(p.transitions[:, 0], p.rewards[:, 0], gamma=p.gamma), expected


@check(
    "eq:bellman-matrix",
    "episodic",
    of=mdp.mrp_values,
    against="steps until absorption, from the powers of the transition matrix",
    wrong={
        "a discount that is not there": lambda transitions, rewards, *, gamma: mdp.mrp_values(
            transitions, rewards, gamma=0.9
        )
    },
)
def _(mrp_values, draw: Draw) -> Comparison:
    "With γ = 1 and a reward of −1 per step, the value is minus the expected number of steps to the terminal state."
    transitions, rewards = draw.distribution(4, 4, scale=0.5), -torch.ones(4, dtype=torch.float64)
    transitions[-1], rewards[-1] = torch.eye(4, dtype=torch.float64)[-1], 0.0
    total, power = torch.eye(4, dtype=torch.float64), transitions
    for _ in range(12):  # I + P + P² + ... with 2¹² terms: (I + P)(I + P²)(I + P⁴)...
        total, power = total + total @ power, power @ power
    steps = total[:, :-1].sum(-1)  # expected number of visits to the other states
    return mrp_values(transitions, rewards, gamma=1.0), -steps


@check(
    "eq:marginalised-mrp",
    "value",
    of=mdp.marginalise,
    against="enumerated one-step trajectories",
    wrong={
        "actions equally likely whatever the policy": lambda transitions, rewards, policy: (
            transitions.mean(1),
            rewards.mean(1),
        ),
        "most probable action only": lambda transitions, rewards, policy: mdp.marginalise(
            transitions, rewards, mdp.greedy_policy(policy)
        ),
    },
)
def _(marginalise, draw: Draw) -> Iterator[Comparison]:
    "Averaging over the actions gives the next-state probabilities and the expected reward of one step."
    p = _process(draw)
    paths = exact_mdp.trajectories(3, 2, 1)
    moves, rewards = torch.zeros(3, 3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    for s in range(3):
        probs = exact_mdp.probabilities(paths, torch.eye(3, dtype=torch.float64)[s], p.transitions, p.policy)
        moves[s].index_add_(0, paths.states[:, 1], probs)
        rewards[s] = (probs * exact_mdp.step_rewards(paths, p.rewards)[:, 0]).sum()
    got_moves, got_rewards = marginalise(p.transitions, p.rewards, p.policy)
    yield got_moves, moves
    yield got_rewards, rewards


# -- values of a policy --------------------------------------------------------------------------------------------


@check(
    "eq:state-value",
    "value",
    of=mdp.policy_values,
    against="expected discounted rewards summed over time",
    wrong={
        "value of the greedy action": lambda transitions, rewards, policy, *, gamma: mdp.policy_values(
            transitions, rewards, mdp.greedy_policy(policy), gamma=gamma
        ),
        "normalised by 1 − γ": lambda transitions, rewards, policy, *, gamma: (
            (1 - gamma) * mdp.policy_values(transitions, rewards, policy, gamma=gamma)
        ),
    },
)
def _(policy_values, draw: Draw) -> Comparison:
    "V^π(s) is the expected return from s when π acts."
    p = _process(draw)
    return policy_values(*p[:3], gamma=p.gamma), exact_mdp.state_values(*p[:3], gamma=p.gamma)


def _value_of_this_state(transitions: Tensor, rewards: Tensor, values: Tensor, *, gamma: float) -> Tensor:
    return rewards + gamma * values[:, None]


@check(
    "eq:q-from-v",
    "value",
    of=mdp.action_values,
    against="expected return when the first action is forced",
    wrong={
        "value of this state, not of the next": _value_of_this_state,
        "discount forgotten": lambda transitions, rewards, values, *, gamma: rewards + transitions @ values,
    },
)
def _(action_values, draw: Draw) -> Comparison:
    "One step of looking ahead turns the values of the states into the values of the actions."
    p = _process(draw)
    values = exact_mdp.state_values(*p[:3], gamma=p.gamma)
    return (
        action_values(p.transitions, p.rewards, values, gamma=p.gamma),
        exact_mdp.action_values(*p[:3], gamma=p.gamma),
    )


@check(
    "eq:v-from-q",
    "value",
    of=mdp.values_from_actions,
    against="expected return when the policy chooses the first action",
    wrong={
        "maximum instead of the mean under π": lambda q, policy: q.amax(-1),
        "plain mean over the actions": lambda q, policy: q.mean(-1),
    },
)
def _(values_from_actions, draw: Draw) -> Comparison:
    "The value of a state is the mean of its action values under the policy."
    p = _process(draw, actions=3)
    return (
        values_from_actions(exact_mdp.action_values(*p[:3], gamma=p.gamma), p.policy),
        exact_mdp.state_values(*p[:3], gamma=p.gamma),
    )


@check(
    "eq:advantage-function",
    "value",
    of=mdp.advantage_function,
    against="return with one forced action minus return without",
    wrong={
        "distance to the best action": lambda q, policy: q - q.amax(-1, keepdim=True),
        "plain mean over the actions": lambda q, policy: q - q.mean(-1, keepdim=True),
    },
)
def _(advantage_function, draw: Draw) -> Iterator[Comparison]:
    "The advantage is what one action changes, so its mean under the policy is zero."
    p = _process(draw, actions=3)
    q, v = exact_mdp.action_values(*p[:3], gamma=p.gamma), exact_mdp.state_values(*p[:3], gamma=p.gamma)
    got = advantage_function(q, p.policy)
    yield got, q - v[:, None]
    yield (p.policy * got).sum(-1), torch.zeros(3, dtype=torch.float64)


# -- Bellman operators ---------------------------------------------------------------------------------------------


def _bellman_without_discount(
    transitions: Tensor, rewards: Tensor, policy: Tensor, values: Tensor, *, gamma: float
) -> Tensor:
    return mdp.bellman_expectation(transitions, rewards, policy, values, gamma=1.0)


@check(
    "eq:bellman-expectation",
    "fixed point",
    of=mdp.bellman_expectation,
    against="expected discounted rewards summed over time",
    wrong={
        "discount forgotten": _bellman_without_discount,
        "maximum over the actions": lambda transitions, rewards, policy, values, *, gamma: mdp.bellman_optimality(
            transitions, rewards, values, gamma=gamma
        ),
    },
)
def _(bellman_expectation, draw: Draw) -> Comparison:
    "The values of a policy satisfy its Bellman equation: applying the operator changes nothing."
    p = _process(draw)
    values = exact_mdp.state_values(*p[:3], gamma=p.gamma)
    return bellman_expectation(*p[:3], values, gamma=p.gamma), values


@check(
    "eq:policy-evaluation",
    "sweeps",
    of=mdp.bellman_expectation,
    against="expected rewards of the first k steps, plus γ^k times the first guess",
    wrong={"discount forgotten": _bellman_without_discount},
)
def _(bellman_expectation, draw: Draw) -> Comparison:
    "After k sweeps the values are those of a k-step episode that pays the first guess at its end."
    p, guess, sweeps = _process(draw), draw.normal(3), draw.integer(2, 3)
    values = guess
    for _ in range(sweeps):
        values = bellman_expectation(*p[:3], values, gamma=p.gamma)
    paths = exact_mdp.trajectories(3, 2, sweeps)
    ends = torch.zeros(3, 3, dtype=torch.float64)  # P(s_k | s_0)
    for s, start in enumerate(torch.eye(3, dtype=torch.float64)):
        probs = exact_mdp.probabilities(paths, start, p.transitions, p.policy)
        ends[s].index_add_(0, paths.states[:, -1], probs)
    first = exact_mdp.state_values(*p[:3], gamma=p.gamma, steps=sweeps)
    return values, first + p.gamma**sweeps * ends @ guess


@check(
    "eq:policy-evaluation",
    "contraction",
    of=mdp.bellman_expectation,
    against="γ times the shift",
    wrong={"discount forgotten": _bellman_without_discount},
)
def _(bellman_expectation, draw: Draw) -> Comparison:
    "An error that is the same in all states shrinks by exactly γ per sweep, the slowest rate there is."
    p, values, shift = _process(draw), draw.normal(3), float(draw.uniform(1, low=1.0, high=2.0))
    moved = bellman_expectation(*p[:3], values + shift, gamma=p.gamma)
    still = bellman_expectation(*p[:3], values, gamma=p.gamma)
    return moved - still, torch.full((3,), p.gamma * shift, dtype=torch.float64)


@check(
    "eq:bellman-optimality",
    "fixed point",
    of=mdp.bellman_optimality,
    against="trying every deterministic policy",
    wrong={
        "mean over the actions": lambda transitions, rewards, values, *, gamma: mdp.action_values(
            transitions, rewards, values, gamma=gamma
        ).mean(-1),
        "best next state instead of the expected one": lambda transitions, rewards, values, *, gamma: (
            rewards + gamma * values.max()
        ).amax(-1),
    },
)
def _(bellman_optimality, draw: Draw) -> Comparison:
    "The best values that any deterministic policy reaches satisfy the optimality equation."
    p = _process(draw)
    best, _ = exact_mdp.best_values(p.transitions, p.rewards, gamma=p.gamma)
    return bellman_optimality(p.transitions, p.rewards, best, gamma=p.gamma), best


@check(
    "eq:bellman-optimality",
    "value iteration",
    of=mdp.bellman_optimality,
    against="trying every deterministic policy",
    wrong={
        "mean over the actions": lambda transitions, rewards, values, *, gamma: mdp.action_values(
            transitions, rewards, values, gamma=gamma
        ).mean(-1),
    },
)
def _(bellman_optimality, draw: Draw) -> Comparison:
    "Value iteration from anywhere ends at the best values."
    p, values = _process(draw), draw.normal(3, scale=3.0)
    for _ in range(60):
        values = bellman_optimality(p.transitions, p.rewards, values, gamma=p.gamma)
    return values, exact_mdp.best_values(p.transitions, p.rewards, gamma=p.gamma)[0]


def _rewarding_differently(draw: Draw) -> _Process:
    """A process in which the action with the most reward now is a mistake: it leads to the poor last state."""
    p = _process(draw)
    transitions = torch.full((3, 2, 3), 0.05, dtype=torch.float64)
    transitions[:, 0, 2], transitions[:, 1, 0] = 0.9, 0.9
    rewards = torch.tensor([[1.0, 0.5], [1.0, 0.5], [-9.0, -9.5]], dtype=torch.float64) + 0.1 * draw.uniform(3, 2)
    return _Process(transitions, rewards, p.policy, p.gamma)


@check(
    "eq:policy-improvement",
    "policy iteration",
    of=mdp.greedy_policy,
    against="trying every deterministic policy",
    wrong={
        "least valuable action": lambda q: mdp.greedy_policy(-q),
        "always the first action": lambda q: mdp.greedy_policy(torch.zeros_like(q)),
    },
)
def _(greedy_policy, draw: Draw) -> Iterator[Comparison]:
    "Evaluating and improving in turn never makes a state worse, and stops at the best values."
    p = _rewarding_differently(draw)
    policy, before = p.policy, None
    for _ in range(4):
        q = exact_mdp.action_values(p.transitions, p.rewards, policy, gamma=p.gamma)
        values = (policy * q).sum(-1)
        if before is not None:
            yield torch.minimum(values, before), before
        policy, before = greedy_policy(q), values
    yield before, exact_mdp.best_values(p.transitions, p.rewards, gamma=p.gamma)[0]


# -- occupancy -----------------------------------------------------------------------------------------------------


def _surviving(transitions: Tensor, policy: Tensor, start: Tensor, *, gamma: float) -> Tensor:
    """Frequencies among the episodes that are still going on (the last state is terminal)."""
    here, total = start, torch.zeros_like(policy)
    for t in range(exact_mdp.horizon_for(gamma)):
        chosen = here[:, None] * policy
        alive = here[:-1].sum()
        total = total + (1 - gamma) * gamma**t * torch.cat([chosen[:-1] / alive, chosen[-1:] * 0])
        here = torch.einsum("sa,sat->t", chosen, transitions)
    return total


def _not_normalised(transitions: Tensor, policy: Tensor, start: Tensor, *, gamma: float) -> Tensor:
    return mdp.occupancy(transitions, policy, start, gamma=gamma) / (1 - gamma)


@check(
    "eq:occupancy",
    "value",
    of=mdp.occupancy,
    against="discounted visits counted forward through time",
    wrong={
        "not normalised": _not_normalised,
        "divided by the surviving episodes": _surviving,
        "start forgotten": lambda transitions, policy, start, *, gamma: mdp.occupancy(
            transitions, policy, torch.full_like(start, 1 / len(start)), gamma=gamma
        ),
    },
)
def _(occupancy, draw: Draw) -> Iterator[Comparison]:
    "The occupancy is the normalised discounted number of visits; it sums to one."
    p = _process(draw, states=4, terminal=True)
    start = torch.cat([draw.distribution(3, scale=0.5), torch.zeros(1, dtype=torch.float64)])
    got = occupancy(p.transitions, p.policy, start, gamma=p.gamma)
    yield got, (1 - p.gamma) * exact_mdp.visits(start, p.transitions, p.policy, gamma=p.gamma)
    yield got.sum(), 1.0


@check(
    "eq:occupancy",
    "return",
    of=mdp.occupancy,
    against="expected discounted rewards summed over time",
    wrong={"not normalised": _not_normalised, "divided by the surviving episodes": _surviving},
)
def _(occupancy, draw: Draw) -> Comparison:
    "The expected return is the mean reward under the occupancy, divided by 1 − γ."
    p = _process(draw, states=4, terminal=True)
    rewards = p.rewards.abs() + torch.tensor([[1.0], [1.0], [1.0], [0.0]], dtype=torch.float64)
    start = torch.cat([draw.distribution(3), torch.zeros(1, dtype=torch.float64)])
    got = (occupancy(p.transitions, p.policy, start, gamma=p.gamma) * rewards).sum() / (1 - p.gamma)
    return got, exact_mdp.expected_return(start, p.transitions, rewards, p.policy, gamma=p.gamma)


# -- targets from samples ------------------------------------------------------------------------------------------

_GARBAGE = 7.0  # what a value network says of a terminal state; no target may look at it


def _each_next_state(p: _Process) -> tuple[Tensor, Tensor]:
    """Rows (s, a, s') for all of them: rewards and terminated, ``(S·A·S,)``; the last state is terminal."""
    states, actions = p.rewards.shape
    terminated = (torch.arange(states) == states - 1).expand(states, actions, states)
    return p.rewards[..., None].expand(states, actions, states).flatten(), terminated.flatten()


@check(
    "eq:td-target",
    "expectation",
    of=value_learning.td_target,
    against="expected discounted rewards summed over time",
    wrong={
        "bootstraps from the terminal state": lambda rewards, values, terminated, *, gamma: rewards + gamma * values,
        "stops everywhere": lambda rewards, values, terminated, *, gamma: rewards,
        "discount forgotten": lambda rewards, values, terminated, *, gamma: value_learning.td_target(
            rewards, values, terminated, gamma=1.0
        ),
    },
)
def _(td_target, draw: Draw) -> Comparison:
    "With the true values of the next states, the expected TD target is the true value of the state."
    p = _process(draw, states=4, terminal=True)
    p.rewards[:-1] += 2.0  # keeps all values away from 0
    values = exact_mdp.state_values(*p[:3], gamma=p.gamma)
    rewards, terminated = _each_next_state(p)
    believed = torch.cat([values[:-1], torch.full((1,), _GARBAGE, dtype=torch.float64)]).expand(4, 2, 4).flatten()
    targets = td_target(rewards, believed, terminated, gamma=p.gamma).view(4, 2, 4)
    return torch.einsum("sa,sat,sat->s", p.policy, p.transitions, targets)[:-1], values[:-1]


@check(
    "eq:n-step-target",
    "expectation",
    of=value_learning.n_step_target,
    against="expected discounted rewards summed over time",
    wrong={
        "bootstrap not discounted by γ^n": lambda rewards, bootstrap, *, gamma: (
            mdp.discounted_return(rewards, gamma=gamma) + gamma * bootstrap
        ),
        "bootstrap forgotten": lambda rewards, bootstrap, *, gamma: mdp.discounted_return(rewards, gamma=gamma),
    },
)
def _(n_step_target, draw: Draw) -> Comparison:
    "With the true value of the state n steps on, the expected n-step target is the true value: summed over all paths."
    p = _process(draw, states=2)
    p.rewards.abs_().add_(1.0)
    values = exact_mdp.state_values(*p[:3], gamma=p.gamma)
    paths = exact_mdp.trajectories(2, 2, 3)
    start = draw.distribution(2)
    targets = n_step_target(exact_mdp.step_rewards(paths, p.rewards), values[paths.states[:, -1]], gamma=p.gamma)
    probs = exact_mdp.probabilities(paths, start, p.transitions, p.policy)
    return (probs * targets).sum(), (start * values).sum()


def _believed(q: Tensor) -> Tensor:
    """Action values ``(S·A·S, A)`` of the next state of every row, with garbage for the terminal one."""
    believed = q.clone()
    believed[-1] = _GARBAGE
    states, actions = q.shape
    return believed.expand(states, actions, states, actions).reshape(-1, actions)


@check(
    "eq:sarsa",
    "expectation",
    of=value_learning.sarsa_target,
    against="expected return when the first action is forced",
    wrong={
        "maximum instead of the action taken": lambda rewards, q, actions, terminated, *, gamma: (
            value_learning.q_learning_target(rewards, q, terminated, gamma=gamma)
        ),
        "bootstraps from the terminal state": lambda rewards, q, actions, terminated, *, gamma: (
            value_learning.sarsa_target(rewards, q, actions, torch.zeros_like(terminated), gamma=gamma)
        ),
    },
)
def _(sarsa_target, draw: Draw) -> Comparison:
    "Averaged over the next state and the next action of π, the Sarsa target is Q^π."
    p = _process(draw, terminal=True)
    q = exact_mdp.action_values(*p[:3], gamma=p.gamma)
    rewards, terminated = _each_next_state(p)
    expected = torch.zeros(3, 2, dtype=torch.float64)
    for action in range(2):
        targets = sarsa_target(rewards, _believed(q), torch.full((18,), action), terminated, gamma=p.gamma)
        expected += torch.einsum("sat,t,sat->sa", p.transitions, p.policy[:, action], targets.view(3, 2, 3))
    return expected[:-1], q[:-1]


@check(
    "eq:q-learning",
    "expectation",
    of=value_learning.q_learning_target,
    against="trying every deterministic policy",
    wrong={
        "mean over the next actions": lambda rewards, q, terminated, *, gamma: value_learning.td_target(
            rewards, q.mean(-1), terminated, gamma=gamma
        ),
        "bootstraps from the terminal state": lambda rewards, q, terminated, *, gamma: value_learning.q_learning_target(
            rewards, q, torch.zeros_like(terminated), gamma=gamma
        ),
    },
)
def _(q_learning_target, draw: Draw) -> Comparison:
    "At the optimum, the Q-learning target averaged over the next state is the optimal action value itself."
    p = _process(draw, terminal=True)
    _, best = exact_mdp.best_values(p.transitions, p.rewards, gamma=p.gamma)
    rewards, terminated = _each_next_state(p)
    targets = q_learning_target(rewards, _believed(best), terminated, gamma=p.gamma).view(3, 2, 3)
    return (p.transitions * targets).sum(-1)[:-1], best[:-1]


def _max_of_target(rewards: Tensor, online: Tensor, target: Tensor, terminated: Tensor, *, gamma: float) -> Tensor:
    return value_learning.q_learning_target(rewards, target, terminated, gamma=gamma)


@check(
    "eq:double-dqn",
    "unbiased",
    of=value_learning.double_dqn_target,
    against="reward plus γ times the true value, which is the same for all actions",
    wrong={
        "the target network chooses too": _max_of_target,
        "the online network evaluates too": lambda rewards, online, target, terminated, *, gamma: (
            value_learning.q_learning_target(rewards, online, terminated, gamma=gamma)
        ),
    },
)
def _(double_dqn_target, draw: Draw) -> Comparison:
    "When all actions are worth the same, the expected target over all independent errors ±e of both networks is exact."
    value, error = float(draw.normal(1)), float(draw.uniform(1, low=0.5, high=1.0))
    signs = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=6)), dtype=torch.float64)  # (64, 6)
    online, target = value + error * signs[:, :3], value + error * signs[:, 3:]
    reward = draw.normal(1).expand(64)
    targets = double_dqn_target(reward, online, target, torch.zeros(64, dtype=torch.bool), gamma=0.9)
    return targets.mean(), float(reward[0]) + 0.9 * value


@check(
    "eq:q-learning",
    "overestimation",
    of=value_learning.q_learning_target,
    against="e (1 − 2^(1−A)), the mean of the largest of A independent signs",
    wrong={
        "mean over the next actions": lambda rewards, q, terminated, *, gamma: value_learning.td_target(
            rewards, q.mean(-1), terminated, gamma=gamma
        ),
    },
)
def _(q_learning_target, draw: Draw) -> Comparison:
    "With independent errors ±e in A equal action values, the expected target is too high by γ e (1 − 2^(1−A))."
    error = float(draw.uniform(1, low=0.5, high=1.0))
    signs = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=4)), dtype=torch.float64)  # (16, A)
    zeros = torch.zeros(16, dtype=torch.float64)
    targets = q_learning_target(zeros, error * signs, zeros > 0, gamma=0.9)
    return targets.mean(), 0.9 * error * (1 - 2.0 ** (1 - 4))


@check(
    "eq:double-dqn",
    "value",
    of=value_learning.double_dqn_target,
    against="one row at a time",
    wrong={
        "the target network chooses too": _max_of_target,
        "roles exchanged": lambda rewards, online, target, terminated, *, gamma: value_learning.double_dqn_target(
            rewards, target, online, terminated, gamma=gamma
        ),
        "bootstraps from the terminal state": lambda rewards, online, target, terminated, *, gamma: (
            value_learning.double_dqn_target(rewards, online, target, torch.zeros_like(terminated), gamma=gamma)
        ),
    },
)
def _(double_dqn_target, draw: Draw) -> Comparison:
    "The online network's favourite is valued by the target network; a terminal state is worth nothing."
    rewards, gamma = draw.normal(4), 0.9
    online = torch.eye(3, dtype=torch.float64)[draw.permutation(3)].repeat(2, 1)[:4] + draw.uniform(
        4, 3, low=0.0, high=0.5
    )
    target = 3.0 - 2 * online.round()  # least where the online network's favourite is
    terminated = torch.tensor([False, False, False, True])
    expected = [
        float(r) + (0.0 if end else gamma * float(t[max(range(3), key=q.tolist().__getitem__)]))
        for r, q, t, end in zip(rewards, online, target, terminated.tolist(), strict=True)
    ]
    return double_dqn_target(rewards, online, target, terminated, gamma=gamma), torch.tensor(
        expected, dtype=torch.float64
    )


# -- exploration and bandits ---------------------------------------------------------------------------------------


@check(
    "eq:epsilon-greedy",
    "value",
    of=value_learning.epsilon_greedy,
    against="the mixture of the best reward and the mean reward",
    wrong={
        "random only among the others": lambda q, *, epsilon: (
            (1 - epsilon) * mdp.greedy_policy(q) + epsilon * (1 - mdp.greedy_policy(q)) / (q.shape[-1] - 1)
        ),
        "1 − ε is random": lambda q, *, epsilon: value_learning.epsilon_greedy(q, epsilon=1 - epsilon),
    },
)
def _(epsilon_greedy, draw: Draw) -> Iterator[Comparison]:
    "The expected value is (1 − ε) times the best plus ε times the plain mean."
    q, epsilon = draw.uniform(2, 4).cumsum(-1), float(draw.uniform(1, low=0.1, high=0.4))
    got = epsilon_greedy(q, epsilon=epsilon)
    expected = [(1 - epsilon) * max(row) + epsilon * sum(row) / 4 for row in q.tolist()]
    yield (got * q).sum(-1), torch.tensor(expected, dtype=torch.float64)
    yield got.sum(-1), torch.ones(2, dtype=torch.float64)


@check(
    "eq:ucb",
    "value",
    of=value_learning.ucb_scores,
    against="bisection for the width at which Hoeffding's bound is t^(−2c²)",
    wrong={
        "square root forgotten": lambda means, counts, *, step, c: means + c * math.log(step) / counts,
        "c inside the root": lambda means, counts, *, step, c: means + torch.sqrt(c * math.log(step) / counts),
        "counts and step exchanged": lambda means, counts, *, step, c: means + c * torch.sqrt(counts.log() / step),
    },
)
def _(ucb_scores, draw: Draw) -> Comparison:
    "The bonus u solves exp(−2 n u²) = t^(−2c²): the less an arm was tried, the wider."
    means, counts = draw.uniform(3), torch.tensor([2.0, 5.0, 11.0], dtype=torch.float64) + draw.integer(0, 3)
    step, c = int(counts.sum()), float(draw.uniform(1, low=1.2, high=1.6))
    widths = []
    for n in counts.tolist():
        low, high = 0.0, 10.0
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if math.exp(-2 * n * middle**2) > step ** (-2 * c**2) else (low, middle)
        widths.append(low)
    return ucb_scores(means, counts, step=step, c=c), means + torch.tensor(widths, dtype=torch.float64)


@check(
    "eq:regret",
    "decomposition",
    of=value_learning.regret,
    against="gap of each arm times how often it was pulled",
    wrong={
        "not cumulative": lambda means, actions: means.max() - means[actions],
        "gap to the mean arm": lambda means, actions: (means.mean() - means[actions]).cumsum(-1),
        "gap to the best arm pulled": lambda means, actions: (means[actions].max() - means[actions]).cumsum(-1),
    },
)
def _(regret, draw: Draw) -> Comparison:
    "The regret after T pulls is Σ_arms gap × pulls."
    means = torch.arange(4, dtype=torch.float64)[draw.permutation(4)] + draw.uniform(4, high=0.5)
    best = max(range(4), key=means.tolist().__getitem__)
    arms = [i for i in range(4) if i != best]
    actions = torch.tensor([arms[draw.integer(0, 2)] for _ in range(9)])  # the best arm is never found
    expected = sum((max(means.tolist()) - means[i].item()) * actions.tolist().count(i) for i in range(4))
    return regret(means, actions)[-1], expected


@check(
    "eq:beta-posterior",
    "mean",
    of=value_learning.beta_posterior,
    against="Bayes' rule by quadrature",
    wrong={
        "prior forgotten": lambda s, f, *, prior: (s, f),
        "failures and successes exchanged": lambda s, f, *, prior: value_learning.beta_posterior(f, s, prior=prior),
    },
)
def _(beta_posterior, draw: Draw) -> Iterator[Comparison]:
    "Prior times likelihood, normalised, is the Beta distribution with the counts added: mean and second moment agree."
    successes = torch.tensor([float(draw.integer(1, 4)), 6.0], dtype=torch.float64)
    failures = torch.tensor([6.0, float(draw.integer(1, 4))], dtype=torch.float64)
    prior = (float(draw.integer(2, 3)), float(draw.integer(2, 3)))
    a, b = beta_posterior(successes, failures, prior=prior)
    for i in range(2):
        s, f = float(successes[i]), float(failures[i])

        def moment(k: int, s: float = s, f: float = f) -> Tensor:
            return exact.integrate(
                lambda x: x ** (k + s + prior[0] - 1) * (1 - x) ** (f + prior[1] - 1), 0.0, 1.0, nodes=40
            )

        yield a[i] / (a[i] + b[i]), moment(1) / moment(0)
        yield a[i] * (a[i] + 1) / ((a[i] + b[i]) * (a[i] + b[i] + 1)), moment(2) / moment(0)
