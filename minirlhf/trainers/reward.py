"""Reward-model training: one score per completion, fitted to comparisons, rankings or ratings."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from minirlhf.core.calling import evaluating
from minirlhf.core.errors import ArgumentError, UserError, unknown
from minirlhf.core.options import option
from minirlhf.data.collate import batch_indices, collate
from minirlhf.data.types import PreferenceExample, pair, require_different_completions
from minirlhf.equations.reward_losses import pair_weights, plackett_luce_logp, regression_loss
from minirlhf.feedback import custom_rewards
from minirlhf.feedback.custom_losses import call_loss, is_custom
from minirlhf.losses import mean_loss, reward_loss
from minirlhf.trainers.config import DISABLE_DROPOUT, TrainerConfig
from minirlhf.trainers.history import History
from minirlhf.trainers.likelihood import negative_log_likelihood
from minirlhf.trainers.loop import RunProvenance, TrainerCallback, TrainingLoop

#: In :data:`LOSSES`, the function that ``loss`` names as FILE.py:NAME.
CUSTOM = "FILE.py:NAME"


@dataclass(frozen=True)
class RewardConfig(TrainerConfig):
    """Settings of reward-model training."""

    loss: str | None = option(
        None,
        "loss: bradley_terry (pairs), plackett_luce (rankings), regression (ratings), or your own function of pairs: "
        "FILE.py:NAME; None: bradley_terry",
    )
    margin_coefficient: float = option(
        1.0, "factor on the margins in the data, by which chosen rewards must lead; 0: no margins"
    )
    label_smoothing: float = option(0.0, "assumed probability that a label is wrong, in [0, 0.5]")
    balance_prompts: bool = option(
        False, "equal weight for all prompts: a pair from a ranking of K completions has weight 1/C(K, 2)"
    )
    center_rewards_coefficient: float = option(
        0.0, "coefficient of the penalty (r_chosen + r_rejected)², which centres the rewards at 0"
    )
    nll_coefficient: float = option(
        0.0, "weight of the negative log-likelihood of the chosen completions, mean per token"
    )
    disable_dropout: bool = option(True, DISABLE_DROPOUT)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fitted not in LOSSES:
            raise unknown("loss", self.fitted, LOSSES)
        if not 0 <= self.label_smoothing <= 0.5:
            raise UserError(
                f"label_smoothing = {self.label_smoothing!r}; expected a probability of at most 0.5",
                argument="label_smoothing",
                value=self.label_smoothing,
                expected=(0, 0.5),
            )
        for name in ("margin_coefficient", "center_rewards_coefficient", "nll_coefficient"):
            if not getattr(self, name) >= 0:
                raise UserError(
                    f"{name} = {getattr(self, name)!r}; expected at least 0",
                    argument=name,
                    value=getattr(self, name),
                    expected=0,
                )
        pair_options = ("label_smoothing", "balance_prompts", "center_rewards_coefficient")
        for name in pair_options:
            if getattr(self, name) and self.fitted != "bradley_terry":
                raise UserError(
                    f"{name} is for pairs; expected --loss bradley_terry, not {self.fitted}",
                    argument=name,
                    value=self.fitted,
                    expected="bradley_terry",
                )

    def unused_options(self) -> dict[str, str]:
        """Return the fields without effect under these settings, and why."""
        reasons = {"margin_coefficient": f"the {self.fitted} loss does not use margins"}
        return {**super().unused_options(), **(reasons if self.fitted != "bradley_terry" else {})}

    @property
    def fitted(self) -> str:
        """The name of the loss, a key of :data:`LOSSES`."""
        return CUSTOM if self.loss and is_custom(self.loss) else self.loss or "bradley_terry"


def _on_pairs(rewards: Tensor, part: Sequence[PreferenceExample], config: RewardConfig, **kwargs: Any) -> Tensor:
    """Return the Bradley–Terry loss, with margins if the data have them."""
    chosen, rejected = rewards.view(-1, 2).unbind(-1)
    margin = None
    if config.margin_coefficient and part[0].margin is not None:  # either all pairs of a run have a margin or none has
        margin = config.margin_coefficient * torch.tensor([p.margin for p in part]).to(rewards)
    return reward_loss(
        chosen,
        rejected,
        margin=margin,
        label_smoothing=config.label_smoothing,
        center_rewards_coefficient=config.center_rewards_coefficient,
        **kwargs,
    )


def _on_rankings(rewards: Tensor, part: Sequence[PreferenceExample], config: RewardConfig, **kwargs: Any) -> Tensor:
    """Return the Plackett–Luce loss; rankings may differ in length."""
    return mean_loss(
        torch.stack([-plackett_luce_logp(r) for r in rewards.split([len(p.completions) for p in part])]), **kwargs
    )


def _on_ratings(rewards: Tensor, part: Sequence[PreferenceExample], config: RewardConfig, **kwargs: Any) -> Tensor:
    """Return the squared error, averaged over the completions of a prompt."""
    scores = torch.tensor([score for p in part for score in p.scores or ()]).to(rewards)
    errors = regression_loss(rewards, scores).split([len(p.completions) for p in part])
    return mean_loss(torch.stack([error.mean() for error in errors]), **kwargs)


def _on_pairs_by_custom_loss(
    rewards: Tensor, part: Sequence[PreferenceExample], config: RewardConfig, **kwargs: Any
) -> Tensor:
    """Return the mean of the function ``(chosen, rejected) -> (b,)`` that ``config.loss`` names."""
    named = config.loss or ""
    chosen, rejected = rewards.view(-1, 2).unbind(-1)
    losses = call_loss(named, _custom_loss(named), chosen, rejected, shape=chosen.shape, grad=chosen.requires_grad)
    return mean_loss(losses, **kwargs)


@functools.cache
def _custom_loss(named: str) -> Callable[..., Any]:
    return custom_rewards.load_function(named, "loss")[1]


#: ``(rewards (N,) of all completions in order, examples, settings, weights=(B,), batch_size=...) -> a scalar``.
LOSSES: dict[str, Callable[..., Tensor]] = {
    "bradley_terry": _on_pairs,
    "plackett_luce": _on_rankings,
    "regression": _on_ratings,
    CUSTOM: _on_pairs_by_custom_loss,
}


def train_reward(
    model: nn.Module,
    examples: Sequence[PreferenceExample],
    config: RewardConfig,
    *,
    pad_token_id: int,
    language_model: nn.Module | None = None,
    out: Path | str | None = None,
    tokenizer: Any = None,
    resume: bool = False,
    origin: RunProvenance | None = None,
    watch: TrainerCallback | None = None,
    name: str = "reward",
    quiet: bool = False,
) -> History:
    """Minimise the mean loss; ``model`` is called like a :class:`~minirlhf.models.heads.RewardModel`.

    Args:
        examples: pairs for ``bradley_terry``, else completions from best to worst, with scores for ``regression``.
        language_model: for ``nll_coefficient``: a causal LM on the reward model's own backbone (``from_causal_lm(…,
            share=True)``). Its output layer is not trained.

    Returns:
        The metrics: ``loss``; ``accuracy`` (fraction of the batch in which the best completion has a higher reward than
        the worst); ``margin`` (mean difference of the two); with ``nll_coefficient`` also ``nll`` (nats per token of
        the chosen completions).

    Raises:
        UserError: only some pairs have a margin, an example has no scores for ``regression``, or two completions of an
            example are equal (except for ``regression``).
        ValueError: only one of ``nll_coefficient`` and ``language_model`` is given; an example is not a pair, for
            ``bradley_terry``.
    """
    if (language_model is not None) != bool(config.nll_coefficient):
        raise ArgumentError(
            "language_model and nll_coefficient belong together; expected both or neither",
            argument="language_model",
            problem="mismatch",
        )
    _require(examples, config)
    if config.fitted == CUSTOM:
        _custom_loss(config.loss or "")  # raises if there is no such function
    if config.fitted != "regression":
        require_different_completions(examples)
    config = config.for_examples(len(examples))
    loop = TrainingLoop(
        name, model, config, dropout=not config.disable_dropout, out=out, tokenizer=tokenizer, resume=resume,
        origin=origin, watch=watch, quiet=quiet,
    )  # fmt: skip
    weights = _weights(examples, config)
    for step in loop:
        indices = batch_indices(len(examples), config.batch_size, step, config.seed)
        batch = [examples[i] for i in indices]
        differences: list[Tensor] = []
        nll: list[Tensor] = []
        metrics = loop.update(
            _losses(model, language_model, batch, weights[indices], config, pad_token_id, differences, nll)
        )
        difference = torch.cat(differences)
        extra = {"nll": float(torch.stack(nll).sum())} if nll else {}
        if len(difference):  # a batch of single completions with ratings has no pairs
            metrics |= {"accuracy": float((difference > 0).float().mean()), "margin": float(difference.mean())}
        loop.log(**metrics, **extra)
    return loop.history


def _require(examples: Sequence[PreferenceExample], config: RewardConfig) -> None:
    """Check every example before the first step, because one batch does not show what the other examples have."""
    if config.fitted == "regression" and any(e.scores is None for e in examples):
        raise UserError(
            "an example has no scores; regression needs one per completion", argument="scores", problem="missing"
        )
    if config.fitted not in ("bradley_terry", CUSTOM):
        return
    if any(len(e.completions) != 2 for e in examples):
        raise ArgumentError(
            "an example does not have two completions; expected pairs, see pairs_of", argument="examples", expected=2
        )
    num_missing = sum(e.margin is None for e in examples)
    if config.margin_coefficient and 0 < num_missing < len(examples):
        raise UserError(
            f"{num_missing} of {len(examples)} pairs have no margin; expected a margin for every pair, or "
            "margin_coefficient = 0, which ignores all margins",
            argument="margin",
            value=num_missing,
            problem="missing",
        )


def _weights(examples: Sequence[PreferenceExample], config: RewardConfig) -> Tensor:
    """Return weights ``(N,)`` with mean 1 over the data, so that a prompt's weight does not depend on its batch."""
    if not config.balance_prompts:
        return torch.ones(len(examples))
    weights = pair_weights(torch.tensor([e.num_ranked for e in examples]))
    return weights / weights.mean()


