"""Inputs of the checks of chapters 03 and 04: small random decision processes whose expectations are finite sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from minirlhf.core import exact, exact_mdp
from minirlhf_course.ledger.registry import Draw


class RandomProcess(NamedTuple):
    transitions: Tensor  # (S, A, S)
    rewards: Tensor  # (S, A)
    policy: Tensor  # (S, A)
    gamma: float


def random_process(draw: Draw, states: int = 3, actions: int = 2, terminal: bool = False) -> RandomProcess:
    """A random decision process; with ``terminal`` its last state is terminal."""
    transitions, rewards = draw.distribution(states, actions, states), draw.normal(states, actions)
    if terminal:
        transitions[-1], rewards[-1] = torch.eye(states, dtype=torch.float64)[-1], 0.0
    return RandomProcess(
        transitions, rewards, draw.distribution(states, actions), float(draw.uniform(1, low=0.4, high=0.55))
    )


# -- a policy with parameters --------------------------------------------------------------------------------------


def jacobian(function: Callable[[Tensor], Tensor], theta: Tensor) -> Tensor:
    """Derivative of every output with respect to all of ``theta``: ``(..., D)``.

    Two backward passes give forward mode: J^T u is linear in u, its derivatives with respect to u are the columns of J.
    """
    at = theta.detach().requires_grad_()
    outputs = function(at)
    u = torch.zeros_like(outputs, requires_grad=True)
    (product,) = torch.autograd.grad(outputs, at, u, create_graph=True)
    columns = [torch.autograd.grad(entry, u, retain_graph=True)[0] for entry in product.flatten()]
    return torch.stack(columns, -1).detach()


def _pulled(draw: Draw, states: int) -> Tensor:
    """Transitions ``(S, 2, S)``: the first action tends towards state 0, the second towards state 1."""
    goal = torch.eye(states, dtype=torch.float64)[:2].expand(states, 2, states)
    return 0.5 * draw.distribution(states, 2, states, scale=0.5) + 0.5 * goal


HORIZON = 3


class RandomEpisodes(NamedTuple):
    """All episodes of at most ``H`` steps of a process whose policy is a softmax over ``theta (S, A)``.

    Attributes:
        probs: ``(N,)``, probability of each episode.
        mask: ``(N, H)``, the steps before the terminal state.
        rewards, values, action_values: ``(N, H)``, exact values for the remaining steps.
        scores: ``(N, H, D)``, gradients of the log-probabilities of the actions.
    """

    theta: Tensor
    start: Tensor
    transitions: Tensor
    reward_table: Tensor
    paths: exact_mdp.Trajectories
    probs: Tensor
    mask: Tensor
    rewards: Tensor
    values: Tensor
    action_values: Tensor
    scores: Tensor

    def objective(self, theta: Tensor, gamma: float = 1.0) -> Tensor:
        """J(θ), by propagating the distribution over states forward."""
        return exact_mdp.expected_return(
            self.start, self.transitions, self.reward_table, theta.softmax(-1), gamma=gamma, steps=HORIZON
        )

    def gradient(self, gamma: float = 1.0) -> Tensor:
        """∇J(θ) by finite differences, ``(D,)``."""
        return exact.finite_difference(lambda theta: self.objective(theta, gamma), self.theta).flatten()


def episodes(draw: Draw, terminal: bool = True) -> RandomEpisodes:
    """Two states (and a terminal one on request), two actions; the second action and the second state pay more."""
    states = 3 if terminal else 2
    transitions, start = _pulled(draw, states), draw.distribution(2)
    rewards = draw.uniform(states, 2, low=0.5, high=1.0) + torch.tensor([0.0, 1.0]) + torch.arange(states)[:, None]
    if terminal:
        transitions[-1], rewards[-1] = torch.eye(3, dtype=torch.float64)[-1], 0.0
        start = torch.cat([start, torch.zeros(1, dtype=torch.float64)])
    theta = draw.uniform(states, 2, low=-0.5, high=0.5)
    policy = theta.softmax(-1)
    paths = exact_mdp.trajectories(states, 2, HORIZON)
    probs = exact_mdp.probabilities(paths, start, transitions, policy)
    paths = exact_mdp.Trajectories(paths.states[probs > 0], paths.actions[probs > 0])
    before = paths.states[:, :-1]
    state_values = [
        exact_mdp.state_values(transitions, rewards, policy, gamma=1.0, steps=k) for k in range(HORIZON + 1)
    ]
    value = torch.stack(state_values[:0:-1])  # (H, S)
    action_value = torch.stack([rewards + transitions @ after for after in state_values[-2::-1]])  # (H, S, A)
    time = torch.arange(HORIZON)
    return RandomEpisodes(
        theta=theta,
        start=start,
        transitions=transitions,
        reward_table=rewards,
        paths=paths,
        probs=probs[probs > 0],
        mask=before < 2,
        rewards=exact_mdp.step_rewards(paths, rewards),
        values=value[time, before],
        action_values=action_value[time, before, paths.actions],
        scores=jacobian(lambda t: t.log_softmax(-1), theta)[before, paths.actions],
    )


class Endless(NamedTuple):
    """A process without end whose policy is a softmax over ``theta (S, A)``."""

    theta: Tensor
    start: Tensor
    transitions: Tensor
    rewards: Tensor
    gamma: float

    @property
    def policy(self) -> Tensor:
        """π ``(S, A)``."""
        return self.theta.softmax(-1)

    def objective(self, theta: Tensor) -> Tensor:
        """J(θ), a scalar."""
        return exact_mdp.expected_return(
            self.start, self.transitions, self.rewards, theta.softmax(-1), gamma=self.gamma
        )

    def gradient(self) -> Tensor:
        """∇J ``(D,)``, by differentiating the sum over time."""
        at = self.theta.detach().requires_grad_()
        return exact.gradient(self.objective(at), at)

    def values(self, theta: Tensor) -> Tensor:
        """V ``(S,)`` of the policy with these logits."""
        return exact_mdp.state_values(self.transitions, self.rewards, theta.softmax(-1), gamma=self.gamma)

    def action_values(self) -> Tensor:
        """Q ``(S, A)``."""
        return exact_mdp.action_values(self.transitions, self.rewards, self.policy, gamma=self.gamma)

    def advantages(self) -> Tensor:
        """Q − V ``(S, A)``."""
        return self.action_values() - self.values(self.theta)[:, None]

    def occupancy(self, theta: Tensor) -> Tensor:
        """Normalised discounted visits ``(S, A)``."""
        return (1 - self.gamma) * exact_mdp.visits(self.start, self.transitions, theta.softmax(-1), gamma=self.gamma)


def endless(draw: Draw) -> Endless:
    """Three states, the third seldom visited; two actions, the second pays more and is preferred."""
    return Endless(
        theta=draw.uniform(3, 2, low=-0.25, high=0.25) + torch.tensor([0.0, 0.8]),
        start=torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64),
        transitions=_pulled(draw, 3),
        rewards=draw.uniform(3, 2, high=0.5) + torch.tensor([0.0, 1.0]) + torch.arange(3)[:, None],
        gamma=float(draw.uniform(1, low=0.4, high=0.5)),
    )
