# ---
# title: Between imitation and DFT
# kind: derive
# minutes: 30
# ---

# %% [statement]
# Imitation and dynamic fine-tuning (DFT) are the two ends of a family. Weight the negative log-probability of the demonstrated token by a power of its own probability, held constant:
#
# $$\ell = -\mathrm{sg}[\pi(y)^a]\, \log \pi(y), \qquad 0 \le a \le 1 .$$
#
# In one context, the demonstrators write token $k$ with probability $q_k$, and the model with probability $\pi_k = \mathrm{softmax}(z)_k$. Derive, then write, without automatic differentiation:
#
# 1. `push(logits, q, a)`: the gradient in $z$ of the expected loss, $\mathbb{E}_{y \sim q}[\ell]$. Shape `(V,)`.
# 2. `rest(q, a)`: the probabilities at which this gradient is zero and no token has probability 0, for $0 \le a < 1$. Shape `(V,)`.
# 3. `ends(p, a)`: there are only two tokens, *the completion ends* and *it continues*. The demonstrators end here with probability `p`, a number in (0, 1). Return the probability of the end for a model that has converged to `rest`. For `a = 1` there is no
#    such point: give the limit of $a \to 1$. Returns a number.
#
# All `q` are positive and sum to 1. The results are compared to about five digits.

# %% [given]
import torch


# %% [stub]
def push(logits, q, a):
    """logits, q: (V,). a: a number. Returns (V,)."""
    raise NotImplementedError


def rest(q, a):
    """q: (V,). Returns (V,) probabilities."""
    raise NotImplementedError


def ends(p, a):
    """p, a: numbers. Returns a number."""
    raise NotImplementedError


# %% [solution]
def push(logits, q, a):
    pi = logits.softmax(-1)
    weighted = q * pi**a
    return pi * weighted.sum() - weighted


def rest(q, a):
    return (q.log() / (1 - a)).softmax(-1)


def ends(p, a):
    if a == 1:
        return float(p > 0.5) if p != 0.5 else 0.5
    return float(rest(torch.tensor([p, 1 - p], dtype=torch.float64), a)[0])


# %% [tests]
import torch
from minirlhf.core import exact
from minirlhf_course.classroom.testing import expect, test, tidy_distribution


def loss(logits, weights_at, q, a):
    """The expected loss with the weights of another place."""
    return -(q * weights_at.softmax(-1) ** a * logits.log_softmax(-1)).sum()


def ask_push(sub, logits, q, a):
    pi = logits.softmax(-1)
    want = exact.finite_difference(lambda z: loss(z, logits, q, a), logits).flatten()
    mistakes = {
        "the sign is wrong: this is the direction of ascent": -want,
        "the term π Σ q π^a of every token is left out": -q * pi**a,
    }
    if a:
        moving = exact.finite_difference(lambda z: loss(z, z, q, a), logits).flatten()
        mistakes |= {
            "the weight is differentiated as well, but it should be held constant": moving,
            "π is multiplied by 1, not by Σ q π^a": pi - q * pi**a,
            "π is multiplied by its own weight π^a, not by the mean of the weights, Σ q π^a": pi * pi**a - q * pi**a,
        }
    expect(
        sub.push(logits, q, a),
        want,
        what="`push`",
        tolerance=1e-6,
        given={"logits": logits, "q": q, "a": a},
        mistakes=mistakes,
    )


@test(
    points=2,
    hints=(
        "The weight is held constant: differentiate log π(y) only. What is the derivative of log π(y) in z_k?",
        "It is 1[y = k] − π_k. Multiply by −q_y π_y^a and sum over y.",
    ),
    against="finite differences, with the weight held constant",
)
def gradient(sub, draw):
    "`push` is the gradient of the expected loss."
    for a in (0.0, 0.5, 1.0, float(draw.uniform(low=0.1, high=0.9))):
        ask_push(sub, draw.normal(4), tidy_distribution(draw, 4), a)


