# ---
# title: Marks
# kind: implement
# minutes: 20
# ---

# %% [statement]
# Many templates have no marks, so the assistant's tokens must be found in the ids themselves. Write `marks(ids, system, user, assistant, end)`, which returns `(B, S)` booleans: True on
# the tokens that belong to the loss.
#
# A turn begins with one token that names its speaker: `system`, `user` or `assistant` (their ids). The assistant's text ends with `end`. Some templates close *every* turn with `end`, others only the assistant's.
# The padding of this tokenizer *is* `end`: rows are padded with it on the right. A last completion may be truncated before its end; it then fills its row. The assistant may say nothing at all; then its turn is its `end` alone.
# A row may have words before its first turn.

# %% [given]
import torch


# %% [stub]
def marks(ids, system, user, assistant, end):
    """ids: (B, S) long. Returns (B, S) bool."""
    raise NotImplementedError


# %% [solution]
def marks(ids, system, user, assistant, end):
    found = torch.zeros_like(ids, dtype=torch.bool)
    for row, out in zip(ids.tolist(), found, strict=True):
        speaking = False
        for place, token in enumerate(row):
            if token in (system, user, assistant):
                speaking = token == assistant
            else:
                out[place] = speaking
                speaking = speaking and token != end
    return found


# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, test

SYSTEM, USER, ASSISTANT, END = 1, 2, 3, 0


def talk(draw, *, closing, cut=False, empty=False, before=0):
    """One conversation as ids and marks: built turn by turn, so that the marks are known."""
    ids, mask = [draw.integer(4, 9) for _ in range(before)], [False] * before

    def say(who, count, closed, counts):
        words = [draw.integer(4, 9) for _ in range(count)]
        ids.extend([who, *words, *[END] * closed])
        mask.extend([False, *[counts] * (count + closed)])

    if draw.integer(0, 1):
        say(SYSTEM, draw.integer(1, 3), closing, False)
    turns = draw.integer(2, 3)
    for turn in range(turns):
        say(USER, draw.integer(1, 4), closing, False)
        last = turn == turns - 1
        nothing = empty and turn == 0
        say(ASSISTANT, 0 if nothing else draw.integer(2, 4), not (cut and last), True)
    return ids, mask


def batch(draw, *makers):
    made = [talk(draw, **maker) for maker in makers]
    width = max(len(ids) for ids, _ in made) + 2
    ids = torch.tensor([row + [END] * (width - len(row)) for row, _ in made])
    return ids, torch.tensor([row + [False] * (width - len(row)) for _, row in made])


def closings(ids):
    """The first end after every role token, of any speaker."""
    found = torch.zeros_like(ids, dtype=torch.bool)
    for row, out in zip(ids.tolist(), found, strict=True):
        open_ = False
        for place, token in enumerate(row):
            out[place] = open_ and token == END
            open_ = token in (SYSTEM, USER, ASSISTANT) or (open_ and token != END)
    return found


def ask(sub, ids, right):
    """Ids that are these, and ids that have other numbers."""
    said = (ids == ASSISTANT).cumsum(-1) > 0
    after = said & (ids != ASSISTANT)
    last = (ids == ASSISTANT).cumsum(-1) == (ids == ASSISTANT).sum(-1, keepdim=True)
    shuffled = torch.tensor([7, 5, 9, 0, 1, 2, 3, 4, 6, 8])
    expect(
        sub.marks(ids, SYSTEM, USER, ASSISTANT, END),
        right,
        given={"ids": ids, "system": SYSTEM, "user": USER, "assistant": ASSISTANT, "end": END},
        mistakes={
            "the assistant's closing token is left out": right & (ids != END),
            "the token that names the assistant is marked as well": right | (ids == ASSISTANT),
            "the padding is marked too, although a turn is over after its `end`": right | (after & (ids == END)),
            "only the last turn of the assistant is marked": right & last,
            "the user's closing token is marked as well": right | (closings(ids) & said),
            "the text before the first user is marked, but it is not the assistant's": right
            | ((ids == USER).cumsum(-1) == 0),
        },
    )
    moved = sub.marks(shuffled[ids], *(int(shuffled[i]) for i in (SYSTEM, USER, ASSISTANT, END)))
    expect(moved, right, what="the marks with other ids", reveal=False)


