# ---
# title: Compounding errors with recovery
# kind: derive
# minutes: 25
# ---

# %% [statement]
# The chapter counts the errors of a copy that never recovers: it never returns to the expert's path. Now it recovers sometimes. A copy takes $T$ steps, and begins on the path.
#
# * *On* the path, a step is an error with probability $\varepsilon$, and an error takes the copy off the path.
# * *Off* the path, the copy recovers **before it acts** with probability $\rho$. It then acts as it does on the path: right, or, with probability $\varepsilon$, wrong.
#   If it does not recover, its step is an error, and it is still off the path.
#
# With $\rho = 0$ this is the chapter's copy. With $\rho = 1$ it is put back after every error.
#
# 1. `mistake_chances(error, back, steps)`: the probability that step $t$ is an error, for $t = 1 \dots T$, shape `(steps,)`. `error` is $\varepsilon$ and `back` is $\rho$, both floats.
# 2. `long_run(error, back)`: the limit of this probability for $t \to \infty$: the fraction of errors in a very long episode.
# 3. `enough_back(error, share)`: the smallest $\rho$ with which, in the long run, at most the fraction `share` of the steps are errors.
#    `share` lies between `error` and 1.
#
# Before you compute: is a copy with $\varepsilon = .01$ and $\rho = .1$ nearer to the quadratic or to the linear case? The checker uses no formula. It follows every sequence
# of a few steps, and a long Markov chain.

# %% [given]
import torch


# %% [stub]
def mistake_chances(error, back, steps):
    """Return the probability of an error at each step. error, back: floats in (0, 1). steps: an int. Returns (steps,)."""
    raise NotImplementedError


def long_run(error, back):
    """Return the limit of the probability of an error, one number."""
    raise NotImplementedError


def enough_back(error, share):
    """Return the smallest recovery probability with which `long_run` is at most `share`, one number."""
    raise NotImplementedError


# %% [solution]
def mistake_chances(error, back, steps):
    stays = (1 - back) * (1 - error)  # what an error before adds to the probability of one now
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
    """Return two probabilities of two digits."""
    return draw.integer(5, 30) / 100, draw.integer(15, 60) / 100


def apart(numbers):
    """Return whether no two of them are nearly equal."""
    return all(abs(x - y) > 1e-4 for x, y in itertools.combinations(numbers, 2))


def followed(error, back, steps):
    """Return the probability of an error at each step, summed over all sequences: recovered or not, right or wrong, at every step."""
    chances = [0.0] * steps
    for sequence in itertools.product((False, True), repeat=steps):  # which steps are errors
        probability, off = 1.0, False
        for mistake in sequence:
            if off:
                probability *= (1 - back) + back * error if mistake else back * (1 - error)
            else:
                probability *= error if mistake else 1 - error
            off = mistake
        for t, mistake in enumerate(sequence):
            chances[t] += probability * mistake
    return chances


def chain(error, back):
    """Return the fraction of errors after 2^30 steps, by squaring the chain's matrix."""
    to_off = (1 - back) + back * error
    moves = torch.tensor([[1 - error, error], [1 - to_off, to_off]], dtype=torch.float64)
    for _ in range(30):
        moves = moves @ moves
        moves = moves / moves.sum(-1, keepdim=True)
    return float(moves[0, 1])


