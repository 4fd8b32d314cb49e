# ---
# title: One of k is right
# kind: implement
# minutes: 20
# ---

# %% [statement]
# Of $n$ sampled completions of a problem, $c$ are right. Estimate the probability that at least one of $k$ completions is right. Use the estimator of Chen et al. (2021), the
# chapter's estimate of pass@k: the fraction of the choices of $k$ *distinct* completions among the $n$ that contain at least one right completion.
#
# 1. `pass_at_k(num_samples, num_correct, k)`: $n$ and $c$ are integer tensors of shape `(P,)`, one entry per problem; the number $n$ may differ between problems. Returns `(P,)` in float64. Here $1 \le k \le n$ and
#    $0 \le c \le n$ for every problem, and both ends of both ranges occur. $n$ may be some thousands, where binomial coefficients have hundreds of digits; the result is still a number from 0 to 1, right to six decimals.
# 2. `benchmark_score(num_samples, num_correct, k)`: the mean of these estimates over the problems of a benchmark, one number. Here $n$ may be smaller than $k$ for some problems. Such a problem is left out. If all problems are left out, the score is NaN.
# 3. `plug_in_bias(p, n, k)`: many papers report $1 - (1 - c/n)^k$ instead. Suppose that each of the $n$ completions is right with probability $p$, independently of the others. Return the expectation of this estimate minus the true value $1 - (1-p)^k$, as
#    an exact number, not a simulated one. $p$ is a float from 0 to 1, both ends included; $n$ and $k$ are at least 1, $n$ may be some thousands here too, and $k$ may be larger than $n$.

# %% [given]
import math

import torch


# %% [stub]
def pass_at_k(num_samples, num_correct, k):
    """num_samples, num_correct: (P,) integers. Returns (P,), float64."""
    raise NotImplementedError


def benchmark_score(num_samples, num_correct, k):
    """The mean estimate of the problems with at least k samples; NaN if there are none. Returns one number."""
    raise NotImplementedError


def plug_in_bias(p, n, k):
    """The expectation of 1 − (1 − c/n)^k, minus 1 − (1 − p)^k. Returns one number."""
    raise NotImplementedError


# %% [solution]
def pass_at_k(num_samples, num_correct, k):
    chances = []
    for n, c in zip(num_samples.tolist(), num_correct.tolist(), strict=True):
        total = math.comb(n, k)
        chances.append((total - math.comb(n - c, k)) / total)  # exact integers; only the quotient is rounded
    return torch.tensor(chances, dtype=torch.float64)


def benchmark_score(num_samples, num_correct, k):
    enough = num_samples >= k
    return pass_at_k(num_samples[enough], num_correct[enough], k).mean()  # the mean of an empty tensor is NaN


def plug_in_bias(p, n, k):
    if p in (0, 1):
        return 0.0  # c is certain
    expected_miss = 0.0
    for c in range(n + 1):
        ways = math.lgamma(n + 1) - math.lgamma(c + 1) - math.lgamma(n - c + 1)  # the logarithm of C(n, c)
        expected_miss += math.exp(ways + c * math.log(p) + (n - c) * math.log1p(-p)) * (1 - c / n) ** k
    return (1 - p) ** k - expected_miss


# %% [tests]
import itertools
import math
import statistics
from fractions import Fraction

import torch

from minirlhf_course.classroom.testing import expect, fail, test


def by_choosing(n, c, k):
    """The fraction of the choices of k completions with a right one, by writing all choices down."""
    choices = list(itertools.combinations([True] * c + [False] * (n - c), k))
    return sum(any(choice) for choice in choices) / len(choices)


def by_multiplying(n, c, k):
    """One minus the chance that each of k draws without replacement is wrong, as a fraction."""
    miss = Fraction(1)
    for drawn in range(k):
        miss *= Fraction(max(n - c - drawn, 0), n - drawn)
    return float(1 - miss)


def each(function, n, c, k):
    return torch.tensor([float(function(a, b, k)) for a, b in zip(n, c, strict=True)], dtype=torch.float64)


def samples(draw, k):
    """Numbers of samples and of right ones: none, all, so many that no choice misses, exactly k samples, and between."""
    n = [draw.integer(k + 2, 8) for _ in range(5)]
    c = [draw.integer(1, n[0] - k), 0, n[2], n[3] - k + 1, draw.integer(1, 2)]
    return [*n, k, k], [*c, 0, 1]


WITH_REPLACEMENT = "a completion may be chosen twice: that is 1 − (1 − c/n)^k"
MISTAKES = {
    WITH_REPLACEMENT: lambda n, c, k: 1 - (1 - c / n) ** k,
    "that is the fraction of choices in which all are right": lambda n, c, k: math.comb(c, k) / math.comb(n, k),
    "that is the fraction of choices in which all are wrong": lambda n, c, k: math.comb(n - c, k) / math.comb(n, k),
    "that is 1 − C(c, k)/C(n, k), where the wrong completions should be counted": lambda n, c, k: (
        1 - math.comb(c, k) / math.comb(n, k)
    ),
    "only choices with exactly one right completion are counted": lambda n, c, k: (
        c * math.comb(n - c, k - 1) / math.comb(n, k)
    ),
    "k is ignored: that is c/n": lambda n, c, k: c / n,
}


