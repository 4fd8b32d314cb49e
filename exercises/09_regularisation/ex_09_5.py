# ---
# title: Bug hunt: the controller that converges somewhere else
# kind: bughunt
# minutes: 25
# ---

# %% [statement]
# A policy over `N` completions is always at its optimum for the current β, $\pi \propto \pi_\text{ref}\,e^{r/\beta}$. A controller moves β so that $\mathrm{KL}(\pi\|\pi_\text{ref})$ becomes `target`:
#
# $$\beta' = \beta\,\big(1 + \eta\,\mathrm{clip}(\mathrm{KL}/\kappa - 1,\ -.2,\ .2)\big) .$$
#
# `regulate` returns one row for each step: the β that was *used* in it and the KL that resulted. It runs, and its reported KL even converges to the target. But the policy's actual KL is another number, and a larger initial β leads to a larger initial KL.
#
# **There are four bugs. Find and fix them.** Two of them hide each other: if you repair only one of these, the KL diverges. `minirlhf check 09.5 --picture mine.png` draws your KL beside the right one.

# %% [given]
import torch


# %% [stub]
def regulate(ref, rewards, beta, target, gain, steps):
    """ref: (N,) probabilities. rewards: (N,). beta: the first one. Returns (steps, 2): β used and KL."""
    rows = []
    for _ in range(steps):
        policy = torch.softmax(ref.log() + rewards * beta, -1)
        kl = (ref * (ref / policy).log()).sum()
        error = torch.clamp(1 - kl / target, -0.2, 0.2)
        beta = beta * (1 + gain * error)
        rows.append(torch.stack([torch.as_tensor(beta, dtype=kl.dtype), kl]))
    return torch.stack(rows)


# %% [solution]
def regulate(ref, rewards, beta, target, gain, steps):
    rows = []
    for _ in range(steps):
        logps = torch.log_softmax(ref.log() + rewards / beta, -1)  # finite where a probability is 0
        kl = (logps.exp() * (logps - ref.log())).sum()
        rows.append(torch.stack([torch.as_tensor(beta, dtype=kl.dtype), kl]))
        error = torch.clamp(kl / target - 1, -0.2, 0.2)
        beta = beta * (1 + gain * error)
    return torch.stack(rows)


# %% [tests]
import math

import torch
from minirlhf_course.classroom.testing import expect, fail, test, tidy, tidy_distribution


def problem(draw, size=4):
    """A reference, rewards that differ, a first β."""
    return tidy_distribution(draw, size), tidy(draw.permutation(size).double() / 2), [0.6, 0.9, 1.4][draw.integer(0, 2)]


def tilted(ref, rewards, power):
    """π ∝ π_ref e^(power · r), in plain numbers, and both divergences."""
    weights = [p * math.exp(power * r) for p, r in zip(ref.tolist(), rewards.tolist(), strict=True)]
    law = [w / sum(weights) for w in weights]
    reverse = sum(a * math.log(a / b) for a, b in zip(law, ref.tolist(), strict=True))
    forward = sum(b * math.log(b / a) for a, b in zip(law, ref.tolist(), strict=True))
    return reverse, forward


def loop(ref, rewards, beta, target, gain, steps, follows=False):
    """Return the rows, in plain numbers; with ``follows``, the rows of a reference that follows the policy."""
    rows = []
    for _ in range(steps):
        spent = tilted(ref, rewards, 1 / beta)[0]
        rows.append([beta, spent])
        ref = torch.softmax(ref.log() + rewards / beta, -1) if follows else ref
        beta *= 1 + gain * min(0.2, max(-0.2, spent / target - 1))
    return torch.tensor(rows, dtype=torch.float64)


@test(
    points=2,
    hints=(
        "Look at the first KL alone. Try β = 100: how far from the reference should the optimum be? And which distribution does the KL average over?",
        "Divide the rewards by β, and weight the logarithm by the policy: Σ π log(π/π_ref).",
    ),
)
def first_distance(sub, draw):
    "The first KL is the KL of the optimum for the initial β."
    ref, rewards, beta = problem(draw)
    reverse, forward = tilted(ref, rewards, 1 / beta)
    times_reverse, times_forward = tilted(ref, rewards, beta)
    rows = sub.regulate(ref, rewards, beta, 0.3, 0.1, 1)
    if not isinstance(rows, torch.Tensor) or rows.shape != (1, 2):
        fail(
            "after one step the result does not have the shape (1, 2); expected one row per step with the β used and the KL"
        )
    expect(
        rows[0, 1],
        reverse,
        what="the first KL",
        given={"ref": ref, "rewards": rewards, "beta": beta},
        mistakes={
            "rewards are multiplied by β, and the KL averages over the reference": times_forward,
            "rewards are multiplied by β, and a high β must keep the policy near the reference": times_reverse,
            "the KL averages over the reference, which is the forward KL": forward,
            "the columns are swapped": beta,
            "the logarithm of the reference is missing": tilted(ref, rewards / beta + ref - ref.log(), 1.0)[0],
            "it is the KL after β was changed": loop(ref, rewards, beta, 0.3, 0.1, 2)[1, 1],
        },
    )


