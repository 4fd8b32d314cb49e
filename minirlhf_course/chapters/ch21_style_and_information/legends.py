"""Chapter 21: what the printed formulas are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.equations import style as st
from minirlhf.equations.overoptimization import tilt
from minirlhf_course.chapters.ch21_style_and_information import equations
from minirlhf_course.ledger.formulas.legends import symbols_of
from minirlhf_course.ledger.registry import Draw

Legend = Mapping[str, Any]


@symbols_of("eq:biased-correlation")
def _(draw: Draw) -> Legend:
    gold, style, bias = 1.3, 1.7, float(draw.uniform(low=0.3, high=0.8))
    covariance = float(draw.uniform(low=0.2, high=0.6))
    value = equations.biased_correlation(gold_std=gold, style_std=style, covariance=covariance, bias=bias)
    return {
        r"\sigma_g": gold,
        r"\sigma_s": style,
        r"\sigma_{gs}": covariance,
        "b": bias,
        r"\rho(g, g + bs)": value,
    }


def styled(draw: Draw) -> tuple[Tensor, Tensor, Tensor, dict[str, Any]]:
    """Six replies: their probabilities, gold and style, and the chapter's symbols."""
    p, g, s = draw.distribution(6), draw.normal(6), draw.normal(6)
    return p, g, s, {"y": range(6), "p(y)": p, r"\E": p, "s": s, "s(y)": s}


