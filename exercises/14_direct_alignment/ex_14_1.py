# ---
# title: From an optimum to another loss
# kind: derive
# minutes: 30
# ---

# %% [statement]
# For one prompt, the policy that maximises $\mathbb{E}[r] - \beta\,\mathrm{KL}(\pi\|\pi_\text{ref})$ is
# $\pi(y) = \pi_\text{ref}(y)\,e^{r(y)/\beta}/Z$. In the chapter people choose by the Bradley–Terry model. Here they choose by *Thurstone's* model: they prefer $y_w$ to $y_l$ with
# probability $\Phi(r(y_w) - r(y_l))$, where $\Phi$ is the distribution function of a standard normal variable and $\varphi = \Phi'$ its density. Repeat the chapter's
# derivation and find the loss for this model.
#
# You are given the log-probabilities of both completions under policy and reference, and $\beta$. You do not know $r$ or $Z$.
#
# **1.** Assume that the policy *is* such an optimum. Derive the probability that people prefer $y_w$, as
# `win_probability(chosen, rejected, ref_chosen, ref_rejected, beta)`.
#
# **2.** The loss is minus the logarithm of this probability. Derive its derivative in `chosen`, the policy's log-probability of
# $y_w$, as `slope(chosen, rejected, ref_chosen, ref_rejected, beta)`. (In `rejected` it is the same with the opposite sign.) Look at its
# size when the pair is far on the wrong side, where DPO's slope levels off.
#
# **3.** Suppose $y_w$ is preferred with probability $p$, so a fraction $1-p$ of the labels says the opposite. At which margin
# $h = \log\frac{\pi(y_w)}{\pi_\text{ref}(y_w)} - \log\frac{\pi(y_l)}{\pi_\text{ref}(y_l)}$ is the mean loss smallest? Write `best_margin(p, beta)`.
# What is its limit for $p \to 1$?
#
# All arguments except `beta` are tensors of one shape; return a tensor of this shape. The checker uses no formula: it searches for the
# optimum numerically, takes differences, and bisects. `torch.special` has `ndtr`, which is $\Phi$, `log_ndtr`, and `ndtri`, the inverse of $\Phi$.

# %% [given]
import math

import torch


# %% [stub]
def win_probability(chosen, rejected, ref_chosen, ref_rejected, beta):
    """Return the probability that people prefer the chosen completion, if the policy is optimal for their reward. (B,) each."""
    raise NotImplementedError


def slope(chosen, rejected, ref_chosen, ref_rejected, beta):
    """Return the derivative of −log win_probability in chosen. (B,)"""
    raise NotImplementedError


def best_margin(p, beta):
    """Return the margin h of the smallest mean loss if the chosen completion wins with probability p. Shape of p."""
    raise NotImplementedError


# %% [solution]
def win_probability(chosen, rejected, ref_chosen, ref_rejected, beta):
    return torch.special.ndtr(beta * ((chosen - ref_chosen) - (rejected - ref_rejected)))


def slope(chosen, rejected, ref_chosen, ref_rejected, beta):
    u = beta * ((chosen - ref_chosen) - (rejected - ref_rejected))
    log_density = -0.5 * u**2 - 0.5 * math.log(2 * math.pi)
    return -beta * torch.exp(log_density - torch.special.log_ndtr(u))


def best_margin(p, beta):
    return torch.special.ndtri(p) / beta


# %% [tests]
import math

import torch
from minirlhf.core import exact
from minirlhf_course.classroom.testing import expect, test, tidy, tidy_distribution


def optimum(draw):
    """Return a reference, β, rewards of three completions, and the best policy, found by search."""
    ref, beta = tidy_distribution(draw, 3), [0.4, 0.5, 2.0, 2.5][draw.integer(0, 3)]
    rewards = tidy(draw.uniform(3, low=-1, high=1))
    rewards[0] += 0.7
    best = exact.maximise(lambda p: exact.regularised_value(p, ref, rewards, beta), 3)
    return ref, beta, rewards, best


PAIRS = ((0, 1), (1, 2), (2, 0))


def normal(u):
    """Return Φ by the error function."""
    return 0.5 * (1 + torch.erf(u / math.sqrt(2)))


def bell(u):
    return torch.exp(-0.5 * u**2) / math.sqrt(2 * math.pi)


def four(ref, policy):
    w, l = (torch.tensor([pair[k] for pair in PAIRS]) for k in (0, 1))
    return policy.log()[w], policy.log()[l], ref.log()[w], ref.log()[l]


