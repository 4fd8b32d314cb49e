"""Chapter 14, direct alignment: where losses come to rest that no paper says it of, when the pairs never end.

Pairs are independent draws from μ, labelled by Bradley and Terry; ``w`` is an answer's win rate against μ. The oracles are
one-dimensional roots, sums over all pairs, and the slope of the population loss in every direction. Losses that look at one pair
at a time (ODPO, Cal-DPO) are mixed over its label.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.equations import preference_losses as pl
from minirlhf.equations.preference_losses import PairLogps
from minirlhf_course.ledger.inputs.preferences import (
    at,
    bell,
    pair_gradient,
    pairs,
    policy_gradient,
    without_reference,
)
from minirlhf_course.ledger.registry import Draw, check

ZERO = torch.zeros(4, dtype=torch.float64)
Loss = Callable[[PairLogps], Tensor]


class Crowd(NamedTuple):
    """Four answers: where pairs come from, a reference, rewards."""

    mu: Tensor
    ref: Tensor
    rewards: Tensor

    @property
    def lengths(self) -> Tensor:
        """Of all that a model with one word and an end can say in three tokens."""
        return torch.tensor([1, 2, 3, 3])

    @property
    def coins(self) -> Tensor:
        """``(4, 4)``, p(y_i ≻ y_j)."""
        return 1 / (1 + (self.rewards[None, :] - self.rewards[:, None]).exp())

    @property
    def win_rates(self) -> Tensor:
        """``(4,)``, w. Two answers win more often than they lose, the second and the third, and two do not."""
        return self.coins @ self.mu

    def population(self, loss: Loss, logps: Tensor) -> Tensor:
        """The mean loss of a policy over all pairs, an answer and itself among them, and both labels."""
        w, l = torch.cartesian_prod(torch.arange(4), torch.arange(4)).unbind(-1)
        ref, lengths = self.ref.log(), self.lengths
        pair = PairLogps(logps[w], logps[l], ref[w], ref[l], lengths[w], lengths[l])
        return (2 * self.mu[w] * self.mu[l] * self.coins[w, l] * loss(pair)).sum()

    def slope(self, loss: Loss, logps: Tensor) -> Tensor:
        """Its gradient in the policy's logits."""
        return policy_gradient(lambda x: self.population(loss, x), logps)


def crowd(draw: Draw, scale: float = 1.0) -> Crowd:
    """Random, but no reward near another's rank, and no answer rare."""
    mu, ref = (draw.uniform(4, low=0.5, high=1.5) for _ in range(2))
    rewards = torch.tensor([-1.0, 1.0, 0.6, -1.2], dtype=torch.float64) + draw.uniform(4, low=-0.1, high=0.1)
    return Crowd(mu / mu.sum(), ref / ref.sum(), scale * rewards)


def root(rising: Callable[[float], float], low: float, high: float) -> float:
    """Where a rising function is 0, by bisection."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2


def normalised(logps: Callable[[float], Tensor], low: float, high: float) -> Tensor:
    """Log-probabilities that rise with a constant, at the constant where they sum to one."""
    return logps(root(lambda c: float(logps(c).exp().sum()) - 1, low, high))


# -- a head start -------------------------------------------------------------------------------------------------


def coins_and_rests(draw: Draw, head_start: float | Tensor) -> tuple[Tensor, Tensor]:
    """Four labels' log-odds d, and d/2 + asinh(e^Δ sinh(d/2)), which solves p σ(Δ − u) = (1 − p) σ(Δ + u)."""
    odds = draw.away_from([0.0], 4, low=-2.0, high=2.0, margin=0.3)
    return odds, odds / 2 + (torch.as_tensor(head_start, dtype=torch.float64).exp() * (odds / 2).sinh()).asinh()


def mixed(loss: Loss, odds: Tensor, pair: PairLogps) -> Tensor:
    """A pair's mean loss over its label."""
    win = 1 / (1 + (-odds).exp())
    return win * loss(pair) + (1 - win) * loss(pair.swapped())


