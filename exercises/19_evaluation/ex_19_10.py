# ---
# title: Was the test in the training data?
# kind: implement
# minutes: 25
# ---

# %% [statement]
# Search for the items of a test in training documents by their runs of $n$ words, as in the chapter's overlap of n-grams.
#
# 1. `words(text)`: the words of a text, a list of strings. Two texts that differ in case, punctuation or white space only have the same words: the text is put in lower case (`str.lower`), and every character that is neither a letter nor a digit (`str.isalnum` is
#    false, such as an apostrophe, a hyphen or an underscore) separates words. The list may be empty.
# 2. `overlap(item, documents, n)`: the fraction $\omega$ of the runs of $n$ words of the item that occur in the documents. `item` is a list of words and `documents` a list of lists of words. Each position in the item where a
#    run begins counts, so a run that the item holds twice counts twice. A run lies within *one* document: the end of one document and the beginning of the next are not a run. An item with fewer than $n$ words has no run and gets 0.0. The item, the list of
#    documents and single documents may be empty. $n$ is at least 1.
# 3. `contaminated(items, documents, n)`: the indices of the items (0 for the first) for which at least one run occurs in the documents, a list of integers in increasing order. Here items and documents are *texts*, compared by their words. Documents are long and items are
#    many, so prepare the documents once and not again for each item: eight times as many items may take at most four times as long where the documents are long.
# 4. `fewest_changes(length, n)`: someone copies an item of `length` words into the training data and wants to hide this. How many words of the copy must be exchanged, at least, so that no run of $n$ words is left that the item also has? The new words occur nowhere else, and all words
#    of the item are different. An integer; `length` may be smaller than $n$.

# %% [given]
import re


# %% [stub]
def words(text):
    """text: a string. Returns a list of strings."""
    raise NotImplementedError


def overlap(item, documents, n):
    """item: a list of strings. documents: a list of lists of strings. Returns a number from 0 to 1."""
    raise NotImplementedError


def contaminated(items, documents, n):
    """items, documents: lists of strings. Returns a list of integers."""
    raise NotImplementedError


def fewest_changes(length, n):
    """length, n: integers. Returns an integer."""
    raise NotImplementedError


# %% [solution]
def words(text):
    return "".join(x if x.isalnum() else " " for x in text.lower()).split()


def _runs(document, n):
    return [tuple(document[i : i + n]) for i in range(len(document) - n + 1)]


def overlap(item, documents, n):
    document_runs = {run for document in documents for run in _runs(document, n)}
    item_runs = _runs(item, n)
    return sum(run in document_runs for run in item_runs) / len(item_runs) if item_runs else 0.0


def contaminated(items, documents, n):
    document_runs = {run for document in documents for run in _runs(words(document), n)}
    return [place for place, item in enumerate(items) if any(run in document_runs for run in _runs(words(item), n))]


def fewest_changes(length, n):
    return length // n  # every n-th word: each block of n neighbours needs a change of its own


# %% [tests]
import itertools

import torch

from minirlhf_course.classroom.testing import expect, fail, test


def text_of(draw, size, many):
    """Words from a small vocabulary."""
    return [f"w{draw.integer(0, many - 1)}" for _ in range(size)]


def occurs(run, document):
    """Whether the run stands somewhere in the document, compared place by place."""
    return any(document[at : at + len(run)] == run for at in range(len(document)))


def share(item, documents, n, size=None):
    """The definition; size: the number that divides, if it is not the number of runs."""
    runs = [item[at : at + n] for at in range(len(item) - n + 1)]
    hits = sum(any(occurs(run, document) for document in documents) for run in runs)
    return hits / (size or len(runs)) if runs else 0.0


