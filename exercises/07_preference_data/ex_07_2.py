# ---
# title: Information in a pick of the best
# kind: derive
# minutes: 30
# ---

# %% [statement]
# Ranking $K$ completions takes time. Instead, an annotator sees all $K$ and picks only the best. Under Luce's model, completion $i$ is picked with probability $p_i \propto e^{r_i}$.
#
# How much information does such a pick contain? The **information matrix** of the rewards is $\mathcal{I}_{ij} = \mathbb{E}\big[-\partial^2 \log p_{\text{picked}} / \partial r_i\,\partial r_j\big]$,
# and it has a short formula for any rewards. Derive it.
#
# Then let all $K$ completions be equally good. Compare the pick with *separate comparisons* of two equally good completions, spread evenly over all pairs. How many comparisons give the
# same information about the rewards? (Both matrices are multiples of the same matrix, so compare their traces.)
#
# * `information(rewards)`: the matrix, shape `(K, K)`, for rewards of shape `(K,)`;
# * `worth_of_best(K)`: the number of separate comparisons with the same information, for an integer `K` of at least 2.
#
# The checker uses no formula: it differentiates twice, and it computes the number of comparisons from variances. Before you check: what must `worth_of_best(2)` be? And what is its limit for very many completions?

# %% [given]
import torch


# %% [stub]
def information(rewards):
    """Information matrix of one pick. rewards: (K,). Returns (K, K)."""
    raise NotImplementedError


def worth_of_best(K):
    """Number of separate comparisons with the same information as one pick among K equally good completions."""
    raise NotImplementedError


# %% [solution]
def information(rewards):
    p = torch.softmax(rewards, -1)
    return torch.diag(p) - torch.outer(p, p)


def worth_of_best(K):
    return 2 * (1 - 1 / K)


# %% [tests]
import math

import torch
from minirlhf_course.classroom.testing import expect, test, tidy


def curvature(rewards):
    """Return minus the expected second derivatives, by differentiating every log-probability twice."""
    total = torch.zeros(len(rewards), len(rewards), dtype=torch.float64)
    for i in range(len(rewards)):
        log = lambda r, i=i: r[i] - r.exp().sum().log()
        chance = float(log(rewards).exp())
        total -= chance * torch.autograd.functional.hessian(log, rewards)
    return total


def mean_variance(matrix):
    """Return the mean variance of a difference of two rewards."""
    inverse, n = torch.linalg.pinv(matrix), len(matrix)
    return sum(float(inverse[i, i] + inverse[j, j] - 2 * inverse[i, j]) for i in range(n) for j in range(i)) / (
        n * (n - 1) / 2
    )


@test(
    points=3,
    against="second derivatives by automatic differentiation, averaged over the picks",
    hints=(
        "Take the first derivative of log p_i in r_j. Which part of it depends on the pick? Is this part still there after a second derivative?",
        "log p_i = r_i − log Σ_k e^{r_k}: only the last term has second derivatives, the second derivatives of a log-sum-exp.",
    ),
)
def matrix(sub, draw):
    "`information` is the expected curvature of the log-probability of the pick."
    rewards = tidy(draw.normal(draw.integer(3, 4)))
    p = torch.softmax(rewards, -1)
    best = torch.nn.functional.one_hot(p.argmax(), len(p)) - p
    expect(
        sub.information(rewards),
        curvature(rewards),
        what="the information matrix",
        given={"rewards": rewards},
        tolerance=1e-6,
        mistakes={
            "the completions are treated as independent of one another: all entries off the diagonal are zero": torch.diag(
                p * (1 - p)
            ),
            "this is the squared score of the most probable pick instead of the mean over the picks": torch.outer(
                best, best
            ),
            "each completion has a separate logistic probability here, but the probability of a pick is a softmax": torch.diag(
                rewards.sigmoid()
            )
            - torch.outer(rewards.sigmoid(), rewards.sigmoid()),
            "the sign is reversed": torch.outer(p, p) - torch.diag(p),
            "the products of two probabilities are missing": torch.diag(p),
            "the products of two probabilities have the wrong sign": torch.diag(p) + torch.outer(p, p),
            "the diagonal contains rewards instead of probabilities": torch.diag(rewards) - torch.outer(p, p),
            "this is the matrix for equal rewards": torch.eye(len(p)).double() / len(p) - 1 / len(p) ** 2,
        },
    )


@test(
    points=2,
    against="variances of differences of rewards, from the matrices themselves",
    hints=(
        "With equal rewards the trace of your matrix is K times one entry. The matrix of one comparison is your matrix for K = 2, in the rows and columns of two completions.",
        "A comparison has trace ½. Divide the trace of the pick by it, and check that a pick among two equals one comparison.",
    ),
)
def worth(sub, draw):
    "`worth_of_best` separate comparisons leave the same uncertainty as one pick."
    size = draw.integer(5, 9)  # where common mistakes give different numbers
    one = torch.zeros(size, size, dtype=torch.float64)
    for i in range(size):
        for j in range(i):
            sign = torch.zeros(size, dtype=torch.float64)
            sign[i], sign[j] = 1.0, -1.0
            one += torch.outer(sign, sign) / 4 / (size * (size - 1) / 2)
    want = mean_variance(one) / mean_variance(curvature(torch.zeros(size, dtype=torch.float64)))
    expect(
        sub.worth_of_best(size),
        want,
        what="the number of comparisons",
        given={"K": size},
        tolerance=1e-6,
        mistakes={
            "this counts the pairs that the best one wins": float(size - 1),
            "this is the entropy of a pick in bits": math.log2(size),
            "this is the trace of the pick alone, not in units of a comparison": 1 - 1 / size,
            "the trace of a comparison is taken as ¼, which is one entry of its matrix": 4 * (1 - 1 / size),
            "this is 1 for every K": 1.0,
            "this grows with K without limit": size / 2,
            "this is the number for a whole ranking": 2 * (size - sum(1 / m for m in range(1, size + 1))),
        },
    )


# %% [probes]
# no gradient: a formula is asked for, in whatever library
# no size of worth_of_best: it takes one number


# %% [mutant] nothing beside the diagonal
# caught by: matrix
# says: independent of one another
def information(rewards):
    p = torch.softmax(rewards, -1)
    return torch.diag(p * (1 - p))


# %% [mutant] the sign
# caught by: matrix
# says: sign is reversed
def information(rewards):
    p = torch.softmax(rewards, -1)
    return torch.outer(p, p) - torch.diag(p)


# %% [mutant] every win counts
# caught by: worth
# says: pairs that the best one wins
def worth_of_best(K):
    return K - 1


# %% [mutant] not in units of a comparison
# caught by: worth
# says: the trace of the pick alone
def worth_of_best(K):
    return 1 - 1 / K


# %% [partial] 3: the matrix is right, its worth is not answered
def worth_of_best(K):
    raise NotImplementedError


# %% [partial] 2: the worth is guessed from the equal case, the matrix is not derived
def information(rewards):
    raise NotImplementedError