def wrong_ways(n, c, k):
    return {say: each(function, n, c, k) for say, function in MISTAKES.items()}


@test(
    points=2,
    against="all choices, written down",
    hints=(
        "Count the opposite: in how many choices of k completions are all of them wrong?",
        "There are C(n − c, k) such choices among C(n, k). `math.comb` returns 0 if k is larger than n − c, which is right here.",
    ),
)
def of_choices(sub, draw):
    "`pass_at_k` is the fraction of all choices of k completions that hold a right one."
    k = draw.integer(2, 4)
    n, c = samples(draw, k)
    expect(
        sub.pass_at_k(torch.tensor(n), torch.tensor(c), k),
        each(by_choosing, n, c, k),
        what="pass@k",
        given={"num_samples": n, "num_correct": c, "k": k},
        mistakes=wrong_ways(n, c, k),
        tolerance=1e-6,
    )


@test(
    points=1,
    against="fractions of whole numbers",
    hints=(
        "How large is C(3000, 1000) as a float? Either keep the integers exact until the last division, or never compute the coefficient.",
        "Python's integers have no limit, and their quotient is rounded once. Or multiply the k factors (n − c − i)/(n − i), none of which is large.",
    ),
)
def of_thousands(sub, draw):
    "`pass_at_k` with thousands of samples."
    k = draw.integer(400, 900)
    n = [draw.integer(2000, 4000) for _ in range(5)]
    c = [1, 2, draw.integer(3, 6), 0, n[4] - k + 1]
    expect(
        sub.aside.pass_at_k(torch.tensor(n), torch.tensor(c), k),
        each(by_multiplying, n, c, k),
        what="pass@k",
        given={"num_samples": n, "num_correct": c, "k": k},
        mistakes=wrong_ways(n, c, k),
        tolerance=1e-6,
    )
    c[2] = draw.integer(100, 200)
    expect(
        sub.aside.pass_at_k(torch.tensor(n), torch.tensor(c), 1),
        each(by_multiplying, n, c, 1),
        what="pass@1",
        given={"num_samples": n, "num_correct": c, "k": 1},
        tolerance=1e-6,
    )


@test(
    points=2,
    hints=(
        "Which problems have enough samples? What is the mean of no number?",
        "Select the problems with n ≥ k first, and estimate only these. `torch.nan` or `math.nan` if none is left.",
    ),
)
def of_a_benchmark(sub, draw):
    "`benchmark_score` is the mean over the problems with at least k samples."
    k = draw.integer(3, 4)
    n, c = samples(draw, k)
    few, right = [k - 1, 2, 1], [k - 2, 2, 0]
    order = draw.permutation(len(n) + 3).tolist()
    all_n, all_c = ([*a, *b] for a, b in ((n, few), (c, right)))
    all_n, all_c = [all_n[i] for i in order], [all_c[i] for i in order]
    chances = each(by_choosing, n, c, k)
    clipped = [by_choosing(a, b, min(a, k)) for a, b in zip(all_n, all_c, strict=True)]
    together = by_multiplying(sum(n), sum(c), k)
    expect(
        sub.benchmark_score(torch.tensor(all_n), torch.tensor(all_c), k),
        chances.mean(),
        what="the score",
        given={"num_samples": all_n, "num_correct": all_c, "k": k},
        mistakes={
            "a problem with fewer than k samples counts as 0": chances.sum() / len(all_n),
            "a problem with fewer than k samples counts as 1": (chances.sum() + 3) / len(all_n),
            "a problem with fewer than k samples is estimated with a smaller k": statistics.fmean(clipped),
            "a problem with exactly k samples is left out": chances[:-2].mean(),
            "the samples of all problems are put together, where each problem has its own estimate": together,
            WITH_REPLACEMENT: each(MISTAKES[WITH_REPLACEMENT], n, c, k).mean(),
        },
        tolerance=1e-6,
    )
    alone = sub.aside.benchmark_score(torch.tensor([k - 1, 1]), torch.tensor([1, 1]), k)
    try:
        score = float(alone)
    except (TypeError, ValueError, RuntimeError):
        fail("the score without a problem that counts is not a number", num_samples=[k - 1, 1], k=k)
    if score == score:
        fail(f"no problem has k samples, and the score is {score:g}; expected NaN", num_samples=[k - 1, 1], k=k)


