"""The ledger of chapter 01, second part: what a push on logits does to probabilities."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf_course.chapters.ch01_introduction import equations
from minirlhf_course.ledger.registry import Comparison, Draw, check


def _moved(logits: Tensor, push: Tensor, v: int, step: Tensor) -> Tensor:
    """The probability of ``v`` after a ``step`` (1,) along the push."""
    weights = (logits + step[0] * push).exp()
    return (weights / weights.sum())[v]


@check(
    "eq:probability-change",
    "value",
    "If the logits move by η g, each probability changes by η times its derivative along g; the changes sum to zero.",
    of=equations.probability_change,
    against="finite differences of the probabilities along g",
    wrong={
        "the push on the logits is read as the change": lambda z, g, *, learning_rate: learning_rate * g,
        "the average push is not taken off": lambda z, g, *, learning_rate: learning_rate * z.softmax(-1) * g,
        "what one gains, all others lose alike": lambda z, g, *, learning_rate: (
            learning_rate * z.softmax(-1) * (g - g.mean(-1, keepdim=True))
        ),
        "the step is forgotten": lambda z, g, *, learning_rate: equations.probability_change(z, g, learning_rate=1.0),
    },
    tolerance=1e-8,
)
def _(change, draw: Draw) -> Iterator[Comparison]:
    for learning_rate in (0.1, 2.5):
        logits, push = draw.normal(4), draw.permutation(4) * 1.0 + draw.uniform(4, low=0.1, high=0.5)
        slopes = [exact.finite_difference(partial(_moved, logits, push, v), torch.zeros(1).double()) for v in range(4)]
        got = change(logits, push, learning_rate=learning_rate)
        yield got, learning_rate * torch.cat(slopes)
        yield got.sum(), 0.0


@check(
    "eq:probability-change",
    "who-gains",
    "Imitating a rare reply raises the probability of other rare replies, also of wrong ones, and lowers that of "
    "frequent ones.",
    of=equations.probability_change,
    against=(
        "the threshold Σ π² − π(y): of the replies that were not demonstrated, those below it gain probability "
        "and those above it lose it"
    ),
    wrong={
        "every other reply loses": lambda z, g, *, learning_rate: learning_rate * (1 - 2 * (g < 0)) * z.softmax(-1),
        "the push on the logits is read as the change": lambda z, g, *, learning_rate: learning_rate * g,
    },
)
def _(change, draw: Draw) -> Iterator[Comparison]:
    gaps = 1.5 + draw.uniform(5, low=0.0, high=0.5)
    logits = -gaps.cumsum(0)  # each reply less than a quarter as probable as the one before it
    probs, y = logits.softmax(-1), draw.integer(2, 4)
    others = torch.arange(5) != y
    threshold = (probs * probs).sum() - probs[y]
    got = change(logits, equations.imitation_logit_gradient(logits, torch.tensor(y)), learning_rate=0.3)
    yield got[others] / probs[others], 0.3 * (threshold - probs[others])
