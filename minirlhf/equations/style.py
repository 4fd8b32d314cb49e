"""Win rates at equal length.

"Dubois et al. (2024)" is Dubois, Galambosi, Liang and Hashimoto, "Length-controlled AlpacaEval: a simple way to debias
automatic evaluators".
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import FINITE, finite, shape, takes

# -- win rates at equal length -----------------------------------------------------------------------------------


@takes(ours="N", theirs=shape("N"))
@equation("eq:length-term", source="Dubois et al. (2024), section 3; the divisor is that of the code released with it.")
def length_term(ours: Tensor, theirs: Tensor) -> Tensor:
    """Differences of length as a feature of the regression: tanh((n − n')/std(n − n')), ``(N,)``; divisor N − 1.

    The differences are scaled, not centred: 0 means two completions of equal length.
    """
    difference = ours - theirs
    if len(difference) < 2 or not float(difference.std()) > 0:
        raise ArgumentError(
            f"ours has shape {tuple(ours.shape)}: all length differences are equal; expected differences that vary",
            argument="ours",
            problem="all equal",
        )
    return torch.tanh(difference / difference.std())


@takes(term=finite("...", "[-1, 1]"), difficulty=shape("..."), skill=FINITE, liking=FINITE, sensitivity=FINITE)
@equation("eq:length-controlled-logit", source="Dubois et al. (2024), section 3.")
def length_controlled_probability(
    term: Tensor, difficulty: Tensor, *, skill: float, liking: float, sensitivity: float
) -> Tensor:
    """Probability that a judge prefers the candidate in the length-controlled regression: σ(θ + φ t + ψ γ), ``(...)``.

    Args:
        term: t, see :func:`length_term`.
        difficulty: γ, of the instruction; estimated beforehand from many models, 0 if unknown.
        skill: θ, of the candidate minus the baseline.
        liking: φ, the length bias.
        sensitivity: ψ, to difficulty, of the candidate minus the baseline.
    """
    return torch.sigmoid(skill + liking * term + sensitivity * difficulty)


@takes(difficulty="N", skill=FINITE, sensitivity=FINITE)
@equation("eq:length-controlled-win-rate", source="Dubois et al. (2024), section 3.")
def length_controlled_win_rate(difficulty: Tensor, *, skill: float, sensitivity: float) -> Tensor:
    """Prediction of the regression for pairs of equal length: the mean over instructions of σ(θ + ψ γ). Scalar.

    It is ½ for a model against itself. Swapping candidate and baseline turns W into 1 − W.

    Args:
        difficulty, skill, sensitivity: see :func:`length_controlled_probability`.
    """
    return torch.sigmoid(skill + sensitivity * difficulty).mean()