@test(
    points=1,
    hints=(
        "Which β led to the first KL, the first or the second?",
        "Store the row *before* β is changed.",
    ),
)
def first_price(sub, draw):
    "The first row has the β that was used, which is the given one."
    ref, rewards, beta = problem(draw)
    rows = loop(ref, rewards, beta, 0.3, 0.1, 2)
    expect(
        sub.regulate(ref, rewards, beta, 0.3, 0.1, 2)[0, 0],
        beta,
        what="the first β",
        given={"ref": ref, "rewards": rewards, "beta": beta},
        mistakes={"this is the next β, which was not used yet": float(rows[1, 0])},
    )


@test(
    points=2,
    hints=(
        "The KL is above the target. Should β rise or fall?",
        "Use kl / target − 1: a KL above the target gives a positive error and a higher β.",
    ),
)
def next_price(sub, draw):
    "A KL above the target raises β, a KL below it lowers β, by a relative change of at most .2 η."
    ref, rewards, beta = problem(draw)
    spent = tilted(ref, rewards, 1 / beta)[0]
    gain = [0.1, 0.5, 0.9][draw.integer(0, 2)]
    for part in (0.4, 0.95, 1.07, 3.0):
        target = spent * part
        error = min(0.2, max(-0.2, 1 / part - 1))
        expect(
            sub.regulate(ref, rewards, beta, target, gain, 2)[1, 0],
            beta * (1 + gain * error),
            what="the second β",
            given={"ref": ref, "rewards": rewards, "beta": beta, "target": target, "gain": gain},
            mistakes={
                "a KL above the target lowers β": beta * (1 + gain * min(0.2, max(-0.2, 1 - 1 / part))),
                "the error is not clipped": beta * (1 + gain * (1 / part - 1)),
                "the error is KL − target, not divided by the target": beta
                * (1 + gain * min(0.2, max(-0.2, spent - target))),
                "the gain is inside the clip": beta * (1 + min(0.2, max(-0.2, gain * (1 / part - 1)))),
                "the change is added to β, not multiplied": beta + gain * error,
                "β is multiplied by an exponential, not by 1 + η·error": beta * math.exp(gain * error),
            },
        )
    surest = -math.log(float(ref[rewards.argmax()]))  # the KL of a policy that is certain
    for extreme, spent in ((0.001, surest), (50.0, tilted(ref, rewards, 1 / 50.0)[0])):
        target = 2 * spent
        expect(
            sub.aside.regulate(ref, rewards, extreme, target, 0.5, 2)[:, 0],
            torch.tensor([extreme, 0.9 * extreme], dtype=torch.float64),
            what="the first two values of β, far from 1,",
            given={"ref": ref, "rewards": rewards, "beta": extreme, "target": target, "gain": 0.5},
        )
        expect(
            sub.aside.regulate(ref, rewards, extreme, target, 0.5, 1)[0, 1],
            spent,
            what="the KL, with β far from 1,",
            given={"ref": ref, "rewards": rewards, "beta": extreme},
        )


@test(
    points=1,
    hints=(
        "Run it for a few hundred steps. Which β does it end with, and what is the KL of the optimum for this β?",
        "All four bugs must be fixed: the last KL is the target, and the optimum for the last β has this KL.",
    ),
)
def settles(sub, draw):
    "The KL converges to the target, at the β whose optimum has this KL."
    ref, rewards, beta = problem(draw, 3)
    target = 0.3 * min(1.5, -math.log(float(ref[rewards.argmax()])))
    three = sub.regulate(ref, rewards, beta, target, 0.5, 3)
    follows = loop(ref, rewards, beta, target, 0.5, 3, follows=True)
    expect(
        three,
        loop(ref, rewards, beta, target, 0.5, 3),
        what="the table of the first three steps",
        mistakes={"the reference follows the policy, and each KL is the KL of one step": follows},
    )
    rows = sub.regulate(ref, rewards, beta, target, 0.5, 150)
    given = {"ref": ref, "rewards": rewards, "beta": beta, "target": target}
    expect(rows[-1, 1], target, what="the KL after 150 steps", tolerance=1e-4, given=given)
    want = loop(ref, rewards, beta, target, 0.5, 150)[-1, 0]
    expect(rows[-1, 0], want, what="β after 150 steps", tolerance=1e-4, given=given)


