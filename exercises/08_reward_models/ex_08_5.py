# ---
# title: Calibration and accuracy of a report
# kind: numeric
# minutes: 20
# ---

# %% [statement]
# `report(STUDENT)` is the report on a reward model, yours alone. Held-out pairs are sorted into bins by the probability that the model gave to one of the two completions, which was fixed before the label was known. Each row is `(pairs, mean
# stated probability, fraction in which the annotators chose this completion)`. Answer with expressions; do not round.
#
# 1. `calibration_error`: the expected calibration error of the report.
# 2. `accuracy`: the fraction of pairs on which the model agrees with the annotators. (In each bin, all stated probabilities are on the same side of ½ as the bin's mean.)
# 3. `too_sure`: `True` if the model claims more agreement than it has, `False` if it claims less. (Claimed agreement: for each pair, the larger of the stated probability and one minus it; take the mean over the pairs.)
# 4. `pairs_needed`: you want to know this accuracy to within .02. For how many pairs is the half-width of the 95 % interval, $1.96\sqrt{a(1-a)/n}$, equal to .02? (A number, not rounded.)

# %% [given]
from minirlhf_course.ledger.registry import Draw


def report(student):
    """[(pairs, mean stated probability, fraction of the annotators), ...]"""
    draw = Draw("08.5", student)
    stated = [
        0.1 + 0.01 * draw.integer(0, 4),
        0.3 + 0.01 * draw.integer(0, 6),
        0.6 + 0.01 * draw.integer(0, 6),
        0.85 + 0.01 * draw.integer(0, 6),
    ]
    pull = [0.7, 1.25][draw.integer(0, 1)]  # how the outcomes relate to the stated probabilities
    pairs = [
        most + 10 * draw.integer(0, 3) for most in (100, 100, 30, 30)
    ]  # the model expects the other completion in most pairs
    shares = [round(0.5 + pull * (s - 0.5) * (0.92 + 0.01 * draw.integer(0, 4)), 3) for s in stated]
    return [(n, round(s, 2), share) for n, s, share in zip(pairs, stated, shares)]


# %% [stub]
for row in report(STUDENT):
    print(row)

calibration_error = None
accuracy = None
too_sure = None
pairs_needed = None

# %% [solution]
_rows = report(STUDENT)
_total = sum(n for n, _, _ in _rows)
calibration_error = sum(n * abs(share - stated) for n, stated, share in _rows) / _total
accuracy = sum(n * (share if stated > 0.5 else 1 - share) for n, stated, share in _rows) / _total
too_sure = sum(n * max(stated, 1 - stated) for n, stated, _ in _rows) / _total > accuracy
pairs_needed = 1.96**2 * accuracy * (1 - accuracy) / 0.02**2

# %% [tests]
from minirlhf_course.classroom.testing import expect, fail, test


def counted(student):
    """The same by counting whole pairs: for each row (pairs, stated, how many chose this completion)."""
    return [(n, stated, n * share) for n, stated, share in report(student)]


def agreed(student):
    rows = counted(student)
    right = sum(chose if stated > 0.5 else n - chose for n, stated, chose in rows)
    return right / sum(n for n, _, _ in rows)


