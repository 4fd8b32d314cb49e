"""Chapter 14, direct alignment: what else can be asked of a pair."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from minirlhf.core import exact
from minirlhf.equations import kl
from minirlhf.equations import preference_losses as pl
from minirlhf.equations.preference_losses import PairLogps
from minirlhf_course.ledger.inputs.preferences import (
    all_pairs,
    at,
    bandit,
    bell,
    log_quotients,
    logistic_cdf,
    pair_gradient,
    pairs,
    token_pairs,
    without_reference,
    written_margins,
)
from minirlhf_course.ledger.registry import Draw, check

# -- who else moves ---------------------------------------------------------------------------------------------


@check(
    "eq:dpo-displacement",
    "rate",
    "For a small step of DPO, log π of every answer changes at this rate, times β and the probability that the "
    "model gives to the wrong order.",
    of=pl.dpo_displacement,
    against="finite differences along one gradient step of a linear policy",
    tolerance=1e-7,
    wrong={
        "only the chosen answer's features": lambda logps, features, chosen, rejected: (
            (features - logps.exp() @ features) @ features[chosen]
        ),
        "not centred": lambda logps, features, chosen, rejected: features @ (features[chosen] - features[rejected]),
        "sign": lambda logps, features, chosen, rejected: pl.dpo_displacement(logps, features, rejected, chosen),
    },
)
def _(dpo_displacement, draw):
    features, theta, ref = draw.normal(4, 3), draw.normal(3), draw.distribution(4).log()
    w, l, *_ = draw.permutation(4).tolist()
    beta = float(draw.uniform(low=0.2, high=0.8))

    logps_at = lambda x: (features @ x).log_softmax(-1)

    def odds(logps: Tensor) -> Tensor:  # of the wrong answer, by the implicit rewards
        return ((logps[l] - ref[l]) - (logps[w] - ref[w])).exp() ** beta

    slope = exact.finite_difference(lambda x: torch.log1p(odds(logps_at(x))), theta)
    step = 1e-3
    moved = [logps_at(theta + k * step * slope) for k in (-2, -1, 1, 2)]  # five-point rule
    rate = (-moved[0] + 8 * moved[1] - 8 * moved[2] + moved[3]) / (12 * step)  # downhill
    logps = logps_at(theta)
    weight = beta * odds(logps) / (1 + odds(logps))
    return weight * dpo_displacement(logps, features, w, l), rate


# -- per token, noisy labels -------------------------------------------------------------------------------------


@check(
    "eq:dpo-length-normalised",
    "value",
    "The margin is a difference of mean log-ratios per token.",
    of=pl.dpo_length_normalised,
    against="means over the tokens of enumerated answers",
    wrong={
        "sums": pl.dpo,
        "one length for both": lambda pair, *, beta: softplus(-beta * pair.margins / pair.chosen_lengths),
        "only the policy is normalised": lambda pair, *, beta: pl.dpo(
            replace(pair.per_token(), ref_chosen=pair.ref_chosen, ref_rejected=pair.ref_rejected), beta=beta
        ),
    },
)
def _(dpo_length_normalised, draw):
    pair, (w, l) = token_pairs(draw)
    beta = float(draw.uniform(low=0.5, high=2.0))
    means = w[0].nanmean(-1) - w[1].nanmean(-1) - l[0].nanmean(-1) + l[1].nanmean(-1)
    return dpo_length_normalised(pair, beta=beta), (1 + (-beta * means).exp()).log()


CDPO_MISTAKES = {
    "ε and 1 − ε swapped": lambda pair, *, beta, label_smoothing: (
        pl.dpo(pair, beta=beta) * label_smoothing + pl.dpo(pair.swapped(), beta=beta) * (1 - label_smoothing)
    ),
    "no smoothing": lambda pair, *, beta, label_smoothing: pl.dpo(pair, beta=beta),
    "robust DPO": lambda pair, *, beta, label_smoothing: pl.robust_dpo(
        pair, beta=beta, label_smoothing=label_smoothing
    ),
}


@check(
    "eq:cdpo",
    "value",
    "A cross-entropy: the entropy of the label plus the KL from the label's distribution to the model's.",
    of=pl.cdpo,
    against="entropy plus KL of two Bernoulli distributions, by summation",
    wrong=CDPO_MISTAKES,
)
def _(cdpo, draw):
    pair, beta, eps = pairs(draw), float(draw.uniform(low=0.3, high=0.8)), float(draw.uniform(low=0.05, high=0.3))
    p = pl.preference_probability(pair, beta=beta)
    model, label = torch.stack([p, 1 - p], -1), torch.tensor([1 - eps, eps], dtype=torch.float64).expand(4, 2)
    return cdpo(pair, beta=beta, label_smoothing=eps), exact.entropy(label) + exact.divergence(label, model)


@check(
    "eq:cdpo",
    "minimiser",
    "The loss is stationary where βh = log((1 − ε)/ε): ln 9 for ε = 0.1.",
    of=pl.cdpo,
    against="finite differences",
    wrong=CDPO_MISTAKES,
    tolerance=1e-8,
)
def _(cdpo, draw):
    beta, eps = float(draw.uniform(low=0.3, high=0.8)), float(draw.uniform(low=0.05, high=0.3))
    pair = pairs(draw)
    pair = at(pair, chosen=draw.normal(4), rejected=torch.zeros(4))
    best = math.log((1 - eps) / eps) / beta
    along = lambda t: cdpo(
        at(pair, chosen=pair.rejected_logratios + best + t, rejected=pair.rejected_logratios),
        beta=beta,
        label_smoothing=eps,
    ).sum()
    return exact.finite_difference(along, torch.zeros(4, dtype=torch.float64)), torch.zeros(4)


@check(
    "eq:robust-dpo",
    "unbiased",
    "Over labels that are flipped with probability ε, the mean loss is the DPO loss of the clean label.",
    of=pl.robust_dpo,
    against="the mean over both labels",
    wrong={
        "cDPO": pl.cdpo,
        "not divided by 1 − 2ε": lambda pair, *, beta, label_smoothing: (
            pl.robust_dpo(pair, beta=beta, label_smoothing=label_smoothing) * (1 - 2 * label_smoothing)
        ),
        "noise ignored": lambda pair, *, beta, label_smoothing: pl.dpo(pair, beta=beta),
    },
)
def _(robust_dpo, draw):
    pair, beta, eps = pairs(draw), float(draw.uniform(low=0.3, high=0.8)), float(draw.uniform(low=0.1, high=0.4))
    pair = at(
        pair,
        chosen=pair.rejected_logratios + draw.away_from([0.0], 4, low=-4, high=4, margin=0.2),
        rejected=pair.rejected_logratios,
    )
    mean = (1 - eps) * robust_dpo(pair, beta=beta, label_smoothing=eps) + eps * robust_dpo(
        pair.swapped(), beta=beta, label_smoothing=eps
    )
    return mean, pl.dpo(pair, beta=beta)


# -- other demands on the margin ---------------------------------------------------------------------------------


@check(
    "eq:dpo-hinge",
    "minimiser",
    "For a majority of any size the optimal margin is ±1/β: the hinge learns which answer wins, not how often.",
    of=pl.hinge,
    against="a grid of margins",
    wrong={
        "margin 1 instead of 1/β": lambda pair, *, beta: torch.relu(1 - pair.margins),
        "logistic": pl.dpo,
        "no margin (perceptron)": lambda pair, *, beta: torch.relu(-beta * pair.margins),
    },
)
def _(hinge, draw):
    beta = float(draw.uniform(low=0.3, high=0.8))
    p = float(draw.away_from([0.27, 0.5, 0.73], 1, low=0.1, high=0.9, margin=0.06))  # logit(p) is neither 0 nor ±1
    grid = torch.linspace(-3, 3, 601, dtype=torch.float64) / beta
    pair = PairLogps(grid, torch.zeros_like(grid), torch.zeros_like(grid), torch.zeros_like(grid))
    loss = p * hinge(pair, beta=beta) + (1 - p) * hinge(pair.swapped(), beta=beta)
    return grid[loss.argmin()], math.copysign(1 / beta, p - 0.5)


@check(
    "eq:dpo-hinge",
    "gradient",
    "The gradient has size β while βh < 1 and is 0 beyond.",
    of=pl.hinge,
    against="−β below the kink, 0 above",
    wrong={
        "kink at 0": lambda pair, *, beta: torch.relu(-beta * pair.margins),
        "squared": lambda pair, *, beta: torch.relu(1 - beta * pair.margins) ** 2,
    },
)
def _(hinge, draw):
    beta = float(draw.uniform(low=0.3, high=0.8))
    h = torch.cat([draw.uniform(2, low=0.2, high=0.9), draw.uniform(2, low=1.1, high=2.0)]) / beta
    slope = pair_gradient(lambda x: hinge(x, beta=beta), at(pairs(draw), chosen=h, rejected=torch.zeros(4)))
    return slope, beta * torch.tensor([-1, -1, 0, 0, 1, 1, 0, 0], dtype=torch.float64)


@check(
    "eq:odpo",
    "value",
    "Minus the log-probability that the implicit rewards, plus logistic noise, differ by more than the offset.",
    of=pl.odpo,
    against="logistic noise, integrated",
    wrong={
        "offset added": lambda pair, offset, *, beta: pl.odpo(pair, -offset, beta=beta),
        "offset scaled by β": lambda pair, offset, *, beta: pl.odpo(pair, beta * offset, beta=beta),
        "offset forgotten": lambda pair, offset, *, beta: pl.dpo(pair, beta=beta),
    },
)
def _(odpo, draw):
    pair, beta, offset = pairs(draw, 2), float(draw.uniform(low=0.1, high=0.6)), draw.uniform(2, low=0.5, high=2.0)
    return odpo(pair, offset, beta=beta), -logistic_cdf(beta * written_margins(pair) - offset).log()


RPO_MISTAKES = {
    "KL the other way round": lambda pair, gap, *, beta, eta: pl.rpo(
        at(pair, chosen=eta * gap / beta, rejected=0 * gap), beta * pair.margins / eta, beta=beta, eta=eta
    ),
    "η forgotten": lambda pair, gap, *, beta, eta: pl.rpo(pair, gap, beta=beta),
    "offset instead of target": lambda pair, gap, *, beta, eta: pl.odpo(pair, eta * gap, beta=beta),
}


@check(
    "eq:rpo",
    "value",
    "The KL from the preference probability of the given rewards to that of the implicit ones; zero where they agree.",
    of=pl.rpo,
    against="KL between two Bernoulli distributions, by summation",
    wrong=RPO_MISTAKES,
)
def _(rpo, draw):
    pair, gap = pairs(draw), draw.away_from([0.0], 4, low=-2.0, high=2.0, margin=0.3)
    beta, eta = float(draw.uniform(low=0.3, high=0.6)), float(draw.uniform(low=1.5, high=2.5))
    coin = lambda x: torch.stack([1 / (1 + (-x).exp()), 1 / (1 + x.exp())], -1)
    yield rpo(pair, gap, beta=beta, eta=eta), exact.divergence(coin(eta * gap), coin(beta * written_margins(pair)))
    agreeing = at(pair, chosen=eta * gap / beta, rejected=torch.zeros(4))
    yield rpo(agreeing, gap, beta=beta, eta=eta), torch.zeros(4)


@check(
    "eq:rebel",
    "minimiser",
    "Every pair's loss is 0 at the optimum, and Δr² at the reference.",
    of=pl.rebel,
    against="the RLHF optimum, found numerically",
    tolerance=1e-8,
    wrong={
        "β forgotten": lambda pair, gap, *, beta: (pair.margins - gap) ** 2,
        "reference forgotten": lambda pair, gap, *, beta: (beta * (pair.chosen - pair.rejected) - gap) ** 2,
        "gap of the other sign": lambda pair, gap, *, beta: (beta * pair.margins + gap) ** 2,
    },
)
def _(rebel, draw):
    b = bandit(draw)
    b = b._replace(rewards=b.rewards + torch.arange(4.0, dtype=torch.float64))  # no two answers alike
    best, i, j = all_pairs(b.optimum(), b.ref)
    gap = b.rewards[i] - b.rewards[j]
    yield rebel(best, gap, beta=b.beta), torch.zeros(12)
    yield rebel(all_pairs(b.ref.log(), b.ref)[0], gap, beta=b.beta), gap**2


@check(
    "eq:dpo-positive",
    "gradient",
    "If the chosen answer is below the reference, its gradient is 1 + λ times as large as that of the rejected "
    "one, with the opposite sign; above it, the two have equal size.",
    of=pl.dpo_positive,
    against="derivatives by hand, on both sides of the kink",
    wrong={
        "penalty on the rejected answer": lambda pair, *, beta, penalty: softplus(
            -beta * (pair.margins - penalty * torch.relu(-pair.rejected_logratios))
        ),
        "penalty outside β": lambda pair, *, beta, penalty: softplus(
            -beta * pair.margins + penalty * torch.relu(-pair.chosen_logratios)
        ),
        "penalty when the answer gains": lambda pair, *, beta, penalty: softplus(
            -beta * (pair.margins - penalty * torch.relu(pair.chosen_logratios))
        ),
    },
)
def _(dpo_positive, draw):
    beta, penalty = float(draw.uniform(low=0.2, high=0.6)), float(draw.uniform(low=1.0, high=5.0))
    lr_w = torch.cat([draw.uniform(2, low=-1.5, high=-0.2), draw.uniform(2, low=0.2, high=1.5)])
    lr_l = torch.cat([draw.uniform(2, low=0.2, high=1.0), draw.uniform(2, low=-1.0, high=-0.2)])
    below = torch.tensor([1.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    weight = beta / (1 + (beta * (lr_w - lr_l + penalty * below * lr_w)).exp())
    pair = at(pairs(draw), chosen=lr_w, rejected=lr_l)
    got = pair_gradient(lambda x: dpo_positive(x, beta=beta, penalty=penalty), pair)
    return got, torch.cat([-(1 + penalty * below) * weight, weight])


@check(
    "eq:dpo-nll",
    "value",
    "DPO plus the weighted mean over the chosen answer's tokens of −log p.",
    of=pl.dpo_nll,
    against="tokens of enumerated answers",
    wrong={
        "sum over tokens": lambda pair, *, beta, nll_weight: pl.dpo(pair, beta=beta) - nll_weight * pair.chosen,
        "NLL of the rejected answer": lambda pair, *, beta, nll_weight: (
            pl.dpo(pair, beta=beta) - nll_weight * pair.per_token().rejected
        ),
        "likelihood punished": lambda pair, *, beta, nll_weight: (
            pl.dpo(pair, beta=beta) + nll_weight * pair.per_token().chosen
        ),
    },
)
def _(dpo_nll, draw):
    pair, (w, _) = token_pairs(draw)
    beta, weight = float(draw.uniform(low=0.2, high=0.6)), float(draw.uniform(low=0.5, high=1.5))
    return dpo_nll(pair, beta=beta, nll_weight=weight), pl.dpo(pair, beta=beta) + weight * (-w[0]).nanmean(-1)


# -- each answer against a level of its own ----------------------------------------------------------------------


@check(
    "eq:apo-zero",
    "gradient",
    "The chosen answer is raised, the rejected one lowered, each with a gradient that is largest at an implicit "
    "reward of 0; the loss is 1 there.",
    of=pl.apo_zero,
    against="the logistic density",
    wrong={
        "sign of the rejected term": lambda pair, *, beta: (
            torch.sigmoid(-beta * pair.chosen_logratios) + torch.sigmoid(-beta * pair.rejected_logratios)
        ),
        "logarithms (BCO)": pl.bco_pair,
        "reference forgotten": lambda pair, *, beta: pl.apo_zero(without_reference(pair), beta=beta),
    },
)
def _(apo_zero, draw):
    pair, beta = pairs(draw), float(draw.uniform(low=0.3, high=0.8))
    r_w, r_l = (beta * x for x in log_quotients(pair))
    yield pair_gradient(lambda x: apo_zero(x, beta=beta), pair), beta * torch.cat([-bell(r_w), bell(r_l)])
    zero = torch.zeros(4, dtype=torch.float64)
    yield apo_zero(at(pair, chosen=zero, rejected=zero), beta=beta), torch.ones(4)


@check(
    "eq:apo-down",
    "gradient",
    "The rejected answer is always lowered; at the reference the chosen one has no gradient.",
    of=pl.apo_down,
    against="the logistic density",
    wrong={
        "chosen pushed up": lambda pair, *, beta: (
            torch.sigmoid(-beta * pair.chosen_logratios) + torch.sigmoid(-beta * pair.margins)
        ),
        "rejected anchored instead of the margin": lambda pair, *, beta: (
            torch.sigmoid(beta * pair.chosen_logratios) + torch.sigmoid(beta * pair.rejected_logratios)
        ),
        "DPO": pl.dpo,
    },
)
def _(apo_down, draw):
    pair, beta = pairs(draw), float(draw.uniform(low=0.3, high=0.8))
    r_w, margin = beta * log_quotients(pair)[0], beta * written_margins(pair)
    yield (
        pair_gradient(lambda x: apo_down(x, beta=beta), pair),
        beta * torch.cat([bell(r_w) - bell(margin), bell(margin)]),
    )
    start = at(pair, chosen=torch.zeros(4), rejected=torch.zeros(4))
    rest = torch.tensor([0.0] * 4 + [beta / 4] * 4, dtype=torch.float64)
    yield pair_gradient(lambda x: apo_down(x, beta=beta), start), rest


@check(
    "eq:sppo",
    "minimiser",
    "The loss is 0, and so is its gradient, where π/π_t = exp(P/β)/exp(½/β).",
    of=pl.sppo,
    against="one step of multiplicative weights, normalised at a win rate of ½",
    wrong={
        "½ forgotten": lambda pair, *, beta, chosen_win_rate, rejected_win_rate: pl.sppo(
            pair, beta=beta, chosen_win_rate=chosen_win_rate + 0.5, rejected_win_rate=rejected_win_rate + 0.5
        ),
        "β multiplies": lambda pair, *, beta, chosen_win_rate, rejected_win_rate: pl.sppo(
            pair, beta=1 / beta, chosen_win_rate=chosen_win_rate, rejected_win_rate=rejected_win_rate
        ),
        "hard win rates": lambda pair, *, beta, chosen_win_rate, rejected_win_rate: pl.sppo(pair, beta=beta),
    },
)
def _(sppo, draw):
    pair, beta = pairs(draw), float(draw.uniform(low=0.3, high=0.8))
    p_w, p_l = draw.uniform(4, low=0.55, high=0.9), draw.uniform(4, low=0.1, high=0.45)
    step = lambda p: ((p / beta).exp() / math.exp(0.5 / beta)).log()
    best = at(pair, chosen=step(p_w), rejected=step(p_l))
    loss = lambda x: sppo(x, beta=beta, chosen_win_rate=p_w, rejected_win_rate=p_l)
    yield loss(best), torch.zeros(4)
    yield pair_gradient(loss, best), torch.zeros(8)


@check(
    "eq:cal-dpo",
    "gradient",
    "The gradient of DPO at β = 1 plus linear terms that pull the log-ratios to ±1/(2β) and vanish there.",
    of=pl.cal_dpo,
    against="derivatives by hand",
    wrong={
        "both calibrated to +1/(2β)": lambda pair, *, beta: (
            pl.dpo(pair, beta=1.0)
            + (pair.chosen_logratios - 1 / (2 * beta)) ** 2
            + (pair.rejected_logratios - 1 / (2 * beta)) ** 2
        ),
        "β in the contrastive term": lambda pair, *, beta: pl.dpo(pair, beta=beta) + pl.sppo(pair, beta=beta),
        "only the margin calibrated": lambda pair, *, beta: pl.dpo(pair, beta=1.0) + pl.ipo(pair, beta=beta),
    },
)
def _(cal_dpo, draw):
    pair, beta = pairs(draw), float(draw.uniform(low=0.3, high=0.8))
    (chosen, rejected), push = log_quotients(pair), 1 / (1 + written_margins(pair).exp())
    springs = [2 * (chosen - 0.5 / beta), 2 * (rejected + 0.5 / beta)]
    yield pair_gradient(lambda x: cal_dpo(x, beta=beta), pair), torch.cat([springs[0] - push, springs[1] + push])
    target = torch.full((4,), 0.5 / beta, dtype=torch.float64)
    slack = at(pair, chosen=target, rejected=-target)
    left = torch.full((4,), 1 / (1 + math.exp(1 / beta)), dtype=torch.float64)
    yield pair_gradient(lambda x: cal_dpo(x, beta=beta), slack), torch.cat([-left, left])


# -- other divergences -------------------------------------------------------------------------------------------

ALPHA = 0.6
DIVERGENCES = [
    (kl.f_reverse_kl, pl.f_prime_reverse_kl),
    (kl.f_forward_kl, pl.f_prime_forward_kl),
    (kl.f_jensen_shannon, pl.f_prime_jensen_shannon),
    (lambda u: kl.f_alpha(u, alpha=ALPHA), lambda u: pl.f_prime_alpha(u, alpha=ALPHA)),
]


@check(
    "eq:f-dpo",
    "minimiser",
    "At the optimum for each divergence f-DPO gives every label its Bradley–Terry log-likelihood under the rewards.",
    of=pl.f_dpo,
    against="numerical maximisation of E[r] − β D_f",
    tolerance=1e-7,
    wrong={
        "reverse KL whatever f": lambda pair, *, beta, f_prime: pl.dpo(pair, beta=beta),
        "f instead of f'": lambda pair, *, beta, f_prime: pl.f_dpo(pair, beta=beta, f_prime=torch.square),
        "f' of the difference": lambda pair, *, beta, f_prime: softplus(-beta * f_prime(pair.margins)),
    },
)
def _(f_dpo, draw):
    b = bandit(draw, 3)
    b = b._replace(rewards=0.5 * b.rewards + torch.tensor([0.7, 0.0, -0.7], dtype=torch.float64))
    for f, f_prime in DIVERGENCES:
        value = lambda p, f=f: (p * b.rewards).sum() - b.beta * (b.ref * f((p / b.ref).log())).sum()
        pair, i, j = all_pairs(exact.maximise(value, 3).log(), b.ref)
        yield f_dpo(pair, beta=b.beta, f_prime=f_prime), (1 + (b.rewards[j] - b.rewards[i]).exp()).log()


def derivative_in_ratio(f: Callable[[Tensor], Tensor], draw: Draw) -> tuple[Tensor, Tensor]:
    """Log-ratios, and f'(t) there by finite differences in the ratio t."""
    ratio = draw.uniform(5, low=0.3, high=3.0)
    return ratio.log(), exact.finite_difference(lambda t: f(t.log()).sum(), ratio)


