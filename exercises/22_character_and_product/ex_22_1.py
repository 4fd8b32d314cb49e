# ---
# title: How many replies, how many rules
# kind: numeric
# minutes: 10
# ---

# %% [statement]
# A specification has several rules that must hold. A rule counts as shown if its test replies contain no failure (in part 2: at most one), and the number of replies is chosen such that a rule that fails in a share `rate` of replies or more passes with a probability of at most 5 %.
# `numbers(STUDENT)` gives `rate` and `rules`, how many rules there are; failures in different replies and of different rules are independent. Answer parts 1 and 2 with whole numbers, 3 and 4 to five digits behind the point.
#
# 1. `together`: how many replies each rule needs if *all* the rules are to be shown at once: even if all of them fail in a share `rate`, let each one pass with a probability of at most 5 % divided by `rules`.
# 2. `one_allowed`: one rule by itself. How many replies, if one failure among them is allowed?
# 3. `passes`: the replies of part 1 are used. A model breaks each rule in a *tenth* of `rate`. How likely do all the rules pass?
# 4. `red`: the sign test of each rule is red at 5 % without any correction, and nothing has changed between two versions. How likely is at least one rule red, whichever version it favours? (Take 5 % as exact.)

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
    """The fewest replies with which so many failures or fewer are rarer than alpha, from the law of their number, reply by reply."""
    law, n = [1.0] + [0.0] * (allowed + 1), 0
    while sum(law[: allowed + 1]) > alpha:
        law = [law[k] * (1 - rate) + (law[k - 1] * rate if k else 0.0) for k in range(allowed + 1)] + [0.0]
        n += 1
    return n


@test(
    points=1,
    rounds=1,
    hints=(
        "How likely may one rule pass that fails in the share `rate`?",
        "Put 5 % divided by the number of rules where the chapter has α, and round up.",
    ),
)
def all_at_once(sub, draw):
    "`together` is what each rule needs if all are to be shown."
    rate, rules = numbers(sub.student)
    want = needed(rate, 0.05 / rules)
    expect(
        sub.number("together"), want, what="`together`", tolerance=1e-6, reveal=False,
        mistakes={
            "one rule by itself is to be shown": needed(rate, 0.05),
            "the number is rounded down, and the chance is still too large": want - 1,
            "the number is not rounded up to whole replies": math.log(0.05 / rules) / math.log(1 - rate),
            "the number of replies is multiplied by the rules, where the chance is to be divided by them": needed(rate, 0.05) * rules,
            "the rate is divided by the rules, where the chance is to be divided": needed(rate / rules, 0.05),
            "the rule of three is used, which is for a chance of 5 %": math.ceil(3 / rate),
        },
    )  # fmt: skip


@test(
    points=2,
    rounds=1,
    hints=(
        "With which probability does a rule pass that fails in the share `rate`, if no failure or one is let through?",
        "(1 − p)ⁿ + n p (1 − p)ⁿ⁻¹ has to be 5 % at most: try n after n.",
    ),
)
def with_one(sub, draw):
    "`one_allowed` is what one rule needs if one failure is allowed."
    rate, rules = numbers(sub.student)
    want = needed(rate, 0.05, 1)
    exactly = 1
    while exactly < 1 / rate or exactly * rate * (1 - rate) ** (exactly - 1) > 0.05:
        exactly += 1
    expect(
        sub.number("one_allowed"), want, what="`one_allowed`", tolerance=1e-6, reveal=False,
        mistakes={
            "no failure is allowed": needed(rate, 0.05),
            "one reply is added for the failure, which can be any of them": needed(rate, 0.05) + 1,
            "the probability of no failure at all is forgotten, which passes, too": exactly,
            "the number without a failure is doubled": 2 * needed(rate, 0.05),
            "the 5 % are divided by the rules, where one rule by itself is asked for": needed(rate, 0.05 / rules, 1),
            "there is one reply too few": want - 1,
        },
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=(
        "How many replies are there in all, over all the rules?",
        "Every one of them has to be clean: (1 − rate/10) to the power of their number.",
    ),
)
def good_model(sub, draw):
    "`passes` is how likely a good model passes them all."
    rate, rules = numbers(sub.student)
    n = needed(rate, 0.05 / rules)
    one = (1 - rate / 10) ** n
    expect(
        sub.number("passes"), one**rules, what="`passes`", tolerance=6e-6, reveal=False,
        mistakes={
            "one rule has to pass, and not all of them": one,
            "one asks how likely at least one of them fails": 1 - one**rules,
            "each rule has the replies that show it by itself, not those of part 1": (1 - rate / 10) ** (needed(rate, 0.05) * rules),
            "the rate itself is used, not a tenth of it": (1 - rate) ** (n * rules),
            "one asks how likely at least one of the rules passes": 1 - (1 - one) ** rules,
        },
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=("How likely is none of them red?", "Each is not red with probability .95: one less the product."),
)
def by_chance(sub, draw):
    "`red` is how likely chance alone turns a rule red."
    _, rules = numbers(sub.student)
    expect(
        sub.number("red"), 1 - (1 - 0.05) ** rules, what="`red`", tolerance=6e-6, reveal=False,
        mistakes={
            "the expected number of red rules is taken for a probability": 0.05 * rules,
            "one asks how likely none is red": 0.95**rules,
            "there is one rule only": 0.05,
            "exactly one is to be red": rules * 0.05 * 0.95 ** (rules - 1),
        },
    )  # fmt: skip


# %% [mutant] one rule
# caught by: all_at_once
# says: one rule by itself is to
import math

rate, rules = numbers(STUDENT)
together = math.ceil(math.log(0.05) / math.log(1 - rate))


# %% [mutant] no failure is forgotten
# caught by: with_one
# says: no failure at all is forgotten
import math

rate, rules = numbers(STUDENT)
one_allowed = math.ceil(1 / rate)
while one_allowed * rate * (1 - rate) ** (one_allowed - 1) > 0.05:
    one_allowed += 1


# %% [mutant] one rule passes
# caught by: good_model
# says: and not all of them
import math

rate, rules = numbers(STUDENT)
passes = (1 - rate / 10) ** math.ceil(math.log(0.05 / rules) / math.log(1 - rate))


# %% [mutant] as many as expected
# caught by: by_chance
# says: taken for a probability
rate, rules = numbers(STUDENT)
red = 0.05 * rules


# %% [mutant] a tenth of the replies, and not of the rate
# caught by: good_model
passes = (1 - rate) ** (together * rules / 10)


# %% [partial] 2: two of the three shares
one_allowed = 0
together = 0