@test(
    points=2,
    against="every sequence of six steps",
    hints=(
        "Let m be the probability that the step before was an error. In which ways can this step be an error?",
        "On the path (1 − m) it errs with ε. Off the path it errs if it does not recover, or if it recovers and still errs.",
    ),
)
def step_by_step(sub, draw):
    "`mistake_chances` is the probability of an error at each step."
    error, back = rates(draw)
    steps = torch.arange(1, STEPS + 1, dtype=torch.float64)
    right = torch.tensor(followed(error, back, STEPS), dtype=torch.float64)
    first, again = (sub.mistake_chances(error, back, STEPS) for _ in range(2))
    tensors = isinstance(first, torch.Tensor) and isinstance(again, torch.Tensor) and first.shape == again.shape
    if tensors and not torch.allclose(first.double(), again.double(), rtol=0, atol=1e-9, equal_nan=True):
        fail("two calls of `mistake_chances` give different results: compute the probability instead of sampling walks")
    expect(
        first,
        right,
        what="the probability of an error at each step",
        given={"error": error, "back": back, "steps": STEPS},
        mistakes={
            "it never recovers": 1 - (1 - error) ** steps,
            "it never recovers, and that is multiplied by 1 − ρ once, at the end": (1 - back)
            * (1 - (1 - error) ** steps),
            "it is the probability that the *first* error is at that step": error * (1 - error) ** (steps - 1),
            "the copy begins off the path": right + ((1 - back) * (1 - error)) ** steps,
            "it is put back after every error": torch.full_like(steps, error),
            "errors are counted up to each step": right.cumsum(-1),
            "the first step is numbered 0, where nothing has happened yet": torch.cat([torch.zeros(1), right[:-1]]),
            "a copy that recovers never errs in that step": torch.tensor(
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
    against="a chain of 10⁹ steps",
    hints=(
        "In the limit, the probability of an error is the same at this step and at the step before.",
        "Set both probabilities of your recursion equal to m, and solve for m. Check it at ρ = 1, where it must be ε, and at ρ = 0, where it must be 1.",
    ),
)
def in_the_end(sub, draw):
    "`long_run` is the limit of the probability of an error."
    while True:
        error, back = rates(draw)
        want = chain(error, back)
        slips = {
            "a copy that recovers never errs in that step": error / (error + back),
            "an error is taken to last 1/ρ steps, with no new error meanwhile": error / back,
            "it is the fraction of right steps": 1 - want,
            "only leaving the path is counted, not staying off it": error * (1 - want),
        }
        chances, off = [], 0.0
        for _ in range(1000):
            off = (1 - off) * error + off * (1 - back + back * error)
            chances.append(off)
        slips |= {f"it is the probability at step {t}": chances[t - 1] for t in range(2, 7)}
        slips |= {f"it is the mean of the first {t} steps": sum(chances[:t]) / t for t in (100, 200, 1000)}
        if apart([want, *slips.values()]):
            break
    expect(
        sub.long_run(error, back),
        want,
        what="the fraction of errors in the long run",
        given={"error": error, "back": back},
        mistakes=slips,
    )
    rare, seldom = draw.integer(8, 12) / 10_000, 0.003  # thousands of steps are enough
    expect(
        sub.aside.long_run(rare, seldom),
        chain(rare, seldom),
        what="the fraction of errors in a very long run, where both probabilities are small,",
        given={"error": rare, "back": seldom},
    )


@test(
    points=1,
    hints=(
        "You have the limit as a function of ρ. It falls as ρ grows.",
        "Solve it for ρ. At share = ε the copy must always recover, at share = 1 never.",
    ),
)
def how_good(sub, draw):
    "`enough_back` is the smallest recovery probability that keeps errors at or below the share."
    while True:
        error, _ = rates(draw)
        share = round(error + (1 - error) * draw.integer(15, 70) / 100, 3)
        low, high = 0.0, 1.0
        for _ in range(60):
            half = (low + high) / 2
            low, high = (half, high) if chain(error, half) > share else (low, half)
        slips = {
            "a copy that recovers never errs in that step": error * (1 - share) / share,
            "an error is taken to last 1/ρ steps": error / share,
            "it is the probability of not recovering": 1 - high,
            "it is rounded up to hundredths, or searched on a grid of hundredths": math.ceil(100 * high) / 100,
        }
        if apart([high, *slips.values()]):
            break
    expect(
        sub.enough_back(error, share),
        high,
        what="the recovery probability",
        given={"error": error, "share": share},
        mistakes=slips,
    )
    for end, back in ((error, 1.0), (1.0, 0.0)):
        given = {"error": error, "share": end}
        expect(sub.aside.enough_back(error, end), back, what="the recovery probability at an end", given=given)


# %% [edges]
# how_good: `share` lies between `error` and 1


# %% [probes]
# no gradient, float32: two numbers are given, and a formula's value is asked for


# %% [mutant] no recovery
# caught by: step_by_step
# says: never recovers
def mistake_chances(error, back, steps):
    return 1 - (1 - error) ** torch.arange(1, steps + 1, dtype=torch.float64)


# %% [mutant] a copy that recovers never errs in that step
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
