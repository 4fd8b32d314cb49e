# ---
# title: The second derivative of the gold reward
# kind: derive
# minutes: 30
# ---

# %% [statement]
# A policy is optimised for a proxy reward $r$. At strength $\lambda$ it is
#
# $$\pi_\lambda(y) \;\propto\; \pi_\text{ref}(y)\, e^{\lambda r(y)} .$$
#
# The gold reward $g$ is another reward. As $\lambda$ grows, the policy moves. Its expected gold reward $\mathbb{E}_{\pi_\lambda}[g]$ changes, and so
# does its distance $\mathrm{KL}(\pi_\lambda \| \pi_\text{ref})$.
#
# The chapter derives the first derivative of each: a covariance, and $\lambda$ times a variance. The *second* derivative says whether the rise is slowing down,
# long before the gold reward falls. **Find the second derivatives with respect to $\lambda$, as formulas in which nothing is differentiated any more**, only expectations under
# $\pi_\lambda$. Then find how much gold reward the next nat of KL brings.
#
# Write them as functions of tensors:
#
# * `gold_bend(ref, proxy, gold, strength)`: $\frac{d^2}{d\lambda^2}\mathbb{E}_{\pi_\lambda}[g]$;
# * `kl_bend(ref, proxy, strength)`: $\frac{d^2}{d\lambda^2}\mathrm{KL}(\pi_\lambda\|\pi_\text{ref})$;
# * `gold_per_nat(ref, proxy, gold, strength)`: the derivative of the expected gold reward with respect to the KL along the path, for $\lambda > 0$.
#
# The checker differentiates numerically. Give formulas: they show what autograd hides. When you have the first, ask which completions cause a slowing rise.

# %% [given]
import torch


# %% [stub]
def gold_bend(ref, proxy, gold, strength):
    """d² E[gold] / d strength². ref: (n,) probabilities; proxy, gold: (n,); strength: a float. Returns one number."""
    raise NotImplementedError


def kl_bend(ref, proxy, strength):
    """d² KL / d strength². Returns one number."""
    raise NotImplementedError


def gold_per_nat(ref, proxy, gold, strength):
    """Gain in gold reward per nat of KL, at strength > 0. Returns one number."""
    raise NotImplementedError


# %% [solution]
def _moment(ref, proxy, other, strength, power):
    """E[(other − mean) (proxy − mean)^power] under the policy."""
    p = torch.softmax(ref.log() + strength * proxy, -1)
    return (p * (other - (p * other).sum()) * (proxy - (p * proxy).sum()) ** power).sum()


def gold_bend(ref, proxy, gold, strength):
    return _moment(ref, proxy, gold, strength, 2)


def kl_bend(ref, proxy, strength):
    return _moment(ref, proxy, proxy, strength, 1) + strength * _moment(ref, proxy, proxy, strength, 2)


def gold_per_nat(ref, proxy, gold, strength):
    return _moment(ref, proxy, gold, strength, 1) / (strength * _moment(ref, proxy, proxy, strength, 1))


# %% [tests]
import torch
from minirlhf.core import exact
from minirlhf_course.classroom.testing import expect, test, tidy, tidy_distribution


def problem(draw):
    """Reference, proxy, gold and a strength; proxy and gold reward differ."""
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


def twice(f, strength, step=2e-3):
    """The second derivative: central second differences, one Richardson step."""
    near, far = ((f(strength + h) - 2 * f(strength) + f(strength - h)) / h**2 for h in (step, 2 * step))
    return (4 * near - far) / 3


def kl_at(ref, proxy):
    return lambda s: exact.divergence(policy(ref, proxy, s), ref)


def central(p, values, power):
    """E[(values − mean)^power]."""
    return exact.expectation(p, (values - exact.expectation(p, values)) ** power)


