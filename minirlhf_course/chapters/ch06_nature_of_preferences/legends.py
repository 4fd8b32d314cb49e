"""Chapter 6: what the printed formulas are made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from minirlhf.equations import reward_losses, social_choice
from minirlhf_course.chapters.ch06_nature_of_preferences import equations
from minirlhf_course.ledger.formulas.legends import symbols_of
from minirlhf_course.ledger.registry import Draw

Legend = Mapping[str, Any]


# -- one decider -------------------------------------------------------------------------------------------------


@symbols_of("eq:expected-utility")
def _(draw: Draw) -> Legend:
    p, u = draw.distribution(4), draw.normal(4)
    return {"i": range(4), "p_i": p, "u_i": u, "U": equations.expected_utility(p, u)}


@symbols_of("eq:prospect-value")
def _(draw: Draw) -> Legend:
    z = torch.cat([draw.uniform(2, low=0.3, high=2.0), -draw.uniform(2, low=0.3, high=2.0)])
    v = equations.prospect_value(z, alpha=0.7, loss_aversion=1.9)
    return {"z": z, r"\alpha": 0.7, r"\lambda": 1.9, "v(z)": v}


@symbols_of("eq:probability-weighting")
def _(draw: Draw) -> Legend:
    p = draw.uniform(4, low=0.1, high=0.9)
    return {"p": p, r"\gamma": 0.7, "w(p)": equations.probability_weight(p, gamma=0.7)}


def plan(draw: Draw) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Two beliefs about what a plan is worth, good and bad on average, and the chapter's symbols for them."""
    some = torch.tensor([-1.0, -0.3, 0.7, 2.6], dtype=torch.float64) + 0.2 * draw.uniform(4)
    p, u = draw.distribution(2, 4, scale=0.3), torch.stack([some, -some])  # (2, outcomes)
    return p, u, {r"\E": p, "u": u, "u^+": u.clamp(min=0), "u^-": (-u).clamp(min=0)}


@symbols_of("eq:off-switch")
def _(draw: Draw) -> Legend:
    p, u, legend = plan(draw)
    return legend | {r"\Delta": equations.deference_gain(p, u)}


@symbols_of("eq:off-switch-doubt")
def _(draw: Draw) -> Legend:
    p, u, legend = plan(draw)
    return legend | {r"\Delta": equations.deference_gain(p, u)}


@symbols_of("eq:noisy-overseer")
def _(draw: Draw) -> Legend:
    p, u, legend = plan(draw)
    return legend | {r"\tau": 0.6, r"\Delta_\tau": equations.deference_gain(p, u, noise=0.6)}


# -- models of choice --------------------------------------------------------------------------------------------


@symbols_of("eq:plackett-luce")
def _(draw: Draw) -> Legend:
    r = draw.normal(4)
    return {
        "k": range(1, 5),
        "j": range(1, 5),
        "K": 4,
        "r_k": r,
        r"p(y_1\succ\dots\succ y_K)": reward_losses.plackett_luce_logp(r).exp(),
    }


def two(draw: Draw) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """The rewards of two answers in four examples."""
    a, b = draw.normal(4), draw.normal(4)
    return a, b, {"r_1": a, "r_2": b}


@symbols_of("eq:plackett-luce-two")
def _(draw: Draw) -> Legend:
    a, b, legend = two(draw)
    return legend | {r"p(y_1\succ y_2)": reward_losses.plackett_luce_logp(torch.stack([a, b], -1)).exp()}


@symbols_of("eq:bradley-terry")
def _(draw: Draw) -> Legend:
    a, b, legend = two(draw)
    return legend | {r"p(y_1\succ y_2)": reward_losses.bradley_terry(a, b)}


@symbols_of("eq:thurstone")
def _(draw: Draw) -> Legend:
    a, b, legend = two(draw)
    legend |= {r"\Phi(#)": torch.special.ndtr, "s": 1.3}
    return legend | {r"p(y_1\succ y_2)": reward_losses.thurstone(a, b, std=1.3)}


@symbols_of("eq:mallows", harmless={"k = 2": "the first factor is 1"})
def _(draw: Draw) -> Legend:
    order = torch.tensor([[0, 1, 2, 3], [1, 0, 2, 3], [3, 0, 2, 1], [3, 2, 1, 0]])
    swaps = torch.tensor([0.0, 1.0, 4.0, 6.0], dtype=torch.float64)
    theta = float(draw.uniform(low=0.4, high=0.9))
    return {
        "k": range(1, 5),
        "K": 4,
        r"\theta": theta,
        r"d(\omega)": swaps,
        r"p(\omega)": reward_losses.mallows_logp(order, dispersion=theta).exp(),
    }


