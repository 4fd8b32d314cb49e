"""Value-guided decoding in the chain of :mod:`.credit_tables`, exact: every token is sampled with weights from a
verifier of prefixes.

All steps have the initial policy's probabilities, so a prefix is described by its length and sum: ``(steps + 1, 5)``.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minirlhf.core.randomness import generator
from minirlhf_course.chapters.ch16_reasoning.credit_tables import OFFSETS, StepChain, begin, values

#: Without noise, a verifier reports .02 for a value of 0 and .98 for a value of 1.
MODEST = 0.02


def first_values(plan: StepChain) -> Tensor:
    """Return ``(steps + 1, 5)``: the probability of a right end from every prefix."""
    return values(begin(plan).softmax(-1)[0].expand(1, plan.steps, OFFSETS))[0]


def by_mean(worth: Tensor, beta: float) -> Tensor:
    """Return the weights exp(V/β) of prefixes that end right with the probabilities ``worth``."""
    return (worth / beta).exp()


def by_soft(worth: Tensor, beta: float) -> Tensor:
    """Return the weights E[exp(r/β)] = 1 − V + V·exp(1/β) of the same prefixes. With them every token has its
    probability under the optimum with a KL penalty."""
    return 1 - worth + worth * math.exp(1 / beta)


def decoded(weights: Tensor, plan: StepChain) -> tuple[Tensor, float]:
    """Return where completions end, ``(5,)``, and their KL from the policy, if a token is sampled with π(a) times the
    weight of the prefix that ends in it."""
    probs = begin(plan).softmax(-1)[0]
    # (sum so far, offset) -> sum after the token
    next_sum = (torch.arange(OFFSETS)[:, None] + torch.arange(OFFSETS)) % OFFSETS
    state, kl = torch.eye(OFFSETS, dtype=torch.float64)[0], 0.0
    for weight in weights[1:]:
        tilted = probs * weight[next_sum]
        tilted = tilted / tilted.sum(-1, keepdim=True)
        kl += float(state @ torch.special.xlogy(tilted, tilted / probs).sum(-1))
        state = torch.zeros_like(state).index_add(0, next_sum.flatten(), (state[:, None] * tilted).flatten())
    return state, kl


def least_kl(before: float, after: float) -> float:
    """Return the least KL, in nats, of a policy that is right with probability ``after`` from a policy that is right
    with probability ``before``.

    It is the KL of two Bernoulli distributions. A policy that only reweighs right completions against wrong ones
    reaches it; every other policy has a larger KL.
    """
    term = lambda q, p: q * math.log(q / p) if q else 0.0
    return term(after, before) + term(1 - after, 1 - before)


def readings(worth: Tensor, noise: float, seed: int) -> Tensor:
    """Return a verifier's estimate for every prefix: its probability, with normal noise on the logit that is the same
    each time the prefix is read."""
    normal = torch.randn(worth.shape, generator=generator("readings", seed), dtype=torch.float64)
    return (((1 - 2 * MODEST) * worth + MODEST).logit() + noise * normal).sigmoid()


def best(said: Tensor, ends: Tensor, count: int) -> float:
    """Return how often the completion with the highest estimate ``said`` is right, among ``count`` completions that end
    like this, ``(5,)``."""
    order = said.argsort()
    cdf = torch.cat([torch.zeros(1, dtype=torch.float64), ends[order].cumsum(0)])
    return float((cdf[1:] ** count - cdf[:-1] ** count)[order == 0].sum())
