"""The equations that only chapter 5 needs: the steps from RLHF's objective to its optimum.

Functions of whole distributions take log-probabilities over all possible completions, ``(..., N)``, normalised along
the last axis, and the rewards of these completions in the same shape. Sums over N are ``(...)``. β > 0 is in units of
reward per nat.

"DPO paper" stands for Rafailov et al. (2023), "Direct preference optimization".
"""

from __future__ import annotations

from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.validate import POSITIVE, takes
from minirlhf.equations import kl
from minirlhf.equations.rlhf import LOG_DISTRIBUTION, log_partition, optimal_logps

_scores_policy = takes(rewards="... N", logps=LOG_DISTRIBUTION, ref_logps=LOG_DISTRIBUTION, beta=POSITIVE)


# -- the objective and its optimum, in the steps of the derivation -----------------------------------------------


@_scores_policy
@equation(
    "eq:rlhf-objective",
    source='Jaques et al. (2017), "Sequence tutor"; in RLHF since Ziegler et al. (2019), "Fine-tuning language '
    'models from human preferences".',
)
def rlhf_objective(logps: Tensor, ref_logps: Tensor, rewards: Tensor, *, beta: float) -> Tensor:
    """The KL-regularised objective J(π) = E_π[r] − β KL(π‖π_ref), to be maximised."""
    return (logps.exp() * rewards).sum(-1) - beta * kl.reverse_kl(logps, ref_logps)


@_scores_policy
@equation("eq:rlhf-regrouped", source="DPO paper, appendix A.1.")
def regrouped_objective(logps: Tensor, ref_logps: Tensor, rewards: Tensor, *, beta: float) -> Tensor:
    """The objective as one expectation, with log Z added and subtracted; all log-probabilities are finite.

    J(π) = −β E_π[log π − (log π_ref + r/β − log Z) − log Z]: the term in round brackets is the logarithm of a
    normalised distribution.
    """
    log_z = log_partition(ref_logps, rewards, beta=beta).unsqueeze(-1)  # (..., 1)
    bracket = ref_logps + rewards / beta - log_z
    return -beta * (logps.exp() * (logps - bracket - log_z)).sum(-1)


@_scores_policy
@equation("eq:rlhf-divergence-form", source="DPO paper, appendix A.1.")
def objective_from_optimum(logps: Tensor, ref_logps: Tensor, rewards: Tensor, *, beta: float) -> Tensor:
    """The objective as a distance: J(π) = −β KL(π‖π*) + β log Z, where only the first term depends on π."""
    distance = kl.reverse_kl(logps, optimal_logps(ref_logps, rewards, beta=beta))
    return -beta * distance + beta * log_partition(ref_logps, rewards, beta=beta)


@equation(
    "eq:gibbs",
    source='Gibbs\' inequality, Cover and Thomas (2006), "Elements of information theory", theorem 2.6.3.',
)
def gibbs_terms(logps: Tensor, other_logps: Tensor) -> Tensor:
    """The terms π log(π/q) − π + q of KL(π‖q), ``(..., N)``: each is ≥ 0, and 0 only where π = q. Inputs finite.

    Their sum is the KL, because both distributions sum to 1. This proves Gibbs' inequality term by term. Each
    term is π times the estimator k3.
    """
    return logps.exp() * kl.k3(logps, other_logps)
