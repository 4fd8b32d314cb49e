# ---
# title: Rejection in its old sense
# kind: derive
# minutes: 25
# ---

# %% [statement]
# In statistics, rejection sampling means something else, and it is *exact*. Draw a reply from the reference. Keep it with probability $e^{(r(y) - r_{\max})/\beta}$, where $r_{\max}$ is the
# highest reward of any reply, all of which the reference can give; otherwise throw it away and draw again, until one is kept. (Liu et al. 2023, "Statistical rejection sampling improves preference
# optimization", make preference data in this way.)
#
# Derive two things, and write them as functions. No sampling: both are exact, and gradients through `rewards` count.
#
# 1. `kept(ref, rewards, beta)`: the distribution of the reply that is finally kept. You have met it.
# 2. `tries(ref, rewards, beta)`: how many draws that takes on average, the kept one included. What happens to it as $\beta \to 0$?

# %% [given]
import torch


# %% [stub]
def kept(ref, rewards, beta):
    """ref: (N,) probabilities, none 0. rewards: (N,). beta > 0. Returns (N,)."""
    raise NotImplementedError


def tries(ref, rewards, beta):
    """The same arguments. Returns a scalar tensor."""
    raise NotImplementedError


# %% [solution]
def kept(ref, rewards, beta):
    return torch.softmax(ref.log() + rewards / beta, -1)


def tries(ref, rewards, beta):
    # as β → 0 only the best replies are kept, and this goes to 1/π_ref(the best)
    return 1 / (ref * torch.exp((rewards - rewards[ref > 0].max()) / beta).where(ref > 0, 0.0)).sum()


# %% [tests]
import math

from minirlhf_course.classroom.testing import expect, test, tidy, tidy_distribution


def problem(draw):
    """A reference, rewards, β."""
    return tidy_distribution(draw, 4), tidy(draw.normal(4)), [0.5, 2.0, 0.8][draw.integer(0, 2)]


def chain(ref, rewards, beta, draws=60_000):
    """What is kept and the mean number of draws, followed draw by draw until nothing is left over."""
    accept = [math.exp((r - max(rewards)) / beta) for r in rewards]
    left, found, mean = 1.0, [0.0] * len(ref), 0.0
    for number in range(1, draws):
        for i, (p, a) in enumerate(zip(ref, accept, strict=True)):
            found[i] += left * p * a
            mean += number * left * p * a
        left *= 1 - sum(p * a for p, a in zip(ref, accept, strict=True))
        if left < 1e-14:
            break
    return torch.tensor(found, dtype=torch.float64), mean


@test(
    points=2,
    hints=(
        "After a rejection everything begins anew. So what decides between two replies is how likely each is to be drawn *and* kept in one try.",
        "One try keeps y with probability $\\pi_\\text{ref}(y)\\, e^{(r(y) - r_{\\max})/\\beta}$. Divide by the sum; what does not depend on y drops out.",
    ),
    against="the chain of draws, followed until nothing is left over",
)
def distribution(sub, draw):
    "`kept` is the law of the kept reply."
    ref, rewards, beta = problem(draw)
    want, _ = chain(ref.tolist(), rewards.tolist(), beta)
    once = ref * torch.exp((rewards - rewards.max()) / beta)
    expect(
        sub.kept(ref, rewards, beta),
        want,
        what="`kept`",
        given={"ref": ref, "rewards": rewards, "beta": beta},
        tolerance=1e-8,
        mistakes={
            "that is one try; what is thrown away is drawn again, so the probabilities must sum to 1": once,
            "the reference is forgotten": torch.softmax(rewards / beta, -1),
            "the rewards are not divided by β": torch.softmax(ref.log() + rewards, -1),
            "the rewards are multiplied by β, not divided": torch.softmax(ref.log() + rewards * beta, -1),
            "low rewards are kept more often": torch.softmax(ref.log() - rewards / beta, -1),
            "what is thrown away is drawn again once, and kept then": once + (1 - once.sum()) * ref,
            "the logarithm of the reference is forgotten": torch.softmax(ref + rewards / beta, -1),
        },
    )


@test(
    points=2,
    hints=(
        "All tries are alike. What is the probability that one of them keeps something?",
        "If every try succeeds with probability $p$, the first success comes after $1/p$ tries on average.",
    ),
    against="the chain of draws, followed until nothing is left over",
)
def cost(sub, draw):
    "`tries` is the mean number of draws."
    ref, rewards, beta = problem(draw)
    law, want = chain(ref.tolist(), rewards.tolist(), beta)
    accept = torch.exp((rewards - rewards.max()) / beta)
    expect(
        sub.tries(ref, rewards, beta),
        want,
        what="`tries`",
        given={"ref": ref, "rewards": rewards, "beta": beta},
        tolerance=1e-8,
        mistakes={
            "that is the probability of keeping something in one try": 1 / want,
            "the kept draw is not counted, but it is a draw as well": want - 1,
            "that is half of all waits, the median, not their mean": -math.log(2) / math.log1p(-1 / want),
            "the waits for each reply are averaged; it is the chances that are": float((ref / accept).sum()),
            "that is the limit β → 0": float(1 / ref[rewards.argmax()]),
            "all replies count alike, and the reference does not draw them alike": float(1 / accept.mean()),
            "acceptance is averaged over what is kept, not over what is drawn": float(1 / (law * accept).sum()),
            "that is the exponential of the mean of log(kept/ref), not of the largest": float(
                (law * (law / ref).log()).sum().exp()
            ),
        },
    )


@test(
    points=1,
    hints=(
        "Rewards of a thousand: does anything overflow?",
        "Subtract the largest reward *before* the exponential.",
    ),
    against="the same rewards, shifted",
)
def large_rewards(sub, draw):
    "Rewards may be large; only differences matter."
    ref, rewards, beta = problem(draw)
    law, mean = chain(ref.tolist(), rewards.tolist(), beta)
    expect(sub.kept(ref, rewards + 2000.0, beta), law, what="`kept` with 2000 added to all rewards", tolerance=1e-8)
    expect(sub.tries(ref, rewards + 2000.0, beta), mean, what="`tries` with 2000 added to all rewards", tolerance=1e-8)


# %% [probes]
# no gradient of kept.ref, tries.ref: the reference is data


# %% [mutant] one try
# caught by: distribution
# says: drawn again
def kept(ref, rewards, beta):
    return ref * torch.exp((rewards - rewards.max()) / beta)


# %% [mutant] the reference forgotten
# caught by: distribution
# says: reference is forgotten
def kept(ref, rewards, beta):
    return torch.softmax(rewards / beta, -1)


# %% [mutant] the chance of one try
# caught by: cost
# says: probability of keeping
def tries(ref, rewards, beta):
    return (ref * torch.exp((rewards - rewards.max()) / beta)).sum()


# %% [mutant] overflows
# caught by: large_rewards
def tries(ref, rewards, beta):
    return torch.exp(rewards.max() / beta) / (ref * torch.exp(rewards / beta)).sum()


# %% [partial] 2: the law only
def tries(ref, rewards, beta):
    return ref.sum()
