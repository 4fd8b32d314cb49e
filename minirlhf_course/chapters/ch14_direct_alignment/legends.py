"""Chapter 14: what the printed formulas are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from minirlhf.equations import preference_losses as pl
from minirlhf.equations import rlhf
from minirlhf.equations.preference_losses import ListLogps, PairLogps, UnpairedLogps
from minirlhf_course.ledger.formulas.legends import not_evaluated, symbols_of
from minirlhf_course.ledger.inputs.preferences import pairs
from minirlhf_course.ledger.registry import Draw

Legend = Mapping[str, Any]


def some_beta(draw: Draw) -> float:
    return float(draw.uniform(low=0.3, high=0.9))


# -- losses of pairs ---------------------------------------------------------------------------------------------


def answers(draw: Draw) -> tuple[Any, float, dict[str, Any]]:
    """Eight pairs of answers with their lengths, β, and the chapter's symbols for them."""
    pair: Any = pairs(draw, 8, lengths=True)
    beta = some_beta(draw)
    w, l = pair.chosen - pair.ref_chosen, pair.rejected - pair.ref_rejected
    legend = {r"\beta": beta, "h": w - l, r"\hat r_w": beta * w, r"\hat r_l": beta * l}
    for side, logps, ref, lengths in (
        ("w", pair.chosen, pair.ref_chosen, pair.chosen_lengths),
        ("l", pair.rejected, pair.ref_rejected, pair.rejected_lengths),
    ):
        legend |= {rf"\pi(y_{side})": logps.exp(), rf"\piref(y_{side})": ref.exp(), f"|y_{side}|": lengths.double()}
        legend |= {rf"\pi(y_{side}\mid x)": logps.exp(), rf"\piref(y_{side}\mid x)": ref.exp()}
    return pair, beta, legend


def pair_loss(label: str, name: str, loss: Callable[..., Tensor], **options: tuple[str, float]) -> None:
    """The legend of a loss of pairs; ``options`` name the ink and the value of each further argument."""

    @symbols_of(label)
    def _(draw: Draw) -> Legend:
        pair, beta, legend = answers(draw)
        given = {"beta": beta} | {argument: value for argument, (_, value) in options.items()}
        return legend | dict(options.values()) | {name: loss(pair, **given)}


pair_loss("eq:dpo", r"\ell_{\text{DPO}}", pl.dpo)
pair_loss("eq:ipo", r"\ell_{\text{IPO}}", pl.ipo)
pair_loss("eq:dpo-hinge", r"\ell_{\text{hinge}}", pl.hinge)
pair_loss("eq:cdpo", r"\ell_{\text{cDPO}}", pl.cdpo, label_smoothing=(r"\varepsilon", 0.2))
pair_loss("eq:robust-dpo", r"\ell_{\text{robust}}", pl.robust_dpo, label_smoothing=(r"\varepsilon", 0.2))
pair_loss("eq:dpo-positive", r"\ell_{\text{DPOP}}", pl.dpo_positive, penalty=(r"\lambda", 1.7))
pair_loss("eq:dpo-length-normalised", r"\ell_{\text{LN}}", pl.dpo_length_normalised)
pair_loss("eq:discopop", r"\ell_{\text{DiscoPOP}}", pl.discopop, tau=(r"\tau", 0.7))
not_evaluated(
    "eq:aot-quantiles", "902444f20792", "the smallest of a sum over permutations; the check goes through all of them"
)


@symbols_of("eq:wpo")
def _(draw: Draw) -> Legend:
    pair, beta, legend = answers(draw)
    theta = torch.stack([pair.chosen, pair.rejected]).detach().requires_grad_()
    pair = replace(pair, chosen=theta[0], rejected=theta[1])
    own = {rf"\pi(y_{side}\mid x)": logps.exp() for side, logps in zip("wl", theta, strict=True)}
    return legend | own | {r"\theta": theta, "h": pair.margins, r"\ell_{\text{WPO}}": pl.wpo(pair, beta=beta)}


@symbols_of("eq:aot")
def _(draw: Draw) -> Legend:
    pair, beta, legend = answers(draw)
    q = draw.normal(8)
    return legend | {"u": pair.chosen - pair.rejected, r"\tilde v": q, r"\ell_{\text{AOT}}": pl.aot(pair, q, beta=beta)}


