# ---
# title: Reading a frontier
# kind: numeric
# minutes: 25
# ---

# %% [statement]
# For one prompt, you are given the best reward that any policy can reach at each KL from the reference model.
# The table `frontier(STUDENT)` has one row per distance, `[KL, reward]`, with the KL in nats. (The numbers are yours alone;
# put your student id into `STUDENT` at the top of the notebook.) The table does not say which $\beta$ belongs to which row.
#
# `run(STUDENT)` is the KL and the reward at the end of a real training run. Like all real runs, it is not on the frontier.
#
# Look at the table or, better, plot it. Then answer with three numbers. The first must be right to 0.5 % (you can read it from the table), the second to 5 %, the third to
# 3 %.
#
# 1. `reward_at_budget`: your KL budget is `budget(STUDENT)` nats. What is the highest reward within it?
# 2. `beta_at_budget`: for which $\beta$ does the best policy of $\mathbb{E}[r] - \beta\,\mathrm{KL}$ have exactly this
#    KL? You need no policy and no reward model: the table is enough. Think of what $\beta$ means on the frontier.
# 3. `kl_wasted`: the run reached its reward with more KL than necessary. How much more?

# %% [given]
import torch
from minirlhf_course.ledger.registry import Draw


def _tilt(student):
    """This student's completions: log-probabilities under the reference, and rewards."""
    draw = Draw("05.3", student)
    log_ref = draw.normal(40, scale=0.5).log_softmax(-1)
    return log_ref, draw.normal(40, scale=float(draw.uniform(low=4.0, high=6.0)))


def frontier(student):
    """(31, 2): the best reward at KL = 0, 0.05, … 1.5 nats."""
    log_ref, reward = _tilt(student)
    rows = []
    for target in torch.arange(31) * 0.05:
        low, high = 0.0, 30.0
        for _ in range(50):  # the policy on the frontier at this KL, by bisection
            middle = (low + high) / 2
            log_p = (log_ref + middle * reward).log_softmax(-1)
            kl = float((log_p.exp() * (log_p - log_ref)).sum())
            low, high = (middle, high) if kl < target else (low, middle)
        rows.append([float(target), float((log_p.exp() * reward).sum())])
    return torch.tensor(rows, dtype=torch.float64)


def budget(student):
    """The KL budget of this student: a row of the table."""
    return 0.05 * Draw("05.3", student, "budget").integer(8, 16)


def run(student):
    """The end of a real run: (KL, reward). It has the KL of one row and the reward of an earlier row.

    Its own reward per nat is never near the frontier's slope at the budget, which would make a wrong answer right by chance.
    """
    table, at = frontier(student), round(budget(student) / 0.05)
    slope = float(table[at + 1, 1] - table[at - 1, 1]) / 0.1
    ends = [(table[end, 0], table[row, 1]) for row in range(6, 15) for end in range(row + 3, 2 * row - 1)]
    apart = [(float(kl), float(reward)) for kl, reward in ends if abs(float(reward / kl) / slope - 1) > 0.2]
    return apart[Draw("05.3", student, "run").integer(0, len(apart) - 1)]


# %% [stub]
for kl, reward in frontier(STUDENT).tolist():
    print(f"KL {kl:.2f}   reward {reward:.4f}")
print(f"budget: {budget(STUDENT):.2f} nats; the run: KL {run(STUDENT)[0]:.3f}, reward {run(STUDENT)[1]:.4f}")

reward_at_budget = None
beta_at_budget = None
kl_wasted = None

# %% [solution]
table = frontier(STUDENT)
row = round(budget(STUDENT) / 0.05)
reward_at_budget = table[row, 1]
beta_at_budget = (table[row + 1, 1] - table[row - 1, 1]) / 0.1
run_kl, run_reward = run(STUDENT)
kl_wasted = run_kl - table[(table[:, 1] - run_reward).abs().argmin(), 0]

# %% [tests]
import functools

import torch
from minirlhf_course.classroom.testing import expect, test

frontier = functools.cache(frontier)  # each test asks several times for the same student's


def problem(student):
    """The frontier from the policies themselves: KL, reward and β on a fine grid of β."""
    log_ref, reward = _tilt(student)
    beta = torch.logspace(2, -1.5, 8000, dtype=torch.float64)[:, None]
    log_p = (log_ref + reward / beta).log_softmax(-1)
    return (log_p.exp() * (log_p - log_ref)).sum(-1), (log_p.exp() * reward).sum(-1), beta[:, 0]


