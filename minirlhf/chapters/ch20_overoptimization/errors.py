"""Where the gold goes: the error of a trained policy as a sum of three, each measured exactly, at one KL.

    best gold at this KL  −  gold of the trained policy  =  approximation + estimation + optimisation

*Approximation*: the class of reward models cannot express gold; what its best member, learned from all comparisons there could
be, leaves on the table. *Estimation*: the reward model was learned from few comparisons instead. *Optimisation*: the
policy is not the best one for that reward model. The last two can be negative: a worse optimiser of a wrong reward may be
the better assistant.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from minirlhf.chapters.ch20_overoptimization.curves import Curve, tilt_curve
from minirlhf.data.seven_words import Outcomes


@dataclass(frozen=True)
class Errors:
    """Gold lost at a distance, by cause."""

    approximation: float
    estimation: float
    optimisation: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.approximation + self.estimation + self.optimisation


def decompose(world: Outcomes, best_in_class: Tensor, learned: Tensor, trained: Curve, *, distance: float) -> Errors:
    """The three errors at √KL = ``distance``.

    Args:
        best_in_class: ``(N,)``, the proxy that the class learns from everything.
        learned: ``(N,)``, the proxy that was learned.
        trained: the path of the policy that was trained on ``learned``.
    """

    def at(proxy: Tensor) -> float:
        return tilt_curve(world.ref_logps, proxy, world.gold).gold_at(distance)

    truth, limit, here = at(world.gold), at(best_in_class), at(learned)
    return Errors(truth - limit, limit - here, here - trained.gold_at(distance))
