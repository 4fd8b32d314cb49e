# ---
# title: The way back
# kind: derive
# minutes: 25
# ---

# %% [statement]
# The chapter counts the mistakes of a copy that never finds back to the expert's path. Let it find back sometimes. A copy takes $T$ steps, and begins on the path.
#
# * *On* the path, a step is a mistake with probability $\varepsilon$, and a mistake takes the copy off the path.
# * *Off* the path, the copy finds back **before it acts** with probability $\rho$, and then acts as it does on the path: right, or, with probability $\varepsilon$, wrong.
#   If it does not find back, its step is a mistake, and it is still off the path.
#
# With $\rho = 0$ this is the chapter's copy. With $\rho = 1$ somebody puts it back after every mistake.
#
# 1. `mistake_chances(error, back, steps)`: the probability that step $t$ is a mistake, for $t = 1 \dots T$, shape `(steps,)`. Both probabilities are floats.
# 2. `long_run(error, back)`: what this tends to for $t \to \infty$: the share of mistakes in a long life.
# 3. `enough_back(error, share)`: how good must the copy be at finding back, if in the long run no more than this share of its steps may be mistakes? The smallest $\rho$.
#    `share` lies between `error` and 1.
#
# Before you compute: is a copy with $\varepsilon = .01$ and $\rho = .1$ nearer to the quadratic or to the linear one? The checker knows no formula: it follows every course
# that a few steps can take, and a long chain of steps.

# %% [given]
import torch


# %% [stub]
def mistake_chances(error, back, steps):
    """Probability of a mistake at each step. error, back: floats in (0, 1). steps: an int. Returns (steps,)."""
    raise NotImplementedError


def long_run(error, back):
    """The share of mistakes after infinitely many steps, one number."""
    raise NotImplementedError


def enough_back(error, share):
    """The smallest chance of finding back with which `long_run` is at most `share`, one number."""
    raise NotImplementedError


# %% [solution]
def mistake_chances(error, back, steps):
    stays = (1 - back) * (1 - error)  # what a mistake before adds to the chance of one now
    chances, chance = [], 0.0
    for _ in range(steps):
        chance = error + stays * chance
        chances.append(chance)
    return torch.tensor(chances, dtype=torch.float64)


def long_run(error, back):
    return error / (1 - (1 - back) * (1 - error))


def enough_back(error, share):
    if not error <= share <= 1:
        raise ValueError(f"{share=}; expected a share between {error=} and 1")
    return 1 - (1 - error / share) / (1 - error)


# %% [tests]
import itertools
import math

import torch

from minirlhf_course.classroom.testing import expect, fail, test

STEPS = 6


def rates(draw):
    """Two probabilities of two digits."""
    return draw.integer(5, 30) / 100, draw.integer(15, 60) / 100


def apart(numbers):
    """Whether no two of them could be taken for each other."""
    return all(abs(x - y) > 1e-4 for x, y in itertools.combinations(numbers, 2))


def followed(error, back, steps):
    """The chance of a mistake at each step, over all courses of events: found back or not, right or wrong, at every step."""
    chances = [0.0] * steps
    for course in itertools.product((False, True), repeat=steps):  # which steps are mistakes
        probability, off = 1.0, False
        for mistake in course:
            if off:
                probability *= (1 - back) + back * error if mistake else back * (1 - error)
            else:
                probability *= error if mistake else 1 - error
            off = mistake
        for t, mistake in enumerate(course):
            chances[t] += probability * mistake
    return chances


def chain(error, back):
    """The share of mistakes after 2^30 steps, by squaring the chain's matrix."""
    to_off = (1 - back) + back * error
    moves = torch.tensor([[1 - error, error], [1 - to_off, to_off]], dtype=torch.float64)
    for _ in range(30):
        moves = moves @ moves
        moves = moves / moves.sum(-1, keepdim=True)
    return float(moves[0, 1])


@test(
    points=2,
    against="every course that six steps can take",
    hints=(
        "Let m be the chance that the step before was a mistake. In which ways can this step be one?",
        "On the path (1 − m) it errs with ε. Off the path it errs if it does not find back, or if it does and errs all the same.",
    ),
)
def step_by_step(sub, draw):
    "`mistake_chances` is the probability of a mistake at each step."
    error, back = rates(draw)
    steps = torch.arange(1, STEPS + 1, dtype=torch.float64)
    right = torch.tensor(followed(error, back, STEPS), dtype=torch.float64)
    first, again = (sub.mistake_chances(error, back, STEPS) for _ in range(2))
    tensors = isinstance(first, torch.Tensor) and isinstance(again, torch.Tensor) and first.shape == again.shape
    if tensors and not torch.allclose(first.double(), again.double(), rtol=0, atol=1e-9, equal_nan=True):
        fail("asked twice, `mistake_chances` gives two answers: a probability is computed, not counted in random walks")
    expect(
        first,
        right,
        what="the chance of a mistake at each step",
        given={"error": error, "back": back, "steps": STEPS},
        mistakes={
            "it never finds back": 1 - (1 - error) ** steps,
            "it never finds back, and that is multiplied by 1 − ρ once, at the end": (1 - back)
            * (1 - (1 - error) ** steps),
            "it is the chance that the *first* mistake is at that step": error * (1 - error) ** (steps - 1),
            "the copy begins off the path": right + ((1 - back) * (1 - error)) ** steps,
            "it is put back after every mistake": torch.full_like(steps, error),
            "mistakes are counted up to each step": right.cumsum(-1),
            "the first step is numbered 0: there nothing has happened yet": torch.cat([torch.zeros(1), right[:-1]]),
            "whoever finds back never errs in that step": torch.tensor(
                never_in_that_step(error, back), dtype=torch.float64
            ),
        },
    )


