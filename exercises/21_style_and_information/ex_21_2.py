# ---
# title: When removing the slope pays
# kind: derive
# minutes: 30
# ---

# %% [statement]
# Near the reference, the gain in gold reward at a given KL is proportional to the correlation of gold reward $g$ and proxy reward $r$. Labels add $b\,s$ to the gold reward, $b > 0$, and the reward model learns $r = g + b\,s$ without error. Should we remove its slope on style, or leave it?
# Let $\sigma_g > 0$ and $\sigma_s > 0$ be the standard deviations of gold reward and style under the reference and $c$ their covariance, with $|c| < \sigma_g\sigma_s$.
#
# 1. `kept(gold_std, style_std, covariance)`: the gain of the reward *without its slope* at a small KL, as a fraction of the gain of the gold reward itself.
# 2. `worth_it(gold_std, style_std, covariance)`: the threshold of the bias $b$. Below it the biased reward gains more gold reward, above it the reward without its slope does. `math.inf` if the biased reward is better at every $b > 0$.
# 3. `best_slope(gold_std, style_std, covariance)`: you may also remove only a part of the slope. Take a reward that equals the gold reward except for its slope on style. Which slope gives the largest gain?
#
# All arguments and results are numbers.

# %% [given]
import math


# %% [stub]
def kept(gold_std, style_std, covariance):
    """Returns a number in (0, 1]."""
    raise NotImplementedError


def worth_it(gold_std, style_std, covariance):
    """Returns a number ≥ 0, or math.inf."""
    raise NotImplementedError


def best_slope(gold_std, style_std, covariance):
    """Returns a number."""
    raise NotImplementedError


# %% [solution]
def kept(gold_std, style_std, covariance):
    return math.sqrt(1 - (covariance / (gold_std * style_std)) ** 2)


def worth_it(gold_std, style_std, covariance):
    # the two correlations are equal at b = −c/σ_s² and at b = cσ_g²/(σ_g²σ_s² − 2c²)
    if covariance <= 0:
        return -covariance / style_std**2
    left = gold_std**2 * style_std**2 - 2 * covariance**2
    return covariance * gold_std**2 / left if left > 0 else math.inf


def best_slope(gold_std, style_std, covariance):
    return covariance / style_std**2


# %% [tests]
import math

import torch
from minirlhf_course.classroom.testing import expect, fail, test


def replies(gold_std, style_std, covariance):
    """Gold and style of four replies, each as likely as the others, with these moments and mean 0."""
    x = torch.tensor([1.0, 1, -1, -1], dtype=torch.float64)
    y = torch.tensor([1.0, -1, 1, -1], dtype=torch.float64)
    style = style_std * x
    slope = covariance / style_std**2
    return slope * style + math.sqrt(gold_std**2 - slope**2 * style_std**2) * y, style


def gained(gold, reward):
    """Of what gold gains, the share that a reward gains at a small KL: their correlation, from the table."""
    return float(torch.corrcoef(torch.stack([gold, reward]))[0, 1])


def without_slope(gold, style):
    return gold - (gold @ style) / (style @ style) * style


def threshold(moments):
    """By bisection: where the biased reward falls below the cured one."""
    gold, style = replies(*moments)
    cured = gained(gold, without_slope(gold, style))
    low, high = 0.0, 1e6
    if gained(gold, gold + high * style) > cured:
        return math.inf
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if gained(gold, gold + middle * style) > cured else (low, middle)
    return high


def moments(draw, low, high):
    """Deviations with one digit, and a covariance of a correlation in a range."""
    gold_std, style_std = [0.8, 1.2, 1.5][draw.integer(0, 2)], [0.5, 1.4, 2.0][draw.integer(0, 2)]
    return gold_std, style_std, round(float(draw.uniform(low=low, high=high)), 2) * gold_std * style_std


@test(
    points=1,
    hints=(
        "What is the correlation of the gold reward with its own residual?",
        "The residual has the fraction 1 − ρ² of the gold reward's variance, and the covariance of the two equals the residual's variance.",
    ),
    against="four completions, residual and correlation from the table",
)
def after_the_cure(sub, draw):
    "`kept` is the fraction of the gain without the slope."
    for three in (moments(draw, -0.8, 0.8), (1.2, 0.5, 0.998 * 0.6)):
        gold, style = replies(*three)
        rho = three[2] / (three[0] * three[1])
        expect(
            sub.kept(*three), gained(gold, without_slope(gold, style)), what="`kept`", given={"gold_std, style_std, covariance": three}, tolerance=1e-8,
            mistakes={
                "this is the fraction of the variance, but the gain is proportional to the correlation, its root": 1 - rho**2,
                "this is the correlation of gold reward and style": abs(rho),
                "this is one minus the correlation with style, not the correlation with the residual": 1 - abs(rho),
            },
        )  # fmt: skip