@symbols_of("eq:elo-expected")
def _(draw: Draw) -> Legend:
    a, b = 1500 + 200 * draw.normal(4), 1500 + 200 * draw.normal(4)
    return {"R_1": a, "R_2": b, "E_1": reward_losses.elo_expected(a, b)}


@symbols_of("eq:elo-update")
def _(draw: Draw) -> Legend:
    a, b = 1500 + 200 * draw.normal(3), 1500 + 200 * draw.normal(3)
    score = torch.tensor([1.0, 0.5, 0.0], dtype=torch.float64)
    new_a, new_b = reward_losses.elo_update(a, b, score, k=20.0)
    legend = {"R_1": a, "R_2": b, "E_1": reward_losses.elo_expected(a, b), "S": score, r"\eta": 20.0}
    return legend | {"R_1'": new_a, "R_2'": new_b}


# -- many comparisons --------------------------------------------------------------------------------------------


def tournament(draw: Draw) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Wins of four answers, their rewards, and the chapter's symbols; nobody meets themselves."""
    wins, r = draw.uniform(4, 4, low=1.0, high=9.0).fill_diagonal_(0.0), draw.normal(4)
    games = wins + wins.T
    return wins, r, {"a": range(4), "b": range(4), "W_{ab}": wins, "n_{ab}": games, "r_a": r}


@symbols_of("eq:bradley-terry-balance")
def _(draw: Draw) -> Legend:
    wins, r, legend = tournament(draw)
    theta = r.clone().requires_grad_()
    terms = wins * torch.nn.functional.logsigmoid(theta[:, None] - theta[None, :])
    return legend | {
        "r_a": theta,
        r"\frac{\partial L}{\partial r_a}": social_choice.bradley_terry_balance(wins, r),
        "L": terms.sum(),
    }


@symbols_of("eq:bradley-terry-fit", tolerance=1e-8)
def _(draw: Draw) -> Legend:
    wins, _, legend = tournament(draw)
    return legend | {r"\hat r_a": social_choice.bradley_terry_fit(wins, tolerance=1e-13)}


@symbols_of("eq:zermelo")
def _(draw: Draw) -> Legend:
    wins, r, legend = tournament(draw)
    return legend | {r"\tilde r_a": social_choice.zermelo_step(wins, r)}


@symbols_of("eq:cycle-log-odds")
def _(draw: Draw) -> Legend:
    odds = draw.normal(3, 3)
    p = torch.sigmoid(odds - odds.T)
    legend = {rf"p({x}\succ {y})": p[i, j] for i, x in enumerate("abc") for j, y in enumerate("abc") if i != j}
    return legend | {"C": social_choice.cycle_log_odds(p)}


@symbols_of("eq:mixture-preference")
def _(draw: Draw) -> Legend:
    r, w = draw.normal(3, 4), draw.distribution(3)
    legend = {"g": range(3), "a": range(4), "b": range(4), "w_g": w, "r_g(a)": lambda g, a: r[int(g), int(a)]}
    return legend | {r"p(a\succ b)": social_choice.mixture_preference(r, w)}


@symbols_of("eq:borda")
def _(draw: Draw) -> Legend:
    p = social_choice.mixture_preference(draw.normal(3, 4), draw.distribution(3))
    legend = {"a": range(4), "b": range(4), "K": 4, r"p(a\succ b)": p, "B_a": social_choice.borda_scores(p)}
    return legend | {r"\hat r_a": social_choice.bradley_terry_fit(p, tolerance=1e-13)}


@symbols_of("eq:reward-spread")
def _(draw: Draw) -> Legend:
    r, w = draw.normal(3, 4), draw.distribution(3)
    mean, spread = equations.reward_spread(r, w)
    legend = {"g": range(3), "a": range(4), "w_g": w, "r_g(a)": lambda g, a: r[int(g), int(a)]}
    return legend | {"m(a)": lambda a: mean[int(a)], "s(a)": lambda a: spread[int(a)]}


@symbols_of("eq:jury")
def _(draw: Draw) -> Legend:
    p = draw.uniform(3, low=0.2, high=0.9)
    return {
        "k": range(6),
        "n": 5,
        "p": p,
        r"\binom{n}{k}": torch.tensor([float(math.comb(5, k)) for k in range(6)], dtype=torch.float64),
        "p_n": equations.majority_accuracy(p, voters=5),
    }
