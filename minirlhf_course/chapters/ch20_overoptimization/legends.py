"""Chapter 20: what the printed formulas are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from minirlhf.equations import overoptimization as over
from minirlhf_course.chapters.ch20_overoptimization import equations
from minirlhf_course.ledger.formulas.legends import symbols_of
from minirlhf_course.ledger.registry import Draw

Legend = Mapping[str, Any]


def tilted(draw: Draw) -> tuple[Tensor, Tensor, Tensor, dict[str, Any]]:
    """A reference, a proxy and a gold reward over five replies, tilted by λ, and the chapter's symbols."""
    ref, r, g, strength = draw.distribution(5), draw.normal(5), draw.normal(5), 0.8
    logps = over.tilt(ref.log(), r, strength=strength)
    legend = {"y": range(5), r"\lambda": strength, r"\piref": ref, r"\piref(y)": ref, "r": r, "r(y)": r, "g": g}
    legend |= {"Z_\\lambda": (ref * (strength * r).exp()).sum()}
    return logps, r, g, legend | {r"\pi_\lambda": logps.exp(), r"\pi_\lambda(y)": logps.exp()}


@symbols_of("eq:tilt")
def _(draw: Draw) -> Legend:
    return tilted(draw)[-1]


@symbols_of("eq:tilt-slope")
def _(draw: Draw) -> Legend:
    logps, r, g, legend = tilted(draw)
    return legend | {r"\frac{d}{d\lambda}\E_{\pi_\lambda}[g]": over.tilt_slope(logps, g, r)}


@symbols_of("eq:tilt-kl-slope")
def _(draw: Draw) -> Legend:
    logps, r, _, legend = tilted(draw)
    slope = equations.tilt_kl_slope(logps, r, strength=legend[r"\lambda"])
    return legend | {r"\frac{d}{d\lambda}\KL(\pi_\lambda\|\piref)": slope}


# -- laws of over-optimisation -----------------------------------------------------------------------------------


@symbols_of("eq:linear-gold")
def _(draw: Draw) -> Legend:
    strength, proxy_std = draw.uniform(4, low=0.2), 2.3
    d = strength * proxy_std / 2**0.5
    gain = over.linear_gold(d, correlation=0.6, gold_std=1.4)
    legend = {r"\lambda": strength, r"\rho": 0.6, r"\sigma_g": 1.4, r"\sigma_r": proxy_std, "d": d}
    return legend | {r"\E_{\pi_\lambda}[g] - \E_{\piref}[g]": gain}


@symbols_of("eq:quadratic-gold", linear=True)
def _(draw: Draw) -> Legend:
    v, w, B, strength = draw.normal(3), draw.normal(3), draw.normal(3, 3), 0.7
    C = B @ B.T
    alpha, beta = equations.quadratic_gold_coefficients(v, w, C)
    moved = strength * v
    legend = {r"\alpha": alpha, r"\beta": beta, "w": w, "u": v / v.norm(), "C": C, "d": strength * v.norm() / 2**0.5}
    return legend | {r"\E_{\pi_\lambda}[g] - \E_{\piref}[g]": w @ moved - moved @ C @ moved / 2}


def law(draw: Draw) -> dict[str, Any]:
    return {"d": draw.uniform(5, low=0.2, high=4.0), r"\alpha": 1.3, r"\beta": 0.4}


@symbols_of("eq:gold-best-of-n")
def _(draw: Draw) -> Legend:
    legend = law(draw)
    return legend | {r"g_{\text{bon}}(d)": equations.gold_best_of_n(legend["d"], alpha=1.3, beta=0.4)}


@symbols_of("eq:gold-rl")
def _(draw: Draw) -> Legend:
    legend = law(draw)
    return legend | {r"g_{\text{RL}}(d)": equations.gold_rl(legend["d"], alpha=1.3, beta=0.4)}


