# ---
# title: Five logs
# kind: choice
# minutes: 20
# ---

# %% [statement]
# Five runs of PPO on language models, eight rollouts each, with four updates per rollout. One is healthy. Four have something wrong, one thing
# each, and none of them crashed. `logs(STUDENT)` has their logs, made up after the pattern of real ones; the order is yours alone. Each row is a rollout:
#
# * `reward`, mean of the rollout; the best possible is 1;
# * `length`, tokens of a completion on average, at most 64, and `ended`, the share of completions that end by themselves;
# * `ratio_1`, the largest $|\log \pi/\pi_\text{old}|$ of any token at the **first** update, before it is made, and `ratio_4` at the last one;
# * `clipped`, the share of tokens that the clip silenced, over all four updates;
# * `expl_var`, the explained variance of the critic.
#
# Whose log is it? Answer `run_1`, `run_2`, `run_3`, `run_4` and `run_5` with letters, each used once.
#
# (a) healthy\
# (b) the reward model likes long replies, and a reply that was cut off is graded like any other\
# (c) sampled at temperature 0.7; the log-probabilities in the update are computed at temperature 1\
# (d) the clipped objective takes the maximum where the minimum belongs\
# (e) the critic's targets belong to the completions of another prompt

# %% [given]
import torch

from minirlhf.ledger.registry import Draw

COLUMNS = ("reward", "length", "ended", "ratio_1", "ratio_4", "clipped", "expl_var")


def _run(kind, draw):
    """Eight rows of a log."""
    t = torch.arange(8, dtype=torch.float64) / 7
    noise = draw.normal(8, 7, scale=0.02)
    reward, length = 0.35 + 0.45 * t, 24 + 8 * t
    ended, expl = 0.99 - 0 * t, 0.75 * (1 - torch.exp(-5 * t))
    first, last, clipped = 0 * t, 0.45 + 0 * t, 0.06 + 0 * t
    if kind == "b":
        length, ended, reward = 24 + 39 * t**0.7, 0.99 - 0.95 * t**1.5, 0.35 + 0.55 * t**0.7
    if kind == "c":
        first, last, clipped, reward = 1.9 + 0 * t, 2.1 + 0 * t, 0.34 + 0 * t, 0.35 + 0.1 * t
    if kind == "d":
        last, clipped, reward = 1.2 + 9 * t, 0.05 + 0.5 * t, 0.35 - 0.33 * t**0.5
    if kind == "e":
        expl, reward = -0.15 + 0 * t, 0.35 + 0.25 * t
    table = torch.stack([reward, length, ended, first, last, clipped, expl], 1)
    scale = torch.tensor([1.0, 30.0, 0.3, 1.0, 3.0, 0.3, 2.0])
    table = table + noise * scale * (table != 0)
    table[:, 2] = table[:, 2].clamp(0.0, 1.0)
    table[:, 5] = table[:, 5].clamp(min=0.0)
    return table.round(decimals=2)


def logs(student):
    """This student's five logs, (8, 7) each, in a random order."""
    draw = Draw("12.4", student)
    order = draw.permutation(5).tolist()
    return [_run("abcde"[i], draw) for i in order]


# %% [stub]
for number, log in enumerate(logs(STUDENT), 1):
    print(f"run {number}   " + " ".join(f"{name:>8}" for name in COLUMNS))
    for rollout, row in enumerate(log.tolist(), 1):
        print(f"  {rollout}     " + " ".join(f"{x:8.2f}" for x in row))

run_1 = None
run_2 = None
run_3 = None
run_4 = None
run_5 = None


# %% [solution]
def diagnosis(log):
    """What only this bug does."""
    _, _, ended, ratio_1, ratio_4, _, expl_var = log[-1].tolist()
    if ratio_1 > 0.5:
        return "c"
    if ended < 0.5:
        return "b"
    if ratio_4 > 3:
        return "d"
    return "e" if expl_var < 0.2 else "a"


run_1, run_2, run_3, run_4, run_5 = (diagnosis(log) for log in logs(STUDENT))

# %% [tests]
from minirlhf.classroom.testing import fail, test
from minirlhf.ledger.registry import Draw


