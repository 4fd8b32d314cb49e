# ---
# title: A training loop with rejection sampling
# kind: implement
# minutes: 40
# uses: 02.6
# seconds: 30
# ---

# %% [statement]
# A policy learns only from its own best completions, and you write the loop. The task is the small shell game of exercises 12.7 and 13.6 (`minirlhf.data.nano_shell`, one page; you need not have
# done these exercises). A completion either names a cup directly, in one token, or contains a chain of thought, in four tokens. Your `sample` (02.6) samples the completions. Every game has its own reward scale: a right
# completion has a higher reward than a wrong one for the *same* game, and rewards of two games cannot be compared.
#
# 1. (five minutes) `worth_keeping(rewards)`: rewards `(P, G)` of `G` completions for each of `P` games. Returns `(P, G)`, True for every completion with the highest reward of its game. In a game in
#    which *all* rewards are equal there is no choice, and nothing is kept.
# 2. `update(weights, games, tokens, mask, rewards, lr, steps)`: `steps` steps of supervised fine-tuning, one after the other, on the kept completions. Each step subtracts `lr` times the gradient. `rewards` is
#    `(P, G)`; the rows of `games`, `tokens` and `mask` are prompt-major, `(P·G, 4)`. The given `logps(weights, games, tokens)` returns the log-probability of each token; positions where `mask` is False are padding. If no
#    completion is kept, return the weights unchanged. We minimise the mean over the kept completions of $-\log\pi(\text{completion})$. Another
#    average is accepted if it learns as fast. (A mean over tokens makes smaller steps at the same `lr`, and may be too slow.)
#
# Grading: 12 rounds of 27 games with 8 completions each, five steps per round at `lr = 8`, on six seeds, each compared with a run of our solution. The accuracy at the end is computed exactly. You pass if the lower end of the 95 % interval
# of (your accuracy − our accuracy) is above −0.15. A check shows both curves. The size of a step must be right as well: with `lr = 0` nothing changes, and with `steps = 1` twice the `lr` moves twice as far, along the gradient.

# %% [given]
import torch
from minirlhf.data.nano_shell import logps


# %% [stub]
def worth_keeping(rewards):
    """rewards: (P, G). Returns (P, G) bool."""
    raise NotImplementedError


def update(weights, games, tokens, mask, rewards, lr, steps):
    """weights: (12, 4). games, tokens, mask: (P·G, 4). rewards: (P, G). Returns new weights, (12, 4)."""
    raise NotImplementedError


# %% [solution]
def worth_keeping(rewards):
    best = rewards.amax(-1, keepdim=True)
    return (rewards == best) & (best > rewards.amin(-1, keepdim=True))


def update(weights, games, tokens, mask, rewards, lr, steps):
    rows = worth_keeping(rewards).flatten()
    if not rows.any():
        return weights
    for _ in range(steps):
        weights = weights.detach().clone().requires_grad_()
        each = torch.where(mask[rows], logps(weights, games[rows], tokens[rows]), 0.0).sum(-1)
        (-each.mean()).backward()
        weights = weights - lr * weights.grad
    return weights.detach()


# %% [tests]
import torch
from minirlhf.data import nano_shell
from minirlhf_course.classroom.testing import expect, fail, test, tidy
from minirlhf_course.classroom.training import moved, points_along, steps_by, trains, weights_of


def first_only(rewards):
    out = torch.zeros_like(rewards, dtype=torch.bool)
    for row, values in zip(out, rewards.tolist(), strict=True):
        row[values.index(max(values))] = len(set(values)) > 1
    return out


