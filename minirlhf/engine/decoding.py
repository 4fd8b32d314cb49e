"""Token-by-token decoding: with an explicit Llama forward pass, with the model's own cache, or without a cache."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from minirlhf.core.calling import position_ids, supported
from minirlhf.engine.packing import tampered
from minirlhf.engine.proof import Proof

#: Cached keys and values of every layer, ``(R, K, C, D)`` each.
Columns: TypeAlias = list[tuple[Tensor, Tensor]]


class Reader(Protocol):
    """Reads tokens and holds the logits of the next token, ``(R, V)``, for the rows that are still in the batch.

    Attributes:
        drop_at: fraction of the rows that must have ended before removing them costs less than reading on with them.
    """

    logits: Tensor
    drop_at: float

    def read(self, tokens: Tensor) -> None:
        """Append one token ``(R,)`` to every row."""

    def keep(self, rows: Tensor) -> None:
        """Keep only these rows, an index tensor, in the batch, in this order."""


def reader(
    model: nn.Module, prompt_ids: Tensor, prompt_mask: Tensor, *, repeats: int, width: int, use_cache: bool,
    past: DynamicCache | None = None,
) -> Reader:  # fmt: skip
    """Return the fastest reader that this model supports; it has already read the prompts.

    Args:
        prompt_ids, prompt_mask: ``(P, W)``, padded on the left.
        repeats: number of completions per prompt; the rows are prompt-major, ``R = P × repeats``.
        width: maximum number of tokens that will be read.
        past: cache of ``C`` columns that were read before the prompts; the mask is then ``(P, C + W)``.
    """
    if not use_cache:
        return _Rereading(model, prompt_ids, prompt_mask, repeats)
    if is_written_out(model):
        return _Llama(model, prompt_ids, prompt_mask, repeats, width, past)
    return _Cached(model, prompt_ids, prompt_mask, repeats, past)


class _Llama:
    """An explicit forward pass of a Llama for one token per row.

    It does the same arithmetic as the model itself in a third of the operations. Queries, keys and values come from one
    matrix product, gate and up projection from another. A norm's weights are folded into the product that follows it.
    The cache is allocated at full size, so that a new token moves nothing. At the sizes of this project a pass costs
    little more than the overhead of its operations, which ``benchmarks/engine.py`` measures.
    """

    drop_at = 0.1  # keep() moves only the rows whose index changes

    def __init__(
        self,
        model: Any,
        prompt_ids: Tensor,
        prompt_mask: Tensor,
        repeats: int,
        width: int,
        past: DynamicCache | None = None,
    ) -> None:
        outputs = model(
            input_ids=prompt_ids, attention_mask=prompt_mask, past_key_values=past, position_ids=position_ids(prompt_mask)[:, -prompt_ids.shape[1] :],
            use_cache=True, logits_to_keep=1,
        )  # fmt: skip
        self.logits = outputs.logits[:, -1].repeat_interleave(repeats, 0)
        self._model, self._column = model, prompt_mask.shape[1]
        self._layers = [_Layer(layer) for layer in model.model.layers]
        self._cache = [
            [F.pad(states, (0, 0, 0, width)).repeat_interleave(repeats, 0) for states in (layer.keys, layer.values)]
            for layer in outputs.past_key_values.layers
        ]  # keys and values of every layer, (R, K, W + T, D)
        start = prompt_mask.sum(1)
        self._position = start.repeat_interleave(repeats)  # (R,), of the next token
        positions = torch.arange(int(start.max()) + width, device=start.device)
        cos, sin = (table[0, :, None] for table in model.model.rotary_emb(self.logits, positions[None]))
        left, right = sin.chunk(2, -1)
        self._rotation = [cos, torch.cat([-left, right], -1)]
        self._hidden: Tensor | None = None  # (R, 1, 1, W + T), True where there is padding
        if not bool(prompt_mask.all()):
            self._hidden = F.pad(prompt_mask == 0, (0, width)).repeat_interleave(repeats, 0)[:, None, None]

    def read(self, tokens: Tensor) -> None:
        backbone = self._model.model
        x = backbone.embed_tokens(tokens)  # (R, D)
        cos, sin = (table[self._position] for table in self._rotation)  # (R, 1, D / heads)
        length = self._column + 1
        padding = None if self._hidden is None else self._hidden[..., :length]
        for layer, cache in zip(self._layers, self._cache, strict=True):
            qkv = F.linear(_normed(x, layer.norm), layer.qkv, layer.qkv_bias)
            qkv = qkv.unflatten(1, (-1, layer.width))  # (R, H + 2 K, D / heads)
            rotated, value = qkv[:, : -layer.kv_heads], qkv[:, -layer.kv_heads :]
            left, right = rotated.chunk(2, -1)
            rotated = rotated * cos + torch.cat([right, left], -1) * sin  # queries and keys
            cache[0][:, :, self._column], cache[1][:, :, self._column] = rotated[:, -layer.kv_heads :], value
            keys, values = (states[:, :, :length] for states in cache)
            attended = _attended(rotated[:, : -layer.kv_heads], keys, values, layer.scaling, padding)
            x = x + F.linear(attended.flatten(1), layer.out)
            gate, up = F.linear(_normed(x, layer.mlp_norm), layer.gate_up).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, layer.down)
        self.logits = self._model.lm_head(_normed(x, backbone.norm) * backbone.norm.weight)
        self._column, self._position = length, self._position + 1

    def cached(self, rows: Tensor) -> Columns:
        return [(keys[rows, :, : self._column], values[rows, :, : self._column]) for keys, values in self._cache]

    def keep(self, rows: Tensor) -> None:
        moved = (rows != torch.arange(len(rows), device=rows.device)).nonzero().squeeze(-1)
        for cache in self._cache:
            for states in cache:
                states[moved, :, : self._column] = states[rows[moved], :, : self._column]
        self._cache = [[states[: len(rows)] for states in cache] for cache in self._cache]
        self._position = self._position[rows]
        self._hidden = None if self._hidden is None else self._hidden[rows]


def _normed(x: Tensor, norm: Any) -> Tensor:
    """Apply an RMS norm without its weights."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    norm_2 = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=dtype)
    return (x * (norm_2.square() / x.shape[-1] + norm.variance_epsilon).rsqrt()).to(x.dtype)


