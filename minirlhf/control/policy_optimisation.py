"""Policy gradients with small networks: REINFORCE, actor-critic, PPO. The objectives are those of the language-model trainers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import gymnasium
import torch
from torch import Tensor, nn

from minirlhf.control.rollouts import Crowd, Rollout
from minirlhf.core.randomness import derive_seed, generator
from minirlhf.core.validate import require_positive, require_range
from minirlhf.equations.advantages import whiten
from minirlhf.equations.aggregation import aggregate, token_mean
from minirlhf.equations.kl import entropy_bonus
from minirlhf.equations.policy_losses import ppo_clip, ppo_penalty, reinforce
from minirlhf.equations.returns import gae, lambda_returns
from minirlhf.equations.value_losses import value_mse

#: (logps, old_logps, advantages, mask) -> (B, T), to be maximised.
Objective = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Method:
    """What distinguishes the methods.

    Attributes:
        objective: of the policy.
        lam: λ of GAE; 1 is the return less the value, 0 the TD residual.
        critic: whether a baseline is learned; without one, values are 0 and every stretch must run to its end for its return to be known.
        num_iterations: passes over each rollout.
        num_minibatches: updates per pass.
        entropy_coef: weight of the entropy bonus.
        vf_coef: weight of the critic's loss.
    """

    objective: Objective = ppo_clip
    lam: float = 0.95
    critic: bool = True
    num_iterations: int = 8
    num_minibatches: int = 8
    entropy_coef: float = 0.0
    vf_coef: float = 0.5


PPO = Method()
PPO_PENALTY = replace(PPO, objective=partial(ppo_penalty, beta=1.0))
A2C = Method(objective=reinforce, num_iterations=1, num_minibatches=1, entropy_coef=0.01)
ACTOR_CRITIC = replace(A2C, lam=0.0)
REINFORCE_WITH_BASELINE = replace(A2C, lam=1.0)


@dataclass(frozen=True)
class ControlConfig:
    """Numbers of a run.

    Attributes:
        total_steps: of all environments together; the last rollout may go over.
        num_envs, num_steps: size of a rollout.
    """

    total_steps: int = 100_000
    num_envs: int = 8
    num_steps: int = 256
    gamma: float = 0.99
    learning_rate: float = 1e-3
    max_grad_norm: float = 0.5
    hidden: int = 64
    seed: int = 0


@dataclass
class Trained:
    """A policy ``(N, F) -> (N, A)`` logits, its critic ``(N, F) -> (N, 1)``, and the run.

    Attributes:
        returns: of the episodes that ended in each rollout.
        log_ratios: largest |log π/π_old| after each rollout's updates.
    """

    policy: nn.Module
    critic: nn.Module
    returns: list[tuple[float, ...]] = field(default_factory=list)
    log_ratios: list[float] = field(default_factory=list)


def network(inputs: int, outputs: int, hidden: int, *, last_gain: float, rng: torch.Generator) -> nn.Sequential:
    """Two hidden layers, orthogonal weights from ``rng``, biases zero."""
    sizes = [(inputs, hidden, 2**0.5), (hidden, hidden, 2**0.5), (hidden, outputs, last_gain)]
    layers: list[nn.Module] = []
    for width, height, gain in sizes:
        layer = nn.utils.skip_init(nn.Linear, width, height)
        nn.init.orthogonal_(layer.weight, gain, generator=rng)
        nn.init.zeros_(layer.bias)
        layers += [layer, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def credit(rollout: Rollout, critic: nn.Module | None, *, gamma: float, lam: float) -> tuple[Tensor, Tensor]:
    """Advantages and targets of the critic, both ``(B, T)``; a stretch that was cut off bootstraps, one that ended does not."""
    values, last = torch.zeros_like(rollout.rewards), rollout.rewards.new_zeros(len(rollout.last))
    if critic is not None:
        with torch.no_grad():
            values, last = critic(rollout.observations)[..., 0], critic(rollout.last)[:, 0]
    bootstrap = torch.where(rollout.terminated, 0.0, last)
    advantages = gae(rollout.rewards, values, rollout.mask, gamma=gamma, lam=lam, bootstrap=bootstrap)
    return advantages, lambda_returns(advantages, values, rollout.mask)


def train(make: Callable[[], gymnasium.Env[Any, Any]], method: Method, config: ControlConfig) -> Trained:
    """Train a policy.

    Raises:
        ValueError: a number out of its range.
    """
    require_range(0.0, 1.0, gamma=config.gamma, lam=method.lam)
    require_positive(total_steps=config.total_steps, learning_rate=config.learning_rate)
    rng = generator("control", config.seed)
    crowd = Crowd(make, config.num_envs, seed=derive_seed("crowd", config.seed) % 2**20)
    spaces: Any = make()
    width, count = int(spaces.observation_space.shape[0]), int(spaces.action_space.n)
    policy = network(width, count, config.hidden, last_gain=0.01, rng=rng)
    critic = network(width, 1, config.hidden, last_gain=1.0, rng=rng)
    weights = [*policy.parameters(), *critic.parameters()]
    optimiser = torch.optim.Adam(weights, lr=config.learning_rate, eps=1e-5, fused=True)
    run = Trained(policy, critic)
    rollouts = -(-config.total_steps // (config.num_envs * config.num_steps))
    for k in range(rollouts):
        for group in optimiser.param_groups:
            group["lr"] = config.learning_rate * (1 - k / rollouts)
        rollout = crowd.collect(policy, config.num_steps)
        run.returns.append(rollout.returns)
        advantages, targets = credit(rollout, critic if method.critic else None, gamma=config.gamma, lam=method.lam)
        advantages = whiten(advantages, rollout.mask)
        run.log_ratios.append(_update(run, method, config, optimiser, weights, rollout, advantages, targets, rng))
    return run


def _update(
    run: Trained,
    method: Method,
    config: ControlConfig,
    optimiser: torch.optim.Optimizer,
    weights: list[nn.Parameter],
    rollout: Rollout,
    advantages: Tensor,
    targets: Tensor,
    rng: torch.Generator,
) -> float:
    """All passes over one rollout; the largest log-ratio seen in the last one."""
    # Steps are independent given their advantages, so a minibatch is any set of steps: (M, 1), a row each.
    seen, actions, old_logps, gains, aims = (
        x[rollout.mask] for x in (rollout.observations, rollout.actions, rollout.logps, advantages, targets)
    )
    widest = 0.0
    for _ in range(method.num_iterations):
        widest = 0.0
        for rows in torch.randperm(len(seen), generator=rng).chunk(method.num_minibatches):
            mask = torch.ones(len(rows), 1, dtype=torch.bool)
            all_logps = run.policy(seen[rows]).log_softmax(-1)
            logps = all_logps.gather(1, actions[rows, None])  # (M, 1)
            objective = method.objective(logps, old_logps[rows, None], gains[rows, None], mask)
            objective = objective + entropy_bonus(all_logps, coef=method.entropy_coef)[:, None]
            if method.critic:
                values = run.critic(seen[rows])
                objective = objective - method.vf_coef * value_mse(values, aims[rows, None], mask)
            optimiser.zero_grad()
            (-aggregate(objective, token_mean(mask), mask)).backward()
            nn.utils.clip_grad_norm_(weights, config.max_grad_norm)
            optimiser.step()
            widest = max(widest, float((logps.detach()[:, 0] - old_logps[rows]).abs().max()))
    return widest