@test(
    points=1,
    hints=(
        "Write down a small matrix: one game with two best completions, one game with equal rewards only.",
        "Compare each reward with the largest of its row, and each row's largest with its smallest.",
    ),
)
def chooses(sub, draw):
    "`worth_keeping` is True for every best completion of each game, and for none if all are equal."
    level = tidy(draw.uniform(4, 1, low=-2, high=2))
    marks = torch.tensor(
        [0.0, 0.0, 1.0, 2.0, 3.0, 3.0], dtype=torch.float64
    )  # two are best, another is above the middle
    rewards = level + torch.stack([marks[draw.permutation(6)] for _ in range(4)])
    rewards[int(draw.integer(0, 3))] = float(tidy(draw.uniform(1, low=2, high=3)))
    rows = rewards.tolist()
    right = torch.tensor([[x == max(row) and min(row) < max(row) for x in row] for row in rows])
    everywhere = torch.tensor([[x == max(row) for x in row] for row in rows])
    highest = max(max(row) for row in rows)
    slips = {
        "in a game with equal rewards all completions are kept, although there is no choice": everywhere,
        "of several best completions only the first is kept": first_only(rewards),
        "rewards of different games are compared": torch.tensor([[x == highest for x in row] for row in rows]),
        "all rewards above the mean of their game are kept": torch.tensor(
            [[x > sum(row) / len(row) for x in row] for row in rows]
        ),
        "all rewards above the median of their game are kept": rewards > rewards.median(-1, keepdim=True).values,
        "a game with two best completions is treated as a game without a choice": torch.zeros_like(right),
        "the worst completions are kept": torch.tensor(
            [[x == min(row) and min(row) < max(row) for x in row] for row in rows]
        ),
    }
    batch = rewards > rewards.mean()
    if not any(torch.equal(batch, value) for value in slips.values()):
        slips["all rewards above the mean of all games are kept, but each game has its own scale"] = batch
    expect(sub.worth_keeping(rewards), right, what="`worth_keeping`", given={"rewards": rewards}, mistakes=slips)


def played(sub, draw, weights, groups=27, size=8):
    """Return completions for a few games, by the student's sampler."""
    games = nano_shell.GAMES[draw.permutation(81)[:groups]].repeat_interleave(size, 0)
    tokens, mask, earned = nano_shell.play(weights, games, sub.part("02.6").sample, draw.integer(0, 2**28))
    return games, tokens, mask, earned.reshape(groups, size)


@test(
    points=1,
    hints=(
        "Which rows may the loss use, and which of their tokens? And what is the mean of an empty set?",
        "Only kept rows, and only tokens in the mask (`torch.where`, or select them). If nothing is kept, return the weights before you divide by zero.",
    ),
)
def only_these(sub, draw):
    "`update` ignores padding and completions that are not kept. If none is kept, it returns the same policy."
    weights = nano_shell.beginner(draw.normal(12, 4, scale=0.3))
    games, tokens, mask, earned = played(sub, draw, weights)
    earned[0], earned[1] = 1.0, 0.0  # two games without a choice
    earned[2, 0], earned[2, 1:] = 1.0, 0.0  # one with a choice
    same = torch.ones_like(earned) + torch.arange(len(earned))[:, None]
    still = weights_of(sub.update(weights, games, tokens, mask, same, 2.0, 3), weights)
    expect(still.softmax(-1), weights.softmax(-1), what="the policy after a round in which nothing is kept")
    new = weights_of(sub.update(weights, games, tokens, mask, earned, 2.0, 3), weights)
    other = (tokens + 1) % 3

    def same_with(tokens, earned):
        again = weights_of(sub.update(weights, games, tokens, mask, earned, 2.0, 3), weights)
        return torch.allclose(again, new, atol=1e-5)

    if not same_with(torch.where(mask, tokens, other), earned):
        fail("the update changes if tokens after the ends of the completions change: padding is used")
    level = torch.arange(len(earned), dtype=torch.float64)[:, None] - 8
    if not same_with(tokens, level + 2 * earned):
        fail(
            "the update changes if the rewards of each game are rescaled: rewards decide only which completions are kept"
        )
    best = earned.amax(-1, keepdim=True)
    kept = (earned == best) & (best > earned.amin(-1, keepdim=True))
    if not same_with(torch.where(kept.flatten()[:, None], tokens, other), earned):
        if same_with(torch.where(kept.T.flatten()[:, None], tokens, other), earned):
            fail("the rows are selected as if they were ordered sample by sample; they are ordered game by game")
        fail("the update changes if tokens of completions that are not kept change: it uses these completions")


