"""Common mistakes, each as the smallest change to :mod:`minirlhf.control.policy_optimisation`."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from minirlhf.control.episodes import ControlRollout
from minirlhf.control.policy_optimisation import PPO, ControlRun, Method, Minibatch, credit, loss
from minirlhf.equations.policy_losses import clip_interval, policy_ratio
from minirlhf.equations.returns import gae


def no_bootstrap(
    rollout: ControlRollout, critic: nn.Module | None, *, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    """Treat every truncation as a termination: the value after it counts as 0."""
    all_terminated = torch.ones_like(rollout.terminated)
    return credit(replace(rollout, terminated=all_terminated), critic, gamma=gamma, lam=lam)


def ends_forgotten(rollout: ControlRollout, critic: nn.Module, *, gamma: float, lam: float) -> tuple[Tensor, Tensor]:
    """Omit the done mask: all steps of one copy form one row, so returns continue into the next episode."""
    with torch.no_grad():
        values, last = critic(rollout.observations)[..., 0], critic(rollout.last)[:, 0]
    advantages = torch.zeros_like(values)
    for copy in rollout.copies.unique():
        rows = rollout.copies == copy
        idx = rollout.mask & rows[:, None]
        rewards, vals, mask = rollout.rewards[idx], values[idx], torch.ones(1, int(idx.sum()), dtype=torch.bool)
        advantages[idx] = gae(rewards[None], vals[None], mask, gamma=gamma, lam=lam, bootstrap=last[rows][-1:])[0]
    return advantages, values


def maximum(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor, *, epsilon: float = 0.2) -> Tensor:
    """``max(ρA, clip(ρ, 1 − ε, 1 + ε)·A)`` where PPO takes the minimum."""
    ratio = policy_ratio(logps, old_logps, mask)
    return torch.maximum(ratio * advantages, ratio.clamp(*clip_interval(epsilon, None)) * advantages)


def undetached_baseline(run: ControlRun, method: Method, batch: Minibatch) -> Tensor:
    """The advantage G − V is not detached, so the objective ρA has a gradient in the critic too: it rewards low values.

    The value of the loss is correct; only its gradient in the critic is wrong.
    """
    values = run.critic(batch.observations)
    scale = (batch.targets - batch.old_values).std()  # the divisor of whitening
    with torch.no_grad():
        logps = run.policy(batch.observations).log_softmax(-1).gather(1, batch.actions)
        ratio = policy_ratio(logps, batch.old_logps, torch.ones_like(logps, dtype=torch.bool))
    return loss(run, method, batch) + (ratio * (values - values.detach()) / scale).mean()


NO_BOOTSTRAP = replace(PPO, credit=no_bootstrap)
ENDS_FORGOTTEN = replace(PPO, credit=ends_forgotten)
MAXIMUM = replace(PPO, objective=maximum)
UNDETACHED_BASELINE = replace(PPO, loss=undetached_baseline)
