"""Exact steps of policy optimisation, without sampling: the KL divergence and the true gain of each step."""

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
    """Cells in a row with the end on the right; each step has reward −1; ``exchanged`` cells swap left and right.

    Three cells with the second cell exchanged are example 13.1 of Sutton and Barto (2018).

    Raises:
        ValueError: there is no cell, or an exchanged cell does not exist.
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
        next_cells = [max(0, cell - 1), cell + 1]
        for action, next_cell in enumerate(reversed(next_cells) if cell in exchanged else next_cells):
            outcomes[cell, action] = [(1.0, next_cell, -1.0)]
    start = (1.0, *[0.0] * num_cells)
    return from_outcomes(
        outcomes, num_states=num_cells + 1, actions=("left", "right"), start=start, terminal=(num_cells,)
    )


def alike(process: Process) -> Tensor:
    """Features ``(S, A, 1)`` that are equal in all states: the only parameter is the logit of the last action."""
    features = torch.zeros(*process.expected_rewards.shape, 1, dtype=torch.float64)
    features[:, -1] = 1.0
    return features


def place(process: Process, *, scale: float) -> Tensor:
    """Features ``(S, A, 2)`` of the last action: a constant, and the position in the row, from −scale to scale."""
    position = torch.zeros_like(alike(process))
    position[:-1, -1, 0] = scale * torch.linspace(-1.0, 1.0, process.num_states - 1, dtype=torch.float64)
    return torch.cat([alike(process), position], -1)


@dataclass(frozen=True)
class Exact:
    """A process and a softmax policy of logits ``features @ theta``: exact quantities of a step between two policies.

    Attributes:
        features: ``(S, A, D)``.
        gamma: discount factor, below 1.
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
        """d ``(S,)``, the normalised discounted occupancy of each state."""
        policy = self.logps(theta).exp()
        return mdp.occupancy(self.process.transitions, policy, self.process.start, gamma=self.gamma).sum(-1)

    def surrogate(self, old: Tensor, new: Tensor) -> Tensor:
        """Return the gain of the step if the new policy had the old policy's state distribution."""
        return trust_region.surrogate_gain(
            self.visits(old), self.logps(new).exp(), self.advantages(old), gamma=self.gamma
        )

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        """Mean KL(π_old‖π_new) under the old policy's state distribution, over the states that are not terminal."""
        old_logps, new_logps = self.logps(old), self.logps(new)
        weight = torch.where(self.process.terminal, 0.0, self.visits(old))
        return weight @ (old_logps.exp() * (old_logps - new_logps)).sum(-1) / weight.sum()

    def natural_step(self, theta: Tensor, *, max_kl: float) -> Tensor:
        """Trust-region step ``(D,)``, by conjugate gradients on Fisher-vector products, without a line search."""
        new = theta.detach().clone().requires_grad_()
        (slope,) = torch.autograd.grad(self.surrogate(theta, new), new)
        divergence = self.kl(theta, new)

        def product(vector: Tensor) -> Tensor:
            return trust_region.fisher_vector_product(divergence, [new], vector)

        direction = trust_region.conjugate_gradient(product, slope, iterations=len(theta))
        return trust_region.trust_region_step(direction, product(direction), max_kl=max_kl)

    def ascend(self, theta: Tensor, objective: Objective, *, passes: int, learning_rate: float) -> list[Tensor]:
        """Maximise an objective of the language-model trainers by gradient ascent; return θ after each pass.

        The batch holds all states and actions, weighted by the occupancy of ``theta``. The list begins with ``theta``.

        Raises:
            ValueError: ``passes`` or ``learning_rate`` is not positive.
        """
        require_positive(passes=passes, learning_rate=learning_rate)
        old = self.logps(theta).detach().reshape(-1, 1)
        advantages = self.advantages(theta).reshape(-1, 1)
        weights = (self.visits(theta)[:, None] * self.logps(theta).exp()).reshape(-1, 1) / (1 - self.gamma)
        mask = torch.ones_like(old, dtype=torch.bool)
        thetas = [theta]
        for _ in range(passes):
            new = thetas[-1].detach().clone().requires_grad_()
            gain = (weights * objective(self.logps(new).reshape(-1, 1), old, advantages, mask)).sum()
            (slope,) = torch.autograd.grad(gain, new)
            thetas.append(thetas[-1] + learning_rate * slope)
        return thetas
