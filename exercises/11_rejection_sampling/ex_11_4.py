# ---
# title: Rejection sampling in statistics
# kind: derive
# minutes: 25
# ---

# %% [statement]
# In statistics, rejection sampling is another algorithm, and it is *exact*. Sample a completion from the reference. Keep it with probability $e^{(r(y) - r_{\max})/\beta}$, where $r_{\max}$ is the highest
# reward of all completions. The reference gives each completion a positive probability. Otherwise reject it and sample again, until one is kept. (Liu et al. 2024, "Statistical rejection sampling improves preference
# optimization", generate preference data in this way.)
#
# Derive two results and write them as functions. Do not sample: both are exact. Gradients through `rewards` are checked.
#
# 1. `kept(ref, rewards, beta)`: the distribution of the completion that is finally kept. You know this distribution.
# 2. `tries(ref, rewards, beta)`: the expected number of samples, the kept one included. What is its limit for $\beta \to 0$?

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
    # for β → 0 only the best completions are kept, and this tends to 1/π_ref(the best)
    return 1 / (ref * torch.exp((rewards - rewards[ref > 0].max()) / beta).where(ref > 0, 0.0)).sum()


# %% [tests]
import math

from minirlhf_course.classroom.testing import expect, test, tidy, tidy_distribution


def problem(draw):
    """Return a reference distribution, rewards and β."""
    return tidy_distribution(draw, 4), tidy(draw.normal(4)), [0.5, 2.0, 0.8][draw.integer(0, 2)]


def chain(ref, rewards, beta, draws=60_000):
    """Return the distribution of the kept completion and the mean number of samples, followed sample by sample."""
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
        "After a rejection the process starts again. So the ratio of two completions depends only on their probabilities to be sampled *and* kept in one try.",
        "One try keeps y with probability $\\pi_\\text{ref}(y)\\, e^{(r(y) - r_{\\max})/\\beta}$. Divide by the sum over y; factors that do not depend on y cancel.",
    ),
    against="the process followed sample by sample",
)
def distribution(sub, draw):
    "`kept` is the distribution of the kept completion."
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
            "these are the probabilities of one try; after a rejection we sample again, so they must sum to 1": once,
            "the reference is missing": torch.softmax(rewards / beta, -1),
            "the rewards are not divided by β": torch.softmax(ref.log() + rewards, -1),
            "the rewards are multiplied by β, not divided": torch.softmax(ref.log() + rewards * beta, -1),
            "low rewards are kept more often than high ones": torch.softmax(ref.log() - rewards / beta, -1),
            "a rejected completion is replaced by one sample that is always kept": once + (1 - once.sum()) * ref,
            "the reference is used where its logarithm belongs": torch.softmax(ref + rewards / beta, -1),
        },
    )


@test(
    points=2,
    hints=(
        "All tries have the same distribution. What is the probability that a try ends with a kept completion?",
        "If each try succeeds with probability $p$, the first success takes $1/p$ tries on average.",
    ),
    against="the process followed sample by sample",
)
def cost(sub, draw):
    "`tries` is the mean number of samples."
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
            "this is the probability that one try ends with a kept completion": 1 / want,
            "the kept completion is not counted, but it is a sample as well": want - 1,
            "this is the median number of samples, not the mean": -math.log(2) / math.log1p(-1 / want),
            "this averages 1/acceptance over completions; average the acceptance probabilities, then invert": float(
                (ref / accept).sum()
            ),
            "this is the limit β → 0": float(1 / ref[rewards.argmax()]),
            "all completions have equal weight here; weight them by the reference": float(1 / accept.mean()),
            "acceptance is averaged over the kept completions instead of the sampled ones": float(
                1 / (law * accept).sum()
            ),
            "this is the exponential of the mean of log(kept/ref), not of its maximum": float(
                (law * (law / ref).log()).sum().exp()
            ),
        },
    )


@test(
    points=1,
    hints=(
        "Does your code overflow for rewards of a thousand?",
        "Subtract the largest reward *before* the exponential.",
    ),
    against="the same rewards, shifted",
)
def large_rewards(sub, draw):
    "Large rewards: only differences matter."
    ref, rewards, beta = problem(draw)
    law, mean = chain(ref.tolist(), rewards.tolist(), beta)
    expect(sub.kept(ref, rewards + 2000.0, beta), law, what="`kept` with 2000 added to all rewards", tolerance=1e-8)
    expect(sub.tries(ref, rewards + 2000.0, beta), mean, what="`tries` with 2000 added to all rewards", tolerance=1e-8)


# %% [probes]
# no gradient of kept.ref, tries.ref: the reference is data


# %% [mutant] one try
# caught by: distribution
# says: we sample again
def kept(ref, rewards, beta):
    return ref * torch.exp((rewards - rewards.max()) / beta)


# %% [mutant] the reference forgotten
# caught by: distribution
# says: reference is missing
def kept(ref, rewards, beta):
    return torch.softmax(rewards / beta, -1)


# %% [mutant] the chance of one try
# caught by: cost
# says: the probability that one try
def tries(ref, rewards, beta):
    return (ref * torch.exp((rewards - rewards.max()) / beta)).sum()


# %% [mutant] overflows
# caught by: large_rewards
def tries(ref, rewards, beta):
    return torch.exp(rewards.max() / beta) / (ref * torch.exp(rewards / beta)).sum()


# %% [partial] 2: the law only
def tries(ref, rewards, beta):
    return ref.sum()
