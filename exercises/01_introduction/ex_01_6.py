# ---
# title: Recognise the feedback from the curves
# kind: choice
# minutes: 20
# ---

# %% [statement]
# There are five runs. In each, a model chooses among five completions of one question, with a table of five logits. The first completion is the best and rare. The second is bad. The third is the
# usual completion of the model. The fourth is nice. The fifth is another rare one. The gold rewards are 2, −1, 0, 1 and 0. Each run is plain gradient descent on one
# loss, with its exact gradient and a step size of .05. Each run has its own initial probabilities.
#
# `logs(STUDENT)` returns five of fifteen such runs; your id decides which and in what order. A row holds the probabilities of the five completions, in thousandths, after 0, 2, 4, 8, 16, 32, 64 and 128 steps.
# Which feedback made each run? Set `run_1`, `run_2`, `run_3`, `run_4` and `run_5` to letters, each used once.
#
# (a) imitation of the best completion\
# (b) avoidance ("not this") of the bad completion\
# (c) a comparison: the best completion rather than the bad one\
# (d) the gold reward: the loss is minus its expectation\
# (e) the same comparison as in (c), with a bug: the data loader flips every second pair, so that the loss is the mean of both directions
#
# The bug in (e) gives no error message, and at first its curve looks like the curve of (c). Also note what happens to the best completion in (d), where the gold reward itself is maximised.

# %% [given]
import torch
from minirlhf_course.ledger.registry import Draw

REPLIES = ("best", "bad", "usual", "nice", "other")
STEPS = (0, 2, 4, 8, 16, 32, 64, 128)

# Fifteen runs in no order, each eight rows of five probabilities in thousandths, and which five make one task.
LOGS = [
    "47 123 452 296 82 53 125 444 295 83 60 126 435 294 85 75 129 418 290 87 117 132 383 278 91 240 125 307 239 89 530 87 173 145 65 799 40 69 60 32",
    "58 126 437 305 74 57 113 448 308 73 56 101 459 311 72 54 81 480 316 70 49 49 520 318 64 37 17 596 301 49 17 1 762 197 22 1 0 978 19 2",
    "53 153 423 285 86 54 150 424 286 86 56 147 425 286 86 59 141 427 287 87 64 131 429 289 87 72 117 432 291 88 83 103 434 292 88 90 94 434 293 88",
    "40 127 437 328 68 41 124 438 329 68 42 121 439 329 68 44 116 440 331 69 49 107 443 332 69 56 95 446 334 69 65 82 447 336 70 71 75 448 336 70",
    "32 120 438 336 74 33 117 439 337 74 34 114 440 338 74 36 109 442 339 75 40 99 445 341 75 46 87 448 344 76 55 73 450 345 76 62 66 451 346 76",
    "58 107 395 369 71 65 109 389 365 72 73 110 383 360 73 92 112 371 350 75 140 114 342 325 78 275 108 276 265 76 559 75 158 153 55 808 36 65 64 28",
    "51 119 454 283 93 55 112 456 284 93 59 105 458 285 94 67 93 460 286 94 83 75 460 287 94 113 54 456 284 93 161 35 440 274 90 225 22 412 257 84",
    "49 125 461 287 78 53 117 463 288 78 57 110 465 290 79 65 97 468 291 79 81 78 469 292 79 112 56 465 289 79 160 36 448 279 76 226 22 420 261 71",
    "53 107 430 325 85 60 109 423 323 86 67 110 415 320 88 85 112 399 314 90 129 115 366 297 93 259 109 293 249 90 546 77 166 147 65 804 36 67 61 32",
    "59 149 422 293 77 64 140 424 295 77 69 131 426 296 78 78 116 429 298 78 98 94 431 299 79 134 67 426 296 78 191 43 408 283 74 266 26 377 262 69",
    "45 129 447 289 90 45 127 442 296 90 46 125 437 302 90 46 121 427 316 89 48 114 405 345 88 50 99 356 410 84 52 74 255 548 72 46 40 125 743 46",
    "56 129 431 305 79 55 116 442 309 78 54 104 452 312 77 52 83 473 317 75 48 51 513 320 68 36 17 588 305 53 17 2 752 205 25 1 0 976 21 2",
    "42 156 457 277 68 42 153 453 283 68 43 151 449 290 68 43 145 440 304 68 45 135 420 333 67 47 116 373 399 65 48 84 269 542 57 42 44 129 748 37",
    "58 107 453 313 69 57 96 464 316 68 56 85 474 318 67 54 67 494 321 64 48 40 533 321 58 36 13 608 299 44 16 1 774 189 19 1 0 980 17 1",
    "40 124 409 342 85 40 122 403 350 85 40 120 398 358 84 41 116 386 374 83 41 107 361 408 81 42 92 310 480 76 40 66 214 617 62 33 35 106 787 39",
]
TASKS = [
    (7, 10, 5, 11, 2),
    (2, 7, 1, 12, 5),
    (13, 9, 0, 4, 14),
    (9, 5, 1, 12, 3),
    (7, 3, 13, 12, 0),
    (5, 12, 13, 2, 6),
    (12, 0, 13, 3, 7),
    (2, 14, 11, 7, 5),
    (8, 1, 7, 2, 14),
    (10, 4, 1, 6, 0),
    (11, 5, 14, 3, 9),
    (7, 5, 2, 13, 14),
    (11, 7, 2, 12, 0),
    (0, 3, 14, 9, 11),
    (2, 5, 7, 13, 14),
    (6, 5, 13, 3, 12),
    (0, 2, 9, 1, 14),
    (4, 5, 11, 10, 9),
    (0, 6, 14, 4, 11),
    (0, 10, 4, 9, 11),
    (12, 11, 8, 3, 6),
    (2, 8, 6, 12, 11),
    (6, 1, 14, 8, 2),
    (8, 12, 2, 1, 7),
    (3, 0, 1, 7, 12),
    (0, 11, 9, 10, 4),
    (12, 3, 9, 8, 11),
    (11, 5, 12, 7, 3),
    (2, 6, 5, 14, 1),
    (8, 3, 7, 10, 1),
    (12, 3, 8, 13, 9),
    (11, 10, 5, 4, 9),
    (13, 10, 3, 5, 9),
    (13, 8, 7, 3, 12),
    (4, 14, 5, 7, 13),
    (10, 13, 6, 5, 4),
    (12, 3, 13, 5, 7),
    (3, 13, 14, 8, 7),
    (12, 7, 13, 5, 4),
    (3, 11, 6, 8, 12),
]