def within(want, percent=3.0):
    """The tolerance of `expect` that means this many percent of `want`."""
    return percent / 100 * abs(want) / max(1.0, abs(want))


@test(
    points=1,
    rounds=1,
    hints=(
        "The table already holds the best reward at each KL: find your budget's row.",
        "`budget(STUDENT)` is a multiple of 0.05, and the rows are 0.05 apart, beginning at 0.",
    ),
)
def budget_row(sub, draw):
    "`reward_at_budget` is the frontier's reward at your KL budget."
    kl, reward, _ = problem(sub.student)
    want = float(reward[(kl - budget(sub.student)).abs().argmin()])
    wrong = frontier(sub.student)
    expect(
        sub.number("reward_at_budget"),
        want,
        what="`reward_at_budget`",
        tolerance=within(want, 0.5),
        reveal=False,
        mistakes={
            "the last row is read: all KL, not your budget": float(wrong[-1, 1]),
            "rows are taken to be 0.1 nats apart": float(wrong[int(budget(sub.student) * 10), 1]),
        },
    )


@test(
    points=2,
    rounds=1,
    hints=(
        "β is the weight of one nat. At the optimum, a small step changes nothing: the reward that a little more KL adds "
        "equals the penalty for this KL.",
        "So β is the slope of the curve at your budget. How much does the reward grow from the row before to the row after, "
        "and over how many nats?",
    ),
)
def price(sub, draw):
    "`beta_at_budget` is the β whose best policy has your KL budget."
    kl, reward, beta = problem(sub.student)
    at = int((kl - budget(sub.student)).abs().argmin())
    want = float(beta[at])
    start = float(frontier(sub.student)[0, 1])
    expect(
        sub.number("beta_at_budget"),
        want,
        what="`beta_at_budget`",
        tolerance=within(want, 5.0),  # the slope to either neighbour, or between them
        reveal=False,
        mistakes={
            "the slope is taken at the reference, not at your budget": float(
                frontier(sub.student)[1, 1] - frontier(sub.student)[0, 1]
            )
            / 0.05,
            "the run's reward is divided by the run's KL": run(sub.student)[1] / run(sub.student)[0],
            "the slope is inverted: KL per reward": 1 / want,
            "the whole gain is divided by the whole KL: an average slope, not the slope at your budget": (
                float(reward[at]) - start
            )
            / float(kl[at]),
            "reward is divided by KL": float(reward[at] / kl[at]),
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Draw a horizontal line through the run. Where does the frontier reach that reward?",
        "Find the row whose reward equals the reward of the run. Subtract its KL from the KL of the run. The question asks for nats.",
    ),
)
def waste(sub, draw):
    "`kl_wasted` is the KL of the run minus the KL that the same reward needs."
    kl, reward, _ = problem(sub.student)
    run_kl, run_reward = run(sub.student)
    needed = float(kl[(reward - run_reward).abs().argmin()])
    missed = float(reward[(kl - run_kl).abs().argmin()]) - run_reward
    want = run_kl - needed
    expect(
        sub.number("kl_wasted"),
        want,
        what="`kl_wasted`",
        tolerance=within(want),
        reveal=False,
        mistakes={
            "the gap is measured upwards: reward missed at the same KL": missed,
            "the whole KL of the run is counted": run_kl,
            "it is the KL that was needed, not the KL that was wasted": needed,
        },
    )


# %% [shared]
# 0.05: how far the rows of the table are apart, which it shows


# %% [mutant] the last row is read
# caught by: budget_row
# says: the last row
reward_at_budget = table[-1, 1]

# %% [mutant] the average price instead of the price of the next nat
# caught by: price
# says: an average slope
beta_at_budget = (table[row, 1] - table[0, 1]) / table[row, 0]

# %% [mutant] the slope upside down
# caught by: price
# says: inverted
beta_at_budget = 0.1 / (table[row + 1, 1] - table[row - 1, 1])

# %% [mutant] the vertical gap instead of the horizontal one
# caught by: waste
# says: measured upwards
kl_wasted = table[(table[:, 0] - run_kl).abs().argmin(), 1] - run_reward

# %% [mutant] the KL that was needed
# caught by: waste
# says: was needed
kl_wasted = run_kl - kl_wasted

# %% [partial] 2: both readings are right, the price is not seen
beta_at_budget = None
