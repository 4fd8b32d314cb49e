"""The ledger of chapter 09: exact divergences, and what keeps them in bounds."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.equations import kl
from minirlhf_course.chapters.ch09_regularisation import equations
from minirlhf_course.chapters.ch09_regularisation.divergences import swapped, two
from minirlhf_course.ledger.registry import Comparison, Draw, check

# -- exact divergences -------------------------------------------------------------------------------------------


def _with(probs: Tensor, kept: float) -> Tensor:
    """The same distributions with one more outcome, which has what they do not keep."""
    return torch.cat([kept * probs, torch.full((len(probs), 1), 1 - kept, dtype=torch.float64)], 1)


@check(
    "eq:reverse-kl",
    "value",
    "Computed from logits, whatever constants are added to them; a token with probability 0 under π has no term "
    "of its own and matters only by its probability under π_ref.",
    of=kl.reverse_kl,
    against="Σ p (log p − log q) of probabilities",
    wrong={
        "forward instead of reverse": kl.forward_kl,
        "logits not normalised": lambda logits, ref_logits: (logits.softmax(-1) * (logits - ref_logits)).sum(-1),
    },
)
def _(reverse_kl, draw: Draw) -> Iterator[Comparison]:
    p, q = two(draw)
    constants = draw.uniform(2, 3, 1, low=1.0, high=3.0)
    yield reverse_kl(p.log() + constants[0], q.log() - constants[1]), exact.divergence(p, q)
    share = float(draw.uniform(low=0.2, high=0.8))
    for kept in (share, 1.0):  # the reference gives the forbidden token the rest, which may be nothing
        wider = _with(p, 1.0).log(), _with(q, kept).log()
        yield reverse_kl(*wider), exact.divergence(p, q) - math.log(kept)
        logits = wider[0].requires_grad_()
        slope = exact.gradient(reverse_kl(logits, wider[1]).sum(), logits).view(logits.shape)
        yield slope, _with(p * ((p / q).log() - exact.divergence(p, q)[:, None]), 1.0)


@check(
    "eq:reverse-kl",
    "gradient",
    "The gradient with respect to each logit is π times the difference between its log-ratio and the mean log-ratio.",
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
    p, q = two(draw)
    logits = p.log().requires_grad_()
    (got,) = torch.autograd.grad(reverse_kl(logits, q.log()).sum(), logits)
    return got, p * ((p / q).log() - exact.divergence(p, q)[:, None])


@check(
    "eq:forward-kl",
    "value",
    "The supervised loss is the forward KL plus a constant.",
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
    p, q = two(draw)
    return forward_kl(p.log(), q.log()), -(q * p.log()).sum(-1) - exact.entropy(q)


@check(
    "eq:forward-kl",
    "gradient",
    "Fine-tuning on samples of the reference minimises the forward KL.",
    of=kl.forward_kl,
    against="π − π_ref, the gradient of supervised fine-tuning on data from π_ref",
    wrong={
        "reverse instead of forward": kl.reverse_kl,
        "arguments swapped": swapped(kl.forward_kl),
    },
)
def _(forward_kl, draw: Draw) -> Comparison:
    p, q = two(draw)
    logits = p.log().requires_grad_()
    (got,) = torch.autograd.grad(forward_kl(logits, q.log()).sum(), logits)
    return got, p - q


@check(
    "eq:js-divergence",
    "value",
    "The mutual information between a sample and the distribution that it came from; log 2 for disjoint supports.",
    of=equations.js_divergence,
    against="entropy of the mixture minus mean entropy of the two",
    wrong={
        "mean of the two KLs": lambda logits, ref_logits: (
            0.5 * (kl.reverse_kl(logits, ref_logits) + kl.forward_kl(logits, ref_logits))
        ),
        "mixture of logits instead of probabilities": lambda logits, ref_logits: (
            0.5
            * (kl.reverse_kl(logits, (logits + ref_logits) / 2) + kl.reverse_kl(ref_logits, (logits + ref_logits) / 2))
        ),
        "½ forgotten": lambda logits, ref_logits: 2 * equations.js_divergence(logits, ref_logits),
    },
)
def _(js_divergence, draw: Draw) -> Iterator[Comparison]:
    p, q = two(draw)
    yield js_divergence(p.log(), q.log()), exact.entropy((p + q) / 2) - (exact.entropy(p) + exact.entropy(q)) / 2
    apart = torch.eye(2, dtype=torch.float64).log()
    yield js_divergence(apart[0], apart[1]), math.log(2)


@check(
    "eq:generalised-jsd",
    "value",
    "β is the weight of the reference (the teacher) in the mixture; zero probabilities under either are allowed.",
    of=kl.generalised_jsd,
    against="entropy of the mixture minus the weighted entropies",
    wrong={
        "weights of the mixture exchanged": lambda logits, ref_logits, *, beta: kl.generalised_jsd(
            logits, ref_logits, beta=1 - beta
        ),
        "always the even mixture": lambda logits, ref_logits, *, beta: equations.js_divergence(logits, ref_logits),
        "weighted KLs without a mixture": lambda logits, ref_logits, *, beta: (
            beta * kl.forward_kl(logits, ref_logits) + (1 - beta) * kl.reverse_kl(logits, ref_logits)
        ),
    },
)
def _(generalised_jsd, draw: Draw) -> Iterator[Comparison]:
    p, q = two(draw)
    beta = float(draw.away_from([0.5], low=0.1, high=0.9, margin=0.1))
    mixture = beta * q + (1 - beta) * p
    expected = exact.entropy(mixture) - beta * exact.entropy(q) - (1 - beta) * exact.entropy(p)
    yield generalised_jsd(p.log(), q.log(), beta=beta), expected
    inside = q.log().requires_grad_()
    slope = exact.gradient(generalised_jsd(p.log(), inside, beta=beta).sum(), inside).view(q.shape)
    outside = _with(q, 1.0).log().requires_grad_()
    wider = generalised_jsd(_with(p, 1.0).log(), outside, beta=beta)
    yield wider, expected
    yield exact.gradient(wider.sum(), outside).view(outside.shape), _with(slope, 1.0)
    mixed = beta * _with(q, 0.6) + (1 - beta) * _with(p, 1.0)
    one_sided = exact.entropy(mixed) - beta * exact.entropy(_with(q, 0.6)) - (1 - beta) * exact.entropy(p)
    yield generalised_jsd(_with(p, 1.0).log(), _with(q, 0.6).log(), beta=beta), one_sided


@check(
    "eq:generalised-jsd",
    "limits",
    "Divided by β it converges to the forward KL as β → 0; divided by 1 − β, to the reverse KL as β → 1.",
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
    p, q = two(draw)
    # The term of order β cancels between β and 2β.
    near = lambda beta: generalised_jsd(p.log(), q.log(), beta=beta) / beta
    yield 2 * near(1e-6) - near(2e-6), exact.divergence(q, p)
    far = lambda rest: generalised_jsd(p.log(), q.log(), beta=1 - rest) / rest
    yield 2 * far(1e-6) - far(2e-6), exact.divergence(p, q)


# -- keeping it in bounds ----------------------------------------------------------------------------------------


@check(
    "eq:adaptive-kl",
    "fixed point",
    "With a policy that is always optimal for its β, β converges to the value at which the KL is the target.",
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
    "At the target β does not change; elsewhere it changes in proportion, by at most the fraction error_clip "
    "(0.2 by default) of num_samples/horizon.",
    of=kl.adaptive_kl_beta,
    against="the definition at its corners: no error, errors inside and beyond the clip",
    wrong={
        "not clipped": lambda beta, observed, *, target, horizon, num_samples, **_: (
            beta * (1 + (observed / target - 1) * num_samples / horizon)
        ),
        "samples not counted": lambda beta, observed, *, target, horizon, num_samples, **o: kl.adaptive_kl_beta(
            beta, observed, target=target, horizon=horizon, **o
        ),
    },
)
def _(adaptive, draw: Draw) -> Iterator[Comparison]:
    beta, target = (float(draw.uniform(low=0.5, high=2.0)) for _ in range(2))
    for options, most in (({}, 0.2), ({"error_clip": 0.15}, 0.15), ({"error_clip": 0.5}, 0.5)):
        relative = lambda observed, o=options: (
            adaptive(beta, observed, target=target, horizon=100.0, num_samples=10, **o) / beta - 1
        )
        yield relative(target), 0.0
        yield relative(1.1 * target), 0.01
        yield relative(0.9 * target), -0.01
        yield relative(100 * target), most / 10
        yield relative(-100 * target), -most / 10


@check(
    "eq:entropy-bonus",
    "value",
    "An entropy bonus is a KL penalty towards the uniform distribution, plus a constant.",
    of=kl.entropy_bonus,
    against="log V minus the KL to the uniform distribution",
    wrong={
        "sign": lambda logits, *, coef: -kl.entropy_bonus(logits, coef=coef),
        "in bits": lambda logits, *, coef: kl.entropy_bonus(logits, coef=coef) / math.log(2),
        "surprise of the likeliest token": lambda logits, *, coef: -coef * logits.log_softmax(-1).amax(-1),
    },
)
def _(entropy_bonus, draw: Draw) -> Comparison:
    p, coef = draw.distribution(3, 4), float(draw.uniform(low=0.5, high=2.0))
    uniform = torch.full((3, 4), 0.25, dtype=torch.float64)
    return entropy_bonus(p.log() + 1.5, coef=coef), coef * (math.log(4) - exact.divergence(p, uniform))


@check(
    "eq:entropy-bonus",
    "gradient",
    "The gradient raises tokens that are less probable than average and lowers the others.",
    of=kl.entropy_bonus,
    against="finite differences of −Σ p log p",
    wrong={
        "sampled log-probs as a loss: no gradient on average": lambda logits, *, coef: (
            -coef * (logits.softmax(-1).detach() * logits.log_softmax(-1)).sum(-1)
        ),
    },
)
def _(entropy_bonus, draw: Draw) -> Comparison:
    logits, coef = draw.normal(2, 4).requires_grad_(), float(draw.uniform(low=0.5, high=2.0))
    (got,) = torch.autograd.grad(entropy_bonus(logits, coef=coef).sum(), logits)
    return got, coef * exact.finite_difference(
        lambda x: exact.entropy(x.exp() / x.exp().sum(-1, keepdim=True)).sum(), logits
    )