pair_loss("eq:simpo", r"\ell_{\text{SimPO}}", pl.simpo, gamma=(r"\gamma", 0.4))
pair_loss("eq:nca-pair", r"\ell_{\text{NCA}}^{\text{pair}}", pl.nca_pair)
pair_loss("eq:apo-zero", r"\ell_{\text{zero}}", pl.apo_zero)
pair_loss("eq:apo-down", r"\ell_{\text{down}}", pl.apo_down)
pair_loss("eq:cpo", r"\ell_{\text{CPO}}", pl.cpo)


@symbols_of("eq:likelihood-contrast")
def _(draw: Draw) -> Legend:
    pair, _, legend = answers(draw)
    return legend | {r"\lambda": 0.3, r"\ell": pl.likelihood_contrast(pair, weight=0.3)}


@symbols_of("eq:slic")
def _(draw: Draw) -> Legend:
    pair, _, legend = answers(draw)
    return legend | {r"\delta": 1.3, r"\lambda": 0.3, r"\ell_{\text{SLiC}}": pl.slic(pair, delta=1.3, nll_weight=0.3)}


@symbols_of("eq:dpo-nll")
def _(draw: Draw) -> Legend:
    pair, beta, legend = answers(draw)
    loss = pl.dpo_nll(pair, beta=beta, nll_weight=0.4)
    return legend | {r"\alpha": 0.4, r"\ell_{\text{DPO}}": pl.dpo(pair, beta=beta), r"\ell": loss}


@symbols_of("eq:sppo")
def _(draw: Draw) -> Legend:
    pair, beta, legend = answers(draw)
    w, l = draw.uniform(8), draw.uniform(8)
    loss = pl.sppo(pair, beta=beta, chosen_win_rate=w, rejected_win_rate=l)
    return legend | {"P_w": w, "P_l": l, r"\ell_{\text{SPPO}}": loss}


@symbols_of("eq:cal-dpo")
def _(draw: Draw) -> Legend:
    pair, beta, legend = answers(draw)
    sure = torch.ones_like(pair.chosen)
    certain = pl.sppo(pair, beta=beta, chosen_win_rate=sure, rejected_win_rate=0 * sure)
    return legend | {
        r"\ell_{\text{SPPO}}|_{P_w=1, P_l=0}": certain,
        r"\ell_{\text{Cal}}": pl.cal_dpo(pair, beta=beta),
    }


@symbols_of("eq:alpha-po")
def _(draw: Draw) -> Legend:
    pair, beta, legend = answers(draw)
    w, l = (pair.chosen / pair.chosen_lengths).exp(), (pair.rejected / pair.rejected_lengths).exp()
    loss = pl.alpha_po(pair, beta=beta, alpha=0.6, gamma=0.2)
    return legend | {r"\alpha": 0.6, r"\gamma": 0.2, r"\bar p_w": w, r"\bar p_l": l, r"\ell_{\text{AlphaPO}}": loss}


@symbols_of("eq:orpo")
def _(draw: Draw) -> Legend:
    pair, beta, legend = answers(draw)
    w, l = (pair.chosen / pair.chosen_lengths).exp(), (pair.rejected / pair.rejected_lengths).exp()
    return legend | {"o_w": w / (1 - w), "o_l": l / (1 - l), r"\ell_{\text{ORPO}}": pl.orpo(pair, beta=beta)}


@symbols_of("eq:odpo")
def _(draw: Draw) -> Legend:
    pair, beta, legend = answers(draw)
    offset = draw.uniform(8, low=0.2)
    return legend | {r"\Delta": offset, r"\ell_{\text{ODPO}}": pl.odpo(pair, offset, beta=beta)}


def coins(p: Tensor, q: Tensor) -> Tensor:
    """KL between two coins, elementwise."""
    return p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()


@symbols_of("eq:rpo")
def _(draw: Draw) -> Legend:
    pair, beta, legend = answers(draw)
    margin = draw.normal(8)
    loss = pl.rpo(pair, margin, beta=beta, eta=1.2)
    return legend | {r"\Delta r": margin, r"\eta": 1.2, r"\KL(#\|#)": coins, r"\ell_{\text{RPO}}": loss}


