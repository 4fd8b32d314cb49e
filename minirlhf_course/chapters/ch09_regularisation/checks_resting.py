"""The ledger of chapter 09: where regularisers come to rest, references that follow, and when a controller settles."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.equations import rlhf
from minirlhf_course.chapters.ch09_regularisation import equations
from minirlhf_course.ledger.registry import Comparison, Draw, check


def problem(draw: Draw) -> tuple[Tensor, Tensor, float]:
    """A reference over four responses, rewards that differ, β."""
    return draw.distribution(4), draw.permutation(4).double() / 2, float(draw.uniform(low=0.6, high=1.5))


@check(
    "eq:forward-kl-optimum",
    "maximum",
    "No distribution found by search has a larger reward minus β times the forward KL.",
    of=equations.forward_kl_optimal_logps,
    against="numerical maximisation of E[r] − β KL(π_ref‖π) over all distributions",
    tolerance=1e-6,
    wrong={
        "the optimum of the reverse KL": rlhf.optimal_logps,
        "1/β for β": lambda ref_logps, rewards, *, beta: equations.forward_kl_optimal_logps(
            ref_logps, rewards, beta=1 / (beta + 2)
        ),
        "rewards with the other sign": lambda ref_logps, rewards, *, beta: equations.forward_kl_optimal_logps(
            ref_logps, -rewards, beta=beta
        ),
    },
)
def _(optimum, draw: Draw) -> Comparison:
    ref, rewards, beta = problem(draw)
    best = exact.maximise(lambda p: exact.expectation(p, rewards) - beta * exact.divergence(ref, p), 4)
    return optimum(ref.log(), rewards, beta=beta).exp(), best


@check(
    "eq:forward-kl-optimum",
    "stationary",
    "At the optimum, r + β π_ref/π is equal to λ for all responses.",
    of=equations.forward_kl_optimal_logps,
    against="r + β π_ref/π is the same number for all responses, for two values of β and two prompts",
    wrong={
        "the optimum of the reverse KL": rlhf.optimal_logps,
        "β always 1": lambda ref_logps, rewards, *, beta: equations.forward_kl_optimal_logps(
            ref_logps, rewards, beta=1.0
        ),
    },
)
def _(optimum, draw: Draw) -> Iterator[Comparison]:
    ref, rewards = draw.distribution(2, 4), draw.normal(2, 4)
    for beta in (0.3, 2.5):
        logps = optimum(ref.log(), rewards, beta=beta)
        level = rewards + beta * ref / logps.exp()
        yield level, level.mean(-1, keepdim=True).expand_as(level)
        yield logps.exp().sum(-1), torch.ones(2, dtype=torch.float64)


@check(
    "eq:entropy-optimum",
    "maximum",
    "With the bonus both the exponent of the reference and the weight of the reward are smaller.",
    of=equations.entropy_bonus_optimal_logps,
    against="numerical maximisation of E[r] − β KL(π‖π_ref) + c H(π) over all distributions",
    tolerance=1e-6,
    wrong={
        "bonus without effect": lambda ref_logps, rewards, *, beta, coef: rlhf.optimal_logps(
            ref_logps, rewards, beta=beta
        ),
        "reference not flattened": lambda ref_logps, rewards, *, beta, coef: rlhf.optimal_logps(
            ref_logps, rewards, beta=beta + coef
        ),
        "the two coefficients exchanged": lambda ref_logps, rewards, *, beta, coef: (
            equations.entropy_bonus_optimal_logps(ref_logps, rewards, beta=coef, coef=beta)
        ),
    },
)
def _(optimum, draw: Draw) -> Iterator[Comparison]:
    ref, rewards, beta = problem(draw)
    for price, coef in ((beta, 0.4 * beta), (0.5 * beta, 1.5)):
        value = lambda p, b=price, c=coef: exact.regularised_value(p, ref, rewards, b) + c * exact.entropy(p)
        yield optimum(ref.log(), rewards, beta=price, coef=coef).exp(), exact.maximise(value, 4)


@check(
    "eq:entropy-optimum",
    "no reference",
    "At β = 0 only the bonus limits the policy.",
    of=equations.entropy_bonus_optimal_logps,
    against="softmax(r/c)",
    wrong={
        "reference kept": lambda ref_logps, rewards, *, beta, coef: equations.entropy_bonus_optimal_logps(
            ref_logps, rewards, beta=beta + 0.1, coef=coef
        ),
        "c times the rewards": lambda ref_logps, rewards, *, beta, coef: equations.entropy_bonus_optimal_logps(
            ref_logps, rewards, beta=beta, coef=1 / coef
        ),
    },
)
def _(optimum, draw: Draw) -> Comparison:
    ref, rewards, _ = problem(draw)
    coef = float(draw.uniform(low=0.4, high=0.8))
    return optimum(ref.log(), rewards, beta=0.0, coef=coef).exp(), (rewards / coef).softmax(-1)


@check(
    "eq:nearest-correct",
    "minimum",
    "Its KL is −log of the reference's probability of a correct response.",
    of=equations.nearest_correct_logps,
    against="numerical minimisation of KL(π‖π_ref) over the correct responses",
    tolerance=1e-6,
    wrong={
        "equal shares of the correct ones": lambda ref_logps, correct: equations.nearest_correct_logps(
            torch.zeros_like(ref_logps), correct
        ),
        "the likeliest correct one": lambda ref_logps, correct: equations.nearest_correct_logps(
            50 * ref_logps, correct
        ),
    },
)
def _(nearest, draw: Draw) -> Iterator[Comparison]:
    ref = draw.distribution(5)
    right = (torch.arange(5) < 3)[draw.permutation(5)]
    found = nearest(ref.log(), right).exp()
    searched = exact.maximise(lambda p: -exact.divergence(p, ref[right]), 3)
    yield found[right], searched
    yield found[~right], torch.zeros(2)
    yield exact.divergence(found, ref), -ref[right].sum().log()


@check(
    "eq:nearest-correct",
    "all others are further",
    "A projection: KLs to it and from it add up.",
    of=equations.nearest_correct_logps,
    against="KL(π‖π_ref) = KL(π‖nearest) + KL(nearest‖π_ref) for any π over the correct responses",
    wrong={
        "equal shares of the correct ones": lambda ref_logps, correct: equations.nearest_correct_logps(
            torch.zeros_like(ref_logps), correct
        ),
    },
)
def _(nearest, draw: Draw) -> Comparison:
    ref, right = draw.distribution(5), (torch.arange(5) < 3)[draw.permutation(5)]
    other = torch.zeros(5, dtype=torch.float64)
    other[right] = draw.distribution(3)
    middle = nearest(ref.log(), right).exp()
    inside = exact.divergence(other[right], middle[right])
    return inside + exact.divergence(middle, ref), exact.divergence(other, ref)


@check(
    "eq:moving-reference",
    "geometric mean",
    "Averaging log-probabilities gives the geometric mean of two distributions.",
    of=equations.moving_average,
    against="normalised products of powers of probabilities; the ends are the two models themselves",
    wrong={
        "rate of the other": lambda reference, policy, *, rate: equations.moving_average(
            reference, policy, rate=1 - rate
        ),
        "always halfway": lambda reference, policy, *, rate: equations.moving_average(reference, policy, rate=0.5),
    },
)
def _(moving_average, draw: Draw) -> Iterator[Comparison]:
    p, q = draw.distribution(2, 4), draw.distribution(2, 4)
    for rate in (0.1, 0.7):
        product = q ** (1 - rate) * p**rate
        got = moving_average(q.log(), p.log(), rate=rate).softmax(-1)
        yield got, product / product.sum(-1, keepdim=True)
    yield moving_average(q.log(), p.log(), rate=0.0), q.log()
    yield moving_average(q.log(), p.log(), rate=1.0), p.log()


@check(
    "eq:refreshed-optimum",
    "induction",
    "After n refreshes the optimum is that of β/(1 + n · rate): a moving average only delays the drift.",
    of=equations.refreshed_optimal_logps,
    against="the refreshes in sequence: optimum, geometric mean, optimum, … in probabilities",
    wrong={
        "one reference for all": lambda ref_logps, rewards, *, beta, rate, refreshes: rlhf.optimal_logps(
            ref_logps, rewards, beta=beta
        ),
        "counted from one": lambda ref_logps, rewards, *, beta, rate, refreshes: equations.refreshed_optimal_logps(
            ref_logps, rewards, beta=beta, rate=rate, refreshes=refreshes + 1
        ),
        "as if each refresh were hard": lambda ref_logps, rewards, *, beta, rate, refreshes: (
            equations.refreshed_optimal_logps(ref_logps, rewards, beta=beta, rate=1.0, refreshes=refreshes)
        ),
    },
)
def _(refreshed, draw: Draw) -> Iterator[Comparison]:
    ref, rewards, beta = problem(draw)
    for rate, refreshes in ((0.05, 4), (0.3, 7), (1.0, 3)):
        q = ref
        for _ in range(refreshes):
            best = q * (rewards / beta).exp()
            q = q ** (1 - rate) * (best / best.sum()) ** rate
            q = q / q.sum()
        best = q * (rewards / beta).exp()
        yield refreshed(ref.log(), rewards, beta=beta, rate=rate, refreshes=refreshes).exp(), best / best.sum()


@check(
    "eq:adaptive-kl-factor",
    "closed loop",
    "The factor by which a small deviation of β from its fixed point changes per step.",
    of=equations.adaptive_kl_factor,
    against="the controller's step differentiated numerically, with a policy that is at its optimum by numerical search in β",
    tolerance=1e-6,
    wrong={
        "sign of the slope": lambda ref_logps, rewards, *, beta, rate: (
            2 - equations.adaptive_kl_factor(ref_logps, rewards, beta=beta, rate=rate)
        ),
        "variance under the reference": lambda ref_logps, rewards, *, beta, rate: (
            1 - rate * (ref_logps.exp() * (rewards - (ref_logps.exp() * rewards).sum()) ** 2).sum() / beta**2
        ),
    },
)
def _(factor, draw: Draw) -> Iterator[Comparison]:
    ref, rewards, beta = problem(draw)

    def spent(price: Tensor) -> Tensor:
        return exact.divergence((ref.log() + rewards / price).softmax(-1), ref)

    at = torch.tensor([beta], dtype=torch.float64)
    target = spent(at)
    for rate in (0.1, 1.7):
        update = lambda b, r=rate: (b * (1 + r * (spent(b) / target - 1))).sum()
        yield factor(ref.log(), rewards, beta=beta, rate=rate), exact.finite_difference(update, at)[0]
