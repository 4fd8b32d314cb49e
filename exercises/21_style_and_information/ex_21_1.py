# ---
# title: When a habit takes over
# kind: numeric
# minutes: 10
# ---

# %% [statement]
# The reference writes a list in a small fraction of its completions, independent of their content. The reward model adds $m$ for a list, and nothing else. The policy is the reference tilted with strength $\lambda$: $\pi_\lambda \propto \pi_\text{ref}\,e^{\lambda r}$.
# `numbers(STUDENT)` gives `share`, the reference's fraction of lists, `m` and `strength`. Answer to three decimals.
#
# 1. `lists`: the fraction of lists at this strength.
# 2. `half`: the strength at which half of the completions are lists.
# 3. `spent`: the KL from the reference, in nats, at that strength (where half are lists).
# 4. A second habit, bold type, has the same `share` in the reference, independent of lists, and the reward adds $m/2$ for it. `both`: the fraction of completions that have both, at `strength`.

# %% [given]
from minirlhf_course.ledger.registry import Draw


def numbers(student):
    """share, m, strength."""
    draw = Draw("21.1", student)
    pick = lambda *options: options[draw.integer(0, len(options) - 1)]
    return pick(0.03, 0.04, 0.05), pick(0.7, 0.8, 0.9), pick(3.0, 3.5, 4.0)


# %% [stub]
print(numbers(STUDENT))

lists = None
half = None
spent = None
both = None

# %% [solution]
import math

share, m, strength = numbers(STUDENT)
tilted = lambda reward: share * math.exp(strength * reward) / (share * math.exp(strength * reward) + 1 - share)
lists = tilted(m)
half = math.log((1 - share) / share) / m
spent = 0.5 * math.log(0.5 / share) + 0.5 * math.log(0.5 / (1 - share))
both = tilted(m) * tilted(m / 2)

# %% [tests]
import math

import torch
from minirlhf_course.classroom.testing import expect, test


def law(share, rewards, strength):
    """Probabilities of plain, list, bold and both, from the four products."""
    ref = torch.tensor([(1 - share) ** 2, share * (1 - share), share * (1 - share), share**2], dtype=torch.float64)
    earned = torch.tensor([0.0, rewards[0], rewards[1], rewards[0] + rewards[1]], dtype=torch.float64)
    return ref, (ref.log() + strength * earned).softmax(-1)


def listed(share, m, strength):
    return float(law(share, (m, 0.0), strength)[1][[1, 3]].sum())


def crossing(share, m):
    """The strength at which lists are half, by bisection."""
    low, high = 0.0, 100.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if listed(share, m, middle) < 0.5 else (low, middle)
    return low


@test(
    points=1,
    rounds=1,
    hints=(
        "What happens to the odds of a list?",
        "The odds grow by the factor e^{λm}; turn them into a fraction again.",
    ),
)
def at_strength(sub, draw):
    "`lists` is the fraction of lists."
    share, m, strength = numbers(sub.student)
    odds = share / (1 - share) * math.exp(strength * m)
    expect(
        sub.number("lists"), listed(share, m, strength), what="`lists`", tolerance=6e-4, reveal=False,
        mistakes={
            "these are the odds, not the fraction": odds,
            "the fraction is multiplied, but not divided by the new sum": share * math.exp(strength * m),
            "plain completions have the weight 1 in the sum, not their fraction": share * math.exp(strength * m) / (1 + share * math.exp(strength * m)),
        },
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=(
        "What are the odds when half are lists?",
        "Odds of one: the logarithm of the reference's odds plus λm is 0.",
    ),
)
def crossed(sub, draw):
    "`half` is the strength at which half are lists."
    share, m, _ = numbers(sub.student)
    expect(
        sub.number("half"), crossing(share, m), what="`half`", tolerance=6e-4, reveal=False,
        mistakes={
            "the fraction is used as the odds": -math.log(share) / m,
            "this is the log-odds, not divided by m": math.log((1 - share) / share),
            "one half is compared with the fraction, not odds with odds": math.log(0.5 / share) / m,
        },
    )  # fmt: skip


@test(
    points=2,
    rounds=1,
    hints=(
        "Has anything changed within the lists, or within the plain completions?",
        "Nothing has changed there, so it is the KL of two Bernoulli distributions: ½ log(½/share) + ½ log(½/(1 − share)).",
    ),
)
def cost(sub, draw):
    "`spent` is the KL of the policy at that strength."
    share, m, _ = numbers(sub.student)
    ref, moved = law(share, (m, 0.0), crossing(share, m))
    expect(
        sub.number("spent"), float((moved * (moved / ref).log()).sum()), what="`spent`", tolerance=6e-4, reveal=False,
        mistakes={
            "this is the KL of the reference from the policy": float((ref * (ref / moved).log()).sum()),
            "only the lists are counted, but plain completions have become rarer": 0.5 * math.log(0.5 / share),
            "this is λ times the mean reward, without the normaliser": crossing(share, m) * m / 2,
            "this is the slope, λ times the variance, but it must be integrated": crossing(share, m) * m * m / 4,
        },
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=("The two habits are independent in the reference. Are they in the policy?", "They are, because their rewards add up. Multiply two fractions."),
)  # fmt: skip
def together(sub, draw):
    "`both` is the fraction of completions with both."
    share, m, strength = numbers(sub.student)
    one, other = listed(share, m, strength), listed(share, m / 2, strength)
    expect(
        sub.number("both"), float(law(share, (m, m / 2), strength)[1][3]), what="`both`", tolerance=6e-4, reveal=False,
        mistakes={
            "half the reward is treated as half the fraction": one * one / 2,
            "this is the fraction with at least one of them": one + other - one * other,
            "bold gets m like a list, not m/2": one * one,
            "the two fractions are added": one + other,
            "completions with one habit only are missing in the normaliser": 1 / (1 + ((1 - share) / share) ** 2 * math.exp(-1.5 * strength * m)),
        },
    )  # fmt: skip


# %% [mutant] the odds
# caught by: at_strength
# says: not the fraction
import math

share, m, strength = numbers(STUDENT)
lists = share / (1 - share) * math.exp(strength * m)


# %% [mutant] the share for the odds
# caught by: crossed
# says: used as the odds
import math

share, m, strength = numbers(STUDENT)
half = -math.log(share) / m


# %% [mutant] the other KL
# caught by: cost
# says: from the policy
import math

share, m, strength = numbers(STUDENT)
spent = share * math.log(share / 0.5) + (1 - share) * math.log((1 - share) / 0.5)


# %% [mutant] reward times strength
# caught by: cost
# says: normaliser
import math

share, m, strength = numbers(STUDENT)
spent = math.log((1 - share) / share) / 2


# %% [mutant] only plain and both
# caught by: together
# says: one habit only
import math

share, m, strength = numbers(STUDENT)
both = 1 / (1 + ((1 - share) / share) ** 2 * math.exp(-1.5 * strength * m))


# %% [partial] 2: the share and the strength
spent = 0.0
both = 0.0
