# ---
# title: Best of n against best of m
# kind: derive
# minutes: 20
# ---

# %% [statement]
# Two teams use the *same* model and the same reward model. Team A submits the best of $n$ completions, team B the best of $m$. All $n + m$ are sampled independently.
#
# Derive, then write, `wins(probs, rewards, n, m)`: the probability that A's completion has the higher reward, plus half the probability that the two rewards are equal.
# `probs` are the model's probabilities of all its completions, some of which may be 0, and `rewards` their rewards; several may be equal. Do not sample: the result is exact. Gradients through
# `probs` are checked, along changes after which the probabilities still sum to 1.
#
# A check for your derivation: without ties and with very many completions, the result must tend to a simple expression in $n$ and $m$.

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
    i = torch.arange(n)[:, None]
    # The distribution of A's completion: (Fⁿ − F⁻ⁿ)/(F − F⁻) written as a sum, so that a probability may be 0.
    best = probs * (upto**i * below ** (n - 1 - i)).sum(0)
    return (best * (upto**m + below**m) / 2).sum()


# %% [tests]
import itertools

from minirlhf_course.classroom.testing import expect, fail, test, tidy_distribution


def played(probs, rewards, n, m):
    """Return the probabilities that A wins, that B wins, and of a tie, over all ways to sample n + m completions."""
    chances = [0.0, 0.0, 0.0]
    for drawn in itertools.product(range(len(probs)), repeat=n + m):
        chance = float(probs[list(drawn)].prod())
        ours, theirs = max(rewards[list(drawn[:n])]), max(rewards[list(drawn[n:])])
        chances[0 if ours > theirs else 1 if ours < theirs else 2] += chance
    return chances


def chance(probs, rewards, n, m):
    """Return `won + tied / 2` of `played` by tensor operations, so that autograd can follow."""
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
        "Condition on the reward of A's completion, whose distribution the chapter derives. What is the probability that all of B's rewards are lower?",
        "With $F$ and $F^-$ at A's reward, B's best is lower with probability $(F^-)^m$, and lower or equal with probability $F^m$. A tie counts half.",
    ),
    against="all ways to sample n + m completions",
)
def different(sub, draw):
    "Different rewards, several samples on both sides."
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
        "a tie is split as n to m instead of in halves": won + tied * n / (n + m),
        "a tie counts 0 instead of ½": won,
        "a tie counts 1 instead of ½": won + tied,
        "this is n/(n + m), which holds without ties only; here both teams can sample the same completion": n / (n + m),
        "this is the probability for team B": lost + tied / 2,
        "both teams submit their worst": worst[0] + worst[2] / 2,
        "both teams sample once": 0.5,
        "team B samples once": one[0] + one[2] / 2,
        "a tie is halved for each of B's completions; only the best of them can tie": float(halved),
        "the distribution of A's best is taken for a density, $n\\,p\\,F^{n-1}$": all_m,
    }
    given = {"probs": probs, "rewards": rewards, "n": n, "m": m}
    near = isinstance(got, torch.Tensor) and got.numel() == 1 and 1e-4 < abs(float(got) - want) < 0.015
    if near and all(abs(float(got) - value) > 1e-4 for value in slips.values()):
        fail("`wins` is close to the expected value but not exact; do not simulate or round", **given)
    expect(got, want, what="`wins`", given=given, mistakes=slips)


@test(
    points=1,
    hints=(
        "Let two completions have the same reward. Does your $F^-$ exclude both of them?",
        "$F^-(r)$ is the probability of a reward *strictly below* $r$, over all completions.",
    ),
    against="all ways to sample n + m completions",
)
def tied_rewards(sub, draw):
    "Completions with equal rewards."
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
        "Autograd must reach `probs`. Which operation of yours stops the gradient?",
        "`float(…)`, `.item()`, `torch.tensor(…)` and NumPy stop it. Compute $F$ and $F^-$ as sums of tensor entries of `probs`.",
    ),
    against="autograd through all ways to sample n + m completions",
)
def slope(sub, draw):
    "The gradient through `probs`, along changes after which they still sum to 1, and a probability of 0."
    probs = tidy_distribution(draw, 4)
    rewards = torch.tensor([0.0, 1.0, 1.0, 2.0], dtype=torch.float64)[draw.permutation(4)]
    n, m = [(3, 2), (1, 3)][draw.integer(0, 1)]
    zeros = [torch.zeros_like(probs).masked_scatter(rewards != r, tidy_distribution(draw, 3)) for r in (0.0, 2.0)]
    middle = torch.zeros_like(probs).masked_scatter(rewards != 1.0, tidy_distribution(draw, 2))
    where = " where a probability is 0"
    for asked, p, where in ((sub, probs, ""), *((sub.aside, p, where) for p in (*zeros, middle))):
        leaf = p.clone().requires_grad_()
        (want,) = torch.autograd.grad(chance(leaf, rewards, n, m), leaf)
        got = asked.gradient("wins", p, rewards, n, m, wrt=0).double()
        expect(
            got - got.mean(),
            want - want.mean(),
            what=f"the gradient of `wins`{where}, minus its mean,",
            given={"probs": p, "rewards": rewards, "n": n, "m": m},
            mistakes={"no gradient reaches `probs`": torch.zeros_like(want)},
        )
    probs = torch.tensor([0.0, 0.25, 0.75], dtype=torch.float64)[draw.permutation(3)]
    rewards = draw.permutation(3).double()
    won, _, tied = played(probs, rewards, 2, 1)
    expect(
        sub.aside.wins(probs, rewards, 2, 1),
        won + tied / 2,
        what="`wins`, with a probability of 0,",
        given={"probs": probs, "rewards": rewards, "n": 2, "m": 1},
    )


@test(
    points=1,
    hints=(
        "Take a thousand completions, all different and equally probable. Which of the n + m samples is best?",
        "Each of the n + m is the best with the same probability, and n of them are A's.",
    ),
    against="n/(n + m)",
)
def many_replies(sub, draw):
    "With many completions and no equal rewards the result is nearly n/(n + m)."
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
# says: a tie counts 0
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
# says: for team B
def wins(probs, rewards, n, m):
    upto = (probs * (rewards <= rewards[:, None])).sum(-1)
    below = (probs * (rewards < rewards[:, None])).sum(-1)
    return ((upto**m - below**m) * probs / (upto - below) * (upto**n + below**n) / 2).sum()


# %% [partial] 1: the limit of many replies, nothing else
def wins(probs, rewards, n, m):
    return probs.sum() * n / (n + m)
