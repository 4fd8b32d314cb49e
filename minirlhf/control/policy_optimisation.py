"""Policy gradients with small networks: REINFORCE, actor-critic, PPO. The objectives are those of the language-model trainers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from minirlhf.control.episodes import ControlRollout, Environments, Make
from minirlhf.core import progress
from minirlhf.core.errors import ArgumentError
from minirlhf.core.randomness import derive_seed, generator
from minirlhf.core.validate import require_positive, require_range
from minirlhf.equations.advantages import whiten
from minirlhf.equations.aggregation import aggregate, token_mean
from minirlhf.equations.kl import entropy_bonus, reverse_kl
from minirlhf.equations.policy_losses import ppo_clip, ppo_penalty, reinforce
from minirlhf.equations.returns import gae, lambda_returns
from minirlhf.equations.trust_region import adaptive_penalty
from minirlhf.equations.value_losses import value_clip, value_mse


@dataclass
class ControlRun:
    """A policy ``(N, F) -> (N, A)`` logits, its critic ``(N, F) -> (N, 1)``, and the run, with one entry per rollout.

    Attributes:
        steps: number of steps so far, over all environments.
        returns: returns of the episodes that ended.
        kls: mean KL(π_old‖π) over the rollout's states after its updates, nats.
        betas: coefficient of the penalty in this rollout; empty for a method without an adaptive penalty.
    """

    policy: nn.Module
    critic: nn.Module
    steps: list[int] = field(default_factory=list)
    returns: list[tuple[float, ...]] = field(default_factory=list)
    kls: list[float] = field(default_factory=list)
    betas: list[float] = field(default_factory=list)


class Minibatch(NamedTuple):
    """``M`` steps of one update. Steps are independent once their advantages are known, so each is a row: ``(M, 1)``.

    Attributes:
        observations: ``(M, F)``.
        actions, old_logps, old_values: ``(M, 1)``, of the policy and the critic at the time of the rollout.
        advantages: ``(M, 1)``, whitened over the rollout.
        targets: ``(M, 1)``, targets of the critic.
    """

    observations: Tensor
    actions: Tensor
    old_logps: Tensor
    old_values: Tensor
    advantages: Tensor
    targets: Tensor


def credit(rollout: ControlRollout, critic: nn.Module | None, *, gamma: float, lam: float) -> tuple[Tensor, Tensor]:
    """Return advantages and values, both ``(B, T)``. A truncated segment bootstraps, a terminated one does not."""
    values, last = torch.zeros_like(rollout.rewards), rollout.rewards.new_zeros(len(rollout.last))
    if critic is not None:
        with torch.no_grad():
            values, last = critic(rollout.observations)[..., 0], critic(rollout.last)[:, 0]
    bootstrap = torch.where(rollout.terminated, 0.0, last)
    return gae(rollout.rewards, values, rollout.mask, gamma=gamma, lam=lam, bootstrap=bootstrap), values


def loss(run: ControlRun, method: Method, batch: Minibatch) -> Tensor:
    """Return the loss of one update: objective, entropy bonus and critic's loss, averaged over the steps."""
    mask = torch.ones_like(batch.advantages, dtype=torch.bool)
    all_logps = run.policy(batch.observations).log_softmax(-1)
    logps = all_logps.gather(1, batch.actions)
    objective = method.objective(logps, batch.old_logps, batch.advantages, mask)
    objective = objective + entropy_bonus(all_logps, coef=method.entropy_coef)[:, None]
    if method.critic:
        values = run.critic(batch.observations)
        if method.cliprange_value is None:
            error = value_mse(values, batch.targets, mask)
        else:
            error = value_clip(values, batch.old_values, batch.targets, mask, cliprange_value=method.cliprange_value)
        objective = objective - method.vf_coef * error
    return -aggregate(objective, token_mean(mask), mask)


@dataclass(frozen=True)
class Method:
    """The choices that distinguish the methods.

    Attributes:
        objective: (logps, old_logps, advantages, mask) -> ``(M, 1)``, maximised.
        lam: λ of GAE; 1 is the return minus the value, 0 the TD residual.
        critic: whether a baseline is learned; without one the values are 0.
        num_iterations: passes over each rollout.
        num_minibatches: updates per pass.
        entropy_coef: weight of the entropy bonus.
        vf_coef: weight of the critic's loss.
        cliprange_value: clip range of the values around the old values; None for no clip.
        target_kl: target of the adaptive penalty: ``objective`` then takes a ``beta`` too, which starts at 1 and is
            adapted after every rollout. None for no adaptation.
        credit: (rollout, critic or None, gamma, lam) -> advantages and values, ``(B, T)`` each.
        loss: (run, method, batch) -> scalar.
    """

    objective: Callable[..., Tensor] = ppo_clip
    lam: float = 0.95
    critic: bool = True
    num_iterations: int = 8
    num_minibatches: int = 8
    entropy_coef: float = 0.0
    vf_coef: float = 0.5
    cliprange_value: float | None = None
    target_kl: float | None = None
    credit: Callable[..., tuple[Tensor, Tensor]] = credit
    loss: Callable[[ControlRun, Method, Minibatch], Tensor] = loss


PPO = Method()
PPO_PENALTY = replace(PPO, objective=partial(ppo_penalty, beta=1.0))
PPO_ADAPTIVE = replace(PPO, objective=ppo_penalty, target_kl=0.01)
A2C = Method(objective=reinforce, num_iterations=1, num_minibatches=1, entropy_coef=0.01)
ACTOR_CRITIC = replace(A2C, lam=0.0)
REINFORCE_WITH_BASELINE = replace(A2C, lam=1.0)
REINFORCE = replace(REINFORCE_WITH_BASELINE, critic=False)