@test(
    points=2,
    against="the optimum found by search",
    hints=(
        "Solve the optimum for the reward: take the logarithm and move everything except r to the other side. One unknown term is left.",
        "This term, β log Z, is the same for both completions, and you need only the difference of their rewards. β times a "
        "difference of two log-ratios of policy to reference remains.",
    ),
)
def cancels(sub, draw):
    "`win_probability` is the label probability for the reward that the policy is optimal for."
    ref, beta, rewards, best = optimum(draw)
    chosen, rejected, ref_chosen, ref_rejected = four(ref, best)
    want = torch.stack([exact.integrate(bell, -12.0, float(rewards[w] - rewards[l])) for w, l in PAIRS])
    margin = (chosen - ref_chosen) - (rejected - ref_rejected)
    expect(
        sub.win_probability(chosen, rejected, ref_chosen, ref_rejected, beta),
        want,
        what="the probability of the label",
        given={
            "chosen": chosen,
            "rejected": rejected,
            "ref_chosen": ref_chosen,
            "ref_rejected": ref_rejected,
            "beta": beta,
        },
        tolerance=1e-4,
        mistakes={
            "the reference is left out": normal(beta * (chosen - rejected)),
            "β is left out": normal(margin),
            "β divides": normal(margin / beta),
            "two normal variables are compared; here there is one": normal(beta * margin / math.sqrt(2)),
            "only the chosen completion is used": normal(beta * (chosen - ref_chosen)),
            "probabilities are subtracted in place of their logarithms": normal(
                beta * ((chosen - ref_chosen).exp() - (rejected - ref_rejected).exp())
            ),
            "chosen and rejected are swapped": normal(-beta * margin),
            "this is the Bradley–Terry model": torch.sigmoid(beta * margin),
            "a logistic function with the factor 1.702 is used in place of Φ": torch.sigmoid(1.702 * beta * margin),
            "only the rejected completion is used": normal(-beta * (rejected - ref_rejected)),
        },
    )


