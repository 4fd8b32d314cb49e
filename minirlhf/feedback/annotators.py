"""Several annotators label the same items: estimate the true labels, and the accuracy of each annotator."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.equations.agreement import dawid_skene_posterior, dawid_skene_update


@dataclass(frozen=True)
class Consensus:
    """The estimate from all labels.

    Attributes:
        posterior: ``(N, C)``, the probability of each true label.
        confusion: ``(A, C, C)``, each annotator's label distribution given the true label c.
        prior: ``(C,)``, the frequencies of the true labels.
    """

    posterior: Tensor
    confusion: Tensor
    prior: Tensor

    @property
    def accuracy(self) -> Tensor:
        """``(A,)``: the probability that each annotator is right."""
        return (self.confusion.diagonal(dim1=-2, dim2=-1) * self.prior).sum(-1)


def vote_fractions(labels: Tensor, classes: int) -> Tensor:
    """Return the fractions ``(N, C)`` of the votes ``(N, A)``. −1 is no vote; without votes all are equal."""
    counts = torch.stack([(labels == c).sum(-1) for c in range(classes)], -1).double()
    total = counts.sum(-1, keepdim=True)
    return torch.where(total > 0, counts / total.clamp(min=1), torch.full_like(counts, 1 / classes))


def dawid_skene(labels: Tensor, classes: int, *, smoothing: float = 1.0, max_steps: int = 200) -> Consensus:
    """Run expectation maximisation from the fractions of the votes, until no posterior changes by 10⁻⁸ or more.

    Args:
        labels: ``(N, A)`` integers ``0 … C−1``, or −1 where an annotator has not labelled an item.
        classes: C.
        smoothing: see :func:`~minirlhf.equations.agreement.dawid_skene_update`.
        max_steps: maximum number of iterations. Without smoothing each iteration increases the likelihood; with
            smoothing, the likelihood times the prior that the smoothing represents.
    """
    posterior = vote_fractions(labels, classes)
    for _ in range(max_steps):
        prior, confusion = dawid_skene_update(labels, posterior, smoothing=smoothing)
        previous, posterior = posterior, dawid_skene_posterior(labels, prior.log(), confusion.log())
        if float((posterior - previous).abs().max()) < 1e-8:
            break
    return Consensus(posterior, confusion, prior)
