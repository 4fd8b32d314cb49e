# ---
# title: Bug hunt: merging models with shuffled units
# kind: bughunt
# minutes: 25
# ---

# %% [statement]
# The red cross of the chapter's figure is a merger of two good models with a gold reward near or below zero, because the hidden units of one model were in another order.
# Here you repair such a merger.
#
# A model is one hidden layer: `network(model, x)` computes $W_\text{out}\tanh(W_\text{in}x + b_\text{in}) + b_\text{out}$. The two models descend from one checkpoint, and then
# the second one's hidden units were shuffled. Fine-tuning moved the weights only a little, so a unit can be recognised: its incoming weights, its row of $W_\text{in}$, are still *near* the
# row that it had before.
#
# 1. `matching(first, second)`: for each hidden unit of `first`, the index of the unit of `second` whose incoming weights are nearest, by distance;
# 2. `aligned(first, second)`: `second` with its units in the order of `first`. It must still compute what `second` computes, for every input;
# 3. `merge(first, second, shares)`: the mean of `first` and the aligned `second`. `shares` are the weights of the two models, on any scale: `[1, 1]` and `[0.5, 0.5]` mean the same, and
#    `[3, 1]` gives the first model three times the weight of the second.
#
# The code below runs, but its mergers compute neither model's function. **There are three bugs, one in each function. Find and fix them.** Test yourself: what should
# `merge` return for a model and its own shuffled copy?

# %% [given]
import torch


def network(model, x):
    """Return a model's output for inputs x: (N, D) -> (N, O)."""
    hidden = torch.tanh(x @ model["in.weight"].T + model["in.bias"])  # (N, H)
    return hidden @ model["out.weight"].T + model["out.bias"]


# %% [stub]
def matching(first, second):
    """Return, for each hidden unit of `first`, the index of the nearest unit of `second`: (H,) integers.

    first, second: {"in.weight": (H, D), "in.bias": (H,), "out.weight": (O, H), "out.bias": (O,)}.
    """
    return (first["in.weight"] @ second["in.weight"].T).argmax(-1)


def aligned(first, second):
    """Return the second model with its hidden units in the order of the first."""
    order = matching(first, second)
    moved = dict(second)
    moved["in.weight"] = second["in.weight"][order]
    moved["in.bias"] = second["in.bias"][order]
    return moved


def merge(first, second, shares):
    """Return the mean of the first model and the aligned second one; shares: two numbers > 0."""
    second = aligned(first, second)
    return {name: shares[0] * first[name] + shares[1] * second[name] for name in first}


# %% [solution]
def matching(first, second):
    gaps = first["in.weight"][:, None] - second["in.weight"][None]  # (H, H, D)
    return gaps.square().sum(-1).argmin(-1)


def aligned(first, second):
    order = matching(first, second)
    return {
        "in.weight": second["in.weight"][order],
        "in.bias": second["in.bias"][order],
        "out.weight": second["out.weight"][:, order],
        "out.bias": second["out.bias"],
    }


def merge(first, second, shares):
    second, total = aligned(first, second), sum(shares)
    return {name: (shares[0] * first[name] + shares[1] * second[name]) / total for name in first}


# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, fail, test, tidy

NAMES = ["in.weight", "in.bias", "out.weight", "out.bias"]


def parent(draw, units=4, outputs=2):
    """Return a model whose second unit is a longer copy of the first, the others far from both; two biases are close.

    A model with another number of outputs has also another number of inputs.
    """
    rows = torch.tensor([[1, 1, 0], [3, 3, 0], [-2, 1, 2], [0, -2, -1], [2, -2, 3]], dtype=torch.float64)[:units]
    rows = rows + tidy(draw.uniform(units, 3, low=-0.2, high=0.2))
    rows[1] = 3 * rows[0]
    bias = torch.tensor([0.5, 0.45, -1.0, 1.5, -2.0], dtype=torch.float64)[:units]
    rows = torch.cat([rows, rows[:, : outputs - 2]], 1)
    out = torch.tensor([[2, 0, -2, 4, 1], [-3, 0, 1, 2, -1]], dtype=torch.float64)[:, :units]
    out = out.repeat(2, 1)[:outputs]
    return {
        "in.weight": rows,
        "in.bias": bias,
        "out.weight": out + tidy(draw.uniform(outputs, units, low=-0.5, high=0.5)),
        "out.bias": tidy(draw.normal(outputs)),
    }


