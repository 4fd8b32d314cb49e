"""The ledger of chapter 09: what an estimate of the KL does in the reward, in the loss, in both; and between Gaussians."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.core.exact import ToyLM
from minirlhf.equations import kl
from minirlhf_course.chapters.ch09_regularisation import equations
from minirlhf_course.chapters.ch09_regularisation.divergences import two
from minirlhf_course.ledger.registry import Comparison, Draw, check


@check(
    "eq:estimator-gradient",
    "value and gradient",
    "Both the samples and the estimator depend on π: the two parts sum to the gradient of the mean.",
    of=equations.with_score,
    against="finite differences of Σ π k, for k1, k2 and k3",
    wrong={
        "the estimate as a loss: its own gradient only": lambda values, logps: values,
        "the estimate as a reward: the score's part only": lambda values, logps: (
            values.detach() + values.detach() * (logps - logps.detach())
        ),
        "estimate in front of the score not held fixed": lambda values, logps: (
            values + values * (logps - logps.detach()) + values**2 / 2
        ),
    },
)
def _(with_score, draw: Draw) -> Iterator[Comparison]:
    p, q = two(draw)
    for estimator in (kl.k1, kl.k2, kl.k3):
        logits = p.log().requires_grad_()
        logps = logits.log_softmax(-1)
        values = with_score(estimator(logps, q.log()), logps)
        yield values, estimator(p.log(), q.log())
        got = exact.gradient((p * values).sum(), logits).view(3, 4)
        mean = lambda x, f=estimator: exact.expectation(x.softmax(-1), f(x.log_softmax(-1), q.log())).sum()
        yield got, exact.finite_difference(mean, p.log())


@check(
    "eq:estimator-gradient",
    "in the reward",
    "Without gradient, as part of a reward, k3 gives the reverse gradient minus the forward one, and k2 a third one.",
    of=equations.with_score,
    against="differences of the two KLs: ∇KL(π‖π_ref) − ∇KL(π_ref‖π) for k3, ∇E[k2] − ∇KL(π‖π_ref) for k2",
    wrong={
        "score forgotten": lambda values, logps: values + 0 * logps,
        "score twice": lambda values, logps: values + 2 * values.detach() * (logps - logps.detach()),
    },
)
def _(with_score, draw: Draw) -> Iterator[Comparison]:
    p, q = two(draw)
    reverse = exact.finite_difference(lambda x: exact.divergence(x.softmax(-1), q).sum(), p.log())
    forward = exact.finite_difference(lambda x: exact.divergence(q, x.softmax(-1)).sum(), p.log())
    half_square = lambda x: (x.softmax(-1) * (x.log_softmax(-1) - q.log()) ** 2).sum() / 2
    squares = exact.finite_difference(half_square, p.log())
    for estimator, expected in ((kl.k1, reverse), (kl.k2, squares - reverse), (kl.k3, reverse - forward)):
        logits = p.log().requires_grad_()
        logps = logits.log_softmax(-1)
        charged = with_score(estimator(logps, q.log()).detach(), logps)
        yield exact.gradient((p * charged).sum(), logits).view(3, 4), expected


@check(
    "eq:gaussian-estimators",
    "bias and deviation",
    "k1 and k3 are unbiased, the bias of k2 is KL²/2; which one has the smallest variance depends on the KL.",
    of=equations.gaussian_estimators,
    against="Gauss–Hermite quadrature of the estimators between two Gaussians",
    wrong={
        "variance for deviation": lambda shift: (
            equations.gaussian_estimators(shift)[0],
            equations.gaussian_estimators(shift)[1] ** 2,
        ),
        "not in units of the KL": lambda shift: tuple(
            x * shift[..., None] ** 2 / 2 for x in equations.gaussian_estimators(shift)
        ),
        "k1 and k3 exchanged": lambda shift: tuple(x.flip(-1) for x in equations.gaussian_estimators(shift)),
    },
)
def _(gaussian_estimators, draw: Draw) -> Iterator[Comparison]:
    shifts = draw.away_from([0.0], 3, low=-1.4, high=1.4, margin=0.3)
    bias, deviation = gaussian_estimators(shifts)
    logp = lambda x, mean: -0.5 * (x - mean) ** 2
    for k, estimator in enumerate((kl.k1, kl.k2, kl.k3)):
        for n, shift in enumerate(shifts.tolist()):
            values = lambda x, f=estimator, m=shift: f(logp(x, 0.0), logp(x, m)) / (m**2 / 2)
            mean = exact.gaussian_expectation(values)
            squares = lambda x, v=values: v(x) ** 2
            yield bias[n, k], mean - 1
            yield deviation[n, k], (exact.gaussian_expectation(squares) - mean**2).sqrt()


@check(
    "eq:k2",
    "gradient of whole responses",
    "As a loss, k2 of a response's summed log-ratio has the reverse KL's gradient; the sum of k2 over tokens has not.",
    of=kl.k2,
    against="gradient of the KL between the responses of two toy language models",
    wrong={
        "each token's own square": lambda logps, ref_logps: kl.k2(logps, ref_logps) / 2,
        "k3 of the response": kl.k3,
    },
)
def _(k2, draw: Draw) -> Comparison:
    policy, reference = draw.toy(3, 2), draw.toy(3, 2)
    probs, ref = policy.distribution()[0], reference.distribution()[0].detach()
    loss = (probs.detach() * k2(probs.log(), ref.log())).sum()
    return exact.gradient(loss, policy.table), _divergence_gradient(policy, ref)


def _divergence_gradient(policy: ToyLM, ref: Tensor) -> Tensor:
    """Of KL(π‖π_ref) over whole responses, by autograd through every probability."""
    return exact.gradient(exact.divergence(policy.distribution()[0], ref), policy.table)


@check(
    "eq:full-kl-gradient",
    "value and gradient",
    "The KL of responses changes at each position, and with the probability that the position is reached.",
    of=kl.full_kl_with_score,
    against="the KL between the distributions of whole responses, differentiated",
    wrong={
        "positions' own gradients only": lambda logits, ref_logits, logps, mask: kl.full_kl(logits, ref_logits, mask),
        "every token answers for all positions before it": lambda logits, ref_logits, logps, mask: (
            kl.full_kl(logits, ref_logits, mask)
            + ((logps - logps.detach()) * mask * (kl.reverse_kl(logits, ref_logits).detach() * mask).cumsum(-1)).sum(-1)
        ),
    },
)
def _(full, draw: Draw) -> Iterator[Comparison]:
    policy, reference = draw.toy(3, 3), draw.toy(3, 3)
    batch = policy.batch(0)
    logits, ref_logits = policy(**batch).logits[:, :-1], reference(**batch).logits[:, :-1].detach()
    ids, mask = batch["input_ids"][:, 1:], batch["mask"]
    chosen = ids.masked_fill(~mask, 0)
    logps = logits.log_softmax(-1).gather(-1, chosen[..., None])[..., 0]
    probs, ref = policy.distribution()[0], reference.distribution()[0].detach()
    values = full(logits, ref_logits, logps, mask)
    yield exact.expectation(probs.detach(), values), exact.divergence(probs.detach(), ref)
    yield exact.gradient((probs.detach() * values).sum(), policy.table), _divergence_gradient(policy, ref)


@check(
    "eq:full-kl-gradient",
    "what the loss of tokens lacks",
    "In expectation k2 per token gives the first sum; the second is missing.",
    of=kl.full_kl_with_score,
    against="k2 of each token as a loss, plus each token's score times the KLs after it, summed along the responses",
    wrong={
        "the sum of the positions' KLs": lambda logits, ref_logits, logps, mask: kl.full_kl(logits, ref_logits, mask),
        "log-probabilities of the reference": lambda logits, ref_logits, logps, mask: kl.full_kl_with_score(
            logits, ref_logits, -logps, mask
        ),
    },
)
def _(full, draw: Draw) -> Comparison:
    policy, reference = draw.toy(3, 3), draw.toy(3, 3)
    batch = policy.batch(0)
    logits, ref_logits = policy(**batch).logits[:, :-1], reference(**batch).logits[:, :-1].detach()
    mask, probs = batch["mask"], policy.distribution()[0].detach()
    chosen = batch["input_ids"][:, 1:].masked_fill(~mask, 0)[..., None]
    logps, ref_logps = (x.log_softmax(-1).gather(-1, chosen)[..., 0] for x in (logits, ref_logits))
    got = exact.gradient((probs * full(logits, ref_logits, logps, mask)).sum(), policy.table)
    p, q = logits.detach().softmax(-1), ref_logits.softmax(-1)
    spent = torch.where(mask, exact.divergence(p, q), 0.0)
    after = torch.stack([spent[:, t + 1 :].sum(-1) for t in range(spent.shape[1])], -1)
    per_token = torch.where(mask, 0.5 * (logps - ref_logps) ** 2 + after * logps, 0.0).sum(-1)
    return got, exact.gradient((probs * per_token).sum(), policy.table)


def gaussian_crossing() -> float:
    """The KL from which on k3 has the larger deviation: half the s > 0 with e^s − 1 = 2s, by bisection."""
    low, high = 1.0, 2.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if math.expm1(middle) < 2 * middle else (low, middle)
    return low / 2


@check(
    "eq:gaussian-estimators",
    "crossing",
    "At a KL of 0.628 nats k1 and k3 have equal variance; below it k3 has the smaller one, above it k1.",
    of=equations.gaussian_estimators,
    against="k1's deviation equals k3's where e^s − 1 = 2s, s = shift², found by bisection",
    wrong={
        "k2's deviation for k3's": lambda shift: (
            equations.gaussian_estimators(shift)[0],
            equations.gaussian_estimators(shift)[1][..., [0, 1, 1]],
        ),
    },
)
def _(gaussian_estimators, draw: Draw) -> Comparison:
    _, deviation = gaussian_estimators(torch.tensor(math.sqrt(2 * gaussian_crossing()), dtype=torch.float64))
    return deviation[2], deviation[0]
