# ---
# title: GRPO, from rewards to one number
# kind: implement
# minutes: 40
# ---

# %% [statement]
# For each of $P$ prompts, $G$ completions were sampled. The rows of a batch are prompt-major: first the $G$ completions of the first prompt, then the
# $G$ completions of the second, and so on. Write GRPO in three functions.
#
# 1. `advantages(rewards)`, for `rewards` of shape `(P, G)`: $A_i = (r_i - \bar r) / (\sigma + 10^{-4})$ with the mean and standard deviation of the
#    *group*. Use the population's standard deviation (divisor $G$). A group of equal rewards gets exact zeros.
# 2. `token_objective(logps, old_logps, ref_logps, advantages, epsilon, beta)`, for log-probabilities of shape `(B, T)` and `advantages` of shape
#    `(P, G)`: at every token
#
#    $$ \min\big(\rho A,\; \mathrm{clip}(\rho, 1 - \varepsilon, 1 + \varepsilon)\,A\big) - \beta\,\big(e^{u} - 1 - u\big), $$
#
#    where $\rho = \pi / \pi_\text{old}$ and $u = \log\pi_\text{ref} - \log\pi$.
#
#    Returns `(B, T)`. Values on padding are not checked.
# 3. `loss(objective, mask)`: minus the mean over completions of each completion's mean over its own tokens. `mask` is `(B, T)` bool. Where it is False,
#    `objective` may hold anything, NaN included.

# %% [given]
import torch


# %% [stub]
def advantages(rewards):
    """Rewards centred and scaled in their group. (P, G) -> (P, G)."""
    raise NotImplementedError


def token_objective(logps, old_logps, ref_logps, advantages, epsilon, beta):
    """The clipped objective minus the KL penalty. logps, old_logps, ref_logps: (B, T). advantages: (P, G). Returns (B, T)."""
    raise NotImplementedError


def loss(objective, mask):
    """Minus the mean over completions of their mean over tokens. Returns one number."""
    raise NotImplementedError


# %% [solution]
def advantages(rewards):
    centred = rewards - rewards.mean(-1, keepdim=True)
    deviation = rewards.std(-1, correction=0, keepdim=True)
    alive = rewards.amax(-1, keepdim=True) > rewards.amin(-1, keepdim=True)
    return torch.where(alive, centred / (deviation + 1e-4), 0.0)


def token_objective(logps, old_logps, ref_logps, advantages, epsilon, beta):
    a = advantages.reshape(-1, 1)
    ratio = (logps - old_logps).exp()
    clipped = torch.minimum(ratio * a, ratio.clamp(1 - epsilon, 1 + epsilon) * a)
    u = ref_logps - logps
    return clipped - beta * (u.exp() - 1 - u)


def loss(objective, mask):
    kept = torch.where(mask, objective, 0.0)
    return -(kept.sum(-1) / mask.sum(-1)).mean()


# %% [tests]
import math
import statistics

import torch
from minirlhf_course.classroom.testing import expect, test, tidy


def graded(draw):
    """Return three groups of four: arbitrary rewards, rewards 0 and 1, and equal rewards."""
    rewards = tidy(draw.uniform(3, 4, low=-1, high=2))
    rewards[1] = torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64)[draw.permutation(4)]
    rewards[2] = rewards[2, 0]
    return rewards


@test(
    points=1,
    against="Python's own statistics, reward by reward",
    hints=(
        "Mean and standard deviation have one value per prompt. Which axis is the group, and does the result still line up with the rewards?",
        "Keep the reduced axis (`keepdim=True`), take the standard deviation with divisor G (`correction=0`), and check where the small number is added.",
    ),
)
def relative(sub, draw):
    "`advantages` compares each reward with its group, in units of the group's standard deviation."
    rewards = graded(draw)
    want = [
        [(r - statistics.fmean(row)) / (statistics.pstdev(row) + 1e-4) for r in row] for row in rewards[:2].tolist()
    ]
    centred = rewards - rewards.mean(-1, keepdim=True)
    whole = (rewards - rewards.mean()) / (rewards.std(correction=0) + 1e-4)
    sample = centred / (rewards.std(-1, keepdim=True) + 1e-4)
    variance = centred / (rewards.var(-1, correction=0, keepdim=True) + 1e-4)
    expect(
        sub.advantages(rewards),
        torch.tensor([*want, [0.0] * 4], dtype=torch.float64),
        what="the advantages",
        given={"rewards": rewards},
        mistakes={
            "mean and standard deviation are those of the whole batch": whole,
            "the sample standard deviation is used, with divisor G − 1": sample,
            "the columns are used as the groups": (rewards - rewards.mean(0)) / (rewards.std(0, correction=0) + 1e-4),
            "the small number is added under the root": centred
            / (rewards.var(-1, correction=0, keepdim=True) + 1e-4).sqrt(),
            "the rewards are centred, not scaled": centred,
            "the mean is the group's, the standard deviation is the batch's": centred
            / (rewards.std(correction=0) + 1e-4),
            "the small number is a lower bound, and is not added": centred
            / rewards.std(-1, correction=0, keepdim=True).clamp(min=1e-4),
            "it is divided by the variance, not by the standard deviation": variance,
        },
    )


