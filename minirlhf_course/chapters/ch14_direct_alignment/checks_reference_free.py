"""Chapter 14, direct alignment: losses without a reference model."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch.nn.functional import softplus

from minirlhf.core import exact
from minirlhf.equations import preference_losses as pl
from minirlhf.equations.preference_losses import PairLogps
from minirlhf_course.ledger.inputs.preferences import pair_gradient, pairs, token_pairs, written_margins
from minirlhf_course.ledger.registry import check

# -- no reference ------------------------------------------------------------------------------------------------

SIMPO_MISTAKES = {
    "γ multiplied by β": lambda pair, *, beta, gamma: pl.simpo(pair, beta=beta, gamma=beta * gamma),
    "sums instead of means": lambda pair, *, beta, gamma: softplus(gamma - beta * (pair.chosen - pair.rejected)),
    "γ makes it easier": lambda pair, *, beta, gamma: softplus(
        -gamma - beta * (pair.per_token().chosen - pair.per_token().rejected)
    ),
}


@check(
    "eq:simpo",
    "value",
    "The odds against the label are e^γ times the ratio of the answers' mean token likelihoods to the power β.",
    of=pl.simpo,
    against="tokens of enumerated answers",
    wrong=SIMPO_MISTAKES,
)
def _(simpo, draw):
    pair, (w, l) = token_pairs(draw)
    beta, gamma = float(draw.uniform(low=1.5, high=2.5)), float(draw.uniform(low=0.3, high=1.5))
    odds = math.exp(gamma) * (l[0].nanmean(-1).exp() / w[0].nanmean(-1).exp()) ** beta
    return simpo(pair, beta=beta, gamma=gamma), torch.log1p(odds)


@check(
    "eq:simpo",
    "margin",
    "At a reward difference of exactly γ the loss is ln 2 and the gradient ½ β/|y|.",
    of=pl.simpo,
    against="ln 2 and half of β per token",
    wrong=SIMPO_MISTAKES,
)
def _(simpo, draw):
    beta, gamma = float(draw.uniform(low=1.5, high=2.5)), float(draw.uniform(low=0.3, high=1.5))
    pair = pairs(draw, lengths=True)
    pair = replace(pair, chosen_lengths=pair.chosen_lengths + 1)
    chosen = pair.chosen_lengths * (pair.rejected / pair.rejected_lengths + gamma / beta)
    pair = replace(pair, chosen=chosen)
    yield simpo(pair, beta=beta, gamma=gamma), torch.full((4,), math.log(2.0), dtype=torch.float64)
    push = torch.cat([-1 / pair.chosen_lengths.double(), 1 / pair.rejected_lengths.double()]) * beta / 2
    yield pair_gradient(lambda x: simpo(x, beta=beta, gamma=gamma), pair), push


ALPHA_PO_MISTAKES = {
    "α of the other sign": lambda pair, *, beta, alpha, gamma: pl.alpha_po(pair, beta=beta, alpha=-alpha, gamma=gamma),
    "SimPO": lambda pair, *, beta, alpha, gamma: pl.simpo(pair, beta=beta, gamma=gamma),
    "γ forgotten": lambda pair, *, beta, alpha, gamma: pl.alpha_po(pair, beta=beta, alpha=alpha),
}


@check(
    "eq:alpha-po",
    "value",
    "The reward is −β times the integral of e^(−αx) from the mean log-probability to 0.",
    of=pl.alpha_po,
    against="the reward as an integral",
    wrong=ALPHA_PO_MISTAKES,
)
def _(alpha_po, draw):
    pair, (w, l) = token_pairs(draw)
    beta, gamma = float(draw.uniform(low=1.0, high=2.0)), float(draw.uniform(low=0.3, high=1.0))
    alpha = float(draw.uniform(low=0.4, high=0.8))
    rewards = [
        torch.stack(
            [-beta * exact.integrate(lambda x: (-alpha * x).exp(), float(m), 0.0, 40) for m in side[0].nanmean(-1)]
        )
        for side in (w, l)
    ]
    return alpha_po(pair, beta=beta, alpha=alpha, gamma=gamma), torch.log1p((gamma - rewards[0] + rewards[1]).exp())


@check(
    "eq:alpha-po",
    "limit",
    "As α → 0, and at 0, the loss becomes SimPO's: −log σ of the difference of mean log-probabilities, minus γ.",
    of=pl.alpha_po,
    against="the mean log-probability per token, from the tokens",
    tolerance=1e-6,
    wrong={
        "another α": lambda pair, *, beta, alpha, gamma: pl.alpha_po(pair, beta=beta, alpha=alpha + 0.3, gamma=gamma),
        "not divided by α": lambda pair, *, beta, alpha, gamma: pl.alpha_po(
            pair, beta=beta * max(alpha, 1e-8), alpha=alpha, gamma=gamma
        ),
    },
)
def _(alpha_po, draw):
    pair, (w, l) = token_pairs(draw)
    beta, gamma = float(draw.uniform(low=1.0, high=2.0)), float(draw.uniform(low=0.3, high=1.0))
    gap = beta * (w[0].nanmean(-1) - l[0].nanmean(-1)) - gamma
    for alpha in (1e-8, 0.0):
        yield alpha_po(pair, beta=beta, alpha=alpha, gamma=gamma), torch.log1p((-gap).exp())


ORPO_MISTAKES = {
    "probability ratio for odds ratio": lambda pair, *, beta: (
        -pair.per_token().chosen + beta * softplus(pair.per_token().rejected - pair.per_token().chosen)
    ),
    "odds of whole answers": lambda pair, *, beta: (
        -pair.per_token().chosen
        + pl.orpo(
            replace(pair, chosen_lengths=0 * pair.chosen_lengths + 1, rejected_lengths=0 * pair.rejected_lengths + 1),
            beta=beta,
        )
        + pair.chosen
    ),
    "NLL forgotten": lambda pair, *, beta: pl.orpo(pair, beta=beta) + pair.per_token().chosen,
    "the rejected answer's odds raised": lambda pair, *, beta: (
        -pair.per_token().chosen + pl.orpo(pair.swapped(), beta=beta) + pair.per_token().rejected
    ),
}


@check(
    "eq:orpo",
    "value",
    "Mean NLL of the chosen answer plus β log(1 + odds_l/odds_w), the odds written out.",
    of=pl.orpo,
    against="odds from token probabilities",
    wrong=ORPO_MISTAKES,
)
def _(orpo, draw):
    pair, (w, l) = token_pairs(draw)
    beta = float(draw.uniform(low=0.3, high=0.8))
    p_w, p_l = w[0].nanmean(-1).exp(), l[0].nanmean(-1).exp()
    ratio = (p_l / (1 - p_l)) / (p_w / (1 - p_w))
    return orpo(pair, beta=beta), -p_w.log() + beta * torch.log1p(ratio)


@check(
    "eq:orpo",
    "gradient",
    "The gradient of the odds-ratio term has the weight δ = 1/(1 + odds_w/odds_l), times 1/(1 − P) for each answer.",
    of=pl.orpo,
    against="the paper's two factors δ and h",
    wrong=ORPO_MISTAKES,
)
def _(orpo, draw):
    pair, beta = pairs(draw, lengths=True), float(draw.uniform(low=0.3, high=0.8))
    pair = replace(pair, chosen_lengths=pair.chosen_lengths + 1)
    p_w, p_l = ((x / n).exp() for x, n in ((pair.chosen, pair.chosen_lengths), (pair.rejected, pair.rejected_lengths)))
    delta = 1 / (1 + p_w / (1 - p_w) / (p_l / (1 - p_l)))
    chosen = (-1 - beta * delta / (1 - p_w)) / pair.chosen_lengths
    return pair_gradient(lambda x: orpo(x, beta=beta), pair), torch.cat(
        [chosen, beta * delta / (1 - p_l) / pair.rejected_lengths]
    )


@check(
    "eq:cpo",
    "value",
    "With a reference that gives all answers the same probability, DPO plus the weighted −log π(y_w) is CPO.",
    of=pl.cpo,
    against="DPO with a uniform reference, and the negative log-likelihood of the answer",
    wrong={
        "NLL forgotten": lambda pair, *, beta, nll_weight: pl.cpo(pair, beta=beta, nll_weight=0.0),
        "NLL of the rejected answer": lambda pair, *, beta, nll_weight: (
            pl.cpo(pair, beta=beta, nll_weight=0.0) - nll_weight * pair.rejected
        ),
        "β forgotten": lambda pair, *, beta, nll_weight: pl.cpo(pair, beta=1.0, nll_weight=nll_weight),
        "weight forgotten": lambda pair, *, beta, nll_weight: pl.cpo(pair, beta=beta),
    },
)
def _(cpo, draw):
    pair, beta = pairs(draw), float(draw.uniform(low=0.1, high=0.6))
    uniform = draw.logps(1).expand(4)
    surprise = -pair.chosen.exp().log()
    weight = float(draw.away_from([1.0], low=0.3, high=2.0, margin=0.1))
    against_uniform = pl.dpo(replace(pair, ref_chosen=uniform, ref_rejected=uniform), beta=beta)
    return cpo(pair, beta=beta, nll_weight=weight), against_uniform + weight * surprise


@check(
    "eq:slic",
    "gradient",
    "Below the margin δ both answers have a gradient of size 1; the likelihood term always raises the chosen answer.",
    of=pl.slic,
    against="derivatives by hand, on both sides of the kink",
    wrong={
        "log-ratios": lambda pair, *, delta, nll_weight: torch.relu(delta - pair.margins) - nll_weight * pair.chosen,
        "kink at 0": lambda pair, *, delta, nll_weight: (
            torch.relu(pair.rejected - pair.chosen) - nll_weight * pair.chosen
        ),
        "regularised on the rejected answer": lambda pair, *, delta, nll_weight: (
            torch.relu(delta - pair.chosen + pair.rejected) - nll_weight * pair.rejected
        ),
    },
)
def _(slic, draw):
    delta, weight = float(draw.uniform(low=1.0, high=2.0)), float(draw.uniform(low=0.2, high=0.8))
    gap = torch.cat([draw.uniform(2, low=0.1, high=0.9), draw.uniform(2, low=1.1, high=2.0)]) * delta
    pair = pairs(draw)
    shifted = pair.rejected + gap
    pair = PairLogps(shifted, pair.rejected, shifted - 2 * delta * torch.tensor([1, 0, 1, 0]), pair.rejected)
    inside = torch.tensor([1.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    got = pair_gradient(lambda x: slic(x, delta=delta, nll_weight=weight), pair)
    yield got, torch.cat([-inside - weight, inside])


@check(
    "eq:likelihood-contrast",
    "gradient",
    "DPO's gradient without DPO's weight: the same for every pair; the weight of the rejected answer is a parameter.",
    of=pl.likelihood_contrast,
    against="DPO's gradient over DPO's weight",
    wrong={
        "DPO": lambda pair, *, weight: pl.dpo(pair, beta=0.5),
        "rejected answer raised": lambda pair, *, weight: -pair.chosen - weight * pair.rejected,
        "no contrast": lambda pair, *, weight: -pair.chosen,
    },
)
def _(likelihood_contrast, draw):
    pair, beta = pairs(draw), float(draw.uniform(low=0.2, high=0.8))
    of_pair = beta / (1 + (beta * written_margins(pair)).exp())  # β times the chance that the pair is wrong
    dpo = pair_gradient(lambda x: pl.dpo(x, beta=beta), pair) / of_pair.repeat(2)
    for weight in (1.0, float(draw.uniform(low=0.3, high=0.8))):
        scaled = torch.cat([dpo[:4], weight * dpo[4:]])
        yield pair_gradient(lambda x, weight=weight: likelihood_contrast(x, weight=weight), pair), scaled


@check(
    "eq:unlikelihood",
    "value",
    "Minus the log-probability that another token is sampled at each step.",
    of=pl.unlikelihood,
    against="the probability of every other token, summed",
    wrong={
        "of the whole answer": lambda logps, mask: -torch.log1p(-(logps * mask).sum(-1).exp()),
        "log-likelihood": lambda logps, mask: (logps * mask).sum(-1),
        "padding counted": lambda logps, mask: -torch.log1p(-torch.where(mask, logps, -1.0).exp()).sum(-1),
    },
)
def _(unlikelihood, draw):
    model = draw.toy(3, 2)
    responses = model.completions()
    logps = model.completion_token_logps()[0].detach()
    expected = torch.zeros(len(logps), dtype=torch.float64)
    for n, (row, kept) in enumerate(zip(responses.tokens.tolist(), responses.mask.tolist(), strict=True)):
        for t in range(sum(kept)):
            siblings = {
                tuple(other[: t + 1]): k for k, other in enumerate(responses.tokens.tolist()) if other[:t] == row[:t]
            }
            others = [float(logps[k, t].exp()) for prefix, k in siblings.items() if prefix[t] != row[t]]
            expected[n] -= math.log(sum(others))
    return unlikelihood(logps, responses.mask), expected
