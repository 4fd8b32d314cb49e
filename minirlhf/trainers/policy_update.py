"""All optimizer steps on one graded rollout: iterations, minibatches, micro-batches. The recipe defines the loss."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from minirlhf.core.masking import masked_mean, zero_where_masked
from minirlhf.core.randomness import generator
from minirlhf.data.types import Rollout, TokenBatch
from minirlhf.equations import diagnostics
from minirlhf.equations.aggregation import aggregate, high_entropy_weights, token_mean
from minirlhf.equations.policy_losses import pretraining as log_likelihood
from minirlhf.losses import policy_loss, value_loss
from minirlhf.models.critics import completion_values
from minirlhf.models.forward import completion_logps
from minirlhf.recipes.parts import NO_KL, Critic, PolicyUpdate, ScoredRollout
from minirlhf.recipes.recipe import Recipe
from minirlhf.trainers.config import OnlineConfig, TrainerConfig
from minirlhf.trainers.likelihood import nll_losses
from minirlhf.trainers.loop import TrainingLoop


@dataclass(frozen=True)
class TokenGradientRecord:
    """Token-level statistics of the policy on one micro-batch, all without gradient.

    Attributes:
        rows: ``(b,)``, indices of the rows in the rollout.
        logps: ``(b, T)``, log-probabilities of the tokens under the policy before the step.
        slopes: ``(b, T)``, derivative of the recipe's objective with respect to each log-probability.
        weights: ``(b, T)``, of the aggregation. ``weights · slopes`` is the derivative of the aggregated objective with
            respect to the token's log-probability.
    """

    rows: Tensor
    logps: Tensor
    slopes: Tensor
    weights: Tensor


def update_policy(
    loop: TrainingLoop,
    graded: ScoredRollout,
    recipe: Recipe,
    config: OnlineConfig,
    *,
    pretraining: TokenBatch | None = None,
) -> tuple[dict[str, float], list[TokenGradientRecord]]:
    """Run all optimizer steps on one rollout.

    Args:
        pretraining: texts for the pretraining term (``ptx_coef``), which is part of the loss of every step.

    Returns:
        The mean of the metrics over the steps, and the token statistics of the last iteration over the rollout.
    """
    rollout, update, critic = graded.rollout, recipe.update, recipe.credit.critic
    advantages = recipe.advantages(graded)  # (B, T)
    targets = recipe.credit.targets(graded, update.kl)  # (B, T)
    updates_policy = critic is None or loop.step >= critic.critic_warmup
    step_metrics: list[dict[str, float]] = []
    num_skipped = 0
    for iteration in range(update.num_iterations):
        iteration_stats: list[TokenGradientRecord] = []
        order = torch.arange(len(rollout))
        if update.num_minibatches > 1:
            order = torch.randperm(len(rollout), generator=generator("minibatch", config.seed, loop.step, iteration))
        for rows in order.tensor_split(min(update.num_minibatches, len(order))):
            losses: list[Iterator[Tensor]] = []
            stats: list[TokenGradientRecord] = []
            if updates_policy:
                weights = update.token_weights(rollout.select(rows))  # (b, T), before any micro-batch split
                if update.top_entropy_quantile < 1:
                    entropies = policy_token_entropies(loop.model, rollout.select(rows), config)
                    weights = high_entropy_weights(
                        weights, entropies, rollout.mask[rows], top_entropy_quantile=update.top_entropy_quantile
                    )
                if bool(weights.any()):
                    losses.append(policy_losses(loop.model, graded, advantages, recipe, config, rows, weights, stats))
                if pretraining is not None:
                    losses.append(ptx_losses(loop.model, pretraining, update.ptx_coef, config))
            if critic is not None and targets is not None:
                losses.append(value_losses(loop.parts["critic"], graded, targets, critic, config, rows))
            if not losses:  # `keep` filters every completion out: AdamW would step on its momentum alone
                num_skipped += 1
                continue
            metrics = loop.update(itertools.chain(*losses), only=None if updates_policy else "critic")
            if not updates_policy:
                metrics["critic_loss"] = metrics.pop("loss")
            step_metrics.append({**metrics, **policy_shift_metrics(stats, graded, advantages)})
            iteration_stats += stats
    names = dict.fromkeys(k for m in step_metrics for k in m)  # each metric is averaged over the steps that report it
    mean_metrics = {name: statistics.fmean(m[name] for m in step_metrics if name in m) for name in names}
    if update.keep is not None:
        mean_metrics["skipped_updates"] = num_skipped
    if targets is not None and graded.values is not None and bool(graded.valid.any()):
        rows = graded.valid.flatten()
        inputs = graded.values[rows], targets[rows], rollout.mask[rows]
        mean_metrics["explained_variance"] = float(diagnostics.explained_variance(*inputs))
        mean_metrics["value"] = float(masked_mean(graded.values, rollout.mask))
    return mean_metrics, iteration_stats


def policy_losses(
    model: nn.Module,
    graded: ScoredRollout,
    advantages: Tensor,
    recipe: Recipe,
    config: OnlineConfig,
    rows: Tensor,
    weights: Tensor,
    seen: list[TokenGradientRecord],
) -> Iterator[Tensor]:
    """Yield the loss of each micro-batch of ``rows``. The losses sum to the loss of the optimizer batch."""
    rollout, kl = graded.rollout, recipe.update.kl or NO_KL
    size = config.micro_batch_size or len(rows)
    pos_weights = weights  # (b, T), replaced if the recipe also imitates correct completions
    if recipe.update.positive_coef:
        is_positive = ((graded.rewards > 0) & graded.valid).flatten()[rows]  # (b,)
        pos_weights = token_mean(rollout.mask[rows], keep=is_positive)
    for idx, part_weights, part_pos in zip(rows.split(size), weights.split(size), pos_weights.split(size), strict=True):
        batch = rollout.select(idx)
        forward_args = model, batch.input_ids, batch.attention_mask, batch.mask.shape[1], config.temperature
        if recipe.update.entropy_coef:
            logps, entropies = completion_logps(*forward_args, return_entropy=True, wanted=batch.mask)
        else:
            logps, entropies = completion_logps(*forward_args, wanted=batch.mask), None
        inputs = logps, batch.old_logps, advantages[idx], batch.mask
        objective = partial(corrected, recipe.update, batch)
        grads = objective_grads(objective, *inputs)
        seen.append(TokenGradientRecord(idx, zero_where_masked(logps.detach(), batch.mask), grads, part_weights))
        loss = policy_loss(
            *inputs,
            objective=objective,
            weights=part_weights,
            ref_logps=None if graded.ref_logps is None else graded.ref_logps[idx],
            beta=kl.beta if kl.in_loss else 0.0,
            estimator=kl.estimator,
            entropies=entropies,
            entropy_coef=recipe.update.entropy_coef,
        )
        if recipe.update.positive_coef:
            likelihood = log_likelihood(logps, batch.mask, ptx_coef=recipe.update.positive_coef)
            loss = loss - aggregate(likelihood, part_pos, batch.mask)
        yield loss


def corrected(
    update: PolicyUpdate, rollout: Rollout, logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor
) -> Tensor:
    """Return the recipe's objective of each token (or sequence), times its corrections for how it was sampled."""
    objective = update.objective(logps, old_logps, advantages, mask)
    for correction in update.corrections:
        objective = objective * correction(logps.detach(), rollout, advantages).to(objective)
    return objective