@test(
    points=1,
    hints=(
        "In float32 the mean of seven equal numbers need not be that number. What does 10⁻⁴ make of a rounding error of 10⁻⁴?",
        "Test the rewards themselves: in a group of equal rewards the largest equals the smallest. Put zeros there.",
    ),
)
def alike(sub, draw):
    "`advantages` gives a group of equal rewards zeros, exactly, in float32 as well."
    rewards = (1000 * draw.uniform(12, 1, low=0.1, high=1.0)).float().expand(12, 7).contiguous()
    got = sub.advantages(rewards)
    rounded = rewards - rewards.mean(-1, keepdim=True)
    expect(
        got,
        torch.zeros(12, 7, dtype=torch.float64),
        what="the advantages of groups of equal rewards",
        given={"rewards of a group": rewards[0]},
        mistakes={
            "the rounding error of the mean is divided by nearly 0": rounded
            / (rewards.std(-1, correction=0, keepdim=True) + 1e-4)
        },
        tolerance=0.0,
    )


def batch(draw, twice=None):
    """Return two groups of two, three tokens; with an axis of the advantages, twice as many along it: ratios below, inside and above the clip, with both signs of the advantage."""
    size = tidy(draw.uniform(2, 2, low=0.4, high=0.9)) + torch.tensor([[0.0, 0.6], [0.0, 0.0]])  # never symmetric
    a = size * torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
    ratios = torch.tensor([[0.5, 1.05, 1.9]], dtype=torch.float64) + tidy(draw.uniform(4, 3, low=-0.04, high=0.05), 2)
    if twice is not None:
        ratios, a = torch.cat([ratios, ratios.flip(0)]), torch.cat([a, 0.5 * a.flip(0)], twice)
    old_logps = -tidy(draw.uniform(*ratios.shape, low=0.5, high=2.0))
    ref_logps = -tidy(draw.uniform(*ratios.shape, low=0.5, high=2.0))
    return old_logps + ratios.log(), old_logps, ref_logps, a


def written_out(logps, old_logps, ref_logps, a, epsilon, beta, worse=min):
    """Token by token, with numbers."""
    rows = []
    for i, signed in enumerate(a.flatten().tolist()):
        row = []
        for lp, old, ref in zip(logps[i].tolist(), old_logps[i].tolist(), ref_logps[i].tolist(), strict=True):
            ratio = math.exp(lp - old)
            held = max(1 - epsilon, min(1 + epsilon, ratio))
            row.append(worse(ratio * signed, held * signed) - beta * (math.exp(ref - lp) - 1 - (ref - lp)))
        rows.append(row)
    return torch.tensor(rows, dtype=torch.float64)


@test(
    points=2,
    against="the formula, token by token",
    hints=(
        "Take a token with A < 0 and a ratio far above 1. Does the clip act, or does the minimum keep the unclipped term?",
        "Rows are prompt-major, so `advantages.reshape(-1, 1)` lines up with them. Take the minimum of the two products, not only the product with the clipped ratio.",
    ),
)
def clipped(sub, draw):
    "`token_objective` without a penalty is the minimum of the clipped and the unclipped term."
    for twice in (None, 0, 1):
        _clipped(sub, *batch(draw, twice))


def _clipped(sub, logps, old_logps, ref_logps, a):
    inputs = (logps, old_logps, ref_logps, a, 0.2, 0.0)
    ratio = (logps - old_logps).exp()
    expect(
        sub.token_objective(*inputs),
        written_out(*inputs),
        what="the objective at β = 0",
        given={"ratio": ratio, "advantages": a},
        mistakes={
            "the larger of the two terms is taken": written_out(*inputs, worse=max),
            "the ratio is clipped on both sides, whatever the unclipped term says": ratio.clamp(0.8, 1.2)
            * a.reshape(-1, 1),
            "the ratio is upside down": written_out(old_logps, logps, ref_logps, a, 0.2, 0.0),
            "nothing is clipped": ratio * a.reshape(-1, 1),
            "rows are taken sample-major": written_out(logps, old_logps, ref_logps, a.T.reshape(a.shape), 0.2, 0.0),
        },
    )


@test(
    points=1,
    hints=(
        "The penalty is never negative, and 0 where policy and reference agree. Which of the two log-probabilities is subtracted?",
        "u is log π_ref minus log π. The penalty is subtracted from what is maximised.",
    ),
)
def leash(sub, draw):
    "With β, the penalty β (e^u − 1 − u) is subtracted from the objective; u = log π_ref − log π."
    logps, old_logps, ref_logps, a = batch(draw)
    beta = [0.5, 2.0][draw.integer(0, 1)]
    inputs = (logps, old_logps, ref_logps, a, 0.2, beta)
    free = written_out(*inputs[:-1], 0.0)
    penalty = (free - written_out(*inputs)) / beta
    back = (logps - ref_logps).exp() - 1 - (logps - ref_logps)
    expect(
        sub.token_objective(*inputs),
        written_out(*inputs),
        what="the objective with a penalty",
        given={"logps": logps, "ref_logps": ref_logps, "beta": beta},
        mistakes={
            "u has the wrong sign: that is log π − log π_ref": free - beta * back,
            "the penalty is added": free + beta * penalty,
            "the plain log-ratio is subtracted": free - beta * (logps - ref_logps),
        },
    )


