# ---
# title: Bug hunt: a descent that does not descend
# kind: bughunt
# minutes: 8
# ---

# %% [statement]
# The function below is gradient descent on a linear model, the smallest training loop. It should return the weights after `steps` steps, and
# the list of the losses before each step. It runs, but its losses make no sense and its steps get longer and longer.
# If it is called twice, the second call also returns the losses of the first.
#
# **There are three bugs: one of shapes, one of autograd, one of Python. Find and fix them.**

# %% [given]
import torch


# %% [stub]
def descend(x, y, w, lr, steps, losses=[]):
    """Minimise the mean of (x·w − y)². x: (n, d). y: (n,). w: (d,). Returns (weights (d,), list of losses)."""
    w = w.clone().requires_grad_()
    for _ in range(steps):
        error = x @ w[:, None] - y
        loss = (error**2).mean()
        losses.append(loss.item())
        loss.backward()
        with torch.no_grad():
            w -= lr * w.grad
    return w.detach(), losses


# %% [solution]
def descend(x, y, w, lr, steps):
    w, losses = w.clone().requires_grad_(), []
    for _ in range(steps):
        loss = ((x @ w - y) ** 2).mean()
        losses.append(loss.item())
        (slope,) = torch.autograd.grad(loss, w)
        with torch.no_grad():
            w -= lr * slope
    return w.detach(), losses


# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, fail, test, tidy


def problem(draw):
    """Four rows of two numbers, and their targets."""
    return tidy(draw.normal(4, 2)), tidy(draw.normal(4)), tidy(draw.normal(2))


def asked(sub, x, y, w, lr, steps):
    got = sub.descend(x, y, w, lr, steps)
    if not isinstance(got, list | tuple) or len(got) != 2 or not isinstance(got[1], list | tuple):
        fail("the result of `descend` is not a pair: weights, and a list of losses")
    return got


def by_hand(x, y, w, lr, steps):
    """Weights after each step, and losses, from the formula of the gradient."""
    weights, losses = [w], []
    for _ in range(steps):
        error = (x * weights[-1]).sum(-1) - y
        losses.append(float((error**2).mean()))
        weights.append(weights[-1] - lr * 2 * (x * error[:, None]).mean(0))
    return weights, losses


@test(
    points=1,
    hints=(
        "Print the shape of `error`. How many numbers should it hold, and how many does it?",
        "`(n, 1)` minus `(n,)` is `(n, n)`: every prediction meets every target. A vector of weights needs no extra axis.",
    ),
)
def shapes(sub, draw):
    "The first loss is the mean squared error: each prediction meets its own target."
    x, y, w = problem(draw)
    _, losses = asked(sub, x, y, w, 0.1, 1)
    if not losses:
        fail("the list of losses is empty after one step")
    crossed = ((x @ w)[:, None] - y[None]) ** 2
    expect(
        losses[-1],
        by_hand(x, y, w, 0.1, 1)[1][0],
        what="the first loss",
        given={"x": x, "y": y, "w": w},
        mistakes={
            "every prediction is compared with every target": float(crossed.mean()),
            "the loss is written down after the step, not before it": by_hand(x, y, w, 0.1, 2)[1][1],
        },
    )


@test(
    points=1,
    hints=(
        "Compare `w.grad` before and after the second call of `backward`.",
        "`backward` adds to `w.grad`. Set `w.grad` to zero between two steps.",
    ),
)
def autograd(sub, draw):
    "Each step follows the gradient of this step."
    x, y, w = problem(draw)
    got, _ = asked(sub, x, y, w, 0.1, 3)
    summed, total = w, torch.zeros(2, dtype=torch.float64)
    for _ in range(3):
        total = total + 2 * (x * ((x * summed).sum(-1) - y)[:, None]).mean(0)
        summed = summed - 0.1 * total
    weights, _ = by_hand(x, y, w, 0.1, 3)
    expect(
        got,
        weights[-1],
        what="the weights after three steps",
        given={"x": x, "y": y, "w": w},
        mistakes={
            "the sum of the squares is differentiated, not their mean": by_hand(x, y, w, 0.4, 3)[0][-1],
            "the gradients of all steps so far are added up": summed,
            "the steps go uphill": by_hand(x, y, w, -0.1, 3)[0][-1],
        },
    )


@test(
    points=1,
    hints=(
        "When is the default value of an argument computed: at each call, or once?",
        "The list in the first line of the function is created once, when the function is defined, and all calls share it. Create it inside the function.",
    ),
)
def python(sub, draw):
    "A second call begins with an empty list."
    x, y, w = problem(draw)
    asked(sub, x, y, w, 0.1, 2)
    _, losses = asked(sub, x, y, w, 0.1, 2)
    if len(losses) != 2:
        fail(f"two steps in a later call, and {len(losses)} losses came back")
    unmoved, losses = asked(sub.aside, x, y, w, 0.1, 0)
    expect(unmoved, w, what="the weights after no step", given={"w": w})
    if len(losses):
        fail(f"no step, and {len(losses)} losses came back")


# %% [probes]
# no gradient: what it returns is cut off from the graph


# %% [mutant] shapes are still crossed
# caught by: shapes
# says: every prediction is compared
def descend(x, y, w, lr, steps):
    w, losses = w.clone().requires_grad_(), []
    for _ in range(steps):
        loss = ((x @ w[:, None] - y) ** 2).mean()
        losses.append(loss.item())
        (slope,) = torch.autograd.grad(loss, w)
        with torch.no_grad():
            w -= lr * slope
    return w.detach(), losses


# %% [mutant] gradients still add up
# caught by: autograd
# says: added up
def descend(x, y, w, lr, steps):
    w, losses = w.clone().requires_grad_(), []
    for _ in range(steps):
        loss = ((x @ w - y) ** 2).mean()
        losses.append(loss.item())
        loss.backward()
        with torch.no_grad():
            w -= lr * w.grad
    return w.detach(), losses


# %% [mutant] the list is still shared
# caught by: python
# says: losses came back
def descend(x, y, w, lr, steps, losses=[]):
    w = w.clone().requires_grad_()
    for _ in range(steps):
        loss = ((x @ w - y) ** 2).mean()
        losses.append(loss.item())
        (slope,) = torch.autograd.grad(loss, w)
        with torch.no_grad():
            w -= lr * slope
    return w.detach(), losses


# %% [partial] 1: the shapes are repaired, the rest is as it was
def descend(x, y, w, lr, steps, losses=[]):
    w = w.clone().requires_grad_()
    for _ in range(steps):
        loss = ((x @ w - y) ** 2).mean()
        losses.append(loss.item())
        loss.backward()
        with torch.no_grad():
            w -= lr * w.grad
    return w.detach(), losses
