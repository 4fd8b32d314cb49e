"""A detector for reward hacks: which number, known without gold reward, separates hacked completions from honest
ones?

A completion is a *hack* if the proxy overstates it by more than a threshold, in units of gold. Half of the completions
come from the reference and half from the optimised policy. The area under the ROC curve is an exact sum over all
completions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.data.seven_words import Outcomes
from minirlhf.equations.overoptimization import roc_auc
from minirlhf.feedback.proxies import compare, features, fit
from minirlhf_course.chapters.ch20_overoptimization.curves import along, tilted
from minirlhf_course.chapters.ch20_overoptimization.remedies import Evidence, single

THRESHOLD = 1.0


@dataclass(frozen=True)
class Detection:
    """The completions, which of them are hacks, and the scores of the detectors.

    Attributes:
        traffic: ``(N,)`` probability of each completion, half reference and half policy.
        hacks: ``(N,)`` bool.
        scores: name -> ``(N,)``; a higher score is more suspicious.
    """

    traffic: Tensor
    hacks: Tensor
    scores: dict[str, Tensor]

    def auc(self, name: str) -> float:
        """Return the probability that a hack scores higher than an honest completion."""
        return float(roc_auc(self.scores[name], self.traffic * self.hacks, self.traffic * ~self.hacks))

    def curve(self, name: str) -> tuple[Tensor, Tensor]:
        """Return the false-positive rate (honest completions) and the true-positive rate (hacks) for every threshold
        from high to low; both ``(K + 1,)``."""
        levels, group = torch.unique(self.scores[name], return_inverse=True)
        rates = []
        for members in (~self.hacks, self.hacks):
            mass = torch.zeros(len(levels), dtype=torch.float64).index_add(0, group, self.traffic * members)
            rates.append(torch.nn.functional.pad(mass.flip(0).cumsum(0) / mass.sum(), (1, 0)))
        return rates[0], rates[1]


def detect(
    world: Outcomes, proxy: Tensor, *, distance: float = 2.0, more: Mapping[str, Tensor] | None = None
) -> Detection:
    """Optimise a proxy to √KL = ``distance`` and score the resulting completions with each detector.

    The scores: the proxy itself; how much more probable the policy has made a completion; how improbable it is under
    the reference; how unusual its words are (Mahalanobis distance of the counts).

    Args:
        proxy: ``(N,)``, in units of gold.
        more: further scores, ``(N,)`` each, by name.

    Raises:
        ValueError: no completion is a hack, or all are.
    """
    hacks = proxy - world.gold > THRESHOLD
    if bool(hacks.all()) or not bool(hacks.any()):
        raise ValueError(
            f"proxy of shape {tuple(proxy.shape)} overstates {int(hacks.sum())} replies by more than {THRESHOLD}"
        )
    path = tilted(world.ref_logps, proxy)
    distances = along(path, world.ref_logps, proxy, world.gold).distance
    logps = path[int((distances - distance).abs().argmin())]
    counts = features(world.counts, "counts")
    centred = counts - world.probs @ counts
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
    """Return the detection for one reward model, with two further scores: the disagreement of five bootstrap reward
    models, and the amount by which a second reward model, from comparisons of its own, gives less."""
    world, proxy = evidence.world, single(evidence)
    second_model = fit(world, compare(world, len(evidence.pairs), seed=20_000 + evidence.seed), evidence.proxy_class)
    extra_scores = {"ensemble disagrees": evidence.members.std(0), "second model gives less": proxy - second_model}
    return detect(world, proxy, distance=distance, more=extra_scores)