@symbols_of("eq:rebel")
def _(draw: Draw) -> Legend:
    pair, beta, legend = answers(draw)
    margin = draw.normal(8)
    return legend | {r"\Delta r": margin, r"\ell_{\text{REBEL}}": pl.rebel(pair, margin, beta=beta)}


@symbols_of("eq:unlikelihood")
def _(draw: Draw) -> Legend:
    logps = draw.logps(3, 4)
    loss = pl.unlikelihood(logps, torch.ones(3, 4, dtype=torch.bool))
    return {"t": range(4), r"\pi(y_{l,t}\mid x, y_{l,<t})": logps.exp().T, r"\ell": loss}


# -- the derivation ----------------------------------------------------------------------------------------------


@symbols_of("eq:dpo-reparameterisation")
def _(draw: Draw) -> Legend:
    ref, r, beta = draw.distribution(4), draw.normal(4), some_beta(draw)
    log_z, best = rlhf.log_partition(ref.log(), r, beta=beta), rlhf.optimal_logps(ref.log(), r, beta=beta)
    solved = pl.reward_of_optimum(best, ref.log(), log_z, beta=beta)
    legend = {"y": range(4), "r(x,y)": solved, r"\beta": beta, "Z(x)": log_z.exp()}
    return legend | {r"\pi^*(y\mid x)": best.exp(), r"\piref(y\mid x)": ref}


@symbols_of("eq:dpo-cancellation")
def _(draw: Draw) -> Legend:
    pair, beta, legend = answers(draw)
    shared, preferred = draw.normal(8), pl.preference_probability(pair, beta=beta)
    legend |= {r"p(y_w\succ y_l\mid x)": preferred, "r(x,y_w)": legend[r"\hat r_w"] + shared}
    legend |= {"r(x,y_l)": legend[r"\hat r_l"] + shared}
    return legend | {rf"\pi^*(y_{side}\mid x)": legend[rf"\pi(y_{side})"] for side in "wl"}


not_evaluated("eq:dpo-likelihood", "f8b2f2cf8119", "it names an objective and claims no equality")


@symbols_of("eq:dpo-gradient")
def _(draw: Draw) -> Legend:
    theta, ref, beta = draw.normal(4).requires_grad_(), draw.distribution(4).log(), some_beta(draw)
    logps, w, l = theta.log_softmax(-1), torch.tensor([0, 1, 3]), torch.tensor([2, 0, 1])
    pair = PairLogps(logps[w], logps[l], ref[w], ref[l])
    legend: dict[str, Any] = {r"\theta": theta, r"\beta": beta, r"\ell": pl.dpo(pair, beta=beta)}
    legend |= {r"\hat r_w": beta * pair.chosen_logratios, r"\hat r_l": beta * pair.rejected_logratios}
    return legend | {r"\pi(y_w\mid x)": pair.chosen.exp(), r"\pi(y_l\mid x)": pair.rejected.exp()}


@symbols_of("eq:dpo-displacement", linear=True)
def _(draw: Draw) -> Legend:
    logps, features = draw.distribution(4).log(), draw.normal(4, 3)
    moved = pl.dpo_displacement(logps, features, 2, 1)
    legend = {"y": range(4), r"\frac{d\log\pi(y)}{d\eta}": moved, r"\bar\phi": logps.exp() @ features}
    return legend | {r"\phi_y": features, r"\phi_w": features[2], r"\phi_l": features[1]}


# -- lists -------------------------------------------------------------------------------------------------------


def lists(draw: Draw, first: int = 1, size: int = 4) -> tuple[ListLogps, Tensor, float, dict[str, Any]]:
    """Three lists of answers, targets for them, β, and the scores s, whose indices count from ``first``."""
    batch, beta = ListLogps(draw.logps(3, size), draw.logps(3, size)), some_beta(draw)
    targets, s = draw.distribution(3, size), beta * batch.logratios
    legend: dict[str, Any] = {name: range(first, first + size) for name in "ijk"}
    legend |= {"K": size, "s_i": s.T, "p_i": targets.T, r"\tilde p_i": s.softmax(-1).T}
    return batch, targets, beta, legend


