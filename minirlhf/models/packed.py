"""Forward passes of packed rows: a block-diagonal causal mask, and positions that restart with every sequence."""

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

#: The longest default row: the mask of a row grows with the square of its length, and the contexts of some models are
#: huge.
LONGEST = 4096
#: Tokens of the sequence with which :func:`require_packable` tests a model.
TRIED = 8


def packed_logits(model: nn.Module, input_ids: Tensor, documents: Tensor, *, width: int) -> Tensor:
    """Return the logits at the last ``width`` positions of packed rows; a token attends to its own sequence only.

    Args:
        model: a causal LM that passes :func:`require_packable`.
        input_ids: ``(B, S)``.
        documents: ``(B, S)``, the index of the sequence that each token belongs to.
        width: ``1 .. S``.

    Returns:
        ``(B, width, V)``.
    """
    mask = packed_mask(documents)[:, None]  # (B, 1, S, S)
    dtype = next(model.parameters()).dtype
    bias = torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, torch.finfo(dtype).min)
    kwargs = supported(model, position_ids=packed_positions(documents), logits_to_keep=width, use_cache=False)
    logits: Tensor = model(input_ids=input_ids, attention_mask=bias, **kwargs).logits
    return logits[:, -width:]


def packed_logps(model: nn.Module, batch: PackedBatch) -> Tensor:
    """Return the log-probabilities ``(B, S − 1)`` of the tokens in the batch's mask; 0 elsewhere.

    They equal the log-probabilities of each sequence by itself. Where the engine skips padding for this model
    (:mod:`minirlhf.engine.reading`), the sequences are unpacked, one per row, which costs less than a block mask.
    Otherwise the packed rows are processed with the mask.
    """
    if reading.packs(model, batch.input_ids):
        unpacked = batch.unpack()
        logps = completion_logps(
            model, unpacked.input_ids, unpacked.attention_mask, unpacked.mask.shape[1], wanted=unpacked.mask
        )[unpacked.mask]  # fmt: skip
    else:
        logits = packed_logits(model, batch.input_ids, batch.documents, width=batch.input_ids.shape[1])
        logps = next_token_logps(logits[:, :-1][batch.mask], batch.input_ids[:, 1:][batch.mask])
    return logps.new_zeros(batch.mask.shape).masked_scatter(batch.mask, logps)


def padding_is_read(model: nn.Module, batch_size: int, length: int) -> bool:
    """Return whether the model would process the padding of an unpacked batch of this size. If not, packing saves no
    time."""
    return not reading.packs(model, next(model.parameters()).new_empty(batch_size, length))


def row_length(model: nn.Module, max_length: int | None) -> int:
    """Return the length of a packed row: ``max_length``, or else the model's context, at most :data:`LONGEST`.

    Raises:
        UserError: ``max_length`` exceeds the model's context.
    """
    context = context_length(model)
    if max_length is not None and context is not None and max_length > context:
        raise UserError(
            f"max_length = {max_length}; expected at most {context}, the length of the model's context",
            argument="max_length",
            value=max_length,
            expected=context,
        )
    return max_length or min(context or LONGEST, LONGEST)


def require_packable(model: nn.Module, length: int) -> None:
    """Raise an error unless packed rows of this length give the model's own logits.

    Two rows are tested: one with a sequence after another, and one with a single sequence that fills the row.

    Raises:
        UserError: the logits differ, as for a model with a recurrent state, or with a window that is shorter than the
            row.
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
        expected = torch.cat([model(input_ids=part, **options).logits[:, -width:] for part in parts]).float()
        try:
            actual = packed_logits(model, ids, documents, width=width).float()
        except (AttributeError, TypeError, ValueError, RuntimeError, IndexError, KeyError, NotImplementedError):
            actual = torch.full_like(expected, torch.nan)  # the model does not accept such a mask
    if not reading.outputs_match(model, actual.log_softmax(-1), expected.log_softmax(-1)):
        window = getattr(model.config.get_text_config(), "sliding_window", None)  # type: ignore[union-attr, operator]
        hint = f" (its layers see {window} tokens; --max-length {window} may do)" if window else ""
        raise UserError(
            f"{type(model).__name__} cannot be packed in rows of {length} tokens: in such a row the logits of a sequence differ "
            f"from its logits alone{hint}; leave out --packing",
            argument="--packing",
            value=length,
            expected=window,
        )
