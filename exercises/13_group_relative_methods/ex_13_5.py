# ---
# title: Bug hunt: rewards of another prompt
# kind: bughunt
# minutes: 30
# ---

# %% [statement]
# An inference engine samples `G` completions for each of `P` prompts. It returns them **sample-major**: first one completion of every prompt, then a second one of every
# prompt, and so on. So row `i` belongs to prompt `i % P`. The code below turns their rewards into advantages and a KL penalty. It runs without an error, and three things
# go wrong. In the first run the model learned hardly anything. With prompts that are always solved, all weights became NaN. With a KL penalty the policy left the
# reference, faster with a larger `beta`.
#
# **There are three bugs. Find and fix them.**
#
# * `group_advantages(rewards, num_prompts)`: rewards `(B,)` in the engine's order. Returns `(B,)`, in the same order: each reward, centred and divided by the (sample) standard
#   deviation of the rewards *of its prompt*. A group of equal rewards gets zeros. Add no small number to the standard deviation.
# * `penalised(objective, logps, ref_logps, beta)`, all `(B, T)`: what is **maximised**: the objective minus `beta` times the estimate
#   $e^u - 1 - u$, $u = \log\pi_\text{ref} - \log\pi$, of $\mathrm{KL}(\pi\|\pi_\text{ref})$ at every token.

# %% [given]
import torch


# %% [stub]
def group_advantages(rewards, num_prompts):
    """rewards: (B,), row i belongs to prompt i % num_prompts. Returns (B,)."""
    groups = rewards.view(num_prompts, -1)
    centred = groups - groups.mean(-1, keepdim=True)
    return (centred / groups.std(-1, keepdim=True)).flatten()


def penalised(objective, logps, ref_logps, beta):
    """What is maximised, with the KL penalty. All (B, T)."""
    u = ref_logps - logps
    return objective + beta * (u.exp() - 1 - u)


# %% [solution]
def group_advantages(rewards, num_prompts):
    groups = rewards.view(-1, num_prompts).T
    centred = groups - groups.mean(-1, keepdim=True)
    deviation = groups.std(-1, keepdim=True)
    alive = groups.amax(-1, keepdim=True) > groups.amin(-1, keepdim=True)
    scaled = torch.where(alive, centred / torch.where(alive, deviation, 1.0), 0.0)
    return scaled.T.flatten()


def penalised(objective, logps, ref_logps, beta):
    u = ref_logps - logps
    return objective - beta * (u.exp() - 1 - u)


# %% [tests]
import math
import statistics

import torch
from minirlhf_course.classroom.testing import expect, test, tidy


def by_hand(rewards, prompts):
    """Prompt by prompt, from lists."""
    values, found = rewards.tolist(), [0.0] * len(rewards)
    for prompt in range(prompts):
        rows = range(prompt, len(values), prompts)
        mine = [values[i] for i in rows]
        if len(set(mine)) > 1:
            for i in rows:
                found[i] = (values[i] - statistics.fmean(mine)) / statistics.stdev(mine)
    return torch.tensor(found, dtype=torch.float64)


def prompt_major(rewards, prompts):
    groups = rewards.view(prompts, -1)
    return ((groups - groups.mean(-1, keepdim=True)) / groups.std(-1, keepdim=True)).flatten()


@test(
    points=3,
    hints=(
        "Give every prompt its own constant reward plus a little noise. Which rows should be compared with each other?",
        "`view(P, G)` puts neighbouring rows into one group, but here they belong to different prompts. View as (G, P) and transpose. Transpose the result back.",
    ),
)
def of_its_own_prompt(sub, draw):
    "Each completion is compared with the completions of its own prompt, and the result has the engine's order."
    prompts, size = 3, draw.integer(4, 5)
    level = tidy(draw.uniform(3, low=-2, high=2))
    rewards = (tidy(draw.uniform(size, 3, low=-1, high=1)) + level).flatten()
    right = by_hand(rewards, prompts)
    turned = right.view(size, prompts).T.flatten()
    expect(
        sub.group_advantages(rewards, prompts),
        right,
        what="the advantages",
        given={"rewards": rewards, "num_prompts": prompts},
        tolerance=5e-3,  # a small number in the denominator is the next test's business
        mistakes={
            "neighbouring rows are treated as one group, but they belong to different prompts": prompt_major(
                rewards, prompts
            ),
            "the advantages are right but in another order than the rows": turned,
            "the standard deviation is the population's, with divisor G": right * (size / (size - 1)) ** 0.5,
            "mean and standard deviation are those of the batch": (rewards - rewards.mean()) / rewards.std(),
        },
    )


