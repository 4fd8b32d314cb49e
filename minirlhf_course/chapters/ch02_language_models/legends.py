"""Chapter 2: what the printed formulas are made of."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import torch

from minirlhf.core import logprobs
from minirlhf.equations import language, transformer
from minirlhf_course.chapters.ch02_language_models import equations
from minirlhf_course.ledger.formulas.legends import not_evaluated, symbols_of
from minirlhf_course.ledger.registry import Draw

Legend = Mapping[str, Any]


def model(draw: Draw) -> tuple[Any, Any, dict[str, Any]]:
    """A small language model, all its responses (hidden, in the last axis), and the chapter's symbols for them."""
    toy = draw.toy(3, 3)
    responses, logps = toy.completions(), toy.completion_token_logps()[0].detach()
    n = responses.mask.shape[1]  # behind the end of a shorter response stand tokens of probability 1
    return toy, logps, {"t": range(1, n + 1), "n": n, r"\pi(y_t \mid x, y_{<t})": logps.exp().T}


@symbols_of("eq:chain-rule")
def _(draw: Draw) -> Legend:
    toy, _, legend = model(draw)
    batch = toy.batch()
    mask = torch.cat([torch.zeros_like(batch["mask"][:, :1]), batch["mask"]], 1)
    # The columns of the logits are the response tokens; the prompt's own id is never predicted.
    logits = toy(batch["input_ids"], batch["attention_mask"]).logits
    ids = batch["input_ids"].where(mask, torch.zeros(()).long())
    return legend | {r"\log \pi(y \mid x)": equations.completion_logp(logits, ids, mask).detach()}


@symbols_of("eq:token-logp")
def _(draw: Draw) -> Legend:
    logits, ids = draw.normal(1, 4, 5), torch.tensor([[0, 3, 1, 4]])
    logps = logprobs.token_logps(logits, ids, 0.7)[0]
    following = logits[0, torch.arange(3), ids[0, 1:]]
    legend = {"t": range(3), "u": range(5), r"\mathcal V": frozenset(range(5)), "T": 0.7, "z_{t,u}": logits[0, :3]}
    legend |= {r"z_{t,v_{t+1}}": following, r"T = 1 \text{ unless said otherwise.}": None}
    return legend | {r"\log \pi(v_{t+1} \mid v_{\le t})": logps}


@symbols_of("eq:nll")
def _(draw: Draw) -> Legend:
    toy, logps, legend = model(draw)
    p, pi = draw.distribution(len(logps)), logps.sum(-1).exp()
    legend |= {"p": p, "p(y)": p, r"\pi": pi, "H(p)": -(p * p.log()).sum()}
    return legend | {r"\mathcal{L}(y)": language.nll(logps, toy.completions().mask)}


@symbols_of("eq:perplexity")
def _(draw: Draw) -> Legend:
    logps = draw.logps(3, 5)
    ppl = language.perplexity(logps, torch.ones(3, 5, dtype=torch.bool))
    return {"t": range(1, 6), "n": 5, r"\pi(y_t \mid x, y_{<t})": logps.exp().T, r"\operatorname{PPL}(y)": ppl}


@symbols_of("eq:entropy")
def _(draw: Draw) -> Legend:
    toy, _, legend = model(draw)
    batch, pi = toy.batch(), toy.distribution()[0].detach()
    logits = toy(batch["input_ids"], batch["attention_mask"]).logits.detach()[:, :-1]
    entropies = logprobs.token_entropies(logits).where(batch["mask"], torch.zeros(()).double())
    # Behind the end nothing is chosen: probabilities of 1 have no entropy.
    probs = logits.softmax(-1).where(batch["mask"][..., None], torch.ones(()).double())  # (N, L, V)
    legend |= {"v": range(3), r"\pi(v \mid x, y_{<t})": probs.permute(2, 1, 0), "H_t": entropies.T, r"\pi(y)": pi}
    return legend | {r"H\big(\pi(\cdot \mid x)\big)": -(pi * pi.log()).sum()}


