"""A language model as a policy: sequences, likelihood, temperature and truncated sampling.

Logits are ``(..., V)``. Log-probabilities are logits too, and −inf marks an impossible token. NaN, +inf, and a row
without a possible token are errors. The truncation rules set more logits to −inf and leave the others unchanged, so
that the rules compose: temperature first, then top-k, top-p or min-p, then softmax. Log-probabilities of single tokens
and the entropy are in ``minirlhf.core.logprobs``.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.masking import lengths, masked_sum
from minirlhf.core.validate import (
    MASK,
    UNIT,
    Arguments,
    Rule,
    at_least,
    finite,
    number,
    shape,
    takes,
    under_mask,
)


def _logits(name: str, logits: Tensor, arguments: Arguments) -> Tensor:
    shape("... V").apply(name, logits, arguments)
    if logits.shape[-1] == 0:
        raise ArgumentError(
            f"{name} has shape {tuple(logits.shape)}; expected (..., V) with V of at least 1",
            argument=name,
            value=tuple(logits.shape),
            problem="empty",
        )
    num_bad = int((logits.isnan() | (logits == math.inf)).sum())
    if num_bad:
        raise ArgumentError(
            f"{name} of shape {tuple(logits.shape)} holds {num_bad} value(s) that are NaN or +inf",
            argument=name,
            value=num_bad,
            problem="not finite",
        )
    if not bool((logits > -math.inf).any(-1).all()):
        raise ArgumentError(
            f"{name} of shape {tuple(logits.shape)} has a row in which no token is possible",
            argument=name,
            problem="impossible",
        )
    return logits


LOGITS = Rule("(..., V) without NaN or +inf, a token possible in every row", _logits)

# -- sequences ----------------------------------------------------------------------------------------------------


@takes(mask=MASK, logps=under_mask())
@equation(
    "eq:nll",
    "eq:unrolled",
    "eq:sft-policy-gradient",
    source='Shannon (1948), "A mathematical theory of communication", for the code length −log p.',
)
def nll(logps: Tensor, mask: Tensor) -> Tensor:
    """Negative log-likelihood −Σ_t log π(y_t|x, y_<t) of each sequence, ``(B,)``, in nats.

    Its expectation under the data distribution p is H(p) + KL(p‖π), so minimising it minimises the forward KL.
    """
    return -masked_sum(logps, mask, -1)


@equation(
    "eq:perplexity",
    source='Jelinek et al. (1977), "Perplexity: a measure of the difficulty of speech recognition tasks".',
)
def perplexity(logps: Tensor, mask: Tensor) -> Tensor:
    """Perplexity exp(−(1/n) Σ_t log π(y_t|·)) of each sequence, ``(B,)``: in units of equally probable tokens.

    The geometric mean of 1/π per token, +inf where it exceeds the range of the dtype. For a corpus, pass the whole
    corpus as one row: the mean of the perplexities of its parts is a different number, larger for parts of equal length.
    """
    return torch.exp(nll(logps, mask) / lengths(mask))


# -- temperature and truncation ------------------------------------------------------------------------------------


@takes(logits=LOGITS, temperature=number("[0, inf]"))
@equation(
    "eq:temperature",
    source='Ackley, Hinton and Sejnowski (1985), "A learning algorithm for Boltzmann machines".',
)
def temperature_softmax(logits: Tensor, *, temperature: float) -> Tensor:
    """Sampling distribution π_T ∝ exp(logits / T) ∝ π^(1/T), ``(..., V)``.

    The limits are allowed: T = 0 is greedy (ties share evenly), T = ∞ is uniform over the possible tokens.
    """
    shifted = logits - logits.amax(-1, keepdim=True)  # ≤ 0; subtracted first, so that a small T cannot overflow
    if temperature == 0.0 or math.isinf(temperature):
        support = shifted == 0.0 if temperature == 0.0 else logits > -math.inf
        weights = support.to(logits.dtype)
        return weights / weights.sum(-1, keepdim=True)
    return torch.softmax(shifted / temperature, -1)


@takes(logits=finite("... V"), temperature=number("(0, inf)"))
@equation("eq:entropy-temperature", source="the heat capacity of statistical physics; derived in chapter 02.")
def entropy_slope(logits: Tensor, *, temperature: float) -> Tensor:
    """How fast the entropy of the sampling distribution grows with the temperature, dH/dT = Var(z)/T³, ``(...)``.

    The variance is the variance of the logits under π_T, so the entropy never decreases with T.
    """
    probs = temperature_softmax(logits, temperature=temperature)
    mean = (probs * logits).sum(-1, keepdim=True)
    return (probs * (logits - mean).square()).sum(-1) / temperature**3


@takes(logits=LOGITS, top_k=at_least(1))
@equation("eq:top-k", source='Fan, Lewis and Dauphin (2018), "Hierarchical neural story generation".')
def top_k_logits(logits: Tensor, *, top_k: int) -> Tensor:
    """Keep the ``top_k`` most probable tokens. Exactly that many: ties go to the lowest token ids."""
    return logits.masked_fill(_rank(logits) >= top_k, -math.inf)


@takes(logits=LOGITS, top_p=number("(0, 1]"))
@equation("eq:top-p", source='Holtzman et al. (2020), "The curious case of neural text degeneration".')
def top_p_logits(logits: Tensor, *, top_p: float) -> Tensor:
    """Nucleus: keep the smallest set of most probable tokens whose mass reaches ``top_p``.

    The token that reaches ``top_p`` is kept, so at least one token always remains.
    """
    if top_p == 1.0:  # the cumulative sum may round up to 1 before the last token
        return logits
    sorted_logits, order = torch.sort(_wide(logits), dim=-1, descending=True, stable=True)
    probs = sorted_logits.softmax(-1)
    mass_before = probs.cumsum(-1) - probs  # mass of the tokens ranked above
    removed = torch.zeros_like(order, dtype=torch.bool).scatter(-1, order, mass_before >= top_p)
    return logits.masked_fill(removed, -math.inf)


@takes(logits=LOGITS, min_p=UNIT)
@equation(
    "eq:min-p",
    source='Nguyen et al. (2024), "Turning up the heat: min-p sampling for creative and coherent LLM outputs".',
)
def min_p_logits(logits: Tensor, *, min_p: float) -> Tensor:
    """Keep the tokens that are at least ``min_p`` times as probable as the most probable token.

    The number of kept tokens adapts to the entropy of the model. ``min_p`` 0 keeps all tokens, 1 only the most
    probable.
    """
    if min_p == 0.0:
        return logits
    wide = _wide(logits)
    return logits.masked_fill(wide - wide.amax(-1, keepdim=True) < math.log(min_p), -math.inf)


@takes(logits=LOGITS, truncated_logits=LOGITS)
@equation(
    "eq:kept-mass",
    "eq:truncated-logp",
    "eq:kept-mass-identity",
    source="the definition of conditional probability.",
)
def retained_mass(logits: Tensor, truncated_logits: Tensor) -> Tensor:
    """Kept mass Z = Σ_{kept} π(a), ``(...)`` in (0, 1]: the probability mass that truncation keeps.

    A kept token was sampled with π_trunc(a) = π(a)/Z, so log π_trunc(a) = log π(a) − log Z, and the ratio
    π/π_trunc has the expectation Z, not 1, under the truncated distribution: importance
    weights cannot recover the removed tokens. ``truncated_logits`` are the logits with −inf at the removed tokens.
    """
    if bool(((truncated_logits != logits) & (truncated_logits > -math.inf)).any()):
        raise ArgumentError(
            f"truncated_logits of shape {tuple(truncated_logits.shape)} differs from logits on a kept token; apply the "
            "temperature to both",
            argument="truncated_logits",
            problem="mismatch",
        )
    return torch.exp(truncated_logits.logsumexp(-1) - logits.logsumexp(-1))


# -- helpers -------------------------------------------------------------------------------------------------------


def _wide(logits: Tensor) -> Tensor:
    """Return logits of at least float32: sums of probabilities in half precision would keep the wrong tokens."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def _rank(logits: Tensor) -> Tensor:
    """Rank of each token, in the shape of ``logits``: 0 for the most probable, 1 for the next, ...; ties by id."""
    order = torch.argsort(logits, dim=-1, descending=True, stable=True)
    ranks = torch.arange(logits.shape[-1], device=logits.device).expand_as(order)
    return torch.empty_like(order).scatter(-1, order, ranks)