def _losses(
    model: nn.Module,
    language_model: nn.Module | None,
    batch: Sequence[PreferenceExample],
    weights: Tensor,
    config: RewardConfig,
    pad_token_id: int,
    differences: list[Tensor],
    nll: list[Tensor],
) -> Iterator[Tensor]:
    """Yield the loss of each micro-batch; their sum does not depend on how the batch is split."""
    size = config.micro_batch_size or len(batch)
    num_marked = sum(sum(e.chosen.loss_mask[1:]) for e in batch)
    for start in range(0, len(batch), size):
        part = batch[start : start + size]
        rewards = completion_rewards(model, part, pad_token_id)  # (N,)
        ends = torch.tensor([len(p.completions) for p in part]).cumsum(0)
        several = torch.tensor([len(p.completions) > 1 for p in part])
        best, worst = rewards[ends - torch.tensor([len(p.completions) for p in part])], rewards[ends - 1]
        differences.append((best - worst).detach()[several])
        kwargs = {"weights": weights[start : start + size].to(rewards), "batch_size": len(batch)}
        loss = LOSSES[config.fitted](rewards, part, config, **kwargs)
        if language_model is not None:
            nll_term = negative_log_likelihood(language_model, [p.chosen for p in part], pad_token_id) / num_marked
            nll.append(nll_term.detach())
            loss = loss + config.nll_coefficient * nll_term
        yield loss


