# ---
# title: Preferences without a reward
# kind: derive
# minutes: 30
# ---

# %% [statement]
# A prompt has $n$ answers. `wins[i, j]` is the probability that people prefer answer $i$ to answer $j$ (½ on the diagonal), and nobody promises
# that a reward explains these numbers. An opponent draws answers from the distribution $\mu$. You choose a policy $\pi$ and are paid
#
# $$J(\pi) = \mathbb{E}_{y\sim\pi,\;y'\sim\mu}\big[\Psi(p(y \succ y'))\big] - \beta\,\mathrm{KL}(\pi\|\pi_\text{ref})$$
#
# for some increasing function $\Psi$.
#
# **1.** Derive the best policy, as `best_policy(ref, wins, opponent, beta, psi)`; `psi` is a name, and `PSI[psi]` the function, elementwise. (You
# need no new proof: what plays the part of the reward?)
#
# **2.** Let $\Psi(p) = p$. Derive the margin of every pair at the best policy,
# $h_{ij} = \log\frac{\pi(i)}{\pi_\text{ref}(i)} - \log\frac{\pi(j)}{\pi_\text{ref}(j)}$, as `margins(wins, opponent, beta)`, shape `(n, n)`. It needs no reference.
#
# **3.** Two answers, and the first *always* wins. With $\mu = $ half of each and $\Psi(p) = p$: which number is the margin? Write `sure_margin(beta)`. (With $\Psi$ = logit, DPO's
# choice, it would be infinite, whatever $\beta$.) You have just found the target of IPO's loss.
#
# The checker searches all distributions.

# %% [given]
import torch

PSI = {"identity": lambda p: p, "square": lambda p: p * p, "logit": torch.logit}


# %% [stub]
def best_policy(ref, wins, opponent, beta, psi):
    """The policy with the largest J. ref, opponent: (n,). wins: (n, n). psi: a name. Returns (n,) probabilities."""
    raise NotImplementedError


def margins(wins, opponent, beta):
    """The margin of every pair at the best policy for psi = identity: (n, n)."""
    raise NotImplementedError


def sure_margin(beta):
    """The margin of two answers of which the first always wins; the opponent gives each half of the time. One number."""
    raise NotImplementedError


# %% [solution]
def best_policy(ref, wins, opponent, beta, psi):
    return torch.softmax(ref.log() + PSI[psi](wins) @ opponent / beta, -1)


def margins(wins, opponent, beta):
    rate = wins @ opponent
    return (rate[:, None] - rate[None, :]) / beta


def sure_margin(beta):
    return 1 / (2 * beta)


# %% [tests]
import torch

from minirlhf.classroom.testing import expect, fail, test, tidy, tidy_distribution
from minirlhf.core import exact


def game(draw):
    """Three answers with tidy preferences, a reference, an opponent, β."""
    wins = torch.full((3, 3), 0.5, dtype=torch.float64)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        p = float(tidy(draw.away_from([0.5], 1, low=0.15, high=0.85, margin=0.08)))
        wins[i, j], wins[j, i] = p, 1 - p
    return tidy_distribution(draw, 3), wins, tidy_distribution(draw, 3), [0.2, 0.4, 0.5][draw.integer(0, 2)]


def search(ref, wins, opponent, beta, psi):
    gain = torch.stack([sum(opponent[j] * PSI[psi](wins[i, j]) for j in range(3)) for i in range(3)])
    return exact.maximise(lambda p: exact.regularised_value(p, ref, gain, beta), 3)


def shown(ref, wins, opponent, beta):
    return {"ref": ref, "wins": wins, "opponent": opponent, "beta": beta}


