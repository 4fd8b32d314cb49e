# ---
# title: Results of a bias audit
# kind: numeric
# minutes: 20
# ---

# %% [statement]
# A company had its preference labels audited and sends you the table. `audit(STUDENT)` has one row per trait, in the order of `TRAITS`:
#
# `[pairs that differ, number of these pairs in which the chosen completion has more, weight beside quality, standard error of the weight]`
#
# The weights are in nats, from a Bradley–Terry model with the traits and a trusted measure of quality. All six traits were tested.
#
# 1. `biased`: a list of the names of the traits that are significant biases: beside quality, two-sided, at a level of 5 % **for the whole table** by Bonferroni's correction ($|w| / \text{error}$ above 2.64).
# 2. `misleading`: the name of the one trait whose raw counts alone would have convinced you (the fraction is more than 3 of its standard errors, $\tfrac{1}{2\sqrt n}$ each, away from ½) and that is no significant bias.
# 3. `more`: you want to detect the weight of the trait `shy(STUDENT)` with a power of 80 %, at the level 5 % and without any correction. By which factor must the number of labels grow, if the new labels are like
#    the old ones? (To 2 %. The normal quantiles: $z_{.975} = 1.960$, $z_{.8} = 0.842$.)

# %% [given]
import torch
from minirlhf_course.ledger.registry import Draw

TRAITS = ["length", "markup", "warm opening", "agreement", "apology", "hedging"]


def audit(student):
    """Return the table of this student, (6, 4)."""
    draw = Draw("07.5", student)
    kinds = [int(k) for k in draw.permutation(6)]
    rows = []
    for kind in kinds:
        differ = draw.integer(250, 600)
        # the weight that is nearly significant is larger than the significant ones: the errors differ
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
    """Return the trait of the third question."""
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
    """Return weight over error, distance of the fraction from ½ in standard errors, and the row of the third question."""
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
        "You do not need the first two columns here. What is the weight in units of its error, and does its sign matter?",
        "Divide each weight by its error, and keep the traits beyond 2.64 on either side: a negative weight is a bias too.",
    ),
)
def established(sub, draw):
    "`biased` contains the significant biases."
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
        "weights with a minus sign are biases too": {n for n, z in ratios.items() if z > 2.64},
        "a large fraction is not required: beside quality, only the weight counts": {
            n for n, z in ratios.items() if abs(z) > 2.64 and abs(away[n]) > 3
        },
        "six traits were tested: 1.96 is the threshold for one": {n for n, z in ratios.items() if abs(z) > 1.96},
        "these are the traits with a large fraction, which is no evidence": {n for n, z in away.items() if abs(z) > 3},
    }
    fail(
        next((why for why, guess in guesses.items() if got == guess), "these are not the significant biases"),
        yours=sorted(got),
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Which fractions are far from ½, and which of these traits has no significant weight beside quality?",
        "Two traits have fractions far from ½. One of them keeps its weight beside quality; the other is correlated with quality.",
    ),
)
def no_bias(sub, draw):
    "`misleading` looks like a bias in the raw counts only."
    ratios, away, _ = read(sub.student)
    want = next(n for n, z in away.items() if abs(z) > 3 and abs(ratios[n]) <= 2.64)
    got = sub.value("misleading")
    if got != want:
        true = [n for n, z in away.items() if abs(z) > 3 and abs(ratios[n]) > 2.64]
        fail(
            "this trait is a significant bias"
            if got in true
            else "the counts of this trait would not have convinced you",
            yours=got,
        )


@test(
    points=2,
    rounds=1,
    hints=(
        "Which standard error would give this weight a power of 80 %? How does a standard error depend on the number of labels?",
        "The weight must be 1.960 + 0.842 standard errors. A standard error is proportional to one over the square root of the number of labels, so the factor is a square.",
    ),
)
def labels(sub, draw):
    "`more` is the factor by which the number of labels must grow."
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
            "this is the factor for the fraction, not for the weight": of_share,
            "the factor must be squared: errors fall with the square root of the number of labels": math.sqrt(want),
            "this uses 1.960 alone, which gives a power of one half": (1.96 * error / w) ** 2,
            "this is the inverse of the factor": 1 / want,
            "this uses the corrected threshold, but the question asks for no correction": (3.482 * error / w) ** 2,
            "this uses the threshold of a one-sided test": (2.487 * error / w) ** 2,
            "this is the factor minus 1": want - 1,
        },
    )


# %% [mutant] only likings
# caught by: established
# says: minus sign
biased = [name for name, value in zip(TRAITS, z.tolist(), strict=True) if value > 2.64]

# %% [mutant] no correction
# caught by: established
# says: six traits were tested
biased = [name for name, value in zip(TRAITS, z.abs().tolist(), strict=True) if value > 1.96]

# %% [mutant] the wrong one of the two
# caught by: no_bias
# says: a significant bias
misleading = next(n for n, a in zip(TRAITS, away.tolist(), strict=True) if a > 3 and n in biased)

# %% [mutant] no square
# caught by: labels
# says: must be squared
more = (1.960 + 0.842) * row[3] / row[2]

# %% [mutant] half of the studies
# caught by: labels
# says: power of one half
more = (1.960 * row[3] / row[2]) ** 2

# %% [partial] 3: both readings, no plan
more = None
