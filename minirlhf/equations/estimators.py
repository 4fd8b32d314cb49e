"""Metrics of k or n samples: pass@k, pass^k, majority votes, best-of-n.

The functions take counts of samples and return exact expectations over the choice of k (or n) distinct samples. They
use combinatorics instead of simulation, so nothing is sampled.
"""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import at_least, finite, require_shapes, shape, takes

# -- k of n samples, of which c are correct ----------------------------------------------------------------------


def _counts(num_samples: Tensor | int, num_correct: Tensor | int, k: int) -> tuple[Tensor, Tensor]:
    """Return n and c as integer tensors of one shape. Checks that 1 ≤ k ≤ n and 0 ≤ c ≤ n."""
    c = torch.as_tensor(num_correct)
    n = torch.full_like(c, num_samples) if isinstance(num_samples, int) else num_samples
    require_shapes(num_samples=(n, "..."), num_correct=(c, "..."))
    if n.is_floating_point() or c.is_floating_point():
        raise ArgumentError(
            f"num_samples is {n.dtype} and num_correct {c.dtype}; expected integers",
            argument="num_samples, num_correct",
            value=(n.dtype, c.dtype),
            problem="dtype",
        )
    if bool(((c < 0) | (c > n)).any()):
        raise ArgumentError(
            f"num_correct of shape {tuple(c.shape)} holds a count outside 0 … num_samples",
            argument="num_correct",
            problem="out of range",
        )
    if k < 1 or bool((n < k).any()):
        raise ArgumentError(
            f"k = {k}; expected 1 ≤ k ≤ num_samples (smallest: {int(n.min())})",
            argument="k",
            value=k,
            expected=(1, int(n.min())),
        )
    return n, c


def _chance_all_from(subset_sizes: Tensor, set_sizes: Tensor, k: int, *, complement: bool = False) -> Tensor:
    """C(m, k) / C(n, k): the probability that k distinct items of n all fall into a subset of m; or the complement."""
    probabilities = []
    for m, n in zip(subset_sizes.flatten().tolist(), set_sizes.flatten().tolist(), strict=True):
        favourable, total = math.comb(m, k), math.comb(n, k)  # exact integers; only the quotient is rounded
        probabilities.append((total - favourable if complement else favourable) / total)
    return torch.tensor(probabilities, dtype=torch.float64).view(subset_sizes.shape)


@equation("eq:pass-at-k", source='Chen et al. (2021), "Evaluating large language models trained on code", equation 1.')
def pass_at_k(num_samples: Tensor | int, num_correct: Tensor | int, *, k: int) -> Tensor:
    """pass@k = 1 − C(n−c, k)/C(n, k): the probability that at least one of k samples is correct, from n samples.

    Unbiased for 1 − (1−p)^k, which 1 − (1 − c/n)^k is not. Float64.

    Args:
        num_correct: c, an integer tensor such as ``(P,)``, one entry per prompt, or a single int.
        num_samples: n ≥ c, the same shape, or an int for all of them.
        k: from 1 to the smallest n.
    Raises: ValueError that names the wrong argument.
    """
    n, c = _counts(num_samples, num_correct, k)
    return _chance_all_from(n - c, n, k, complement=True)


@equation("eq:pass-hat-k", source='Yao et al. (2024), "τ-bench".')
def pass_hat_k(num_samples: Tensor | int, num_correct: Tensor | int, *, k: int) -> Tensor:
    """pass^k = C(c, k)/C(n, k): the probability that all of k samples are correct, from n samples. Reliability.

    Unbiased for p^k. Arguments as for :func:`pass_at_k`.
    """
    n, c = _counts(num_samples, num_correct, k)
    return _chance_all_from(c, n, k)


