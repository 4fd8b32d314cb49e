"""The true labels, inferred from annotators who disagree.

Labels are integers ``0 … C−1``; −1 is a missing label.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import NOT_NEGATIVE, finite, shape, takes


def _given(labels: Tensor, classes: int) -> Tensor:
    """Return the labels of all annotators, one-hot ``(N, A, C)``; a missing label is all zeros."""
    if labels.is_floating_point() or not bool(((labels >= -1) & (labels < classes)).all()):
        raise ArgumentError(
            f"labels of shape {tuple(labels.shape)}; expected integers from −1 (none) to {classes - 1}",
            argument="labels",
            expected=(-1, classes - 1),
        )
    return one_hot(labels.clamp(min=0), classes) * (labels >= 0).unsqueeze(-1)


@takes(labels=shape("N A"), log_prior="C", log_confusion="A C C")
@equation(
    "eq:dawid-skene-posterior",
    source='Dawid and Skene (1979), "Maximum likelihood estimation of observer error-rates using the EM '
    'algorithm", equation 2.5.',
)
def dawid_skene_posterior(labels: Tensor, log_prior: Tensor, log_confusion: Tensor) -> Tensor:
    """Probability ``(N, C)`` of each true label, given the labels and the confusion matrices of the annotators.

    ``log_confusion[a, c, l]`` is the log-probability that annotator a gives label l if the true label is c; −1 in
    ``labels`` is a missing label. Given the true label, the errors of the annotators are independent.
    """
    one_hot_labels = _given(labels, len(log_prior)).to(log_prior.dtype)
    return (log_prior + torch.einsum("nal,acl->nc", one_hot_labels, log_confusion)).softmax(-1)


@takes(labels=shape("N A"), posterior=finite("N C", "[0, 1]"), smoothing=NOT_NEGATIVE)
@equation(
    "eq:dawid-skene-update",
    source='Dawid and Skene (1979), "Maximum likelihood estimation of observer error-rates using the EM '
    'algorithm", equations 2.3 and 2.4.',
)
def dawid_skene_update(labels: Tensor, posterior: Tensor, *, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """Maximum-likelihood prior ``(C,)`` and confusion matrices ``(A, C, C)``, given a posterior over the true labels.

    Both are frequencies, counted with the posterior as weight. ``smoothing`` is a pseudo-count, added to every count of
    the confusion matrices. Without it the estimated error rate of an annotator with few labels soon becomes 0.
    """
    one_hot_labels = _given(labels, posterior.shape[1]).to(posterior.dtype)
    counts = torch.einsum("nc,nal->acl", posterior, one_hot_labels) + smoothing
    return posterior.sum(0) / posterior.sum(), counts / counts.sum(-1, keepdim=True)
