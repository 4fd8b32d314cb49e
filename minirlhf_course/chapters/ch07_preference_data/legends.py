"""Chapter 7: what the printed formulas are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from minirlhf.equations import agreement
from minirlhf.equations import comparisons as worth
from minirlhf_course.chapters.ch07_preference_data import equations
from minirlhf_course.ledger.formulas.legends import symbols_of
from minirlhf_course.ledger.registry import Draw

Legend = Mapping[str, Any]


# -- noise, scales and rankings ----------------------------------------------------------------------------------


@symbols_of("eq:flipped-label")
def _(draw: Draw) -> Legend:
    p = draw.uniform(low=0.6, high=0.9)
    return {"p": p, r"\varepsilon": 0.15, "q": worth.flipped_label(p, flip=0.15)}


@symbols_of("eq:flipped-information")
def _(draw: Draw) -> Legend:
    difference = draw.uniform(low=0.6, high=1.5)
    p = difference.sigmoid()
    legend = {"p": p, r"\varepsilon": 0.15, "q": worth.flipped_label(p, flip=0.15)}
    return legend | {r"I_\varepsilon": equations.flipped_information(difference, flip=0.15)}


def _scale(draw: Draw) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
    difference, cuts = draw.uniform(low=0.4, high=1.2), torch.tensor([-1.5, 0.2, 0.9], dtype=torch.float64)
    ends = torch.tensor([-torch.inf, *cuts.tolist(), torch.inf], dtype=torch.float64)
    return (
        difference,
        cuts,
        {"l": range(1, 5), "c_l": lambda n: ends[n], r"\Delta": difference, r"\sigma(#)": torch.sigmoid},
    )


@symbols_of("eq:graded-preference")
def _(draw: Draw) -> Legend:
    difference, cuts, legend = _scale(draw)
    probs = worth.graded_preference(difference, cuts)
    return legend | {"p_l": lambda n: probs[n - 1]}


@symbols_of("eq:graded-information")
def _(draw: Draw) -> Legend:
    difference, cuts, _ = _scale(draw)
    probs = worth.graded_preference(difference, cuts)
    above = torch.sigmoid(difference - cuts)
    rises = torch.cat([torch.zeros(1), above * (1 - above), torch.zeros(1)])
    slopes = rises[:-1] - rises[1:]
    legend = {"l": range(1, 5), "p_l": lambda n: probs[n - 1], "d_l": lambda n: slopes[n - 1]}
    return legend | {"I": worth.graded_information(difference, cuts)}


@symbols_of("eq:ranking-worth")
def _(draw: Draw) -> Legend:
    size = draw.integer(3, 6)
    return {"K": size, "m": range(1, size + 1), r"W_{\text{PL}}": worth.ranking_worth(torch.tensor(size))}


@symbols_of("eq:all-pairs-worth")
def _(draw: Draw) -> Legend:
    size = draw.integer(3, 6)
    return {"K": size, r"W_{\text{pairs}}": worth.all_pairs_worth(torch.tensor(size))}


@symbols_of("eq:error-bar-factor")
def _(draw: Draw) -> Legend:
    size = draw.integer(3, 6)
    legend = {"K": size, "J": size * (size + 1) / 12, "H": size / 4}
    return legend | {"F": worth.error_bar_factor(torch.tensor(size))}


# -- agreement ---------------------------------------------------------------------------------------------------


@symbols_of("eq:cohen-kappa")
def _(draw: Draw) -> Legend:
    shares = draw.distribution(9).view(3, 3)
    legend = {
        "c": range(3),
        "k": range(3),
        "n_{c,k}": shares,
        r"u_c": shares.sum(1),
        r"v_c": shares.sum(0),
    }
    return legend | {r"\kappa": equations.cohen_kappa(shares)}


@symbols_of("eq:fleiss-kappa")
def _(draw: Draw) -> Legend:
    counts = torch.tensor([[3.0, 1, 0], [2, 1, 1], [0, 4, 0], [1, 0, 3], [4, 0, 0]], dtype=torch.float64)
    shares = counts.sum(0) / 20
    legend = {"i": range(5), "c": range(3), "N": 5, "m": 4, "n_{i,c}": counts, "q_c": shares}
    return legend | {r"\kappa_{\text{F}}": equations.fleiss_kappa(counts)}


@symbols_of("eq:krippendorff-alpha")
def _(draw: Draw) -> Legend:
    counts = torch.tensor([[3.0, 1, 0], [1, 1, 1], [0, 2, 0], [1, 0, 2], [4, 0, 0]], dtype=torch.float64)
    distance = torch.tensor([[0.0, 1, 4], [1, 0, 1], [4, 1, 0]], dtype=torch.float64)
    labels, every = counts.sum(1), counts.sum(0)
    legend = {"i": range(5), "c": range(3), "k": range(3), "n_{i,c}": counts, "m_i": labels, "n_c": every}
    legend |= {"n": every.sum(), r"\delta_{c,k}": distance}
    return legend | {r"\alpha": equations.krippendorff_alpha(counts, distance)}


@symbols_of("eq:expected-kappa")
def _(draw: Draw) -> Legend:
    p, p2, share = (draw.uniform(low=0.6, high=0.9) for _ in range(3))
    says = [share * x + (1 - share) * (1 - x) for x in (p, p2)]
    legend = {"p_a": p, "p_b": p2, "s_a": says[0], "s_b": says[1]}
    return legend | {r"\kappa": equations.expected_kappa(p, p2, share)}


def _annotators(draw: Draw) -> tuple[torch.Tensor, dict[str, Any]]:
    labels = torch.tensor([[0, 1, 0], [1, 1, -1], [0, 0, 0], [1, 0, 1]])  # one is missing
    said = torch.nn.functional.one_hot(labels.clamp(min=0), 2) * (labels >= 0).unsqueeze(-1)
    return labels, {"i": range(4), "a": range(3), "c": range(2), "k": range(2), "l": range(2), "y_{i,a,l}": said}


@symbols_of("eq:dawid-skene-posterior")
def _(draw: Draw) -> Legend:
    labels, legend = _annotators(draw)
    prior, confusion = draw.distribution(2), draw.distribution(3, 2, 2)
    found = agreement.dawid_skene_posterior(labels, prior.log(), confusion.log())
    return legend | {r"\rho_c": prior, r"\theta_{a,c,l}": confusion, "q_{i,c}": found}


@symbols_of("eq:dawid-skene-update")
def _(draw: Draw) -> Legend:
    labels, legend = _annotators(draw)
    posterior = draw.distribution(4, 2)
    prior, confusion = agreement.dawid_skene_update(labels, posterior, smoothing=0.5)
    return legend | {"N": 4, r"\eta": 0.5, "q_{i,c}": posterior, r"\rho_c": prior, r"\theta_{a,c,l}": confusion}


# -- tests -------------------------------------------------------------------------------------------------------


def _normal(draw: Draw) -> dict[str, Any]:
    z = 1.6448536269514722  # a tenth of a standard normal lies beyond ± z
    return {"z": z, "I": 25.0, r"\Phi(#)": torch.special.ndtr}


@symbols_of("eq:detection-power")
def _(draw: Draw) -> Legend:
    legend, effect = _normal(draw), draw.uniform(low=0.1, high=0.3)
    power = worth.detection_power(effect, torch.tensor(25.0, dtype=torch.float64), alpha=0.1)
    return legend | {"w": effect, r"\text{power}": power}


@symbols_of("eq:smallest-effect")
def _(draw: Draw) -> Legend:
    legend = _normal(draw) | {"z_{.8}": 0.8416212335729143}
    return legend | {"w_{.8}": worth.smallest_effect(torch.tensor(25.0, dtype=torch.float64), alpha=0.1, power=0.8)}