def completion_rewards(model: nn.Module, examples: Sequence[PreferenceExample], pad_token_id: int) -> Tensor:
    """Return the rewards ``(N,)`` of all completions, in the order of the examples, from one forward pass."""
    if all(len(e.completions) == 2 for e in examples):
        return torch.stack(pair_rewards(model, examples, pad_token_id), -1).flatten()
    batch = collate([answer for e in examples for answer in e.completions], pad_token_id)
    batch = batch.to(next(model.parameters()).device)
    prefix = (batch.loss_mask.cumsum(1) == 0).sum(1)  # the prompt is the same for all completions of an example
    return model(batch.input_ids, batch.attention_mask, prefix)


def pair_rewards(model: nn.Module, pairs: Sequence[PreferenceExample], pad_token_id: int) -> tuple[Tensor, Tensor]:
    """Return the chosen and the rejected rewards, ``(B,)`` each, from one forward pass over ``2B`` rows."""
    rows = [p.chosen for p in pairs] + [p.rejected for p in pairs]
    batch = collate(rows, pad_token_id).to(next(model.parameters()).device)
    chosen_ids, rejected_ids = batch.input_ids.split(len(pairs))
    both_attended = (batch.attention_mask[: len(pairs)] * batch.attention_mask[len(pairs) :]).bool()
    prefix = ((chosen_ids == rejected_ids) & both_attended).cummin(1).values.sum(1)  # (B,), length of the common prefix
    rewards = model(batch.input_ids, batch.attention_mask, prefix.repeat(2))  # (2B,)
    return rewards[: len(pairs)], rewards[len(pairs) :]


