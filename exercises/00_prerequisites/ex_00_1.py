# ---
# title: Chance, logarithms, distance
# kind: choice
# minutes: 10
# ---

# %% [statement]
# Seven questions, each with one right answer. Paper is allowed, a calculator is not needed. Answer with letters: `q1 = "a"`.
#
# **`q1`** A model says *yes* with probability ½. After *yes* it stops with probability ¼, after anything else with probability ¾. It
# has stopped. What is the probability that it had said *yes*?\
# (a) 1/8 (b) 1/4 (c) 1/2 (d) 3/4
#
# **`q2`** A completion has the reward 2 with probability 0.1, and 0 otherwise. What are the mean and the variance of its reward?\
# (a) 0.2 and 0.36 (b) 0.2 and 0.4 (c) 0.1 and 0.09 (d) 0.2 and 0.6
#
# **`q3`** You average the rewards of 100 completions, and the standard error of the mean is 0.1. With how many completions is it 0.05?\
# (a) 141 (b) 150 (c) 200 (d) 400
#
# **`q4`** There are ten tokens, and each has probability 0.1 given the tokens before it. What is the natural logarithm of the probability of all ten?\
# (a) −23.03 (b) −10 (c) −2.303 (d) 0.1
#
# **`q5`** You add 5 to every entry of `z`. What happens to `softmax(z)`?\
# (a) each entry grows by 5 (b) it gets flatter (c) it gets sharper (d) nothing
#
# **`q6`** Which is true of $\mathrm{KL}(p\,\|\,q) = \sum_x p(x) \log \frac{p(x)}{q(x)}$?\
# (a) it is symmetric in $p$ and $q$ (b) it is never negative, and zero only if $p = q$ (c) it is at most 1 (d) it is small as soon as $q$ is
# small where $p$ is large
#
# **`q7`** The true next token is the second of four; the model gives the four ¼, ½, ⅛ and ⅛. What is the cross-entropy loss?\
# (a) 1/2 (b) log 2 (c) log 4 (d) −log 2

# %% [stub]
q1 = None
q2 = None
q3 = None
q4 = None
q5 = None
q6 = None
q7 = None

# %% [solution]
q1, q2, q3, q4, q5, q6, q7 = "badadbb"

# %% [tests]
import math

import torch
from minirlhf_course.classroom.testing import fail, test


def ask(sub, name, options, right, said=None):
    """One of four answers, given as numbers: the letter whose number is ``right``, computed here."""
    (letter,) = [c for c, value in zip("abcd", options, strict=True) if math.isclose(value, right, abs_tol=0.01)]
    got = sub.choice(name, "abcd")
    if got != letter:
        fail(f"`{name}` is not {got!r}", **({"what that would mean": said[got]} if said and got in said else {}))


@test(
    points=1,
    rounds=1,
    hints=(
        "Of a thousand completions, how many say *yes* and stop, and how many say something else and stop?",
        "Bayes: the probability of *yes and stop*, over the probability of stopping at all.",
    ),
)
def bayes(sub, draw):
    "Bayes' rule reverses a conditional probability (`q1`)."
    ask(
        sub,
        "q1",
        (1 / 8, 1 / 4, 1 / 2, 3 / 4),
        0.5 * 0.25 / (0.5 * 0.25 + 0.5 * 0.75),
        {"a": "that it says yes and then stops: not yet divided by the probability of stopping"},
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "The mean of the square, minus the square of the mean.",
        "The square is 4 with probability 0.1. From its mean subtract 0.2 squared.",
    ),
)
def variance(sub, draw):
    "Mean and variance of a rare reward (`q2`)."
    mean = 0.1 * 2 + 0.9 * 0
    right = 0.1 * (2 - mean) ** 2 + 0.9 * (0 - mean) ** 2
    said = {"b": "the mean of the square; the square of the mean is still in it", "d": "a standard deviation"}
    ask(sub, "q2", (0.36, 0.4, 0.09, 0.6), right, said)


