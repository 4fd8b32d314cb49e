"""The equations that only chapter 18 needs: several teachers, filters, compounding errors, model collapse.

Functions of teachers take logits ``(B, T, V)`` over one shared vocabulary and return a loss per token ``(B, T)`` in
nats, 0 outside the mask. *Diversity* is the probability that two independent samples differ, 1 − Σ_v p_v².
Generation 1 is the real data: n samples of the true distribution.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import UNIT, at_least, distribution, finite, shape, takes

# -- distillation ------------------------------------------------------------------------------------------------


@takes(teacher_logits=shape("H V"), weights=distribution("H"))
@equation("eq:kd-mixture", source="Σ_h w_h KL(p_h‖q) is, up to a constant, KL(Σ_h w_h p_h‖q).", gradient=())
def mixture_of_teachers(teacher_logits: Tensor, weights: Tensor) -> Tensor:
    """Minimiser ``(V,)`` of the weighted forward KL to several teachers: the weighted mean of their distributions.

    The result holds probabilities. The teachers can be one model with H different hints in its prompt, which the
    student does not see.
    """
    return (weights[:, None] * teacher_logits.softmax(-1)).sum(0).detach()


@takes(teacher_logits=shape("H V"), weights=distribution("H"))
@equation("eq:kd-product", source="Σ_h w_h KL(q‖p_h) is, up to a constant, KL(q‖∏_h p_h^w_h / Z).", gradient=())
def product_of_teachers(teacher_logits: Tensor, weights: Tensor) -> Tensor:
    """Minimiser ``(V,)`` of the weighted reverse KL to several teachers: their normalised weighted geometric mean.

    The result holds probabilities. If one teacher gives a token a much lower probability than its alternatives, the
    token gets a low probability, whatever the other teachers suggest.
    """
    return (weights[:, None] * teacher_logits.log_softmax(-1)).sum(0).softmax(-1).detach()


PART = finite("...", "(0, 1)")


RATE = finite("...", "[0, 1]")


# -- similarity and filters ----------------------------------------------------------------------------------------


@takes(candidate=shape("M"), reference=shape("N"))
@equation(
    "eq:rouge-l",
    source='Lin (2004), "ROUGE: a package for automatic evaluation of summaries", with precision and recall '
    "weighing the same.",
    gradient=(),
)
def rouge_l(candidate: Tensor, reference: Tensor) -> Tensor:
    """ROUGE-L of two texts: twice the length of their longest common subsequence over the sum of their lengths. Scalar in [0, 1].

    A subsequence keeps the order and may skip words. The score of equal texts is 1.

    Args:
        candidate, reference: word ids, any integers. At least one of the texts is not empty.
    """
    if not len(candidate) + len(reference):
        raise ArgumentError(
            f"candidate and reference have shape {tuple(candidate.shape)}; expected at least one word",
            argument="candidate",
            value=tuple(candidate.shape),
            problem="empty",
        )
    longest = [0] * (len(reference) + 1)  # for the candidate's words so far and the reference's first j words
    for word in candidate.tolist():
        previous, longest = longest, [0]
        for j, ref_word in enumerate(reference.tolist()):
            longest.append(previous[j] + 1 if word == ref_word else max(previous[j + 1], longest[j]))
    return torch.tensor(2 * longest[-1] / (len(candidate) + len(reference)), dtype=torch.float64)


@takes(share=PART, recall=finite("...", "(0, 1]"), false_alarms=RATE)
@equation("eq:filter-precision", source="Bayes' rule.")
def filter_precision(share: Tensor, recall: Tensor, false_alarms: Tensor) -> Tensor:
    """Fraction of good texts among those that a filter keeps: s·a / (s·a + (1 − s)·b). ``(...)``

    The filter multiplies the odds of a good text by a/b.

    Args:
        share: s, the fraction of good texts before the filter.
        recall: a, the fraction of good texts that pass.
        false_alarms: b, the fraction of bad texts that pass.
    """
    true_positives = share * recall
    return true_positives / (true_positives + (1 - share) * false_alarms)


@takes(correlation=finite("...", "[-1, 1]"), share=PART)
@equation("eq:filter-gain", source="the mean of a truncated normal distribution; known as the breeder's equation.")
def filter_gain(correlation: Tensor, share: Tensor) -> Tensor:
    """Mean quality of the texts with the highest scores, ρ φ(Φ⁻¹(1 − κ)) / κ, in standard deviations. ``(...)``

    It is relative to the mean of all texts, and proportional to the correlation. Keeping a smaller fraction has
    diminishing returns.

    Args:
        correlation: ρ of score and quality, which are jointly normal.
        share: κ, the fraction of texts that is kept.
    """
    threshold = -torch.special.ndtri(share)
    density = (-(threshold**2) / 2).exp() / math.sqrt(2 * math.pi)
    return correlation * density / share


# -- compounding errors --------------------------------------------------------------------------------------------


@takes(error=finite("...", "(0, 1]"), recovery=RATE, length=at_least(1))
@equation(
    "eq:exposure-errors",
    source='a chain of two states; the quadratic bound is that of Ross and Bagnell (2010), "Efficient reductions '
    'for imitation learning".',
)
def compounded_errors(error: Tensor, recovery: Tensor, *, length: int) -> Tensor:
    """Expected number of wrong tokens among ``length``, if an error makes the next one likely. ``(...)``

    After a correct token the next one is wrong with probability ε; after a wrong token the next one is correct with
    probability δ. With δ = 1 − ε errors are independent, and their expected number is εT. With δ = 0 it is about εT²/2,
    if εT is small.

    Args:
        error: ε.
        recovery: δ.
        length: T.
    """
    stays = 1 - error - recovery
    return error / (error + recovery) * (length - stays * (1 - stays**length) / (error + recovery))


# -- training on own samples ---------------------------------------------------------------------------------------


@takes(n=at_least(1), generation=at_least(0), fresh=UNIT)
@equation(
    "eq:collapse-replace",
    "eq:collapse-fresh",
    source='Wright (1931), "Evolution in Mendelian populations", of genes; for generated data Alemohammad et al. '
    '(2024), "Self-consuming generative models go MAD".',
)
def diversity_retained(*, n: int, generation: int, fresh: float = 0.0) -> float:
    """Expected diversity of generation g relative to the true distribution: (1 − 1/n)^g.

    Each generation consists of n samples of the previous one.

    If the sampled mixture contains a fraction ``fresh`` of the true distribution, the diversity converges to
    d = b (1 − a)/(1 − a b), with b = 1 − 1/n and a = (1 − fresh)². After g generations it is d + (1 − d)(a b)^g.
    """
    b, a = 1 - 1 / n, (1 - fresh) ** 2
    limit = b * (1 - a) / (1 - b * a) if fresh else 0.0
    return limit + (1 - limit) * (b * a) ** generation


@takes(n=at_least(1), generation=at_least(0))
@equation(
    "eq:collapse-accumulate",
    source="as :func:`diversity_retained`; that accumulating keeps the error bounded Gerstgrasser et al. (2024), "
    '"Is model collapse inevitable?".',
)
def diversity_accumulated(*, n: int, generation: int) -> float:
    """Relative diversity if each generation adds n samples of all earlier ones: ∏ (1 − 1/(n j²)), j = 1 … g."""
    return math.prod(1 - 1 / (n * j**2) for j in range(1, generation + 1))


@takes(n=at_least(1))
@equation("eq:collapse-limit", source="Euler's product of the sine.")
def diversity_limit(*, n: int) -> float:
    """Relative diversity in the limit of accumulation: sin(π/√n) / (π/√n), the limit of :func:`diversity_accumulated`."""
    angle = math.pi / math.sqrt(n)
    return math.sin(angle) / angle


@takes(probs=distribution("... V"), n=at_least(0))
@equation("eq:support-kept", source="linearity of expectation.")
def support_retained(probs: Tensor, *, n: int) -> Tensor:
    """Expected number of different outcomes among n samples, Σ_v [1 − (1 − p_v)^n]. ``(...)``

    An outcome that was not sampled has probability 0 in all later generations.
    """
    return (1 - (1 - probs) ** n).sum(-1)


@takes(n=at_least(2))
@equation(
    "eq:gaussian-collapse",
    source='moments of the logarithm of a χ² variable; the case is that of Shumailov et al. (2024), "AI models '
    'collapse when trained on recursively generated data".',
)
def log_variance_drift(*, n: int) -> float:
    """Expected change of a normal distribution's log-variance if fitted to n own samples: ψ((n−1)/2) − log((n−1)/2).

    It is negative, about −1/(n − 1), although the fitted variance (divisor n − 1) is unbiased: the mean of the variance
    stays constant, but its typical value goes to 0.
    """
    half = (n - 1) / 2
    return float(torch.digamma(torch.tensor(half, dtype=torch.float64))) - math.log(half)