@check(
    "eq:f-prime-reverse-kl",
    "derivative",
    "The derivative of t log t.",
    of=pl.f_prime_reverse_kl,
    against="finite differences of f",
    wrong={"1 forgotten": lambda u: u, "the ratio for its logarithm": lambda u: u.exp() + 1},
)
def _(f_prime, draw):
    at_, expected = derivative_in_ratio(kl.f_reverse_kl, draw)
    return f_prime(at_), expected


@check(
    "eq:f-prime-forward-kl",
    "derivative",
    "The derivative of −log t.",
    of=pl.f_prime_forward_kl,
    against="finite differences of f",
    wrong={"sign": lambda u: (-u).exp(), "ratio upside down": lambda u: -u.exp(), "f itself": kl.f_forward_kl},
)
def _(f_prime, draw):
    at_, expected = derivative_in_ratio(kl.f_forward_kl, draw)
    return f_prime(at_), expected


@check(
    "eq:f-prime-jensen-shannon",
    "derivative",
    "The derivative of ½[t log t − (t + 1) log((t + 1)/2)].",
    of=pl.f_prime_jensen_shannon,
    against="finite differences of f",
    wrong={
        "½ left away": lambda u: math.log(2.0) + logsigmoid(u),
        "log 2 forgotten": lambda u: 0.5 * logsigmoid(u),
        "ratio upside down": lambda u: 0.5 * (math.log(2.0) + logsigmoid(-u)),
    },
)
def _(f_prime, draw):
    at_, expected = derivative_in_ratio(kl.f_jensen_shannon, draw)
    return f_prime(at_), expected


