# ---
# title: What was kept
# kind: numeric
# minutes: 5
# ---

# %% [statement]
# Six prompts, five replies to each: `rewards(STUDENT)` is your reward matrix. Answer with numbers, to three digits behind the point.
#
# 1. `mean_each`: the mean reward of what is kept if one keeps the best reply to each prompt.
# 2. `mean_overall`: the same if one keeps the best six of all.
# 3. `forgotten`: how many of the six prompts the second way forgets.
# 4. `mean_random`: what one would *expect* to see if six of the thirty were kept at random.

# %% [given]
import torch

from minirlhf_course.ledger.registry import Draw


def rewards(student):
    """(6, 5): this student's reward matrix; prompts differ in how easy they are, and no two rewards are equal."""
    for attempt in range(1000):
        draw = Draw("11.1", student, attempt)
        easy = draw.permutation(6).double()[:, None] * 0.25
        found = ((easy + draw.normal(6, 5, scale=0.6)) * 100).round() / 100
        best = found.flatten().argsort(descending=True)[:6]
        counts = torch.bincount(best // 5, minlength=6)
        mistaken = {int((counts > 0).sum()), int((counts > 1).sum())}
        mistaken |= {6 - len(wrong.unique()) for wrong in (best % 5, best // 6)}
        if len(found.unique()) == 30 and int((counts == 0).sum()) not in mistaken:
            break  # else some mistakes would be right by chance
    return found


# %% [stub]
print(rewards(STUDENT))

mean_each = None
mean_overall = None
forgotten = None
mean_random = None

# %% [solution]
R = rewards(STUDENT)
mean_each = R.amax(1).mean()
places = R.flatten().argsort(descending=True, stable=True)[:6]
mean_overall = R.flatten()[places].mean()
forgotten = 6 - len((places // 5).unique())
mean_random = R.mean()

# %% [tests]
from minirlhf_course.classroom.testing import expect, test


def ranked(student):
    """(reward, prompt) of all thirty, best first."""
    found = []
    for i, row in enumerate(rewards(student).tolist()):
        found += [(value, i) for value in row]
    return sorted(found, reverse=True)


@test(
    points=1,
    rounds=1,
    hints=("Go through the matrix row by row.", "Average the largest number of each of the six rows."),
)
def each_prompt(sub, draw):
    "`mean_each` is the mean of the best of each row."
    rows = rewards(sub.student).tolist()
    want = sum(max(row) for row in rows) / 6
    columns = [max(row[j] for row in rows) for j in range(5)]
    expect(
        sub.number("mean_each"),
        want,
        what="`mean_each`",
        tolerance=6e-4,
        reveal=False,
        mistakes={
            "the best of each column was taken, which compares different prompts": sum(columns) / 5,
            "all rewards were averaged": sum(sum(row) for row in rows) / 30,
            "the worst of each row was taken": sum(min(row) for row in rows) / 6,
        },
    )


@test(
    points=1,
    rounds=1,
    hints=("Forget which prompt a reply belongs to.", "Sort all thirty and average the six largest."),
)
def all_prompts(sub, draw):
    "`mean_overall` is the mean of the six best."
    best = ranked(sub.student)
    want = sum(value for value, _ in best[:6]) / 6
    slips = {
        "five were kept, as many as there are columns": sum(value for value, _ in best[:5]) / 5,
        "the six worst were kept: an ascending sort begins with them": sum(value for value, _ in best[-6:]) / 6,
        "only the best was kept": best[0][0],
        "the best of each prompt were kept": sum(max(row) for row in rewards(sub.student).tolist()) / 6,
    }
    middle = sum(value for value, _ in best) / 30
    above = [value for value, _ in best if value > middle]
    good = sum(above) / len(above)
    if all(abs(good - value) > 2e-3 for value in (want, *slips.values())):
        slips["all were kept that are above the mean"] = good
    expect(sub.number("mean_overall"), want, what="`mean_overall`", tolerance=6e-4, reveal=False, mistakes=slips)


@test(
    points=1,
    rounds=1,
    hints=(
        "To which prompts do the six best replies belong?",
        "Place i of the flattened matrix belongs to row i // 5.",
    ),
)
def lost_prompts(sub, draw):
    "`forgotten` counts the prompts without a kept reply."
    kept = {i for _, i in ranked(sub.student)[:6]}
    places = rewards(sub.student).flatten().argsort(descending=True)[:6].tolist()
    sixes, columns = {place // 6 for place in places}, {place % 5 for place in places}
    expect(
        sub.number("forgotten"),
        float(6 - len(kept)),
        what="`forgotten`",
        reveal=False,
        mistakes={
            "the prompts that are left were counted": float(len(kept)),
            "place i was given to row i // 6; a row has five places": float(6 - len(sixes)),
            "place i was given to row i % 5, which is its column": float(6 - len(columns)),
        },
    )


@test(
    points=1,
    rounds=1,
    hints=("No drawing is needed.", "Each of the thirty is kept equally often, so expect the mean of all."),
)
def control(sub, draw):
    "`mean_random` is what the control is expected to keep."
    values = [value for value, _ in ranked(sub.student)]
    middle = values[15]  # of an even number PyTorch takes the lower of the two
    expect(
        sub.number("mean_random"),
        sum(values) / 30,
        what="`mean_random`",
        tolerance=6e-4,
        reveal=False,
        mistakes={"the median is taken for the mean": middle} if abs(middle - sum(values) / 30) > 2e-3 else {},
    )


# %% [mutant] the best of each column
# caught by: each_prompt
# says: each column
R = rewards(STUDENT)
mean_each = R.amax(0).mean()


# %% [mutant] an ascending sort
# caught by: all_prompts
# says: six worst
R = rewards(STUDENT)
mean_overall = R.flatten().sort().values[:6].mean()


# %% [mutant] as many as columns
# caught by: all_prompts
# says: five were kept
R = rewards(STUDENT)
mean_overall = R.flatten().sort(descending=True).values[:5].mean()


# %% [mutant] the column of a place instead of its row
# caught by: lost_prompts
R = rewards(STUDENT)
places = R.flatten().argsort(descending=True)[:6]
forgotten = 6 - len((places % 5).unique())


# %% [mutant] the control keeps the best of a random row
# caught by: control
R = rewards(STUDENT)
mean_random = R.amax(1).mean()


# %% [partial] 2: each prompt and the control
R = rewards(STUDENT)
mean_each = R.amax(1).mean()
mean_overall = 0.0
forgotten = 99
mean_random = R.mean()
