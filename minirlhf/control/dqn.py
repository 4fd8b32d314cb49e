"""DQN and Double DQN in miniature: a network in place of the table, a memory of steps, and a copy of the network to aim at.

The world is a :class:`~minirlhf.tabular.process.Process`, so that what the network believes can be held against what is true.
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

#: (rewards (N,), online values of the next state (N, A), the copy's (N, A), terminated (N,), gamma) -> targets (N,).
Target = Callable[[Tensor, Tensor, Tensor, Tensor, float], Tensor]


def dqn(rewards: Tensor, online: Tensor, copy: Tensor, terminated: Tensor, gamma: float) -> Tensor:
    """The copy chooses the next action and says what it is worth."""
    return q_learning_target(rewards, copy, terminated, gamma=gamma)


def double_dqn(rewards: Tensor, online: Tensor, copy: Tensor, terminated: Tensor, gamma: float) -> Tensor:
    """The network chooses, the copy says what it is worth."""
    return double_dqn_target(rewards, online, copy, terminated, gamma=gamma)


class Memory:
    """The latest ``capacity`` steps, whoever made them."""

    def __init__(self, capacity: int) -> None:
        require_positive(capacity=capacity)
        self._capacity, self._seen = capacity, 0
        self._rows: tuple[Tensor, ...] = ()

    def __len__(self) -> int:
        return min(self._seen, self._capacity)

    def add(self, step: Transition) -> None:
        """Remember a step of every walker, over the oldest ones."""
        row = (step.states, step.actions, step.rewards, step.next_states, step.terminated)
        if not self._rows:
            self._rows = tuple(x.new_zeros(self._capacity) for x in row)
        place = (self._seen + torch.arange(len(step.states))) % self._capacity
        for kept, new in zip(self._rows, row, strict=True):
            kept[place] = new
        self._seen += len(step.states)

    def sample(self, size: int, rng: torch.Generator) -> tuple[Tensor, ...]:
        """States, actions, rewards, next states and terminated of ``size`` steps, drawn with replacement."""
        rows = torch.randint(len(self), (size,), generator=rng)
        return tuple(kept[rows] for kept in self._rows)


@dataclass(frozen=True)
class DQNRun:
    """What a run left.

    Attributes:
        action_values: ``(S, A)``, what the network believes at the end.
        beliefs: ``(K, S)``, max_a Q(s,a) every ``log_every`` updates.
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
    """Train a network of one hidden layer on what ``walkers`` see.

    Args:
        features: ``(S, F)``, what the network is shown of a state.
        target: :func:`dqn` or :func:`double_dqn`.
        noise: standard deviation of what is added to every reward; its mean is zero, so no true value changes.
        copy_every: updates after which the network is copied again.

    Raises:
        ValueError: features that do not fit the process, or a number out of its range.
    """
    require_shapes(start=(process.start, "S"), features=(features, "S F"))
    require_positive(updates=updates, copy_every=copy_every, log_every=log_every, batch_size=batch_size)
    network, copy = (_network(features.shape[1], hidden, process.num_actions) for _ in range(2))
    _initialise(network, rng)
    weights = list(network.parameters())
    crowd, memory, beliefs = ParallelEpisodes(process, walkers, rng=rng, time_limit=time_limit), Memory(capacity), []
    for update in range(updates):
        if update % copy_every == 0:
            copy.load_state_dict(network.state_dict())
        with torch.no_grad():
            believed = network(features)  # (S, A)
        if update % log_every == 0:
            beliefs.append(believed.amax(-1))
        step = crowd.step(choose(epsilon_greedy(believed[crowd.states], epsilon=epsilon), rng))
        jitter = noise * torch.randn(walkers, generator=rng, dtype=step.rewards.dtype)
        memory.add(
            Transition(
                step.states, step.actions, step.rewards + jitter, step.next_states, step.terminated, step.truncated
            )
        )
        states, actions, rewards, following, terminated = memory.sample(batch_size, rng)
        with torch.no_grad():
            aims = target(rewards, network(features[following]), copy(features[following]), terminated, gamma)
        said = network(features[states]).gather(1, actions[:, None])[:, 0]
        slopes = torch.autograd.grad((said - aims).square().mean(), weights)
        with torch.no_grad():
            for weight, slope in zip(weights, slopes, strict=True):
                weight.sub_(learning_rate * slope)
    with torch.no_grad():
        return DQNRun(network(features), torch.stack(beliefs))


def _network(width: int, hidden: int, num_actions: int) -> nn.Sequential:
    """Without first weights, which would come from torch's global generator."""
    layers = (skip_init(nn.Linear, *size, dtype=torch.float64) for size in ((width, hidden), (hidden, num_actions)))
    first, last = layers
    return nn.Sequential(first, nn.Tanh(), last)


def _initialise(network: nn.Module, rng: torch.Generator) -> None:
    """Small random weights from this run's own generator, biases zero."""
    with torch.no_grad():
        for weight in network.parameters():
            if weight.dim() == 2:
                weight.copy_(torch.randn(weight.shape, generator=rng, dtype=weight.dtype) / weight.shape[1] ** 0.5)
            else:
                weight.zero_()