@test(
    points=1,
    rounds=1,
    hints=(
        "Does the standard error fall like 1/n, or more slowly?",
        "It falls like one over the square root of n. How many times as many completions does half the error take?",
    ),
)
def standard_error(sub, draw):
    "How precision grows with the number of samples (`q3`)."
    ask(sub, "q3", (141, 150, 200, 400), 100 * (0.1 / 0.05) ** 2, {"c": "an error that falls like 1/n"})


@test(
    points=1,
    rounds=1,
    hints=(
        "The chain rule multiplies probabilities. What does a logarithm make of a product?",
        "Ten times the logarithm of one tenth; log 10 is about 2.3.",
    ),
)
def logarithm(sub, draw):
    "The logarithm of a product of probabilities (`q4`)."
    said = {"b": "a logarithm to base 10", "c": "one token"}
    ask(sub, "q4", (-23.03, -10, -2.303, 0.1), math.log(math.prod([0.1] * 10)), said)


@test(
    points=1,
    rounds=1,
    hints=(
        "Write down softmax. What happens to the factor exp(5)?",
        "It is in the numerator and in the denominator, so it cancels. Only differences between logits matter.",
    ),
)
def shift(sub, draw):
    "What softmax ignores (`q5`)."
    z = draw.normal(4)
    change = float(((z + 5).softmax(-1) - z.softmax(-1)).abs().max())
    assert change < 1e-9
    got = sub.choice("q5", "abcd")
    if got != "d":
        fail(
            f"`q5` is not {got!r}",
            z=z,
            softmax_of_z=z.softmax(-1),
            entries_add_up_to=float((z + 5).softmax(-1).sum()),
        )


@test(
    points=1,
    rounds=1,
    hints=(
        "Try p = (½, ½) and q = (0.99, 0.01), then the other way round.",
        "It is the mean of log p/q under p. Is this logarithm small where p is large and q small? And can the mean be negative?",
    ),
)
def divergence(sub, draw):
    "What a KL divergence is (`q6`)."
    p, q = torch.tensor([0.5, 0.5]).double(), torch.tensor([0.999, 0.001]).double()

    def kl(a, b):
        return float((a * (a / b).log()).sum())

    got = sub.choice("q6", "abcd")
    if got != "b":
        fail(f"`q6` is not {got!r}", p=p, q=q, KL_of_p_from_q=kl(p, q), KL_of_q_from_p=kl(q, p))


@test(
    points=1,
    rounds=1,
    hints=(
        "Cross-entropy against one true token looks at one probability only.",
        "It is minus the logarithm of the probability of the true token.",
    ),
)
def cross_entropy(sub, draw):
    "The loss of one token (`q7`)."
    logits = torch.tensor([1 / 4, 1 / 2, 1 / 8, 1 / 8]).log()[None]
    right = float(torch.nn.functional.cross_entropy(logits, torch.tensor([1])))
    said = {
        "a": "the probability itself",
        "c": "the loss of the first token",
        "d": "the log-probability: a loss has a minus",
    }
    ask(sub, "q7", (0.5, math.log(2), math.log(4), -math.log(2)), right, said)


# %% [mutant] joint instead of conditional
# caught by: bayes
# says: not yet divided
q1 = "A"

# %% [mutant] the mean of the square
# caught by: variance
# says: still in it
q2 = "b"

# %% [mutant] an error that falls like 1/n
# caught by: standard_error
# says: like 1/n
q3 = "c"

# %% [mutant] a logarithm to base 10
# caught by: logarithm
# says: base 10
q4 = "b"

# %% [mutant] softmax gets sharper
# caught by: shift
q5 = "c"

# %% [mutant] KL taken for a distance
# caught by: divergence
# says: KL_of_q_from_p
q6 = "a"

# %% [mutant] the minus forgotten
# caught by: cross_entropy
# says: a loss has a minus
q7 = "d"

# %% [mutant] a number instead of a letter
# caught by: bayes
# says: expected one of the letters
q1 = 0.25

# %% [partial] 5: two questions open
q2 = q6 = None
