"""TRPO: the natural gradient by conjugate gradients, the longest step inside the trust region, and a line search."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from minirlhf.control.episodes import ControlRollout, Make
from minirlhf.control.policy_optimisation import ControlConfig, ControlRun, begin, credit
from minirlhf.core.randomness import generator
from minirlhf.core.validate import require_positive, require_shapes
from minirlhf.equations.advantages import whiten
from minirlhf.equations.aggregation import aggregate, token_mean
from minirlhf.equations.policy_losses import importance_weighted
from minirlhf.equations.returns import lambda_returns
from minirlhf.equations.trust_region import conjugate_gradient, fisher_vector_product, trust_region_step
from minirlhf.equations.value_losses import value_mse


@dataclass(frozen=True)
class TrustRegionStep:
    """The result of one step.

    Attributes:
        kl: mean KL(π_old‖π) over the rollout's states, nats; 0 if no step was taken.
        gain: increase of the surrogate, E[ρA].
        shrinks: number of times that the line search shortened the step.
    """

    kl: float
    gain: float
    shrinks: int


def trpo_step(
    policy: nn.Module,
    rollout: ControlRollout,
    advantages: Tensor,
    *,
    max_kl: float = 0.01,
    damping: float = 0.1,
    iterations: int = 10,
    shrink: float = 0.5,
    max_shrinks: int = 10,
) -> TrustRegionStep:
    """Update ``policy`` in place: the longest step tried along the natural gradient that gains within ``max_kl``.

    Args:
        policy: ``(N, F) -> (N, A)`` logits, the policy that sampled the rollout.
        advantages: ``(B, T)``.
        damping: added to the diagonal of the Fisher matrix, for the products only.
        iterations: iterations of conjugate gradients.

    Raises:
        ValueError: a number out of its range, or advantages that do not fit.
    """
    require_positive(max_kl=max_kl, shrink=shrink, iterations=iterations)
    require_shapes(rewards=(rollout.rewards, "B T"), advantages=(advantages, "B T"))
    weights = list(policy.parameters())
    obs, actions, advs = rollout.observations[rollout.mask], rollout.actions[rollout.mask], advantages[rollout.mask]
    with torch.no_grad():
        old_logps = policy(obs).log_softmax(-1)  # (M, A)
    mask = torch.ones(len(obs), 1, dtype=torch.bool)

    def kl() -> Tensor:
        return (old_logps.exp() * (old_logps - policy(obs).log_softmax(-1))).sum(-1).mean()

    def surrogate() -> Tensor:
        logps = policy(obs).log_softmax(-1).gather(1, actions[:, None])
        objective = importance_weighted(logps, old_logps.gather(1, actions[:, None]), advs[:, None], mask)
        return aggregate(objective, token_mean(mask), mask)

    initial = surrogate()
    gradient = _flat(torch.autograd.grad(initial, weights))
    if float(gradient.norm()) == 0.0:
        return TrustRegionStep(0.0, 0.0, 0)
    divergence = kl()

    def product(vector: Tensor) -> Tensor:
        return fisher_vector_product(divergence, weights, vector, damping=damping)

    direction = conjugate_gradient(product, gradient, iterations=iterations, tolerance=1e-10)
    step = trust_region_step(direction, product(direction), max_kl=max_kl)
    old_weights = _flat(weights).detach()
    for shrinks in range(max_shrinks + 1):
        _set(weights, old_weights + shrink**shrinks * step)
        with torch.no_grad():
            step_kl, gain = float(kl()), float(surrogate() - initial)
        if gain > 0 and step_kl <= max_kl:
            return TrustRegionStep(step_kl, gain, shrinks)
    _set(weights, old_weights)
    return TrustRegionStep(0.0, 0.0, max_shrinks + 1)


def train_trpo(
    make: Make, config: ControlConfig, *, max_kl: float = 0.01, lam: float = 0.95, critic_passes: int = 20
) -> tuple[ControlRun, list[TrustRegionStep]]:
    """TRPO: one trust-region step per rollout, then ``critic_passes`` full-batch steps of Adam on the critic.

    Raises:
        ValueError: a number out of its range, or an environment with other spaces than ``Environments`` takes.
    """
    require_positive(max_kl=max_kl, critic_passes=critic_passes)
    envs, run = begin(make, config, generator("trpo", config.seed))
    optimiser = torch.optim.Adam(run.critic.parameters(), lr=config.learning_rate, fused=True)
    steps: list[TrustRegionStep] = []
    steps_done = 0
    while steps_done < config.total_steps:
        rollout = envs.collect(run.policy, config.num_steps)
        advantages, values = credit(rollout, run.critic, gamma=config.gamma, lam=lam)
        targets = lambda_returns(advantages, values, rollout.mask)
        steps.append(trpo_step(run.policy, rollout, whiten(advantages, rollout.mask), max_kl=max_kl))
        for _ in range(critic_passes):
            error = value_mse(run.critic(rollout.observations)[..., 0], targets, rollout.mask)
            optimiser.zero_grad()
            aggregate(error, token_mean(rollout.mask), rollout.mask).backward()
            optimiser.step()
        steps_done += int(rollout.mask.sum())
        run.steps.append(steps_done)
        run.returns.append(rollout.returns)
        run.kls.append(steps[-1].kl)
    return run, steps


def _flat(tensors: tuple[Tensor, ...] | list[nn.Parameter]) -> Tensor:
    return torch.cat([x.flatten() for x in tensors])


def _set(weights: list[nn.Parameter], flat: Tensor) -> None:
    """Write a flat vector ``(D,)`` into the weights."""
    with torch.no_grad():
        for weight, part in zip(weights, flat.split([w.numel() for w in weights]), strict=True):
            weight.copy_(part.view_as(weight))
