# ---
# title: Bug hunt: a curve that looks too good
# kind: bughunt
# minutes: 15
# ---

# %% [statement]
# `curve` trains a linear reward model $r(x) = w\cdot x$ on rankings and returns its losses. `rankings` is a list of tensors $(K, d)$: the features of $K$ completions of one prompt, from the best to the worst, with $K$ from 2 to 5. The loss of a
# step should be
#
# * the Bradley–Terry loss of all $K(K-1)/2$ pairs of a prompt, *averaged within the prompt*, then averaged over the prompts,
# * plus `centring` times the squared **sum** of the two rewards, averaged over the pairs in the same way.
#
# It runs, and its curve looks splendid: it begins below zero, far below log 2, and decreases. But a reward model with $w = 0$ must begin at exactly $\log 2$, whatever the data.
#
# **There are three bugs. Find and fix them.** The function returns the list of losses before each step, and the weights after the last step.

# %% [given]
import torch


# %% [stub]
def curve(rankings, w, lr, steps, centring=0.0):
    """rankings: a list of (K, d); w: (d,). Returns (list of losses, weights (d,))."""
    losses = []
    for _ in range(steps):
        w = w.detach().requires_grad_()
        total = 0.0
        for features in rankings:
            rewards = features @ w
            for i in range(len(rewards)):
                for j in range(i + 1, len(rewards)):
                    gap = rewards[i] - rewards[j]
                    pairs = len(rewards) * (len(rewards) - 1)
                    total = total + torch.log(torch.sigmoid(gap)) / pairs
                    total = total + centring * gap**2 / pairs
        loss = total / len(rankings)
        losses.append(loss.item())
        (slope,) = torch.autograd.grad(loss, w)
        w = w - lr * slope
    return losses, w.detach()


# %% [solution]
def curve(rankings, w, lr, steps, centring=0.0):
    losses = []
    for _ in range(steps):
        w = w.detach().requires_grad_()
        total = 0.0
        for features in rankings:
            rewards = features @ w
            i, j = torch.triu_indices(len(rewards), len(rewards), offset=1)
            pair = torch.nn.functional.softplus(rewards[j] - rewards[i]) + centring * (rewards[i] + rewards[j]) ** 2
            total = total + pair.mean()
        loss = total / len(rankings)
        losses.append(loss.item())
        (slope,) = torch.autograd.grad(loss, w)
        w = w - lr * slope
    return losses, w.detach()


# %% [tests]
import itertools
import math

import torch
from minirlhf_course.classroom.testing import expect, fail, test, tidy


def problem(draw, width=2):
    """Three prompts with 2, 3 and 5 ranked completions of some features."""
    return [tidy(draw.normal(k, width)) for k in (2, 3, 5)], tidy(draw.normal(width))


def loss_of(
    rankings, w, centring, *, sign=1.0, weight=lambda k: 1 / math.comb(k, 2), penalty=lambda a, b: (a + b) ** 2
):
    """Pair by pair, in plain numbers."""
    total = 0.0
    for features in rankings:
        rewards = (features @ w).tolist()
        for a, b in itertools.combinations(rewards, 2):
            total += weight(len(rewards)) * (sign * math.log1p(math.exp(b - a)) + centring * penalty(a, b))
    return total / len(rankings)


def slope_of(rankings, w, centring):
    """By central differences."""
    ends = [(w + 1e-6 * e, w - 1e-6 * e) for e in torch.eye(len(w), dtype=torch.float64)]
    return torch.tensor(
        [(loss_of(rankings, a, centring) - loss_of(rankings, b, centring)) / 2e-6 for a, b in ends], dtype=torch.float64
    )


def curve_of(rankings, w, lr, centring):
    """Three losses, and the weights after them."""
    losses = []
    for _ in range(3):
        losses.append(loss_of(rankings, w, centring))
        w = w - lr * slope_of(rankings, w, centring)
    return torch.tensor(losses, dtype=torch.float64), w


def asked(sub, *given):
    got = sub.curve(*given)
    if not isinstance(got, list | tuple) or len(got) != 2 or not isinstance(got[0], list | tuple) or not got[0]:
        fail("the result of `curve` is not a pair: a list of losses, and the weights")
    return got


@test(
    points=1,
    hints=(
        "The loss is below zero. Which logarithm is never positive?",
        "Training minimises the loss. Which of the two is small for a good model, the log-probability or its negative?",
    ),
)
def sign(sub, draw):
    "The loss is a negative log-likelihood: positive, and smaller for a better model (one prompt with two completions, no centring)."
    rankings, w = problem(draw)
    losses, _ = asked(sub, rankings[:1], w, 0.1, 1)
    want = loss_of(rankings[:1], w, 0.0)
    got = losses[0]
    if not got > 0:
        fail("the first loss is negative", losses=torch.tensor(losses))
    # how the pairs are weighed is asked next
    _, after = asked(sub, rankings[:1], w, 0.1, 1)
    if abs(got - loss_of(rankings[:1], after, 0.0)) < 1e-9:
        fail("the first loss belongs to the weights after the step; the list holds the losses *before* each step")
    if min(abs(got - want), abs(got - want / 2)) > 1e-5:
        fail(f"the first loss of a single pair is {got:.6f}", rewards=rankings[0] @ w)


