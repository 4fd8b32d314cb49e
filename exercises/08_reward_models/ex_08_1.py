# ---
# title: What a reward model can say
# kind: choice
# minutes: 8
# ---

# %% [statement]
# A reward model was trained on comparisons, with the Bradley–Terry loss and nothing else. On the prompt *A* it gives the completions a1, a2, a3 the rewards
# 3.0, 1.0 and 1.0. On the prompt *B* it gives b1 and b2 the rewards −2.0 and −5.0. Each question has one right answer: `q1 = "a"`.
#
# **`q1`** Which claim do these rewards support?\
# (a) a1 is better than b1 (b) b1 is better than b2 (c) b2 is a bad completion (d) completions of *A* are better than completions of *B*
#
# **`q2`** With which probability, according to the model, does an annotator prefer a1 to a2?\
# (a) .95 (b) .88 (c) .75 (d) the model does not say
#
# **`q3`** With which probability, according to the model, does an annotator call a1 a good completion, when it is shown alone?\
# (a) .95 (b) .88 (c) .75 (d) the model does not say
#
# **`q4`** You add 5 to every reward on *B*. What changes?\
# (a) the loss on pairs of *B* (b) the best policy of KL-regularised training (c) which completions pass the filter "keep rewards above 0" (d) the order of b1 and b2
#
# **`q5`** You multiply all rewards by 2. What does *not* change?\
# (a) the loss (b) the accuracy on held-out pairs (c) the calibration (d) the best policy at a given β
#
# **`q6`** Under Plackett–Luce with these rewards, what is the probability of the ranking a1, a2, a3?\
# (a) .50 (b) .44 (c) .39 (d) .33

# %% [stub]
q1 = None
q2 = None
q3 = None
q4 = None
q5 = None
q6 = None

# %% [solution]
q1, q2, q3, q4, q5, q6 = "bbdcbc"

# %% [tests]
import itertools
import math

from minirlhf_course.classroom.testing import fail, test

A, B = (3.0, 1.0, 1.0), (-2.0, -5.0)


def loss(rewards):
    return sum(math.log1p(math.exp(y - x)) for x, y in itertools.combinations(rewards, 2))


def tilt(rewards, beta=1.0):
    weights = [math.exp(r / beta) for r in rewards]
    return [round(w / sum(weights), 6) for w in weights]


def letter(truths):
    """The one option that holds."""
    (found,) = [c for c, holds in zip("abcd", truths) if holds]
    return found


def ask(sub, name, right, why):
    got = sub.choice(name, "abcd")
    if got != right:
        fail(f"`{name}` is not {got!r}: {why.get(got, 'look again')}")


@test(
    points=1,
    rounds=1,
    hints=(
        "What can you add to the rewards of one prompt without a change of the loss?",
        "Only one of the four claims compares two completions of one prompt.",
    ),
)
def one_prompt(sub, draw):
    "Only differences on one prompt have a meaning (`q1`)."
    # a claim is supported if it holds whatever constants are added to each prompt
    shifts = [(x, y) for x in (-9, 0, 9) for y in (-9, 0, 9)]
    claims = (
        lambda a, b: a[0] > b[0],
        lambda a, b: b[0] > b[1],
        lambda a, b: b[1] < 0,
        lambda a, b: min(a) > max(b),
    )
    truths = [all(claim([r + x for r in A], [r + y for r in B]) for x, y in shifts) for claim in claims]
    ask(
        sub,
        "q1",
        letter(truths),
        dict.fromkeys("acd", "if you add a constant to the rewards of one prompt, the claim is reversed"),
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "For two completions of one prompt, which function of which number is the probability?",
        "The difference is 2. Apply the logistic function.",
    ),
)
def probability(sub, draw):
    "A difference on one prompt is a log-odds (`q2`)."
    share = math.exp(A[0]) / (math.exp(A[0]) + math.exp(A[1]))
    right = letter([abs(share - x) < 0.01 for x in (0.95, 0.88, 0.75)] + [False])
    ask(
        sub,
        "q2",
        right,
        {
            "a": "that is σ of the reward of a1, not of the difference",
            "d": "both are completions of one prompt, so the difference gives a probability",
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Subtract 5 from all rewards on this prompt. Does the loss change? Does your answer change?",
        "σ(3) would become σ(−2).",
    ),
)
def no_probability(sub, draw):
    "A single reward is not a probability (`q3`)."
    moves = (
        abs(loss(A) - loss([r - 5 for r in A])) > 1e-9
    )  # the loss cannot see a shift, so nothing can be read from a level
    ask(
        sub,
        "q3",
        letter([moves, False, False, not moves]),
        {"a": "σ of one reward depends on a constant that the data do not determine"},
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Which of the four uses a reward alone, and not a difference?",
        "A threshold is a comparison across prompts.",
    ),
)
def shift(sub, draw):
    "What a constant per prompt changes (`q4`)."
    moved = [r + 5 for r in B]
    truths = [
        abs(loss(moved) - loss(B)) > 1e-9,
        tilt(moved) != tilt(B),
        [r > 0 for r in moved] != [r > 0 for r in B],
        (moved[0] > moved[1]) != (B[0] > B[1]),
    ]
    ask(sub, "q4", letter(truths), {"b": "the constant cancels in the partition function"})


@test(
    points=1,
    rounds=1,
    hints=(
        "Which of the four asks only for the sign of a difference?",
        "A model with twice the confidence has the same accuracy.",
    ),
)
def scale(sub, draw):
    "What the scale changes (`q5`)."
    twice = [2 * r for r in A]
    order = [(x > y) - (x < y) for x, y in itertools.combinations(A, 2)]
    after = [(x > y) - (x < y) for x, y in itertools.combinations(twice, 2)]
    said = [1 / (1 + math.exp(y - x)) for x, y in itertools.combinations(A, 2)]
    later = [1 / (1 + math.exp(y - x)) for x, y in itertools.combinations(twice, 2)]
    truths = [loss(A) == loss(twice), order == after, said == later, tilt(A) == tilt(twice)]
    ask(
        sub,
        "q5",
        letter(truths),
        {"d": "r/β doubles", "c": "the stated probabilities change, and the outcomes stay the same"},
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "First a1 is chosen from three completions, then a2 from the remaining two.",
        "The second factor is ½, as a2 and a3 have the same reward.",
    ),
)
def ranking(sub, draw):
    "The probability of a whole ranking (`q6`)."
    first = math.exp(A[0]) / sum(map(math.exp, A))
    right = letter([abs(first * 0.5 - x) < 0.01 for x in (0.50, 0.44, 0.39, 0.33)])
    ask(
        sub,
        "q6",
        right,
        {
            "b": "that treats a1 over a2 and a2 over a3 as independent pairs, but the first choice is made from three",
            "a": "the first choice is not certain",
        },
    )


# %% [probes]
# no integers: letters are asked for


# %% [mutant] a reward is read as a probability
# caught by: no_probability
# says: do not determine
q3 = "a"


# %% [mutant] prompts are compared
# caught by: one_prompt
# says: is reversed
q1 = "a"


# %% [mutant] σ of the single reward
# caught by: probability
# says: not of the difference
q2 = "a"


# %% [mutant] the policy is taken to change with the constant
# caught by: shift
# says: cancels
q4 = "b"


# %% [partial] 4: scale and ranking are not answered
q5 = None
q6 = None
