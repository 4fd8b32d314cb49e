# ---
# title: The best baseline
# kind: derive
# minutes: 30
# ---

# %% [statement]
# A policy with logits $\theta$, `(A,)`, chooses one of $A$ actions, $\pi = \mathrm{softmax}(\theta)$, and gets the reward $Q(a)$. One sample gives the estimate
#
# $$g(a) = \big(Q(a) - b\big)\,\nabla_\theta\log\pi(a)$$
#
# of the gradient of $\mathbb{E}[Q]$, with a baseline $b$ of your choice.
#
# 1. `scores(pi)`: the score functions $\nabla_\theta\log\pi(a)$, one row per action. If yours are right, their mean under $\pi$ is zero. This is why every $b$ gives the same expected estimate.
# 2. `variance(pi, Q, b)`: $\mathbb{E}\|g\|^2 - \|\mathbb{E}\,g\|^2$.
# 3. `best_baseline(pi, Q)`: the $b$ for which the variance is smallest. **Derive it:** only $\mathbb{E}\|g\|^2$ depends on $b$. Where does its derivative vanish? It is not the mean of $Q$.
#
# The checker differentiates, lists all actions, and fits a parabola to three variances.

# %% [given]
import torch


# %% [stub]
def scores(pi):
    """pi: (A,) probabilities, all positive. Returns (A, A): row a is the gradient of log pi(a) in the logits."""
    raise NotImplementedError


def variance(pi, Q, b):
    """pi, Q: (A,). b: one number. Returns the variance of one sample's estimate, one number."""
    raise NotImplementedError


def best_baseline(pi, Q):
    """pi, Q: (A,). Returns the baseline of least variance, one number."""
    raise NotImplementedError


# %% [solution]
def scores(pi):
    return torch.eye(len(pi), dtype=pi.dtype) - pi


def variance(pi, Q, b):
    g = (Q - b)[:, None] * scores(pi)
    mean = pi @ g
    return pi @ (g - mean).square().sum(-1)


def best_baseline(pi, Q):
    weight = pi * scores(pi).square().sum(-1)
    return (weight * Q).sum() / weight.sum()


# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, test, tidy, tidy_distribution


def problem(draw):
    """Return three actions of uneven probability; the value of the most probable one is far from the others."""
    pi = torch.tensor([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.5, 0.3, 0.2]][draw.integer(0, 2)], dtype=torch.float64)
    Q = torch.tensor([4.0, 1.0, 0.0], dtype=torch.float64) + tidy(draw.uniform(3, high=0.8))
    order = draw.permutation(3)
    return pi[order], Q[order]


def true_scores(pi):
    """Return the scores, by autograd."""
    rows = []
    for a in range(len(pi)):
        theta = pi.log().requires_grad_()
        rows.append(torch.autograd.grad(theta.log_softmax(-1)[a], theta)[0])
    return torch.stack(rows)


def spread(pi, Q, b):
    """Return half the mean squared distance of two independent estimates."""
    g = (Q - b)[:, None] * true_scores(pi)
    return 0.5 * pi @ (g[:, None] - g[None]).square().sum(-1) @ pi


@test(
    points=1,
    against="autograd",
    hints=(
        "log π(a) = θ_a − log Σ exp θ. Differentiate both terms, in the logit of a itself and in the other logits.",
        "The first term gives 1 at index a and 0 elsewhere. The second is the same for every a.",
    ),
)
def score_functions(sub, draw):
    "`scores` are the gradients of the log-probabilities."
    pi, _ = problem(draw)
    truth = true_scores(pi)
    expect(
        sub.scores(pi),
        truth,
        what="the matrix of scores",
        given={"pi": pi},
        mistakes={
            "these are gradients of the probability, not its logarithm": pi[:, None] * truth,
            "the normaliser of the softmax is not differentiated": torch.eye(3),
            "rows and columns are exchanged": truth.T,
        },
    )


@test(
    points=2,
    against="half the mean squared distance of two samples",
    hints=(
        "The estimate is a vector. The variance sums over its entries, and over actions with their probabilities.",
        "Subtract the expected estimate first, then square, then average with pi.",
    ),
)
def noise(sub, draw):
    "`variance` is the variance of one sample's estimate."
    pi, Q = problem(draw)
    b = draw.integer(1, 5) / 2
    g = (Q - b)[:, None] * true_scores(pi)
    expect(
        sub.variance(pi, Q, b),
        spread(pi, Q, b),
        what="the variance",
        given={"pi": pi, "Q": Q, "b": b},
        mistakes={
            "the square of the mean is not subtracted": pi @ g.square().sum(-1),
            "only one component of the mean is squared": pi @ g.square().sum(-1) - (pi @ g)[0] ** 2,
            "all actions count the same": (g - g.mean(0)).square().sum(-1).mean(),
            "the baseline is left out": spread(pi, Q, 0.0),
        },
    )


@test(
    points=3,
    against="the lowest point of the parabola through three variances",
    hints=(
        "E‖g‖² = Σ π(a) ‖score(a)‖² (Q(a) − b)². It is a parabola in b; set its derivative to zero.",
        "The result is a mean of Q, but the weights are not the probabilities alone.",
    ),
)
def least_noise(sub, draw):
    "`best_baseline` has the least variance."
    pi, Q = problem(draw)
    low, middle, high = (spread(pi, Q, b) for b in (-1.0, 0.0, 1.0))
    squares = true_scores(pi).square().sum(-1)
    expect(
        sub.best_baseline(pi, Q),
        (low - high) / (2 * (low - 2 * middle + high)),
        what="the best baseline",
        given={"pi": pi, "Q": Q},
        mistakes={
            "it is the value, the mean of Q": pi @ Q,
            "all actions count the same: it is the plain mean of Q": Q.mean(),
            "it is the median of Q": Q.median(),
            "the length of the score is not squared": (pi * squares.sqrt() @ Q) / (pi @ squares.sqrt()),
            "the probabilities are left out": (squares @ Q) / squares.sum(),
            "the weights are not normalised": (pi * squares) @ Q,
        },
    )


# %% [probes]
# no gradient: the exercise asks for a formula, in any library


# %% [mutant] the gradient of the probability
# caught by: score_functions
# says: not its logarithm
def scores(pi):
    return pi[:, None] * (torch.eye(len(pi), dtype=pi.dtype) - pi)


# %% [mutant] the second moment
# caught by: noise
# says: is not subtracted
def variance(pi, Q, b):
    return pi @ ((Q - b)[:, None] * scores(pi)).square().sum(-1)


# %% [mutant] the value as the best baseline
# caught by: least_noise
# says: it is the value
def best_baseline(pi, Q):
    return pi @ Q


# %% [mutant] weighted with the length
# caught by: least_noise
# says: is not squared
def best_baseline(pi, Q):
    weight = pi * scores(pi).norm(dim=-1)
    return (weight * Q).sum() / weight.sum()


# %% [partial] 3: scores and variance are right, the best baseline is not begun
def best_baseline(pi, Q):
    raise NotImplementedError
