# ---
# title: Nobody to beat you, at a price
# kind: derive
# minutes: 35
# ---

# %% [statement]
# A prompt has $n$ answers. `wins[i, j]` is the probability that people prefer answer $i$ to answer $j$ (½ on the diagonal), and nobody promises
# that a reward explains these numbers. You play $\pi$, an opponent plays $\mu$, and you are paid your share of wins less the price of your distance from a reference:
#
# $$J(\pi, \mu) = \mathbb{E}_{y\sim\pi,\;y'\sim\mu}\big[p(y \succ y')\big] - \beta\,\mathrm{KL}(\pi\|\pi_\text{ref}).$$
#
# The chapter shows *which* policy is paid most. Here you ask *how much* that is, and use it.
#
# **1.** Derive the largest payment against a given opponent, $\max_\pi J(\pi,\mu)$, as a formula without a maximum: `best_payment(ref, wins, opponent, beta)`. (Put the best
# policy into $J$. What is left of the two terms?)
#
# **2.** Let both sides play the same $\pi$; each is then paid $J(\pi,\pi)$. How much more would the best response to $\pi$ get? Write this gain as `exploit(policy, ref, wins, beta)`. The policy is a distribution, and answers may have probability 0. The gain is 0
# where $\pi$ is its own best response, the equilibrium of the game, and positive elsewhere. So it tells how far from the equilibrium you are although you do not know it.
#
# **3.** Find the equilibrium: `equilibrium(ref, wins, beta)`, with an `exploit` below $10^{-8}$. The games of the checker go round in circles, as rock, scissors and paper
# do, and $\beta$ is so small that answering the last policy by its best response hardly ever settles.
#
# The checker searches all distributions.

# %% [given]
import torch


# %% [stub]
def best_payment(ref, wins, opponent, beta):
    """The largest J against an opponent. ref, opponent: (n,) probabilities. wins: (n, n). Returns one number."""
    raise NotImplementedError


def exploit(policy, ref, wins, beta):
    """What the best response to a policy is paid, less what the policy is paid against itself. Returns one number."""
    raise NotImplementedError


def equilibrium(ref, wins, beta):
    """The policy that is its own best response. Returns (n,) probabilities."""
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
import torch

from minirlhf_course.classroom.testing import expect, fail, test, tidy, tidy_distribution
from minirlhf.core import exact


def circle(draw):
    """Three answers that beat one another in a circle, a reference, an opponent, β."""
    wins = torch.full((3, 3), 0.5, dtype=torch.float64)
    for i, j in ((0, 1), (1, 2), (2, 0)):
        p = float(tidy(draw.uniform(1, low=0.82, high=0.95)))
        wins[i, j], wins[j, i] = p, 1 - p
    return tidy_distribution(draw, 3), wins, tidy_distribution(draw, 3), [0.08, 0.1, 0.12][draw.integer(0, 2)]


def payment(policy, ref, wins, opponent, beta):
    """J, pair by pair."""
    pairs = sum(policy[i] * opponent[j] * wins[i, j] for i in range(3) for j in range(3))
    return pairs - beta * exact.divergence(policy, ref)


def most(ref, wins, opponent, beta):
    """The best policy and what it is paid, by search."""
    gain = torch.stack([sum(opponent[j] * wins[i, j] for j in range(3)) for i in range(3)])
    best = exact.maximise(lambda p: exact.regularised_value(p, ref, gain, beta), 3)
    return best, payment(best, ref, wins, opponent, beta)


def shown(ref, wins, opponent, beta):
    return {"ref": ref, "wins": wins, "opponent": opponent, "beta": beta}


@test(
    points=2,
    against="a numerical search over all distributions",
    hints=(
        "Against a fixed opponent each answer earns a fixed number, its win rate. Then J is the RLHF objective, whose optimum the chapter has.",
        "At the optimum, log π/π_ref is (win rate)/β minus log Z. Put that into the KL: the win rates cancel, and β log Z remains.",
    ),
)
def paid_most(sub, draw):
    "`best_payment` is what the best policy is paid."
    ref, wins, opponent, beta = circle(draw)
    best, want = most(ref, wins, opponent, beta)
    rate = wins @ opponent
    expect(
        sub.best_payment(ref, wins, opponent, beta),
        want,
        what="the largest payment",
        given=shown(ref, wins, opponent, beta),
        tolerance=1e-5,
        mistakes={
            "the price is not paid: these are the wins alone": best @ rate,
            "this is the payment of the best single answer without a price": rate.max(),
            "the reference is left out": beta * torch.logsumexp(rate / beta, -1),
            "all answers count the same; the reference weighs them": beta * (rate / beta).exp().mean().log(),
            "β multiplies the win rates instead of dividing them": beta * torch.logsumexp(ref.log() + beta * rate, -1),
            "the reference is taken for the opponent": beta * torch.logsumexp(ref.log() + wins @ ref / beta, -1),
            "log Z is not multiplied by β": want / beta,
            "the price is paid twice": want - beta * exact.divergence(best, ref),
            "the mean is taken before the exponential": ref @ rate,
            "the chance of losing is counted": beta * torch.logsumexp(ref.log() + (1 - rate) / beta, -1),
        },
    )


