"""Chapter 9: what the printed formulas are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.equations import kl, rlhf
from minirlhf_course.chapters.ch09_regularisation import equations
from minirlhf_course.ledger.formulas.legends import symbols_of
from minirlhf_course.ledger.inputs.printed import world
from minirlhf_course.ledger.registry import Draw

Legend = Mapping[str, Any]


def two(draw: Draw) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """π, differentiable, and π_ref over four replies, and the chapter's symbols for them; ``y`` runs."""
    leaf, q = draw.normal(4).requires_grad_(), draw.distribution(4)
    p = leaf.softmax(-1)
    return p, q, {r"\theta": leaf, "y": range(4), r"\pi": p, r"\pi(y)": p, r"\piref": q, r"\piref(y)": q}


def still(draw: Draw) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """The same without gradients."""
    p, q, legend = two(draw)
    p = p.detach()
    return p, q, legend | {r"\pi": p, r"\pi(y)": p}


def sampled(draw: Draw) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """The same, with replies as outcomes that no index counts."""
    p, q, legend = still(draw)
    return p, q, {name: value for name, value in legend.items() if name not in ("y", r"\theta")}


# -- two directions ----------------------------------------------------------------------------------------------


@symbols_of("eq:reverse-kl")
def _(draw: Draw) -> Legend:
    p, q, legend = still(draw)
    return legend | {r"\KL(\pi\|\piref)": kl.reverse_kl(p.log(), q.log())}


@symbols_of("eq:forward-kl")
def _(draw: Draw) -> Legend:
    p, q, legend = still(draw)
    return legend | {r"\KL(\piref\|\pi)": kl.forward_kl(p.log(), q.log()), r"H(\piref)": exact.entropy(q)}


@symbols_of("eq:generalised-jsd")
def _(draw: Draw) -> Legend:
    p, q, legend = sampled(draw)
    b = float(draw.away_from([0.5], low=0.1, high=0.9, margin=0.1))
    return legend | {"b": b, r"D_b(\piref,\pi)": kl.generalised_jsd(p.log(), q.log(), beta=b)}


@symbols_of("eq:js-divergence")
def _(draw: Draw) -> Legend:
    p, q, legend = sampled(draw)
    return legend | {r"\operatorname{JS}(\piref,\pi)": equations.js_divergence(p.log(), q.log())}


@symbols_of("eq:f-divergence")
def _(draw: Draw) -> Legend:
    p, q, legend = still(draw)
    found = kl.f_divergence(kl.f_jensen_shannon, p.log(), q.log())
    return legend | {"f(#)": lambda t: kl.f_jensen_shannon(t.log()), r"D_f(\pi\|\piref)": found}


def generator(f: Callable[..., Tensor], **settings: float) -> Callable[[Draw], Legend]:
    """The legend of one f, on both sides of 1."""

    def build(draw: Draw) -> Legend:
        t = draw.away_from([1.0], 6, low=0.2, high=3.0, margin=0.1)
        return {"t": t, "f(t)": f(t.log(), **settings)} | {rf"\{name}": value for name, value in settings.items()}

    return build


symbols_of("eq:f-reverse-kl")(generator(kl.f_reverse_kl))
symbols_of("eq:f-forward-kl")(generator(kl.f_forward_kl))
symbols_of("eq:f-jensen-shannon")(generator(kl.f_jensen_shannon))
symbols_of("eq:f-alpha")(generator(kl.f_alpha, alpha=0.3))
symbols_of("eq:f-chi-squared")(generator(kl.f_chi_squared))
symbols_of("eq:f-total-variation")(generator(kl.f_total_variation))

# -- a KL from samples -------------------------------------------------------------------------------------------


@symbols_of("eq:k1")
def _(draw: Draw) -> Legend:
    p, q, legend = sampled(draw)
    return legend | {"k_1": kl.k1(p.log(), q.log())}


@symbols_of("eq:k3-zero-mean", harmless={r"\frac { \pi ( y ) } { \pi ( y ) }": "one less one is 0 as well"})
def _(draw: Draw) -> Legend:
    p, q, legend = still(draw)
    return legend | {"q": 1 + equations.ratio_minus_one(p.log(), q.log())}