@check(
    "eq:odpo",
    "minimiser",
    "For a label with log-odds d and an offset Δ, the optimal βh is d/2 + asinh(e^Δ sinh(d/2)).",
    of=pl.odpo,
    against="finite differences",
    tolerance=1e-8,
    wrong={
        "offset added": lambda pair, offset, *, beta: pl.odpo(pair, -offset, beta=beta),
        "offset scaled by β": lambda pair, offset, *, beta: pl.odpo(pair, beta * offset, beta=beta),
        "offset forgotten": lambda pair, offset, *, beta: pl.dpo(pair, beta=beta),
    },
)
def _(odpo, draw):
    beta, offset = float(draw.uniform(low=0.3, high=0.7)), draw.uniform(4, low=0.5, high=1.5)
    (odds, rest), pair = coins_and_rests(draw, offset), pairs(draw)
    moved = lambda t: at(pair, chosen=pair.rejected_logratios + (rest + t) / beta, rejected=pair.rejected_logratios)
    mean = lambda t: mixed(lambda x: odpo(x, offset, beta=beta), odds, moved(t)).sum()
    return exact.finite_difference(mean, ZERO), ZERO


# -- no reference ------------------------------------------------------------------------------------------------


@check(
    "eq:simpo",
    "minimiser",
    "With γ = 0, π = exp(|y| (r/β + c)). With γ the optimum of one pair is d/2 + asinh(e^γ sinh(d/2)), d the "
    "log-odds of its label.",
    of=pl.simpo,
    against="the constant by bisection; finite differences along a mean",
    tolerance=1e-8,
    wrong={
        "sums instead of means": lambda pair, *, beta, gamma: pl.cpo(pair, beta=beta, nll_weight=0.0),
        "γ makes it easier": lambda pair, *, beta, gamma: pl.dpo(
            replace(
                pair.per_token(), ref_chosen=0 * pair.chosen, ref_rejected=0 * pair.chosen + gamma / beta
            ).swapped(),
            beta=beta,
        ),
        "γ multiplied by β": lambda pair, *, beta, gamma: pl.simpo(pair, beta=beta, gamma=beta * gamma),
    },
)
def _(simpo, draw):
    c, beta, gamma = crowd(draw), float(draw.uniform(low=1.5, high=2.5)), float(draw.uniform(low=0.5, high=1.5))
    best = normalised(lambda k: c.lengths * (c.rewards / beta + k), -50.0, 50.0)
    yield c.slope(lambda pair: simpo(pair, beta=beta, gamma=0.0), best), ZERO
    (odds, rest), pair = coins_and_rests(draw, gamma), pairs(draw, lengths=True)
    level = lambda t: pair.rejected / pair.rejected_lengths + (rest + t) / beta
    moved = lambda t: replace(pair, chosen=pair.chosen_lengths * level(t))
    mean = lambda t: mixed(lambda x: simpo(x, beta=beta, gamma=gamma), odds, moved(t)).sum()
    yield exact.finite_difference(mean, ZERO), ZERO


@check(
    "eq:alpha-po",
    "minimiser",
    "With γ = 0 the geometric mean of an answer's token probabilities is (1 − α (r/β + c))^(−1/α).",
    of=pl.alpha_po,
    against="the constant by bisection",
    tolerance=1e-8,
    wrong={
        "SimPO": lambda pair, *, beta, alpha: pl.simpo(pair, beta=beta, gamma=0.0),
        "α of the other sign": lambda pair, *, beta, alpha: pl.alpha_po(pair, beta=beta, alpha=-alpha),
        "β forgotten": lambda pair, *, beta, alpha: pl.alpha_po(pair, beta=1.0, alpha=alpha),
    },
)
def _(alpha_po, draw):
    c, beta = crowd(draw), float(draw.uniform(low=1.5, high=2.5))
    alpha = float(draw.uniform(low=0.3, high=0.8))
    level = lambda k: -c.lengths * (1 - alpha * (c.rewards / beta + k)).log() / alpha
    best = normalised(level, -1e4, -float(c.rewards.max()) / beta)
    return c.slope(lambda pair: alpha_po(pair, beta=beta, alpha=alpha), best), ZERO


