"""The parts of an online recipe: reward shaping, credit assignment, and the updates of the policy and its critic.

Each part is a frozen dataclass of functions and numbers; the functions are those of :mod:`minirlhf.equations`.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from minirlhf.core.errors import ArgumentError
from minirlhf.core.logprobs import sequence_logps
from minirlhf.core.masking import lengths, zero_where_masked
from minirlhf.core.options import option
from minirlhf.data.types import Rollout
from minirlhf.equations import difficulty, off_policy, returns, shaping, value_losses
from minirlhf.equations.advantages import broadcast_to_tokens, process_zscore, remax, whiten
from minirlhf.equations.kl import k1, k3
from minirlhf.recipes.options import name_of


@dataclass(frozen=True)
class ScoredRollout:
    """A graded rollout: all inputs of credit assignment.

    Attributes:
        rollout: ``B = P × G`` completions.
        rewards: ``(P, G)``.
        valid: ``(P, G)``, False where the grader failed or ``sample_filter`` left the sample out.
        ref_logps: ``(B, T)`` under the reference policy, or None if the recipe has no KL term.
        values: ``(B, T)``, the critic's prediction before each token, or None if the recipe has no critic.
        step_rewards: ``(B, T)``, the grade of the step that ends with a token, NaN where no step ends; None without a
            process grader.
        greedy: the greedy completion of each prompt, ``G = 1``, graded in the same way; None if the recipe does not
            need it.
    """

    rollout: Rollout
    rewards: Tensor
    valid: Tensor
    ref_logps: Tensor | None = None
    values: Tensor | None = None
    step_rewards: Tensor | None = None
    greedy: ScoredRollout | None = None

    def select_groups(self, picked: Tensor) -> ScoredRollout:
        """Return some of the groups; ``picked`` is an index tensor over ``P``."""
        rows = torch.arange(len(self.rollout)).view(self.rewards.shape)[picked].flatten()
        per_row = {name: getattr(self, name) for name in ("ref_logps", "values", "step_rewards")}
        return replace(
            self,
            rollout=self.rollout.select(rows),
            rewards=self.rewards[picked],
            valid=self.valid[picked],
            greedy=None if self.greedy is None else self.greedy.select_groups(picked),
            **{name: None if x is None else x[rows] for name, x in per_row.items()},
        )

    @staticmethod
    def concatenate(parts: Sequence[ScoredRollout], pad_token_id: int) -> ScoredRollout:
        """Concatenate several rollouts that have rewards, but no reference log-probabilities or values yet."""
        rollout = Rollout.concatenate([part.rollout for part in parts], pad_token_id)
        width = rollout.mask.shape[1]
        steps = [part.step_rewards for part in parts if part.step_rewards is not None]
        greedy = [part.greedy for part in parts if part.greedy is not None]
        return ScoredRollout(
            rollout,
            torch.cat([part.rewards for part in parts]),
            torch.cat([part.valid for part in parts]),
            step_rewards=torch.cat([F.pad(x, (0, width - x.shape[1]), value=math.nan) for x in steps])
            if steps
            else None,
            greedy=ScoredRollout.concatenate(greedy, pad_token_id) if greedy else None,
        )


@dataclass(frozen=True)
class RolloutExtras:
    """Optional extras of a rollout beside its rewards; each is sampled or graded only when a credit calls it.

    Attributes:
        greedy: samples the greedy completion of each prompt, ``G = 1``, graded in the same way.
        steps: grades the steps: ``(B, T)``, NaN where no step ends; ``UserError`` if there is no step-level grader.
    """

    greedy: Callable[[], ScoredRollout]
    steps: Callable[[], Tensor]


# -- the KL term -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KLPenalty:
    """``beta ·`` an estimator of the KL divergence from the reference; this class by itself puts it nowhere.

    Attributes:
        estimator: ``(logps, ref_logps) -> (B, T)``, nats.
        in_reward: whether it is taken off the rewards.
        in_loss: whether it is added to the loss.
    """

    estimator: Callable[..., Tensor] = k3
    beta: float = 0.04
    in_reward: ClassVar[bool] = False
    in_loss: ClassVar[bool] = False

    def penalized_rewards(self, graded: ScoredRollout) -> Tensor:
        """Return ``(P, G)``: the rewards minus the penalty of the whole completion."""
        return graded.rewards

    def token_rewards(self, graded: ScoredRollout) -> Tensor:
        """Return ``(B, T)``: each completion's reward on its last token, minus the penalty of every token."""
        old_logps, mask = graded.rollout.old_logps, graded.rollout.mask
        ref_logps, beta = (_present(graded.ref_logps), self.beta) if self.in_reward else (old_logps, 0.0)
        rewards = graded.rewards.flatten().to(old_logps)
        return shaping.kl_shaped_token_rewards(
            rewards, old_logps, ref_logps, mask, beta=beta, estimator=self.estimator if self.in_reward else k1
        )


