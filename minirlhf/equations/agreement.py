"""How far people agree about labels, beyond chance, and what the true label was when they do not.

Counts and tables are floats, so that shares may stand for counts; labels are integers ``0 … C−1``, and −1 where somebody
gave none. Every coefficient is 1 where all agree and 0 where agreement is what chance would give.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import NOT_NEGATIVE, finite, shape, takes


@takes(table=finite("... C C", "[0, inf)"))
def cohen_kappa(table: Tensor) -> Tensor:
    """Cohen's kappa ``(...)`` of two annotators: (p_o − p_e) / (1 − p_e).

    ``table[i, j]`` counts the items that the first calls i and the second j. p_o is the share on the diagonal, p_e
    what it would be if each kept to their own shares of the labels and paid no attention to the items.

    Label: eq:cohen-kappa
    Source: Cohen (1960), "A coefficient of agreement for nominal scales".
    """
    shares = table / table.sum((-2, -1), keepdim=True)
    observed = shares.diagonal(dim1=-2, dim2=-1).sum(-1)
    by_chance = (shares.sum(-1) * shares.sum(-2)).sum(-1)
    return (observed - by_chance) / (1 - by_chance)


@takes(counts=finite("N C", "[0, inf)"))
def fleiss_kappa(counts: Tensor) -> Tensor:
    """Fleiss' kappa of m annotators per item, not always the same ones: (P̄ − P̄_e) / (1 − P̄_e).

    ``counts[i, c]`` is how many called item i c; every row sums to the same m ≥ 2. P̄ is the mean share of pairs of annotators
    that agree on an item, P̄_e the sum of squares of the labels' shares.

    Label: eq:fleiss-kappa
    Source: Fleiss (1971), "Measuring nominal scale agreement among many raters".
    """
    raters = counts.sum(-1)
    if not torch.allclose(raters, raters[:1]) or float(raters[0]) < 2:
        raise ArgumentError(
            f"counts of shape {tuple(counts.shape)}; expected rows that all sum to the same m ≥ 2",
            argument="counts",
            problem="sums",
        )
    m = raters[0]
    agreeing = (counts * (counts - 1)).sum(-1) / (m * (m - 1))  # (N,)
    shares = counts.sum(0) / counts.sum()
    by_chance = (shares**2).sum()
    return (agreeing.mean() - by_chance) / (1 - by_chance)


@takes(counts=finite("N C", "[0, inf)"), distance=finite("C C", "[0, inf)"))
def krippendorff_alpha(counts: Tensor, distance: Tensor) -> Tensor:
    """Krippendorff's alpha: 1 − D_o / D_e, for any number of annotators per item.

    ``counts[u, c]`` is how many called item u c; items with fewer than two labels say nothing and are left out.
    D_o is the mean distance of two labels of one item, D_e that of two labels of any items; ``distance[c, k]``, with
    zeros on the diagonal, is 1 for different names (nominal) and (c − k)² for numbers (interval).

    Label: eq:krippendorff-alpha
    Source: Krippendorff (2011), "Computing Krippendorff's alpha-reliability".
    """
    if bool((distance.diagonal() != 0).any()):
        raise ArgumentError(
            f"distance of shape {tuple(distance.shape)}; expected zeros on its diagonal",
            argument="distance",
            problem="diagonal",
        )
    kept = counts[counts.sum(-1) >= 2]  # (U, C)
    if len(kept) == 0:
        raise ArgumentError(
            f"counts of shape {tuple(counts.shape)}; expected an item with two labels",
            argument="counts",
            problem="no pair",
        )
    labels = kept.sum(-1)
    observed = (torch.einsum("uc,uk,ck->u", kept, kept, distance) / (labels - 1)).sum() / labels.sum()
    every = kept.sum(0)
    expected = torch.einsum("c,k,ck->", every, every, distance) / (every.sum() * (every.sum() - 1))
    return 1 - observed / expected


@takes(accuracy_a=finite("...", "[0, 1]"), accuracy_b=finite("...", "[0, 1]"), prevalence=finite("...", "[0, 1]"))
def expected_kappa(accuracy_a: Tensor, accuracy_b: Tensor, prevalence: Tensor) -> Tensor:
    """Cohen's kappa of two annotators of a binary label who are right with these probabilities, independently.

    A share ``prevalence`` of the items is truly 1. Where it is ½, this is (2p_a − 1)(2p_b − 1).

    Label: eq:expected-kappa
    Source: the effect of the prevalence: Feinstein and Cicchetti (1990), "High agreement but low kappa".
    """
    agree = accuracy_a * accuracy_b + (1 - accuracy_a) * (1 - accuracy_b)
    says_one = [prevalence * p + (1 - prevalence) * (1 - p) for p in (accuracy_a, accuracy_b)]
    by_chance = says_one[0] * says_one[1] + (1 - says_one[0]) * (1 - says_one[1])
    return (agree - by_chance) / (1 - by_chance)


def _given(labels: Tensor, classes: int) -> Tensor:
    """Which label each gave, one-hot ``(N, A, C)``; zeros where there is none."""
    if labels.is_floating_point() or not bool(((labels >= -1) & (labels < classes)).all()):
        raise ArgumentError(
            f"labels of shape {tuple(labels.shape)}; expected integers from −1 (none) to {classes - 1}",
            argument="labels",
            expected=(-1, classes - 1),
        )
    return one_hot(labels.clamp(min=0), classes) * (labels >= 0).unsqueeze(-1)


@takes(labels=shape("N A"), log_prior="C", log_confusion="A C C")
def dawid_skene_posterior(labels: Tensor, log_prior: Tensor, log_confusion: Tensor) -> Tensor:
    """Probability ``(N, C)`` of each true label, given everybody's labels and what we know of the annotators.

    ``log_confusion[a, c, l]`` is the log-probability that annotator a says l where c is true; −1 in ``labels`` is no
    label. Annotators err independently of one another, given the truth.

    Label: eq:dawid-skene-posterior
    Source: Dawid and Skene (1979), "Maximum likelihood estimation of observer error-rates using the EM algorithm",
        equation 2.5.
    """
    given = _given(labels, len(log_prior)).to(log_prior.dtype)
    return (log_prior + torch.einsum("nal,acl->nc", given, log_confusion)).softmax(-1)


@takes(labels=shape("N A"), posterior=finite("N C", "[0, 1]"), smoothing=NOT_NEGATIVE)
def dawid_skene_update(labels: Tensor, posterior: Tensor, *, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """Prior ``(C,)`` and confusion ``(A, C, C)`` that make the labels likeliest, the truth being known up to a posterior.

    Each is a share, counted with the posterior as weight. ``smoothing`` is added to every count of the confusion, as if
    everybody had been seen to say everything so often; without it somebody with few labels is soon held to be infallible.

    Label: eq:dawid-skene-update
    Source: Dawid and Skene (1979), "Maximum likelihood estimation of observer error-rates using the EM algorithm",
        equations 2.3 and 2.4.
    """
    given = _given(labels, posterior.shape[1]).to(posterior.dtype)
    counts = torch.einsum("nc,nal->acl", posterior, given) + smoothing
    return posterior.sum(0) / posterior.sum(), counts / counts.sum(-1, keepdim=True)