@takes(counts=shape("A"))
@equation(
    "eq:maj-at-k",
    source='Wang et al. (2023), "Self-consistency improves chain of thought reasoning in language models".',
)
def maj_at_k(counts: Tensor, *, correct: int, k: int) -> float:
    """maj@k: the probability that the majority vote of k samples is the correct answer; ties are broken at random.

    The sum over all ways to choose k of the n samples is exact. For a vote count m of the correct answer,
    ``ways[v, t]`` counts the choices of v samples with other answers in which no answer has more than m votes and t
    answers tie at m.

    Args:
        counts: integers, the number of samples with each distinct answer, among the n samples of one prompt.
        correct: the index of the correct answer (if no sample gave it, pass a count of 0).
        k: from 1 to n.
    """
    if counts.is_floating_point() or bool((counts < 0).any()):
        raise ArgumentError(
            f"counts of shape {tuple(counts.shape)}; expected integers ≥ 0", argument="counts", problem="not counts"
        )
    votes = counts.tolist()
    if not 0 <= correct < len(votes):
        raise ArgumentError(
            f"correct = {correct}; expected an index into counts of shape {tuple(counts.shape)}",
            argument="correct",
            value=correct,
            expected=tuple(counts.shape),
        )
    total = sum(votes)
    if not 1 <= k <= total:
        raise ArgumentError(
            f"k = {k}; expected 1 ≤ k ≤ {total}, the number of samples", argument="k", value=k, expected=(1, total)
        )
    other_counts = [n for i, n in enumerate(votes) if i != correct and n > 0]
    favourable = Fraction(0)
    for m in range(1, min(k, votes[correct]) + 1):
        ways = {(0, 0): 1}
        for n in other_counts:
            extended: dict[tuple[int, int], int] = {}
            for (v, t), count in ways.items():
                for added in range(min(n, m, k - m - v) + 1):
                    state = (v + added, t + (added == m))
                    extended[state] = extended.get(state, 0) + count * math.comb(n, added)
            ways = extended
        tie_weighted = sum((Fraction(count, 1 + t) for (v, t), count in ways.items() if v == k - m), Fraction(0))
        favourable += math.comb(votes[correct], m) * tie_weighted
    return float(favourable / math.comb(total, k))


# -- best of n ---------------------------------------------------------------------------------------------------


@takes(n=at_least(1))
@equation(
    "eq:best-of-n-cdf",
    source='order statistics, e.g. David and Nagaraja (2003), "Order statistics", section 2.1.',
)
def best_of_n_cdf(cdf: Tensor, *, n: int) -> Tensor:
    """The distribution function of the largest of n independent samples: F(x)^n, since all n must be at most x.

    Raises: ValueError too if a value of F lies outside [0, 1] by more than the rounding error.
    """
    if not bool(((cdf >= 0) & (cdf <= 1 + 1e-6)).all()):
        raise ArgumentError(
            f"cdf of shape {tuple(cdf.shape)} holds values outside [0, 1]", argument="cdf", expected="[0, 1]"
        )
    return cdf**n


@takes(probs="... N", rewards="... N", n=at_least(1))
@equation(
    "eq:best-of-n-law",
    "eq:best-of-n-rounds",
    source='Beirami et al. (2024), "Theoretical guarantees on the best-of-n alignment policy", for distinct rewards.',
)
def best_of_n_distribution(probs: Tensor, rewards: Tensor, *, n: int) -> Tensor:
    """The distribution of best-of-n: π_n(y) = [F(r_y)^n − F(r_y−)^n] · π(y)/π(reward = r_y), exactly, ties included.

    F is the distribution function of the reward under π, whose ``probs`` sum to 1, and F(r−) is its value just below r.
    The formula holds for every rule that breaks ties without looking at the completions (take the first, take a random
    one).
    """
    if bool((probs < 0).any()) or not bool(((probs.sum(-1) - 1).abs() < 1e-2).all()):
        raise ArgumentError(
            f"probs of shape {tuple(probs.shape)}; expected distributions along the last axis",
            argument="probs",
            problem="distribution",
        )
    order = rewards.argsort(-1)
    sorted_rewards = rewards.gather(-1, order)
    cumulative = torch.nn.functional.pad(probs.gather(-1, order).cumsum(-1), (1, 0))  # (..., N+1)
    cdf = cumulative.gather(-1, torch.searchsorted(sorted_rewards, rewards, right=True)).clamp(max=1.0)  # F(r)
    cdf_below = cumulative.gather(-1, torch.searchsorted(sorted_rewards, rewards)).clamp(max=1.0)  # F(r−)
    tied_mass = cdf - cdf_below
    # F(r)^n − F(r−)^n in a form that keeps small differences; where the tied mass rounds to 0, the ratio's limit. Each
    # branch gets safe inputs, because a where() alone would let NaN into the gradient.
    tied_fraction = torch.where((tied_mass > 0) & (cdf_below > 0), tied_mass / cdf, 0.5)
    best_mass = best_of_n_cdf(cdf, n=n) * torch.where(cdf_below > 0, -torch.expm1(n * torch.log1p(-tied_fraction)), 1.0)
    ratio = best_mass / torch.where(tied_mass > 0, tied_mass, 1.0)
    return probs * torch.where(tied_mass > 0, ratio, best_of_n_density_ratio(cdf, n=n))


