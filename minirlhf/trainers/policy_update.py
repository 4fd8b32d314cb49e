"""All optimizer steps on one graded rollout: passes, minibatches, micro-batches. What is summed is the recipe's."""

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
from minirlhf.equations.aggregation import aggregate, high_entropy_mask, token_mean
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
    """What one micro-batch saw of the policy, all without gradient.

    Attributes:
        rows: ``(b,)``, which rows of the rollout.
        logps: ``(b, T)``, of the policy before the step.
        slopes: ``(b, T)``, derivative of the recipe's objective by each log-probability.
        weights: ``(b, T)``, of the aggregation; ``weights · slopes`` is a token's push on its own log-probability.
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
    """All optimizer steps on one rollout.

    Args:
        pretraining: texts that ``ptx_coef`` keeps likely, part of every step.

    Returns:
        The mean of the steps' metrics, and what the last pass over the rollout saw.
    """
    rollout, update, critic = graded.rollout, recipe.update, recipe.credit.critic
    advantages = recipe.advantages(graded)  # (B, T)
    targets = recipe.credit.targets(graded, update.kl)  # (B, T)
    teaches_policy = critic is None or loop.step >= critic.critic_warmup
    collected: list[dict[str, float]] = []
    skipped = 0
    for iteration in range(update.num_iterations):
        gradients: list[TokenGradientRecord] = []
        order = torch.arange(len(rollout))
        if update.num_minibatches > 1:
            order = torch.randperm(len(rollout), generator=generator("minibatch", config.seed, loop.step, iteration))
        for rows in order.tensor_split(min(update.num_minibatches, len(order))):
            parts: list[Iterator[Tensor]] = []
            seen: list[TokenGradientRecord] = []
            if teaches_policy:
                weights = update.completion_weights(rollout.select(rows))  # (b, T), before any micro-batch split
                if update.top_entropy_quantile < 1:
                    entropies = policy_token_entropies(loop.model, rollout.select(rows), config)
                    weights = high_entropy_mask(
                        weights, entropies, rollout.mask[rows], top_entropy_quantile=update.top_entropy_quantile
                    )
                if bool(weights.any()):
                    parts.append(policy_losses(loop.model, graded, advantages, recipe, config, rows, weights, seen))
                if pretraining is not None:
                    parts.append(ptx_losses(loop.model, pretraining, update.ptx_coef, config))
            if critic is not None and targets is not None:
                parts.append(value_losses(loop.parts["critic"], graded, targets, critic, config, rows))
            if not parts:  # every completion is filtered out: AdamW would go on with its momentum alone
                skipped += 1
                continue
            metrics = loop.update(itertools.chain(*parts), only=None if teaches_policy else "critic")
            if not teaches_policy:
                metrics["critic_loss"] = metrics.pop("loss")
            collected.append({**metrics, **policy_shift_metrics(seen, graded, advantages)})
            gradients += seen
    names = dict.fromkeys(name for metrics in collected for name in metrics)  # each over the updates that have it
    totals = {name: statistics.fmean(metrics[name] for metrics in collected if name in metrics) for name in names}
    if update.keep is not None:
        totals["skipped_updates"] = skipped
    if targets is not None and graded.values is not None and bool(graded.valid.any()):
        rows = graded.valid.flatten()
        known = graded.values[rows], targets[rows], rollout.mask[rows]
        totals["explained_variance"] = float(diagnostics.explained_variance(*known))
        totals["value"] = float(masked_mean(graded.values, rollout.mask))
    return totals, gradients


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
    """The loss of each micro-batch of ``rows``; they add up to the loss of the optimizer batch."""
    rollout, kl = graded.rollout, recipe.update.kl or NO_KL
    size = config.micro_batch_size or len(rows)
    liked = weights  # (b, T), replaced where a recipe also imitates what was right
    if recipe.update.positive_coef:
        positive = ((graded.rewards > 0) & graded.valid).flatten()[rows]  # (b,)
        liked = token_mean(rollout.mask[rows], keep=positive)
    for part, part_weights, part_liked in zip(rows.split(size), weights.split(size), liked.split(size), strict=True):
        r = rollout.select(part)
        read = model, r.input_ids, r.attention_mask, r.mask.shape[1], config.temperature
        if recipe.update.entropy_coef:
            logps, entropies = completion_logps(*read, return_entropy=True, wanted=r.mask)
        else:
            logps, entropies = completion_logps(*read, wanted=r.mask), None
        inputs = logps, r.old_logps, advantages[part], r.mask
        objective = partial(corrected, recipe.update, r)
        grads = objective_grads(objective, *inputs)
        seen.append(TokenGradientRecord(part, zero_where_masked(logps.detach(), r.mask), grads, part_weights))
        loss = policy_loss(
            *inputs,
            objective=objective,
            weights=part_weights,
            ref_logps=None if graded.ref_logps is None else graded.ref_logps[part],
            beta=kl.beta if kl.in_loss else 0.0,
            estimator=kl.estimator,
            entropies=entropies,
            entropy_coef=recipe.update.entropy_coef,
        )
        if recipe.update.positive_coef:
            likelihood = log_likelihood(logps, r.mask, ptx_coef=recipe.update.positive_coef)
            loss = loss - aggregate(likelihood, part_liked, r.mask)
        yield loss


def corrected(
    update: PolicyUpdate, rollout: Rollout, logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor
) -> Tensor:
    """The recipe's objective of each token (or sequence), times its corrections for how the rollout was sampled."""
    objective = update.objective(logps, old_logps, advantages, mask)
    for correction in update.corrections:
        objective = objective * correction(logps.detach(), rollout, advantages).to(objective)
    return objective