def logs(student):
    """Return this student's five runs, (8, 5) each: probabilities."""
    five = TASKS[Draw("01.6", student).integer(0, len(TASKS) - 1)]
    return [torch.tensor([int(x) for x in LOGS[i].split()], dtype=torch.float64).reshape(8, 5) / 1000 for i in five]


# %% [stub]
for number, log in enumerate(logs(STUDENT), 1):
    print(f"run {number}  steps " + " ".join(f"{name:>6}" for name in REPLIES))
    for steps, row in zip(STEPS, log.tolist(), strict=True):
        print(f"       {steps:5} " + " ".join(f"{x:6.3f}" for x in row))

run_1 = None
run_2 = None
run_3 = None
run_4 = None
run_5 = None


# %% [solution]
def diagnosis(log):
    """Return the letter of the feedback with this pattern."""
    first, last = log[0], log[-1]
    if last[1] < 0.005:
        return "b"  # the bad completion is gone
    kept = (last[2] / last[3]) / (first[2] / first[3])
    if 0.95 < kept < 1.05:  # the other completions keep their ratios: a comparison
        return "c" if last[0] > 2 * last[1] else "e"
    return "a" if last[0] > 0.5 else "d"


run_1, run_2, run_3, run_4, run_5 = (diagnosis(log) for log in logs(STUDENT))

# %% [tests]
from minirlhf_course.classroom.testing import fail, test
from minirlhf_course.ledger.registry import Draw

TRUTH = "abeeeaccacdbdbd"  # the feedback of each of LOGS


