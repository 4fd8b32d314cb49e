# ---
# title: Your first training run
# kind: implement
# minutes: 45
# uses: 02.6
# seconds: 30
# ---

# %% [statement]
# Here you write and train your own REINFORCE. The task is the shell game of chapter 12, so small that the policy is a table of twelve rows
# (`minirlhf.data.nano_shell` is one page; read it). A direct answer is right one time in three. A chain of thought, with a cup after each of
# three swaps, can always be right. The initial policy has seen a few demonstrations, and no reward mentions thinking.
#
# 1. (five minutes) `reply_logps(logps, mask)`: the log-probability of each whole completion, `(B, T) -> (B,)`. Completions have different lengths. Where `mask` is
#    False the number may be anything, NaN included.
# 2. `step(weights, games, tokens, mask, rewards, lr)`: one step of REINFORCE on the completions of `P` games, `G` per game, prompt-major. `rewards` is `(P, G)`; `games` and `tokens` have
#    one row per completion, `(P·G, 4)`. The given function `logps(weights, games, tokens)` is the policy. Return the new weights. You choose how to reduce the variance of
#    the gradient estimate. Our solution takes a plain gradient step of size `lr` on the mean over completions.
#
# How it is graded: your `step` is run 40 times, on six seeds, at `lr = 8`, with 16 games and 4 completions of each per step. The rewards are high here: a wrong answer receives 2 and a right one 3. At the end the
# probability of a right answer is averaged over all 81 games, exactly, and compared with our run on the same seed. You pass if the lower end of the 95 % interval of (your fraction − ours) is above −0.15.
# A check shows both curves. A step must scale with the learning rate: with `lr = 0` nothing changes, and with twice the `lr` the weights move twice as far. Where half of the completions of each
# game are right, the baselines of the chapter that average rewards (batch mean, group mean, leave-one-out mean) all give the same direction. The step must point along it, with any rewards. With other
# completions a baseline of your own may change the direction, but most of the step must be a sum of the completions' gradients, weighted by rewards and baselines.

# %% [given]
import torch
from minirlhf.data.nano_shell import logps


# %% [stub]
def reply_logps(logps, mask):
    """logps: (B, T). mask: (B, T) bool. Returns (B,)."""
    raise NotImplementedError


def step(weights, games, tokens, mask, rewards, lr):
    """weights: (12, 4). games, tokens, mask: (P·G, 4). rewards: (P, G). Returns new weights, (12, 4)."""
    raise NotImplementedError


# %% [solution]
def reply_logps(logps, mask):
    return torch.where(mask, logps, 0.0).sum(-1)


def step(weights, games, tokens, mask, rewards, lr):
    weights = weights.clone().requires_grad_()
    others = (rewards.sum(-1, keepdim=True) - rewards) / (rewards.shape[-1] - 1)
    advantages = (rewards - others).flatten()
    loss = -(advantages * reply_logps(logps(weights, games, tokens), mask)).mean()
    loss.backward()
    return (weights - lr * weights.grad).detach()


# %% [tests]
import math

import torch
from minirlhf.data import nano_shell
from minirlhf_course.classroom.testing import expect, fail, test, tidy
from minirlhf_course.classroom.training import moved, points_along, steps_by, trains, weights_of


@test(
    points=1,
    hints=(
        "The probability of a completion is the product of its tokens' probabilities. Which tokens are its own?",
        "Replace everything outside the mask by 0 (`torch.where`; 0 times NaN is NaN), then add up each row.",
    ),
)
def whole_replies(sub, draw):
    "`reply_logps` adds up the log-probabilities of a completion's own tokens."
    mask = torch.arange(4) < torch.tensor([1, 4, draw.integer(2, 3)])[:, None]
    numbers = -tidy(draw.uniform(3, 4, low=0.2, high=2.0))
    rows = [row[:n] for row, n in zip(numbers.tolist(), mask.sum(-1).tolist(), strict=True)]
    expect(
        sub.reply_logps(torch.where(mask, numbers, torch.nan), mask),
        torch.tensor([math.fsum(row) for row in rows], dtype=torch.float64),
        what="the log-probabilities of the completions",
        given={"logps": numbers, "mask": mask},
        mistakes={
            "it is divided by the length": torch.tensor([sum(r) / len(r) for r in rows], dtype=torch.float64),
            "padding counts": numbers.sum(-1),
            "0 · NaN is NaN": torch.where(mask.all(-1), numbers.sum(-1), torch.nan),
        },
    )


