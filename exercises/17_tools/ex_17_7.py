# ---
# title: Credit without the variance of the situations
# kind: implement
# minutes: 40
# seconds: 60
# ---

# %% [statement]
# A policy acts in four turns. At each turn it sees one of three situations and chooses one of three actions. Its reward has two parts: a point for the right action, and the gain or cost of the *situation*, whatever the action. A situation mostly stays the same from one turn to the next, so that the total reward of a conversation
# depends more on its situations than on its actions. Groups hold 16 conversations.
#
# Write `credit(seen, rewards)`: `seen` `(P, G, H)`, the number of the situation at each of `H` turns of `G` conversations in each of `P` groups; `rewards` `(P, G, H)`, the reward of each turn. Returns `(P, G, H)`, the credit of each turn. The groups are independent.
#
# 1. A turn's credit must not depend on rewards *before* it in its conversation.
# 2. The mean of $\sum_i\sum_k A_{i,k}\,\nabla\log\pi$ over all possible groups must be $G$ times the gradient of the expected sum of rewards, **exactly**, for any $G \ge 2$, however situations follow from situations and actions. The only exception: a turn without any comparison, by your own rule, gets 0.
# 3. The last test trains: a policy with one row of logits for each situation, 40 steps, six seeds, each with six groups that learn independently, and each paired with our run. The curve is the probability of the right action. You pass if the lower end of the 95 % interval of (the mean of your final values − ours) is at least −.05. Without a
#    comparison that removes the effect of the situations, your result is lower than that.

# %% [given]
import torch


# %% [stub]
def credit(seen, rewards):
    """seen: (P, G, H) integers. rewards: (P, G, H). Returns (P, G, H)."""
    raise NotImplementedError


# %% [solution]
def credit(seen, rewards):
    returns = rewards.flip(-1).cumsum(-1).flip(-1)
    same = seen[:, :, None] == seen[:, None]  # (P, G, G, H): the same turn, in the same situation
    same = (same & ~torch.eye(seen.shape[1], dtype=torch.bool)[:, :, None]).to(returns.dtype)
    count = same.sum(2)
    usual = torch.einsum("pijh,pjh->pih", same, returns) / count.clamp(min=1)
    return torch.where(count > 0, returns - usual, 0.0)


# %% [tests]
import itertools

import torch
from minirlhf_course.classroom.testing import expect, fail, test
from minirlhf_course.classroom.training import trains

LUCK = torch.tensor([-3.0, 0.0, 3.0], dtype=torch.float64)


def asked(sub, seen, rewards):
    got = sub.credit(seen, rewards)
    if not isinstance(got, torch.Tensor) or got.shape != rewards.shape:
        fail("the result of `credit` is not a tensor of the shape of `rewards`")
    if not bool(torch.isfinite(got).all()):
        fail("the result of `credit` holds numbers that are not finite")
    return got.double()


def to_go(rewards):
    return torch.stack([rewards[..., k:].sum(-1) for k in range(rewards.shape[-1])], -1)


@test(
    points=1,
    hints=(
        "Which rewards can the action of turn k still change?",
        "Those from turn k on. Begin with the sum of these.",
    ),
)
def past(sub, draw):
    "Rewards before a turn do not change its credit."
    seen = torch.tensor([[[draw.integer(0, 1) for _ in range(3)] for _ in range(4)] for _ in range(2)])
    rewards, bonus = draw.normal(2, 4, 3), 1 + draw.uniform()
    before = asked(sub, seen, rewards)
    moved = rewards.clone()
    moved[0, 1, 0] += bonus
    after = asked(sub, seen, moved)
    change = (after - before)[0, 1, 1:]
    expect(
        change, torch.zeros(2, dtype=torch.float64), what="the change of the later turns' credit", given={"the additional reward of turn 0": bonus}, tolerance=1e-9,
        mistakes={"rewards from before the turn are in its credit": torch.full((2,), float(bonus), dtype=torch.float64)},
    )  # fmt: skip


