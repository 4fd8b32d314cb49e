# ---
# title: Pairs from a conversation tree
# kind: implement
# minutes: 25
# ---

# %% [statement]
# The completions of a conversation were rated at every turn. A turn is a dictionary:
#
# * `"question"`: the text of the user;
# * `"replies"`: the completions, a list of `[text, grade]`, in any order, no text twice;
# * `"then"`: the next turn, or `None`. The conversation continues from the completion with the highest grade; if several have it, from the first of these.
#
# Write `unroll(turn)`, which returns one row for every pair of completions of a turn *in which one grade is higher*, for all turns: a dictionary with
#
# * `"prompt"`: a list of texts, the conversation before the completions, with the user's question last;
# * `"chosen"`, `"rejected"`: the two texts;
# * `"weight"`: equal for all rows of a turn, with a sum of 1 over the rows of each turn. A turn without rows has no weight.
#
# The rows may be in any order.

# %% [given]
TREE = {
    "question": "Hello?",
    "replies": [["No.", 1], ["Hello!", 3], ["Yes?", 1]],
    "then": {"question": "Sing!", "replies": [["La.", 2], ["I am a text.", 1]], "then": None},
}


# %% [stub]
def unroll(turn):
    """All pairs of a rated conversation. turn: see the statement. Returns a list of dictionaries."""
    raise NotImplementedError


# %% [solution]
def unroll(turn):
    rows, said = [], []
    while turn is not None:
        prompt = [*said, turn["question"]]
        replies = turn["replies"]
        pairs = [(a, b) for a, x in replies for b, y in replies if x > y]
        rows += [{"prompt": list(prompt), "chosen": a, "rejected": b, "weight": 1 / len(pairs)} for a, b in pairs]
        best = max(replies, key=lambda reply: reply[1])
        said = [*prompt, best[0]]
        turn = turn["then"]
    return rows


# %% [tests]
import copy

from minirlhf_course.classroom.testing import fail, test


def tree(draw, depth, ties=False):
    """Return a conversation of `depth` turns, each with its best reply at another index; with `ties`, grades may be equal."""
    node = None
    count = draw.integer(3, 4)
    places = draw.permutation(count).tolist()
    for level in reversed(range(depth)):
        grades = [int(g) for g in draw.permutation(count)]
        best, place = grades.index(count - 1), places[level]
        grades[best], grades[place] = grades[place], grades[best]
        if ties:
            grades = [3, 1, 3, 1][:count] if level else [2] * count
        node = {
            "question": f"question {level}",
            "replies": [[f"reply {level}.{n}", grade] for n, grade in enumerate(grades)],
            "then": node,
        }
    return node


def rows_of(sub, given):
    """Return the rows of the answer, if they have the right form."""
    rows = sub.unroll(copy.deepcopy(given))
    if not isinstance(rows, list) or any(
        not isinstance(row, dict) or {"prompt", "chosen", "rejected", "weight"} - set(row) for row in rows
    ):
        fail("expected a list of dictionaries with prompt, chosen, rejected and weight", turn=given, yours=rows)
    return rows


def turns_of(given):
    """Yield each turn and its prompt."""
    said = []
    while given is not None:
        yield given, [*said, given["question"]]
        top = max(grade for _, grade in given["replies"])
        first = next(text for text, grade in given["replies"] if grade == top)
        said = [*said, given["question"], first]
        given = given["then"]


@test(
    points=2,
    hints=(
        "Three completions with different grades give three pairs. The order of the list does not matter for which one is chosen.",
        "Go through all pairs of completions of a turn and keep those in which one grade is strictly higher.",
    ),
)
def all_pairs(sub, draw):
    "Every pair of every turn, with the higher grade chosen."
    given = tree(draw, draw.integer(2, 3))
    got = sorted((row["chosen"], row["rejected"]) for row in rows_of(sub, given))
    want = sorted(
        (a, b) for turn, _ in turns_of(given) for a, x in turn["replies"] for b, y in turn["replies"] if x > y
    )
    if got != want:
        why = "these are not the expected pairs"
        if sorted((b, a) for a, b in got) == want:
            why = "chosen and rejected are exchanged"
        elif len(got) < len(want):
            why = f"{len(want) - len(got)} pairs are missing"
        elif len(got) > len(want):
            why = f"there are {len(got) - len(want)} extra rows"
        fail(why, turn=given, yours=got)


@test(
    points=2,
    hints=(
        "Which texts came before the completions of the second turn?",
        "The prompt of a turn is the path: question, best completion, question, best completion, …, question. Each row needs its own list.",
    ),
)
def the_path(sub, draw):
    "The prompt is the conversation before the completions, along the best completions."
    given = tree(draw, 3)
    below = copy.deepcopy(given)
    for turn, _ in turns_of(below):
        turn["replies"] = [[text, grade - 10] for text, grade in turn["replies"]]  # grades may be below 0
    path = {turn["replies"][0][0].split(".")[0]: prompt for turn, prompt in turns_of(given)}
    for row in rows_of(sub, given) + rows_of(sub.aside, below):
        want = path[row["chosen"].split(".")[0]]
        if row["prompt"] != want:
            why = "the prompt is wrong"
            if row["prompt"] == want[-1:]:
                why = "the prompt is the last question alone"
            elif [text for text in want if text.startswith("question")] == row["prompt"]:
                why = "the prompt contains questions without the completions between them"
            elif set(row["prompt"]) > set(want):
                why = "the prompt contains texts from later turns"
            elif row["prompt"][::2] == want[::2] and len(row["prompt"]) == len(want):
                why = "the conversation continues from the completion with the highest grade, but the prompt contains another completion"
            fail(why, turn=given, row=row, expected=want)