def never_in_that_step(error, back):
    chances = []
    for _ in range(STEPS):
        before = chances[-1] if chances else 0.0
        chances.append((1 - before) * error + before * (1 - back))
    return chances


@test(
    points=2,
    against="a chain of a thousand million steps",
    hints=(
        "When nothing changes any more, the chance of a mistake is the same at this step and at the one before.",
        "Set both chances of your recursion equal to m, and solve for m. Check it at ρ = 1, where it must be ε, and at ρ = 0, where it must be 1.",
    ),
)
def in_the_end(sub, draw):
    "`long_run` is the share of mistakes that the steps tend to."
    while True:
        error, back = rates(draw)
        want = chain(error, back)
        slips = {
            "whoever finds back never errs in that step": error / (error + back),
            "a mistake is taken to last 1/ρ steps, and none to happen meanwhile": error / back,
            "it is the share of right steps": 1 - want,
            "only leaving the path is counted, not staying off it": error * (1 - want),
        }
        chances, off = [], 0.0
        for _ in range(1000):
            off = (1 - off) * error + off * (1 - back + back * error)
            chances.append(off)
        slips |= {f"it is the chance at step {t} already": chances[t - 1] for t in range(2, 7)}
        slips |= {f"it is the mean of the first {t} steps": sum(chances[:t]) / t for t in (100, 200, 1000)}
        if apart([want, *slips.values()]):
            break
    expect(
        sub.long_run(error, back),
        want,
        what="the share of mistakes in the long run",
        given={"error": error, "back": back},
        mistakes=slips,
    )


@test(
    points=1,
    hints=(
        "You have the long run as a function of ρ. It falls as ρ grows.",
        "Solve it for ρ. At share = ε the copy must find back always, at share = 1 never.",
    ),
)
def how_good(sub, draw):
    "`enough_back` is the smallest chance of finding back that keeps mistakes below the share."
    while True:
        error, _ = rates(draw)
        share = round(error + (1 - error) * draw.integer(15, 70) / 100, 3)
        low, high = 0.0, 1.0
        for _ in range(60):
            half = (low + high) / 2
            low, high = (half, high) if chain(error, half) > share else (low, half)
        slips = {
            "whoever finds back never errs in that step": error * (1 - share) / share,
            "a mistake is taken to last 1/ρ steps": error / share,
            "it is the chance of not finding back": 1 - high,
            "it is rounded up to hundredths, or looked for on a grid of them": math.ceil(100 * high) / 100,
        }
        if apart([high, *slips.values()]):
            break
    expect(
        sub.enough_back(error, share),
        high,
        what="the chance of finding back",
        given={"error": error, "share": share},
        mistakes=slips,
    )


# %% [probes]
# no gradient, float32: two numbers are given, and a formula's value is asked for


# %% [mutant] lost for ever
# caught by: step_by_step
# says: never finds back
def mistake_chances(error, back, steps):
    return 1 - (1 - error) ** torch.arange(1, steps + 1, dtype=torch.float64)


# %% [mutant] whoever finds back never errs in that step
# caught by: step_by_step
# says: never errs
def mistake_chances(error, back, steps):
    chances = [error]
    while len(chances) < steps:
        chances.append(error + (1 - back - error) * chances[-1])
    return torch.tensor(chances, dtype=torch.float64)


# %% [mutant] counted up
# caught by: step_by_step
# says: counted up
def mistake_chances(error, back, steps):
    stays = (1 - back) * (1 - error)
    chance = torch.tensor([error * (1 - stays**t) / (1 - stays) for t in range(1, steps + 1)], dtype=torch.float64)
    return chance.cumsum(-1)


# %% [mutant] a rate of leaving and a rate of coming back
# caught by: in_the_end
# says: never errs
def long_run(error, back):
    return error / (error + back)


# %% [mutant] leaving only
# caught by: in_the_end
# says: not staying off it
def long_run(error, back):
    return error * (1 - error / (1 - (1 - back) * (1 - error)))


# %% [mutant] a mistake lasts 1/ρ
# caught by: how_good
# says: 1/ρ
def enough_back(error, share):
    return error / share


# %% [partial] 2: the steps are right, the long run is that of another copy
def long_run(error, back):
    return error / (error + back)


def enough_back(error, share):
    return error * (1 - share) / share


# %% [partial] 4: not solved for ρ yet
def enough_back(error, share):
    raise NotImplementedError
