# ---
# title: When to stop, and how exactly
# kind: numeric
# minutes: 30
# ---

# %% [statement]
# A team has optimised a proxy by best-of-n and paid annotators to grade the completions at nine distances. `run(STUDENT)` has one
# row per distance: $[d, \text{gold}]$ with $d = \sqrt{\mathrm{KL}}$ and the KL in nats. The first row is the reference policy. (The table is yours; put your student id
# into `STUDENT` at the top of the notebook.) The team measured nothing beyond the last row, and the fitted curve still rises there. Assume the chapter's law for best-of-n. Fit its
# $\alpha$ and $\beta$ by least squares to the *gain* in gold reward over the first row.
#
# The chapter says where the fitted curve is highest. To decide when to stop you need more:
#
# 1. `alpha` and `beta`, the fit;
# 2. `low_kl` and `high_kl`: the curve is flat near its peak. In which interval of KL, in **nats**, does it predict at least 95 % of the largest gain?
# 3. `worth_it`: every nat of KL also has a cost (worse style, longer completions, more compute). At a cost of `price(STUDENT)` gold reward per nat, how many **nats** are best?
#    Maximise the gain less the cost per nat times the KL.
#
# The tolerance is 1 %. Then look at your answer to 2: how exactly must you know $\alpha$ and $\beta$ to stop in time?

# %% [given]
import torch
from minirlhf_course.ledger.registry import Draw

# Each: the last distance, a cost per nat, and the gold reward at nine distances in equal steps from 0.
RUNS = [
    "1.23 0.08 0.5677 0.6545 0.7947 0.8708 0.9556 1.0541 1.0660 1.1211 1.1465",
    "1.51 0.08 0.6568 0.7888 0.9749 1.0960 1.2253 1.3065 1.3670 1.4475 1.4822",
    "1.58 0.05 0.4500 0.6084 0.7962 0.9641 1.0904 1.2141 1.3158 1.3620 1.4424",
    "1.09 0.06 0.4498 0.5017 0.6227 0.6534 0.7578 0.8176 0.8488 0.8848 0.9455",
    "1.80 0.05 0.7411 0.8919 1.0997 1.2641 1.4194 1.5447 1.5959 1.7024 1.7447",
    "1.36 0.04 0.4071 0.5615 0.6343 0.7737 0.8265 0.9211 0.9847 1.0554 1.1101",
    "1.45 0.08 0.5372 0.6834 0.8368 0.9274 1.0135 1.0829 1.1521 1.2262 1.2616",
    "1.27 0.04 0.8553 0.9395 1.0305 1.1714 1.2526 1.2766 1.3490 1.4242 1.4354",
    "1.01 0.05 0.7602 0.8526 0.9282 0.9884 1.0341 1.0828 1.1322 1.1946 1.2343",
    "1.01 0.05 0.3234 0.3986 0.4738 0.5639 0.6208 0.6629 0.7312 0.7536 0.7896",
    "1.50 0.04 0.2996 0.5154 0.6652 0.7760 0.9071 1.0125 1.1042 1.1869 1.2285",
    "1.52 0.05 0.4611 0.5453 0.6953 0.7857 0.8753 0.9934 1.0560 1.1000 1.1369",
    "1.28 0.08 0.4266 0.5152 0.6218 0.6981 0.8284 0.8919 0.9049 0.9885 1.0125",
    "1.00 0.08 0.4742 0.5374 0.6352 0.6850 0.7721 0.8130 0.8653 0.8675 0.8844",
    "1.48 0.05 0.6071 0.8077 0.9005 1.0297 1.1088 1.1988 1.2659 1.3135 1.3606",
    "1.38 0.08 0.4704 0.6070 0.6880 0.7994 0.8586 0.9168 0.9939 1.0267 1.0911",
    "1.39 0.08 0.3335 0.5107 0.6011 0.7009 0.8201 0.8645 0.9702 1.0362 1.0311",
    "1.13 0.04 0.8749 0.9614 1.0636 1.1373 1.2222 1.2751 1.3365 1.3563 1.3857",
    "1.20 0.08 0.6493 0.7578 0.8483 0.9445 1.0356 1.1052 1.1628 1.1814 1.2127",
    "1.22 0.04 0.5700 0.6729 0.8113 0.8725 0.9829 1.0684 1.1069 1.1608 1.1849",
    "1.35 0.06 0.7460 0.8436 1.0039 1.1091 1.2061 1.2900 1.3547 1.4079 1.4308",
    "1.18 0.05 0.6891 0.7458 0.8684 0.9673 1.0450 1.1005 1.1574 1.1523 1.2266",
    "1.26 0.04 0.5417 0.6828 0.8158 0.8910 0.9770 1.0354 1.0969 1.1492 1.2253",
    "1.12 0.06 0.6169 0.7342 0.8522 0.9136 0.9897 1.0197 1.0701 1.1109 1.1550",
]


