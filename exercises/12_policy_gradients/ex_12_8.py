# ---
# title: PPO that does not forget
# kind: derive
# minutes: 30
# ---

# %% [statement]
# PPO-ptx adds the likelihood of pretraining texts to the objective. Write its loss, and find out what the term keeps. $c_\text{ptx}$ is `ptx_coef`, above 0.
#
# 1. `ptx_loss(text_logps, text_mask, ptx_coef)`: minus $c_\text{ptx}$ times the mean over the texts of $\log\pi(x)$, where $\log\pi(x)$ is the *sum* over the tokens of the text. Both tensors are `(N, S)`, one row per text; `text_mask` is bool and True on its tokens, at least one in each row. Where it is
#    False, `text_logps` may hold anything, NaN included. Returns one number.
# 2. `total_loss(logps, old_logps, advantages, mask, text_logps, text_mask, epsilon, ptx_coef)`: what an optimiser minimises. The first part is minus the mean of PPO's clipped objective $\min\big(\rho A,\,\operatorname{clip}(\rho, 1-\epsilon, 1+\epsilon)\,A\big)$ over *all* tokens of the completions
#    (not first over each completion); `logps`, `old_logps`, `advantages` and the bool `mask` are `(B, T)`. The second part is `ptx_loss` of the texts, which have another number of rows and columns. Padding may hold anything in both. A test differentiates.
# 3. `best_policy(rewards, texts, ptx_coef)`: one prompt has $K$ possible completions with `rewards`, `(K,)`, and the pretraining texts are these completions, with the probabilities `texts`, `(K,)`, all above 0, which sum to 1. Derive the policy that maximises
#
#    $$\sum_i \pi_i\,r_i + c_\text{ptx}\sum_i q_i \log\pi_i, \qquad \textstyle\sum_i\pi_i = 1,$$
#
#    where $q$ are the texts. Return it as a tensor `(K,)`, right to five decimals. One number in it has no formula; find it by bisection. All rewards may be equal, and $c_\text{ptx}$ may be small (0.001) or large (1000).
#
# Compare 3 with the optimum of a KL penalty of the same weight: what does each leave of a text whose reward is far below all others?

# %% [given]
import torch


# %% [stub]
def ptx_loss(text_logps, text_mask, ptx_coef):
    """text_logps: (N, S). text_mask: (N, S) bool. ptx_coef: a number. Returns one number."""
    raise NotImplementedError


def total_loss(logps, old_logps, advantages, mask, text_logps, text_mask, epsilon, ptx_coef):
    """logps, old_logps, advantages: (B, T). mask: (B, T) bool. The texts: (N, S). Returns one number."""
    raise NotImplementedError


def best_policy(rewards, texts, ptx_coef):
    """rewards, texts: (K,). ptx_coef: a number above 0. Returns (K,)."""
    raise NotImplementedError


# %% [solution]
def ptx_loss(text_logps, text_mask, ptx_coef):
    return -ptx_coef * torch.where(text_mask, text_logps, 0.0).sum(-1).mean()


def total_loss(logps, old_logps, advantages, mask, text_logps, text_mask, epsilon, ptx_coef):
    log_ratio, a = torch.where(mask, logps - old_logps, 0.0), torch.where(mask, advantages, 0.0)
    ratio = log_ratio.exp()
    objective = torch.minimum(ratio * a, ratio.clamp(1 - epsilon, 1 + epsilon) * a)
    return -objective.sum() / mask.sum() + ptx_loss(text_logps, text_mask, ptx_coef)


def best_policy(rewards, texts, ptx_coef):
    # The derivative in π_i is r_i + c q_i/π_i, the same number for all i, so π_i = c q_i/(number − r_i).
    below = rewards.double() - rewards.double().max()  # ≤ 0
    low, high = 0.0, float(ptx_coef)  # of number − max r: the probabilities sum to more and less than 1
    for _ in range(200):
        middle = (low + high) / 2
        policy = ptx_coef * texts.double() / (middle - below)
        low, high = (middle, high) if policy.sum() > 1 else (low, middle)
    return (ptx_coef * texts.double() / (high - below)).to(rewards.dtype)


# %% [tests]
import math
import statistics

import torch

from minirlhf.core import exact
from minirlhf_course.classroom.testing import expect, test, tidy, tidy_distribution


