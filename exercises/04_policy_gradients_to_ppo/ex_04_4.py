# ---
# title: Diagnose five runs
# kind: choice
# minutes: 15
# ---

# %% [statement]
# Here are five runs of PPO on CartPole, with reward 1 per step, $\gamma = .99$, rollouts of 16 × 128 steps. One of them is healthy; each of the others has one of the bugs of this chapter. For each run you get from its log `score`
# (mean return of 100 episodes after training; the maximum is 500), `kl` (mean KL per rollout between the behaviour policy and the policy after the updates, nats), and `still` (the trained critic's value of a pole that stands still in the
# middle). Each student has a different order: put your student id into `STUDENT` at the top of the notebook, and read `logs(STUDENT)`.
#
# Which diagnosis fits each run? Write one letter each into `run1`, `run2`, `run3`, `run4` and `run5`:
#
# * `a` healthy
# * `b` the bootstrap is forgotten at truncations
# * `c` the done mask is forgotten: advantages run on into the next episode
# * `d` the clip has a maximum instead of the minimum
# * `e` the value clip of .2 was copied from a paper whose values are near 1
#
# The scores alone do not distinguish all of them. What is the value of a pole that never falls? How much can a critic change in 49 rollouts of 64 updates if it gains nothing beyond .2 per rollout? (The clip removes the gain, not the momentum: the critic moves about three times as far.)

# %% [given]
from minirlhf_course.ledger.registry import Draw

# (score, kl, still) of runs of this chapter's study, in random order, and the five that form each task.
RUNS = [
    (12.4, 1.6033, 9.7),
    (480.5, 0.0036, 48.5),
    (73.9, 1.2025, 42.0),
    (11.2, 0.0022, 99.8),
    (12.1, 0.0031, 99.8),
    (17.1, 0.0042, 99.8),
    (487.2, 0.0036, 55.0),
    (500.0, 0.0037, 99.7),
    (435.8, 0.0036, 49.1),
    (500.0, 0.004, 99.7),
    (481.4, 0.0036, 31.2),
    (12.5, 0.004, 99.8),
    (238.2, 0.0029, 32.8),
    (496.8, 0.0041, 50.5),
    (500.0, 0.0037, 99.7),
    (497.5, 0.0044, 99.4),
    (381.9, 0.0037, 31.1),
    (488.0, 0.0038, 31.5),
    (500.0, 0.0044, 99.4),
    (9.7, 2.0896, 68.6),
    (10.9, 0.0042, 99.8),
    (319.0, 0.0031, 33.3),
    (500.0, 0.0038, 48.3),
    (65.6, 0.6652, 38.7),
    (98.9, 1.2883, 53.7),
]
TASKS = [
    (9, 21, 20, 13, 19),
    (6, 18, 21, 11, 2),
    (7, 12, 23, 5, 13),
    (20, 14, 12, 6, 24),
    (18, 8, 12, 5, 23),
    (15, 11, 2, 17, 1),
    (12, 8, 7, 3, 23),
    (9, 12, 11, 2, 6),
    (20, 16, 23, 1, 7),
    (7, 21, 4, 13, 2),
    (20, 18, 10, 23, 6),
    (11, 18, 10, 13, 19),
    (4, 15, 21, 1, 24),
    (20, 22, 24, 15, 12),
    (0, 10, 7, 11, 1),
    (14, 10, 11, 2, 13),
    (21, 23, 13, 11, 7),
    (3, 15, 12, 6, 23),
    (0, 4, 10, 15, 8),
    (14, 5, 13, 19, 16),
    (1, 15, 10, 0, 5),
    (21, 24, 3, 22, 9),
    (22, 23, 21, 9, 4),
    (3, 10, 0, 1, 15),
    (6, 9, 17, 24, 5),
    (0, 17, 6, 4, 14),
    (18, 12, 3, 23, 6),
    (3, 23, 15, 10, 8),
    (15, 20, 19, 21, 8),
    (9, 1, 19, 10, 20),
    (14, 4, 2, 12, 6),
    (22, 23, 14, 5, 21),
    (8, 12, 24, 11, 18),
    (1, 11, 18, 17, 19),
    (7, 6, 12, 20, 23),
    (7, 16, 5, 2, 6),
    (14, 19, 21, 1, 11),
    (3, 6, 10, 18, 0),
    (7, 0, 17, 8, 3),
    (21, 1, 4, 15, 23),
]


def logs(student):
    """Return this student's five logs."""
    five = TASKS[Draw("04.4", student).integer(0, len(TASKS) - 1)]
    return {f"run{k}": dict(zip(("score", "kl", "still"), RUNS[i], strict=True)) for k, i in enumerate(five, 1)}


# %% [stub]
for name, log in logs(STUDENT).items():
    print(name, log)

