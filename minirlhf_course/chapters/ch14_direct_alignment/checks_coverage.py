"""Chapter 14, direct alignment: what pairs from a fixed set can say of a policy, and the divergence that charges for it."""

from __future__ import annotations

import torch
from torch.nn.functional import softplus

from minirlhf.core import exact
from minirlhf.equations import preference_losses as pl
from minirlhf.equations import rlhf
from minirlhf_course.ledger.inputs.preferences import all_pairs, bandit
from minirlhf_course.ledger.registry import check


@check(
    "eq:coverage",
    "bound",
    "E_π[error] equals √C times the root mean square error over μ if the error is proportional to π/μ, and is "
    "below it otherwise.",
    of=rlhf.coverage,
    against="expectations summed over all answers",
    tolerance=1e-8,
    wrong={
        "policy and data swapped": lambda logps, data_logps: rlhf.coverage(data_logps, logps),
        "the largest ratio": lambda logps, data_logps: (logps - data_logps).amax().exp(),
        "the exponential of the KL": lambda logps, data_logps: (logps.exp() * (logps - data_logps)).sum().exp(),
    },
)
def _(coverage, draw):
    policy, data = draw.distribution(5, scale=0.7), draw.distribution(5, scale=0.7)
    bound = lambda error: (coverage(policy.log(), data.log()) * exact.expectation(data, error**2)).sqrt()
    worst = float(draw.uniform(low=0.5, high=2.0)) * policy / data
    yield exact.expectation(policy, worst), bound(worst)
    other = draw.normal(5)
    yield torch.relu(exact.expectation(policy, other) - bound(other)), 0.0
    yield coverage(data.log(), data.log()), 1.0


def chi_po(ratio: torch.Tensor) -> torch.Tensor:
    """½ (t − 1)² + t log t."""
    return 0.5 * (ratio - 1) ** 2 + ratio * ratio.log()


@check(
    "eq:f-prime-chi-po",
    "derivative",
    "The derivative of ½ (t − 1)² + t log t.",
    of=pl.f_prime_chi_po,
    against="finite differences of ½ (t − 1)² + t log t",
    wrong={
        "KL alone": pl.f_prime_reverse_kl,
        "χ² alone": lambda u: u.exp() - 1,
        "log-ratio for the ratio": lambda u: 2 * u,
    },
)
def _(f_prime, draw):
    ratio = draw.uniform(5, low=0.3, high=3.0)
    return f_prime(ratio.log()), exact.finite_difference(lambda t: chi_po(t).sum(), ratio)


@check(
    "eq:f-prime-chi-po",
    "optimum",
    "At the optimum β(t + log t) differs between two answers by their difference in reward: f-DPO returns the "
    "label probabilities.",
    of=pl.f_prime_chi_po,
    against="numerical maximisation of E[r] − β (½ χ² + KL)",
    tolerance=1e-7,
    wrong={
        "KL alone": pl.f_prime_reverse_kl,
        "χ² alone": lambda u: u.exp() - 1,
        "χ² with the factor 2": lambda u: 2 * u.exp() + u,
    },
)
def _(f_prime, draw):
    b = bandit(draw, 3)
    b = b._replace(rewards=0.5 * b.rewards + torch.tensor([0.7, 0.0, -0.7], dtype=torch.float64))
    value = lambda p: (p * b.rewards).sum() - b.beta * (b.ref * chi_po(p / b.ref)).sum()
    pair, i, j = all_pairs(exact.maximise(value, 3).log(), b.ref)
    return pl.f_dpo(pair, beta=b.beta, f_prime=f_prime), softplus(b.rewards[j] - b.rewards[i])
