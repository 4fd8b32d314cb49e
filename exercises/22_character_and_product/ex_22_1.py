# ---
# title: How many completions, how many rules
# kind: numeric
# minutes: 10
# ---

# %% [statement]
# A specification has several rules that must hold. A rule passes its test if the test completions contain no failure (in part 2: at most one). The number of completions is chosen so that a rule that fails in a fraction `rate` of completions or more passes with a probability of at most 5 %.
# `numbers(STUDENT)` gives `rate` and `rules`, the number of rules. Failures in different completions and of different rules are independent. Answer parts 1 and 2 with whole numbers, 3 and 4 to five decimals.
#
# 1. `together`: how many completions does each rule need if *all* rules are to be shown at once? Even if all of them fail in a fraction `rate`, each one must pass with a probability of at most 5 % divided by `rules`.
# 2. `one_allowed`: a single rule. How many completions does it need if one failure among them is allowed?
# 3. `passes`: use the numbers of part 1. A model breaks each rule in a *tenth* of `rate`. What is the probability that all rules pass?
# 4. `red`: the sign test of each rule is red at 5 % without any correction, and nothing has changed between two versions. What is the probability that at least one rule is red, whichever version it favours? (Take 5 % as exact.)

# %% [given]
from minirlhf_course.ledger.registry import Draw


def numbers(student):
    """rate, rules."""
    draw = Draw("22.1", student)
    pick = lambda *options: options[draw.integer(0, len(options) - 1)]
    return pick(0.011, 0.013, 0.017, 0.019, 0.023), pick(4, 6, 7, 9)


# %% [stub]
print(numbers(STUDENT))

together = None
one_allowed = None
passes = None
red = None

# %% [solution]
import math

rate, rules = numbers(STUDENT)
together = math.ceil(math.log(0.05 / rules) / math.log(1 - rate))
one_allowed = 1
while (1 - rate) ** one_allowed + one_allowed * rate * (1 - rate) ** (one_allowed - 1) > 0.05:
    one_allowed += 1
passes = (1 - rate / 10) ** (together * rules)
red = 1 - 0.95**rules

# %% [tests]
import math

from minirlhf_course.classroom.testing import expect, test


def needed(rate, alpha, allowed=0):
    """Return the smallest number of completions with which `allowed` failures or fewer have a probability of at most alpha, from the distribution of their number, completion by completion."""
    law, n = [1.0] + [0.0] * (allowed + 1), 0
    while sum(law[: allowed + 1]) > alpha:
        law = [law[k] * (1 - rate) + (law[k - 1] * rate if k else 0.0) for k in range(allowed + 1)] + [0.0]
        n += 1
    return n


@test(
    points=1,
    rounds=1,
    hints=(
        "With which probability may one rule pass that fails in the fraction `rate`?",
        "Use 5 % divided by the number of rules as the chapter's α, and round up.",
    ),
)
def all_at_once(sub, draw):
    "`together` is the number that each rule needs if all are to be shown."
    rate, rules = numbers(sub.student)
    want = needed(rate, 0.05 / rules)
    expect(
        sub.number("together"), want, what="`together`", tolerance=1e-6, reveal=False,
        mistakes={
            "it is the number for a single rule": needed(rate, 0.05),
            "the number is rounded down, and the probability is still too large": want - 1,
            "the number is not rounded up to whole completions": math.log(0.05 / rules) / math.log(1 - rate),
            "the number of completions is multiplied by the number of rules; divide the probability by it instead": needed(rate, 0.05) * rules,
            "the rate is divided by the number of rules; divide the probability instead": needed(rate / rules, 0.05),
            "the rule of three is used, which is for a probability of 5 %": math.ceil(3 / rate),
        },
    )  # fmt: skip


@test(
    points=2,
    rounds=1,
    hints=(
        "With which probability does a rule pass that fails in the fraction `rate`, if at most one failure is allowed?",
        "(1 − p)ⁿ + n p (1 − p)ⁿ⁻¹ must be at most 5 %. Try one n after another.",
    ),
)
def with_one(sub, draw):
    "`one_allowed` is the number that a single rule needs if one failure is allowed."
    rate, rules = numbers(sub.student)
    want = needed(rate, 0.05, 1)
    exactly = 1
    while exactly < 1 / rate or exactly * rate * (1 - rate) ** (exactly - 1) > 0.05:
        exactly += 1
    expect(
        sub.number("one_allowed"), want, what="`one_allowed`", tolerance=1e-6, reveal=False,
        mistakes={
            "no failure is allowed": needed(rate, 0.05),
            "one completion is added for the failure, but any of them can be the failure": needed(rate, 0.05) + 1,
            "the probability of no failure at all is left out, but no failure passes too": exactly,
            "the number without a failure is doubled": 2 * needed(rate, 0.05),
            "the 5 % are divided by the number of rules, but this part is about a single rule": needed(rate, 0.05 / rules, 1),
            "it is one completion too few": want - 1,
        },
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=(
        "How many completions are there in total, over all rules?",
        "None of them may fail: (1 − rate/10) to the power of their number.",
    ),
)
def good_model(sub, draw):
    "`passes` is the probability that a good model passes all rules."
    rate, rules = numbers(sub.student)
    n = needed(rate, 0.05 / rules)
    one = (1 - rate / 10) ** n
    expect(
        sub.number("passes"), one**rules, what="`passes`", tolerance=6e-6, reveal=False,
        mistakes={
            "it is the probability for one rule, and not for all of them": one,
            "it is the probability that at least one of them fails": 1 - one**rules,
            "each rule has the completions for a single rule, not the number of part 1": (1 - rate / 10) ** (needed(rate, 0.05) * rules),
            "the rate itself is used, not a tenth of it": (1 - rate) ** (n * rules),
            "it is the probability that at least one of the rules passes": 1 - (1 - one) ** rules,
        },
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=(
        "What is the probability that none of them is red?",
        "Each is not red with probability .95. Subtract the product from one.",
    ),
)
def by_chance(sub, draw):
    "`red` is the probability that chance alone turns a rule red."
    _, rules = numbers(sub.student)
    expect(
        sub.number("red"), 1 - (1 - 0.05) ** rules, what="`red`", tolerance=6e-6, reveal=False,
        mistakes={
            "it is the expected number of red rules, not a probability": 0.05 * rules,
            "it is the probability that none is red": 0.95**rules,
            "it is the probability for one rule": 0.05,
            "it is the probability that exactly one is red": rules * 0.05 * 0.95 ** (rules - 1),
        },
    )  # fmt: skip


# %% [mutant] one rule
# caught by: all_at_once
# says: number for a single rule
import math

rate, rules = numbers(STUDENT)
together = math.ceil(math.log(0.05) / math.log(1 - rate))


# %% [mutant] no failure is left out
# caught by: with_one
# says: no failure at all is left out
import math

rate, rules = numbers(STUDENT)
one_allowed = math.ceil(1 / rate)
while one_allowed * rate * (1 - rate) ** (one_allowed - 1) > 0.05:
    one_allowed += 1


# %% [mutant] one rule passes
# caught by: good_model
# says: and not for all of them
import math

rate, rules = numbers(STUDENT)
passes = (1 - rate / 10) ** math.ceil(math.log(0.05 / rules) / math.log(1 - rate))


# %% [mutant] the expected number
# caught by: by_chance
# says: not a probability
rate, rules = numbers(STUDENT)
red = 0.05 * rules


# %% [mutant] a tenth of the completions, and not of the rate
# caught by: good_model
passes = (1 - rate) ** (together * rules / 10)


# %% [partial] 2: two of the three shares
one_allowed = 0
together = 0
