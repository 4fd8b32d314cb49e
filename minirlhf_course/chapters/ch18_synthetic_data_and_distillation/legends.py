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
from minirlhf.equations import kl
from minirlhf_course.chapters.ch18_synthetic_data_and_distillation import equations
from minirlhf_course.ledger.formulas.legends import not_evaluated, symbols_of
from minirlhf_course.ledger.registry import Draw

Legend = Mapping[str, Any]

not_evaluated(
    "eq:rouge-l",
    "ccb03513397f",
    "a longest common subsequence is found, not computed; its check tries all subsequences",
)


@symbols_of("eq:filter-precision")
def _(draw: Draw) -> Legend:
    s, a, b = (draw.uniform(low=0.2, high=0.8) for _ in range(3))
    return {"s": s, "a": a, "b": b, "s'": equations.filter_precision(s, a, b)}


def _density(x: Any) -> Tensor:
    x = torch.as_tensor(x, dtype=torch.float64)
    return (-(x**2) / 2).exp() / math.sqrt(2 * math.pi)


@symbols_of("eq:filter-gain")
def _(draw: Draw) -> Legend:
    rho, share = draw.uniform(low=0.2, high=0.8), draw.uniform(low=0.1, high=0.7)
    return {
        r"\rho": rho,
        r"\kappa": share,
        r"\Phi^{-1}(#)": lambda x: torch.special.ndtri(torch.as_tensor(x, dtype=torch.float64)),
        r"\varphi\big(#\big)": _density,
        r"\E[\,q \mid \text{kept}\,]": equations.filter_gain(rho, share),
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


@symbols_of("eq:soft-cross-entropy")
def _(draw: Draw) -> Legend:
    s, t, mask, legend = position(draw)
    return legend | {r"L_{\text{soft}}": kd.soft_cross_entropy(s, t, mask)[0, 0]}


@symbols_of("eq:kd-forward")
def _(draw: Draw) -> Legend:
    s, t, mask, legend = position(draw)
    return legend | {
        r"L_{\text{forward}}": kd.forward_kl_distillation(s, t, mask)[0, 0],
        r"L_{\text{soft}}": kd.soft_cross_entropy(s, t, mask)[0, 0],
        "H(p_T)": exact.entropy(legend["p_T"]),
        r"\KL(p_T\|p_S)": exact.divergence(legend["p_T"], legend["p_S"]),
    }


@symbols_of("eq:kd-reverse")
def _(draw: Draw) -> Legend:
    s, t, mask, legend = position(draw)
    return legend | {
        r"L_{\text{reverse}}": kd.reverse_kl_distillation(s, t, mask)[0, 0],
        r"\KL(p_S\|p_T)": exact.divergence(legend["p_S"], legend["p_T"]),
    }


@symbols_of("eq:kd-jsd")
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


def likeliest(draw: Draw) -> tuple[Tensor, Tensor, Tensor, Legend]:
    """Logits at one position whose last two of five tokens are the teacher's tail, the mask, and what the symbols are."""
    s, t = draw.normal(1, 1, 5), draw.normal(1, 1, 5).sort(-1, descending=True).values
    p_s, p_t = s.softmax(-1)[0, 0], t.softmax(-1)[0, 0]
    r_s, r_t = p_s[3:].sum(), p_t[3:].sum()
    return s, t, torch.ones(1, 1, dtype=torch.bool), {
        "v": range(5), "K": frozenset(range(3)),
        "U": frozenset({3, 4}), "p_S(v)": p_s, "p_T(v)": p_t, "r_S": r_s, "r_T": r_t,
        r"\tilde p_S(v)": p_s / r_s, r"\tilde p_T(v)": p_t / r_t,
    }  # fmt: skip


@symbols_of("eq:kd-top-k")
def _(draw: Draw) -> Legend:
    s, t, mask, legend = likeliest(draw)
    return {**legend, "L_k": kd.top_k_distillation(s, t, mask, k=3)[0, 0]}


@symbols_of("eq:kd-top-k-gap")
def _(draw: Draw) -> Legend:
    s, t, mask, legend = likeliest(draw)
    whole = kd.forward_kl_distillation(s, t, mask)[0, 0]
    return {**legend, "L_k": kd.top_k_distillation(s, t, mask, k=3)[0, 0], r"\KL(p_T\|p_S)": whole}


def two_models(draw: Draw) -> tuple[ToyLM, ToyLM, Tensor, Tensor, Tensor]:
    """Student, teacher, mask of all answers, and the student's and the teacher's logits along them."""
    student, teacher = draw.toy(2, 3), draw.toy(2, 3)
    batch = student.batch(0)
    return student, teacher, batch["mask"], student(**batch).logits[:, :-1], teacher(**batch).logits[:, :-1].detach()


def of_tokens(model: ToyLM, logits: Tensor, mask: Tensor) -> Tensor:
    """Log-probabilities of the answers' tokens, 0 behind their ends."""
    chosen = model.batch(0)["input_ids"][:, 1:].masked_fill(~mask, 0)[..., None]
    return torch.where(mask, logits.log_softmax(-1).gather(-1, chosen)[..., 0], 0.0)


@symbols_of("eq:sequence-kd")
def _(draw: Draw) -> Legend:
    student, teacher, mask, logits, _ = two_models(draw)
    probs = teacher.distribution()[0].detach()
    logps = of_tokens(student, logits, mask).detach()
    return {
        "t": range(1, mask.shape[1] + 1),
        r"\E_{\pi_T}": probs,
        r"\pi_S(y_t\mid y_{<t})": (-kd.sequence_level(logps, mask)).exp().T,
        r"\KL(\pi_T\|\pi_S)": exact.divergence(probs, student.distribution()[0].detach()),
        r"H(\pi_T)": exact.entropy(probs),
    }


@symbols_of("eq:prefix-credit")
def _(draw: Draw) -> Legend:
    student, _, mask, logits, said = two_models(draw)
    logps = of_tokens(student, logits, mask)
    apart = torch.where(mask, kl.reverse_kl(logits, said), 0.0)
    probs, steps = student.distribution()[0].detach(), range(1, mask.shape[1] + 1)
    whole = (probs * kl.with_prefix_credit(apart, logps, mask).sum(-1)).sum()
    return {
        r"\theta": student.table,
        "t": steps,
        "j": steps,
        r"\E_{\pi_S}": probs,
        "D_t": apart.T,
        r"\pi_S(y_t\mid y_{<t})": logps.exp().T,
        "J": whole,
    }


@symbols_of("eq:exposure-errors")
def _(draw: Draw) -> Legend:
    error, recovery = draw.uniform(low=0.1, high=0.4), draw.uniform(low=0.1, high=0.4)
    return {
        r"\varepsilon": error,
        r"\delta": recovery,
        "T": 5,
        r"\E[\text{errors}]": equations.compounded_errors(error, recovery, length=5),
    }


@symbols_of("eq:on-policy-distillation")
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


@symbols_of("eq:kd-mixture")
def _(draw: Draw) -> Legend:
    logits, weights, legend = hints(draw)
    return legend | {r"q_{\text{forward}}": equations.mixture_of_teachers(logits, weights)}


@symbols_of("eq:kd-product")
def _(draw: Draw) -> Legend:
    logits, weights, legend = hints(draw)
    mass = (weights[:, None] * logits.log_softmax(-1)).sum(0).exp().sum()
    return legend | {"Z": mass, r"q_{\text{reverse}}": equations.product_of_teachers(logits, weights)}


def generations(draw: Draw) -> dict[str, Any]:
    """Draws and generations."""
    return {"n": draw.integer(3, 9), "g": draw.integer(2, 5)}


@symbols_of("eq:collapse-replace")
def _(draw: Draw) -> Legend:
    legend, start = generations(draw), draw.uniform(low=0.3, high=0.9)
    kept = equations.diversity_retained(n=legend["n"], generation=legend["g"])
    return legend | {"D_0": start, r"\E[D_g]": kept * start}


@symbols_of("eq:support-kept")
def _(draw: Draw) -> Legend:
    probs, n = draw.distribution(4), draw.integer(2, 5)
    return {"v": range(4), "p(v)": probs, "n": n, r"\E[\text{seen}]": equations.support_retained(probs, n=n)}


@symbols_of("eq:collapse-accumulate")
def _(draw: Draw) -> Legend:
    legend = generations(draw)
    kept = equations.diversity_accumulated(n=legend["n"], generation=legend["g"])
    return legend | {"j": range(1, legend["g"] + 1), r"\frac{\E[D_g]}{D_0}": kept}


@symbols_of("eq:collapse-fresh")
def _(draw: Draw) -> Legend:
    legend, fresh = generations(draw), float(draw.uniform(low=0.2, high=0.6))
    n = legend["n"]
    A, B = (1 - fresh) ** 2, 1 - 1 / n
    kept = equations.diversity_retained(n=n, generation=legend["g"], fresh=fresh)
    return {"g": legend["g"], "A": A, "B": B, "d": B * (1 - A) / (1 - A * B), r"\frac{\E[D_g]}{D_0}": kept}


@symbols_of("eq:collapse-limit")
def _(draw: Draw) -> Legend:
    n = draw.integer(60, 120)
    return {r"\pi": math.pi, "n": n, r"\lim_{g\to\infty}\frac{\E[D_g]}{D_0}": equations.diversity_limit(n=n)}


@symbols_of("eq:gaussian-collapse")
def _(draw: Draw) -> Legend:
    n = draw.integer(4, 9)
    return {
        "n": n,
        r"\psi\Big(#\Big)": lambda x: torch.digamma(torch.as_tensor(x, dtype=torch.float64)),
        r"\E\Big[\log\frac{s^2}{\sigma^2}\Big]": equations.log_variance_drift(n=n),
    }
