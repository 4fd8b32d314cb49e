"""Pretraining and supervised fine-tuning: imitate the tokens that the loss mask marks.

The two differ in their data only: pretraining marks every token, fine-tuning the assistant's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from minirlhf.core.errors import UserError, shown
from minirlhf.data.collate import batch_indices, collate
from minirlhf.data.packing import Packing, collate_packed
from minirlhf.data.types import Tokens
from minirlhf.equations.aggregation import token_mean
from minirlhf.models.packed import packed_logps, padding_is_read, require_packable, row_length
from minirlhf.trainers.config import TrainerConfig, option
from minirlhf.trainers.history import History
from minirlhf.trainers.likelihood import dft_weights, marked_logps, nll_losses, uniform_weights
from minirlhf.trainers.loop import RunProvenance, TrainerCallback, TrainingLoop

#: What of the log-probabilities ``(b, T)`` is made likely, by the name of the loss: the negative log-likelihood, dynamic fine-tuning.
LOSSES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {"nll": uniform_weights, "dft": dft_weights}


@dataclass(frozen=True)
class SFTConfig(TrainerConfig):
    """Settings of pretraining and supervised fine-tuning."""

    packing: bool = option(
        False, "lay several examples in each row, without their seeing each other; batch_size then counts rows"
    )
    max_length: int | None = option(None, "for packing: tokens of a row; None: the model's context, 4096 at most")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_length is not None and self.max_length < 2:
            said = f"max_length = {shown(self.max_length)}; expected at least 2"
            raise UserError(said, argument="max_length", value=self.max_length, expected=2)

    def unused_options(self) -> dict[str, str]:
        """Also the length of rows that are not packed."""
        unpacked = {} if self.packing else {"max_length": "without --packing a row is as long as its example"}
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
        The metrics: ``loss`` (nats per token), ``grad_norm``, ``learning_rate``, ``tokens`` (marked ones in the batch).

    Raises:
        UserError: ``config.packing`` with a model that cannot be packed, or an example that is longer than a row.
    """
    layout = (
        _packed(model, examples, config, quiet=quiet)
        if config.packing
        else BatchLayout(examples, collate, marked_logps)
    )
    loop = TrainingLoop(
        name, model, config, out=out, tokenizer=tokenizer, resume=resume, origin=origin, watch=watch, quiet=quiet
    )
    for step in loop:
        indices = batch_indices(len(layout.rows), config.batch_size, step, config.seed)
        batch = layout.collate([layout.rows[i] for i in indices], pad_token_id).to(next(model.parameters()).device)
        weights = prediction_weights(batch.loss_mask)  # over the whole batch, before it is split
        losses = nll_losses(model, batch, weights, config.micro_batch_size, of, layout.read)
        loop.log(**loop.update(losses), tokens=int(batch.loss_mask.sum()))
    return loop.history


@dataclass(frozen=True)
class BatchLayout:
    """What a row of a batch is.

    Attributes:
        rows: an example each, or several.
        collate: ``(rows, pad_token_id) -> batch``.
        read: ``(model, batch) -> (B, T)``, the log-probabilities of its marked tokens.
    """

    rows: Sequence[Any]
    collate: Callable[..., Any]
    read: Callable[[nn.Module, Any], Tensor]


def _packed(model: nn.Module, examples: Sequence[Tokens], config: SFTConfig, *, quiet: bool) -> BatchLayout:
    """Rows of several examples, and a line that says what they save."""
    length = row_length(model, config.max_length)
    longest = max(map(len, examples))
    if longest > length:
        raise UserError(
            f"an example has {longest} tokens, a packed row {length}: raise --max-length, or leave out --packing",
            argument="--max-length",
            value=longest,
            expected=length,
        )
    require_packable(model, length)
    packing = Packing.of([len(e) for e in examples], length)
    if not quiet:
        saved = packing.saved(config.batch_size, config.seed)
        unread = "" if padding_is_read(model, config.batch_size, length) else ", which would not be read here either"
        print(
            f"packed: {packing}; {saved:.1%} fewer tokens than with the padding of batches of {config.batch_size}{unread}"
        )
    rows = [[examples[i] for i in row] for row in packing.rows]
    return BatchLayout(rows, partial(collate_packed, length=length), packed_logps)


def prediction_weights(loss_mask: Tensor) -> Tensor:
    """Weights of the mean over the marked tokens, ``(B, S) -> (B, S−1)``: the first token is never predicted."""
    return token_mean(loss_mask[:, 1:])
