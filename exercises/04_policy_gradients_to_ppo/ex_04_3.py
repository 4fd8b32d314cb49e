# ---
# title: Six cases of one clip
# kind: numeric
# minutes: 15
# ---

# %% [statement]
# `cases(STUDENT)` is a table drawn up for you; put your student id into `STUDENT` at the top of the notebook. Six samples, each with its ratio $\rho$ and its advantage $A$, and one $\epsilon$. For
# PPO's objective $\min\big(\rho A,\ \mathrm{clip}(\rho, 1-\epsilon, 1+\epsilon)\,A\big)$, write down, in the order of the table,
#
# 1. `objective`: its value, six numbers;
# 2. `slope`: its derivative in $\rho$, six numbers;
# 3. `frozen`: how many of the six samples do not move the policy any more.
#
# By hand, or at least without the library's `ppo_clip`. Right to 0.1 %.

# %% [given]
from minirlhf.ledger.registry import Draw


def cases(student):
    """This student's table."""
    draw = Draw("04.3", student)
    epsilon = [0.1, 0.2, 0.3][draw.integer(0, 2)]
    rows = []
    for sign in (1, -1):
        for low, high in (
            (1 - 1.8 * epsilon, 1 - 1.2 * epsilon),
            (1 - 0.6 * epsilon, 1 + 0.6 * epsilon),
            (1 + 1.2 * epsilon, 1 + 1.8 * epsilon),
        ):
            rho = round(float(draw.uniform(low=low, high=high)), 2)
            rows.append((rho, round(sign * float(draw.uniform(low=0.5, high=3.0)), 1)))
    return {"epsilon": epsilon, "cases": [rows[i] for i in draw.permutation(6).tolist()]}


# %% [stub]
print(cases(STUDENT))

objective = None
slope = None
frozen = None

# %% [solution]
table = cases(STUDENT)
objective, slope = [], []
for rho, A in table["cases"]:
    clipped = min(max(rho, 1 - table["epsilon"]), 1 + table["epsilon"])
    objective.append(min(rho * A, clipped * A))
    slope.append(A if rho * A <= clipped * A else 0.0)
frozen = slope.count(0.0)

# %% [tests]
import torch

from minirlhf.classroom.testing import expect, fail, test


def ask(sub, name, want, mistakes):
    """Six numbers, right to a thousandth, without saying what is right."""
    got = sub.value(name)
    got = got.tolist() if isinstance(got, torch.Tensor) else got
    if not isinstance(got, list | tuple) or len(got) != 6:
        fail(f"`{name}` is no list of six numbers")
    expect(
        torch.tensor([float(x) for x in got], dtype=torch.float64),
        torch.tensor(want, dtype=torch.float64),
        what=f"`{name}`",
        tolerance=0.001,
        reveal=False,
        mistakes={k: torch.tensor(v, dtype=torch.float64) for k, v in mistakes.items()},
    )


def worked(student):
    """Value, slope, and the same of three well-known slips, case by case and without a minimum or a clip."""
    table = cases(student)
    e = table["epsilon"]
    out = {"value": [], "slope": [], "clip": [], "clip slope": [], "max": [], "max slope": [], "free": [], "all": []}
    for rho, A in table["cases"]:
        edge = 1 - e if rho < 1 - e else 1 + e if rho > 1 + e else rho
        outside = edge != rho
        gone_too_far = (A > 0 and rho > 1 + e) or (A < 0 and rho < 1 - e)
        out["value"].append(edge * A if gone_too_far else rho * A)
        out["slope"].append(0.0 if gone_too_far else A)
        out["clip"].append(edge * A)
        out["clip slope"].append(0.0 if outside else A)
        out["max"].append(edge * A if outside and not gone_too_far else rho * A)
        out["max slope"].append(0.0 if outside and not gone_too_far else A)
        out["free"].append(rho * A)
        out["all"].append(A)
    return out


@test(
    points=2,
    rounds=1,
    hints=(
        "For each case compute both candidates, ρA and clip(ρ)A, and take the smaller. With A < 0 the smaller one has the larger ratio.",
        "Only two of the six come from the clip: too far up with A > 0, too far down with A < 0.",
    ),
)
def values(sub, draw):
    "`objective` is PPO's, in all six cases."
    w = worked(sub.student)
    ask(
        sub,
        "objective",
        w["value"],
        {
            "the ratio is clipped in all cases, without a minimum": w["clip"],
            "the maximum is taken": w["max"],
            "nothing is clipped": w["free"],
        },
    )


@test(
    points=2,
    rounds=1,
    hints=(
        "Where the clipped candidate is the smaller one, ρ does not occur in the objective at all.",
        "Where ρA is the smaller one, its derivative in ρ is A, also outside the interval.",
    ),
)
def slopes(sub, draw):
    "`slope` is the derivative of the objective in ρ."
    w = worked(sub.student)
    ask(
        sub,
        "slope",
        w["slope"],
        {
            "every ratio outside the interval loses its gradient": w["clip slope"],
            "the maximum is taken": w["max slope"],
            "nothing is clipped": w["all"],
        },
    )


@test(
    points=1,
    rounds=1,
    hints=("Count the zeros among the slopes.", "The table holds each of the six cases once."),
)
def stopped(sub, draw):
    "`frozen` counts the samples without gradient."
    expect(
        sub.number("frozen"),
        2.0,
        what="`frozen`",
        reveal=False,
        mistakes={"all ratios outside the interval are counted": 4.0},
    )


# %% [mutant] clipped without a minimum
# caught by: values
# says: without a minimum
objective = [min(max(rho, 1 - table["epsilon"]), 1 + table["epsilon"]) * A for rho, A in table["cases"]]

# %% [mutant] the maximum
# caught by: values
# says: the maximum
objective = [max(rho * A, min(max(rho, 1 - table["epsilon"]), 1 + table["epsilon"]) * A) for rho, A in table["cases"]]

# %% [mutant] no gradient anywhere outside
# caught by: slopes
# says: loses its gradient
slope = [A if 1 - table["epsilon"] <= rho <= 1 + table["epsilon"] else 0.0 for rho, A in table["cases"]]

# %% [mutant] four are frozen
# caught by: stopped
# says: are counted
frozen = 4

# %% [partial] 2: only the values
slope = None
frozen = None

# %% [partial] 4: values and slopes, no count
frozen = None
