# ---
# title: The equilibrium of a preference game
# kind: derive
# minutes: 35
# seconds: 30
# ---

# %% [statement]
# A prompt has $n$ completions. `wins[i, j]` is the probability that people prefer completion $i$ to completion $j$ (½ on the diagonal). These numbers
# need not come from a reward. You play $\pi$, an opponent plays $\mu$, and your payoff is your win rate minus a KL penalty:
#
# $$J(\pi, \mu) = \mathbb{E}_{y\sim\pi,\;y'\sim\mu}\big[p(y \succ y')\big] - \beta\,\mathrm{KL}(\pi\|\pi_\text{ref}).$$
#
# The chapter shows *which* policy has the largest payoff. Here you compute *how large* it is, and use it.
#
# **1.** Derive the largest payoff against a given opponent, $\max_\pi J(\pi,\mu)$, as a formula without a maximum: `best_payment(ref, wins, opponent, beta)`. (Put the best
# policy into $J$. Which terms remain?) $\beta$ may be as small as 0.001.
#
# **2.** Let both sides play the same $\pi$; the payoff of each is $J(\pi,\pi)$. How much more does the best response to $\pi$ get? Write this gain as `exploit(policy, ref, wins, beta)`. The policy is a distribution, and completions may have probability 0. The gain is 0
# where $\pi$ is its own best response, the equilibrium of the game, and positive elsewhere. So it measures your distance from an equilibrium that you do not know.
#
# **3.** Find the equilibrium: `equilibrium(ref, wins, beta)`, with an `exploit` below $10^{-8}$. The games of the checker are cyclic, like rock, paper and scissors,
# $\beta$ is 0.08 or more, and still so small that repeated best responses hardly ever converge.
#
# The checker searches all distributions.

# %% [given]
import torch


# %% [stub]
def best_payment(ref, wins, opponent, beta):
    """Return the largest J against an opponent, one number. ref, opponent: (n,) probabilities. wins: (n, n)."""
    raise NotImplementedError


def exploit(policy, ref, wins, beta):
    """Return the payoff of the best response to a policy, minus the policy's payoff against itself; one number."""
    raise NotImplementedError


def equilibrium(ref, wins, beta):
    """Return the policy that is its own best response, (n,) probabilities."""
    raise NotImplementedError


# %% [solution]
def best_payment(ref, wins, opponent, beta):
    return beta * torch.logsumexp(ref.log() + wins @ opponent / beta, -1)


def exploit(policy, ref, wins, beta):
    price = beta * torch.xlogy(policy, policy / ref).sum()
    return best_payment(ref, wins, policy, beta) - (policy @ wins @ policy - price)


def equilibrium(ref, wins, beta):
    logps = ref.log()
    for _ in range(2000):  # a small part of the way to the best response, in logarithms
        best = (ref.log() + wins @ logps.exp() / beta).log_softmax(-1)
        logps = (0.95 * logps + 0.05 * best).log_softmax(-1)
    return logps.exp()


# %% [tests]
import math

import torch
from minirlhf.core import exact
from minirlhf_course.classroom.testing import expect, fail, test, tidy, tidy_distribution


def circle(draw):
    """Return a reference, the win rates of three completions that beat one another in a circle, an opponent, β."""
    wins = torch.full((3, 3), 0.5, dtype=torch.float64)
    for i, j in ((0, 1), (1, 2), (2, 0)):
        p = float(tidy(draw.uniform(1, low=0.82, high=0.95)))
        wins[i, j], wins[j, i] = p, 1 - p
    return tidy_distribution(draw, 3), wins, tidy_distribution(draw, 3), [0.08, 0.1, 0.12][draw.integer(0, 2)]


def payment(policy, ref, wins, opponent, beta):
    """Return J, pair by pair."""
    pairs = sum(policy[i] * opponent[j] * wins[i, j] for i in range(3) for j in range(3))
    return pairs - beta * exact.divergence(policy, ref)


def most(ref, wins, opponent, beta):
    """Return the best policy and its payoff, by search."""
    gain = torch.stack([sum(opponent[j] * wins[i, j] for j in range(3)) for i in range(3)])
    best = exact.maximise(lambda p: exact.regularised_value(p, ref, gain, beta), 3)
    return best, payment(best, ref, wins, opponent, beta)


def shown(ref, wins, opponent, beta):
    return {"ref": ref, "wins": wins, "opponent": opponent, "beta": beta}


