# ---
# title: Group membership by expectation–maximisation
# kind: implement
# minutes: 25
# ---

# %% [statement]
# $G$ groups of people have different tastes: for group $g$ the $K$ completions have the rewards `rewards[g]`, and its people choose by Bradley–Terry with these rewards. `shares[g]` is the fraction of people in
# group $g$. Person $n$ has labelled some pairs: `wins[n, a, b]` counts how often they preferred `a` to `b` (the diagonal is zero). All labels of a person are independent, given the group.
#
# Write the two steps of expectation–maximisation:
#
# 1. `belonging(wins, rewards, shares)`: `(N, G)`, the probability that person $n$ belongs to group $g$, given all labels of this person. For a person without labels it is `shares`.
# 2. `weighted_wins(wins, belongs)`: `(G, K, K)`, the win counts for the next fit of each group's rewards: the counts of all people, weighted by `belongs`.
#
# A person with two thousand labels must not break it: a product of two thousand probabilities is 0 in floating point.

# %% [given]
import torch


# %% [stub]
def belonging(wins, rewards, shares):
    """wins: (N, K, K). rewards: (G, K). shares: (G,), positive, sum 1. Returns (N, G), rows sum to 1."""
    raise NotImplementedError


def weighted_wins(wins, belongs):
    """wins: (N, K, K). belongs: (N, G). Returns (G, K, K)."""
    raise NotImplementedError


# %% [solution]
def belonging(wins, rewards, shares):
    choice = torch.nn.functional.logsigmoid(rewards[:, :, None] - rewards[:, None, :])
    return (torch.einsum("nab,gab->ng", wins, choice) + shares.log()).softmax(-1)


def weighted_wins(wins, belongs):
    return torch.einsum("ng,nab->gab", belongs, wins)


# %% [tests]
import math

import torch
from minirlhf_course.classroom.testing import expect, test, tidy


def problem(draw):
    """Return three people, two or three groups, three or four completions, few labels."""
    people, groups, size = 3, draw.integer(2, 3), draw.integer(3, 4)
    wins = torch.tensor(
        [[[float(draw.integer(0, 2)) for _ in range(size)] for _ in range(size)] for _ in range(people)]
    )
    wins = wins.double() * (1 - torch.eye(size, dtype=torch.float64))
    wins[0] = 0.0  # somebody who has not labelled anything
    shares = torch.tensor([[0.7, 0.3], [0.5, 0.3, 0.2]][groups - 2], dtype=torch.float64)
    return wins, tidy(draw.normal(groups, size)), shares


def bayes(wins, rewards, shares):
    """Return the posterior label by label: prior times the probability of each label, divided by the sum."""
    found = []
    for person in wins.tolist():
        joint = []
        for share, r in zip(shares.tolist(), rewards.tolist(), strict=True):
            chance = share
            for a, row in enumerate(person):
                for b, count in enumerate(row):
                    for _ in range(int(count)):
                        chance *= math.exp(r[a]) / (math.exp(r[a]) + math.exp(r[b]))
            joint.append(chance)
        found.append([c / sum(joint) for c in joint])
    return torch.tensor(found, dtype=torch.float64)


@test(
    points=2,
    hints=(
        "Bayes' rule: the fraction of the group, times the probability that a person of this group gives all these labels, divided by the sum over groups.",
        "The log of the second factor is the sum over pairs of wins[n, a, b] · log σ(r_g(a) − r_g(b)). Add the logarithms of `shares`, and take a softmax over the groups.",
    ),
)
def posterior(sub, draw):
    "`belonging` is the posterior probability of each group."
    wins, rewards, shares = problem(draw)
    first = torch.cat([wins[:, :1], torch.zeros_like(wins[:, 1:])], 1)
    alike = bayes(wins, rewards, torch.full_like(shares, 1 / len(shares)))
    labels = wins.sum((1, 2))[:, None]
    mean = shares * alike ** (1 / labels.clamp(min=1))
    often = alike * shares**labels
    added = alike * shares.exp()
    plain = torch.einsum("nab,gab->ng", wins, rewards[:, :, None] - rewards[:, None]) + shares.log()
    joint = shares * torch.einsum("nab,gab->ng", wins, (rewards[:, :, None] - rewards[:, None]).sigmoid().log()).exp()
    expect(
        sub.belonging(wins, rewards, shares),
        bayes(wins, rewards, shares),
        what="the posterior of the groups",
        given={"wins": wins, "rewards": rewards, "shares": shares},
        mistakes={
            "`shares` are left out": bayes(wins, rewards, torch.full_like(shares, 1 / len(shares))),
            "wins are read as losses": bayes(wins.mT, rewards, shares),
            "the labels of all people are combined": bayes(wins.sum(0, keepdim=True), rewards, shares).expand(3, -1),
            "only the wins of the first completion count": bayes(first, rewards, shares),
            "the mean over the labels is taken, not the sum": mean / mean.sum(-1, keepdim=True),
            "`shares` is multiplied in once for every label, but a person belongs to one group": often
            / often.sum(-1, keepdim=True),
            "`shares` are added to logarithms without their own logarithm": added / added.sum(-1, keepdim=True),
            "`shares` are used only for people without labels": torch.where(labels > 0, alike, shares),
            "rewards of winners minus rewards of losers are summed, which is no log-probability": plain.softmax(-1),
            "the softmax is over the people instead of the groups": joint / joint.sum(0),
            "rows do not sum to 1: the groups are normalised over people": (
                bayes(wins, rewards, shares) / bayes(wins, rewards, shares).sum(0)
            ),
        },
    )


