"""Chapter 14, direct alignment: lists with targets, and single answers with a thumb up or down."""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from minirlhf.core import exact
from minirlhf.equations import preference_losses as pl
from minirlhf.equations.preference_losses import ListLogps, UnpairedLogps
from minirlhf_course.ledger.inputs.preferences import at, bandit, bell, log_quotients, pairs, policy_gradient
from minirlhf_course.ledger.registry import Draw, check

# -- lists with targets ------------------------------------------------------------------------------------------


def whole_list(logps: Tensor, ref: Tensor) -> ListLogps:
    """All answers to the prompt as one list."""
    return ListLogps(logps[None], ref.log()[None])


@check(
    "eq:reward-targets",
    "optimum",
    "Over all answers, with a uniform reference, the targets are the optimum of E[r] − temperature · KL.",
    of=pl.reward_targets,
    against="the RLHF optimum, found numerically",
    tolerance=1e-8,
    wrong={
        "temperature multiplies": lambda rewards, *, temperature: (rewards * temperature).softmax(-1),
        "no temperature": lambda rewards, *, temperature: rewards.softmax(-1),
        "worst first": lambda rewards, *, temperature: (-rewards / temperature).softmax(-1),
    },
)
def _(reward_targets, draw):
    b = bandit(draw)._replace(ref=torch.full((4,), 0.25, dtype=torch.float64))
    return reward_targets(b.rewards[None], temperature=b.beta)[0], b.optimum().exp()


@check(
    "eq:info-nca",
    "minimiser",
    "At the policy π ∝ π_ref p^(1/β) the loss is the entropy of the target, and stationary.",
    of=pl.info_nca,
    against="the target, tilted in closed form",
    wrong={
        "NCA": pl.nca,
        "EXO": pl.exo,
        "reference forgotten": lambda batch, targets, *, beta: pl.info_nca(
            replace(batch, ref_logps=torch.zeros_like(batch.logps)), targets, beta=beta
        ),
    },
)
def _(info_nca, draw):
    ref, target, beta = draw.distribution(4), draw.distribution(1, 4), float(draw.uniform(low=0.4, high=0.8))
    best = ref * target[0] ** (1 / beta)
    best = (best / best.sum()).log()
    loss = lambda x: info_nca(whole_list(x, ref), target, beta=beta)
    yield loss(best), exact.entropy(target)
    yield policy_gradient(lambda x: loss(x).sum(), best), torch.zeros(4)


@check(
    "eq:info-nce",
    "minimiser",
    "With positives from p and negatives from q, the loss is stationary where β log(π/π_ref) = log(p/q) + const.",
    of=pl.info_nce,
    against="the density ratio, all lists of one positive and two negatives summed",
    wrong={
        "positive last": lambda batch, *, beta: -(beta * batch.logratios).log_softmax(-1)[:, -1],
        "positive left out of the denominator": lambda batch, *, beta: (
            (beta * batch.logratios)[:, 1:].logsumexp(-1) - beta * batch.logratios[:, 0]
        ),
        "β forgotten": lambda batch, *, beta: -batch.logratios.log_softmax(-1)[:, 0],
    },
)
def _(info_nce, draw):
    ref, p, q = draw.distribution(3), draw.distribution(3), draw.distribution(3)
    beta = float(draw.uniform(low=0.4, high=0.8))
    lists = torch.tensor(list(itertools.product(range(3), repeat=3)))  # (27, 3)
    chance = p[lists[:, 0]] * q[lists[:, 1]] * q[lists[:, 2]]
    best = (ref.log() + (p / q).log() / beta).log_softmax(-1)
    population = lambda x: (chance * info_nce(ListLogps(x[lists], ref.log()[lists]), beta=beta)).sum()
    return policy_gradient(population, best), torch.zeros(3)


