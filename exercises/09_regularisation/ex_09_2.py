# ---
# title: Two references
# kind: derive
# minutes: 25
# ---

# %% [statement]
# A model should have a high reward. It should stay near the *base* model, so that it forgets nothing, and near the *chat* model, so that it stays polite. The objective is
#
# $$J(\pi) = \mathbb{E}_\pi[r] - \beta_1\,\mathrm{KL}(\pi\|\pi_1) - \beta_2\,\mathrm{KL}(\pi\|\pi_2), \qquad \beta_1, \beta_2 > 0 .$$
#
# Derive, then write:
#
# 1. `best(ref1, ref2, rewards, beta1, beta2)`: the policy that maximises $J$, as probabilities.
# 2. `worth(ref1, ref2, rewards, beta1, beta2)`: the value of $J$ for this policy, without computing any divergence.
# 3. `tension(ref1, ref2, beta1, beta2)`: the cost of the two references if all rewards are 0, that is, $-\max_\pi J$. It is 0 if they agree.
#
# The references are `(N,)` tensors of probabilities, none of them 0, and `rewards` is `(N,)`. Results are compared to seven digits, and gradients through `rewards` are tested. Rewards may be large.

# %% [given]
import torch


# %% [stub]
def best(ref1, ref2, rewards, beta1, beta2):
    """Returns (N,) probabilities."""
    raise NotImplementedError


def worth(ref1, ref2, rewards, beta1, beta2):
    """Returns a scalar tensor."""
    raise NotImplementedError


def tension(ref1, ref2, beta1, beta2):
    """Returns a scalar tensor, not negative."""
    raise NotImplementedError


# %% [solution]
def best(ref1, ref2, rewards, beta1, beta2):
    return torch.softmax((beta1 * ref1.log() + beta2 * ref2.log() + rewards) / (beta1 + beta2), -1)


def worth(ref1, ref2, rewards, beta1, beta2):
    total = beta1 + beta2
    return total * torch.logsumexp((beta1 * ref1.log() + beta2 * ref2.log() + rewards) / total, -1)


def tension(ref1, ref2, beta1, beta2):
    return -worth(ref1, ref2, torch.zeros_like(ref1), beta1, beta2)


# %% [tests]
import torch
from minirlhf.core import exact
from minirlhf_course.classroom.testing import expect, test, tidy, tidy_distribution


def problem(draw):
    """Two references that differ, rewards, two prices that differ."""
    prices = [(0.5, 1.5), (2.0, 0.4), (0.3, 0.9)][draw.integer(0, 2)]
    while True:
        ref1, ref2 = tidy_distribution(draw, 4), tidy_distribution(draw, 4)
        if float((ref1 - ref2).abs().max()) > 0.09:
            return ref1, ref2, tidy(draw.normal(4)), *prices


def searched(ref1, ref2, rewards, beta1, beta2):
    """The largest J of all distributions, climbed in small steps from the uniform one, and where it is."""
    logp = torch.full_like(ref1, 1 / len(ref1)).log()
    for _ in range(150):  # up the gradient in π, with probabilities multiplied instead of added to
        slope = rewards - beta1 * (logp - ref1.log()) - beta2 * (logp - ref2.log())
        logp = (logp + 0.3 / (beta1 + beta2) * slope).log_softmax(-1)
    p = logp.exp()
    return p, (p * rewards).sum() - beta1 * exact.divergence(p, ref1) - beta2 * exact.divergence(p, ref2)


