"""KL penalty or early stopping? Policy gradient with a KL penalty, trained until it converges, against policy
gradient without one, stopped early. Both are compared at equal distance from the reference."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from minirlhf.data.seven_words import Outcomes, decisions
from minirlhf_course.chapters.ch20_overoptimization.curves import Curve, along, policy_gradient

#: KL penalties from strong to weak.
BETAS = (1.0, 0.5, 0.25, 0.12)
#: Training steps under a penalty; more steps change no end point by more than 0.05.
STEPS = 250


def leashed(world: Outcomes, proxy: Tensor, betas: Sequence[float] = BETAS, *, steps: int = STEPS) -> Curve:
    """Return the curve of the reference and then the end of one training run for each penalty: what a team sees that
    tries several penalties.

    Args:
        world: the world of single completions.
        proxy: ``(N,)``.
    """
    choice = decisions()
    ends = [policy_gradient(world, choice, proxy, beta=beta, steps=steps)[-1] for beta in betas]
    return along(torch.stack([world.ref_logps, *ends]), world.ref_logps, proxy, world.gold)


def lead(held: Curve, free: Curve) -> tuple[Tensor, Tensor]:
    """Return by how much the runs of :func:`leashed` exceed one run without a penalty that is stopped at the same
    distance: proxy and gold reward, ``(B,)`` each; NaN where the run without a penalty never reaches the
    distance."""
    distances = held.distance[1:].tolist()
    proxy = held.proxy[1:] - torch.tensor([free.proxy_at(d) for d in distances], dtype=torch.float64)
    gold = held.gold[1:] - torch.tensor([free.gold_at(d) for d in distances], dtype=torch.float64)
    return proxy, gold


def stop_where_another_turns(path: Tensor, world: Outcomes, other: Tensor) -> tuple[float, float]:
    """Stop early without gold reward: choose the point of a path at which a reward model that is not optimised is
    highest.

    Args:
        path: ``(K, N)`` log-probabilities of the policies along the path.
        other: ``(N,)``, the reward model that is not optimised.

    Returns:
        Distance and gold reward at that point.
    """
    other_curve = along(path, world.ref_logps, other, world.gold)
    stop = int(other_curve.proxy.argmax())
    return float(other_curve.distance[stop]), float(other_curve.gold[stop])
