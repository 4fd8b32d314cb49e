# ---
# title: Four logs without settings
# kind: numeric
# minutes: 15
# ---

# %% [statement]
# Four students trained the poem's policy with "a KL penalty", each with β = ½ and with β = 1. Reward, optimiser, 200 steps and linear decay were the same. Only `logs(STUDENT)` is left. For each run `P`, `Q`, `R`, `S`
# and each β it has four rows, after 25, 50, 100 and 200 steps: the KL *as the run logged it*, from its reference at that step, and the KL *from the initial model*. The order of the runs depends on your student id (put it
# into `STUDENT` at the top of the notebook). The exact optimum of reward minus β KL is 1.10 nats from the initial model for β = ½ and .30 for β = 1. A policy that writes only the best completion is 6.2 nats away, the farthest point that reward alone leads to.
#
# 1. `charged`, `lost`, `followed`, `wrong_estimate`: the letters, such as `"P"`, of the run with $k_1$ in the reward, of the run with $k_1$ in the loss, of the run whose reference is a moving average of the policy, and of the run
#    with $k_3$ in the reward.
# 2. `sold`: take the run with the moving reference, at β = ½ and 3 % per step. Suppose that it was always at its optimum and that its policy is a table over completions. Compute from the chapter's formula the β of
#    a run with the initial reference that has the same policy after 200 steps. The tolerance is 1 %. This number is the same for all students.

# %% [given]
from minirlhf_course.ledger.registry import Draw

# runs of four kinds, in an order that means nothing; [[logged, from the first model] after 25, 50, 100, 200 steps] for β = ½ and for β = 1
_RUNS = [
    [[[0.69, 1.55], [0.47, 2.7], [0.16, 4.78], [0.0, 5.8]], [[0.24, 0.63], [0.2, 1.21], [0.13, 2.67], [0.02, 4.52]]],
    [[[1.26, 1.26], [1.11, 1.11], [1.1, 1.1], [1.1, 1.1]], [[0.32, 0.32], [0.29, 0.29], [0.3, 0.3], [0.3, 0.3]]],
    [[[2.81, 2.81], [5.31, 5.31], [5.99, 5.99], [6.08, 6.08]], [[2.82, 2.82], [5.18, 5.18], [5.94, 5.94], [6.05, 6.05]]],
    [[[2.33, 2.33], [3.9, 3.9], [3.97, 3.97], [4.03, 4.03]], [[2.27, 2.27], [3.43, 3.43], [3.42, 3.42], [3.38, 3.38]]],
    [[[2.39, 2.39], [3.91, 3.91], [5.95, 5.95], [6.05, 6.05]], [[2.15, 2.15], [4.61, 4.61], [5.91, 5.91], [6.01, 6.01]]],
    [[[0.76, 1.77], [0.45, 3.04], [0.14, 5.04], [0.0, 5.85]], [[0.25, 0.69], [0.22, 1.34], [0.14, 2.89], [0.02, 4.69]]],
    [[[2.83, 2.83], [4.0, 4.0], [3.73, 3.73], [3.71, 3.71]], [[2.74, 2.74], [3.67, 3.67], [3.48, 3.48], [3.47, 3.47]]],
    [[[1.14, 1.14], [1.11, 1.11], [1.1, 1.1], [1.1, 1.1]], [[0.33, 0.33], [0.3, 0.3], [0.29, 0.29], [0.3, 0.3]]],
]  # fmt: skip


_TASKS = [
    (3, 5, 2, 1), (3, 2, 1, 0), (0, 6, 7, 4), (5, 2, 1, 6), (1, 3, 0, 4), (5, 6, 4, 7), (2, 5, 7, 6), (7, 4, 0, 6),
    (1, 0, 3, 2), (3, 4, 0, 1), (2, 1, 0, 3), (6, 7, 5, 4), (7, 6, 0, 4), (7, 2, 0, 6), (0, 3, 1, 2), (4, 6, 7, 0),
]  # fmt: skip


def _chosen(student):
    """Which of the runs stand at P, Q, R and S: one of each kind."""
    return dict(zip("PQRS", _TASKS[Draw("09.4", student).integer(0, len(_TASKS) - 1)]))


def logs(student):
    """{letter: {β: [[logged KL, KL from the first model] after 25, 50, 100 and 200 steps]}}."""
    return {letter: dict(zip((0.5, 1.0), _RUNS[run])) for letter, run in _chosen(student).items()}


# %% [stub]
for letter, betas in logs(STUDENT).items():
    for beta, rows in betas.items():
        print(f"{letter}  β = {beta:.1f}  logged / from the first model:", *(f"{a:.2f}/{b:.2f}" for a, b in rows))

charged = None
lost = None
followed = None
wrong_estimate = None
sold = None