@check(
    "eq:nca",
    "minimiser",
    "On the list of all answers, with a uniform reference, every derivative with respect to a log-probability "
    "vanishes at the optimum, constant included.",
    of=pl.nca,
    against="the RLHF optimum, found numerically",
    tolerance=1e-8,
    wrong={
        "reference forgotten": lambda batch, targets, *, beta: pl.nca(
            replace(batch, ref_logps=torch.zeros_like(batch.logps)), targets, beta=beta
        ),
        "noise not divided by K": lambda batch, targets, *, beta: (
            -(targets * logsigmoid(beta * batch.logratios) + logsigmoid(-beta * batch.logratios)).sum(-1)
        ),
        "signs swapped": lambda batch, targets, *, beta: (
            -(
                targets * logsigmoid(-beta * batch.logratios) + logsigmoid(beta * batch.logratios) / targets.shape[-1]
            ).sum(-1)
        ),
    },
)
def _(nca, draw):
    temperature = float(draw.uniform(low=0.4, high=0.8))
    b = bandit(draw)._replace(ref=torch.full((4,), 0.25, dtype=torch.float64), beta=temperature)
    targets = pl.reward_targets(b.rewards[None], temperature=temperature)
    logps = b.optimum().requires_grad_()
    return exact.gradient(nca(whole_list(logps, b.ref), targets, beta=1.0).sum(), logps), torch.zeros(4)


@check(
    "eq:nca",
    "draws from the reference",
    "At the optimum exp(β log π/π_ref) of each answer is its expected total target over its reference "
    "probability: at β = 1 the policy is that expected target.",
    of=pl.nca,
    against="all lists of two and of three draws, weighted by probability",
    wrong={
        "noise not divided by K": lambda batch, targets, *, beta: (
            -(targets * logsigmoid(beta * batch.logratios) + logsigmoid(-beta * batch.logratios)).sum(-1)
        ),
        "β forgotten": lambda batch, targets, *, beta: pl.nca(batch, targets, beta=1.0),
        "reference forgotten": lambda batch, targets, *, beta: pl.nca(
            replace(batch, ref_logps=torch.zeros_like(batch.logps)), targets, beta=beta
        ),
    },
)
def _(nca, draw):
    ref, rewards = draw.distribution(3), draw.normal(3)
    for size, beta in ((2, 1.0), (3, 1.0), (2, float(draw.uniform(low=0.4, high=0.8)))):
        lists = torch.cartesian_prod(*[torch.arange(3)] * size)  # (3^K, K)
        chance, targets = ref[lists].prod(-1), (2 * rewards[lists]).softmax(-1)
        shares = torch.zeros(3, dtype=torch.float64)
        for row, p, t in zip(lists.tolist(), chance.tolist(), targets.tolist(), strict=True):
            for answer, share in zip(row, t, strict=True):
                shares[answer] += p * share

        def population(logps: Tensor, lists=lists, chance=chance, targets=targets, beta=beta) -> Tensor:
            return (chance * nca(ListLogps(logps[lists], ref.log()[lists]), targets, beta=beta)).sum()

        logps = (ref.log() + (shares / ref).log() / beta).requires_grad_()
        yield exact.gradient(population(logps), logps), torch.zeros(3)
        if beta == 1.0:  # they sum to 1, so it is a policy, and rests through its logits too
            yield policy_gradient(population, shares.log()), torch.zeros(3)


@check(
    "eq:nca-pair",
    "minimiser",
    "The implicit reward of the chosen answer has an optimum, ln 2; the rejected one is lowered with weight half "
    "a sigmoid.",
    of=pl.nca_pair,
    against="finite differences",
    tolerance=1e-8,
    wrong={
        "DPO": pl.dpo,
        "BCO": pl.bco_pair,
        "a unit of noise on each": lambda pair, *, beta: (
            softplus(-beta * pair.chosen_logratios)
            + softplus(beta * pair.chosen_logratios)
            + softplus(beta * pair.rejected_logratios)
        ),
    },
)
def _(nca_pair, draw):
    pair, beta = pairs(draw), float(draw.uniform(low=0.3, high=0.8))
    r_l = pair.rejected_logratios
    chosen = lambda t: nca_pair(at(pair, chosen=math.log(2.0) / beta + t, rejected=r_l), beta=beta).sum()
    yield exact.finite_difference(chosen, torch.zeros(4, dtype=torch.float64)), torch.zeros(4)
    rejected = lambda t: nca_pair(at(pair, chosen=pair.chosen_logratios, rejected=t), beta=beta).sum()
    yield exact.finite_difference(rejected, r_l), 0.5 * beta / (1 + (-beta * r_l).exp())


