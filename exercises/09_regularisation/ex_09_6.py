# ---
# title: Learning without forgetting
# kind: implement
# minutes: 30
# seconds: 30
# ---

# %% [statement]
# A linear classifier knows three kinds of points. It should learn three new kinds in other places without forgetting the old ones. Each step has 32 new points and only 4 old ones, since old data are scarce.
#
# 1. (five minutes) `rehearsed_loss(new_logits, new_labels, old_logits, old_labels, weight)`: the mean negative log-likelihood of the new points plus `weight` times the mean negative log-likelihood of the old ones. Each mean is over its *own* points. Logits are `(n, 6)` and
#    `(m, 6)`, labels `(n,)` and `(m,)`. It returns a scalar.
# 2. `step(weights, new_x, new_y, old_x, old_y, lr)`: one step of training. `weights` is `(6, 7)`; the logits of points `x`, `(n, 7)`, are `x @ weights.T`. Return new weights. You choose how to keep the old kinds; our `step` is gradient descent of
#    size `lr` on the loss of part 1 with weight 1.
#
# Grading: your `step` runs 60 times on six seeds at `lr = 0.5`. Your score is the *smaller* of two numbers, the mean probability of the right label on held-out new points and on held-out old ones. It is compared with our score on the same
# seeds. You pass if the lower end of the 95 % interval of (your score − ours) is above −0.06. A check shows both curves.
# A step is one step from `weights`, with the points it is given: `lr = 0` changes nothing, and twice the `lr` moves twice as far.

# %% [given]
import torch


# %% [stub]
def rehearsed_loss(new_logits, new_labels, old_logits, old_labels, weight):
    """Returns a scalar."""
    raise NotImplementedError


def step(weights, new_x, new_y, old_x, old_y, lr):
    """weights: (6, 7). new_x: (32, 7), new_y: (32,), old_x: (4, 7), old_y: (4,). Returns (6, 7)."""
    raise NotImplementedError


# %% [solution]
def rehearsed_loss(new_logits, new_labels, old_logits, old_labels, weight):
    new = torch.nn.functional.cross_entropy(new_logits, new_labels)
    return new + weight * torch.nn.functional.cross_entropy(old_logits, old_labels)


def step(weights, new_x, new_y, old_x, old_y, lr):
    weights = weights.clone().requires_grad_()
    loss = rehearsed_loss(new_x @ weights.T, new_y, old_x @ weights.T, old_y, 1.0)
    loss.backward()
    return (weights - lr * weights.grad).detach()


# %% [tests]
import math

import torch
from minirlhf_course.classroom.testing import expect, fail, test, tidy
from minirlhf_course.classroom.training import steps_by, trains, weights_of


def surprise(logits, labels):
    """−log of the right label's share, point by point, in plain numbers."""
    return [
        math.log(sum(math.exp(z) for z in row)) - row[k]
        for row, k in zip(logits.tolist(), labels.tolist(), strict=True)
    ]


@test(
    points=2,
    hints=(
        "Two means, one for each set. What is each divided by?",
        "`cross_entropy` takes the mean over its own points. Add `weight` times the second to the first.",
    ),
    against="the definition, point by point",
)
def two_means(sub, draw):
    "`rehearsed_loss` is the sum of two means, the second weighted."
    new, old = tidy(draw.normal(4, 6)), tidy(draw.normal(2, 6))
    new_y, old_y = ((6 * draw.uniform(n)).long() for n in (4, 2))
    weight = [0.5, 2.0, 3.0][draw.integer(0, 2)]
    a, b = surprise(new, new_y), surprise(old, old_y)
    right = sum(a) / 4 + weight * sum(b) / 2
    shares = [surprise(z.softmax(-1), y) for z, y in ((new, new_y), (old, old_y))]
    raw = [-sum(float(row[k]) for row, k in zip(z, y, strict=True)) / len(y) for z, y in ((new, new_y), (old, old_y))]
    sure = [float(z.softmax(-1).gather(-1, y[:, None]).mean()) for z, y in ((new, new_y), (old, old_y))]
    expect(
        sub.rehearsed_loss(new, new_y, old, old_y, weight),
        right,
        what="the loss",
        given={"new_logits": new, "new_labels": new_y, "old_logits": old, "old_labels": old_y, "weight": weight},
        mistakes={
            "there is one mean over all points, and 4 old points among 32 new ones hardly count": (
                sum(a) + weight * sum(b)
            )
            / 6,
            "the old points are left out": sum(a) / 4,
            "sums are taken instead of means": sum(a) + weight * sum(b),
            "the weight is on the new points": weight * sum(a) / 4 + sum(b) / 2,
            "the sign is wrong: this is a log-likelihood": -right,
            "it is divided by 1 + weight": right / (1 + weight),
            "this is a mixture of the two means, which reduces the weight of the new points": (1 - weight) * sum(a) / 4
            + weight * sum(b) / 2,
            "the softmax is taken twice: `cross_entropy` wants logits": sum(shares[0]) / 4
            + weight * sum(shares[1]) / 2,
            "logits are used as log-probabilities": raw[0] + weight * raw[1],
            "the mean is over the six kinds too": right / 6,
            "the logarithm is missing: this is a sum of probabilities": -sure[0] - weight * sure[1],
        },
    )


