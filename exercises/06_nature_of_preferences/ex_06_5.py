# ---
# title: A tournament that no rating fits
# kind: numeric
# minutes: 15
# ---

# %% [statement]
# Three models A, B and C have played, each pair 1,000 games, without ties. `tournament(STUDENT)` returns the number of games that A won against B, that B won against C, and that A won against C.
# (The numbers are yours alone.) A leaderboard needs one rating per model, in Elo points: 400 points are odds of ten to one.
#
# Answer with numbers, to half a point:
#
# 1. `a_over_b`: the lead of A over B in points, from the games of these two alone.
# 2. `a_over_c_by_b`: the lead of A over C in points if ratings fitted, so that it is the sum of the lead of A over B and the lead of B over C.
# 3. `around`: the sum of the leads around the cycle, from A to B, from B to C, and back from C to A, each from the games of the pair. (0 if ratings fit. A step is positive if
#    the model that you come from is ahead.)
# 4. `a_over_c_fitted`: the lead of A over C in points in a Bradley–Terry fit to all three pairs. You may use `minirlhf.equations.social_choice.bradley_terry_fit`; it returns nats, not points.

# %% [given]
import math

import torch
from minirlhf.equations.social_choice import bradley_terry_fit
from minirlhf_course.ledger.registry import Draw


def tournament(student):
    """This student's results: A's wins against B, B's against C, A's against C, of 1,000 games each."""
    draw = Draw("06.5", student)
    while True:
        ab, bc, ac = 550 + 4 * draw.integer(0, 15), 560 + 5 * draw.integer(0, 15), 300 + 4 * draw.integer(0, 15)
        a, b, c = ab + ac, 1000 - ab + bc, 2000 - ac - bc  # the games that each of them won
        if min(abs(a - b), abs(b - c), abs(a - 2 * b + c)) >= 20:
            return ab, bc, ac  # else a fit would give two of them equal ratings, or equal leads


# %% [stub]
ab, bc, ac = tournament(STUDENT)
print(f"A beats B in {ab}, B beats C in {bc}, A beats C in {ac} of 1,000 games")

a_over_b = None
a_over_c_by_b = None
around = None
a_over_c_fitted = None

# %% [solution]
ab, bc, ac = tournament(STUDENT)
lead = lambda wins: 400 * math.log10(wins / (1000 - wins))
a_over_b = lead(ab)
a_over_c_by_b = lead(ab) + lead(bc)
around = lead(ab) + lead(bc) - lead(ac)
wins = torch.tensor([[0, ab, ac], [1000 - ab, 0, bc], [1000 - ac, 1000 - bc, 0]], dtype=torch.float64)
fitted = bradley_terry_fit(wins) * 400 / math.log(10)
a_over_c_fitted = float(fitted[0] - fitted[2])

# %% [tests]
import math

import torch
from minirlhf_course.classroom.testing import expect, test


def leads(student):
    """Return the leads in Elo points from each pair's own games."""
    return [400 / math.log(10) * (math.log(w) - math.log(1000 - w)) for w in tournament(student)]


def fitted_leads(student):
    """Return the maximum-likelihood leads of A over C and of A over B in nats, by gradient ascent."""
    ab, bc, ac = tournament(student)
    r = [0.0, 0.0, 0.0]
    for _ in range(6000):
        slope = [0.0, 0.0, 0.0]
        for i, j, w in ((0, 1, ab), (1, 2, bc), (0, 2, ac)):
            missing = w / 1000 - 1 / (1 + math.exp(r[j] - r[i]))
            slope[i] += missing
            slope[j] -= missing
        r = [x + 0.5 * s for x, s in zip(r, slope, strict=True)]
    return r[0] - r[2], r[0] - r[1]


def ask(sub, name, want, mistakes):
    close = 0.5 / max(1.0, abs(want))
    expect(sub.number(name), want, what=f"`{name}`", tolerance=close, reveal=False, mistakes=mistakes)