@check(
    "eq:exo",
    "gradient",
    "A reverse KL; on the list of all answers, with a uniform reference, its gradient is that of minus (E[r] − β "
    "KL)/β.",
    of=pl.exo,
    against="the RLHF objective by summation",
    wrong={
        "InfoNCA": pl.info_nca,
        "reference forgotten": lambda batch, targets, *, beta: pl.exo(
            replace(batch, ref_logps=torch.zeros_like(batch.logps)), targets, beta=beta
        ),
        "entropy forgotten": lambda batch, targets, *, beta: (
            -((beta * batch.logratios).softmax(-1) * targets.log()).sum(-1)
        ),
    },
)
def _(exo, draw):
    temperature = float(draw.uniform(low=0.4, high=0.8))
    ref, rewards = torch.full((4,), 0.25, dtype=torch.float64), draw.normal(4)
    targets = pl.reward_targets(rewards[None], temperature=temperature)
    logps = draw.distribution(4).log()
    objective = lambda x: -exact.regularised_value(x.exp(), ref, rewards, temperature) / temperature
    got = policy_gradient(lambda x: exo(whole_list(x, ref), targets, beta=1.0).sum(), logps)
    yield got, policy_gradient(objective, logps)
    other = draw.distribution(4)
    scores = 0.5 * (logps - other.log())
    yield exo(whole_list(logps, other), targets, beta=0.5), exact.divergence(scores.exp() / scores.exp().sum(), targets)


@check(
    "eq:exo-pair",
    "value",
    "The KL from the model's Bernoulli distribution to the label's: zero at βh = log((1 − ε)/ε), the minimiser "
    "of cDPO.",
    of=pl.exo_pair,
    against="KL between two Bernoulli distributions, by summation",
    wrong={
        "forward KL": lambda pair, *, beta, label_smoothing: (
            pl.cdpo(pair, beta=beta, label_smoothing=label_smoothing)
            - pl.cdpo(
                at(pair, chosen=0 * pair.chosen + math.log(1 / label_smoothing - 1) / beta, rejected=0 * pair.chosen),
                beta=beta,
                label_smoothing=label_smoothing,
            )
        ),
        "ε and 1 − ε swapped": lambda pair, *, beta, label_smoothing: pl.exo_pair(
            pair.swapped(), beta=beta, label_smoothing=label_smoothing
        ),
        "entropy forgotten": lambda pair, *, beta, label_smoothing: (
            pl.exo_pair(pair, beta=beta, label_smoothing=label_smoothing)
            + exact.entropy((beta * pair.ranked().logratios).softmax(-1))
        ),
    },
)
def _(exo_pair, draw):
    beta, eps = float(draw.uniform(low=0.3, high=0.8)), float(draw.uniform(low=0.05, high=0.3))
    pair = pairs(draw)
    p = pl.preference_probability(pair, beta=beta)
    label = torch.tensor([1 - eps, eps], dtype=torch.float64).expand(4, 2)
    yield exo_pair(pair, beta=beta, label_smoothing=eps), exact.divergence(torch.stack([p, 1 - p], -1), label)
    best = torch.full((4,), math.log((1 - eps) / eps) / beta, dtype=torch.float64)
    yield exo_pair(at(pair, chosen=best, rejected=0 * best), beta=beta, label_smoothing=eps), torch.zeros(4)


# -- thumbs up and down ------------------------------------------------------------------------------------------