@check(
    "eq:f-prime-alpha",
    "derivative",
    "The derivative of the α-divergence's f; it tends to log t for α → 0.",
    of=pl.f_prime_alpha,
    against="finite differences of f",
    wrong={
        "1 − α for α": lambda u, *, alpha: pl.f_prime_alpha(u, alpha=1 - alpha),
        "sign of the power": lambda u, *, alpha: (1 - (alpha * u).exp()) / alpha,
        "not divided by α": lambda u, *, alpha: 1 - (-alpha * u).exp(),
    },
)
def _(f_prime, draw):
    alpha = float(draw.uniform(low=0.6, high=0.9))
    at_, expected = derivative_in_ratio(lambda u: kl.f_alpha(u, alpha=alpha), draw)
    return f_prime(at_, alpha=alpha), expected


# -- found by a search, weighted, matched as distributions -------------------------------------------------------


@check(
    "eq:discopop",
    "value",
    "Where the gate is sharp, a wrongly ordered pair has DPO's loss and a correctly ordered one e^(−βh); the "
    "log-odds of the mixture are βh/τ.",
    of=pl.discopop,
    against="the two cases of a sharp gate, its odds, and value and derivative at βh = 0",
    wrong={
        "gate the other way round": lambda pair, *, beta, tau: (
            pl.dpo(pair, beta=beta) + torch.exp(-beta * pair.margins) - pl.discopop(pair, beta=beta, tau=tau)
        ),
        "τ multiplied": lambda pair, *, beta, tau: pl.discopop(pair, beta=beta, tau=1 / tau),
        "no gate": lambda pair, *, beta, tau: pl.dpo(pair, beta=beta),
        "exponential without β": lambda pair, *, beta, tau: (
            lambda gate: (1 - gate) * pl.dpo(pair, beta=beta) + gate * torch.exp(-pair.margins)
        )(torch.sigmoid(beta * pair.margins / tau)),
    },
)
def _(discopop, draw):
    beta, tau = float(draw.uniform(low=0.3, high=0.8)), float(draw.uniform(low=0.4, high=0.9))
    h = torch.cat([draw.uniform(2, low=-2.0, high=-0.5), draw.uniform(2, low=0.5, high=2.0)])
    base = pairs(draw)
    pair = at(base, chosen=base.rejected_logratios + h, rejected=base.rejected_logratios)
    cases = torch.cat([softplus(-beta * h[:2]), torch.exp(-beta * h[2:])])
    yield discopop(pair, beta=beta, tau=2e-3), cases
    loss, logistic, power = discopop(pair, beta=beta, tau=tau), softplus(-beta * h), torch.exp(-beta * h)
    yield ((loss - logistic) / (power - loss)).log(), beta * h / tau
    level = at(base, chosen=base.rejected_logratios, rejected=base.rejected_logratios)
    yield discopop(level, beta=beta, tau=tau), torch.full((4,), (math.log(2.0) + 1) / 2, dtype=torch.float64)
    for sharp in (0.05, tau):  # the first is the paper's: the slope is positive
        slope = torch.full((4,), beta * ((1 - math.log(2.0)) / (4 * sharp) - 0.75), dtype=torch.float64)
        yield pair_gradient(lambda x, t=sharp: discopop(x, beta=beta, tau=t), level), torch.cat([slope, -slope])