@test(
    points=2,
    against="finite differences",
    hints=(
        "The loss is −log Φ(βh), and h contains `chosen` with factor one. Differentiate the outer function first: Φ' is the density φ.",
        "−β φ(βh)/Φ(βh). Nothing cancels, unlike σ in DPO: far on the wrong side the quotient grows like −βh instead of levelling off at 1.",
    ),
)
def pushes(sub, draw):
    "`slope` is the derivative of the loss in the chosen completion's log-probability."
    # The inputs are small, so that Φ keeps its digits in float64 on the probes' wider inputs too: log_ndtr is not required.
    beta = [0.3, 0.5, 1.3][draw.integer(0, 2)]
    ref = tidy(-draw.uniform(2, 3, low=1.0, high=3.0))
    gap = tidy(draw.away_from([0.0], 3, low=-1.2, high=1.5, margin=0.3))
    rejected = tidy(-draw.uniform(3, low=5.0, high=7.0))
    chosen = rejected - ref[1] + ref[0] + gap
    each = lambda x: -normal(beta * ((x - ref[0]) - (rejected - ref[1]))).log()
    loss = lambda x: each(x).sum()
    forward = lambda step: (each(chosen + step) - each(chosen)) / step
    expect(
        sub.slope(chosen, rejected, ref[0], ref[1], beta),
        exact.finite_difference(loss, chosen),
        what="the slope",
        given={"chosen": chosen, "rejected": rejected, "ref_chosen": ref[0], "ref_rejected": ref[1], "beta": beta},
        mistakes={
            "it is a forward difference with a step of 0.01": forward(0.01),
            "it is a forward difference with a step of 0.001": forward(0.001),
            "the weight is the weight of pairs in the right order": -beta * bell(beta * gap) / normal(-beta * gap),
            "the density lacks its constant, 1/√(2π)": -beta * (-0.5 * (beta * gap) ** 2).exp() / normal(beta * gap),
            "the exponent of the density lacks its factor ½": -beta
            * bell(beta * gap)
            * (-0.5 * (beta * gap) ** 2).exp()
            / normal(beta * gap),
            "the factor β is lost": -bell(beta * gap) / normal(beta * gap),
            "the sign is reversed, and the loss rises along it": beta * bell(beta * gap) / normal(beta * gap),
            "it is the derivative in the margin times β twice": -beta * beta * bell(beta * gap) / normal(beta * gap),
            "it is not divided by Φ: this is the slope of −Φ, not of −log Φ": -beta * bell(beta * gap),
            "this is the Bradley–Terry model": -beta * torch.sigmoid(-beta * gap),
        },
    )
    wrong, none = torch.tensor([-4.0, -6.0, -7.4], dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    expect(
        sub.aside.slope(wrong / beta, none, none, none, beta),
        # with two decimals, because 1 + erf has lost most of its digits there and still counts as right
        exact.finite_difference(lambda x: -torch.special.log_ndtr(beta * x).sum(), wrong / beta),
        what="the slope, far on the wrong side",
        given={"the margin times beta": wrong},
        tolerance=0.01,
    )


@test(
    points=2,
    against="a search over margins",
    hints=(
        "The mean loss is −p log q − (1 − p) log(1 − q), where q is the model's probability. At which q is it smallest?",
        "It is smallest where Φ(βh) = p. Solve this for h, with the inverse of Φ.",
    ),
)
def settles(sub, draw):
    "`best_margin` is the margin to which mixed labels lead."
    beta = [0.3, 0.7, 2.5][draw.integer(0, 2)]
    rare, usual = tidy(draw.uniform(2, low=0.15, high=0.42), 2), tidy(draw.uniform(1, low=0.58, high=0.85), 2)
    p = torch.cat([rare, usual])[draw.permutation(3)]
    low, high = torch.full_like(p, -40.0), torch.full_like(p, 40.0)
    for _ in range(80):  # the mean loss is convex: bisect on its slope, taken by differences
        middle = (low + high) / 2
        mean = lambda h: -(p * torch.special.log_ndtr(beta * h) + (1 - p) * torch.special.log_ndtr(-beta * h)).sum()
        falling = exact.finite_difference(mean, middle) < 0
        low, high = torch.where(falling, middle, low), torch.where(falling, high, middle)
    expect(
        sub.best_margin(p, beta),
        (low + high) / 2,
        what="the best margin",
        given={"p": p, "beta": beta},
        tolerance=1e-4,
        mistakes={
            "β is 0.5, whatever is given": beta * (low + high),
            "β multiplies": beta * beta * (low + high) / 2,
            "p is used as the fraction of reversed labels": -(low + high) / 2,
            "it is the implicit reward, β times the margin": beta * (low + high) / 2,
            "this is the Bradley–Terry model": torch.log(p / (1 - p)) / beta,
            "the margin is held at 0 where people mostly prefer the other completion": ((low + high) / 2).clamp(min=0),
            "it is IPO's margin": (p - 0.5) / beta,
        },
    )
    sure = torch.tensor([1e-8, 1 - 1e-8], dtype=torch.float64)
    expect(
        torch.special.log_ndtr(-beta * torch.as_tensor(sub.aside.best_margin(sure, beta), dtype=torch.float64).abs()),
        torch.full((2,), math.log(1e-8), dtype=torch.float64),
        what="the logarithm of the smaller probability at the best margin",
        given={"p": sure, "beta": beta},
        tolerance=1e-3,
    )


# %% [picture]
from minirlhf_course.classroom.testing import Panel, Picture


def picture(sub):
    """Return the slope in the chosen completion against the margin, over pairs that are far wrong and far right."""
    h = torch.linspace(-6.0, 6.0, 121, dtype=torch.float64)
    zero = torch.zeros_like(h)
    yours = sub.slope(h, zero, zero, zero, 0.5).double()
    right = exact.finite_difference(lambda x: -torch.special.log_ndtr(0.5 * x).sum(), h)
    panel = Panel("β = 0.5", h, yours, right, "margin h", "slope in the chosen completion")
    return Picture(
        "The slope against the margin. Right: far on the wrong side it keeps growing, nearly as fast as the margin.",
        (panel,),
    )


# %% [edges]
# settles: What is its limit for $p \to 1$?
# pushes: when the pair is far on the wrong side, where DPO's slope levels off


# %% [probes]
# no gradient: a formula is required, in any library
# no scale, gaps: how far out it still holds is asked by a test


# %% [mutant] no reference
# caught by: cancels
# says: the reference is left out
def win_probability(chosen, rejected, ref_chosen, ref_rejected, beta):
    return torch.special.ndtr(beta * (chosen - rejected))


# %% [mutant] no β
# caught by: cancels
# says: β is left out
def win_probability(chosen, rejected, ref_chosen, ref_rejected, beta):
    return torch.special.ndtr(chosen - ref_chosen - rejected + ref_rejected)


# %% [mutant] the chapter's model
# caught by: cancels
# says: Bradley–Terry
def win_probability(chosen, rejected, ref_chosen, ref_rejected, beta):
    return torch.sigmoid(beta * ((chosen - ref_chosen) - (rejected - ref_rejected)))


# %% [mutant] the logarithm forgotten
# caught by: pushes
# says: not divided by Φ
def slope(chosen, rejected, ref_chosen, ref_rejected, beta):
    u = beta * ((chosen - ref_chosen) - (rejected - ref_rejected))
    return -beta * torch.exp(-0.5 * u**2) / math.sqrt(2 * math.pi)


# %% [mutant] the slope lost its β
# caught by: pushes
# says: the factor β is lost
def slope(chosen, rejected, ref_chosen, ref_rejected, beta):
    u = beta * ((chosen - ref_chosen) - (rejected - ref_rejected))
    return -torch.exp(-0.5 * u**2) / math.sqrt(2 * math.pi) / torch.special.ndtr(u)


# %% [mutant] the margin for the implicit reward
# caught by: settles
# says: β times the margin
def best_margin(p, beta):
    return torch.special.ndtri(p)


# %% [mutant] the probability is held above 1e-12
# caught by: pushes
def slope(chosen, rejected, ref_chosen, ref_rejected, beta):
    u = beta * ((chosen - ref_chosen) - (rejected - ref_rejected))
    return -beta * torch.exp(-0.5 * u**2) / (2 * math.pi) ** 0.5 / torch.special.ndtr(u).clamp(min=1e-12)


# %% [partial] 4: probability and slope are derived, the margin not begun
def best_margin(p, beta):
    raise NotImplementedError


# %% [partial] 2: only the probability is right
def slope(chosen, rejected, ref_chosen, ref_rejected, beta):
    return torch.full_like(chosen, -beta)


def best_margin(p, beta):
    raise NotImplementedError