@check(
    "eq:slic",
    "minimiser",
    "Within the margin π = μ [1 + (1 + 2/λ)(2w − 1)]. For certain labels and λ = 0: any policy that ranks the "
    "answers in their order, neighbours at least δ nats apart.",
    of=pl.slic,
    against="the derivative of the population loss; policies on both sides of the margin",
    tolerance=1e-8,
    wrong={
        "log-ratios": lambda pair, *, delta, nll_weight: torch.relu(delta - pair.margins) - nll_weight * pair.chosen,
        "kink at 0": lambda pair, *, delta, nll_weight: (
            torch.relu(pair.rejected - pair.chosen) - nll_weight * pair.chosen
        ),
        "regularised on the rejected answer": lambda pair, *, delta, nll_weight: (
            torch.relu(delta - pair.chosen + pair.rejected) - nll_weight * pair.rejected
        ),
    },
)
def _(slic, draw):
    delta, weight = float(draw.uniform(low=2.0, high=3.0)), float(draw.uniform(low=0.8, high=1.5))
    c = crowd(draw, scale=0.2)
    linear = c.mu * (1 + (1 + 2 / weight) * (2 * c.win_rates - 1))
    yield c.slope(lambda pair: slic(pair, delta=delta, nll_weight=weight), linear.log()), ZERO
    gaps, short = delta * draw.uniform(3, low=1.01, high=2.0), float(draw.uniform(low=0.1, high=0.9))
    w, l = torch.combinations(torch.arange(4)).unbind(-1)
    for k in (None, 0, 1, 2):  # no two neighbours too near, or these
        near = gaps.clone()
        if k is not None:
            near[k] = delta - short
        ranked = torch.cat([ZERO[:1], -near.cumsum(0)]).log_softmax(-1)
        loss = slic(PairLogps(ranked[w], ranked[l], c.ref.log()[w], c.ref.log()[l]), delta=delta, nll_weight=0.0)
        yield loss.sum(), 0.0 if k is None else short


@check(
    "eq:orpo",
    "minimiser",
    "The likelihood term alone has its optimum at π ∝ μ w/|y|, the odds-ratio term alone at π = σ(r + c)^|y|; β "
    "weights the two.",
    of=pl.orpo,
    against="the constant by bisection; the optimum for two answers by bisection",
    tolerance=1e-8,
    wrong={
        "odds of whole answers": lambda pair, *, beta: (
            -pair.per_token().chosen
            + beta * pl.dpo(replace(pair, ref_chosen=log1m(pair.chosen), ref_rejected=log1m(pair.rejected)), beta=1.0)
        ),
        "probability ratio for odds ratio": lambda pair, *, beta: (
            -pair.per_token().chosen + beta * pl.simpo(pair, beta=1.0, gamma=0.0)
        ),
        "NLL of the rejected answer": lambda pair, *, beta: (
            pl.orpo(pair, beta=beta) + pair.per_token().chosen - pair.per_token().rejected
        ),
    },
)
def _(orpo, draw):
    c, beta = crowd(draw), float(draw.uniform(low=0.5, high=2.0))
    odds = lambda pair: orpo(pair, beta=2.0) - orpo(pair, beta=1.0)
    likelihood = lambda pair: 2 * orpo(pair, beta=1.0) - orpo(pair, beta=2.0)
    yield c.slope(odds, normalised(lambda k: -c.lengths * (1 + (-c.rewards - k).exp()).log(), -50.0, 50.0)), ZERO
    winners = c.mu * c.win_rates / c.lengths
    yield c.slope(likelihood, (winners / winners.sum()).log()), ZERO
    p = float(draw.uniform(low=0.6, high=0.9))  # two answers of one token: between p and odds of √(p/(1 − p))
    coin = lambda x: 1 / (1 + math.exp(-x))
    balance = root(lambda g: coin(g) - p + 2 * beta * (coin(2 * g) - p), 0.0, 10.0)
    one = torch.ones(1, dtype=torch.long)

    def mean(logps: Tensor) -> Tensor:
        pair = PairLogps(logps[:1], logps[1:], chosen_lengths=one, rejected_lengths=one)
        return (p * orpo(pair, beta=beta) + (1 - p) * orpo(pair.swapped(), beta=beta)).sum()

    yield policy_gradient(mean, torch.tensor([balance, 0.0], dtype=torch.float64).log_softmax(-1)), ZERO[:2]