def _numbers(student):
    return [float(x) for x in RUNS[Draw("20.2", student).integer(0, len(RUNS) - 1)].split()]


def run(student):
    """(9, 2): distance, gold."""
    last, _, *gold = _numbers(student)
    distance = torch.linspace(0, last, 9, dtype=torch.float64)
    return torch.stack([distance, torch.tensor(gold, dtype=torch.float64)], -1)


def price(student):
    """Gold that a nat of KL costs otherwise."""
    return _numbers(student)[1]


# %% [stub]
for row in run(STUDENT).tolist():
    print("d {:.3f}   gold {:.4f}".format(*row))
print("a nat costs", price(STUDENT))

alpha = None
beta = None
low_kl = None
high_kl = None
worth_it = None

# %% [solution]
d, g = run(STUDENT).unbind(-1)
alpha, beta = torch.linalg.lstsq(torch.stack([d, -(d**2)], -1), g - g[0]).solution.tolist()
peak = alpha / (2 * beta)
low_kl, high_kl = (peak * (1 - 0.05**0.5)) ** 2, (peak * (1 + 0.05**0.5)) ** 2
worth_it = (alpha / (2 * (beta + price(STUDENT)))) ** 2

# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, test


def fitted(student, gained=True, intercept=False):
    """α and β from the normal equations, written out; with an intercept, by elimination."""
    rows = run(student)
    d, g = rows[:, 0], rows[:, 1] - (rows[0, 1] if gained else 0.0)
    if intercept:
        columns = torch.stack([d, -(d**2), torch.ones_like(d)], -1)
        return torch.linalg.solve(columns.T @ columns, columns.T @ g)[:2].tolist()
    s2, s3, s4 = (d**2).sum(), (d**3).sum(), (d**4).sum()
    b1, b2 = (d * g).sum(), (d**2 * g).sum()
    determinant = s2 * s4 - s3**2
    return float((b1 * s4 - b2 * s3) / determinant), float((b1 * s3 - b2 * s2) / determinant)


def on_a_grid(student, cost=0.0):
    """KLs up to where the gain is lost again, and the fitted gain less the cost, on a fine grid."""
    alpha, beta = fitted(student)
    kl = torch.linspace(0, (alpha / beta) ** 2, 100_001, dtype=torch.float64)
    return kl, kl.sqrt() * (alpha - beta * kl.sqrt()) - cost * kl


def near(sub, name, want, mistakes):
    """Compare to one per cent, without printing the right value."""
    tolerance = 0.01 * abs(want) / max(1.0, abs(want))
    expect(sub.number(name), want, what=f"`{name}`", tolerance=tolerance, reveal=False, mistakes=mistakes)


@test(
    points=1,
    rounds=1,
    hints=(
        "The law is linear in α and β, so no iterative fit is needed. What are its two columns?",
        "The columns are d and −d², the right side is the gold reward minus the gold reward of the first row, and there is no column of ones. Any least-squares solver works.",
    ),
)
def the_fit(sub, draw):
    "`alpha` and `beta` are the least-squares fit of the gain in gold reward."
    alpha, beta = fitted(sub.student)
    raw, free = fitted(sub.student, gained=False), fitted(sub.student, intercept=True)
    near(
        sub,
        "alpha",
        alpha,
        {
            "the gold reward is fitted, not its gain": raw[0],
            "the curve has an intercept of its own": free[0],
            "the column is d², not d": beta,
            "the gain is divided by the square of the distance, row by row": float(
                ((run(sub.student)[1:, 1] - run(sub.student)[0, 1]) / run(sub.student)[1:, 0] ** 2).mean()
            ),
            "the gain is divided by the distance, row by row, as if the curve were a straight line": float(
                ((run(sub.student)[1:, 1] - run(sub.student)[0, 1]) / run(sub.student)[1:, 0]).mean()
            ),
        },
    )
    near(
        sub,
        "beta",
        beta,
        {
            "this is the coefficient of d²; β has the opposite sign": -beta,
            "the factor 2 of a second derivative is in it": 2 * beta,
            "the gold reward is fitted, not its gain": raw[1],
            "the curve has an intercept of its own": free[1],
        },
    )