def _attended(query: Tensor, keys: Tensor, values: Tensor, scale: float, padding: Tensor | None) -> Tensor:
    """Attention output of one query per row: ``(R, H, D)``, ``(R, K, T, D)`` twice, ``(R, 1, 1, T) -> (R, H, D)``.

    For one query per row, two plain matrix products replace a kernel made for many queries.
    """
    rows, kv_heads, length, width = keys.shape
    scores = torch.bmm(query.reshape(rows * kv_heads, -1, width), keys.flatten(0, 1).transpose(1, 2)) * scale
    if padding is not None:
        scores = scores.view(rows, kv_heads, -1, length).masked_fill(padding, -math.inf).flatten(0, 1)
    dtype = torch.promote_types(scores.dtype, torch.float32)
    weights = scores.softmax(-1, dtype=dtype).to(values.dtype)
    return torch.bmm(weights, values.flatten(0, 1)).view_as(query)


class _Layer:
    """The weights of a layer: projections of the same input are concatenated and times the preceding norm's weights."""

    def __init__(self, layer: Any) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        inputs = [attention.q_proj, attention.k_proj, attention.v_proj]
        self.norm, self.mlp_norm = layer.input_layernorm, layer.post_attention_layernorm
        self.qkv = torch.cat([part.weight for part in inputs]) * self.norm.weight
        self.qkv_bias = None if inputs[0].bias is None else torch.cat([part.bias for part in inputs])
        self.width, self.scaling = attention.head_dim, attention.scaling
        self.kv_heads = attention.k_proj.out_features // attention.head_dim
        self.out, self.down = attention.o_proj.weight, mlp.down_proj.weight
        self.gate_up = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]) * self.mlp_norm.weight


