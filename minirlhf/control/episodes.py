"""Rollouts of a policy with discrete actions in Gymnasium environments, laid out like completions: one row per episode.

A row holds the steps of one episode, or of the part of it that was collected. A *step* takes the place of a token. So
the functions for the completions of language models work here too.
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
    """``B`` segments of episodes, of at most ``T`` steps each.

    Attributes:
        observations: ``(B, T, F)``, before each step.
        actions: ``(B, T)``.
        logps: ``(B, T)``, log-probability of each action under the policy that took it.
        rewards: ``(B, T)``.
        mask: ``(B, T)`` bool, True for the steps taken; the other fields are 0 elsewhere.
        last: ``(B, F)``, the observation after the last step.
        terminated: ``(B,)`` bool: the episode terminated there. Otherwise it was truncated, by the time limit or
            because the rollout was full.
        copies: ``(B,)``, index of the copy of the environment; the rows of one copy are in the order of time.
        returns: undiscounted returns of the episodes that terminated or reached the time limit, in the order of their
            ends.
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
    """Several copies of an environment; a copy whose episode is over is reset.

    Attributes:
        num_features: ``F``, length of an observation.
        num_actions: ``A``.
    """

    def __init__(self, make: Make, count: int, *, seed: int) -> None:
        """
        Args:
            make: creates one environment, with observations ``(F,)`` and discrete actions.
            count: number of copies.
            seed: seed of all random numbers, also of the sampled actions.

        Raises:
            ValueError: an environment with other spaces, or a count that is not positive.
        """
        require_positive(count=count)
        self._envs = [make() for _ in range(count)]
        obs_space, act_space = self._envs[0].observation_space, self._envs[0].action_space
        if not isinstance(act_space, gymnasium.spaces.Discrete) or act_space.start != 0:
            raise ArgumentError(
                f"make returns an environment with actions {act_space}; expected Discrete, counted from 0",
                argument="actions",
                value=act_space,
            )
        if not isinstance(obs_space, gymnasium.spaces.Box) or len(obs_space.shape) != 1:
            raise ArgumentError(
                f"make returns an environment with observations {obs_space}; expected a Box with one axis",
                argument="observations",
                value=obs_space,
            )
        self.num_features, self.num_actions = int(obs_space.shape[0]), int(act_space.n)
        self._rng = torch.Generator().manual_seed(seed)
        self._seen: list[np.ndarray] = [env.reset(seed=1_000 * seed + i)[0] for i, env in enumerate(self._envs)]
        self._earned = [0.0] * count

    def collect(self, policy: nn.Module, steps: int | None) -> ControlRollout:
        """Take this number of ``steps`` in every copy; with None, finish the current episode of every copy.

        Args:
            policy: ``(N, F) -> (N, A)`` logits.

        Raises:
            ValueError: ``steps`` is not positive, or an observation is not finite.
        """
        require_positive(**({} if steps is None else {"steps": steps}))
        rows: list[tuple[list[Any], ...]] = []
        open_rows: list[tuple[list[Any], ...]] = [([], [], [], []) for _ in self._envs]
        last, terminations, copies, returns = [], [], [], []

        def close_row(i: int, observation: np.ndarray, terminated: bool) -> None:
            rows.append(open_rows[i])
            last.append(_as_tensor(observation))
            terminations.append(terminated)
            copies.append(i)
            open_rows[i] = ([], [], [], [])

        active, steps_taken = list(range(len(self._envs))), 0
        while active and steps_taken != steps:
            steps_taken += 1
            obs = _as_tensor(np.stack([self._seen[i] for i in active]))
            require_finite(observations=obs)
            with torch.no_grad():
                logps = policy(obs).log_softmax(-1)
            actions = torch.multinomial(logps.exp(), 1, generator=self._rng)
            action_logps, ended = logps.gather(1, actions)[:, 0].tolist(), set()
            for i, observation, action, logp in zip(active, obs, actions[:, 0].tolist(), action_logps, strict=True):
                next_obs, reward, terminated, truncated, _ = self._envs[i].step(action)
                for column, x in zip(open_rows[i], (observation, action, logp, float(reward)), strict=True):
                    column.append(x)
                self._earned[i] += float(reward)
                if terminated or truncated:
                    close_row(i, next_obs, bool(terminated))
                    returns.append(self._earned[i])
                    self._earned[i] = 0.0
                    next_obs = self._envs[i].reset()[0]
                    ended.add(i)
                self._seen[i] = next_obs
            if steps is None:
                active = [i for i in active if i not in ended]
        for i, row in enumerate(open_rows):
            if row[1]:
                close_row(i, self._seen[i], False)
        observations, actions_, logps_, rewards = zip(*rows, strict=True)
        return ControlRollout(
            observations=pad_sequence([torch.stack(x) for x in observations], batch_first=True),
            actions=_pad(actions_, torch.long),
            logps=_pad(logps_, torch.float32),
            rewards=_pad(rewards, torch.float32),
            mask=_pad([[True] * len(x) for x in rewards], torch.bool),
            last=torch.stack(last),
            terminated=torch.tensor(terminations),
            copies=torch.tensor(copies),
            returns=tuple(returns),
        )


def _as_tensor(observation: np.ndarray) -> Tensor:
    return torch.as_tensor(observation, dtype=torch.float32)


def _pad(columns: Any, dtype: torch.dtype) -> Tensor:
    return pad_sequence([torch.tensor(column, dtype=dtype) for column in columns], batch_first=True)
