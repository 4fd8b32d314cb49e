# ---
# title: The adapter that learned nothing
# kind: bughunt
# minutes: 25
# ---

# %% [statement]
# A student trains an adapter without automatic differentiation. There is a frozen layer `weight` ($o \times i$), and two narrow matrices, `down` ($A$, $r \times i$) and `up` ($B$, $o \times r$), with scale $\alpha/r$. The loss is the mean squared error
# $\frac1n\sum_n \|W' x_n - y_n\|^2$, and the optimiser is plain gradient descent. The loss curve is a horizontal line. One mistake causes this. After it is corrected, the loss falls, but not as it should,
# and the merged layer is not the model that was trained.
#
# There are four mistakes in the three functions. Find and correct them. `minirlhf check 10.7 --picture mine.png` draws your curve beside the right one.
#
# * `start(rank, inputs, outputs, seed)` returns `down` and `up`. They leave the layer unchanged, and gradient descent can move away from them.
# * `step(weight, down, up, x, y, alpha, lr)` returns `down` and `up` after *one* step of gradient descent in both, with both gradients taken at the old values.
# * `merge(weight, down, up, alpha)` returns the layer with the adapter added.

# %% [given]
import torch


# %% [stub]
def start(rank, inputs, outputs, seed):
    """Returns (r, i) and (o, r), float64."""
    generator = torch.Generator().manual_seed(seed)
    down = torch.randn(rank, inputs, generator=generator, dtype=torch.float64) / inputs**0.5
    up = torch.zeros(outputs, rank, dtype=torch.float64)
    return torch.zeros_like(down), up


def step(weight, down, up, x, y, alpha, lr):
    """x: (n, i). y: (n, o). Returns new down and up."""
    scale = alpha / len(down)
    error = x @ (weight + scale * up @ down).T - y
    slope = 2 * error.T @ x / len(x)
    up = up - lr * slope @ down.T
    down = down - lr * scale * up.T @ slope
    return down, up


def merge(weight, down, up, alpha):
    """Returns (o, i)."""
    return weight + up @ down


# %% [solution]
def start(rank, inputs, outputs, seed):
    generator = torch.Generator().manual_seed(seed)
    down = torch.randn(rank, inputs, generator=generator, dtype=torch.float64) / inputs**0.5
    return down, torch.zeros(outputs, rank, dtype=torch.float64)


def step(weight, down, up, x, y, alpha, lr):
    scale = alpha / len(down)
    error = x @ (weight + scale * up @ down).T - y
    slope = 2 * error.T @ x / len(x)
    return down - lr * scale * up.T @ slope, up - lr * scale * slope @ down.T


def merge(weight, down, up, alpha):
    return weight + alpha / len(down) * up @ down


# %% [tests]
import torch
from minirlhf.core import exact
from minirlhf_course.classroom.testing import expect, fail, test

RANK, ALPHA = 2, 6.0


def task(draw, count=12, inputs=5, outputs=4):
    """A layer, and data that a change of rank two explains."""
    weight = draw.normal(outputs, inputs)
    change = draw.normal(outputs, RANK) @ draw.normal(RANK, inputs)
    x = draw.normal(count, inputs)
    return weight, x, x @ (weight + change).T


def loss(weight, down, up, x, y, alpha=ALPHA):
    layer = weight + alpha / len(down) * up @ down
    return (x @ layer.T - y).square().sum(-1).mean()