@symbols_of("eq:pl-dpo-cancellation")
def _(draw: Draw) -> Legend:
    batch, _, beta, legend = lists(draw)
    return legend | {r"p(y_1\succ\dots\succ y_K\mid x)": pl.ranking_probability(batch, beta=beta)}


@symbols_of("eq:pl-dpo")
def _(draw: Draw) -> Legend:
    batch, _, beta, legend = lists(draw)
    return legend | {r"\ell_{\text{PL}}": pl.plackett_luce_dpo(batch, beta=beta)}


@symbols_of("eq:pl-dpo-pair")
def _(draw: Draw) -> Legend:
    pair, beta, _ = answers(draw)
    s = (beta * pair.ranked().logratios).T
    return {"k": range(1, 3), "s_k": s, r"\ell_{\text{DPO}}": pl.plackett_luce_dpo(pair.ranked(), beta=beta)}


@symbols_of("eq:reward-targets")
def _(draw: Draw) -> Legend:
    r = draw.normal(3, 4)
    legend = {"i": range(4), "j": range(4), r"\alpha": 0.7, "r_i": r.T}
    return legend | {"p_i": pl.reward_targets(r, temperature=0.7).T}


@symbols_of("eq:info-nca")
def _(draw: Draw) -> Legend:
    batch, targets, beta, legend = lists(draw)
    return legend | {r"\ell_{\text{InfoNCA}}": pl.info_nca(batch, targets, beta=beta)}


@symbols_of("eq:info-nce")
def _(draw: Draw) -> Legend:
    batch, _, beta, legend = lists(draw)
    return legend | {r"\ell_{\text{InfoNCE}}": pl.info_nce(batch, beta=beta)}


@symbols_of("eq:nca")
def _(draw: Draw) -> Legend:
    batch, targets, beta, legend = lists(draw)
    return legend | {r"\ell_{\text{NCA}}": pl.nca(batch, targets, beta=beta)}


@symbols_of("eq:exo")
def _(draw: Draw) -> Legend:
    batch, targets, beta, legend = lists(draw)
    legend |= {name: legend[name][:, 0] for name in ("s_i", "p_i", r"\tilde p_i")}
    return legend | {
        "s": legend["s_i"],
        r"\tilde p": legend[r"\tilde p_i"],
        r"\ell_{\text{EXO}}": pl.exo(batch, targets, beta=beta)[0],
    }


@symbols_of("eq:exo-pair")
def _(draw: Draw) -> Legend:
    pair, beta, legend = answers(draw)
    loss = pl.exo_pair(pair, beta=beta, label_smoothing=0.1)
    return legend | {"u": beta * legend["h"], r"\varepsilon": 0.1, r"\ell_{\text{EXO}}^{\text{pair}}": loss}


# -- preferences without rewards ---------------------------------------------------------------------------------


def duel(draw: Draw) -> tuple[Tensor, Tensor, Tensor, float, dict[str, Any]]:
    """Preferences between four answers, an opponent, a reference, β, and the chapter's symbols for them."""
    scores, mu, ref, beta = draw.normal(4, 4), draw.distribution(4), draw.distribution(4), some_beta(draw)
    p = (scores - scores.T).sigmoid()
    legend = {"y": range(4), "y'": range(4), r"\mu(y)": mu, r"p(y\succ y')": p, r"p(y\succ\mu)": p @ mu}
    return p, mu, ref, beta, legend | {r"\beta": beta, r"\piref(y)": ref, r"\piref": ref, r"\Psi(#)": torch.logit}


@symbols_of("eq:psi-reward")
def _(draw: Draw) -> Legend:
    p, mu, _, _, legend = duel(draw)
    return legend | {r"r_\Psi(y)": pl.psi_reward(p, mu, psi=torch.logit)}


@symbols_of("eq:psi-po")
def _(draw: Draw) -> Legend:
    p, mu, ref, beta, legend = duel(draw)
    pi = draw.distribution(4)
    value = pl.psi_po_objective(pi.log(), ref.log(), p, mu, beta=beta, psi=torch.logit)
    legend |= {r"\pi": pi, r"\pi(y)": pi, r"r_\Psi(y)": (mu * p.logit()).sum(-1)}
    return legend | {r"J_\Psi(\pi)": value}