def objective_grads(objective: Callable[..., Tensor], logps: Tensor, *rest: Tensor) -> Tensor:
    """``(b, T)``: the derivative of the objective's sum by each log-probability."""
    leaf, mask = logps.detach().requires_grad_(), rest[-1]
    values = objective(leaf, *rest)
    inside = mask if values.shape == mask.shape else mask.any(-1, keepdim=True)  # one column per sequence
    return torch.autograd.grad(zero_where_masked(values, inside).sum(), leaf)[0]


@torch.no_grad()
def policy_token_entropies(model: nn.Module, rollout: Rollout, config: OnlineConfig) -> Tensor:
    """The policy's entropy at each token, ``(B, T)`` nats, in micro-batches."""
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
    """The critic's loss on each micro-batch: the mean over the tokens of the completions that could be graded."""
    assert graded.values is not None
    weights = token_mean(graded.rollout.mask[rows], keep=graded.valid.flatten()[rows])
    size = config.micro_batch_size or len(rows)
    for part, part_weights in zip(rows.split(size), weights.split(size), strict=True):
        r = graded.rollout.select(part)
        values = completion_values(critic, r.input_ids, r.attention_mask, r.mask.shape[1])  # (b, T)
        known = graded.values[part], targets[part], r.mask
        yield plan.vf_coef * value_loss(values, *known, error=plan.value_loss, weights=part_weights)


def ptx_losses(model: nn.Module, batch: TokenBatch, ptx_coef: float, config: TrainerConfig) -> Iterator[Tensor]:
    """The loss of each micro-batch of texts to be kept likely, per marked token."""
    kept_likely = partial(log_likelihood, ptx_coef=ptx_coef)
    return nll_losses(model, batch, token_mean(batch.mask), config.micro_batch_size, kept_likely)


def policy_shift_metrics(
    seen: list[TokenGradientRecord], graded: ScoredRollout, advantages: Tensor
) -> dict[str, float]:
    """How far the policy of this step was from the one that sampled, and how much of its objective was flat."""
    if not seen:
        return {}
    rows = torch.cat([part.rows for part in seen])
    logps, slopes = (torch.cat([getattr(part, key) for part in seen]) for key in ("logps", "slopes"))
    old_logps, mask = graded.rollout.old_logps[rows], graded.rollout.mask[rows]
    flat = (slopes == 0) & (advantages[rows] != 0)
    return {
        "policy_log_ratio_max": float((logps - old_logps)[mask].abs().max()),
        "approx_kl": float(diagnostics.approx_kl(logps, old_logps, mask)),
        "clip_fraction": float(masked_mean(flat.to(logps.dtype), mask)),
    }
