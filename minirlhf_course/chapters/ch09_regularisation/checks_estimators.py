"""The ledger of chapter 09: estimators of the KL from samples, as values and as losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.equations import kl, rlhf
from minirlhf_course.chapters.ch09_regularisation import equations
from minirlhf_course.chapters.ch09_regularisation.divergences import Divergence, swapped, two, zigzag
from minirlhf_course.ledger.registry import Comparison, Draw, chain, check

chain(
    "k3",
    "The estimator k3: unbiased, never negative, and what it does as a loss",
    ["eq:k1", "eq:k3-zero-mean", "eq:k3-control-variate", "eq:k3", "eq:k3-nonnegative", "eq:k3-gradient"],
    module=__name__,
)


def _mean(estimator: Divergence, p: Tensor, q: Tensor, **settings: float) -> Tensor:
    """Expectation of an estimator over samples of p, by summation."""
    return exact.expectation(p, estimator(p.log(), q.log(), **settings))


def _loss_gradient(estimator: Divergence, p: Tensor, q: Tensor) -> Tensor:
    """Expected gradient when the estimator of a sample is used as a loss: the sampling itself is not differentiated."""
    logits = p.log().requires_grad_()
    (gradient,) = torch.autograd.grad((p * estimator(logits.log_softmax(-1), q.log())).sum(), logits)
    return gradient


def _true_gradient(p: Tensor, value: Callable[[Tensor], Tensor]) -> Tensor:
    return exact.finite_difference(lambda logits: value(logits.softmax(-1)).sum(), p.log())


def _gaussian_mean(estimator: Divergence, shift: float) -> Tensor:
    """Expectation of an estimator of KL(N(0,1) ‖ N(shift,1)) by quadrature."""
    logp = lambda x, mean: -0.5 * (x - mean) ** 2 - 0.5 * math.log(2 * math.pi)
    return exact.gaussian_expectation(lambda x: estimator(logp(x, 0.0), logp(x, shift)), nodes=40)


REVERSED_RATIO = "log-ratio reversed"


@check(
    "eq:k1",
    "value",
    "The expectation of k1 under π is KL(π‖π_ref).",
    of=kl.k1,
    against="KL summed over all outcomes; in closed form for two Gaussians",
    wrong={REVERSED_RATIO: swapped(kl.k1), "absolute value": lambda logps, ref_logps: kl.k1(logps, ref_logps).abs()},
)
def _(k1, draw: Draw) -> Iterator[Comparison]:
    p, q = two(draw)
    yield _mean(k1, p, q), exact.divergence(p, q)
    shift = float(draw.uniform(low=0.3, high=1.0))
    yield _gaussian_mean(k1, shift), shift**2 / 2


@check(
    "eq:k1",
    "gradient",
    "Used as a loss, k1 has no gradient on average: E[∇ log π] = 0.",
    of=kl.k1,
    against="zero",
    wrong={"k2 instead of k1": kl.k2, "k3 instead of k1": kl.k3},
)
def _(k1, draw: Draw) -> Comparison:
    p, q = two(draw)
    return _loss_gradient(k1, p, q), torch.zeros(3, 4)


@check(
    "eq:k2",
    "value",
    "Biased: for unit Gaussians its expectation is too large by KL²/2.",
    of=kl.k2,
    against="½ E[(log-ratio)²] of two Gaussians in closed form: KL (1 + KL/2)",
    wrong={"½ forgotten": lambda logps, ref_logps: 2 * kl.k2(logps, ref_logps), "unbiased instead": kl.k3},
)
def _(k2, draw: Draw) -> Comparison:
    shift = float(draw.uniform(low=0.3, high=1.0))
    divergence = shift**2 / 2
    return _gaussian_mean(k2, shift), divergence * (1 + divergence / 2)


@check(
    "eq:k2",
    "small differences",
    "Near the reference the bias is of third order, small compared with the KL.",
    of=kl.k2,
    against="KL, both divided by the squared step",
    tolerance=1e-6,
    wrong={
        "½ forgotten": lambda logps, ref_logps: 2 * kl.k2(logps, ref_logps),
        "square of the ratio's difference from one, not halved": lambda logps, ref_logps: (
            equations.ratio_minus_one(logps, ref_logps) ** 2
        ),
    },
)
def _(k2, draw: Draw) -> Comparison:
    p, direction, h = draw.distribution(4), zigzag(draw), 2e-4
    ends = [(p.log() + sign * h * direction).softmax(-1) for sign in (1, -1)]
    # The third order cancels between the two directions.
    got = sum((_mean(k2, p, q) for q in ends), torch.zeros(())) / (2 * h**2)
    return got, sum((exact.divergence(p, q) for q in ends), torch.zeros(())) / (2 * h**2)


@check(
    "eq:k2",
    "gradient",
    "Used as a loss, k2 has the gradient of the reverse KL on average, though its value is biased.",
    of=kl.k2,
    against="finite differences of KL(π‖π_ref)",
    wrong={"k3 instead of k2": kl.k3, "k1 instead of k2": kl.k1},
)
def _(k2, draw: Draw) -> Comparison:
    p, q = two(draw)
    return _loss_gradient(k2, p, q), _true_gradient(p, lambda x: exact.divergence(x, q))


@check(
    "eq:k3-zero-mean",
    "step",
    "Σ π (π_ref/π − 1) = 1 − 1: adding r − 1 to k1 does not change its expectation.",
    of=equations.ratio_minus_one,
    against="the change of E[k1]: 0",
    follows="eq:k1",
    wrong={
        "ratio upside down": swapped(equations.ratio_minus_one),
        "log r instead of r − 1": lambda logps, ref_logps: ref_logps - logps,
        "one forgotten": lambda logps, ref_logps: equations.ratio_minus_one(logps, ref_logps) + 1,
    },
)
def _(ratio_minus_one, draw: Draw) -> Iterator[Comparison]:
    p, q = two(draw)
    yield _mean(ratio_minus_one, p, q), torch.zeros(3)
    yield _mean(kl.k1, p, q) + _mean(ratio_minus_one, p, q), _mean(kl.k1, p, q)


@check(
    "eq:k3-control-variate",
    "step",
    "A term of mean zero does not change the expectation, whatever its coefficient.",
    of=equations.k1_with_control_variate,
    against="E[k1], for several coefficients",
    follows="eq:k3-zero-mean",
    wrong={
        "ratio upside down": lambda logps, ref_logps, *, weight: (
            kl.k1(logps, ref_logps) + weight * equations.ratio_minus_one(ref_logps, logps)
        ),
        "weight on k1 instead": lambda logps, ref_logps, *, weight: (
            weight * kl.k1(logps, ref_logps) + equations.ratio_minus_one(logps, ref_logps)
        ),
    },
)
def _(with_control, draw: Draw) -> Iterator[Comparison]:
    p, q = two(draw)
    for weight in (-1.0, 0.5, 2.0):
        yield _mean(with_control, p, q, weight=weight), _mean(kl.k1, p, q)


@check(
    "eq:k3-control-variate",
    "variance",
    "The optimal coefficient removes the part of k1's variance that r − 1 explains.",
    of=equations.k1_with_control_variate,
    against="least squares: −Cov(k1, r−1)/Var(r−1) leaves the residual of the regression of k1 on r−1",
    wrong={
        "sign of the correction": lambda logps, ref_logps, *, weight: equations.k1_with_control_variate(
            logps, ref_logps, weight=-weight
        ),
        "no correction": lambda logps, ref_logps, *, weight: kl.k1(logps, ref_logps),
    },
)
def _(with_control, draw: Draw) -> Comparison:
    p, q = draw.distribution(4), draw.distribution(4)
    x, y = q / p - 1, (p / q).log()
    centred = y - exact.expectation(p, y)
    covariance, variance = exact.expectation(p, centred * x), exact.expectation(p, x**2)
    got = with_control(p.log(), q.log(), weight=float(-covariance / variance))
    spread = exact.expectation(p, (got - exact.expectation(p, got)) ** 2)
    # Residual variance by solving the weighted regression on (1, x) numerically.
    design = torch.stack([torch.ones(4, dtype=torch.float64), x], -1) * p.sqrt()[:, None]
    solution = torch.linalg.lstsq(design, (y * p.sqrt())[:, None]).solution
    return spread, ((design @ solution)[:, 0] - y * p.sqrt()).square().sum()


@check(
    "eq:k3",
    "step",
    "k3 is the member of the family whose weight is 1, sample by sample.",
    of=kl.k3,
    against="k1 with its control variate at weight 1",
    follows="eq:k3-control-variate",
    wrong={
        REVERSED_RATIO: swapped(kl.k3),
        "r − 1 forgotten": kl.k1,
        "+ log r": lambda logps, ref_logps: equations.ratio_minus_one(logps, ref_logps) - kl.k1(logps, ref_logps),
    },
)
def _(k3, draw: Draw) -> Comparison:
    p, q = two(draw)
    return k3(p.log(), q.log()), equations.k1_with_control_variate(p.log(), q.log(), weight=1.0)


@check(
    "eq:k3",
    "value",
    "The expectation of k3 under π is KL(π‖π_ref).",
    of=kl.k3,
    against="KL summed over all outcomes; in closed form for two Gaussians",
    wrong={REVERSED_RATIO: swapped(kl.k3), "k2 instead": kl.k2},
)
def _(k3, draw: Draw) -> Iterator[Comparison]:
    p, q = two(draw)
    yield _mean(k3, p, q), exact.divergence(p, q)
    shift = float(draw.uniform(low=0.3, high=1.0))
    yield _gaussian_mean(k3, shift), shift**2 / 2


@check(
    "eq:k3-nonnegative",
    "step",
    "The integrand is positive on either side of 0, so no sample gives a negative value.",
    of=kl.k3,
    against="∫ (u − s) eˢ ds from 0 to u = log r, the remainder of eᵘ after its tangent 1 + u",
    follows="eq:k3",
    wrong={"k1, which goes below zero": kl.k1, REVERSED_RATIO: swapped(kl.k3)},
)
def _(k3, draw: Draw) -> Iterator[Comparison]:
    log_r = draw.away_from([0.0], 4, low=-2.0, high=2.0, margin=0.3)
    logps = draw.logps(4)
    yield k3(logps, logps + log_r), torch.stack([_remainder(u) for u in log_r.tolist()])
    yield k3(logps, logps), torch.zeros(4)


def _remainder(u: float) -> Tensor:
    return exact.integrate(lambda s: (u - s) * s.exp(), 0.0, u, nodes=12)


@check(
    "eq:k3-gradient",
    "step",
    "The derivative of the integral is dk3/dlogps = 1 − r.",
    of=kl.k3,
    against="finite differences of the integral in log π",
    follows="eq:k3-nonnegative",
    wrong={"k1: gradient 1 whatever the sample": kl.k1, "k2: gradient −log r": kl.k2},
)
def _(k3, draw: Draw) -> Comparison:
    logps = draw.logps(2).requires_grad_()
    log_r = draw.uniform(2, low=0.3, high=2.0) * torch.tensor([1.0, -1.0], dtype=torch.float64)
    ref_logps = logps.detach() + log_r
    (got,) = torch.autograd.grad(k3(logps, ref_logps).sum(), logps)
    integral = lambda x: torch.stack([_remainder(u) for u in (ref_logps - x).tolist()]).sum()
    return got, exact.finite_difference(integral, logps)


@check(
    "eq:k3-gradient",
    "value",
    "Used as a loss, k3 has the gradient of the forward KL on average, though its value estimates the reverse one.",
    of=kl.k3,
    against="finite differences of KL(π_ref‖π)",
    wrong={"k2: the gradient of KL(π‖π_ref)": kl.k2, "k1: no gradient": kl.k1},
)
def _(k3, draw: Draw) -> Comparison:
    p, q = two(draw)
    return _loss_gradient(k3, p, q), _true_gradient(p, lambda x: exact.divergence(q, x))


@check(
    "eq:full-kl",
    "value",
    "In expectation over the responses of π, the KLs of the positions sum to the KL of the responses.",
    of=kl.full_kl,
    against="KL between the distributions of whole responses of two toy language models",
    wrong={
        "forward at every position": lambda logits, ref_logits, mask: kl.full_kl(ref_logits, logits, mask),
        "mean over positions": lambda logits, ref_logits, mask: kl.full_kl(logits, ref_logits, mask) / mask.sum(-1),
        "padding counted": lambda logits, ref_logits, mask: kl.full_kl(logits, ref_logits, torch.ones_like(mask)),
        "first position left out": lambda logits, ref_logits, mask: (
            kl.full_kl(logits, ref_logits, mask) - kl.reverse_kl(logits, ref_logits)[:, 0]
        ),
    },
)
def _(full_kl, draw: Draw) -> Iterator[Comparison]:
    policy, reference = draw.toy(3, 3, num_prompts=3), draw.toy(3, 3, num_prompts=3)
    for prompt in range(3):
        batch = policy.batch(prompt)
        logits, ref_logits = (lm(**batch).logits[:, :-1].detach() for lm in (policy, reference))
        # Padding rows hold zeros there; give them something that would count if it were not masked.
        logits = torch.where(batch["mask"][..., None], logits, draw.normal(*logits.shape))
        probs, ref = policy.distribution()[prompt].detach(), reference.distribution()[prompt].detach()
        yield exact.expectation(probs, full_kl(logits, ref_logits, batch["mask"])), exact.divergence(probs, ref)


@check(
    "eq:kl-in-reward",
    "gradient",
    "REINFORCE on the reward minus the KL penalty, both without gradient, follows the gradient of the "
    "KL-regularised objective.",
    of=rlhf.regularised_return,
    against="gradient of the objective of a toy language model, every response summed",
    wrong={
        "reward without the KL": lambda logps, ref_logps, rewards, mask, *, beta: rewards + 0.0 * logps.sum(-1),
        "k3 instead of k1 in the reward": lambda logps, ref_logps, rewards, mask, *, beta: (
            rewards - beta * torch.where(mask, kl.k3(logps, ref_logps), 0.0).sum(-1)
        ),
        "log-ratio reversed": lambda logps, ref_logps, rewards, mask, *, beta: rlhf.regularised_return(
            ref_logps, logps, rewards, mask, beta=beta
        ),
    },
)
def _(regularised_return, draw: Draw) -> Comparison:
    policy, reference, beta = draw.toy(3, 2), draw.toy(3, 2), float(draw.uniform(low=0.5, high=1.5))
    ref, ref_logps = reference.distribution()[0].detach(), reference.completion_token_logps()[0].detach()
    rewards = draw.normal(len(ref))
    logps = policy.completion_token_logps()[0]
    returns = regularised_return(logps.detach(), ref_logps, rewards, policy.completions().mask, beta=beta)
    probs = policy.distribution()[0]
    surrogate = (probs.detach() * returns * logps.sum(-1)).sum()
    objective = exact.regularised_value(probs, ref, rewards, beta)
    (got,) = torch.autograd.grad(surrogate, policy.table, retain_graph=True)
    (expected,) = torch.autograd.grad(objective, policy.table)
    return got, expected
