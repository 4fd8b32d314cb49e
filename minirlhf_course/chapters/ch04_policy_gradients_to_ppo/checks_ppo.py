"""The ledger of chapter 04, last part: PPO's update as it is descended, written out row by row."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from minirlhf.control import policy_optimisation as po
from minirlhf.core import exact
from minirlhf.equations import policy_losses, value_losses
from minirlhf_course.ledger.registry import Comparison, Draw, chain, check

chain(
    "ppo-update",
    "From the clipped surrogate of one step to the loss of a minibatch",
    ["eq:clipped-surrogate", "eq:ppo-objective"],
    module=__name__,
)


def _six_cases(ratio: float, advantage: float, epsilon: float) -> float:
    """Return PPO's objective case by case: a ratio that has moved too far has nothing more to gain."""
    if advantage > 0 and ratio > 1 + epsilon:
        return (1 + epsilon) * advantage
    if advantage < 0 and ratio < 1 - epsilon:
        return (1 - epsilon) * advantage
    return ratio * advantage


@check(
    "eq:clipped-surrogate",
    "six-cases",
    "min(ρA, clip(ρ)A) is constant where the ratio has moved beyond the clip range in the advantage's direction, "
    "and nowhere else.",
    of=policy_losses.ppo_clip,
    against="six cases written out: two signs of the advantage, three places of the ratio",
    wrong={
        "the ratio is clipped without a minimum": lambda logps, old, a, mask, *, epsilon: (
            (logps - old).exp().clamp(1 - epsilon, 1 + epsilon) * a
        ),
        "maximum for minimum": lambda logps, old, a, mask, *, epsilon: torch.maximum(
            (logps - old).exp() * a, (logps - old).exp().clamp(1 - epsilon, 1 + epsilon) * a
        ),
        "nothing is clipped": lambda logps, old, a, mask, *, epsilon: (logps - old).exp() * a,
        "the clip range is ignored": lambda logps, old, a, mask, *, epsilon: policy_losses.ppo_clip(
            logps, old, a, mask, epsilon=0.5
        ),
    },
)
def _(objective: Callable[..., Tensor], draw: Draw) -> Iterator[Comparison]:
    for epsilon in (0.1, 0.3):
        ratios = draw.away_from([1 - epsilon, 1 + epsilon], 6, low=0.4, high=0.6)
        ratios = ratios + torch.tensor([0.0, 0.5, 1.0] * 2)  # below, inside, above
        advantages = draw.uniform(6, low=0.5, high=2.0) * torch.tensor([1.0, 1, 1, -1, -1, -1])
        old = draw.logps(6, 1)
        got = objective(
            ratios.log()[:, None] + old, old, advantages[:, None], torch.ones(6, 1, dtype=torch.bool), epsilon=epsilon
        )
        pairs = zip(ratios.tolist(), advantages.tolist(), strict=True)
        yield got[:, 0], torch.tensor([_six_cases(r, a, epsilon) for r, a in pairs], dtype=torch.float64)


@check(
    "eq:clipped-value-loss",
    "value",
    "A value that differs by more than c from its value at the rollout cannot lower the loss by moving further.",
    of=value_losses.value_clip,
    against="the two squared errors, of which the larger counts",
    wrong={
        "the smaller square": lambda v, old, g, mask, *, cliprange_value: (
            0.5
            * torch.minimum((v - g).square(), (old + (v - old).clamp(-cliprange_value, cliprange_value) - g).square())
        ),
        "clipped always": lambda v, old, g, mask, *, cliprange_value: (
            0.5 * (old + (v - old).clamp(-cliprange_value, cliprange_value) - g).square()
        ),
        "not clipped": lambda v, old, g, mask, *, cliprange_value: 0.5 * (v - g).square(),
        "clipped about the target": lambda v, old, g, mask, *, cliprange_value: (
            0.5 * torch.maximum((v - g).square(), (v.clamp(-cliprange_value, cliprange_value) - g).square())
        ),
    },
)
def _(loss: Callable[..., Tensor], draw: Draw) -> Iterator[Comparison]:
    for c in (0.2, 0.5):
        old, moved = draw.normal(8), draw.away_from([-c, c], 8, low=-1.5, high=1.5)
        far = draw.uniform(8, low=2.0, high=3.0)
        target = old + torch.where(torch.arange(8) % 2 == 0, far, -far)  # beyond every move, on both sides
        got = loss((old + moved)[None], old[None], target[None], torch.ones(1, 8, dtype=torch.bool), cliprange_value=c)
        rows = []
        for v, o, g in zip((old + moved).tolist(), old.tolist(), target.tolist(), strict=True):
            near = o + math.copysign(min(abs(v - o), c), v - o)
            rows.append(0.5 * max((v - g) ** 2, (near - g) ** 2))
        yield got[0], torch.tensor(rows, dtype=torch.float64)


