"""Weak supervisors and strong students: what the student can recover, in formulas and in two small worlds.

*Performance gap recovered* is (student − weak) / (ceiling − weak): 0 if the student is as accurate as its supervisor,
1 if it is as accurate as a student with true labels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.validate import NOT_NEGATIVE, POSITIVE, number, takes

DIMENSIONS = 20


@takes(inside=NOT_NEGATIVE, outside=NOT_NEGATIVE)
@equation("eq:weak-to-strong", source="Own derivation, for a linear rule and Gaussian features.")
def linear_accuracies(*, inside: float, outside: float) -> tuple[float, float]:
    """The accuracies of a weak supervisor and of its student, with unlimited labels: (weak, student).

    The true label is the sign of a standard normal variable u, the weak label the sign of u plus an error. The part of
    the error that is linear in the student's features has variance ``inside``, the rest ``outside``.
    """
    accuracy = lambda variance: 1 - math.atan(math.sqrt(variance)) / math.pi
    return accuracy(inside + outside), accuracy(inside)


@takes(labels=POSITIVE, error=number("[0, 0.5)"))
@equation("eq:noisy-labels", source="Own derivation; the factor is that of Angluin and Laird (1988) for random noise.")
def equivalent_labels(labels: float, *, error: float) -> float:
    """The number of true labels that teach a direction as well as ``labels`` labels with independent errors.

    Args:
        labels: number of weak labels.
        error: probability that a label is wrong, whatever the input.
    """
    return labels * (1 - 2 * error) ** 2


# -- two worlds ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WeakLabels:
    """Inputs ``(N, d)``, true labels ``(N,)`` and weak labels ``(N,)``, both 0 or 1."""

    inputs: Tensor
    labels: Tensor
    weak: Tensor


def linear(rng: torch.Generator, size: int, *, inside: float, outside: float) -> WeakLabels:
    """Draw Gaussian inputs whose label is the sign of the first feature; the weak error depends on the second."""
    x = torch.randn(size, DIMENSIONS, generator=rng, dtype=torch.float64)
    noise = torch.randn(size, generator=rng, dtype=torch.float64)
    seen = x[:, 0] + math.sqrt(inside) * x[:, 1] + math.sqrt(outside) * noise
    return WeakLabels(x, (x[:, 0] > 0).double(), (seen > 0).double())


def clusters(rng: torch.Generator, size: int, *, gap: float, systematic: bool, error: float = 0.3) -> WeakLabels:
    """Draw two clusters at ±``gap`` on the first axis (standard deviation ½ there, 1 on the other axes).

    A systematic supervisor is misled by the second axis, which the student sees. The other one errs at random.
    """
    labels = torch.rand(size, generator=rng, dtype=torch.float64) < 0.5
    x = torch.randn(size, DIMENSIONS, generator=rng, dtype=torch.float64)
    side = torch.where(labels, 1.0, -1.0).double()
    x[:, 0] = x[:, 0] / 2 + gap * side
    flips = torch.rand(size, generator=rng, dtype=torch.float64) < error
    weak = side + 1.5 * x[:, 1] > 0 if systematic else labels ^ flips
    return WeakLabels(x, labels.double(), weak.double())


def accuracy(weights: Tensor, data: WeakLabels) -> float:
    """Return the fraction of the inputs on whose true label a linear rule agrees."""
    return float(((data.inputs @ weights > 0).double() == data.labels).double().mean())


def fit(
    inputs: Tensor, targets: Tensor, *, steps: int, alpha: float = 0.0, ramp: int = 128, decay: float = 1e-4
) -> Tensor:
    """Return the weights of a logistic regression after gradient descent from zero, ``(d,)``.

    Args:
        steps: number of steps; the step size is the reciprocal of the largest curvature of the loss.
        alpha: weight of the auxiliary confidence loss: this part of the target is the student's own answer, rounded to
            0 or 1.
        ramp: number of steps in which this weight grows from 0 to ``alpha``. It does not depend on ``steps``, so a
            shorter run is the beginning of a longer one.
        decay: weight decay.
    """
    size = 4 / float(torch.linalg.eigvalsh(inputs.T @ inputs / len(inputs))[-1])
    weights = torch.zeros(inputs.shape[1], dtype=inputs.dtype)
    for step in range(steps):
        logits = inputs @ weights
        own = alpha * min(1.0, step / ramp)
        target = (1 - own) * targets + own * (logits > 0).to(targets.dtype)
        weights = weights - size * (inputs.T @ (logits.sigmoid() - target) / len(inputs) + decay * weights)
    return weights