def tuned(model, draw):
    """Return a model not far from this one: neither directions nor biases distinguish the first two units."""
    near = {name: x + 0.1 * tidy(draw.away_from([0.0], *x.shape, low=-1, high=1)) for name, x in model.items()}
    near["in.weight"][1] = 1.02 * model["in.weight"][1]
    near["in.bias"] = model["in.bias"].clone()
    near["in.bias"][:2] = model["in.bias"][:2].flip(0)
    return near


def shuffled(model, order):
    """Return the same function with its units in another order."""
    return {
        "in.weight": model["in.weight"][order],
        "in.bias": model["in.bias"][order],
        "out.weight": model["out.weight"][:, order],
        "out.bias": model["out.bias"],
    }


def order_of(draw, units=4):
    """Return an order that is not its own inverse."""
    first = torch.tensor([[1, 2, 3, 0], [1, 2, 0, 3], [2, 0, 3, 1], [3, 0, 1, 2]][draw.integer(0, 3)])
    return torch.cat([first, torch.arange(4, units)])


def asked(sub, name, *args):
    got = getattr(sub, name)(*args)
    if not isinstance(got, dict) or sorted(map(str, got)) != sorted(NAMES):
        fail(f"the result of `{name}` is not a dictionary with the names {NAMES}")
    return got


@test(
    points=1,
    hints=(
        "One unit's incoming weights may be a multiple of another's. Which of the two does the product prefer?",
        "Measure the distance of every row of one matrix from every row of the other, and take the smallest.",
    ),
)
def the_nearest(sub, draw):
    "`matching` finds the nearest unit."
    for units in (4, 5):
        first, order = parent(draw, units, units - 2), order_of(draw, units)
        second = shuffled(tuned(first, draw), order)
        second["in.bias"] = 5 * second["in.bias"].roll(1)  # biases say nothing
        both = [torch.cat([m["in.weight"], m["in.bias"][:, None]], -1) for m in (first, second)]
        one, other = (m["in.weight"] / m["in.weight"].norm(dim=-1, keepdim=True) for m in (first, second))
        expect(
            sub.matching(first, second),
            order.argsort(),
            what="the matching",
            given={"incoming weights of the first": first["in.weight"], "of the second": second["in.weight"]},
            mistakes={
                "units are compared by a product, which favours long vectors": torch.einsum(
                    "id,jd->ij", first["in.weight"], second["in.weight"]
                ).argmax(-1),
                "directions are compared, and one unit is a multiple of another": (one @ other.T).argmax(-1),
                "the question is reversed: for each unit of the second, one of the first": order,
                "units are matched by their position": torch.arange(units),
                "biases are compared, too": torch.cdist(*both).argmin(-1),
                "differences are added with their signs, so that they cancel": (
                    (first["in.weight"][:, None] - second["in.weight"][None]).sum(-1).argmin(-1)
                ),
            },
        )


@test(
    points=2,
    hints=(
        "Compute `network` of a model before and after. Which weights belong to a hidden unit?",
        "A unit has a row of incoming weights, a bias, and a column of outgoing weights. All three go with it.",
    ),
)
def same_function(sub, draw):
    "`aligned` still computes what the second model computed."
    for units, outputs in ((4, 2), (5, 3), (4, 4)):
        _same_function(sub, draw, parent(draw, units, outputs), order_of(draw, units))


