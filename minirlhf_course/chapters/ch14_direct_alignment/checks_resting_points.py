"""Chapter 14, direct alignment: where losses rest whose resting place is easily told wrongly."""

from __future__ import annotations

import itertools
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from minirlhf.core import exact
from minirlhf.equations import preference_losses as pl
from minirlhf.equations.preference_losses import ListLogps, PairLogps, UnpairedLogps
from minirlhf_course.ledger.inputs.preferences import bandit, bell, policy_gradient
from minirlhf_course.ledger.registry import check


@check(
    "eq:nca",
    "draws",
    "For K answers from π_ref and β = 1 the optimal probability of each answer is the mean target that it "
    "receives, π(y) = E[Σ p_i 1(y_i = y)].",
    of=pl.nca,
    against="mean targets, summed over all lists",
    tolerance=1e-8,
    wrong={
        "reference forgotten": lambda batch, targets, *, beta: pl.nca(
            replace(batch, ref_logps=torch.zeros_like(batch.logps)), targets, beta=beta
        ),
        "noise not divided by K": lambda batch, targets, *, beta: (
            -(targets * logsigmoid(beta * batch.logratios) + logsigmoid(-beta * batch.logratios)).sum(-1)
        ),
        "InfoNCA": pl.info_nca,
    },
)
def _(nca, draw):
    b, size = bandit(draw, 3), draw.integer(2, 4)
    lists = torch.tensor(list(itertools.product(range(3), repeat=size)))  # (3^K, K)
    chance = b.ref[lists].prod(-1)
    targets = pl.reward_targets(b.rewards[lists], temperature=float(draw.uniform(low=0.4, high=0.8)))
    mean = torch.stack([(chance[:, None] * targets * (lists == y)).sum() for y in range(3)])
    population = lambda x: (chance * nca(ListLogps(x[lists], b.ref.log()[lists]), targets, beta=1.0)).sum()
    logps = mean.log().requires_grad_()
    yield mean.sum(), 1.0
    yield exact.gradient(population(logps), logps), torch.zeros(3)  # in each log-probability: levels included


@check(
    "eq:bco",
    "which shift",
    "Only one shift lets a policy meet all fractions: −β log Σ π_ref (p/(1 − p))^(1/β); with it the optimum of "
    "BCO is the RLHF optimum of logit p.",
    of=pl.bco,
    against="fractions of desirable labels, and policies that sum to one",
    tolerance=1e-8,
    wrong={
        "δ forgotten": lambda batch, delta, *, beta: pl.bco(batch, 0 * delta, beta=beta),
        "δ added": lambda batch, delta, *, beta: pl.bco(batch, -delta, beta=beta),
        "β forgotten": lambda batch, delta, *, beta: pl.bco(batch, delta, beta=1.0),
    },
)
def _(bco, draw):
    ref, share = draw.distribution(3), draw.uniform(3, low=0.6, high=0.9)
    beta = float(draw.uniform(low=0.4, high=0.7))
    weights = ref * (share / (1 - share)) ** (1 / beta)
    delta = -beta * weights.sum().log()

    def population(logps: Tensor) -> Tensor:
        batch = UnpairedLogps(logps.repeat(2), ref.log().repeat(2), None, torch.arange(6) < 3)
        return (torch.cat([ref * share, ref * (1 - share)]) * bco(batch, delta, beta=beta)).sum()

    best = (weights / weights.sum()).log()
    free = best.clone().requires_grad_()
    yield policy_gradient(population, best), torch.zeros(3)
    yield exact.gradient(population(free), free), torch.zeros(3)


@check(
    "eq:robust-dpo",
    "push without end",
    "The derivative in h tends to a negative constant for h → ∞, where that of DPO vanishes, and to another one "
    "for h → −∞: always towards the given label.",
    of=pl.robust_dpo,
    against="the limits of the slope, −βε/(1 − 2ε) and −β(1 − ε)/(1 − 2ε)",
    tolerance=1e-6,
    wrong={
        "cDPO": pl.cdpo,
        "DPO": lambda pair, *, beta, label_smoothing: pl.dpo(pair, beta=beta),
        "not divided by 1 − 2ε": lambda pair, *, beta, label_smoothing: (
            pl.robust_dpo(pair, beta=beta, label_smoothing=label_smoothing) * (1 - 2 * label_smoothing)
        ),
    },
)
def _(robust_dpo, draw):
    beta, eps = float(draw.uniform(low=0.3, high=0.8)), float(draw.uniform(low=0.05, high=0.3))
    zero = torch.zeros(1, dtype=torch.float64)
    at = lambda h: robust_dpo(PairLogps(h, zero, zero, zero), beta=beta, label_smoothing=eps).sum()
    for far, share in ((40 / beta, eps), (-40 / beta, 1 - eps)):
        h = torch.full((1,), far, dtype=torch.float64, requires_grad=True)
        yield exact.gradient(at(h), h), torch.full((1,), -beta * share / (1 - 2 * eps), dtype=torch.float64)


@check(
    "eq:apo-zero",
    "whatever β",
    "Moving probability from an answer that loses more often than it wins to one that wins more often lowers the "
    "loss, at any policy and any β.",
    of=pl.apo_zero,
    against="the logistic density, by hand",
    tolerance=1e-8,
    wrong={
        "logarithms (BCO)": pl.bco_pair,
        "β forgotten": lambda pair, *, beta: pl.apo_zero(pair, beta=1.0),
        "signs": lambda pair, *, beta: pl.apo_zero(pair.swapped(), beta=beta),
    },
)
def _(apo_zero, draw):
    beta = float(draw.away_from([1.0], 1, low=0.4, high=2.5, margin=0.2))
    ref, policy, mu = (draw.distribution(4, scale=0.5) for _ in range(3))
    rewards = torch.tensor([1.0, 0.6, -1.0, -1.2], dtype=torch.float64)
    coins = 1 / (1 + (rewards[None, :] - rewards[:, None]).exp())
    ahead = mu * (2 * coins @ mu - 1)
    best, worst = int(ahead.argmax()), int(ahead.argmin())
    w, l = torch.cartesian_prod(torch.arange(4), torch.arange(4)).unbind(-1)

    def population(probs: Tensor) -> Tensor:
        pair = PairLogps(probs.log()[w], probs.log()[l], ref.log()[w], ref.log()[l])
        return (2 * mu[w] * mu[l] * coins[w, l] * apo_zero(pair, beta=beta)).sum()

    probs = policy.clone().requires_grad_()
    slope = exact.gradient(population(probs), probs)
    gain = -2 * ahead * beta * bell(beta * (policy / ref).log()) / policy
    yield slope[best] - slope[worst], gain[best] - gain[worst]
    yield torch.relu(gain[best] - gain[worst]), 0.0
