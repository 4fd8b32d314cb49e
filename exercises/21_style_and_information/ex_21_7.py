# ---
# title: Training with a length-biased judge
# kind: implement
# minutes: 35
# seconds: 30
# ---

# %% [statement]
# A judge rewards quality, and also every word, by an unknown amount. Under the initial policy, quality is uncorrelated with length *within a prompt*. But prompts differ: some ask for long completions, and these have different rewards. From a batch of groups, one row for each prompt, you compute the advantages that train the policy.
#
# Write `credit(rewards, lengths)`: both `(P, G)`; returns `(P, G)`. Estimate **one** slope on length from the whole batch (a group is too small for its own), and remove it within the groups, such that
#
# 1. adding any multiple of `lengths` to `rewards` changes nothing;
# 2. adding a constant to all rewards of one prompt changes nothing, and adding a constant to all lengths of one prompt changes nothing;
# 3. the result has mean 0 in each group, is uncorrelated with length over the batch, and has the smallest possible sum of squares;
# 4. if within each group all lengths are equal, it is the reward minus the group's mean.
#
# Grading: the last test trains, 80 steps of 16 groups of eight, on six seeds, each paired with our run. Each run has its own judge. Your score is the exact quality at the end. You pass if the lower end of the 95 % interval of (your score − ours) is above −0.025.

# %% [given]
import torch


# %% [stub]
def credit(rewards, lengths):
    """rewards, lengths: (P, G). Returns (P, G)."""
    raise NotImplementedError


# %% [solution]
def credit(rewards, lengths):
    r = rewards - rewards.mean(-1, keepdim=True)
    s = lengths - lengths.mean(-1, keepdim=True)
    varied = lengths.amax(-1, keepdim=True) > lengths.amin(
        -1, keepdim=True
    )  # of equal lengths, s may be a rounding error
    s = torch.where(varied, s, 0.0)
    return r - (r * s).sum() / (s * s).sum() * s if bool(varied.any()) else r


# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, fail, test, tidy
from minirlhf_course.classroom.training import trains

CONTENTS, EXTRA = 6, 7


def asked(sub, rewards, lengths):
    got = sub.credit(rewards, lengths)
    if not isinstance(got, torch.Tensor) or got.shape != rewards.shape:
        fail("the result of `credit` is not a tensor of the shape of `rewards`")
    return got.double()


def batch(draw, prompts=3, group=5):
    """Rewards and whole lengths; long prompts have other rewards."""
    lengths = (10 * draw.uniform(prompts, group)).floor() + 20 * torch.arange(prompts).double()[:, None]
    lengths[:, 0] += 3.0  # never all equal
    rewards = tidy(draw.normal(prompts, group)) + 0.2 * lengths + 3.0 * torch.arange(prompts).double()[:, None]
    return tidy(rewards), lengths


def least_squares(rewards, columns):
    """What columns (N, F) leave of all rewards."""
    return rewards.flatten() - columns @ torch.linalg.lstsq(columns, rewards.flatten()[:, None]).solution[:, 0]


def named(rewards, lengths):
    """What well-known mistakes answer."""
    P, G = rewards.shape
    one, s = torch.ones(P * G, 1, dtype=torch.float64), lengths.flatten()[:, None]
    pooled = least_squares(rewards, torch.cat([one, s], -1)).reshape(P, G)
    groups = torch.stack(
        [least_squares(r, torch.stack([torch.ones_like(n), n], -1)) for r, n in zip(rewards, lengths, strict=True)]
    )
    centred = rewards - rewards.mean(-1, keepdim=True)
    slope = float(
        (least_squares(rewards, one) @ (lengths - lengths.mean()).flatten()) / (lengths - lengths.mean()).square().sum()
    )
    through = float((centred * lengths).sum() / lengths.square().sum())
    return {
        "the slope is estimated over all prompts together; centre each group first": pooled,
        "the slope is estimated over all prompts together, although groups are centred afterwards": centred - slope * (lengths - lengths.mean(-1, keepdim=True)),
        "each group has its own slope; take one from the batch": groups,
        "length is not removed: this is the usual advantage": centred,
        "lengths are not centred in their groups": centred - through * lengths,
        "the rewards are divided by lengths": rewards / lengths - (rewards / lengths).mean(-1, keepdim=True),
    }  # fmt: skip


@test(
    points=2,
    hints=(
        "Add 10 to all rewards of one prompt. Does your slope change?",
        "Centre rewards and lengths in their groups. The slope is the sum of the products divided by the sum of the squares, over the whole batch.",
    ),
    against="least squares with an intercept for each prompt",
)
def one_slope(sub, draw):
    "`credit` is the residual of an intercept per prompt and one slope on length."
    rewards, lengths = batch(draw, prompts=draw.integer(2, 4), group=draw.integer(3, 6))
    P, G = rewards.shape
    dummies = torch.eye(P, dtype=torch.float64).repeat_interleave(G, 0)
    want = least_squares(rewards, torch.cat([dummies, lengths.flatten()[:, None]], -1)).reshape(P, G)
    expect(
        asked(sub, rewards, lengths), want, what="`credit`", given={"rewards": rewards, "lengths": lengths}, tolerance=1e-7,
        mistakes=named(rewards, lengths),
    )  # fmt: skip


