"""AI feedback: a pair judged in both orders.

The log-odds with which a judge prefers the completion in the first position are in nats.
"""

from __future__ import annotations

from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.validate import takes

# -- verdicts of a judge -----------------------------------------------------------------------------------------


@takes(given="...", exchanged="...")
@equation(
    "eq:both-orders",
    "eq:place-bias",
    source='the swap of Wang et al. (2023), "Large language models are not fair evaluators", in log-odds; derived '
    "in the text.",
)
def split_position_bias(given: Tensor, exchanged: Tensor) -> tuple[Tensor, Tensor]:
    """Reward difference (ℓ₁ − ℓ₂)/2 and position bias (ℓ₁ + ℓ₂)/2 from a pair judged in both orders, both ``(...)``.

    The split is exact if the log-odds are a difference of rewards plus a bias for the first position, for any bias.

    Args:
        given: ℓ₁, log-odds of the first completion, with the first completion in the first position.
        exchanged: ℓ₂, log-odds of the *second* completion, which is now in the first position.
    """
    return (given - exchanged) / 2, (given + exchanged) / 2
