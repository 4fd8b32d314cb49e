"""Chapter 10: what the printed formulas are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.equations import language, tuning
from minirlhf_course.ledger.formulas.legends import symbols_of
from minirlhf_course.ledger.registry import Draw

Legend = Mapping[str, Any]

ONE = r"\mathbb{1}[#]"


@symbols_of("eq:unrolled")
def _(draw: Draw) -> Legend:
    logps, turns = draw.logps(1, 6), ((1, 2), (5,))
    mask = torch.zeros(1, 6, dtype=torch.bool)
    mask[0, [1, 2, 5]] = True
    return {
        "t": range(6),
        "k": range(1, 3),
        "K": 2,
        "A": frozenset({1, 2, 5}),
        "A_k": lambda k: frozenset(turns[int(k) - 1]),
        r"\log\pi(s_t\mid s_{<t})": logps[0],
        r"-\sum_{t\in A}\log\pi(s_t\mid s_{<t})": language.nll(logps, mask)[0],
    }


def row(draw: Draw) -> tuple[Tensor, dict[str, Any]]:
    """A packed row of three documents and the chapter's symbols."""
    first, second = draw.integer(2, 3), draw.integer(2, 3)
    documents = torch.tensor([0] * first + [1] * second + [2] * (8 - first - second))
    return documents, {"t": range(8), "u": range(8), "d_t": documents, ONE: lambda x: x}


@symbols_of("eq:packed-mask")
def _(draw: Draw) -> Legend:
    documents, legend = row(draw)
    return legend | {"M_{tu}": tuning.packed_mask(documents[None])[0].double()}


@symbols_of("eq:packed-positions")
def _(draw: Draw) -> Legend:
    documents, legend = row(draw)
    return legend | {"p_t": tuning.packed_positions(documents[None])[0].double()}


@symbols_of("eq:packed-floor", harmless={r"\ge H": "it is printed the other way round"})
def _(draw: Draw) -> Legend:
    prior, likelihood = draw.distribution(2), draw.distribution(2, 3, scale=2.0)
    whole = lambda k: k * tuning.packed_floor(prior, likelihood, documents=k) if k else torch.zeros(())
    return {
        "i": range(1, 4),
        "k": 3,
        r"H(D_i\mid D_1,\dots,D_{i-1})": lambda i: whole(int(i)) - whole(int(i) - 1),
        r"H(D_1,\dots,D_k)": whole(3),
        "H(D_1)": exact.entropy(prior @ likelihood),
    }


def layer(draw: Draw) -> tuple[Tensor, Tensor, Tensor, dict[str, Any]]:
    """W, A and B, and the chapter's symbols for them."""
    weight, down, up = draw.normal(4, 5), draw.normal(2, 5), draw.normal(4, 2)
    return weight, down, up, {"W": weight, "A": down, "B": up, r"\alpha": 3.0, "r": 2}


@symbols_of("eq:lora", linear=True)
def _(draw: Draw) -> Legend:
    weight, down, up, legend = layer(draw)
    return legend | {"W'": tuning.lora_weight(weight, down, up, lora_alpha=3.0)}


@symbols_of("eq:lora-gradient", linear=True)
def _(draw: Draw) -> Legend:
    weight, down, up, legend = layer(draw)
    slope = draw.normal(4, 5)
    a, b = down.clone().requires_grad_(), up.clone().requires_grad_()
    loss = (tuning.lora_weight(weight, a, b, lora_alpha=3.0) * slope).sum()
    by_down, by_up = torch.autograd.grad(loss, (a, b))
    return legend | {
        "G": slope,
        r"\frac{\partial L}{\partial A}": by_down,
        r"\frac{\partial L}{\partial B}": by_up,
    }


@symbols_of("eq:lora-first-step", linear=True)
def _(draw: Draw) -> Legend:
    weight, down, up, legend = layer(draw)
    slope, rate = draw.normal(4, 5), 0.3
    b = torch.zeros_like(up, requires_grad=True)
    loss = (tuning.lora_weight(weight, down, b, lora_alpha=3.0) * slope).sum()
    (by_up,) = torch.autograd.grad(loss, b)
    moved = tuning.lora_weight(weight, down, -rate * by_up, lora_alpha=3.0) - weight
    return legend | {"G": slope, r"\eta": rate, r"\Delta W'": moved}


@symbols_of("eq:absmax")
def _(draw: Draw) -> Legend:
    weights, levels = draw.normal(6), tuning.nf4_levels()
    scale = weights.abs().max()
    place = (weights[:, None] / scale - levels).abs().argmin(-1)
    return {
        "j": range(6),
        "c": scale,
        "q_{k(j)}": levels[place],
        r"\hat w_j": tuning.absmax_quantised(weights[None], levels)[0],
        r"k(j)=\arg\min_k\Big|\frac{w_j}{c}-q_k\Big|": None,
    }


@symbols_of("eq:nf4")
def _(draw: Draw) -> Legend:
    levels = tuning.nf4_levels()
    return {
        "k": range(8),
        "p": 1 - (1 / 32 + 1 / 30) / 2,
        r"\Phi^{-1}(#)": lambda x: torch.special.ndtri(torch.as_tensor(x, dtype=torch.float64)),
        r"\Phi^{-1}\big(#\big)": lambda x: torch.special.ndtri(torch.as_tensor(x, dtype=torch.float64)),
        "q_{7+k}": lambda k: levels[7 + int(k)],
        "q_{7-k}": lambda k: levels[7 - int(k)],
    }


@symbols_of("eq:sft-policy-gradient")
def _(draw: Draw) -> Legend:
    leaf = draw.normal(5).requires_grad_()
    probs, shown = leaf.softmax(-1), draw.integer(0, 4)
    logps = leaf.log_softmax(-1)[shown].view(1, 1)
    return {
        "y'": range(5),
        "y": shown,
        r"\theta": leaf,
        ONE: lambda x: x,
        r"\pi(y')": probs,
        r"\pi(y)": (-language.nll(logps, torch.ones(1, 1))[0]).exp(),
        r"\E_{\pi}": ("y'", probs.detach()),
    }


@symbols_of("eq:dft")
def _(draw: Draw) -> Legend:
    leaf = draw.normal(5).requires_grad_()
    probs = leaf.softmax(-1)
    return {r"\theta": leaf, r"\pi(y_t)": probs, r"\ell_t": tuning.dynamic_nll(probs.log())}


def waiting(draw: Draw) -> tuple[Tensor, Tensor]:
    """Two probabilities, the lower first."""
    return draw.uniform(low=0.01, high=0.4), draw.uniform(low=0.5, high=0.95)


@symbols_of("eq:sft-time")
def _(draw: Draw) -> Legend:
    p, q = waiting(draw)
    return {"p_0": p, "p_1": q, r"t_{\text{SFT}}": tuning.imitation_time(p, q)}


@symbols_of("eq:dft-time")
def _(draw: Draw) -> Legend:
    p, q = waiting(draw)
    return {
        "p_0": p,
        "p_1": q,
        r"t_{\text{SFT}}": tuning.imitation_time(p, q),
        r"t_{\text{DFT}}": tuning.dynamic_imitation_time(p, q),
    }
