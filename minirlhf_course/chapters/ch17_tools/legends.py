"""Chapter 17: what the printed formulas are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from minirlhf_course.chapters.ch17_tools import equations
from minirlhf_course.ledger.formulas.legends import symbols_of
from minirlhf_course.ledger.registry import Draw

Legend = Mapping[str, Any]


# -- learning from turns -------------------------------------------------------------------------------------------


@symbols_of("eq:heard-gradient")
def _(draw: Draw) -> Legend:
    spoken, policy, advantages = draw.distribution(4), draw.distribution(4), draw.normal(4)
    got = equations.observation_gradient(spoken, policy, advantages)
    return {"o": range(4), "v": range(4), "P(o)": spoken, r"\pi(v)": policy, "A(o)": advantages,
            r"\frac{\partial J_{\text{heard}}}{\partial z_v}": got}  # fmt: skip


@symbols_of("eq:turn-return")
def _(draw: Draw) -> Legend:
    rewards, gamma = draw.normal(1, 4), float(draw.uniform(low=0.5, high=0.9))
    apart = torch.tensor([[True, False, True, False, True, False, True]])  # four turns of one token
    spread = torch.zeros(1, 7, dtype=torch.float64).masked_scatter(apart, rewards)
    got = equations.turn_returns(spread, apart, gamma=gamma)[apart]
    return {"k": range(4), "j": range(4), "K": 3, r"\gamma": gamma, "R_j": rewards[0], "G_k": got}


@symbols_of("eq:turn-advantage")
def _(draw: Draw) -> Legend:
    returns = draw.normal(3, 3)
    there = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 1, 1]])[draw.permutation(3)].bool()
    got = equations.turn_advantages(returns, there, num_generations=3)
    return {"i": range(3), "j": range(3), "k": range(3), "m_{j,k}": there.double(), "G_{i,k}": returns, "A_{i,k}": got}


# -- what a call and a check are worth -----------------------------------------------------------------------------


@symbols_of("eq:call-worth")
def _(draw: Draw) -> Legend:
    read, head = draw.uniform(3, low=0.6, high=0.95), draw.uniform(3, low=0.1, high=0.5)
    f, lie, c = (float(draw.uniform(low=low, high=low + 0.1)) for low in (0.1, 0.25, 0.05))
    got = equations.tool_call_value(read, head, fail=f, lie=lie, cost=c)
    return {"f": f, r"\ell": lie, "c": c, r"p_{\text{read}}": read, r"p_{\text{head}}": head, r"W_{\text{call}}": got}


@symbols_of("eq:check-worth")
def _(draw: Draw) -> Legend:
    read, fallback = draw.uniform(3, low=0.7, high=0.95), draw.uniform(3, low=0.2, high=0.5)
    lie, d, a, c = (float(draw.uniform(low=low, high=low + 0.1)) for low in (0.2, 0.6, 0.1, 0.02))
    got = equations.verification_value(read, fallback, lie=lie, caught=d, alarm=a, cost=c)
    return {r"\ell": lie, "d": d, "a": a, "c": c, r"p_{\text{read}}": read, "v": fallback, r"W_{\text{check}}": got}


# -- what is read --------------------------------------------------------------------------------------------------


def _talk(draw: Draw) -> dict[str, Any]:
    """Tokens of a prompt, of four turns and of what came after each, counted from 1 as on the page."""
    prompt, said, heard = draw.uniform(low=3, high=9), draw.uniform(4, low=1, high=5), draw.uniform(4, low=1, high=5)
    return {"n": prompt, "j": range(1, 5), "K": 4, "s_j": said, "e_j": heard}


@symbols_of("eq:tokens-read-again")
def _(draw: Draw) -> Legend:
    legend = _talk(draw)
    got = equations.prefill_tokens_without_cache(legend["n"], legend["s_j"], legend["e_j"])
    return legend | {"k": range(1, 5), r"N_{\text{again}}": got}


@symbols_of("eq:tokens-read-on")
def _(draw: Draw) -> Legend:
    legend = _talk(draw)
    return legend | {r"N_{\text{on}}": equations.prefill_tokens_with_cache(legend["n"], legend["e_j"])}