def pairs_of(examples: Sequence[PreferenceExample]) -> list[PreferenceExample]:
    """Return every pair of completions of every example, the better one first; pairs with equal scores are left out."""
    pairs = []
    for e in examples:
        for i, j in combinations(range(len(e.completions)), 2):
            difference = None if e.scores is None else e.scores[i] - e.scores[j]
            if difference != 0:
                margin = difference if len(e.completions) > 2 or e.margin is None else e.margin
                pairs.append(pair(e.completions[i], e.completions[j], margin, max(e.num_ranked, len(e.completions))))
    return pairs


@torch.no_grad()
def rating_predictions(
    model: nn.Module, examples: Sequence[PreferenceExample], *, pad_token_id: int, batch_size: int = 64
) -> Tensor:
    """Return ``(N, 2)``: the reward and the score of every completion, in the order of the examples."""
    rows = [torch.empty(0, 2)]
    for start in range(0, len(examples), batch_size):
        part = examples[start : start + batch_size]
        with evaluating(model):
            rewards = completion_rewards(model, part, pad_token_id).float().cpu()
        rows.append(torch.stack([rewards, torch.tensor([score for e in part for score in e.scores or ()])], -1))
    return torch.cat(rows)


@torch.no_grad()
def pair_differences(
    model: nn.Module, pairs: Sequence[PreferenceExample], *, pad_token_id: int, batch_size: int = 64
) -> Tensor:
    """Return ``(N,)``: chosen minus rejected reward. Pairs of similar length share a batch."""
    order = sorted(range(len(pairs)), key=lambda i: len(pairs[i]))
    differences = torch.empty(len(pairs))
    for start in range(0, len(pairs), batch_size):
        rows = order[start : start + batch_size]
        with evaluating(model):
            chosen, rejected = pair_rewards(model, [pairs[i] for i in rows], pad_token_id)
        differences[torch.tensor(rows)] = (chosen - rejected).float().cpu()
    return differences


def pair_accuracy(
    model: nn.Module, pairs: Sequence[PreferenceExample], *, pad_token_id: int, batch_size: int = 64
) -> float:
    """Return the fraction of held-out pairs in which the chosen reward is higher; a tie counts one half."""
    difference = pair_differences(model, pairs, pad_token_id=pad_token_id, batch_size=batch_size)
    return float(((difference.sign() + 1) / 2).mean())