@test(
    points=2,
    against="a numerical search over all distributions",
    hints=(
        "Against a fixed opponent the reward of each completion is a fixed number, its win rate. So J is the RLHF objective, whose optimum is in the chapter.",
        "At the optimum, log π/π_ref is (win rate)/β minus log Z. Put this into the KL: the win rates cancel, and β log Z remains.",
    ),
)
def paid_most(sub, draw):
    "`best_payment` is the payoff of the best policy."
    ref, wins, opponent, beta = circle(draw)
    best, want = most(ref, wins, opponent, beta)
    rate = wins @ opponent
    expect(
        sub.best_payment(ref, wins, opponent, beta),
        want,
        what="the largest payoff",
        given=shown(ref, wins, opponent, beta),
        tolerance=1e-5,
        mistakes={
            "the KL penalty is missing: these are the wins alone": best @ rate,
            "this is the payoff of the best single completion without a KL penalty": rate.max(),
            "the reference is left out": beta * torch.logsumexp(rate / beta, -1),
            "all completions have the same weight; the reference must weight them": beta
            * (rate / beta).exp().mean().log(),
            "β multiplies the win rates instead of dividing them": beta * torch.logsumexp(ref.log() + beta * rate, -1),
            "the reference is used as the opponent": beta * torch.logsumexp(ref.log() + wins @ ref / beta, -1),
            "log Z is not multiplied by β": want / beta,
            "the KL penalty is subtracted twice": want - beta * exact.divergence(best, ref),
            "the mean is taken before the exponential": ref @ rate,
            "the probability of losing is used": beta * torch.logsumexp(ref.log() + (1 - rate) / beta, -1),
        },
    )
    low, high = 0.001, float(rate.max())
    rest = sum(float(p) * math.exp((float(x) - high) / low) for p, x in zip(ref, rate, strict=True))
    given, what = shown(ref, wins, opponent, low), "the largest payoff at a small β"
    expect(sub.aside.best_payment(ref, wins, opponent, low), high + low * math.log(rest), what=what, given=given)


@test(
    points=2,
    against="the best response found by search",
    hints=(
        "Two payoffs: of the best response against π, and of π against π. What is the win rate of a policy against itself?",
        "Against itself every policy wins half of its games, and its penalty is β KL(π‖π_ref). You have the best response from part 1, with π as the opponent.",
    ),
)
def gains(sub, draw):
    "`exploit` is the gain of the best response over the policy itself."
    ref, wins, policy, beta = circle(draw)
    _, top = most(ref, wins, policy, beta)
    want = top - payment(policy, ref, wins, policy, beta)
    expect(
        sub.exploit(policy, ref, wins, beta),
        want,
        what="the gain of the best response",
        given={"policy": policy, "ref": ref, "wins": wins, "beta": beta},
        tolerance=1e-5,
        mistakes={
            "the policy's own penalty is missing": top - 0.5,
            "the KL is taken in the other direction, KL(π_ref‖π)": top - 0.5 + beta * exact.divergence(ref, policy),
            "the policy's own penalty is not multiplied by β": top - 0.5 + exact.divergence(policy, ref),
            "the win rate against itself is 0; it must be ½": want + 0.5,
            "the policy's own payoff is not subtracted": top,
            "the penalty is counted twice": want + beta * exact.divergence(policy, ref),
        },
    )
    # more completions: the policy is the reference, so the gain is the largest payoff minus a half
    five = torch.full((5, 5), 0.5, dtype=torch.float64) + tidy(draw.uniform(5, 5, low=-0.2, high=0.2)).triu(1)
    five = five.triu() + (1 - five).triu(1).T
    equal, rate = tidy_distribution(draw, 5), torch.zeros(5, dtype=torch.float64)
    for i in range(5):
        rate[i] = sum(equal[j] * five[i, j] for j in range(5))
    best = exact.maximise(lambda p: exact.regularised_value(p, equal, rate, beta), 5)
    top = exact.regularised_value(best, equal, rate, beta)
    given = {"policy": equal, "ref": equal, "wins": five, "beta": beta}
    expect(sub.aside.exploit(equal, equal, five, beta), top - 0.5, what="the gain over the reference", given=given)
    alone = torch.zeros(3, dtype=torch.float64)
    alone[draw.permutation(3)[:2]] = torch.tensor([0.25, 0.75], dtype=torch.float64)
    gain = most(ref, wins, alone, beta)[1] - payment(alone, ref, wins, alone, beta)
    given = {"policy": alone, "ref": ref, "wins": wins, "beta": beta}
    expect(sub.aside.exploit(alone, ref, wins, beta), gain, what="the gain over a policy with a zero", given=given)