@test(
    points=1,
    hints=(
        "Go through a row from left to right and remember one thing: is the assistant speaking?",
        "A role token switches it on or off; `end` counts if it was on, and then switches it off.",
    ),
)
def turns(sub, draw):
    "Several turns, only the assistant's closed."
    ask(sub, *batch(draw, {"closing": 0}, {"closing": 0}))


@test(
    points=1,
    hints=(
        "Which speaker does an `end` belong to? And which token is the padding?",
        "An `end` counts only while the assistant speaks. After it no text belongs to the assistant until the next role token.",
    ),
)
def closed(sub, draw):
    "Every turn closed, in rows of different lengths."
    ask(sub, *batch(draw, {"closing": 1}, {"closing": 1}, {"closing": 0}))


@test(
    points=1,
    hints=(
        "What happens at the end of a row with a truncated completion? And at words before the first role token?",
        "A truncated completion counts to its last token. Words before the first speaker do not count.",
    ),
)
def odd_ones(sub, draw):
    "An empty completion, a truncated one, words before the first turn."
    makers = [{"closing": 1, "empty": True}, {"closing": 0, "before": 2}]
    ask(sub, *batch(draw, *makers))
    ids, mask = talk(draw, closing=1, cut=True)
    ask(sub, torch.tensor([ids]), torch.tensor([mask]))


# %% [probes]
# no keywords, values: ids are names, not numbers
# no gradient, float32: True or False


# %% [mutant] the padding is left out, and with it the end
# caught by: turns
# says: closing token is left out
def marks(ids, system, user, assistant, end):
    found = torch.zeros_like(ids, dtype=torch.bool)
    for row, out in zip(ids.tolist(), found, strict=True):
        speaking = False
        for place, token in enumerate(row):
            if token in (system, user, assistant):
                speaking = token == assistant
            else:
                out[place] = speaking and token != end
                speaking = speaking and token != end
    return found


# %% [mutant] never switched off
# caught by: turns
# says: padding
def marks(ids, system, user, assistant, end):
    found = torch.zeros_like(ids, dtype=torch.bool)
    for row, out in zip(ids.tolist(), found, strict=True):
        speaking = False
        for place, token in enumerate(row):
            if token in (system, user, assistant):
                speaking = token == assistant
            else:
                out[place] = speaking
    return found


# %% [mutant] the last turn only
# caught by: turns
# says: only the last turn
def marks(ids, system, user, assistant, end):
    found = torch.zeros_like(ids, dtype=torch.bool)
    for row, out in zip(ids.tolist(), found, strict=True):
        if assistant in row:
            start = len(row) - 1 - row[::-1].index(assistant)
            for place in range(start + 1, len(row)):
                out[place] = True
                if row[place] == end:
                    break
    return found


# %% [mutant] every end counts
# caught by: closed
# says: the user's closing token
def marks(ids, system, user, assistant, end):
    found = torch.zeros_like(ids, dtype=torch.bool)
    for row, out in zip(ids.tolist(), found, strict=True):
        speaking, anybody, seen = False, False, False
        for place, token in enumerate(row):
            if token in (system, user, assistant):
                speaking, anybody, seen = token == assistant, True, seen or token == assistant
            else:
                out[place] = speaking or (token == end and anybody and seen)
                speaking, anybody = speaking and token != end, anybody and token != end
    return found


# %% [mutant] from the assistant's token to the next end, found by searching
# caught by: odd_ones
def marks(ids, system, user, assistant, end):
    found = torch.zeros_like(ids, dtype=torch.bool)
    for row, out in zip(ids.tolist(), found, strict=True):
        for start in [i for i, token in enumerate(row) if token == assistant]:
            if end in row[start + 2 :]:
                out[start + 1 : row.index(end, start + 2) + 1] = True
    return found


# %% [partial] 1: words and ends of templates that close the assistant's turns only
def marks(ids, system, user, assistant, end):
    found = torch.zeros_like(ids, dtype=torch.bool)
    for row, out in zip(ids.tolist(), found, strict=True):
        speaking = False
        for place, token in enumerate(row):
            if token in (system, user, assistant):
                speaking = token == assistant
            else:
                out[place] = speaking
                speaking = speaking and token != end
        for place, token in enumerate(row):
            if token == user and end in row[place:]:
                nearest = row.index(end, place)
                if not any(t in (assistant, user, system) for t in row[place + 1 : nearest]):
                    out[nearest] = True
    return found