@check(
    "eq:kto-reference-point",
    "value",
    "Answers weighted by π give KL(π‖π_ref) exactly; a negative mean counts as 0.",
    of=pl.kto_reference_point,
    against="KL by summation",
    wrong={
        "reference first": lambda logps, ref_logps: (ref_logps - logps).mean().clamp(min=0),
        "sum": lambda logps, ref_logps: (logps - ref_logps).sum().clamp(min=0),
        "not clamped": lambda logps, ref_logps: (logps - ref_logps).mean(),
    },
)
def _(kto_reference_point, draw):
    counts = torch.tensor([draw.integer(1, 4) for _ in range(4)])
    policy, ref = counts.double() / counts.sum(), draw.distribution(4)
    rows = torch.repeat_interleave(torch.arange(4), counts)
    yield kto_reference_point(policy.log()[rows], ref.log()[rows]), exact.divergence(policy, ref)
    low = draw.logps(5)
    yield kto_reference_point(low - 0.5, low), 0.0


def thumbs(draw: Draw) -> UnpairedLogps:
    """Three good and three bad answers with random log-probabilities."""
    logps, ref = -draw.uniform(6, low=1.0, high=6.0), -draw.uniform(6, low=1.0, high=6.0)
    return UnpairedLogps(logps, ref, None, torch.tensor([True, False] * 3))


KTO_MISTAKES = {
    "labels swapped": lambda batch, z, *, beta, **weights: pl.kto(
        replace(batch, desirable=~batch.desirable), z, beta=beta, **weights
    ),
    "β on the log-ratio only": lambda batch, z, *, beta, **weights: pl.kto(batch, z / beta, beta=beta, **weights),
    "no reference point": lambda batch, z, *, beta, **weights: pl.kto(batch, 0 * z, beta=beta, **weights),
    "one weight for both": lambda batch, z, *, beta, desirable_weight, undesirable_weight: pl.kto(
        batch, z, beta=beta, desirable_weight=desirable_weight, undesirable_weight=desirable_weight
    ),
}


@check(
    "eq:kto",
    "value",
    "The weight of the class minus its value: gains and losses are measured from z₀, and both saturate.",
    of=pl.kto,
    against="the prospect value, answer by answer",
    wrong=KTO_MISTAKES,
)
def _(kto, draw):
    batch, z = thumbs(draw), draw.uniform(low=0.5, high=1.5)
    beta = float(draw.uniform(low=0.3, high=0.8))
    weights = {
        "desirable_weight": float(draw.uniform(low=0.4, high=0.8)),
        "undesirable_weight": float(draw.uniform(low=1.3, high=2.0)),
    }
    rows = []
    for logp, ref, good in zip(batch.logps.tolist(), batch.ref_logps.tolist(), batch.desirable.tolist(), strict=True):
        lr = logp - ref
        gain = beta * (lr - float(z)) if good else beta * (float(z) - lr)
        weight = weights["desirable_weight" if good else "undesirable_weight"]
        rows.append(weight - weight / (1 + math.exp(-gain)))
    return kto(batch, z, beta=beta, **weights), torch.tensor(rows, dtype=torch.float64)


@check(
    "eq:kto",
    "gradient",
    "The gradient is ±β times the logistic density at β(log-ratio − z₀), so it vanishes for an answer far on the "
    "wrong side.",
    of=pl.kto,
    against="the logistic density; z₀ has no gradient",
    wrong={
        "gradient through z₀": lambda batch, z, *, beta: torch.where(
            batch.desirable, torch.sigmoid(-beta * (batch.logratios - z)), torch.sigmoid(beta * (batch.logratios - z))
        ),
        "logarithm of the sigmoid (BCO)": lambda batch, z, *, beta: pl.bco(batch, beta * z, beta=beta),
        "labels swapped": lambda batch, z, *, beta: pl.kto(replace(batch, desirable=~batch.desirable), z, beta=beta),
    },
)
def _(kto, draw):
    batch, beta = thumbs(draw), float(draw.uniform(low=0.3, high=0.8))
    logps = batch.logps.clone().requires_grad_()
    z = (logps - batch.ref_logps).mean() + 1.0  # depends on the policy, as in training
    got = exact.gradient(kto(replace(batch, logps=logps), z, beta=beta).sum(), logps)
    density = beta * bell(beta * (batch.logps - batch.ref_logps - z.detach()))
    return got, torch.where(batch.desirable, -density, density)