@test(
    points=1,
    hints=(
        "What are the words of \"Don't STOP\u2014it's 3 p.m.!\"?",
        "Lower case first. Then replace every character for which `isalnum` is false by a blank, and split at white space. In regular expressions `\\w` also matches the underscore.",
    ),
)
def of_a_text(sub, draw):
    "`words` ignores case, punctuation and white space."
    a, b = draw.integer(10, 99), draw.integer(100, 999)
    cases = {
        f"How many, in {a} days?": ["how", "many", "in", str(a), "days"],
        f"  HOW\tmany\n\nin  {a}   Days ": ["how", "many", "in", str(a), "days"],
        f"Don't stop\u2014it's {a}:{b} p.m.!": ["don", "t", "stop", "it", "s", str(a), str(b), "p", "m"],
        f"x_{a}=y-{b}": ["x", str(a), "y", str(b)],
        f"Größe naïve ПРИВЕТ {a}": ["größe", "naïve", "привет", str(a)],
        f"{a},{b}.5": [str(a), str(b), "5"],
        "\u0130ki": ["i", "ki"],  # the lower case of this letter is an i and a dot, which is no letter
        "…?! ()": [],
        "": [],
    }
    for text, want in cases.items():
        got = sub.words(text)
        if not isinstance(got, list | tuple) or list(got) != want:
            fail(f"`words({text!r})` is {got!r}; expected {want!r}")


@test(
    points=3,
    against="a search position by position",
    hints=(
        "Write down all runs of three words of an item of five words. How many are there? Which of them occur in one document as they are?",
        "M = length − n + 1 runs. Collect the runs of each document separately, in one set of tuples, and count every position of the item whose run is in the set.",
    ),
)
def of_runs(sub, draw):
    "`overlap` is the fraction of the item's runs that occur in a document."
    n = draw.integer(2, 3)
    item = text_of(draw, 9, 30)
    twice = [*item[:3], *item[:3], *item[3:6]]  # a run that the item holds twice
    part = [*text_of(draw, 4, 30), *item[: n + 1], "other"]
    cut = n + 3
    documents = [part, ["before", *item[n:cut]], [*item[cut : cut + n], "behind"], [], item[-1:]]
    for one in (item, twice, item[-n:], item[: n + 1], part):
        joined = [word for document in documents for word in document]
        runs = {tuple(one[at : at + n]) for at in range(len(one) - n + 1)}
        document_runs = {tuple(d[at : at + n]) for d in documents for at in range(len(d) - n + 1)}
        want = share(one, documents, n)
        mistakes = {
            "a run may begin in one document and end in the next": share(one, [joined], n),
            "a run that the item holds twice counts once": len(runs & document_runs) / len(runs),
            "it is divided by the number of words, not of runs": share(one, documents, n, len(one)),
            "the last run is forgotten": share(one[:-1], documents, n),
            "single words are compared, not runs": share(one, documents, 1),
            "runs of n + 1 words are compared": share(one, documents, n + 1),
            "it is 1 if any run occurs": float(want > 0),
            "it is divided by the runs of both, each counted once": len(runs & document_runs)
            / len(runs | document_runs),
            "the words of a run may be in any order or have others between them": sum(
                any(set(one[at : at + n]) <= set(d) for d in documents) for at in range(len(one) - n + 1)
            )
            / max(len(one) - n + 1, 1),
        }
        expect(
            sub.overlap(one, documents, n),
            want,
            what="the overlap",
            given={"item": one, "documents": documents, "n": n},
            mistakes={say: value for say, value in mistakes.items() if abs(value - want) > 1e-6},
        )
    number = draw.integer(10, 99)
    one = ["he", "art", f"{number}", "he", "art"]
    documents = [
        ["the", "art", f"{number}0"],
        [f"{number}", "he", "art"],
        ["heart", f"{number}"],
        ["h", "eart", f"{number}"],
    ]
    expect(
        sub.overlap(one, documents, 3),
        1 / 3,
        what="the overlap",
        given={"item": one, "documents": documents, "n": 3},
        mistakes={"a run may begin or end within a word": 2 / 3},
    )


@test(
    points=1,
    hints=(
        "How many runs of three words has an item of two words? And of no word?",
        "If there are no runs, return 0.0 before you divide.",
    ),
)
def of_short_items(sub, draw):
    "`overlap` of items without a run, and without documents."
    n = draw.integer(3, 5)
    item = text_of(draw, n + 2, 90)
    cases = {
        "an item with fewer than n words": (item[: n - 1], [item]),
        "an empty item": ([], [item]),
        "an item without documents": (item, []),
        "an item beside empty documents": (item, [[], []]),
        "an item beside a document with fewer than n words": (item, [item[: n - 1]]),
    }
    for what, (one, documents) in cases.items():
        expect(sub.aside.overlap(one, documents, n), 0.0, what=f"the overlap of {what}", given={"n": n})
    expect(
        sub.aside.overlap(item[:n], [item], n), 1.0, what="the overlap of an item with exactly n words", given={"n": n}
    )
    expect(sub.aside.overlap(item[:1], [item], 1), 1.0, what="the overlap of one word, n = 1", given={"n": 1})


