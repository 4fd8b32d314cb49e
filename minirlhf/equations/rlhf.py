"""The problem that RLHF solves: reward minus β times the KL to a reference, and its exact optimum.

Functions of whole distributions take log-probabilities over all possible completions, ``(..., N)``, normalised along
the last axis, and the rewards of these completions in the same shape. Sums over N are ``(...)``. β > 0 is in units of
reward per nat. Functions of samples take tensors of a rollout.

"DPO paper" stands for Rafailov et al. (2023), "Direct preference optimization".
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.masking import lengths, masked_sum
from minirlhf.core.validate import MASK, NOT_NEGATIVE, POSITIVE, Arguments, Rule, shape, takes
from minirlhf.equations import kl, returns, shaping


def _log_distribution(name: str, logps: Tensor, arguments: Arguments) -> Tensor:
    shape("... N").apply(name, logps, arguments)
    if not bool((torch.logsumexp(logps.detach().float(), -1).abs() < 0.05).all()):
        raise ArgumentError(
            f"{name} of shape {tuple(logps.shape)} is not normalised along its last axis; use log_softmax",
            argument=name,
            problem="not normalised",
        )
    return logps


LOG_DISTRIBUTION = Rule("(..., N), log-probabilities normalised along the last axis", _log_distribution)
_tilts = takes(rewards="... N", ref_logps=LOG_DISTRIBUTION, beta=POSITIVE)

# -- the objective and its optimum, in the steps of the derivation -----------------------------------------------


@_tilts
@equation("eq:partition", source="DPO paper, section 4.")
def log_partition(ref_logps: Tensor, rewards: Tensor, *, beta: float) -> Tensor:
    """log Z = log Σ π_ref exp(r/β), the normaliser of the optimum; one number per prompt."""
    return torch.logsumexp(ref_logps + rewards / beta, -1)


@_tilts
@equation(
    "eq:rlhf-optimum",
    source='Korbak et al. (2022), "RL with KL penalties is better viewed as Bayesian inference"; DPO paper, '
    "equation 4.",
)
def optimal_logps(ref_logps: Tensor, rewards: Tensor, *, beta: float) -> Tensor:
    """The optimum π* ∝ π_ref exp(r/β), as log-probabilities ``(..., N)``.

    β → 0 puts all mass on the best completion in the support of π_ref; β → ∞ gives π_ref. A constant added to
    the rewards of a prompt has no effect.
    """
    return torch.log_softmax(ref_logps + rewards / beta, -1)


@equation(
    "eq:rlhf-optimal-value",
    "eq:soft-bellman",
    source='DPO paper, appendix A.1; token by token Rafailov et al. (2024), "From r to Q*".',
)
def optimal_value(ref_logps: Tensor, rewards: Tensor, *, beta: float) -> Tensor:
    """The largest value of the objective, J(π*) = β log Z: a soft maximum of the rewards.

    It lies between E_ref[r] (β → ∞) and max r (β → 0). Applied to the action values of a prefix it is the
    soft Bellman backup, so optimising token by token gives the same optimum as choosing among whole
    completions.
    """
    return beta * log_partition(ref_logps, rewards, beta=beta)


# -- the implicit reward -----------------------------------------------------------------------------------------


@takes(beta=POSITIVE)
@equation("eq:implicit-reward", source="DPO paper, equation 5.")
def implicit_reward(logps: Tensor, ref_logps: Tensor, *, beta: float) -> Tensor:
    """The reward that a policy is optimal for, β (log π − log π_ref), up to the constant β log Z of its prompt.

    The constant cancels in any comparison of two completions of one prompt. Both tensors have the same shape, any
    shape.
    """
    return beta * kl.k1(logps, ref_logps)


# -- the KL budget of a β ----------------------------------------------------------------------------------------


@takes(rewards="N", ref_logps=LOG_DISTRIBUTION, budget=POSITIVE)
@equation(
    "eq:kl-budget",
    source='the duality is standard (Boyd and Vandenberghe 2004, "Convex optimization", chapter 5); as a trust '
    'region Peters, Mülling and Altün (2010), "Relative entropy policy search".',
)
def beta_for_kl(ref_logps: Tensor, rewards: Tensor, *, budget: float) -> float:
    """The β at which the optimum π* for one prompt has a given KL, the budget in nats.

    The penalised objective is the Lagrangian of "maximise E[r] subject to KL ≤ budget". KL(π*‖π_ref) decreases strictly
    from −log π_ref(best) at β → 0 to 0 at β → ∞, so bisection finds β.
    """
    # -inf marks a completion outside the support of the reference; its reward is ignored.
    support = ref_logps > -math.inf
    ref_logps, rewards = ref_logps[support].double(), rewards[support].double()
    reward_range = float(rewards.max() - rewards.min())
    if reward_range == 0:
        raise ArgumentError(
            f"rewards of shape {tuple(rewards.shape)} are all equal, so the KL is 0 for every β",
            argument="rewards",
            problem="all equal",
        )
    max_kl = -float(torch.logsumexp(ref_logps[rewards == rewards.max()], 0))
    if budget >= max_kl:
        raise ArgumentError(
            f"budget = {budget!r}; expected less than −log π_ref(best completions) = {max_kl:.6g}",
            argument="budget",
            value=budget,
            expected=max_kl,
        )
    low, high = math.log(reward_range) - 30.0, math.log(reward_range) + 30.0
    for _ in range(60):  # 60 halvings of an interval of length 60 reach rounding error
        middle = (low + high) / 2
        spent_kl = kl.reverse_kl(optimal_logps(ref_logps, rewards, beta=math.exp(middle)), ref_logps)
        low, high = (middle, high) if float(spent_kl) > budget else (low, middle)
    return math.exp((low + high) / 2)


@_tilts
@equation(
    "eq:frontier-slope",
    source='the fluctuation identity of exponential families, e.g. Wainwright and Jordan (2008), "Graphical '
    'models, exponential families, and variational inference", section 3.5.',
)
def frontier_rates(ref_logps: Tensor, rewards: Tensor, *, beta: float) -> tuple[Tensor, Tensor]:
    """How reward and KL of the optimum change with β: dE[r]/dβ = −Var[r]/β² and dKL/dβ = −Var[r]/β³, under π*.

    Both decrease as β grows, and their ratio is β: the slope of the frontier dE[r]/dKL is the coefficient of the KL.
    """
    probs = optimal_logps(ref_logps, rewards, beta=beta).exp()
    centred = rewards - (probs * rewards).sum(-1, keepdim=True)
    variance = (probs * centred.square()).sum(-1)
    return -variance / beta**2, -variance / beta**3


# -- coverage of a policy by data --------------------------------------------------------------------------------


@takes(logps=LOG_DISTRIBUTION, data_logps=LOG_DISTRIBUTION)
@equation(
    "eq:coverage",
    source="the single-policy concentrability of offline reinforcement learning, in this form Huang et al. (2025), "
    "\"Correcting the mythos of KL-regularization\"; the bound is Cauchy's and Schwarz's.",
)
def coverage(logps: Tensor, data_logps: Tensor) -> Tensor:
    """C = E_π[π/μ] = Σ π²/μ: how badly samples from μ cover a policy; 1 for π = μ, 1 + χ²(π‖μ) otherwise.

    If a reward has a root mean square error ε under μ, its mean error under π is at most √C ε.
    """
    return (2 * logps - data_logps).logsumexp(-1).exp()


# -- the same problem, token by token ----------------------------------------------------------------------------


@takes(mask=MASK, tokens=shape("B T"))
def prefix_states(tokens: Tensor, mask: Tensor) -> Tensor:
    """The index ``(B, T)`` of the prefix before each token, 0 at padding.

    Equal prefixes are one state; the empty prefix is 0. ``tokens`` are right-padded completions of one prompt.
    """
    indices: dict[tuple[int, ...], int] = {}
    states = torch.zeros_like(tokens)
    for i, (row, n) in enumerate(zip(tokens.tolist(), lengths(mask).tolist(), strict=True)):
        for t in range(n):
            states[i, t] = indices.setdefault(tuple(row[:t]), len(indices))
    return states


@takes(mask=MASK, tokens=shape("B T"), rewards="B")
@equation(
    "eq:token-mdp",
    source='text generation as a decision process in Ranzato et al. (2016), "Sequence level training with '
    'recurrent neural networks".',
)
def token_mdp(tokens: Tensor, mask: Tensor, rewards: Tensor, *, vocab_size: int) -> tuple[Tensor, Tensor]:
    """Generation for one prompt as a deterministic MDP: states are prefixes, actions are tokens.

    P(s'|s, a) is 1 for the prefix with the token appended and 0 for all other states. The last token of a
    completion receives its reward and leads to the last state, which is terminal. Undiscounted, the value of the
    empty prefix is the bandit's E[r]. Other tokens, which no listed completion has after the prefix, lead to the
    terminal state with reward 0.

    Args: tokens: the B possible completions, all different; vocab_size V.
    Returns: transitions ``(S, V, S)`` and step rewards ``(S, V)``, with the states of :func:`prefix_states`
        and the terminal one, in the format of :mod:`minirlhf.equations.mdp`.
    """
    states = prefix_states(tokens, mask)
    if bool((tokens[mask.bool()] >= vocab_size).any() | (tokens[mask.bool()] < 0).any()):
        raise ArgumentError(
            f"tokens of shape {tuple(tokens.shape)} contains ids outside 0 .. vocab_size − 1 = {vocab_size - 1}",
            argument="tokens",
            expected=(0, vocab_size - 1),
        )
    size = int(states.max()) + 2  # the prefixes and the terminal state
    successor = torch.full((size, vocab_size), size - 1)
    step_rewards = torch.zeros(size, vocab_size, dtype=rewards.dtype)
    for n, last in enumerate((lengths(mask) - 1).tolist()):
        successor[states[n, :last], tokens[n, :last]] = states[n, 1 : last + 1]
        step_rewards[states[n, last], tokens[n, last]] = rewards[n]
    return torch.nn.functional.one_hot(successor, size).to(rewards.dtype), step_rewards


@takes(mask=MASK, logps=shape("B T"), ref_logps=shape("B T"), rewards="B", beta=NOT_NEGATIVE)
@equation(
    "eq:token-bandit",
    "eq:kl-in-reward",
    source='Ziegler et al. (2019), "Fine-tuning language models from human preferences", equation 2.',
)
def regularised_return(logps: Tensor, ref_logps: Tensor, rewards: Tensor, mask: Tensor, *, beta: float) -> Tensor:
    """The return ``(B,)`` of a sampled completion with the KL in the reward: r − β Σ_t (log π − log π_ref).

    In the token-level MDP every step has reward −β k1, and the last step has r in addition. Undiscounted, the sum is
    the reward of a bandit whose action is the whole completion. Its mean over completions of π is the objective. The
    log-ratio is a reward here: detach it. Its own gradient has mean 0.
    """
    return rewards - beta * masked_sum(kl.k1(logps, ref_logps), mask, -1)


@equation(
    "eq:token-gradient",
    source='Williams (1992), "Simple statistical gradient-following algorithms for connectionist reinforcement '
    'learning"; with these rewards Ziegler et al. (2019), as above.',
    gradient=(),
)
def regularised_return_to_go(logps: Tensor, ref_logps: Tensor, rewards: Tensor, mask: Tensor, *, beta: float) -> Tensor:
    """Reward-to-go with the KL in the reward: G_t = r − β Σ_{k≥t} (log π − log π_ref), from token t on.

    ``(B, T)``, 0 outside the mask. E[Σ_t G_t ∇log π(y_t)] is the gradient of the objective, and so is
    E[R(y) ∇log π(y)] with the whole return R = G_1, because the penalties before a token do not depend on it.
    No gradient flows through G.
    """
    shaped = shaping.kl_shaped_token_rewards(rewards, logps, ref_logps, mask, beta=beta, estimator=kl.k1)
    return returns.returns_to_go(shaped, mask)