def objective_grads(objective: Callable[..., Tensor], logps: Tensor, *rest: Tensor) -> Tensor:
    """Return the derivative ``(b, T)`` of the summed objective with respect to each log-probability."""
    leaf, mask = logps.detach().requires_grad_(), rest[-1]
    terms = objective(leaf, *rest)
    term_mask = mask if terms.shape == mask.shape else mask.any(-1, keepdim=True)  # one column per sequence
    return torch.autograd.grad(zero_where_masked(terms, term_mask).sum(), leaf)[0]


@torch.no_grad()
def policy_token_entropies(model: nn.Module, rollout: Rollout, config: OnlineConfig) -> Tensor:
    """Return the policy's entropy at each token, ``(B, T)`` nats, computed in micro-batches."""
    size, width = config.micro_batch_size or len(rollout), rollout.mask.shape[1]
    parts = [rollout.select(rows) for rows in torch.arange(len(rollout)).split(size)]
    return torch.cat(
        [
            completion_logps(
                model, r.input_ids, r.attention_mask, width, config.temperature, return_entropy=True, wanted=r.mask
            )[1]
            for r in parts
        ]
    )


def value_losses(
    critic: nn.Module, graded: ScoredRollout, targets: Tensor, plan: Critic, config: OnlineConfig, rows: Tensor
) -> Iterator[Tensor]:
    """Yield the critic's loss on each micro-batch: the mean over the tokens of the completions that could be graded."""
    assert graded.values is not None
    weights = token_mean(graded.rollout.mask[rows], keep=graded.valid.flatten()[rows])
    size = config.micro_batch_size or len(rows)
    for idx, part_weights in zip(rows.split(size), weights.split(size), strict=True):
        batch = graded.rollout.select(idx)
        values = completion_values(critic, batch.input_ids, batch.attention_mask, batch.mask.shape[1])  # (b, T)
        targets_and_mask = graded.values[idx], targets[idx], batch.mask
        yield plan.vf_coef * value_loss(values, *targets_and_mask, error=plan.value_loss, weights=part_weights)


def ptx_losses(model: nn.Module, batch: TokenBatch, ptx_coef: float, config: TrainerConfig) -> Iterator[Tensor]:
    """Yield the pretraining loss of each micro-batch of texts, per marked token."""
    ptx_objective = partial(log_likelihood, ptx_coef=ptx_coef)
    return nll_losses(model, batch, token_mean(batch.mask), config.micro_batch_size, ptx_objective)


def policy_shift_metrics(
    seen: list[TokenGradientRecord], graded: ScoredRollout, advantages: Tensor
) -> dict[str, float]:
    """Return how far the policy is from the behaviour policy, and the fraction of tokens with a flat objective."""
    if not seen:
        return {}
    rows = torch.cat([record.rows for record in seen])
    logps, grads = (torch.cat([getattr(record, key) for record in seen]) for key in ("logps", "slopes"))
    old_logps, mask = graded.rollout.old_logps[rows], graded.rollout.mask[rows]
    clipped = (grads == 0) & (advantages[rows] != 0)
    return {
        "policy_log_ratio_max": float((logps - old_logps)[mask].abs().max()),
        "approx_kl": float(diagnostics.approx_kl(logps, old_logps, mask)),
        "clip_fraction": float(masked_mean(clipped.to(logps.dtype), mask)),
    }
