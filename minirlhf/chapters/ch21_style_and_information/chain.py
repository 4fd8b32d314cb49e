"""From labels that like length to a reward model to a policy, in the seven-word world: every number is a sum over all replies."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.data.seven_words import Outcomes
from minirlhf.equations.overoptimization import tilt
from minirlhf.equations.reward_losses import bradley_terry_loss
from minirlhf.equations.style import residual_reward, style_and_content
from minirlhf.feedback.proxies import L2, ProxyComparisons, compare, fit, labelled_better, minimise, standardised

BIAS = 0.5  # what the labels add to gold for every word
PAIRS = 1600
PROXY = "pairs"  # counts of words and products of two: nearly all that gold needs


def words(world: Outcomes) -> Tensor:
    """``(N,)`` lengths."""
    return world.counts[:, :7].sum(-1)


def slope(world: Outcomes, rewards: Tensor, style: Tensor) -> float:
    """What a reward ``(N,)`` changes by with one unit of a style ``(N,)``, under the reference."""
    left = residual_reward(world.probs, rewards, style)
    most = int((style - world.probs @ style).abs().argmax())
    taken = rewards - world.probs @ rewards - left
    return float(taken[most] / (style[most] - world.probs @ style))


def policy_at(ref_logps: Tensor, rewards: Tensor, *, kl: float) -> Tensor:
    """``(N,)``: log-probabilities of the best policy for a reward at this KL from the reference, in nats."""
    low, high = 0.0, 200.0
    for _ in range(60):
        middle = (low + high) / 2
        logps = tilt(ref_logps, rewards, strength=middle)
        low, high = (middle, high) if float(logps.exp() @ (logps - ref_logps)) < kl else (low, middle)
    return tilt(ref_logps, rewards, strength=low)


def win_rate(world: Outcomes, probs: Tensor, scores: Tensor) -> float:
    """How often a reply of ``probs (N,)`` is preferred to one of the reference by somebody who sees these scores ``(N,)``."""
    return float(probs @ labelled_better(*torch.broadcast_tensors(scores[:, None], scores[None])) @ world.probs)


@dataclass(frozen=True)
class LearnedRewards:
    """Reward models from one draw of comparisons, all ``(N,)``.

    Attributes:
        honest: from labels without the liking, on the same pairs.
        biased: from labels with it.
        residual: the biased one, its slope on length removed.
        matched: from as many pairs of equal length, labelled with the liking.
        dropped: length had a coefficient of its own, which is left out.
        offset: the biased one less the liking itself, which only its maker knows.
    """

    honest: Tensor
    biased: Tensor
    residual: Tensor
    matched: Tensor
    dropped: Tensor
    offset: Tensor


def rewards(world: Outcomes, style: Tensor, *, seed: int, bias: float = BIAS, pairs: int = PAIRS) -> LearnedRewards:
    """Label, fit, and take the liking for ``style (N,)`` out in every way."""
    liking = bias * style
    labelled = compare(world, pairs, bias=liking, seed=seed)
    biased = fit(world, labelled, PROXY)
    many = compare(world, 8 * pairs, bias=liking, seed=seed)
    equal = many.select((style[many.chosen] == style[many.rejected]).nonzero().flatten()[:pairs])
    known, more = standardised(world, PROXY), style[labelled.chosen] - style[labelled.rejected]

    def loss(weights: Tensor) -> Tensor:
        r = known @ weights[:-1]
        beside = r[labelled.chosen] + weights[-1] * more
        return bradley_terry_loss(beside, r[labelled.rejected]).mean() + L2 * weights[:-1].square().sum()

    # In units of gold, the liking of the fitted reward is as much larger as its own slope on length says.
    return LearnedRewards(
        honest=fit(world, compare(world, pairs, seed=seed), PROXY),
        biased=biased,
        residual=residual_reward(world.probs, biased, style),
        matched=fit(world, equal, PROXY),
        dropped=known @ minimise(loss, known.shape[1] + 1)[:-1],
        offset=biased - (slope(world, biased, style) - slope(world, world.gold, style)) * style,
    )


def lightly(world: Outcomes, labelled: ProxyComparisons, *, decay: float = L2 / 10) -> Tensor:
    """``(N,)``: a reward model with less weight decay, in nats: how much of what a cure does not give back is the decay's?"""
    known = standardised(world, PROXY)

    def loss(weights: Tensor) -> Tensor:
        r = known @ weights
        return bradley_terry_loss(r[labelled.chosen], r[labelled.rejected]).mean() + decay * weights.square().sum()

    return known @ minimise(loss, known.shape[1])


def standing(world: Outcomes, logps: Tensor, style: Tensor, *, bias: float = BIAS) -> dict[str, float]:
    """What a policy ``(N,)`` is like: style, gold, both win rates against the reference, and the share of its KL that is style."""
    probs = logps.exp()
    of_style, of_content = style_and_content(logps, world.ref_logps, style)
    return {
        "style": float(probs @ style),
        "gold": float(probs @ world.gold),
        "judge": win_rate(world, probs, world.gold + bias * style),
        "true": win_rate(world, probs, world.gold),
        "share": float(of_style / (of_style + of_content)) if float(of_style + of_content) > 1e-9 else 0.0,
    }


def redrawn(laws: Tensor, replies: Tensor, style: Tensor) -> Tensor:
    """``(N,)``: the law of style of one policy and, given the style, the replies of another: log π₁(s) + log π₂(y | s).

    Args:
        laws, replies: ``(N,)`` log-probabilities of the two policies.
        style: ``(N,)``; equal numbers are one style.
    """
    mixed = torch.empty_like(laws)
    for s in style.unique():
        here = style == s
        mixed[here] = replies[here].log_softmax(0) + torch.logsumexp(laws[here], 0)
    return mixed
