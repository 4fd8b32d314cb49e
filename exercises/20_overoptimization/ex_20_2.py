# ---
# title: Reading a fall
# kind: numeric
# minutes: 25
# ---

# %% [statement]
# Somebody has optimised a proxy by best-of-n and, at great expense, had people grade the replies at nine distances. `run(STUDENT)` has a
# row per distance: $[d, \text{proxy}, \text{gold}]$ with $d = \sqrt{\mathrm{KL}}$, KL in nats; the first row is the reference. (The numbers are yours alone;
# put your student id into `STUDENT` at the top of the notebook.) The gold in the table follows
#
# $$ g(d) - g(0) = d\,(\alpha - \beta d) $$
#
# but for noise. Nobody measured beyond the last row, and the peak lies beyond it. Answer with numbers:
#
# 1. `alpha` and 2. `beta`: the least-squares fit to the gold *gained* (right to 1 %; the curve goes through the origin, so there is no intercept);
# 3. `peak_kl`: at how many **nats** of KL does the fit say that one should stop (1 %)?
# 4. `break_even_kl`: and at how many nats is all that was gained lost again (1 %)?

# %% [given]
import torch

from minirlhf.ledger.registry import Draw


def run(student):
    """(9, 3): distance, proxy, gold. The noise is small, the reach short of the peak."""
    draw = Draw("20.2", student)
    alpha, beta = float(draw.uniform(low=0.7, high=1.1)), float(draw.uniform(low=0.2, high=0.3))
    start = float(draw.uniform(low=0.3, high=0.9))
    distance = torch.linspace(0, 0.8 * alpha / (2 * beta), 9, dtype=torch.float64)
    noise = 0.01 * draw.normal(9)
    noise[0] = 0.0
    gold = start + distance * (alpha - beta * distance) + noise
    return torch.stack([distance, start + 1.5 * alpha * distance, gold], -1)


# %% [stub]
for row in run(STUDENT).tolist():
    print("d {:.3f}   proxy {:.3f}   gold {:.4f}".format(*row))

alpha = None
beta = None
peak_kl = None
break_even_kl = None

# %% [solution]
d, _, g = run(STUDENT).unbind(-1)
alpha, beta = torch.linalg.lstsq(torch.stack([d, -(d**2)], -1), g - g[0]).solution.tolist()
peak_kl = (alpha / (2 * beta)) ** 2
break_even_kl = (alpha / beta) ** 2

# %% [tests]
import torch

from minirlhf.classroom.testing import expect, test


def fitted(student, gained=True, column=2):
    """α and β from the normal equations, written out."""
    rows = run(student)
    d, g = rows[:, 0], rows[:, column] - (rows[0, column] if gained else 0.0)
    s2, s3, s4 = (d**2).sum(), (d**3).sum(), (d**4).sum()
    b1, b2 = (d * g).sum(), (d**2 * g).sum()
    determinant = s2 * s4 - s3**2
    return float((b1 * s4 - b2 * s3) / determinant), float((b1 * s3 - b2 * s2) / determinant)


def within(want, percent=1.0):
    return percent / 100 * abs(want) / max(1.0, abs(want))


@test(
    points=1,
    rounds=1,
    hints=(
        "The form is linear in α and β: no iterative fit is needed. What are its two columns?",
        "Columns d and −d², right side gold minus the gold of the first row, no column of ones. Any least-squares solver will do.",
    ),
)
def fitted_alpha(sub, draw):
    "`alpha` is the fit's slope at the reference."
    want, _ = fitted(sub.student)
    expect(
        sub.number("alpha"),
        want,
        what="`alpha`",
        tolerance=within(want),
        reveal=False,
        mistakes={
            "gold is fitted, not the gold gained": fitted(sub.student, gained=False)[0],
            "the proxy is fitted, not gold": fitted(sub.student, column=1)[0],
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "β comes out of the same solve as α. Mind the sign of its column.",
        "With columns d and −d² the second number is β itself, and positive.",
    ),
)
def fitted_beta(sub, draw):
    "`beta` is the fit's curvature."
    _, want = fitted(sub.student)
    expect(
        sub.number("beta"),
        want,
        what="`beta`",
        tolerance=within(want),
        reveal=False,
        mistakes={
            "the sign is that of the coefficient of d²": -want,
            "the factor 2 of a second derivative is in it": 2 * want,
        },
    )


@test(
    points=2,
    rounds=1,
    hints=(
        "Differentiate d(α − βd), set it to zero; then mind what was asked for: nats, not their root.",
        "The peak is at d = α/(2β). The KL there is d².",
    ),
)
def stop_here(sub, draw):
    "`peak_kl` is the KL at the fit's peak, in nats."
    alpha, beta = fitted(sub.student)
    want = (alpha / (2 * beta)) ** 2
    rows = run(sub.student)
    expect(
        sub.number("peak_kl"),
        want,
        what="`peak_kl`",
        tolerance=within(want),
        reveal=False,
        mistakes={
            "this is the distance, the root of the KL": alpha / (2 * beta),
            "this is the last row, not the peak": float(rows[-1, 0] ** 2),
            "this is where the gain is lost again": (alpha / beta) ** 2,
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Where is d(α − βd) zero again?",
        "At d = α/β, twice as far as the peak; in nats that is four times as far.",
    ),
)
def break_even(sub, draw):
    "`break_even_kl` is the KL at which the gain is zero again."
    alpha, beta = fitted(sub.student)
    want = (alpha / beta) ** 2
    expect(
        sub.number("break_even_kl"),
        want,
        what="`break_even_kl`",
        tolerance=within(want),
        reveal=False,
        mistakes={
            "this is the distance, the root of the KL": alpha / beta,
            "twice the KL of the peak; it is the distance that doubles": 2 * (alpha / (2 * beta)) ** 2,
        },
    )


# %% [mutant] gold itself is fitted
# caught by: fitted_alpha
# says: not the gold gained
d, _, g = run(STUDENT).unbind(-1)
alpha, beta = torch.linalg.lstsq(torch.stack([d, -(d**2)], -1), g).solution.tolist()
peak_kl = (alpha / (2 * beta)) ** 2
break_even_kl = (alpha / beta) ** 2

# %% [mutant] the sign of β is lost
# caught by: fitted_beta
# says: the coefficient of d²
d, _, g = run(STUDENT).unbind(-1)
alpha, beta = torch.linalg.lstsq(torch.stack([d, d**2], -1), g - g[0]).solution.tolist()
peak_kl = (alpha / (2 * beta)) ** 2
break_even_kl = (alpha / beta) ** 2

# %% [mutant] distance for KL at the peak
# caught by: stop_here
# says: the root of the KL
peak_kl = alpha / (2 * beta)

# %% [mutant] the last row is taken for the peak
# caught by: stop_here
# says: the last row
peak_kl = float(run(STUDENT)[-1, 0]) ** 2

# %% [mutant] the KL doubles
# caught by: break_even
# says: the distance that doubles
break_even_kl = 2 * peak_kl

# %% [partial] 2: the fit is right, what follows from it not begun
peak_kl = None
break_even_kl = None