@test(
    points=3,
    hints=(
        "Set the two correlations equal and square. The equation is quadratic in b, and you can guess one root: for which b is the biased reward equal to its own residual?",
        "At b = −c/σ_s² the biased reward *is* the residual. This is one root, and the product of the two roots gives the other. Which of them is positive, for c > 0 and for c < 0? And what does a negative denominator mean?",
    ),
    against="bisection over the table of four completions",
)
def threshold_of_the_liking(sub, draw):
    "`worth_it` is the bias above which removing the slope gains more."
    for low, high in ((0.1, 0.65), (-0.65, -0.1), (0.75, 0.9), (-0.9, -0.75)):
        gold_std, style_std, c = three = moments(draw, low, high)
        other = gold_std**2 * style_std**2 - 2 * c**2
        second = c * gold_std**2 / other
        known = {
            "it is the root for the other sign of the covariance": second if c < 0 else -c / style_std**2,
            "this is the slope of the gold reward": c / style_std**2,
            "this root is negative, and b must be positive": -c / style_std**2 if c > 0 else math.nan,
            "the denominator has changed its sign, so leaving the slope is better at every b > 0": second
            if other < 0 < c
            else math.nan,
            "removal is not always better: it also removes the gold reward's own slope, and a small bias does little harm": 0.0,
            "it is not infinite where the gold reward falls with style": math.inf if c < 0 else math.nan,
        }
        want = threshold(three)
        expect(
            sub.worth_it(*three), want, what="`worth_it`", given={"gold_std, style_std, covariance": three}, tolerance=1e-6,
            mistakes={say: x for say, x in known.items() if x == x and x != want},
        )  # fmt: skip
    for correlation in (0.0005, 0.704, 0.71):  # hardly any, and on both sides of the root of a half
        three = (1.0, 1.0, correlation)
        want, got = threshold(three), sub.aside.worth_it(*three)
        if math.isinf(want) != math.isinf(float(got)):
            fail(f"`worth_it` is {float(got):.6g} at a correlation of {correlation}; expected {want:.6g}")
        if math.isfinite(want):
            expect(got, want, what="`worth_it`", given={"gold_std, style_std, covariance": three}, tolerance=1e-6)


@test(
    points=1,
    hints=(
        "Of all rewards g + t·s, which has the largest correlation with the gold reward?",
        "The gold reward itself. What is its slope on style?",
    ),
)
def not_all_the_way(sub, draw):
    "`best_slope` is the slope of the best reward."
    three = moments(draw, -0.8, 0.8)
    gold, style = replies(*three)
    left = without_slope(gold, style)
    slopes = torch.linspace(-6, 6, 120001, dtype=torch.float64)
    table = left + slopes[:, None] * style
    score = (table @ gold) / table.norm(dim=-1)
    best = float(slopes[int(score.argmax())])
    expect(
        sub.best_slope(*three), best, what="`best_slope`", given={"gold_std, style_std, covariance": three}, tolerance=2e-4,
        mistakes={
            "this is the correlation, but a slope is measured in gold reward per unit of style": three[2] / (three[0] * three[1]),
            "this is the slope of style on the gold reward": three[2] / three[0] ** 2,
            "this reward has no slope, but the gold reward has one": 0.0,
            "the sign is wrong": -best,
        },
    )  # fmt: skip
    small = (0.02, 0.02, 0.0003)
    expect(sub.aside.best_slope(*small), 0.75, what="`best_slope`", given={"gold_std, style_std, covariance": small})


# %% [probes]
# no integers, size, values, float32, gradient, keywords: numbers are asked for, not tensors


# %% [mutant] the variance
# caught by: after_the_cure
# says: fraction of the variance
def kept(gold_std, style_std, covariance):
    return 1 - (covariance / (gold_std * style_std)) ** 2


# %% [mutant] one root
# caught by: threshold_of_the_liking
def worth_it(gold_std, style_std, covariance):
    return abs(covariance) / style_std**2


# %% [mutant] never infinite
# caught by: threshold_of_the_liking
# says: changed its sign
def worth_it(gold_std, style_std, covariance):
    if covariance <= 0:
        return -covariance / style_std**2
    return covariance * gold_std**2 / (gold_std**2 * style_std**2 - 2 * covariance**2)


# %% [mutant] at once
# caught by: threshold_of_the_liking
def worth_it(gold_std, style_std, covariance):
    return 0.0


# %% [mutant] the correlation
# caught by: not_all_the_way
# says: gold reward per unit of style
def best_slope(gold_std, style_std, covariance):
    return covariance / (gold_std * style_std)


# %% [partial] 2: the first and the last
def worth_it(gold_std, style_std, covariance):
    return 0.0
