"""The equations that only chapter 7 needs: agreement beyond chance, and the information in one label.

Counts and tables are floats, so that fractions can replace counts. Labels are integers ``0 … C−1``; −1 is a missing
label. Every coefficient of agreement is 1 if all annotators agree and 0 if they agree as often as by chance. Rewards
are in nats. Information is about the *difference*, the reward of the first completion minus the reward of the second.
It is the inverse variance per label of the best estimate of the difference, for many labels.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import finite, number, takes
from minirlhf.equations.comparisons import flipped_label

# -- agreement ---------------------------------------------------------------------------------------------------


@takes(table=finite("... C C", "[0, inf)"))
@equation("eq:cohen-kappa", source='Cohen (1960), "A coefficient of agreement for nominal scales".')
def cohen_kappa(table: Tensor) -> Tensor:
    """Cohen's kappa ``(...)`` of two annotators: (p_o − p_e) / (1 − p_e).

    ``table[i, j]`` counts the items that the first annotator labels i and the second labels j. p_o is the fraction on
    the diagonal. p_e is its expectation if each annotator kept the same label frequencies but labelled independently of
    the items.
    """
    fractions = table / table.sum((-2, -1), keepdim=True)
    observed = fractions.diagonal(dim1=-2, dim2=-1).sum(-1)
    chance_agreement = (fractions.sum(-1) * fractions.sum(-2)).sum(-1)
    return (observed - chance_agreement) / (1 - chance_agreement)


@takes(counts=finite("N C", "[0, inf)"))
@equation("eq:fleiss-kappa", source='Fleiss (1971), "Measuring nominal scale agreement among many raters".')
def fleiss_kappa(counts: Tensor) -> Tensor:
    """Fleiss' kappa of m annotators per item, not always the same ones: (P̄ − P̄_e) / (1 − P̄_e).

    ``counts[i, c]`` is the number of annotators who labelled item i as c; every row sums to the same m ≥ 2. P̄ is the
    mean fraction of pairs of annotators that agree on an item, P̄_e the sum of the squared label frequencies.
    """
    num_raters = counts.sum(-1)
    if not torch.allclose(num_raters, num_raters[:1]) or float(num_raters[0]) < 2:
        raise ArgumentError(
            f"counts of shape {tuple(counts.shape)}; expected rows that all sum to the same m ≥ 2",
            argument="counts",
            problem="sums",
        )
    m = num_raters[0]
    pair_agreement = (counts * (counts - 1)).sum(-1) / (m * (m - 1))  # (N,)
    fractions = counts.sum(0) / counts.sum()
    chance_agreement = (fractions**2).sum()
    return (pair_agreement.mean() - chance_agreement) / (1 - chance_agreement)


@takes(counts=finite("N C", "[0, inf)"), distance=finite("C C", "[0, inf)"))
@equation("eq:krippendorff-alpha", source='Krippendorff (2011), "Computing Krippendorff\'s alpha-reliability".')
def krippendorff_alpha(counts: Tensor, distance: Tensor) -> Tensor:
    """Krippendorff's alpha: 1 − D_o / D_e, for any number of annotators per item.

    ``counts[u, c]`` is the number of annotators who labelled item u as c. Items with fewer than two labels carry no
    information and are left out. D_o is the mean distance of two labels of one item, D_e the mean distance of two
    labels of any items. ``distance[c, k]`` has zeros on the diagonal; off it, it is 1 for nominal labels and (c − k)²
    for interval labels.
    """
    if bool((distance.diagonal() != 0).any()):
        raise ArgumentError(
            f"distance of shape {tuple(distance.shape)}; expected zeros on its diagonal",
            argument="distance",
            problem="diagonal",
        )
    pairable = counts[counts.sum(-1) >= 2]  # (U, C)
    if len(pairable) == 0:
        raise ArgumentError(
            f"counts of shape {tuple(counts.shape)}; expected an item with two labels",
            argument="counts",
            problem="no pair",
        )
    num_labels = pairable.sum(-1)
    observed = (torch.einsum("uc,uk,ck->u", pairable, pairable, distance) / (num_labels - 1)).sum() / num_labels.sum()
    totals = pairable.sum(0)
    expected = torch.einsum("c,k,ck->", totals, totals, distance) / (totals.sum() * (totals.sum() - 1))
    return 1 - observed / expected


@takes(accuracy_a=finite("...", "[0, 1]"), accuracy_b=finite("...", "[0, 1]"), prevalence=finite("...", "[0, 1]"))
@equation(
    "eq:expected-kappa",
    source='the effect of the prevalence: Feinstein and Cicchetti (1990), "High agreement but low kappa".',
)
def expected_kappa(accuracy_a: Tensor, accuracy_b: Tensor, prevalence: Tensor) -> Tensor:
    """Cohen's kappa of two annotators of a binary label who are right with these probabilities, independently.

    The true label of a fraction ``prevalence`` of the items is 1. If it is ½, the kappa is (2p_a − 1)(2p_b − 1).
    """
    agreement = accuracy_a * accuracy_b + (1 - accuracy_a) * (1 - accuracy_b)
    prob_one = [prevalence * p + (1 - prevalence) * (1 - p) for p in (accuracy_a, accuracy_b)]
    chance_agreement = prob_one[0] * prob_one[1] + (1 - prob_one[0]) * (1 - prob_one[1])
    return (agreement - chance_agreement) / (1 - chance_agreement)


# -- noise -------------------------------------------------------------------------------------------------------


@takes(difference="...", flip=number("[0, 1]"))
@equation(
    "eq:flipped-information",
    source='Fisher (1925), "Theory of statistical estimation", applied to eq:flipped-label.',
)
def flipped_information(difference: Tensor, *, flip: float) -> Tensor:
    """Fisher information of a Bradley–Terry label flipped with probability ``flip``: ((1 − 2ε) p(1 − p))² / (q(1 − q)).

    p = σ(difference), and q is p after the flips. Without flips the information is p(1 − p): ¼ if both completions have
    the same reward, close to 0 if the difference is large.
    """
    p = torch.sigmoid(difference)
    q = flipped_label(p, flip=flip)
    return ((1 - 2 * flip) * p * (1 - p)) ** 2 / (q * (1 - q))
