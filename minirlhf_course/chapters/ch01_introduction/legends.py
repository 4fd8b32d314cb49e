"""Chapter 1: what the printed formulas are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from minirlhf.equations import merging
from minirlhf_course.chapters.ch01_introduction import equations
from minirlhf_course.ledger.formulas.legends import symbols_of
from minirlhf_course.ledger.inputs.processes import jacobian
from minirlhf_course.ledger.registry import Draw

Legend = Mapping[str, Any]


def choice(draw: Draw, size: int = 4) -> dict[str, Any]:
    """A softmax over a few things, differentiable in its logits z."""
    z = draw.normal(size).requires_grad_()
    legend = {name: range(size) for name in ("u", "v", "y")}
    return legend | {"z_v": z, r"\pi(v)": z.softmax(-1), r"\pi": z.softmax(-1), "S": z.exp().sum()}


@symbols_of("eq:softmax-derivative", harmless={"[ u = v ] e ^ { z _ u } S": "where the bracket is not 0, u is v"})
def _(draw: Draw) -> Legend:
    legend = choice(draw)
    return legend | {r"\frac{\partial \pi(v)}{\partial z_u}": equations.softmax_derivative(legend["z_v"])}


@symbols_of("eq:imitation-push")
def _(draw: Draw) -> Legend:
    legend = choice(draw)
    pushes = torch.stack([equations.imitation_logit_gradient(legend["z_v"], torch.tensor(y)) for y in range(4)])
    return legend | {r"\frac{\partial \log \pi(y)}{\partial z_v}": pushes}


@symbols_of("eq:reward-push")
def _(draw: Draw) -> Legend:
    legend, r = choice(draw), draw.normal(4)
    push = equations.reward_logit_gradient(legend["z_v"], r)
    return legend | {"r": r, "r(v)": r, r"\frac{\partial\E_\pi[r]}{\partial z_v}": push}


@symbols_of("eq:probability-change")
def _(draw: Draw) -> Legend:
    legend, g = choice(draw), draw.normal(4)
    change = equations.probability_change(legend["z_v"], g, learning_rate=0.3)
    return legend | {"g_u": g, r"\eta": 0.3, r"d\pi(v)": change}


@symbols_of("eq:compounding-mistakes")
def _(draw: Draw) -> Legend:
    error = draw.uniform(3, low=0.05, high=0.4)
    mistakes = equations.compounding_mistakes(error, steps=6)
    return {"t": range(1, 7), "T": 6, r"\varepsilon": error, "M_T": mistakes}


@symbols_of("eq:trajectory-preference")
def _(draw: Draw) -> Legend:
    a, b = draw.normal(3, 4), draw.normal(3, 4)
    return {"t": range(4), "r(a_t)": a.T, "r(b_t)": b.T, r"P(a \succ b)": equations.trajectory_preference(a, b)}


@symbols_of("eq:coach-update")
def _(draw: Draw) -> Legend:
    theta, f, judged = draw.normal(4).requires_grad_(), draw.normal(3), torch.tensor([1, 3, 0])
    scores = jacobian(lambda t: t.log_softmax(-1), theta)[judged]
    legend = {r"\theta": theta, "f": f, r"\pi(a \mid s)": theta.softmax(-1)[judged]}
    return legend | {r"\Delta\theta": equations.coach_update(f, scores).T}


@symbols_of("eq:weight-average")
def _(draw: Draw) -> Legend:
    parameters, w = draw.normal(3, 5), draw.distribution(3)
    return {"k": range(3), "w_k": w, r"\theta_k": parameters, r"\theta": merging.weight_average(parameters, w)}


@symbols_of("eq:merged-distribution")
def _(draw: Draw) -> Legend:
    p, w = draw.distribution(3, 4), draw.distribution(3)
    merged = merging.merged_logps(p.log(), w).exp()
    return {"k": range(3), "y": range(4), r"\pi_k(y)": p, "w_k": w, r"\pi(y)": merged}
