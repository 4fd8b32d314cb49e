# ---
# title: From an optimum to a loss
# kind: derive
# minutes: 30
# ---

# %% [statement]
# For one prompt, the policy that maximises $\mathbb{E}[r] - \beta\,\mathrm{KL}(\pi\|\pi_\text{ref})$ is
# $\pi(y) = \pi_\text{ref}(y)\,e^{r(y)/\beta}/Z$. People compare two answers and prefer $y_w$ to $y_l$ with probability
# $\sigma(r(y_w) - r(y_l))$, where $\sigma(u) = 1/(1+e^{-u})$.
#
# You are given the log-probabilities of both answers under policy and reference, and $\beta$. Nobody gives you $r$ or $Z$.
#
# **1.** Assume that the policy *is* such an optimum. Derive the probability that people prefer $y_w$, as
# `win_probability(chosen, rejected, ref_chosen, ref_rejected, beta)`.
#
# **2.** DPO's loss is minus the logarithm of that probability. Derive its derivative in `chosen`, the policy's log-probability of
# $y_w$, as `slope(chosen, rejected, ref_chosen, ref_rejected, beta)`. (In `rejected` it is the same with the other sign.) Watch what
# happens to it when the pair is already far on the right side, or on the wrong one.
#
# **3.** Suppose $y_w$ is preferred with probability $p$, so that a share $1-p$ of the labels says the opposite. At which margin
# $h = \log\frac{\pi(y_w)}{\pi_\text{ref}(y_w)} - \log\frac{\pi(y_l)}{\pi_\text{ref}(y_l)}$ is the mean loss smallest? Write `best_margin(p, beta)`.
# What does it say for $p \to 1$?
#
# All arguments but `beta` are tensors of one shape; answer with a tensor of that shape. The checker knows no formula: it searches for the
# optimum numerically, takes differences, and minimises on a grid.

# %% [given]
import torch


# %% [stub]
def win_probability(chosen, rejected, ref_chosen, ref_rejected, beta):
    """Probability that people prefer the chosen answer, if the policy is optimal for their reward. (B,) each."""
    raise NotImplementedError


def slope(chosen, rejected, ref_chosen, ref_rejected, beta):
    """Derivative of −log win_probability in chosen. (B,)"""
    raise NotImplementedError


def best_margin(p, beta):
    """The margin h at which the mean loss is smallest when the chosen answer wins with probability p. Shape of p."""
    raise NotImplementedError


# %% [solution]
def win_probability(chosen, rejected, ref_chosen, ref_rejected, beta):
    return torch.sigmoid(beta * ((chosen - ref_chosen) - (rejected - ref_rejected)))


def slope(chosen, rejected, ref_chosen, ref_rejected, beta):
    return -beta * torch.sigmoid(-beta * ((chosen - ref_chosen) - (rejected - ref_rejected)))


def best_margin(p, beta):
    return torch.log(p / (1 - p)) / beta


# %% [tests]
import torch

from minirlhf.classroom.testing import expect, test, tidy, tidy_distribution
from minirlhf.core import exact


def optimum(draw):
    """Three answers with rewards of people, a reference, and the best policy, found by search."""
    ref, beta = tidy_distribution(draw, 3), [0.4, 0.5, 2.0, 2.5][draw.integer(0, 3)]
    rewards = tidy(draw.uniform(3, low=-1, high=1))
    rewards[0] += 0.7
    best = exact.maximise(lambda p: exact.regularised_value(p, ref, rewards, beta), 3)
    return ref, beta, rewards, best


PAIRS = ((0, 1), (1, 2), (2, 0))


def four(ref, policy):
    w, l = (torch.tensor([pair[k] for pair in PAIRS]) for k in (0, 1))
    return policy.log()[w], policy.log()[l], ref.log()[w], ref.log()[l]


@test(
    points=2,
    against="the optimum found by search",
    hints=(
        "Solve the optimum for the reward: take the logarithm and move everything but r to the other side. One term is left that you do not "
        "know.",
        "That term, β log Z, is the same for both answers, and only the difference of their rewards is needed. What remains is β times a "
        "difference of two log-ratios of policy to reference.",
    ),
)
def cancels(sub, draw):
    "`win_probability` is what people do whose reward the policy is optimal for."
    ref, beta, rewards, best = optimum(draw)
    chosen, rejected, ref_chosen, ref_rejected = four(ref, best)
    want = torch.stack([rewards[w].exp() / (rewards[w].exp() + rewards[l].exp()) for w, l in PAIRS])
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
            "the reference is left out": torch.sigmoid(beta * (chosen - rejected)),
            "β is left out": torch.sigmoid(margin),
            "β divides": torch.sigmoid(margin / beta),
            "chosen and rejected are swapped": torch.sigmoid(-beta * margin),
        },
    )