#: Models whose forward pass is the explicit one above, unless their configuration adds something.
_LLAMAS = ("LlamaForCausalLM", "Qwen2ForCausalLM")
#: Maximum number of parameters. In larger models the arithmetic takes most time, and :class:`_Layer` copies weights.
_LARGEST = 100_000_000


def is_written_out(model: nn.Module) -> bool:
    """Return whether :class:`_Llama` reproduces this model's logits and is faster.

    The logits are compared at the first use of the model. Every call checks again for later additions: adapters,
    parametrizations, and hooks that observe or modify.
    """
    return type(model).__name__ in _LLAMAS and _is_plain(model) and _PROOF.holds(model)


def _is_plain(model: Any) -> bool:
    """Return whether a model has no additions and no feature that :func:`_compare` would miss.

    It uses three tokens, and the model may be untrained. Such features are attention windows, positions that depend on
    the length, and biases that are still 0.
    """
    if model.num_parameters() > _LARGEST:
        return False
    config = model.config
    full_attention = set(getattr(config, "layer_types", None) or ()) <= {"full_attention"}
    fixed_positions = config.rope_parameters.get("rope_type", "default") in ("default", "linear", "llama3")
    input_projections = (".q_proj", ".k_proj", ".v_proj")
    for name, part in model.named_modules():
        if not type(part).__module__.startswith(("torch.nn.modules", "transformers.")):
            return False
        if hasattr(part, "in_features") and part.bias is not None and not name.endswith(input_projections):
            return False
    return full_attention and fixed_positions and not tampered(model)


def _compare(model: Any) -> tuple[Tensor, Tensor]:
    """Next-token log-probabilities of the explicit forward pass and with the model's own cache.

    They follow three tokens after two prompts of different lengths, two rows per prompt, one of which leaves the batch.
    """
    ids = torch.randint(0, model.config.vocab_size, (2, 5), generator=torch.Generator().manual_seed(0)).to(model.device)
    mask = torch.ones_like(ids)
    mask[1, :2] = 0
    rows = torch.tensor([0, 2, 3], device=model.device)
    readers: list[Reader] = [_Llama(model, ids, mask, 2, 3), _Cached(model, ids, mask, 2)]
    for step in range(3):
        for each in readers:
            each.read(ids[:, step].repeat_interleave(2) if step == 0 else ids[0, step].expand(3))
            if step == 0:
                each.keep(rows)
    fast, own = (r.logits.to(torch.promote_types(r.logits.dtype, torch.float32)).log_softmax(-1) for r in readers)
    return fast, own


_PROOF = Proof(_compare, "samples through its own forward pass, as it is no plain Llama")


class _Cached:
    """Decoding with the model's own cache. Each prompt is read once; its cache is copied to its ``repeats`` rows."""

    drop_at = 0.3  # keep() copies the whole cache

    def __init__(
        self, model: nn.Module, prompt_ids: Tensor, prompt_mask: Tensor, repeats: int, past: DynamicCache | None = None
    ) -> None:
        self._model = model
        options = supported(model, past_key_values=past, logits_to_keep=1, position_ids=position_ids(prompt_mask)[:, -prompt_ids.shape[1] :])  # fmt: skip
        outputs = model(input_ids=prompt_ids, attention_mask=prompt_mask, use_cache=True, **options)
        self._cache = outputs.past_key_values
        self._cache.batch_repeat_interleave(repeats)
        self._mask = prompt_mask.repeat_interleave(repeats, 0)  # (R, W + t)
        self._position = prompt_mask.sum(1, keepdim=True).repeat_interleave(repeats, 0)  # (R, 1), of the next token
        self.logits = outputs.logits[:, -1].repeat_interleave(repeats, 0)  # (R, V)

    def read(self, tokens: Tensor) -> None:
        options = supported(self._model, position_ids=self._position)
        self._mask = torch.cat([self._mask, torch.ones_like(self._mask[:, :1])], 1)
        outputs = self._model(
            input_ids=tokens[:, None],
            attention_mask=self._mask,
            past_key_values=self._cache,
            use_cache=True,
            **options,
        )
        self._position = self._position + 1
        self.logits = outputs.logits[:, -1]

    def cached(self, rows: Tensor) -> Columns:
        if not all(type(layer) is DynamicLayer for layer in self._cache.layers):
            raise NotImplementedError(f"a cache of {type(self._cache.layers[0]).__name__}")
        return [(layer.keys[rows], layer.values[rows]) for layer in self._cache.layers]

    def keep(self, rows: Tensor) -> None:
        self._cache.batch_select_indices(rows)
        self._mask, self._position = self._mask[rows], self._position[rows]


