# ---
# title: Two samples, many passes
# kind: numeric
# minutes: 25
# ---

# %% [statement]
# A rollout has two samples from one state. `sample(STUDENT)` describes your samples; put your student id into `STUDENT` at the top of the notebook. There are three actions, with logits `z` at sampling
# time. The first sample took action 0 and has the advantage `A[0]`. The second took action 1 and has the advantage `A[1]`. Both advantages are positive, and the first is much larger.
#
# PPO makes `passes` passes over this rollout. Each pass is one step of plain gradient *ascent* on the *mean* of the two samples' objectives $\min\big(\rho A,\ \mathrm{clip}(\rho, 1-\epsilon, 1+\epsilon)\,A\big)$, with step size `eta`
# on the logits. The ratio $\rho$ of a sample is the current probability of its action divided by the probability at sampling time.
#
# Simulate it, without the library's `ppo_clip`, and write down
#
# 1. `ratios`: the two ratios after the last pass;
# 2. `moved`: the number of passes in which the first sample had a gradient, and the number in which the second had one, as a list of two numbers;
# 3. `lowest`: the smallest ratio of the second sample after any pass.
#
# The tolerance is 0.1 %. One sample loses probability to the other although its advantage is positive. What brings it back?

# %% [given]
from minirlhf_course.ledger.registry import Draw


def sample(student):
    """Return this student's samples."""
    draw = Draw("04.3", student)
    return {
        "z": [
            0.0,
            round(float(draw.uniform(low=0.1, high=0.4)), 2),
            round(float(draw.uniform(low=-0.6, high=-0.2)), 2),
        ],
        "A": [round(float(draw.uniform(low=3.4, high=3.9)), 2), round(float(draw.uniform(low=0.5, high=0.8)), 2)],
        "epsilon": 0.2,
        "eta": round(float(draw.uniform(low=0.4, high=0.44)), 3),
        "passes": 40,
    }


# %% [stub]
print(sample(STUDENT))

ratios = None
moved = None
lowest = None

# %% [solution]
import math


def simulate(s, objective_slope):
    """Return the ratios after the last pass, the passes with a gradient, and the smallest ratio of the second sample."""

    def probs(z):
        total = sum(math.exp(x) for x in z)
        return [math.exp(x) / total for x in z]

    z, old = list(s["z"]), probs(s["z"])
    moved, lowest = [0, 0], 1.0
    for _ in range(s["passes"]):
        p, step = probs(z), [0.0, 0.0, 0.0]
        for i in (0, 1):
            slope = objective_slope(p[i] / old[i], s["A"][i], s["epsilon"])  # in ρ
            moved[i] += slope != 0
            for v in range(3):
                step[v] += slope * p[i] / old[i] * ((v == i) - p[v]) / 2
        z = [x + s["eta"] * g for x, g in zip(z, step)]
        p = probs(z)
        lowest = min(lowest, p[1] / old[1])
    return [p[0] / old[0], p[1] / old[1]], moved, lowest


def ppo(rho, A, epsilon):
    return 0.0 if (A > 0 and rho > 1 + epsilon) or (A < 0 and rho < 1 - epsilon) else A


ratios, moved, lowest = simulate(sample(STUDENT), ppo)

# %% [tests]
import functools
import math

import torch
from minirlhf.equations.policy_losses import importance_weighted, ppo_clip
from minirlhf_course.classroom.testing import expect, fail, test


def both_sides(logps, old_logps, advantages, mask, *, epsilon):
    """Clip without a minimum."""
    return (logps - old_logps).exp().clamp(1 - epsilon, 1 + epsilon) * advantages


def the_maximum(logps, old_logps, advantages, mask, *, epsilon):
    """Take the maximum instead of the minimum."""
    ratio = (logps - old_logps).exp()
    return torch.maximum(ratio * advantages, ratio.clamp(1 - epsilon, 1 + epsilon) * advantages)


def free(logps, old_logps, advantages, mask, *, epsilon):
    """Do not clip."""
    return importance_weighted(logps, old_logps, advantages, mask)


def flat(logps, old_logps, advantages, mask, *, epsilon):
    """Use log ρ for ρ inside the clip: the gradient lacks the factor ρ."""
    log_ratio = logps - old_logps
    return torch.where(log_ratio > math.log(1 + epsilon), 0.0, log_ratio * advantages)


def by_autograd(s, objective=ppo_clip, *, share=0.5, stale=True, whole=True, sent=lambda s: s):
    """Return the same by automatic differentiation: ratios, passes with a gradient, the second sample's smallest ratio."""
    s = sent(s)
    z = torch.tensor(s["z"], dtype=torch.float64)
    first = z.log_softmax(-1)[:2, None]
    old, advantages, mask = first, torch.tensor(s["A"], dtype=torch.float64)[:, None], torch.ones(2, 1).bool()
    moved, lowest = torch.zeros(2), 1.0
    for _ in range(s["passes"]):
        at = z.clone().requires_grad_()
        total = at.logsumexp(-1)
        logps = (at - (total if whole else total.detach()))[:2, None]
        objectives = objective(logps, old, advantages, mask, epsilon=s["epsilon"])
        for i in (0, 1):
            (own,) = torch.autograd.grad(objectives[i, 0], at, retain_graph=True)
            moved[i] += float(own.abs().max()) > 0
        (slope,) = torch.autograd.grad(share * objectives.sum(), at)
        z = z + s["eta"] * slope
        ratio = (z.log_softmax(-1)[:2, None] - first).exp()[:, 0]
        lowest = min(lowest, float(ratio[1]))
        old = old if stale else z.log_softmax(-1)[:2, None]
    return {"ratios": ratio, "moved": moved.double(), "lowest": torch.tensor([lowest], dtype=torch.float64)}


