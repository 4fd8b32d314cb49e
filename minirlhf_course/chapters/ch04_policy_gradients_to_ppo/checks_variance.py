"""The ledger of chapter 04: variance, baselines, importance sampling."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.equations import policy_gradient as pg
from minirlhf.equations import returns
from minirlhf_course.ledger.inputs.processes import jacobian
from minirlhf_course.ledger.registry import Comparison, Draw, check

# -- variance ------------------------------------------------------------------------------------------------------


def _bandit(draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """One decision among three: probabilities, scores of a softmax ``(A, A)``, and action values 1 apart or more."""
    theta = draw.uniform(3, low=-0.5, high=0.5)
    q = 2.0 * torch.arange(3) + draw.uniform(3)
    return theta.softmax(-1), jacobian(lambda t: t.log_softmax(-1), theta), q


@check(
    "eq:gradient-variance",
    "value",
    "E‖g‖² − ‖E g‖² is half the expected squared distance between two draws.",
    of=pg.gradient_variance,
    against="half the mean squared distance of two independent estimates",
    wrong={
        "second moment": lambda probs, g: (probs * g.square().sum(-1)).sum(),
        "variance of the length of the gradient": lambda probs, g: (
            (probs * g.square().sum(-1)).sum() - (probs * g.norm(dim=-1)).sum() ** 2
        ),
    },
)
def _(gradient_variance, draw: Draw) -> Comparison:
    probs, scores, q = _bandit(draw)
    g = scores * (q + 1.0)[:, None]
    distance = (g[:, None] - g[None, :]).square().sum(-1)
    return gradient_variance(probs, g), 0.5 * probs @ distance @ probs


@check(
    "eq:optimal-baseline",
    "value",
    "The variance is a parabola in b with its minimum at b*.",
    of=pg.optimal_baseline,
    against="vertex of the parabola through the variances at three baselines",
    wrong={
        "the value of the state": lambda probs, scores, q: (probs * q).sum(),
        "weights not normalised": lambda probs, scores, q: (probs * scores.square().sum(-1) * q).sum(),
    },
)
def _(optimal_baseline, draw: Draw) -> Comparison:
    order = draw.permutation(3)
    probs = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)[order]
    q = (torch.arange(3, dtype=torch.float64) + draw.uniform(3, high=0.5))[order]  # the likely action is the worst
    scores = torch.eye(3, dtype=torch.float64) - probs

    def variance(b: float) -> float:
        g = scores * (q - b)[:, None]
        mean = sum(p * x for p, x in zip(probs, g, strict=True))
        return float(sum(p * ((x - mean) ** 2).sum() for p, x in zip(probs, g, strict=True)))

    low, middle, high = variance(-1.0), variance(0.0), variance(1.0)
    return optimal_baseline(probs, scores, q), (low - high) / (2 * (low - 2 * middle + high))


@check(
    "eq:own-mean-shrinkage",
    "value",
    "If the baseline is a batch mean that includes the sample itself, the expected gradient is (K−1)/K times the "
    "true one.",
    of=pg.group_mean_shrinkage,
    against="the expected estimate over all ways to draw K samples",
    wrong={
        "no shrinkage: as if the mean left the own sample out": lambda k: 1.0,
        "inverse": lambda k: k / (k - 1),
    },
)
def _(group_mean_shrinkage, draw: Draw) -> Comparison:
    (probs, scores, q), k = _bandit(draw), draw.integer(2, 4)
    expected = torch.zeros(3, dtype=torch.float64)
    for sample in itertools.product(range(3), repeat=k):
        drawn = list(sample)
        centred = q[drawn] - q[drawn].mean()
        expected += probs[drawn].prod() * (centred[:, None] * scores[drawn]).mean(0)
    true = exact.finite_difference(lambda t: (t.softmax(-1) * q).sum(), probs.log())
    return group_mean_shrinkage(k) * true, expected


# -- importance sampling ---------------------------------------------------------------------------------------------


def _inverse_weights(logps: Tensor, behavior: Tensor, mask: Tensor) -> Tensor:
    return returns.importance_weights(behavior, logps, mask)


@check(
    "eq:importance-weights",
    "expectation",
    "Samples of the behaviour policy, weighted by the ratio of the whole response, have the expectation of the "
    "target policy.",
    of=returns.importance_weights,
    against="expectation under the target policy, summed over all responses",
    wrong={
        "ratio upside down": _inverse_weights,
        "ratio of the last token only": lambda logps, behavior, mask: torch.where(mask, (logps - behavior).exp(), 0.0),
        "geometric mean over the tokens": lambda logps, behavior, mask: returns.importance_weights(
            logps / mask.shape[1], behavior / mask.shape[1], mask
        ),
    },
)
def _(importance_weights, draw: Draw) -> Iterator[Comparison]:
    target, behavior = draw.toy(3, 3), draw.toy(3, 3)
    responses, reward = target.completions(), draw.uniform(15, low=1.0, high=5.0)
    weights = importance_weights(
        target.completion_token_logps()[0], behavior.completion_token_logps()[0], responses.mask
    )
    whole = weights.gather(-1, responses.lengths[:, None] - 1)[:, 0]
    b, p = behavior.distribution()[0], target.distribution()[0]
    yield exact.expectation(b, whole * reward), exact.expectation(p, reward)
    yield whole, p / b


@check(
    "eq:importance-weights",
    "per decision",
    "A reward at token t needs the ratios up to t only.",
    of=returns.importance_weights,
    against="expected sum of token rewards under the target policy",
    wrong={
        "ratio upside down": _inverse_weights,
        "later tokens left out of the past: each token's own ratio": lambda logps, behavior, mask: torch.where(
            mask, (logps - behavior).exp(), 0.0
        ),
    },
)
def _(importance_weights, draw: Draw) -> Comparison:
    target, behavior = draw.toy(3, 3, scale=1.5), draw.toy(3, 3, scale=1.5)
    responses = target.completions()
    per_token = (
        torch.tensor([1.0, 3.0, 9.0], dtype=torch.float64) * (1 + responses.tokens.clamp(max=2)) * responses.mask
    )
    weights = importance_weights(
        target.completion_token_logps()[0], behavior.completion_token_logps()[0], responses.mask
    )
    b, p = behavior.distribution()[0], target.distribution()[0]
    return exact.expectation(b, (weights * per_token).sum(-1)), exact.expectation(p, per_token.sum(-1))


@check(
    "eq:importance-weights",
    "variance",
    "For independent tokens E_b[w²] = (Σ π²/b)^T: the variance grows exponentially with the length.",
    of=returns.importance_weights,
    against="the second moment of one token, to the power of the length",
    wrong={
        "ratio upside down": _inverse_weights,
        "clipped at one": lambda logps, behavior, mask: returns.importance_weights(logps, behavior, mask).clamp(
            max=1.0
        ),
    },
)
def _(importance_weights, draw: Draw) -> Comparison:
    pi = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64) + draw.uniform(1, high=0.02) * torch.tensor(
        [1.0, 0.0, -1.0]
    )
    b = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    drawn = torch.tensor(list(itertools.product(range(3), repeat=4)))  # (81, 4)
    weights = importance_weights(pi.log()[drawn], b.log()[drawn], torch.ones_like(drawn, dtype=torch.bool))
    return (b[drawn].prod(-1) * weights[:, -1] ** 2).sum(), float((pi**2 / b).sum()) ** 4