class _Rereading:
    """Decoding without a cache: every step reads every row from its start."""

    drop_at = 0.0

    def __init__(self, model: nn.Module, prompt_ids: Tensor, prompt_mask: Tensor, repeats: int) -> None:
        self._model = model
        self._ids = prompt_ids.repeat_interleave(repeats, 0)
        self._mask = prompt_mask.repeat_interleave(repeats, 0)
        self._forward()

    def _forward(self) -> None:
        options = supported(self._model, position_ids=position_ids(self._mask), logits_to_keep=1, use_cache=False)
        self.logits = self._model(input_ids=self._ids, attention_mask=self._mask, **options).logits[:, -1]

    def read(self, tokens: Tensor) -> None:
        self._ids = torch.cat([self._ids, tokens[:, None]], 1)
        self._mask = torch.cat([self._mask, torch.ones_like(self._mask[:, :1])], 1)
        self._forward()

    def keep(self, rows: Tensor) -> None:
        self._ids, self._mask = self._ids[rows], self._mask[rows]


# -- multi-turn --------------------------------------------------------------------------------------------------------


class ChatSession:
    """The cache of multi-turn conversations, so that each turn reads only its new tokens.

    :meth:`read` returns the reader that decodes a turn. Then :meth:`continue_turn` selects the rows that have another
    turn. Their cache is kept, in the columns in which at least one of them has a token. If a model's cache cannot be
    continued like this, every turn reads the whole conversation.
    """

    def __init__(self) -> None:
        self._turn: _Remembering | None = None
        self._past: tuple[Columns, Tensor] | None = None  # cache of the continued rows, and their mask (R, C)

    def read(
        self, model: nn.Module, prompt_ids: Tensor, prompt_mask: Tensor, *, repeats: int, width: int, use_cache: bool
    ) -> Reader:
        """Like :func:`reader` for the whole conversations so far, of which only the new tokens are read."""
        if not (use_cache and can_continue(model)):
            return reader(model, prompt_ids, prompt_mask, repeats=repeats, width=width, use_cache=use_cache)
        return self._anew(model, prompt_ids, prompt_mask, repeats, width)

    def _anew(self, model: nn.Module, ids: Tensor, mask: Tensor, repeats: int, width: int) -> _Remembering:
        columns = None
        if self._past is not None:
            columns, past_mask = self._past
            num_new = mask.sum(1, keepdim=True) - past_mask.sum(1, keepdim=True)  # (R, 1), ≥ 1: last sampled token
            longest = int(num_new.max())
            offsets = torch.arange(longest, device=num_new.device)
            ids, mask = ids[:, -longest:], torch.cat([past_mask, (offsets >= longest - num_new).to(past_mask.dtype)], 1)
        past = None if columns is None else DynamicCache(columns)
        inner = reader(model, ids, mask, repeats=repeats, width=width, use_cache=True, past=past)
        self._turn = _Remembering(inner, mask.repeat_interleave(repeats, 0))
        return self._turn

    def continue_turn(self, rows: Sequence[int], said: Tensor) -> None:
        """Keep the cache of the ``rows`` of the last turn that have another turn.

        ``said``, ``(R,)``, is the number of tokens that each row of the last turn generated, for all its rows.
        """
        self._past = None if self._turn is None else self._turn.past(torch.tensor(rows, device=said.device), said)


