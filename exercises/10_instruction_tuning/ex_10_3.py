# ---
# title: Fewer rows
# kind: implement
# minutes: 25
# ---

# %% [statement]
# Conversations have `lengths` tokens. Put them into rows of at most `width` tokens, without cutting any. Write `pack(lengths, width)` by *best-fit decreasing*:
#
# * take the conversations from long to short, equally long ones in the order in which they are given;
# * put each into the fullest row that still has room for it, of equally full ones into the one that was opened first;
# * if no row has room, open a new row;
# * a conversation that is longer than `width` is left out.
#
# It returns a list of rows in the order in which they were opened. Each row is a list of indices into `lengths`, in the order in which they were added.
#
# Then write `padding(lengths, width)`. It returns two fractions of tokens that are padding. The first is for one row per kept conversation, all as wide as the longest kept one. The second is for conversations packed in rows of `width`.
# If nothing is kept, both are 0.

# %% [given]
import torch


# %% [stub]
def pack(lengths, width):
    """lengths: (N,) long tensor. Returns a list of lists of indices."""
    raise NotImplementedError


def padding(lengths, width):
    """Returns a pair of numbers, each in [0, 1)."""
    raise NotImplementedError


# %% [solution]
def pack(lengths, width):
    sizes = lengths.tolist()
    rows, room = [], []
    for place in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        size = sizes[place]
        if size > width:
            continue
        fitting = [r for r in range(len(rows)) if room[r] >= size]
        if fitting:
            best = min(fitting, key=room.__getitem__)
        else:
            best = len(rows)
            rows.append([])
            room.append(width)
        rows[best].append(place)
        room[best] -= size
    return rows


def padding(lengths, width):
    kept = [size for size in lengths.tolist() if size <= width]
    if not kept:
        return 0.0, 0.0
    return 1 - sum(kept) / (len(kept) * max(kept)), 1 - sum(kept) / (len(pack(lengths, width)) * width)


# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, fail, test


def packed(sizes, width, *, order=True, choose="best", last=False):
    """By hand: at each step every row is tried."""
    places = [i for i, size in enumerate(sizes) if size <= width]
    if order:
        places = [i for size in range(width, 0, -1) for i in places if sizes[i] == size]
    rows = []
    for place in places:
        used = [sum(sizes[i] for i in row) for row in rows]
        able = [r for r, full in enumerate(used) if full + sizes[place] <= width]
        if choose == "next":
            able = [r for r in able if r == len(rows) - 1]
        if not able:
            rows.append([place])
            continue
        if choose == "best":
            fullest = [r for r in able if used[r] == max(used[r] for r in able)]
            rows[fullest[-1 if last else 0]].append(place)
        elif choose == "worst":
            rows[next(r for r in able if used[r] == min(used[r] for r in able))].append(place)
        else:
            rows[able[0]].append(place)
    return rows


def conversations(draw, width, count=14):
    """Lengths among which the different rules part."""
    while True:
        sizes = [draw.integer(1, width - 1) for _ in range(count)]
        right = packed(sizes, width)
        others = [
            packed(sizes, width, order=False),
            *(packed(sizes, width, choose=c) for c in ("first", "worst", "next")),
        ]
        if all(other != right for other in [*others, packed(sizes, width, last=True)]) and len(set(sizes)) < count:
            return sizes


def as_ids(rows, count):
    """Row and place in it of each conversation, −1 if it has none."""
    found = torch.full((count, 2), -1)
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        fail(f"`pack` returns {type(rows).__name__}; expected a list of lists of indices")
    for r, row in enumerate(rows):
        for place, i in enumerate(row):
            if isinstance(i, bool) or not isinstance(i, int) or not 0 <= i < count:
                fail(f"`pack` has {i!r} in row {r}; expected an index into `lengths`, 0 to {count - 1}")
            if found[i, 0] >= 0:
                fail(f"conversation {i} is in row {int(found[i, 0])} and again in row {r}")
            found[i] = torch.tensor([r, place])
    return found


def ask(sub, sizes, width, **mistakes):
    count = len(sizes)
    expect(
        as_ids(sub.pack(torch.tensor(sizes), width), count),
        as_ids(packed(sizes, width), count),
        what="row and position of each conversation",
        given={"lengths": torch.tensor(sizes), "width": width},
        mistakes={says: as_ids(rows, count) for says, rows in mistakes.items()},
    )


@test(
    points=2,
    hints=(
        "Two choices: which conversation is next, and which row takes it. For the first, sort the indices by length, not the lengths themselves.",
        "For each conversation in the sorted order: among the rows with enough room take the one with the least. Python's `sorted` keeps the order of equals.",
    ),
)
def best_fit(sub, draw):
    "`pack` takes the longest first and puts it where the least room is left."
    width = draw.integer(16, 24)
    sizes = conversations(draw, width)
    ask(
        sub,
        sizes,
        width,
        **{
            "the conversations are taken in the given order; the longest should be first": packed(
                sizes, width, order=False
            ),
            "the first row with room is taken, not the fullest": packed(sizes, width, choose="first"),
            "the emptiest row is taken": packed(sizes, width, choose="worst"),
            "only the last row is considered": packed(sizes, width, choose="next"),
            "of equally full rows the one that was opened last is taken": packed(sizes, width, last=True),
        },
    )


