"""Chapter 18: what the printed formulas are made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.core.exact import ToyLM
from minirlhf.equations import distillation as kd
from minirlhf.equations import kl, synthetic
from minirlhf.ledger.ink.legends import ink, pinned
from minirlhf.ledger.registry import Draw

Legend = Mapping[str, Any]

pinned("eq:rouge-l", "", "a longest common subsequence is found, not computed; its check tries all subsequences")


@ink("eq:filter-precision")
def _(draw: Draw) -> Legend:
    s, a, b = (draw.uniform(low=0.2, high=0.8) for _ in range(3))
    return {"s": s, "a": a, "b": b, "s'": synthetic.filter_precision(s, a, b)}


def _density(x: Any) -> Tensor:
    x = torch.as_tensor(x, dtype=torch.float64)
    return (-(x**2) / 2).exp() / math.sqrt(2 * math.pi)


@ink("eq:filter-gain")
def _(draw: Draw) -> Legend:
    rho, share = draw.uniform(low=0.2, high=0.8), draw.uniform(low=0.1, high=0.7)
    return {
        r"\rho": rho,
        "a": share,
        r"\Phi^{-1}(#)": lambda x: torch.special.ndtri(torch.as_tensor(x, dtype=torch.float64)),
        r"\varphi\big(#\big)": _density,
        r"\E[\,q \mid \text{kept}\,]": synthetic.filter_gain(rho, share),
    }


def position(draw: Draw) -> tuple[Tensor, Tensor, Tensor, dict[str, Any]]:
    """Logits of student and teacher at one position, its mask, and the symbols."""
    s, t = draw.normal(1, 1, 5), draw.normal(1, 1, 5)
    p_s, p_t = s.softmax(-1)[0, 0], t.softmax(-1)[0, 0]
    return (
        s,
        t,
        torch.ones(1, 1, dtype=torch.bool),
        {"v": range(5), "p_S(v)": p_s, "p_T(v)": p_t, "p_S": p_s, "p_T": p_t},
    )


def _divergence(p: Any, q: Any) -> Tensor:
    return exact.divergence(p, q)


@ink("eq:soft-cross-entropy")
def _(draw: Draw) -> Legend:
    s, t, mask, legend = position(draw)
    return legend | {r"L_{\text{soft}}": kd.soft_cross_entropy(s, t, mask)[0, 0]}


@ink("eq:kd-forward")
def _(draw: Draw) -> Legend:
    s, t, mask, legend = position(draw)
    return legend | {
        r"L_{\text{forward}}": kd.forward_kl_distillation(s, t, mask)[0, 0],
        r"L_{\text{soft}}": kd.soft_cross_entropy(s, t, mask)[0, 0],
        "H(p_T)": exact.entropy(legend["p_T"]),
        r"\KL(p_T\|p_S)": exact.divergence(legend["p_T"], legend["p_S"]),
    }


@ink("eq:kd-reverse")
def _(draw: Draw) -> Legend:
    s, t, mask, legend = position(draw)
    return legend | {
        r"L_{\text{reverse}}": kd.reverse_kl_distillation(s, t, mask)[0, 0],
        r"\KL(p_S\|p_T)": exact.divergence(legend["p_S"], legend["p_T"]),
    }


@ink("eq:kd-jsd")
def _(draw: Draw) -> Legend:
    s, t, mask, legend = position(draw)
    beta = float(draw.uniform(low=0.15, high=0.35))
    m = beta * legend["p_T"] + (1 - beta) * legend["p_S"]
    return {
        r"\beta": beta,
        r"L_{\text{JSD}}": kd.jsd_distillation(s, t, mask, beta=beta)[0, 0],
        r"\KL(p_T\|m)": exact.divergence(legend["p_T"], m),
        r"\KL(p_S\|m)": exact.divergence(legend["p_S"], m),
    }


@ink("eq:exposure-errors")
def _(draw: Draw) -> Legend:
    error, recovery = draw.uniform(low=0.1, high=0.4), draw.uniform(low=0.1, high=0.4)
    return {
        r"\varepsilon": error,
        r"\rho": recovery,
        "T": 5,
        r"\E[\text{errors}]": synthetic.compounded_errors(error, recovery, length=5),
    }


@ink("eq:on-policy-distillation")
def _(draw: Draw) -> Legend:
    s, t = draw.logps(1, 4), draw.logps(1, 4)
    return {
        "t": range(4),
        r"\pi_S(y_t\mid y_{<t})": s[0].exp(),
        r"\pi_T(y_t\mid y_{<t})": t[0].exp(),
        "r_t": kd.on_policy_reward(s, t, torch.ones(1, 4, dtype=torch.bool))[0],
    }


def hints(draw: Draw) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Three teachers' logits over four tokens, their weights, and the symbols."""
    logits, weights = draw.normal(3, 4), draw.distribution(3)
    return logits, weights, {"h": range(3), "w_h": weights, "p_h": logits.softmax(-1)}


@ink("eq:kd-mixture")
def _(draw: Draw) -> Legend:
    logits, weights, legend = hints(draw)
    return legend | {r"q_{\text{forward}}": kd.mixture_of_teachers(logits, weights)}


@ink("eq:kd-product")
def _(draw: Draw) -> Legend:
    logits, weights, legend = hints(draw)
    mass = (weights[:, None] * logits.log_softmax(-1)).sum(0).exp().sum()
    return legend | {"Z": mass, r"q_{\text{reverse}}": kd.product_of_teachers(logits, weights)}


def generations(draw: Draw) -> dict[str, Any]:
    """Draws and generations."""
    return {"n": draw.integer(3, 9), "g": draw.integer(2, 5)}


@ink("eq:collapse-replace")
def _(draw: Draw) -> Legend:
    legend, start = generations(draw), draw.uniform(low=0.3, high=0.9)
    kept = synthetic.diversity_kept(n=legend["n"], generation=legend["g"])
    return legend | {"D_0": start, r"\E[D_g]": kept * start}


@ink("eq:support-kept")
def _(draw: Draw) -> Legend:
    probs, n = draw.distribution(4), draw.integer(2, 5)
    return {"v": range(4), "p(v)": probs, "n": n, r"\E[\text{seen}]": synthetic.support_kept(probs, n=n)}


@ink("eq:collapse-accumulate")
def _(draw: Draw) -> Legend:
    legend = generations(draw)
    kept = synthetic.diversity_accumulated(n=legend["n"], generation=legend["g"])
    return legend | {"j": range(1, legend["g"] + 1), r"\frac{\E[D_g]}{D_0}": kept}
