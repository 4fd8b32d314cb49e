"""The ledger of chapter 03: processes, values, Bellman equations, occupancy."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from minirlhf.core import exact_mdp
from minirlhf.equations import mdp
from minirlhf_course.ledger.inputs.processes import RandomProcess, random_process
from minirlhf_course.ledger.registry import Comparison, Draw, check


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
    "The return is the first reward plus γ times the return of what follows.",
    of=mdp.discounted_return,
    against="the recursion G_t = r_t + γ G_{t+1}",
    wrong={
        "first reward discounted too": lambda rewards, *, gamma: gamma * mdp.discounted_return(rewards, gamma=gamma),
        "discounted from the end": lambda rewards, *, gamma: mdp.discounted_return(rewards.flip(-1), gamma=gamma),
        "not discounted": lambda rewards, *, gamma: rewards.sum(-1),
    },
)
def _(discounted_return, draw: Draw) -> Comparison:
    rewards, gamma = draw.uniform(5, low=0.5, high=1.5).cumsum(0), float(draw.uniform(1, low=0.3, high=0.9))
    expected = 0.0
    for r in reversed(rewards.tolist()):
        expected = r + gamma * expected
    return discounted_return(rewards, gamma=gamma), expected


@check(
    "eq:bellman-matrix",
    "value",
    "Solving (I − γP) V = r gives the expected return from each state, also for states without reward and for "
    "absorbing states.",
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
def _(mrp_values, draw: Draw) -> Iterator[Comparison]:
    p, only = random_process(draw, states=4, actions=1), torch.ones(4, 1, dtype=torch.float64)
    nothing = p.rewards * torch.tensor([[1.0], [0.0], [1.0], [1.0]])  # a state that earns nothing, and goes on
    staying = p.transitions.clone()
    staying[2] = torch.eye(4, dtype=torch.float64)[2]  # one that is never left, and earns
    for transitions, rewards in ((p.transitions, p.rewards), (p.transitions, nothing), (staying, nothing)):
        expected = exact_mdp.state_values(transitions, rewards, only, gamma=p.gamma)
        yield mrp_values(transitions[:, 0], rewards[:, 0], gamma=p.gamma), expected


@check(
    "eq:bellman-matrix",
    "episodic",
    "With γ = 1 and a reward of −1 per step, the value is minus the expected number of steps to the terminal state.",
    of=mdp.mrp_values,
    against="steps until absorption, from the powers of the transition matrix",
    wrong={
        "a discount that is not there": lambda transitions, rewards, *, gamma: mdp.mrp_values(
            transitions, rewards, gamma=0.9
        )
    },
)
def _(mrp_values, draw: Draw) -> Comparison:
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
    "Averaging over the actions gives the next-state probabilities and the expected reward of one step.",
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
    p = random_process(draw)
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
    "V^π(s) is the expected return from s under π.",
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
    p = random_process(draw)
    return policy_values(*p[:3], gamma=p.gamma), exact_mdp.state_values(*p[:3], gamma=p.gamma)


def _value_of_this_state(transitions: Tensor, rewards: Tensor, values: Tensor, *, gamma: float) -> Tensor:
    return rewards + gamma * values[:, None]


@check(
    "eq:q-from-v",
    "value",
    "One step of lookahead turns state values into action values.",
    of=mdp.action_values,
    against="expected return when the first action is forced",
    wrong={
        "value of this state, not of the next": _value_of_this_state,
        "discount forgotten": lambda transitions, rewards, values, *, gamma: rewards + transitions @ values,
    },
)
def _(action_values, draw: Draw) -> Comparison:
    p = random_process(draw)
    values = exact_mdp.state_values(*p[:3], gamma=p.gamma)
    return (
        action_values(p.transitions, p.rewards, values, gamma=p.gamma),
        exact_mdp.action_values(*p[:3], gamma=p.gamma),
    )


@check(
    "eq:v-from-q",
    "value",
    "The value of a state is the mean of its action values under the policy.",
    of=mdp.values_from_actions,
    against="expected return when the policy chooses the first action",
    wrong={
        "maximum instead of the mean under π": lambda q, policy: q.amax(-1),
        "plain mean over the actions": lambda q, policy: q.mean(-1),
    },
)
def _(values_from_actions, draw: Draw) -> Comparison:
    p = random_process(draw, actions=3)
    return (
        values_from_actions(exact_mdp.action_values(*p[:3], gamma=p.gamma), p.policy),
        exact_mdp.state_values(*p[:3], gamma=p.gamma),
    )


@check(
    "eq:advantage-function",
    "value",
    "The advantage is what one action changes, so its mean under the policy is zero.",
    of=mdp.advantage_function,
    against="return with one forced action minus return without",
    wrong={
        "distance to the best action": lambda q, policy: q - q.amax(-1, keepdim=True),
        "plain mean over the actions": lambda q, policy: q - q.mean(-1, keepdim=True),
    },
)
def _(advantage_function, draw: Draw) -> Iterator[Comparison]:
    p = random_process(draw, actions=3)
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
    "The values of a policy satisfy its Bellman equation: applying the operator changes nothing.",
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
    p = random_process(draw)
    values = exact_mdp.state_values(*p[:3], gamma=p.gamma)
    return bellman_expectation(*p[:3], values, gamma=p.gamma), values


@check(
    "eq:policy-evaluation",
    "sweeps",
    "After k sweeps the values are those of a k-step episode that pays, at its end, also the initial estimate of "
    "the state reached.",
    of=mdp.bellman_expectation,
    against="expected rewards of the first k steps, plus γ^k times the initial estimate",
    wrong={"discount forgotten": _bellman_without_discount},
)
def _(bellman_expectation, draw: Draw) -> Comparison:
    p, guess, sweeps = random_process(draw), draw.normal(3), draw.integer(2, 3)
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
    "An error that is equal in all states shrinks by exactly γ per sweep; no error shrinks more slowly.",
    of=mdp.bellman_expectation,
    against="γ times the error",
    wrong={"discount forgotten": _bellman_without_discount},
)
def _(bellman_expectation, draw: Draw) -> Comparison:
    p, values, shift = random_process(draw), draw.normal(3), float(draw.uniform(1, low=1.0, high=2.0))
    moved = bellman_expectation(*p[:3], values + shift, gamma=p.gamma)
    still = bellman_expectation(*p[:3], values, gamma=p.gamma)
    return moved - still, torch.full((3,), p.gamma * shift, dtype=torch.float64)


@check(
    "eq:bellman-optimality",
    "fixed point",
    "The best values of all deterministic policies satisfy the optimality equation.",
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
    p = random_process(draw)
    best, _ = exact_mdp.best_values(p.transitions, p.rewards, gamma=p.gamma)
    return bellman_optimality(p.transitions, p.rewards, best, gamma=p.gamma), best


@check(
    "eq:bellman-optimality",
    "value iteration",
    "Value iteration converges to the optimal values from any start.",
    of=mdp.bellman_optimality,
    against="trying every deterministic policy",
    wrong={
        "mean over the actions": lambda transitions, rewards, values, *, gamma: mdp.action_values(
            transitions, rewards, values, gamma=gamma
        ).mean(-1),
    },
)
def _(bellman_optimality, draw: Draw) -> Comparison:
    p, values = random_process(draw), draw.normal(3, scale=3.0)
    for _ in range(60):
        values = bellman_optimality(p.transitions, p.rewards, values, gamma=p.gamma)
    return values, exact_mdp.best_values(p.transitions, p.rewards, gamma=p.gamma)[0]


def _rewarding_differently(draw: Draw) -> RandomProcess:
    """A process in which the action with the most reward now is a mistake: it leads to the poor last state."""
    p = random_process(draw)
    transitions = torch.full((3, 2, 3), 0.05, dtype=torch.float64)
    transitions[:, 0, 2], transitions[:, 1, 0] = 0.9, 0.9
    rewards = torch.tensor([[1.0, 0.5], [1.0, 0.5], [-9.0, -9.5]], dtype=torch.float64) + 0.1 * draw.uniform(3, 2)
    return RandomProcess(transitions, rewards, p.policy, p.gamma)


@check(
    "eq:policy-improvement",
    "policy iteration",
    "Alternating evaluation and improvement never lowers the value of a state, and it stops at the optimal values.",
    of=mdp.greedy_policy,
    against="trying every deterministic policy",
    wrong={
        "least valuable action": lambda q: mdp.greedy_policy(-q),
        "always the first action": lambda q: mdp.greedy_policy(torch.zeros_like(q)),
    },
)
def _(greedy_policy, draw: Draw) -> Iterator[Comparison]:
    p = _rewarding_differently(draw)
    policy, history = p.policy, []
    for _ in range(4):
        q = exact_mdp.action_values(p.transitions, p.rewards, policy, gamma=p.gamma)
        history.append((policy * q).sum(-1))
        policy = greedy_policy(q)
    for before, after in itertools.pairwise(history):
        yield torch.minimum(after, before), before
    yield history[-1], exact_mdp.best_values(p.transitions, p.rewards, gamma=p.gamma)[0]


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
    "The occupancy is the normalised discounted number of visits; it sums to one.",
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
    p = random_process(draw, states=4, terminal=True)
    start = torch.cat([draw.distribution(3, scale=0.5), torch.zeros(1, dtype=torch.float64)])
    got = occupancy(p.transitions, p.policy, start, gamma=p.gamma)
    yield got, (1 - p.gamma) * exact_mdp.visits(start, p.transitions, p.policy, gamma=p.gamma)
    yield got.sum(), 1.0


@check(
    "eq:occupancy",
    "return",
    "The expected return is the mean reward under the occupancy, divided by 1 − γ.",
    of=mdp.occupancy,
    against="expected discounted rewards summed over time",
    wrong={"not normalised": _not_normalised, "divided by the surviving episodes": _surviving},
)
def _(occupancy, draw: Draw) -> Comparison:
    p = random_process(draw, states=4, terminal=True)
    rewards = p.rewards.abs() + torch.tensor([[1.0], [1.0], [1.0], [0.0]], dtype=torch.float64)
    start = torch.cat([draw.distribution(3), torch.zeros(1, dtype=torch.float64)])
    got = (occupancy(p.transitions, p.policy, start, gamma=p.gamma) * rewards).sum() / (1 - p.gamma)
    return got, exact_mdp.expected_return(start, p.transitions, rewards, p.policy, gamma=p.gamma)