@test(
    points=1,
    hints=(
        "How many steps does your loop take for `steps = 0`, for 1, for 3? And from which weights does each step start?",
        "`for _ in range(steps)`, and inside it `weights = weights - lr * gradient`, so that the next gradient is computed at the new weights.",
    ),
)
def steps_count(sub, draw):
    "`update` takes `steps` steps, each from the weights of the previous one."
    weights = nano_shell.beginner(draw.normal(12, 4, scale=0.3))
    games, tokens, mask, earned = played(sub, draw, weights)
    earned[0, 0], earned[0, 1:] = 1.0, 0.0  # one game with a choice at least
    rows = (earned == earned.amax(-1, keepdim=True)) & (earned.amax(-1, keepdim=True) > earned.amin(-1, keepdim=True))
    rows = rows.flatten()

    def likely(new):
        each = torch.where(mask, nano_shell.logps(new, games, tokens), 0.0).sum(-1)
        return float(each[rows].mean())

    found = [weights_of(sub.update(weights, games, tokens, mask, earned, 0.5, n), weights) for n in (0, 1, 3)]
    expect(found[0].softmax(-1), weights.softmax(-1), what="the policy after 0 steps")
    never, once, often = (likely(new) for new in found)
    if not never < once:
        fail("one step does not make the kept completions more probable")
    if not once < often:
        fail("three steps make the kept completions no more probable than one step does")


def one_step(sub, draw):
    """One step moves along the gradient by `lr`. One completion per game is kept, all of one length, so that every average agrees."""
    weights = nano_shell.beginner(draw.normal(12, 4, scale=0.3), thinks=0.8)
    games, tokens, mask, _ = played(sub, draw, weights)
    kept = torch.zeros(27, 8, dtype=torch.bool)
    for row, long in zip(kept, (mask.sum(-1) == 4).reshape(27, 8), strict=True):
        row[long.nonzero()[:1, 0]] = True
    marks = draw.uniform(27, 1, low=-2, high=2) + kept
    lr = float(draw.uniform(1, low=1, high=6))
    step = lambda rate: sub.update(weights, games, tokens, mask, marks, rate, 1)
    steps_by(step, weights, lr)
    leaf = weights.clone().requires_grad_()
    each = torch.where(mask, nano_shell.logps(leaf, games, tokens), 0.0).sum(-1)[kept.flatten()]
    [slope] = torch.autograd.grad(each.mean(), leaf)
    points_along(moved(step(lr), weights), lr * slope, times=(0.2, 1.5))
    average = float(moved(step(lr), weights).norm() / (lr * slope).norm())  # a mean over tokens makes smaller steps
    for rate in (8.0, 80.0):
        steps_by(step, weights, rate)
    new = weights
    for _ in range(5):
        leaf = new.clone().requires_grad_()
        each = torch.where(mask, nano_shell.logps(leaf, games, tokens), 0.0).sum(-1)[kept.flatten()]
        new = new + 8.0 * average * torch.autograd.grad(each.mean(), leaf)[0]
    got = weights_of(sub.update(weights, games, tokens, mask, marks, 8.0, 5), weights)
    expect(got.softmax(-1), new.softmax(-1), what="the policy after five steps", reveal=False, tolerance=1e-3)


@trains(
    points=2,
    hints=(
        "Only the kept completions should become more probable. Which sign does the step have? And does every step start from the weights of the previous one?",
        "The loss is minus the mean log-probability of the kept completions. Compute `weights - lr * gradient` `steps` times and return the last weights.",
    ),
    seeds=6,
    bar=0.15,
    what="the fraction of games won",
    also=(one_step,),
    alike=("update",),
)
def learns(sub, draw):
    "In 12 rounds the policy learns the game from its own best completions: six runs, each paired with a run of our solution."
    weights = nano_shell.beginner(draw.normal(12, 4, scale=0.2))
    curve = [nano_shell.accuracy(weights)[0]]
    for number in range(1, 13):
        games, tokens, mask, earned = played(sub, draw, weights)
        marks = draw.uniform(27, 1, low=-2, high=2) + draw.uniform(27, 1, low=0.6, high=1.6) * earned
        weights = weights_of(sub.update(weights, games, tokens, mask, marks, 8.0, 5), weights)
        if number % 2 == 0:
            curve.append(nano_shell.accuracy(weights)[0])
    return curve


# %% [probes]
# no varied of update.games, update.tokens, update.mask, update.rewards: 27 games and eight completions, as the statement says
# no cheats of update.lr: a mean over tokens makes smaller steps, and is right if it learns as fast
# no keywords, size, single, values, float32, gradient of update: any update that learns is right
# no gradient of worth_keeping: True or False


# %% [mutant] nothing to choose, and all kept
# caught by: chooses
# says: there is no choice
def worth_keeping(rewards):
    return rewards == rewards.amax(-1, keepdim=True)