@test(
    points=2,
    against="the best response found by search",
    hints=(
        "Two payments: that of the best response against π, and that of π against π. What does a policy win against itself?",
        "Against itself every policy wins half of its games, and it pays β KL(π‖π_ref). The best response you have from part 1, with π as the opponent.",
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
            "the policy's own price is forgotten": top - 0.5,
            "the divergence is measured from the reference, the other way round": top
            - 0.5
            + beta * exact.divergence(ref, policy),
            "the policy's own price is not multiplied by β": top - 0.5 + exact.divergence(policy, ref),
            "nothing is won against oneself; it is half of the games": want + 0.5,
            "the policy's own payment is not taken away": top,
            "the price is counted twice": want + beta * exact.divergence(policy, ref),
        },
    )
    alone = torch.zeros(3, dtype=torch.float64)
    alone[draw.permutation(3)[:2]] = torch.tensor([0.25, 0.75], dtype=torch.float64)
    gain = most(ref, wins, alone, beta)[1] - payment(alone, ref, wins, alone, beta)
    given = {"policy": alone, "ref": ref, "wins": wins, "beta": beta}
    expect(sub.aside.exploit(alone, ref, wins, beta), gain, what="the gain over a policy with a zero", given=given)


@test(
    points=2,
    against="the best response to the answer, found by search",
    hints=(
        "Full best responses swing past the equilibrium. Go a part of the way only, and watch `exploit`.",
        "In each round mix the logarithms: 95 % of log π and 5 % of the log of the best response, normalised again. A thousand rounds are nothing.",
    ),
)
def settles(sub, draw):
    "`equilibrium` is its own best response."
    ref, wins, _, beta = circle(draw)
    found = torch.as_tensor(sub.equilibrium(ref, wins, beta), dtype=torch.float64)
    if found.shape != (3,) or not bool(torch.isfinite(found).all()) or abs(float(found.sum()) - 1) > 1e-6:
        fail("the answer is not a distribution over the three answers", ref=ref, wins=wins, beta=beta)
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
        "all answers are alike": torch.full_like(ref, 1 / 3),
        "the reference is left out of the best response": alone,
    }
    gain = float(top - payment(found, ref, wins, found, beta))
    if all(float((found - other).abs().max()) > 1e-4 for other in (best, *slips.values())):
        fail(f"the best response to your policy gains {gain:.2g} over it; at the equilibrium none gains", **given)
    what = "the equilibrium, against the best response to it"
    expect(found, best, what=what, given=given, tolerance=1e-4, mistakes=slips)


# %% [edges]
# gains: answers may have probability 0


# %% [probes]
# no gradient: a formula is asked for, in whatever library
# no size of exploit: a policy that is stretched is no distribution, and right formulas differ there


# %% [mutant] the wins alone
# caught by: paid_most
# says: the price is not paid
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
# says: the chance of losing
def best_payment(ref, wins, opponent, beta):
    return beta * torch.logsumexp(ref.log() + opponent @ wins / beta, -1)


# %% [mutant] the own price forgotten
# caught by: gains
# says: own price is forgotten
def exploit(policy, ref, wins, beta):
    return best_payment(ref, wins, policy, beta) - 0.5


# %% [mutant] the own payment forgotten
# caught by: gains
# says: not taken away
def exploit(policy, ref, wins, beta):
    return best_payment(ref, wins, policy, beta)


# %% [mutant] full best responses
# caught by: settles
def equilibrium(ref, wins, beta):
    policy = ref
    for _ in range(1000):
        policy = torch.softmax(ref.log() + wins @ policy / beta, -1)
    return policy


# %% [mutant] an answer to the reference
# caught by: settles
def equilibrium(ref, wins, beta):
    return torch.softmax(ref.log() + wins @ ref / beta, -1)


# %% [mutant] 0 · log 0
# caught by: gains
# says: with a zero
def exploit(policy, ref, wins, beta):
    price = beta * (policy * (policy / ref).log()).sum()
    return best_payment(ref, wins, policy, beta) - (policy @ wins @ policy - price)


# %% [partial] 4: both payments, no equilibrium
def equilibrium(ref, wins, beta):
    raise NotImplementedError


# %% [partial] 2: only the largest payment
def exploit(policy, ref, wins, beta):
    raise NotImplementedError


def equilibrium(ref, wins, beta):
    raise NotImplementedError