def _same_function(sub, draw, first, order):
    second = shuffled(tuned(first, draw), order)
    x, back = tidy(draw.normal(3, first["in.weight"].shape[1])), order.argsort()
    moved = shuffled(second, back)
    got = asked(sub, "aligned", first, second)
    expect(
        got["in.weight"],
        moved["in.weight"],
        what="the aligned in.weight",
        given={"matching": back},
        mistakes={
            "it is the first model's": first["in.weight"],
            "the units stay in their order": second["in.weight"],
            "the inverse of the order is used": shuffled(second, order)["in.weight"],
        },
    )
    for name in ("in.bias", "out.weight", "out.bias"):
        if not isinstance(got[name], torch.Tensor) or got[name].shape != moved[name].shape:
            expect(got[name], moved[name], what=f"the aligned {name}")
    expect(
        network({name: value.double() for name, value in got.items()}, x),
        network(second, x),
        what="the output of the aligned model",
        given={"x": x, "matching": back, "the second model's out.weight": second["out.weight"]},
        mistakes={
            "the outgoing weights stay where they were": network(moved | {"out.weight": second["out.weight"]}, x),
            "the biases stay where they were": network(moved | {"in.bias": second["in.bias"]}, x),
            "the outgoing weights are sorted by the inverse": network(
                moved | {"out.weight": second["out.weight"][:, order]}, x
            ),
        },
    )


@test(
    points=2,
    hints=(
        "Merge a model with its own shuffled copy at shares [3, 1]. What should come out?",
        "A mean divides by the sum of its weights. The shares need not sum to one, so you must divide.",
    ),
)
def gives_back(sub, draw):
    "`merge` of a model and its shuffled copy is the model; only the ratio of the shares matters."
    for units, outputs in ((4, 2), (5, 3)):
        _gives_back(sub, draw, parent(draw, units, outputs), order_of(draw, units))


def _gives_back(sub, draw, first, order):
    share = draw.integer(2, 5)
    relative = tuned(first, draw)
    for child, unit, said in ((first, 1, "its own shuffled copy"), (relative, 0.1, "a shuffled relative")):
        second, shares, total = shuffled(child, order), [share * unit, unit], (share + 1) * unit
        merged = asked(sub, "merge", first, second, shares)
        for name in NAMES:
            mixture = (share * first[name] + child[name]) / (share + 1)
            expect(
                merged[name],
                mixture,
                what=f"the merged {name}, of a model and {said},",
                given={"shares": shares, "first": first[name], "second": second[name]},
                mistakes={
                    "the sum is not divided by the sum of the shares": total * mixture,
                    "it is divided by the number of models": total * mixture / 2,
                    "the shares are ignored": (first[name] + child[name]) / 2,
                    "the shares are exchanged": (first[name] + share * child[name]) / (share + 1),
                    "the units are not brought into one order first": (share * first[name] + second[name])
                    / (share + 1),
                },
            )


# %% [probes]
# no gradient: weights are merged after training
# no size of matching, aligned, merge: the tests have models of several sizes
# no varied of merge.shares: two models, and so two shares


# %% [mutant] still by a product
# caught by: the_nearest
# says: favours long vectors
def matching(first, second):
    return (first["in.weight"] @ second["in.weight"].T).argmax(-1)


# %% [mutant] the other way round
# caught by: the_nearest
# says: reversed
def matching(first, second):
    return torch.cdist(second["in.weight"], first["in.weight"]).argmin(-1)


# %% [mutant] the outgoing weights forgotten
# caught by: same_function
# says: the outgoing weights stay
def aligned(first, second):
    order = matching(first, second)
    return second | {"in.weight": second["in.weight"][order], "in.bias": second["in.bias"][order]}


# %% [mutant] shares are not parts
# caught by: gives_back
# says: not divided by the sum
def merge(first, second, shares):
    second = aligned(first, second)
    return {name: shares[0] * first[name] + shares[1] * second[name] for name in first}


# %% [mutant] not aligned
# caught by: gives_back
# says: not brought into one order
def merge(first, second, shares):
    return {name: (shares[0] * first[name] + shares[1] * second[name]) / sum(shares) for name in first}


# %% [partial] 1: the units are found, the rest is as it was
def aligned(first, second):
    order = matching(first, second)
    return second | {"in.weight": second["in.weight"][order], "in.bias": second["in.bias"][order]}


def merge(first, second, shares):
    second = aligned(first, second)
    return {name: shares[0] * first[name] + shares[1] * second[name] for name in first}


# %% [partial] 3: found and aligned, shares must still sum to one
def merge(first, second, shares):
    second = aligned(first, second)
    return {name: shares[0] * first[name] + shares[1] * second[name] for name in first}