# %% [mutant] the first of the best
# caught by: chooses
# says: only the first is kept
def worth_keeping(rewards):
    out = torch.zeros_like(rewards, dtype=torch.bool)
    out[torch.arange(len(rewards)), rewards.argmax(-1)] = True
    return out & (rewards.amax(-1, keepdim=True) > rewards.amin(-1, keepdim=True))


# %% [mutant] the best of all games
# caught by: chooses
# says: of different games are compared
def worth_keeping(rewards):
    return rewards == rewards.amax()


# %% [mutant] padding is imitated
# caught by: only_these
# says: padding is used
def update(weights, games, tokens, mask, rewards, lr, steps):
    rows = worth_keeping(rewards).flatten()
    if not rows.any():
        return weights
    for _ in range(steps):
        weights = weights.detach().clone().requires_grad_()
        (-logps(weights, games[rows], tokens[rows]).sum(-1).mean()).backward()
        weights = weights - lr * weights.grad
    return weights.detach()


# %% [mutant] nought divided by nought
# caught by: only_these
# says: NaN
def update(weights, games, tokens, mask, rewards, lr, steps):
    rows = worth_keeping(rewards).flatten().double()
    for _ in range(steps):
        weights = weights.detach().clone().requires_grad_()
        each = torch.where(mask, logps(weights, games, tokens), 0.0).sum(-1)
        (-(rows * each).sum() / rows.sum()).backward()
        weights = weights - lr * weights.grad
    return weights.detach()


# %% [mutant] all replies are imitated, as in the control
# caught by: only_these
# says: it uses these completions
def update(weights, games, tokens, mask, rewards, lr, steps):
    if not worth_keeping(rewards).any():
        return weights
    for _ in range(steps):
        weights = weights.detach().clone().requires_grad_()
        (-torch.where(mask, logps(weights, games, tokens), 0.0).sum(-1).mean()).backward()
        weights = weights - lr * weights.grad
    return weights.detach()


# %% [mutant] weighed by their marks
# caught by: only_these
# says: are rescaled
def update(weights, games, tokens, mask, rewards, lr, steps):
    rows = worth_keeping(rewards).flatten()
    if not rows.any():
        return weights
    for _ in range(steps):
        weights = weights.detach().clone().requires_grad_()
        each = torch.where(mask[rows], logps(weights, games[rows], tokens[rows]), 0.0).sum(-1)
        (-(rewards.flatten()[rows] * each).mean()).backward()
        weights = weights - lr * weights.grad
    return weights.detach()


# %% [mutant] one step, whatever is asked
# caught by: steps_count
# says: no more probable than one step does
def update(weights, games, tokens, mask, rewards, lr, steps):
    rows = worth_keeping(rewards).flatten()
    if not rows.any() or steps == 0:
        return weights
    weights = weights.detach().clone().requires_grad_()
    each = torch.where(mask[rows], logps(weights, games[rows], tokens[rows]), 0.0).sum(-1)
    (-each.mean()).backward()
    return (weights - lr * weights.grad).detach()


# %% [mutant] away from what is kept
# caught by: steps_count
# says: one step does not
def update(weights, games, tokens, mask, rewards, lr, steps):
    rows = worth_keeping(rewards).flatten()
    if not rows.any():
        return weights
    for _ in range(steps):
        weights = weights.detach().clone().requires_grad_()
        each = torch.where(mask[rows], logps(weights, games[rows], tokens[rows]), 0.0).sum(-1)
        (-each.mean()).backward()
        weights = weights + lr * weights.grad
    return weights.detach()


# %% [mutant] the old weights come back
# caught by: steps_count
# says: one step does not
def update(weights, games, tokens, mask, rewards, lr, steps):
    return weights


# %% [mutant] only the first token is imitated
# caught by: learns
# says: below ours
def update(weights, games, tokens, mask, rewards, lr, steps):
    rows = worth_keeping(rewards).flatten()
    if not rows.any():
        return weights
    for _ in range(steps):
        weights = weights.detach().clone().requires_grad_()
        (-logps(weights, games[rows], tokens[rows])[:, 0].mean()).backward()
        weights = weights - lr * weights.grad
    return weights.detach()


# %% [partial] 1: what is worth keeping
def update(weights, games, tokens, mask, rewards, lr, steps):
    raise NotImplementedError
