"""Pretraining and supervised fine-tuning: imitate the tokens that the loss mask marks.

The two differ in their data only: pretraining marks every token, fine-tuning the assistant's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from minirlhf.data.collate import batch_indices, collate
from minirlhf.data.types import Tokens
from minirlhf.equations.aggregation import token_mean
from minirlhf.trainers.config import TrainerConfig
from minirlhf.trainers.history import History
from minirlhf.trainers.likelihood import nll_losses
from minirlhf.trainers.loop import Loop, Origin, Watch


@dataclass(frozen=True)
class SFTConfig(TrainerConfig):
    """Settings of pretraining and supervised fine-tuning."""


def train_sft(
    model: nn.Module,
    examples: Sequence[Tokens],
    config: SFTConfig,
    *,
    pad_token_id: int,
    out: Path | str | None = None,
    tokenizer: Any = None,
    resume: bool = False,
    origin: Origin | None = None,
    watch: Watch | None = None,
    name: str = "sft",
    quiet: bool = False,
) -> History:
    """Minimise the mean negative log-likelihood of the marked tokens of each batch; ``model`` is changed in place.

    Returns:
        The metrics: ``loss`` (nats per token), ``grad_norm``, ``learning_rate``, ``tokens`` (marked ones in the batch).
    """
    loop = Loop(
        name, model, config, out=out, tokenizer=tokenizer, resume=resume, origin=origin, watch=watch, quiet=quiet
    )
    for step in loop:
        indices = batch_indices(len(examples), config.batch_size, step, config.seed)
        batch = collate([examples[i] for i in indices], pad_token_id).to(next(model.parameters()).device)
        weights = prediction_weights(batch.loss_mask)  # over the whole batch, before it is split
        losses = nll_losses(model, batch, weights, config.micro_batch_size)
        loop.log(**loop.update(losses), tokens=int(batch.loss_mask.sum()))
    return loop.history


def prediction_weights(loss_mask: Tensor) -> Tensor:
    """Weights of the mean over the marked tokens, ``(B, S) -> (B, S−1)``: the first token is never predicted."""
    return token_mean(loss_mask[:, 1:])
