# ---
# title: Rejection sampling, running
# kind: implement
# minutes: 40
# uses: 02.6
# seconds: 30
# ---

# %% [statement]
# Here a policy learns from nothing but its own best replies, and the loop is yours. The world is the small shell game of exercises 12.7 and 13.6 (`minirlhf.data.nano_shell`, one page; you need not have
# done those). A reply either blurts out a cup, one token, or thinks: four tokens. The replies are drawn by your `sample` (02.6). Every game has a teacher of its own, with marks on another scale: a right
# reply earns more than a wrong one to the *same* game, and two games cannot be compared.
#
# 1. (five minutes) `worth_keeping(rewards)`: rewards `(P, G)`, the marks of `G` replies to each of `P` games. Returns `(P, G)`, True for every reply that earned the highest mark of its game. In a game in
#    which *all* replies earned the same there is nothing to choose, and nothing is kept.
# 2. `update(weights, games, tokens, mask, rewards, lr, steps)`: `steps` steps of supervised fine-tuning, one after the other, on the replies that are worth keeping, each by a gradient of size `lr`. `rewards` is
#    `(P, G)`, the rows of `games`, `tokens` and `mask` are prompt-major, `(P·G, 4)`. The given `logps(weights, games, tokens)` is the policy, token by token; what stands where `mask` is False is padding. If no
#    reply is worth keeping, return the weights as they are. We take the mean over the kept replies of $-\log\pi(\text{reply})$; another
#    average is right if it learns as fast (a mean over tokens makes smaller steps at the same `lr`, and may not).
#
# How it is judged: 12 rounds of 27 games with 8 replies each, five steps a round at `lr = 8`, on six seeds, each beside our run. The share of games won in the end is exact. Its mean may lie 0.15 below
# ours, with the whole of its 95 % interval. A check shows both curves. A step is a step: with `lr = 0` nothing changes, and with `steps = 1` twice the `lr` moves twice as far, along the gradient.

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

from minirlhf_course.classroom.testing import expect, fail, test, tidy
from minirlhf_course.classroom.training import moved, points_along, steps_by, trains, weights_of
from minirlhf.data import nano_shell


def first_only(rewards):
    out = torch.zeros_like(rewards, dtype=torch.bool)
    for row, values in zip(out, rewards.tolist(), strict=True):
        row[values.index(max(values))] = len(set(values)) > 1
    return out


@test(
    points=1,
    hints=(
        "Write down a small matrix: one game with two best replies, one in which all earned the same.",
        "Compare each mark with the largest of its row, and each row's largest with its smallest.",
    ),
)
def chooses(sub, draw):
    "`worth_keeping` marks every best reply of each game, and none where all are equal."
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
        "a game in which all replies earned the same keeps them all, with nothing to choose from": everywhere,
        "of several best replies only the first is kept": first_only(rewards),
        "the marks of different games are compared": torch.tensor([[x == highest for x in row] for row in rows]),
        "all are kept that are above the mean of their game": torch.tensor(
            [[x > sum(row) / len(row) for x in row] for row in rows]
        ),
        "all are kept that are above the median of their game": rewards > rewards.median(-1, keepdim=True).values,
        "two best replies are taken for a game without a choice": torch.zeros_like(right),
        "those are the worst": torch.tensor([[x == min(row) and min(row) < max(row) for x in row] for row in rows]),
    }
    batch = rewards > rewards.mean()
    if not any(torch.equal(batch, value) for value in slips.values()):
        slips["all are kept that are above the mean of all games; each game has a scale of its own"] = batch
    expect(sub.worth_keeping(rewards), right, what="`worth_keeping`", given={"rewards": rewards}, mistakes=slips)


def played(sub, draw, weights, groups=27, size=8):
    """Replies to a few games, by the student's own sampler."""
    games = nano_shell.GAMES[draw.permutation(81)[:groups]].repeat_interleave(size, 0)
    tokens, mask, earned = nano_shell.play(weights, games, sub.part("02.6").sample, draw.integer(0, 2**28))
    return games, tokens, mask, earned.reshape(groups, size)