def changed(**how):
    """Return a function that changes some numbers of the sample, each by a function of its value."""
    return lambda s: s | {name: f(s[name]) for name, f in how.items()}


SLIPS = {
    "every ratio outside the interval has no gradient": (both_sides, {}),
    "nothing is clipped": (free, {}),
    "the maximum is used": (the_maximum, {}),
    "the two objectives are summed, not averaged": (ppo_clip, {"share": 1.0}),
    "the old probabilities are recomputed in every pass": (ppo_clip, {"stale": False}),
    "the second sample is left out": (ppo_clip, {"sent": changed(A=lambda A: [A[0], 0.0])}),
    "the first sample is left out": (ppo_clip, {"sent": changed(A=lambda A: [0.0, A[1]])}),
    "the advantages are standardised first": (ppo_clip, {"sent": changed(A=lambda A: [1.0, -1.0])}),
    "the steps descend": (ppo_clip, {"sent": changed(eta=lambda eta: -eta)}),
    "only one pass is made": (ppo_clip, {"sent": changed(passes=lambda n: 1)}),
    "the interval reaches from 0.9 to 1.1": (ppo_clip, {"sent": changed(epsilon=lambda e: 0.1)}),
    "the score is one-hot alone: the normaliser of the softmax is held fixed": (ppo_clip, {"whole": False}),
    "the slope in log ρ is used as the slope in ρ: the factor ρ is missing": (flat, {}),
}


@functools.cache
def outcomes(student):
    """Return the right results, and the results of each mistake."""
    s = sample(student)
    return by_autograd(s), {what: by_autograd(s, slip, **more) for what, (slip, more) in SLIPS.items()}


def ask(sub, name, length):
    """Check a number or a list to a tolerance of 0.001, without revealing the right one."""
    got = sub.value(name)
    got = got.tolist() if isinstance(got, torch.Tensor) else got
    got = [got] if isinstance(got, int | float) else got
    if not isinstance(got, list | tuple) or len(got) != length:
        fail(f"`{name}` is not {'a number' if length == 1 else f'a list of {length} numbers'}")
    true, slips = outcomes(sub.student)
    right, wrong = true[name], {what: values[name] for what, values in slips.items()}
    if name == "moved":
        wrong["the passes without a gradient are counted"] = sample(sub.student)["passes"] - right
        for i, which in enumerate(("first", "second")):
            one_more = right + torch.eye(2, dtype=torch.float64)[i]
            if not any(torch.equal(one_more, value) for value in wrong.values()):
                wrong[f"one pass too many is counted for the {which} sample"] = one_more
    if name == "lowest":
        wrong["it is the decrease of the ratio, not the ratio"] = 1 - right
    expect(
        torch.tensor([float(x) for x in got], dtype=torch.float64),
        right,
        what=f"`{name}`",
        tolerance=0.001,
        reveal=False,
        mistakes={what: value for what, value in wrong.items() if float((value - right).abs().max()) > 0.002},
    )


@test(
    points=2,
    rounds=1,
    hints=(
        "For each sample decide whether its objective has a slope in ρ. If it has, the slope is A, and the gradient in the logits is A·ρ times "
        "the score, one-hot minus the probabilities.",
        "A ratio has no gradient only if it has moved too far in the direction of its advantage. The second sample's advantage is positive and "
        "its ratio falls, which is the opposite direction.",
    ),
)
def where_it_ends(sub, draw):
    "`ratios` are the ratios after the last pass."
    ask(sub, "ratios", 2)


@test(
    points=2,
    rounds=1,
    hints=(
        "Count, pass by pass and before the step, which of the two samples has a gradient.",
        "The first sample has no gradient when its ratio is above 1 + ε. It has one again when the second sample has taken probability from it.",
    ),
)
def who_moves(sub, draw):
    "`moved` counts the passes in which each sample had a gradient."
    ask(sub, "moved", 2)


@test(
    points=1,
    rounds=1,
    hints=(
        "If one action gains probability, the others lose it. Print the second ratio after each pass.",
        "It is smallest directly after a step of the first sample, usually an early step, not at the end.",
    ),
)
def how_low(sub, draw):
    "`lowest` is the second sample's smallest ratio."
    ask(sub, "lowest", 1)


# %% [shared]
# 0.1: an edge of the range of a personal number


# %% [mutant] clipped on both sides
# caught by: where_it_ends
# says: has no gradient
ratios, moved, lowest = simulate(sample(STUDENT), lambda rho, A, e: A if 1 - e <= rho <= 1 + e else 0.0)

# %% [mutant] not clipped
# caught by: where_it_ends
# says: nothing is clipped
ratios, moved, lowest = simulate(sample(STUDENT), lambda rho, A, e: A)

# %% [mutant] summed, not averaged
# caught by: where_it_ends
ratios, moved, lowest = simulate(sample(STUDENT) | {"eta": 2 * sample(STUDENT)["eta"]}, ppo)

# %% [mutant] the passes of one sample for both
# caught by: who_moves
moved = [moved[0], moved[0]]

# %% [mutant] the last ratio for the lowest
# caught by: how_low
lowest = ratios[1]

# %% [partial] 2: only where it ends
moved = None
lowest = None

# %% [partial] 4: all but the lowest
lowest = None