@test(
    points=2,
    against="second differences in the strength",
    hints=(
        "The derivative of each probability is the probability times (its proxy minus the mean proxy). Differentiate the covariance as a sum over completions: three factors in it depend on λ.",
        "The terms from the derivatives of the two means vanish, because a centred variable has mean 0. What remains has one centred gold reward and two centred proxies.",
    ),
)
def bend_of_gold(sub, draw):
    "`gold_bend` is the second derivative of the expected gold reward."
    ref, proxy, gold, strength = problem(draw)
    p = policy(ref, proxy, strength)
    centred = proxy - exact.expectation(p, proxy)
    gold_centred = gold - exact.expectation(p, gold)
    at_reference = (ref * (gold - exact.expectation(ref, gold)) * (proxy - exact.expectation(ref, proxy)) ** 2).sum()
    tilted = torch.softmax(strength * proxy, -1)
    no_reference = (
        tilted * (gold - exact.expectation(tilted, gold)) * (proxy - exact.expectation(tilted, proxy)) ** 2
    ).sum()
    expect(
        sub.gold_bend(ref, proxy, gold, strength),
        twice(lambda s: exact.expectation(policy(ref, proxy, s), gold), strength),
        what="the second derivative of the expected gold reward",
        given={"ref": ref, "proxy": proxy, "gold": gold, "strength": strength},
        mistakes={
            "the gold reward is not centred": exact.expectation(p, gold * centred**2),
            "a derivative is lost: this is λ times the covariance": strength * exact.expectation(p, gold * centred),
            "it is the third moment of the proxy alone; one factor must be the gold reward": central(p, proxy, 3),
            "this is the first derivative, a covariance": exact.expectation(p, gold * centred),
            "the gold reward is squared instead of the proxy": exact.expectation(p, gold_centred**2 * centred),
            "only one of the two proxies is centred: the mean proxy also depends on λ": exact.expectation(
                p, gold_centred * centred * proxy
            ),
            "the proxy is not centred": exact.expectation(p, gold_centred * proxy**2),
            "only the mean of the product is differentiated: the two means also depend on λ": exact.expectation(
                p, centred * gold * proxy
            ),
            "the variance of the proxy multiplies the mean gold reward; it belongs inside the mean": exact.expectation(
                p, centred**2
            )
            * exact.expectation(p, gold),
            "the policy is a softmax of the proxy alone, without the reference": no_reference,
            "this is the value at the reference policy, not at the current policy": at_reference,
        },
    )


@test(
    points=2,
    against="second differences in the strength",
    hints=(
        "The first derivative is λ times the variance of the proxy. It is a product, and both of its factors depend on λ.",
        "The result is the variance plus λ times the derivative of the variance. You know this derivative from the first part: put the proxy in place of the gold reward.",
    ),
)
def bend_of_kl(sub, draw):
    "`kl_bend` is the second derivative of the KL from the reference."
    ref, proxy, _, strength = problem(draw)
    p = policy(ref, proxy, strength)
    variance, skew = central(p, proxy, 2), central(p, proxy, 3)
    expect(
        sub.kl_bend(ref, proxy, strength),
        twice(kl_at(ref, proxy), strength),
        what="the second derivative of the KL",
        given={"ref": ref, "proxy": proxy, "strength": strength},
        mistakes={
            "the variance is taken to be constant": variance,
            "the third moment is of the proxy, not of the centred proxy": variance
            + strength * exact.expectation(p, proxy**3),
            "the change of the variance is measured at the reference": variance + strength * central(ref, proxy, 3),
            "only the derivative of the variance is there; the variance itself is missing": strength * skew,
            "this is the first derivative": strength * variance,
            "the strength is missing": variance + skew,
            "the change of the variance has the wrong sign": variance - strength * skew,
            "the change of the variance is counted twice": variance + 2 * strength * skew,
            "half the variance is differentiated once more": 0.5 * variance + strength * skew,
        },
    )
    expect(
        sub.aside.kl_bend(ref, proxy, -1.0),
        twice(kl_at(ref, proxy), -1.0),
        what="the second derivative of the KL at a strength of −1",
        given={"ref": ref, "proxy": proxy, "strength": -1.0},
    )