@symbols_of("eq:gold-best-of-n-peak")
def _(draw: Draw) -> Legend:
    peak, height = equations.gold_best_of_n_peak(alpha=1.3, beta=0.4)
    return law(draw) | {"d^*": peak, r"g_{\text{bon}}(d^*)": height}


@symbols_of("eq:gold-rl-peak")
def _(draw: Draw) -> Legend:
    peak, height = equations.gold_rl_peak(alpha=1.3, beta=0.4)
    return law(draw) | {"d^*": peak, r"g_{\text{RL}}(d^*)": height}


# -- remedies ----------------------------------------------------------------------------------------------------


def ensemble(draw: Draw) -> tuple[Tensor, dict[str, Any]]:
    """Three reward models' opinions of four replies."""
    r = draw.normal(3, 4)
    return r, {"m": range(3), "k": range(3), "y": range(4), "M": 3, "r_m(y)": r}


@symbols_of("eq:ensemble-worst-case")
def _(draw: Draw) -> Legend:
    r, legend = ensemble(draw)
    return legend | {r"r_{\text{worst}}(y)": over.worst_case(r)}


@symbols_of("eq:ensemble-uncertainty")
def _(draw: Draw) -> Legend:
    r, legend = ensemble(draw)
    return legend | {"c": 0.6, r"r_{\text{careful}}(y)": over.uncertainty_weighted(r, coef=0.6)}


@symbols_of("eq:constrained-tilt")
def _(draw: Draw) -> Legend:
    ref, r, costs, strength = draw.distribution(5), draw.normal(5), draw.normal(2, 5), 1.3
    free = costs @ over.tilt(ref.log(), r, strength=strength).exp()
    limits = torch.stack(
        [0.8 * free[0] + 0.2 * costs[0].min(), costs[1].max() + 0.4]
    )  # one binds, one has room; both can be met
    prices = equations.constraint_multipliers(ref.log(), r, costs, limits, strength=strength)
    best = over.tilt(ref.log(), r - prices @ costs, strength=strength).exp()
    legend = {"k": range(2), r"\lambda": strength, r"\piref": ref, "r": r, r"\mu_k": prices, r"\theta_k": limits}
    return legend | {"c_k": costs, r"\pi": best}


# -- the grade ---------------------------------------------------------------------------------------------------


@symbols_of("eq:roc-auc")
def _(draw: Draw) -> Legend:
    scores = torch.tensor([0.0, 1, 1, 2, 3], dtype=torch.float64)
    hack, honest = draw.uniform(5, low=0.1), draw.uniform(5, low=0.1)
    joint = torch.outer(hack / hack.sum(), honest / honest.sum())
    a, b = scores[:, None], scores[None, :]
    legend = {r"P(s(Y_{\text{hack}}) > s(Y_{\text{honest}}))": joint[a > b].sum()}
    legend |= {r"P(s(Y_{\text{hack}}) = s(Y_{\text{honest}}))": joint[a == b].sum()}
    return legend | {r"\text{AUC}": over.roc_auc(scores, hack, honest)}


def approval(draw: Draw) -> dict[str, Any]:
    """A policy over four actions, and the grade of b where a was carried out."""
    theta, F = draw.normal(4).requires_grad_(), draw.normal(4, 4)
    return {"a": range(4), "b": range(4), r"\theta": theta, r"\pi(a)": theta.softmax(-1), "F(a,b)": F}


@symbols_of("eq:coupled-approval")
def _(draw: Draw) -> Legend:
    legend = approval(draw)
    climbed = over.coupled_approval(legend[r"\theta"].log_softmax(-1), legend["F(a,b)"])
    step = torch.autograd.grad(climbed, legend[r"\theta"])[0]
    return legend | {r"\nabla\E_{a\sim\pi}[F(a,a)]": lambda a: step}


@symbols_of("eq:decoupled-approval")
def _(draw: Draw) -> Legend:
    legend = approval(draw)
    return legend | {r"\bar F(b)": (legend[r"\pi(a)"].detach() @ legend["F(a,b)"])}
