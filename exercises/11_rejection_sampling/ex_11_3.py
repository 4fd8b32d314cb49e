# ---
# title: The best of all, with a limit per prompt
# kind: implement
# minutes: 20
# ---

# %% [statement]
# Keeping the best of all loses hard prompts. Keeping the best for each prompt also keeps bad completions. A compromise: keep the best $K$ of all, with *at most `most` of any prompt*.
#
# Write `select(rewards, k, most)`. Go through all completions from the best to the worst; among equal rewards the lower index comes first, counted row by row as in the chapter. Keep a completion unless its prompt has
# `most` already. Stop when $K$ are kept. Some completions could not be graded: their reward is NaN, and they are never kept. If fewer than $K$ can be kept, return those.
#
# Return the indices into the flattened matrix, a tensor of integers, in the order in which the completions were kept.

# %% [given]
import torch


# %% [stub]
def select(rewards, k, most):
    """rewards: (M, N), NaN where no grade exists. k, most: integers from 1. Returns (at most k,) integers."""
    raise NotImplementedError


# %% [solution]
def select(rewards, k, most):
    flat = rewards.flatten()
    kept, taken = [], {}
    for place in torch.where(flat.isnan(), -torch.inf, flat).argsort(descending=True, stable=True).tolist():
        prompt = place // rewards.shape[1]
        if len(kept) < k and not flat[place].isnan() and taken.get(prompt, 0) < most:
            kept.append(place)
            taken[prompt] = taken.get(prompt, 0) + 1
    return torch.tensor(kept, dtype=torch.long)


# %% [tests]
import math

from minirlhf_course.classroom.testing import Failure, expect, fail, show, test, tidy


