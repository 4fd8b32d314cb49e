# ---
# title: A pool that forgets
# kind: derive
# minutes: 25
# ---

# %% [statement]
# The chapter replaces everything, or keeps everything. Between the two is a pool that forgets: after each generation of $n$ samples from the model $p$, with fractions $\hat p$, the new model is
#
# $$p' = (1-\kappa)\,p + \kappa\,\hat p , \qquad 0 < \kappa \le 1 .$$
#
# Derive two things, and write them as functions of numbers. Sample nothing: both are exact.
#
# 1. `kept(n, kappa, generations)`: the expected diversity $\mathbb E[D_g]$ after this number of generations, as a fraction of $D_0$. (The diversity is the probability that two independent samples from the model differ.)
# 2. `equivalent(n, kappa)`: the number $m$ of samples in a generation with which full replacement ($\kappa = 1$) would lose the same diversity. Do not round it.

# %% [given]
import torch


# %% [stub]
def kept(n, kappa, generations):
    """n, generations: integers. kappa: a number in (0, 1]. Returns a number."""
    raise NotImplementedError


def equivalent(n, kappa):
    """Returns a number."""
    raise NotImplementedError


# %% [solution]
def kept(n, kappa, generations):
    # Σ p'² has the mean Σ p² + κ² Var(p̂), and the variances add up to D/n
    return (1 - kappa**2 / n) ** generations


def equivalent(n, kappa):
    return n / kappa**2


# %% [tests]
import itertools
import math

from minirlhf_course.classroom.testing import expect, test


def diversity(p):
    """That two draws differ."""
    return sum(a * b for i, a in enumerate(p) for j, b in enumerate(p) if i != j)


def after(p, n, kappa, generations):
    """Expected diversity, over every sample of every generation."""
    if not generations:
        return diversity(p)
    total = 0.0
    for sample in itertools.product(range(len(p)), repeat=n):
        new = [(1 - kappa) * x + kappa * sample.count(v) / n for v, x in enumerate(p)]
        total += math.prod(p[v] for v in sample) * after(new, n, kappa, generations - 1)
    return total


@test(
    points=3,
    hints=(
        "Only $\\sum_v p(v)^2$ matters. Its mean is the square of the mean plus the variance, outcome by outcome. What is the mean of $p'$ given $p$?",
        "$p' = p + \\kappa(\\hat p - p)$, so its variance is $\\kappa^2$ times the variance of $\\hat p$. The variances of the entries of $\\hat p$, $p(1-p)/n$ each, add up to $D/n$.",
    ),
    against="all samples of all generations",
)
def law(sub, draw):
    "`kept` is the fraction of the diversity that is left."
    n, generations = [(2, 3), (3, 2), (4, 1)][draw.integer(0, 2)]
    kappa = [0.3, 0.5, 0.6, 0.8][draw.integer(0, 3)]
    truth = [0.5, 0.3, 0.2]
    want = after(truth, n, kappa, generations) / diversity(truth)
    expect(
        sub.kept(n, kappa, generations), want, what="`kept`", tolerance=1e-9,
        given={"n": n, "kappa": kappa, "generations": generations},
        mistakes={
            "κ is used in place of its square, but a variance scales by its square": (1 - kappa / n) ** generations,
            "that is κ = 1, everything replaced": (1 - 1 / n) ** generations,
            "the losses of the generations are added, but the fractions that are left must be multiplied": 1 - generations * kappa**2 / n,
            "one generation is left out": (1 - kappa**2 / n) ** (generations - 1),
            "one generation too many is counted": (1 - kappa**2 / n) ** (generations + 1),
        },
    )  # fmt: skip
    single = {"n": 1, "kappa": 1.0, "generations": generations}
    expect(sub.aside.kept(1, 1.0, generations), 0.0, what="`kept` where one sample replaces everything", given=single)


@test(
    points=2,
    hints=("Set the loss of one generation equal to $1/m$.", "$\\kappa^2/n = 1/m$."),
    against="all samples, and the law of replacing",
)
def same_loss(sub, draw):
    "`equivalent` samples, all replaced, lose the same diversity."
    n, kappa = draw.integer(2, 4), [0.3, 0.5, 0.7][draw.integer(0, 2)]
    truth = [0.5, 0.3, 0.2]
    lost = 1 - after(truth, n, kappa, 1) / diversity(truth)
    expect(
        sub.equivalent(n, kappa), 1 / lost, what="`equivalent`", tolerance=1e-7, given={"n": n, "kappa": kappa},
        mistakes={
            "κ is used in place of its square": n / kappa,
            "the result is fewer samples than n, but a model that moves slowly loses as little as *more* samples would": n * kappa**2,
        },
    )  # fmt: skip


# %% [probes]
# no integers, size, values, float32, gradient: numbers are asked for, not tensors


# %% [mutant] κ, not its square
# caught by: law
# says: by its square
def kept(n, kappa, generations):
    return (1 - kappa / n) ** generations


# %% [mutant] everything replaced
# caught by: law
# says: everything replaced
def kept(n, kappa, generations):
    return (1 - 1 / n) ** generations


# %% [mutant] the mixture's square, without the old model's
# caught by: law
def kept(n, kappa, generations):
    return ((1 - kappa) ** 2 + kappa**2 * (1 - 1 / n)) ** generations


# %% [mutant] fewer draws in place of more
# caught by: same_loss
# says: more
def equivalent(n, kappa):
    return n * kappa**2


# %% [partial] 3: the law alone
def equivalent(n, kappa):
    return n
