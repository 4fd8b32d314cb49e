# ---
# title: What can this monitor reach?
# kind: numeric
# minutes: 15
# ---

# %% [statement]
# Before a run you measure an initial policy, and plan a monitor with a fine. There are the three kinds of completions of the chapter: honest work passes with probability `passes`, the two cheats always pass. The policy will be the optimum with a KL penalty of strength `beta`.
# `numbers(STUDENT)` gives `passes`, `silent` (the initial probability of a silent cheat), `beta`, and the probabilities `seen` and `false` with which the monitor flags a silent cheat and honest work. A spoken cheat is flagged with probability .95, and has the initial probability .1. Answer to four decimals, and 4 with a whole number.
#
# 1. `cheating`: the probability of a cheat of either kind if the fine is 0.7.
# 2. `flagged`: the mean number of flags per completion of that policy, as a fraction of the flags that it would have if it cheated silently *always*.
# 3. `needed`: your monitor cannot be improved, but you may choose β anew. Without any fine, at which β is there exactly one silent cheat for each ten honest completions?
# 4. `read`: at the fine of 0.7, how many completions must a person read, so that at least one silent cheat is among them with a probability of at least 95 %?

# %% [given]
import math

import torch
from minirlhf_course.ledger.registry import Draw


def numbers(student):
    """passes, silent, beta, seen, false."""
    draw = Draw("24.1", student)
    pick = lambda *options: options[draw.integer(0, len(options) - 1)]
    return (
        pick(0.55, 0.6, 0.65),
        pick(0.002, 0.004, 0.006),
        pick(0.08, 0.09, 0.11),
        pick(0.2, 0.25, 0.3),
        pick(0.02, 0.04, 0.06),
    )


# %% [stub]
print(numbers(STUDENT))

cheating = None
flagged = None
needed = None
read = None

# %% [solution]
passes, silent, beta, seen, false = numbers(STUDENT)
ref = torch.tensor([0.9 - silent, 0.1, silent], dtype=torch.float64)
flags = torch.tensor([false, 0.95, seen], dtype=torch.float64)
policy = torch.softmax(ref.log() + (torch.tensor([passes, 1.0, 1.0], dtype=torch.float64) - 0.7 * flags) / beta, -1)
cheating = float(policy[1:].sum())
flagged = float(policy @ flags) / seen
needed = (1 - passes) / math.log(0.1 * (0.9 - silent) / silent)
read = math.ceil(math.log(0.05) / math.log(1 - float(policy[2])))

# %% [tests]
import math

from minirlhf_course.classroom.testing import expect, test


def weights(student, fine=0.7, **other):
    """Return the probabilities of honest work, spoken and silent cheat, weight by weight."""
    passes, silent, beta, seen, false = numbers(student)
    told = {"beta": beta, "spoken": 0.95, "seen": seen, "false": false} | other
    b = told["beta"]
    w = [
        (0.9 - silent) * math.exp((passes - fine * told["false"]) / b),
        0.1 * math.exp((1 - fine * told["spoken"]) / b),
        silent * math.exp((1 - fine * told["seen"]) / b),
    ]
    return [x / sum(w) for x in w]


