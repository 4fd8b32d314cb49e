"""A leash or a stop? Policy gradient with a KL penalty, trained until it rests, against policy gradient without one, stopped on its
way. Compared where they are equally far from the reference."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from minirlhf.chapters.ch20_overoptimization.curves import Curve, along, policy_gradient
from minirlhf.data.seven_words import Outcomes, decisions

#: KL penalties from strong to weak.
BETAS = (1.0, 0.5, 0.25, 0.12)
#: Of training under a penalty; more of them move no end by more than 0.05.
STEPS = 250


def leashed(world: Outcomes, proxy: Tensor, betas: Sequence[float] = BETAS, *, steps: int = STEPS) -> Curve:
    """The reference, then the end of one training run for each penalty: what a team sees that tries several.

    Args:
        world: the single replies.
        proxy: ``(N,)``.
    """
    choice = decisions()
    ends = [policy_gradient(world, choice, proxy, beta=beta, steps=steps)[-1] for beta in betas]
    return along(torch.stack([world.ref_logps, *ends]), world.ref_logps, proxy, world.gold)


def lead(held: Curve, free: Curve) -> tuple[Tensor, Tensor]:
    """By how much the runs of :func:`leashed` are ahead of one free run that is stopped at the same distance: proxy and gold,
    ``(B,)`` each; NaN where the free run never goes so far."""
    places = held.distance[1:].tolist()
    proxy = held.proxy[1:] - torch.tensor([free.proxy_at(d) for d in places], dtype=torch.float64)
    gold = held.gold[1:] - torch.tensor([free.gold_at(d) for d in places], dtype=torch.float64)
    return proxy, gold


def stop_where_another_turns(path: Tensor, world: Outcomes, other: Tensor) -> tuple[float, float]:
    """Early stopping without gold: go along a path until a reward model that is not optimised falls.

    Args:
        path: ``(K, N)`` log-probabilities of the policies on the way.
        other: ``(N,)``, the reward model that looks on.

    Returns:
        Distance and gold there.
    """
    judged = along(path, world.ref_logps, other, world.gold)
    stop = int(judged.proxy.argmax())
    return float(judged.distance[stop]), float(judged.gold[stop])