@symbols_of("eq:k3-control-variate", harmless={"k _ 1 - w": "any weight will do, a negative one too"})
def _(draw: Draw) -> Legend:
    p, q, legend = sampled(draw)
    weight = float(draw.uniform(low=0.4, high=1.6))
    family = equations.k1_with_control_variate(p.log(), q.log(), weight=weight)
    return legend | {"k_1": family - weight * (q / p - 1), "q": q / p, "w": weight}


@symbols_of("eq:k3")
def _(draw: Draw) -> Legend:
    p, q, _ = sampled(draw)
    return {"q": q / p, "k_3": kl.k3(p.log(), q.log())}


@symbols_of("eq:k3-nonnegative")
def _(draw: Draw) -> Legend:
    u = float(draw.away_from([0.0], low=-1.5, high=1.5, margin=0.4))
    zero = torch.zeros((), dtype=torch.float64)
    integral = exact.integrate(lambda s: (u - s) * s.exp(), 0.0, u, nodes=20)
    return {"k_3": kl.k3(zero, zero + u), r"\int_0^u(u-s)e^sds": integral}


@symbols_of("eq:k2")
def _(draw: Draw) -> Legend:
    p, q, legend = sampled(draw)
    return legend | {"k_2": kl.k2(p.log(), q.log())}


@symbols_of("eq:gaussian-estimators")
def _(draw: Draw) -> Legend:
    delta = -draw.uniform(low=0.5, high=1.5)
    bias, deviation = equations.gaussian_estimators(delta)
    legend: dict[str, Any] = {r"\delta": delta}
    for k in range(3):
        legend |= {rf"\operatorname{{bias}}(k_{k + 1})": bias[k], rf"\operatorname{{sd}}(k_{k + 1})": deviation[k]}
    return legend


@symbols_of("eq:full-kl")
def _(draw: Draw) -> Legend:
    policy, reference = draw.toy(3, 3), draw.toy(3, 3)
    batch = policy.batch(0)
    logits, ref_logits = (lm(**batch).logits[:, :-1].detach() for lm in (policy, reference))
    spent = torch.where(batch["mask"], exact.divergence(logits.softmax(-1), ref_logits.softmax(-1)), 0.0)  # (N, T)
    p, q = policy.distribution()[0].detach(), reference.distribution()[0].detach()
    return {
        "t": range(1, spent.shape[1] + 1),
        r"\pi(y)": p,
        r"\pi": p,
        r"\piref": q,
        r"\KL(\pi(\cdot\mid y_{<t})\|\piref(\cdot\mid y_{<t}))": spent.T,
        r"\KL(\pi\|\piref)": (p * kl.full_kl(logits, ref_logits, batch["mask"])).sum(),
    }


# -- in the reward, in the loss, in both -------------------------------------------------------------------------


@symbols_of("eq:estimator-gradient")
def _(draw: Draw) -> Legend:
    p, q, legend = two(draw)
    return legend | {"k(y)": kl.k3(p.log(), q.log())}


@symbols_of("eq:k3-gradient")
def _(draw: Draw) -> Legend:
    p, q, legend = two(draw)
    return legend | {"k_3": kl.k3(p.log(), q.log()), "q": (q / p).detach()}


@symbols_of("eq:full-kl-gradient")
def _(draw: Draw) -> Legend:
    policy, reference = draw.toy(2, 3), draw.toy(2, 3)
    batch = policy.batch(0)
    mask = batch["mask"]
    logits, ref_logits = policy(**batch).logits[:, :-1], reference(**batch).logits[:, :-1].detach()
    chosen = batch["input_ids"][:, 1:].masked_fill(~mask, 0)[..., None]
    logps = torch.where(mask, logits.log_softmax(-1).gather(-1, chosen)[..., 0], 0.0)
    spent = torch.where(mask, kl.reverse_kl(logits, ref_logits), 0.0)
    probs, steps = policy.distribution()[0].detach(), range(1, mask.shape[1] + 1)
    whole = (probs * kl.full_kl_with_score(logits, ref_logits, logps, mask)).sum()
    return {
        r"\theta": policy.table,
        "t": steps,
        "j": steps,
        r"\E_\pi": probs,
        r"\KL_t": spent.T,
        r"\pi(y_t\mid y_{<t})": logps.exp().T,
        r"\KL(\pi\|\piref)": whole,
    }


@symbols_of("eq:kl-in-reward")
def _(draw: Draw) -> Legend:
    w = world(draw)
    return w.legend | {
        r"\beta": 0.7,
        r"\E_\pi": w.probs,
        "k_1(y_t)": kl.k1(w.logps, w.ref_logps).detach().T,
    }


