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

from minirlhf.core.validate import require_positive


@dataclass(frozen=True)
class Rollout:
    """``B`` stretches of episodes, of at most ``T`` steps each.

    Attributes:
        observations: ``(B, T, F)``, before each step.
        actions: ``(B, T)``.
        logps: ``(B, T)``, log-probability of each action under the policy that took it.
        rewards: ``(B, T)``.
        mask: ``(B, T)`` bool, the steps taken; zeros stand elsewhere.
        last: ``(B, F)``, the observation after the last step.
        terminated: ``(B,)`` bool: the episode ended there. Otherwise it was cut off, by the time limit or because the rollout was full.
        returns: undiscounted returns of the episodes that came to an end of either kind, in that order.
    """

    observations: Tensor
    actions: Tensor
    logps: Tensor
    rewards: Tensor
    mask: Tensor
    last: Tensor
    terminated: Tensor
    returns: tuple[float, ...]


class Crowd:
    """Several copies of an environment; whoever is over begins again.

    Args:
        make: makes one environment, with observations ``(F,)`` and discrete actions.
        count: how many.
        seed: of all randomness, the actions' included.
    """

    def __init__(self, make: Callable[[], gymnasium.Env[Any, Any]], count: int, *, seed: int) -> None:
        require_positive(count=count)
        self._envs = [make() for _ in range(count)]
        self._rng = torch.Generator().manual_seed(seed)
        self._seen: list[np.ndarray] = [env.reset(seed=1_000 * seed + i)[0] for i, env in enumerate(self._envs)]
        self._earned = [0.0] * count

    def collect(self, policy: nn.Module, steps: int) -> Rollout:
        """Let every copy take so many ``steps`` with ``policy``: ``(N, F) -> (N, A)`` logits."""
        require_positive(steps=steps)
        rows: list[tuple[list[Any], ...]] = []
        open_rows: list[tuple[list[Any], ...]] = [([], [], [], []) for _ in self._envs]
        ends, terminations, returns = [], [], []

        def close(i: int, observation: np.ndarray, terminated: bool) -> None:
            rows.append(open_rows[i])
            ends.append(torch.as_tensor(observation))
            terminations.append(terminated)
            open_rows[i] = ([], [], [], [])

        for _ in range(steps):
            seen = torch.as_tensor(np.stack(self._seen))
            with torch.no_grad():
                logps = policy(seen).log_softmax(-1)
            actions = torch.multinomial(logps.exp(), 1, generator=self._rng)
            taken = logps.gather(1, actions)[:, 0].tolist()
            for i, (env, action) in enumerate(zip(self._envs, actions[:, 0].tolist(), strict=True)):
                after, reward, terminated, truncated, _ = env.step(action)
                for column, x in zip(open_rows[i], (seen[i], action, taken[i], float(reward)), strict=True):
                    column.append(x)
                self._earned[i] += float(reward)
                if terminated or truncated:
                    close(i, after, bool(terminated))
                    returns.append(self._earned[i])
                    self._earned[i] = 0.0
                    after = env.reset()[0]
                self._seen[i] = after
        for i, row in enumerate(open_rows):
            if row[1]:
                close(i, self._seen[i], False)
        observations, actions_, logps_, rewards = zip(*rows, strict=True)
        return Rollout(
            observations=pad_sequence([torch.stack(x) for x in observations], batch_first=True),
            actions=_pad(actions_, torch.long),
            logps=_pad(logps_, torch.float32),
            rewards=_pad(rewards, torch.float32),
            mask=_pad([[True] * len(x) for x in rewards], torch.bool),
            last=torch.stack(ends),
            terminated=torch.tensor(terminations),
            returns=tuple(returns),
        )

    def finish(self, policy: nn.Module) -> list[float]:
        """Let every copy play its episode to the end: the undiscounted returns. Meant for a crowd that has just begun."""
        running = list(range(len(self._envs)))
        while running:
            seen = torch.as_tensor(np.stack([self._seen[i] for i in running]))
            with torch.no_grad():
                actions = torch.multinomial(policy(seen).softmax(-1), 1, generator=self._rng)[:, 0].tolist()
            over = set()
            for i, action in zip(running, actions, strict=True):
                self._seen[i], reward, terminated, truncated, _ = self._envs[i].step(action)
                self._earned[i] += float(reward)
                if terminated or truncated:
                    over.add(i)
            running = [i for i in running if i not in over]
        return self._earned


def _pad(columns: Any, dtype: torch.dtype) -> Tensor:
    return pad_sequence([torch.tensor(column, dtype=dtype) for column in columns], batch_first=True)
