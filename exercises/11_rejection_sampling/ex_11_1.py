# ---
# title: Selection from a reward matrix
# kind: numeric
# minutes: 5
# ---

# %% [statement]
# Six prompts with five completions each: `rewards(STUDENT)` is your reward matrix. Answer with numbers, to three decimals.
#
# 1. `mean_each`: the mean reward of the kept completions if you keep the best one for each prompt.
# 2. `mean_overall`: the mean reward if you keep the best six of all thirty.
# 3. `forgotten`: the number of prompts for which the second way keeps nothing.
# 4. `mean_random`: the *expected* mean reward if six of the thirty are kept at random.

# %% [given]
import torch
from minirlhf_course.ledger.registry import Draw


def rewards(student):
    """(6, 5): this student's reward matrix. Prompts differ in difficulty, and no two rewards are equal."""
    for attempt in range(1000):
        draw = Draw("11.1", student, attempt)
        easy = draw.permutation(6).double()[:, None] * 0.25
        found = ((easy + draw.normal(6, 5, scale=0.6)) * 100).round() / 100
        best = found.flatten().argsort(descending=True)[:6]
        counts = torch.bincount(best // 5, minlength=6)
        mistaken = {int((counts > 0).sum()), int((counts > 1).sum())}
        mistaken |= {6 - len(wrong.unique()) for wrong in (best % 5, best // 6)}
        if len(found.unique()) == 30 and int((counts == 0).sum()) not in mistaken:
            break  # else some mistakes would give the right answer
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
    hints=("One row is one prompt.", "Average the largest numbers of the six rows."),
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
            "this is the mean of the best of each column, which compares different prompts": sum(columns) / 5,
            "this is the mean of all rewards": sum(sum(row) for row in rows) / 30,
            "this is the mean of the worst of each row": sum(min(row) for row in rows) / 6,
        },
    )


@test(
    points=1,
    rounds=1,
    hints=("Ignore which prompt a completion belongs to.", "Sort all thirty rewards and average the six largest."),
)
def all_prompts(sub, draw):
    "`mean_overall` is the mean of the six best."
    best = ranked(sub.student)
    want = sum(value for value, _ in best[:6]) / 6
    slips = {
        "only five were kept, the number of columns": sum(value for value, _ in best[:5]) / 5,
        "the six worst were kept: an ascending sort puts them first": sum(value for value, _ in best[-6:]) / 6,
        "only the single best was kept": best[0][0],
        "the best for each prompt was kept": sum(max(row) for row in rewards(sub.student).tolist()) / 6,
    }
    middle = sum(value for value, _ in best) / 30
    above = [value for value, _ in best if value > middle]
    good = sum(above) / len(above)
    if all(abs(good - value) > 2e-3 for value in (want, *slips.values())):
        slips["all rewards above the mean were kept"] = good
    expect(sub.number("mean_overall"), want, what="`mean_overall`", tolerance=6e-4, reveal=False, mistakes=slips)


@test(
    points=1,
    rounds=1,
    hints=(
        "To which prompts do the six best completions belong?",
        "Index i of the flattened matrix belongs to row i // 5.",
    ),
)
def lost_prompts(sub, draw):
    "`forgotten` counts the prompts without a kept completion."
    kept = {i for _, i in ranked(sub.student)[:6]}
    places = rewards(sub.student).flatten().argsort(descending=True)[:6].tolist()
    sixes, columns = {place // 6 for place in places}, {place % 5 for place in places}
    expect(
        sub.number("forgotten"),
        float(6 - len(kept)),
        what="`forgotten`",
        reveal=False,
        mistakes={
            "this counts the prompts that are left": float(len(kept)),
            "index i was assigned to row i // 6, but a row has five entries": float(6 - len(sixes)),
            "index i was assigned to row i % 5, which is its column": float(6 - len(columns)),
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "You need no simulation.",
        "Each of the thirty is kept with the same probability, so the expectation is the mean of all.",
    ),
)
def control(sub, draw):
    "`mean_random` is the expected mean reward of the control."
    values = [value for value, _ in ranked(sub.student)]
    middle = values[15]  # of an even number PyTorch takes the lower of the two
    expect(
        sub.number("mean_random"),
        sum(values) / 30,
        what="`mean_random`",
        tolerance=6e-4,
        reveal=False,
        mistakes={"this is the median, not the mean": middle} if abs(middle - sum(values) / 30) > 2e-3 else {},
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
# says: only five were kept
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
