# ---
# title: GSPO: one ratio for a whole completion
# kind: derive
# minutes: 35
# ---

# %% [statement]
# GRPO has a ratio for every token. GSPO has one ratio for a completion, the geometric mean of its tokens' ratios:
#
# $$ \begin{aligned} s &= \Big(\frac{\pi(y)}{\pi_\text{old}(y)}\Big)^{1/|y|}, \\
#    J &= \min\big(s A,\; \mathrm{clip}(s, 1 - \varepsilon, 1 + \varepsilon)\,A\big). \end{aligned} $$
#
# Everything below is about one completion: `logps` and `old_logps` are the log-probabilities `(T,)` of its tokens, `advantage` is a number. Derive on paper; the graders
# differentiate the definition numerically.
#
# 1. `gspo(logps, old_logps, advantage, epsilon)`: the objective $J$, one number.
# 2. `gspo_slopes(logps, old_logps, advantage, epsilon)`: $\partial J / \partial \log\pi(y_t)$ for each token, `(T,)`.
# 3. `grpo_slopes(logps, old_logps, advantage, epsilon)`: the same for GRPO's objective of one completion, the mean over its tokens of
#    $\min(\rho_t A, \mathrm{clip}(\rho_t, 1 - \varepsilon, 1 + \varepsilon) A)$.
# 4. A completion of two tokens has $\rho = 2$ and $\rho = 0.4$, $A = 1$ and $\varepsilon = 0.2$. What are the two *objectives*? Answer `grpo_value` and `gspo_value`, to three decimals. (A widely read text
#    misprints one of the two.)

# %% [given]
import torch


# %% [stub]
def gspo(logps, old_logps, advantage, epsilon):
    """The objective of one completion. logps, old_logps: (T,). Returns one number."""
    raise NotImplementedError


def gspo_slopes(logps, old_logps, advantage, epsilon):
    """Derivative of GSPO's objective in the log-probability of each token. Returns (T,)."""
    raise NotImplementedError


def grpo_slopes(logps, old_logps, advantage, epsilon):
    """Derivative of GRPO's objective in the log-probability of each token. Returns (T,)."""
    raise NotImplementedError


grpo_value = None
gspo_value = None


# %% [solution]
def gspo(logps, old_logps, advantage, epsilon):
    s = (logps - old_logps).mean().exp()
    return torch.minimum(s * advantage, s.clamp(1 - epsilon, 1 + epsilon) * advantage)


def gspo_slopes(logps, old_logps, advantage, epsilon):
    s = (logps - old_logps).mean().exp()
    silent = s > 1 + epsilon if advantage > 0 else s < 1 - epsilon
    return torch.where(silent, 0.0, s * advantage / len(logps)).expand(len(logps))


def grpo_slopes(logps, old_logps, advantage, epsilon):
    ratio = (logps - old_logps).exp()
    silent = ratio > 1 + epsilon if advantage > 0 else ratio < 1 - epsilon
    return torch.where(silent, 0.0, ratio * advantage / len(logps))


grpo_value = (min(2, 1.2) + min(0.4, 0.8)) / 2
gspo_value = (2 * 0.4) ** 0.5

# %% [tests]
import math

import torch
from minirlhf_course.classroom.testing import expect, test, tidy


def reply(draw, sign, place):
    """Return a completion of 3 to 5 tokens with ratios on both sides of 1 and the geometric mean `place`."""
    n = draw.integer(3, 5)
    spread = (
        tidy(draw.uniform(n, low=0.3, high=0.7)) * torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0], dtype=torch.float64)[:n]
    )
    drift = spread - spread.mean() + math.log(place)
    old_logps = -tidy(draw.uniform(n, low=0.5, high=2.0))
    advantage = sign * round(float(draw.uniform(low=0.5, high=2.0)), 1)
    if place == 0.95:  # ε just beyond the furthest token on the side that the clip looks at
        ratio = drift.exp()
        epsilon = round(float((ratio - 1).max() if advantage > 0 else (1 - ratio).max()) + 0.05, 2)
    else:
        epsilon = [0.15, 0.25, 0.3][draw.integer(0, 2)]
    return old_logps + drift, old_logps, advantage, epsilon