def ask(sub, letter, said):
    """Require that the run with this letter has it in the answer."""
    five = TASKS[Draw("01.6", sub.student).integer(0, len(TASKS) - 1)]
    at = [TRUTH[i] for i in five].index(letter) + 1
    got = sub.choice(f"run_{at}", "abcde")
    if got != letter:
        fail(f"`run_{at}` is not {got!r}: {said[got]}")


@test(
    points=1,
    rounds=1,
    hints=(
        "One completion has nearly all the probability at the end, and the feedback did not mention it. Where did its probability come from?",
        "The probability of a bad completion goes to the most probable one. The rare best completion falls with the bad one.",
    ),
)
def squeezed(sub, draw):
    "The run with avoidance is identified."
    ask(
        sub,
        "b",
        {
            "a": "the best completion nearly disappears",
            "c": "the best completion nearly disappears, but a comparison would raise it",
            "d": "the usual completion takes over, but the nice one has the higher reward",
            "e": "the bad completion is gone, but contradicting pairs would keep it",
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Divide the probability of the usual completion by the probability of the nice one, row by row. In which runs does the quotient stay the same?",
        "A comparison moves two logits, so all other completions keep their ratios. Imitation lowers a frequent completion more than a rare one.",
    ),
)
def two_move(sub, draw):
    "The run with the comparison is identified."
    ask(
        sub,
        "c",
        {
            "a": "the usual and the nice completion keep their ratio, but imitation would change it",
            "b": "the best completion rises",
            "d": "the usual and the nice completion keep their ratio, but a reward would change it",
            "e": "it does not stop: the best completion becomes many times as probable as the bad one",
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Two runs keep the ratios of the other completions. Which of them converges, and where?",
        "If each pair appears in both directions, the loss is smallest where both completions are equally probable.",
    ),
)
def turned_round(sub, draw):
    "The run with the bug in its data is identified."
    ask(
        sub,
        "e",
        {
            "a": "the usual and the nice completion keep their ratio, but imitation would change it",
            "b": "the bad completion does not disappear",
            "c": "best and bad become equally probable and stay so: half of the pairs contradict the other half",
            "d": "the usual and the nice completion keep their ratio, but a reward would change it",
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Two runs are left. One imitates a completion, the other receives a reward. Which completion gains most in each?",
        "A reward moves a logit in proportion to the probability of its completion. The best completion is rare, so it hardly moves. The nice one is frequent and gains most.",
    ),
)
def shown_or_graded(sub, draw):
    "Imitation and reward are distinguished."
    ask(
        sub,
        "d",
        {
            "a": "the nice completion takes over, not the best one",
            "b": "the nice completion takes over, not the usual one",
            "c": "the nice completion overtakes the usual one, but no pair compares the two",
            "e": "the nice completion overtakes the usual one, but no pair compares the two",
        },
    )


# %% [mutant] the reward is taken for imitation
# caught by: shown_or_graded
# says: the nice completion takes over
run_1, run_2, run_3, run_4, run_5 = ({"a": "d", "d": "a"}.get(x, x) for x in (run_1, run_2, run_3, run_4, run_5))

# %% [mutant] the bug is not seen
# caught by: two_move
# says: does not stop
run_1, run_2, run_3, run_4, run_5 = ({"c": "e", "e": "c"}.get(x, x) for x in (run_1, run_2, run_3, run_4, run_5))

# %% [mutant] the squeezed run is taken for the reward
# caught by: squeezed
# says: the nice one has the higher reward
run_1, run_2, run_3, run_4, run_5 = ({"b": "d", "d": "b"}.get(x, x) for x in (run_1, run_2, run_3, run_4, run_5))

# %% [mutant] the bug is taken for the reward
# caught by: turned_round
# says: keep their ratio
run_1, run_2, run_3, run_4, run_5 = ({"e": "d", "d": "e"}.get(x, x) for x in (run_1, run_2, run_3, run_4, run_5))

# %% [partial] 1: avoidance and the comparison are found
run_1, run_2, run_3, run_4, run_5 = (
    {"a": "e", "d": "a", "e": "d"}.get(x, x) for x in (run_1, run_2, run_3, run_4, run_5)
)
