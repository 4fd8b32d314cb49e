# ---
# title: Only the best one
# kind: derive
# minutes: 30
# ---

# %% [statement]
# Ranking $K$ replies takes time. Instead, a labeller is shown all $K$ and only picks the best. Under Luce's model reply $i$ is picked with probability $p_i \propto e^{r_i}$.
#
# How much does such a pick tell? The **information matrix** of the rewards is $\mathcal{I}_{ij} = \mathbb{E}\big[-\partial^2 \log p_{\text{picked}} / \partial r_i\,\partial r_j\big]$,
# and for any rewards it has a short formula. Derive it.
#
# Then let all $K$ replies be equally good. Compare the pick with *separate comparisons* of two equally good replies, spread evenly over all pairs: how many of these give the
# same information about the rewards? (Both matrices are multiples of the same one, so their traces decide.)
#
# * `information(rewards)`: the matrix, shape `(K, K)`, for rewards of shape `(K,)`;
# * `worth_of_best(K)`: the number of separate comparisons, for an integer `K` of at least 2.
#
# The checker knows no formula: it differentiates twice, and it solves for the number of comparisons from variances. Before you check: what must `worth_of_best(2)` be? And what does a pick among very many replies tend to?

# %% [given]
import torch


# %% [stub]
def information(rewards):
    """Information matrix of one pick. rewards: (K,). Returns (K, K)."""
    raise NotImplementedError


def worth_of_best(K):
    """How many separate comparisons one pick among K equally good replies is worth: one number."""
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
    """Expected second derivatives, by differentiating every log-probability twice."""
    total = torch.zeros(len(rewards), len(rewards), dtype=torch.float64)
    for i in range(len(rewards)):
        log = lambda r, i=i: r[i] - r.exp().sum().log()
        chance = float(log(rewards).exp())
        total -= chance * torch.autograd.functional.hessian(log, rewards)
    return total


def mean_variance(matrix):
    """Mean variance of a difference of two rewards."""
    inverse, n = torch.linalg.pinv(matrix), len(matrix)
    return sum(float(inverse[i, i] + inverse[j, j] - 2 * inverse[i, j]) for i in range(n) for j in range(i)) / (
        n * (n - 1) / 2
    )


@test(
    points=3,
    against="second derivatives by automatic differentiation, averaged over the picks",
    hints=(
        "Take the first derivative of log p_i in r_j. Which part of it depends on the pick, and does that part survive a second derivative?",
        "log p_i = r_i − log Σ_k e^{r_k}: only the last term is curved, and its second derivatives are those of a log-sum-exp.",
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
            "the replies are taken as independent of one another: nothing stands beside the diagonal": torch.diag(
                p * (1 - p)
            ),
            "it is the square of the score of the likeliest pick, and not the mean over the picks": torch.outer(
                best, best
            ),
            "each reply has a logistic probability of its own: a pick is a softmax": torch.diag(rewards.sigmoid())
            - torch.outer(rewards.sigmoid(), rewards.sigmoid()),
            "the sign is turned round": torch.outer(p, p) - torch.diag(p),
            "the mean is not taken away": torch.diag(p),
            "the products of two probabilities have the wrong sign": torch.diag(p) + torch.outer(p, p),
            "rewards stand on the diagonal, not probabilities": torch.diag(rewards) - torch.outer(p, p),
            "all rewards are taken as equal": torch.eye(len(p)).double() / len(p) - 1 / len(p) ** 2,
        },
    )


@test(
    points=2,
    against="variances of differences of rewards, from the matrices themselves",
    hints=(
        "With equal rewards the trace of your matrix is K times one entry. The matrix of one comparison is yours with K = 2, put into the rows and columns of two replies.",
        "A comparison has trace ½. Divide the trace of the pick by it, and check that a pick among two is worth one comparison.",
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
        what="the worth of a pick",
        given={"K": size},
        tolerance=1e-6,
        mistakes={
            "it counts the pairs that the best one wins": float(size - 1),
            "it is the information of a pick in bits": math.log2(size),
            "it is the trace of the pick alone, not in units of a comparison": 1 - 1 / size,
            "a comparison's information is taken as ¼, which is one entry of its matrix, not the trace": 4
            * (1 - 1 / size),
            "it is worth one comparison, whatever K is": 1.0,
            "it grows with K without end": size / 2,
            "it is the worth of a whole ranking": 2 * (size - sum(1 / m for m in range(1, size + 1))),
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
# says: sign is turned
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
