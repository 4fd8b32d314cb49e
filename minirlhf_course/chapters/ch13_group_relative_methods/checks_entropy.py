"""The ledger of chapter 13: tokens that are chosen by their entropy or their covariance."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from minirlhf.equations import aggregation
from minirlhf_course.chapters.ch13_group_relative_methods import equations
from minirlhf_course.ledger.registry import Comparison, Draw, check


@check(
    "eq:most-uncertain",
    "value",
    "The fifth of the batch's tokens with the highest entropy has all the weight; with the token mean each of "
    "them has the same weight.",
    of=aggregation.high_entropy_weights,
    against="the tokens of the batch in one sorted list, of which the first fifth shares the weights",
    wrong={
        "the least uncertain": lambda w, h, mask, **o: aggregation.high_entropy_weights(w, -h, mask, **o),
        "the others' weights are lost": lambda w, h, mask, **o: (
            w * (aggregation.high_entropy_weights(w, h, mask, **o) > 0)
        ),
        "the share of each completion": lambda w, h, mask, **o: torch.cat(
            [aggregation.high_entropy_weights(*(x[i : i + 1] for x in (w, h, mask)), **o) for i in range(len(mask))]
        ),
        "the complement of the share": lambda w, h, mask, *, top_entropy_quantile: aggregation.high_entropy_weights(
            w, h, mask, top_entropy_quantile=max(0.01, 1 - top_entropy_quantile)
        ),
    },
)
def _(high_entropy_weights, draw: Draw) -> Iterator[Comparison]:
    mask, entropies = draw.mask(6, 7), draw.uniform(6, 7, low=0.0, high=2.0)
    entropies[0] += 2.5  # one completion is all forks
    tokens = sorted(((float(entropies[i, t]), i, t) for i, t in mask.nonzero().tolist()), reverse=True)
    for share in (0.2, float(draw.uniform(low=0.3, high=0.45))):
        kept = tokens[: math.ceil(share * len(tokens))]
        equal = torch.zeros(6, 7, dtype=torch.float64)
        for _, i, t in kept:
            equal[i, t] = 1 / len(kept)
        yield high_entropy_weights(aggregation.token_mean(mask), entropies, mask, top_entropy_quantile=share), equal
        weights = aggregation.sequence_mean(mask)
        total = sum(float(weights[i, t]) for _, i, t in kept)
        per_reply = torch.zeros(6, 7, dtype=torch.float64)
        for _, i, t in kept:
            per_reply[i, t] = weights[i, t] / total
        yield high_entropy_weights(weights, entropies, mask, top_entropy_quantile=share), per_reply
    yield high_entropy_weights(weights, entropies, mask, top_entropy_quantile=1.0), weights
    none = torch.zeros_like(weights)  # a batch of which nothing is kept
    yield high_entropy_weights(none, entropies, mask, top_entropy_quantile=0.2), none


@check(
    "eq:token-covariance",
    "value",
    "(log π − its mean)(A − its mean) over the batch's tokens, without padding.",
    of=equations.token_covariances,
    against="the products of differences, token by token in plain Python; their mean is the covariance",
    wrong={
        "log-probabilities not centred": lambda logps, a, mask: (
            torch.where(mask, logps, 0.0)
            * equations.token_covariances(a, a, mask).sqrt()
            * torch.where(mask, a - a[mask].mean(), 0.0).sign()
        ),
        "padding counts in the means": lambda logps, a, mask: (
            equations.token_covariances(torch.where(mask, logps, 0.0), torch.where(mask, a, 0.0), torch.ones_like(mask))
            * mask
        ),
        "probabilities for log-probabilities": lambda logps, a, mask: equations.token_covariances(logps.exp(), a, mask),
        "means of each completion": lambda logps, a, mask: torch.cat(
            [equations.token_covariances(*(x[i : i + 1] for x in (logps, a, mask))) for i in range(len(mask))]
        ),
    },
)
def _(covariances, draw: Draw) -> Iterator[Comparison]:
    mask, logps, advantages = draw.mask(4, 5), draw.logps(4, 5), draw.normal(4, 5)
    places = mask.nonzero().tolist()
    mean_logp = sum(float(logps[i, t]) for i, t in places) / len(places)
    mean_advantage = sum(float(advantages[i, t]) for i, t in places) / len(places)
    expected = torch.zeros(4, 5, dtype=torch.float64)
    for i, t in places:
        expected[i, t] = (float(logps[i, t]) - mean_logp) * (float(advantages[i, t]) - mean_advantage)
    behind = torch.where(mask, 0.0, torch.nan)
    got = covariances(logps + behind, advantages + behind, mask)
    yield got, expected
    both = torch.stack([logps[mask], advantages[mask]])
    yield got.sum() / mask.sum(), torch.cov(both, correction=0)[0, 1]