@test(
    points=1,
    hints=(
        "Conversations that fill a row, and some that fit nowhere.",
        "Exactly `width` tokens fit into a row; one more does not.",
    ),
)
def edges(sub, draw):
    "Conversations as long as a row, longer ones, and none at all."
    width = draw.integer(8, 12)
    sizes = [width, 3, width + 1, width - 3, width, 2 * width, 1]
    ask(
        sub,
        sizes,
        width,
        **{
            "a conversation of exactly `width` tokens is left out": packed(
                [x if x != width else width + 1 for x in sizes], width
            ),
            "a conversation that is too long is cut instead of left out": packed([min(x, width) for x in sizes], width),
        },
    )
    ask(
        sub, [width + 2, width + 1], width, **{"a conversation that is too long is cut instead of left out": [[0], [1]]}
    )


@test(
    points=1,
    hints=(
        "How many tokens does a batch have, and how many of them are words? A conversation that is left out is in neither number.",
        "1 − words / (rows · width of a row). Without packing there is one row per kept conversation, and the width is the longest kept one.",
    ),
)
def saved(sub, draw):
    "`padding` before and after."
    width = draw.integer(30, 40)
    sizes = [draw.integer(3, width - 6) for _ in range(9)] + [width + 5]
    kept = sizes[:-1]
    before, after = 1 - sum(kept) / (9 * max(kept)), 1 - sum(kept) / (len(packed(sizes, width)) * width)
    found = sub.padding(torch.tensor(sizes), width)
    given = {"lengths": torch.tensor(sizes), "width": width}
    expect(
        found[0],
        before,
        what="the fraction of padding without packing",
        given=given,
        mistakes={
            "rows are as wide as the longest of all, not as the longest that is kept": 1 - sum(kept) / (9 * max(sizes)),
            "rows without packing are `width` wide, but they need only be as wide as the longest kept conversation": 1
            - sum(kept) / (9 * width),
            "this is the fraction of words, not of padding": 1 - before,
            "it is a number of tokens, not a fraction": float(9 * max(kept) - sum(kept)),
        },
    )
    expect(
        found[1],
        after,
        what="the fraction of padding in packed rows",
        given=given,
        mistakes={"this is the fraction of words, not of padding": 1 - after},
    )
    nothing = sub.padding(torch.tensor([width + 1, width + 2]), width)
    for name, share in zip(("without packing", "in packed rows"), nothing, strict=True):
        expect(share, 0.0, what=f"the fraction of padding {name} if nothing is kept")


# %% [edges]
# edges: a conversation that is longer than `width` is left out
# saved: If nothing is kept, both are 0
# best_fit: of equally full ones into the one that was opened first


# %% [probes]
# no gradient, float32, values: lengths are counts
# no integers: places are asked for


# %% [mutant] as they come
# caught by: best_fit
# says: in the given order
def pack(lengths, width):
    sizes = lengths.tolist()
    rows, room = [], []
    for place, size in enumerate(sizes):
        if size > width:
            continue
        fitting = [r for r in range(len(rows)) if room[r] >= size]
        best = min(fitting, key=room.__getitem__) if fitting else len(rows)
        if not fitting:
            rows.append([])
            room.append(width)
        rows[best].append(place)
        room[best] -= size
    return rows


# %% [mutant] the first that fits
# caught by: best_fit
# says: the first row with room
def pack(lengths, width):
    sizes = lengths.tolist()
    rows, room = [], []
    for place in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        size = sizes[place]
        if size > width:
            continue
        best = next((r for r in range(len(rows)) if room[r] >= size), len(rows))
        if best == len(rows):
            rows.append([])
            room.append(width)
        rows[best].append(place)
        room[best] -= size
    return rows


# %% [mutant] equal lengths in the reverse order
# caught by: best_fit
def pack(lengths, width):
    sizes = lengths.tolist()
    rows, room = [], []
    for place in sorted(range(len(sizes)), key=lambda i: (sizes[i], i), reverse=True):
        size = sizes[place]
        if size > width:
            continue
        fitting = [r for r in range(len(rows)) if room[r] >= size]
        best = min(fitting, key=room.__getitem__) if fitting else len(rows)
        if not fitting:
            rows.append([])
            room.append(width)
        rows[best].append(place)
        room[best] -= size
    return rows


# %% [mutant] a full row is too long
# caught by: edges
# says: exactly `width`
def pack(lengths, width):
    sizes = lengths.tolist()
    rows, room = [], []
    for place in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        size = sizes[place]
        if size >= width:
            continue
        fitting = [r for r in range(len(rows)) if room[r] >= size]
        best = min(fitting, key=room.__getitem__) if fitting else len(rows)
        if not fitting:
            rows.append([])
            room.append(width)
        rows[best].append(place)
        room[best] -= size
    return rows


# %% [mutant] what is left out counts as well
# caught by: saved
# says: the longest that is kept
def padding(lengths, width):
    sizes = lengths.tolist()
    kept = [size for size in sizes if size <= width]
    if not kept:
        return 0.0, 0.0
    return 1 - sum(kept) / (len(kept) * max(sizes)), 1 - sum(kept) / (len(pack(lengths, width)) * width)


# %% [partial] 3: packed, and not counted
def padding(lengths, width):
    return 0.0, 0.0