@test(
    points=1,
    hints=(
        "Which of the two matrices must be zero, so that the layer is unchanged? And what is the gradient of each if both are zero?",
        "One of them is zero, the other random. If both are zero, each gradient is a product with the other matrix, so nothing ever moves.",
    ),
)
def begins(sub, draw):
    "`start` leaves the layer unchanged, and gradient descent can move away from it."
    found = []
    for seed in (1, 2):
        down, up = sub.start(3, 6, 5, seed)
        if tuple(down.shape) != (3, 6) or tuple(up.shape) != (5, 3):
            fail(f"`start` returns shapes {tuple(down.shape)} and {tuple(up.shape)}; expected (3, 6) and (5, 3)")
        expect(up @ down, torch.zeros(5, 6, dtype=torch.float64), what="the change of the layer by the initial adapter")
        found.append(torch.cat([down.flatten(), up.flatten()]))
    if not found[0].abs().max() > 1e-6:
        fail("both matrices are zero: the gradient of each is a product with the other, so neither ever moves")
    if torch.equal(found[0], found[1]):
        fail("two seeds give the same adapter")
    down, up = sub.start(3, 6, 5, 2)
    if not torch.equal(found[1], torch.cat([down.flatten(), up.flatten()])):
        fail("the same seed gives another adapter at the second call")


@test(
    points=2,
    hints=(
        "Compare with the chain rule, matrix by matrix. Which quantities must be taken at the start of the step?",
        "Both gradients have the factor α/r, and the one of `down` needs the `up` from before the step.",
    ),
    against="finite differences",
)
def descends(sub, draw):
    "`step` is one step of gradient descent."
    weight, x, y = task(draw)
    down, up, lr = draw.normal(RANK, 5), draw.normal(4, RANK), 0.01
    by_down = exact.finite_difference(lambda a: loss(weight, a, up, x, y), down).reshape(down.shape)
    by_up = exact.finite_difference(lambda b: loss(weight, down, b, x, y), up).reshape(up.shape)
    new_down, new_up = sub.step(weight, down, up, x, y, ALPHA, lr)
    scale = ALPHA / RANK
    expect(
        new_up,
        up - lr * by_up,
        what="`up` after the step",
        tolerance=1e-6,
        mistakes={
            "the factor α/r of the chain rule is left out": up - lr * by_up / scale,
            "the factor α/r is applied twice in the gradient": up - lr * by_up * scale,
            "the step goes uphill": up + lr * by_up,
        },
    )
    later = up - lr * by_up
    gap = x @ (scale * up @ down + weight).T - y
    late = scale * later.T @ (2 * gap.T @ x / len(x))
    early = scale * (up - lr * by_up / scale).T @ (2 * gap.T @ x / len(x))
    expect(
        new_down,
        down - lr * by_down,
        what="`down` after the step",
        tolerance=1e-6,
        mistakes={
            "its gradient is taken at the new `up`, not at the old one": down - lr * late,
            "its gradient is taken at the new `up`, which was computed without α/r": down - lr * early,
            "the factor α/r of the chain rule is left out": down - lr * by_down / scale,
            "the factor α/r is applied twice in the gradient": down - lr * by_down * scale,
        },
    )


@test(
    points=1,
    hints=("Merge, and compare with the layer that `step` used.", "The merged layer needs the scale α/r too."),
)
def merges(sub, draw):
    "`merge` gives the layer that was trained."
    weight, down, up = draw.normal(4, 5), draw.normal(RANK, 5), draw.normal(4, RANK)
    for alpha in (ALPHA, 3.0):
        narrow = torch.stack([down @ column for column in torch.eye(5, dtype=torch.float64)], 1)
        expect(
            sub.merge(weight, down, up, alpha),
            weight + alpha / RANK * (up @ narrow),
            what="the merged layer",
            mistakes={
                "the scale α/r is left out": weight + up @ down,
                "it is divided by r only": weight + up @ down / RANK,
                "the layer itself is left out; this is only the adapter's change": alpha / RANK * up @ down,
            },
        )


@test(
    points=1,
    hints=(
        "Do the parts fit together?",
        "The loss of the merged layer must equal the loss of layer and adapter, and fall to less than half in 600 steps.",
    ),
)
def learns(sub, draw):
    "In 600 steps the loss falls to less than half."
    weight, x, y = task(draw, count=40)
    down, up = sub.start(RANK, 5, 4, draw.integer(0, 9999))
    first = float(loss(weight, down, up, x, y))
    for _ in range(600):
        down, up = sub.step(weight, down, up, x, y, ALPHA, 0.004)
    last = float((x @ sub.merge(weight, down, up, ALPHA).T - y).square().sum(-1).mean())
    if not last < first / 2:
        fail(f"the loss goes from {first:.2f} to {last:.2f}; expected less than {first / 2:.2f}")


