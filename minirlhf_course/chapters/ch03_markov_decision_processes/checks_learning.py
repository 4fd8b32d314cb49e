"""The ledger of chapter 03: learning values from samples, exploration, bandits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from minirlhf.core import exact, exact_mdp
from minirlhf.equations import mdp, value_learning
from minirlhf_course.ledger.inputs.processes import RandomProcess, random_process
from minirlhf_course.ledger.registry import Comparison, Draw, check

# -- targets from samples ------------------------------------------------------------------------------------------

_GARBAGE = 7.0  # what a value network says of a terminal state; no target may look at it


def _each_next_state(p: RandomProcess) -> tuple[Tensor, Tensor]:
    """Rows (s, a, s') for all of them: rewards and terminated, ``(S·A·S,)``; the last state is terminal."""
    states, actions = p.rewards.shape
    terminated = (torch.arange(states) == states - 1).expand(states, actions, states)
    return p.rewards[..., None].expand(states, actions, states).flatten(), terminated.flatten()


@check(
    "eq:td-target",
    "expectation",
    "With the exact values of the next states, the expected TD target is the exact value of the state.",
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
    p = random_process(draw, states=4, terminal=True)
    p.rewards[:-1] += 2.0  # keeps all values away from 0
    values = exact_mdp.state_values(*p[:3], gamma=p.gamma)
    rewards, terminated = _each_next_state(p)
    believed = torch.cat([values[:-1], torch.full((1,), _GARBAGE, dtype=torch.float64)]).expand(4, 2, 4).flatten()
    targets = td_target(rewards, believed, terminated, gamma=p.gamma).view(4, 2, 4)
    return torch.einsum("sa,sat,sat->s", p.policy, p.transitions, targets)[:-1], values[:-1]


@check(
    "eq:n-step-target",
    "expectation",
    "With the exact value of the state after n steps, the expected n-step target is the exact value: summed over "
    "all paths.",
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
    p = random_process(draw, states=2)
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
    "Averaged over the next state and the next action of π, the Sarsa target is Q^π.",
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
    p = random_process(draw, terminal=True)
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
    "At the optimum, the Q-learning target averaged over the next state is the optimal action value itself.",
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
    p = random_process(draw, terminal=True)
    _, best = exact_mdp.best_values(p.transitions, p.rewards, gamma=p.gamma)
    rewards, terminated = _each_next_state(p)
    targets = q_learning_target(rewards, _believed(best), terminated, gamma=p.gamma).view(3, 2, 3)
    return (p.transitions * targets).sum(-1)[:-1], best[:-1]


def _max_of_target(rewards: Tensor, online: Tensor, target: Tensor, terminated: Tensor, *, gamma: float) -> Tensor:
    return value_learning.q_learning_target(rewards, target, terminated, gamma=gamma)


@check(
    "eq:double-dqn",
    "unbiased",
    "If all actions have equal values, the expected target over all independent errors ±e of both networks is exact.",
    of=value_learning.double_dqn_target,
    against="reward plus γ times the exact value, which is the same for all actions",
    wrong={
        "the target network chooses too": _max_of_target,
        "the online network evaluates too": lambda rewards, online, target, terminated, *, gamma: (
            value_learning.q_learning_target(rewards, online, terminated, gamma=gamma)
        ),
    },
)
def _(double_dqn_target, draw: Draw) -> Comparison:
    value, error = float(draw.normal(1)), float(draw.uniform(1, low=0.5, high=1.0))
    signs = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=6)), dtype=torch.float64)  # (64, 6)
    online, target = value + error * signs[:, :3], value + error * signs[:, 3:]
    reward = draw.normal(1).expand(64)
    gamma = float(draw.uniform(low=0.5, high=0.95))
    targets = double_dqn_target(reward, online, target, torch.zeros(64, dtype=torch.bool), gamma=gamma)
    return targets.mean(), float(reward[0]) + gamma * value