@test(
    points=2,
    against="all 2^n outcomes",
    hints=(
        "How many completions are right is a random number. Which values can it take, and how probable is each?",
        "Sum over c from 0 to n the binomial probability of c times the estimate for that c, and subtract the truth.",
    ),
)
def of_the_plug_in(sub, draw):
    "`plug_in_bias` is the expectation of 1 − (1 − c/n)^k minus the truth."
    n = draw.integer(4, 7)
    p = round(float(draw.uniform(low=0.15, high=0.45)), 2)
    for k in (draw.integer(2, n), n + 3):
        truth = 1 - (1 - p) ** k
        mean, right = 0.0, 0.0
        for outcome in itertools.product((0, 1), repeat=n):
            chance = math.prod(p if x else 1 - p for x in outcome)
            mean += chance * (1 - (1 - sum(outcome) / n) ** k)
            right += chance * (1 - (1 - sum(outcome) / n) ** k) ** 2
        unordered = sum(
            p**c * (1 - p) ** (n - c) * (1 - (1 - c / n) ** k) for c in range(n + 1)
        )  # without the binomial coefficient
        expect(
            sub.plug_in_bias(p, n, k),
            mean - truth,
            what="the bias",
            given={"p": p, "n": n, "k": k},
            mistakes={
                "the truth is not subtracted: that is the expectation": mean,
                "the estimate is subtracted from the truth": truth - mean,
                "the expectation of c is put into the estimate: that always gives 0": 0.0,
                "the binomial coefficient is missing": unordered - truth,
                "that is the mean squared error": right - 2 * truth * mean + truth**2,
                "that is relative to the truth": (mean - truth) / truth,
            },
            tolerance=1e-8,
        )
    for sure in (0.0, 1.0):
        expect(
            sub.aside.plug_in_bias(sure, n, 3), 0.0, what=f"the bias at p = {sure:g}", given={"n": n, "k": 3}, tolerance=1e-8
        )  # fmt: skip
    expect(sub.aside.plug_in_bias(p, n, 1), 0.0, what="the bias at k = 1", given={"p": p, "n": n}, tolerance=1e-8)
    n = draw.integer(1100, 3000)  # k = 3 by the third moment of the number of wrong completions
    third = n * (1 - p) + 3 * n * (n - 1) * (1 - p) ** 2 + n * (n - 1) * (n - 2) * (1 - p) ** 3
    expect(
        sub.aside.plug_in_bias(p, n, 3), (1 - p) ** 3 - third / n**3, what="the bias with thousands of samples",
        given={"p": p, "n": n, "k": 3}, tolerance=1e-8,
    )  # fmt: skip


# %% [edges]
# of_choices: the number $n$ may differ between problems
# of_choices: both ends of both ranges occur
# of_thousands: $n$ may be some thousands
# of_a_benchmark: If all problems are left out, the score is NaN
# of_the_plug_in: both ends included
# of_the_plug_in: $n$ may be some thousands here too
# of_the_plug_in: $k$ may be larger than $n$


# %% [probes]
# no gradient: counts have none


# %% [mutant] with replacement
# caught by: of_choices
# says: chosen twice
def pass_at_k(num_samples, num_correct, k):
    return 1 - (1 - num_correct.double() / num_samples) ** k


# %% [mutant] all right
# caught by: of_choices
# says: all are right
def pass_at_k(num_samples, num_correct, k):
    pairs = zip(num_samples.tolist(), num_correct.tolist(), strict=True)
    return torch.tensor([math.comb(c, k) / math.comb(n, k) for n, c in pairs], dtype=torch.float64)


# %% [mutant] factorials as floats
# caught by: of_thousands
def pass_at_k(num_samples, num_correct, k):
    def choose(n):
        return torch.exp(torch.lgamma(n + 1.0) - torch.lgamma(n - k + 1.0) - math.lgamma(k + 1))

    n, wrong = num_samples.double(), (num_samples - num_correct).double()
    return 1 - torch.where(wrong >= k, choose(wrong) / choose(n), 0.0)


# %% [mutant] too few samples count as a failure
# caught by: of_a_benchmark
# says: counts as 0
def benchmark_score(num_samples, num_correct, k):
    enough = num_samples >= k
    return pass_at_k(num_samples[enough], num_correct[enough], k).sum() / len(num_samples)


# %% [mutant] all samples together
# caught by: of_a_benchmark
# says: put together
def benchmark_score(num_samples, num_correct, k):
    enough = num_samples >= k
    return pass_at_k(num_samples[enough].sum()[None], num_correct[enough].sum()[None], k)[0]


# %% [mutant] 0 where nothing is known
# caught by: of_a_benchmark
# says: expected NaN
def benchmark_score(num_samples, num_correct, k):
    enough = num_samples >= k
    return pass_at_k(num_samples[enough], num_correct[enough], k).mean().nan_to_num(0.0)


# %% [mutant] the expectation of c in place of the expectation
# caught by: of_the_plug_in
# says: always gives 0
def plug_in_bias(p, n, k):
    return (1 - p) ** k - (1 - n * p / n) ** k


# %% [mutant] the other sign
# caught by: of_the_plug_in
# says: subtracted from the truth
def plug_in_bias(p, n, k):
    miss = sum(math.comb(n, c) * p**c * (1 - p) ** (n - c) * (1 - c / n) ** k for c in range(n + 1))
    return miss - (1 - p) ** k


# %% [partial] 5: the bias not begun
def plug_in_bias(p, n, k):
    raise NotImplementedError


# %% [partial] 3: only the estimate
def benchmark_score(num_samples, num_correct, k):
    return 0.0


def plug_in_bias(p, n, k):
    raise NotImplementedError
