"""DQN and Double DQN in miniature: a network in place of the table, a replay memory, and a target network.

The environment is a :class:`~minirlhf.tabular.process.Process`, so that the network's values can be compared with the
exact ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from minirlhf.core.validate import require_positive, require_shapes
from minirlhf.equations.value_learning import double_dqn_target, epsilon_greedy, q_learning_target
from minirlhf.tabular.process import ParallelEpisodes, Process, Transition, choose

#: (rewards (N,), next values (N, A) by the network, by its copy (N, A), terminated (N,), gamma) -> targets (N,).
Target = Callable[[Tensor, Tensor, Tensor, Tensor, float], Tensor]


def dqn(rewards: Tensor, online: Tensor, copy: Tensor, terminated: Tensor, gamma: float) -> Tensor:
    """Return the DQN target: the target network chooses the next action and evaluates it."""
    return q_learning_target(rewards, copy, terminated, gamma=gamma)


def double_dqn(rewards: Tensor, online: Tensor, copy: Tensor, terminated: Tensor, gamma: float) -> Tensor:
    """Return the Double DQN target: the network chooses the next action, the target network evaluates it."""
    return double_dqn_target(rewards, online, copy, terminated, gamma=gamma)


class Memory:
    """Replay memory of the latest ``capacity`` steps of all episodes."""

    def __init__(self, capacity: int) -> None:
        require_positive(capacity=capacity)
        self._capacity, self._seen = capacity, 0
        self._rows: tuple[Tensor, ...] = ()

    def __len__(self) -> int:
        return min(self._seen, self._capacity)

    def add(self, step: Transition) -> None:
        """Store one step of every parallel episode in place of the oldest steps."""
        row = (step.states, step.actions, step.rewards, step.next_states, step.terminated)
        if not self._rows:
            self._rows = tuple(x.new_zeros(self._capacity) for x in row)
        positions = (self._seen + torch.arange(len(step.states))) % self._capacity
        for column, new in zip(self._rows, row, strict=True):
            column[positions] = new
        self._seen += len(step.states)

    def sample(self, size: int, rng: torch.Generator) -> tuple[Tensor, ...]:
        """Return states, actions, rewards, next states and terminated of ``size`` steps, sampled with replacement."""
        rows = torch.randint(len(self), (size,), generator=rng)
        return tuple(column[rows] for column in self._rows)


@dataclass(frozen=True)
class DQNRun:
    """The result of a run.

    Attributes:
        action_values: ``(S, A)``, Q of the network at the end.
        beliefs: ``(K, S)``, max_a Q(s,a) of the network, every ``log_every`` updates.
    """

    action_values: Tensor
    beliefs: Tensor


def train_dqn(
    process: Process,
    features: Tensor,
    target: Target,
    *,
    gamma: float,
    updates: int,
    rng: torch.Generator,
    noise: float = 0.0,
    hidden: int = 32,
    learning_rate: float = 0.2,
    epsilon: float = 0.2,
    walkers: int = 8,
    batch_size: int = 64,
    capacity: int = 5_000,
    copy_every: int = 100,
    time_limit: int = 100,
    log_every: int = 50,
) -> DQNRun:
    """Train a network of one hidden layer on ``walkers`` parallel episodes.

    Args:
        features: ``(S, F)``, the network's input for each state.
        target: :func:`dqn` or :func:`double_dqn`.
        noise: standard deviation of the noise added to every reward; its mean is 0, so the exact values do not change.
        copy_every: number of updates between copies of the network to the target network.

    Raises:
        ValueError: features that do not fit the process, or a number out of its range.
    """
    require_shapes(start=(process.start, "S"), features=(features, "S F"))
    require_positive(updates=updates, copy_every=copy_every, log_every=log_every, batch_size=batch_size)
    network, copy = (_network(features.shape[1], hidden, process.num_actions) for _ in range(2))
    _initialise(network, rng)
    weights = list(network.parameters())
    envs, memory, beliefs = ParallelEpisodes(process, walkers, rng=rng, time_limit=time_limit), Memory(capacity), []
    for update in range(updates):
        if update % copy_every == 0:
            copy.load_state_dict(network.state_dict())
        with torch.no_grad():
            q_values = network(features)  # (S, A)
        if update % log_every == 0:
            beliefs.append(q_values.amax(-1))
        step = envs.step(choose(epsilon_greedy(q_values[envs.states], epsilon=epsilon), rng))
        noises = noise * torch.randn(walkers, generator=rng, dtype=step.rewards.dtype)
        memory.add(
            Transition(
                step.states, step.actions, step.rewards + noises, step.next_states, step.terminated, step.truncated
            )
        )
        states, actions, rewards, next_states, terminated = memory.sample(batch_size, rng)
        with torch.no_grad():
            targets = target(rewards, network(features[next_states]), copy(features[next_states]), terminated, gamma)
        values = network(features[states]).gather(1, actions[:, None])[:, 0]
        gradients = torch.autograd.grad((values - targets).square().mean(), weights)
        with torch.no_grad():
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.sub_(learning_rate * gradient)
    with torch.no_grad():
        return DQNRun(network(features), torch.stack(beliefs))


def _network(width: int, hidden: int, num_actions: int) -> nn.Sequential:
    """Return the network without initial weights, which would come from torch's global generator."""
    layers = (skip_init(nn.Linear, *size, dtype=torch.float64) for size in ((width, hidden), (hidden, num_actions)))
    first, last = layers
    return nn.Sequential(first, nn.Tanh(), last)


def _initialise(network: nn.Module, rng: torch.Generator) -> None:
    """Set small random weights from the generator of this run, and biases of zero."""
    with torch.no_grad():
        for weight in network.parameters():
            if weight.dim() == 2:
                weight.copy_(torch.randn(weight.shape, generator=rng, dtype=weight.dtype) / weight.shape[1] ** 0.5)
            else:
                weight.zero_()
