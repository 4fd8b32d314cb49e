"""The ledger of chapter 03, third part: Bellman's equations for actions, strict improvement, and TD with features."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from minirlhf.core import exact, exact_mdp
from minirlhf.equations import mdp, value_learning
from minirlhf_course.ledger.inputs.processes import random_process
from minirlhf_course.ledger.registry import Comparison, Draw, check


@check(
    "eq:bellman-q",
    "fixed-point",
    "The action values of a policy satisfy Bellman's equation for actions.",
    of=mdp.bellman_q_expectation,
    against="action values by summing rewards forward through time",
    wrong={
        "the best next action in place of the policy's": lambda p, r, policy, q, *, gamma: mdp.bellman_q_optimality(
            p, r, q, gamma=gamma
        ),
        "the next action is drawn evenly": lambda p, r, policy, q, *, gamma: mdp.bellman_q_expectation(
            p, r, torch.full_like(policy, 1 / policy.shape[-1]), q, gamma=gamma
        ),
        "no discount": lambda p, r, policy, q, *, gamma: mdp.bellman_q_expectation(p, r, policy, q, gamma=1.0),
        "the same state again": lambda p, r, policy, q, *, gamma: r + gamma * (policy * q).sum(-1, keepdim=True),
    },
    tolerance=1e-8,
)
def _(sweep, draw: Draw) -> Comparison:
    p = random_process(draw)
    q = exact_mdp.action_values(p.transitions, p.rewards, p.policy, gamma=p.gamma)
    return sweep(p.transitions, p.rewards, p.policy, q, gamma=p.gamma), q


@check(
    "eq:bellman-q-optimality",
    "fixed-point",
    "The best action values satisfy Bellman's optimality equation for actions.",
    of=mdp.bellman_q_optimality,
    against="the action values of the best of all deterministic policies",
    wrong={
        "the mean over next actions": lambda p, r, q, *, gamma: r + gamma * p @ q.mean(-1),
        "the worst next action": lambda p, r, q, *, gamma: r + gamma * p @ q.amin(-1),
        "the maximum over next states": lambda p, r, q, *, gamma: r + gamma * q.amax(-1).max(),
    },
    tolerance=1e-8,
)
def _(sweep, draw: Draw) -> Comparison:
    p = random_process(draw)
    p = p._replace(rewards=p.rewards + torch.tensor([0.0, 1.5]))  # far enough from a tie
    q = exact_mdp.best_values(p.transitions, p.rewards, gamma=p.gamma)[1]
    return sweep(p.transitions, p.rewards, q, gamma=p.gamma), q


@check(
    "eq:policy-improvement",
    "strict",
    "If some action is better than the policy's own, the improved policy's value exceeds the old one by at least "
    "the difference.",
    of=mdp.greedy_policy,
    against="the advantage of the greedy action, max_a Q(s,a) − V(s), as a lower bound of the gain of each state",
    wrong={
        "least valuable action": lambda q: mdp.greedy_policy(-q),
        "always the first action": lambda q: mdp.greedy_policy(torch.zeros_like(q)),
        "the second best action": lambda q: mdp.greedy_policy(
            q.scatter(-1, q.argmax(-1, keepdim=True), float(q.min()) - 1)
        ),
    },
)
def _(greedy_policy, draw: Draw) -> Comparison:
    p = random_process(draw, actions=3)
    rewards = p.rewards.clone()
    rewards[0, 1] += 10.0  # in the first state the second action is far better than the others
    q = exact_mdp.action_values(p.transitions, rewards, p.policy, gamma=p.gamma)
    value = (p.policy * q).sum(-1)
    after = exact_mdp.state_values(p.transitions, rewards, greedy_policy(q), gamma=p.gamma)
    promised = q.amax(-1) - value
    return torch.minimum(after - value, promised), promised


def _full_gradient(w: Tensor, f: Tensor, p: Tensor, r: Tensor, d: Tensor, *, gamma: float, step_size: float) -> Tensor:
    """The gradient runs through the target as well."""
    errors = r + gamma * p @ f @ w - f @ w
    return w + step_size * (d * errors) @ (f - gamma * p @ f)


@check(
    "eq:linear-td",
    "gradient",
    "The mean TD step is a gradient step on the squared error to a fixed target.",
    of=value_learning.expected_linear_td_step,
    against="finite differences of ½ Σ d (target − V)², the target held fixed",
    wrong={
        "the gradient runs through the target": _full_gradient,
        "all states are updated alike": lambda w, f, p, r, d, *, gamma, step_size: (
            value_learning.expected_linear_td_step(
                w, f, p, r, torch.full_like(d, 1 / len(d)), gamma=gamma, step_size=step_size
            )
        ),
        "uphill": lambda w, f, p, r, d, *, gamma, step_size: (
            2 * w - value_learning.expected_linear_td_step(w, f, p, r, d, gamma=gamma, step_size=step_size)
        ),
        "no discount": lambda w, f, p, r, d, *, gamma, step_size: value_learning.expected_linear_td_step(
            w, f, p, r, d, gamma=1.0, step_size=step_size
        ),
        "the step size is ignored": lambda w, f, p, r, d, *, gamma, step_size: value_learning.expected_linear_td_step(
            w, f, p, r, d, gamma=gamma, step_size=1.0
        ),
    },
    tolerance=1e-8,
)
def _(step, draw: Draw) -> Iterator[Comparison]:
    features, weights, rewards = draw.normal(4, 2), draw.normal(2), draw.normal(4)
    transitions, visits = 0.8 * draw.distribution(4, 4), draw.permutation(4) * 0.2 + 0.05
    for gamma, step_size in ((0.6, 0.3), (0.9, 1.7)):
        target = rewards + gamma * transitions @ features @ weights

        def error(w: Tensor, target: Tensor = target) -> Tensor:
            return 0.5 * (visits * (target - features @ w).square()).sum()

        slope = exact.finite_difference(error, weights)
        got = step(weights, features, transitions, rewards, visits, gamma=gamma, step_size=step_size)
        yield got, weights - step_size * slope
