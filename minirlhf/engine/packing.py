"""Pack a batch into one long row that contains each needed token once.

Padding is not read. A prefix that several rows share (the prompt of a group, or of both sides of a preference) is read
once for all of them, so gradients flow back into it from each row. Tokens after the last needed one are not read.
Packing is exact: :func:`packs` compares it with a plain forward pass on every model before its first use.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from minirlhf.core.calling import position_ids, supported
from minirlhf.engine import attention
from minirlhf.engine.attention import AttentionOptions, scaled_dot_product
from minirlhf.engine.proof import Proof

#: Maximum number of length buckets of a batch for attention; more would only slow down the search.
MAX_CUTS = 16
#: Sharing prefixes makes attention slightly more expensive. It pays if it saves at least this fraction of the tokens.
WORTH_SHARING = 0.05


@dataclass(frozen=True)
class Segment:
    """Rows of the batch that are one call of attention, padded to the longest of them.

    Attributes:
        own: ``(b, n)``, indices of their tokens in the long row; at padding, the index of any token.
        inside: ``(b · n,)``, indices of the entries of ``own`` that are not padding; None if there is no padding.
        prompt: ``(b, w)``, indices in the long row of the prefixes that they share with other rows, or None.
        own_positions, key_positions: ``(b, n)`` and ``(b, w + n)``, positions in the row; padded keys have a position
            that no token reaches.
        slice: the tokens as a slice of the long row, valid if there is no padding.
    """

    own: Tensor
    inside: Tensor | None
    prompt: Tensor | None
    own_positions: Tensor
    key_positions: Tensor
    slice: slice


class Packed:
    """The tokens of a batch as one long row.

    Args:
        input_ids, attention_mask: ``(B, S)``, padded anywhere.
        prefix: ``(B,)``, number of tokens at the start of a row that may be shared with rows that start equally.
        needed: ``(B, S)`` bool, tokens whose hidden states are needed; None: all. Later tokens of a row are not read.

    Attributes:
        input_ids, position_ids: ``(N,)``.
        place: ``(B, S)``, index of each token in the long row; arbitrary at padding and for tokens that are not read.
        segments: the calls of attention.
    """

    def __init__(
        self, input_ids: Tensor, attention_mask: Tensor, *, prefix: Tensor | None = None, needed: Tensor | None = None
    ) -> None:
        is_token, position = attention_mask.bool(), position_ids(attention_mask)
        num_shared = torch.zeros_like(position[:, 0]) if prefix is None else prefix  # (B,)
        shared = is_token & (position < num_shared[:, None])
        first, prefix_of = _distinct(input_ids, shared)
        if int(shared.sum() - shared[first].sum()) < WORTH_SHARING * int(is_token.sum()):
            shared, first = torch.zeros_like(shared), first[:0]
        num_shared = shared.sum(1)
        own = is_token & ~shared
        if needed is not None:
            own &= needed.flip(1).cumsum(1).flip(1).bool()
        own_length = own.sum(1)
        buckets = bucket_by_length(own_length, call_cost(input_ids.device))
        order = torch.cat(buckets)
        self.input_ids = torch.cat([input_ids[first][shared[first]], input_ids[order][own[order]]])
        self.position_ids = torch.cat([position[first][shared[first]], position[order][own[order]]])
        prompt_start = _starts(num_shared[first])  # (U,)
        start = torch.empty_like(own_length)
        start[order] = _starts(own_length[order]) + num_shared[first].sum()  # (B,)
        self.place = position + (start - num_shared)[:, None]
        segments = []
        if len(first):
            self.place = torch.where(shared, position + prompt_start[prefix_of][:, None], self.place)
            segments.append(_segment(torch.arange(len(first), device=first.device), prompt_start, num_shared[first]))
            segments += [_segment(rows, start, own_length, prompt_start[prefix_of], num_shared) for rows in buckets]
        else:
            segments += [_segment(rows, start, own_length) for rows in buckets]
        self.segments = [segment for segment in segments if segment is not None]
        self._masks: dict[tuple[int, int | None, torch.dtype], Tensor] = {}

    def attend(self, layer: nn.Module, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions) -> Tensor:
        """Each token attends to the tokens before it in its own row; see :class:`~minirlhf.engine.attention.Layout`."""
        outputs = []
        for number, segment in enumerate(self.segments):
            q, k, v = (_take(states, segment).transpose(1, 2) for states in (query, key, value))  # (b, H, n, D)
            if segment.prompt is not None:
                k, v = (
                    torch.cat(
                        [
                            states.index_select(0, segment.prompt.flatten())
                            .unflatten(0, segment.prompt.shape)
                            .transpose(1, 2),
                            own,
                        ],
                        2,
                    )
                    for states, own in ((key, k), (value, v))
                )
            length = segment.own.shape[1]
            causal = segment.prompt is None and (options.window is None or options.window >= length)
            mask = None if causal else self._mask(number, options.window, query.dtype)
            out = scaled_dot_product(q, k, v, options, mask=mask, causal=causal).transpose(1, 2).flatten(0, 1)
            outputs.append(out if segment.inside is None else out.index_select(0, segment.inside))
        return torch.cat(outputs)

    def _mask(self, number: int, window: int | None, dtype: torch.dtype) -> Tensor:
        """The mask ``(b, 1, n, w + n)``, with 1 instead of b if all rows agree; it is the same in all layers."""
        if (number, window, dtype) not in self._masks:
            segment = self.segments[number]
            q_pos, k_pos = segment.own_positions[:, :, None], segment.key_positions[:, None, :]
            masked = k_pos > q_pos
            if window is not None:
                masked |= k_pos <= q_pos - window
            if bool((masked == masked[:1]).all()):
                masked = masked[:1]
            mask = torch.zeros(masked.shape, dtype=dtype, device=masked.device).masked_fill_(masked, -torch.inf)
            self._masks[number, window, dtype] = mask[:, None]
        return self._masks[number, window, dtype]


def _take(states: Tensor, segment: Segment) -> Tensor:
    """``(N, H, D) -> (b, n, H, D)``: a view without a copy if there is no padding."""
    if segment.inside is None:
        return states[segment.slice].unflatten(0, segment.own.shape)
    return states.index_select(0, segment.own.flatten()).unflatten(0, segment.own.shape)


def _distinct(input_ids: Tensor, shared: Tensor) -> tuple[Tensor, Tensor]:
    """The first row with each distinct prefix ``(U,)``, and for each row the index of its prefix ``(B,)``."""
    width = int(shared.sum(1).max())
    if width == 0:
        return input_ids.new_zeros(0), input_ids.new_zeros(len(input_ids))
    prefixes = input_ids.new_full((len(input_ids), width), -1)  # left-aligned, for padding on either side
    prefixes[shared.sum(1)[:, None] > torch.arange(width, device=input_ids.device)] = input_ids[shared]
    _, owner = prefixes.unique(dim=0, return_inverse=True)
    first = owner.new_full((int(owner.max()) + 1,), len(owner))
    first.scatter_reduce_(0, owner, torch.arange(len(owner), device=owner.device), "amin")
    return first, owner


def _starts(lengths: Tensor) -> Tensor:
    return lengths.cumsum(0) - lengths


def _segment(
    rows: Tensor, start: Tensor, length: Tensor, prompt_start: Tensor | None = None, prompt_length: Tensor | None = None
) -> Segment | None:
    """The segment of the rows that are not empty. Their tokens are consecutive in the long row."""
    rows = rows[length[rows] > 0]
    if len(rows) == 0:
        return None
    start, length = start[rows], length[rows]
    offsets = torch.arange(int(length.max()), device=rows.device)
    inside = offsets < length[:, None]  # (b, n)
    own = torch.where(inside, start[:, None] + offsets, start[:, None])
    positions = offsets.expand_as(own)
    prompt, keys = None, torch.where(inside, positions, _NEVER)
    if prompt_start is not None and prompt_length is not None:
        prompt_start, prompt_length = prompt_start[rows], prompt_length[rows]
        columns = torch.arange(int(prompt_length.max()), device=rows.device)
        in_prompt = columns < prompt_length[:, None]  # (b, w)
        prompt = torch.where(in_prompt, prompt_start[:, None] + columns, prompt_start[:, None])
        positions = positions + prompt_length[:, None]
        keys = torch.cat([torch.where(in_prompt, columns, _NEVER), torch.where(inside, positions, _NEVER)], 1)
    positions = torch.where(inside, positions, 0)  # padding attends to the first token, so that nothing is NaN
    unpadded = bool(inside.all())
    begin = int(start[0])
    return Segment(
        own=own,
        inside=None if unpadded else inside.flatten().nonzero().squeeze(-1),
        prompt=prompt,
        own_positions=positions,
        key_positions=keys,
        slice=slice(begin, begin + own.numel()),
    )


#: A position that no token reaches.
_NEVER = 2**31


def call_cost(device: torch.device) -> int:
    """Overhead of a call of attention, in tokens: Python, and on an accelerator the kernel launches."""
    return 512 if device.type == "cpu" else 16384


def bucket_by_length(lengths: Tensor, call: int) -> tuple[Tensor, ...]:
    """Split rows by length to minimise padded tokens plus calls × ``call``: index tensors, shortest rows first."""
    ordered, order = lengths.sort(stable=True)
    rows = ordered.tolist()
    ends = [i for i in range(1, len(rows)) if rows[i - 1] < rows[i]]
    ends = [*ends[:: max(1, -(-len(ends) // (MAX_CUTS - 1)))], len(rows)]
    best = {0: (0.0, 0)}  # number of rows -> least cost of the first rows, and its last cut
    for end in ends:
        best[end] = min((best[begin][0] + call + (end - begin) * rows[end - 1], begin) for begin in best if begin < end)
    cuts = [len(rows)]
    while cuts[-1]:
        cuts.append(best[cuts[-1]][1])
    return tuple(order[low:high] for low, high in itertools.pairwise(reversed(cuts)))


def packs(model: nn.Module, input_ids: Tensor) -> bool:
    """Return whether to pack this batch, ``(B, S)``, for this model, a causal LM or a backbone.

    It is false if the batch is so small that packing costs more than its padding, or if packing does not reproduce the
    model's own outputs, which is tested at the first use of the model.
    """
    if input_ids.numel() < call_cost(input_ids.device) // 2 or tampered(model):
        return False
    return _PROOF.holds(model, attention.replaceable(model))


def can_share_prefixes(model: nn.Module) -> bool:
    """Return whether shared prefixes may be read once. Dropout and jitter forbid it: rows need independent noise."""
    if not model.training:
        return True
    config: Any = getattr(model, "config", None)
    settings = config.to_dict() if config is not None else {}
    rates = [
        value for name, value in settings.items() if ("drop" in name or "jitter" in name) and isinstance(value, float)
    ]
    return max(rates, default=0.0) == 0 and not any(
        isinstance(m, nn.Dropout) and m.p > 0 and m.training for m in model.modules()
    )


def tampered(model: nn.Module) -> bool:
    """Return whether a model has a hook, a layer with a replaced ``forward``, or gradient checkpointing.

    Checkpointing calls the layers again in the backward pass, when the attention function is no longer the project's.
    All of these may have been added after the proof.
    """
    return any(
        module._forward_hooks
        or module._forward_pre_hooks
        or "forward" in vars(module)
        or getattr(module, "gradient_checkpointing", False)
        for module in model.modules()
    )


def _compare(model: nn.Module) -> tuple[Tensor, Tensor]:
    """Outputs for four rows with two prefixes of different lengths, padded on both sides: packed, and plain."""
    vocabulary = model.config.get_text_config().vocab_size  # type: ignore[union-attr, operator]
    ids = torch.randint(0, vocabulary, (4, 12), generator=torch.Generator().manual_seed(0))
    ids[1, :6], ids[3, :6] = ids[0, :6], ids[2, :6]
    mask = torch.ones_like(ids)
    mask[2:, :3] = 0
    mask[1, 9:] = 0
    device = next(model.parameters()).device
    ids, mask = ids.to(device), mask.to(device)
    packed = Packed(ids, mask, prefix=mask[:, :6].sum(1))
    keep = packed.place[mask.bool()]
    out = model(input_ids=ids, attention_mask=mask, position_ids=position_ids(mask), use_cache=False)
    with attention.use_project_attention(model):
        if supported(model, logits_to_keep=0):
            logits = attention.read(model, packed.input_ids, packed.position_ids, packed, keep=keep)
            return _wide(logits).log_softmax(-1), _wide(out.logits[mask.bool()]).log_softmax(-1)
        states = attention.read(model, packed.input_ids, packed.position_ids, packed)
        return states[keep], out.last_hidden_state[mask.bool()]


def _wide(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


_PROOF = Proof(_compare, "read row by row with its padding, as it does not let its attention be replaced")
