"""Chapter 5: what the printed formulas are made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from minirlhf.equations import machines, rlhf
from minirlhf_course.chapters.ch05_rlhf_problem import equations
from minirlhf_course.ledger.formulas.legends import not_evaluated, symbols_of
from minirlhf_course.ledger.inputs.printed import world
from minirlhf_course.ledger.registry import Draw

Legend = Mapping[str, Any]

not_evaluated(
    "eq:token-mdp", "487c3c999c4a", "it says what a state, an action and a reward are; there is nothing to compare"
)


def problem(draw: Draw) -> tuple[Tensor, Tensor, Tensor, float, dict[str, Any]]:
    """A policy, a reference and rewards over five answers, β, and the chapter's symbols for them."""
    pi, ref, r, beta = (
        draw.distribution(5),
        draw.distribution(5),
        draw.normal(5),
        float(draw.uniform(low=0.4, high=0.8)),
    )
    legend: dict[str, Any] = {
        "y": range(5),
        r"\pi": pi,
        r"\pi(y)": pi,
        r"\piref": ref,
        r"\piref(y)": ref,
        "r": r,
        "r(y)": r,
    }
    best = rlhf.optimal_logps(ref.log(), r, beta=beta).exp()
    legend |= {
        r"\beta": beta,
        "Z": rlhf.log_partition(ref.log(), r, beta=beta).exp(),
        r"\pi^*": best,
        r"\pi^*(y)": best,
    }
    return pi.log(), ref.log(), r, beta, legend


@symbols_of("eq:rlhf-objective")
def _(draw: Draw) -> Legend:
    pi, ref, r, beta, legend = problem(draw)
    legend |= {"r(x,y)": r, r"\pi(\cdot\mid x)": pi.exp(), r"\pi(y\mid x)": pi.exp(), r"\piref(\cdot\mid x)": ref.exp()}
    return legend | {r"J(\pi)": equations.rlhf_objective(pi, ref, r, beta=beta)}


@symbols_of("eq:token-bandit")
def _(draw: Draw) -> Legend:
    w, beta = world(draw), 0.7
    earned = rlhf.regularised_return(w.logps, w.ref_logps, w.rewards, w.mask, beta=beta)
    value = equations.rlhf_objective(w.probs.log(), w.ref_logps.sum(-1), w.rewards, beta=beta)
    return w.legend | {"|y|": w.mask.shape[1], r"\beta": beta, "R(y)": earned, r"J(\pi)": value}


@symbols_of("eq:partition")
def _(draw: Draw) -> Legend:
    return problem(draw)[-1]


@symbols_of("eq:rlhf-regrouped")
def _(draw: Draw) -> Legend:
    pi, ref, r, beta, legend = problem(draw)
    return legend | {r"J(\pi)": equations.regrouped_objective(pi, ref, r, beta=beta)}


@symbols_of("eq:rlhf-divergence-form")
def _(draw: Draw) -> Legend:
    pi, ref, r, beta, legend = problem(draw)
    return legend | {r"J(\pi)": equations.objective_from_optimum(pi, ref, r, beta=beta)}


@symbols_of("eq:gibbs")
def _(draw: Draw) -> Legend:
    pi, ref, _, _, legend = problem(draw)
    return legend | {"q": ref.exp(), "q(y)": ref.exp(), r"\KL(\pi\|q)": equations.gibbs_terms(pi, ref).sum()}


@symbols_of("eq:rlhf-optimum")
def _(draw: Draw) -> Legend:
    return problem(draw)[-1]


@symbols_of("eq:rlhf-optimal-value")
def _(draw: Draw) -> Legend:
    _, ref, r, beta, legend = problem(draw)
    return legend | {r"J(\pi^*)": rlhf.optimal_value(ref, r, beta=beta)}


@symbols_of("eq:implicit-reward")
def _(draw: Draw) -> Legend:
    _, ref, _, beta, legend = problem(draw)
    solved = rlhf.implicit_reward(legend[r"\pi^*"].log(), ref, beta=beta) + beta * legend["Z"].log()
    return legend | {
        "r(x,y)": solved,
        "Z(x)": legend["Z"],
        r"\pi^*(y\mid x)": legend[r"\pi^*"],
        r"\piref(y\mid x)": ref.exp(),
    }