@test(
    points=1,
    hints=(
        "Which rows may the loss look at, and which of their tokens? And what is the mean of no replies?",
        "Only kept rows, only tokens in the mask (`torch.where`, or select them). If nothing is kept return the weights before you divide by zero.",
    ),
)
def only_these(sub, draw):
    "`update` does not look at replies that are not kept, nor at padding; with nothing to keep it changes nothing."
    weights = nano_shell.beginner(draw.normal(12, 4, scale=0.3))
    games, tokens, mask, earned = played(sub, draw, weights)
    earned[0], earned[1] = 1.0, 0.0  # two games without a choice
    earned[2, 0], earned[2, 1:] = 1.0, 0.0  # one with a choice
    same = torch.ones_like(earned) + torch.arange(len(earned))[:, None]
    still = weights_of(sub.update(weights, games, tokens, mask, same, 2.0, 3), weights)
    expect(still.softmax(-1), weights.softmax(-1), what="the policy after a round in which nothing was worth keeping")
    new = weights_of(sub.update(weights, games, tokens, mask, earned, 2.0, 3), weights)
    other = (tokens + 1) % 3

    def same_with(tokens, earned):
        again = weights_of(sub.update(weights, games, tokens, mask, earned, 2.0, 3), weights)
        return torch.allclose(again, new, atol=1e-5)

    if not same_with(torch.where(mask, tokens, other), earned):
        fail("with other tokens after the ends of the replies the update is another: padding is looked at")
    level = torch.arange(len(earned), dtype=torch.float64)[:, None] - 8
    if not same_with(tokens, level + 2 * earned):
        fail("with the marks of each game on another scale the update is another: marks decide what is kept, no more")
    best = earned.amax(-1, keepdim=True)
    kept = (earned == best) & (best > earned.amin(-1, keepdim=True))
    if not same_with(torch.where(kept.flatten()[:, None], tokens, other), earned):
        if same_with(torch.where(kept.T.flatten()[:, None], tokens, other), earned):
            fail("the replies are picked as if they stood sample by sample; they stand game by game")
        fail("with other tokens in replies that are not kept the update is another: it looks at them")


@test(
    points=1,
    hints=(
        "How often does your loop turn for `steps = 0`, for 1, for 3? And from where does each step begin?",
        "`for _ in range(steps)`, and within it `weights = weights - lr * gradient`, so that the next gradient is that of the new weights.",
    ),
)
def steps_count(sub, draw):
    "`update` takes as many steps as it is told to, each from where the one before ended."
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
        fail("one step does not make the kept replies more likely")
    if not once < often:
        fail("three steps make the kept replies no more likely than one does")


def one_step(sub, draw):
    """One step goes along the gradient, by `lr`. One reply is kept of each game, all of one length: whatever the average."""
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


@trains(
    points=2,
    hints=(
        "What is kept should become more likely, and only that. Which way is up? And is every step taken from the weights of the step before?",
        "Minus the mean of the kept replies' log-probabilities is the loss; `weights - lr * gradient`, `steps` times, and return the last weights.",
    ),
    seeds=6,
    bar=0.15,
    what="the share of games won",
    also=(one_step,),
)
def learns(sub, draw):
    "In 12 rounds the policy learns the game from its own best replies: six runs, each beside ours."
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
# no cheats of update.lr: a mean over tokens makes smaller steps, and is right if it learns as fast
# no keywords, size, values, float32, gradient of update: any update that learns is right
# no gradient of worth_keeping: True or False


# %% [mutant] nothing to choose, and all kept
# caught by: chooses
# says: nothing to choose from
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
# says: are compared
def worth_keeping(rewards):
    return rewards == rewards.amax()


# %% [mutant] padding is imitated
# caught by: only_these
# says: other tokens after the ends
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
# says: not kept
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
# says: another scale
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
# says: no more likely than one does
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
