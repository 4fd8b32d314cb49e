"""Rows of several sequences through a model: a mask in blocks, and positions that begin again with every sequence."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from minirlhf.core.calling import context_length, evaluating, supported
from minirlhf.core.errors import UserError
from minirlhf.core.logprobs import next_token_logps
from minirlhf.data.types import PackedBatch
from minirlhf.engine import reading
from minirlhf.equations.tuning import packed_mask, packed_positions
from minirlhf.models.forward import completion_logps

#: The longest row where nobody says how long: the mask of a row grows with its square, and the contexts of some models are huge.
LONGEST = 4096
#: Tokens of the sequence with which a model is tried.
TRIED = 8


def packed_logits(model: nn.Module, input_ids: Tensor, documents: Tensor, *, width: int) -> Tensor:
    """The logits at the last ``width`` places of packed rows; each sees the earlier tokens of its own sequence only.

    Args:
        model: a causal LM of which :func:`require_packable` says nothing.
        input_ids: ``(B, S)``.
        documents: ``(B, S)``, the number of the sequence that each token belongs to.
        width: ``1 .. S``.

    Returns:
        ``(B, width, V)``.
    """
    seen = packed_mask(documents)[:, None]  # (B, 1, S, S)
    dtype = next(model.parameters()).dtype
    hidden = torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill(~seen, torch.finfo(dtype).min)
    more = supported(model, position_ids=packed_positions(documents), logits_to_keep=width, use_cache=False)
    logits: Tensor = model(input_ids=input_ids, attention_mask=hidden, **more).logits
    return logits[:, -width:]


def packed_logps(model: nn.Module, batch: PackedBatch) -> Tensor:
    """Log-probabilities ``(B, S − 1)`` of the tokens that the batch marks, those that each sequence has by itself; 0 elsewhere.

    Where the model's padding is not read anyway (:mod:`minirlhf.engine.reading`), the sequences are read one by one, which costs less
    than a mask; else row by row.
    """
    if reading.packs(model, batch.input_ids):
        apart = batch.unpack()
        found = completion_logps(
            model, apart.input_ids, apart.attention_mask, apart.mask.shape[1], wanted=apart.mask
        )[apart.mask]  # fmt: skip
    else:
        logits = packed_logits(model, batch.input_ids, batch.documents, width=batch.input_ids.shape[1])
        found = next_token_logps(logits[:, :-1][batch.mask], batch.input_ids[:, 1:][batch.mask])
    return found.new_zeros(batch.mask.shape).masked_scatter(batch.mask, found)


def padding_is_read(model: nn.Module, batch_size: int, length: int) -> bool:
    """Would a batch of so many tokens, one sequence a row, be read with its padding? If not, packing saves no time."""
    return not reading.packs(model, next(model.parameters()).new_empty(batch_size, length))


def row_length(model: nn.Module, asked: int | None) -> int:
    """Tokens of a packed row: those that somebody asked for, or the model's context, :data:`LONGEST` at most.

    Raises:
        UserError: the model does not read so many.
    """
    context = context_length(model)
    if asked is not None and context is not None and asked > context:
        raise UserError(
            f"max_length = {asked}; the model reads {context} tokens, so a packed row holds at most as many",
            argument="max_length",
            value=asked,
            expected=context,
        )
    return asked or min(context or LONGEST, LONGEST)


def require_packable(model: nn.Module, length: int) -> None:
    """Nothing, if packed rows of this length give the model's own logits: a sequence behind another, and one that fills its row.

    Raises:
        UserError: they do not, as with a state that runs on from token to token, or a window that is shorter than the row.
    """
    width = min(TRIED, length // 2)
    weight = next(model.parameters())
    vocabulary = model.config.get_text_config().vocab_size  # type: ignore[union-attr, operator]
    ids = torch.randint(0, vocabulary, (2, length), generator=torch.Generator().manual_seed(0)).to(weight.device)
    documents = torch.zeros_like(ids)
    documents[0, -width:] = 1
    options = supported(model, logits_to_keep=width, use_cache=False)
    with torch.no_grad(), evaluating(model), torch.autocast(weight.device.type, enabled=False):
        parts = (ids[:1, -width:], ids[1:])
        own = torch.cat([model(input_ids=part, **options).logits[:, -width:] for part in parts]).float()
        try:
            found = packed_logits(model, ids, documents, width=width).float()
        except (AttributeError, TypeError, ValueError, RuntimeError, IndexError, KeyError, NotImplementedError):
            found = torch.full_like(own, torch.nan)  # it takes no such mask
    if not reading.outputs_match(model, found.log_softmax(-1), own.log_softmax(-1)):
        window = getattr(model.config.get_text_config(), "sliding_window", None)  # type: ignore[union-attr, operator]
        shorter = f" (its layers see {window} tokens; --max-length {window} may do)" if window else ""
        raise UserError(
            f"{type(model).__name__} cannot be packed in rows of {length} tokens: in such a row it does not give its sequences the "
            f"logits that they have alone{shorter}; leave out --packing",
            argument="--packing",
            value=length,
            expected=window,
        )
