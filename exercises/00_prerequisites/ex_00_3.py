# ---
# title: Shapes, gather, broadcasting
# kind: implement
# minutes: 8
# ---

# %% [statement]
# The whole library uses these three operations on tensors. Each is one line, without a loop over rows.
#
# 1. `pick(table, index)`: from each row of `table`, `(B, V)`, the entry in the column that `index`, `(B,)`, names. Returns `(B,)`. The
#    other entries may be anything, such as $-\infty$.
# 2. `row_mean(x, mask)`: the mean of each row of `x`, `(B, T)`, over the positions where `mask` is True: anywhere in the row, at least one. Returns `(B,)`.
# 3. `centre(x)`: each entry of `x`, `(B, T)`, minus the mean of its own row. Returns `(B, T)`.

# %% [given]
import torch


# %% [stub]
def pick(table, index):
    """One entry of each row. table: (B, V). index: (B,) of integers. Returns (B,)."""
    raise NotImplementedError


def row_mean(x, mask):
    """The mean of each row where mask is True. x, mask: (B, T). Returns (B,)."""
    raise NotImplementedError


def centre(x):
    """Each entry minus its row's mean. x: (B, T). Returns (B, T)."""
    raise NotImplementedError


# %% [solution]
def pick(table, index):
    return table.gather(-1, index[:, None]).squeeze(-1)


def row_mean(x, mask):
    return torch.where(mask, x, 0.0).sum(-1) / mask.sum(-1)


def centre(x):
    return x - x.mean(-1, keepdim=True)


# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, test, tidy


@test(
    points=1,
    hints=(
        "`table[:, index]` takes the same columns of every row: look at its shape.",
        "`gather` along the last axis needs an index with as many axes as the table. Add an axis to the index, and remove this axis from the result.",
    ),
)
def gathers(sub, draw):
    "`pick` takes one entry of each row."
    table, index = tidy(draw.normal(3, 5)), draw.permutation(5)[:3]
    rows = table.tolist()
    expect(
        sub.pick(table, index),
        torch.tensor([rows[i][j] for i, j in enumerate(index.tolist())]).double(),
        what="the picked entries",
        given={"table": table, "index": index},
        mistakes={"the first row is used for all": table[0, index]},
    )
    forbidden = torch.full((3, 5), -torch.inf, dtype=torch.float64).scatter(-1, index[:, None], table)
    expect(
        sub.aside.pick(forbidden, index),
        forbidden.amax(-1),
        what="the picked entries",
        given={"table": forbidden, "index": index},
    )


@test(
    points=1,
    hints=(
        "How many entries count in each row? Not T.",
        "Sum what the mask keeps, and divide by the mask's own sum.",
    ),
)
def masks(sub, draw):
    "`row_mean` averages over the positions where the mask is True, and over no others."
    x = tidy(draw.uniform(3, 4, low=1, high=3)) * torch.tensor([1.0, -1.0, 1.0, 1.0])
    mask = torch.tensor([[True, True, False, False], [False, True, False, True], [True, False, True, True]])
    x[2, 2] = 0.0  # a number like any other
    order = draw.permutation(3)
    x, mask = x[order], mask[order]
    kept = [[v for v, k in zip(r, m, strict=True) if k] for r, m in zip(x.tolist(), mask.tolist(), strict=True)]
    expect(
        sub.row_mean(x, mask),
        torch.tensor([sum(r) / len(r) for r in kept]).double(),
        what="the row means",
        given={"x": x, "mask": mask},
        mistakes={
            "the sum is divided by the number of all positions": torch.tensor([sum(r) / 4 for r in kept]),
            "the mask is not used": x.mean(-1),
            "a value of 0 is treated as masked": torch.where(mask, x, 0.0).sum(-1) / (mask & (x != 0)).sum(-1),
            "the first positions are averaged, as many as the mask has": torch.stack(
                [r[: int(n)].mean() for r, n in zip(x, mask.sum(-1), strict=True)]
            ),
        },
    )


@test(
    points=1,
    hints=(
        "The mean has one axis less than x. With which axis of x is it aligned when you subtract it?",
        "Broadcasting aligns shapes from the right. `keepdim=True` keeps an axis of size one, so that each row meets its own mean.",
    ),
)
def broadcasts(sub, draw):
    "`centre` subtracts from each row its own mean."
    x = tidy(draw.normal(3, 3))  # square, so that lining up the wrong axes raises no error
    rows = x.tolist()
    expect(
        sub.centre(x),
        torch.tensor([[v - sum(r) / len(r) for v in r] for r in rows]).double(),
        what="the centred rows",
        given={"x": x},
        mistakes={
            "each column meets another row's mean": x - x.mean(-1),
            "the mean of the columns is taken": x - x.mean(0),
            "one mean is taken for all": x - x.mean(),
        },
    )


# %% [edges]
# gathers: other entries may be anything
# masks: anywhere in the row, at least one


# %% [probes]
# no gradient: values are asked for, however they are computed


# %% [mutant] columns of every row
# caught by: gathers
# says: shape (3, 3)
def pick(table, index):
    return table[:, index]


# %% [mutant] divided by T
# caught by: masks
# says: number of all positions
def row_mean(x, mask):
    return (x * mask).mean(-1)


# %% [mutant] lined up with the wrong axis
# caught by: broadcasts
# says: another row's mean
def centre(x):
    return x - x.mean(-1)


# %% [mutant] the wrong mean
# caught by: broadcasts
# says: of the columns
def centre(x):
    return x - x.mean(0)


# %% [partial] 2: broadcasting is not understood
def centre(x):
    return x - x.mean(-1)