@test(
    points=1,
    hints=(
        "Which turns led to the reward of the last turn?",
        "All of them: each gets the rewards from it on, minus something that does not depend on its own conversation.",
    ),
)
def future(sub, draw):
    "A reward from a turn on changes the turn's credit by the same amount, where there are other conversations to compare with."
    seen = torch.full((2, 3, 3), draw.integer(0, 1))
    rewards, bonus, turn = draw.normal(2, 3, 3), 1 + draw.uniform(), draw.integer(1, 2)
    moved = rewards.clone()
    moved[0, 1, turn] += bonus
    change = (asked(sub, seen, moved) - asked(sub, seen, rewards))[0, 1]
    want = float(bonus) * (torch.arange(3) <= turn).double()
    expect(
        change, want, what="the change of the credit, turn by turn", given={"the additional reward": bonus, "at turn": turn}, tolerance=1e-9,
        mistakes={
            "each turn has credit for its own reward only": float(bonus) * (torch.arange(3) == turn).double(),
            "nothing has credit": torch.zeros(3, dtype=torch.float64),
            "the conversation itself is among those with which it is compared": want * 2 / 3,
        },
    )  # fmt: skip


@test(
    points=1,
    hints=(
        "Which conversations may a turn be compared with?",
        "With the conversations of its own group. The groups are independent.",
    ),
)
def apart(sub, draw):
    "The groups are independent."
    seen = torch.tensor([[[draw.integer(0, 1) for _ in range(3)] for _ in range(4)] for _ in range(3)])
    rewards = draw.normal(3, 4, 3)
    together = asked(sub, seen, rewards)
    alone = torch.cat([asked(sub, seen[i : i + 1], rewards[i : i + 1]) for i in range(3)])
    expect(together, alone, what="`credit` of three groups", tolerance=1e-9, mistakes={})


def small(draw):
    """A process of two turns, two situations and two actions: start, transitions, rewards, logits."""
    return draw.distribution(2), draw.distribution(2, 2, 2), draw.normal(2, 2), draw.normal(2, 2)


def courses(start, move, earned, pi):
    """Every course of two turns: what is seen, what is done, what is earned, and how probable it is."""
    for s0, a0, s1, a1 in itertools.product(range(2), repeat=4):
        yield (
            (s0, s1),
            (a0, a1),
            (earned[s0, a0], earned[s1, a1]),
            start[s0] * pi[s0, a0] * move[s0, a0, s1] * pi[s1, a1],
        )


@test(
    points=3,
    hints=(
        "May the conversation itself be part of its own baseline?",
        "No: then a part of its own return is subtracted. The mean of the *other* conversations does not depend on its own action.",
    ),
    against="all groups of two and of three conversations, the gradient by autograd",
)
def unbiased(sub, draw):
    "The mean over all groups is the gradient, where there is something to compare with."
    start, move, earned, logits = small(draw)
    group = draw.integer(2, 3)
    every = list(courses(start, move, earned, logits.softmax(-1)))
    chance = torch.stack([course[3] for course in every])
    index = torch.tensor(list(itertools.product(range(len(every)), repeat=group)))  # (N, G)
    seen, done = (torch.tensor([course[i] for course in every])[index] for i in (0, 1))  # (N, G, 2)
    rewards = torch.tensor([[float(x) for x in course[2]] for course in every], dtype=torch.float64)[index]
    weights = chance[index].prod(-1)  # (N,)
    got = asked(sub, seen, rewards)
    scores = torch.nn.functional.one_hot(done, 2).double() - logits.softmax(-1)[seen]  # (N, G, 2, 2)

    def mean(credits):
        out = torch.zeros(2, 2, dtype=torch.float64)
        terms = (weights[:, None, None] * credits)[..., None] * scores
        return out.index_add(0, seen.flatten(), terms.flatten(0, 2))

    returns = to_go(rewards)
    noise = draw.normal(*rewards.shape)  # no two alike, so that 0 says that a turn has nothing to be compared with
    compared = asked(sub, seen, noise) != 0  # the others' part of the gradient is left out
    want = mean(torch.where(compared, returns, 0.0))
    same = (seen[:, :, None] == seen[:, None]).double()
    inside = returns - torch.einsum("pijh,pjh->pih", same, returns) / same.sum(2)
    whole = returns - returns.mean(1, keepdim=True)
    turns = returns - (returns.sum((1, 2), keepdim=True) / returns[0].numel())
    expect(
        mean(got), want, what="the mean step", given={"G": group}, tolerance=1e-8,
        mistakes={
            "the conversation itself is among those with which it is compared": mean(inside),
            "the conversation itself is in the group's mean": mean(whole),
            "the conversation's own returns are in the mean of all turns": mean(turns),
        },
    )  # fmt: skip


