"""TRPO: the natural direction by conjugate gradients, the longest step that the trust region allows, and a line search."""

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
    """What one step did.

    Attributes:
        kl: mean KL(π_old‖π) over the rollout's states, nats; 0 if no step was taken.
        gain: of the surrogate, E[ρA].
        shrinks: how often the line search shortened the step.
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
    """Improve ``policy`` in place: the first step along the natural direction that gains and keeps within ``max_kl``.

    Args:
        policy: ``(N, F) -> (N, A)`` logits, the one that sampled the rollout.
        advantages: ``(B, T)``.
        damping: added to the Fisher matrix, for the products only.
        iterations: of conjugate gradients.

    Raises:
        ValueError: a number out of its range, or advantages that do not fit.
    """
    require_positive(max_kl=max_kl, shrink=shrink, iterations=iterations)
    require_shapes(rewards=(rollout.rewards, "B T"), advantages=(advantages, "B T"))
    weights = list(policy.parameters())
    seen, actions, gains = rollout.observations[rollout.mask], rollout.actions[rollout.mask], advantages[rollout.mask]
    with torch.no_grad():
        old = policy(seen).log_softmax(-1)  # (M, A)
    mask = torch.ones(len(seen), 1, dtype=torch.bool)

    def kl() -> Tensor:
        return (old.exp() * (old - policy(seen).log_softmax(-1))).sum(-1).mean()

    def surrogate() -> Tensor:
        logps = policy(seen).log_softmax(-1).gather(1, actions[:, None])
        objective = importance_weighted(logps, old.gather(1, actions[:, None]), gains[:, None], mask)
        return aggregate(objective, token_mean(mask), mask)

    before = surrogate()
    slope = _flat(torch.autograd.grad(before, weights))
    if float(slope.norm()) == 0.0:
        return TrustRegionStep(0.0, 0.0, 0)
    divergence = kl()

    def product(vector: Tensor) -> Tensor:
        return fisher_vector_product(divergence, weights, vector, damping=damping)

    direction = conjugate_gradient(product, slope, iterations=iterations, tolerance=1e-10)
    step = trust_region_step(direction, product(direction), max_kl=max_kl)
    start = _flat(weights).detach()
    for shrinks in range(max_shrinks + 1):
        _set(weights, start + shrink**shrinks * step)
        with torch.no_grad():
            moved, gain = float(kl()), float(surrogate() - before)
        if gain > 0 and moved <= max_kl:
            return TrustRegionStep(moved, gain, shrinks)
    _set(weights, start)
    return TrustRegionStep(0.0, 0.0, max_shrinks + 1)


def train_trpo(
    make: Make, config: ControlConfig, *, max_kl: float = 0.01, lam: float = 0.95, critic_passes: int = 20
) -> tuple[ControlRun, list[TrustRegionStep]]:
    """TRPO: one trust-region step per rollout, and the critic fitted by ``critic_passes`` full-batch steps of Adam.

    Raises:
        ValueError: a number out of its range, or an environment with other spaces than ``Environments`` takes.
    """
    require_positive(max_kl=max_kl, critic_passes=critic_passes)
    crowd, run = begin(make, config, generator("trpo", config.seed))
    optimiser = torch.optim.Adam(run.critic.parameters(), lr=config.learning_rate, fused=True)
    steps: list[TrustRegionStep] = []
    taken = 0
    while taken < config.total_steps:
        rollout = crowd.collect(run.policy, config.num_steps)
        advantages, values = credit(rollout, run.critic, gamma=config.gamma, lam=lam)
        targets = lambda_returns(advantages, values, rollout.mask)
        steps.append(trpo_step(run.policy, rollout, whiten(advantages, rollout.mask), max_kl=max_kl))
        for _ in range(critic_passes):
            error = value_mse(run.critic(rollout.observations)[..., 0], targets, rollout.mask)
            optimiser.zero_grad()
            aggregate(error, token_mean(rollout.mask), rollout.mask).backward()
            optimiser.step()
        taken += int(rollout.mask.sum())
        run.steps.append(taken)
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
