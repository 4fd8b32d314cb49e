# ---
# title: What a reward model can say
# kind: choice
# minutes: 8
# ---

# %% [statement]
# A reward model was trained on comparisons, with the Bradley–Terry loss and nothing else. On the prompt *A* it gives the replies a1, a2, a3 the rewards
# 3.0, 1.0 and 1.0; on the prompt *B* it gives b1 and b2 the rewards −2.0 and −5.0. Each question has one right answer: `q1 = "a"`.
#
# **`q1`** Which claim do these rewards support?\
# (a) a1 is better than b1 (b) b1 is better than b2 (c) b2 is a bad reply (d) replies to *A* are better than replies to *B*
#
# **`q2`** How likely is it, by the model, that an annotator prefers a1 to a2?\
# (a) .95 (b) .88 (c) .75 (d) cannot be said
#
# **`q3`** How likely is it, by the model, that an annotator calls a1 a good reply, shown alone?\
# (a) .95 (b) .88 (c) .75 (d) cannot be said
#
# **`q4`** Somebody adds 5 to every reward on *B*. What changes?\
# (a) the loss on pairs of *B* (b) the best policy of KL-regularised training (c) which replies pass the filter "keep rewards above 0" (d) the order of b1 and b2
#
# **`q5`** Somebody multiplies all rewards by 2. What does *not* change?\
# (a) the loss (b) the accuracy on held-out pairs (c) the calibration (d) the best policy at a given β
#
# **`q6`** By Plackett–Luce with these rewards, how likely is the ranking a1, a2, a3?\
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
        "What may be added to the rewards of one prompt without changing the loss?",
        "Only one of the four claims stays inside one prompt and compares.",
    ),
)
def one_prompt(sub, draw):
    "Only differences on one prompt mean something (`q1`)."
    # a claim is supported if it holds whatever constants are added to each prompt
    shifts = [(x, y) for x in (-9, 0, 9) for y in (-9, 0, 9)]
    claims = (
        lambda a, b: a[0] > b[0],
        lambda a, b: b[0] > b[1],
        lambda a, b: b[1] < 0,
        lambda a, b: min(a) > max(b),
    )
    truths = [all(claim([r + x for r in A], [r + y for r in B]) for x, y in shifts) for claim in claims]
    ask(sub, "q1", letter(truths), dict.fromkeys("acd", "add a constant to one prompt, and the claim turns round"))


@test(
    points=1,
    rounds=1,
    hints=(
        "Two replies to one prompt: which function of which number?",
        "The difference is 2; apply the logistic function.",
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
            "d": "they are replies to one prompt, and were compared",
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Take 5 from both rewards on this prompt. Does the model's loss notice? Would your answer?",
        "σ(3) would become σ(−2).",
    ),
)
def no_probability(sub, draw):
    "A single reward is no probability (`q3`)."
    moves = (
        abs(loss(A) - loss([r - 5 for r in A])) > 1e-9
    )  # the loss cannot see a shift, so nothing can be read from a level
    ask(
        sub,
        "q3",
        letter([moves, False, False, not moves]),
        {"a": "σ of one reward depends on a constant that nobody fixed"},
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Which of the four uses a reward by itself, not a difference?",
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
        "A model that is twice as sure is right just as often.",
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
    ask(sub, "q5", letter(truths), {"d": "r/β doubles", "c": "it says other probabilities, and the same things happen"})


@test(
    points=1,
    rounds=1,
    hints=(
        "First a1 is chosen from three, then a2 from the two that are left.",
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
            "b": "that is a1 over a2 and a2 over a3 as independent pairs; the first choice is made from three",
            "a": "the first choice is not certain",
        },
    )


# %% [probes]
# no integers: letters are asked for


# %% [mutant] a reward is read as a probability
# caught by: no_probability
# says: nobody fixed
q3 = "a"


# %% [mutant] prompts are compared
# caught by: one_prompt
# says: turns round
q1 = "a"


# %% [mutant] σ of the single reward
# caught by: probability
# says: not of the difference
q2 = "a"


# %% [mutant] the policy is thought to change with the constant
# caught by: shift
# says: cancels
q4 = "b"


# %% [partial] 4: scale and ranking are left out
q5 = None
q6 = None