CASES = [(sign, place) for sign in (1, -1) for place in (0.6, 0.95, 1.7)]


def one(ratio, advantage, epsilon):
    """The clipped term of one ratio, by cases."""
    if advantage > 0:
        return advantage * min(ratio, 1 + epsilon)
    return advantage * max(ratio, 1 - epsilon)


def definition(logps, old_logps, advantage, epsilon):
    ratios = [math.exp(a - b) for a, b in zip(logps.tolist(), old_logps.tolist(), strict=True)]
    return one(math.prod(ratios) ** (1 / len(ratios)), advantage, epsilon)


def token_definition(logps, old_logps, advantage, epsilon):
    ratios = [math.exp(a - b) for a, b in zip(logps.tolist(), old_logps.tolist(), strict=True)]
    return sum(one(r, advantage, epsilon) for r in ratios) / len(ratios)


def slopes(f, logps, *rest):
    """Central differences."""
    found, h = [], 1e-5
    for t in range(len(logps)):
        step = torch.zeros_like(logps)
        step[t] = h
        found.append((f(logps + step, *rest) - f(logps - step, *rest)) / (2 * h))
    return torch.tensor(found, dtype=torch.float64)


def shown(logps, old_logps, advantage, epsilon):
    return {"ratios": (logps - old_logps).exp(), "advantage": advantage, "epsilon": epsilon}


@test(
    points=1,
    hints=(
        "A geometric mean is the exponential of an arithmetic one. Of what?",
        "s is the exponential of the mean difference of log-probabilities; then one minimum, as in PPO.",
    ),
)
def one_ratio(sub, draw):
    "`gspo` clips the geometric mean of the token ratios."
    for case in CASES:
        inputs = reply(draw, *case)
        ratio = (inputs[0] - inputs[1]).exp()
        expect(
            sub.gspo(*inputs),
            definition(*inputs),
            what="the objective",
            given=shown(*inputs),
            mistakes={
                "the ratio of the whole completion is taken without the root": one(float(ratio.prod()), *inputs[2:]),
                "every token is clipped before the mean is taken": inputs[2]
                * float(ratio.log().clamp(-inputs[3], inputs[3]).mean().exp()),
                "the arithmetic mean of the ratios is taken": one(float(ratio.mean()), *inputs[2:]),
                "each token has a ratio of its own: that is GRPO": token_definition(*inputs),
            },
        )


@test(
    points=2,
    against="finite differences of the definition",
    hints=(
        "Which tokens lose their gradient by the clip? And if none does: what is the derivative of exp(mean of something) in one term?",
        "d s / d log π(y_t) = s/|y| for every token. The clip acts where A > 0 and s is above, or A < 0 and s is below.",
    ),
)
def all_alike(sub, draw):
    "`gspo_slopes` gives every token of a completion the same derivative, or 0."
    for case in CASES:
        inputs = reply(draw, *case)
        n, s = len(inputs[0]), float((inputs[0] - inputs[1]).mean().exp())
        right = slopes(definition, *inputs)
        expect(
            sub.gspo_slopes(*inputs),
            right,
            what="the derivative in each token's log-probability",
            given=shown(*inputs) | {"s": s},
            tolerance=1e-6,
            mistakes={
                "it is not divided by the number of tokens": right * n,
                "s itself is missing: the derivative of an exponential is the exponential": right / s,
                "the clip is forgotten": torch.full((n,), s * inputs[2] / n, dtype=torch.float64),
                "these are GRPO's": slopes(token_definition, *inputs),
            },
        )