@check(
    "eq:kto",
    "minimiser",
    "For an answer with a fraction p of desirable labels the mean loss is monotone: the optimal policy follows "
    "the majority with certainty.",
    of=pl.kto,
    against="the logistic density times the majority",
    wrong={
        "logarithm of the sigmoid (BCO)": lambda batch, z, *, beta: pl.bco(batch, beta * z, beta=beta),
        "labels swapped": lambda batch, z, *, beta: pl.kto(replace(batch, desirable=~batch.desirable), z, beta=beta),
        "β on the log-ratio only": KTO_MISTAKES["β on the log-ratio only"],
    },
)
def _(kto, draw):
    share = draw.away_from([0.5], 6, low=0.1, high=0.9, margin=0.1)
    beta, z = float(draw.uniform(low=0.3, high=0.8)), draw.uniform(low=0.5, high=1.5)
    logps, ref = (-draw.uniform(6, low=1.0, high=6.0)).requires_grad_(), -draw.uniform(6, low=1.0, high=6.0)
    up = torch.ones(6, dtype=torch.bool)
    mean = share * kto(UnpairedLogps(logps, ref, None, up), z, beta=beta)
    mean = mean + (1 - share) * kto(UnpairedLogps(logps, ref, None, ~up), z, beta=beta)
    expected = (1 - 2 * share) * beta * bell(beta * (logps.detach() - ref - z))
    return exact.gradient(mean.sum(), logps), expected


@check(
    "eq:bco-delta",
    "value",
    "δ is the midpoint of the means of good and bad rewards, with a moving average over batches; for one answer "
    "of each class it minimises e^(δ − r_w) + e^(r_l − δ), and more good answers of the same kind do not move "
    "it.",
    of=pl.bco_delta,
    against="finite differences of the bound's error term; an unbalanced batch",
    tolerance=1e-8,
    wrong={
        "mean of all rewards": lambda batch, *, beta, **_: (beta * batch.logratios).mean(),
        "β forgotten": lambda batch, *, beta, **moving: pl.bco_delta(batch, beta=1.0, **moving),
        "difference instead of middle": lambda batch, *, beta, **_: (
            beta * (batch.logratios[batch.desirable].mean() - batch.logratios[~batch.desirable].mean()) / 2
        ),
        "nothing kept": lambda batch, *, beta, **_: pl.bco_delta(batch, beta=beta),
        "decay of the new one": lambda batch, *, beta, previous=None, decay=0.9: pl.bco_delta(
            batch, beta=beta, previous=previous, decay=1 - decay
        ),
    },
)
def _(bco_delta, draw):
    beta = float(draw.uniform(low=0.3, high=0.6))
    logratios = draw.uniform(2, low=1.0, high=2.0) * torch.tensor([3.0, 1.0], dtype=torch.float64)
    rows = torch.tensor([0, 0, 0, 1])
    batch = UnpairedLogps(logratios[rows], torch.zeros(4, dtype=torch.float64), None, rows == 0)
    r_w, r_l = (beta * logratios).tolist()
    error = lambda d: ((d - r_w).exp() + (r_l - d).exp()).sum()
    delta = bco_delta(batch, beta=beta)
    yield exact.finite_difference(error, delta[None]), torch.zeros(1)

    batch = thumbs(draw)
    rewards = [beta * (a - b) for a, b in zip(batch.logps.tolist(), batch.ref_logps.tolist(), strict=True)]
    means = [statistics.fmean(rewards[i::2]) for i in (0, 1)]  # thumbs up and down take turns
    yield bco_delta(batch, beta=beta), statistics.fmean(means)
    good = UnpairedLogps(batch.logps[::2], batch.ref_logps[::2], None, batch.desirable[::2])
    yield bco_delta(good, beta=beta), means[0]
    before, decay = draw.normal(1)[0] + 3, float(draw.uniform(low=0.2, high=0.7))
    moved = bco_delta(batch, beta=beta, previous=before, decay=decay)
    yield moved, statistics.fmean(means) + decay * (before - statistics.fmean(means))


