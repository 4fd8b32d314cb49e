# ---
# title: One derivative by hand
# kind: derive
# minutes: 6
# ---

# %% [statement]
# A model predicts that one completion is preferred to another with probability $\sigma(w\cdot x)$, with $\sigma(u) = 1/(1+e^{-u})$. The features $x$
# describe the pair, and $w$ are the weights. Its loss is $-\log \sigma(w\cdot x)$.
#
# **Derive the gradient of the loss in $w$** by the chain rule, on paper, and write it as `loss_gradient(w, x)`. One line is enough.

# %% [given]
import torch


# %% [stub]
def loss_gradient(w, x):
    """The derivative of −log σ(w·x) in w. w, x: (n,). Returns (n,)."""
    raise NotImplementedError


# %% [solution]
def loss_gradient(w, x):
    return (torch.sigmoid(w @ x) - 1) * x


# %% [tests]
import torch
from minirlhf.core import exact
from minirlhf_course.classroom.testing import expect, test, tidy


@test(
    points=2,
    against="finite differences of the loss",
    hints=(
        "Three links: −log of something, σ of something, w·x. Multiply their derivatives.",
        "The derivative of σ is σ(1 − σ), and one of its factors cancels against the derivative of the logarithm. The derivative of w·x is x.",
    ),
)
def chain_rule(sub, draw):
    "`loss_gradient` is the derivative of the loss in each weight."
    w, x = tidy(draw.normal(3)), tidy(draw.away_from([0.0], 3, low=-2, high=2, margin=0.2))
    right = exact.finite_difference(lambda v: torch.log1p((-(v * x).sum()).exp()), w)
    s = torch.sigmoid((w * x).sum())
    expect(
        sub.loss_gradient(w, x),
        right,
        what="the gradient",
        given={"w": w, "x": x},
        tolerance=1e-6,
        mistakes={
            "the minus of the loss is left out": -right,
            "the logarithm is not differentiated": -s * (1 - s) * x,
            "the derivative of −log σ(u) is taken to be −1/σ(u)": -x / s,
            "the derivative is taken in x, not in w": (s - 1) * w,
            "the inner derivative, x, is left out": torch.full((3,), float(s - 1)),
            "the strength is σ instead of 1 − σ": -s * x,
        },
    )


@test(
    points=1,
    hints=(
        "What is exp(1000) in floating point, and what is infinity over infinity?",
        "torch's own sigmoid is safe at both ends; a quotient of exponentials is not.",
    ),
)
def very_wrong(sub, draw):
    "A model that is very sure of the wrong completion gets a gradient of full size, not NaN."
    x = tidy(draw.away_from([0.0], 3, low=-2, high=2, margin=0.2))
    expect(sub.loss_gradient(-1000 * x.sign(), x), -x, what="the gradient", given={"w": -1000 * x.sign(), "x": x})


# %% [probes]
# no gradient: a formula is asked for, in whatever library


# %% [mutant] uphill
# caught by: chain_rule
# says: the minus
def loss_gradient(w, x):
    return (1 - torch.sigmoid(w @ x)) * x


# %% [mutant] the derivative of σ alone
# caught by: chain_rule
# says: is not differentiated
def loss_gradient(w, x):
    s = torch.sigmoid(w @ x)
    return -s * (1 - s) * x


# %% [mutant] the inner derivative is missing
# caught by: chain_rule
# says: inner derivative
def loss_gradient(w, x):
    return (torch.sigmoid(w @ x) - 1).expand(len(x))


# %% [mutant] σ instead of 1 − σ
# caught by: chain_rule
# says: instead of 1 − σ
def loss_gradient(w, x):
    return -torch.sigmoid(w @ x) * x


# %% [mutant] a quotient of exponentials
# caught by: very_wrong
# says: NaN
def loss_gradient(w, x):
    e = torch.exp(-(w @ x))
    return -e / (1 + e) * x


# %% [partial] 2: right, but not safe
def loss_gradient(w, x):
    e = torch.exp(-(w @ x))
    return -e / (1 + e) * x
