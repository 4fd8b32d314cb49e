"""The ledger of chapter 09: f-divergences."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.equations import kl
from minirlhf_course.chapters.ch09_regularisation.divergences import Divergence, two, zigzag
from minirlhf_course.ledger.registry import Comparison, Draw, check


@check(
    "eq:f-divergence",
    "duality",
    "Forward and reverse KL are dual, as are α and 1−α; the divergence of equal distributions is 0.",
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
    p, q = two(draw)
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


@check(
    "eq:f-divergence",
    "small differences",
    "For small differences all smooth f-divergences are the same quadratic form.",
    of=kl.f_divergence,
    against="½ f″(1) Σ (p − q)²/q, with f″(1) = 1 for the KLs and the α-divergence, ¼ for Jensen–Shannon",
    tolerance=2e-6,
    wrong={
        "twice, as some papers scale them": lambda f, logits, ref_logits: 2 * kl.f_divergence(f, logits, ref_logits),
        "expectation under both": lambda f, logits, ref_logits: (
            kl.f_divergence(f, logits, ref_logits) + kl.f_divergence(f, ref_logits, logits)
        ),
    },
)
def _(f_divergence, draw: Draw) -> Iterator[Comparison]:
    q, direction, h = draw.distribution(4), zigzag(draw), 2e-4
    direction = direction - exact.expectation(q, direction)
    quadratic = 0.5 * exact.expectation(q, direction**2)
    smooth = [(kl.f_reverse_kl, 1.0), (kl.f_forward_kl, 1.0), (kl.f_jensen_shannon, 0.25)]
    for f, curvature in [*smooth, (lambda u: kl.f_alpha(u, alpha=0.3), 1.0)]:
        # The odd orders in h cancel between h and −h.
        there, back = (f_divergence(f, (q * (1 + step * direction)).log(), q.log()) for step in (h, -h))
        yield (there + back) / (2 * h**2), curvature * quadratic


def _by(f: Divergence, p: Tensor, q: Tensor) -> Tensor:
    return kl.f_divergence(f, p.log(), q.log())


@check(
    "eq:f-reverse-kl",
    "value",
    "t log t gives KL(π‖π_ref).",
    of=kl.f_reverse_kl,
    against="Σ p (log p − log q)",
    wrong={"forward instead of reverse": kl.f_forward_kl},
)
def _(f, draw: Draw) -> Comparison:
    p, q = two(draw)
    return _by(f, p, q), exact.divergence(p, q)


@check(
    "eq:f-forward-kl",
    "value",
    "−log t gives KL(π_ref‖π).",
    of=kl.f_forward_kl,
    against="Σ q (log q − log p)",
    wrong={"reverse instead of forward": kl.f_reverse_kl},
)
def _(f, draw: Draw) -> Comparison:
    p, q = two(draw)
    return _by(f, p, q), exact.divergence(q, p)


@check(
    "eq:f-jensen-shannon",
    "value",
    "The f of the Jensen–Shannon divergence.",
    of=kl.f_jensen_shannon,
    against="entropy of the mixture minus mean entropy of the two",
    wrong={
        "½ forgotten": lambda u: 2 * kl.f_jensen_shannon(u),
        "mixture not halved": lambda u: 0.5 * (u.exp() * u - (u.exp() + 1) * (u.exp() + 1).log()),
    },
)
def _(f, draw: Draw) -> Comparison:
    p, q = two(draw)
    return _by(f, p, q), exact.entropy((p + q) / 2) - (exact.entropy(p) + exact.entropy(q)) / 2


@check(
    "eq:f-alpha",
    "value",
    "The α-divergence is one minus an overlap, and α = ½ is four times the squared Hellinger distance.",
    of=kl.f_alpha,
    against="(1 − Σ p^(1−α) q^α) / (α (1−α)), from the overlap of the two",
    wrong={
        "α and 1−α exchanged": lambda u, *, alpha: kl.f_alpha(u, alpha=1 - alpha),
        "not divided by α (1−α)": lambda u, *, alpha: alpha * (1 - alpha) * kl.f_alpha(u, alpha=alpha),
    },
)
def _(f_alpha, draw: Draw) -> Iterator[Comparison]:
    p, q = two(draw)
    alpha = float(draw.away_from([0.5], low=0.15, high=0.85, margin=0.1))
    overlap = (p ** (1 - alpha) * q**alpha).sum(-1)
    yield _by(lambda u: f_alpha(u, alpha=alpha), p, q), (1 - overlap) / (alpha * (1 - alpha))
    hellinger = 0.5 * ((p.sqrt() - q.sqrt()) ** 2).sum(-1)
    yield _by(lambda u: f_alpha(u, alpha=0.5), p, q), 4 * hellinger


@check(
    "eq:f-alpha",
    "limits",
    "The α-divergences connect the two KLs.",
    of=kl.f_alpha,
    against="reverse KL as α → 0, forward KL as α → 1",
    tolerance=1e-8,
    wrong={"α and 1−α exchanged": lambda u, *, alpha: kl.f_alpha(u, alpha=1 - alpha)},
)
def _(f_alpha, draw: Draw) -> Iterator[Comparison]:
    p, q = two(draw)
    near = lambda alpha: _by(lambda u: f_alpha(u, alpha=alpha), p, q)
    yield (near(1e-5) + near(-1e-5)) / 2, exact.divergence(p, q)
    yield (near(1 + 1e-5) + near(1 - 1e-5)) / 2, exact.divergence(q, p)


@check(
    "eq:f-chi-squared",
    "value",
    "The variance of the importance weights of samples from π_ref.",
    of=kl.f_chi_squared,
    against="Σ p²/q − 1",
    wrong={
        "half the square": lambda u: 0.5 * kl.f_chi_squared(u),
        "square of the log-ratio": lambda u: u**2,
    },
)
def _(f, draw: Draw) -> Comparison:
    p, q = two(draw)
    return _by(f, p, q), (p**2 / q).sum(-1) - 1


@check(
    "eq:f-total-variation",
    "value",
    "The largest difference in the probability of any event.",
    of=kl.f_total_variation,
    against="the maximum over all events",
    wrong={
        "½ forgotten": lambda u: 2 * kl.f_total_variation(u),
        "absolute log-ratio": lambda u: 0.5 * u.abs(),
    },
)
def _(f, draw: Draw) -> Comparison:
    p, q = two(draw)
    events = torch.tensor([[(event >> i) & 1 for i in range(4)] for event in range(16)], dtype=torch.float64)
    return _by(f, p, q), ((p - q) @ events.T).amax(-1)