NO_KL = KLPenalty()


@dataclass(frozen=True)
class KLInLoss(KLPenalty):
    """Add ``beta ·`` estimator, aggregated like the objective, to the loss (as in GRPO)."""

    in_loss: ClassVar[bool] = True


@dataclass(frozen=True)
class KLInReward(KLPenalty):
    """Take ``beta ·`` estimator, of the sampling policy, off the reward (as in PPO for RLHF and in RLOO)."""

    estimator: Callable[..., Tensor] = k1
    beta: float = 0.05
    in_reward: ClassVar[bool] = True

    def penalized_rewards(self, graded: ScoredRollout) -> Tensor:
        """Return ``(P, G)``: the rewards minus ``beta ·`` the sum of the estimates."""
        rollout = graded.rollout
        per_token = self.estimator(rollout.old_logps, zero_where_masked(_present(graded.ref_logps), rollout.mask))
        return graded.rewards - self.beta * rollout.grouped(sequence_logps(per_token, rollout.mask)).to(graded.rewards)


def _present(ref_logps: Tensor | None) -> Tensor:
    if ref_logps is None:
        raise ArgumentError("ref_logps is None, but the recipe has a KL term", argument="ref_logps", problem="missing")
    return ref_logps


# -- collect: what happens to rewards before credit --------------------------------------------------------------


@dataclass(frozen=True)
class DynamicSampling:
    """Sample prompts until the batch is full of groups that pass a filter (DAPO's dynamic sampling).

    Attributes:
        keep_groups: ``(rewards (P, G), valid) -> (P,)`` bool; the rewards are those of the grader, before shaping.
    """

    keep_groups: Callable[..., Tensor] = difficulty.nonzero_variance_groups
    max_resampling_rounds: int = option(
        3,
        "maximum number of extra batches that are sampled to fill the batch with kept groups, ≥ 0; a batch that is "
        "still not full is used as it is",
    )


@dataclass(frozen=True)
class RolloutProcessing:
    """What is sampled, and how its rewards are processed before credit is assigned.

    Attributes:
        shape: reward shaping functions ``(rewards (B,), rollout, *, ...) -> (B,)``, applied in this order.
        refill: which groups are replaced by newly sampled groups; None: no group is replaced.
        sample_filter: ``(rewards (P, G), rollout, valid, *, ...) -> (P, G)`` bool: which completions of a group are kept.
            The others get advantage 0 and do not enter the group's statistics. None: all are kept.
    """

    shape: tuple[Callable[..., Tensor], ...] = ()
    refill: DynamicSampling | None = None
    sample_filter: Callable[..., Tensor] | None = None

    def __call__(self, graded: ScoredRollout) -> ScoredRollout:
        """Return the rollout with its rewards shaped; the reward of an ungraded completion stays 0."""
        rewards, valid = graded.rewards.flatten(), graded.valid  # (B,), (P, G)
        for reshape in self.shape:
            rewards = reshape(rewards, graded.rollout)
        shaped = torch.where(valid, rewards.view_as(graded.rewards), 0.0)
        if self.sample_filter is not None:
            valid = valid & self.sample_filter(shaped, graded.rollout, valid)
        greedy = None if graded.greedy is None else replace(self, sample_filter=None)(graded.greedy)
        return replace(graded, rewards=shaped, valid=valid, greedy=greedy)


