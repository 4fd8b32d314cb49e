"""Instruction tuning: several documents in one row, adapters of low rank, weights in four bits, and the loss that trusts the model."""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.validate import POSITIVE, at_least, distribution, finite, shape, takes

OPEN = finite("...", "(0, 1)")

# -- several documents in one row ----------------------------------------------------------------------------------


@takes(documents=shape("B S"))
def packed_mask(documents: Tensor) -> Tensor:
    """Which earlier positions each position of a packed row may see: those of its own document. ``(B, S, S)`` bool, ``[b, t, u]``.

    Label: eq:packed-mask
    Source: Krell et al. (2021), "Efficient sequence packing without cross-contamination", section 3.2.
    Args:
        documents: the number of the document that each token belongs to, any integers.
    """
    length = documents.shape[-1]
    past = torch.ones(length, length, dtype=torch.bool, device=documents.device).tril()
    return past & (documents[:, :, None] == documents[:, None, :])


@takes(documents=shape("B S"))
def packed_positions(documents: Tensor) -> Tensor:
    """Positions that begin again with every document of a packed row: how many earlier tokens belong to the same one. ``(B, S)``

    Label: eq:packed-positions
    Source: Krell et al. (2021), "Efficient sequence packing without cross-contamination", section 3.2.
    Args:
        documents: the number of the document that each token belongs to, any integers.
    """
    return packed_mask(documents).sum(-1) - 1


@takes(prior=distribution("Z"), likelihood=distribution("Z D"), documents=at_least(1))
def packed_floor(prior: Tensor, likelihood: Tensor, *, documents: int) -> Tensor:
    """The lowest mean loss of documents that are packed without a mask, in nats a document: H(D₁, …, D_k) / k. Scalar.

    A row holds ``documents`` documents of one kind, independent given the kind. With one document it is the floor H(D) that a
    mask restores.

    Label: eq:packed-floor
    Source: the chain rule of entropy; chapter 10.
    Args:
        prior: of the kinds of a row.
        likelihood: of each document, given the kind; every document and kind has some.
    """
    joint = prior  # (Z, 1, …): the kind, then the documents so far
    for k in range(documents):
        joint = joint[..., None] * likelihood.view(len(prior), *[1] * k, -1)
    together = joint.sum(0)
    return -torch.special.xlogy(together, together).sum() / documents


# -- adapters of low rank ------------------------------------------------------------------------------------------


@takes(weight="O I", down="R I", up="O R", lora_alpha=POSITIVE)
def lora_weight(weight: Tensor, down: Tensor, up: Tensor, *, lora_alpha: float) -> Tensor:
    """A layer's weight with its adapter added, W + (α/r) B A, ``(O, I)``.

    Label: eq:lora, eq:lora-gradient, eq:lora-first-step
    Source: Hu et al. (2021), "LoRA", section 4.1.
    Args:
        weight: W, which is not trained.
        down: A, which is random at first.
        up: B, which is zero at first, so that the model is unchanged.
    """
    return weight + lora_alpha / len(down) * up @ down


# -- weights in four bits ------------------------------------------------------------------------------------------


def nf4_levels() -> Tensor:
    """The sixteen numbers from −1 to 1 that stand for normally distributed weights, ascending; one of them is 0. ``(16,)`` float64

    Quantiles of the normal distribution at equal steps of probability, eight steps above 0 and seven below, each side divided by its
    largest. The last quantile leaves the mean of 1/32 and 1/30 above it, half a step of 16 and of 15.

    Label: eq:nf4
    Source: Dettmers et al. (2023), "QLoRA", section 3 and the values in appendix E.
    """
    last = 1 - (1 / 32 + 1 / 30) / 2
    quantile = torch.distributions.Normal(torch.zeros((), dtype=torch.float64), 1.0).icdf
    above = quantile(torch.linspace(0.5, last, 9, dtype=torch.float64))  # 0 and eight more
    below = quantile(torch.linspace(0.5, last, 8, dtype=torch.float64))  # 0 and seven more
    return torch.cat([-below.flip(0)[:-1] / below[-1], above / above[-1]])


@takes(weights="N D", levels="K")
def absmax_quantised(weights: Tensor, levels: Tensor) -> Tensor:
    """Each row as its largest magnitude times the nearest level: c · q with c = max|w|. ``(N, D)``

    Of two levels as near as each other the first. A row of zeros stays as it is. No gradient flows.

    Label: eq:absmax
    Source: Dettmers et al. (2023), "QLoRA", equations 1 and 2, with a table of levels in place of integers.
    Args:
        weights: N blocks of D weights.
        levels: numbers in [−1, 1], among them 0.
    """
    weights, levels = weights.detach(), levels.detach()
    scale = weights.abs().amax(-1, keepdim=True)  # (N, 1)
    shares = weights / scale.where(scale > 0, torch.ones_like(scale))
    nearest = (shares[..., None] - levels).abs().argmin(-1)  # (N, D)
    return scale * levels[nearest]


# -- the loss that trusts the model --------------------------------------------------------------------------------


@takes(logps="...")
def dynamic_nll(logps: Tensor) -> Tensor:
    """The surprise of each token, weighted by the token's own probability: −sg[π(y_t)] log π(y_t). ``(...)``

    Its gradient is that of −π(y_t), where imitation has that of −log π(y_t): what the model hardly ever says is hardly learned.

    Label: eq:dft
    Source: Wu et al. (2025), "On the generalization of SFT" ("dynamic fine-tuning").
    """
    return -logps.detach().exp() * logps


@takes(start=OPEN, end=OPEN)
def imitation_time(start: Tensor, end: Tensor) -> Tensor:
    """The time in which ascent of log p takes a token from one probability to another, if p = σ(z) and dz/dt = d(log p)/dz. ``(...)``

    With p/(1 − p) = e^z it is Δz + Δe^z.

    Label: eq:sft-time
    Source: separation of variables; chapter 10.
    Args:
        start, end: probabilities.
    """
    return end.logit() - start.logit() + end.logit().exp() - start.logit().exp()


@takes(start=OPEN, end=OPEN)
def dynamic_imitation_time(start: Tensor, end: Tensor) -> Tensor:
    """The same for ascent of p itself, which is what :func:`dynamic_nll` does: 2Δz + Δe^z − Δe^(−z). ``(...)``

    Label: eq:dft-time
    Source: separation of variables; chapter 10.
    Args:
        start, end: probabilities.
    """
    return imitation_time(start, end) - imitation_time(1 - start, 1 - end)
