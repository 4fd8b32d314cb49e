# ---
# title: The leave-one-out baseline
# kind: implement
# minutes: 20
# ---

# %% [statement]
# Every prompt has $G$ completions. RLOO compares each completion with the mean reward of the *other* completions of the same prompt,
#
# $$ A_i = r_i - \frac{1}{G-1} \sum_{j \ne i} r_j . $$
#
# Some completions could not be graded: the program that checks them crashed, or the judge's output could not be parsed. `valid` marks
# the ones that count. Where `valid` is False the number in `rewards` has no meaning; it may be NaN.
#
# Write `leave_one_out(rewards, valid)`:
#
# * only valid completions count, as samples and as members of a baseline;
# * a completion that is not valid gets advantage 0;
# * a completion that is the only valid one of its group has no baseline: its advantage is also 0.
#
# You need no loop over completions: the leave-one-out mean is the group's sum minus the completion's own reward, divided by the count minus 1.

# %% [given]
import torch


# %% [stub]
def leave_one_out(rewards, valid):
    """rewards: (P, G). valid: (P, G) bool. Returns (P, G)."""
    raise NotImplementedError


# %% [solution]
def leave_one_out(rewards, valid):
    kept = torch.where(valid, rewards, 0.0)
    count = valid.sum(-1, keepdim=True)
    others = (kept.sum(-1, keepdim=True) - kept) / (count - 1).clamp(min=1)
    return torch.where(valid & (count >= 2), kept - others, 0.0)


# %% [tests]
import itertools

import torch
from minirlhf_course.classroom.testing import expect, test, tidy


def one_by_one(rewards, valid):
    """Return the advantages by definition, completion by completion."""
    result = torch.zeros_like(rewards)
    for p, i in itertools.product(range(rewards.shape[0]), range(rewards.shape[1])):
        others = [float(rewards[p, j]) for j in range(rewards.shape[1]) if j != i and valid[p, j]]
        if valid[p, i] and others:
            result[p, i] = float(rewards[p, i]) - sum(others) / len(others)
    return result


def problem(draw, groups=2):
    """Return rewards with one decimal, no two of a group equal."""
    size = draw.integer(3, 5)
    spread = torch.stack([draw.permutation(size) for _ in range(groups)]).double()
    return tidy(spread + 1 + draw.uniform(groups, size, high=0.4))


@test(
    points=2,
    hints=(
        "For one completion: add up the rewards of its group, subtract its own, and divide by the number of the remaining ones.",
        "`rewards.sum(-1, keepdim=True) - rewards` holds, for each completion, the sum over the other completions of its group.",
    ),
)
def the_others(sub, draw):
    "Where every completion is valid, each is compared with the mean of the other completions of its prompt."
    rewards = problem(draw)
    valid = torch.ones_like(rewards, dtype=torch.bool)
    size = rewards.shape[1]
    centred = rewards - rewards.mean(-1, keepdim=True)
    everybody = (rewards.sum() - rewards) / (rewards.numel() - 1)
    others = [[torch.cat([row[:i], row[i + 1 :]]) for i in range(size)] for row in rewards]
    medians = torch.stack([torch.stack([each.median() for each in row]) for row in others])
    expect(
        sub.leave_one_out(rewards, valid),
        one_by_one(rewards, valid),
        what="the advantage",
        given={"rewards": rewards},
        mistakes={
            "the completion's own reward is part of the mean": centred,
            "the sum of the other rewards is divided by G, not by G − 1": rewards
            - (rewards.sum(-1, keepdim=True) - rewards) / size,
            "completions of other prompts are in the baseline": rewards - everybody,
            "the median of the other rewards is subtracted, not their mean": rewards - medians,
            "the groups are read across the columns": one_by_one(rewards.T, valid.T).T,
        },
    )


