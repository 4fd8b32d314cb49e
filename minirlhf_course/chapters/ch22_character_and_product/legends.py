"""Chapter 22: the symbols of the printed formulas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from minirlhf_course.chapters.ch22_character_and_product import equations
from minirlhf_course.ledger.formulas.legends import symbols_of
from minirlhf_course.ledger.registry import Draw

Legend = Mapping[str, Any]


@symbols_of("eq:trait-score")
def _(draw: Draw) -> Legend:
    prompted, plain = draw.distribution(4), draw.distribution(4)
    return {
        "y": range(4),
        r"\pi(y \mid z, x)": prompted,
        r"\pi(y \mid x)": plain,
        "s(y)": equations.trait_score(prompted.log(), plain.log()),
    }


@symbols_of("eq:trait-policy")
def _(draw: Draw) -> Legend:
    prompted, plain = draw.distribution(4), draw.distribution(4)
    beta = float(draw.uniform(low=0.3, high=0.8))
    best = equations.trait_policy(prompted.log(), plain.log(), beta=beta).exp()
    mass = (plain ** (1 - 1 / beta) * prompted ** (1 / beta)).sum()
    return {
        "y": range(4),
        r"\pi(y \mid z, x)": prompted,
        r"\pi(y \mid x)": plain,
        r"\beta": beta,
        "Z": mass,
        r"\pi^*_\beta(y)": best,
    }


@symbols_of("eq:clean-replies")
def _(draw: Draw) -> Legend:
    rate, alpha = float(draw.uniform(low=0.02, high=0.2)), float(draw.uniform(low=0.02, high=0.2))
    return {"p": rate, r"\alpha": alpha, "n": equations.clean_completions(rate, alpha=alpha)}


def normal(x: Any) -> torch.Tensor:
    """The normal distribution function."""
    return torch.special.ndtr(torch.as_tensor(x, dtype=torch.float64))


@symbols_of("eq:over-refusal")
def _(draw: Draw) -> Legend:
    missed, separation = draw.uniform(low=0.05, high=0.4), draw.uniform(low=0.5, high=2.5)
    return {
        "m": missed,
        "d'": separation,
        r"\Phi\big(#\big)": normal,
        r"\Phi^{-1}(#)": lambda x: torch.special.ndtri(torch.as_tensor(x, dtype=torch.float64)),
        "f": equations.false_refusals(missed, separation),
    }


@symbols_of("eq:filter-threshold")
def _(draw: Draw) -> Legend:
    separation, harmful, ratio = draw.uniform(low=1.0, high=3.0), draw.uniform(low=0.02, high=0.3), draw.uniform(low=2.0, high=6.0)  # fmt: skip
    return {
        "d'": separation,
        "h": harmful,
        "c": ratio,
        "t": equations.filter_threshold(separation, harmful, ratio),
    }


@symbols_of("eq:both-miss")
def _(draw: Draw) -> Legend:
    first, second, correlation = (draw.uniform(low=0.1, high=0.4) for _ in range(3))
    return {
        "m_1": first,
        "m_2": second,
        r"\rho": correlation,
        r"\Pr(\text{both miss})": equations.both_filters_miss(first, second, correlation),
    }


def canary(draw: Draw) -> tuple[torch.Tensor, torch.Tensor, dict[str, int]]:
    """Complaints about the new and the old model, and the two bounds."""
    old = draw.uniform(low=0.05, high=0.2)
    return old * 1.6, old, {"rollback": draw.integer(2, 5), "ship": draw.integer(6, 9)}


@symbols_of("eq:rollback-chance")
def _(draw: Draw) -> Legend:
    new, old, bounds = canary(draw)
    return {
        "p_1": new,
        "p_0": old,
        "a": bounds["rollback"],
        "b": bounds["ship"],
        "w": torch.exp(torch.logit(new) - torch.logit(old)),
        "P": equations.rollback_probability(new, old, **bounds),
    }


@symbols_of("eq:canary-pairs")
def _(draw: Draw) -> Legend:
    new, old, bounds = canary(draw)
    return {
        "p_1": new,
        "p_0": old,
        "a": bounds["rollback"],
        "b": bounds["ship"],
        "P": equations.rollback_probability(new, old, **bounds),
        r"\E[\text{pairs}]": equations.canary_pairs(new, old, **bounds),
    }
