"""A batch without wasted tokens: one long row of the tokens that are needed, each once.

Padding is not read. A beginning that several rows share (the prompt of a group, or of both sides of a preference) is read once
and serves all of them, so gradients flow back into it from each. What comes after the last token that matters is not read
either. All this is exact: :func:`packs` compares it with the plain way on every model before it is relied on.
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

#: Lengths at which the rows of a batch may be parted for attention; more would only make the choice slower.
MAX_CUTS = 16
#: Sharing beginnings makes attention a little dearer. It pays if it saves this share of the tokens.
WORTH_SHARING = 0.05


@dataclass(frozen=True)
class Segment:
    """Rows of the batch that attend together, padded to the longest of them. All numbers are places in the long row.

    Attributes:
        own: ``(b, n)``, their tokens; at padding, any token.
        inside: ``(b · n,)``, which of them are no padding, as indices; None if all are.
        prompt: ``(b, w)``, the beginnings that they share with others, or None.
        own_positions, key_positions: ``(b, n)`` and ``(b, w + n)``, positions in the row; of padded keys one that nobody reaches.
        slice: the tokens as a part of the long row, if there is no padding.
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
        prefix: ``(B,)``, so many real tokens at the start of a row may be shared with rows that start with the same ones.
        needed: ``(B, S)`` bool, the tokens whose hidden states matter; None: all. Later ones of a row are not read.

    Attributes:
        input_ids, position_ids: ``(N,)``.
        place: ``(B, S)``, where each token of the batch stands in the long row; at padding and for tokens not read, anywhere.
        segments: who attends with whom.
    """

    def __init__(
        self, input_ids: Tensor, attention_mask: Tensor, *, prefix: Tensor | None = None, needed: Tensor | None = None
    ) -> None:
        real, position = attention_mask.bool(), position_ids(attention_mask)
        before = torch.zeros_like(position[:, 0]) if prefix is None else prefix  # (B,)
        shared = real & (position < before[:, None])
        first, owner = _distinct(input_ids, shared)
        if int(shared.sum() - shared[first].sum()) < WORTH_SHARING * int(real.sum()):
            shared, first = torch.zeros_like(shared), first[:0]
        before = shared.sum(1)
        own = real & ~shared
        if needed is not None:
            own &= needed.flip(1).cumsum(1).flip(1).bool()
        length = own.sum(1)
        buckets = bucket_by_length(length, call_cost(input_ids.device))
        order = torch.cat(buckets)
        self.input_ids = torch.cat([input_ids[first][shared[first]], input_ids[order][own[order]]])
        self.position_ids = torch.cat([position[first][shared[first]], position[order][own[order]]])
        prompt_start = _starts(before[first])  # (U,)
        start = torch.empty_like(length)
        start[order] = _starts(length[order]) + before[first].sum()  # (B,)
        self.place = position + (start - before)[:, None]
        found = []
        if len(first):
            self.place = torch.where(shared, position + prompt_start[owner][:, None], self.place)
            found.append(_segment(torch.arange(len(first), device=first.device), prompt_start, before[first]))
            found += [_segment(rows, start, length, prompt_start[owner], before) for rows in buckets]
        else:
            found += [_segment(rows, start, length) for rows in buckets]
        self.segments = [segment for segment in found if segment is not None]
        self._masks: dict[tuple[int, int | None, torch.dtype], Tensor] = {}

    def attend(self, layer: nn.Module, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions) -> Tensor:
        """Every token sees what is before it in its own row; see :class:`~minirlhf.engine.attention.Layout`."""
        found = []
        for number, segment in enumerate(self.segments):
            q, k, v = (_take(states, segment).transpose(1, 2) for states in (query, key, value))  # (b, H, n, D)
            if segment.prompt is not None:
                k, v = (
                    torch.cat(
                        [
                            states.index_select(0, segment.prompt.flatten())
                            .unflatten(0, segment.prompt.shape)
                            .transpose(1, 2),
                            mine,
                        ],
                        2,
                    )
                    for states, mine in ((key, k), (value, v))
                )
            reach = segment.own.shape[1]
            causal = segment.prompt is None and (options.window is None or options.window >= reach)
            mask = None if causal else self._mask(number, options.window, query.dtype)
            out = scaled_dot_product(q, k, v, options, mask=mask, causal=causal).transpose(1, 2).flatten(0, 1)
            found.append(out if segment.inside is None else out.index_select(0, segment.inside))
        return torch.cat(found)

    def _mask(self, number: int, window: int | None, dtype: torch.dtype) -> Tensor:
        """``(b, 1, n, w + n)``, or 1 in place of b where all rows agree; the same in all layers."""
        if (number, window, dtype) not in self._masks:
            segment = self.segments[number]
            here, there = segment.own_positions[:, :, None], segment.key_positions[:, None, :]
            hidden = there > here
            if window is not None:
                hidden |= there <= here - window
            if bool((hidden == hidden[:1]).all()):
                hidden = hidden[:1]
            mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, -torch.inf)
            self._masks[number, window, dtype] = mask[:, None]
        return self._masks[number, window, dtype]


def _take(states: Tensor, segment: Segment) -> Tensor:
    """``(N, H, D) -> (b, n, H, D)``: a view where there is no padding, so that nothing is copied."""
    if segment.inside is None:
        return states[segment.slice].unflatten(0, segment.own.shape)
    return states.index_select(0, segment.own.flatten()).unflatten(0, segment.own.shape)


def _distinct(input_ids: Tensor, shared: Tensor) -> tuple[Tensor, Tensor]:
    """The first row of each distinct beginning ``(U,)``, and for each row the number of its own ``(B,)``."""
    width = int(shared.sum(1).max())
    if width == 0:
        return input_ids.new_zeros(0), input_ids.new_zeros(len(input_ids))
    beginnings = input_ids.new_full((len(input_ids), width), -1)  # flush left, whichever side is padded
    beginnings[shared.sum(1)[:, None] > torch.arange(width, device=input_ids.device)] = input_ids[shared]
    _, owner = beginnings.unique(dim=0, return_inverse=True)
    first = owner.new_full((int(owner.max()) + 1,), len(owner))
    first.scatter_reduce_(0, owner, torch.arange(len(owner), device=owner.device), "amin")
    return first, owner


def _starts(lengths: Tensor) -> Tensor:
    return lengths.cumsum(0) - lengths


def _segment(
    rows: Tensor, start: Tensor, length: Tensor, prompt_start: Tensor | None = None, before: Tensor | None = None
) -> Segment | None:
    """The segment of those of the rows that are not empty. They stand behind one another in the long row."""
    rows = rows[length[rows] > 0]
    if len(rows) == 0:
        return None
    start, length = start[rows], length[rows]
    count = torch.arange(int(length.max()), device=rows.device)
    inside = count < length[:, None]  # (b, n)
    own = torch.where(inside, start[:, None] + count, start[:, None])
    positions = count.expand_as(own)
    prompt, keys = None, torch.where(inside, positions, _NEVER)
    if prompt_start is not None and before is not None:
        prompt_start, before = prompt_start[rows], before[rows]
        ahead = torch.arange(int(before.max()), device=rows.device)
        known = ahead < before[:, None]  # (b, w)
        prompt = torch.where(known, prompt_start[:, None] + ahead, prompt_start[:, None])
        positions = positions + before[:, None]
        keys = torch.cat([torch.where(known, ahead, _NEVER), torch.where(inside, positions, _NEVER)], 1)
    positions = torch.where(inside, positions, 0)  # what stands at padding sees the first token, so that nothing is NaN
    whole = bool(inside.all())
    first = int(start[0])
    return Segment(
        own=own,
        inside=None if whole else inside.flatten().nonzero().squeeze(-1),
        prompt=prompt,
        own_positions=positions,
        key_positions=keys,
        slice=slice(first, first + own.numel()),
    )


#: A position that no token reaches.
_NEVER = 2**31


def call_cost(device: torch.device) -> int:
    """What one more call of attention costs beside its tokens, in tokens: Python, and on an accelerator the launches."""
    return 512 if device.type == "cpu" else 16384


def bucket_by_length(lengths: Tensor, call: int) -> tuple[Tensor, ...]:
    """Part rows by length, so that their padded tokens and the calls cost least: index tensors, shortest rows first."""
    ordered, order = lengths.sort(stable=True)
    rows = ordered.tolist()
    ends = [i for i in range(1, len(rows)) if rows[i - 1] < rows[i]]
    ends = [*ends[:: max(1, -(-len(ends) // (MAX_CUTS - 1)))], len(rows)]
    best = {0: (0.0, 0)}  # the cheapest way to have done the first so many rows, and its last cut
    for end in ends:
        best[end] = min((best[at][0] + call + (end - at) * rows[end - 1], at) for at in best if at < end)
    cuts = [len(rows)]
    while cuts[-1]:
        cuts.append(best[cuts[-1]][1])
    return tuple(order[low:high] for low, high in itertools.pairwise(reversed(cuts)))


def packs(model: nn.Module, input_ids: Tensor) -> bool:
    """Is this batch, ``(B, S)``, read packed by this model, a causal LM or a backbone? Not if it is so small that laying it out
    costs more than its padding, nor if the model's own numbers would not come out: that is tried when it is first seen."""
    if input_ids.numel() < call_cost(input_ids.device) // 2 or tampered(model):
        return False
    return _PROOF.holds(model, attention.replaceable(model))


def shares(model: nn.Module) -> bool:
    """May beginnings be read once? Not while something random is active: there would be one draw instead of several."""
    if not model.training:
        return True
    config: Any = getattr(model, "config", None)
    said = config.to_dict() if config is not None else {}
    chances = [
        value for name, value in said.items() if ("drop" in name or "jitter" in name) and isinstance(value, float)
    ]
    return max(chances, default=0.0) == 0 and not any(
        isinstance(m, nn.Dropout) and m.p > 0 and m.training for m in model.modules()
    )


def tampered(model: nn.Module) -> bool:
    """Is there a hook that watches or steers, a layer with another forward pass, or gradient checkpointing, which calls the layers
    again in the backward pass, when the attention is no longer ours? All this may have come after the proof."""
    return any(
        part._forward_hooks
        or part._forward_pre_hooks
        or "forward" in vars(part)
        or getattr(part, "gradient_checkpointing", False)
        for part in model.modules()
    )


def _compare(model: nn.Module) -> tuple[Tensor, Tensor]:
    """Four rows with two beginnings of different lengths, padded on both sides: packed, and plain."""
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
