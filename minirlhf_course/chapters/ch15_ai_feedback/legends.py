"""Chapter 15: what the printed formulas are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from minirlhf.equations import ai_feedback
from minirlhf_course.chapters.ch15_ai_feedback import equations
from minirlhf_course.ledger.formulas.legends import symbols_of
from minirlhf_course.ledger.registry import Draw

Legend = Mapping[str, Any]


# -- judges ------------------------------------------------------------------------------------------------------


@symbols_of("eq:letter-preference")
def _(draw: Draw) -> Legend:
    logits = draw.normal(3, 5)
    return {
        r"z_{\text{A}}": logits[:, 1],
        r"z_{\text{B}}": logits[:, 3],
        r"p(\text{A})": equations.letter_preference(logits, first=1, second=3),
    }


@symbols_of("eq:constitutional-preference")
def _(draw: Draw) -> Legend:
    chances = torch.tensor([0.05, 0.3, 0.55, 0.97], dtype=torch.float64)[draw.permutation(4)]
    return {
        "k": range(1, 5),
        "K": 4,
        "p_k": chances,
        "c": 0.2,
        r"\bar p": equations.constitutional_preference(chances, clamp=0.2),
    }


def leans(draw: Draw) -> dict[str, Any]:
    """Two leans, and what they say of replies and places."""
    given, exchanged = draw.normal(3), draw.normal(3)
    d, b = ai_feedback.split_position_bias(given, exchanged)
    return {r"\ell_1": given, r"\ell_2": exchanged, "d": d, "b": b}


@symbols_of("eq:both-orders")
def _(draw: Draw) -> Legend:
    return {name: value for name, value in leans(draw).items() if name != "b"}


@symbols_of("eq:place-bias")
def _(draw: Draw) -> Legend:
    return {name: value for name, value in leans(draw).items() if name != "d"}


def swaps(draw: Draw) -> tuple[dict[str, Any], tuple[Tensor, Tensor]]:
    """A difference, a liking for the first place, and the outcomes of the swap test."""
    d, b = draw.uniform(3, low=0.3, high=1.5), draw.uniform(3, low=0.4, high=2.0)
    return {"d": d, "b": b}, equations.swap_outcomes(d, b)


@symbols_of("eq:swap-right")
def _(draw: Draw) -> Legend:
    legend, (right, _) = swaps(draw)
    return legend | {r"P_{\text{right}}": right}


@symbols_of("eq:swap-wrong")
def _(draw: Draw) -> Legend:
    legend, (_, wrong) = swaps(draw)
    return legend | {r"P_{\text{wrong}}": wrong}


@symbols_of("eq:self-preference")
def _(draw: Draw) -> Legend:
    rows = draw.permutation(8)
    gold = torch.tensor([1, 1, 1, 1, 1, 0, 0, 0]).double()[rows]
    own = torch.tensor([1, 1, 1, 0, 0, 1, 0, 0]).double()[rows]
    judged = draw.uniform(8, low=0.1, high=0.9)
    return {
        "i": range(8),
        "v_i": judged,
        "g_i": gold,
        "o_i": own,
        "s": equations.self_preference(judged, gold, own),
    }


@symbols_of("eq:meta-judge")
def _(draw: Draw) -> Legend:
    p, t, f = (
        draw.uniform(3, low=0.3, high=0.8),
        draw.uniform(3, low=0.6, high=0.95),
        draw.uniform(3, low=0.1, high=0.5),
    )
    return {"p": p, "t": t, "f": f, "p'": equations.meta_judge_precision(p, t, f)}


@symbols_of("eq:knockout")
def _(draw: Draw) -> Legend:
    upper = draw.uniform(4, 4, low=0.1, high=0.9).triu(1)
    wins = upper + (1 - upper.mT).tril(-1)
    halves = torch.cat([equations.knockout(wins[:2, :2]), equations.knockout(wins[2:, 2:])])
    return {
        "i": range(2),
        "j": range(4),
        "O": frozenset({2, 3}),
        "h_i": halves,
        "p_{ij}": wins,
        "P(i)": equations.knockout(wins),
    }


# -- rubrics, revisions, groups ----------------------------------------------------------------------------------


def rubric(draw: Draw) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One reply: which items it meets, their weights, and the judge's two kinds of error."""
    met = draw.uniform(4, low=0.2, high=0.9)
    return (
        met,
        draw.uniform(4, low=0.5, high=3.0),
        draw.uniform(4, low=0.1, high=0.2),
        draw.uniform(4, low=0.3, high=0.5),
    )