@test(
    points=1,
    against="finite differences of both",
    hints=(
        "By the chain rule it is a quotient of two first derivatives, both of which the chapter derives.",
        "By the chain rule dg/dKL = (dg/dλ) / (dKL/dλ). With the proxy in place of the gold reward the quotient is 1/λ, which is β.",
    ),
)
def exchange(sub, draw):
    "`gold_per_nat` is the gain in gold reward from the next nat of KL."
    ref, proxy, gold, strength = problem(draw)
    rate = numerically(lambda s: exact.expectation(policy(ref, proxy, s), gold), strength)
    nats = numerically(kl_at(ref, proxy), strength)
    p = policy(ref, proxy, strength)
    covariance = exact.expectation(p, (gold - exact.expectation(p, gold)) * proxy)
    so_far = (exact.expectation(p, gold) - exact.expectation(ref, gold)) / exact.divergence(p, ref)
    bends = twice(lambda s: exact.expectation(policy(ref, proxy, s), gold), strength) / twice(
        kl_at(ref, proxy), strength
    )
    expect(
        sub.gold_per_nat(ref, proxy, gold, strength),
        rate / nats,
        what="gold per nat",
        given={"ref": ref, "proxy": proxy, "gold": gold, "strength": strength},
        mistakes={
            "this is gold reward per unit of strength": rate,
            "the quotient is upside down": nats / rate,
            "this is gold reward per unit of proxy": strength * rate / nats,
            "it is the total gain divided by the total KL, the mean rate from the reference policy": so_far,
            "the second derivatives are divided, not the first": bends,
            "it is divided by the variance of the gold reward; it must be the variance of the proxy": covariance
            / (strength * central(p, gold, 2)),
        },
    )


# %% [probes]
# range 1e-4 to 100: moments may be taken with plain exponentials
# no offset: the same
# no ties of gold_per_nat.proxy: under a constant proxy there is no path, and no quotient
# no gradient: a formula is asked for, in whatever library


# %% [mutant] gold not centred
# caught by: bend_of_gold
# says: the gold reward is not centred
def gold_bend(ref, proxy, gold, strength):
    p = torch.softmax(ref.log() + strength * proxy, -1)
    return (p * gold * (proxy - (p * proxy).sum()) ** 2).sum()


# %% [mutant] the first derivative
# caught by: bend_of_gold
# says: first derivative
def gold_bend(ref, proxy, gold, strength):
    return _moment(ref, proxy, gold, strength, 1)


# %% [mutant] at the reference
# caught by: bend_of_gold
# says: at the reference policy
def gold_bend(ref, proxy, gold, strength):
    return _moment(ref, proxy, gold, 0.0, 2)


# %% [mutant] a constant variance
# caught by: bend_of_kl
# says: taken to be constant
def kl_bend(ref, proxy, strength):
    return _moment(ref, proxy, proxy, strength, 1)


# %% [mutant] the strength forgotten
# caught by: bend_of_kl
# says: the strength is missing
def kl_bend(ref, proxy, strength):
    return _moment(ref, proxy, proxy, strength, 1) + _moment(ref, proxy, proxy, strength, 2)


# %% [mutant] upside down
# caught by: exchange
# says: upside down
def gold_per_nat(ref, proxy, gold, strength):
    return strength * _moment(ref, proxy, proxy, strength, 1) / _moment(ref, proxy, gold, strength, 1)


# %% [partial] 2: gold is derived, the KL not begun
def kl_bend(ref, proxy, strength):
    raise NotImplementedError


def gold_per_nat(ref, proxy, gold, strength):
    raise NotImplementedError


# %% [partial] 4: both bends, no exchange
def gold_per_nat(ref, proxy, gold, strength):
    raise NotImplementedError
