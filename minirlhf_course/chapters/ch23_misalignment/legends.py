"""Chapter 23: the symbols of the printed formulas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from minirlhf_course.chapters.ch23_misalignment import spread
from minirlhf_course.ledger.formulas.legends import symbols_of
from minirlhf_course.ledger.registry import Draw

Legend = Mapping[str, Any]


@symbols_of("eq:gradient-kernel", linear=True)
def _(draw: Draw) -> Legend:
    trained, measured, rate = draw.normal(5), draw.normal(5), float(draw.uniform(low=0.2, high=0.8))
    change = spread.first_order_change(trained, measured, rate)
    return {"g_L": trained, "g_f": measured, r"\eta": rate, r"\Delta f": change}


def authors(draw: Draw) -> tuple[torch.Tensor, torch.Tensor]:
    """The probability of a careless author, and of harmful answers by the two kinds."""
    return draw.uniform(low=0.1, high=0.8), draw.uniform(2, low=0.1, high=0.9)


@symbols_of("eq:author-gradient")
def _(draw: Draw) -> Legend:
    careless, by = authors(draw)
    slope = spread.author_gradient(careless, by)
    both = (1 - careless) * by[0] + careless * by[1]
    return {r"\pi": careless, "q_1": by[1], "q_0": by[0], "P": both, "r": careless * by[1] / both, r"\frac{\partial \log P}{\partial s}": slope}  # fmt: skip


@symbols_of("eq:author-spread")
def _(draw: Draw) -> Legend:
    careless, here = authors(draw)
    read, there = authors(draw)
    rate = float(draw.uniform(low=0.2, high=0.8))
    return {
        r"\pi": careless,
        r"\pi'": read,
        "r": careless * here[1] / ((1 - careless) * here[0] + careless * here[1]),
        "q'_1": there[1],
        "q'_0": there[0],
        r"\eta": rate,
        r"\Delta P'": spread.author_spread(careless, here, there, rate, read),
    }


def student(draw: Draw) -> tuple[torch.Tensor, torch.Tensor, Legend]:
    """A Jacobian, probabilities, and their symbols."""
    jacobian, probs = draw.normal(2, 3, 4), draw.distribution(2, 3)
    return jacobian, probs, {"x": range(2), "y": range(3), "N": 2, r"\pi(y \mid x)": lambda y, x: probs[x, y], "g_{xy}": jacobian}  # fmt: skip


@symbols_of("eq:imitation-step", linear=True)
def _(draw: Draw) -> Legend:
    jacobian, probs, legend = student(draw)
    step = draw.normal(4)
    return {**legend, "d": step, "F d": spread.imitation_step(jacobian, probs, step)}


@symbols_of("eq:trait-change", linear=True)
def _(draw: Draw) -> Legend:
    jacobian, probs, legend = student(draw)
    trait, rate = draw.normal(4), float(draw.uniform(low=0.2, high=0.8))
    step = float(draw.uniform(low=0.2, high=0.8))  # the function's teacher takes one of size 1
    change = step * spread.trait_change(jacobian, probs, trait, rate)
    return {**legend, "h": trait, r"\eta": rate, r"\varepsilon": step, r"\Delta L": change}


def signal(draw: Draw) -> tuple[torch.Tensor, torch.Tensor]:
    """A probability and the gradient of its log-odds."""
    return draw.uniform(low=0.1, high=0.9), draw.normal(4)


@symbols_of("eq:vanishing-signal")
def _(draw: Draw) -> Legend:
    p, derivative = signal(draw)
    return {"p": p, r"G_\ell": derivative.norm(), r"G_{\log p}": spread.trained_signal(p, derivative)}


@symbols_of("eq:reward-signal")
def _(draw: Draw) -> Legend:
    p, derivative = signal(draw)
    return {"p": p, r"G_\ell": derivative.norm(), "G_p": spread.reward_signal(p, derivative)}


@symbols_of("eq:steering", linear=True)
def _(draw: Draw) -> Legend:
    odds, readout, v = draw.normal(1)[0], draw.normal(4), draw.normal(4)
    strength = float(draw.uniform(low=-1.0, high=2.0))
    after = spread.steered_log_odds(odds, readout, v, strength)
    return {r"\ell": odds, "u": readout, "v": v, r"\alpha": strength, r"\ell'": after}


@symbols_of("eq:set-component", linear=True)
def _(draw: Draw) -> Legend:
    h, v, target = draw.normal(4), draw.normal(4), float(draw.uniform(low=0.3, high=1.5))
    return {"h": h, "v": v / v.norm(), "c": target, "h'": spread.set_component(h, v, target)}
