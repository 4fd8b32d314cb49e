"""Pretraining and supervised fine-tuning: maximum likelihood of the tokens that the loss mask marks.

The two differ only in their data: pretraining marks every token, fine-tuning marks the assistant's tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from minirlhf.core.errors import UserError, format_value
from minirlhf.core.options import option
from minirlhf.data.collate import batch_indices, collate
from minirlhf.data.packing import Packing, collate_packed
from minirlhf.data.types import Tokens
from minirlhf.equations.aggregation import token_mean
from minirlhf.models.packed import packed_logps, padding_is_read, require_packable, row_length
from minirlhf.trainers.config import DISABLE_DROPOUT, TrainerConfig
from minirlhf.trainers.history import History
from minirlhf.trainers.likelihood import dft_weights, marked_logps, nll_losses, uniform_weights
from minirlhf.trainers.loop import RunProvenance, TrainerCallback, TrainingLoop

#: Objective as a function of the log-probabilities ``(b, T)``, by loss name: log-likelihood, dynamic fine-tuning.
LOSSES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {"nll": uniform_weights, "dft": dft_weights}


@dataclass(frozen=True)
class SFTConfig(TrainerConfig):
    """Settings of pretraining and supervised fine-tuning."""

    packing: bool = option(
        False, "pack several examples into each row, without attention between them; batch_size then counts rows"
    )
    max_length: int | None = option(None, "row length for packing, in tokens; None: the context length, at most 4096")
    disable_dropout: bool = option(False, DISABLE_DROPOUT)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_length is not None and self.max_length < 2:
            message = f"max_length = {format_value(self.max_length)}; expected at least 2"
            raise UserError(message, argument="max_length", value=self.max_length, expected=2)

    def unused_options(self) -> dict[str, str]:
        """Return the fields without effect and why, including the row length if rows are not packed."""
        unpacked = {} if self.packing else {"max_length": "without --packing, each row holds one example"}
        return {**super().unused_options(), **unpacked}


def train_sft(
    model: nn.Module,
    examples: Sequence[Tokens],
    config: SFTConfig,
    *,
    pad_token_id: int,
    out: Path | str | None = None,
    tokenizer: Any = None,
    resume: bool = False,
    origin: RunProvenance | None = None,
    watch: TrainerCallback | None = None,
    name: str = "sft",
    quiet: bool = False,
    of: Callable[[Tensor, Tensor], Tensor] = uniform_weights,
) -> History:
    """Minimise the mean negative log-likelihood of the marked tokens of each batch; ``model`` is changed in place.

    Args:
        of: ``(logps, mask) -> (b, T)``, one of :data:`LOSSES`.

    Returns:
        The metrics: ``loss`` (nats per token), ``grad_norm``, ``learning_rate``, ``tokens`` (marked tokens per batch).

    Raises:
        UserError: ``config.packing`` with a model that cannot be packed, or an example longer than a row.
    """
    layout = (
        _packed(model, examples, config, quiet=quiet)
        if config.packing
        else BatchLayout(examples, collate, marked_logps)
    )
    config = config.for_examples(len(layout.rows))
    loop = TrainingLoop(
        name, model, config, dropout=not config.disable_dropout, out=out, tokenizer=tokenizer, resume=resume,
        origin=origin, watch=watch, quiet=quiet,
    )  # fmt: skip
    for step in loop:
        indices = batch_indices(len(layout.rows), config.batch_size, step, config.seed)
        batch = layout.collate([layout.rows[i] for i in indices], pad_token_id).to(next(model.parameters()).device)
        weights = prediction_weights(batch.loss_mask)  # over the whole batch, before it is split
        losses = nll_losses(model, batch, weights, config.micro_batch_size, of, layout.read)
        loop.log(**loop.update(losses), tokens=int(batch.loss_mask.sum()))
    return loop.history


@dataclass(frozen=True)
class BatchLayout:
    """How examples are arranged in the rows of a batch.

    Attributes:
        rows: one example per row, or several if packed.
        collate: ``(rows, pad_token_id) -> batch``.
        read: ``(model, batch) -> (B, T)``, the log-probabilities of its marked tokens.
    """

    rows: Sequence[Any]
    collate: Callable[..., Any]
    read: Callable[[nn.Module, Any], Tensor]


def _packed(model: nn.Module, examples: Sequence[Tokens], config: SFTConfig, *, quiet: bool) -> BatchLayout:
    """Pack several examples into each row, and print how many tokens that saves."""
    length = row_length(model, config.max_length)
    longest = max(map(len, examples))
    if longest > length:
        raise UserError(
            f"an example has {longest} tokens, a packed row has {length}: raise --max-length or leave out --packing",
            argument="--max-length",
            value=longest,
            expected=length,
        )
    require_packable(model, length)
    packing = Packing.of([len(e) for e in examples], length)
    if not quiet:
        saved = packing.saved(config.batch_size, config.seed)
        note = (
            ""
            if padding_is_read(model, config.batch_size, length)
            else ", but this model skips padding, so packing saves no time"
        )
        print(
            f"packed: {packing}; {saved:.1%} fewer tokens than with the padding of batches of {config.batch_size}{note}"
        )
    rows = [[examples[i] for i in row] for row in packing.rows]
    return BatchLayout(rows, partial(collate_packed, length=length), packed_logps)


def prediction_weights(loss_mask: Tensor) -> Tensor:
    """Return weights for the mean over marked tokens, ``(B, S) -> (B, S−1)``; the first token is never predicted."""
    return token_mean(loss_mask[:, 1:])