@test(
    points=1,
    rounds=1,
    hints=(
        "Compute one gap for each bin, without sign. Then average, with the number of pairs as the weight of a bin.",
        "The weight of a bin is its n divided by the number of all pairs.",
    ),
)
def calibration(sub, draw):
    "`calibration_error` of the report."
    rows = counted(sub.student)
    total = sum(n for n, _, _ in rows)
    want = sum(abs(chose - n * stated) for n, stated, chose in rows) / total
    expect(
        sub.number("calibration_error"),
        want,
        what="`calibration_error`",
        reveal=False,
        mistakes={
            "bins count equally": sum(abs(chose / n - stated) for n, stated, chose in rows) / len(rows),
            "gaps of different sign cancel": abs(sum(chose - n * stated for n, stated, chose in rows)) / total,
            "gaps of different sign cancel, and the sign is kept": sum(chose - n * stated for n, stated, chose in rows)
            / total,
            "gaps of different sign cancel, and each is the stated probability minus the outcome": sum(
                n * stated - chose for n, stated, chose in rows
            )
            / total,
            "gaps are squared": sum((chose - n * stated) ** 2 / n for n, stated, chose in rows) / total,
            "it is the largest gap": max(abs(chose / n - stated) for n, stated, chose in rows),
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Below ½, the model expects the *other* completion.",
        "In the lower bins, count the annotators who did not choose this completion.",
    ),
)
def agreement(sub, draw):
    "`accuracy` counts both sides of ½."
    rows = counted(sub.student)
    total = sum(n for n, _, _ in rows)
    expect(
        sub.number("accuracy"),
        agreed(sub.student),
        what="`accuracy`",
        reveal=False,
        mistakes={
            "only the upper bins are counted as right": sum(chose for n, s, chose in rows if s > 0.5) / total,
            "it is the fraction of this completion in all bins": sum(chose for _, _, chose in rows) / total,
            "it is the agreement that the model claims": sum(n * max(s, 1 - s) for n, s, _ in rows) / total,
            "bins count equally": sum(max(chose / n, 1 - chose / n) for n, _, chose in rows) / len(rows),
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Which agreement does the model claim for a pair with a stated probability below one half?",
        "Compare the claimed agreement, as the statement defines it, with your `accuracy`.",
    ),
)
def confidence(sub, draw):
    "`too_sure` compares the claimed agreement with the accuracy."
    got = sub.truth("too_sure")
    rows = counted(sub.student)
    claimed = sum(n * max(s, 1 - s) for n, s, _ in rows) / sum(n for n, _, _ in rows)
    if got != (claimed > agreed(sub.student)):
        fail("`too_sure` has the wrong value")  # which the mean over all pairs of what is stated is, too


@test(
    points=1,
    rounds=1,
    hints=("Solve the half-width for n.", "Square both sides; n is in the denominator."),
)
def enough(sub, draw):
    "`pairs_needed` makes the interval narrow enough."
    a = agreed(sub.student)
    want = a * (1 - a) * (1.96 / 0.02) ** 2
    expect(
        sub.number("pairs_needed"),
        want,
        what="`pairs_needed`",
        reveal=False,
        tolerance=1e-4,
        mistakes={
            "the whole width is .02": 4 * want,
            ".02 is taken for half of the half-width": want / 4,
            "the accuracy is taken to be ½": 0.25 * (1.96 / 0.02) ** 2,
            "the half-width is one standard error, without the 1.96": a * (1 - a) / 0.02**2,
            "the square is missing": (a * (1 - a)) ** 0.5 * 1.96 / 0.02,
            "two standard errors are taken, not 1.96": a * (1 - a) * (2 / 0.02) ** 2,
        },
    )


# %% [mutant] bins count equally
# caught by: calibration
# says: bins count equally
calibration_error = sum(abs(share - stated) for _, stated, share in report(STUDENT)) / 4


# %% [mutant] the lower bins are read as wrong
# caught by: agreement
_all = report(STUDENT)
accuracy = sum(n * share for n, stated, share in _all if stated > 0.5) / sum(n for n, _, _ in _all)


# %% [mutant] confidence reversed
# caught by: confidence
# says: wrong value
_r = report(STUDENT)
_n = sum(n for n, _, _ in _r)
too_sure = not (sum(n * max(s, 1 - s) for n, s, _ in _r) > sum(n * (x if s > 0.5 else 1 - x) for n, s, x in _r))


# %% [mutant] the whole width
# caught by: enough
# says: whole width
_r = report(STUDENT)
_n = sum(n for n, _, _ in _r)
_a = sum(n * (x if s > 0.5 else 1 - x) for n, s, x in _r) / _n
pairs_needed = 4 * 1.96**2 * _a * (1 - _a) / 0.02**2


# %% [partial] 2: calibration and accuracy
too_sure = None
pairs_needed = None
