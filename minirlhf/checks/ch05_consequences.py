"""The ledger of chapter 05: the optimum read backwards, its budget, and the same problem token by token."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minirlhf.checks.prefixes import from_the_leaves, next_token, rows_of
from minirlhf.core import exact
from minirlhf.core.checks import Comparison, Draw, check
from minirlhf.equations import rlhf


@check(
    "eq:implicit-reward",
    "value",
    of=rlhf.implicit_reward,
    against="the rewards that the optimum was computed from, on a toy language model",
    wrong={
        "log-ratio upside down": lambda logps, ref_logps, *, beta: rlhf.implicit_reward(ref_logps, logps, beta=beta),
        "β divided instead of multiplied": lambda logps, ref_logps, *, beta: (logps - ref_logps) / beta,
        "reference forgotten": lambda logps, ref_logps, *, beta: beta * logps,
    },
)
def _(implicit_reward, draw: Draw) -> Comparison:
    "Log-probabilities of a model set to π* give back r − β log Z, response by response."
    reference = draw.toy(3, 2)
    beta = float(draw.away_from([1.0], low=0.4, high=2.0, margin=0.1))
    ref = reference.distribution()[0].detach()
    rewards = draw.normal(len(ref))
    weights = ref * (rewards / beta).exp()
    policy = draw.toy(3, 2)
    policy.set_distribution(weights / weights.sum())
    logps, ref_logps = (lm.response_token_logps()[0].sum(-1).detach() for lm in (policy, reference))
    return implicit_reward(logps, ref_logps, beta=beta), rewards - beta * weights.sum().log()


@check(
    "eq:kl-budget",
    "value",
    of=rlhf.beta_for_kl,
    against="the minimiser of the dual problem β log Z(β) + β · budget, by golden-section search",
    tolerance=1e-5,
    wrong={
        "budget for the KL in bits": lambda ref_logps, rewards, *, budget: rlhf.beta_for_kl(
            ref_logps, rewards, budget=budget * math.log(2)
        ),
        "1/β returned": lambda ref_logps, rewards, *, budget: 1 / rlhf.beta_for_kl(ref_logps, rewards, budget=budget),
    },
)
def _(beta_for_kl, draw: Draw) -> Comparison:
    'The β of a budget is the price at which the dual of "most reward within this KL" is smallest.'
    ref = draw.distribution(4)
    rewards = 12.0 * draw.permutation(4).double()  # so that β stays clear of 1
    budget = 0.3 * -float(ref[rewards.argmax()].log())

    def dual(log_beta: float) -> float:
        beta = math.exp(log_beta)
        return beta * float(torch.logsumexp(ref.log() + rewards / beta, 0)) + beta * budget

    low, high, golden = math.log(1e-1), math.log(1e4), (math.sqrt(5) - 1) / 2
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = dual(left), dual(right)
    for _ in range(45):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = dual(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = dual(right)
    return beta_for_kl(ref.log(), rewards, budget=budget), math.exp((low + high) / 2)


@check(
    "eq:kl-budget",
    "KL spent",
    of=rlhf.beta_for_kl,
    against="the KL of π* at that β, by summation",
    wrong={
        "budget for the KL in bits": lambda ref_logps, rewards, *, budget: rlhf.beta_for_kl(
            ref_logps, rewards, budget=budget * math.log(2)
        ),
        "budget taken for √KL": lambda ref_logps, rewards, *, budget: rlhf.beta_for_kl(
            ref_logps, rewards, budget=budget**2
        ),
    },
)
def _(beta_for_kl, draw: Draw) -> Comparison:
    "At the β returned, the optimum spends just the budget."
    ref = draw.distribution(5)
    rewards = draw.permutation(5).double()
    budget = min(0.8, 0.5 * -float(ref[rewards.argmax()].log()))
    weights = ref * (rewards / beta_for_kl(ref.log(), rewards, budget=budget)).exp()
    return exact.divergence(weights / weights.sum(), ref), budget


@check(
    "eq:token-bandit",
    "value",
    of=rlhf.regularised_return,
    against="the objective over whole responses of a toy language model",
    wrong={
        "mean of the log-ratios over tokens": lambda logps, ref_logps, rewards, mask, *, beta: (
            rewards - beta * torch.where(mask, logps - ref_logps, 0.0).sum(-1) / mask.sum(-1)
        ),
        "last token left out": lambda logps, ref_logps, rewards, mask, *, beta: (
            rewards - beta * torch.where(mask, logps - ref_logps, 0.0)[:, :-1].sum(-1)
        ),
        "absolute log-ratios": lambda logps, ref_logps, rewards, mask, *, beta: (
            rewards - beta * torch.where(mask, logps - ref_logps, 0.0).abs().sum(-1)
        ),
    },
)
def _(regularised_return, draw: Draw) -> Comparison:
    "The expected return of the token-level MDP is the objective of the bandit whose actions are whole responses."
    policy, reference, beta = draw.toy(3, 3), draw.toy(3, 3), 0.5 + float(draw.uniform())
    probs, ref = policy.distribution()[0].detach(), reference.distribution()[0].detach()
    rewards = draw.normal(len(probs))
    logps, ref_logps = policy.response_token_logps()[0].detach(), reference.response_token_logps()[0].detach()
    returns = regularised_return(logps, ref_logps, rewards, policy.responses().mask, beta=beta)
    return exact.expectation(probs, returns), exact.regularised_value(probs, ref, rewards, beta)


@check(
    "eq:soft-bellman",
    "value",
    of=rlhf.optimal_value,
    against="β log Σ π_ref exp(r/β) over whole responses",
    wrong={
        "hard maximum over the next token": lambda ref_logps, rewards, *, beta: rewards.amax(-1),
        "uniform instead of the reference": lambda ref_logps, rewards, *, beta: beta * (rewards / beta).logsumexp(-1),
        "mean over the next token": lambda ref_logps, rewards, *, beta: (ref_logps.exp() * rewards).sum(-1),
    },
)
def _(optimal_value, draw: Draw) -> Comparison:
    "Backed up from the last token to the first, the soft maximum gives the best objective of the bandit."
    reference, beta = draw.toy(3, 3), 0.5 + float(draw.uniform())
    ref, rows = reference.distribution()[0].detach(), rows_of(reference)
    rewards = draw.normal(len(ref))

    def backup(prefix: list[int], children: Tensor) -> Tensor:
        return optimal_value(next_token(ref, rows, prefix, 3).log(), children, beta=beta)

    return from_the_leaves(reference, rewards, backup), beta * (ref * (rewards / beta).exp()).sum().log()
