"""A world of the challenge: the seven-word task with a gold reward and a flawed proxy that are drawn from a seed.

A completion is one of the 791 bags of one to five of seven words (:func:`minirlhf.data.seven_words.bags`), so every
expectation is a sum. In each world the gold reward of a bag with counts ``c`` is

    gold = Σ_w (first_w·min(c_w, 1) − repeat_w·(c_w − 1)₊ − 0.15·c_w) + Σ_{v<w} pair_vw·[v and w occur],

with first_w in [−0.3, 1.2], repeat_w in [0.5, 1.5] and pair_vw in [−0.4, 0.4], all uniform.

The proxy is linear in the counts and fitted to 200 comparisons of completions of the reference, which seldom repeat a
word. So it rates a word that is welcome once as welcome five times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError, format_value
from minirlhf.core.randomness import derive_seed, generator
from minirlhf.data.seven_words import bags
from minirlhf.equations.overoptimization import tilt
from minirlhf.feedback.proxies import compare, fit

KL_LIMIT = 2.0  # nats
LABELS = 64
LABEL_NOISE = 1.0  # standard deviation of a label around the gold reward
COMPARISONS = 200
#: All tables and policies are rounded to multiples of this, so that the last digits of a processor decide nothing.
GRAIN = 2.0**-20


def rounded(values: Tensor) -> Tensor:
    """Return the values rounded to multiples of :data:`GRAIN`, in float64; same shape."""
    return (values.double() / GRAIN).round() * GRAIN


@dataclass(frozen=True)
class Position:
    """Where a policy is: its expected gold reward, and its KL divergence from the reference in nats."""

    gold: float
    kl: float


@dataclass(frozen=True)
class ChallengeWorld:
    """One world. All tables are ``(N,)``, for the ``N`` = 791 completions.

    Attributes:
        ref_logps: log-probabilities under the reference policy.
        counts: ``(N, 7)``, how often each word occurs.
        proxy: proxy rewards.
        gold: gold rewards, which no submission receives.
        key: the seed of the labels' noise.
    """

    ref_logps: Tensor
    counts: Tensor
    proxy: Tensor
    gold: Tensor
    key: int

    def labeller(self) -> Labeller:
        """Return a labeller with the whole budget."""
        return Labeller(self.gold, self.key)

    def position(self, logits: Tensor) -> Position:
        """Return the exact position of the policy softmax(``logits (N,)``), by sums that depend on no library."""
        values, ref = logits.tolist(), self.ref_logps.tolist()
        logps, ref_logps = _log_softmax(values), _log_softmax(ref)
        probs = [math.exp(x) for x in logps]
        gold = math.fsum(p * r for p, r in zip(probs, self.gold.tolist(), strict=True))
        kl = math.fsum(p * (x - y) for p, x, y in zip(probs, logps, ref_logps, strict=True))
        return Position(gold, max(kl, 0.0))

    def best(self) -> Position:
        """Return the position of the policy with most gold reward within the KL limit: a tilt of the reference."""
        low, high = 0.0, 1000.0
        for _ in range(60):
            middle = (low + high) / 2
            inside = self.position(tilt(self.ref_logps, self.gold, strength=middle)).kl <= KL_LIMIT
            low, high = (middle, high) if inside else (low, middle)
        return self.position(tilt(self.ref_logps, self.gold, strength=low))

    def score(self, gold: float) -> float:
        """Return the share of the attainable gain: 0 at the reference, 1 at :meth:`best`; negative below the reference."""
        start = self.position(self.ref_logps).gold
        return (gold - start) / (self.best().gold - start)


def _log_softmax(values: list[float]) -> list[float]:
    top = max(values)
    total = top + math.log(math.fsum(math.exp(x - top) for x in values))
    return [x - total for x in values]


def draw_world(seed: int, number: int) -> ChallengeWorld:
    """Return world ``number`` of a seed."""
    base = bags()
    words = base.counts.shape[1]
    u = torch.rand(2 + words, words, dtype=torch.float64, generator=generator("challenge gold", seed, number))
    once = base.counts.clamp(max=1)  # (N, 7)
    gold = (once * (1.5 * u[0] - 0.3) - (base.counts - once) * (0.5 + u[1]) - 0.15 * base.counts).sum(-1)
    gold = gold + torch.einsum("nv,vw,nw->n", once, (0.8 * u[2:] - 0.4).triu(1), once)
    world = replace(base, gold=rounded(gold))
    pairs = compare(world, COMPARISONS, seed=derive_seed("challenge comparisons", seed, number))
    return ChallengeWorld(
        ref_logps=rounded(base.ref_logps),
        counts=base.counts,
        proxy=rounded(fit(world, pairs, "counts")),
        gold=world.gold,
        key=derive_seed("challenge labels", seed, number),
    )


class Labeller:
    """The handle through which a submission buys labels; it counts them, outside the sandbox.

    Attributes:
        used: number of labels given so far.
    """

    def __init__(self, gold: Tensor, key: int) -> None:
        noise = LABEL_NOISE * torch.randn(LABELS, dtype=torch.float64, generator=generator("labels", key))
        self._gold, self._noise, self.used = gold.tolist(), rounded(noise).tolist(), 0

    def __call__(self, completions: Any) -> list[float]:
        """Return one label per completion: its gold reward plus Gaussian noise, fresh for each label.

        Args:
            completions: a list or a tensor of indices from 0 to N − 1; the same index may occur again.

        Raises:
            ArgumentError: these are no such indices, or more than the labels that are left. None is then used.
        """
        wanted = completions.tolist() if isinstance(completions, Tensor) else completions
        size = len(self._gold)
        if not isinstance(wanted, list) or not all(type(i) is int and 0 <= i < size for i in wanted):
            raise ArgumentError(
                f"label({format_value(wanted)}): expected a list of integers from 0 to {size - 1}",
                argument="completions",
                expected=f"[0, {size - 1}]",
            )
        left = LABELS - self.used
        if len(wanted) > left:
            raise ArgumentError(
                f"{len(wanted)} labels asked for, {left} of {LABELS} left",
                argument="completions",
                value=len(wanted),
                expected=left,
                problem="budget",
            )
        start, self.used = self.used, self.used + len(wanted)
        return [self._gold[i] + self._noise[start + n] for n, i in enumerate(wanted)]