def ask(sub, letter, said):
    """The run that has this letter in truth must have it in the answer."""
    at = Draw("12.4", sub.student).permutation(5).tolist().index("abcde".index(letter)) + 1
    got = sub.choice(f"run_{at}", "abcde")
    if got != letter:
        fail(f"`run_{at}` is not {got!r}: {said[got]}")


@test(
    points=1,
    rounds=1,
    hints=(
        "At the first update the policy has not moved since it sampled. What must every ratio be?",
        "One log has a first ratio that is not 1, that is, a log-ratio that is not 0. Which of the bugs makes two log-probabilities of the "
        "same token differ although no weight has changed?",
    ),
)
def before_anything_moved(sub, draw):
    "The run whose log-probabilities forgot the temperature is found."
    ask(
        sub,
        "c",
        {
            "a": "its ratio is not 1 before the first update, when nothing has moved yet",
            "b": "a reward cannot change the ratio: it was wrong before anything was learned",
            "d": "the objective cannot act before the first update, and the ratio is wrong already then",
            "e": "a critic has no part in the ratio",
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "One policy has found out how to earn more by writing more. Where would that show?",
        "Completions that grow until they are cut off do not end by themselves any more. Look at `length` and `ended`.",
    ),
)
def without_an_end(sub, draw):
    "The run that is paid for length is found."
    ask(
        sub,
        "b",
        {
            "a": "its completions grow until they are cut off",
            "c": "its first ratio is exactly 1, so the log-probabilities agree",
            "d": "its ratios stay moderate; what it loses is its end",
            "e": "a bad critic makes learning slow, it does not take away the end",
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Which bug can only show from the second update on?",
        "With the maximum, the clip silences the tokens that should be held and lets go of those that run away. Compare `ratio_1` and `ratio_4`.",
    ),
)
def runs_away(sub, draw):
    "The run that takes the maximum is found."
    ask(
        sub,
        "d",
        {
            "a": "its ratios explode within a rollout, and its reward collapses",
            "b": "its completions still end by themselves",
            "c": "its first ratio is exactly 1; only later updates go wrong",
            "e": "a bad critic does not drive ratios to thousands",
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Two logs are left. What is explained variance, and what is it for a critic that is as good as a constant?",
        "1 is perfect, 0 as good as a constant, negative worse than a constant. A critic that learns its own prompts' returns gets well above 0.",
    ),
)
def knows_nothing(sub, draw):
    "The run whose critic learns from other prompts is told from the healthy one."
    ask(
        sub,
        "e",
        {
            "a": "its critic is worse than a constant and does not improve",
            "b": "its completions end by themselves",
            "c": "its first ratio is exactly 1",
            "d": "its ratios stay moderate",
        },
    )


# %% [mutant] temperature and maximum exchanged
# caught by: before_anything_moved
# says: before the first update
run_1, run_2, run_3, run_4, run_5 = ({"c": "d", "d": "c"}.get(x, x) for x in (run_1, run_2, run_3, run_4, run_5))

# %% [mutant] the run without an end is taken for healthy
# caught by: without_an_end
# says: until they are cut off
run_1, run_2, run_3, run_4, run_5 = ({"a": "b", "b": "a"}.get(x, x) for x in (run_1, run_2, run_3, run_4, run_5))

# %% [mutant] maximum and critic exchanged
# caught by: runs_away
# says: does not drive ratios
run_1, run_2, run_3, run_4, run_5 = ({"e": "d", "d": "e"}.get(x, x) for x in (run_1, run_2, run_3, run_4, run_5))

# %% [mutant] the critic is not looked at
# caught by: knows_nothing
# says: worse than a constant
run_1, run_2, run_3, run_4, run_5 = ({"e": "a", "a": "e"}.get(x, x) for x in (run_1, run_2, run_3, run_4, run_5))

# %% [partial] 2: temperature and mask are found
run_1, run_2, run_3, run_4, run_5 = (
    {"a": "d", "d": "e", "e": "a"}.get(x, x) for x in (run_1, run_2, run_3, run_4, run_5)
)