@symbols_of("eq:kl-budget", tolerance=1e-8)
def _(draw: Draw) -> Legend:
    _, ref, r, _, legend = problem(draw)
    beta = rlhf.beta_for_kl(ref, r, budget=0.1)
    return legend | {r"\kappa": 0.1, r"\pi^*_\beta": rlhf.optimal_logps(ref, r, beta=beta).exp()}


@symbols_of("eq:frontier-slope")
def _(draw: Draw) -> Legend:
    _, ref, r, value, _ = problem(draw)
    beta = torch.tensor(value, dtype=torch.float64, requires_grad=True)
    best = (ref + r / beta).softmax(-1)
    gain, cost = rlhf.frontier_rates(ref, r, beta=value)
    legend = {r"\beta": beta, "r": r, r"\pi^*_\beta": best, r"\E": best, r"\KL": (best * (best.log() - ref)).sum()}
    legend |= {r"\frac{d}{d\beta}\E_{\pi^*_\beta}[r]": gain, r"\frac{d}{d\beta}\KL(\pi^*_\beta\|\piref)": cost}
    return legend | {r"\text{hence}": None}


@symbols_of("eq:token-gradient")
def _(draw: Draw) -> Legend:
    w, beta = world(draw), 0.7
    inputs = (w.logps.detach(), w.ref_logps, w.rewards, w.mask)
    to_go = rlhf.regularised_return_to_go(*inputs, beta=beta).where(w.mask, w.rewards[:, None])
    value = equations.rlhf_objective(w.probs.log(), w.ref_logps.sum(-1), w.rewards, beta=beta)
    return w.legend | {
        r"\beta": beta,
        "R(y)": rlhf.regularised_return(*inputs, beta=beta),
        "G_t": to_go.T,
        "J": value,
    }


@symbols_of("eq:soft-bellman")
def _(draw: Draw) -> Legend:
    ref, Q, beta = draw.distribution(3), draw.normal(3), 0.7
    best = rlhf.optimal_logps(ref.log(), Q, beta=beta).exp()
    legend = {"a": range(3), r"\beta": beta, r"\piref(a\mid s)": ref, "Q^*(s,a)": Q, r"\pi^*(a\mid s)": best}
    return legend | {"V^*(s)": rlhf.optimal_value(ref.log(), Q, beta=beta)}


# -- the page on many machines -------------------------------------------------------------------------------------


@symbols_of("eq:sharded-memory")
def _(draw: Draw) -> Legend:
    parameters, count = draw.uniform(low=1.0, high=9.0), draw.integer(3, 9)
    held = {f"M_{s}": machines.training_bytes(parameters, machines=count, stage=s) for s in range(4)}
    return held | {r"\psi": parameters, "N": count}


@symbols_of("eq:ring-all-reduce")
def _(draw: Draw) -> Legend:
    volume, count = draw.uniform(low=1.0, high=9.0), draw.integer(3, 9)
    return {"V": volume, "N": count, "B": machines.all_reduce_bytes(volume, machines=count)}


@symbols_of("eq:pipeline-bubble")
def _(draw: Draw) -> Legend:
    p, m = draw.integer(2, 5), draw.integer(6, 20)
    seconds = {"f": draw.uniform(low=0.5, high=1.0), "b": draw.uniform(low=1.0, high=2.0)}
    return seconds | {"p": p, "m": m, r"\text{waiting}": machines.pipeline_bubble(p, m)}


@symbols_of("eq:longest-reply")
def _(draw: Draw) -> Legend:
    n = draw.integer(4, 20)
    return {"k": range(1, n + 1), "n": n, "H_n": machines.expected_max_over_mean(n)}


@symbols_of("eq:split-machines")
def _(draw: Draw) -> Legend:
    sampling, training, count = draw.uniform(low=1.0, high=9.0), draw.uniform(low=10.0, high=30.0), draw.integer(4, 9)
    return {"S": sampling, "U": training, "N": count, "x^*": machines.sampling_share(sampling, training)}


@symbols_of("eq:effective-share")
def _(draw: Draw) -> Legend:
    spread, tokens = draw.uniform(low=0.1, high=0.3), draw.integer(5, 12)
    scale = draw.uniform(low=1.5, high=2.5)  # the share does not change if all weights are multiplied
    return {
        r"\sigma": spread,
        "T": tokens,
        r"\E_\mu[w]": scale,
        r"\E_\mu[w^2]": scale**2 * math.exp(tokens * float(spread) ** 2),
        r"\text{left}": machines.effective_share(spread, tokens=tokens),
    }