def texts(draw):
    """Log-probabilities (4, 5) and mask of texts with unequal lengths, and the log-probabilities of each text."""
    widths = torch.tensor([2, 5, draw.integer(3, 4), 1])[draw.permutation(4)]
    mask = torch.arange(5) < widths[:, None]
    logps = -tidy(draw.uniform(4, 5, low=0.2, high=3.0))
    rows = [row[:n] for row, n in zip(logps.tolist(), widths.tolist(), strict=True)]
    return torch.where(mask, logps, torch.nan), mask, rows


@test(
    points=2,
    against="text by text, in plain numbers",
    hints=(
        "What is log π(x) of a text of four tokens? Is the mean then taken over tokens or over texts?",
        "Replace values outside the mask by 0 before you add (0 times NaN is NaN), sum over each row, and take the mean over the rows. A loss is minimised, so its sign is negative.",
    ),
)
def unlearned(sub, draw):
    "`ptx_loss` is minus the weighted mean log-probability of a text."
    logps, mask, rows = texts(draw)
    coef = [0.3, 27.8][draw.integer(0, 1)]
    every = [x for row in rows for x in row]
    want = -coef * statistics.fmean(map(sum, rows))
    expect(
        sub.ptx_loss(logps, mask, coef),
        want,
        what="the loss",
        given={"text_logps": logps, "text_mask": mask, "ptx_coef": coef},
        mistakes={
            "the mean is taken over all tokens": -coef * statistics.fmean(every),
            "each text counts by its mean over tokens, not by their sum": -coef
            * statistics.fmean(map(statistics.fmean, rows)),
            "the texts are summed, but their mean is required": -coef * sum(every),
            "the sign is wrong: this is an objective, not a loss": -want,
            "the coefficient is left out": want / coef,
            "padding is counted as tokens": -coef * sum(every) / mask.numel(),
            "probabilities are added, not their logarithms": -coef
            * statistics.fmean(sum(map(math.exp, row)) for row in rows),
        },
    )


def rollout(draw):
    """Completions (2, 4) with ratios below, inside and above the clip and both signs; and the terms of each token."""
    mask = torch.tensor([[True, True, True, True], [True, True, True, False]])
    sign = torch.tensor([[1.0, -1.0, 1.0, -1.0], [-1.0, 1.0, -1.0, 1.0]], dtype=torch.float64)
    a = sign * tidy(draw.uniform(2, 4, low=0.5, high=1.5))
    base = torch.tensor([[0.5, 0.6, 1.05, 1.9], [0.95, 1.7, 1.6, 1.0]], dtype=torch.float64)
    ratios = base + tidy(draw.uniform(2, 4, low=-0.04, high=0.05), 2)
    old = -tidy(draw.uniform(2, 4, low=0.5, high=2.0))
    hide = lambda x: torch.where(mask, x, torch.nan)
    return hide(old + ratios.log()), hide(old), hide(a), mask, ratios


def clipped(ratios, a, mask, epsilon, worse=min, clip=True):
    """The objective of each token that was sampled, row by row."""
    rows = []
    for some in zip(ratios.tolist(), a.tolist(), mask.tolist(), strict=True):
        held = [
            (r, max(1 - epsilon, min(1 + epsilon, r)) if clip else r, x) for r, x, on in zip(*some, strict=True) if on
        ]
        rows.append([worse(r * x, h * x) for r, h, x in held])
    return rows


