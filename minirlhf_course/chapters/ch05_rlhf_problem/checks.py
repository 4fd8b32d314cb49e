"""The ledger of chapter 05: the RLHF problem and its exact optimum."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.equations import rlhf
from minirlhf_course.chapters.ch05_rlhf_problem import equations
from minirlhf_course.chapters.ch05_rlhf_problem.prefixes import from_the_leaves, next_token, rows_of
from minirlhf_course.ledger.registry import Comparison, Draw, chain, check

chain(
    "rlhf-optimum",
    "From the KL-regularised objective to its optimum",
    [
        "eq:rlhf-objective",
        "eq:rlhf-regrouped",
        "eq:rlhf-divergence-form",
        "eq:gibbs",
        "eq:rlhf-optimum",
        "eq:rlhf-optimal-value",
    ],
    module=__name__,
)


def _problem(draw: Draw, rows: int = 3, size: int = 4) -> tuple[Tensor, Tensor, Tensor, float]:
    """π, π_ref (probabilities), rewards, all ``(rows, size)``, and a β that is not 1."""
    beta = float(draw.away_from([1.0], low=0.4, high=2.0, margin=0.1))
    return draw.distribution(rows, size), draw.distribution(rows, size), draw.normal(rows, size, scale=1.5), beta


def _log_z(ref: Tensor, rewards: Tensor, beta: float) -> Tensor:
    return (ref * (rewards / beta).exp()).sum(-1).log()


# -- the derivation ------------------------------------------------------------------------------------------------


@check(
    "eq:rlhf-objective",
    "value",
    "The objective over whole responses is the expected sum of token rewards minus token penalties.",
    of=equations.rlhf_objective,
    against="recursion over the prefixes of a toy language model, paying −β log π/π_ref at every token",
    wrong={
        "KL direction reversed": lambda logps, ref_logps, rewards, *, beta: (
            (logps.exp() * rewards).sum(-1) - beta * (ref_logps.exp() * (ref_logps - logps)).sum(-1)
        ),
        "β multiplies the reward instead of the KL": lambda logps, ref_logps, rewards, *, beta: (
            equations.rlhf_objective(logps, ref_logps, beta * rewards, beta=1.0)
        ),
    },
)
def _(objective, draw: Draw) -> Iterator[Comparison]:
    policy, reference = draw.toy(3, 2, num_prompts=2), draw.toy(3, 2, num_prompts=2)
    rows, beta = rows_of(policy), float(draw.away_from([1.0], low=0.4, high=2.0, margin=0.1))
    for probs, ref in zip(policy.distribution().detach(), reference.distribution().detach(), strict=True):
        rewards = draw.normal(len(probs), scale=1.5)

        def backup(prefix: list[int], children: Tensor, probs: Tensor = probs, ref: Tensor = ref) -> Tensor:
            p, q = next_token(probs, rows, prefix, 3), next_token(ref, rows, prefix, 3)
            return (p * (children - beta * (p / q).log())).sum()

        yield objective(probs.log(), ref.log(), rewards, beta=beta), from_the_leaves(policy, rewards, backup)


@check(
    "eq:rlhf-objective",
    "gradient",
    "The derivative of the log-ratio itself has expectation zero: the gradient treats the penalty as part of the "
    "reward.",
    of=equations.rlhf_objective,
    against="score-function gradient E[(r − β log π/π_ref) ∇log π], summed over all outcomes",
    wrong={
        "KL outside the graph": lambda logps, ref_logps, rewards, *, beta: (
            (logps.exp() * rewards).sum(-1) - beta * (logps.exp() * (logps - ref_logps)).sum(-1).detach()
        ),
    },
)
def _(objective, draw: Draw) -> Comparison:
    _, ref, rewards, beta = _problem(draw, rows=1)
    logits = draw.normal(1, 4).requires_grad_()
    value = objective(logits.log_softmax(-1), ref.log(), rewards, beta=beta).sum()
    (got,) = torch.autograd.grad(value, logits)
    p = logits.detach().softmax(-1)[0]
    paid = rewards[0] - beta * (p / ref[0]).log()
    score = torch.eye(4, dtype=torch.float64) - p  # row y: ∇ log π(y) with respect to the logits
    return got[0], (p * paid) @ score


@check(
    "eq:rlhf-objective",
    "shift",
    "A constant added to all rewards of a prompt is added to the objective of every policy and changes no ranking.",
    of=equations.rlhf_objective,
    against="the same objective, plus the constant",
    wrong={
        "rewards centred over the responses first": lambda logps, ref_logps, rewards, *, beta: equations.rlhf_objective(
            logps, ref_logps, rewards - rewards.mean(-1, keepdim=True), beta=beta
        ),
    },
)
def _(objective, draw: Draw) -> Comparison:
    p, ref, rewards, beta = _problem(draw)
    constant = draw.uniform(3, low=1.0, high=2.0)
    shifted = objective(p.log(), ref.log(), rewards + constant[:, None], beta=beta)
    return shifted, objective(p.log(), ref.log(), rewards, beta=beta) + constant


@check(
    "eq:partition",
    "value",
    "log Z is the mean reward accumulated while the reference is tilted step by step to the optimum.",
    of=rlhf.log_partition,
    against="thermodynamic integration: ∫ E[r] under π_ref exp(s r)/Z(s), s from 0 to 1/β",
    wrong={
        "β multiplied instead of divided": lambda ref_logps, rewards, *, beta: (ref_logps + rewards * beta).logsumexp(
            -1
        ),
        "reference forgotten": lambda ref_logps, rewards, *, beta: (rewards / beta).logsumexp(-1),
    },
)
def _(log_partition, draw: Draw) -> Comparison:
    _, ref, rewards, beta = _problem(draw, rows=2)

    def accumulated(row: int) -> Tensor:
        def mean_reward(s: Tensor) -> Tensor:
            weights = ref[row] * (s[:, None] * rewards[row]).exp()
            return (weights * rewards[row]).sum(-1) / weights.sum(-1)

        return exact.integrate(mean_reward, 0.0, 1 / beta, nodes=60)

    return log_partition(ref.log(), rewards, beta=beta), torch.stack([accumulated(0), accumulated(1)])


@check(
    "eq:rlhf-regrouped",
    "step",
    "Adding and subtracting log Z inside the expectation changes nothing.",
    of=equations.regrouped_objective,
    against="the objective as defined",
    follows="eq:rlhf-objective",
    wrong={
        "log Z added but not taken away": lambda logps, ref_logps, rewards, *, beta: (
            equations.regrouped_objective(logps, ref_logps, rewards, beta=beta)
            - beta * rlhf.log_partition(ref_logps, rewards, beta=beta)
        ),
        "sign of the reward": lambda logps, ref_logps, rewards, *, beta: equations.regrouped_objective(
            logps, ref_logps, -rewards, beta=beta
        ),
    },
)
def _(regrouped, draw: Draw) -> Comparison:
    p, ref, rewards, beta = _problem(draw)
    return (
        regrouped(p.log(), ref.log(), rewards, beta=beta),
        equations.rlhf_objective(p.log(), ref.log(), rewards, beta=beta),
    )


@check(
    "eq:rlhf-divergence-form",
    "step",
    "The objective is −β KL(π‖π*) plus β log Z, which does not depend on π.",
    of=equations.objective_from_optimum,
    against="the regrouped objective",
    follows="eq:rlhf-regrouped",
    wrong={
        "log Z without its β": lambda logps, ref_logps, rewards, *, beta: (
            equations.objective_from_optimum(logps, ref_logps, rewards, beta=beta)
            + (1 - beta) * rlhf.log_partition(ref_logps, rewards, beta=beta)
        ),
        "divergence from π* to π": lambda logps, ref_logps, rewards, *, beta: (
            rlhf.optimal_value(ref_logps, rewards, beta=beta)
            - beta * exact.divergence(rlhf.optimal_logps(ref_logps, rewards, beta=beta).exp(), logps.exp())
        ),
    },
)
def _(divergence_form, draw: Draw) -> Comparison:
    p, ref, rewards, beta = _problem(draw)
    return (
        divergence_form(p.log(), ref.log(), rewards, beta=beta),
        equations.regrouped_objective(p.log(), ref.log(), rewards, beta=beta),
    )


def _taylor_remainder(u: float) -> Tensor:
    return exact.integrate(lambda s: (u - s) * s.exp(), 0.0, u, nodes=40)


@check(
    "eq:gibbs",
    "step",
    "The difference between β log Z and the objective is β times a sum of Gibbs terms.",
    of=equations.gibbs_terms,
    against="the divergence form of the objective",
    follows="eq:rlhf-divergence-form",
    wrong={
        "arguments swapped": lambda logps, other_logps: equations.gibbs_terms(other_logps, logps),
        "−π + q forgotten, sign lost": lambda logps, other_logps: (logps.exp() * (logps - other_logps)).abs(),
    },
)
def _(gibbs_terms, draw: Draw) -> Comparison:
    p, ref, rewards, beta = _problem(draw)
    best = rlhf.optimal_logps(ref.log(), rewards, beta=beta)
    shortfall = beta * gibbs_terms(p.log(), best).sum(-1)
    return beta * _log_z(ref, rewards, beta) - shortfall, equations.objective_from_optimum(
        p.log(), ref.log(), rewards, beta=beta
    )


@check(
    "eq:gibbs",
    "value",
    "Every Gibbs term is an integral of a positive function, so their sum, the KL, is never negative and is 0 "
    "only at π = q.",
    of=equations.gibbs_terms,
    against="π ∫ (u − s) eˢ ds from 0 to u = log(q/π), a Taylor remainder: positive on either side of 0",
    wrong={
        "plain terms of the KL, which may be negative": lambda logps, other_logps: logps.exp() * (logps - other_logps),
        "arguments swapped": lambda logps, other_logps: equations.gibbs_terms(other_logps, logps),
    },
)
def _(gibbs_terms, draw: Draw) -> Iterator[Comparison]:
    p, q = draw.distribution(4), draw.distribution(4)
    remainders = [_taylor_remainder(u) for u in (q / p).log().tolist()]
    yield gibbs_terms(p.log(), q.log()), p * torch.stack(remainders)
    yield gibbs_terms(p.log(), p.log()), torch.zeros(4)


@check(
    "eq:rlhf-optimum",
    "step",
    "At π* all Gibbs terms are zero, so it attains β log Z.",
    of=rlhf.optimal_logps,
    against="β log Z, the divergence form with a KL of 0",
    follows="eq:gibbs",
    wrong={
        "β multiplied instead of divided": lambda ref_logps, rewards, *, beta: (ref_logps + beta * rewards).log_softmax(
            -1
        ),
        "reference forgotten": lambda ref_logps, rewards, *, beta: (rewards / beta).log_softmax(-1),
    },
)
def _(optimal_logps, draw: Draw) -> Comparison:
    _, ref, rewards, beta = _problem(draw)
    reached = exact.regularised_value(optimal_logps(ref.log(), rewards, beta=beta).exp(), ref, rewards, beta)
    return reached, beta * _log_z(ref, rewards, beta)


@check(
    "eq:rlhf-optimum",
    "value",
    "No distribution over the responses has a larger objective.",
    of=rlhf.optimal_logps,
    against="numerical maximisation of the objective",
    tolerance=1e-7,
    wrong={
        "β multiplied instead of divided": lambda ref_logps, rewards, *, beta: (ref_logps + beta * rewards).log_softmax(
            -1
        ),
        "reference forgotten": lambda ref_logps, rewards, *, beta: (rewards / beta).log_softmax(-1),
        "best response only": lambda ref_logps, rewards, *, beta: torch.log_softmax(
            ref_logps + 50 * rewards / beta, -1
        ),
    },
)
def _(optimal_logps, draw: Draw) -> Comparison:
    _, ref, _, beta = _problem(draw, rows=1)
    rewards = draw.permutation(4).double()[None] / 2 + draw.uniform(1, 4, high=0.1)
    best = exact.maximise(lambda p: exact.regularised_value(p, ref[0], rewards[0], beta), 4)
    return optimal_logps(ref.log(), rewards, beta=beta)[0].exp(), best


@check(
    "eq:rlhf-optimum",
    "shift",
    "A constant added to the rewards of each prompt does not change the optimum.",
    of=rlhf.optimal_logps,
    against="the optimum for the unshifted rewards",
    wrong={"not normalised": lambda ref_logps, rewards, *, beta: ref_logps + rewards / beta},
)
def _(optimal_logps, draw: Draw) -> Comparison:
    _, ref, rewards, beta = _problem(draw)
    constant = draw.uniform(3, 1, low=1.0, high=2.0)
    return (
        optimal_logps(ref.log(), rewards + constant, beta=beta),
        optimal_logps(ref.log(), rewards, beta=beta),
    )


@check(
    "eq:rlhf-optimum",
    "limits",
    "β → 0 puts all probability on the best response; β → ∞ gives the reference.",
    of=rlhf.optimal_logps,
    against="the best response at β → 0, the reference at β → ∞",
    tolerance=1e-8,
    wrong={
        "β multiplied instead of divided": lambda ref_logps, rewards, *, beta: (ref_logps + beta * rewards).log_softmax(
            -1
        )
    },
)
def _(optimal_logps, draw: Draw) -> Iterator[Comparison]:
    ref = draw.distribution(5)
    rewards = draw.permutation(5).double()
    best = torch.nn.functional.one_hot(rewards.argmax(), 5)
    yield optimal_logps(ref.log(), rewards, beta=1e-2).exp(), best
    yield optimal_logps(ref.log(), rewards, beta=1e10).exp(), ref


@check(
    "eq:rlhf-optimal-value",
    "step",
    "The best objective is β log Z.",
    of=rlhf.optimal_value,
    against="the objective, evaluated at π*",
    follows="eq:rlhf-optimum",
    wrong={
        "β forgotten": lambda ref_logps, rewards, *, beta: rlhf.log_partition(ref_logps, rewards, beta=beta),
        "mean reward of π*, KL not paid": lambda ref_logps, rewards, *, beta: (
            rlhf.optimal_logps(ref_logps, rewards, beta=beta).exp() * rewards
        ).sum(-1),
    },
)
def _(optimal_value, draw: Draw) -> Comparison:
    _, ref, rewards, beta = _problem(draw)
    best = rlhf.optimal_logps(ref.log(), rewards, beta=beta)
    return optimal_value(ref.log(), rewards, beta=beta), exact.regularised_value(best.exp(), ref, rewards, beta)


@check(
    "eq:rlhf-optimal-value",
    "value",
    "No distribution over the responses reaches more than β log Z.",
    of=rlhf.optimal_value,
    against="numerical maximisation of the objective",
    wrong={
        "β forgotten": lambda ref_logps, rewards, *, beta: rlhf.log_partition(ref_logps, rewards, beta=beta),
        "best reward": lambda ref_logps, rewards, *, beta: rewards.amax(-1),
    },
)
def _(optimal_value, draw: Draw) -> Comparison:
    _, ref, rewards, beta = _problem(draw, rows=1)
    best = exact.maximise(lambda p: exact.regularised_value(p, ref[0], rewards[0], beta), 4)
    return optimal_value(ref.log(), rewards, beta=beta)[0], exact.regularised_value(best, ref[0], rewards[0], beta)


@check(
    "eq:rlhf-optimal-value",
    "limits",
    "A soft maximum: max r + β log π_ref(best) for small β, E_ref[r] + Var/(2β) for large β.",
    of=rlhf.optimal_value,
    against="the best reward at β → 0, the mean reward of the reference at β → ∞",
    wrong={
        "β forgotten": lambda ref_logps, rewards, *, beta: rlhf.log_partition(ref_logps, rewards, beta=beta),
        "hard maximum": lambda ref_logps, rewards, *, beta: rewards.amax(-1),
    },
)
def _(optimal_value, draw: Draw) -> Iterator[Comparison]:
    ref = draw.distribution(5)
    rewards = draw.permutation(5).double()
    best = ref[rewards.argmax()]
    yield optimal_value(ref.log(), rewards, beta=1e-2), rewards.max() + 1e-2 * best.log()
    # The 1/β term cancels between β and 2β.
    large = 2 * optimal_value(ref.log(), rewards, beta=2e5) - optimal_value(ref.log(), rewards, beta=1e5)
    yield large, exact.expectation(ref, rewards)