@test(
    points=2,
    against="finite differences of the definition",
    hints=(
        "The mean over tokens is a sum of separate terms. Which of them contain log π(y_t)?",
        "Each token that is not clipped has ρ_t·A/|y|. Only a token's own ratio decides whether it is clipped.",
    ),
)
def each_by_itself(sub, draw):
    "`grpo_slopes` gives every token its own ratio."
    for case in CASES:
        inputs = reply(draw, *case)
        n, s = len(inputs[0]), float((inputs[0] - inputs[1]).mean().exp())
        right = slopes(token_definition, *inputs)
        ratio = (inputs[0] - inputs[1]).exp()
        both = torch.where((ratio - 1).abs() > inputs[3], 0.0, ratio * inputs[2] / n)
        fixed = torch.where((ratio > 1.2) if inputs[2] > 0 else (ratio < 0.8), 0.0, ratio * inputs[2] / n)
        expect(
            sub.grpo_slopes(*inputs),
            right,
            what="the derivative in each token's log-probability",
            given=shown(*inputs),
            tolerance=1e-6,
            mistakes={
                "it is not divided by the number of tokens": right * n,
                "both sides are clipped; the minimum clips one": both,
                "ε is 0.2, whatever is given": fixed,
                "the ratio of the whole completion is used": torch.full((n,), s * inputs[2] / n, dtype=torch.float64),
                "the clip is forgotten": ratio * inputs[2] / n,
            },
        )


@test(
    points=1,
    rounds=1,
    hints=(
        "A > 0: only the upper clip can act. What happens to .4, which is below .8?",
        "The minimum leaves .4 as it is: a good token that has become less probable keeps its full gradient. GSPO's ratio is the root of 2 · .4.",
    ),
)
def by_hand(sub, draw):
    "The two objectives of the example."
    mistakes = {"the clip lifts .4 to .8; the minimum does not": 1.0, "nothing is clipped": 1.2}
    expect(sub.number("grpo_value"), (1.2 + 0.4) / 2, what="`grpo_value`", mistakes=mistakes, reveal=False)
    mistakes = {
        "the root is missing": 0.8,
        "it is rounded to one decimal; three are required": 0.9,
        "the arithmetic mean is clipped": 1.2,
        "every token is clipped before the mean is taken": math.sqrt(1.2 * 0.8),
    }
    expect(
        sub.number("gspo_value"), math.sqrt(0.8), what="`gspo_value`", mistakes=mistakes, tolerance=1e-3, reveal=False
    )


# %% [probes]
# range 1e-4 to 100 of grpo_slopes, gspo: a ratio is an exponential, and derivatives are the subject
# no gradient: the derivatives are what is asked for


# %% [mutant] no root
# caught by: one_ratio
# says: without the root
def gspo(logps, old_logps, advantage, epsilon):
    s = (logps - old_logps).sum().exp()
    return torch.minimum(s * advantage, s.clamp(1 - epsilon, 1 + epsilon) * advantage)


# %% [mutant] the arithmetic mean
# caught by: one_ratio
# says: arithmetic mean
def gspo(logps, old_logps, advantage, epsilon):
    s = (logps - old_logps).exp().mean()
    return torch.minimum(s * advantage, s.clamp(1 - epsilon, 1 + epsilon) * advantage)


# %% [mutant] not divided by the length
# caught by: all_alike
# says: not divided by the number of tokens
def gspo_slopes(logps, old_logps, advantage, epsilon):
    s = (logps - old_logps).mean().exp()
    silent = s > 1 + epsilon if advantage > 0 else s < 1 - epsilon
    return torch.where(silent, 0.0, s * advantage).expand(len(logps))


# %% [mutant] the clip is forgotten
# caught by: all_alike
# says: the clip is forgotten
def gspo_slopes(logps, old_logps, advantage, epsilon):
    return ((logps - old_logps).mean().exp() * advantage / len(logps)).expand(len(logps))


# %% [mutant] both sides silenced
# caught by: each_by_itself
# says: the minimum clips one
def grpo_slopes(logps, old_logps, advantage, epsilon):
    ratio = (logps - old_logps).exp()
    return torch.where((ratio - 1).abs() > epsilon, 0.0, ratio * advantage / len(logps))


# %% [mutant] the misprint
# caught by: by_hand
# says: lifts .4 to .8
grpo_value = 1.0


# %% [partial] 1: the objective
def gspo_slopes(logps, old_logps, advantage, epsilon):
    raise NotImplementedError


def grpo_slopes(logps, old_logps, advantage, epsilon):
    raise NotImplementedError


grpo_value = 1.0


# %% [partial] 4: GRPO's slopes are missing
def grpo_slopes(logps, old_logps, advantage, epsilon):
    return gspo_slopes(logps, old_logps, advantage, epsilon)
