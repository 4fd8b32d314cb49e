# ---
# title: Impossible losses
# kind: numeric
# minutes: 15
# ---

# %% [statement]
# Here are four real training runs of one small transformer on the chapter's translator: *translate cat*, with three equally probable languages, and no question names one. Every row has several documents, all of one language. In some of the runs
# the mask between the documents was forgotten. `logs(STUDENT)` has their training losses, in nats per answer, as means over twenty steps each. Every step used new rows.
#
# Answer for each run, in `documents_1`, `documents_2`, `documents_3` and `documents_4`: what is the smallest number of documents in a row for which the last loss of its log is possible at all? (1: possible with one document, that is, also with a mask.) A training loss is a mean over random rows; take it as the exact mean.
#
# Then `alone`: take the models of the runs in which the mask was certainly forgotten, and ask them single questions. What is the smallest loss, in nats, that any of them can have? Give three decimals.

# %% [given]
import torch
from minirlhf_course.ledger.registry import Draw

# Thousandths of a nat.
LOGS = [
    "2723 1539 1260 1217 1182 1156 1134 1110 1055 1035",
    "2774 1455 1092 730 522 471 432 424 409 405",
    "2817 1372 717 438 389 345 342 316 308 310",
    "2772 883 358 265 238 221 215 215 204 205",
    "2259 1330 1206 1190 1171 1151 1144 1125 1134 1129",
    "2762 1479 1237 1161 1026 929 823 773 720 694",
    "2960 1477 1146 776 562 494 448 440 421 419",
    "2865 1394 809 458 377 364 339 322 309 306",
    "2924 1267 503 317 253 246 222 216 211 208",
    "2284 1291 1213 1167 1149 1141 1141 1145 1128 1127",
    "2489 1424 1252 1217 1142 1050 884 787 697 668",
    "2498 1325 853 585 482 447 423 416 408 407",
    "2539 1102 547 403 368 335 320 306 303 301",
    "2547 784 346 275 234 216 209 209 203 199",
    "2096 1294 1206 1171 1160 1144 1133 1140 1137 1119",
]


def logs(student):
    """This student's four logs, (4, 10)."""
    draw = Draw("10.6", student)
    one_of = lambda *numbers: numbers[draw.integer(0, len(numbers) - 1)]
    four = [one_of(0, 5, 10), one_of(1, 2, 6, 7, 11, 12, 13), one_of(3, 8), one_of(4, 9, 14)]
    order = draw.permutation(4).tolist()
    return torch.tensor([[int(x) for x in LOGS[four[i]].split()] for i in order], dtype=torch.float64) / 1000


# %% [stub]
for number, log in enumerate(logs(STUDENT).tolist(), 1):
    print(f"run {number}  " + " ".join(f"{x:6.3f}" for x in log))

documents_1 = None
documents_2 = None
documents_3 = None
documents_4 = None
alone = None

# %% [solution]
import math

documents_1, documents_2, documents_3, documents_4 = [math.ceil(math.log(3) / x) for x in logs(STUDENT)[:, -1].tolist()]
alone = math.log(3)

# %% [tests]
import torch
from minirlhf.core import exact
from minirlhf_course.classroom.testing import expect, fail, test
from minirlhf_course.ledger.registry import Draw

LAST = [1035, 405, 310, 205, 1129, 694, 419, 306, 208, 1127, 668, 407, 301, 199, 1119]


def last(student):
    draw = Draw("10.6", student)
    one_of = lambda *numbers: numbers[draw.integer(0, len(numbers) - 1)]
    four = [one_of(0, 5, 10), one_of(1, 2, 6, 7, 11, 12, 13), one_of(3, 8), one_of(4, 9, 14)]
    return [LAST[four[i]] / 1000 for i in draw.permutation(4).tolist()]


def floor(count):
    """The entropy of a row of so many documents, by counting the rows, for each document."""
    rows = torch.zeros((3,) * count, dtype=torch.float64)
    for language in range(3):
        rows[(language,) * count] = 1 / 3
    return float(exact.entropy(rows.flatten())) / count


def ask(sub, which):
    """The answers to some of the runs."""
    for number, loss in enumerate(last(sub.student), 1):
        right = next(count for count in range(1, 9) if floor(count) <= loss)
        kind = "late" if loss > 0.6 and right == 2 else "none" if right == 1 else "deep"
        if kind in which:
            expect(
                sub.number(f"documents_{number}"),
                float(right),
                what=f"`documents_{number}`",
                reveal=False,
                mistakes={
                    "this loss is below the floor for this number of documents": float(right - 1),
                    "fewer documents are enough": float(right + 1),
                },
            )


@test(
    points=1,
    hints=(
        "What is the smallest loss of one document, if nothing names its language?",
        "It is log 3. A loss above it proves nothing. A loss below it, even slightly, proves that the mask was forgotten.",
    ),
)
def above(sub, draw):
    "The run that proves nothing, and the one that is slightly below the floor of one document."
    ask(sub, ("none", "late"))


@test(
    points=2,
    hints=(
        "The first document of a row costs log 3, and each later one at best 0. What is the mean over k documents?",
        "The floor is log 3 / k. Find the smallest k with a floor that is not above the loss.",
    ),
)
def below(sub, draw):
    "The runs that are far below the floor of one document."
    ask(sub, ("deep",))


@test(
    points=1,
    hints=(
        "A single question has no neighbours. What does the model know about the language?",
        "As little as any other model. The loss is at least the entropy of three equally probable answers.",
    ),
)
def single(sub, draw):
    "`alone` is the floor of a single question."
    got = sub.number("alone")
    if abs(got - min(last(sub.student))) < 0.01 or got < 0.9:
        fail("`alone` is too small: without neighbours no model knows the language")
    expect(got, floor(1), what="`alone`", tolerance=1e-3, reveal=False)


# %% [mutant] the nearest floor, not the one below
# caught by: below
# says: below the floor
import math

documents_1, documents_2, documents_3, documents_4 = [
    1 if x > math.log(3) else max(2, math.floor(math.log(3) / x)) for x in logs(STUDENT)[:, -1].tolist()
]

# %% [mutant] a little below one document may be chance
# caught by: above
# says: below the floor
import math

documents_1, documents_2, documents_3, documents_4 = [
    1 if x > 0.6 else math.ceil(math.log(3) / x) for x in logs(STUDENT)[:, -1].tolist()
]

# %% [mutant] as good alone as in a row
# caught by: single
# says: without neighbours
alone = float(logs(STUDENT)[:, -1].min())

# %% [partial] 3: the documents are counted
alone = 0.0
