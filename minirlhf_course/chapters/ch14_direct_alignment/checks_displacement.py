"""Chapter 14, direct alignment: which pairs push their chosen answer down."""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.equations import preference_losses as pl
from minirlhf_course.ledger.registry import check


def swap(ches):  # type: ignore[no-untyped-def]
    """The slip that takes the rejected answer's square."""
    return lambda w, wm, l, lm, **options: ches(l, lm, w, wm, **options)


@check(
    "eq:ches",
    "rate",
    "If the output layer is 0 and all answers repeat one token, so that all errors e − π are equal, log π(y_w) "
    "moves at the rate −(1 − 1/V) CHES.",
    of=pl.ches,
    against="finite differences along one step of DPO on an output layer",
    tolerance=1e-7,
    wrong={
        "the rejected answer's square": swap(pl.ches),
        "no square": lambda w, wm, l, lm, **options: (
            pl.ches(w, wm, l, lm, **options) - pl.ches(w, wm, torch.zeros_like(l), lm, **options)
        ),
        "means for sums": lambda w, wm, l, lm, **options: pl.ches(w, wm, l, lm, length_normalised=True),
    },
)
def _(ches, draw):
    vocabulary, size = 4, 3
    weights = torch.zeros(vocabulary, size, dtype=torch.float64)
    ones = lambda states: torch.ones(states.shape[:2], dtype=torch.bool)

    def logp(matrix: Tensor, states: Tensor) -> Tensor:
        """The answer says token 0 at each of its places."""
        return (states[0] @ matrix.mT).log_softmax(-1)[:, 0].sum()

    for _ in range(3):  # of one pair the two squares may be alike
        w, l = draw.normal(1, 3, size), draw.normal(1, 2, size)
        margin = lambda m, w=w, l=l: logp(m, w) - logp(m, l)  # the reference does not move
        direction = exact.finite_difference(margin, weights)
        start = torch.zeros((), dtype=torch.float64)
        rate = exact.finite_difference(lambda t, w=w, d=direction: logp(weights + t * d, w), start)
        yield -(1 - 1 / vocabulary) * ches(w, ones(w), l, ones(l)), rate[None]


@check(
    "eq:ches",
    "value",
    "The sum over tokens of both answers of h_w·h_l, minus the sum over pairs of tokens of the chosen answer; "
    "divided by the lengths if normalised.",
    of=pl.ches,
    against="products of states, token by token",
    wrong={
        "the rejected answer's square": swap(pl.ches),
        "no square": lambda w, wm, l, lm, **options: (
            pl.ches(w, wm, l, lm, **options) - pl.ches(w, wm, torch.zeros_like(l), lm, **options)
        ),
        "sums throughout": lambda w, wm, l, lm, **options: pl.ches(w, wm, l, lm),
    },
)
def _(ches, draw):
    w, l = draw.normal(3, 4, 2), draw.normal(3, 5, 2)
    wm, lm = draw.mask(3, 4), draw.mask(3, 5)
    hidden = w.masked_fill(~wm[..., None], torch.nan), l.masked_fill(~lm[..., None], torch.nan)
    for normalised in (False, True):
        rows = []
        for b in range(3):
            a, c = w[b][wm[b]], l[b][lm[b]]
            across, own = sum(float(x @ y) for x in a for y in c), sum(float(x @ y) for x in a for y in a)
            n, m = (len(a), len(c)) if normalised else (1, 1)
            rows.append(across / (n * m) - own / n**2)
        found = ches(hidden[0], wm, hidden[1], lm, length_normalised=normalised)
        yield found, torch.tensor(rows, dtype=torch.float64)
