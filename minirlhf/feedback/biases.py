"""Biases of labels: traits of completions that labels favour besides quality, and a battery of tests on pairs.

A trait is tested *alone*: of the pairs that differ in it, in what fraction does the chosen completion have more of it?
This is a fact about the data and no verdict, because good completions may well be longer. A trait is also tested
*beside* the others: a Bradley–Terry model has a reward that is linear in the traits, and in a measure of quality if
there is one. A bias exists only relative to that quality.
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
    regex = re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    return lambda text: float(regex.search(text) is not None)


_MARKUP = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s|^#{1,6}\s|\*\*[^*\n]+\*\*|^```", re.MULTILINE)

#: Traits of a completion, each a number: length and markup count doublings, each other trait is 1 if present, else 0.
TRAITS: Mapping[str, Trait] = MappingProxyType(
    {
        "length": lambda text: math.log2(1 + len(text.split())),
        "markup": lambda text: math.log2(1 + len(_MARKUP.findall(text))),
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
    """Return all :data:`TRAITS` of a completion, ``(S,)``."""
    plain = reply.replace("’", "'")
    return torch.tensor([trait(plain) for trait in TRAITS.values()], dtype=torch.float64)


def differences(comparisons: Sequence[Comparison]) -> Tensor:
    """Return traits of the chosen minus traits of the rejected completion, ``(N, S)``. User turns do not count."""

    def text(turns: Reply) -> str:
        return "\n".join(message["content"] for message in turns if message["role"] == "assistant")

    return torch.stack([style_attributes(text(c.chosen)) - style_attributes(text(c.rejected)) for c in comparisons])


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
        x: ``(N, F)``, features of the first completion minus those of the second. A column of ones is the position
            bias.
        first_won: ``(N,)`` labels in [0, 1], ½ for a tie; by default the first completion is always the chosen one.
        prior_std: standard deviation of a normal prior on each weight, in units of the column's root mean square; by
            default there is no prior.

    Raises:
        ValueError: a column is 0 in every pair; or, without a prior, a column depends linearly on the others, or the
            columns separate the pairs perfectly, so that no finite weights are optimal.
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
    labels = torch.ones(len(x), dtype=x.dtype) if first_won is None else first_won.to(x.dtype)
    precision = torch.eye(x.shape[1], dtype=x.dtype) / prior_std**2

    def loss(w: Tensor) -> Tensor:
        rewards, zero = z @ w, torch.zeros(len(z), dtype=x.dtype)
        losses = labels * bradley_terry_loss(rewards, zero) + (1 - labels) * bradley_terry_loss(zero, rewards)
        return losses.sum() + w @ precision @ w / 2

    w = torch.zeros(x.shape[1], dtype=x.dtype)
    information = z.T @ z / 4 + precision
    if float(torch.linalg.cond(information)) > 1e12:
        raise ArgumentError(
            f"x of shape {tuple(x.shape)}: the columns are linearly dependent",
            argument="x",
            problem="dependent columns",
        )
    for _ in range(max_steps):
        p = torch.sigmoid(z @ w)
        information = (z * (p * (1 - p)).unsqueeze(-1)).T @ z + precision
        step = torch.linalg.solve(information, z.T @ (labels - p) - precision @ w)
        shrink, current = 1.0, loss(w)
        while float(loss(w + shrink * step)) > float(current) + 1e-12 and shrink > 1e-6:
            shrink /= 2
        w = w + shrink * step
        if float(w.abs().max()) > 30:
            raise ArgumentError(
                f"x of shape {tuple(x.shape)}: the columns separate the pairs perfectly; no finite weights are optimal",
                argument="x",
                problem="separable",
            )
        if float(step.abs().max()) < 1e-9:
            break
    return LinearReward(w / scale, torch.linalg.inv(information).diagonal().sqrt() / scale)


@dataclass(frozen=True)
class BiasFinding:
    """The result of the tests of one attribute.

    Attributes:
        attribute: its name.
        differ: number of pairs whose completions differ in the attribute.
        fraction: fraction of these pairs in which the chosen completion has more of it; NaN if no pair differs.
        p_value: of the sign test of that fraction, with Holm's correction for the number of attributes.
        weight, error: coefficient of the attribute in the joint fit, and its standard error, in nats per unit; NaN if too
            few pairs differ.
        joint_p_value: of the hypothesis that the weight is 0, corrected likewise.
        smallest: the minimum detectable weight (80 % power) at the first step of the correction, a test at level .05
            divided by the number of attributes in the joint fit.
    """

    attribute: str
    differ: int
    fraction: float
    p_value: float
    weight: float
    error: float
    joint_p_value: float
    smallest: float


#: A trait that differs in fewer pairs than this is excluded from the joint fit.
FEWEST = 10


def run_bias_tests(
    x: Tensor, names: Sequence[str], first_won: Tensor | None = None, *, quality: Tensor | None = None
) -> list[BiasFinding]:
    """Test every trait, alone and beside the others.

    Args:
        x: ``(N, S)``, traits of the first completion minus those of the second. A column of ones is the position bias.
        names: the names of the columns.
        first_won: see :func:`fit_pairs`; a tie counts for neither side.
        quality: ``(N, Q)``, differences in known measures of quality; they are added to the joint fit.

    Raises:
        ValueError: as :func:`fit_pairs`.
    """
    labels = torch.ones(len(x), dtype=x.dtype) if first_won is None else first_won.to(x.dtype)
    signed = x * (2 * labels - 1).unsqueeze(-1)  # > 0 where the winner has more
    num_more, num_less = (signed > 0).sum(0).tolist(), (signed < 0).sum(0).tolist()
    tested = [j for j in range(x.shape[1]) if num_more[j] + num_less[j] >= FEWEST]
    nan = [math.nan] * x.shape[1]
    weights, errors, p_values = list(nan), list(nan), list(nan)
    if tested:
        fit = fit_pairs(torch.cat([x[:, tested], *([] if quality is None else [quality])], -1), labels)
        z = (fit.weights / fit.errors)[: len(tested)]
        for j, weight, error, p in zip(
            tested,
            fit.weights.tolist(),
            fit.errors.tolist(),
            torch.special.erfc(z.abs() / math.sqrt(2)).tolist(),
            strict=False,
        ):
            weights[j], errors[j], p_values[j] = weight, error, p
    corrected = dict(zip(tested, holm([p_values[j] for j in tested]), strict=True))
    alone = holm([sign_test(a, b) for a, b in zip(num_more, num_less, strict=True)])
    findings = []
    for j, name in enumerate(names):
        differ = num_more[j] + num_less[j]
        min_effect = (
            float(smallest_effect(torch.tensor(errors[j] ** -2, dtype=torch.float64), alpha=0.05 / len(corrected)))
            if j in corrected
            else math.nan
        )
        share = num_more[j] / differ if differ else math.nan
        findings.append(
            BiasFinding(name, differ, share, alone[j], weights[j], errors[j], corrected.get(j, math.nan), min_effect)
        )
    return findings