# %% [picture]
from minirlhf_course.classroom.testing import Panel, Picture


def picture(sub):
    """KL and β over the steps."""
    ref, rewards = torch.tensor([0.4, 0.3, 0.2, 0.1]).double(), torch.tensor([0.0, 0.5, 1.0, 1.5]).double()
    yours = sub.regulate(ref, rewards, 0.4, 0.3, 0.5, 60).double()
    right = loop(ref, rewards, 0.4, 0.3, 0.5, 60)
    steps = torch.arange(60.0, dtype=torch.float64)
    panels = [Panel(name, steps, yours[:, k], right[:, k], "step", name) for k, name in ((1, "KL"), (0, "β"))]
    return Picture(
        "KL and β over 60 steps of the controller. Right: the KL converges to 0.3, from above.", tuple(panels)
    )


# %% [shared]
# 0.2: the bound of the correction, by the statement


# %% [probes]
# no offset of regulate: a controller may measure the KL by the rewards' own mean
# no gradient, keywords: a simulation
# no size: the number of steps is asked in all tests


# %% [mutant] the price is still a multiplier
# caught by: first_distance
# says: multiplied by β
def regulate(ref, rewards, beta, target, gain, steps):
    rows = []
    for _ in range(steps):
        policy = torch.softmax(ref.log() + rewards * beta, -1)
        kl = (policy * (policy / ref).log()).sum()
        rows.append(torch.stack([torch.as_tensor(beta, dtype=kl.dtype), kl]))
        beta = beta * (1 + gain * torch.clamp(kl / target - 1, -0.2, 0.2))
    return torch.stack(rows)


# %% [mutant] still the forward KL
# caught by: first_distance
# says: the forward KL
def regulate(ref, rewards, beta, target, gain, steps):
    rows = []
    for _ in range(steps):
        policy = torch.softmax(ref.log() + rewards / beta, -1)
        kl = (ref * (ref / policy).log()).sum()
        rows.append(torch.stack([torch.as_tensor(beta, dtype=kl.dtype), kl]))
        beta = beta * (1 + gain * torch.clamp(kl / target - 1, -0.2, 0.2))
    return torch.stack(rows)


# %% [mutant] the sign is left
# caught by: next_price
# says: lowers β
def regulate(ref, rewards, beta, target, gain, steps):
    rows = []
    for _ in range(steps):
        policy = torch.softmax(ref.log() + rewards / beta, -1)
        kl = (policy * (policy / ref).log()).sum()
        rows.append(torch.stack([torch.as_tensor(beta, dtype=kl.dtype), kl]))
        beta = beta * (1 + gain * torch.clamp(1 - kl / target, -0.2, 0.2))
    return torch.stack(rows)


# %% [mutant] the next price is stored
# caught by: first_price
# says: not used yet
def regulate(ref, rewards, beta, target, gain, steps):
    rows = []
    for _ in range(steps):
        policy = torch.softmax(ref.log() + rewards / beta, -1)
        kl = (policy * (policy / ref).log()).sum()
        beta = beta * (1 + gain * torch.clamp(kl / target - 1, -0.2, 0.2))
        rows.append(torch.stack([torch.as_tensor(beta, dtype=kl.dtype), kl]))
    return torch.stack(rows)


# %% [mutant] no clip
# caught by: next_price
# says: not clipped
def regulate(ref, rewards, beta, target, gain, steps):
    rows = []
    for _ in range(steps):
        policy = torch.softmax(ref.log() + rewards / beta, -1)
        kl = (policy * (policy / ref).log()).sum()
        rows.append(torch.stack([torch.as_tensor(beta, dtype=kl.dtype), kl]))
        beta = beta * (1 + gain * (kl / target - 1))
    return torch.stack(rows)


# %% [partial] 3: the policy is right, the controller is not
def regulate(ref, rewards, beta, target, gain, steps):
    rows = []
    for _ in range(steps):
        policy = torch.softmax(ref.log() + rewards / beta, -1)
        kl = (policy * (policy / ref).log()).sum()
        rows.append(torch.stack([torch.as_tensor(beta, dtype=kl.dtype), kl]))
        beta = beta * (1 + gain * torch.clamp(1 - kl / target, -0.2, 0.2))
    return torch.stack(rows)
