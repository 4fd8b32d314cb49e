"""What a policy with discrete actions does in Gymnasium environments, laid out as replies are: an episode is a row.

A row holds the steps of one episode, or of the part of it that was seen; a *step* takes the place of a token. So the same functions
that work on language models' replies work here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import require_finite, require_positive

Make = Callable[[], gymnasium.Env[Any, Any]]


@dataclass(frozen=True)
class ControlRollout:
    """``B`` stretches of episodes, of at most ``T`` steps each.

    Attributes:
        observations: ``(B, T, F)``, before each step.
        actions: ``(B, T)``.
        logps: ``(B, T)``, log-probability of each action under the policy that took it.
        rewards: ``(B, T)``.
        mask: ``(B, T)`` bool, the steps taken; zeros stand elsewhere.
        last: ``(B, F)``, the observation after the last step.
        terminated: ``(B,)`` bool: the episode ended there. Otherwise it was cut off, by the time limit or because the rollout was full.
        copies: ``(B,)``, which copy of the environment it was; its rows stand in the order of time.
        returns: undiscounted returns of the episodes that came to an end of either kind, in that order.
    """

    observations: Tensor
    actions: Tensor
    logps: Tensor
    rewards: Tensor
    mask: Tensor
    last: Tensor
    terminated: Tensor
    copies: Tensor
    returns: tuple[float, ...]


class Environments:
    """Several copies of an environment; whoever is over begins again.

    Attributes:
        num_features: ``F``, length of an observation.
        num_actions: ``A``.
    """

    def __init__(self, make: Make, count: int, *, seed: int) -> None:
        """
        Args:
            make: makes one environment, with observations ``(F,)`` and discrete actions.
            count: how many.
            seed: of all randomness, the actions' included.

        Raises:
            ValueError: an environment with other spaces, or a count that is not positive.
        """
        require_positive(count=count)
        self._envs = [make() for _ in range(count)]
        seen, acts = self._envs[0].observation_space, self._envs[0].action_space
        if not isinstance(acts, gymnasium.spaces.Discrete) or acts.start != 0:
            raise ArgumentError(
                f"make gives an environment with actions {acts}; expected Discrete, counted from 0",
                argument="actions",
                value=acts,
            )
        if not isinstance(seen, gymnasium.spaces.Box) or len(seen.shape) != 1:
            raise ArgumentError(
                f"make gives an environment with observations {seen}; expected a Box with one axis",
                argument="observations",
                value=seen,
            )
        self.num_features, self.num_actions = int(seen.shape[0]), int(acts.n)
        self._rng = torch.Generator().manual_seed(seed)
        self._seen: list[np.ndarray] = [env.reset(seed=1_000 * seed + i)[0] for i, env in enumerate(self._envs)]
        self._earned = [0.0] * count

    def collect(self, policy: nn.Module, steps: int | None) -> ControlRollout:
        """Let every copy take so many ``steps``, or with None finish the episode it is in.

        Args:
            policy: ``(N, F) -> (N, A)`` logits.

        Raises:
            ValueError: ``steps`` is not positive, or an observation is not finite.
        """
        require_positive(**({} if steps is None else {"steps": steps}))
        rows: list[tuple[list[Any], ...]] = []
        open_rows: list[tuple[list[Any], ...]] = [([], [], [], []) for _ in self._envs]
        ends, terminations, copies, returns = [], [], [], []

        def close(i: int, observation: np.ndarray, terminated: bool) -> None:
            rows.append(open_rows[i])
            ends.append(_as_tensor(observation))
            terminations.append(terminated)
            copies.append(i)
            open_rows[i] = ([], [], [], [])

        running, taken = list(range(len(self._envs))), 0
        while running and taken != steps:
            taken += 1
            seen = _as_tensor(np.stack([self._seen[i] for i in running]))
            require_finite(observations=seen)
            with torch.no_grad():
                logps = policy(seen).log_softmax(-1)
            actions = torch.multinomial(logps.exp(), 1, generator=self._rng)
            chances, over = logps.gather(1, actions)[:, 0].tolist(), set()
            for i, observation, action, logp in zip(running, seen, actions[:, 0].tolist(), chances, strict=True):
                after, reward, terminated, truncated, _ = self._envs[i].step(action)
                for column, x in zip(open_rows[i], (observation, action, logp, float(reward)), strict=True):
                    column.append(x)
                self._earned[i] += float(reward)
                if terminated or truncated:
                    close(i, after, bool(terminated))
                    returns.append(self._earned[i])
                    self._earned[i] = 0.0
                    after = self._envs[i].reset()[0]
                    over.add(i)
                self._seen[i] = after
            if steps is None:
                running = [i for i in running if i not in over]
        for i, row in enumerate(open_rows):
            if row[1]:
                close(i, self._seen[i], False)
        observations, actions_, logps_, rewards = zip(*rows, strict=True)
        return ControlRollout(
            observations=pad_sequence([torch.stack(x) for x in observations], batch_first=True),
            actions=_pad(actions_, torch.long),
            logps=_pad(logps_, torch.float32),
            rewards=_pad(rewards, torch.float32),
            mask=_pad([[True] * len(x) for x in rewards], torch.bool),
            last=torch.stack(ends),
            terminated=torch.tensor(terminations),
            copies=torch.tensor(copies),
            returns=tuple(returns),
        )


def _as_tensor(observation: np.ndarray) -> Tensor:
    return torch.as_tensor(observation, dtype=torch.float32)


def _pad(columns: Any, dtype: torch.dtype) -> Tensor:
    return pad_sequence([torch.tensor(column, dtype=dtype) for column in columns], batch_first=True)