@test(
    points=2,
    against="the best response to the answer, found by search",
    hints=(
        "Full best responses overshoot the equilibrium. Take a smaller step, and watch `exploit`.",
        "In each round mix the logarithms: 95 % of log π and 5 % of the log of the best response, normalised again. A thousand rounds take no time.",
    ),
)
def settles(sub, draw):
    "`equilibrium` is its own best response."
    ref, wins, _, beta = circle(draw)
    found = torch.as_tensor(sub.equilibrium(ref, wins, beta), dtype=torch.float64)
    if found.shape != (3,) or not bool(torch.isfinite(found).all()) or abs(float(found.sum()) - 1) > 1e-6:
        fail("the result is not a distribution over the three completions", ref=ref, wins=wins, beta=beta)
    rounds = ref
    for _ in range(1001):
        rounds = torch.softmax(ref.log() + wins @ rounds / beta, -1)
    alone = ref.log()  # slowly, towards the best response without a reference
    for _ in range(1000):
        alone = (0.95 * alone + 0.05 * (wins @ alone.exp() / beta).log_softmax(-1)).log_softmax(-1)
    alone = alone.exp()
    best, top = most(ref, wins, found, beta)
    given = {"ref": ref, "wins": wins, "beta": beta}
    slips = {
        "full best responses go round in circles": most(ref, wins, rounds, beta)[0],
        "all completions have the same probability": torch.full_like(ref, 1 / 3),
        "the reference is left out of the best response": alone,
    }
    gain = float(top - payment(found, ref, wins, found, beta))
    if all(float((found - other).abs().max()) > 1e-4 for other in (best, *slips.values())):
        fail(f"the best response to your policy gains {gain:.2g} over it; at the equilibrium no policy gains", **given)
    what = "the equilibrium, against the best response to it"
    expect(found, best, what=what, given=given, tolerance=1e-4, mistakes=slips)


# %% [edges]
# gains: completions may have probability 0
# paid_most: may be as small as 0.001


# %% [probes]
# no gradient: a formula is required, in any library
# no size of exploit: a policy that is stretched is no distribution, and right formulas differ there


# %% [mutant] the wins alone
# caught by: paid_most
# says: the KL penalty is missing
def best_payment(ref, wins, opponent, beta):
    rate = wins @ opponent
    return torch.softmax(ref.log() + rate / beta, -1) @ rate


# %% [mutant] log Z alone
# caught by: paid_most
# says: not multiplied by β
def best_payment(ref, wins, opponent, beta):
    return torch.logsumexp(ref.log() + wins @ opponent / beta, -1)


# %% [mutant] losses counted
# caught by: paid_most
# says: the probability of losing
def best_payment(ref, wins, opponent, beta):
    return beta * torch.logsumexp(ref.log() + opponent @ wins / beta, -1)


# %% [mutant] its own penalty forgotten
# caught by: gains
# says: own penalty is missing
def exploit(policy, ref, wins, beta):
    return best_payment(ref, wins, policy, beta) - 0.5


# %% [mutant] its own payoff forgotten
# caught by: gains
# says: not subtracted
def exploit(policy, ref, wins, beta):
    return best_payment(ref, wins, policy, beta)


# %% [mutant] full best responses
# caught by: settles
def equilibrium(ref, wins, beta):
    policy = ref
    for _ in range(1000):
        policy = torch.softmax(ref.log() + wins @ policy / beta, -1)
    return policy


# %% [mutant] a response to the reference
# caught by: settles
def equilibrium(ref, wins, beta):
    return torch.softmax(ref.log() + wins @ ref / beta, -1)


# %% [mutant] 0 · log 0
# caught by: gains
# says: with a zero
def exploit(policy, ref, wins, beta):
    price = beta * (policy * (policy / ref).log()).sum()
    return best_payment(ref, wins, policy, beta) - (policy @ wins @ policy - price)


# %% [partial] 4: both payoffs, no equilibrium
def equilibrium(ref, wins, beta):
    raise NotImplementedError


# %% [partial] 2: only the largest payoff
def exploit(policy, ref, wins, beta):
    raise NotImplementedError


def equilibrium(ref, wins, beta):
    raise NotImplementedError
