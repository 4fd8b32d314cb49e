"""The problem that RLHF solves: reward minus β times the KL to a reference, and its exact optimum.

Functions of whole distributions take log-probabilities over every possible response, ``(..., N)``, normalised along the
last axis, and the rewards of these responses in the same shape. Functions of samples take what a rollout holds.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minirlhf.core.masking import masked_sum
from minirlhf.core.validate import require_finite, require_mask, require_positive, require_shapes
from minirlhf.equations import kl


def _require(beta: float, **tensors: Tensor) -> None:
    """β > 0, and all tensors of one shape ``(..., N)``; all but log-probabilities finite."""
    require_positive(beta=beta)
    first = next(iter(tensors.values()))
    axes = " ".join([*(f"axis{i}" for i in range(first.dim() - 1)), "N"])
    require_shapes(**{name: (x, axes) for name, x in tensors.items()})
    require_finite(**{name: x for name, x in tensors.items() if name == "rewards"})
    for name, x in tensors.items():
        if bool(torch.isnan(x).any()):
            raise ValueError(f"{name} of shape {tuple(x.shape)} holds NaN")


# -- the objective and its optimum, in the steps of the derivation -----------------------------------------------


def rlhf_objective(logps: Tensor, ref_logps: Tensor, rewards: Tensor, *, beta: float) -> Tensor:
    """The KL-regularised objective J(π) = E_π[r] − β KL(π‖π_ref), to be maximised.

    Label: eq:rlhf-objective
    Source: Jaques et al. (2017), "Sequence tutor"; in RLHF since Ziegler et al. (2019), "Fine-tuning language models
        from human preferences".
    Args: logps, ref_logps ``(..., N)`` over all responses; rewards ``(..., N)``; beta > 0, reward units per nat.
    Returns: ``(...)``.
    Raises: ValueError if shapes differ, a reward is not finite, or beta is not > 0.
    """
    _require(beta, logps=logps, ref_logps=ref_logps, rewards=rewards)
    return (logps.exp() * rewards).sum(-1) - beta * kl.reverse_kl(logps, ref_logps)


def log_partition(ref_logps: Tensor, rewards: Tensor, *, beta: float) -> Tensor:
    """log Z = log Σ π_ref exp(r/β), the normaliser of the optimum; one number per prompt.

    Label: eq:partition
    Source: Rafailov et al. (2023), "Direct preference optimization", section 4.
    Args: ref_logps, rewards ``(..., N)``; beta > 0.
    Returns: ``(...)``.
    Raises: ValueError if shapes differ, a reward is not finite, or beta is not > 0.
    """
    _require(beta, ref_logps=ref_logps, rewards=rewards)
    return torch.logsumexp(ref_logps + rewards / beta, -1)


def regrouped_objective(logps: Tensor, ref_logps: Tensor, rewards: Tensor, *, beta: float) -> Tensor:
    """The objective as one expectation, with log Z added and taken away again.

    J(π) = −β E_π[log π − (log π_ref + r/β − log Z) − log Z]: what stands in the round brackets is now the logarithm of
    a normalised distribution.

    Label: eq:rlhf-regrouped
    Source: Rafailov et al. (2023), "Direct preference optimization", appendix A.1.
    Args: logps, ref_logps ``(..., N)``, finite; rewards ``(..., N)``; beta > 0.
    Returns: ``(...)``.
    Raises: ValueError if shapes differ, a reward is not finite, or beta is not > 0.
    """
    _require(beta, logps=logps, ref_logps=ref_logps, rewards=rewards)
    log_z = log_partition(ref_logps, rewards, beta=beta).unsqueeze(-1)  # (..., 1)
    bracket = ref_logps + rewards / beta - log_z
    return -beta * (logps.exp() * (logps - bracket - log_z)).sum(-1)


def optimal_logps(ref_logps: Tensor, rewards: Tensor, *, beta: float) -> Tensor:
    """The optimum π* ∝ π_ref exp(r/β), as log-probabilities.

    β → 0 gives all mass to the best response that π_ref allows, β → ∞ gives π_ref back. A constant added to the rewards
    of a prompt changes nothing.

    Label: eq:rlhf-optimum
    Source: Korbak et al. (2022), "RL with KL penalties is better viewed as Bayesian inference"; Rafailov et al. (2023),
        "Direct preference optimization", equation 4.
    Args: ref_logps, rewards ``(..., N)``; beta > 0.
    Returns: ``(..., N)``.
    Raises: ValueError if shapes differ, a reward is not finite, or beta is not > 0.
    """
    _require(beta, ref_logps=ref_logps, rewards=rewards)
    return torch.log_softmax(ref_logps + rewards / beta, -1)


def objective_from_optimum(logps: Tensor, ref_logps: Tensor, rewards: Tensor, *, beta: float) -> Tensor:
    """The objective as a distance: J(π) = −β KL(π‖π*) + β log Z, where only the first term depends on π.

    Label: eq:rlhf-divergence-form
    Source: Rafailov et al. (2023), "Direct preference optimization", appendix A.1.
    Args: logps, ref_logps, rewards ``(..., N)``; beta > 0.
    Returns: ``(...)``.
    Raises: ValueError if shapes differ, a reward is not finite, or beta is not > 0.
    """
    _require(beta, logps=logps, ref_logps=ref_logps, rewards=rewards)
    distance = kl.reverse_kl(logps, optimal_logps(ref_logps, rewards, beta=beta))
    return -beta * distance + beta * log_partition(ref_logps, rewards, beta=beta)


def gibbs_terms(logps: Tensor, other_logps: Tensor) -> Tensor:
    """The terms π log(π/q) − π + q of KL(π‖q): each is ≥ 0, and 0 only where π = q.

    Their sum is the KL because both distributions sum to 1. That is Gibbs' inequality, term by term; each term is
    π times the estimator k3.

    Label: eq:gibbs
    Source: Gibbs' inequality, Cover and Thomas (2006), "Elements of information theory", theorem 2.6.3.
    Args: logps of π and other_logps of q, ``(..., N)``, finite.
    Returns: ``(..., N)``.
    Raises: ValueError if the shapes differ.
    """
    return logps.exp() * kl.k3(logps, other_logps)


def optimal_value(ref_logps: Tensor, rewards: Tensor, *, beta: float) -> Tensor:
    """The largest value of the objective, J(π*) = β log Z: a soft maximum of the rewards.

    It lies between E_ref[r] (β → ∞) and max r (β → 0). Applied to the action values of a prefix it is the soft Bellman
    backup, so that going token by token gives the same optimum as choosing among whole responses.

    Label: eq:rlhf-optimal-value, eq:soft-bellman
    Source: Rafailov et al. (2023), "Direct preference optimization", appendix A.1; token by token Rafailov et al.
        (2024), "From r to Q*".
    Args: ref_logps, rewards ``(..., N)``; beta > 0.
    Returns: ``(...)``, in units of reward.
    Raises: ValueError if shapes differ, a reward is not finite, or beta is not > 0.
    """
    return beta * log_partition(ref_logps, rewards, beta=beta)


# -- reading it backwards ----------------------------------------------------------------------------------------


def implicit_reward(logps: Tensor, ref_logps: Tensor, *, beta: float) -> Tensor:
    """The reward that a policy is optimal for, β (log π − log π_ref), up to the constant β log Z of its prompt.

    The constant cancels in any comparison of two answers to one prompt.

    Label: eq:implicit-reward
    Source: Rafailov et al. (2023), "Direct preference optimization", equation 5.
    Args: logps, ref_logps: log-probabilities of responses, any shape, the same; beta > 0.
    Returns: the same shape, in units of reward.
    Raises: ValueError if shapes differ or beta is not > 0.
    """
    require_positive(beta=beta)
    return beta * kl.k1(logps, ref_logps)
