"""What k or n tries are worth: pass@k, pass^k, majority votes, best-of-n.

Counts of samples go in, exact expectations over the choice of k (or n) of them come out, without repetition and without
drawing anything: combinatorics instead of simulation.
"""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import at_least, finite, require_shapes, shape, takes

# -- k of n samples, of which c are correct ----------------------------------------------------------------------


def _counts(num_samples: Tensor | int, num_correct: Tensor | int, k: int) -> tuple[Tensor, Tensor]:
    """Both counts as integer tensors of one shape. Checked: 1 ≤ k ≤ n and 0 ≤ c ≤ n."""
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


def _chance_all_from(part: Tensor, whole: Tensor, k: int, *, complement: bool = False) -> Tensor:
    """C(part, k) / C(whole, k): the chance that k distinct ones of ``whole`` all fall into ``part``; or one minus it."""
    chances = []
    for p, w in zip(part.flatten().tolist(), whole.flatten().tolist(), strict=True):
        ways, total = math.comb(p, k), math.comb(w, k)  # Python integers are exact; their quotient is rounded once
        chances.append((total - ways if complement else ways) / total)
    return torch.tensor(chances, dtype=torch.float64).view(part.shape)


def pass_at_k(num_samples: Tensor | int, num_correct: Tensor | int, *, k: int) -> Tensor:
    """pass@k = 1 − C(n−c, k)/C(n, k): the chance that at least one of k samples is correct, from n samples.

    Unbiased for 1 − (1−p)^k, which 1 − (1 − c/n)^k is not. Float64.

    Label: eq:pass-at-k
    Source: Chen et al. (2021), "Evaluating large language models trained on code", equation 1.
    Args:
        num_correct: c, an integer tensor such as ``(P,)``, one entry per prompt, or a single int.
        num_samples: n ≥ c, the same shape, or an int for all of them.
        k: from 1 to the smallest n.
    Raises: ValueError naming what is wrong.
    """
    n, c = _counts(num_samples, num_correct, k)
    return _chance_all_from(n - c, n, k, complement=True)


def pass_hat_k(num_samples: Tensor | int, num_correct: Tensor | int, *, k: int) -> Tensor:
    """pass^k = C(c, k)/C(n, k): the chance that all of k samples are correct, from n samples. Reliability.

    Unbiased for p^k. Arguments as for :func:`pass_at_k`.

    Label: eq:pass-hat-k
    Source: Yao et al. (2024), "τ-bench".
    """
    n, c = _counts(num_samples, num_correct, k)
    return _chance_all_from(c, n, k)


