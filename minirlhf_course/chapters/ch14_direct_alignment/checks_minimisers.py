"""Chapter 14, direct alignment: where further losses are smallest, on the oracle, as their papers say."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.equations import preference_losses as pl
from minirlhf.equations.preference_losses import ListLogps, PairLogps
from minirlhf_course.ledger.inputs.preferences import (
    Bandit,
    all_pairs,
    at,
    bandit,
    pairs,
    policy_gradient,
    token_pairs,
    without_reference,
)
from minirlhf_course.ledger.registry import check


def _spread(b: Bandit) -> Bandit:
    """The same with rewards that are far apart, so that no mistake goes unnoticed."""
    return b._replace(rewards=b.rewards + torch.arange(len(b.rewards), dtype=torch.float64))


def _slope(loss: Callable[[PairLogps, Tensor], Tensor], b: Bandit, weight: Callable[[Tensor], Tensor]) -> Tensor:
    """Gradient, in the logits of the optimum, of the summed loss of all pairs; both take the gap of the rewards."""

    def population(logps: Tensor) -> Tensor:
        pair, i, j = all_pairs(logps, b.ref)
        gap = b.rewards[i] - b.rewards[j]
        return (weight(gap) * loss(pair, gap)).sum()

    return policy_gradient(population, b.optimum())


def _coin(gap: Tensor) -> Tensor:
    """Bradley–Terry."""
    return 1 / (1 + (-gap).exp())


@check(
    "eq:robust-dpo",
    "minimiser",
    "With flipped Bradley–Terry labels the loss is stationary at the optimum for clean labels.",
    of=pl.robust_dpo,
    against="the RLHF optimum, found numerically; a fraction of the labels flipped",
    tolerance=1e-8,
    wrong={
        "cDPO": pl.cdpo,
        "noise ignored": lambda pair, *, beta, label_smoothing: pl.dpo(pair, beta=beta),
        "subtracted once too often": lambda pair, *, beta, label_smoothing: (
            pl.dpo(pair, beta=beta) - label_smoothing * pl.dpo(pair.swapped(), beta=beta)
        ),
    },
)
def _(robust_dpo, draw):
    b, eps = _spread(bandit(draw)), float(draw.uniform(low=0.1, high=0.3))
    flipped = lambda gap: (1 - eps) * _coin(gap) + eps * _coin(-gap)
    return _slope(lambda pair, _: robust_dpo(pair, beta=b.beta, label_smoothing=eps), b, flipped), torch.zeros(4)


@check(
    "eq:rpo",
    "minimiser",
    "With the better answer first, the loss of every pair is smallest at π ∝ π_ref exp(η r/β).",
    of=pl.rpo,
    against="the RLHF optimum of the rewards times η, found numerically",
    tolerance=1e-8,
    wrong={
        "η forgotten": lambda pair, gap, *, beta, eta: pl.rpo(pair, gap, beta=beta),
        "offset instead of target": lambda pair, gap, *, beta, eta: pl.odpo(pair, eta * gap, beta=beta),
        "reference forgotten": lambda pair, gap, *, beta, eta: pl.rpo(without_reference(pair), gap, beta=beta, eta=eta),
    },
)
def _(rpo, draw):
    b, eta = _spread(bandit(draw)), float(draw.uniform(low=1.5, high=2.5))
    target = b._replace(rewards=b.rewards / 2)
    loss = lambda pair, gap: rpo(pair, gap / eta, beta=b.beta, eta=eta)
    return _slope(loss, target, lambda gap: (gap > 0).double()), torch.zeros(4)


@check(
    "eq:exo",
    "minimiser",
    "On the list of all answers with targets softmax(r), the loss has its minimum, 0, at π ∝ π_ref exp(r/β).",
    of=pl.exo,
    against="the RLHF optimum, found numerically",
    tolerance=1e-8,
    wrong={
        "InfoNCA": pl.info_nca,
        "reference forgotten": lambda batch, targets, *, beta: pl.exo(
            replace(batch, ref_logps=torch.zeros_like(batch.logps)), targets, beta=beta
        ),
        "β forgotten": lambda batch, targets, *, beta: pl.exo(batch, targets, beta=1.0),
    },
)
def _(exo, draw):
    b = _spread(bandit(draw))
    whole = ListLogps(b.optimum()[None], b.ref.log()[None])
    return exo(whole, pl.reward_targets(b.rewards[None], temperature=1.0), beta=b.beta), torch.zeros(1)


@check(
    "eq:exo-pair",
    "minimiser",
    "Stationary, and 0, at cDPO's margin: βh = log((1 − ε)/ε). Both directions of the KL are 0 there.",
    of=pl.exo_pair,
    against="finite differences",
    tolerance=1e-8,
    wrong={
        "ε and 1 − ε swapped": lambda pair, *, beta, label_smoothing: pl.exo_pair(
            pair.swapped(), beta=beta, label_smoothing=label_smoothing
        ),
        "β forgotten": lambda pair, *, beta, label_smoothing: pl.exo_pair(
            pair, beta=1.0, label_smoothing=label_smoothing
        ),
        "DPO": lambda pair, *, beta, label_smoothing: pl.dpo(pair, beta=beta),
    },
)
def _(exo_pair, draw):
    beta, eps = float(draw.uniform(low=0.3, high=0.8)), float(draw.uniform(low=0.05, high=0.3))
    pair, best = pairs(draw), math.log((1 - eps) / eps) / beta
    low = pair.rejected_logratios
    along = lambda t: exo_pair(at(pair, chosen=low + best + t, rejected=low), beta=beta, label_smoothing=eps)
    yield along(0.0), torch.zeros(4)
    yield exact.finite_difference(lambda t: along(t).sum(), torch.zeros(4, dtype=torch.float64)), torch.zeros(4)


@check(
    "eq:cpo",
    "minimiser",
    "Without its likelihood term it is DPO with a uniform reference: stationary at π ∝ exp(r/β), whatever the "
    "initial model.",
    of=pl.cpo,
    against="the RLHF optimum of a uniform reference, found numerically",
    tolerance=1e-8,
    wrong={
        "the reference is still there": lambda pair, *, beta, nll_weight: pl.dpo(pair, beta=beta),
        "the likelihood term is still there": lambda pair, *, beta, nll_weight: pl.cpo(pair, beta=beta),
        "β forgotten": lambda pair, *, beta, nll_weight: pl.cpo(pair, beta=1.0, nll_weight=nll_weight),
    },
)
def _(cpo, draw):
    b = _spread(bandit(draw))
    uniform = b._replace(ref=torch.full((4,), 0.25, dtype=torch.float64))

    def population(logps: Tensor) -> Tensor:
        pair, i, j = all_pairs(logps, b.ref)
        return (_coin(b.rewards[i] - b.rewards[j]) * cpo(pair, beta=b.beta, nll_weight=0.0)).sum()

    return policy_gradient(population, uniform.optimum()), torch.zeros(4)


@check(
    "eq:dpo-length-normalised",
    "minimiser",
    "If the chosen answer wins with probability p, the mean log-ratios per token differ by logit(p)/β.",
    of=pl.dpo_length_normalised,
    against="finite differences along the mean log-ratio",
    tolerance=1e-8,
    wrong={
        "sums": pl.dpo,
        "one length for both": lambda pair, *, beta: pl.dpo(
            replace(pair, rejected_lengths=pair.chosen_lengths).per_token(), beta=beta
        ),
        "β forgotten": lambda pair, *, beta: pl.dpo_length_normalised(pair, beta=1.0),
    },
)
def _(dpo_length_normalised, draw):
    pair, _ = token_pairs(draw)
    beta, p = float(draw.uniform(low=0.4, high=0.8)), draw.uniform(2, low=0.7, high=0.9)
    lengths = pair.chosen_lengths.double(), pair.rejected_lengths.double()
    low = pair.rejected_logratios - 2.0  # clearly off 0, where a wrong length would not show
    mean = low / lengths[1] + (p / (1 - p)).log() / beta

    def population(t: Tensor) -> Tensor:
        moved = at(pair, chosen=lengths[0] * (mean + t), rejected=low)
        return (
            p * dpo_length_normalised(moved, beta=beta) + (1 - p) * dpo_length_normalised(moved.swapped(), beta=beta)
        ).sum()

    return exact.finite_difference(population, torch.zeros(2, dtype=torch.float64)), torch.zeros(2)
