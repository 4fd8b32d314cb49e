"""What labels are drawn by, besides quality: traits of replies, and a battery of tests on pairs.

A trait is suspected *alone*: in how many of the pairs that differ in it has the chosen reply more of it? That is a fact about the
data and no verdict, for good replies may well be longer. And *beside* other things: a Bradley–Terry model whose reward is linear in the
traits, and in what one calls quality if one can measure it. A bias exists only relative to that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError
from minirlhf.core.statistics import holm, sign_test
from minirlhf.data.records import Comparison, Reply
from minirlhf.equations.comparisons import smallest_effect
from minirlhf.equations.reward_losses import bradley_terry_loss

Trait = Callable[[str], float]


def _present(pattern: str) -> Trait:
    found = re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    return lambda reply: float(found.search(reply) is not None)


_MARKUP = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s|^#{1,6}\s|\*\*[^*\n]+\*\*|^```", re.MULTILINE)

#: What is looked for in a reply, as a number: length and markup per doubling, the others 1 where they are there.
TRAITS: Mapping[str, Trait] = MappingProxyType(
    {
        "length": lambda reply: math.log2(1 + len(reply.split())),
        "markup": lambda reply: math.log2(1 + len(_MARKUP.findall(reply))),
        "warm opening": _present(
            r"\A\W*(sure|certainly|of course|absolutely|great|good|excellent|wonderful|what an?|thanks?|gladly|happy to|"
            r"hello|hi)\b"
        ),
        "agreement": _present(
            r"\byou(?:'re| are) (?:absolutely |quite |so )?right\b|\bi (?:completely |totally )?agree\b|\bgood point\b"
        ),
        "apology": _present(r"\b(?:sorry|apologi[sz]e|apologies)\b"),
        "refusal": _present(
            r"\bi (?:can't|cannot|can not|won't|will not|am not able|am unable)\b|\bi'm (?:not able|unable|not comfortable)\b|"
            r"\bas an ai\b"
        ),
        "hedging": _present(r"\b(?:maybe|perhaps|might|probably|i think|i'm not sure|it depends)\b"),
        "question back": _present(r"\?\W*\Z"),
    }
)


def style_attributes(reply: str) -> Tensor:
    """``(S,)``: every one of :data:`TRAITS` of a reply."""
    plain = reply.replace("’", "'")
    return torch.tensor([trait(plain) for trait in TRAITS.values()], dtype=torch.float64)


def differences(comparisons: Sequence[Comparison]) -> Tensor:
    """``(N, S)``: traits of the chosen reply less those of the rejected one; what a user says in between does not count."""

    def said(reply: Reply) -> str:
        return "\n".join(message["content"] for message in reply if message["role"] == "assistant")

    return torch.stack([style_attributes(said(c.chosen)) - style_attributes(said(c.rejected)) for c in comparisons])


@dataclass(frozen=True)
class LinearReward:
    """A Bradley–Terry model with a linear reward.

    Attributes:
        weights: ``(F,)``, in nats per unit of each column.
        errors: ``(F,)``, their standard errors.
    """

    weights: Tensor
    errors: Tensor


def fit_pairs(
    x: Tensor, first_won: Tensor | None = None, *, prior_std: float = math.inf, max_steps: int = 60
) -> LinearReward:
    """Fit P(the first wins) = σ(w · x) by Newton's method.

    Args:
        x: ``(N, F)``, features of the first reply less those of the second. A column of ones is a liking for the first place.
        first_won: ``(N,)`` of labels in [0, 1], ½ a tie; by default the first reply is the chosen one everywhere.
        prior_std: a normal prior on each weight, in units of the column's root mean square; none by default.

    Raises:
        ValueError: without a prior, if a column is 0 throughout or follows from the others, or if the columns decide every
            pair, so that no finite weights are best.
    """
    scale = x.square().mean(0).sqrt()
    if bool((scale == 0).any()):
        raise ArgumentError(
            f"x of shape {tuple(x.shape)}: column {int((scale == 0).nonzero()[0])} is 0 in every pair",
            argument="x",
            value=int((scale == 0).nonzero()[0]),
            problem="zero column",
        )
    z = x / scale
    won = torch.ones(len(x), dtype=x.dtype) if first_won is None else first_won.to(x.dtype)
    precision = torch.eye(x.shape[1], dtype=x.dtype) / prior_std**2

    def loss(w: Tensor) -> Tensor:
        rewards, nothing = z @ w, torch.zeros(len(z), dtype=x.dtype)
        lost = won * bradley_terry_loss(rewards, nothing) + (1 - won) * bradley_terry_loss(nothing, rewards)
        return lost.sum() + w @ precision @ w / 2

    w = torch.zeros(x.shape[1], dtype=x.dtype)
    information = z.T @ z / 4 + precision
    if float(torch.linalg.cond(information)) > 1e12:
        raise ArgumentError(
            f"x of shape {tuple(x.shape)}: one column follows from the others",
            argument="x",
            problem="dependent columns",
        )
    for _ in range(max_steps):
        p = torch.sigmoid(z @ w)
        information = (z * (p * (1 - p)).unsqueeze(-1)).T @ z + precision
        step = torch.linalg.solve(information, z.T @ (won - p) - precision @ w)
        shrink, now = 1.0, loss(w)
        while float(loss(w + shrink * step)) > float(now) + 1e-12 and shrink > 1e-6:
            shrink /= 2
        w = w + shrink * step
        if float(w.abs().max()) > 30:
            raise ArgumentError(
                f"x of shape {tuple(x.shape)}: the columns decide every pair; there are no best finite weights",
                argument="x",
                problem="separable",
            )
        if float(step.abs().max()) < 1e-9:
            break
    return LinearReward(w / scale, torch.linalg.inv(information).diagonal().sqrt() / scale)


@dataclass(frozen=True)
class BiasFinding:
    """What the pairs say about one trait.

    Attributes:
        trait: its name.
        differ: the pairs whose replies differ in it.
        share: in how many of them the chosen one has more; NaN if none differ.
        alone: p-value of the sign test of that share, corrected for the traits that were looked at (Holm).
        weight, error: of the trait beside all others, in nats per unit; NaN if too few pairs differ.
        beside: p-value that the weight is not 0, corrected likewise.
        smallest: the weight that would have been found in four of five such data sets after the correction's first step, a test at .05 over the
            number of traits.
    """

    trait: str
    differ: int
    share: float
    alone: float
    weight: float
    error: float
    beside: float
    smallest: float


#: A trait that differs in fewer pairs is left out of the joint fit.
FEWEST = 10


def run_bias_tests(
    x: Tensor, names: Sequence[str], first_won: Tensor | None = None, *, quality: Tensor | None = None
) -> list[BiasFinding]:
    """Test every trait, alone and beside the others.

    Args:
        x: ``(N, S)``, traits of the first reply less those of the second. A column of ones is the first place.
        names: of the columns.
        first_won: see :func:`fit_pairs`; a tie counts for neither side.
        quality: ``(N, Q)``, differences in what makes a reply good, if that is known; it stands beside the traits.

    Raises:
        ValueError: as :func:`fit_pairs`.
    """
    won = torch.ones(len(x), dtype=x.dtype) if first_won is None else first_won.to(x.dtype)
    towards = x * (2 * won - 1).unsqueeze(-1)  # > 0 where the winner has more
    more, less = (towards > 0).sum(0).tolist(), (towards < 0).sum(0).tolist()
    kept = [j for j in range(x.shape[1]) if more[j] + less[j] >= FEWEST]
    nan = [math.nan] * x.shape[1]
    weights, errors, chances = list(nan), list(nan), list(nan)
    if kept:
        fit = fit_pairs(torch.cat([x[:, kept], *([] if quality is None else [quality])], -1), won)
        z = (fit.weights / fit.errors)[: len(kept)]
        for j, weight, error, p in zip(
            kept,
            fit.weights.tolist(),
            fit.errors.tolist(),
            torch.special.erfc(z.abs() / math.sqrt(2)).tolist(),
            strict=False,
        ):
            weights[j], errors[j], chances[j] = weight, error, p
    corrected = dict(zip(kept, holm([chances[j] for j in kept]), strict=True))
    alone = holm([sign_test(a, b) for a, b in zip(more, less, strict=True)])
    rows = []
    for j, name in enumerate(names):
        differ = more[j] + less[j]
        least = (
            float(smallest_effect(torch.tensor(errors[j] ** -2, dtype=torch.float64), alpha=0.05 / len(corrected)))
            if j in corrected
            else math.nan
        )
        share = more[j] / differ if differ else math.nan
        rows.append(
            BiasFinding(name, differ, share, alone[j], weights[j], errors[j], corrected.get(j, math.nan), least)
        )
    return rows