@test(
    points=2,
    hints=(
        "Collect the factors of $\\log\\pi$: how often does it occur? Then write the rest as the logarithm of one distribution, up to a constant.",
        "$J = \\mathbb{E}[r + \\beta_1\\log\\pi_1 + \\beta_2\\log\\pi_2 - (\\beta_1 + \\beta_2)\\log\\pi]$. Divide by $\\beta_1 + \\beta_2$ and complete the divergence.",
    ),
    against="climbing J step by step",
)
def optimum(sub, draw):
    "`best` is the maximiser."
    ref1, ref2, rewards, beta1, beta2 = problem(draw)
    total = beta1 + beta2
    mixture = (beta1 * ref1 + beta2 * ref2) / total
    expect(
        sub.best(ref1, ref2, rewards, beta1, beta2),
        searched(ref1, ref2, rewards, beta1, beta2)[0],
        what="`best`",
        tolerance=1e-5,
        given={"ref1": ref1, "ref2": ref2, "rewards": rewards, "beta1": beta1, "beta2": beta2},
        mistakes={
            "the references are averaged as probabilities, but their logarithms must be averaged": torch.softmax(
                mixture.log() + rewards / total, -1
            ),
            "the exponents are not divided by β₁ + β₂": torch.softmax(
                beta1 * ref1.log() + beta2 * ref2.log() + rewards, -1
            ),
            "everything is divided by the mean of the two coefficients, not by their sum": torch.softmax(
                2 * (beta1 * ref1.log() + beta2 * ref2.log() + rewards) / total, -1
            ),
            "both references have the same weight": torch.softmax((ref1.log() + ref2.log()) / 2 + rewards / total, -1),
            "each KL was solved separately, and the two tilts were multiplied": torch.softmax(
                ref1.log() + ref2.log() + rewards / beta1 + rewards / beta2, -1
            ),
            "each reference has the coefficient of the other one": torch.softmax(
                (beta2 * ref1.log() + beta1 * ref2.log() + rewards) / total, -1
            ),
            "the rewards are not divided by β₁ + β₂": torch.softmax(
                (beta1 * ref1.log() + beta2 * ref2.log()) / total + rewards, -1
            ),
            "the second reference is missing": torch.softmax(ref1.log() + rewards / beta1, -1),
            "the two optima are averaged, but the optimum of a sum is another policy": (
                beta1 * torch.softmax(ref1.log() + rewards / beta1, -1)
                + beta2 * torch.softmax(ref2.log() + rewards / beta2, -1)
            )
            / total,
        },
    )
    high = sub.best(ref1, ref2, rewards + 3000.0, beta1, beta2)
    law = searched(ref1, ref2, rewards, beta1, beta2)[0]
    expect(high, law, what="`best` with 3000 added to all rewards", tolerance=1e-5)


@test(
    points=2,
    hints=(
        "At the optimum the completed divergence is 0. What remains?",
        "A constant: $(\\beta_1+\\beta_2)$ times the logarithm of the normaliser.",
    ),
    against="climbing J step by step",
)
def value_there(sub, draw):
    "`worth` is the largest value."
    ref1, ref2, rewards, beta1, beta2 = problem(draw)
    law, best = searched(ref1, ref2, rewards, beta1, beta2)
    want = float(best)
    alone = sum(b * float(torch.logsumexp(ref.log() + rewards / b, -1)) for ref, b in ((ref1, beta1), (ref2, beta2)))
    expect(
        sub.worth(ref1, ref2, rewards, beta1, beta2),
        want,
        what="`worth`",
        tolerance=1e-7,
        given={"ref1": ref1, "ref2": ref2, "rewards": rewards, "beta1": beta1, "beta2": beta2},
        mistakes={
            "the factor β₁ + β₂ is missing": want / (beta1 + beta2),
            "the sign is wrong": -want,
            "this is the mean reward, without subtracting the two divergences": float(law @ rewards),
            "the rewards are counted once for each reference": alone,
            "the product of the references is normalised, and the logarithm of its sum is lost": want
            - float(searched(ref1, ref2, torch.zeros_like(rewards), beta1, beta2)[1]),
            "the largest reward was subtracted and not added back": want - float(rewards.max()),
        },
    )
    high = sub.worth(ref1, ref2, rewards + 3000.0, beta1, beta2)
    expect(high, want + 3000.0, what="`worth` with 3000 added to all rewards", tolerance=1e-7)


