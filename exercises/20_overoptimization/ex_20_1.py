# ---
# title: Where gold turns
# kind: derive
# minutes: 30
# ---

# %% [statement]
# A policy is optimised for a proxy reward $r$. At strength $\lambda$ it is
#
# $$\pi_\lambda(y) \;\propto\; \pi_\text{ref}(y)\, e^{\lambda r(y)} .$$
#
# What is wanted is another reward, $g$, called gold. As $\lambda$ grows, the policy moves, its expected gold $\mathbb{E}_{\pi_\lambda}[g]$ changes, and so
# does its distance $\mathrm{KL}(\pi_\lambda \| \pi_\text{ref})$.
#
# **Find the derivative of each with respect to $\lambda$, as a formula in which nothing is differentiated any more**, only expectations under
# $\pi_\lambda$. Then divide one by the other: how much gold does the next nat of KL bring?
#
# Write them down as functions of tensors:
#
# * `gold_rate(ref, proxy, gold, strength)`: $\frac{d}{d\lambda}\mathbb{E}_{\pi_\lambda}[g]$;
# * `kl_rate(ref, proxy, strength)`: $\frac{d}{d\lambda}\mathrm{KL}(\pi_\lambda\|\pi_\text{ref})$;
# * `gold_per_nat(ref, proxy, gold, strength)`: their quotient, for $\lambda > 0$.
#
# The checker differentiates numerically. No autograd, no small steps: a formula. When you have it, read off when gold turns down although the proxy
# still rises.

# %% [given]
import torch


# %% [stub]
def gold_rate(ref, proxy, gold, strength):
    """d E[gold] / d strength. ref: (n,) probabilities; proxy, gold: (n,); strength: a float. Returns one number."""
    raise NotImplementedError


def kl_rate(ref, proxy, strength):
    """d KL / d strength. Returns one number."""
    raise NotImplementedError


def gold_per_nat(ref, proxy, gold, strength):
    """Gold gained per nat of KL, at strength > 0. Returns one number."""
    raise NotImplementedError


# %% [solution]
def _covariance(ref, proxy, gold, strength):
    p = torch.softmax(ref.log() + strength * proxy, -1)
    return (p * gold * (proxy - (p * proxy).sum())).sum()


def gold_rate(ref, proxy, gold, strength):
    return _covariance(ref, proxy, gold, strength)


def kl_rate(ref, proxy, strength):
    return strength * _covariance(ref, proxy, proxy, strength)


def gold_per_nat(ref, proxy, gold, strength):
    return gold_rate(ref, proxy, gold, strength) / kl_rate(ref, proxy, strength)


# %% [tests]
import torch

from minirlhf.classroom.testing import expect, test, tidy, tidy_distribution
from minirlhf.core import exact


def problem(draw):
    """Reference, proxy, gold and a strength; proxy and gold are not alike."""
    n = draw.integer(3, 4)
    proxy = torch.arange(n).double() + tidy(draw.uniform(n, high=0.4))
    gold = tidy(draw.uniform(n, low=-2, high=2))
    gold[0], gold[-1] = gold[0] - 1, gold[-1] + 1
    return tidy_distribution(draw, n), proxy, gold, [0.5, 1.5, 2.0][draw.integer(0, 2)]


def policy(ref, proxy, strength):
    weights = ref * (strength * proxy).exp()
    return weights / weights.sum()


def numerically(f, strength):
    return exact.finite_difference(f, torch.tensor(strength, dtype=torch.float64))


def kl_at(ref, proxy):
    return lambda s: exact.divergence(policy(ref, proxy, s), ref)


