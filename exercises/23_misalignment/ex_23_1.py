# ---
# title: What a batch tells about its author
# kind: numeric
# minutes: 15
# ---

# %% [statement]
# A page has one author, who is careless with probability $\pi = \sigma(s)$. A careful author answers harmfully with probability `q0`, a careless one with probability `q1`, independently for each question. Training ascends the log-likelihood, and only $s$ is trained. `numbers(STUDENT)` gives `pi`, `q0` and `q1`. Answer with five decimals.
#
# 1. `still`: a batch holds many pages with one answer each. A fraction of these answers is harmful, the others are safe. At which fraction is the mean gradient of $s$ zero?
# 2. `page`: a page holds *two* harmful answers. What is the gradient of its log-likelihood with respect to $s$?
# 3. `most`: for which prior probability of a careless author is the gradient of a page with one harmful answer largest?
# 4. `prompt`: a header raises the prior above your answer to 3. At which prior has one harmful answer a hundredth of the gradient that it has at `pi`?

# %% [given]
from minirlhf_course.ledger.registry import Draw


def numbers(student):
    """pi, q0, q1."""
    draw = Draw("23.1", student)
    pick = lambda *options: options[draw.integer(0, len(options) - 1)]
    return pick(0.17, 0.23, 0.28, 0.33), pick(0.03, 0.04, 0.06, 0.08), pick(0.82, 0.87, 0.91, 0.94)


# %% [stub]
print(numbers(STUDENT))

still = None
page = None
most = None
prompt = None

# %% [solution]
pi, q0, q1 = numbers(STUDENT)
gradient = lambda prior: prior * q1 / (prior * q1 + (1 - prior) * q0) - prior
still = pi * q1 + (1 - pi) * q0
page = pi * q1**2 / (pi * q1**2 + (1 - pi) * q0**2) - pi
most = q0**0.5 / (q0**0.5 + q1**0.5)
low, high = most, 1.0
for _ in range(100):
    middle = (low + high) / 2
    low, high = (middle, high) if gradient(middle) > gradient(pi) / 100 else (low, middle)
prompt = low

# %% [tests]
import math

from minirlhf_course.classroom.testing import expect, test


def slope(likelihood, prior):
    """Return the derivative of a log-likelihood in the log-odds of the prior, from neighbouring log-odds."""
    s, h = math.log(prior / (1 - prior)), 1e-5
    at = lambda z: math.log(likelihood(1 / (1 + math.exp(-z))))
    return (at(s + h) - at(s - h)) / (2 * h)


def root(f, low, high):
    """Return the place where a falling function crosses zero, by bisection."""
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if f(middle) > 0 else (low, middle)
    return low


@test(
    points=1,
    rounds=1,
    hints=(
        "What is the gradient of a safe answer?",
        "Write the mean of both gradients. It is zero if the batch holds as many harmful answers as the model expects.",
    ),
)
def unmoved(sub, draw):
    "`still` is the fraction at which the mean gradient is zero."
    pi, q0, q1 = numbers(sub.student)
    harmful = slope(lambda p: p * q1 + (1 - p) * q0, pi)
    safe = slope(lambda p: p * (1 - q1) + (1 - p) * (1 - q0), pi)
    want = safe / (safe - harmful)
    expect(
        sub.number("still"), want, what="`still`", tolerance=6e-6, reveal=False,
        mistakes={
            "it is the fraction of careless authors, but careful authors answer harmfully too": pi,
            "it is the posterior after a harmful answer": pi * q1 / (pi * q1 + (1 - pi) * q0),
            "it is the mean of the two kinds of authors, without their frequencies": (q0 + q1) / 2,
            "the two gradients are weighted the wrong way round": 1 - want,
        },
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=(
        "Both answers have the same author.",
        "The probability of the page is a sum over two kinds of author, each with the square of its probability.",
    ),
)
def two_answers(sub, draw):
    "`page` is the gradient of a page with two harmful answers."
    pi, q0, q1 = numbers(sub.student)
    want = slope(lambda p: p * q1**2 + (1 - p) * q0**2, pi)
    one = slope(lambda p: p * q1 + (1 - p) * q0, pi)
    expect(
        sub.number("page"), want, what="`page`", tolerance=6e-6, reveal=False,
        mistakes={
            "it is the gradient of one answer": one,
            "the gradient of one answer is doubled, as if each answer had its own author": 2 * one,
            "it is the posterior; subtract the prior": want + pi,
            "it is the prior minus the posterior": -want,
        },
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=(
        "Write the gradient as a function of the prior, and differentiate.",
        "At the maximum the derivative of the posterior in the prior is 1. It is q0 q1 / P², where P is the probability of a harmful answer.",
    ),
)
def largest(sub, draw):
    "`most` is the prior at which one harmful answer moves the author most."
    _, q0, q1 = numbers(sub.student)
    f = lambda p: slope(lambda z: z * q1 + (1 - z) * q0, p)
    want = root(lambda p: f(p + 1e-4) - f(p - 1e-4), 0.001, 0.999)
    expect(
        sub.number("most"), want, what="`most`", tolerance=2e-5, reveal=False,
        mistakes={
            "the variance of the author is largest there, not the gradient": 0.5,
            "the posterior is one half there, but the gradient is not largest": q0 / (q0 + q1),
            "it is one minus the answer": 1 - want,
        },
    )  # fmt: skip


@test(
    points=2,
    rounds=1,
    hints=(
        "The gradient falls to 0 as the prior approaches 1.",
        "Solve gradient(prior) = gradient(pi)/100 by bisection between `most` and 1.",
    ),
)
def inoculates(sub, draw):
    "`prompt` is the prior at which a hundredth of the gradient is left."
    pi, q0, q1 = numbers(sub.student)
    f = lambda p: p * q1 / (p * q1 + (1 - p) * q0) - p
    top = root(lambda p: f(p + 1e-5) - f(p - 1e-5), 0.001, 0.999)
    solve = lambda part: root(lambda p: f(p) - f(pi) * part, top, 1 - 1e-12)
    expect(
        sub.number("prompt"), solve(0.01), what="`prompt`", tolerance=6e-6, reveal=False,
        mistakes={
            "a tenth of the gradient is left there, not a hundredth": solve(0.1),
            "it is one minus a hundredth of the gradient": 1 - f(pi) / 100,
            "it is the prior below the maximum, at which the model would be nearly sure of a careful author": root(lambda p: f(pi) * 0.01 - f(p), 1e-9, top),
        },
    )  # fmt: skip


# %% [mutant] the careless authors
# caught by: unmoved
# says: careful authors answer harmfully too
pi, q0, q1 = numbers(STUDENT)
still = pi


# %% [mutant] twice one answer
# caught by: two_answers
# says: its own author
pi, q0, q1 = numbers(STUDENT)
page = 2 * (pi * q1 / (pi * q1 + (1 - pi) * q0) - pi)


# %% [mutant] one half
# caught by: largest
# says: variance of the author
most = 0.5


# %% [mutant] a tenth
# caught by: inoculates
# says: a tenth of the gradient
pi, q0, q1 = numbers(STUDENT)
gradient = lambda prior: prior * q1 / (prior * q1 + (1 - prior) * q0) - prior
low, high = q0**0.5 / (q0**0.5 + q1**0.5), 1.0
for _ in range(100):
    middle = (low + high) / 2
    low, high = (middle, high) if gradient(middle) > gradient(pi) / 10 else (low, middle)
prompt = low


# %% [partial] 3: without the bisection
prompt = 0
