"""From length-biased labels to a reward model to a policy, in the seven-word world: every number is an exact sum
over all completions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.data.seven_words import Outcomes
from minirlhf.equations.overoptimization import tilt
from minirlhf.equations.reward_losses import bradley_terry_loss
from minirlhf.feedback.proxies import L2, ProxyComparisons, compare, fit, labelled_better, minimise, standardised
from minirlhf_course.chapters.ch21_style_and_information.equations import residual_reward, style_and_content

BIAS = 0.5  # bias of the labels: added to gold for every word
PAIRS = 1600
PROXY = "pairs"  # features: counts of words and products of two; they express nearly all of gold


def words(world: Outcomes) -> Tensor:
    """Return the lengths in words, ``(N,)``."""
    return world.counts[:, :7].sum(-1)


def slope(world: Outcomes, rewards: Tensor, style: Tensor) -> float:
    """Return the change of a reward ``(N,)`` per unit of a style ``(N,)``, under the reference."""
    residual = residual_reward(world.probs, rewards, style)
    farthest = int((style - world.probs @ style).abs().argmax())
    style_part = rewards - world.probs @ rewards - residual
    return float(style_part[farthest] / (style[farthest] - world.probs @ style))


def policy_at(ref_logps: Tensor, rewards: Tensor, *, kl: float) -> Tensor:
    """Return ``(N,)``: log-probabilities of the optimal policy for a reward at this KL from the reference, in nats."""
    low, high = 0.0, 200.0
    for _ in range(60):
        middle = (low + high) / 2
        logps = tilt(ref_logps, rewards, strength=middle)
        low, high = (middle, high) if float(logps.exp() @ (logps - ref_logps)) < kl else (low, middle)
    return tilt(ref_logps, rewards, strength=low)


def win_rate(world: Outcomes, probs: Tensor, scores: Tensor) -> float:
    """Return how often an annotator with these scores ``(N,)`` prefers a completion of ``probs (N,)`` to one of the
    reference."""
    return float(probs @ labelled_better(*torch.broadcast_tensors(scores[:, None], scores[None])) @ world.probs)


@dataclass(frozen=True)
class LearnedRewards:
    """Reward models from one sample of comparisons, all ``(N,)``.

    Attributes:
        honest: from labels without the bias, on the same pairs.
        biased: from labels with the bias.
        residual: the biased one without its slope on length.
        matched: from the same number of pairs of equal length, labelled with the bias.
        dropped: length had a coefficient of its own, which is left out.
        offset: the biased one minus the bias itself, which only the designer of the labels knows.
    """

    honest: Tensor
    biased: Tensor
    residual: Tensor
    matched: Tensor
    dropped: Tensor
    offset: Tensor


def rewards(world: Outcomes, style: Tensor, *, seed: int, bias: float = BIAS, pairs: int = PAIRS) -> LearnedRewards:
    """Label comparisons, fit reward models, and remove the bias on ``style (N,)`` in every way."""
    style_bonus = bias * style
    comparisons = compare(world, pairs, bias=style_bonus, seed=seed)
    biased = fit(world, comparisons, PROXY)
    large_set = compare(world, 8 * pairs, bias=style_bonus, seed=seed)
    equal_length = large_set.select((style[large_set.chosen] == style[large_set.rejected]).nonzero().flatten()[:pairs])
    features, style_gap = standardised(world, PROXY), style[comparisons.chosen] - style[comparisons.rejected]

    def loss(weights: Tensor) -> Tensor:
        r = features @ weights[:-1]
        chosen_rewards = r[comparisons.chosen] + weights[-1] * style_gap
        return bradley_terry_loss(chosen_rewards, r[comparisons.rejected]).mean() + L2 * weights[:-1].square().sum()

    # In units of gold, the bias of the fitted reward is the difference between its slope on length and gold's slope.
    return LearnedRewards(
        honest=fit(world, compare(world, pairs, seed=seed), PROXY),
        biased=biased,
        residual=residual_reward(world.probs, biased, style),
        matched=fit(world, equal_length, PROXY),
        dropped=features @ minimise(loss, features.shape[1] + 1)[:-1],
        offset=biased - (slope(world, biased, style) - slope(world, world.gold, style)) * style,
    )


def lightly(world: Outcomes, labelled: ProxyComparisons, *, decay: float = L2 / 10) -> Tensor:
    """Return ``(N,)``: a reward model with less weight decay, in nats. It shows how much of the loss that a remedy
    does not recover is due to the decay."""
    features = standardised(world, PROXY)

    def loss(weights: Tensor) -> Tensor:
        r = features @ weights
        return bradley_terry_loss(r[labelled.chosen], r[labelled.rejected]).mean() + decay * weights.square().sum()

    return features @ minimise(loss, features.shape[1])


def standing(world: Outcomes, logps: Tensor, style: Tensor, *, bias: float = BIAS) -> dict[str, float]:
    """Return the properties of a policy ``(N,)``: style, gold reward, both win rates against the reference, and the
    fraction of its KL that is style."""
    probs = logps.exp()
    style_kl, content_kl = style_and_content(logps, world.ref_logps, style)
    return {
        "style": float(probs @ style),
        "gold": float(probs @ world.gold),
        "judge": win_rate(world, probs, world.gold + bias * style),
        "true": win_rate(world, probs, world.gold),
        "share": float(style_kl / (style_kl + content_kl)) if float(style_kl + content_kl) > 1e-9 else 0.0,
    }


def redrawn(laws: Tensor, replies: Tensor, style: Tensor) -> Tensor:
    """Return ``(N,)``: the style distribution of one policy and, given the style, the completions of another:
    log π₁(s) + log π₂(y | s).

    Args:
        laws, replies: ``(N,)`` log-probabilities of the two policies.
        style: ``(N,)``; equal numbers are one style.
    """
    mixed = torch.empty_like(laws)
    for s in style.unique():
        same_style = style == s
        mixed[same_style] = replies[same_style].log_softmax(0) + torch.logsumexp(laws[same_style], 0)
    return mixed