@check(
    "eq:q-learning",
    "overestimation",
    "With independent errors ±e in A equal action values, the expected target is too high by γ e (1 − 2^(1−A)).",
    of=value_learning.q_learning_target,
    against="e (1 − 2^(1−A)), the mean of the largest of A independent signs",
    wrong={
        "mean over the next actions": lambda rewards, q, terminated, *, gamma: value_learning.td_target(
            rewards, q.mean(-1), terminated, gamma=gamma
        ),
    },
)
def _(q_learning_target, draw: Draw) -> Comparison:
    error = float(draw.uniform(1, low=0.5, high=1.0))
    signs = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=4)), dtype=torch.float64)  # (16, A)
    zeros = torch.zeros(16, dtype=torch.float64)
    targets = q_learning_target(zeros, error * signs, zeros > 0, gamma=0.9)
    return targets.mean(), 0.9 * error * (1 - 2.0 ** (1 - 4))


@check(
    "eq:double-dqn",
    "value",
    "The online network chooses the action and the target network estimates its value; a terminal state has the "
    "value 0.",
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
    rewards, gamma = draw.normal(4), float(draw.uniform(low=0.5, high=0.95))
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
    "The expected value is (1 − ε) times the largest value plus ε times the mean of all values.",
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
    q, epsilon = draw.uniform(2, 4).cumsum(-1), float(draw.uniform(1, low=0.1, high=0.4))
    got = epsilon_greedy(q, epsilon=epsilon)
    expected = [(1 - epsilon) * max(row) + epsilon * sum(row) / 4 for row in q.tolist()]
    yield (got * q).sum(-1), torch.tensor(expected, dtype=torch.float64)
    yield got.sum(-1), torch.ones(2, dtype=torch.float64)


@check(
    "eq:ucb",
    "value",
    "The bonus u solves exp(−2 n u²) = t^(−2c²): fewer pulls give a larger bonus.",
    of=value_learning.ucb_scores,
    against="bisection for the width at which Hoeffding's bound is t^(−2c²)",
    wrong={
        "square root forgotten": lambda means, counts, *, step, c: means + c * math.log(step) / counts,
        "c inside the root": lambda means, counts, *, step, c: means + torch.sqrt(c * math.log(step) / counts),
        "counts and step exchanged": lambda means, counts, *, step, c: means + c * torch.sqrt(counts.log() / step),
    },
)
def _(ucb_scores, draw: Draw) -> Comparison:
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
    "The regret after T pulls is Σ_arms gap × pulls.",
    of=value_learning.regret,
    against="gap of each arm times how often it was pulled",
    wrong={
        "not cumulative": lambda means, actions: means.max() - means[actions],
        "gap to the mean arm": lambda means, actions: (means.mean() - means[actions]).cumsum(-1),
        "gap to the best arm pulled": lambda means, actions: (means[actions].max() - means[actions]).cumsum(-1),
    },
)
def _(regret, draw: Draw) -> Comparison:
    means = torch.arange(4, dtype=torch.float64)[draw.permutation(4)] + draw.uniform(4, high=0.5)
    best = max(range(4), key=means.tolist().__getitem__)
    arms = [i for i in range(4) if i != best]
    actions = torch.tensor([arms[draw.integer(0, 2)] for _ in range(9)])  # the best arm is never found
    expected = sum((max(means.tolist()) - means[i].item()) * actions.tolist().count(i) for i in range(4))
    return regret(means, actions)[-1], expected


@check(
    "eq:beta-posterior",
    "mean",
    "Prior times likelihood, normalised, is the Beta distribution with the counts added: mean and second moment agree.",
    of=value_learning.beta_posterior,
    against="Bayes' rule by quadrature",
    wrong={
        "prior forgotten": lambda s, f, *, prior: (s, f),
        "failures and successes exchanged": lambda s, f, *, prior: value_learning.beta_posterior(f, s, prior=prior),
    },
)
def _(beta_posterior, draw: Draw) -> Iterator[Comparison]:
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