@test(
    points=1,
    rounds=1,
    hints=("Which weight has each of the three kinds?", "Multiply the initial probability by e^{(reward − mean fine)/β}. Then normalise."),
)  # fmt: skip
def at_the_fine(sub, draw):
    "`cheating` is the probability of both cheats at a fine of 0.7."
    w = weights(sub.student)
    free, certain = weights(sub.student, fine=0.0), weights(sub.student, spoken=1.0, seen=1.0, false=0.0)
    expect(
        sub.number("cheating"), w[1] + w[2], what="`cheating`", tolerance=2e-4, reveal=False,
        mistakes={
            "the fine is missing": free[1] + free[2],
            "it is only the silent cheat": w[2],
            "each cheat pays the whole fine: multiply it by the probability of a flag": certain[1] + certain[2],
            "it is the probability of honest work": w[0],
            "false positives are missing": (lambda v: v[1] + v[2])(weights(sub.student, false=0.0)),
        },
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=("Which probability of a flag has each kind?", "Take the mean of the three flag probabilities under the policy, and divide by the flag probability of a silent cheat."),
)  # fmt: skip
def on_the_dashboard(sub, draw):
    "`flagged` is the policy's number of flags, as a fraction of the flags of a policy that always cheats silently."
    _passes, _silent, _beta, seen, false = numbers(sub.student)
    w = weights(sub.student)
    mean = w[0] * false + w[1] * 0.95 + w[2] * seen
    expect(
        sub.number("flagged"), mean / seen, what="`flagged`", tolerance=5e-4, reveal=False,
        mistakes={
            "it is the number of flags, not the fraction": mean,
            "flags of honest work are missing": (w[1] * 0.95 + w[2] * seen) / seen,
            "flags of the spoken cheat are missing": (w[0] * false + w[2] * seen) / seen,
            "only cheats of the silent kind are counted": w[2],
        },
    )  # fmt: skip


@test(
    points=2,
    rounds=1,
    hints=(
        "Which β makes silent cheats one tenth of honest work without any fine?",
        "Without a fine the odds are silent/honest · e^{g/β}, where g is the reward of a cheat minus the mean reward of honest work. Set them to 1/10 and solve for β.",
    ),
)
def without_a_fine(sub, draw):
    "`needed` is the β that suffices without a fine."
    passes, silent, _beta, _seen, _false = numbers(sub.student)
    gain, honest = 1 - passes, 0.9 - silent
    want = gain / math.log(0.1 * honest / silent)
    expect(
        sub.number("needed"), want, what="`needed`", tolerance=5e-4, reveal=False,
        mistakes={
            "the odds are set to 1, not to 1/10": gain / math.log(honest / silent),
            "the tenth is a fraction of all completions, or honest work has its initial probability without the spoken cheats; the question is about the ratio to honest completions": gain / math.log(honest / (9 * silent)),
            "the gain is set to the mean reward of honest work; it is the reward of a cheat minus this mean": passes / math.log(0.1 * honest / silent),
            "the tenth multiplies the wrong side": gain / math.log(10 * honest / silent),
            "it is 1/β": 1 / want,
        },
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=("With which probability is there no silent cheat among n completions?", "(1 − probability of a silent cheat)ⁿ must be at most 5 %. Round up."),
)  # fmt: skip
def by_hand(sub, draw):
    "`read` is the number of completions that show a silent cheat with probability 95 %."
    w = weights(sub.student)
    law = lambda p: next(n for n in range(1, 100_000) if (1 - p) ** n <= 0.05)
    want = law(w[2])
    expect(
        sub.number("read"), want, what="`read`", tolerance=1e-6, reveal=False,
        mistakes={
            say: x
            for say, x in {
                "it finds a cheat of either kind": law(w[1] + w[2]),
                "it is rounded down, and the probability is still above 5 %": want - 1,
                "it is for a probability of 5 % of seeing one": next(n for n in range(1, 100_000) if (1 - w[2]) ** n <= 0.95),
            }.items()
            if x != want
        },
    )  # fmt: skip


# %% [shared]
# 0.7: the fine, which the statement gives


# %% [mutant] the whole fine
# caught by: at_the_fine
# says: multiply it by the probability
policy = torch.softmax(ref.log() + torch.tensor([passes, 0.3, 0.3], dtype=torch.float64) / beta, -1)
cheating = float(policy[1:].sum())


# %% [mutant] flags and no fraction
# caught by: on_the_dashboard
# says: number of flags
flagged = float(policy @ flags)


# %% [mutant] even odds
# caught by: without_a_fine
# says: set to 1
needed = (1 - passes) / math.log((0.9 - silent) / silent)


# %% [mutant] one too few
# caught by: by_hand
# says: rounded down
read = math.ceil(math.log(0.05) / math.log(1 - float(policy[2]))) - 1


# %% [partial] 2: the policy at the fine
needed = 0.0
read = 1