# %% [solution]
for letter, betas in logs(STUDENT).items():
    rows, double = betas[0.5], betas[1.0]
    if rows[-1][0] != rows[-1][1]:
        followed = letter
    elif abs(rows[-1][1] - 1.1) < 0.05:
        charged = letter
    elif rows[-1][1] > 5.5:
        lost = letter
    else:
        wrong_estimate = letter
sold = 0.5 / (1 + 200 * 0.03)

# %% [tests]
from minirlhf_course.classroom.testing import expect, fail, test

TRUTH = {
    1: "charged",
    7: "charged",
    2: "lost",
    4: "lost",
    0: "followed",
    5: "followed",
    3: "wrong_estimate",
    6: "wrong_estimate",
}


def ask(sub, name, why):
    """Is this the letter of the run?"""
    got = sub.value(name)
    got = got.strip().upper() if isinstance(got, str) else got
    truth = {TRUTH[run]: letter for letter, run in _chosen(sub.student).items()}
    if got not in list("PQRS"):
        fail(f"`{name}` is {got!r}; expected one of the letters P, Q, R and S")
    if got != truth[name]:
        given = next(kind for kind, letter in truth.items() if letter == got)
        fail(f"`{name}` is not {got!r}: {why.get(given, 'look again at both columns and at both values of β')}")


@test(
    points=1,
    rounds=1,
    hints=(
        "One run ends at the exact optimum, with both values of β.",
        "The statement gives this optimum for each β. Both columns agree there.",
    ),
)
def right_place(sub, draw):
    "`charged` is the run with k₁ in the reward."
    ask(sub, "charged", {"followed": "its logged KL is small, but look at the other column"})


@test(
    points=1,
    rounds=1,
    hints=(
        "When do the two columns differ?",
        "The logged KL is from the current reference. It falls to 0 while the policy moves away from the initial model, so the reference moves with it.",
    ),
)
def moving(sub, draw):
    "`followed` is the run with the moving reference."
    ask(
        sub,
        "followed",
        dict.fromkeys(("lost", "wrong_estimate", "charged"), "its two columns agree, so its reference is fixed"),
    )


@test(
    points=2,
    rounds=1,
    hints=(
        "Two runs remain. If a KL term has no gradient, what happens if you double its β, and where does the run end?",
        "k₁ in the loss has a gradient of zero on average. With either β the run ends with almost only the best completion, nearly as far away as reward can lead. k₃ in the reward has a gradient, but far away not one towards the reference.",
    ),
)
def estimates(sub, draw):
    "`lost` is the run with k₁ in the loss, `wrong_estimate` the one with k₃ in the reward."
    ask(sub, "lost", {"wrong_estimate": "it stays at about four nats, so its KL term has a gradient"})
    ask(sub, "wrong_estimate", {"lost": "it ends where reward alone would lead, for every β"})


@test(
    points=1,
    rounds=1,
    hints=(
        "After n refreshes, which β gives the same policy with the *initial* reference?",
        "β/(1 + nτ), with a refresh at every one of the 200 steps.",
    ),
)
def price(sub, draw):
    "`sold` is the effective coefficient β."
    log_tilt, beta, rate = 0.0, 0.5, 0.03  # what stands in front of the reward in log π_ref, refresh by refresh
    for _ in range(200):
        log_tilt += rate * (1 / beta)
    want = 1 / (log_tilt + 1 / beta)
    got = sub.number("sold")
    known = {
        "the tilt by r/β of the last optimum is missing": beta / (200 * rate),
        "the reference is copied, not averaged: the rate is missing": beta / 201,
        "β is multiplied by 1 + nτ instead of divided": beta * (1 + 200 * rate),
        "β falls like the weight of the initial reference, (1 − τ)^n": beta * (1 - rate) ** 200,
        "the tilts are multiplied with one another, and each refresh adds one": beta / (1 + rate) ** 200,
        "3 % is taken for 3": beta / (1 + 200 * 3),
        "this is the decrease of β, not the remaining β": beta - want,
        "this is the factor by which β fell": 1 + 200 * rate,
    }
    expect(
        got,
        want,
        what="`sold`",
        tolerance=0.01 * want,
        reveal=False,
        mistakes={name: x for name, x in known.items() if abs(float(got) - x) <= 0.01 * x},  # some are near 0
    )


# %% [mutant] the small log is believed
# caught by: right_place
# says: look at the other column
charged, followed = followed, charged

# %% [mutant] the two estimates exchanged
# caught by: estimates
# says: stays at about four nats
lost, wrong_estimate = wrong_estimate, lost

# %% [mutant] hard copies
# caught by: price
# says: the rate is missing
sold = 0.5 / 201

# %% [mutant] the moving reference is sought among those that stand still
# caught by: moving
# says: is fixed
followed = lost

# %% [partial] 4: the letters, not the price
sold = None
