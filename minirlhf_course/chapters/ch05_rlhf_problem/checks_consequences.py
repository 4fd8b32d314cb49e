"""The ledger of chapter 05: the optimum read backwards, its budget, and the same problem token by token."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.equations import mdp, rlhf
from minirlhf_course.chapters.ch05_rlhf_problem.prefixes import from_the_leaves, next_token, rows_of
from minirlhf_course.ledger.registry import Comparison, Draw, chain, check

chain(
    "bandit-to-tokens",
    "From the bandit over responses to the token-level MDP",
    ["eq:token-bandit", "eq:token-gradient"],
    module=__name__,
)


@check(
    "eq:implicit-reward",
    "value",
    "Log-probabilities of a model set to π* give back r − β log Z for each response.",
    of=rlhf.implicit_reward,
    against="the rewards that the optimum was computed from, on a toy language model",
    wrong={
        "log-ratio upside down": lambda logps, ref_logps, *, beta: rlhf.implicit_reward(ref_logps, logps, beta=beta),
        "β divided instead of multiplied": lambda logps, ref_logps, *, beta: (logps - ref_logps) / beta,
        "reference forgotten": lambda logps, ref_logps, *, beta: beta * logps,
    },
)
def _(implicit_reward, draw: Draw) -> Comparison:
    reference = draw.toy(3, 2)
    beta = float(draw.away_from([1.0], low=0.4, high=2.0, margin=0.1))
    ref = reference.distribution()[0].detach()
    rewards = draw.normal(len(ref))
    weights = ref * (rewards / beta).exp()
    policy = draw.toy(3, 2)
    policy.set_distribution(weights / weights.sum())
    logps, ref_logps = (lm.completion_token_logps()[0].sum(-1).detach() for lm in (policy, reference))
    return implicit_reward(logps, ref_logps, beta=beta), rewards - beta * weights.sum().log()


@check(
    "eq:kl-budget",
    "value",
    'The β of a KL budget minimises the dual of "maximise reward within this KL".',
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
    "At this β the KL of the optimum equals the budget.",
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
    ref = draw.distribution(5)
    rewards = draw.permutation(5).double()
    budget = min(0.8, 0.5 * -float(ref[rewards.argmax()].log()))
    weights = ref * (rewards / beta_for_kl(ref.log(), rewards, budget=budget)).exp()
    return exact.divergence(weights / weights.sum(), ref), budget


def _tilt(ref: Tensor, rewards: Tensor, beta: Tensor) -> Tensor:
    weights = ref * (rewards / beta).exp()
    return weights / weights.sum()


def _rates_at_the_reference(ref_logps: Tensor, rewards: Tensor, *, beta: float) -> tuple[Tensor, Tensor]:
    centred = rewards - exact.expectation(ref_logps.exp(), rewards)
    variance = exact.expectation(ref_logps.exp(), centred**2)
    return -variance / beta**2, -variance / beta**3


@check(
    "eq:frontier-slope",
    "value",
    "Along the frontier both reward and KL decrease as β grows, and the derivative of reward with respect to KL is β.",
    of=rlhf.frontier_rates,
    against="finite differences in β of reward and KL of π*, both by summation",
    tolerance=1e-7,
    wrong={
        "variance under the reference": _rates_at_the_reference,
        "1/β taken for β": lambda ref_logps, rewards, *, beta: tuple(
            -rate * beta**2 for rate in rlhf.frontier_rates(ref_logps, rewards, beta=beta)
        ),
    },
)
def _(frontier_rates, draw: Draw) -> Iterator[Comparison]:
    ref, rewards = draw.distribution(4), draw.permutation(4).double() + draw.uniform(4, high=0.1)
    beta = draw.away_from([1.0], low=0.5, high=2.0, margin=0.1)
    reward_rate, kl_rate = frontier_rates(ref.log(), rewards, beta=float(beta))
    yield reward_rate, exact.finite_difference(lambda b: exact.expectation(_tilt(ref, rewards, b), rewards), beta)
    yield kl_rate, exact.finite_difference(lambda b: exact.divergence(_tilt(ref, rewards, b), ref), beta)
    yield reward_rate / kl_rate, beta


# -- token by token ------------------------------------------------------------------------------------------------


def _paid_at_every_token(tokens: Tensor, mask: Tensor, rewards: Tensor, *, vocab_size: int) -> tuple[Tensor, Tensor]:
    transitions, earned = rlhf.token_mdp(tokens, mask, rewards, vocab_size=vocab_size)
    states = rlhf.prefix_states(tokens, mask)
    for n, t in mask.nonzero().tolist():
        earned[states[n, t], tokens[n, t]] = rewards[n]
    return transitions, earned


@check(
    "eq:token-mdp",
    "value",
    "In the decision process the value of each prefix is the expected reward of the responses that begin with it.",
    of=rlhf.token_mdp,
    against="the expected reward of whole responses, given each prefix, by summation",
    wrong={
        "every token of a response earns its reward": _paid_at_every_token,
        "reward in the last column, also where that is padding": lambda tokens, mask, rewards, *, vocab_size: (
            rlhf.token_mdp(tokens, mask, torch.where(mask[:, -1], rewards, 0.0), vocab_size=vocab_size)
        ),
    },
)
def _(token_mdp, draw: Draw) -> Iterator[Comparison]:
    for size in (2, 3):
        lm = draw.toy(size, 3)
        responses = lm.completions()
        rewards = 2.0 + draw.normal(len(responses.tokens))
        transitions, earned = token_mdp(responses.tokens, responses.mask, rewards, vocab_size=size)
        states, mask = rlhf.prefix_states(responses.tokens, responses.mask), responses.mask
        policy = torch.full(earned.shape, 1 / size, dtype=torch.float64)  # the terminal state keeps these
        policy[states[mask], responses.tokens[mask]] = lm.completion_token_logps()[0].detach().exp()[mask]
        values = mdp.policy_values(transitions, earned, policy, gamma=1.0)
        yield values[states][mask], lm.action_values(rewards)[0][mask]


@check(
    "eq:token-bandit",
    "value",
    "The expected return of the token-level MDP is the objective of the bandit whose actions are whole responses.",
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
    policy, reference, beta = draw.toy(3, 3), draw.toy(3, 3), 0.5 + float(draw.uniform())
    probs, ref = policy.distribution()[0].detach(), reference.distribution()[0].detach()
    rewards = draw.normal(len(probs))
    logps, ref_logps = policy.completion_token_logps()[0].detach(), reference.completion_token_logps()[0].detach()
    returns = regularised_return(logps, ref_logps, rewards, policy.completions().mask, beta=beta)
    return exact.expectation(probs, returns), exact.regularised_value(probs, ref, rewards, beta)


@check(
    "eq:soft-bellman",
    "value",
    "Backed up from the last token to the first, the soft maximum gives the optimal objective of the bandit.",
    of=rlhf.optimal_value,
    against="β log Σ π_ref exp(r/β) over whole responses",
    wrong={
        "hard maximum over the next token": lambda ref_logps, rewards, *, beta: rewards.amax(-1),
        "uniform instead of the reference": lambda ref_logps, rewards, *, beta: beta * (rewards / beta).logsumexp(-1),
        "mean over the next token": lambda ref_logps, rewards, *, beta: (ref_logps.exp() * rewards).sum(-1),
    },
)
def _(optimal_value, draw: Draw) -> Comparison:
    reference, beta = draw.toy(3, 3), 0.5 + float(draw.uniform())
    ref, rows = reference.distribution()[0].detach(), rows_of(reference)
    rewards = draw.normal(len(ref))

    def backup(prefix: list[int], children: Tensor) -> Tensor:
        return optimal_value(next_token(ref, rows, prefix, 3).log(), children, beta=beta)

    return from_the_leaves(reference, rewards, backup), beta * (ref * (rewards / beta).exp()).sum().log()


class _Responses:
    """All responses of a toy policy: log-probs ``(N, L)``, rewards ``(N,)``, and the scores of their tokens ``(N, L, D)``."""

    def __init__(self, draw: Draw) -> None:
        self.policy, self.reference = draw.toy(2, 3), draw.toy(2, 3)
        self.beta = float(draw.away_from([1.0], low=0.5, high=2.0, margin=0.1))
        logps = self.policy.completion_token_logps()[0]
        self.logps, self.ref_logps = logps.detach(), self.reference.completion_token_logps()[0].detach()
        self.mask = self.policy.completions().mask
        self.rewards = draw.normal(len(logps))
        self.probs = self.policy.distribution()[0].detach()
        self.scores = torch.zeros(*self.mask.shape, self.policy.table.numel(), dtype=torch.float64)
        for n, t in self.mask.nonzero().tolist():
            self.scores[n, t] = exact.gradient(logps[n, t], self.policy.table)

    def gradient(self, credit: Tensor) -> Tensor:
        """E[Σ_t credit_t ∇log π(y_t)], with one credit per token ``(N, L)``."""
        return torch.einsum("n,nt,ntd->d", self.probs, credit * self.mask, self.scores)


_WRONG_TO_GO = {
    "only what was charged before": lambda logps, ref_logps, rewards, mask, *, beta: (
        rlhf.regularised_return(logps, ref_logps, rewards, mask, beta=beta)[:, None]
        - rlhf.regularised_return_to_go(logps, ref_logps, rewards, mask, beta=beta)
        + rewards[:, None]
    ),
    "own charge left out": lambda logps, ref_logps, rewards, mask, *, beta: (
        rlhf.regularised_return_to_go(logps, ref_logps, rewards, mask, beta=beta) + beta * (logps - ref_logps)
    ),
    "own charge only, as when the KL stands in the loss": lambda logps, ref_logps, rewards, mask, *, beta: (
        rewards[:, None] - beta * (logps - ref_logps)
    ),
    "log-ratio upside down": lambda logps, ref_logps, rewards, mask, *, beta: rlhf.regularised_return_to_go(
        ref_logps, logps, rewards, mask, beta=beta
    ),
}


@check(
    "eq:token-gradient",
    "value",
    "Each token weighted by its return-to-go, KL penalties included, gives the gradient of the objective.",
    of=rlhf.regularised_return_to_go,
    against="automatic differentiation of E[r] − β KL, summed over whole responses",
    wrong=_WRONG_TO_GO,
)
def _(to_go, draw: Draw) -> Comparison:
    all_of = _Responses(draw)
    ref = all_of.reference.distribution()[0].detach()
    objective = exact.regularised_value(all_of.policy.distribution()[0], ref, all_of.rewards, all_of.beta)
    credit = to_go(all_of.logps, all_of.ref_logps, all_of.rewards, all_of.mask, beta=all_of.beta)
    return all_of.gradient(credit), exact.gradient(objective, all_of.policy.table)


@check(
    "eq:token-gradient",
    "step",
    "KL penalties before a token may be left out of its return.",
    of=rlhf.regularised_return_to_go,
    against="E[R(y) ∇log π(y)], with the return of the whole response at every token",
    follows="eq:token-bandit",
    wrong=_WRONG_TO_GO,
)
def _(to_go, draw: Draw) -> Comparison:
    all_of = _Responses(draw)
    given = (all_of.logps, all_of.ref_logps, all_of.rewards, all_of.mask)
    whole = rlhf.regularised_return(*given, beta=all_of.beta)
    return all_of.gradient(to_go(*given, beta=all_of.beta)), all_of.gradient(whole[:, None])