def log1m(logps: Tensor) -> Tensor:
    """log(1 − p), for the slip that takes p of the whole answer."""
    return (-logps.exp()).log1p()


# -- who holds the winner ----------------------------------------------------------------------------------------


@check(
    "eq:dpo-positive",
    "minimiser",
    "For pairs from π_ref and λ ≥ 2 (max w/min w − 1) no direction lowers the loss at π_ref; at half of this λ "
    "the steepest one does.",
    of=pl.dpo_positive,
    against="one-sided derivatives of all moves of probability from one answer to another",
    tolerance=1e-7,
    wrong={
        "penalty on the rejected answer": lambda pair, *, beta, penalty: pl.dpo(
            replace(pair, rejected=pair.rejected + penalty * torch.relu(-pair.rejected_logratios)), beta=beta
        ),
        "penalty outside β": lambda pair, *, beta, penalty: pl.dpo_positive(pair, beta=beta, penalty=penalty / beta),
        "penalty when the answer gains": lambda pair, *, beta, penalty: pl.dpo(
            replace(pair, chosen=pair.chosen - penalty * torch.relu(pair.chosen_logratios)), beta=beta
        ),
    },
)
def _(dpo_positive, draw):
    c, beta = crowd(draw), float(draw.uniform(low=0.3, high=0.7))
    c = c._replace(mu=c.ref)
    best, worst = float(c.win_rates.max()), float(c.win_rates.min())
    enough = 2 * (best / worst - 1)
    moves = (~torch.eye(4, dtype=torch.bool)).nonzero().tolist()

    def steepest(penalty: float) -> Tensor:
        def slope(to: int, source: int, t: float) -> Tensor:
            way = ZERO.clone()
            way[to], way[source] = 1.0, -1.0
            step = torch.tensor(t, dtype=torch.float64, requires_grad=True)
            loss = lambda pair: dpo_positive(pair, beta=beta, penalty=penalty)
            return exact.gradient(c.population(loss, (c.ref + step * way).log()), step)

        return torch.stack([2 * slope(i, j, 1e-6) - slope(i, j, 2e-6) for i, j in moves]).min()  # t → 0 from above

    yield steepest(enough), 0.0
    yield steepest(enough / 2), -beta * (best - worst)


@check(
    "eq:dpo-nll",
    "minimiser",
    "At the minimum the gradients of the two terms balance: β Σ_j μ_i μ_j (σ(βh_ij) − p_ij) = α (v_i − π_i Σ v), "
    "v = μ w/|y|.",
    of=pl.dpo_nll,
    against="the minimum found numerically, the balance summed by hand",
    tolerance=1e-8,
    wrong={
        "sum over tokens": lambda pair, *, beta, nll_weight: pl.dpo(pair, beta=beta) - nll_weight * pair.chosen,
        "NLL of the rejected answer": lambda pair, *, beta, nll_weight: (
            pl.dpo(pair, beta=beta) - nll_weight * pair.per_token().rejected
        ),
        "no likelihood term": lambda pair, *, beta, nll_weight: pl.dpo(pair, beta=beta),
    },
)
def _(dpo_nll, draw):
    c, beta, weight = crowd(draw), float(draw.uniform(low=0.4, high=0.8)), float(draw.uniform(low=0.3, high=0.6))
    found = exact.maximise(lambda q: -c.population(lambda x: dpo_nll(x, beta=beta, nll_weight=weight), q.log()), 4)
    ratio = (found / c.ref) ** beta
    claimed = ratio[:, None] / (ratio[:, None] + ratio[None, :])  # σ(βh)
    excess = c.mu * ((claimed - c.coins) @ c.mu)
    winners = c.mu * c.win_rates / c.lengths
    return beta * excess, weight * (winners - found * winners.sum())


# -- levels and anchors ------------------------------------------------------------------------------------------


