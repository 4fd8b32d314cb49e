"""Several annotators, one truth: which label is right where they differ, and how good each of them is."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.equations.agreement import dawid_skene_posterior, dawid_skene_update


@dataclass(frozen=True)
class Consensus:
    """What the labels say together.

    Attributes:
        posterior: ``(N, C)``, the probability of each true label.
        confusion: ``(A, C, C)``, what each annotator says where c is true.
        prior: ``(C,)``, how frequent the true labels are.
    """

    posterior: Tensor
    confusion: Tensor
    prior: Tensor

    @property
    def accuracy(self) -> Tensor:
        """``(A,)``: how often each annotator is right."""
        return (self.confusion.diagonal(dim1=-2, dim2=-1) * self.prior).sum(-1)


def vote_shares(labels: Tensor, classes: int) -> Tensor:
    """Shares ``(N, C)`` of the votes ``(N, A)``; −1 is no vote, and an item without any has equal shares."""
    counts = torch.stack([(labels == c).sum(-1) for c in range(classes)], -1).double()
    total = counts.sum(-1, keepdim=True)
    return torch.where(total > 0, counts / total.clamp(min=1), torch.full_like(counts, 1 / classes))


def dawid_skene(labels: Tensor, classes: int, *, smoothing: float = 1.0, max_steps: int = 200) -> Consensus:
    """Expectation maximisation from the majority's shares, until no posterior moves by 10⁻⁸.

    Args:
        labels: ``(N, A)`` integers ``0 … C−1``, or −1 where an annotator has not labelled an item.
        classes: C.
        smoothing: see :func:`~minirlhf.equations.agreement.dawid_skene_update`.
        max_steps: at most so many rounds. Without smoothing the likelihood rises in each; with it, the likelihood times the prior
            that the smoothing stands for.
    """
    posterior = vote_shares(labels, classes)
    for _ in range(max_steps):
        prior, confusion = dawid_skene_update(labels, posterior, smoothing=smoothing)
        before, posterior = posterior, dawid_skene_posterior(labels, prior.log(), confusion.log())
        if float((posterior - before).abs().max()) < 1e-8:
            break
    return Consensus(posterior, confusion, prior)
