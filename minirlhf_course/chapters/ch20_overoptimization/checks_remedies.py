"""The ledger of chapter 20: constraints, decoupled approval, detectors."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.equations import overoptimization as over
from minirlhf_course.chapters.ch20_overoptimization import equations
from minirlhf_course.ledger.registry import Comparison, Draw, check

# -- constraints -------------------------------------------------------------------------------------------------


def _unpriced(ref_logps: Tensor, rewards: Tensor, costs: Tensor, limits: Tensor, *, strength: float) -> Tensor:
    return torch.zeros_like(limits)


@check(
    "eq:constrained-tilt",
    "value",
    "With one active constraint on three outcomes, the tilt with this multiplier is the best distribution on the "
    "line E[cost] = limit.",
    of=equations.constraint_multipliers,
    against="a search along the line of distributions that satisfy the constraint",
    tolerance=1e-6,
    wrong={
        "limit ignored": _unpriced,
        "price in units of the strength": lambda ref_logps, rewards, costs, limits, *, strength: (
            strength * equations.constraint_multipliers(ref_logps, rewards, costs, limits, strength=strength)
        ),
        "limit halfway to the smallest cost": lambda ref_logps, rewards, costs, limits, *, strength: (
            equations.constraint_multipliers(
                ref_logps, rewards, costs, (limits + costs.amin(-1)) / 2, strength=strength
            )
        ),
    },
)
def _(multipliers, draw: Draw) -> Comparison:
    ref, rewards = draw.distribution(3), draw.uniform(3, low=-1.0, high=1.0)
    costs = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64) + draw.uniform(3, high=0.2)
    rewards = rewards + 2 * costs  # what costs most is wanted most, so the limit binds
    strength = float(draw.uniform(low=1.5, high=2.5))
    limit = 0.5 * (costs[0] + ref @ costs)
    # p = start + t · along keeps the sum and the cost; t ranges as far as all entries stay positive.
    share = (limit - costs[0]) / (costs[2] - costs[0])
    start = torch.stack([1 - share, torch.zeros_like(share), share])
    along = torch.stack([costs[1] - costs[2], costs[2] - costs[0], costs[0] - costs[1]])  # orthogonal to 1 and to costs
    reach = float((start / -along)[along < 0].min())
    slope = lambda t: along @ (rewards - ((start + t * along) / ref).log() / strength)
    low, high = 0.0, reach
    for _ in range(80):  # the slope falls from +∞ to −∞
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    prices = multipliers(ref.log(), rewards, costs[None], limit[None], strength=strength)
    return over.tilt(ref.log(), rewards - prices @ costs[None], strength=strength).exp(), start + low * along


@check(
    "eq:constrained-tilt",
    "slackness",
    "Of two constraints one is active and one is not.",
    of=equations.constraint_multipliers,
    against="the definition: no constraint is violated, and an inactive one has multiplier 0",
    tolerance=1e-6,
    wrong={
        "equality whatever the sign": lambda ref_logps, rewards, costs, limits, *, strength: (
            equations.constraint_multipliers(ref_logps, rewards, costs, limits, strength=strength) + 0.1
        ),
        "limit ignored": _unpriced,
    },
)
def _(multipliers, draw: Draw) -> Iterator[Comparison]:
    ref, costs = draw.distribution(4), torch.eye(4, dtype=torch.float64)[:2]
    rewards = torch.tensor([3.0, 0.0, 0.0, 0.0], dtype=torch.float64) + draw.uniform(4, high=0.5)
    limits = torch.stack([ref[0], torch.ones((), dtype=torch.float64)])  # the favourite may not gain; the other is free
    prices = multipliers(ref.log(), rewards, costs, limits, strength=1.0)
    probs = over.tilt(ref.log(), rewards - prices @ costs, strength=1.0).exp()
    yield (probs @ costs.T)[0], limits[0]
    yield prices[1], 0.0


# -- tampering ---------------------------------------------------------------------------------------------------


def _world(draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Logits ``(4,)``, approval ``(4,)`` and what each action adds to whatever is graded after it ``(4,)``."""
    return draw.normal(4), draw.normal(4), draw.permutation(4).double() + draw.uniform(4, high=0.5)


def _gradient(surrogate, logits: Tensor, feedback: Tensor) -> Tensor:
    logits = logits.clone().requires_grad_()
    return exact.gradient(surrogate(logits.log_softmax(-1), feedback), logits)


