"""The loss of gold reward by cause: the error of a trained policy as a sum of three, each measured exactly, at one
KL.

    best gold at this KL  −  gold of the trained policy  =  approximation + estimation + optimisation

*Approximation*: the class of reward models cannot express gold; this is the loss of its best member, which is learned
from all possible comparisons. *Estimation*: the reward model was learned from few comparisons instead. *Optimisation*:
the policy is not the optimal one for that reward model. The last two can be negative: a worse optimiser of a wrong
reward may give the better assistant.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from minirlhf.data.seven_words import Outcomes
from minirlhf_course.chapters.ch20_overoptimization.curves import Curve, tilt_curve


@dataclass(frozen=True)
class Errors:
    """Gold reward lost at a distance, by cause."""

    approximation: float
    estimation: float
    optimisation: float

    @property
    def total(self) -> float:
        """The sum of the three errors."""
        return self.approximation + self.estimation + self.optimisation


def decompose(world: Outcomes, best_in_class: Tensor, learned: Tensor, trained: Curve, *, distance: float) -> Errors:
    """Return the three errors at √KL = ``distance``.

    Args:
        best_in_class: ``(N,)``, the proxy that the class learns from all possible comparisons.
        learned: ``(N,)``, the proxy that was learned from the comparisons at hand.
        trained: the path of the policy that was trained on ``learned``.
    """

    def gold_of(proxy: Tensor) -> float:
        return tilt_curve(world.ref_logps, proxy, world.gold).gold_at(distance)

    optimal, best, actual = gold_of(world.gold), gold_of(best_in_class), gold_of(learned)
    return Errors(optimal - best, best - actual, actual - trained.gold_at(distance))
