# ---
# title: Reading an audit
# kind: numeric
# minutes: 20
# ---

# %% [statement]
# A firm has had its preference labels audited and sends you the table: `audit(STUDENT)` has one row per trait, in the order of `TRAITS`:
#
# `[pairs that differ, how often the chosen reply has more, weight beside quality, standard error of the weight]`
#
# The weights are in nats, from a Bradley–Terry model in which the traits stand beside a trusted measure of quality. All six traits were looked at.
#
# 1. `biased`: a list of the names of the traits that are *established* as biases: beside quality, two-sided, at a level of 5 % **for the whole table** by Bonferroni's correction ($|w| / \text{error}$ above 2.64).
# 2. `misleading`: the name of the one trait of which the raw counts alone would have convinced you (the share is more than 3 of its standard errors, $\tfrac{1}{2\sqrt n}$ each, away from ½) and that is no established bias.
# 3. `more`: the trait `shy(STUDENT)` has a weight that you would like to establish in four studies of five, at 5 % and without any correction. How many times as many labels does it take, if the new ones are like
#    the old? (To 2 %. The normal quantiles: $z_{.975} = 1.960$, $z_{.8} = 0.842$.)

# %% [given]
import torch

from minirlhf_course.ledger.registry import Draw

TRAITS = ["length", "markup", "warm opening", "agreement", "apology", "hedging"]


def audit(student):
    """(6, 4): the table of this student."""
    draw = Draw("07.5", student)
    kinds = [int(k) for k in draw.permutation(6)]
    rows = []
    for kind in kinds:
        differ = draw.integer(250, 600)
        # the weight that is nearly established is larger than those that are: the errors differ
        error = (0.07, 0.07, 0.1, 0.22, 0.1, 0.1)[kind] + 0.01 * draw.integer(0, 2)
        share, z = [
            (0.5 + 0.12 + 0.001 * draw.integer(0, 40), 3.4 + 0.1 * draw.integer(0, 12)),
            (0.5 - 0.001 * draw.integer(0, 15), -3.3 - 0.1 * draw.integer(0, 12)),
            (0.5 + 0.13 + 0.001 * draw.integer(0, 40), 0.1 * draw.integer(-6, 6)),
            (0.5 + 0.001 * draw.integer(5, 20), 2.05 + 0.05 * draw.integer(0, 9)),
            (0.5 + 0.001 * draw.integer(-9, 9), 0.1 * draw.integer(-8, 8)),
            (0.5 + 0.001 * draw.integer(0, 15), 1.1 + 0.05 * draw.integer(0, 12)),
        ][kind]
        rows.append([float(differ), round(share * differ) * 1.0, round(z * error, 4), error])
    return torch.tensor(rows, dtype=torch.float64)


def shy(student):
    """The trait of the third question."""
    z = audit(student)[:, 2] / audit(student)[:, 3]
    return TRAITS[int(torch.where((z > 1) & (z < 2), z, torch.zeros(6, dtype=torch.float64)).argmax())]


# %% [stub]
for name, (differ, more_often, w, error) in zip(TRAITS, audit(STUDENT).tolist(), strict=True):
    print(f"{name:13} {differ:4.0f} differ, chosen has more in {more_often:4.0f}   weight {w:+.3f} ± {error:.2f}")
print("the shy one:", shy(STUDENT))

biased = None
misleading = None
more = None

# %% [solution]
table = audit(STUDENT)
z = table[:, 2] / table[:, 3]
biased = [name for name, value in zip(TRAITS, z.abs().tolist(), strict=True) if value > 2.64]
away = (table[:, 1] / table[:, 0] - 0.5).abs() * 2 * table[:, 0] ** 0.5
misleading = next(n for n, a in zip(TRAITS, away.tolist(), strict=True) if a > 3 and n not in biased)
row = table[TRAITS.index(shy(STUDENT))]
more = ((1.960 + 0.842) * row[3] / row[2]) ** 2

# %% [tests]
import math

from minirlhf_course.classroom.testing import expect, fail, test


def read(student):
    """Ratios of weight to error, distances of the shares from ½ in standard errors, and the row of the shy trait."""
    rows = audit(student).tolist()
    ratios = {name: w / error for name, (_, _, w, error) in zip(TRAITS, rows, strict=True)}
    away = {
        n: (more / differ - 0.5) * 2 * math.sqrt(differ) for n, (differ, more, _, _) in zip(TRAITS, rows, strict=True)
    }
    return ratios, away, rows[TRAITS.index(shy(student))]