@test(
    points=1,
    hints=(
        "All completions of a prompt are equally long. What is there to remove?",
        "Nothing. If the sum of squares is 0, omit the slope.",
    ),
)
def all_alike(sub, draw):
    "`credit` without differences of length is the reward minus the group's mean."
    rewards, _ = batch(draw)
    lengths = torch.tensor([[12.0], [31.0], [50.0]], dtype=torch.float64).expand(3, 5).clone()
    want = rewards - rewards.mean(-1, keepdim=True)
    expect(
        asked(sub, rewards, lengths), want, what="`credit`", given={"rewards": rewards, "lengths": lengths}, tolerance=1e-7,
        mistakes={"the result is 0, and nothing can be learned from it": torch.zeros_like(want)},
    )  # fmt: skip
    lengths = lengths + 0.0
    lengths[1, :2] += 2.0  # one group differs: the slope is that group's
    inner = torch.tensor([0.6, 0.6, -0.4, -0.4, -0.4], dtype=torch.float64) * 2.0
    want = want.clone()
    want[1] -= (want[1] @ inner) / (inner @ inner) * inner
    expect(asked(sub, rewards, lengths), want, what="`credit`, one group with lengths that differ", given={"rewards": rewards, "lengths": lengths}, tolerance=1e-7)  # fmt: skip


@trains(
    points=3,
    hints=(
        "How long do the completions become with your advantages? And does the removed slope hold within a prompt?",
        "Use one slope of centred rewards on centred lengths. A slope over all prompts describes the prompts.",
    ),
    seeds=6,
    bar=0.025,
    what="quality",
    fixed=("credit",),
)
def learns(sub, draw):
    "Quality rises in 80 steps (six runs, each with its own judge, each paired with ours)."
    rng = torch.Generator().manual_seed(draw.integer(0, 2**28))
    rand = lambda *shape: torch.rand(*shape, generator=rng, dtype=torch.float64)
    worth = 0.3 * torch.arange(CONTENTS, dtype=torch.float64)
    extra = torch.arange(EXTRA, dtype=torch.float64)
    bent = -0.1 * (extra - 3) ** 2  # quality is best at three words more than the prompt asks for
    per_word, of_prompts = 0.4 + 0.4 * float(rand(1)), 1.2 - 2.4 * float(rand(1) < 0.5)
    what, how_long = torch.zeros(CONTENTS, dtype=torch.float64), torch.zeros(EXTRA, dtype=torch.float64)
    quality = lambda: float(what.softmax(-1) @ worth + how_long.softmax(-1) @ bent)
    curve = [quality()]
    for number in range(1, 81):
        asks = 10 * rand(16, 1)
        p, q = what.softmax(-1), how_long.softmax(-1)
        said = torch.multinomial(p.expand(16, -1), 8, True, generator=rng)
        more = torch.multinomial(q.expand(16, -1), 8, True, generator=rng)
        lengths = (10 + asks).floor() + extra[more]
        noise = 0.3 * torch.randn(16, 8, generator=rng, dtype=torch.float64)
        rewards = worth[said] + bent[more] + per_word * lengths + of_prompts * asks + noise
        given = asked(sub, rewards, lengths)
        push = lambda chosen, law, given=given: (torch.zeros_like(law).index_add(0, chosen.flatten(), given.flatten()) - given.sum() * law) / 128  # fmt: skip
        what, how_long = what + push(said, p), how_long + push(more, q)
        if number % 10 == 0:
            curve.append(quality())
    return curve


# %% [probes]
# no integers, float32, gradient, nan, keywords: rewards and lengths are data


# %% [mutant] the usual advantage
# caught by: one_slope
# says: usual advantage
def credit(rewards, lengths):
    return rewards - rewards.mean(-1, keepdim=True)


# %% [mutant] pooled
# caught by: one_slope
# says: although groups are centred
def credit(rewards, lengths):
    r, s = rewards - rewards.mean(), lengths - lengths.mean()
    left = r - (r * s).sum() / (s * s).sum() * s
    return left - left.mean(-1, keepdim=True)


# %% [mutant] a slope for each group
# caught by: one_slope
# says: take one from the batch
def credit(rewards, lengths):
    r = rewards - rewards.mean(-1, keepdim=True)
    s = lengths - lengths.mean(-1, keepdim=True)
    return r - (r * s).sum(-1, keepdim=True) / (s * s).sum(-1, keepdim=True).clamp(min=1e-12) * s


# %% [mutant] 0 by 0
# caught by: all_alike
def credit(rewards, lengths):
    r = rewards - rewards.mean(-1, keepdim=True)
    s = lengths - lengths.mean(-1, keepdim=True)
    return r - (r * s).sum() / (s * s).sum() * s


# %% [mutant] the other sign
# caught by: one_slope
def credit(rewards, lengths):
    r = rewards - rewards.mean(-1, keepdim=True)
    s = lengths - lengths.mean(-1, keepdim=True)
    return r + (r * s).sum() / (s * s).sum().clamp(min=1e-12) * s


# %% [mutant] a penalty per word
# caught by: one_slope
def credit(rewards, lengths):
    r = rewards - 0.5 * lengths
    return r - r.mean(-1, keepdim=True)


# %% [partial] 1: a slope for each group
def credit(rewards, lengths):
    r = rewards - rewards.mean(-1, keepdim=True)
    s = lengths - lengths.mean(-1, keepdim=True)
    return r - (r * s).sum(-1, keepdim=True) / (s * s).sum(-1, keepdim=True).clamp(min=1e-12) * s