@trains(
    points=3,
    hints=(
        "Two conversations differ by six points because one stayed in a good situation. Did the action cause this difference?",
        "Compare a turn with the *same turn* of the other conversations of the group in the *same situation*.",
    ),
    seeds=6,
    bar=0.05,
    what="the right action",
    alike=("credit",),
)
def learns(sub, draw):
    "In 40 steps the right actions become probable: six runs, each paired with our reference run."
    P, G, H, C, A = 6, 16, 4, 3, 3
    rng = torch.Generator().manual_seed(draw.integer(0, 2**28))
    best = torch.tensor([2, 0, 1])
    logits = torch.zeros(P, C, A, dtype=torch.float64)
    rows = torch.arange(P)[:, None, None].expand(P, G, H)
    likely = lambda: float(logits.softmax(-1)[:, torch.arange(C), best].mean())
    curve = [likely()]
    for number in range(1, 41):
        seen = torch.randint(C, (P, G, 1), generator=rng).repeat(1, 1, H)
        for k in range(1, H):
            moves = torch.rand(P, G, generator=rng) < 0.15
            seen[..., k] = torch.where(moves, torch.randint(C, (P, G), generator=rng), seen[..., k - 1])
        pi = logits.softmax(-1)[rows, seen]  # (P, G, H, A)
        done = torch.multinomial(pi.flatten(0, 2), 1, generator=rng).view(P, G, H)
        rewards = LUCK[seen] + (done == best[seen]).double()
        given = asked(sub, seen, rewards)
        terms = given[..., None] * (torch.nn.functional.one_hot(done, A).double() - pi) / G
        push = torch.zeros_like(logits).index_put((rows, seen), terms, accumulate=True)
        logits = logits + 0.6 * push
        if number % 10 == 0:
            curve.append(likely())
    return curve


# %% [probes]
# no values, integers, float32, size, gradient, nan, keywords: situations are whole numbers, and no gradient flows


# %% [mutant] trajectory credit
# caught by: past
# says: before the turn
def credit(seen, rewards):
    total = rewards.sum(-1, keepdim=True).expand_as(rewards)
    return (total - total.mean(1, keepdim=True)) * seen.shape[1] / (seen.shape[1] - 1)


# %% [mutant] the group is the batch
# caught by: apart
def credit(seen, rewards):
    returns = rewards.flip(-1).cumsum(-1).flip(-1)
    everybody = returns.sum((0, 1)) - returns
    return returns - everybody / (returns.shape[0] * returns.shape[1] - 1) if len(seen) > 1 else returns


# %% [mutant] those whom the turn led to the same situation
# caught by: unbiased
def credit(seen, rewards):
    returns = rewards.flip(-1).cumsum(-1).flip(-1)
    after = torch.cat([seen[..., 1:], seen[..., -1:]], -1)
    same = (after[:, :, None] == after[:, None]) & ~torch.eye(seen.shape[1], dtype=torch.bool)[:, :, None]
    same = same.to(returns.dtype)
    count = same.sum(2)
    usual = torch.einsum("pijh,pjh->pih", same, returns) / count.clamp(min=1)
    return torch.where(count > 0, returns - usual, 0.0)


# %% [mutant] itself among the others
# caught by: future
# says: itself
def credit(seen, rewards):
    returns = rewards.flip(-1).cumsum(-1).flip(-1)
    same = (seen[:, :, None] == seen[:, None]).double()
    return returns - torch.einsum("pijh,pjh->pih", same, returns) / same.sum(2)


# %% [mutant] the same turn, whatever the situation
# caught by: learns
def credit(seen, rewards):
    returns = rewards.flip(-1).cumsum(-1).flip(-1)
    return (returns - returns.mean(1, keepdim=True)) * seen.shape[1] / (seen.shape[1] - 1)


# %% [mutant] returns with nothing taken off
# caught by: learns
def credit(seen, rewards):
    return rewards.flip(-1).cumsum(-1).flip(-1)


# %% [mutant] no credit, no bias
# caught by: future
# says: nothing has credit
def credit(seen, rewards):
    return torch.zeros_like(rewards)


# %% [partial] 6: turn by turn
def credit(seen, rewards):
    returns = rewards.flip(-1).cumsum(-1).flip(-1)
    return (returns - returns.mean(1, keepdim=True)) * seen.shape[1] / (seen.shape[1] - 1)