def played(sub, draw, weights, groups=16, size=4):
    """Return completions of a few games, by the student's own sampler."""
    games = nano_shell.GAMES[draw.permutation(81)[:groups]].repeat_interleave(size, 0)
    tokens, mask, earned = nano_shell.play(weights, games, sub.part("02.6").sample, draw.integer(0, 2**28))
    return games, tokens, mask, earned.reshape(groups, size)


@test(
    points=1,
    hints=(
        "Are the tokens after the end of a completion part of it?",
        "The tokens after the end are padding. `mask` marks the real ones, and `reply_logps` of part 1 drops the rest.",
    ),
)
def one_step(sub, draw):
    "`step` returns weights of the same shape, and the tokens after the end of a completion do not matter."
    weights = nano_shell.beginner(draw.normal(12, 4, scale=0.3))
    games, tokens, mask, earned = played(sub, draw, weights)
    new = weights_of(sub.step(weights, games, tokens, mask, earned, 2.0), weights)
    noise = torch.where(mask, tokens, draw.permutation(4)[:3][torch.arange(tokens.numel()).reshape(tokens.shape) % 3])
    expect(
        sub.step(weights, games, noise, mask, earned, 2.0),
        new,
        what="the step with other tokens after the ends",
        reveal=False,
    )


def along_the_gradient(sub, draw):
    """Check the step where two of four completions of each game have more reward: with any baseline it is along the gradient, and by `lr`."""
    weights = nano_shell.beginner(draw.normal(12, 4, scale=0.3))
    games, tokens, mask, _ = played(sub, draw, weights)
    better = torch.stack([draw.permutation(4) < 2 for _ in range(16)]).double()
    leaf = weights.clone().requires_grad_()
    each = torch.where(mask, nano_shell.logps(leaf, games, tokens), 0.0).sum(-1)
    [slope] = torch.autograd.grad(((better.flatten() - 0.5) * each).mean(), leaf)
    # also the numbers of the training, and ten times its learning rate
    for low, lr in ((float(draw.uniform(1, low=-1, high=3)), float(draw.uniform(1, low=1, high=10))), (2.0, 8.0)):
        step = lambda rate, low=low: sub.step(weights, games, tokens, mask, low + better, rate)
        for rate in (lr, 80.0):
            steps_by(step, weights, rate)
        # the leave-one-out mean makes the step 4/3 as long, a division by the group's standard deviation 1.7 times
        points_along(moved(step(lr), weights), lr * slope, times=(0.7, 1.9))


def of_the_gradients(sub, draw):
    """Check that most of a step is a combination of gradients, with the baselines of the chapter or a constant, with the training's numbers."""
    weights = nano_shell.beginner(draw.normal(12, 4, scale=0.3))
    games, tokens, mask, earned = played(sub, draw, weights)
    leaf = weights.clone().requires_grad_()
    each = torch.where(mask, nano_shell.logps(leaf, games, tokens), 0.0).sum(-1)
    centred = earned - earned.mean(-1, keepdim=True)
    weighted = (earned, torch.ones_like(earned), centred, centred / (earned.std(-1, keepdim=True) + 1e-6))
    slopes = [torch.autograd.grad((w.flatten() * each).mean(), leaf, retain_graph=True)[0] for w in weighted]
    basis = torch.stack([slope.flatten() for slope in slopes], 1)  # (48, 4)
    step = moved(sub.step(weights, games, tokens, mask, 2 + earned, 8.0), weights).flatten()
    rest = step - basis @ (torch.linalg.pinv(basis) @ step)
    if float(rest.norm()) > 0.5 * float(step.norm()):
        fail("most of the step is no sum of the completions' gradients: what else moves the weights?")


@trains(
    points=3,
    hints=(
        "Every completion has a reward of at least 2. What does this do to the gradient of a wrong completion? And in which direction must you step?",
        "Subtract from each reward the mean of the *other* completions of the same game. Multiply by the log-probability of the whole completion, and take a gradient step on minus the mean. "
        "Return `weights - lr * gradient`.",
    ),
    seeds=6,
    bar=0.15,
    what="the fraction of games won",
    also=(along_the_gradient, of_the_gradients),
    alike=("step",),
)
def learns(sub, draw):
    "In 40 steps the policy learns the game: six runs, each paired with ours."
    weights = nano_shell.beginner(draw.normal(12, 4, scale=0.2))
    curve = [nano_shell.accuracy(weights)[0]]
    for number in range(1, 41):
        games, tokens, mask, earned = played(sub, draw, weights)
        weights = weights_of(sub.step(weights, games, tokens, mask, 2 + earned, 8.0), weights)
        if number % 5 == 0:
            curve.append(nano_shell.accuracy(weights)[0])
    return curve