def gfpo_shortest(rewards: Tensor, rollout: Rollout, valid: Tensor, *, num_kept: int = 4) -> Tensor:
    """The ``num_kept`` shortest samples of each group (GFPO). ``(P, G) -> (P, G)``"""
    return difficulty.gfpo_filter(-rollout.grouped(lengths(rollout.mask)).to(rewards), valid, num_kept=num_kept)


def gfpo_reward_per_token(rewards: Tensor, rollout: Rollout, valid: Tensor, *, num_kept: int = 4) -> Tensor:
    """The ``num_kept`` samples of each group with the most reward per token (GFPO). ``(P, G) -> (P, G)``"""
    per_token = rewards / rollout.grouped(lengths(rollout.mask))
    return difficulty.gfpo_filter(per_token, valid, num_kept=num_kept)


def penalize_missing_eos(rewards: Tensor, rollout: Rollout, *, missing_eos_penalty: float = 1.0) -> Tensor:
    """Lower the reward of truncated completions by ``missing_eos_penalty``. ``(B,) -> (B,)``"""
    return shaping.missing_eos_penalty(rewards, rollout.terminated, penalty=missing_eos_penalty)


def penalize_length(rewards: Tensor, rollout: Rollout, *, length_penalty: float = 0.01) -> Tensor:
    """Lower the reward by ``length_penalty`` per token of the completion. ``(B,) -> (B,)``"""
    return shaping.length_penalty(rewards, lengths(rollout.mask), coefficient=length_penalty)


def penalize_overlong(
    rewards: Tensor, rollout: Rollout, *, max_completion_length: int, soft_punish_cache: int = 4
) -> Tensor:
    """Penalise the last ``soft_punish_cache`` tokens of the budget linearly, up to 1 (DAPO). ``(B,) -> (B,)``"""
    return rewards + shaping.soft_overlong(
        lengths(rollout.mask), max_completion_length=max_completion_length, soft_punish_cache=soft_punish_cache
    )


# -- credit: from rewards to one advantage per token -------------------------------------------------------------


@dataclass(frozen=True)
class Critic:
    """The critic, which estimates values, and how it is trained.

    Attributes:
        value_loss: ``(values, old_values, returns, mask, *, ...) -> (B, T)``, minimised.
    """

    value_loss: Callable[..., Tensor] = value_losses.value_clip
    shared: bool = option(
        False,
        "the critic is a value head on the policy's backbone; False: a separate model, initialised from the policy",
    )
    vf_coef: float = option(0.5, "coefficient of the value loss in the total loss")
    critic_learning_rate_ratio: float = option(
        1.0,
        "learning rate of the critic (if shared, of its head) divided by the policy's",
    )
    critic_warmup: int = option(0, "number of rollouts at the start that train the critic only (value pretraining)")