@test(
    points=1,
    rounds=1,
    hints=(
        "Which difference in rating makes the expected score equal to the fraction of games won? Solve for it.",
        "Odds of wins to losses, on a logarithmic scale to the base 10, times 400.",
    ),
)
def one_pair(sub, draw):
    "`a_over_b` turns a win rate into points."
    nats = leads(sub.student)[0] * math.log(10) / 400
    share = tournament(sub.student)[0] / 1000
    ask(
        sub,
        "a_over_b",
        leads(sub.student)[0],
        {
            "this is in nats, not in points": nats,
            "the natural logarithm is multiplied by 400": 400 * nats,
            "this uses the logarithm of the win rate instead of the odds": 400 * math.log10(share),
            "the win rate is divided by one half instead of the rate of losses": 400 * math.log10(2 * share),
            "400 points are treated as a certain win": 400 * (2 * share - 1),
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Ratings are positions on a line. How does the lead of A over C follow from the leads of A over B and of B over C?",
        "Add the two leads. The games of A against C are not needed.",
    ),
)
def two_steps(sub, draw):
    "`a_over_c_by_b` adds two leads."
    ab, bc, ac = leads(sub.student)
    p, q, _ = (w / 1000 for w in tournament(sub.student))
    ask(
        sub,
        "a_over_c_by_b",
        ab + bc,
        {
            "the leads are subtracted": ab - bc,
            "this is the lead of A over C in their own games": ac,
            "win rates are multiplied": 400 * math.log10(p * q / (1 - p * q)),
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Go around once: A over B, B over C, C over A. The last step is a lead of C.",
        "C's lead over A is minus A's lead over C.",
    ),
)
def circle(sub, draw):
    "`around` is the sum that is zero for every rating."
    ab, bc, ac = leads(sub.student)
    ask(
        sub,
        "around",
        ab + bc - ac,
        {
            "the last step goes from A to C instead of from C to A": ab + bc + ac,
            "this is the mean of the three steps": (ab + bc - ac) / 3,
            "numbers of wins are added and subtracted instead of leads": 0.4
            * (sum(tournament(sub.student)[:2]) - tournament(sub.student)[2] - 500),
            "this is a number of wins; add leads in points": sum(tournament(sub.student)[:2])
            - tournament(sub.student)[2]
            - 500,
            "this assumes that ratings fit": 0.0,
            "the direction of the cycle is reversed": ac - ab - bc,
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Fill a 3 × 3 matrix of wins: row A contains A's wins against A, B and C. Losses are 1,000 minus wins.",
        "`bradley_terry_fit` returns three rewards in nats. Take A's minus C's, times 400, divided by the natural logarithm of ten.",
    ),
)
def fit(sub, draw):
    "`a_over_c_fitted` is the lead in a fit to all three pairs."
    ac = leads(sub.student)[2]
    nats, over_b = fitted_leads(sub.student)
    ask(
        sub,
        "a_over_c_fitted",
        nats * 400 / math.log(10),
        {
            "this is in nats, not in points": nats,
            "C is ahead of A: wins and losses, or the rewards, are exchanged": -nats * 400 / math.log(10),
            "nats are multiplied by 400 only": 400 * nats,
            "the games of A against C are left out": sum(leads(sub.student)[:2]),
            "this is the mean of the sum over B and the lead in the games of A against C": sum(leads(sub.student)) / 2,
            "this is the lead of A over C in their own games": ac,
            "this is the lead of A over B": over_b * 400 / math.log(10),
            "this is the lead of B over C": (nats - over_b) * 400 / math.log(10),
        },
    )


# %% [mutant] nats
# caught by: one_pair
# says: in nats
a_over_b = a_over_b * math.log(10) / 400

# %% [mutant] the natural logarithm times 400
# caught by: one_pair
# says: natural logarithm
a_over_b = 400 * math.log(ab / (1000 - ab))

# %% [mutant] subtracted leads
# caught by: two_steps
# says: subtracted
a_over_c_by_b = lead(ab) - lead(bc)

# %% [mutant] the last step forwards
# caught by: circle
# says: from A to C
around = lead(ab) + lead(bc) + lead(ac)

# %% [mutant] a fit of losses
# caught by: fit
# says: C is ahead
a_over_c_fitted = -a_over_c_fitted

# %% [partial] 3: no fit yet
a_over_c_fitted = None