@test(
    points=2,
    hints=(
        "Set the gradient to zero: q_k π_k^a = c π_k, with the same c for every token.",
        "So π_k^(1 − a) is proportional to q_k.",
    ),
    against="fixed-point iteration",
)
def resting(sub, draw):
    "`rest` is where the gradient vanishes."
    for a in (0.0, 0.5, float(draw.uniform(low=0.2, high=0.7))):
        q = tidy_distribution(draw, 4)
        pi = torch.full((4,), 0.25, dtype=torch.float64)
        for _ in range(
            120
        ):  # where the gradient is zero, what is demonstrated and weighted is in proportion to the model
            pi = q * pi**a / (q * pi**a).sum()
        expect(
            sub.rest(q, a),
            pi,
            what="`rest`",
            tolerance=1e-5,
            given={"q": q, "a": a},
            mistakes={
                "this is the demonstrators' own distribution, the fixed point of imitation alone": q,
                "the exponent is 1 − a, not 1/(1 − a)": (q.log() * (1 - a)).softmax(-1),
                "the exponent is a/(1 − a), not 1/(1 − a)": (q.log() * (a / (1 - a))).softmax(-1),
                "the exponent is 1 + a, not 1/(1 − a)": (q.log() * (1 + a)).softmax(-1),
                "the powers are not divided by their sum": q ** (1 / (1 - a)),
            },
        )
    q = tidy_distribution(draw, 4)
    near = (q.log() * 1000).softmax(-1)  # q to the power of 1000 is 0 in floating point
    expect(sub.aside.rest(q, 0.999), near, what="`rest` near a = 1", given={"q": q, "a": 0.999})


@test(
    points=1,
    hints=(
        "Apply `rest` to two tokens. What happens to 1/(1 − a) if a approaches 1?",
        "All probability goes to the more frequent token: 1 if p is above one half, 0 if it is below. At exactly one half both tokens keep ½.",
    ),
)
def ending(sub, draw):
    "`ends` is the probability of the end at the fixed point."
    p = float(draw.uniform(low=0.3, high=0.45))
    for share in (p, 1 - p):
        odds = (share / (1 - share)) ** 2
        expect(sub.ends(share, 0.0), share, what="`ends` of imitation", given={"p": share})
        expect(sub.ends(share, 0.5), odds / (1 + odds), what="`ends` at a = ½", given={"p": share})
        expect(
            sub.ends(share, 1),
            float(share > 0.5),
            what="`ends` in the limit",
            given={"p": share},
            mistakes={
                "the model is taken to end as often as the demonstrators": share,
                "all probability goes to the rarer token": float(share < 0.5),
                "both tokens get one half": 0.5,
            },
        )
    expect(sub.aside.ends(0.5, 1), 0.5, what="`ends` of equal tokens in the limit", given={"p": 0.5})
    odds = (0.5001 / 0.4999) ** 2000
    expect(
        sub.aside.ends(0.5001, 0.9995), odds / (1 + odds), what="`ends` near a = 1", given={"p": 0.5001, "a": 0.9995}
    )


# %% [edges]
# resting: for $0 \le a < 1$
# ending: For `a = 1` there is no


# %% [probes]
# no gradient, keywords: a gradient and a point of rest are asked for, for a from 0 to 1


# %% [mutant] the weight is differentiated as well
# caught by: gradient
# says: held constant
def push(logits, q, a):
    pi = logits.softmax(-1)
    logs = logits.log_softmax(-1)
    slope = q * pi**a * (1 + a * logs)
    return pi * slope.sum() - slope


# %% [mutant] as for imitation
# caught by: gradient
# says: multiplied by 1
def push(logits, q, a):
    pi = logits.softmax(-1)
    return pi - q * pi**a


# %% [mutant] uphill
# caught by: gradient
# says: direction of ascent
def push(logits, q, a):
    pi = logits.softmax(-1)
    weighted = q * pi**a
    return weighted - pi * weighted.sum()


# %% [mutant] imitation rests there
# caught by: resting
# says: imitation alone
def rest(q, a):
    return q + 0.0


# %% [mutant] flatter, not sharper
# caught by: resting
# says: is 1 − a
def rest(q, a):
    return (q.log() * (1 - a)).softmax(-1)


# %% [mutant] as often as the demonstrators
# caught by: ending
def ends(p, a):
    return p


# %% [mutant] powers that vanish
# caught by: resting
# says: NaN
def rest(q, a):
    power = q ** (1 / (1 - a))
    return power / power.sum()


# %% [partial] 2: the gradient only
def rest(q, a):
    return q + 0.0


def ends(p, a):
    return p
