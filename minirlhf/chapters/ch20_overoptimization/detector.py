"""A detector for reward hacks: which number, known without gold, tells hacked replies from honest ones?

A reply is a *hack* if the proxy overstates it by more than a threshold, in units of gold. The replies come half from the
reference and half from the policy that was optimised, and the area under the ROC curve is summed over all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.chapters.ch20_overoptimization.curves import along, tilted
from minirlhf.chapters.ch20_overoptimization.remedies import Evidence, single
from minirlhf.data.seven_words import Outcomes
from minirlhf.equations.overoptimization import roc_auc
from minirlhf.feedback.proxies import compare, features, fit

THRESHOLD = 1.0


@dataclass(frozen=True)
class Detection:
    """What there is to detect, and with what.

    Attributes:
        traffic: ``(N,)`` probability of each reply, half reference and half policy.
        hacks: ``(N,)`` bool.
        scores: name -> ``(N,)``; more is more suspicious.
    """

    traffic: Tensor
    hacks: Tensor
    scores: dict[str, Tensor]

    def auc(self, name: str) -> float:
        """Chance that a hack scores higher than an honest reply."""
        return float(roc_auc(self.scores[name], self.traffic * self.hacks, self.traffic * ~self.hacks))

    def curve(self, name: str) -> tuple[Tensor, Tensor]:
        """False and true alarms among honest replies and hacks, for every threshold from high to low; both ``(K + 1,)``."""
        levels, group = torch.unique(self.scores[name], return_inverse=True)
        rates = []
        for kind in (~self.hacks, self.hacks):
            mass = torch.zeros(len(levels), dtype=torch.float64).index_add(0, group, self.traffic * kind)
            rates.append(torch.nn.functional.pad(mass.flip(0).cumsum(0) / mass.sum(), (1, 0)))
        return rates[0], rates[1]


def detect(
    world: Outcomes, proxy: Tensor, *, distance: float = 2.0, more: Mapping[str, Tensor] | None = None
) -> Detection:
    """Optimise a proxy to √KL = ``distance`` and set the detectors on what comes out.

    The scores: the proxy itself; how much likelier the policy has made a reply; how unlikely the reference finds it; how
    far its words are from usual (Mahalanobis distance of the counts).

    Args:
        proxy: ``(N,)``, in units of gold.
        more: further scores, ``(N,)`` each, by name.

    Raises:
        ValueError: no reply is a hack, or all are.
    """
    hacks = proxy - world.gold > THRESHOLD
    if bool(hacks.all()) or not bool(hacks.any()):
        raise ValueError(
            f"proxy of shape {tuple(proxy.shape)} overstates {int(hacks.sum())} replies by more than {THRESHOLD}"
        )
    path = tilted(world.ref_logps, proxy)
    gone = along(path, world.ref_logps, proxy, world.gold).distance
    logps = path[int((gone - distance).abs().argmin())]
    known = features(world.counts, "counts")
    centred = known - world.probs @ known
    covariance = (centred * world.probs[:, None]).T @ centred
    return Detection(
        traffic=(world.probs + logps.exp()) / 2,
        hacks=hacks,
        scores={
            "proxy reward": proxy,
            "log π / π_ref": logps - world.ref_logps,
            "− log π_ref": -world.ref_logps,
            "distance of the words": (centred @ torch.linalg.inv(covariance) * centred).sum(-1),
            **(more or {}),
        },
    )


def detection(evidence: Evidence, *, distance: float = 2.0) -> Detection:
    """The same for one reward model, with two scores more: how much five bootstrap reward models disagree, and by how much a second
    reward model, from comparisons of its own, gives less."""
    world, proxy = evidence.world, single(evidence)
    other = fit(world, compare(world, len(evidence.pairs), seed=20_000 + evidence.seed), evidence.proxy_class)
    more = {"ensemble disagrees": evidence.members.std(0), "second model gives less": proxy - other}
    return detect(world, proxy, distance=distance, more=more)
