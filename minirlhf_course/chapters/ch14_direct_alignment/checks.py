"""Chapter 14, direct alignment: every step of DPO's derivation, and what each of its relatives is smallest at.

The oracle is a policy over N answers written out: sums over all ordered pairs (or lists), numerical maximisation of the
RLHF objective, finite differences. A claim about a minimiser says that the gradient of the *population* loss, labels
included, vanishes at the policy that the paper names.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from minirlhf.core import exact
from minirlhf.equations import kl
from minirlhf.equations import preference_losses as pl
from minirlhf.equations.preference_losses import ListLogps, PairLogps
from minirlhf_course.ledger.inputs.preferences import all_pairs, bandit, pairs, policy_gradient, token_pairs
from minirlhf_course.ledger.registry import Draw, chain, check

chain(
    "dpo",
    "Direct preference optimisation",
    [
        "eq:rlhf-optimum",
        "eq:dpo-reparameterisation",
        "eq:dpo-cancellation",
        "eq:dpo-likelihood",
        "eq:dpo",
        "eq:dpo-gradient",
    ],
    module=__name__,
)
chain(
    "plackett-luce-dpo",
    "DPO on rankings",
    ["eq:dpo-reparameterisation", "eq:pl-dpo-cancellation", "eq:pl-dpo", "eq:pl-dpo-pair"],
    module=__name__,
)
chain("psi-po-dpo", "ΨPO with the logit is DPO", ["eq:psi-po", "eq:psi-po-optimum", "eq:psi-logit"], module=__name__)
chain(
    "ipo",
    "ΨPO with the identity is IPO",
    ["eq:psi-po", "eq:psi-po-optimum", "eq:ipo-target", "eq:ipo"],
    module=__name__,
)


# -- DPO, step by step -------------------------------------------------------------------------------------------


@check(
    "eq:dpo-reparameterisation",
    "step",
    "Solving the optimum for the reward gives the reward that was maximised.",
    of=pl.reward_of_optimum,
    against="the optimum found by numerical maximisation, Z by summation",
    tolerance=1e-8,
    follows="eq:rlhf-optimum",
    wrong={
        "sign of log Z": lambda a, b, z, *, beta: beta * (a - b) - beta * z,
        "log Z without β": lambda a, b, z, *, beta: beta * (a - b) + z,
        "π and π_ref swapped": lambda a, b, z, *, beta: beta * (b - a) + beta * z,
    },
)
def _(reward_of_optimum, draw):
    b = bandit(draw)
    rewards = b.rewards + 1.0 + draw.uniform()  # away from Z = 1
    log_z = (b.ref * (rewards / b.beta).exp()).sum().log()
    return reward_of_optimum(b._replace(rewards=rewards).optimum(), b.ref.log(), log_z, beta=b.beta), rewards


@check(
    "eq:dpo-cancellation",
    "step",
    "For any log Z, Bradley–Terry on r = β log(π/π_ref) + β log Z is σ(βh).",
    of=pl.preference_probability,
    against="Bradley–Terry on the rewards of the previous step, exponentials written out",
    follows="eq:dpo-reparameterisation",
    wrong={
        "reference forgotten": lambda pair, *, beta: torch.sigmoid(beta * (pair.chosen - pair.rejected)),
        "β forgotten": lambda pair, *, beta: torch.sigmoid(pair.margins),
        "Z left on one side": lambda pair, *, beta: torch.sigmoid(beta * (pair.margins + 1.0)),
    },
)
def _(preference_probability, draw):
    b = bandit(draw)
    logps = draw.distribution(4).log()
    rewards = pl.reward_of_optimum(logps, b.ref.log(), draw.normal(1), beta=b.beta)
    pair, i, j = all_pairs(logps, b.ref)
    return preference_probability(pair, beta=b.beta), rewards[i].exp() / (rewards[i].exp() + rewards[j].exp())


@check(
    "eq:dpo-likelihood",
    "step",
    "The expected log-likelihood of labels p(y_i ≻ y_j) is stationary at any policy whose implicit rewards "
    "generated the labels.",
    of=pl.preference_probability,
    against="labels from Bradley–Terry, over all weighted pairs",
    follows="eq:dpo-cancellation",
    wrong={
        "reference forgotten": lambda pair, *, beta: torch.sigmoid(beta * (pair.chosen - pair.rejected)),
        "β forgotten": lambda pair, *, beta: torch.sigmoid(pair.margins),
        "the rejected answer's probability": lambda pair, *, beta: torch.sigmoid(-beta * pair.margins),
    },
)
def _(preference_probability, draw):
    b = bandit(draw)
    logps = draw.distribution(4).log()
    r = b.beta * (logps - b.ref.log()) + draw.normal(1)
    labels = (1 + (r[None, :] - r[:, None]).exp()).reciprocal()
    weight = draw.uniform(4, 4, low=0.5, high=2.0)
    weight = weight + weight.mT

    def negative_log_likelihood(x: Tensor) -> Tensor:
        pair, i, j = all_pairs(x, b.ref)
        return -(weight[i, j] * labels[i, j] * preference_probability(pair, beta=b.beta).log()).sum()

    return policy_gradient(negative_log_likelihood, logps), torch.zeros(4)


DPO_MISTAKES = {
    "reference forgotten": lambda pair, *, beta: -logsigmoid(beta * (pair.chosen - pair.rejected)),
    "chosen and rejected swapped": lambda pair, *, beta: -logsigmoid(-beta * pair.margins),
    "β divides": lambda pair, *, beta: -logsigmoid(pair.margins / beta),
}


@check(
    "eq:dpo",
    "step",
    "The loss is the negative log-likelihood of the label.",
    of=pl.dpo,
    against="minus the logarithm of the preference probability",
    follows="eq:dpo-likelihood",
    wrong=DPO_MISTAKES,
)
def _(dpo, draw):
    pair, beta = pairs(draw), float(draw.uniform(low=0.1, high=0.6))
    return dpo(pair, beta=beta), -pl.preference_probability(pair, beta=beta).log()


@check(
    "eq:dpo",
    "start",
    "Before the first step, when the policy is the reference, the loss of every pair is ln 2 for every β.",
    of=pl.dpo,
    against="ln 2",
    wrong={
        "reference forgotten": DPO_MISTAKES["reference forgotten"],
        "no logarithm": lambda pair, *, beta: 1 - torch.sigmoid(beta * pair.margins),
    },
)
def _(dpo, draw):
    pair = pairs(draw)
    pair = replace(pair, chosen=pair.ref_chosen, rejected=pair.ref_rejected)
    return dpo(pair, beta=float(draw.uniform(low=0.1, high=5.0))), torch.full((4,), math.log(2.0), dtype=torch.float64)


@check(
    "eq:dpo",
    "minimiser",
    "With labels from Bradley–Terry the policy with the smallest DPO loss is the optimum of E[r] − β KL; both "
    "are found numerically.",
    of=pl.dpo,
    against="the RLHF optimum, found numerically",
    tolerance=1e-8,
    wrong=DPO_MISTAKES,
)
def _(dpo, draw):
    b = bandit(draw, 3)

    def population(probs: Tensor) -> Tensor:
        pair, i, j = all_pairs(probs.log(), b.ref)
        return (torch.sigmoid(b.rewards[i] - b.rewards[j]) * dpo(pair, beta=b.beta)).sum()

    return exact.maximise(lambda p: -population(p), 3), b.optimum().exp()


@check(
    "eq:dpo-gradient",
    "step",
    "∇L = −Σ weight · (∇log π(y_w) − ∇log π(y_l)), for the logits of a sequence model.",
    of=pl.dpo_gradient_weight,
    against="finite differences of the loss in every logit of an enumerable model",
    tolerance=1e-7,
    follows="eq:dpo",
    wrong={
        "weight of the pair that is right": lambda pair, *, beta: beta * torch.sigmoid(beta * pair.margins),
        "β forgotten": lambda pair, *, beta: torch.sigmoid(-beta * pair.margins),
        "no weight": lambda pair, *, beta: torch.full_like(pair.chosen, beta),
    },
)
def _(dpo_gradient_weight, draw):
    model, reference = draw.toy(2, 2), draw.toy(2, 2)
    beta = float(draw.uniform(low=0.1, high=0.6))
    order = draw.permutation(3)
    w, l = order[:2], order[1:]
    ref = reference.distribution()[0].log().detach()

    def pair_at(table: Tensor) -> PairLogps:
        with torch.no_grad():
            model.table.copy_(table)
        logps = model.distribution()[0].log()
        return PairLogps(logps[w], logps[l], ref[w], ref[l])

    start = model.table.detach().clone()
    numeric = exact.finite_difference(lambda x: pl.dpo(pair_at(x), beta=beta).sum().detach(), start)
    pair = pair_at(start)
    weight = dpo_gradient_weight(pair, beta=beta).detach()
    return exact.gradient(-(weight * (pair.chosen - pair.rejected)).sum(), model.table), numeric.flatten()


# -- rankings ----------------------------------------------------------------------------------------------------

ORDERS = torch.tensor(list(itertools.permutations(range(3))))


def all_orders(logps: Tensor, ref: Tensor) -> ListLogps:
    """The six rankings of three answers."""
    return ListLogps(logps[ORDERS], ref.log()[ORDERS])


def one_denominator(batch: ListLogps, *, beta: float) -> Tensor:
    """The slip of normalising over all answers at every rank."""
    return -(beta * batch.logratios).log_softmax(-1).sum(-1)


RANKING_MISTAKES = {
    "one denominator for all ranks": one_denominator,
    "ranking read from worst to best": lambda batch, *, beta: pl.plackett_luce_dpo(
        ListLogps(batch.logps.flip(-1), batch.ref_logps.flip(-1)), beta=beta
    ),
    "reference forgotten": lambda batch, *, beta: pl.plackett_luce_dpo(
        replace(batch, ref_logps=torch.zeros_like(batch.logps)), beta=beta
    ),
}


@check(
    "eq:pl-dpo-cancellation",
    "step",
    "The probabilities of the rankings sum to 1; the probability of being first is the softmax of the rewards, "
    "and that of preceding one other answer is Bradley–Terry.",
    of=pl.ranking_probability,
    against="all orders of three answers, with the rewards of the previous step",
    follows="eq:dpo-reparameterisation",
    wrong={
        name: lambda batch, *, beta, loss=loss: (-loss(batch, beta=beta)).exp()
        for name, loss in RANKING_MISTAKES.items()
    },
)
def _(ranking_probability, draw):
    b, logps = bandit(draw, 3), draw.distribution(3).log()
    r = pl.reward_of_optimum(logps, b.ref.log(), draw.normal(1), beta=b.beta)
    p = ranking_probability(all_orders(logps, b.ref), beta=b.beta)
    yield p.sum(), 1.0
    yield torch.stack([p[ORDERS[:, 0] == k].sum() for k in range(3)]), r.exp() / r.exp().sum()
    ranks = ORDERS.argsort(-1)
    yield p[ranks[:, 0] < ranks[:, 1]].sum(), 1 / (1 + (r[1] - r[0]).exp())


@check(
    "eq:pl-dpo",
    "step",
    "The loss is minus the log of the product of choices: the best of all, then the best of the rest.",
    of=pl.plackett_luce_dpo,
    against="rank-by-rank choices, multiplied",
    follows="eq:pl-dpo-cancellation",
    wrong=RANKING_MISTAKES,
)
def _(plackett_luce_dpo, draw):
    b, logps = bandit(draw, 4), draw.distribution(4).log()
    order = draw.permutation(4)
    weight = ((logps - b.ref.log()) * b.beta).exp()[order]
    product = math.prod(float(weight[k] / weight[k:].sum()) for k in range(4))
    return plackett_luce_dpo(ListLogps(logps[order][None], b.ref.log()[order][None]), beta=b.beta), torch.tensor(
        [-math.log(product)], dtype=torch.float64
    )


@check(
    "eq:pl-dpo",
    "minimiser",
    "With rankings from Plackett–Luce the gradient vanishes at the optimum of E[r] − β KL.",
    of=pl.plackett_luce_dpo,
    against="the RLHF optimum, found numerically",
    tolerance=1e-8,
    wrong=RANKING_MISTAKES,
)
def _(plackett_luce_dpo, draw):
    b = bandit(draw, 3)
    weight = b.rewards.exp()[ORDERS]
    chance = weight[:, 0] / weight.sum(-1) * weight[:, 1] / weight[:, 1:].sum(-1)
    population = lambda x: (chance * plackett_luce_dpo(all_orders(x, b.ref), beta=b.beta)).sum()
    return policy_gradient(population, b.optimum()), torch.zeros(3)


@check(
    "eq:pl-dpo-pair",
    "step",
    "With two answers the loss on rankings is DPO.",
    of=pl.plackett_luce_dpo,
    against="DPO",
    follows="eq:pl-dpo",
    wrong=RANKING_MISTAKES,
)
def _(plackett_luce_dpo, draw):
    pair, beta = pairs(draw), float(draw.uniform(low=0.1, high=0.6))
    return plackett_luce_dpo(pair.ranked(), beta=beta), pl.dpo(pair, beta=beta)


# -- ΨPO and IPO -------------------------------------------------------------------------------------------------


class Duel(NamedTuple):
    """Preference probabilities of any kind (no reward behind them), an opponent, a reference."""

    preferences: Tensor
    opponent: Tensor
    ref: Tensor
    beta: float


def duel(draw: Draw, size: int = 4) -> Duel:
    """Random preferences; they may well be intransitive."""
    half = draw.normal(size, size).triu(1)
    preferences = torch.sigmoid(half - half.mT)
    return Duel(preferences, draw.distribution(size), draw.distribution(size), float(draw.uniform(low=0.3, high=0.8)))


def identity(p: Tensor) -> Tensor:
    """Ψ of IPO."""
    return p


def psi_by_hand(d: Duel, psi: Callable[[float], float]) -> Tensor:
    """E_{y'~μ}[Ψ(p(y ≻ y'))] in two loops."""
    size = range(len(d.opponent))
    means = [sum(float(d.opponent[j]) * psi(float(d.preferences[i, j])) for j in size) for i in size]
    return torch.tensor(means, dtype=torch.float64)


PSI_MISTAKES = {
    "Ψ after the mean": lambda preferences, opponent, *, psi: psi((preferences * opponent).sum(-1)),
    "uniform opponent": lambda preferences, opponent, *, psi: psi(preferences).mean(-1),
    "chance of losing": lambda preferences, opponent, *, psi: (psi(preferences.mT) * opponent).sum(-1),
}


@check(
    "eq:psi-reward",
    "value",
    "The mean of Ψ over opponents; with the identity a policy wins half of its games against itself.",
    of=pl.psi_reward,
    against="two loops over the answers",
    wrong=PSI_MISTAKES,
)
def _(psi_reward, draw):
    d = duel(draw)
    for psi, by_hand in ((torch.logit, lambda p: math.log(p / (1 - p))), (torch.square, lambda p: p * p)):
        yield psi_reward(d.preferences, d.opponent, psi=psi), psi_by_hand(d, by_hand)
    yield (d.opponent * psi_reward(d.preferences, d.opponent, psi=identity)).sum(), 0.5


@check(
    "eq:psi-po",
    "value",
    "The mean of Ψ over all games, minus β times the reverse KL to the reference.",
    of=pl.psi_po_objective,
    against="all games of y ~ π against y' ~ μ, and the KL by summation",
    wrong={
        "KL reversed": lambda a, b, p, m, *, beta, psi: (
            (a.exp() * pl.psi_reward(p, m, psi=psi)).sum() - beta * kl.forward_kl(a, b)
        ),
        "KL rewarded": lambda a, b, p, m, *, beta, psi: (
            (a.exp() * pl.psi_reward(p, m, psi=psi)).sum() + beta * kl.reverse_kl(a, b)
        ),
        "π plays itself": lambda a, b, p, m, *, beta, psi: pl.psi_po_objective(a, b, p, a.exp(), beta=beta, psi=psi),
    },
)
def _(psi_po_objective, draw):
    d, probs = duel(draw), draw.distribution(4)
    for psi in (torch.square, torch.sin):
        games = (probs[:, None] * d.opponent[None, :] * psi(d.preferences)).sum()
        got = psi_po_objective(probs.log(), d.ref.log(), d.preferences, d.opponent, beta=d.beta, psi=psi)
        yield got, games - d.beta * exact.divergence(probs, d.ref)


@check(
    "eq:psi-po-optimum",
    "step",
    "The optimum tilts the reference by exp(E[Ψ]/β).",
    of=pl.psi_po_optimum,
    against="numerical maximisation of the objective",
    tolerance=1e-8,
    follows="eq:psi-po",
    wrong={
        "β multiplies": lambda b, p, m, *, beta, psi: (b + beta * pl.psi_reward(p, m, psi=psi)).log_softmax(-1),
        "reference forgotten": lambda b, p, m, *, beta, psi: (pl.psi_reward(p, m, psi=psi) / beta).log_softmax(-1),
        "uniform opponent": lambda b, p, m, *, beta, psi: pl.psi_po_optimum(
            b, p, torch.full_like(m, 1 / len(m)), beta=beta, psi=psi
        ),
    },
)
def _(psi_po_optimum, draw):
    d = duel(draw)
    found = exact.maximise(
        lambda q: pl.psi_po_objective(q.log(), d.ref.log(), d.preferences, d.opponent, beta=d.beta, psi=torch.square), 4
    )
    return psi_po_optimum(d.ref.log(), d.preferences, d.opponent, beta=d.beta, psi=torch.square).exp(), found


@check(
    "eq:psi-logit",
    "step",
    "With Bradley–Terry preferences and Ψ = logit, the optimum of ΨPO is that of DPO, for any opponent.",
    of=pl.psi_reward,
    against="the RLHF optimum of the rewards that generated the preferences, found numerically",
    tolerance=1e-8,
    follows="eq:psi-po-optimum",
    wrong={
        "Ψ after the mean": PSI_MISTAKES["Ψ after the mean"],
        "chance of losing": PSI_MISTAKES["chance of losing"],
        "Ψ = log p": lambda preferences, opponent, *, psi: (preferences.log() * opponent).sum(-1),
    },
)
def _(psi_reward, draw):
    b, opponent = bandit(draw), draw.distribution(4)
    b = b._replace(rewards=b.rewards + torch.tensor([2.0, 0.0, 0.0, -2.0], dtype=torch.float64))  # a clear order
    preferences = torch.sigmoid(b.rewards[:, None] - b.rewards[None, :])
    gain = psi_reward(preferences, opponent, psi=torch.logit)
    tilted = b.ref * (gain / b.beta).exp()
    return tilted / tilted.sum(), b.optimum().exp()


@check(
    "eq:ipo-target",
    "step",
    "At the optimum the margin of two answers is the difference of their win rates over β.",
    of=pl.ipo_target,
    against="log-ratios of ΨPO's optimum",
    follows="eq:psi-po-optimum",
    wrong={
        "Ψ = logit": lambda p, m, *, beta: (
            (pl.psi_reward(p, m, psi=torch.logit)[:, None] - pl.psi_reward(p, m, psi=torch.logit)) / beta
        ),
        "p(y ≻ y') itself": lambda p, m, *, beta: (p - 0.5) / beta,
        "β multiplies": lambda p, m, *, beta: beta * pl.ipo_target(p, m, beta=1.0),
    },
)
def _(ipo_target, draw):
    d = duel(draw)
    logratio = pl.psi_po_optimum(d.ref.log(), d.preferences, d.opponent, beta=d.beta, psi=identity) - d.ref.log()
    return ipo_target(d.preferences, d.opponent, beta=d.beta), logratio[:, None] - logratio[None, :]


IPO_MISTAKES = {
    "target 1/β": lambda pair, *, beta: (pair.margins - 1 / beta) ** 2,
    "target β/2": lambda pair, *, beta: (pair.margins - beta / 2) ** 2,
    "reference forgotten": lambda pair, *, beta: (pair.chosen - pair.rejected - 1 / (2 * beta)) ** 2,
}


@check(
    "eq:ipo",
    "step",
    "Over pairs of answers from μ, labelled by the preferences, the gradient of IPO vanishes at the policy with the "
    "target margins.",
    of=pl.ipo,
    against="ΨPO's optimum with Ψ = identity",
    follows="eq:ipo-target",
    wrong=IPO_MISTAKES,
)
def _(ipo, draw):
    d = duel(draw)
    optimum = pl.psi_po_optimum(d.ref.log(), d.preferences, d.opponent, beta=d.beta, psi=identity)

    def population(x: Tensor) -> Tensor:
        pair, i, j = all_pairs(x, d.ref)
        return (d.opponent[i] * d.opponent[j] * d.preferences[i, j] * ipo(pair, beta=d.beta)).sum()

    return policy_gradient(population, optimum), torch.zeros(4)


@check(
    "eq:ipo",
    "certain labels",
    "With a label that is never flipped the optimal margin is 1/(2β), not infinity.",
    of=pl.ipo,
    against="numerical minimisation",
    tolerance=1e-8,
    wrong=IPO_MISTAKES,
)
def _(ipo, draw):
    likely, beta = float(draw.uniform(low=0.25, high=0.75)), float(draw.uniform(low=0.3, high=0.8))
    ref = torch.tensor([likely, 1 - likely], dtype=torch.float64)
    pair = lambda q: PairLogps(q[:1].log(), q[1:].log(), ref[:1].log(), ref[1:].log())
    found = exact.maximise(lambda q: -ipo(pair(q), beta=beta).sum(), 2)
    return pair(found).margins[0], 1 / (2 * beta)


@check(
    "eq:ipo",
    "per token",
    "The length-normalised form compares mean log-ratios per token.",
    of=pl.ipo,
    against="means over the tokens of enumerated answers",
    wrong={
        "sums": lambda pair, *, beta, length_normalised: pl.ipo(pair, beta=beta),
        "one length for both": lambda pair, *, beta, length_normalised: (
            (pair.margins / pair.chosen_lengths - 1 / (2 * beta)) ** 2
        ),
        "target divided too": lambda pair, *, beta, length_normalised: pl.ipo(pair, beta=beta) / pair.chosen_lengths**2,
    },
)
def _(ipo, draw):
    pair, (w, l) = token_pairs(draw)
    beta = float(draw.uniform(low=0.3, high=0.8))
    means = w[0].double().nanmean(-1) - w[1].nanmean(-1) - l[0].nanmean(-1) + l[1].nanmean(-1)
    return ipo(pair, beta=beta, length_normalised=True), (means - 1 / (2 * beta)) ** 2


# -- the game ----------------------------------------------------------------------------------------------------


@check(
    "eq:preference-nash",
    "equilibrium",
    "Against the policy that is its own best response, no policy has a larger win rate minus β KL than that "
    "policy itself, even without transitivity.",
    of=pl.psi_po_optimum,
    against="the best deviation, found numerically",
    tolerance=1e-8,
    wrong={
        "opponent is the reference (IPO)": lambda b, p, m, *, beta, psi: pl.psi_po_optimum(
            b, p, b.exp(), beta=beta, psi=psi
        ),
        "reference forgotten": lambda b, p, m, *, beta, psi: (pl.psi_reward(p, m, psi=psi) / beta).log_softmax(-1),
        "chance of losing": lambda b, p, m, *, beta, psi: pl.psi_po_optimum(b, p.mT, m, beta=beta, psi=psi),
    },
)
def _(psi_po_optimum, draw):
    win, beta = float(draw.uniform(low=0.75, high=0.95)), float(draw.uniform(low=0.3, high=0.6))
    lose = 1 - win  # rock, scissors, paper
    game = torch.tensor([[0.5, win, lose], [lose, 0.5, win], [win, lose, 0.5]], dtype=torch.float64)
    ref = torch.tensor([0.6, 0.25, 0.15], dtype=torch.float64) * draw.uniform(3, low=0.9, high=1.1)
    ref = (ref / ref.sum()).log()
    logps = ref
    for _ in range(60):  # damped: half a step towards the best response
        logps = (0.5 * logps + 0.5 * psi_po_optimum(ref, game, logps.exp(), beta=beta, psi=identity)).log_softmax(-1)
    value = lambda q: pl.psi_po_objective(q.log(), ref, game, logps.exp(), beta=beta, psi=identity)
    return logps.exp(), exact.maximise(value, 3)


@check(
    "eq:nash-md",
    "step",
    "The next policy maximises η p(π ≻ m) − KL(π‖m), where m ∝ π^(1 − ηβ) π_ref^(ηβ).",
    of=pl.nash_md,
    against="the geometric mixture written out, the step by numerical maximisation",
    tolerance=1e-8,
    wrong={
        "no mixing": lambda a, b, p, *, beta, step: pl.psi_po_optimum(a, p, a.exp(), beta=1 / step, psi=identity),
        "opponent is the policy itself": lambda a, b, p, *, beta, step: pl.psi_po_optimum(
            ((1 - step * beta) * a + step * beta * b).log_softmax(-1), p, a.exp(), beta=1 / step, psi=identity
        ),
        "arithmetic mixture": lambda a, b, p, *, beta, step: pl.nash_md(
            (m := ((1 - step * beta) * a.exp() + step * beta * b.exp()).log()), m, p, beta=beta, step=step
        ),
    },
)
def _(nash_md, draw):
    d, probs = duel(draw), draw.distribution(4)
    step = float(draw.uniform(low=0.4, high=1.0)) / d.beta
    mixture = probs ** (1 - step * d.beta) * d.ref ** (step * d.beta)
    mixture = mixture / mixture.sum()
    wins = (d.preferences * mixture).sum(-1)
    found = exact.maximise(lambda q: step * (q * wins).sum() - exact.divergence(q, mixture), 4)
    return nash_md(probs.log(), d.ref.log(), d.preferences, beta=d.beta, step=step).exp(), found