@test(
    points=1,
    hints=(
        "A completion without a grade is not a completion of reward 0. Remove it from the sum *and* from the count.",
        "Set the rewards that do not count to 0 with `torch.where`, which also removes NaN, and count with `valid.sum(-1)`.",
    ),
)
def not_graded(sub, draw):
    "A completion that could not be graded gets 0 and is in no baseline."
    rewards = problem(draw)
    valid = torch.ones_like(rewards, dtype=torch.bool)
    valid[0, draw.integer(0, rewards.shape[1] - 1)] = False
    zeros = torch.where(valid, rewards, 0.0)
    size = rewards.shape[1]
    centred = zeros - zeros.sum(-1, keepdim=True) / valid.sum(-1, keepdim=True)
    expect(
        sub.leave_one_out(torch.where(valid, rewards, torch.nan), valid),
        one_by_one(rewards, valid),
        what="the advantage",
        given={"rewards": torch.where(valid, rewards, torch.nan), "valid": valid},
        mistakes={
            "a completion without a grade is counted with reward 0": torch.where(
                valid, zeros - (zeros.sum(-1, keepdim=True) - zeros) / (size - 1), 0.0
            ),
            "the factor G/(G − 1) counts completions without a grade": torch.where(
                valid, centred * size / (size - 1), 0.0
            ),
            "a completion without a grade still gets an advantage": torch.where(
                valid, one_by_one(rewards, valid), -zeros.sum(-1, keepdim=True) / (size - 1)
            ),
        },
    )


@test(
    points=1,
    hints=(
        "A group has one valid completion, so there is no other one. What does your division do?",
        "Count the valid completions of each group, and give 0 to a group with fewer than two. Keep the divisor at 1 or more.",
    ),
)
def all_alone(sub, draw):
    "A group with fewer than two valid completions has no gradient: all its advantages are 0."
    rewards = problem(draw)
    valid = torch.ones_like(rewards, dtype=torch.bool)
    valid[1] = False
    valid[1, draw.integer(0, rewards.shape[1] - 1)] = True
    expect(
        sub.leave_one_out(rewards, valid),
        one_by_one(rewards, valid),
        what="the advantage",
        given={"rewards": rewards, "valid": valid},
        mistakes={
            "a completion without a baseline is compared with 0": torch.where(
                valid & (valid.sum(-1, keepdim=True) == 1), rewards, one_by_one(rewards, valid)
            ),
        },
    )


# %% [edges]
# all_alone: a completion that is the only valid one of its group has no baseline


# %% [probes]
# no gradient: advantages are data


# %% [mutant] the own reward is in the mean
# caught by: the_others
# says: own reward
def leave_one_out(rewards, valid):
    kept = torch.where(valid, rewards, 0.0)
    return torch.where(valid, kept - kept.sum(-1, keepdim=True) / valid.sum(-1, keepdim=True).clamp(min=1), 0.0)


# %% [mutant] divided by G
# caught by: the_others
# says: divided by G
def leave_one_out(rewards, valid):
    kept = torch.where(valid, rewards, 0.0)
    count = valid.sum(-1, keepdim=True)
    return torch.where(valid & (count >= 2), kept - (kept.sum(-1, keepdim=True) - kept) / count.clamp(min=1), 0.0)


# %% [mutant] one baseline for the whole batch
# caught by: the_others
# says: other prompts
def leave_one_out(rewards, valid):
    kept = torch.where(valid, rewards, 0.0)
    return torch.where(valid, kept - (kept.sum() - kept) / (valid.sum() - 1), 0.0)


# %% [mutant] a failed completion is counted as 0
# caught by: not_graded
# says: with reward 0
def leave_one_out(rewards, valid):
    kept = torch.where(valid, rewards, 0.0)
    others = (kept.sum(-1, keepdim=True) - kept) / (rewards.shape[1] - 1)
    return torch.where(valid, kept - others, 0.0)


# %% [mutant] alone, and compared with 0
# caught by: all_alone
# says: compared with 0
def leave_one_out(rewards, valid):
    kept = torch.where(valid, rewards, 0.0)
    count = valid.sum(-1, keepdim=True)
    others = (kept.sum(-1, keepdim=True) - kept) / (count - 1).clamp(min=1)
    return torch.where(valid, kept - others, 0.0)


# %% [partial] 2: right where every completion has a grade
def leave_one_out(rewards, valid):
    return rewards - (rewards.sum(-1, keepdim=True) - rewards) / (rewards.shape[1] - 1)
