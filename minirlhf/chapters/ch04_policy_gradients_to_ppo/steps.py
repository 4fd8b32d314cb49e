"""Steps of policy optimisation where nothing is sampled: how far each goes (KL) and what it truly gains, as sums."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import require_finite, require_positive, require_shapes
from minirlhf.equations import mdp, trust_region
from minirlhf.tabular.process import Process, from_outcomes

#: (logps, old_logps, advantages, mask), each (S·A, 1) -> (S·A, 1), to be maximised.
Objective = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def corridor(num_cells: int, exchanged: Collection[int]) -> Process:
    """Cells in a row and the end on the right; every step costs 1, and in some cells left and right are exchanged.

    Three cells with the second one exchanged are example 13.1 of Sutton and Barto (2018).

    Raises:
        ValueError: no cell, or an exchanged one that is not there.
    """
    require_positive(num_cells=num_cells)
    if not set(exchanged) <= set(range(num_cells)):
        raise ArgumentError(
            f"exchanged = {sorted(exchanged)}; expected some of the cells 0 … {num_cells - 1}",
            argument="exchanged",
            value=sorted(exchanged),
        )
    outcomes = {}
    for cell in range(num_cells):
        ways = [max(0, cell - 1), cell + 1]
        for action, to in enumerate(reversed(ways) if cell in exchanged else ways):
            outcomes[cell, action] = [(1.0, to, -1.0)]
    start = (1.0, *[0.0] * num_cells)
    return from_outcomes(
        outcomes, num_states=num_cells + 1, actions=("left", "right"), start=start, terminal=(num_cells,)
    )


def alike(process: Process) -> Tensor:
    """Features ``(S, A, 1)`` with which all states look the same: the one parameter is the logit of the last action."""
    features = torch.zeros(*process.expected_rewards.shape, 1, dtype=torch.float64)
    features[:, -1] = 1.0
    return features


def place(process: Process, *, scale: float) -> Tensor:
    """Features ``(S, A, 2)`` of the last action: a constant, and the place of the state in their row, from −scale to scale."""
    others = torch.zeros_like(alike(process))
    others[:-1, -1, 0] = scale * torch.linspace(-1.0, 1.0, process.num_states - 1, dtype=torch.float64)
    return torch.cat([alike(process), others], -1)


@dataclass(frozen=True)
class Exact:
    """A process, a softmax policy with logits ``features @ theta``, and everything about a step from one policy to another.

    Attributes:
        features: ``(S, A, D)``.
        gamma: below 1.
    """

    process: Process
    features: Tensor
    gamma: float

    def __post_init__(self) -> None:
        require_shapes(rewards=(self.process.expected_rewards, "S A"), features=(self.features, "S A D"))
        require_finite(features=self.features)

    def logps(self, theta: Tensor) -> Tensor:
        """log π ``(S, A)`` of parameters ``(D,)``."""
        return (self.features @ theta).log_softmax(-1)

    def value(self, theta: Tensor) -> Tensor:
        """J, the expected discounted return."""
        rewards, policy = self.process.expected_rewards, self.logps(theta).exp()
        return self.process.start @ mdp.policy_values(self.process.transitions, rewards, policy, gamma=self.gamma)

    def advantages(self, theta: Tensor) -> Tensor:
        """A ``(S, A)``."""
        transitions, rewards, policy = self.process.transitions, self.process.expected_rewards, self.logps(theta).exp()
        values = mdp.policy_values(transitions, rewards, policy, gamma=self.gamma)
        return mdp.advantage_function(mdp.action_values(transitions, rewards, values, gamma=self.gamma), policy)

    def visits(self, theta: Tensor) -> Tensor:
        """d ``(S,)``, the share of discounted time in each state, normalised."""
        policy = self.logps(theta).exp()
        return mdp.occupancy(self.process.transitions, policy, self.process.start, gamma=self.gamma).sum(-1)

    def surrogate(self, old: Tensor, new: Tensor) -> Tensor:
        """What the step would gain if the new policy went where the old one goes."""
        return trust_region.surrogate_gain(
            self.visits(old), self.logps(new).exp(), self.advantages(old), gamma=self.gamma
        )

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        """Mean KL(π_old‖π_new) where the old policy goes, over states in which there is something to decide."""
        before, after = self.logps(old), self.logps(new)
        weight = torch.where(self.process.terminal, 0.0, self.visits(old))
        return weight @ (before.exp() * (before - after)).sum(-1) / weight.sum()

    def natural_step(self, theta: Tensor, *, max_kl: float) -> Tensor:
        """The trust-region step ``(D,)``, by conjugate gradients on Fisher-vector products, before any line search."""
        at = theta.detach().clone().requires_grad_()
        (slope,) = torch.autograd.grad(self.surrogate(theta, at), at)
        divergence = self.kl(theta, at)

        def product(vector: Tensor) -> Tensor:
            return trust_region.fisher_vector_product(divergence, [at], vector)

        direction = trust_region.conjugate_gradient(product, slope, iterations=len(theta))
        return trust_region.trust_region_step(direction, product(direction), max_kl=max_kl)

    def ascend(self, theta: Tensor, objective: Objective, *, passes: int, learning_rate: float) -> list[Tensor]:
        """Gradient ascent on an objective of the language-model trainers, all states and actions in the batch: θ after each pass.

        Raises:
            ValueError: a number that is not positive.
        """
        require_positive(passes=passes, learning_rate=learning_rate)
        old = self.logps(theta).detach().reshape(-1, 1)
        advantages = self.advantages(theta).reshape(-1, 1)
        weights = (self.visits(theta)[:, None] * self.logps(theta).exp()).reshape(-1, 1) / (1 - self.gamma)
        mask = torch.ones_like(old, dtype=torch.bool)
        path = [theta]
        for _ in range(passes):
            at = path[-1].detach().clone().requires_grad_()
            worth = (weights * objective(self.logps(at).reshape(-1, 1), old, advantages, mask)).sum()
            (slope,) = torch.autograd.grad(worth, at)
            path.append(path[-1] + learning_rate * slope)
        return path
