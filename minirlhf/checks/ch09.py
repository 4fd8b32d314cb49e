"""The ledger of chapter 09: divergences, their estimators, and what they do as losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.core.checks import Comparison, Draw, chain, check
from minirlhf.equations import kl, rlhf

chain(
    "k3",
    "The estimator k3: unbiased, never negative, and what it does as a loss",
    ["eq:k1", "eq:k3-zero-mean", "eq:k3-control-variate", "eq:k3", "eq:k3-nonnegative", "eq:k3-gradient"],
    module=__name__,
)

Estimator = Callable[..., Tensor]


def _two(draw: Draw, rows: int = 3, size: int = 4) -> tuple[Tensor, Tensor]:
    """Two lists of distributions, far enough from each other."""
    return draw.distribution(rows, size), draw.distribution(rows, size)


# -- exact divergences -------------------------------------------------------------------------------------------


def _swap(divergence: Estimator) -> Estimator:
    return lambda logits, ref_logits, **settings: divergence(ref_logits, logits, **settings)


@check(
    "eq:reverse-kl",
    "value",
    of=kl.reverse_kl,
    against="Σ p (log p − log q) of probabilities",
    wrong={
        "forward instead of reverse": kl.forward_kl,
        "logits not normalised": lambda logits, ref_logits: (logits.softmax(-1) * (logits - ref_logits)).sum(-1),
    },
)
def _(reverse_kl, draw: Draw) -> Comparison:
    "From logits, whatever constants were added to them."
    p, q = _two(draw)
    constants = draw.uniform(2, 3, 1, low=1.0, high=3.0)
    return reverse_kl(p.log() + constants[0], q.log() - constants[1]), exact.divergence(p, q)


@check(
    "eq:reverse-kl",
    "gradient",
    of=kl.reverse_kl,
    against="π (log π/π_ref − KL), the score function written out",
    wrong={
        "forward instead of reverse": kl.forward_kl,
        "policy in front of the logarithm detached": lambda logits, ref_logits: (
            logits.softmax(-1).detach() * (logits.log_softmax(-1) - ref_logits.log_softmax(-1))
        ).sum(-1),
    },
)
def _(reverse_kl, draw: Draw) -> Comparison:
    "Each token is pushed by how much more its log-ratio is than the average one."
    p, q = _two(draw)
    logits = p.log().requires_grad_()
    (got,) = torch.autograd.grad(reverse_kl(logits, q.log()).sum(), logits)
    return got, p * ((p / q).log() - exact.divergence(p, q)[:, None])


@check(
    "eq:forward-kl",
    "value",
    of=kl.forward_kl,
    against="cross-entropy minus entropy of the reference",
    wrong={
        "reverse instead of forward": kl.reverse_kl,
        "cross-entropy, entropy not taken away": lambda logits, ref_logits: (
            -(ref_logits.softmax(-1) * logits.log_softmax(-1)).sum(-1)
        ),
    },
)
def _(forward_kl, draw: Draw) -> Comparison:
    "The supervised loss is the forward KL plus a constant."
    p, q = _two(draw)
    return forward_kl(p.log(), q.log()), -(q * p.log()).sum(-1) - exact.entropy(q)


@check(
    "eq:forward-kl",
    "gradient",
    of=kl.forward_kl,
    against="π − π_ref, the gradient of supervised fine-tuning on data from π_ref",
    wrong={
        "reverse instead of forward": kl.reverse_kl,
        "arguments swapped": _swap(kl.forward_kl),
    },
)
def _(forward_kl, draw: Draw) -> Comparison:
    "Fine-tuning on samples of the reference minimises the forward KL."
    p, q = _two(draw)
    logits = p.log().requires_grad_()
    (got,) = torch.autograd.grad(forward_kl(logits, q.log()).sum(), logits)
    return got, p - q


@check(
    "eq:js-divergence",
    "value",
    of=kl.js_divergence,
    against="entropy of the mixture minus mean entropy of the two",
    wrong={
        "mean of the two KLs": lambda logits, ref_logits: (
            0.5 * (kl.reverse_kl(logits, ref_logits) + kl.forward_kl(logits, ref_logits))
        ),
        "mixture of logits instead of probabilities": lambda logits, ref_logits: (
            0.5
            * (kl.reverse_kl(logits, (logits + ref_logits) / 2) + kl.reverse_kl(ref_logits, (logits + ref_logits) / 2))
        ),
        "½ forgotten": lambda logits, ref_logits: 2 * kl.js_divergence(logits, ref_logits),
    },
)
def _(js_divergence, draw: Draw) -> Iterator[Comparison]:
    "What a sample tells about which of the two distributions it came from; log 2 if they do not overlap."
    p, q = _two(draw)
    yield js_divergence(p.log(), q.log()), exact.entropy((p + q) / 2) - (exact.entropy(p) + exact.entropy(q)) / 2
    apart = torch.eye(2, dtype=torch.float64).log()
    yield js_divergence(apart[0], apart[1]), math.log(2)


@check(
    "eq:generalised-jsd",
    "value",
    of=kl.generalised_jsd,
    against="entropy of the mixture minus the weighted entropies",
    wrong={
        "weights of the mixture exchanged": lambda logits, ref_logits, *, beta: kl.generalised_jsd(
            logits, ref_logits, beta=1 - beta
        ),
        "always the even mixture": lambda logits, ref_logits, *, beta: kl.js_divergence(logits, ref_logits),
        "weighted KLs without a mixture": lambda logits, ref_logits, *, beta: (
            beta * kl.forward_kl(logits, ref_logits) + (1 - beta) * kl.reverse_kl(logits, ref_logits)
        ),
    },
)
def _(generalised_jsd, draw: Draw) -> Comparison:
    "β is the share of the reference (the teacher) in the mixture."
    p, q = _two(draw)
    beta = float(draw.away_from([0.5], low=0.1, high=0.9, margin=0.1))
    mixture = beta * q + (1 - beta) * p
    expected = exact.entropy(mixture) - beta * exact.entropy(q) - (1 - beta) * exact.entropy(p)
    return generalised_jsd(p.log(), q.log(), beta=beta), expected


@check(
    "eq:generalised-jsd",
    "limits",
    of=kl.generalised_jsd,
    against="forward KL as β → 0, reverse KL as β → 1",
    tolerance=1e-7,
    wrong={
        "weights of the mixture exchanged": lambda logits, ref_logits, *, beta: kl.generalised_jsd(
            logits, ref_logits, beta=1 - beta
        )
    },
)
def _(generalised_jsd, draw: Draw) -> Iterator[Comparison]:
    "Divided by β or 1−β, which vanish, it tends to one KL or the other."
    p, q = _two(draw)
    # The term of order β cancels between β and 2β.
    near = lambda beta: generalised_jsd(p.log(), q.log(), beta=beta) / beta
    yield 2 * near(1e-5) - near(2e-5), exact.divergence(q, p)
    far = lambda rest: generalised_jsd(p.log(), q.log(), beta=1 - rest) / rest
    yield 2 * far(1e-5) - far(2e-5), exact.divergence(p, q)


# -- f-divergences -----------------------------------------------------------------------------------------------


@check(
    "eq:f-divergence",
    "duality",
    of=kl.f_divergence,
    against="the divergence of t f(1/t) with the two distributions exchanged",
    wrong={
        "expectation under the policy": lambda f, logits, ref_logits: (
            logits.softmax(-1) * f(logits.log_softmax(-1) - ref_logits.log_softmax(-1))
        ).sum(-1),
        "plain mean over the outcomes": lambda f, logits, ref_logits: f(
            logits.log_softmax(-1) - ref_logits.log_softmax(-1)
        ).mean(-1),
    },
)
def _(f_divergence, draw: Draw) -> Iterator[Comparison]:
    "Forward and reverse KL are each other's dual, as are α and 1−α; equal distributions are at distance 0."
    p, q = _two(draw)
    alpha = float(draw.uniform(low=0.2, high=0.4))
    dual = [
        (kl.f_reverse_kl, kl.f_forward_kl),
        (kl.f_jensen_shannon, kl.f_jensen_shannon),
        (kl.f_total_variation, kl.f_total_variation),
        (lambda u: kl.f_alpha(u, alpha=alpha), lambda u: kl.f_alpha(u, alpha=1 - alpha)),
    ]
    for f, g in dual:
        yield f_divergence(f, p.log(), q.log()), f_divergence(g, q.log(), p.log())
        yield f_divergence(f, p.log(), p.log()), torch.zeros(3)


def _zigzag(draw: Draw) -> Tensor:
    """A direction ``(4,)`` in which no two neighbours agree."""
    return draw.uniform(4, low=0.5, high=1.5) * torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)


@check(
    "eq:f-divergence",
    "small differences",
    of=kl.f_divergence,
    against="½ f″(1) Σ (p − q)²/q, with f″(1) = 1 for the KLs and the α-divergence, ¼ for Jensen–Shannon",
    tolerance=1e-5,
    wrong={
        "twice, as some papers scale them": lambda f, logits, ref_logits: 2 * kl.f_divergence(f, logits, ref_logits),
        "expectation under both": lambda f, logits, ref_logits: (
            kl.f_divergence(f, logits, ref_logits) + kl.f_divergence(f, ref_logits, logits)
        ),
    },
)
def _(f_divergence, draw: Draw) -> Iterator[Comparison]:
    "Close to each other all smooth f-divergences are the same quadratic form."
    q, direction, h = draw.distribution(4), _zigzag(draw), 3e-4
    direction = direction - exact.expectation(q, direction)
    quadratic = 0.5 * exact.expectation(q, direction**2)
    smooth = [(kl.f_reverse_kl, 1.0), (kl.f_forward_kl, 1.0), (kl.f_jensen_shannon, 0.25)]
    for f, curvature in [*smooth, (lambda u: kl.f_alpha(u, alpha=0.3), 1.0)]:
        # The odd orders in h cancel between h and −h.
        there, back = (f_divergence(f, (q * (1 + step * direction)).log(), q.log()) for step in (h, -h))
        yield (there + back) / (2 * h**2), curvature * quadratic


def _by(f: Estimator, p: Tensor, q: Tensor) -> Tensor:
    return kl.f_divergence(f, p.log(), q.log())


@check(
    "eq:f-reverse-kl",
    "value",
    of=kl.f_reverse_kl,
    against="Σ p (log p − log q)",
    wrong={"forward instead of reverse": kl.f_forward_kl},
)
def _(f, draw: Draw) -> Comparison:
    "t log t gives KL(π‖π_ref)."
    p, q = _two(draw)
    return _by(f, p, q), exact.divergence(p, q)


@check(
    "eq:f-forward-kl",
    "value",
    of=kl.f_forward_kl,
    against="Σ q (log q − log p)",
    wrong={"reverse instead of forward": kl.f_reverse_kl},
)
def _(f, draw: Draw) -> Comparison:
    "−log t gives KL(π_ref‖π)."
    p, q = _two(draw)
    return _by(f, p, q), exact.divergence(q, p)


@check(
    "eq:f-jensen-shannon",
    "value",
    of=kl.f_jensen_shannon,
    against="entropy of the mixture minus mean entropy of the two",
    wrong={
        "½ forgotten": lambda u: 2 * kl.f_jensen_shannon(u),
        "mixture not halved": lambda u: 0.5 * (u.exp() * u - (u.exp() + 1) * (u.exp() + 1).log()),
    },
)
def _(f, draw: Draw) -> Comparison:
    "The f of the Jensen–Shannon divergence."
    p, q = _two(draw)
    return _by(f, p, q), exact.entropy((p + q) / 2) - (exact.entropy(p) + exact.entropy(q)) / 2


@check(
    "eq:f-alpha",
    "value",
    of=kl.f_alpha,
    against="(1 − Σ p^(1−α) q^α) / (α (1−α)), from the overlap of the two",
    wrong={
        "α and 1−α exchanged": lambda u, *, alpha: kl.f_alpha(u, alpha=1 - alpha),
        "not divided by α (1−α)": lambda u, *, alpha: alpha * (1 - alpha) * kl.f_alpha(u, alpha=alpha),
    },
)
def _(f_alpha, draw: Draw) -> Iterator[Comparison]:
    "The α-divergence is one minus an overlap, and α = ½ is four times the squared Hellinger distance."
    p, q = _two(draw)
    alpha = float(draw.away_from([0.5], low=0.15, high=0.85, margin=0.1))
    overlap = (p ** (1 - alpha) * q**alpha).sum(-1)
    yield _by(lambda u: f_alpha(u, alpha=alpha), p, q), (1 - overlap) / (alpha * (1 - alpha))
    hellinger = 0.5 * ((p.sqrt() - q.sqrt()) ** 2).sum(-1)
    yield _by(lambda u: f_alpha(u, alpha=0.5), p, q), 4 * hellinger


@check(
    "eq:f-alpha",
    "limits",
    of=kl.f_alpha,
    against="reverse KL as α → 0, forward KL as α → 1",
    tolerance=1e-7,
    wrong={"α and 1−α exchanged": lambda u, *, alpha: kl.f_alpha(u, alpha=1 - alpha)},
)
def _(f_alpha, draw: Draw) -> Iterator[Comparison]:
    "Between the two KLs lies a family."
    p, q = _two(draw)
    near = lambda alpha: _by(lambda u: f_alpha(u, alpha=alpha), p, q)
    yield (near(1e-5) + near(-1e-5)) / 2, exact.divergence(p, q)
    yield (near(1 + 1e-5) + near(1 - 1e-5)) / 2, exact.divergence(q, p)


@check(
    "eq:f-chi-squared",
    "value",
    of=kl.f_chi_squared,
    against="Σ p²/q − 1, the variance of the importance weight",
    wrong={
        "half the square": lambda u: 0.5 * kl.f_chi_squared(u),
        "square of the log-ratio": lambda u: u**2,
    },
)
def _(f, draw: Draw) -> Comparison:
    "How noisy importance sampling from π_ref would be."
    p, q = _two(draw)
    return _by(f, p, q), (p**2 / q).sum(-1) - 1


@check(
    "eq:f-total-variation",
    "value",
    of=kl.f_total_variation,
    against="the largest difference in the probability of any event, over all events",
    wrong={
        "½ forgotten": lambda u: 2 * kl.f_total_variation(u),
        "absolute log-ratio": lambda u: 0.5 * u.abs(),
    },
)
def _(f, draw: Draw) -> Comparison:
    "No event is more than this much likelier under one distribution than under the other."
    p, q = _two(draw)
    events = torch.tensor([[(event >> i) & 1 for i in range(4)] for event in range(16)], dtype=torch.float64)
    return _by(f, p, q), ((p - q) @ events.T).amax(-1)


# -- estimators --------------------------------------------------------------------------------------------------


def _mean(estimator: Estimator, p: Tensor, q: Tensor, **settings: float) -> Tensor:
    """Expectation of an estimator over samples of p, by summation."""
    return exact.expectation(p, estimator(p.log(), q.log(), **settings))


def _loss_gradient(estimator: Estimator, p: Tensor, q: Tensor) -> Tensor:
    """Expected gradient when the estimator of a sample is used as a loss: the sampling itself is not differentiated."""
    logits = p.log().requires_grad_()
    (gradient,) = torch.autograd.grad((p * estimator(logits.log_softmax(-1), q.log())).sum(), logits)
    return gradient


def _true_gradient(p: Tensor, value: Callable[[Tensor], Tensor]) -> Tensor:
    return exact.finite_difference(lambda logits: value(logits.softmax(-1)).sum(), p.log())


def _gaussian_mean(estimator: Estimator, shift: float) -> Tensor:
    """Expectation of an estimator of KL(N(0,1) ‖ N(shift,1)) by quadrature."""
    logp = lambda x, mean: -0.5 * (x - mean) ** 2 - 0.5 * math.log(2 * math.pi)
    return exact.gaussian_expectation(lambda x: estimator(logp(x, 0.0), logp(x, shift)), nodes=40)


REVERSED_RATIO = "log-ratio reversed"


@check(
    "eq:k1",
    "value",
    of=kl.k1,
    against="KL summed over all outcomes; in closed form for two Gaussians",
    wrong={REVERSED_RATIO: _swap(kl.k1), "absolute value": lambda logps, ref_logps: kl.k1(logps, ref_logps).abs()},
)
def _(k1, draw: Draw) -> Iterator[Comparison]:
    "The expectation of k1 under π is KL(π‖π_ref)."
    p, q = _two(draw)
    yield _mean(k1, p, q), exact.divergence(p, q)
    shift = float(draw.uniform(low=0.3, high=1.0))
    yield _gaussian_mean(k1, shift), shift**2 / 2


@check(
    "eq:k1",
    "gradient",
    of=kl.k1,
    against="zero",
    wrong={"k2 instead of k1": kl.k2, "k3 instead of k1": kl.k3},
)
def _(k1, draw: Draw) -> Comparison:
    "Used as a loss, k1 has no gradient on average: E[∇ log π] = 0."
    p, q = _two(draw)
    return _loss_gradient(k1, p, q), torch.zeros(3, 4)


@check(
    "eq:k2",
    "value",
    of=kl.k2,
    against="½ E[(log-ratio)²] of two Gaussians in closed form: KL (1 + KL/2)",
    wrong={"½ forgotten": lambda logps, ref_logps: 2 * kl.k2(logps, ref_logps), "unbiased instead": kl.k3},
)
def _(k2, draw: Draw) -> Comparison:
    "Biased: for unit Gaussians its expectation is too large by KL²/2."
    shift = float(draw.uniform(low=0.3, high=1.0))
    divergence = shift**2 / 2
    return _gaussian_mean(k2, shift), divergence * (1 + divergence / 2)


@check(
    "eq:k2",
    "small differences",
    of=kl.k2,
    against="KL, both divided by the squared step",
    tolerance=1e-5,
    wrong={
        "½ forgotten": lambda logps, ref_logps: 2 * kl.k2(logps, ref_logps),
        "square of the ratio's difference from one, not halved": lambda logps, ref_logps: (
            kl.ratio_minus_one(logps, ref_logps) ** 2
        ),
    },
)
def _(k2, draw: Draw) -> Comparison:
    "Near the reference the bias is of third order: small against the KL itself."
    p, direction, h = draw.distribution(4), _zigzag(draw), 3e-4
    ends = [(p.log() + sign * h * direction).softmax(-1) for sign in (1, -1)]
    # The third order cancels between the two directions.
    got = sum((_mean(k2, p, q) for q in ends), torch.zeros(())) / (2 * h**2)
    return got, sum((exact.divergence(p, q) for q in ends), torch.zeros(())) / (2 * h**2)


@check(
    "eq:k2",
    "gradient",
    of=kl.k2,
    against="finite differences of KL(π‖π_ref)",
    wrong={"k3 instead of k2": kl.k3, "k1 instead of k2": kl.k1},
)
def _(k2, draw: Draw) -> Comparison:
    "Used as a loss, k2 has the gradient of the reverse KL on average, though its value is biased."
    p, q = _two(draw)
    return _loss_gradient(k2, p, q), _true_gradient(p, lambda x: exact.divergence(x, q))


@check(
    "eq:k3-zero-mean",
    "step",
    of=kl.ratio_minus_one,
    against="what it leaves of E[k1] when added: nothing",
    follows="eq:k1",
    wrong={
        "ratio upside down": _swap(kl.ratio_minus_one),
        "log r instead of r − 1": lambda logps, ref_logps: ref_logps - logps,
        "one forgotten": lambda logps, ref_logps: kl.ratio_minus_one(logps, ref_logps) + 1,
    },
)
def _(ratio_minus_one, draw: Draw) -> Iterator[Comparison]:
    "Σ π (π_ref/π − 1) = 1 − 1: adding r − 1 to k1 leaves its expectation alone."
    p, q = _two(draw)
    yield _mean(ratio_minus_one, p, q), torch.zeros(3)
    yield _mean(kl.k1, p, q) + _mean(ratio_minus_one, p, q), _mean(kl.k1, p, q)


@check(
    "eq:k3-control-variate",
    "step",
    of=kl.k1_with_control_variate,
    against="E[k1], at several weights",
    follows="eq:k3-zero-mean",
    wrong={
        "ratio upside down": lambda logps, ref_logps, *, weight: (
            kl.k1(logps, ref_logps) + weight * kl.ratio_minus_one(ref_logps, logps)
        ),
        "weight on k1 instead": lambda logps, ref_logps, *, weight: (
            weight * kl.k1(logps, ref_logps) + kl.ratio_minus_one(logps, ref_logps)
        ),
    },
)
def _(with_control, draw: Draw) -> Iterator[Comparison]:
    "Something of mean zero, at any weight, leaves the expectation what it was."
    p, q = _two(draw)
    for weight in (-1.0, 0.5, 2.0):
        yield _mean(with_control, p, q, weight=weight), _mean(kl.k1, p, q)


@check(
    "eq:k3-control-variate",
    "variance",
    of=kl.k1_with_control_variate,
    against="least squares: −Cov(k1, r−1)/Var(r−1) leaves the residual of the regression of k1 on r−1",
    wrong={
        "sign of the correction": lambda logps, ref_logps, *, weight: kl.k1_with_control_variate(
            logps, ref_logps, weight=-weight
        ),
        "no correction": lambda logps, ref_logps, *, weight: kl.k1(logps, ref_logps),
    },
)
def _(with_control, draw: Draw) -> Comparison:
    "The best weight removes the part of k1's variance that r − 1 explains."
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
    of=kl.k3,
    against="k1 with its control variate at weight 1",
    follows="eq:k3-control-variate",
    wrong={
        REVERSED_RATIO: _swap(kl.k3),
        "r − 1 forgotten": kl.k1,
        "+ log r": lambda logps, ref_logps: kl.ratio_minus_one(logps, ref_logps) - kl.k1(logps, ref_logps),
    },
)
def _(k3, draw: Draw) -> Comparison:
    "k3 is the member of the family whose weight is 1, sample by sample."
    p, q = _two(draw)
    return k3(p.log(), q.log()), kl.k1_with_control_variate(p.log(), q.log(), weight=1.0)


@check(
    "eq:k3",
    "value",
    of=kl.k3,
    against="KL summed over all outcomes; in closed form for two Gaussians",
    wrong={REVERSED_RATIO: _swap(kl.k3), "k2 instead": kl.k2},
)
def _(k3, draw: Draw) -> Iterator[Comparison]:
    "The expectation of k3 under π is KL(π‖π_ref)."
    p, q = _two(draw)
    yield _mean(k3, p, q), exact.divergence(p, q)
    shift = float(draw.uniform(low=0.3, high=1.0))
    yield _gaussian_mean(k3, shift), shift**2 / 2


@check(
    "eq:k3-nonnegative",
    "step",
    of=kl.k3,
    against="∫ (u − s) eˢ ds from 0 to u = log r, the remainder of eᵘ after its tangent 1 + u",
    follows="eq:k3",
    wrong={"k1, which goes below zero": kl.k1, REVERSED_RATIO: _swap(kl.k3)},
)
def _(k3, draw: Draw) -> Iterator[Comparison]:
    "On either side of 0 the integral runs over something positive, so no sample gives a negative value."
    log_r = draw.away_from([0.0], 4, low=-2.0, high=2.0, margin=0.3)
    logps = draw.logps(4)
    yield k3(logps, logps + log_r), torch.stack([_remainder(u) for u in log_r.tolist()])
    yield k3(logps, logps), torch.zeros(4)


def _remainder(u: float) -> Tensor:
    return exact.integrate(lambda s: (u - s) * s.exp(), 0.0, u, nodes=12)


@check(
    "eq:k3-gradient",
    "step",
    of=kl.k3,
    against="finite differences of the integral in log π",
    follows="eq:k3-nonnegative",
    wrong={"k1: gradient 1 whatever the sample": kl.k1, "k2: gradient −log r": kl.k2},
)
def _(k3, draw: Draw) -> Comparison:
    "Differentiating the integral leaves dk3/dlogps = 1 − r."
    logps = draw.logps(2).requires_grad_()
    log_r = draw.uniform(2, low=0.3, high=2.0) * torch.tensor([1.0, -1.0], dtype=torch.float64)
    ref_logps = logps.detach() + log_r
    (got,) = torch.autograd.grad(k3(logps, ref_logps).sum(), logps)
    integral = lambda x: torch.stack([_remainder(u) for u in (ref_logps - x).tolist()]).sum()
    return got, exact.finite_difference(integral, logps)


@check(
    "eq:k3-gradient",
    "value",
    of=kl.k3,
    against="finite differences of KL(π_ref‖π)",
    wrong={"k2: the gradient of KL(π‖π_ref)": kl.k2, "k1: no gradient": kl.k1},
)
def _(k3, draw: Draw) -> Comparison:
    "Used as a loss, k3 has the gradient of the forward KL on average, though its value estimates the reverse one."
    p, q = _two(draw)
    return _loss_gradient(k3, p, q), _true_gradient(p, lambda x: exact.divergence(q, x))


@check(
    "eq:full-kl",
    "value",
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
def _(full_kl, draw: Draw) -> Comparison:
    "Expected over the responses of π, the KLs of the positions add up to the KL of the responses."
    policy, reference = draw.toy(3, 3), draw.toy(3, 3)
    batch = policy.batch()
    logits, ref_logits = (lm(**batch).logits[:, :-1].detach() for lm in (policy, reference))
    # Padding rows hold zeros there; give them something that would count if it were not masked.
    padding = ~batch["mask"][..., None]
    logits = torch.where(padding, draw.normal(*logits.shape), logits)
    probs, ref = policy.distribution()[0].detach(), reference.distribution()[0].detach()
    return exact.expectation(probs, full_kl(logits, ref_logits, batch["mask"])), exact.divergence(probs, ref)


@check(
    "eq:kl-in-reward",
    "gradient",
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
    "REINFORCE on the reward with its KL penalty, both held fixed, climbs the KL-regularised objective."
    policy, reference, beta = draw.toy(3, 2), draw.toy(3, 2), float(draw.uniform(low=0.5, high=1.5))
    ref, ref_logps = reference.distribution()[0].detach(), reference.response_token_logps()[0].detach()
    rewards = draw.normal(len(ref))
    logps = policy.response_token_logps()[0]
    returns = regularised_return(logps.detach(), ref_logps, rewards, policy.responses().mask, beta=beta)
    probs = policy.distribution()[0]
    surrogate = (probs.detach() * returns * logps.sum(-1)).sum()
    objective = exact.regularised_value(probs, ref, rewards, beta)
    (got,) = torch.autograd.grad(surrogate, policy.table, retain_graph=True)
    (expected,) = torch.autograd.grad(objective, policy.table)
    return got, expected


# -- keeping it in bounds ----------------------------------------------------------------------------------------


@check(
    "eq:adaptive-kl",
    "fixed point",
    of=kl.adaptive_kl_beta,
    against="the β whose optimal policy has the target KL, by bisection",
    wrong={
        "too much KL lowers β": lambda beta, observed, *, target, horizon, num_samples: (
            beta**2 / kl.adaptive_kl_beta(beta, observed, target=target, horizon=horizon, num_samples=num_samples)
        ),
        "error not relative to the target": lambda beta, observed, *, target, horizon, num_samples: (
            beta * (1 + min(max(observed - 1.0, -0.2), 0.2) * num_samples / horizon)
        ),
    },
)
def _(adaptive, draw: Draw) -> Comparison:
    "In closed loop with a policy that is always optimal for its β, β settles where the KL is the target."
    ref = draw.distribution(4)
    rewards = draw.permutation(4).double()
    target = 0.4 * min(1.5, -float(ref[rewards.argmax()].log()))

    def spent(beta: float) -> float:
        return float(exact.divergence((ref.log() + rewards / beta).softmax(-1), ref))

    beta = 1.0
    for _ in range(200):
        beta = adaptive(beta, spent(beta), target=target, horizon=1000.0, num_samples=500)
    low, high = 1e-2, 1e3
    for _ in range(50):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if spent(middle) > target else (low, middle)
    return beta, low


@check(
    "eq:adaptive-kl",
    "step size",
    of=kl.adaptive_kl_beta,
    against="the definition at its corners: no error, errors inside and beyond the clip",
    wrong={
        "not clipped": lambda beta, observed, *, target, horizon, num_samples: (
            beta * (1 + (observed / target - 1) * num_samples / horizon)
        ),
        "samples not counted": lambda beta, observed, *, target, horizon, num_samples: kl.adaptive_kl_beta(
            beta, observed, target=target, horizon=horizon
        ),
    },
)
def _(adaptive, draw: Draw) -> Iterator[Comparison]:
    "On target nothing changes; off target β moves in proportion, by at most a fifth of num_samples/horizon."
    beta, target = (float(draw.uniform(low=0.5, high=2.0)) for _ in range(2))
    relative = lambda observed: adaptive(beta, observed, target=target, horizon=100.0, num_samples=10) / beta - 1
    yield relative(target), 0.0
    yield relative(1.1 * target), 0.01
    yield relative(0.9 * target), -0.01
    yield relative(100 * target), 0.02
    yield relative(-100 * target), -0.02


@check(
    "eq:entropy-bonus",
    "value",
    of=kl.entropy_bonus,
    against="log V minus the KL to the uniform distribution",
    wrong={
        "sign": lambda logits, *, coef: -kl.entropy_bonus(logits, coef=coef),
        "in bits": lambda logits, *, coef: kl.entropy_bonus(logits, coef=coef) / math.log(2),
        "surprise of the likeliest token": lambda logits, *, coef: -coef * logits.log_softmax(-1).amax(-1),
    },
)
def _(entropy_bonus, draw: Draw) -> Comparison:
    "Paying for entropy is a KL penalty towards the uniform distribution, plus a constant."
    p, coef = draw.distribution(3, 4), float(draw.uniform(low=0.5, high=2.0))
    uniform = torch.full((3, 4), 0.25, dtype=torch.float64)
    return entropy_bonus(p.log() + 1.5, coef=coef), coef * (math.log(4) - exact.divergence(p, uniform))


@check(
    "eq:entropy-bonus",
    "gradient",
    of=kl.entropy_bonus,
    against="finite differences of −Σ p log p",
    wrong={
        "sampled log-probs as a loss: no gradient on average": lambda logits, *, coef: (
            -coef * (logits.softmax(-1).detach() * logits.log_softmax(-1)).sum(-1)
        ),
    },
)
def _(entropy_bonus, draw: Draw) -> Comparison:
    "The gradient raises what is less likely than average and lowers the rest."
    logits, coef = draw.normal(2, 4).requires_grad_(), float(draw.uniform(low=0.5, high=2.0))
    (got,) = torch.autograd.grad(entropy_bonus(logits, coef=coef).sum(), logits)
    return got, coef * exact.finite_difference(
        lambda x: exact.entropy(x.exp() / x.exp().sum(-1, keepdim=True)).sum(), logits
    )