Loss = Callable[[po.ControlRun, po.Method, po.Minibatch], Tensor]


def minibatch(draw: Draw, rows: int = 5) -> tuple[po.ControlRun, po.Minibatch, Tensor]:
    """Small networks, a minibatch that an older policy collected, and the ratios between the two policies, off the kinks."""
    policy, critic = nn.Linear(3, 2).double(), nn.Linear(3, 1).double()
    for network in (policy, critic):
        network.weight.data, network.bias.data = draw.normal(*network.weight.shape), draw.normal(*network.bias.shape)
    seen, actions = draw.normal(rows, 3), draw.permutation(rows)[:, None] % 2
    with torch.no_grad():
        taken = policy(seen).log_softmax(-1).gather(1, actions)[:, 0]
        values = critic(seen)[:, 0]
    ratios = draw.permutation(rows) * 0.3 + draw.uniform(rows, low=0.42, high=0.58)  # 0.42 … 1.78
    columns = (taken - ratios.log(), values, draw.normal(rows), draw.normal(rows))
    batch = po.Minibatch(seen, actions, *(x[:, None] for x in columns))
    return po.ControlRun(policy, critic), batch, ratios


def _with(**changes: Any) -> Loss:
    """The library's loss of another method."""
    return lambda run, method, batch: po.loss(run, replace(method, **changes), batch)


@check(
    "eq:ppo-objective",
    "value",
    "The loss is minus the mean of the clipped surrogate plus the entropy bonus minus the value error.",
    of=po.loss,
    against="every step's three terms, by hand, and their mean",
    wrong={
        "the entropy is punished": lambda run, method, batch: (
            2 * po.loss(run, replace(method, entropy_coef=0.0), batch) - po.loss(run, method, batch)
        ),
        "no entropy bonus": _with(entropy_coef=0.0),
        "the critic's loss is added to the objective": lambda run, method, batch: po.loss(
            run, replace(method, vf_coef=-method.vf_coef), batch
        ),
        "the critic is left out": _with(critic=False),
        "maximised for minimised": lambda run, method, batch: -po.loss(run, method, batch),
    },
    follows="eq:clipped-surrogate",
)
def _(loss: Loss, draw: Draw) -> Iterator[Comparison]:
    run, batch, ratios = minibatch(draw)
    with torch.no_grad():
        logps, values = run.policy(batch.observations).log_softmax(-1), run.critic(batch.observations)[:, 0]
    advantages, targets = batch.advantages[:, 0], batch.targets[:, 0]
    for bonus, weight in ((0.3, 0.5), (0.1, 0.9)):
        total = 0.0
        for i in range(len(ratios)):
            entropy = -sum(float(p) * math.log(float(p)) for p in logps[i].exp())
            clipped = _six_cases(float(ratios[i]), float(advantages[i]), 0.2)
            total += clipped + bonus * entropy - weight * 0.5 * float(values[i] - targets[i]) ** 2
        method = po.Method(entropy_coef=bonus, vf_coef=weight)
        yield loss(run, method, batch).detach(), -total / len(ratios)


@check(
    "eq:entropy-gradient",
    "gradient",
    "The gradient of the entropy is a policy gradient with weight −log π for each action.",
    of=policy_losses.reinforce,
    against="finite differences of the entropy, summed over all actions",
    wrong={
        "sign reversed": lambda logps, old, a, mask: -policy_losses.reinforce(logps, old, a, mask),
        "the gradient of the probability, not of its logarithm": lambda logps, old, a, mask: logps.exp() * a,
    },
    tolerance=1e-8,
)
def _(objective: Callable[..., Tensor], draw: Draw) -> Comparison:
    logits = draw.normal(4).requires_grad_()
    logps = logits.log_softmax(-1)
    probs = logps.detach().exp()
    mask = torch.ones(4, 1, dtype=torch.bool)
    rows = objective(logps[:, None], logps.detach()[:, None], -logps.detach()[:, None], mask)
    (got,) = torch.autograd.grad((probs * rows[:, 0]).sum(), logits)

    def entropy(z: Tensor) -> Tensor:
        p = z.exp() / z.exp().sum()
        return -(p * p.log()).sum()

    return got, exact.finite_difference(entropy, logits.detach())
