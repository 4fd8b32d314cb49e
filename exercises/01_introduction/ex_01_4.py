# ---
# title: Merging two specialists
# kind: numeric
# minutes: 10
# ---

# %% [statement]
# Two models were tuned from the same initial model, one for content and one for politeness. For one question each writes one of three completions, A, B or C.
# `specialists(STUDENT)` returns your probabilities, `{"content": [A, B, C], "manners": [A, B, C]}`. The first model mostly writes A, the second mostly B, and C is the most probable completion of neither.
# Their weights are averaged, with weight $w$ for the second model and $1-w$ for the first. The logits are linear in the model weights.
#
# Give three numbers, each right to 1 %:
#
# 1. `middle`: the probability of C at $w = \tfrac12$. (Compare it with the probability of C under each of the two.)
# 2. `tie`: the weight $w$ at which A and B are equally probable.
# 3. `most`: the weight $w$ at which C is most probable. A search over weights is enough.

# %% [given]
import math

from minirlhf_course.ledger.registry import Draw


def specialists(student):
    """Return the probabilities of A, B and C under the two models, for this student."""
    draw = Draw("01.4", student)
    a, c = 530 + 2 * draw.integer(0, 15), 190 + draw.integer(0, 15)
    b, d = 600 + 2 * draw.integer(0, 15), 250 + draw.integer(0, 15)
    return {
        "content": [a / 1000, (1000 - a - c) / 1000, c / 1000],
        "manners": [(1000 - b - d) / 1000, b / 1000, d / 1000],
    }


# %% [stub]
print(specialists(STUDENT))

middle = None
tie = None
most = None

# %% [solution]
models = specialists(STUDENT)


def merged(w):
    """Return the probabilities of the merger: a product of powers, divided by its sum."""
    powers = [p ** (1 - w) * q**w for p, q in zip(models["content"], models["manners"], strict=True)]
    return [x / sum(powers) for x in powers]


middle = merged(0.5)[2]
first_log_odds, second_log_odds = (math.log(models[name][0] / models[name][1]) for name in ("content", "manners"))
tie = first_log_odds / (first_log_odds - second_log_odds)
most = max((i / 10000 for i in range(10001)), key=lambda w: merged(w)[2])

# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, test


def logits_of(student):
    """Return the log-probabilities of the two, (2, 3): logits that give these probabilities."""
    models = specialists(student)
    return torch.tensor([models["content"], models["manners"]], dtype=torch.float64).log()


def at(student, w):
    """Return the merger's probabilities, from averaged logits. w: (N,). Returns (N, 3)."""
    first, second = logits_of(student)
    return torch.softmax((1 - w)[:, None] * first + w[:, None] * second, -1)


def halved(low, high, rising):
    """Return where a function with one change goes from True to False."""
    for _ in range(60):
        half = (low + high) / 2
        low, high = (half, high) if rising(half) else (low, half)
    return low


def tied(student, other=1):
    """Return the weight at which A and another completion are equally probable."""

    def a_leads(w):
        p = at(student, torch.tensor([w], dtype=torch.float64))[0]
        return bool(p[0] > p[other])

    return halved(0.0, 1.0, a_leads)


def best(student):
    """Return the weight with C's largest probability, from a grid and then a finer grid around it."""
    coarse = torch.linspace(0, 1, 1001, dtype=torch.float64)
    near = coarse[at(student, coarse)[:, 2].argmax()]
    fine = torch.linspace(-1e-3, 1e-3, 2001, dtype=torch.float64) + near
    return float(fine[at(student, fine)[:, 2].argmax()])


def near(got, want, what, mistakes):
    """Require one percent, without saying what is right."""
    tolerance = 0.01 * abs(want) / max(1.0, abs(want))
    expect(got, want, what=what, tolerance=tolerance, reveal=False, mistakes=mistakes)


@test(
    points=1,
    rounds=1,
    hints=(
        "If logits are averaged, what happens to the logarithms of the probabilities? What happens to the probabilities?",
        "For each completion, multiply the square roots of its two probabilities. The three products do not sum to one yet.",
    ),
)
def half_and_half(sub, draw):
    "`middle` is C's probability when the two models are merged half and half."
    p, q = logits_of(sub.student).exp()
    harmonic = 2 / (1 / p + 1 / q)
    near(
        sub.number("middle"),
        float(at(sub.student, torch.tensor([0.5], dtype=torch.float64))[0, 2]),
        "`middle`",
        {
            "probabilities are averaged, not weights": float((p[2] + q[2]) / 2),
            "the harmonic means are taken": float(harmonic[2] / harmonic.sum()),
            "the products are not divided by their sum": float((p[2] * q[2]).sqrt()),
            "the two distributions are multiplied without the powers of one half": float(p[2] * q[2] / (p @ q)),
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "The log-odds of A against B are linear in the weight. What are they at the two ends?",
        "They fall from log(p_A/p_B) of the first model to log(q_A/q_B) of the second, which is negative. Where does the straight line cross zero?",
    ),
)
def crossing(sub, draw):
    "`tie` is the weight at which A and B are equally probable."
    p, q = logits_of(sub.student).exp()
    want = tied(sub.student)
    near(
        sub.number("tie"),
        want,
        "`tie`",
        {
            "probabilities are averaged, not weights": float((p[0] - p[1]) / (p[0] - p[1] + q[1] - q[0])),
            "it is the weight of the first model": 1 - want,
            "both models are taken to be equally certain": 0.5,
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "C is most probable neither at the tie nor halfway. Compute its probability at many weights.",
        "At the maximum the derivative is zero: the logit of C then grows as fast as the mean of all logits under the merger's own probabilities.",
    ),
)
def top(sub, draw):
    "`most` is the weight at which C is most probable."
    want, other = best(sub.student), tied(sub.student, other=2)
    known = (
        {"it is the weight at which A and C tie": other} if abs(other - 0.5) > 0.02 else {}
    )  # else it is halfway, too
    near(
        sub.number("most"),
        want,
        "`most`",
        known
        | {
            "it is the weight at which A and B tie": tied(sub.student),
            "it is the weight of the first model": 1 - want,
            "it is halfway": 0.5,
            "it is the probability at the maximum, not the weight": float(
                at(sub.student, torch.tensor([want], dtype=torch.float64))[0, 2]
            ),
        },
    )


# %% [mutant] an ensemble
# caught by: half_and_half
# says: probabilities are averaged
middle = (models["content"][2] + models["manners"][2]) / 2

# %% [mutant] the sum forgotten
# caught by: half_and_half
# says: not divided by their sum
middle = (models["content"][2] * models["manners"][2]) ** 0.5

# %% [mutant] the other weight
# caught by: crossing
# says: of the first model
tie = 1 - tie

# %% [mutant] the maximum at the tie
# caught by: top
# says: A and B tie
most = tie

# %% [partial] 1: only the merger at one half
tie = None
most = None

# %% [partial] 2: the maximum is sought where the others tie
most = tie