@test(
    points=2,
    against="token by token, in plain numbers",
    hints=(
        "How many tokens does the first mean have, and how many texts the second? Neither part knows the size of the other.",
        "Minus the mean of the clipped objective over the tokens where `mask` is True, plus `ptx_loss`. Replace padding before you compute, so that neither value nor gradient meets NaN.",
    ),
)
def together(sub, draw):
    "`total_loss` is PPO's loss plus the loss of the texts."
    logps, old_logps, a, mask, ratios = rollout(draw)
    text_logps, text_mask, rows = texts(draw)
    epsilon, coef = [0.2, 0.3][draw.integer(0, 1)], [0.4, 1.5][draw.integer(0, 1)]
    tokens = clipped(ratios, a, mask, epsilon)
    flat = [x for row in tokens for x in row]
    policy, text = -statistics.fmean(flat), -coef * statistics.fmean(map(sum, rows))
    mean_of = lambda **how: -statistics.fmean(x for row in clipped(ratios, a, mask, epsilon, **how) for x in row)
    count, spoken = sum(map(len, rows)), len(flat)
    expect(
        sub.total_loss(logps, old_logps, a, mask, text_logps, text_mask, epsilon, coef),
        policy + text,
        what="the loss",
        given={
            "ratio": ratios,
            "advantages": a,
            "mask": mask,
            "text_logps": text_logps,
            "epsilon": epsilon,
            "ptx_coef": coef,
        },
        mistakes={
            "the texts become less probable: their term has the wrong sign": policy - text,
            "the policy's part has the wrong sign": text - policy,
            "the texts are left out": policy,
            "the texts are weighted by 1": policy + text / coef,
            "ptx_coef weighs the policy's part, too": coef * policy + text,
            "both parts are divided by the tokens of both": (policy * spoken + text * len(rows)) / (spoken + count),
            "each completion has its own mean first": text - statistics.fmean(map(statistics.fmean, tokens)),
            "the policy's part is a sum over tokens": text + policy * spoken,
            "padding is counted in the mean": text + policy * spoken / mask.numel(),
            "nothing is clipped": text + mean_of(clip=False),
            "the larger of the two terms is taken": text + mean_of(worse=max),
            "the clipped term is taken alone": text + mean_of(worse=lambda free, held: held),
        },
    )


def stationary(rewards, q, coef):
    """The policy where the derivatives r + c q/π are equal, by bisection: what mistakes about r, q and c lead to."""
    low, high = 0.0, coef
    for _ in range(60):
        middle = (low + high) / 2
        policy = coef * q / (middle + rewards.max() - rewards)
        low, high = (middle, high) if policy.sum() > 1 else (low, middle)
    return policy


def penalty(rewards, q, coef):
    return (q.log() + rewards / coef).softmax(-1)


@test(
    points=3,
    against="the optimum found by search",
    hints=(
        "At the optimum the derivative of the objective in π_i is the same number for every i: why? Write the derivative down.",
        "r_i + c q_i/π_i = μ for all i, so π_i = c q_i/(μ − r_i). The sum falls as μ grows; it is infinite at μ = max r and at most 1 at μ = max r + c. Bisect between the two.",
    ),
)
def kept_texts(sub, draw):
    "`best_policy` maximises the reward plus the weighted log-likelihood of the texts."
    size = draw.integer(4, 5)
    q, coef = tidy_distribution(draw, size), [0.3, 0.8][draw.integer(0, 1)]
    rewards = tidy(draw.uniform(size, low=-1.0, high=1.0))
    rewards[draw.integer(0, size - 1)] += 1.3
    want = exact.maximise(lambda p: p @ rewards + coef * (q @ p.log()), size)
    loose = coef * q / (coef + rewards.max() - rewards)
    expect(
        sub.best_policy(rewards, q, coef),
        want,
        what="the policy",
        given={"rewards": rewards, "texts": q, "ptx_coef": coef},
        mistakes={
            "that is the optimum of a KL penalty, q e^{r/c} over its sum": penalty(rewards, q, coef),
            "the texts are left out": (rewards / coef).softmax(-1),
            "the rewards are left out: this is q": q,
            "the number is max r + c, and the result does not sum to 1": loose,
            "the number is max r + c, and the result is divided by its sum": loose / loose.sum(),
            "that is the optimum for rewards with the opposite sign": stationary(-rewards, q, coef),
            "the coefficient weighs the reward": stationary(coef * rewards, q, 1.0),
            "all texts are taken to be equally probable": stationary(rewards, torch.full_like(q, 1 / size), coef),
        },
        tolerance=1e-5,
    )