@symbols_of("eq:psi-po-optimum")
def _(draw: Draw) -> Legend:
    p, mu, ref, beta, legend = duel(draw)
    best = pl.psi_po_optimum(ref.log(), p, mu, beta=beta, psi=torch.logit)
    return legend | {r"r_\Psi(y)": (mu * p.logit()).sum(-1), r"\pi^*_\Psi(y)": best.exp()}


@symbols_of("eq:psi-logit")
def _(draw: Draw) -> Legend:
    _, mu, _, _, legend = duel(draw)
    r = draw.normal(4)
    return legend | {"r(y)": r, r"r_\Psi(y)": pl.psi_reward((r[:, None] - r).sigmoid(), mu, psi=torch.logit)}


@symbols_of("eq:ipo-target")
def _(draw: Draw) -> Legend:
    p, mu, _, beta, legend = duel(draw)
    return legend | {"h(y,y')": pl.ipo_target(p, mu, beta=beta)}


@symbols_of("eq:preference-nash")
def _(draw: Draw) -> Legend:
    p, _, ref, beta, legend = duel(draw)
    logps = ref.log()
    for _ in range(80):  # damped: half a step towards the best response
        logps = (
            (logps + pl.psi_po_optimum(ref.log(), p, logps.exp(), beta=beta, psi=lambda x: x)).mul(0.5).log_softmax(-1)
        )
    return legend | {r"\pi^\dagger(y)": logps.exp(), r"p(y\succ\pi^\dagger)": p @ logps.exp()}


@symbols_of("eq:nash-md")
def _(draw: Draw) -> Legend:
    p, _, ref, beta, legend = duel(draw)
    pi, step = draw.distribution(4), 0.6 / beta
    mixed = ((1 - step * beta) * pi.log() + step * beta * ref.log()).softmax(-1)
    following = pl.nash_md(pi.log(), ref.log(), p, beta=beta, step=step).exp()
    legend |= {r"\eta": step, r"\pi_t": pi, "m_t": mixed, "m_t(y)": mixed, r"p(y\succ m_t)": p @ mixed}
    return legend | {r"\pi_{t+1}(y)": following}


# -- thumbs ------------------------------------------------------------------------------------------------------


def thumbs(draw: Draw) -> tuple[UnpairedLogps, float, dict[str, Any]]:
    """Eight answers with a thumb up or down, β, and the chapter's symbols for them."""
    up = draw.permutation(8) < 4
    batch, beta = UnpairedLogps(draw.logps(8), draw.logps(8), None, up), some_beta(draw)
    legend = {r"\beta": beta, r"\hat r": beta * batch.logratios}
    return batch, beta, legend | {r"\text{thumb up}": up, r"\text{thumb down}": ~up, r"\pm": 2.0 * up - 1.0}


@symbols_of("eq:kto")
def _(draw: Draw) -> Legend:
    batch, beta, legend = thumbs(draw)
    z = draw.uniform(1)[0]
    loss = pl.kto(batch, z, beta=beta, desirable_weight=1.3, undesirable_weight=0.8)
    return legend | {"z_0": z, r"\lambda_D": 1.3, r"\lambda_U": 0.8, r"\ell_{\text{KTO}}": loss}


@symbols_of("eq:kto-reference-point")
def _(draw: Draw) -> Legend:
    ref = draw.logps(4, 5)
    logps = ref + draw.normal(5)  # five batches: the mean is now above, now below 0
    points = torch.stack([pl.kto_reference_point(l, r) for l, r in zip(logps.T, ref.T, strict=True)])
    legend = {"i": range(1, 5), "m": 4, "z_0": points}
    return legend | {r"\pi(y'_i\mid x_i)": logps.exp(), r"\piref(y'_i\mid x_i)": ref.exp()}


@symbols_of("eq:bco")
def _(draw: Draw) -> Legend:
    batch, beta, legend = thumbs(draw)
    delta = draw.normal(1)[0]
    return legend | {r"\delta": delta, r"\ell_{\text{BCO}}": pl.bco(batch, delta, beta=beta)}