run1 = None
run2 = None
run3 = None
run4 = None
run5 = None


# %% [solution]
def diagnosis(log):
    """Return the letter of the bug with these symptoms."""
    if log["kl"] > 0.1:
        return "d"
    if log["score"] < 100:
        return "c"
    if log["still"] > 90:
        return "a"
    return "b" if log["still"] > 40 else "e"


letters = {name: diagnosis(log) for name, log in logs(STUDENT).items()}
run1, run2, run3, run4, run5 = (letters[f"run{k}"] for k in range(1, 6))

# %% [tests]
from minirlhf_course.classroom.testing import fail, test
from minirlhf_course.ledger.registry import Draw

TRUTH = "dbdcccbabaecebaaeeadcebdd"  # what each of RUNS has


def diagnosis(sub, letter, because):
    """Check that the run with this bug has its letter; say what is wrong, not what is right."""
    five = TASKS[Draw("04.4", sub.student).integer(0, len(TASKS) - 1)]
    name = f"run{[TRUTH[i] for i in five].index(letter) + 1}"
    said = sub.choice(name, "abcde")
    if said != letter:
        fail(f"`{name}` is not {said}: {because}")


@test(
    points=1,
    rounds=1,
    hints=(
        "Which run has the score of a policy that balances, and a critic with the right value?",
        "The value of a pole that never falls is Σ γ^k = 1/(1 − γ) = 100.",
    ),
)
def the_healthy_one(sub, draw):
    "You identify the healthy run."
    diagnosis(sub, "a", "it balances, and its critic has the right value of a balanced pole")


@test(
    points=1,
    rounds=1,
    hints=(
        "One KL is more than a hundred times larger than the others. Which change removes the limit of an update?",
        "The minimum removes the gain of leaving the interval. What does the maximum do?",
    ),
)
def the_unbounded_one(sub, draw):
    "You identify the run with the maximum."
    diagnosis(sub, "d", "no other run moves so far in one rollout")


@test(
    points=1,
    rounds=1,
    hints=(
        "One critic predicts a high value for a policy that fails after fewer than twenty steps. What does it expect after a fall?",
        "If the next episode is the future of a fall, the value of every pole is nearly 100.",
    ),
)
def the_one_that_falls(sub, draw):
    "You identify the run without a done mask."
    diagnosis(sub, "c", "it falls at once, and its critic gives this the value of balancing")


@test(
    points=2,
    rounds=1,
    hints=(
        "Two critics have values that are too low. One of them sees no future after a truncation. It is trained on the λ-return with λ = .95. What is its value of a pole that never falls, if the future after each stretch of 128 steps counts 0?",
        "With n steps left the λ-return is G_1 = 1, G_n = 1 + γ[(1 − λ)v + λ G_{n−1}], and v is its mean over the stretch: about half of 1/(1 − γ). The other critic is too slow: it gains nothing by moving a value by more than .2 per rollout.",
    ),
)
def the_short_sighted_one(sub, draw):
    "You distinguish the run without bootstrap from the run with the value clip."
    diagnosis(sub, "b", "it learns well, and its critic has about the value of 128 steps without a future")
    diagnosis(sub, "e", "its critic is slower than the policy, and far below the value of any stretch")


# %% [mutant] the healthy run is not recognised
# caught by: the_healthy_one
# says: the right value of a balanced pole
letters = {name: {"a": "b", "b": "a"}.get(letter, letter) for name, letter in letters.items()}
run1, run2, run3, run4, run5 = (letters[f"run{k}"] for k in range(1, 6))

# %% [mutant] done mask and maximum are exchanged
# caught by: the_unbounded_one
# says: moves so far
letters = {name: {"c": "d", "d": "c"}.get(letter, letter) for name, letter in letters.items()}
run1, run2, run3, run4, run5 = (letters[f"run{k}"] for k in range(1, 6))

# %% [mutant] done mask and bootstrap are exchanged
# caught by: the_one_that_falls
# says: the value of balancing
letters = {name: {"b": "c", "c": "b"}.get(letter, letter) for name, letter in letters.items()}
run1, run2, run3, run4, run5 = (letters[f"run{k}"] for k in range(1, 6))

# %% [mutant] the two low critics are exchanged
# caught by: the_short_sighted_one
# says: 128 steps without a future
letters = {name: {"b": "e", "e": "b"}.get(letter, letter) for name, letter in letters.items()}
run1, run2, run3, run4, run5 = (letters[f"run{k}"] for k in range(1, 6))

# %% [partial] 2: all except the two low critics
letters = {name: {"b": "e", "e": "b"}.get(letter, letter) for name, letter in letters.items()}
run1, run2, run3, run4, run5 = (letters[f"run{k}"] for k in range(1, 6))
