"""Pretraining and supervised fine-tuning: imitate the tokens that the loss mask marks.

The two differ in their data only: pretraining marks every token, fine-tuning the assistant's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from minirlhf.data.collate import batch_indices, collate
from minirlhf.data.types import TokenBatch, Tokens
from minirlhf.equations.aggregation import aggregate, token_mean
from minirlhf.models.forward import completion_logps
from minirlhf.trainers.config import TrainerConfig
from minirlhf.trainers.history import History
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


def nll_losses(model: nn.Module, batch: TokenBatch, weights: Tensor, micro_batch_size: int | None) -> Iterator[Tensor]:
    """The loss of each micro-batch; they add up to the weighted negative log-likelihood of the batch."""
    for rows in torch.arange(len(batch)).split(micro_batch_size or len(batch)):
        part = batch.select(rows)
        marked = part.loss_mask[:, 1:]
        logps = completion_logps(model, part.input_ids, part.attention_mask, marked.shape[1], wanted=marked)  # (b, S-1)
        yield -aggregate(logps, weights[rows], marked)


def prediction_weights(loss_mask: Tensor) -> Tensor:
    """Weights of the mean over the marked tokens, ``(B, S) -> (B, S−1)``: the first token is never predicted."""
    return token_mean(loss_mask[:, 1:])


@torch.no_grad()
def mean_nll(model: nn.Module, examples: Sequence[Tokens], *, pad_token_id: int, batch_size: int = 64) -> float:
    """Mean negative log-likelihood, in nats per marked token, of held-out examples. Its exponential is the perplexity."""
    total, count = 0.0, 0
    for start in range(0, len(examples), batch_size):
        batch = collate(examples[start : start + batch_size], pad_token_id).to(next(model.parameters()).device)
        marked = batch.loss_mask[:, 1:]
        logps = completion_logps(model, batch.input_ids, batch.attention_mask, marked.shape[1], wanted=marked)
        total -= float(logps[marked].sum())
        count += int(marked.sum())
    return total / count
