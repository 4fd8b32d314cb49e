"""Data that a model has written: how alike two texts are, what a filter keeps, what errors cost that feed on themselves, and what is left
of a distribution that learns from its own samples.

*Diversity* is the probability that two independent draws differ, 1 − Σ_v p_v². Generation 1 is the real data: n draws of the truth.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import UNIT, at_least, distribution, finite, shape, takes

PART = finite("...", "(0, 1)")
RATE = finite("...", "[0, 1]")

# -- choosing what to keep -----------------------------------------------------------------------------------------


@takes(candidate=shape("M"), reference=shape("N"))
def rouge_l(candidate: Tensor, reference: Tensor) -> Tensor:
    """ROUGE-L of two texts: twice the length of their longest common subsequence over the sum of their lengths. Scalar in [0, 1].

    A subsequence keeps the order and may leave words out. 1 if the texts are the same. No gradient flows.

    Label: eq:rouge-l
    Source: Lin (2004), "ROUGE: a package for automatic evaluation of summaries", with precision and recall weighing the same.
    Args:
        candidate, reference: numbers of words, any integers. At least one of the texts has words.
    """
    if not len(candidate) + len(reference):
        raise ArgumentError(
            f"candidate has shape {tuple(candidate.shape)}, as has reference; expected a text with words",
            argument="candidate",
            value=tuple(candidate.shape),
            problem="empty",
        )
    longest = [0] * (len(reference) + 1)  # of what was read so far and the first j words of the reference
    for word in candidate.tolist():
        before, longest = longest, [0]
        for j, other in enumerate(reference.tolist()):
            longest.append(before[j] + 1 if word == other else max(before[j + 1], longest[j]))
    return torch.tensor(2 * longest[-1] / (len(candidate) + len(reference)), dtype=torch.float64)


@takes(share=PART, recall=finite("...", "(0, 1]"), false_alarms=RATE)
def filter_precision(share: Tensor, recall: Tensor, false_alarms: Tensor) -> Tensor:
    """How much of what a filter keeps is good: s·a / (s·a + (1 − s)·b). ``(...)``

    The odds of a good text are multiplied by a/b.

    Label: eq:filter-precision
    Source: Bayes' rule.
    Args:
        share: s, of good texts before the filter.
        recall: a, of good texts that are kept.
        false_alarms: b, of bad texts that are kept.
    """
    kept = share * recall
    return kept / (kept + (1 - share) * false_alarms)


@takes(correlation=finite("...", "[-1, 1]"), share=PART)
def filter_gain(correlation: Tensor, share: Tensor) -> Tensor:
    """Mean quality of the texts with the highest scores, ρ φ(Φ⁻¹(1 − κ)) / κ, in standard deviations above the mean of all. ``(...)``

    A weak filter gains in proportion to its correlation; keeping less buys less and less.

    Label: eq:filter-gain
    Source: the mean of a truncated normal distribution; known as the breeder's equation.
    Args:
        correlation: ρ of score and quality, which are jointly normal.
        share: κ, kept of all texts.
    """
    bar = -torch.special.ndtri(share)
    density = (-(bar**2) / 2).exp() / math.sqrt(2 * math.pi)
    return correlation * density / share


# -- errors that feed on themselves --------------------------------------------------------------------------------


@takes(error=finite("...", "(0, 1]"), recovery=RATE, length=at_least(1))
def compounded_errors(error: Tensor, recovery: Tensor, *, length: int) -> Tensor:
    """Expected number of wrong tokens among ``length``, if an error makes the next one likely. ``(...)``

    On course, the next token is wrong with probability ε; after a wrong one the next is right again with probability δ only.
    With δ = 1 − ε errors do not feed on themselves, and there are εT; with δ = 0 there are about εT²/2 of them, if that is small.

    Label: eq:exposure-errors
    Source: a chain of two states; the quadratic bound is that of Ross and Bagnell (2010), "Efficient reductions for imitation learning".
    Args:
        error: ε.
        recovery: δ.
        length: T.
    """
    stays = 1 - error - recovery
    return error / (error + recovery) * (length - stays * (1 - stays**length) / (error + recovery))


# -- learning from one's own samples -------------------------------------------------------------------------------


@takes(n=at_least(1), generation=at_least(0), fresh=UNIT)
def diversity_retained(*, n: int, generation: int, fresh: float = 0.0) -> float:
    """Expected diversity of a generation over that of the truth, each generation being n draws of the one before: (1 − 1/n)^g.

    If a share ``fresh`` of what is drawn from is the truth, it falls no further than d = b (1 − a)/(1 − a b), with b = 1 − 1/n and
    a = (1 − fresh)², and after g generations it is d + (1 − d)(a b)^g.

    Label: eq:collapse-replace, eq:collapse-fresh
    Source: Wright (1931), "Evolution in Mendelian populations", of genes; for generated data Alemohammad et al. (2024),
        "Self-consuming generative models go MAD".
    """
    keeps, old = 1 - 1 / n, (1 - fresh) ** 2
    floor = keeps * (1 - old) / (1 - keeps * old) if fresh else 0.0
    return floor + (1 - floor) * (keeps * old) ** generation


@takes(n=at_least(1), generation=at_least(0))
def diversity_accumulated(*, n: int, generation: int) -> float:
    """The same if n draws join all those before, and the next ones are drawn from them all: ∏ (1 − 1/(n j²)), j = 1 … g.

    Label: eq:collapse-accumulate
    Source: as :func:`diversity_retained`; that accumulating keeps the error bounded Gerstgrasser et al. (2024), "Is model collapse
        inevitable?".
    """
    return math.prod(1 - 1 / (n * j**2) for j in range(1, generation + 1))


@takes(n=at_least(1))
def diversity_limit(*, n: int) -> float:
    """What accumulating keeps for ever: sin(π/√n) / (π/√n), the limit of :func:`diversity_accumulated`.

    Label: eq:collapse-limit
    Source: Euler's product of the sine.
    """
    angle = math.pi / math.sqrt(n)
    return math.sin(angle) / angle


@takes(probs=distribution("... V"), n=at_least(0))
def support_kept(probs: Tensor, *, n: int) -> Tensor:
    """Expected number of different outcomes among n draws, Σ_v [1 − (1 − p_v)^n]. ``(...)``

    What was not drawn has probability 0 in the next generation, and in all that follow.

    Label: eq:support-kept
    Source: linearity of expectation.
    """
    return (1 - (1 - probs) ** n).sum(-1)


@takes(n=at_least(2))
def log_variance_drift(*, n: int) -> float:
    """Expected change of the log-variance of a normal distribution that is fitted to n draws of itself: ψ((n−1)/2) − log((n−1)/2).

    Negative, about −1/(n − 1), although the fitted variance (divided by n − 1) is unbiased: its mean stays, what is typical goes to 0.

    Label: eq:gaussian-collapse
    Source: moments of the logarithm of a χ² variable; the case is that of Shumailov et al. (2024), "AI models collapse when trained on
        recursively generated data".
    """
    half = (n - 1) / 2
    return float(torch.digamma(torch.tensor(half, dtype=torch.float64))) - math.log(half)