@test(
    points=2,
    against="finite differences in the strength",
    hints=(
        "Write the expectation as a quotient, with the normaliser below, and use the quotient rule. What is the derivative of the "
        "normaliser, divided by the normaliser?",
        "Each probability changes by itself times (its proxy minus the mean proxy under the policy). Multiply by gold and sum; the result has "
        "a name in statistics.",
    ),
)
def rate_of_gold(sub, draw):
    "`gold_rate` is the derivative of the expected gold."
    ref, proxy, gold, strength = problem(draw)
    p = policy(ref, proxy, strength)
    reference = exact.expectation(ref, gold * proxy) - exact.expectation(ref, gold) * exact.expectation(ref, proxy)
    expect(
        sub.gold_rate(ref, proxy, gold, strength),
        numerically(lambda s: exact.expectation(policy(ref, proxy, s), gold), strength),
        what="the rate of gold",
        given={"ref": ref, "proxy": proxy, "gold": gold, "strength": strength},
        mistakes={
            "the means are not taken away": exact.expectation(p, gold * proxy),
            "the covariance is that under the reference, where the policy no longer is": reference,
            "this is the rate of the proxy": exact.expectation(p, proxy**2) - exact.expectation(p, proxy) ** 2,
        },
    )


@test(
    points=2,
    against="finite differences in the strength",
    hints=(
        "log π_λ − log π_ref is λ r minus a number that does not depend on y. So the KL is λ E[r] minus that number. Differentiate both.",
        "The derivative of the log-normaliser is E[r]. One of the terms cancels, and the derivative of E[r] you know from the first part, with "
        "the proxy in the place of gold.",
    ),
)
def rate_of_kl(sub, draw):
    "`kl_rate` is the derivative of the KL from the reference."
    ref, proxy, _, strength = problem(draw)
    p = policy(ref, proxy, strength)
    variance = exact.expectation(p, proxy**2) - exact.expectation(p, proxy) ** 2
    expect(
        sub.kl_rate(ref, proxy, strength),
        numerically(kl_at(ref, proxy), strength),
        what="the rate of the KL",
        given={"ref": ref, "proxy": proxy, "strength": strength},
        mistakes={
            "the strength is missing": variance,
            "the strength is squared": strength**2 * variance,
            "this is the mean of the proxy, the derivative of the log-normaliser": exact.expectation(p, proxy),
        },
    )


@test(
    points=1,
    against="finite differences of both",
    hints=(
        "Divide the first rate by the second.",
        "By the chain rule dg/dKL = (dg/dλ) / (dKL/dλ). With the proxy in the place of gold the quotient is 1/λ, which is β.",
    ),
)
def exchange(sub, draw):
    "`gold_per_nat` is what the next nat of KL brings."
    ref, proxy, gold, strength = problem(draw)
    rate = numerically(lambda s: exact.expectation(policy(ref, proxy, s), gold), strength)
    nats = numerically(kl_at(ref, proxy), strength)
    expect(
        sub.gold_per_nat(ref, proxy, gold, strength),
        rate / nats,
        what="gold per nat",
        given={"ref": ref, "proxy": proxy, "gold": gold, "strength": strength},
        mistakes={
            "this is gold per unit of strength": rate,
            "the quotient is upside down": nats / rate,
            "this is gold per unit of proxy": strength * rate / nats,
        },
    )


# %% [probes]
# no gradient: a formula is asked for, in whatever library


# %% [mutant] means not taken away
# caught by: rate_of_gold
# says: not taken away
def gold_rate(ref, proxy, gold, strength):
    p = torch.softmax(ref.log() + strength * proxy, -1)
    return (p * gold * proxy).sum()


# %% [mutant] the covariance under the reference
# caught by: rate_of_gold
# says: under the reference
def gold_rate(ref, proxy, gold, strength):
    return (ref * gold * (proxy - (ref * proxy).sum())).sum()


# %% [mutant] the KL's rate lacks the strength
# caught by: rate_of_kl
# says: the strength is missing
def kl_rate(ref, proxy, strength):
    return _covariance(ref, proxy, proxy, strength)


# %% [mutant] the derivative of the log-normaliser alone
# caught by: rate_of_kl
# says: log-normaliser
def kl_rate(ref, proxy, strength):
    p = torch.softmax(ref.log() + strength * proxy, -1)
    return (p * proxy).sum()


# %% [mutant] upside down
# caught by: exchange
# says: upside down
def gold_per_nat(ref, proxy, gold, strength):
    return kl_rate(ref, proxy, strength) / gold_rate(ref, proxy, gold, strength)


# %% [partial] 2: gold is derived, the KL not begun
def kl_rate(ref, proxy, strength):
    raise NotImplementedError


# %% [partial] 4: both rates, no exchange
def gold_per_nat(ref, proxy, gold, strength):
    raise NotImplementedError