@test(
    points=2,
    rounds=1,
    hints=(
        "Write the curve as its peak value less β times the squared distance from the peak. At which distances is 5 % of the peak value lost?",
        "At d = (1 ± √0.05) times the peak's distance the gain is 95 % of the largest. The question asks for nats, which are squares of these distances.",
    ),
)
def how_exactly(sub, draw):
    "`low_kl` and `high_kl` enclose the KLs at which at least 95 % of the largest gain is predicted."
    kl, gain = on_a_grid(sub.student)
    enough = kl[gain >= 0.95 * gain.max()]
    peak = float(kl[gain.argmax()])
    for name, want, sign in (("low_kl", float(enough[0]), -1), ("high_kl", float(enough[-1]), 1)):
        other = float(enough[-1] if sign < 0 else enough[0])
        near(
            sub,
            name,
            want,
            {
                "this is a distance, the root of the KL": want**0.5,
                "low and high are exchanged": other,
                "it is the peak itself": peak,
                "it encloses 90 % of the largest gain": peak * (1 + sign * 0.1**0.5) ** 2,
                "5 % of the peak's KL is taken for 5 % of its gain": peak * (1 + sign * 0.05),
                "5 % of the peak's distance is taken for 5 % of its gain": peak * (1 + sign * 0.05) ** 2,
                "the root of 5 % is subtracted from the KL; it belongs to the distance": peak * (1 + sign * 0.05**0.5),
            },
        )


@test(
    points=2,
    rounds=1,
    hints=(
        "The cost is per nat, and the number of nats is d². Which of the two parameters does the cost change?",
        "The gain less the cost is d(α − βd) − c d² = d(α − (β + c)d): the same law with a larger β.",
    ),
)
def at_a_price(sub, draw):
    "`worth_it` is the KL in nats at which the gain less the cost is largest."
    cost = price(sub.student)
    kl, net = on_a_grid(sub.student, cost)
    alpha, beta = fitted(sub.student)
    want = float(kl[net.argmax()])
    near(
        sub,
        "worth_it",
        want,
        {
            "this is a distance, the root of the KL": want**0.5,
            "the cost is not subtracted": (alpha / (2 * beta)) ** 2,
            "the cost is per unit of distance, not per nat": ((alpha - cost) / (2 * beta)) ** 2,
            "the cost is added, not subtracted": (alpha / (2 * (beta - cost))) ** 2,
            "the cost is counted twice": (alpha / (2 * (beta + 2 * cost))) ** 2,
            "the net gain is given, not where it is": float(net.max()),
            "it is the last row measured": float(run(sub.student)[-1, 0] ** 2),
        },
    )


# %% [mutant] gold itself is fitted
# caught by: the_fit
# says: not its gain
d, g = run(STUDENT).unbind(-1)
alpha, beta = torch.linalg.lstsq(torch.stack([d, -(d**2)], -1), g).solution.tolist()

# %% [mutant] the sign of β is lost
# caught by: the_fit
# says: the coefficient of d²
beta = -beta

# %% [mutant] distances for nats
# caught by: how_exactly
# says: the root of the KL
low_kl, high_kl = low_kl**0.5, high_kl**0.5

# %% [mutant] five percent of the KL
# caught by: how_exactly
# says: 5 % of the peak's KL
low_kl, high_kl = 0.95 * peak**2, 1.05 * peak**2

# %% [mutant] the peak without a price
# caught by: at_a_price
# says: the cost is not subtracted
worth_it = peak**2

# %% [mutant] the price per distance
# caught by: at_a_price
# says: per unit of distance
worth_it = ((alpha - price(STUDENT)) / (2 * beta)) ** 2

# %% [partial] 1: the fit alone
low_kl = None
high_kl = None
worth_it = None

# %% [partial] 3: the fit and the interval
worth_it = None