@symbols_of("eq:rubric-reward")
def _(draw: Draw) -> Legend:
    met, weights, *_ = rubric(draw)
    return {"k": range(4), "w_k": weights, "c_k": met, "r": equations.rubric_reward(met, weights)}


@symbols_of("eq:rubric-mean")
def _(draw: Draw) -> Legend:
    met, weights, miss, invent = rubric(draw)
    mean, _ = equations.rubric_noise(met, weights, miss=miss, invent=invent)
    return {"k": range(4), "w_k": weights, "c_k": met, "m_k": miss, "v_k": invent, r"\mu": mean}


@symbols_of("eq:rubric-variance")
def _(draw: Draw) -> Legend:
    met, weights, miss, invent = rubric(draw)
    _, variance = equations.rubric_noise(met, weights, miss=miss, invent=invent)
    seen = met * (1 - miss) + (1 - met) * invent
    return {"k": range(4), "w_k": weights, "q_k": seen, "s": variance.sqrt()}


@symbols_of("eq:flaws-left")
def _(draw: Draw) -> Legend:
    n, principles = draw.integer(2, 4), draw.integer(3, 6)
    start, repair = float(draw.uniform(low=0.6, high=0.9)), float(draw.uniform(low=0.4, high=0.8))
    harm = float(draw.uniform(low=0.1, high=0.2))
    left = equations.remaining_flaws(start=start, rounds=n, principles=principles, repair=repair, harm=harm)
    return {"f_n": left, "f_0": start, "n": n, "K": principles, "q": repair, "h": harm}


@symbols_of("eq:group-consensus")
def _(draw: Draw) -> Legend:
    votes = torch.tensor([float(draw.integer(9, 12)), float(draw.integer(5, 8)), 4.0]).double()
    agrees = torch.tensor([float(draw.integer(2, 4)), float(draw.integer(2, 4)), 3.0]).double()
    return {"g": range(3), "a_g": agrees, "n_g": votes, "G": equations.group_consensus(agrees, votes)}


# -- what labels are worth ---------------------------------------------------------------------------------------


def prices(draw: Draw) -> tuple[dict[str, float], dict[str, float]]:
    """Prices and information of both kinds of labels, as arguments and as signs."""
    cost, information = float(draw.uniform(low=2.0, high=5.0)), float(draw.uniform(low=0.1, high=0.2))
    ai_cost, ai_information = float(draw.uniform(low=0.1, high=0.3)), float(draw.uniform(low=0.15, high=0.25))
    given = {"cost": cost, "information": information, "ai_cost": ai_cost, "ai_information": ai_information}
    return given, {"c_h": cost, "I_h": information, "c_a": ai_cost, "I_a": ai_information}


@symbols_of("eq:label-error")
def _(draw: Draw) -> Legend:
    budget, bias = draw.uniform(3, low=5.0, high=20.0), draw.uniform(3, low=0.4, high=1.5)
    cost, information = float(draw.uniform(low=2.0, high=5.0)), float(draw.uniform(low=0.1, high=0.2))
    error = equations.label_error(budget, bias, cost=cost, information=information)
    return {"C": budget, "b": bias, "c": cost, "I": information, "e": error}


@symbols_of("eq:label-crossover")
def _(draw: Draw) -> Legend:
    given, legend = prices(draw)
    bias = draw.uniform(3, low=0.4, high=1.5)
    return legend | {"b": bias, "C^*": equations.label_crossover(bias, **given)}


@symbols_of("eq:mixed-labels")
def _(draw: Draw) -> Legend:
    variance, error = draw.uniform(3, low=0.5, high=2.0), draw.uniform(3, low=0.5, high=2.0)
    return {"v": variance, "e": error, r"e_{\text{mix}}": equations.mixed_error(variance, error)}


@symbols_of("eq:ai-budget")
def _(draw: Draw) -> Legend:
    given, signs = prices(draw)
    bias = float(draw.uniform(low=0.5, high=0.9))
    budgets = torch.tensor([1.0, 60.0], dtype=torch.float64)
    found = [equations.ai_budget(budget, bias=bias, **given) for budget in budgets.tolist()]
    k_h, k_a = signs["I_h"] / signs["c_h"], signs["I_a"] / signs["c_a"]
    return {"C": budgets, "b": bias, "k_h": k_h, "k_a": k_a, "C_a": torch.tensor(found, dtype=torch.float64)}