@test(
    points=2,
    hints=(
        "What is the standard deviation of 1, 1, 1, 1? And 0 divided by it?",
        "Where the largest reward of a group equals its smallest, return 0 without dividing. A small number in the denominator would change the other groups.",
    ),
)
def solved(sub, draw):
    "A group of equal rewards has advantage 0, and the other groups are divided by exactly their standard deviation."
    rewards = torch.ones(4, 3, dtype=torch.float64)
    rewards[:, 1] = torch.tensor([1.0, 0.0, 0.0, 1.0], dtype=torch.float64)[draw.permutation(4)]
    rewards[:, 2] = float(draw.integer(0, 1))
    flat = rewards.flatten()
    right = by_hand(flat, 3)
    blown = torch.where(right == 0, torch.nan, right)
    expect(
        sub.group_advantages(flat, 3),
        right,
        what="the advantages with prompts that are always solved, or never",
        given={"rewards": flat, "num_prompts": 3},
        tolerance=1e-7,
        mistakes={
            "0 is divided by 0 where all rewards of a prompt are equal": blown,
        }
        | {
            f"a small number, {small:g}, was added to the standard deviation": right / (1 + small / 0.5773502691896258)
            for small in (1e-4, 1e-5, 1e-6)
        },
    )


@test(
    points=2,
    hints=(
        "What is maximised? Should distance from the reference raise it or lower it?",
        "The estimate itself is right: it is never negative, and 0 where the two agree. The code uses it with a wrong sign.",
    ),
)
def held(sub, draw):
    "`penalised` subtracts a penalty for the distance from the reference."
    objective, logps = tidy(draw.normal(2, 3)), -tidy(draw.uniform(2, 3, low=0.3, high=2.0))
    ref_logps = logps + tidy(draw.uniform(2, 3, low=0.2, high=0.9)) * torch.tensor(
        [1.0, -1.0, 1.0], dtype=torch.float64
    )
    beta = [0.5, 2.0][draw.integer(0, 1)]
    charge = [
        [math.exp(b - a) - 1 - (b - a) for a, b in zip(x, y, strict=True)]
        for x, y in zip(logps.tolist(), ref_logps.tolist(), strict=True)
    ]
    charge = torch.tensor(charge, dtype=torch.float64)
    back = (logps - ref_logps).exp() - 1 - (logps - ref_logps)
    expect(
        sub.penalised(objective, logps, ref_logps, beta),
        objective - beta * charge,
        what="the objective with its penalty",
        given={"objective": objective, "logps": logps, "ref_logps": ref_logps, "beta": beta},
        mistakes={
            "distance is rewarded: the KL has the wrong sign": objective + beta * charge,
            "u is reversed: the expectation is then not KL(π‖π_ref)": objective - beta * back,
            "β is squared": objective - beta**2 * charge,
            "u is reversed, and the sign is still wrong": objective + beta * back,
        },
    )


# %% [probes]
# no gradient of group_advantages: they are data
# no gradient of penalised.ref_logps: data, cut off or not


# %% [mutant] turned there, not back
# caught by: of_its_own_prompt
# says: another order
def group_advantages(rewards, num_prompts):
    groups = rewards.view(-1, num_prompts).T
    centred = groups - groups.mean(-1, keepdim=True)
    return (centred / groups.std(-1, keepdim=True)).flatten()


# %% [mutant] still neighbours
# caught by: of_its_own_prompt
# says: neighbouring rows
def group_advantages(rewards, num_prompts):
    groups = rewards.view(num_prompts, -1)
    return ((groups - groups.mean(-1, keepdim=True)) / (groups.std(-1, keepdim=True))).flatten()


# %% [mutant] NaN in solved groups
# caught by: solved
# says: holds NaN
def group_advantages(rewards, num_prompts):
    groups = rewards.view(-1, num_prompts)
    return ((groups - groups.mean(0)) / groups.std(0)).flatten()


# %% [mutant] an epsilon hides the zero-variance groups
# caught by: solved
# says: a small number
def group_advantages(rewards, num_prompts):
    groups = rewards.view(-1, num_prompts)
    return ((groups - groups.mean(0)) / (groups.std(0) + 1e-4)).flatten()


# %% [mutant] the spring
# caught by: held
# says: distance is rewarded
def penalised(objective, logps, ref_logps, beta):
    u = ref_logps - logps
    return objective + beta * (u.exp() - 1 - u)


# %% [mutant] u reversed instead
# caught by: held
# says: u is reversed
def penalised(objective, logps, ref_logps, beta):
    u = logps - ref_logps
    return objective - beta * (u.exp() - 1 - u)


# %% [partial] 5: the groups are right, the penalty is still a reward
def penalised(objective, logps, ref_logps, beta):
    u = ref_logps - logps
    return objective + beta * (u.exp() - 1 - u)