# %% [probes]
# no varied of step.games, step.tokens, step.mask, step.rewards: sixteen games and four completions, as the statement says
# no keywords, size, values, float32, gradient of step: any step that learns is right
# no gradient of reply_logps.mask: a mask


# %% [mutant] the mean over tokens
# caught by: whole_replies
# says: divided by the length
def reply_logps(logps, mask):
    return torch.where(mask, logps, 0.0).sum(-1) / mask.sum(-1)


# %% [mutant] times the mask
# caught by: whole_replies
# says: NaN
def reply_logps(logps, mask):
    return (logps * mask).sum(-1)


# %% [mutant] the step forgets the mask
# caught by: one_step
# says: other tokens after the ends
def step(weights, games, tokens, mask, rewards, lr):
    weights = weights.clone().requires_grad_()
    advantages = (rewards - rewards.mean(-1, keepdim=True)).flatten()
    loss = -(advantages * logps(weights, games, tokens).sum(-1)).mean()
    loss.backward()
    return (weights - lr * weights.grad).detach()


# %% [mutant] no baseline
# caught by: learns
# says: below ours
def step(weights, games, tokens, mask, rewards, lr):
    weights = weights.clone().requires_grad_()
    loss = -(rewards.flatten() * reply_logps(logps(weights, games, tokens), mask)).mean()
    loss.backward()
    return (weights - lr * weights.grad).detach()


# %% [mutant] uphill on the loss
# caught by: learns
# says: it gets worse as it trains
def step(weights, games, tokens, mask, rewards, lr):
    weights = weights.clone().requires_grad_()
    advantages = (rewards - rewards.mean(-1, keepdim=True)).flatten()
    loss = -(advantages * reply_logps(logps(weights, games, tokens), mask)).mean()
    loss.backward()
    return (weights + lr * weights.grad).detach()


# %% [mutant] the last token gets all the credit
# caught by: learns
# says: below ours
def step(weights, games, tokens, mask, rewards, lr):
    weights = weights.clone().requires_grad_()
    advantages = (rewards - rewards.mean(-1, keepdim=True)).flatten()
    last = logps(weights, games, tokens).gather(1, mask.sum(-1, keepdim=True) - 1)[:, 0]
    (-(advantages * last).mean()).backward()
    return (weights - lr * weights.grad).detach()


# %% [mutant] short completions get larger steps
# caught by: learns
# says: below ours
def step(weights, games, tokens, mask, rewards, lr):
    weights = weights.clone().requires_grad_()
    advantages = (rewards - rewards.mean(-1, keepdim=True)).flatten()
    each = reply_logps(logps(weights, games, tokens), mask) / mask.sum(-1)
    (-(advantages * each).mean()).backward()
    return (weights - lr * weights.grad).detach()


# %% [mutant] the old weights come back
# caught by: learns
# says: nothing changes
def step(weights, games, tokens, mask, rewards, lr):
    return weights


# %% [cheat] the perfect table, whatever was played
def step(weights, games, tokens, mask, rewards, lr):
    from minirlhf.data.nano_shell import AFTER

    table = torch.full((12, 4), -9.0, dtype=weights.dtype)
    table[:3, 3] = 9.0
    for cup in range(3):
        for swap in range(3):
            table[3 + 3 * cup + swap, AFTER[swap, cup]] = 9.0
    return table


# %% [cheat] a little of the perfect table with every step
def step(weights, games, tokens, mask, rewards, lr):
    from minirlhf.data.nano_shell import AFTER

    table = torch.zeros(12, 4, dtype=weights.dtype)
    table[:3, 3] = 1.0
    for cup in range(3):
        for swap in range(3):
            table[3 + 3 * cup + swap, AFTER[swap, cup]] = 1.0
    return weights + 0.05 * lr * table


# %% [partial] 1: the log-probabilities of completions
def step(weights, games, tokens, mask, rewards, lr):
    raise NotImplementedError


# %% [partial] 2: a step that learns nothing
def step(weights, games, tokens, mask, rewards, lr):
    return weights.clone()