def unclipped_value_loss(values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
    """Return the squared error without clipping, for :attr:`Critic.value_loss`. All ``(B, T)``."""
    return value_losses.value_mse(values, returns, mask)


class AdvantageEstimator(ABC):
    """``(graded, kl) -> (B, T)``: one advantage for each sampled token, 0 outside the mask.

    Attributes:
        critic: the critic whose values it uses, if any.
    """

    critic: Critic | None = None

    @property
    def title(self) -> str:
        """Return the title in the table of recipes: the advantage function, or the words of the class name."""
        advantage = vars(self).get("advantage") or type(self).__name__
        return name_of(advantage) if callable(advantage) else re.sub("(?<=[a-z])(?=[A-Z])", " ", advantage).lower()

    def complete(self, graded: ScoredRollout, more: RolloutExtras) -> ScoredRollout:
        """Return the rollout with the extras that this estimator needs; by default nothing is added."""
        return graded

    @abstractmethod
    def __call__(self, graded: ScoredRollout, kl: KLPenalty | None) -> Tensor:
        """Return the advantages ``(B, T)``."""

    def targets(self, graded: ScoredRollout, kl: KLPenalty | None) -> Tensor | None:
        """Return the critic's targets ``(B, T)``, 0 outside the mask and for completions that could not be graded."""
        return None


@dataclass(frozen=True)
class GroupAdvantage(AdvantageEstimator):
    """Credit that gives every token of a completion the advantage of the completion within its group."""

    advantage: Callable[..., Tensor]

    def __call__(self, graded: ScoredRollout, kl: KLPenalty | None) -> Tensor:
        """Return ``(B, T)`` advantages, 0 outside the mask."""
        advantages = self.advantage((kl or NO_KL).penalized_rewards(graded), valid=graded.valid)
        return broadcast_to_tokens(advantages, graded.rollout.mask)


@dataclass(frozen=True)
class GreedyBaseline(AdvantageEstimator):
    """Credit relative to the greedy completion of the same prompt (ReMax); a KL term is charged to both."""

    def complete(self, graded: ScoredRollout, more: RolloutExtras) -> ScoredRollout:
        """Return the rollout with the greedy completions."""
        return replace(graded, greedy=more.greedy())

    def __call__(self, graded: ScoredRollout, kl: KLPenalty | None) -> Tensor:
        """Return ``(B, T)`` advantages, 0 outside the mask and where the greedy completion could not be graded."""
        if graded.greedy is None:
            raise ArgumentError(
                "greedy is None, but the baseline is a greedy completion", argument="greedy", problem="missing"
            )
        penalize = (kl or NO_KL).penalized_rewards
        baseline, has_baseline = penalize(graded.greedy).squeeze(1), graded.greedy.valid  # (P,), (P, 1)
        return broadcast_to_tokens(remax(penalize(graded), baseline, graded.valid & has_baseline), graded.rollout.mask)


@dataclass(frozen=True)
class ProcessSupervision(AdvantageEstimator):
    """Credit from graded steps: each token gets its own and all later grades (GRPO with process supervision)."""

    advantage: Callable[..., Tensor] = process_zscore

    def complete(self, graded: ScoredRollout, more: RolloutExtras) -> ScoredRollout:
        """Return the rollout with the grades of its steps."""
        return replace(graded, step_rewards=more.steps())

    def __call__(self, graded: ScoredRollout, kl: KLPenalty | None) -> Tensor:
        """Return ``(B, T)`` advantages, 0 outside the mask."""
        if graded.step_rewards is None:
            raise ArgumentError(
                "step_rewards is None, but the recipe needs a grade for each step",
                argument="step_rewards",
                problem="missing",
            )
        if kl is not None and kl.in_reward:
            raise ValueError("each step has its own reward; expected the KL term in the loss")
        rollout, steps = graded.rollout, graded.step_rewards
        ends = steps.isfinite() & rollout.mask & graded.valid.flatten()[:, None]
        steps = zero_where_masked(steps, ends).to(graded.rewards)
        return self.advantage(steps, ends, rollout.mask, num_generations=rollout.num_generations)


def _per_token(
    graded: ScoredRollout,
    kl: KLPenalty | None,
    estimate: Callable[[Tensor, Tensor, Tensor], Tensor],
    whitened: bool = False,
) -> Tensor:
    """Return ``estimate(token rewards, mask, rows)`` on the rows that could be graded, else zeros. ``(B, T)``"""
    rewards, rows, mask = (kl or NO_KL).token_rewards(graded), graded.valid.flatten(), graded.rollout.mask
    result = torch.zeros_like(rewards)
    if bool(rows.any()):
        credit = estimate(rewards[rows], mask[rows], rows)
        result[rows] = (whiten(credit, mask[rows]) if whitened and int(mask[rows].sum()) > 1 else credit).to(result)
    return result


@dataclass(frozen=True)
class RewardToGo(AdvantageEstimator):
    """Credit without critic and without groups: the reward from each token on, whitened over the batch (REINFORCE++).

    Attributes:
        gamma: discount per token.
    """

    gamma: float = 1.0
    whiten_advantages: bool = option(
        True,
        "normalise the advantages of the batch to mean 0 and variance 1; the batch mean is the baseline",
    )

    def __call__(self, graded: ScoredRollout, kl: KLPenalty | None) -> Tensor:
        """Return ``(B, T)`` advantages, 0 outside the mask and for completions that could not be graded."""

        def to_go(rewards: Tensor, mask: Tensor, rows: Tensor) -> Tensor:
            return returns.returns_to_go(rewards, mask, gamma=self.gamma)

        return _per_token(graded, kl, to_go, self.whiten_advantages)


@dataclass(frozen=True)
class GAE(AdvantageEstimator):
    """Credit from a critic: generalised advantage estimation over the sampled tokens.

    The reward stands on the last token; a KL term in the reward is charged token by token.

    Attributes:
        critic: the critic whose values are used.
        gamma: discount per token.
        lam: λ, or a function from the lengths ``(B,)`` to one λ per completion.
    """

    critic: Critic = Critic()
    gamma: float = 1.0
    lam: float | Callable[..., Tensor] = 0.95
    critic_lam: float | None = option(None, "λ of the λ-returns that the critic is trained on; None: the same as lam")
    whiten_rewards: bool = option(False, "scale the token rewards of the batch to variance 1 before GAE")
    whiten_advantages: bool = option(True, "normalise the advantages of the batch to mean 0 and variance 1")

    def __call__(self, graded: ScoredRollout, kl: KLPenalty | None) -> Tensor:
        """Return ``(B, T)`` advantages, 0 outside the mask and for completions that could not be graded."""

        def advantages(rewards: Tensor, mask: Tensor, rows: Tensor) -> Tensor:
            return self._gae(graded, rewards, mask, rows, self.lam)[0]

        return _per_token(graded, kl, advantages, self.whiten_advantages)

    def targets(self, graded: ScoredRollout, kl: KLPenalty | None) -> Tensor:
        """Return the λ-returns ``(B, T)``."""

        def lambda_returns(rewards: Tensor, mask: Tensor, rows: Tensor) -> Tensor:
            lam = self.lam if self.critic_lam is None else self.critic_lam
            return returns.lambda_returns(*self._gae(graded, rewards, mask, rows, lam), mask)

        return _per_token(graded, kl, lambda_returns)

    def _gae(
        self, graded: ScoredRollout, rewards: Tensor, mask: Tensor, rows: Tensor, lam: float | Callable[..., Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return the advantages and values of some rows."""
        if graded.values is None:
            raise ArgumentError(
                "values is None, but this credit needs the values of a critic",
                argument="values",
                problem="missing",
            )
        values = graded.values[rows].to(rewards)
        if self.whiten_rewards and int(mask.sum()) > 1:
            rewards = whiten(rewards, mask, shift_mean=False)
        lam_per_row = lam(lengths(mask)) if callable(lam) else lam
        return returns.gae(rewards, values, mask, gamma=self.gamma, lam=lam_per_row), values


# -- update: from advantages to a loss ---------------------------------------------------------------------------


@dataclass(frozen=True)
class PolicyUpdate:
    """How advantages change the policy.

    Attributes:
        objective: ``(logps, old_logps, advantages, mask, *, ...) -> (B, T)`` or ``(B, 1)``, maximised.
        weights: ``mask (B, T) -> (B, T)``, the aggregation.
        kl: the KL term (in the reward or in the loss) with its estimator, or None.
        keep: ``rollout -> (B,)`` bool: False masks a completion out of the loss. None: none is masked.
        corrections: ``(logps, rollout, advantages, *, ...) -> (B, T)`` or ``(B, 1)`` each: factors on the objective, without
            gradient, for completions that another policy sampled.
    """

    objective: Callable[..., Tensor]
    weights: Callable[..., Tensor]
    kl: KLPenalty | None = None
    keep: Callable[..., Tensor] | None = None
    corrections: tuple[Callable[..., Tensor], ...] = ()
    decoupled: bool = option(
        False,
        "recompute old_logps with the current policy at the start of each step (decoupled PPO); corrections account "
        "for the off-policy lag; no effect without staleness",
    )
    num_iterations: int = option(1, "passes (epochs) over each rollout")
    num_minibatches: int = option(1, "minibatches (optimizer steps) per pass, at most one per completion")
    positive_coef: float = option(0.0, "weight of the log-likelihood of completions with reward > 0 (VAPO)")
    ptx_coef: float = option(
        0.0,
        "weight of the pretraining (ptx) term, the log-likelihood of pretraining texts, against forgetting",
    )
    entropy_coef: float = option(0.0, "weight of the entropy bonus, aggregated over tokens like the objective")
    top_entropy_quantile: float = option(
        1.0,
        "fraction of an optimizer batch's tokens to train on, by highest entropy, in (0, 1]; 1: all",
    )

    def token_weights(self, rollout: Rollout) -> Tensor:
        """Return the ``(B, T)`` weights of all tokens of an optimizer batch."""
        return self.weights(rollout.mask) if self.keep is None else self.weights(rollout.mask, keep=self.keep(rollout))


def mask_truncated_completions(rollout: Rollout) -> Tensor:
    """Return False for truncated completions, else True (DAPO's overlong filtering). ``(B,)`` bool"""
    return rollout.terminated


def truncated_importance(
    logps: Tensor, rollout: Rollout, advantages: Tensor, *, importance_sampling_cap: float = 2.0
) -> Tensor:
    """Return the token ratio of ``old_logps`` to the behaviour policy, truncated at a cap. ``(B, T)``"""
    return off_policy.truncated_importance_weight(
        rollout.old_logps, rollout.behavior_logps, rollout.mask, importance_sampling_cap=importance_sampling_cap
    )


def sequence_importance(
    logps: Tensor, rollout: Rollout, advantages: Tensor, *, importance_sampling_cap: float = 2.0
) -> Tensor:
    """Return the ratio of whole completions to the behaviour policy, truncated at a cap. ``(B, 1)``"""
    return off_policy.sequence_importance_weight(
        rollout.old_logps, rollout.behavior_logps, rollout.mask, importance_sampling_cap=importance_sampling_cap
    )


def masked_importance(
    logps: Tensor,
    rollout: Rollout,
    advantages: Tensor,
    *,
    importance_sampling_cap: float = 5.0,
    importance_sampling_floor: float = 0.5,
) -> Tensor:
    """Return the importance weight of each token if it lies between floor and cap, else 0. ``(B, T)``"""
    return off_policy.masked_importance_weight(
        rollout.old_logps,
        rollout.behavior_logps,
        rollout.mask,
        importance_sampling_cap=importance_sampling_cap,
        importance_sampling_floor=importance_sampling_floor,
    )


def off_policy_sequence_mask(
    logps: Tensor, rollout: Rollout, advantages: Tensor, *, off_policy_mask_threshold: float = 0.1
) -> Tensor:
    """Return 0 for completions of negative advantage that are far off-policy, else 1 (DeepSeek-V3.2). ``(B, 1)``"""
    keep = off_policy.off_policy_keep(
        logps,
        rollout.behavior_logps,
        advantages,
        rollout.mask,
        off_policy_mask_threshold=off_policy_mask_threshold,
    )
    return keep[:, None].to(logps.dtype)