@check(
    "eq:wpo",
    "gradient",
    "A pair has the gradient of DPO times the mean token probability of each answer.",
    of=pl.wpo,
    against="DPO's derivative times the probabilities of the answers' tokens, by hand",
    wrong={
        "the weight's own gradient": lambda pair, *, beta: (
            (pair.per_token().chosen + pair.per_token().rejected).exp() * pl.dpo(pair, beta=beta)
        ),
        "probabilities of whole answers": lambda pair, *, beta: (
            (pair.chosen + pair.rejected).detach().exp() * pl.dpo(pair, beta=beta)
        ),
        "the chosen answer's only": lambda pair, *, beta: (
            pair.per_token().chosen.detach().exp() * pl.dpo(pair, beta=beta)
        ),
        "no weight": pl.dpo,
    },
)
def _(wpo, draw):
    pair, beta = pairs(draw, lengths=True), float(draw.uniform(low=0.3, high=0.8))
    slopes = []
    for i in range(len(pair.chosen)):
        means = [
            float(pair.chosen[i]) / float(pair.chosen_lengths[i]),
            float(pair.rejected[i]) / float(pair.rejected_lengths[i]),
        ]
        h = float(pair.chosen[i] - pair.ref_chosen[i] - pair.rejected[i] + pair.ref_rejected[i])
        slopes.append(math.exp(sum(means)) * beta / (1 + math.exp(beta * h)))
    weight = torch.tensor(slopes, dtype=torch.float64)
    return pair_gradient(lambda x: wpo(x, beta=beta), pair), torch.cat([-weight, weight])


