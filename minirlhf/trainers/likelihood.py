"""The likelihood of marked tokens under a language model, for imitation, pretraining terms and evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from minirlhf.core.calling import evaluating
from minirlhf.data.collate import collate
from minirlhf.data.types import CompletionBatch, PackedBatch, TokenBatch, Tokens
from minirlhf.equations.tuning import dynamic_nll
from minirlhf.losses import sft_loss
from minirlhf.models.forward import completion_logps


def uniform_weights(logps: Tensor, mask: Tensor) -> Tensor:
    """Return the log-probabilities unchanged: maximum likelihood."""
    return logps


def dft_weights(logps: Tensor, mask: Tensor) -> Tensor:
    """Return each log-probability weighted by its own probability: dynamic fine-tuning."""
    return -dynamic_nll(logps)


def marked_logps(model: nn.Module, batch: TokenBatch | CompletionBatch) -> Tensor:
    """Return log-probabilities ``(B, T)``, valid for the tokens that the batch's ``mask`` marks."""
    return completion_logps(model, batch.input_ids, batch.attention_mask, batch.mask.shape[1], wanted=batch.mask)


def nll_losses(
    model: nn.Module,
    batch: TokenBatch | CompletionBatch | PackedBatch,
    weights: Tensor,
    micro_batch_size: int | None,
    of: Callable[[Tensor, Tensor], Tensor] = uniform_weights,
    read: Callable[[nn.Module, Any], Tensor] = marked_logps,
) -> Iterator[Tensor]:
    """Yield the loss of each micro-batch; the losses sum to the weighted negative log-likelihood of the batch.

    Args:
        weights: ``(B, T)``, from the batch's ``mask``, computed before the batch is split.
        of: ``(logps, mask) -> (b, T)``, the objective to maximise; by default the log-probabilities themselves.
        read: ``(model, batch) -> (b, T)``, returns the log-probabilities; ``batch`` must have the type that it takes.
    """
    for rows in torch.arange(len(batch)).split(micro_batch_size or len(batch)):
        part = batch.select(rows)
        yield sft_loss(of(read(model, part), part.mask), part.mask, weights=weights[rows])


def negative_log_likelihood(model: nn.Module, examples: Sequence[Tokens], pad_token_id: int) -> Tensor:
    """Return ``−Σ log π`` over the marked tokens, a scalar in nats."""
    batch = collate(examples, pad_token_id).to(next(model.parameters()).device)
    return -marked_logps(model, batch)[batch.mask].sum()


@torch.no_grad()
def mean_nll(model: nn.Module, examples: Sequence[Tokens], *, pad_token_id: int, batch_size: int = 64) -> float:
    """Return the mean negative log-likelihood in nats per marked token; its exponential is the perplexity."""
    parts = [examples[start : start + batch_size] for start in range(0, len(examples), batch_size)]
    with evaluating(model):
        total = sum(float(negative_log_likelihood(model, part, pad_token_id)) for part in parts)
    return total / sum(sum(e.loss_mask[1:]) for e in examples)
