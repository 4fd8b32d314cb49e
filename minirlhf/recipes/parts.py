"""What an online recipe is made of: how rewards are shaped, how credit is assigned, how the policy and its critic learn.

Each part is a frozen dataclass of functions and numbers; the functions are those of :mod:`minirlhf.equations`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from minirlhf.core.logprobs import sequence_logps
from minirlhf.core.masking import lengths, zero_where_masked
from minirlhf.data.types import Rollout
from minirlhf.equations import returns, shaping, value_losses
from minirlhf.equations.advantages import broadcast_to_tokens, whiten
from minirlhf.equations.kl import k1, k3


@dataclass(frozen=True)
class Graded:
    """A graded rollout, all that credit assignment may look at.

    Attributes:
        rollout: ``B = P × G`` completions.
        rewards: ``(P, G)``.
        valid: ``(P, G)``, False where the grader failed.
        ref_logps: ``(B, T)`` under the reference policy, or None if the recipe has no KL term.
        values: ``(B, T)``, what the critic expected before each token, or None if the recipe has no critic.
    """

    rollout: Rollout
    rewards: Tensor
    valid: Tensor
    ref_logps: Tensor | None = None
    values: Tensor | None = None


# -- the KL term -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class InLoss:
    """Add ``beta ·`` estimator, aggregated like the objective, to the loss (as in GRPO)."""

    estimator: Callable[..., Tensor] = k3
    beta: float = 0.04


@dataclass(frozen=True)
class InReward:
    """Take ``beta ·`` estimator, of the sampling policy, off the reward (as in PPO for RLHF and in RLOO)."""

    estimator: Callable[..., Tensor] = k1
    beta: float = 0.05


def _reference(graded: Graded) -> Tensor:
    if graded.ref_logps is None:
        raise ValueError("ref_logps is None, but the recipe has a KL term")
    return zero_where_masked(graded.ref_logps, graded.rollout.mask)


# -- collect: what happens to rewards before credit --------------------------------------------------------------


@dataclass(frozen=True)
class Collect:
    """What happens to a graded rollout before credit is assigned.

    Attributes:
        shape: ``(rewards (B,), rollout, *, ...) -> (B,)`` each, one after the other.
    """

    shape: tuple[Callable[..., Tensor], ...] = ()

    def __call__(self, graded: Graded) -> Graded:
        """The rollout with its rewards shaped; what could not be graded stays 0."""
        rewards = graded.rewards.flatten()  # (B,)
        for change in self.shape:
            rewards = change(rewards, graded.rollout)
        return replace(graded, rewards=torch.where(graded.valid, rewards.view_as(graded.rewards), 0.0))


def cut_off(rewards: Tensor, rollout: Rollout, *, missing_eos_penalty: float = 1.0) -> Tensor:
    """Completions that do not end by themselves earn ``missing_eos_penalty`` less. ``(B,) -> (B,)``"""
    return shaping.missing_eos_penalty(rewards, rollout.terminated, penalty=missing_eos_penalty)


def token_cost(rewards: Tensor, rollout: Rollout, *, length_penalty: float = 0.01) -> Tensor:
    """Every token costs ``length_penalty``. ``(B,) -> (B,)``"""
    return shaping.length_penalty(rewards, lengths(rollout.mask), coefficient=length_penalty)


def soft_overlong(
    rewards: Tensor, rollout: Rollout, *, max_completion_length: int = 32, soft_punish_cache: int = 4
) -> Tensor:
    """The last ``soft_punish_cache`` tokens of the budget cost more and more, up to 1 (DAPO). ``(B,) -> (B,)``"""
    return rewards + shaping.soft_overlong(
        lengths(rollout.mask), max_completion_length=max_completion_length, soft_punish_cache=soft_punish_cache
    )


# -- credit: from rewards to one advantage per token -------------------------------------------------------------


@dataclass(frozen=True)
class Critic:
    """Who estimates values, and how it learns.

    Attributes:
        value_loss: ``(values, old_values, returns, mask, *, ...) -> (B, T)``, minimised.
        shared: the critic is a head on the policy's own backbone; otherwise a model of its own, at first a copy of it.
        vf_coef: weight of its loss beside the policy's.
        critic_learning_rate_ratio: its learning rate over the policy's; of a shared critic, its head's.
        critic_warmup: so many rollouts at the start teach only the critic (value pretraining).
    """

    value_loss: Callable[..., Tensor] = value_losses.value_clip
    shared: bool = False
    vf_coef: float = 0.5
    critic_learning_rate_ratio: float = 1.0
    critic_warmup: int = 0


def no_value_clip(values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
    """The plain squared error, for :attr:`Critic.value_loss`. All ``(B, T)``."""
    return value_losses.value_mse(values, returns, mask)


class Credit(Protocol):
    """``(graded, kl) -> (B, T)``: one advantage for each sampled token, 0 outside the mask."""

    @property
    def critic(self) -> Critic | None:
        """The critic that it needs, if any."""
        ...

    def __call__(self, graded: Graded, kl: InLoss | InReward | None) -> Tensor:
        """Advantages ``(B, T)``."""
        ...


@dataclass(frozen=True)
class Grouped:
    """Credit that gives every token of a completion the advantage of the completion within its group."""

    critic: ClassVar[None] = None
    advantage: Callable[..., Tensor]

    def __call__(self, graded: Graded, kl: InLoss | InReward | None) -> Tensor:
        """``(B, T)`` advantages, 0 outside the mask."""
        rewards = graded.rewards
        if isinstance(kl, InReward):
            rollout = graded.rollout
            per_token = kl.estimator(rollout.old_logps, _reference(graded))  # (B, T)
            rewards = rewards - kl.beta * rollout.grouped(sequence_logps(per_token, rollout.mask)).to(rewards)  # (P, G)
        return broadcast_to_tokens(self.advantage(rewards, valid=graded.valid), graded.rollout.mask)


@dataclass(frozen=True)
class Gae:
    """Credit from a critic: generalised advantage estimation over the sampled tokens.

    The reward stands on the last token; a KL term in the reward is charged token by token.

    Attributes:
        critic: whose values are used.
        gamma: discount per token.
        lam: λ, or a function from the lengths ``(B,)`` to one λ per completion.
        critic_lam: λ of the critic's targets; None: the same as ``lam``.
        whiten_rewards: scale the token rewards of the batch to variance 1 first.
        whiten_advantages: scale the advantages of the batch to mean 0 and variance 1 at last.
    """

    critic: Critic = Critic()
    gamma: float = 1.0
    lam: float | Callable[..., Tensor] = 0.95
    critic_lam: float | None = None
    whiten_rewards: bool = False
    whiten_advantages: bool = True

    def __call__(self, graded: Graded, kl: InLoss | InReward | None) -> Tensor:
        """``(B, T)`` advantages, 0 outside the mask and for completions that could not be graded."""

        def estimate(rewards: Tensor, values: Tensor, mask: Tensor) -> Tensor:
            advantages = returns.gae(rewards, values, mask, gamma=self.gamma, lam=_lambda(self.lam, mask))
            return whiten(advantages, mask) if self.whiten_advantages and int(mask.sum()) > 1 else advantages

        return self._of_graded(estimate, graded, kl)

    def targets(self, graded: Graded, kl: InLoss | InReward | None) -> Tensor:
        """``(B, T)`` λ-returns that the critic learns, 0 outside the mask and for completions that could not be graded."""

        def estimate(rewards: Tensor, values: Tensor, mask: Tensor) -> Tensor:
            lam = _lambda(self.lam if self.critic_lam is None else self.critic_lam, mask)
            return returns.lambda_returns(returns.gae(rewards, values, mask, gamma=self.gamma, lam=lam), values, mask)

        return self._of_graded(estimate, graded, kl)

    def _of_graded(
        self,
        estimate: Callable[[Tensor, Tensor, Tensor], Tensor],
        graded: Graded,
        kl: InLoss | InReward | None,
    ) -> Tensor:
        """``estimate(rewards, values, mask)`` on the rows that could be graded, zeros on the others."""
        if graded.values is None:
            raise ValueError("values is None, but the recipe has a critic")
        result, rows = torch.zeros_like(graded.values), graded.valid.flatten()
        if bool(rows.any()):
            mask = graded.rollout.mask[rows]
            rewards = token_rewards(graded, kl)[rows]
            if self.whiten_rewards and int(mask.sum()) > 1:
                rewards = whiten(rewards, mask, shift_mean=False)
            result[rows] = estimate(rewards, graded.values[rows].to(rewards), mask).to(result)
        return result


def token_rewards(graded: Graded, kl: InLoss | InReward | None) -> Tensor:
    """``(B, T)``: each completion's reward on its last token, less what a KL term in the reward charges for every token."""
    rollout, old = graded.rollout, graded.rollout.old_logps
    charged = isinstance(kl, InReward)
    return shaping.kl_shaped_token_rewards(
        graded.rewards.flatten().to(old),
        old,
        _reference(graded) if charged else old,
        rollout.mask,
        beta=kl.beta if isinstance(kl, InReward) else 0.0,
        estimator=kl.estimator if isinstance(kl, InReward) else k1,
    )


def _lambda(lam: float | Callable[..., Tensor], mask: Tensor) -> float | Tensor:
    return lam(lengths(mask)) if callable(lam) else lam


# -- update: from advantages to a loss ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Update:
    """How advantages change the policy.

    Attributes:
        objective: ``(logps, old_logps, advantages, mask, *, ...) -> (B, T)`` or ``(B, 1)``, maximised.
        weights: ``mask (B, T) -> (B, T)``, the aggregation.
        kl: where the KL term stands and which estimator it uses, or None.
        num_iterations: passes over each rollout.
        num_minibatches: optimizer steps per pass.
        ptx_coef: weight of the likelihood of other texts, given to the trainer, which keeps the policy from forgetting them.
    """

    objective: Callable[..., Tensor]
    weights: Callable[..., Tensor]
    kl: InLoss | InReward | None = None
    num_iterations: int = 1
    num_minibatches: int = 1
    ptx_coef: float = 0.0