# -- where it comes to rest --------------------------------------------------------------------------------------


@symbols_of("eq:forward-kl-optimum", harmless={r"\lambda > \min": "what is above the largest is above the smallest"})
def _(draw: Draw) -> Legend:
    ref, rewards, beta = draw.distribution(4), draw.normal(4), float(draw.uniform(low=0.6, high=1.5))
    law = equations.forward_kl_optimal_logps(ref.log(), rewards, beta=beta).exp()
    multiplier = float((rewards + beta * ref / law).mean())
    return {
        "y": range(4), r"\pi(y)": law, r"\piref(y)": ref, "r(y)": rewards, r"\beta": beta, r"\lambda": multiplier
    }  # fmt: skip


@symbols_of("eq:entropy-bonus")
def _(draw: Draw) -> Legend:
    p, _, legend = still(draw)
    coef = float(draw.uniform(low=0.5, high=2.0))
    return legend | {"V": 4, "c": coef, r"cH(\pi)": kl.entropy_bonus(p.log(), coef=coef)}


@symbols_of("eq:entropy-optimum")
def _(draw: Draw) -> Legend:
    ref, rewards, beta, coef = draw.distribution(4), draw.normal(4), 0.8, 0.5
    law = equations.entropy_bonus_optimal_logps(ref.log(), rewards, beta=beta, coef=coef).exp()
    return {r"\pi(y)": law, r"\piref(y)": ref, "r(y)": rewards, r"\beta": beta, "c": coef}


@symbols_of("eq:nearest-correct")
def _(draw: Draw) -> Legend:
    ref, right = draw.distribution(5), torch.arange(5) < 3
    other = draw.distribution(3)
    nearest = equations.nearest_correct_logps(ref.log(), right).exp()
    return {
        r"\KL(\pi\|\piref)": exact.divergence(other, ref[right]),
        r"\KL(\pi\|\piref(\cdot\mid R))": exact.divergence(other, nearest[right]),
        r"\piref(R)": ref[right].sum(),
    }


# -- prices and references that follow ---------------------------------------------------------------------------


@symbols_of("eq:adaptive-kl")
def _(draw: Draw) -> Legend:
    beta, target, rate = 0.8, 0.5, float(draw.uniform(low=0.05, high=0.5))
    near = float(draw.uniform(low=0.85, high=1.15))
    seen = target * torch.tensor([near, 5.0, 0.1], dtype=torch.float64)
    after = [kl.adaptive_kl_beta(beta, x, target=target, horizon=1 / rate) for x in seen.tolist()]
    return {
        r"\beta'": torch.tensor(after, dtype=torch.float64),
        r"\beta": beta,
        r"\eta": rate,
        r"\kappa": target,
        r"\widehat{\KL}": seen,
    }


@symbols_of("eq:adaptive-kl-factor")
def _(draw: Draw) -> Legend:
    ref, rewards, beta, rate = draw.distribution(4), draw.normal(4), 0.8, 0.6
    law = rlhf.optimal_logps(ref.log(), rewards, beta=beta).exp()
    return {
        r"\frac{d\beta'}{d\beta}": equations.adaptive_kl_factor(ref.log(), rewards, beta=beta, rate=rate),
        r"\pi^*": law,
        "r": rewards,
        r"\beta": beta,
        r"\eta": rate,
        r"\kappa": exact.divergence(law, ref),
    }


@symbols_of("eq:moving-reference")
def _(draw: Draw) -> Legend:
    reference, policy, rate = draw.normal(4), draw.normal(4), float(draw.uniform(low=0.1, high=0.4))
    return {
        r"\theta_{\mathrm{ref}}": reference,
        r"\theta": policy,
        r"\tau": rate,
        r"\theta_{\mathrm{ref}}'": equations.moving_average(reference, policy, rate=rate),
    }


@symbols_of("eq:refreshed-optimum")
def _(draw: Draw) -> Legend:
    ref, rewards, beta, rate, refreshes = draw.distribution(4), draw.normal(4), 0.8, 0.3, draw.integer(2, 5)
    law = equations.refreshed_optimal_logps(ref.log(), rewards, beta=beta, rate=rate, refreshes=refreshes).exp()
    return {r"\pi_n": law, r"\piref": ref, "r": rewards, r"\beta": beta, r"\tau": rate, "n": refreshes}