@symbols_of("eq:temperature")
def _(draw: Draw) -> Legend:
    z = draw.normal(5)
    softened = language.temperature_softmax(z, temperature=0.7)
    legend = {"u": range(5), "v": range(5), "z_v": z, "T": 0.7}
    return legend | {r"\pi(v)": z.softmax(-1), r"\pi_T(v)": softened}


@symbols_of("eq:entropy-temperature")
def _(draw: Draw) -> Legend:
    z = draw.normal(5)
    probs = (z / 0.7).softmax(-1)
    legend = {r"\operatorname{Var}_{\pi_T}(z)": probs @ (z - probs @ z).square(), "T": 0.7}
    return legend | {r"\frac{dH}{dT}": language.entropy_slope(z, temperature=0.7)}


# -- inside the model --------------------------------------------------------------------------------------------


@symbols_of("eq:rms-norm")
def _(draw: Draw) -> Legend:
    x, g = draw.normal(4) + 2.0, draw.uniform(4, low=0.5, high=2.0)
    legend = {"i": range(1, 5), "j": range(1, 5), "D": 4, "x_j": x, "g_i": g, r"\epsilon": 0.3}
    return legend | {r"\operatorname{norm}(x)_i": equations.rms_norm(x, g, eps=0.3)}


@symbols_of("eq:rotary-position")
def _(draw: Draw) -> Legend:
    x, t, W, b = draw.uniform(5, 6, low=0.5, high=2.0), 3, 6, 50.0
    legend = {"i": range(W // 2), "t": t, "W": W, "b": b, "x_i": x[t]}
    return legend | {"x'_i": equations.rotary(x, base=b)[t]}


@symbols_of("eq:attention", linear=True)
def _(draw: Draw) -> Legend:
    q, k, v = draw.normal(4, 3), draw.normal(4, 3), draw.normal(4, 2)
    legend = {"t": range(1, 5), "u": range(1, 5), "W": 3, "q_t": q, "k_u": k, "v_u": v}
    return legend | {"o_t": transformer.attention(q, k, v)}


# -- truncation --------------------------------------------------------------------------------------------------


def vocabulary(draw: Draw) -> tuple[Any, dict[str, Any]]:
    """Logits of five tokens and the chapter's symbols for their probabilities."""
    logits = draw.normal(5, scale=1.5)
    return logits, {"u": range(5), "v": range(5), r"\pi(v)": logits.softmax(-1)}


def kept(cut: torch.Tensor) -> frozenset[int]:
    """The tokens that truncation left."""
    return frozenset(torch.isfinite(cut).nonzero()[:, 0].tolist())


@symbols_of("eq:top-k")
def _(draw: Draw) -> Legend:
    logits, legend = vocabulary(draw)
    sets = [frozenset(s) for n in range(6) for s in itertools.combinations(range(5), n)]
    mass = lambda s: sum((legend[r"\pi(v)"][v] for v in s), torch.zeros(()).double())
    legend |= {"S": sets, "|S|": len, r"\pi(S)": mass, "k": 3}
    return legend | {"K": kept(language.top_k_logits(logits, top_k=3))}


not_evaluated("eq:top-p", "1acf2cb03937", "a rule in words about sets of sets")


@symbols_of("eq:min-p")
def _(draw: Draw) -> Legend:
    logits, legend = vocabulary(draw)
    return legend | {r"p_{\min}": 0.2, "K": kept(language.min_p_logits(logits, min_p=0.2))}


def truncated(draw: Draw) -> dict[str, Any]:
    """The three most probable of five tokens: the kept set, its mass, and what is sampled."""
    logits, legend = vocabulary(draw)
    cut = language.top_k_logits(logits, top_k=3)
    legend |= {"K": kept(cut), r"\pi(K)": language.retained_mass(logits, cut)}
    return legend | {r"\pi_{\mathrm{trunc}}(v)": cut.softmax(-1)}


symbols_of("eq:kept-mass")(truncated)
symbols_of("eq:truncated-logp")(truncated)
symbols_of("eq:kept-mass-identity", harmless={r"\pi ( K ) \le 2": "it is true as well"})(truncated)