@test(
    points=2,
    hints=(
        "Which items are found if only their case or their commas differ? Which index does the third item have?",
        "Make words of all texts, collect the runs of the documents once, and keep the indices of the items of which at least one run is among them.",
    ),
)
def found_places(sub, draw):
    "`contaminated` gives the indices of the items with a hit."
    n = draw.integer(3, 4)
    base = [f"w{i}" for i in draw.permutation(90).tolist()]
    parts = [base[8 * i : 8 * i + 8] for i in range(8)]
    line = lambda some, gap=" ": gap.join(some)
    items = [
        line(parts[0]),  # as it is
        line(parts[1]).upper(),  # in another case
        line(parts[2], ", ") + "?",  # with commas
        line(parts[3]),  # not there
        line([*parts[4][: n - 1], "changed", *parts[4][n - 1 : 2 * n - 2]]),  # too short pieces
        line([*parts[5][:n], "changed"]),  # one run
        line(parts[6][: n - 1]),  # fewer than n words
        line(parts[7]),  # over the end of one document
    ]
    documents = [
        line([*parts[0], *parts[1], "and", *parts[7][: n - 1]]),
        line([*parts[7][n - 1 : 2 * n - 2], "so", *parts[2]], "; "),
        line([*parts[4], *parts[5], *parts[6]]).title(),
        "",
    ]
    order = draw.permutation(len(items)).tolist()
    shuffled = [items[i] for i in order]
    got = sub.contaminated(shuffled, documents, n)
    if not isinstance(got, list | tuple) or not all(isinstance(x, int) and 0 <= x < len(items) for x in got):
        fail("`contaminated` does not return a list of indices, integers from 0 on", items=shuffled)
    if list(got) != sorted(set(got)):
        fail(f"`contaminated` gives {list(got)}; expected each index once, in increasing order", items=shuffled)
    marks = lambda *those: torch.tensor([float(i in those) for i in order], dtype=torch.float64)
    expect(
        torch.tensor([float(place in got) for place in range(len(items))], dtype=torch.float64),
        marks(0, 1, 2, 5),
        what="`contaminated`, as 1 for each item with a hit,",
        given={"items": shuffled, "documents": documents, "n": n},
        mistakes={
            "case and punctuation are compared, too": marks(0),
            "punctuation is compared, too": marks(0, 1, 5),
            "case is compared, too": marks(0, 2),
            "a run may begin in one document and end in the next": marks(0, 1, 2, 5, 7),
            "an item with fewer than n words is found": marks(0, 1, 2, 5, 6),
            "an item is found only as a whole, but one run is enough": marks(0, 1, 2),
            "an item is found of which only shorter runs are there": marks(0, 1, 2, 4, 5),
            "single words are compared, not runs": marks(0, 1, 2, 4, 5, 6, 7),
            "indices are counted from 1": torch.tensor(
                [float(order[at - 1] in (0, 1, 2, 5) and at > 0) for at in range(len(items))], dtype=torch.float64
            ),
        },
    )
    for place, where in ((0, "first"), (8 - n, "last")):
        item, document = line(parts[0][place : place + n]), line(parts[0])
        if list(sub.aside.contaminated([item], [document], n)) != [0]:
            fail(
                f"the item is the {where} run of a document, and `contaminated` misses it",
                item=item,
                document=document,
                n=n,
            )


@test(
    points=1,
    rounds=1,
    hints=(
        "How often does your function go through the documents?",
        "Put the runs of all documents into a set before you look at the first item. Whether a tuple is in a set takes the same time, however large the set is.",
    ),
)
def many_items(sub, draw):
    "`contaminated` goes through long documents once."
    worlds = [[" ".join(text_of(draw, 12000, 300)) for _ in range(4)] for _ in range(3)]
    items = [" ".join(["new", *text_of(draw, 11, 300)]) for _ in range(80)]
    few, many = (sub.seconds("contaminated", *((part, w, 5) for w in worlds)) for part in (items[:10], items))
    if many > 4 * few + 0.1:
        fail(f"80 items take {many:.2f} seconds and 10 items {few:.2f}; expected at most four times as long")