@check(
    "eq:coupled-approval",
    "gradient",
    "The ordinary policy gradient increases the grade after tampering.",
    of=over.coupled_approval,
    against="finite differences of Σ π(a) F(a, a)",
    tolerance=1e-7,
    wrong={
        "mean grade in place of its own": lambda logps, feedback: over.decoupled_approval(logps, feedback),
        "π(a) missing": lambda logps, feedback: (feedback.diagonal() * logps).sum(),
        "π(a) twice": lambda logps, feedback: (logps.detach().exp() * logps.exp() * feedback.diagonal()).sum(),
    },
)
def _(surrogate, draw: Draw) -> Comparison:
    logits, approval, added = _world(draw)
    feedback = approval[None, :] + added[:, None]  # [carried out, graded]
    received = lambda x: exact.expectation(x.exp() / x.exp().sum(), approval + added)
    return _gradient(surrogate, logits, feedback), exact.finite_difference(received, logits)


_NOT_DECOUPLED = {
    "grade of the action carried out": over.coupled_approval,
    "rows and columns exchanged": lambda logps, feedback: over.decoupled_approval(logps, feedback.T),
    "gradient to the action carried out as well": lambda logps, feedback: logps.exp() @ feedback @ logps.exp(),
}


@check(
    "eq:decoupled-approval",
    "gradient",
    "If actions add to all grades equally, decoupled approval has the gradient of the true approval, as without "
    "tampering.",
    of=over.decoupled_approval,
    against="finite differences of the approval without tampering",
    tolerance=1e-7,
    wrong=_NOT_DECOUPLED,
)
def _(surrogate, draw: Draw) -> Comparison:
    logits, approval, added = _world(draw)
    feedback = approval[None, :] + added[:, None]
    truth = lambda x: exact.expectation(x.exp() / x.exp().sum(), approval)
    return _gradient(surrogate, logits, feedback), exact.finite_difference(truth, logits)


@check(
    "eq:decoupled-approval",
    "any feedback",
    "Whatever actions do to grades, the gradient is that of the querying policy only.",
    of=over.decoupled_approval,
    against="finite differences in the querying policy only, with the acting one fixed",
    tolerance=1e-7,
    wrong=_NOT_DECOUPLED,
)
def _(surrogate, draw: Draw) -> Comparison:
    logits, feedback = draw.normal(4), draw.normal(4, 4) + 2 * torch.triu(torch.ones(4, 4, dtype=torch.float64))
    acting = logits.exp() / logits.exp().sum()
    asked = lambda x: exact.expectation(x.exp() / x.exp().sum(), acting @ feedback)
    return _gradient(surrogate, logits, feedback), exact.finite_difference(asked, logits)


# -- detectors ---------------------------------------------------------------------------------------------------


@check(
    "eq:roc-auc",
    "value",
    "The probability that a positive outcome scores higher than a negative one; ties count one half.",
    of=over.roc_auc,
    against="all pairs of a positive and a negative outcome",
    wrong={
        "ties won": lambda scores, positives, negatives: over.roc_auc(
            scores + 1e-6 * (positives > 0), positives, negatives
        ),
        "classes exchanged": lambda scores, positives, negatives: over.roc_auc(scores, negatives, positives),
        "masses ignored": lambda scores, positives, negatives: over.roc_auc(
            scores, (positives > 0).double(), (negatives > 0).double()
        ),
    },
)
def _(roc_auc, draw: Draw) -> Comparison:
    order = draw.permutation(5)
    scores = torch.tensor([0.0, 1.0, 1.0, 2.0, 3.0], dtype=torch.float64)[order]
    positives = torch.tensor([0.1, 0.0, 1.0, 1.0, 1.0], dtype=torch.float64) * draw.uniform(5, low=0.8, high=1.2)
    negatives = torch.tensor([2.0, 1.0, 0.0, 0.5, 0.2], dtype=torch.float64) * draw.uniform(5, low=0.8, high=1.2)
    positives, negatives = positives[order], negatives[order]
    total = 0.0
    for i in range(5):
        for j in range(5):
            won = 1.0 if scores[i] > scores[j] else 0.5 if scores[i] == scores[j] else 0.0
            total += float(positives[i] * negatives[j]) * won
    return roc_auc(scores, positives, negatives), total / float(positives.sum() * negatives.sum())
