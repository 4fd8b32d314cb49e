"""Chapter 24: the symbols of the printed formulas."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from minirlhf_course.chapters.ch24_oversight import debate, monitors, weak
from minirlhf_course.ledger.formulas.legends import symbols_of
from minirlhf_course.ledger.registry import Draw

Legend = Mapping[str, Any]


@symbols_of("eq:monitored-optimum")
def _(draw: Draw) -> Legend:
    ref, rewards, flags = draw.distribution(4), draw.uniform(4), draw.uniform(4, low=0.05, high=0.95)
    fine, beta = float(draw.uniform(low=0.5, high=1.5)), float(draw.uniform(low=0.4, high=0.9))
    return {
        "y": range(4),
        r"\piref(y)": ref,
        "r(y)": rewards,
        "d(y)": flags,
        r"\lambda": fine,
        r"\beta": beta,
        "Z": (ref * ((rewards - fine * flags) / beta).exp()).sum(),
        r"\pi^*(y)": monitors.monitored_policy(ref.log(), rewards, flags, fine=fine, beta=beta).exp(),
    }


@symbols_of("eq:hide-odds")
def _(draw: Draw) -> Legend:
    ref, flags = draw.distribution(3), draw.uniform(3, low=0.1, high=0.9)
    fine, beta = float(draw.uniform(low=0.5, high=1.5)), float(draw.uniform(low=0.4, high=0.9))
    policy = monitors.monitored_policy(
        ref.log(), torch.tensor([0.3, 1.0, 1.0], dtype=torch.float64), flags, fine=fine, beta=beta
    )
    odds = monitors.silence_log_odds(ref[1:].log(), flags[1:], fine=fine, beta=beta)
    return {
        r"\piref(S)": ref[1],
        r"\piref(Q)": ref[2],
        "d_S": flags[1],
        "d_Q": flags[2],
        r"\lambda": fine,
        r"\beta": beta,
        r"\pi^*(S)": policy[1].exp(),
        r"\pi^*(Q)": policy[1].exp() * odds.exp(),
    }


@symbols_of("eq:stopping-fine")
def _(draw: Draw) -> Legend:
    cheat, beta = draw.uniform(low=0.1, high=0.4), 0.15
    ref = torch.stack([1 - cheat, cheat])
    flags = torch.stack([draw.uniform(low=0.02, high=0.2), draw.uniform(low=0.4, high=0.9)])
    return {
        r"\piref(H)": ref[0],
        r"\piref(Q)": ref[1],
        "d_H": flags[0],
        "d_Q": flags[1],
        "g": 0.7,
        r"\beta": beta,
        r"\lambda^*": monitors.stopping_fine(ref.log(), flags, gain=0.7, beta=beta),
    }


@symbols_of("eq:obfuscation-limit")
def _(draw: Draw) -> Legend:
    ref, beta = draw.distribution(2), float(draw.uniform(low=0.4, high=0.9))
    return {
        r"\piref(H)": ref[0],
        r"\piref(Q)": ref[1],
        "g": 0.4,
        r"\beta": beta,
        r"c_\infty": monitors.obfuscated_share(ref.log(), gain=0.4, beta=beta),
    }


@symbols_of("eq:time-to-hide")
def _(draw: Draw) -> Legend:
    share, rate = float(draw.uniform(low=0.05, high=0.3)), float(draw.uniform(low=0.5, high=2.0))
    return {
        "o": share / (1 - share),
        r"\eta": rate,
        "g": 0.4,
        "T": monitors.steps_to_majority(share, gain=0.4, rate=rate),
    }


@symbols_of("eq:weak-to-strong")
def _(draw: Draw) -> Legend:
    inside, outside = float(draw.uniform(low=0.2, high=0.8)), float(draw.uniform(low=0.5, high=1.2))
    supervisor, student = weak.linear_accuracies(inside=inside, outside=outside)
    return {
        r"\arctan\sqrt{#}": lambda x: torch.atan(torch.as_tensor(x, dtype=torch.float64).sqrt()),
        r"\arctan s_\parallel": math.atan(math.sqrt(inside)),
        r"\pi": math.pi,
        r"s_\parallel": math.sqrt(inside),
        r"s_\perp": math.sqrt(outside),
        r"a_{\text{weak}}": supervisor,
        r"a_{\text{student}}": student,
    }


@symbols_of("eq:noisy-labels")
def _(draw: Draw) -> Legend:
    labels, error = 200.0, float(draw.uniform(low=0.1, high=0.4))
    return {"n": labels, r"\varepsilon": error, r"n_{\text{true}}": weak.equivalent_labels(labels, error=error)}


@symbols_of("eq:debate-value")
def _(draw: Draw) -> Legend:
    honest, liar = float(draw.uniform(low=0.6, high=0.9)), float(draw.uniform(low=0.6, high=0.9))
    if draw.integer(0, 1):  # the second AND is true, so the root is: the honest debater's turn, below it the liar's
        bits, below, turn = [0.0, 1.0, 1.0, 1.0], [1 - liar, 1.0], honest
    else:  # both ANDs are false, so the root is: the liar's turn, below it the honest debater's
        bits, below, turn = [0.0, 1.0, 0.0, 0.0], [honest, 1.0], 1 - liar
    return {
        "c": range(2),
        "W(c)": torch.tensor(below, dtype=torch.float64),
        "q_v": turn,
        "W(v)": debate.debate_value(torch.tensor(bits, dtype=torch.float64), honest=honest, liar=liar),
    }


@symbols_of("eq:debate-skill")
def _(draw: Draw) -> Legend:
    honest = float(draw.uniform(low=0.55, high=0.9))
    values = debate.debate_value(debate.all_inputs(4), honest=honest)
    return {"x": range(len(values)), "W(x)": values, "q": honest, "d": 4, "b": debate.skill_bound(4, honest=honest)}