def _crossed(draw: Draw) -> PairLogps:
    """Five pairs in which the policy's difference is large where the reference's is small."""
    ours = torch.arange(5, dtype=torch.float64) + draw.uniform(5, low=-0.3, high=0.3)
    theirs = -torch.arange(5, dtype=torch.float64) + draw.uniform(5, low=-0.3, high=0.3)
    order, base = [2, 0, 4, 1, 3], -draw.uniform(2, 5, low=5.0, high=9.0)
    return PairLogps(base[0] + ours[order], base[0], base[1] + theirs[order], base[1])


def _matchings(pair: Any) -> list[Tensor]:
    """The reference's differences in every order."""
    theirs = pair.ref_chosen - pair.ref_rejected
    return [theirs[list(order)] for order in itertools.permutations(range(5))]


@check(
    "eq:aot-quantiles",
    "value",
    "Matching by rank is the optimal transport from the policy's differences to the reference's.",
    of=pl.matched_quantiles,
    against="the smallest squared distance over all 120 matchings",
    wrong={
        "pair by pair": lambda pair: pair.ref_chosen - pair.ref_rejected,
        "largest with smallest": lambda pair: (
            pl.matched_quantiles(pair).sort().values.flip(0)[(pair.chosen - pair.rejected).argsort().argsort()]
        ),
        "sorted and not put back": lambda pair: pl.matched_quantiles(pair).sort().values,
    },
)
def _(matched_quantiles, draw):
    pair = _crossed(draw)
    ours = pair.chosen - pair.rejected
    cheapest = min(_matchings(pair), key=lambda theirs: float(((ours - theirs) ** 2).sum()))
    return matched_quantiles(pair), cheapest


@check(
    "eq:aot",
    "value",
    "As the logistic loss is convex, no other matching of the two distributions has a smaller mean loss.",
    of=pl.aot,
    against="the smallest mean logistic loss over all 120 matchings of policy and reference",
    wrong={
        "DPO": lambda pair, quantiles, *, beta: pl.dpo(pair, beta=beta),
        "β on one side": lambda pair, quantiles, *, beta: softplus(quantiles - beta * (pair.chosen - pair.rejected)),
        "the other way round": lambda pair, quantiles, *, beta: softplus(
            beta * (pair.chosen - pair.rejected - quantiles)
        ),
    },
)
def _(aot, draw):
    pair, beta = _crossed(draw), float(draw.uniform(low=0.3, high=0.8))
    ours = pair.chosen - pair.rejected
    least = min(float(softplus(-beta * (ours - theirs)).mean()) for theirs in _matchings(pair))
    return aot(pair, pl.matched_quantiles(pair), beta=beta).mean(), least