@dataclass(frozen=True)
class ControlConfig:
    """Numbers of a run.

    Attributes:
        total_steps: of all environments together; the last rollout may go over.
        num_envs: copies of the environment.
        num_steps: that each copy takes per rollout; None for one whole episode of each, which a method without critic needs.
        learning_rate: at the start; it falls to 0 at the end.
    """

    total_steps: int = 100_000
    num_envs: int = 16
    num_steps: int | None = 128
    gamma: float = 0.99
    learning_rate: float = 1e-3
    max_grad_norm: float = 0.5
    hidden: int = 64
    seed: int = 0


def network(inputs: int, outputs: int, hidden: int, *, last_gain: float, rng: torch.Generator) -> nn.Sequential:
    """Return a network with two hidden layers, orthogonal weights from ``rng``, and biases of zero."""
    sizes = [(inputs, hidden, 2**0.5), (hidden, hidden, 2**0.5), (hidden, outputs, last_gain)]
    layers: list[nn.Module] = []
    for fan_in, fan_out, gain in sizes:
        layer = nn.utils.skip_init(nn.Linear, fan_in, fan_out)
        nn.init.orthogonal_(layer.weight, gain, generator=rng)
        nn.init.zeros_(layer.bias)
        layers += [layer, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def begin(make: Make, config: ControlConfig, rng: torch.Generator) -> tuple[Environments, ControlRun]:
    """Return the environments, and a run with untrained networks.

    Raises:
        ValueError: a number out of its range, or an environment with other spaces than :class:`Environments` takes.
    """
    require_range(0.0, 1.0, gamma=config.gamma)
    require_positive(
        total_steps=config.total_steps,
        learning_rate=config.learning_rate,
        max_grad_norm=config.max_grad_norm,
        hidden=config.hidden,
    )
    envs = Environments(make, config.num_envs, seed=derive_seed("crowd", config.seed) % 2**20)
    policy = network(envs.num_features, envs.num_actions, config.hidden, last_gain=0.01, rng=rng)
    return envs, ControlRun(policy, network(envs.num_features, 1, config.hidden, last_gain=1.0, rng=rng))


def train_policy(make: Make, method: Method, config: ControlConfig) -> ControlRun:
    """Train a policy.

    Raises:
        ValueError: a number out of its range, an environment with other spaces than :class:`Environments` takes, or
            rollouts of a fixed length for a method without critic, which would treat truncated episodes as terminated.
    """
    require_range(0.0, 1.0, lam=method.lam)
    require_range(0.0, float("inf"), entropy_coef=method.entropy_coef, vf_coef=method.vf_coef)
    require_positive(num_iterations=method.num_iterations, num_minibatches=method.num_minibatches)
    if not method.critic and config.num_steps is not None:
        raise ArgumentError(
            f"num_steps = {config.num_steps}; a method without critic needs whole episodes: num_steps=None",
            argument="num_steps",
            value=config.num_steps,
        )
    rng = generator("control", config.seed)
    envs, run = begin(make, config, rng)
    parameters = [*run.policy.parameters(), *run.critic.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=config.learning_rate, eps=1e-5, fused=True)
    steps_done, beta = 0, 1.0
    with progress.bar(config.total_steps, "steps") as bar:
        while steps_done < config.total_steps:
            for group in optimiser.param_groups:
                group["lr"] = config.learning_rate * (1 - steps_done / config.total_steps)
            rollout = envs.collect(run.policy, config.num_steps)
            current = method
            if method.target_kl is not None:
                current = replace(method, objective=partial(method.objective, beta=beta))
                run.betas.append(beta)
            with torch.no_grad():
                old_logits = run.policy(rollout.observations[rollout.mask])
            _update(run, current, config, optimiser, parameters, rollout, rng)
            with torch.no_grad():
                run.kls.append(float(reverse_kl(old_logits, run.policy(rollout.observations[rollout.mask])).mean()))
            if method.target_kl is not None:
                beta = adaptive_penalty(beta, max(0.0, run.kls[-1]), target=method.target_kl)
            steps_done += int(rollout.mask.sum())
            bar.update(int(rollout.mask.sum()))
            run.steps.append(steps_done)
            run.returns.append(rollout.returns)
    return run


def _update(
    run: ControlRun,
    method: Method,
    config: ControlConfig,
    optimiser: torch.optim.Optimizer,
    parameters: list[nn.Parameter],
    rollout: ControlRollout,
    rng: torch.Generator,
) -> None:
    """Make all passes over one rollout."""
    critic = run.critic if method.critic else None
    advantages, values = method.credit(rollout, critic, gamma=config.gamma, lam=method.lam)
    targets = lambda_returns(advantages, values, rollout.mask)
    columns = (rollout.actions, rollout.logps, values, whiten(advantages, rollout.mask), targets)
    steps = Minibatch(rollout.observations[rollout.mask], *(x[rollout.mask][:, None] for x in columns))
    for _ in range(method.num_iterations):
        for rows in torch.randperm(len(steps.actions), generator=rng).chunk(method.num_minibatches):
            optimiser.zero_grad()
            method.loss(run, method, Minibatch(*(x[rows] for x in steps))).backward()
            nn.utils.clip_grad_norm_(parameters, config.max_grad_norm)
            optimiser.step()