def spread(p: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The covariance, from raw moments."""
    return p @ (a * b) - (p @ a) * (p @ b)


@symbols_of("eq:residual-reward")
def _(draw: Draw) -> Legend:
    p, r, s, legend = styled(draw)
    return legend | {
        "r": r,
        "r(y)": r,
        r"\operatorname{Cov}(r, s)": spread(p, r, s),
        r"\operatorname{Var}(s)": spread(p, s, s),
        r"r_\perp(y)": equations.residual_reward(p, r, s),
    }


@symbols_of("eq:residual-error")
def _(draw: Draw) -> Legend:
    p, g, s, legend = styled(draw)
    return legend | {
        "g": g,
        "g(y)": g,
        "k_g": spread(p, g, s) / spread(p, s, s),
        r"r_\perp(y)": equations.residual_reward(p, g + 0.5 * s, s),
    }


@symbols_of("eq:frisch-waugh")
def _(draw: Draw) -> Legend:
    p, r, s, legend = styled(draw)
    x = draw.normal(6, 2)
    left = torch.stack([equations.residual_reward(p, column, s) for column in x.T])  # (2, 6)
    return legend | {
        "j": range(2),
        "k": range(2),
        "r(y)": r,
        r"\tilde x_j(y)": left,
        "w_k": equations.partialled_weights(p, r, x, s),
    }


@symbols_of("eq:omitted-variable")
def _(draw: Draw) -> Legend:
    p, _, s, _ = styled(draw)
    x, w, v = draw.normal(6, 2), draw.normal(2), 0.7
    # Without a rest, the joint fit is w and v; the fit without style is what each feature gets of both.
    centred = x - p @ x
    short = torch.linalg.solve((p[:, None] * centred).T @ centred, (p[:, None] * centred).T @ (x @ w + v * s))
    return {
        "j": range(2),
        "w_j": w,
        "v": v,
        r"\delta_j": equations.omitted_style_slopes(p, x, s),
        r"w^{\text{short}}_j": short,
    }


@symbols_of("eq:product-of-experts")
def _(draw: Draw) -> Legend:
    a, b = draw.normal(4), draw.normal(4)
    p, q = a.sigmoid(), b.sigmoid()
    return {"P": equations.product_of_experts(p, q), "p": p, "q": q, r"\Delta_Q": a, r"\Delta_S": b}


@symbols_of("eq:two-heads")
def _(draw: Draw) -> Legend:
    quality, head, style = draw.normal(5, 2), draw.normal(5, 2), draw.normal(5, 2)
    total = quality + head
    rho = torch.corrcoef(torch.stack([quality.flatten(), head.flatten(), style.flatten()]))[:2, 2]
    return {
        "i": range(5),
        "B": 5,
        "c": 0.8,
        r"\Delta_i": total[:, 0] - total[:, 1],
        r"\mathrm{corr}_Q": rho[0],
        r"\mathrm{corr}_S": rho[1],
        r"L_{\text{two}}": equations.two_heads_loss(quality, head, style, coef=0.8),
    }


@symbols_of("eq:length-term")
def _(draw: Draw) -> Legend:
    ours, theirs = draw.uniform(6, low=3.0, high=40.0), draw.uniform(6, low=3.0, high=20.0)
    return {
        "i": range(6),
        "n_i": ours,
        "n'_i": theirs,
        r"\operatorname{std}(n - n')": (ours - theirs).std(),
        r"\tanh\frac{#}{#}": lambda a, b: torch.tanh(a / b),
        "t_i": st.length_term(ours, theirs),
    }


@symbols_of("eq:length-controlled-logit")
def _(draw: Draw) -> Legend:
    term, difficulty = draw.uniform(5, low=-0.9, high=0.9), draw.normal(5)
    chance = st.length_controlled_probability(term, difficulty, skill=0.4, liking=1.3, sensitivity=0.6)
    return {
        "i": range(5),
        "t_i": term,
        r"\gamma_i": difficulty,
        r"\theta": 0.4,
        r"\varphi": 1.3,
        r"\psi": 0.6,
        "P_i": chance,
    }


@symbols_of("eq:length-controlled-win-rate")
def _(draw: Draw) -> Legend:
    difficulty = draw.normal(5)
    rate = st.length_controlled_win_rate(difficulty, skill=0.4, sensitivity=0.6)
    return {"i": range(5), "N": 5, r"\gamma_i": difficulty, r"\theta": 0.4, r"\psi": 0.6, "W": rate}


@symbols_of("eq:controlled-gap")
def _(draw: Draw) -> Legend:
    s, g = draw.normal(7) + 0.8, draw.normal(7)
    even = torch.full((7,), 1 / 7, dtype=torch.float64)
    r = g + 0.5 * s
    return {
        r"\E": even,
        r"\Delta r": r,
        r"\Delta g": g,
        r"\Delta s": s,
        r"\operatorname{Cov}(\Delta r, \Delta s)": spread(even, r, s),
        r"\operatorname{Cov}(\Delta g, \Delta s)": spread(even, g, s),
        r"\operatorname{Var}(\Delta s)": spread(even, s, s),
        r"\hat\theta": equations.controlled_gap(r, s),
    }


@symbols_of("eq:style-content-kl")
def _(draw: Draw) -> Legend:
    p, q = draw.distribution(3, 2), draw.distribution(3, 2)
    p, q = p / 3, q * draw.distribution(3)[:, None]  # three styles, two replies in each
    p = p * torch.tensor([0.6, 1.5, 0.9], dtype=torch.float64)[:, None]
    style = torch.arange(3).repeat_interleave(2).double()
    of_style, of_content = equations.style_and_content(p.flatten().log(), q.flatten().log(), style)
    inside = [exact.divergence(a / a.sum(), b / b.sum()) for a, b in zip(p, q, strict=True)]
    return {
        "s": range(3),
        r"\pi(s)": p.sum(-1),
        r"\piref(s)": q.sum(-1),
        "K_s": torch.stack(inside),
        r"D_{\text{style}}": of_style,
        r"\KL(\pi\|\piref)": of_style + of_content,
    }


def wishes(draw: Draw) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Three wishes, five replies, and the chapter's symbols."""
    prior, probs = draw.distribution(3), draw.distribution(3, 5)
    known = equations.completion_information(prior, probs.log())
    return prior, probs, {"w": range(3), "y": range(5), "p(w)": prior, "I(W;Y)": known}


@symbols_of("eq:reply-information")
def _(draw: Draw) -> Legend:
    prior, probs, legend = wishes(draw)
    return legend | {r"\pi(y\mid w)": probs.T, r"\bar\pi(y)": prior @ probs}


@symbols_of("eq:information-budget")
def _(draw: Draw) -> Legend:
    prior, probs, legend = wishes(draw)
    ref = draw.distribution(5)
    spent = torch.stack([exact.divergence(row, ref) for row in probs])
    return legend | {
        r"\KL(\pi(\cdot\mid w)\|\piref)": spent,
        r"\KL(\bar\pi\|\piref)": exact.divergence(prior @ probs, ref),
    }


@symbols_of("eq:markup-odds")
def _(draw: Draw) -> Legend:
    ref, rewards = draw.distribution(6), draw.normal(6)
    marked = torch.tensor([1.0, 1, 0, 0, 0, 1], dtype=torch.float64)
    strength, liking = 1.4, 0.6
    logps = tilt(ref.log(), rewards + liking * marked, strength=strength)
    odds = equations.markup_odds(ref.log(), rewards, marked, liking=liking, strength=strength)
    earned = [(ref * has * (strength * rewards).exp()).sum() / (ref @ has) for has in (marked, 1 - marked)]
    plain = logps.exp() @ (1 - marked)
    return {
        r"\lambda": strength,
        "m": liking,
        r"\pi_\lambda(\text{list})": odds * plain,
        r"\pi_\lambda(\text{plain})": plain,
        r"\piref(\text{list})": ref @ marked,
        r"\piref(\text{plain})": ref @ (1 - marked),
        r"E_{\text{list}}": earned[0],
        r"E_{\text{plain}}": earned[1],
    }