@takes(counts=shape("A"))
def maj_at_k(counts: Tensor, *, correct: int, k: int) -> float:
    """maj@k: the chance that the majority vote of k samples is the correct answer; ties are broken at random.

    Summed exactly over all ways to choose k of the n samples. For a vote count m of the correct answer,
    ``ways[v, t]`` counts the choices among the other answers with v votes in all, none above m, and t answers
    tied at m.

    Label: eq:maj-at-k
    Source: Wang et al. (2023), "Self-consistency improves chain of thought reasoning in language models".
    Args:
        counts: integers, how many of one prompt's n samples gave each distinct answer.
        correct: the index of the right answer (if no sample gave it, pass a count of 0).
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
    others = [n for i, n in enumerate(votes) if i != correct and n > 0]
    won = Fraction(0)
    for m in range(1, min(k, votes[correct]) + 1):
        ways = {(0, 0): 1}
        for n in others:
            longer: dict[tuple[int, int], int] = {}
            for (v, t), count in ways.items():
                for extra in range(min(n, m, k - m - v) + 1):
                    state = (v + extra, t + (extra == m))
                    longer[state] = longer.get(state, 0) + count * math.comb(n, extra)
            ways = longer
        shared = sum((Fraction(count, 1 + t) for (v, t), count in ways.items() if v == k - m), Fraction(0))
        won += math.comb(votes[correct], m) * shared
    return float(won / math.comb(total, k))


# -- best of n ---------------------------------------------------------------------------------------------------


@takes(n=at_least(1))
def best_of_n_cdf(cdf: Tensor, *, n: int) -> Tensor:
    """The distribution function of the largest of n independent draws: F(x)^n, since all n must be at most x.

    Label: eq:best-of-n-cdf
    Source: order statistics, e.g. David and Nagaraja (2003), "Order statistics", section 2.1.
    Raises: ValueError too if a value of F lies outside [0, 1] by more than rounding.
    """
    if not bool(((cdf >= 0) & (cdf <= 1 + 1e-6)).all()):
        raise ArgumentError(
            f"cdf of shape {tuple(cdf.shape)} holds values outside [0, 1]", argument="cdf", expected="[0, 1]"
        )
    return cdf**n


@takes(probs="... N", rewards="... N", n=at_least(1))
def best_of_n_distribution(probs: Tensor, rewards: Tensor, *, n: int) -> Tensor:
    """The law of best-of-n: π_n(y) = [F(r_y)^n − F(r_y−)^n] · π(y)/π(reward = r_y), exactly, ties included.

    F is the distribution function of the reward under π, whose ``probs`` sum to 1, and F(r−) its value just
    below r. Among draws that tie for the best, any rule that does not look at the answers (the first one, a
    random one) gives this.

    Label: eq:best-of-n-law, eq:best-of-n-rounds
    Source: Beirami et al. (2024), "Theoretical guarantees on the best-of-n alignment policy", for distinct
        rewards.
    """
    if bool((probs < 0).any()) or not bool(((probs.sum(-1) - 1).abs() < 1e-2).all()):
        raise ArgumentError(
            f"probs of shape {tuple(probs.shape)}; expected distributions along the last axis",
            argument="probs",
            problem="distribution",
        )
    order = rewards.argsort(-1)
    ascending = rewards.gather(-1, order)
    mass = torch.nn.functional.pad(probs.gather(-1, order).cumsum(-1), (1, 0))  # (..., N+1): mass of the lowest 0 … N
    upto = mass.gather(-1, torch.searchsorted(ascending, rewards, right=True)).clamp(max=1.0)  # F(r)
    below = mass.gather(-1, torch.searchsorted(ascending, rewards)).clamp(max=1.0)  # F(r−)
    tied = upto - below
    # F(r)^n − F(r−)^n, written so that a small difference is not lost; where it is lost anyway, its limit. Each branch
    # gets inputs that are harmless to it: a where() alone would let NaN into the gradient.
    left = torch.where((tied > 0) & (below > 0), tied / upto, 0.5)
    gained = best_of_n_cdf(upto, n=n) * torch.where(below > 0, -torch.expm1(n * torch.log1p(-left)), 1.0)
    ratio = gained / torch.where(tied > 0, tied, 1.0)
    return probs * torch.where(tied > 0, ratio, best_of_n_density_ratio(upto, n=n))


@takes(quantile=finite("...", "[0, 1]"), n=at_least(1))
def best_of_n_density_ratio(quantile: Tensor, *, n: int) -> Tensor:
    """π_n(y)/π(y) = n u^(n−1) where u = F(r_y): the law of best-of-n when no two answers tie or have much mass.

    Label: eq:best-of-n-density
    Source: Beirami et al. (2024), "Theoretical guarantees on the best-of-n alignment policy".
    """
    return n * quantile ** (n - 1)


@takes(n=at_least(1))
def best_of_n_kl(n: int) -> float:
    """log n − (n−1)/n nats: KL of best-of-n to the policy it draws from without ties; an upper bound always.

    Label: eq:best-of-n-kl, eq:best-of-n-kl-bound
    Source: Stiennon et al. (2020), "Learning to summarize from human feedback", appendix G.3; that it is a
        bound, Beirami et al. (2024), "Theoretical guarantees on the best-of-n alignment policy".
    """
    return math.log(n) - (n - 1) / n


@takes(n=at_least(1))
def best_of_n_win_rate(n: int) -> float:
    """n/(n+1): how often best-of-n beats a single draw by the reward it selects with, without ties.

    Label: eq:best-of-n-win-rate
    Source: Gui et al. (2024), "BoNBoN alignment for large language models and the sweetness of best-of-n
        sampling".
    """
    return n / (n + 1)


@takes(scores="... N", values="... N")
def best_of_n_curve(scores: Tensor, values: Tensor | None = None) -> Tensor:
    """Unbiased estimates ``(..., N)`` of best-of-n for every n = 1 … N at once, from the same N samples. Float64.

    Entry n−1 is the mean, over all C(N, n) subsets, of the value (the gold reward; by default the score) of the
    sample with the best score (the proxy); ties share evenly. A sample with L others strictly below it and T
    tied (itself included) is best in C(L+T, n) − C(L, n) subsets' worth of its tie.

    Label: eq:best-of-n-estimator
    Source: Nakano et al. (2021), "WebGPT", appendix I, there for one n and distinct scores.
    """
    values = scores if values is None else values
    size = scores.shape[-1]
    if size == 0:
        raise ArgumentError(
            f"scores has shape {tuple(scores.shape)}; expected at least one sample",
            argument="scores",
            value=tuple(scores.shape),
            problem="empty",
        )
    below = (scores.unsqueeze(-2) < scores.unsqueeze(-1)).sum(-1)  # (..., N)
    tied = (scores.unsqueeze(-2) == scores.unsqueeze(-1)).sum(-1)  # (..., N)
    i = torch.arange(size, device=scores.device)  # (N,)
    j = torch.arange(size + 1, device=scores.device).unsqueeze(-1)  # (N+1, 1)
    # chance[j, n-1] = C(j, n)/C(N, n), built up as Π_{i<n} (j−i)/(N−i); it stays 0 once j is used up.
    chance = ((j - i).clamp(min=0).double() / (size - i)).cumprod(-1)
    weights = (chance[below + tied] - chance[below]) / tied.unsqueeze(-1)  # (..., sample, n)
    return (weights * values.double().unsqueeze(-1)).sum(-2)
