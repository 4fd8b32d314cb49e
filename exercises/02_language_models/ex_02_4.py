# ---
# title: Reading a next-token distribution
# kind: numeric
# minutes: 20
# ---

# %% [statement]
# `next_tokens(STUDENT)` returns a model's next-token distribution, generated for you: a list of words and a tensor with their
# logits. Put your student id into `STUDENT` at the top of the notebook, run the cell, look at the output, and answer:
#
# 1. `nucleus`: with top-p sampling at $p$ = `top_p(STUDENT)`, how many words can be sampled? The nucleus is the smallest set of
#    most probable words whose mass *reaches* $p$.
# 2. `kept`: how much of the model's probability does that nucleus hold? (To three digits.)
# 3. `cool_nucleus`: how many words can be sampled with the same $p$ at temperature $T = 0.5$, which is applied before the
#    truncation?
# 4. `even_temperature`: at which temperature does the most probable word have a probability of exactly ½? There is no closed form. Search
#    numerically until you have the temperature to 1 %.

# %% [given]
import torch
from minirlhf_course.ledger.registry import Draw

WORDS = ["the", "a", "my", "this", "your", "no", "every", "that", "some", "one", "his", "any"]


def next_tokens(student):
    """Return twelve words and their logits (12,) for this student."""
    draw = Draw("02.4", student)
    order = draw.permutation(12).tolist()
    gaps = draw.uniform(12, low=0.25, high=0.45)
    return [WORDS[i] for i in order], (-gaps.cumsum(0)).round(decimals=2)[draw.permutation(12)]


def top_p(student):
    """Return the p of top-p sampling for this student."""
    mass = next_tokens(student)[1].softmax(-1).sort(descending=True).values.cumsum(-1)
    size = Draw("02.4", student, "p").integer(3, 5)
    return round(float(mass[size - 1 : size + 1].mean()), 2)


# %% [stub]
words, logits = next_tokens(STUDENT)
for word, logit in zip(words, logits.tolist()):
    print(f"{word:8} {logit:6.2f}")
print(f"p = {top_p(STUDENT)}")

nucleus = None
kept = None
cool_nucleus = None
even_temperature = None

# %% [solution]
words, logits = next_tokens(STUDENT)


def size_and_mass(temperature):
    mass = (logits / temperature).softmax(-1).sort(descending=True).values.cumsum(-1)
    size = int((mass < top_p(STUDENT)).sum()) + 1
    return size, mass[size - 1]


nucleus, kept = size_and_mass(1.0)
cool_nucleus, _ = size_and_mass(0.5)
low, high = 0.01, 100.0
for _ in range(100):
    even_temperature = (low * high) ** 0.5
    top = (logits / even_temperature).softmax(-1).max()
    low, high = (even_temperature, high) if top > 0.5 else (low, even_temperature)

# %% [tests]
import math

from minirlhf_course.classroom.testing import expect, fail, test


def probabilities(student, temperature):
    """Return the distribution at this temperature, most probable first, in plain Python."""
    scores = sorted((s / temperature for s in next_tokens(student)[1].tolist()), reverse=True)
    total = sum(math.exp(s) for s in scores)
    return [math.exp(s) / total for s in scores]


def smallest_set(probs, p):
    """Return the number of most probable words that reach the mass p, and their mass."""
    mass = 0.0
    for count, each in enumerate(probs, 1):
        mass += each
        if mass >= p:
            return count, mass
    raise AssertionError("a distribution reaches every mass below one")


@test(
    points=1,
    rounds=1,
    hints=(
        "Turn the logits into probabilities, sort them, and add them from the largest down.",
        "Stop at the first word with which the sum is p or more. That word is in the nucleus too.",
    ),
)
def reaches(sub, draw):
    "`nucleus` is the number of words that reach the mass p."
    probs = probabilities(sub.student, 1.0)
    count, _ = smallest_set(probs, top_p(sub.student))
    expect(
        sub.number("nucleus"),
        count,
        what="`nucleus`",
        tolerance=1e-9,
        reveal=False,
        mistakes={
            "the word that crosses the line is left out": count - 1,
            "words are counted from the least probable": smallest_set(probs[::-1], top_p(sub.student))[0],
            "one word too many is counted": count + 1,
            "the counted words have a probability of at least p times the largest (this is min-p)": sum(
                p >= top_p(sub.student) * probs[0] for p in probs
            ),
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "It is the sum at which you stopped counting.",
        "It is the probability of the nucleus under the model itself: a little more than p.",
    ),
)
def mass(sub, draw):
    "`kept` is the probability of that nucleus under the model."
    probs = probabilities(sub.student, 1.0)
    count, want = smallest_set(probs, top_p(sub.student))
    expect(
        sub.number("kept"),
        want,
        what="`kept`",
        tolerance=0.001,
        reveal=False,
        mistakes={
            "p itself is given": top_p(sub.student),
            "the mass after renormalising is given": 1.0,
            "the mass that was cut is given": 1 - want,
            "the word that crosses the line is left out": sum(probs[: count - 1]),
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "A temperature divides the logits. Does 0.5 make the model more or less certain?",
        "Divide the logits by 0.5, turn them into probabilities, and count again.",
    ),
)
def cool(sub, draw):
    "`cool_nucleus` is the size of the nucleus at temperature 0.5."
    count, _ = smallest_set(probabilities(sub.student, 0.5), top_p(sub.student))
    warm, _ = smallest_set(probabilities(sub.student, 2.0), top_p(sub.student))
    same, _ = smallest_set(probabilities(sub.student, 1.0), top_p(sub.student))
    expect(
        sub.number("cool_nucleus"),
        count,
        what="`cool_nucleus`",
        tolerance=1e-9,
        reveal=False,
        mistakes={
            "the logits are multiplied by the temperature": warm,
            "one word too many is counted": count + 1,
            "the word that crosses the line is left out": count - 1,
            "the temperature changes nothing": same,
        },
    )


@test(
    points=2,
    rounds=1,
    hints=(
        "Compute the top word's probability at T = 1. Must the temperature rise or fall? Halve or double it until ½ is between two results.",
        "The top probability falls as the temperature rises, so use bisection: keep the half interval that contains the answer.",
    ),
)
def evened(sub, draw):
    "`even_temperature` gives the most probable word a probability of one half."
    got = sub.number("even_temperature")
    if not 0.01 < got < 100:
        fail("`even_temperature` is not between 0.01 and 100")

    def right(temperature):
        cooler, warmer = (probabilities(sub.student, temperature * k)[0] for k in (1 / 1.01, 1.01))
        return warmer <= 0.5 <= cooler

    if not right(got):
        note = ", because you gave the inverse of the temperature" if right(1 / got) else ""
        top = probabilities(sub.student, got)[0]
        fail(f"at your temperature {got:.4g} the most probable word has a probability of {top:.3f}, not 0.5{note}")


# %% [mutant] the word that crosses the line is left out
# caught by: reaches
# says: is left out
nucleus = nucleus - 1

# %% [mutant] p instead of the kept mass
# caught by: mass
# says: p itself
kept = top_p(STUDENT)

# %% [mutant] logits multiplied by the temperature
# caught by: cool
cool_nucleus = size_and_mass(2.0)[0]

# %% [mutant] the inverse temperature
# caught by: evened
# says: the inverse
even_temperature = 1 / even_temperature

# %% [mutant] the temperature stays at 1
# caught by: evened
# says: not 0.5
even_temperature = 1.0

# %% [partial] 3: the nuclei are right, the temperature is missing
even_temperature = None

# %% [partial] 2: only the nucleus at T = 1 is right
cool_nucleus, even_temperature = 12, 1.0
