# ---
# title: Five patients
# kind: choice
# minutes: 15
# ---

# %% [statement]
# Five runs of PPO on CartPole, with 1 per step, $\gamma = .99$, rollouts of 16 × 128 steps. One of them is healthy; each of the others has one of the bugs of this chapter. For each run you get, from its log, `score`
# (mean return of 100 episodes after training; 500 is all), `kl` (mean KL per rollout between the policy that sampled and the policy after the updates, nats), and `still` (what the trained critic says of a pole that stands still in the
# middle). The order is yours alone: put your student id into `STUDENT` at the top of the notebook, and read `logs(STUDENT)`.
#
# What does each run have? Write one letter each into `run1`, `run2`, `run3`, `run4` and `run5`:
#
# * `a` healthy
# * `b` the bootstrap is forgotten at cuts
# * `c` the done mask is forgotten: advantages run on into the next episode
# * `d` the maximum is taken for the minimum in the clip
# * `e` the value clip of .2 was copied from a paper whose values are near 1
#
# Two of them cannot be told apart by their scores. What is a pole worth that never falls? How much may a critic change in 49 rollouts of 64 updates if it gains nothing beyond .2 per rollout?

# %% [given]
from minirlhf.ledger.registry import Draw

LOGS = [
    {"score": 12.4, "kl": 1.6030, "still": 9.7},
    {"score": 17.1, "kl": 0.0039, "still": 99.8},
    {"score": 319.0, "kl": 0.0030, "still": 33.3},
    {"score": 435.8, "kl": 0.0036, "still": 49.1},
    {"score": 497.5, "kl": 0.0037, "still": 99.4},
]


def logs(student):
    """The five logs in this student's order."""
    order = Draw("04.4", student).permutation(5).tolist()
    return {f"run{k + 1}": LOGS[i] for k, i in enumerate(order)}


# %% [stub]
for name, log in logs(STUDENT).items():
    print(name, log)

run1 = None
run2 = None
run3 = None
run4 = None
run5 = None

# %% [solution]
found = {name: "dceba"[LOGS.index(log)] for name, log in logs(STUDENT).items()}
run1, run2, run3, run4, run5 = (found[f"run{k}"] for k in range(1, 6))

# %% [tests]
from minirlhf.classroom.testing import fail, test
from minirlhf.ledger.registry import Draw


def diagnosis(sub, letter, because):
    """Is the run that has this bug called by its letter? Says what is off, not what is right."""
    order = Draw("04.4", sub.student).permutation(5).tolist()
    name = f"run{order.index('dceba'.index(letter)) + 1}"
    said = sub.choice(name, "abcde")
    if said != letter:
        fail(f"`{name}` is not {said}: {because}")


@test(
    points=1,
    rounds=1,
    hints=(
        "Which run has the score of a policy that balances, and a critic that knows it?",
        "A pole that never falls is worth Σ γ^k = 1/(1 − γ) = 100.",
    ),
)
def the_healthy_one(sub, draw):
    "The healthy run is found."
    diagnosis(sub, "a", "it balances, and its critic says what a balanced pole is worth")


@test(
    points=1,
    rounds=1,
    hints=(
        "One KL stands out by a factor of four hundred. Which change takes the bound off an update?",
        "The minimum removes the reward for leaving the interval. What does the maximum do?",
    ),
)
def the_unbounded_one(sub, draw):
    "The run with the maximum is found."
    diagnosis(sub, "d", "no other run moves so far in one rollout")


@test(
    points=1,
    rounds=1,
    hints=(
        "One critic is enthusiastic about a policy that fails after seventeen steps. What does it believe comes after a fall?",
        "If the next episode is the future of a fall, a pole is worth nearly 100 whatever happens to it.",
    ),
)
def the_one_that_falls(sub, draw):
    "The run without a done mask is found."
    diagnosis(sub, "c", "it falls at once, and its critic finds that as good as balancing")


@test(
    points=2,
    rounds=1,
    hints=(
        "Two critics say too little. One of them sees no future behind a cut; from a random step of a stretch of 128, what is the mean of the sum that is left?",
        "That mean is 44 for a policy that never falls. The other critic cannot follow: it gains nothing by moving a value by more than .2 per rollout.",
    ),
)
def the_short_sighted_one(sub, draw):
    "The run without bootstrap and the run with the value clip are told apart."
    diagnosis(sub, "b", "it learns well, and its critic says about what 128 steps without a future are worth")
    diagnosis(sub, "e", "its critic lags behind the policy, and is far below what any stretch is worth")


# %% [mutant] the healthy one is not recognised
# caught by: the_healthy_one
# says: what a balanced pole is worth
found = {name: {"a": "b", "b": "a"}.get(letter, letter) for name, letter in found.items()}
run1, run2, run3, run4, run5 = (found[f"run{k}"] for k in range(1, 6))

# %% [mutant] falling and leaping are mixed up
# caught by: the_unbounded_one
# says: moves so far
found = {name: {"c": "d", "d": "c"}.get(letter, letter) for name, letter in found.items()}
run1, run2, run3, run4, run5 = (found[f"run{k}"] for k in range(1, 6))

# %% [mutant] the done mask and the bootstrap are mixed up
# caught by: the_one_that_falls
# says: as good as balancing
found = {name: {"b": "c", "c": "b"}.get(letter, letter) for name, letter in found.items()}
run1, run2, run3, run4, run5 = (found[f"run{k}"] for k in range(1, 6))

# %% [mutant] the two critics that say too little are mixed up
# caught by: the_short_sighted_one
# says: 128 steps without a future
found = {name: {"b": "e", "e": "b"}.get(letter, letter) for name, letter in found.items()}
run1, run2, run3, run4, run5 = (found[f"run{k}"] for k in range(1, 6))

# %% [partial] 3: all but the two that say too little
found = {name: {"b": "e", "e": "b"}.get(letter, letter) for name, letter in found.items()}
run1, run2, run3, run4, run5 = (found[f"run{k}"] for k in range(1, 6))
