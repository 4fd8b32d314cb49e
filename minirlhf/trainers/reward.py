"""Reward-model training: the Bradley–Terry loss on pairs of a chosen and a rejected response."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from minirlhf.core.errors import UserError
from minirlhf.data.collate import batch_indices, collate
from minirlhf.data.types import Compared
from minirlhf.equations.reward_losses import bradley_terry_loss
from minirlhf.trainers.config import TrainerConfig, setting
from minirlhf.trainers.history import History
from minirlhf.trainers.loop import Loop, Origin, Watch


@dataclass(frozen=True)
class RewardConfig(TrainerConfig):
    """Settings of reward-model training."""

    center_rewards_coefficient: float = setting(
        0.0, "weight of the penalty (r_chosen + r_rejected)², which centres the rewards"
    )
    label_smoothing: float = setting(0.0, "probability with which a label is taken to be wrong, at most 0.5")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.label_smoothing <= 0.5:
            raise UserError(f"label_smoothing = {self.label_smoothing!r}; expected a probability of at most 0.5")
        if self.center_rewards_coefficient < 0:
            raise UserError(f"center_rewards_coefficient = {self.center_rewards_coefficient!r}; expected at least 0")


def train_reward(
    model: nn.Module,
    pairs: Sequence[Compared],
    config: RewardConfig,
    *,
    pad_token_id: int,
    out: Path | str | None = None,
    tokenizer: Any = None,
    resume: bool = False,
    origin: Origin | None = None,
    watch: Watch | None = None,
    name: str = "reward",
    quiet: bool = False,
) -> History:
    """Minimise the mean Bradley–Terry loss; ``model`` is called like a :class:`~minirlhf.models.heads.RewardModel`.

    Returns:
        The metrics: ``loss``, ``accuracy`` (share of the batch with r_chosen > r_rejected), ``margin`` (mean difference).
    """
    loop = Loop(
        name, model, config, out=out, tokenizer=tokenizer, resume=resume, origin=origin, watch=watch, quiet=quiet
    )
    for step in loop:
        picked = [pairs[i] for i in batch_indices(len(pairs), config.batch_size, step, config.seed)]
        differences: list[Tensor] = []
        losses = _losses(model, picked, config, pad_token_id, differences)
        metrics = loop.update(losses)
        difference = torch.cat(differences)
        loop.log(**metrics, accuracy=float((difference > 0).float().mean()), margin=float(difference.mean()))
    return loop.history


def _losses(
    model: nn.Module, pairs: Sequence[Compared], config: RewardConfig, pad_token_id: int, differences: list[Tensor]
) -> Iterator[Tensor]:
    size = config.micro_batch_size or len(pairs)
    known = all(p.margin is not None for p in pairs)  # of the whole batch, however it is split
    for start in range(0, len(pairs), size):
        part = pairs[start : start + size]
        chosen, rejected = pair_rewards(model, part, pad_token_id)  # (b,), (b,)
        margin = None
        if known:
            margin = torch.tensor([p.margin for p in part], dtype=chosen.dtype, device=chosen.device)
        differences.append((chosen - rejected).detach())
        loss = bradley_terry_loss(chosen, rejected, margin=margin, label_smoothing=config.label_smoothing)  # (b,)
        if config.center_rewards_coefficient:
            loss = loss + config.center_rewards_coefficient * (chosen + rejected) ** 2
        yield loss.sum() / len(pairs)


def pair_rewards(model: nn.Module, pairs: Sequence[Compared], pad_token_id: int) -> tuple[Tensor, Tensor]:
    """Rewards of the chosen and of the rejected side, ``(B,)`` each, from one forward pass over ``2B`` rows."""
    both = [p.chosen for p in pairs] + [p.rejected for p in pairs]
    batch = collate(both, pad_token_id).to(next(model.parameters()).device)
    one, other = batch.input_ids.split(len(pairs))
    both_real = (batch.attention_mask[: len(pairs)] * batch.attention_mask[len(pairs) :]).bool()
    alike = ((one == other) & both_real).cummin(1).values.sum(1)  # (B,), tokens with which both sides begin
    rewards = model(batch.input_ids, batch.attention_mask, alike.repeat(2))  # (2B,)
    return rewards[: len(pairs)], rewards[len(pairs) :]


@torch.no_grad()
def pair_accuracy(model: nn.Module, pairs: Sequence[Compared], *, pad_token_id: int, batch_size: int = 64) -> float:
    """Share of held-out pairs in which the chosen side earns more; a tie counts one half."""
    right = 0.0
    for start in range(0, len(pairs), batch_size):
        chosen, rejected = pair_rewards(model, pairs[start : start + batch_size], pad_token_id)
        right += float((chosen > rejected).sum()) + 0.5 * float((chosen == rejected).sum())
    return right / len(pairs)