@test(
    points=1,
    against="the conditions of the optimum",
    hints=(
        "Where is the number μ if c is very small, or very large? Is your interval wide enough, and your bisection fine enough?",
        "Bisect for μ − max r, between 0 and c, about a hundred times. If all rewards are equal, the optimum is q.",
    ),
)
def far_out(sub, draw):
    "`best_policy` at equal rewards, and at small and large coefficients."
    size = draw.integer(4, 6)
    q = tidy_distribution(draw, size)
    rewards = tidy(draw.uniform(size, low=-2.0, high=2.0))
    rewards[0], rewards[1] = 2.5, -2.5
    equal = torch.full((size,), float(rewards[2]), dtype=torch.float64)
    expect(sub.aside.best_policy(equal, q, 0.4), q, what="the policy at equal rewards", given={"texts": q})
    for coef in (0.001, 0.02, 1000.0):
        got = sub.aside.best_policy(rewards, q, coef)
        given = {"rewards": rewards, "texts": q, "ptx_coef": coef}
        policy = torch.as_tensor(got, dtype=torch.float64)
        expect(policy.sum(), 1.0, what="the sum of the policy", given=given)
        gap = coef + policy @ rewards - rewards  # μ − r_i, where μ = c + the mean reward
        expect(policy, coef * q / gap, what="the policy", given=given)
        ahead = float(policy[0])  # a tiny coefficient leaves c q/(2.5 − r) of the others
        if coef == 0.001:
            rest = (coef * q / (2.5 - rewards + 1e-9))[1:].sum()
            expect(1 - ahead, rest, what="what is left for all but the best completion", given=given, tolerance=1e-4)


# %% [edges]
# unlearned: may hold anything, NaN included
# together: Padding may hold anything in both
# far_out: All rewards may be equal
# far_out: may be small (0.001) or large (1000)


# %% [probes]
# no gradient of total_loss.old_logps, total_loss.advantages: data, cut off or not
# no gradient of best_policy: an optimum is asked for, however it is found
# no size of best_policy: probabilities of another size would not sum to 1


# %% [mutant] the mean over tokens
# caught by: unlearned
# says: over all tokens
def ptx_loss(text_logps, text_mask, ptx_coef):
    return -ptx_coef * text_logps[text_mask].mean()


# %% [mutant] each text by its mean
# caught by: unlearned
# says: by its mean over tokens
def ptx_loss(text_logps, text_mask, ptx_coef):
    return -ptx_coef * (torch.where(text_mask, text_logps, 0.0).sum(-1) / text_mask.sum(-1)).mean()


# %% [mutant] texts are unlearned
# caught by: together
# says: wrong sign
def total_loss(logps, old_logps, advantages, mask, text_logps, text_mask, epsilon, ptx_coef):
    ratio, a = (logps - old_logps)[mask].exp(), advantages[mask]
    objective = torch.minimum(ratio * a, ratio.clamp(1 - epsilon, 1 + epsilon) * a)
    return -objective.mean() - ptx_loss(text_logps, text_mask, ptx_coef)


# %% [mutant] one mean for both
# caught by: together
# says: the tokens of both
def total_loss(logps, old_logps, advantages, mask, text_logps, text_mask, epsilon, ptx_coef):
    ratio, a = (logps - old_logps)[mask].exp(), advantages[mask]
    objective = torch.minimum(ratio * a, ratio.clamp(1 - epsilon, 1 + epsilon) * a)
    texts = ptx_coef * text_logps[text_mask]
    return -(objective.sum() + texts.sum()) / (mask.sum() + text_mask.sum())


# %% [mutant] the KL penalty's optimum
# caught by: kept_texts
# says: of a KL penalty
def best_policy(rewards, texts, ptx_coef):
    return (texts.log() + rewards / ptx_coef).softmax(-1)


# %% [mutant] not bisected, but divided by the sum
# caught by: kept_texts
# says: divided by its sum
def best_policy(rewards, texts, ptx_coef):
    policy = texts / (ptx_coef + rewards.max() - rewards)
    return policy / policy.sum()


# %% [mutant] searched in too short an interval
# caught by: far_out
def best_policy(rewards, texts, ptx_coef):
    low, high = 0.0, 1.0
    for _ in range(100):
        middle = (low + high) / 2
        policy = ptx_coef * texts / (middle + rewards.max() - rewards)
        low, high = (middle, high) if policy.sum() > 1 else (low, middle)
    return policy


# %% [partial] 4: the losses alone
def best_policy(rewards, texts, ptx_coef):
    raise NotImplementedError


# %% [partial] 2: only the loss of the texts
def total_loss(logps, old_logps, advantages, mask, text_logps, text_mask, epsilon, ptx_coef):
    raise NotImplementedError


def best_policy(rewards, texts, ptx_coef):
    raise NotImplementedError