@check(
    "eq:cal-dpo",
    "minimiser",
    "For a label that is correct with probability p the margin is h = (2p − 1)/β + p − σ(h), half of it on each side.",
    of=pl.cal_dpo,
    against="the margin by bisection",
    tolerance=1e-8,
    wrong={
        "both calibrated to +1/(2β)": lambda pair, *, beta: (
            pl.dpo(pair, beta=1.0) + pl.sppo(pair, beta=beta, rejected_win_rate=torch.ones_like(pair.chosen))
        ),
        "β in the contrastive term": lambda pair, *, beta: pl.dpo(pair, beta=beta) + pl.sppo(pair, beta=beta),
        "no contrastive term (SPPO)": lambda pair, *, beta: pl.sppo(pair, beta=beta),
    },
)
def _(cal_dpo, draw):
    pair, beta, p = pairs(draw), float(draw.uniform(low=0.3, high=0.8)), float(draw.uniform(low=0.6, high=0.9))
    margin = root(lambda h: h + 1 / (1 + math.exp(-h)) - p - (2 * p - 1) / beta, -10.0, 10.0)
    half = torch.full((4,), margin / 2, dtype=torch.float64)
    odds = torch.full((4,), math.log(p / (1 - p)), dtype=torch.float64)
    mean = lambda x: mixed(lambda one: cal_dpo(one, beta=beta), odds, x)
    return pair_gradient(mean, at(pair, chosen=half, rejected=-half)), torch.zeros(8)


@check(
    "eq:apo-zero",
    "minimiser",
    "An answer that loses more often than it wins gets probability 0; the others balance μ (2w − 1) σ'(r̂)/π.",
    of=pl.apo_zero,
    against="the balance of two answers by bisection; random policies",
    tolerance=1e-8,
    wrong={
        "logarithms (BCO)": pl.bco_pair,
        "reference forgotten": lambda pair, *, beta: pl.apo_zero(without_reference(pair), beta=beta),
        "β forgotten": lambda pair, *, beta: pl.apo_zero(pair, beta=1.0),
    },
)
def _(apo_zero, draw):
    c, beta = crowd(draw), float(draw.uniform(low=0.4, high=0.8))
    c = c._replace(ref=torch.tensor([0.4, 0.02, 0.3, 0.28], dtype=torch.float64))  # the best is rare: no slip cancels
    ahead = c.mu * (2 * c.win_rates - 1)

    def value_of_mass(k: int, q: float) -> float:
        return float(ahead[k] * bell(beta * (math.log(q) - c.ref[k].log()))) / q

    share = root(lambda q: value_of_mass(2, 1 - q) - value_of_mass(1, q), 1e-12, 1 - 1e-12)
    best = torch.tensor([1e-60, share, 1 - share, 1e-60], dtype=torch.float64).log()
    loss = lambda pair: apo_zero(pair, beta=beta)
    yield c.slope(loss, best), ZERO
    others = [c.population(loss, draw.distribution(4, scale=s).log()) for s in (0.5, 1.0, 2.0, 4.0)]
    yield torch.relu(c.population(loss, best) - torch.stack(others)), ZERO


@check(
    "eq:apo-down",
    "infimum",
    "If a third answer can take the probability, the loss tends to 0 as both answers vanish, the loser faster; "
    "if the winner vanishes faster, to 1.",
    of=pl.apo_down,
    against="0, the infimum of a sum of two sigmoids, and 1",
    wrong={
        "chosen pushed up": lambda pair, *, beta: (
            torch.sigmoid(-beta * pair.chosen_logratios) + torch.sigmoid(-beta * pair.margins)
        ),
        "rejected anchored instead of the margin": lambda pair, *, beta: (
            torch.sigmoid(beta * pair.chosen_logratios) + torch.sigmoid(beta * pair.rejected_logratios)
        ),
        "reference for the policy": lambda pair, *, beta: pl.apo_down(
            replace(pair, chosen=pair.ref_chosen, rejected=pair.ref_rejected), beta=beta
        ),
    },
)
def _(apo_down, draw):
    pair, beta = pairs(draw), float(draw.uniform(low=0.3, high=0.8))
    slow, fast = -draw.uniform(4, low=40.0, high=60.0) / beta, -draw.uniform(4, low=100.0, high=120.0) / beta
    yield apo_down(at(pair, chosen=slow, rejected=fast), beta=beta), ZERO
    yield apo_down(at(pair, chosen=fast, rejected=slow), beta=beta), ZERO + 1