BCO_MISTAKES = {
    "δ forgotten": lambda batch, delta, *, beta: pl.bco(batch, 0 * delta, beta=beta),
    "δ added": lambda batch, delta, *, beta: pl.bco(batch, -delta, beta=beta),
    "labels swapped": lambda batch, delta, *, beta: pl.bco(
        replace(batch, desirable=~batch.desirable), delta, beta=beta
    ),
    "KTO": lambda batch, delta, *, beta: pl.kto(batch, delta / beta, beta=beta),
}


@check(
    "eq:bco",
    "minimiser",
    "Where the implicit reward minus δ is the logit of the fraction of desirable labels, the loss is the entropy "
    "of the label, and stationary.",
    of=pl.bco,
    against="the fraction of desirable labels",
    wrong=BCO_MISTAKES,
)
def _(bco, draw):
    share, delta = draw.away_from([0.5], 3, low=0.1, high=0.9, margin=0.1), draw.uniform(low=0.5, high=1.5)
    beta = float(draw.uniform(low=0.3, high=0.8))
    ref = draw.logps(3)
    logps = (ref + (torch.log(share / (1 - share)) + delta) / beta).requires_grad_()
    both = torch.cat([logps, logps]), torch.cat([ref, ref])
    losses = bco(UnpairedLogps(*both, None, torch.arange(6) < 3), delta, beta=beta)
    mean = share * losses[:3] + (1 - share) * losses[3:]
    yield mean, exact.entropy(torch.stack([share, 1 - share], -1))
    yield exact.gradient(mean.sum(), logps), torch.zeros(3)


@check(
    "eq:bco",
    "normalised policy",
    "Through the logits of a normalised policy each answer is raised in proportion to its fraction of desirable "
    "labels minus σ(r̂ − δ), and each increase lowers all other answers.",
    of=pl.bco,
    against="finite differences of the binary cross-entropy, in the logits",
    wrong=BCO_MISTAKES,
    tolerance=1e-8,
)
def _(bco, draw):
    ref, share, logits = draw.distribution(3), draw.uniform(3, low=0.1, high=0.9), draw.normal(3)
    beta, delta = float(draw.uniform(low=0.3, high=0.8)), draw.uniform(low=0.5, high=1.5)

    def cross_entropy(z: Tensor) -> Tensor:
        won = 1 / (1 + delta.exp() * (z.softmax(-1) / ref) ** -beta)
        return -(share * won.log() + (1 - share) * (1 - won).log()).sum()

    def population(logps: Tensor) -> Tensor:
        both = torch.cat([logps, logps]), torch.cat([ref, ref]).log()
        losses = bco(UnpairedLogps(*both, None, torch.arange(6) < 3), delta, beta=beta)
        return (share * losses[:3] + (1 - share) * losses[3:]).sum()

    return policy_gradient(population, logits.log_softmax(-1)), exact.finite_difference(cross_entropy, logits)


@check(
    "eq:bco-bound",
    "bound",
    "exp(BCO) − exp(DPO) = e^(−r_w) + e^(r_l): the gap between the losses is small if the chosen reward is "
    "positive and the rejected one negative.",
    of=pl.bco_pair,
    against="the two losses, multiplied out",
    wrong={
        "signs": lambda pair, *, beta: (
            softplus(beta * pair.chosen_logratios) + softplus(beta * pair.rejected_logratios)
        ),
        "DPO": pl.dpo,
        "mean instead of sum": lambda pair, *, beta: pl.bco_pair(pair, beta=beta) / 2,
    },
)
def _(bco_pair, draw):
    pair, beta = pairs(draw), float(draw.uniform(low=0.3, high=0.6))
    chosen, rejected = log_quotients(pair)
    extra = (-beta * chosen).exp() + (beta * rejected).exp()
    dpo = torch.log1p((-beta * (chosen - rejected)).exp())
    return bco_pair(pair, beta=beta).exp() - dpo.exp(), extra