class _Remembering:
    """A reader that keeps the cache of rows that leave the batch."""

    def __init__(self, inner: Any, mask: Tensor) -> None:
        self._inner, self._mask, self.logits, self.drop_at = inner, mask, inner.logits, inner.drop_at
        self._rows = torch.arange(len(mask), device=mask.device)
        self._left: list[tuple[Tensor, Columns]] = []

    def read(self, tokens: Tensor) -> None:
        self._inner.read(tokens)
        self.logits = self._inner.logits

    def keep(self, rows: Tensor) -> None:
        leaving = torch.ones_like(self._rows, dtype=torch.bool)
        leaving[rows] = False
        self._leave(leaving.nonzero().squeeze(1))
        self._inner.keep(rows)
        self._rows = self._rows[rows]

    def _leave(self, rows: Tensor) -> None:
        self._left.append((self._rows[rows], self._inner.cached(rows)))

    def past(self, rows: Tensor, said: Tensor) -> tuple[Columns, Tensor]:
        """The cache of these rows and their mask; the last token that a row generated has not been read."""
        self._leave(torch.arange(len(self._rows), device=rows.device))
        width = max(columns[0][0].shape[2] for _, columns in self._left)
        offsets = torch.arange(width - self._mask.shape[1], device=rows.device)
        mask = torch.cat([self._mask, (offsets < said[:, None] - 1).to(self._mask.dtype)], 1)[rows]  # (N, C)
        used = mask.any(0)
        index = torch.cat([ids for ids, _ in self._left]).argsort()[rows]  # index of each row in self._left

        def merged(parts: Sequence[Tensor]) -> Tensor:
            padded = [F.pad(states, (0, 0, 0, width - states.shape[2])) for states in parts]
            return torch.cat(padded)[index][:, :, used]

        layers = zip(*(columns for _, columns in self._left), strict=True)
        cache = [(merged([keys for keys, _ in layer]), merged([values for _, values in layer])) for layer in layers]
        return cache, mask[:, used]


def can_continue(model: nn.Module) -> bool:
    """Return whether a turn can reuse the cache of the previous turn, with gaps where other rows were longer.

    It is tested at the first use of the model.
    """
    return _TURNS.holds(model)


def _compare_turns(model: Any) -> tuple[Tensor, Tensor]:
    """Next-token log-probabilities in a second turn with the continued cache, and with all tokens read again.

    Two prompts of different lengths, first turns of two tokens and of one, then observations of one token and of three.
    """
    ids = torch.randint(0, model.config.vocab_size, (2, 12), generator=torch.Generator().manual_seed(1)).to(
        model.device
    )
    mask = torch.ones_like(ids)
    mask[1, 0] = 0
    session, num_generated = ChatSession(), torch.tensor([2, 1], device=model.device)
    session._anew(model, ids[:, :4], mask[:, :4], 1, 3).read(ids[:, 4])
    session.continue_turn([0, 1], num_generated)
    full, valid = ids[:, 4:12].clone(), torch.ones_like(ids[:, :8])  # the last columns are the new turns
    full[0, 1:7], full[1, 1:5], valid[:, 0] = ids[0, :6], ids[1, 1:5], 0
    logps = []
    for r in (session._anew(model, full, valid, 1, 3), reader(model, full, valid, repeats=1, width=3, use_cache=True)):
        r.read(ids[:, 11])
        logps.append(r.logits.to(torch.promote_types(r.logits.dtype, torch.float32)).log_softmax(-1))
    return logps[0], logps[1]


_TURNS = Proof(_compare_turns, "reads a conversation anew at each turn, as its cache cannot be gone on with")