class World:
    """Six kinds of points around centres, of which three are old; and a classifier that knows the old ones."""

    def __init__(self, draw):
        self.draw_more = draw
        # as far from each other in every run, which is less noise, but in other places
        signs = 1 - 2 * (draw.uniform(6, 1) < 0.5).double()
        self.centres = 3 * signs * torch.eye(6, dtype=torch.float64)[draw.permutation(6)]
        self.weights = torch.zeros(6, 7, dtype=torch.float64)
        for _ in range(60):
            x, y = self.points(32, new=False)
            share = (x @ self.weights.T).softmax(-1)
            self.weights = self.weights - 0.5 * (share - torch.eye(6, dtype=torch.float64)[y]).T @ x / 32

    def points(self, count, *, new):
        """Points (count, 7), the last coordinate 1, and their kinds."""
        kinds = (self.draw_more.uniform(count) * 3).long() + 3 * new
        x = self.centres[kinds] + self.draw_more.normal(count, 6)
        return torch.cat([x, torch.ones(count, 1, dtype=torch.float64)], 1), kinds


@test(
    points=1,
    hints=(
        "What does your `step` return, and does it change the weights that it receives?",
        "Return new weights of the same shape. `weights -= …` writes into a tensor that belongs to the caller; `weights - …` does not.",
    ),
)
def moves(sub, draw):
    "`step` returns new weights and does not change its argument."
    weights = 0.1 * draw.normal(6, 7)
    new_x, old_x = draw.normal(32, 7), draw.normal(4, 7)
    new_y, old_y = 3 + (3 * draw.uniform(32)).long(), (3 * draw.uniform(4)).long()
    before = weights.clone()
    after = weights_of(sub.step(weights, new_x, new_y, old_x, old_y, 0.5), weights)
    if torch.equal(after, before):
        fail("the weights are the same as before the step")


def one_step(sub, draw):
    """`step` takes one step of the size that it is given."""
    world = World(draw)
    new_x, new_y = world.points(32, new=True)
    old_x, old_y = world.points(4, new=False)
    step = lambda lr: sub.step(world.weights, new_x, new_y, old_x, old_y, lr)
    for lr in (float(draw.uniform(1, low=0.1, high=1.0)), 0.5, 5.0):
        steps_by(step, world.weights, lr, dim=0)


@trains(
    points=2,
    hints=(
        "Plot the curve of the old kinds alone. Which term of the loss concerns them, and with which weight?",
        "Take a gradient step on the loss of part 1 with weight 1: mean over the new points plus mean over the old ones. Return `weights - lr * gradient`.",
    ),
    seeds=6,
    bar=0.06,
    what="the smaller of old and new",
    also=(one_step,),
    alike=("step",),
)
def keeps(sub, draw):
    "After 60 steps the new kinds are learned and the old ones kept (six runs, each paired with ours)."
    world = World(draw)
    weights = world.weights
    held = [world.points(300, new=new) for new in (False, True)]

    def score():
        shares = [(x @ weights.T).softmax(-1).gather(-1, y[:, None]).mean() for x, y in held]
        return float(torch.stack(shares).min())

    curve = [score()]
    for number in range(1, 61):
        new_x, new_y = world.points(32, new=True)
        old_x, old_y = world.points(4, new=False)
        weights = weights_of(sub.step(weights, new_x, new_y, old_x, old_y, 0.5), weights)
        if number % 10 == 0:
            curve.append(score())
    return curve


# %% [probes]
# no cheats of step.lr: a larger weight on the old points makes larger steps, and any weight that keeps them is right
# no keywords, size, values, float32, gradient of step: any step that learns is right
# no gradient of rehearsed_loss.new_labels, rehearsed_loss.old_labels: labels


# %% [mutant] one mean over all points
# caught by: two_means
# says: hardly count
def rehearsed_loss(new_logits, new_labels, old_logits, old_labels, weight):
    new = torch.nn.functional.cross_entropy(new_logits, new_labels, reduction="sum")
    old = torch.nn.functional.cross_entropy(old_logits, old_labels, reduction="sum")
    return (new + weight * old) / (len(new_labels) + len(old_labels))


# %% [mutant] the old ones are left out
# caught by: keeps
def step(weights, new_x, new_y, old_x, old_y, lr):
    weights = weights.clone().requires_grad_()
    torch.nn.functional.cross_entropy(new_x @ weights.T, new_y).backward()
    return (weights - lr * weights.grad).detach()


# %% [mutant] in training, one mean over all points
# caught by: keeps
def step(weights, new_x, new_y, old_x, old_y, lr):
    weights = weights.clone().requires_grad_()
    logits = torch.cat([new_x, old_x]) @ weights.T
    torch.nn.functional.cross_entropy(logits, torch.cat([new_y, old_y])).backward()
    return (weights - lr * weights.grad).detach()


# %% [mutant] upwards
# caught by: keeps
def step(weights, new_x, new_y, old_x, old_y, lr):
    weights = weights.clone().requires_grad_()
    rehearsed_loss(new_x @ weights.T, new_y, old_x @ weights.T, old_y, 1.0).backward()
    return (weights + lr * weights.grad).detach()


# %% [mutant] the weight on the wrong side
# caught by: two_means
# says: on the new points
def rehearsed_loss(new_logits, new_labels, old_logits, old_labels, weight):
    new = torch.nn.functional.cross_entropy(new_logits, new_labels)
    return weight * new + torch.nn.functional.cross_entropy(old_logits, old_labels)


# %% [mutant] writes into the weights
# caught by: keeps
# says: belongs to the caller
def step(weights, new_x, new_y, old_x, old_y, lr):
    leaf = weights.clone().requires_grad_()
    rehearsed_loss(new_x @ leaf.T, new_y, old_x @ leaf.T, old_y, 1.0).backward()
    weights -= lr * leaf.grad
    return weights


# %% [mutant] holds the old so fast that nothing new is learned
# caught by: moves
# says: the same as before
def step(weights, new_x, new_y, old_x, old_y, lr):
    return weights.clone()


# %% [partial] 2: the loss, no training
def step(weights, new_x, new_y, old_x, old_y, lr):
    return weights.clone()
