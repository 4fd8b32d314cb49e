"""Usual remedies against over-optimisation, each on the same comparisons and compared at equal KL.

A remedy is a function from an :class:`Evidence` (what a team has: the world's reference, comparisons, a rule or two) to
the reward that is then optimised. The exact tilt optimises it, so that no difference comes from training. The docstring
of a remedy states what it needs beyond one set of comparisons: some remedies need more gold reward than others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from minirlhf.data.seven_words import WORDS, Outcomes
from minirlhf.equations.overoptimization import uncertainty_weighted, worst_case
from minirlhf.feedback.proxies import ProxyComparisons, compare, fit, rescale_to_gold
from minirlhf_course.chapters.ch20_overoptimization.curves import STRENGTHS, Curve, along, tilt_curve, tilted
from minirlhf_course.chapters.ch20_overoptimization.equations import constraint_multipliers


@dataclass(frozen=True)
class Evidence:
    """The data that a remedy learns from.

    Attributes:
        world: the outcomes.
        pairs: the comparisons, sampled from the reference.
        proxy_class: what a reward model can express.
        seed: seed of everything that is sampled later.
    """

    world: Outcomes
    pairs: ProxyComparisons
    proxy_class: str
    seed: int

    @cached_property
    def members(self) -> Tensor:
        """``(5, N)``: reward models from bootstrap samples of the comparisons.

        Members that differ only in their initial weights would be identical here: the loss is convex.
        """
        return torch.stack([fit(self.world, self.pairs.resampled(self.seed, m), self.proxy_class) for m in range(5)])


def single(evidence: Evidence) -> Tensor:
    """Return one reward model, used with a KL penalty only: the baseline of the other remedies."""
    return fit(evidence.world, evidence.pairs, evidence.proxy_class)


def ensemble_mean(evidence: Evidence) -> Tensor:
    """Return the mean of five bootstrap reward models."""
    return evidence.members.mean(0)


def ensemble_worst(evidence: Evidence) -> Tensor:
    """Return the minimum of five bootstrap reward models."""
    return worst_case(evidence.members)


def ensemble_weighted(evidence: Evidence) -> Tensor:
    """Return the mean minus the variance of five bootstrap reward models."""
    return uncertainty_weighted(evidence.members, coef=1.0)


def composite(evidence: Evidence) -> Tensor:
    """Return the reward model minus ½ for each repeated word: a rule that a person would write down after reading
    completions."""
    counts = evidence.world.counts
    return single(evidence) - 0.5 * (counts - 1).clamp(min=0).sum(-1)


def deterministic(evidence: Evidence) -> Tensor:
    """Return a reward without a reward model: one point for *fact* and one for *detail*, checked by a program. It
    cannot be hacked by other words, and it rewards no other words."""
    counts = evidence.world.counts
    num_facts = (counts[:, [WORDS.index("fact"), WORDS.index("detail")]] > 0).sum(-1)
    return rescale_to_gold(num_facts.double(), evidence.world)


def second_round(evidence: Evidence) -> Tensor:
    """Return a reward model with half of its comparisons sampled from the policy of the first half (√KL about 1.5):
    red-teaming one's own model.

    It needs the same number of labels as the other remedies, but in two rounds.
    """
    world, half = evidence.world, len(evidence.pairs) // 2
    first_pairs = evidence.pairs.select(torch.arange(half))
    path = tilted(world.ref_logps, fit(world, first_pairs, evidence.proxy_class))
    distances = along(path, world.ref_logps, world.gold, world.gold).distance
    policy_probs = path[int((distances - 1.5).abs().argmin())].exp()
    new_pairs = compare(world, half, probs=policy_probs, seed=10_000 + evidence.seed)
    return fit(world, first_pairs.and_(new_pairs), evidence.proxy_class)


#: The remedies that give one reward to optimise; constraints need a path of their own, below.
REMEDIES = {
    "one reward model": single,
    "ensemble, mean": ensemble_mean,
    "ensemble, worst case": ensemble_worst,
    "ensemble, mean − variance": ensemble_weighted,
    "second round of labels": second_round,
    "composite: + rule": composite,
    "deterministic rule alone": deterministic,
}


def curve_of(remedy: str, evidence: Evidence) -> Curve:
    """Return the curve of tilts by the reward that a remedy makes of the evidence."""
    world = evidence.world
    return tilt_curve(world.ref_logps, REMEDIES[remedy](evidence), world.gold)


#: What the constraints count: the words of each kind, and all of them.
KINDS = {"polite": ("please", "thanks"), "praise": ("great",), "facts": ("fact", "detail"), "words": WORDS}


def kinds(world: Outcomes) -> Tensor:
    """Return ``(4, N)``: the number of words of each kind in each completion."""
    return torch.stack([world.counts[:, [WORDS.index(w) for w in words]].sum(-1) for words in KINDS.values()])


def proxy_points(world: Outcomes) -> Tensor:
    """Return ``(4,)``: for each kind, the number of words per completion with the highest gold reward when only that
    kind is rewarded; more words cost gold reward.

    This queries the gold reward at every step of four small experiments: constraints are not free. The points do not
    depend on the comparisons.
    """
    points = []
    for count in kinds(world):
        path = tilted(world.ref_logps, count).exp()
        points.append((path @ count)[(path @ world.gold).argmax()])
    return torch.stack(points)


def constrained_curve(
    evidence: Evidence, limits: Tensor | None = None, strengths: tuple[float, ...] = STRENGTHS[1::4]
) -> Curve:
    """Return the curve of one reward model with at most as many words of each kind as its proxy point: constrained
    RLHF, solved exactly.

    Args:
        limits: ``(4,)``, the proxy points by default.
    """
    world, costs, reward = evidence.world, kinds(evidence.world), single(evidence)
    limits = proxy_points(world) if limits is None else limits
    rows = [world.ref_logps]
    for strength in strengths:
        multipliers = constraint_multipliers(world.ref_logps, reward, costs, limits, strength=strength)
        rows.append(tilted(world.ref_logps, reward - multipliers @ costs, (strength,))[0])
    return along(torch.stack(rows), world.ref_logps, reward, world.gold)