@test(
    points=1,
    hints=(
        "Multiply each person's counts by the probability of the group, and add over people.",
        "`torch.einsum` with the letters n, g, a, b does it in one line; the sum is over n.",
    ),
)
def weights(sub, draw):
    "`weighted_wins` is the sum of all counts, weighted by `belongs`."
    wins, rewards, shares = problem(draw)
    belongs = bayes(wins, rewards, shares)
    want = torch.stack([sum(float(belongs[n, g]) * wins[n] for n in range(len(wins))) for g in range(len(shares))])
    expect(
        sub.weighted_wins(wins, belongs),
        want,
        what="the table of weighted counts",
        given={"wins": wins, "belongs": belongs},
        mistakes={
            "each person counts only for the most probable group": torch.stack(
                [wins[belongs.argmax(-1) == g].sum(0) for g in range(len(shares))]
            ),
            "wins and losses are exchanged": want.mT,
            "every person counts equally for all groups": (wins.sum(0) / len(shares)).expand(len(shares), -1, -1),
            "the counts are divided by the group's size": want / belongs.sum(0)[:, None, None],
        },
    )


@test(
    points=1,
    hints=(
        "The product of two thousand factors of about ½ is 0 in floating point, and then you get 0/0. The ratio of two such products is well defined.",
        "Use logarithms until the end: a softmax over groups subtracts the largest log-probability first.",
    ),
)
def many_labels(sub, draw):
    "`belonging` is right for a person with thousands of labels, and for large differences in reward."
    _, rewards, shares = problem(draw)
    size, count = rewards.shape[1], 1000.0
    once = (1 - torch.eye(size, dtype=torch.float64)).triu()
    wins = torch.stack([count * once, count * once.T])
    joint = torch.zeros(2, len(shares), dtype=torch.float64)
    for g, r in enumerate(rewards.tolist()):
        for a in range(size):
            for b in range(a + 1, size):
                joint[0, g] -= count * math.log1p(math.exp(r[b] - r[a]))
                joint[1, g] -= count * math.log1p(math.exp(r[a] - r[b]))
    joint += shares.log()
    joint -= joint.amax(-1, keepdim=True)
    want = joint.exp() / joint.exp().sum(-1, keepdim=True)
    expect(
        sub.belonging(wins, rewards, shares),
        want,
        what="the posterior of the groups, after thousands of labels",
        mistakes={"all products underflow, and only `shares` are left": shares.expand(2, -1)},
    )


# %% [edges]
# many_labels: A person with two thousand labels must not break it


# %% [probes]
# range 1e-4 to 100 of belonging.rewards: the counts of a pair that nobody was asked about are 0, and 0 times an infinity is NaN
# no gradient: probabilities are asked for, however they are computed
# no values of belonging.wins, weighted_wins.wins: counts are whole numbers


# %% [mutant] the shares are forgotten
# caught by: posterior
# says: are left out
def belonging(wins, rewards, shares):
    choice = torch.nn.functional.logsigmoid(rewards[:, :, None] - rewards[:, None, :])
    return torch.einsum("nab,gab->ng", wins, choice).softmax(-1)


# %% [mutant] wins and losses confused
# caught by: posterior
# says: read as losses
def belonging(wins, rewards, shares):
    choice = torch.nn.functional.logsigmoid(rewards[:, None, :] - rewards[:, :, None])
    return (torch.einsum("nab,gab->ng", wins, choice) + shares.log()).softmax(-1)


# %% [mutant] softmax over people
# caught by: posterior
def belonging(wins, rewards, shares):
    choice = torch.nn.functional.logsigmoid(rewards[:, :, None] - rewards[:, None, :])
    return (torch.einsum("nab,gab->ng", wins, choice) + shares.log()).softmax(0)


# %% [mutant] hard assignment
# caught by: weights
# says: only for the most probable
def weighted_wins(wins, belongs):
    hard = torch.nn.functional.one_hot(belongs.argmax(-1), belongs.shape[1]).to(wins.dtype)
    return torch.einsum("ng,nab->gab", hard, wins)


# %% [mutant] a mean instead of a sum
# caught by: weights
# says: divided by the group's size
def weighted_wins(wins, belongs):
    return torch.einsum("ng,nab->gab", belongs / belongs.sum(0), wins)


# %% [partial] 3: probabilities are multiplied, which ends in 0/0
def belonging(wins, rewards, shares):
    choice = torch.sigmoid(rewards[:, :, None] - rewards[:, None, :])
    joint = shares * (choice[None] ** wins[:, None]).flatten(2).prod(-1)
    return joint / joint.sum(-1, keepdim=True)