@test(
    points=1,
    hints=(
        "With w = 0 every pair costs log 2. What do the weights of a prompt's pairs add up to?",
        "Count the pairs of three completions by hand, and compare with `pairs`.",
    ),
)
def balance(sub, draw):
    "The weights of a prompt's pairs add up to 1; at w = 0 the loss is log 2."
    rankings, w = problem(draw)
    for start in (torch.zeros(2, dtype=torch.float64), w):
        want = loss_of(rankings, start, 0.0)
        losses, _ = asked(sub, rankings, start, 0.1, 1)
        expect(
            losses[0],
            want,
            what="the first loss",
            given={"w": start},
            mistakes={
                "ordered pairs are counted, twice too many": want / 2,
                "every pair has the same weight": loss_of(rankings, start, 0.0, weight=lambda k: 3 / 14),
                "the weights are 1/K": loss_of(rankings, start, 0.0, weight=lambda k: 1 / k),
            },
        )


@test(
    points=1,
    hints=(
        "Centring should not change the difference of the two rewards.",
        "The penalty depends on the sum. For which rewards is it zero?",
    ),
)
def centred(sub, draw):
    "The penalty is the squared sum of the two rewards."
    rankings, w = problem(draw)
    want = loss_of(rankings, w, 0.3)
    losses, _ = asked(sub, rankings, w, 0.1, 1, 0.3)
    expect(
        losses[0],
        want,
        what="the first loss with centring",
        given={"w": w},
        mistakes={
            "the difference is penalised": loss_of(rankings, w, 0.3, penalty=lambda a, b: (a - b) ** 2),
            "the penalty is added twice": 2 * want - loss_of(rankings, w, 0.0),
            "the penalty is summed over the pairs of a prompt, not averaged": loss_of(rankings, w, 0.0)
            + loss_of(rankings, w, 0.3, sign=0.0, weight=lambda k: 1.0),
            "the squares are added": loss_of(rankings, w, 0.3, penalty=lambda a, b: a**2 + b**2),
        },
    )


@test(
    points=1,
    hints=(
        "Does each loss use the weights of the step before it?",
        "Each step descends along the gradient of this step's loss, centring included.",
    ),
)
def descends(sub, draw):
    "Three steps of gradient descent."
    rankings, w = problem(draw, 3)
    losses, last = asked(sub, rankings, w, 0.2, 3, 0.1)
    want, here = curve_of(rankings, w, 0.2, 0.1)
    expect(
        torch.tensor([float(x) for x in losses], dtype=torch.float64),
        want,
        what="the list of losses",
        mistakes={"each step goes up the gradient": curve_of(rankings, w, -0.2, 0.1)[0]},
    )
    expect(last, here, what="the weights after three steps", tolerance=1e-4)


# %% [probes]
# range 1e-4 to 100 of curve: the given loops take plain exponentials
# no gradient: what it returns is cut off from the graph
# no size: prompts of several lengths hang together


# %% [mutant] only the sign is fixed
# caught by: balance
# says: twice too many
def curve(rankings, w, lr, steps, centring=0.0):
    losses = []
    for _ in range(steps):
        w = w.detach().requires_grad_()
        total = 0.0
        for features in rankings:
            rewards = features @ w
            for i in range(len(rewards)):
                for j in range(i + 1, len(rewards)):
                    pairs = len(rewards) * (len(rewards) - 1)
                    total = total - torch.nn.functional.logsigmoid(rewards[i] - rewards[j]) / pairs
                    total = total + centring * (rewards[i] + rewards[j]) ** 2 / pairs
        loss = total / len(rankings)
        losses.append(loss.item())
        (slope,) = torch.autograd.grad(loss, w)
        w = w - lr * slope
    return losses, w.detach()


# %% [mutant] the difference is still penalised
# caught by: centred
# says: difference is penalised
def curve(rankings, w, lr, steps, centring=0.0):
    losses = []
    for _ in range(steps):
        w = w.detach().requires_grad_()
        total = 0.0
        for features in rankings:
            rewards = features @ w
            i, j = torch.triu_indices(len(rewards), len(rewards), offset=1)
            pair = torch.nn.functional.softplus(rewards[j] - rewards[i]) + centring * (rewards[i] - rewards[j]) ** 2
            total = total + pair.mean()
        loss = total / len(rankings)
        losses.append(loss.item())
        (slope,) = torch.autograd.grad(loss, w)
        w = w - lr * slope
    return losses, w.detach()


# %% [mutant] the steps ascend
# caught by: descends
def curve(rankings, w, lr, steps, centring=0.0):
    losses = []
    for _ in range(steps):
        w = w.detach().requires_grad_()
        total = 0.0
        for features in rankings:
            rewards = features @ w
            i, j = torch.triu_indices(len(rewards), len(rewards), offset=1)
            pair = torch.nn.functional.softplus(rewards[j] - rewards[i]) + centring * (rewards[i] + rewards[j]) ** 2
            total = total + pair.mean()
        loss = total / len(rankings)
        losses.append(loss.item())
        (slope,) = torch.autograd.grad(loss, w)
        w = w + lr * slope
    return losses, w.detach()


# %% [partial] 2: sign and weights are fixed, the penalty is not
def curve(rankings, w, lr, steps, centring=0.0):
    losses = []
    for _ in range(steps):
        w = w.detach().requires_grad_()
        total = 0.0
        for features in rankings:
            rewards = features @ w
            i, j = torch.triu_indices(len(rewards), len(rewards), offset=1)
            pair = torch.nn.functional.softplus(rewards[j] - rewards[i]) + centring * (rewards[i] - rewards[j]) ** 2
            total = total + pair.mean()
        loss = total / len(rankings)
        losses.append(loss.item())
        (slope,) = torch.autograd.grad(loss, w)
        w = w - lr * slope
    return losses, w.detach()
