"""Chapter 16: what the printed formulas are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from minirlhf.equations import reasoning
from minirlhf_course.chapters.ch16_reasoning import equations
from minirlhf_course.ledger.formulas.legends import not_evaluated, symbols_of
from minirlhf_course.ledger.registry import Draw

Legend = Mapping[str, Any]


# -- what a reward is made of ------------------------------------------------------------------------------------


@symbols_of("eq:format-reward")
def _(draw: Draw) -> Legend:
    formed = torch.tensor([True, False, True, False])
    grades, penalty = 1 + draw.uniform(4), float(draw.uniform(low=0.5, high=1.5))
    earned = equations.format_reward(grades, formed, penalty=penalty)
    return {"g": grades, "p": penalty, r"y\text{ is well formed}": formed, "r(y)": earned}


@symbols_of("eq:composite-reward")
def _(draw: Draw) -> Legend:
    parts, weights = draw.normal(5, 3), draw.uniform(3, low=0.3, high=0.9)
    earned = equations.composite_reward(parts, weights)
    return {"k": range(3), "w_k": weights, "r_k(y)": parts.T, "r(y)": earned}


def _lengths(draw: Draw) -> dict[str, Any]:
    """Right and wrong replies of several lengths."""
    longer = draw.integer(0, 2)
    return {"c": torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0, 0.0]).double(), "n": torch.tensor([3, 5, 9, 3, 5, 8]) + longer}


@symbols_of("eq:lcpo-exact")
def _(draw: Draw) -> Legend:
    legend, target, alpha = _lengths(draw), draw.integer(4, 6), float(draw.uniform(low=0.05, high=0.2))
    asked = torch.full((6,), target)
    got = equations.lcpo_exact(legend["c"], legend["n"], asked, alpha=alpha)
    return legend | {r"n_{\text{target}}": target, r"\alpha": alpha, r"r_{\text{exact}}": got}


@symbols_of("eq:lcpo-max")
def _(draw: Draw) -> Legend:
    legend, alpha = _lengths(draw), float(draw.uniform(low=0.2, high=0.3))
    budget = int(legend["n"][1]) + 1  # the shortest are clipped at 1, the longest at 0
    asked = torch.full((6,), budget)
    got = equations.lcpo_max(legend["c"], legend["n"], asked, alpha=alpha, offset=0.45)
    return legend | {r"n_{\max}": budget, r"\alpha": alpha, r"\delta": 0.45, r"r_{\max}": got}


@symbols_of("eq:kimi-length")
def _(draw: Draw) -> Legend:
    legend = _lengths(draw)
    n = legend["n"]
    got = equations.kimi_length_reward(legend["c"][None], n[None])[0]
    rank = 0.5 - (n - n.min()).double() / (n.max() - n.min())
    return legend | {r"n_{\min}": n.min(), r"n_{\max}": n.max(), r"\lambda": rank, r"r_{\text{length}}": got}


@symbols_of("eq:cosine-length")
def _(draw: Draw) -> Legend:
    n, limit = draw.permutation(8) + 1, 10
    a, b = (float(x) for x in draw.uniform(2, low=0.5, high=2.0))
    ends = {"right_first": a, "right_last": b, "wrong_first": a, "wrong_last": b}
    got = equations.cosine_length_reward(torch.ones(8).double(), n, max_completion_length=limit, exceeded=-3.0, **ends)
    return {"n": n, "L": limit, r"\pi": torch.pi, "a": a, "b": b, r"r_{\cos}": got}


not_evaluated("eq:repetition-penalty", "208a4dca8c10", "that a run of tokens has been said before is told in words")
not_evaluated("eq:majority-reward", "cadbff712a45", "an arg max over answers is no number; its check counts ballots")


# -- votes, and a reward from the vote ---------------------------------------------------------------------------


@symbols_of("eq:weighted-vote")
def _(draw: Draw) -> Legend:
    answers, weights = torch.tensor([0, 0, 1, 2, 1])[draw.permutation(5)], draw.uniform(5, low=0.1)
    return {"i": range(5), "a": range(3), "w_i": weights, "a_i": answers,
            "W(a)": torch.stack([reasoning.vote_totals(answers, weights)[answers == a][0] for a in range(3)])}  # fmt: skip


@symbols_of("eq:random-reward-push")
def _(draw: Draw) -> Legend:
    shares, moved = draw.distribution(3, scale=0.5), draw.uniform(2, low=0.35, high=0.6)
    old = torch.cat([shares[:2], shares[:2], 2 * shares[2:]]) / 2
    pi = old * torch.cat([1 - moved, 1 + moved, torch.ones(1)])
    got = equations.random_reward_gradient(pi, old, epsilon=0.2)
    return {"a": range(5), "y": range(5), r"\pi(a)": pi, r"\pi(y)": pi, r"\rho(y)": pi / old, r"\rho(a)": pi / old,
            r"\epsilon": 0.2, r"\frac{\partial J}{\partial z_a}": got}  # fmt: skip


@symbols_of("eq:compute-curve")
def _(draw: Draw) -> Legend:
    compute, at = draw.uniform(5, low=0.5, high=20.0), {"start": 0.2, "ceiling": 0.9, "exponent": 1.7, "midpoint": 6.0}
    got = reasoning.compute_curve(compute, **at)
    return {"C": compute, "R_0": 0.2, "A": 0.9, "B": 1.7, r"C_{\text{mid}}": 6.0, "R(C)": got}