@test(
    points=2,
    rounds=1,
    hints=(
        "The first two columns are not needed here. What is the weight in units of its error, and does its sign matter?",
        "Divide each weight by its error, and keep those beyond 2.64 on either side: to dislike a trait is a bias too.",
    ),
)
def established(sub, draw):
    "`biased` holds the established biases."
    ratios, away, _ = read(sub.student)
    found = sub.value("biased")
    if not isinstance(found, list | tuple) or not all(isinstance(x, str) for x in found):
        fail("expected a list of names")
    weights = {name: w for name, (_, _, w, _) in zip(TRAITS, audit(sub.student).tolist(), strict=True)}
    got, want = set(found), {n for n, z in ratios.items() if abs(z) > 2.64}
    if got == want:
        return
    guesses = {
        "these are the traits with the largest weights; divide each by its error": set(
            sorted(ratios, key=lambda n: -abs(weights[n]))[:2]
        ),
        "biases with a minus sign are biases too": {n for n, z in ratios.items() if z > 2.64},
        "a large share is no condition: beside quality the weight alone counts": {
            n for n, z in ratios.items() if abs(z) > 2.64 and abs(away[n]) > 3
        },
        "six traits were looked at: 1.96 is the edge for one": {n for n, z in ratios.items() if abs(z) > 1.96},
        "these are the traits with a large share, which is no evidence": {n for n, z in away.items() if abs(z) > 3},
    }
    fail(
        next((why for why, guess in guesses.items() if got == guess), "these are not the established biases"),
        yours=sorted(got),
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Which shares are far from ½, and which of these traits has no weight beside quality?",
        "Two traits have shares that are far away. One of them keeps its weight beside quality; the other goes with quality.",
    ),
)
def no_bias(sub, draw):
    "`misleading` looks like a bias and is none."
    ratios, away, _ = read(sub.student)
    want = next(n for n, z in away.items() if abs(z) > 3 and abs(ratios[n]) <= 2.64)
    got = sub.value("misleading")
    if got != want:
        true = [n for n, z in away.items() if abs(z) > 3 and abs(ratios[n]) > 2.64]
        fail(
            "this one is an established bias"
            if got in true
            else "the counts of this trait would not have convinced you",
            yours=got,
        )


@test(
    points=2,
    rounds=1,
    hints=(
        "How large would the standard error have to be, for this weight to be found in four of five studies? How does an error fall with the number of labels?",
        "The weight must be 1.960 + 0.842 errors. Errors fall with the root of the number of labels, so the factor is a square.",
    ),
)
def labels(sub, draw):
    "`more` is the factor by which the number of labels has to grow."
    _, away, (_, _, w, error) = read(sub.student)
    want = (2.802 * error / w) ** 2
    z = away[shy(sub.student)]
    of_share = (2.802 / z) ** 2 if z else math.inf
    expect(
        sub.number("more"),
        want,
        what="`more`",
        tolerance=0.02 * want / max(1.0, want),
        reveal=False,
        mistakes={
            "it is the factor for the share, not for the weight": of_share,
            "it is forgotten that the errors fall with the root of the number": math.sqrt(want),
            "the edge alone is asked for: it would be found in half of the studies": (1.96 * error / w) ** 2,
            "it is upside down": 1 / want,
            "the edge is the corrected one, which this question leaves out": (3.482 * error / w) ** 2,
            "the edge is that of a one-sided test": (2.487 * error / w) ** 2,
            "it is how many more, not how many times as many": want - 1,
        },
    )


# %% [mutant] only likings
# caught by: established
# says: minus sign
biased = [name for name, value in zip(TRAITS, z.tolist(), strict=True) if value > 2.64]

# %% [mutant] no correction
# caught by: established
# says: six traits
biased = [name for name, value in zip(TRAITS, z.abs().tolist(), strict=True) if value > 1.96]

# %% [mutant] the wrong one of the two
# caught by: no_bias
# says: an established bias
misleading = next(n for n, a in zip(TRAITS, away.tolist(), strict=True) if a > 3 and n in biased)

# %% [mutant] no square
# caught by: labels
# says: root of the number
more = (1.960 + 0.842) * row[3] / row[2]

# %% [mutant] half of the studies
# caught by: labels
# says: half of the studies
more = (1.960 * row[3] / row[2]) ** 2

# %% [partial] 3: both readings, no plan
more = None
