"""What people do against over-optimisation, each on the same comparisons and compared at equal KL.

A remedy is a function from an :class:`Evidence` (what a team has: the world's reference, comparisons, a rule or two) to the
reward that is then optimised; the exact tilt does the optimising, so that no difference comes from training. What a
remedy needs beyond one set of comparisons stands in its docstring: some need more gold than others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from minirlhf.chapters.ch20_overoptimization.curves import STRENGTHS, Curve, along, tilt_curve, tilted
from minirlhf.data.seven_words import WORDS, Outcomes
from minirlhf.equations.overoptimization import constraint_multipliers, uncertainty_weighted, worst_case
from minirlhf.feedback.proxies import ProxyComparisons, compare, fit, rescale_to_gold


@dataclass(frozen=True)
class Evidence:
    """What there is to learn from.

    Attributes:
        world: the outcomes.
        pairs: the comparisons, drawn from the reference.
        proxy_class: what a reward model can express.
        seed: of everything drawn later.
    """

    world: Outcomes
    pairs: ProxyComparisons
    proxy_class: str
    seed: int

    @cached_property
    def members(self) -> Tensor:
        """``(5, N)``: reward models from bootstrap samples of the comparisons.

        Members that differ in their initial weights alone would be one and the same here: the loss is convex.
        """
        return torch.stack([fit(self.world, self.pairs.resampled(self.seed, m), self.proxy_class) for m in range(5)])


def single(evidence: Evidence) -> Tensor:
    """One reward model, with a KL penalty and nothing else: what the others are compared with."""
    return fit(evidence.world, evidence.pairs, evidence.proxy_class)


def ensemble_mean(evidence: Evidence) -> Tensor:
    """The mean of five bootstrap reward models."""
    return evidence.members.mean(0)


def ensemble_worst(evidence: Evidence) -> Tensor:
    """The smallest of five."""
    return worst_case(evidence.members)


def ensemble_weighted(evidence: Evidence) -> Tensor:
    """Mean less variance of five."""
    return uncertainty_weighted(evidence.members, coef=1.0)


def composite(evidence: Evidence) -> Tensor:
    """The reward model less ½ for each repeated word: a rule that somebody who had read replies would write down."""
    counts = evidence.world.counts
    return single(evidence) - 0.5 * (counts - 1).clamp(min=0).sum(-1)


def deterministic(evidence: Evidence) -> Tensor:
    """No reward model: one point for *fact*, one for *detail*, checked by a program. It cannot be talked into anything else, and
    wants nothing else."""
    counts = evidence.world.counts
    told = (counts[:, [WORDS.index("fact"), WORDS.index("detail")]] > 0).sum(-1)
    return rescale_to_gold(told.double(), evidence.world)


def second_round(evidence: Evidence) -> Tensor:
    """Half of the comparisons are drawn where the first half's policy went (√KL about 1.5): red-teaming one's own model.

    Needs as many labels as the others, but asked for in two rounds.
    """
    world, half = evidence.world, len(evidence.pairs) // 2
    before = evidence.pairs.select(torch.arange(half))
    path = tilted(world.ref_logps, fit(world, before, evidence.proxy_class))
    gone = along(path, world.ref_logps, world.gold, world.gold).distance
    there = path[int((gone - 1.5).abs().argmin())].exp()
    fresh = compare(world, half, probs=there, seed=10_000 + evidence.seed)
    return fit(world, before.and_(fresh), evidence.proxy_class)


#: What optimises a reward by itself; constraints need a path of their own, below.
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
    """The tilt by what a remedy makes of the evidence."""
    world = evidence.world
    return tilt_curve(world.ref_logps, REMEDIES[remedy](evidence), world.gold)


#: What the constraints count: the words of each kind, and all of them.
KINDS = {"polite": ("please", "thanks"), "praise": ("great",), "facts": ("fact", "detail"), "words": WORDS}


def kinds(world: Outcomes) -> Tensor:
    """``(4, N)``: how many words of each kind a reply holds."""
    return torch.stack([world.counts[:, [WORDS.index(w) for w in words]].sum(-1) for words in KINDS.values()])


def proxy_points(world: Outcomes) -> Tensor:
    """``(4,)``: of each kind, how many words per reply are best if one kind alone is pushed; more of it costs gold.

    This asks gold at every step of four small experiments: constraints are not free. They do not depend on the comparisons.
    """
    points = []
    for count in kinds(world):
        path = tilted(world.ref_logps, count).exp()
        points.append((path @ count)[(path @ world.gold).argmax()])
    return torch.stack(points)


def constrained_curve(
    evidence: Evidence, limits: Tensor | None = None, strengths: tuple[float, ...] = STRENGTHS[1::4]
) -> Curve:
    """One reward model, and no more of any kind of word than its proxy point: constrained RLHF, solved exactly.

    Args:
        limits: ``(4,)``, the proxy points by default.
    """
    world, costs, reward = evidence.world, kinds(evidence.world), single(evidence)
    limits = proxy_points(world) if limits is None else limits
    rows = [world.ref_logps]
    for strength in strengths:
        prices = constraint_multipliers(world.ref_logps, reward, costs, limits, strength=strength)
        rows.append(tilted(world.ref_logps, reward - prices @ costs, (strength,))[0])
    return along(torch.stack(rows), world.ref_logps, reward, world.gold)
