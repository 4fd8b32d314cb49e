"""Instruction tuning: packing, low-rank adapters, 4-bit weights, and dynamic fine-tuning."""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.validate import POSITIVE, at_least, distribution, finite, shape, takes

OPEN = finite("...", "(0, 1)")

# -- packing -------------------------------------------------------------------------------------------------------


@takes(documents=shape("B S"))
@equation(
    "eq:packed-mask",
    source='Krell et al. (2021), "Efficient sequence packing without cross-contamination", section 3.2.',
)
def packed_mask(documents: Tensor) -> Tensor:
    """Mask of packed rows: position t attends to u ≤ t of its own document. ``(B, S, S)`` bool, ``[b, t, u]``.

    Args:
        documents: the id of the document of each token, any integers.
    """
    length = documents.shape[-1]
    causal = torch.ones(length, length, dtype=torch.bool, device=documents.device).tril()
    return causal & (documents[:, :, None] == documents[:, None, :])


@takes(documents=shape("B S"))
@equation(
    "eq:packed-positions",
    source='Krell et al. (2021), "Efficient sequence packing without cross-contamination", section 3.2.',
)
def packed_positions(documents: Tensor) -> Tensor:
    """Positions within each document of a packed row: the number of earlier tokens of the same document. ``(B, S)``

    Args:
        documents: the id of the document of each token, any integers.
    """
    return packed_mask(documents).sum(-1) - 1


@takes(prior=distribution("Z"), likelihood=distribution("Z D"), documents=at_least(1))
@equation("eq:packed-floor", source="the chain rule of entropy; chapter 10.")
def packed_floor(prior: Tensor, likelihood: Tensor, *, documents: int) -> Tensor:
    """Minimum mean loss of documents packed without a mask, in nats per document: H(D₁, …, D_k) / k. Scalar.

    A row holds ``documents`` documents of one kind, independent given the kind. With one document it is the minimum
    H(D), which also holds for packing with a mask.

    Args:
        prior: the probability of each kind of row.
        likelihood: the probability of each document given the kind, for every kind and document.
    """
    joint = prior  # (Z, …): the kind, then the documents so far
    for k in range(documents):
        joint = joint[..., None] * likelihood.view(len(prior), *[1] * k, -1)
    marginal = joint.sum(0)
    return -torch.special.xlogy(marginal, marginal).sum() / documents


# -- low-rank adapters ---------------------------------------------------------------------------------------------


@takes(weight="O I", down="R I", up="O R", lora_alpha=POSITIVE)
@equation("eq:lora", "eq:lora-gradient", "eq:lora-first-step", source='Hu et al. (2021), "LoRA", section 4.1.')
def lora_weight(weight: Tensor, down: Tensor, up: Tensor, *, lora_alpha: float) -> Tensor:
    """A layer's weight with its adapter added, W + (α/r) B A, ``(O, I)``.

    Args:
        weight: W, which is frozen.
        down: A, which is initialised randomly.
        up: B, which is initialised to zero, so that the initial model is unchanged.
    """
    return weight + lora_alpha / len(down) * up @ down


# -- 4-bit weights -------------------------------------------------------------------------------------------------


@equation("eq:nf4", source='Dettmers et al. (2023), "QLoRA", section 3 and the values in appendix E.')
def nf4_levels() -> Tensor:
    """The 16 levels of NF4 for normally distributed weights, from −1 to 1, ascending; one is 0. ``(16,)`` float64

    They are quantiles of the normal distribution at equal steps of probability, eight steps above 0 and seven below,
    each side divided by its largest quantile. The probability above the last quantile is the mean of 1/32 and 1/30:
    half a step of 16 and half a step of 15.
    """
    last = 1 - (1 / 32 + 1 / 30) / 2
    quantile = torch.distributions.Normal(torch.zeros((), dtype=torch.float64), 1.0).icdf
    above = quantile(torch.linspace(0.5, last, 9, dtype=torch.float64))  # 0 and eight more
    below = quantile(torch.linspace(0.5, last, 8, dtype=torch.float64))  # 0 and seven more
    return torch.cat([-below.flip(0)[:-1] / below[-1], above / above[-1]])


@takes(weights="N D", levels="K")
@equation(
    "eq:absmax",
    source='Dettmers et al. (2023), "QLoRA", equations 1 and 2, with a table of levels in place of integers.',
    gradient=(),
)
def absmax_quantised(weights: Tensor, levels: Tensor) -> Tensor:
    """Quantise each row to its largest magnitude times the nearest level: c · q with c = max|w|. ``(N, D)``

    Ties go to the first level. A row of zeros is unchanged.

    Args:
        weights: N blocks of D weights.
        levels: numbers in [−1, 1], including 0.
    """
    weights, levels = weights.detach(), levels.detach()
    scale = weights.abs().amax(-1, keepdim=True)  # (N, 1)
    normalised = weights / scale.where(scale > 0, torch.ones_like(scale))
    nearest = (normalised[..., None] - levels).abs().argmin(-1)  # (N, D)
    return scale * levels[nearest]


# -- dynamic fine-tuning -------------------------------------------------------------------------------------------


@takes(logps="...")
@equation(
    "eq:dft",
    source='Wu et al. (2025), "On the generalization of SFT" ("dynamic fine-tuning").',
    stop_gradient=True,
)
def dynamic_nll(logps: Tensor) -> Tensor:
    """Negative log-likelihood of each token, weighted by the token's own probability: −sg[π(y_t)] log π(y_t). ``(...)``

    Its gradient is the gradient of −π(y_t), not of −log π(y_t) as in imitation: improbable tokens get almost no
    gradient.
    """
    return -logps.detach().exp() * logps


@takes(start=OPEN, end=OPEN)
@equation("eq:sft-time", source="separation of variables; chapter 10.")
def imitation_time(start: Tensor, end: Tensor) -> Tensor:
    """Time of gradient flow on log p from ``start`` to ``end``: p = σ(z), dz/dt = d(log p)/dz. ``(...)``

    p is the probability of a token. With p/(1 − p) = e^z it is Δz + Δe^z.

    Args:
        start, end: probabilities.
    """
    return end.logit() - start.logit() + end.logit().exp() - start.logit().exp()


@takes(start=OPEN, end=OPEN)
@equation("eq:dft-time", source="separation of variables; chapter 10.")
def dynamic_imitation_time(start: Tensor, end: Tensor) -> Tensor:
    """Time of gradient flow on p, as in :func:`dynamic_nll`, from ``start`` to ``end``: 2Δz + Δe^z − Δe^(−z). ``(...)``

    Args:
        start, end: probabilities.
    """
    return imitation_time(start, end) - imitation_time(1 - start, 1 - end)