@test(
    points=1,
    hints=(
        "Use your `worth` with rewards of 0. What is the sign?",
        "$-(\\beta_1+\\beta_2)\\log\\sum_y \\pi_1^{\\beta_1/(\\beta_1+\\beta_2)}\\,\\pi_2^{\\beta_2/(\\beta_1+\\beta_2)}$, which is not negative by Hölder's inequality.",
    ),
    against="climbing J step by step",
)
def cost_of_two(sub, draw):
    "`tension` is the cost of two references."
    ref1, ref2, rewards, beta1, beta2 = problem(draw)
    want = -float(searched(ref1, ref2, torch.zeros_like(rewards), beta1, beta2)[1])
    given = {"ref1": ref1, "ref2": ref2, "beta1": beta1, "beta2": beta2}
    expect(
        sub.tension(ref1, ref2, beta1, beta2),
        want,
        what="`tension`",
        tolerance=1e-7,
        given=given,
        mistakes={
            "the sign is wrong": -want,
            "the factor β₁ + β₂ is missing": want / (beta1 + beta2),
            "it is the divergence between the references, times β₁β₂/(β₁ + β₂)": beta1
            * beta2
            / (beta1 + beta2)
            * float(exact.divergence(ref1, ref2)),
            "this is the cost of the better one of the two references, but the best policy is between them": min(
                beta2 * float(exact.divergence(ref1, ref2)), beta1 * float(exact.divergence(ref2, ref1))
            ),
            "both references have the same weight": -(beta1 + beta2) * float((ref1 * ref2).sqrt().sum().log()),
            "each reference has the coefficient of the other one": -float(
                searched(ref2, ref1, torch.zeros_like(rewards), beta1, beta2)[1]
            ),
        },
    )
    expect(sub.tension(ref1, ref1, beta1, beta2), 0.0, what="`tension` of a reference with itself", tolerance=1e-7)
    near = (ref1.log() + 0.01 * draw.normal(len(ref1))).softmax(-1)
    between = ((beta1 * ref1.log() + beta2 * near.log()) / (beta1 + beta2)).softmax(-1)
    want = beta1 * exact.divergence(between, ref1) + beta2 * exact.divergence(between, near)
    expect(
        sub.aside.tension(ref1, near, beta1, beta2),
        want,
        what="`tension` of two references that nearly agree",
        tolerance=1e-5,
        floor=1e-6,
        given={"ref1": ref1, "ref2": near, "beta1": beta1, "beta2": beta2},
    )


# %% [edges]
# value_there: Rewards may be large


# %% [probes]
# no gradient of best.ref1, best.ref2, worth.ref1, worth.ref2, tension: the references are data
# range 1e-4 to 30 of worth.rewards: an average over the optimum has probabilities that round to 0, and 0 times an infinity is NaN


# %% [mutant] references averaged as probabilities
# caught by: optimum
# says: averaged as probabilities
def best(ref1, ref2, rewards, beta1, beta2):
    total = beta1 + beta2
    return torch.softmax(((beta1 * ref1 + beta2 * ref2) / total).log() + rewards / total, -1)


# %% [mutant] not divided
# caught by: optimum
# says: not divided
def best(ref1, ref2, rewards, beta1, beta2):
    return torch.softmax(beta1 * ref1.log() + beta2 * ref2.log() + rewards, -1)


# %% [mutant] the largest overflow
# caught by: optimum
# says: 3000
def best(ref1, ref2, rewards, beta1, beta2):
    total = beta1 + beta2
    weights = ref1 ** (beta1 / total) * ref2 ** (beta2 / total) * torch.exp(rewards / total)
    return weights / weights.sum()


# %% [mutant] the factor is missing
# caught by: value_there
# says: factor
def worth(ref1, ref2, rewards, beta1, beta2):
    return torch.logsumexp((beta1 * ref1.log() + beta2 * ref2.log() + rewards) / (beta1 + beta2), -1)


# %% [mutant] overflows
# caught by: value_there
def worth(ref1, ref2, rewards, beta1, beta2):
    total = beta1 + beta2
    weights = ref1 ** (beta1 / total) * ref2 ** (beta2 / total)
    return total * (weights * torch.exp(rewards / total)).sum().log()


# %% [mutant] a negative cost
# caught by: cost_of_two
# says: the sign
def tension(ref1, ref2, beta1, beta2):
    return worth(ref1, ref2, torch.zeros_like(ref1), beta1, beta2)


# %% [partial] 2: the policy only
def worth(ref1, ref2, rewards, beta1, beta2):
    return rewards.sum()


def tension(ref1, ref2, beta1, beta2):
    return ref1.sum()