@test(
    points=1,
    hints=(
        "How many rows does this turn have, after ties are left out? And from which of several best completions does the conversation continue?",
        "Divide 1 by the number of rows of the turn, not by C(K, 2): a tie gives no row. Among equally good completions the path contains the first.",
    ),
)
def weights(sub, draw):
    "Ties are left out, and the weights of each turn add up to 1."
    given, fine = tree(draw, 3, ties=True), tree(draw, 3)
    for turn, _ in turns_of(fine):
        turn["replies"] = [[text, grade / 4] for text, grade in turn["replies"]]  # grades may be fractions
    tied_rows, fine_rows = rows_of(sub, given), rows_of(sub.aside, fine)
    for turn, rows in (*((t, tied_rows) for t, _ in turns_of(given)), *((t, fine_rows) for t, _ in turns_of(fine))):
        mine = [row for row in rows if row["chosen"] in [text for text, _ in turn["replies"]]]
        want = sum(x > y for _, x in turn["replies"] for _, y in turn["replies"])
        if len(mine) != want:
            fail(
                "a tie became a row" if len(mine) > want else "a pair with different grades is missing",
                turn=turn,
                yours=mine,
            )
        if mine and abs(sum(float(row["weight"]) for row in rows) - 1) < 1e-9:
            fail(
                "the weights of the whole conversation add up to 1, but the weights of each turn should",
                turn=turn,
                yours=mine,
            )
        if mine and abs(sum(float(row["weight"]) for row in mine) - 1) > 1e-9:
            fail("the weights of this turn's rows do not add up to 1", turn=turn, yours=mine)
        if mine and max(float(row["weight"]) for row in mine) - min(float(row["weight"]) for row in mine) > 1e-9:
            fail("the rows of one turn have different weights", turn=turn, yours=mine)
    later = [row["prompt"] for row in tied_rows if row["chosen"].startswith("reply 2")]
    path = [prompt for turn, prompt in turns_of(given)][-1]
    if any(prompt != path for prompt in later):
        fail(
            "among completions with the same highest grade, the conversation continues from the first",
            turn=given,
            yours=later[0],
        )


# %% [probes]
# no values, size, float32, gradient: texts have none


# %% [mutant] the worse reply is chosen
# caught by: all_pairs
# says: chosen and rejected are exchanged
def unroll(turn):
    rows, said = [], []
    while turn is not None:
        prompt, replies = [*said, turn["question"]], turn["replies"]
        pairs = [(a, b) for a, x in replies for b, y in replies if x < y]
        rows += [{"prompt": prompt, "chosen": a, "rejected": b, "weight": 1 / len(pairs)} for a, b in pairs]
        said, turn = [*prompt, max(replies, key=lambda r: r[1])[0]], turn["then"]
    return rows


# %% [mutant] the best against all others only
# caught by: all_pairs
# says: missing
def unroll(turn):
    rows, said = [], []
    while turn is not None:
        prompt, replies = [*said, turn["question"]], turn["replies"]
        best = max(replies, key=lambda r: r[1])
        pairs = [(best[0], b) for b, y in replies if best[1] > y]
        rows += [{"prompt": prompt, "chosen": a, "rejected": b, "weight": 1 / len(pairs)} for a, b in pairs]
        said, turn = [*prompt, best[0]], turn["then"]
    return rows


# %% [mutant] the last question alone
# caught by: the_path
# says: the last question alone
def unroll(turn):
    rows = []
    while turn is not None:
        replies = turn["replies"]
        pairs = [(a, b) for a, x in replies for b, y in replies if x > y]
        rows += [{"prompt": [turn["question"]], "chosen": a, "rejected": b, "weight": 1 / len(pairs)} for a, b in pairs]
        turn = turn["then"]
    return rows


# %% [mutant] one list for all rows
# caught by: the_path
# says: texts from later turns
def unroll(turn):
    rows, said = [], []
    while turn is not None:
        said.append(turn["question"])
        replies = turn["replies"]
        pairs = [(a, b) for a, x in replies for b, y in replies if x > y]
        rows += [{"prompt": said, "chosen": a, "rejected": b, "weight": 1 / len(pairs)} for a, b in pairs]
        said.append(max(replies, key=lambda r: r[1])[0])
        turn = turn["then"]
    return rows


# %% [mutant] ties weigh too
# caught by: weights
# says: do not add up
def unroll(turn):
    rows, said = [], []
    while turn is not None:
        prompt, replies = [*said, turn["question"]], turn["replies"]
        pairs = [(a, b) for a, x in replies for b, y in replies if x > y]
        each = 2 / (len(replies) * (len(replies) - 1))
        rows += [{"prompt": prompt, "chosen": a, "rejected": b, "weight": each} for a, b in pairs]
        said, turn = [*prompt, max(replies, key=lambda r: r[1])[0]], turn["then"]
    return rows


# %% [partial] 4: weights of 1
def unroll(turn):
    rows, said = [], []
    while turn is not None:
        prompt, replies = [*said, turn["question"]], turn["replies"]
        rows += [
            {"prompt": prompt, "chosen": a, "rejected": b, "weight": 1.0}
            for a, x in replies
            for b, y in replies
            if x > y
        ]
        said, turn = [*prompt, max(replies, key=lambda r: r[1])[0]], turn["then"]
    return rows