@test(
    points=2,
    against="a numerical search over all distributions",
    hints=(
        "For a fixed opponent, each answer earns a fixed number, whoever gives it. Then J is the RLHF objective, whose optimum you know.",
        "The number is the mean over the opponent's answers of Ψ(p(y ≻ y')). Apply Ψ before the mean. Then tilt the reference by exp(number/β).",
    ),
)
def best(sub, draw):
    "No policy is paid more than `best_policy`."
    ref, wins, opponent, beta = game(draw)
    for psi in ("square", "logit"):
        after = PSI[psi](wins @ opponent)
        expect(
            sub.best_policy(ref, wins, opponent, beta, psi),
            search(ref, wins, opponent, beta, psi),
            what=f"the best policy for Ψ = {psi}",
            given=shown(ref, wins, opponent, beta),
            tolerance=1e-4,
            mistakes={
                "Ψ is applied after the mean": torch.softmax(ref.log() + after / beta, -1),
                "the opponent is left out: all answers count alike": torch.softmax(
                    ref.log() + PSI[psi](wins).mean(-1) / beta, -1
                ),
                "the chance of losing is counted": torch.softmax(ref.log() + PSI[psi](wins.mT) @ opponent / beta, -1),
                "the reference is left out": torch.softmax(PSI[psi](wins) @ opponent / beta, -1),
            },
        )


@test(
    points=2,
    against="log-ratios of the policy found by search",
    hints=(
        "Take the logarithm of π/π_ref at the best policy. What cancels when two answers are subtracted?",
        "Only the difference of the two win rates against the opponent is left, over β. It is not p(y ≻ y') itself.",
    ),
)
def differences(sub, draw):
    "`margins` is the difference of log-ratios at the best policy for Ψ = identity."
    ref, wins, opponent, beta = game(draw)
    ratio = (search(ref, wins, opponent, beta, "identity") / ref).log()
    rate = wins @ opponent
    expect(
        sub.margins(wins, opponent, beta),
        ratio[:, None] - ratio[None, :],
        what="the margins",
        given=shown(ref, wins, opponent, beta),
        tolerance=1e-4,
        mistakes={
            "the two answers' own preference is taken, not their win rates": (wins - 0.5) / beta,
            "β multiplies": beta * (rate[:, None] - rate[None, :]),
            "the first index is the answer subtracted": (rate[None, :] - rate[:, None]) / beta,
        },
    )


@test(
    points=1,
    hints=(
        "Win rates are means over the opponent, who gives the answer itself half of the time, and against oneself one wins half of the games.",
        "The rates are ¾ and ¼. Their difference, over β.",
    ),
)
def bounded(sub, draw):
    "`sure_margin` is finite."
    beta = [0.1, 0.25, 2.0][draw.integer(0, 2)]
    got = sub.sure_margin(beta)
    value = float(got)
    if value != value or abs(value) > 1e6:
        fail("the margin is infinite: that is Ψ = logit", beta=beta)
    wins = torch.tensor([[0.5, 1.0], [0.0, 0.5]], dtype=torch.float64)
    even = torch.full((2,), 0.5, dtype=torch.float64)
    found = [sum(float(even[j]) * float(wins[i, j]) for j in range(2)) for i in range(2)]
    expect(
        value,
        (found[0] - found[1]) / beta,
        what="the sure margin",
        given={"beta": beta},
        mistakes={
            "the games against oneself are forgotten": 1 / beta,
            "β multiplies": beta / 2,
        },
    )


# %% [probes]
# no gradient: a formula is asked for, in whatever library


# %% [mutant] Ψ after the mean
# caught by: best
# says: after the mean
def best_policy(ref, wins, opponent, beta, psi):
    return torch.softmax(ref.log() + PSI[psi](wins @ opponent) / beta, -1)


# %% [mutant] losses counted
# caught by: best
# says: the chance of losing
def best_policy(ref, wins, opponent, beta, psi):
    return torch.softmax(ref.log() + opponent @ PSI[psi](wins) / beta, -1)


# %% [mutant] no reference
# caught by: best
# says: the reference is left out
def best_policy(ref, wins, opponent, beta, psi):
    return torch.softmax(PSI[psi](wins) @ opponent / beta, -1)


# %% [mutant] p itself
# caught by: differences
# says: own preference
def margins(wins, opponent, beta):
    return (wins - 0.5) / beta


# %% [mutant] the target is 1/β
# caught by: bounded
# says: against oneself
def sure_margin(beta):
    return 1 / beta


# %% [partial] 3: policy and target are right, the margins not begun
def margins(wins, opponent, beta):
    raise NotImplementedError


# %% [partial] 2: only the policy
def margins(wins, opponent, beta):
    return (wins - 0.5) / beta


def sure_margin(beta):
    return 1 / beta
