# ---
# title: Two may try
# kind: derive
# minutes: 20
# ---

# %% [statement]
# Two teams use the *same* model and the same reward model. Team A shows the best of $n$ replies, team B the best of $m$, all $n + m$ drawn independently.
#
# Derive, then write, `wins(probs, rewards, n, m)`: the probability that A's reply has the higher reward, plus half the probability that the two rewards are equal.
# `probs` are the model's probabilities of all its replies, `rewards` what they earn; several may earn the same. No sampling: the answer is exact, and gradients through
# `probs` count, along changes after which the probabilities still sum to 1.
#
# A check for your derivation: without ties and with very many replies the answer must tend to something simple in $n$ and $m$.

# %% [given]
import torch


# %% [stub]
def wins(probs, rewards, n, m):
    """probs, rewards: (N,). n, m: integers from 1. Returns a scalar tensor."""
    raise NotImplementedError


# %% [solution]
def wins(probs, rewards, n, m):
    upto = (probs * (rewards <= rewards[:, None])).sum(-1)
    below = (probs * (rewards < rewards[:, None])).sum(-1)
    tied = upto - below
    best = (upto**n - below**n) * probs / tied  # the law of A's reply
    return (best * (upto**m + below**m) / 2).sum()


# %% [tests]
import itertools

from minirlhf_course.classroom.testing import expect, fail, test, tidy_distribution


def played(probs, rewards, n, m):
    """A wins, B wins, a tie: over all ways to draw n + m replies."""
    chances = [0.0, 0.0, 0.0]
    for drawn in itertools.product(range(len(probs)), repeat=n + m):
        chance = float(probs[list(drawn)].prod())
        ours, theirs = max(rewards[list(drawn[:n])]), max(rewards[list(drawn[n:])])
        chances[0 if ours > theirs else 1 if ours < theirs else 2] += chance
    return chances


def chance(probs, rewards, n, m):
    """The same as `won + tied / 2`, where autograd can follow: all ways at once."""
    law = lambda k: torch.cartesian_prod(*[torch.arange(len(probs))] * k).reshape(-1, k)
    ours, theirs = law(n), law(m)
    a, b = rewards[ours].amax(-1)[:, None], rewards[theirs].amax(-1)
    score = (a > b).double() + (a == b).double() / 2
    return probs[ours].prod(-1) @ score @ probs[theirs].prod(-1)


def replies(draw, size=3):
    """Probabilities and different rewards."""
    return tidy_distribution(draw, size), draw.permutation(size).double()


@test(
    points=1,
    hints=(
        "Condition on the reward of A's reply, whose law the chapter derives. How likely is it that all of B's are lower?",
        "With $F$ and $F^-$ at A's reward, B's best is lower with probability $(F^-)^m$ and at most as high with $F^m$. A tie counts half.",
    ),
    against="all ways to draw n + m replies",
)
def different(sub, draw):
    "Rewards that differ, several tries on both sides."
    probs, rewards = replies(draw)
    n, m = [(3, 2), (2, 3)][draw.integer(0, 1)]
    upto = torch.stack([probs[rewards <= r].sum() for r in rewards])
    below = upto - probs
    halved = ((upto**n - below**n) * ((upto + below) / 2) ** m).sum()
    worst = played(probs, -rewards, n, m)
    one, all_m = played(probs, rewards, n, 1), float((n * probs * upto ** (n - 1) * upto**m).sum())
    won, lost, tied = played(probs, rewards, n, m)
    got, want = sub.wins(probs, rewards, n, m), won + tied / 2
    slips = {
        "a tie is shared as n to m, not by halves": won + tied * n / (n + m),
        "a tie counts nothing": won,
        "a tie counts as a win": won + tied,
        "n/(n + m) is taken, which holds without ties only: here both may draw the same reply": n / (n + m),
        "the other team's chances are answered": lost + tied / 2,
        "both teams show their worst": worst[0] + worst[2] / 2,
        "both teams draw once": 0.5,
        "team B draws once": one[0] + one[2] / 2,
        "a tie is halved for each of B's replies; it is the best of them that ties": float(halved),
        "the law of A's best is taken for a density, $n\\,p\\,F^{n-1}$": all_m,
    }
    given = {"probs": probs, "rewards": rewards, "n": n, "m": m}
    near = isinstance(got, torch.Tensor) and got.numel() == 1 and 1e-4 < abs(float(got) - want) < 0.015
    if near and all(abs(float(got) - value) > 1e-4 for value in slips.values()):
        fail("`wins` is near the right number; if it was simulated or rounded: an exact one is asked for", **given)
    expect(got, want, what="`wins`", given=given, mistakes=slips)