def by_definition(rewards, k, most):
    """Return the indices: repeatedly the best allowed completion, searched from the first to the last."""
    rows, kept = rewards.tolist(), []
    width = len(rows[0])
    while len(kept) < k:
        best = None
        for i, row in enumerate(rows):
            full = sum(place // width == i for place in kept) >= most
            for j, value in enumerate(row):
                if full or math.isnan(value) or i * width + j in kept:
                    continue
                if best is None or value > rows[best // width][best % width]:
                    best = i * width + j
        if best is None:
            break
        kept.append(best)
    return kept


def wanted(sub, rewards, k, most, **more):
    got, right = sub.select(rewards, k, most), torch.tensor(by_definition(rewards, k, most))
    if isinstance(got, torch.Tensor) and got.dim() == 1 and len(got) != len(right):
        lines = tuple(f"{name} = {show(x)}" for name, x in (("rewards", rewards), ("k", k), ("most", most)))
        raise Failure(
            f"`select` keeps {len(got)} completions, but {len(right)} can be kept",
            (*lines, f"yours:    {show(got)}", f"expected: {show(right)}"),
        )
    expect(
        got,
        right,
        what="`select`",
        given={"rewards": rewards, "k": k, "most": most},
        **more,
    )


@test(
    points=2,
    hints=(
        "How do you compute the prompt from an index into the flattened matrix?",
        "Index i belongs to row i // N. Count the kept completions of each row, and skip a completion whose row is full.",
    ),
)
def limited(sub, draw):
    "At most `most` of any prompt, different rewards."
    rewards = tidy(draw.permutation(12).reshape(4, 3).double() / 2)
    rewards[int(draw.integer(0, 3))] += 6.0  # one prompt is easy
    flat = rewards.flatten().argsort(descending=True, stable=True)
    free = flat[:5].tolist()
    wanted(sub, rewards, 7, 1)
    wanted(
        sub,
        rewards,
        5,
        2,
        mistakes={"the limit per prompt is not applied": torch.tensor(free)}
        if free != by_definition(rewards, 5, 2)
        else {},
    )


@test(
    points=1,
    hints=(
        "Which of two equal rewards comes first?",
        "A stable sort keeps the order of equal entries. `argsort` has an argument for it.",
    ),
)
def ties(sub, draw):
    "Among equal rewards, the lower index."
    rewards = draw.permutation(24).reshape(6, 4).double() // 6
    wanted(sub, rewards, 7, 2)


@test(
    points=2,
    hints=(
        "Where does a sort place NaN?",
        "PyTorch sorts NaN as the largest number. Replace it by −∞ before you sort, and still do not keep it.",
    ),
)
def ungraded(sub, draw):
    "NaN is never kept, and fewer than K may remain."
    rewards = tidy(draw.permutation(8).reshape(2, 4).double()) - 9.5  # below 0, which is not the lowest reward
    rewards[0, draw.integer(0, 3)] = math.nan
    rewards[1] = math.nan
    first = rewards.flatten().argsort(descending=True, stable=True)[:3]
    wanted(sub, rewards, 3, 4, mistakes={"completions without a grade are kept first": first})
    wanted(sub, rewards, 6, 4)
    wanted(sub, rewards, 3, 3)
    rewards[1, :2] = torch.tensor([-0.5, 0.5])
    wanted(sub, rewards, 4, 2)
    lowest = torch.tensor([[-math.inf, 1.0], [2.0, -math.inf]], dtype=torch.float64)[draw.permutation(2)]
    wanted(sub.aside, lowest, 4, 2)  # minus infinity is a grade like others
    none = torch.full((2, 3), math.nan, dtype=torch.float64)
    wanted(sub.aside, none, 3, 2)
    if sub.aside.select(none, 3, 2).is_floating_point():
        fail("where nothing can be kept, `select` returns a tensor of floats; expected an empty tensor of integers")


# %% [edges]
# limited: at most `most` of any prompt
# ungraded: their reward is NaN, and they are never kept


# %% [probes]
# no float32, gradient: places are integers
# no nan: NaN has a meaning here, which a test of its own asks about


# %% [mutant] no limit
# caught by: limited
def select(rewards, k, most):
    flat = torch.where(rewards.isnan(), -torch.inf, rewards).flatten()
    best = flat.argsort(descending=True, stable=True)[:k]
    return best[flat[best] > -torch.inf]


# %% [mutant] the column in place of the prompt
# caught by: limited
def select(rewards, k, most):
    flat = rewards.flatten()
    kept, taken = [], {}
    for place in torch.where(flat.isnan(), -torch.inf, flat).argsort(descending=True, stable=True).tolist():
        column = place % rewards.shape[1]
        if len(kept) < k and not flat[place].isnan() and taken.get(column, 0) < most:
            kept.append(place)
            taken[column] = taken.get(column, 0) + 1
    return torch.tensor(kept, dtype=torch.long)


# %% [mutant] the later of equal ones
# caught by: ties
def select(rewards, k, most):
    flat = rewards.flatten()
    kept, taken = [], {}
    order = torch.where(flat.isnan(), -torch.inf, flat).argsort(stable=True).flip(0).tolist()
    for place in order:
        prompt = place // rewards.shape[1]
        if len(kept) < k and not flat[place].isnan() and taken.get(prompt, 0) < most:
            kept.append(place)
            taken[prompt] = taken.get(prompt, 0) + 1
    return torch.tensor(kept, dtype=torch.long)


# %% [mutant] NaN is the largest
# caught by: ungraded
# says: kept first
def select(rewards, k, most):
    kept, taken = [], {}
    for place in rewards.flatten().argsort(descending=True, stable=True).tolist():
        prompt = place // rewards.shape[1]
        if len(kept) < k and taken.get(prompt, 0) < most:
            kept.append(place)
            taken[prompt] = taken.get(prompt, 0) + 1
    return torch.tensor(kept, dtype=torch.long)


# %% [partial] 3: NaN was not thought of
def select(rewards, k, most):
    kept, taken = [], {}
    for place in rewards.flatten().argsort(descending=True, stable=True).tolist():
        prompt = place // rewards.shape[1]
        if len(kept) < k and taken.get(prompt, 0) < most:
            kept.append(place)
            taken[prompt] = taken.get(prompt, 0) + 1
    return torch.tensor(kept, dtype=torch.long)