@symbols_of("eq:bco-delta")
def _(draw: Draw) -> Legend:
    batch, beta, legend = thumbs(draw)
    up, down = (legend[r"\hat r"][kept].mean() for kept in (batch.desirable, ~batch.desirable))
    means = {r"\overline{\hat r}_{\text{up}}": up, r"\overline{\hat r}_{\text{down}}": down}
    return means | {r"\delta": pl.bco_delta(batch, beta=beta)}


@symbols_of(
    "eq:bco-bound",
    harmless={
        r"\ge + \log \sigma ( \hat r _ w - \hat r _ l )": "what is at least a positive number is at least a negative one",
        r"\ge - \sigma ( \hat r _ w - \hat r _ l )": "what is at least a positive number is at least a negative one",
    },
)
def _(draw: Draw) -> Legend:
    return {r"\hat r_w": draw.uniform(60, low=-6.0, high=6.0), r"\hat r_l": draw.uniform(60, low=-6.0, high=6.0)}


# -- other divergences -------------------------------------------------------------------------------------------


@symbols_of("eq:f-dpo")
def _(draw: Draw) -> Legend:
    pair, beta, legend = answers(draw)
    f_prime = lambda t: pl.f_prime_jensen_shannon(t.log())
    legend |= {"f'(#)": f_prime, "t_w": pair.chosen_logratios.exp(), "t_l": pair.rejected_logratios.exp()}
    legend |= {"t": pair.chosen_logratios.exp(), r"\pi": pair.chosen.exp(), r"\piref": pair.ref_chosen.exp()}
    return legend | {r"\ell_f": pl.f_dpo(pair, beta=beta, f_prime=pl.f_prime_jensen_shannon)}


def f_prime(label: str, derivative: Callable[..., Tensor], **options: float) -> None:
    @symbols_of(label)
    def _(draw: Draw) -> Legend:
        t = draw.uniform(6, low=0.2, high=3.0)
        greek = {f"\\{name}": value for name, value in options.items()}
        return greek | {"t": t, "f'(t)": derivative(t.log(), **options)}


f_prime("eq:f-prime-reverse-kl", pl.f_prime_reverse_kl)
f_prime("eq:f-prime-forward-kl", pl.f_prime_forward_kl)
f_prime("eq:f-prime-jensen-shannon", pl.f_prime_jensen_shannon)
f_prime("eq:f-prime-alpha", pl.f_prime_alpha, alpha=0.6)
f_prime("eq:f-prime-chi-po", pl.f_prime_chi_po)


# -- coverage, self-play, displacement ---------------------------------------------------------------------------


@symbols_of("eq:coverage")
def _(draw: Draw) -> Legend:
    pi, mu = draw.distribution(4), draw.distribution(4)
    error = 0.1 * pi / mu  # the worst there is, and small: its square's root is larger than its square
    return {r"\pi": pi, r"\mu": mu, "e": error, r"C_\pi": rlhf.coverage(pi.log(), mu.log())}


@symbols_of("eq:spin")
def _(draw: Draw) -> Legend:
    policy, people, beta = draw.distribution(4), draw.distribution(4), some_beta(draw)
    margins = (people / policy).log() / beta  # where DPO's coins fit, of each answer up to a constant
    following = (policy.log() + margins).softmax(-1)
    return {r"\beta": beta, r"\pi_t(y)": policy, "p(y)": people, r"\pi_{t+1}(y)": following}


@symbols_of("eq:dno")
def _(draw: Draw) -> Legend:
    p, _, _, beta, legend = duel(draw)
    policy = draw.distribution(4)
    best = pl.psi_po_optimum(policy.log(), p, policy, beta=beta, psi=lambda x: x)
    return legend | {r"\pi_t(y)": policy, r"p(y\succ\pi_t)": p @ policy, r"\pi_{t+1}(y)": best.exp()}


@symbols_of("eq:ches", linear=True)
def _(draw: Draw) -> Legend:
    w, l = draw.normal(1, 4, 3), draw.normal(1, 5, 3)
    wm, lm = draw.mask(1, 4), draw.mask(1, 5)
    sums = {"S_w": (w[0] * wm[0][:, None]).sum(0), "S_l": (l[0] * lm[0][:, None]).sum(0)}
    return sums | {r"\text{CHES}": pl.ches(w, wm, l, lm)[0]}