@test(
    points=1,
    hints=(
        "Let two replies earn the same. Does your $F^-$ leave both of them out?",
        "$F^-(r)$ is the probability of earning *less* than $r$: strictly less, over all replies.",
    ),
    against="all ways to draw n + m replies",
)
def tied_rewards(sub, draw):
    "Replies that earn the same."
    probs = tidy_distribution(draw, 4)
    rewards = torch.tensor([0.0, 1.0, 1.0, 2.0], dtype=torch.float64)[draw.permutation(4)]
    won, _, tied = played(probs, rewards, 2, 1)
    expect(
        sub.wins(probs, rewards, 2, 1),
        won + tied / 2,
        what="`wins`",
        given={"probs": probs, "rewards": rewards, "n": 2, "m": 1},
    )


@test(
    points=1,
    hints=(
        "An optimiser will differentiate this. Where is the gradient of `probs` cut?",
        "`float(…)`, `.item()`, `torch.tensor(…)` and NumPy cut it. Count replies by a sum of their `probs`, not by numbers taken out of them.",
    ),
    against="autograd through all ways to draw n + m replies",
)
def slope(sub, draw):
    "The gradient through `probs`, along changes after which they still sum to 1."
    probs = tidy_distribution(draw, 4)
    rewards = torch.tensor([0.0, 1.0, 1.0, 2.0], dtype=torch.float64)[draw.permutation(4)]
    n, m = [(3, 2), (1, 3)][draw.integer(0, 1)]
    leaf = probs.clone().requires_grad_()
    (want,) = torch.autograd.grad(chance(leaf, rewards, n, m), leaf)
    got = sub.gradient("wins", probs, rewards, n, m, wrt=0).double()
    expect(
        got - got.mean(),
        want - want.mean(),
        what="the gradient of `wins`, less its mean,",
        given={"probs": probs, "rewards": rewards, "n": n, "m": m},
        mistakes={"none reaches `probs`": torch.zeros_like(want)},
    )


@test(
    points=1,
    hints=(
        "Take a thousand replies, all different and equally likely. Which of the n + m draws is best?",
        "Each of the n + m is best equally often, and n of them are A's.",
    ),
    against="n/(n + m)",
)
def many_replies(sub, draw):
    "In a fine world the answer is nearly n/(n + m)."
    n, m = draw.integer(1, 6), draw.integer(1, 6)
    size = 500
    probs = torch.full((size,), 1 / size, dtype=torch.float64)
    rewards = draw.permutation(size).double()
    expect(sub.wins(probs, rewards, n, m), n / (n + m), what="`wins`", tolerance=0.02, given={"n": n, "m": m})


# %% [probes]
# no gradient: a test of its own asks for it, along the simplex; off it right answers differ
# no float32: it is about sums of probabilities, and any precision will do


# %% [mutant] ties count nothing
# caught by: different
# says: a tie counts nothing
def wins(probs, rewards, n, m):
    upto = (probs * (rewards <= rewards[:, None])).sum(-1)
    below = (probs * (rewards < rewards[:, None])).sum(-1)
    return ((upto**n - below**n) * probs / (upto - below) * below**m).sum()


# %% [mutant] the limit
# caught by: different
# says: holds without ties only
def wins(probs, rewards, n, m):
    return probs.sum() * n / (n + m)


# %% [mutant] sorted, so that ties have an order
# caught by: tied_rewards
def wins(probs, rewards, n, m):
    order = rewards.argsort()
    upto = probs[order].cumsum(-1)
    below = upto - probs[order]
    return ((upto**n - below**n) * (upto**m + below**m) / 2).sum()


# %% [mutant] numbers taken out of the tensor
# caught by: slope
def wins(probs, rewards, n, m):
    p = probs.detach()
    upto = (p * (rewards <= rewards[:, None])).sum(-1)
    below = (p * (rewards < rewards[:, None])).sum(-1)
    return ((upto**n - below**n) * probs / (upto - below) * (upto**m + below**m) / 2).sum()


# %% [mutant] n and m exchanged
# caught by: different
# says: the other team
def wins(probs, rewards, n, m):
    upto = (probs * (rewards <= rewards[:, None])).sum(-1)
    below = (probs * (rewards < rewards[:, None])).sum(-1)
    return ((upto**m - below**m) * probs / (upto - below) * (upto**n + below**n) / 2).sum()


# %% [partial] 1: the limit of many replies, nothing else
def wins(probs, rewards, n, m):
    return probs.sum() * n / (n + m)