@test(
    points=2,
    hints=(
        "There are two means, one inside the other. How much does each completion count, however long it is?",
        "First replace the values outside the mask (0 times NaN is NaN), divide each row's sum by its own number of tokens, then take the mean.",
    ),
)
def one_number(sub, draw):
    "`loss` is minus the mean over completions of each completion's mean over its tokens."
    widths = [2, 5, draw.integer(3, 4)]
    mask = torch.arange(5) < torch.tensor(widths)[:, None]
    numbers = tidy(draw.uniform(3, 5, low=-2, high=2)) + torch.tensor([[1.0], [0.0], [-1.0]], dtype=torch.float64)
    rows = [row[:n] for row, n in zip(numbers.tolist(), widths, strict=True)]
    everything = [x for row in rows for x in row]
    expect(
        sub.loss(torch.where(mask, numbers, torch.nan), mask),
        -statistics.fmean(statistics.fmean(row) for row in rows),
        what="the loss",
        given={"objective": numbers, "mask": mask},
        mistakes={
            "every token of the batch counts the same": -statistics.fmean(everything),
            "the sign is wrong: this is an objective, but an optimiser minimises": statistics.fmean(
                map(statistics.fmean, rows)
            ),
            "padding is counted as tokens": -sum(everything) / 15,
            "padding reaches the sum (0 · NaN is NaN)": torch.tensor(torch.nan, dtype=torch.float64),
        },
    )


# %% [probes]
# no gradient of advantages: they are data
# no gradient of token_objective.old_logps, token_objective.ref_logps, token_objective.advantages: data, cut off or not


# %% [mutant] statistics of the batch
# caught by: relative
# says: those of the whole batch
def advantages(rewards):
    return (rewards - rewards.mean()) / (rewards.std(correction=0) + 1e-4)


# %% [mutant] divisor G − 1
# caught by: relative
# says: the sample standard deviation
def advantages(rewards):
    return (rewards - rewards.mean(-1, keepdim=True)) / (rewards.std(-1, keepdim=True) + 1e-4)


# %% [mutant] a group that is all alike is divided by a small number
# caught by: alike
# says: rounding error
def advantages(rewards):
    return (rewards - rewards.mean(-1, keepdim=True)) / (rewards.std(-1, correction=0, keepdim=True) + 1e-4)


# %% [mutant] the maximum
# caught by: clipped
# says: the larger of the two
def token_objective(logps, old_logps, ref_logps, advantages, epsilon, beta):
    a, ratio, u = advantages.reshape(-1, 1), (logps - old_logps).exp(), ref_logps - logps
    return torch.maximum(ratio * a, ratio.clamp(1 - epsilon, 1 + epsilon) * a) - beta * (u.exp() - 1 - u)


# %% [mutant] rows taken sample-major
# caught by: clipped
# says: sample-major
def token_objective(logps, old_logps, ref_logps, advantages, epsilon, beta):
    a, ratio, u = advantages.T.reshape(-1, 1), (logps - old_logps).exp(), ref_logps - logps
    return torch.minimum(ratio * a, ratio.clamp(1 - epsilon, 1 + epsilon) * a) - beta * (u.exp() - 1 - u)


# %% [mutant] the KL reversed
# caught by: leash
# says: wrong sign
def token_objective(logps, old_logps, ref_logps, advantages, epsilon, beta):
    a, ratio, u = advantages.reshape(-1, 1), (logps - old_logps).exp(), logps - ref_logps
    return torch.minimum(ratio * a, ratio.clamp(1 - epsilon, 1 + epsilon) * a) - beta * (u.exp() - 1 - u)


# %% [mutant] the token mean
# caught by: one_number
# says: counts the same
def loss(objective, mask):
    return -objective[mask].mean()


# %% [mutant] NaN on padding reaches the sum
# caught by: one_number
# says: NaN
def loss(objective, mask):
    return -((objective * mask).sum(-1) / mask.sum(-1)).mean()


# %% [partial] 2: the advantages only
def token_objective(logps, old_logps, ref_logps, advantages, epsilon, beta):
    raise NotImplementedError


def loss(objective, mask):
    raise NotImplementedError


# %% [partial] 6: the KL forgotten
def token_objective(logps, old_logps, ref_logps, advantages, epsilon, beta):
    a, ratio = advantages.reshape(-1, 1), (logps - old_logps).exp()
    return torch.minimum(ratio * a, ratio.clamp(1 - epsilon, 1 + epsilon) * a)