@test(
    points=2,
    against="finite differences",
    hints=(
        "The loss is −log σ(βh), and h contains `chosen` with factor one. Differentiate the outer function first: σ' = σ(1 − σ).",
        "One σ cancels. What is left is −β times the probability that the model gives to the *other* label: near 0 when the pair is right, near "
        "β when it is wrong.",
    ),
)
def pushes(sub, draw):
    "`slope` is the derivative of the loss in the chosen answer's log-probability."
    beta = [0.3, 0.5, 2.0][draw.integer(0, 2)]
    ref = tidy(-draw.uniform(2, 3, low=1.0, high=4.0))
    gap = tidy(draw.away_from([0.0], 3, low=-2.0, high=2.0, margin=0.3))
    rejected = tidy(-draw.uniform(3, low=1.0, high=4.0))
    chosen = rejected - ref[1] + ref[0] + gap
    loss = lambda x: (1 + (-beta * ((x - ref[0]) - (rejected - ref[1]))).exp()).log().sum()
    expect(
        sub.slope(chosen, rejected, ref[0], ref[1], beta),
        exact.finite_difference(loss, chosen),
        what="the slope",
        given={"chosen": chosen, "rejected": rejected, "ref_chosen": ref[0], "ref_rejected": ref[1], "beta": beta},
        mistakes={
            "the weight is that of pairs that are right already": -beta * torch.sigmoid(beta * gap),
            "the factor β is lost": -torch.sigmoid(-beta * gap),
            "there is no weight": torch.full_like(gap, -beta),
        },
    )


@test(
    points=2,
    against="a search over margins",
    hints=(
        "The mean loss is −p log σ(βh) − (1 − p) log σ(−βh). Use 1 − σ(u) = σ(−u) and set the derivative to 0.",
        "It is smallest where σ(βh) = p. Solve that for h.",
    ),
)
def settles(sub, draw):
    "`best_margin` is where mixed labels leave the policy."
    beta = [0.3, 0.5, 2.0][draw.integer(0, 2)]
    p = tidy(draw.away_from([0.5], 3, low=0.15, high=0.85, margin=0.08), 2)
    low, high = torch.full_like(p, -40.0), torch.full_like(p, 40.0)
    for _ in range(80):  # the mean loss is convex: bisect on its slope, taken by differences
        middle = (low + high) / 2
        mean = lambda h: (p * (1 + (-beta * h).exp()).log() + (1 - p) * (1 + (beta * h).exp()).log()).sum()
        falling = exact.finite_difference(mean, middle) < 0
        low, high = torch.where(falling, middle, low), torch.where(falling, high, middle)
    expect(
        sub.best_margin(p, beta),
        (low + high) / 2,
        what="the best margin",
        given={"p": p, "beta": beta},
        tolerance=1e-4,
        mistakes={
            "β multiplies": beta * torch.log(p / (1 - p)),
            "it is the implicit reward, β times the margin": torch.log(p / (1 - p)),
            "it is IPO's margin, not DPO's": (p - 0.5) / beta,
        },
    )


# %% [probes]
# no gradient: a formula is asked for, in whatever library


# %% [mutant] no reference
# caught by: cancels
# says: the reference is left out
def win_probability(chosen, rejected, ref_chosen, ref_rejected, beta):
    return torch.sigmoid(beta * (chosen - rejected))


# %% [mutant] no β
# caught by: cancels
# says: β is left out
def win_probability(chosen, rejected, ref_chosen, ref_rejected, beta):
    return torch.sigmoid(chosen - ref_chosen - rejected + ref_rejected)


# %% [mutant] the wrong weight
# caught by: pushes
# says: right already
def slope(chosen, rejected, ref_chosen, ref_rejected, beta):
    return -beta * torch.sigmoid(beta * ((chosen - ref_chosen) - (rejected - ref_rejected)))


# %% [mutant] the slope lost its β
# caught by: pushes
# says: the factor β is lost
def slope(chosen, rejected, ref_chosen, ref_rejected, beta):
    return -torch.sigmoid(-beta * ((chosen - ref_chosen) - (rejected - ref_rejected)))


# %% [mutant] the margin for the implicit reward
# caught by: settles
# says: β times the margin
def best_margin(p, beta):
    return torch.log(p / (1 - p))


# %% [partial] 4: probability and slope are derived, the margin not begun
def best_margin(p, beta):
    raise NotImplementedError


# %% [partial] 2: only the probability is right
def slope(chosen, rejected, ref_chosen, ref_rejected, beta):
    return torch.full_like(chosen, -beta)


def best_margin(p, beta):
    raise NotImplementedError