# %% [picture]
import torch
from minirlhf_course.classroom.testing import Panel, Picture


def fixed():
    """A layer, forty inputs and what is wanted of them."""
    generator = torch.Generator().manual_seed(3)
    drawn = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)
    weight, x = drawn(4, 5), drawn(40, 5)
    return weight, x, x @ (weight + drawn(4, 2) @ drawn(2, 5)).T


def right_losses(weight, x, y, down, up, steps):
    losses = []
    for _ in range(steps):
        a, b = down.clone().requires_grad_(), up.clone().requires_grad_()
        value = loss(weight, a, b, x, y)
        losses.append(float(value))
        by_down, by_up = torch.autograd.grad(value, (a, b))
        down, up = down - 0.004 * by_down, up - 0.004 * by_up
    return torch.tensor(losses, dtype=torch.float64)


def picture(sub):
    """The loss while the adapter is trained."""
    weight, x, y = fixed()
    down, up = sub.start(2, 5, 4, 1)
    generator = torch.Generator().manual_seed(1)
    ours = torch.randn(2, 5, generator=generator, dtype=torch.float64) / 5**0.5
    right = right_losses(weight, x, y, ours, torch.zeros(4, 2, dtype=torch.float64), 150)
    losses = []
    for _ in range(150):
        losses.append(float((x @ sub.merge(weight, down, up, ALPHA).T - y).square().sum(-1).mean()))
        down, up = sub.step(weight, down, up, x, y, ALPHA, 0.004)
    steps = torch.arange(150.0, dtype=torch.float64)
    yours = torch.tensor(losses, dtype=torch.float64)
    panels = (Panel("loss of the merged layer", steps, yours, right, "step", "mean squared error"),)
    return Picture("Loss of the merged layer over 150 steps. Right: it falls from the first step on.", panels)


# %% [probes]
# no random of start: it draws by its seed, from whichever generator
# no keywords, size, values, float32, gradient, nan of start: a random start is asked for, whichever
# no gradient of step: a step of descent is asked for, however it is computed


# %% [mutant] both are zero
# caught by: begins
# says: neither ever moves
def start(rank, inputs, outputs, seed):
    return torch.zeros(rank, inputs, dtype=torch.float64), torch.zeros(outputs, rank, dtype=torch.float64)


# %% [mutant] both are random
# caught by: begins
# says: change of the layer
def start(rank, inputs, outputs, seed):
    generator = torch.Generator().manual_seed(seed)
    drawn = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)
    return drawn(rank, inputs), drawn(outputs, rank)


# %% [mutant] the scale is missing in one gradient
# caught by: descends
# says: the factor
def step(weight, down, up, x, y, alpha, lr):
    scale = alpha / len(down)
    error = x @ (weight + scale * up @ down).T - y
    slope = 2 * error.T @ x / len(x)
    return down - lr * scale * up.T @ slope, up - lr * slope @ down.T


# %% [mutant] the new up is used
# caught by: descends
# says: not at the old one
def step(weight, down, up, x, y, alpha, lr):
    scale = alpha / len(down)
    error = x @ (weight + scale * up @ down).T - y
    slope = 2 * error.T @ x / len(x)
    up = up - lr * scale * slope @ down.T
    return down - lr * scale * up.T @ slope, up


# %% [mutant] merged without its scale
# caught by: merges
# says: the scale
def merge(weight, down, up, alpha):
    return weight + up @ down


# %% [partial] 3: the start and the merging are mended
def step(weight, down, up, x, y, alpha, lr):
    scale = alpha / len(down)
    error = x @ (weight + scale * up @ down).T - y
    slope = 2 * error.T @ x / len(x)
    up = up - lr * slope @ down.T
    return down - lr * scale * up.T @ slope, up


def merge(weight, down, up, alpha):
    return weight + alpha / len(down) * up @ down