@test(
    points=1,
    against="all ways to exchange words",
    hints=(
        "With n = 3 and six words: which two words break all four runs? Would one be enough?",
        "Cut the item into blocks of n neighbours. Each block is a run and needs a change of its own; and the last word of each block is enough.",
    ),
)
def hidden(sub, draw):
    "`fewest_changes` is the smallest number of words that breaks all runs."

    def smallest(length, n):
        for count in range(length + 1):
            for changed in itertools.combinations(range(length), count):
                if all(any(at <= c < at + n for c in changed) for at in range(length - n + 1)):
                    return count

    for n in (2, 3, 4, 1):
        for length in (draw.integer(6, 9), 2 * n, 2 * n - 1, n, n - 1, 0):
            want = smallest(length, n)
            values = {
                "the number is rounded up": -(-length // n),
                "that is the number of runs, but one change breaks several": max(length - n + 1, 0),
                "only every second run is broken": length // (2 * n),
                "one word is exchanged after every n words, but then runs of n words stay": length // (n + 1),
                "one change is enough for any length": min(1, max(length - n + 1, 0)),
            }
            expect(
                sub.fewest_changes(length, n),
                want,
                what="the number of changes",
                given={"length": length, "n": n},
                mistakes={say: float(value) for say, value in values.items() if value != want},
            )


# %% [edges]
# of_a_text: The list may be empty
# of_runs: a run that the item holds twice counts twice
# of_runs: the end of one document and the beginning of the next are not a run
# of_short_items: An item with fewer than $n$ words has no run and gets 0.0
# of_short_items: single documents may be empty
# many_items: eight times as many items may take at most four times as long
# hidden: `length` may be smaller than $n$


# %% [probes]
# no size, integers, values, float32, gradient of words, overlap, contaminated: lists of words, not tensors
# no keywords of overlap.n, contaminated.n, fewest_changes.length, fewest_changes.n: the tests vary them


# %% [mutant] apostrophes and underscores belong to words
# caught by: of_a_text
def words(text):
    return re.findall(r"[\w']+", text.lower())


# %% [mutant] documents put together
# caught by: of_runs
# says: end in the next
def overlap(item, documents, n):
    document_runs = set(_runs([word for document in documents for word in document], n))
    item_runs = _runs(item, n)
    return sum(run in document_runs for run in item_runs) / len(item_runs) if item_runs else 0.0


# %% [mutant] each run once
# caught by: of_runs
# says: counts once
def overlap(item, documents, n):
    document_runs = {run for document in documents for run in _runs(document, n)}
    item_runs = set(_runs(item, n))
    return len(item_runs & document_runs) / len(item_runs) if item_runs else 0.0


# %% [mutant] divided by words
# caught by: of_runs
# says: number of words
def overlap(item, documents, n):
    document_runs = {run for document in documents for run in _runs(document, n)}
    return sum(run in document_runs for run in _runs(item, n)) / len(item) if item else 0.0


# %% [mutant] no run, no number
# caught by: of_short_items
def overlap(item, documents, n):
    document_runs = {run for document in documents for run in _runs(document, n)}
    item_runs = _runs(item, n)
    return sum(run in document_runs for run in item_runs) / len(item_runs)


# %% [mutant] texts as they are
# caught by: found_places
# says: case and punctuation
def contaminated(items, documents, n):
    document_runs = {run for document in documents for run in _runs(document.split(), n)}
    return [place for place, item in enumerate(items) if any(run in document_runs for run in _runs(item.split(), n))]


# %% [mutant] the documents anew for each item
# caught by: many_items
def contaminated(items, documents, n):
    return [i for i, item in enumerate(items) if overlap(words(item), [words(text) for text in documents], n) > 0]


# %% [mutant] rounded up
# caught by: hidden
# says: rounded up
def fewest_changes(length, n):
    return -(-length // n)


# %% [partial] 8: nobody hides anything
def fewest_changes(length, n):
    return 1


# %% [partial] 5: words and overlap
def contaminated(items, documents, n):
    raise NotImplementedError


def fewest_changes(length, n):
    raise NotImplementedError
