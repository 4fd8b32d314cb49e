"""Value-guided decoding in the chain of :mod:`.credit_tables`, exact: every token is drawn with weights that a verifier of prefixes gives.

All steps have the policy's first chances, so that a prefix is its length and its sum, ``(steps + 1, 5)``.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minirlhf.chapters.ch16_reasoning.credit_tables import OFFSETS, StepChain, begin, values
from minirlhf.core.randomness import generator

#: How a verifier that reads a value of 0 or 1 without noise puts it: .02 and .98.
MODEST = 0.02


def first_values(plan: StepChain) -> Tensor:
    """``(steps + 1, 5)``: the chance of a right end from every prefix."""
    return values(begin(plan).softmax(-1)[0].expand(1, plan.steps, OFFSETS))[0]


def by_mean(worth: Tensor, beta: float) -> Tensor:
    """The weights exp(V/β) of prefixes that are right with the chances ``worth``."""
    return (worth / beta).exp()


def by_soft(worth: Tensor, beta: float) -> Tensor:
    """The weights E[exp(r/β)] = 1 − V + V·exp(1/β) of the same, for which every token is the optimum's under a KL term."""
    return 1 - worth + worth * math.exp(1 / beta)


def decoded(weights: Tensor, plan: StepChain) -> tuple[Tensor, float]:
    """Where replies end, ``(5,)``, and their KL from the policy, if a token is drawn with π(a) times the weight of the prefix behind it."""
    chances = begin(plan).softmax(-1)[0]
    # sum so far and offset, to the sum behind it
    behind = (torch.arange(OFFSETS)[:, None] + torch.arange(OFFSETS)) % OFFSETS
    at, paid = torch.eye(OFFSETS, dtype=torch.float64)[0], 0.0
    for weight in weights[1:]:
        drawn = chances * weight[behind]
        drawn = drawn / drawn.sum(-1, keepdim=True)
        paid += float(at @ torch.special.xlogy(drawn, drawn / chances).sum(-1))
        at = torch.zeros_like(at).index_add(0, behind.flatten(), (at[:, None] * drawn).flatten())
    return at, paid


def least_kl(before: float, after: float) -> float:
    """The least KL, in nats, of a policy that is right with the chance ``after`` from one that is right with the chance ``before``.

    That of the two coins: whoever only reweighs right replies against wrong ones pays this, and whoever does anything else pays more.
    """
    pay = lambda q, p: q * math.log(q / p) if q else 0.0
    return pay(after, before) + pay(1 - after, 1 - before)


def readings(worth: Tensor, noise: float, seed: int) -> Tensor:
    """What a verifier says of every prefix: its chance, with normal noise on the logit that is the same whenever the prefix is read."""
    drawn = torch.randn(worth.shape, generator=generator("readings", seed), dtype=torch.float64)
    return (((1 - 2 * MODEST) * worth + MODEST).logit() + noise * drawn).sigmoid()


def best(said: Tensor, ends: Tensor, count: int) -> float:
    """How often the best read of ``count`` replies that end like this, ``(5,)``, is a right one."""
    order = said.argsort()
    below = torch.cat([torch.zeros(1, dtype=torch.float64), ends[order].cumsum(0)])
    return float((below[1:] ** count - below[:-1] ** count)[order == 0].sum())