@takes(quantile=finite("...", "[0, 1]"), n=at_least(1))
@equation(
    "eq:best-of-n-density",
    source='Beirami et al. (2024), "Theoretical guarantees on the best-of-n alignment policy".',
)
def best_of_n_density_ratio(quantile: Tensor, *, n: int) -> Tensor:
    """π_n(y)/π(y) = n u^(n−1) where u = F(r_y): best-of-n without ties, where no completion has much mass."""
    return n * quantile ** (n - 1)


@takes(n=at_least(1))
@equation(
    "eq:best-of-n-kl",
    "eq:best-of-n-kl-bound",
    source='Stiennon et al. (2020), "Learning to summarize from human feedback", appendix G.3; that it is a bound, '
    'Beirami et al. (2024), "Theoretical guarantees on the best-of-n alignment policy".',
)
def best_of_n_kl(n: int) -> float:
    """log n − (n−1)/n nats: KL of best-of-n to the policy that it samples from, without ties; always an upper bound."""
    return math.log(n) - (n - 1) / n


@takes(scores="... N", values="... N")
@equation(
    "eq:best-of-n-estimator",
    source='Nakano et al. (2021), "WebGPT", appendix I, there for one n and distinct scores.',
)
def best_of_n_curve(scores: Tensor, values: Tensor | None = None) -> Tensor:
    """Unbiased estimates ``(..., N)`` of best-of-n for every n = 1 … N at once, from the same N samples. Float64.

    Entry n−1 is the mean, over all C(N, n) subsets, of the value (the gold reward; by default the score) of the sample
    with the best score (the proxy reward); tied samples share evenly. If L samples score strictly lower and T samples
    tie (the sample itself included), the tied samples are best in C(L+T, n) − C(L, n) subsets. Each of them gets 1/T
    of these subsets.
    """
    values = scores if values is None else values
    num_samples = scores.shape[-1]
    if num_samples == 0:
        raise ArgumentError(
            f"scores has shape {tuple(scores.shape)}; expected at least one sample",
            argument="scores",
            value=tuple(scores.shape),
            problem="empty",
        )
    num_below = (scores.unsqueeze(-2) < scores.unsqueeze(-1)).sum(-1)  # (..., N)
    num_tied = (scores.unsqueeze(-2) == scores.unsqueeze(-1)).sum(-1)  # (..., N)
    i = torch.arange(num_samples, device=scores.device)  # (N,)
    j = torch.arange(num_samples + 1, device=scores.device).unsqueeze(-1)  # (N+1, 1)
    # probability[j, n-1] = C(j, n)/C(N, n), computed as Π_{i<n} (j−i)/(N−i); it is 0 for n > j.
    probability = ((j - i).clamp(min=0).double() / (num_samples - i)).cumprod(-1)
    weights = (probability[num_below + num_tied] - probability[num_below]) / num_tied.unsqueeze(-1)  # (..., sample, n)
    return (weights * values.double().unsqueeze(-1)).sum(-2)
