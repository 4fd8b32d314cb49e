# ---
# title: Bug hunt: merging two specialists
# kind: bughunt
# minutes: 20
# ---

# %% [statement]
# Two copies of one model were fine-tuned, one on mathematics and one on poetry. A model that can do a little of both is as near as
# the mean of their weights: no training, one line of code, and it often works.
#
# `merge(checkpoints, shares)` takes the mean. `checkpoints` is a list of dictionaries `{name: tensor}`, and `shares` says how much each
# counts, in any unit: `[1, 1]` and `[0.5, 0.5]` mean the same, `[3, 1]` is three parts to one. Integer tensors, such as position ids or
# step counters, are no weights: they are taken from the first checkpoint as they are.
#
# The merged model below speaks gibberish, sometimes refuses to load, and shouts if the shares do not happen to sum to one. **There are
# three bugs. Find and fix them.**

# %% [given]
import torch


# %% [stub]
def merge(checkpoints, shares):
    """The mean of checkpoints, each weighing its share.

    checkpoints: a list of {name: tensor}, all with the same names, in any order. shares: a list of numbers > 0.
    Returns {name: tensor}: dtypes as in the first checkpoint, integer tensors as they are there.
    """
    merged = {}
    for checkpoint, share in zip(checkpoints, shares):
        for name, tensor in zip(checkpoints[0], checkpoint.values()):
            merged[name] = merged.get(name, 0) + share * tensor
    return merged


# %% [solution]
def merge(checkpoints, shares):
    merged = {}
    for name, first in checkpoints[0].items():
        if first.is_floating_point():
            merged[name] = sum(share * c[name] for c, share in zip(checkpoints, shares)) / sum(shares)
        else:
            merged[name] = first
    return merged


# %% [tests]
import torch

from minirlhf.classroom.testing import expect, fail, test, tidy

NAMES = ["embed.weight", "layer.weight", "head.weight"]


def models(draw):
    """Two checkpoints of three weights each, all of one shape, so that mixing them up raises no error."""
    return [{name: tidy(draw.normal(2, 2)) for name in NAMES} for _ in range(2)]


def asked(sub, checkpoints, shares):
    merged = sub.merge(checkpoints, shares)
    if not isinstance(merged, dict) or sorted(map(str, merged)) != sorted(checkpoints[0]):
        fail(f"the result of `merge` is not a dictionary with the names {sorted(checkpoints[0])}")
    return merged


@test(
    points=2,
    hints=(
        "Two checkpoints may list the same tensors in another order. How does the function know which belong together?",
        "It pairs them by position. A tensor's name is its identity: look it up by name in each checkpoint.",
    ),
)
def by_name(sub, draw):
    "Tensors are paired by name, whatever their order."
    first, second = models(draw)
    shuffled = {name: second[name] for name in [NAMES[1], NAMES[2], NAMES[0]]}
    merged = asked(sub, [first, shuffled], [0.5, 0.5])
    for i, name in enumerate(NAMES):
        by_position = 0.5 * first[name] + 0.5 * list(shuffled.values())[i]
        expect(
            merged[name],
            torch.lerp(first[name], second[name], 0.5),
            what=f"the merged {name}",
            given={"names of the second checkpoint": list(shuffled), "first": first[name], "second": second[name]},
            mistakes={"tensors are paired by position": by_position},
        )


@test(
    points=2,
    hints=(
        "Merge a model with itself at shares [1, 1]. What should come out?",
        "A mean divides by the sum of its weights. Shares need not sum to one, so you must.",
    ),
)
def any_unit(sub, draw):
    "Only the ratio of the shares matters."
    first, second = models(draw)
    share = draw.integer(2, 5)
    merged = asked(sub, [first, second], [share, 1])
    for name in NAMES:
        mixture = torch.lerp(second[name], first[name], share / (share + 1))
        expect(
            merged[name],
            mixture,
            what=f"the merged {name}",
            given={"shares": [share, 1], "first": first[name], "second": second[name]},
            mistakes={
                "the sum is not divided by the sum of the shares": (share + 1) * mixture,
                "it is divided by the number of checkpoints": (share + 1) * mixture / 2,
                "the shares are ignored": torch.lerp(first[name], second[name], 0.5),
            },
        )


@test(
    points=1,
    hints=(
        "Which tensors of a checkpoint are not weights? Print the dtypes of the result.",
        "`tensor.is_floating_point()` tells weights from counters. A counter is taken from the first checkpoint.",
    ),
)
def counters(sub, draw):
    "Integer tensors come from the first checkpoint, unchanged."
    steps = [torch.tensor([draw.integer(1, 50), draw.integer(1, 50)]) for _ in range(2)]
    checkpoints = [{"steps": s, "head.weight": m["head.weight"]} for s, m in zip(steps, models(draw), strict=True)]
    merged = asked(sub, checkpoints, [0.5, 0.5])
    given = {"first": steps[0], "second": steps[1]}
    expect(merged["steps"], steps[0], what="the merged counter", given=given)
    if merged["steps"].dtype != torch.int64:
        fail(
            f"the merged counter has become {merged['steps'].dtype}; expected torch.int64, as in the first checkpoint",
            **given,
        )


# %% [probes]
# no gradient: weights are merged after training


# %% [mutant] still paired by position
# caught by: by_name
# says: by position
def merge(checkpoints, shares):
    merged = {}
    for tensors, name in zip(zip(*(c.values() for c in checkpoints)), checkpoints[0]):
        mean = sum(share * t for share, t in zip(shares, tensors)) / sum(shares)
        merged[name] = mean if tensors[0].is_floating_point() else tensors[0]
    return merged


# %% [mutant] shares ignored
# caught by: any_unit
# says: ignored
def merge(checkpoints, shares):
    merged = {}
    for name, first in checkpoints[0].items():
        merged[name] = sum(c[name] for c in checkpoints) / len(shares) if first.is_floating_point() else first
    return merged


# %% [mutant] counters averaged
# caught by: counters
# says: the merged counter
def merge(checkpoints, shares):
    return {name: sum(s * c[name] for c, s in zip(checkpoints, shares)) / sum(shares) for name in checkpoints[0]}


# %% [mutant] counters become floats
# caught by: counters
# says: has become
def merge(checkpoints, shares):
    merged = {name: sum(s * c[name] for c, s in zip(checkpoints, shares)) / sum(shares) for name in checkpoints[0]}
    return {
        name: m if checkpoints[0][name].is_floating_point() else checkpoints[0][name].double()
        for name, m in merged.items()
    }


# %% [partial] 2: paired by name, the rest is as it was
def merge(checkpoints, shares):
    merged = {}
    for checkpoint, share in zip(checkpoints, shares):
        for name in checkpoints[0]:
            merged[name] = merged.get(name, 0) + share * checkpoint[name]
    return merged


# %% [partial] 4: names and shares are right, counters are averaged
def merge(checkpoints, shares):
    return {name: sum(s * c[name] for c, s in zip(checkpoints, shares)) / sum(shares) for name in checkpoints[0]}
