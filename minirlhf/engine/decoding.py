"""How tokens are read one at a time while sampling: by a Llama written out, with a model's own cache, or without any."""

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

#: Keys and values of every layer, ``(R, K, C, D)`` each.
Columns: TypeAlias = list[tuple[Tensor, Tensor]]


class Reader(Protocol):
    """Reads tokens and keeps the logits of what comes next, ``(R, V)``, for the rows still in the batch.

    Attributes:
        drop_at: share of the rows that must have ended for leaving them out to cost less than reading them on.
    """

    logits: Tensor
    drop_at: float

    def read(self, tokens: Tensor) -> None:
        """Append one token ``(R,)`` to every row."""

    def keep(self, rows: Tensor) -> None:
        """Leave only these rows, an index tensor, in the batch, in this order."""


def reader(
    model: nn.Module, prompt_ids: Tensor, prompt_mask: Tensor, *, repeats: int, width: int, use_cache: bool,
    past: DynamicCache | None = None,
) -> Reader:  # fmt: skip
    """The fastest reader that this model allows; it has read the prompts.

    Args:
        prompt_ids, prompt_mask: ``(P, W)``, padded on the left.
        repeats: completions of each prompt; the rows are prompt-major, ``R = P × repeats``.
        width: tokens at most that will be read.
        past: what has been read before the prompts, ``C`` columns of them; the mask is then ``(P, C + W)``.
    """
    if not use_cache:
        return _Rereading(model, prompt_ids, prompt_mask, repeats)
    if is_written_out(model):
        return _Llama(model, prompt_ids, prompt_mask, repeats, width, past)
    return _Cached(model, prompt_ids, prompt_mask, repeats, past)


class _Llama:
    """A Llama's forward pass of one token per row, written out.

    The same arithmetic as the model's own, in a third of the operations: queries, keys and values come from one product, gate
    and feed-forward from another, a norm's weights are part of the product that follows it, and the cache has room from the start, so
    that no token moves what is there already. At the sizes of this project a pass costs little more than its operations'
    overhead, which ``benchmarks/engine.py`` measures.
    """

    drop_at = 0.1  # only the rows that change their place are moved

    def __init__(
        self,
        model: Any,
        prompt_ids: Tensor,
        prompt_mask: Tensor,
        repeats: int,
        width: int,
        past: DynamicCache | None = None,
    ) -> None:
        out = model(
            input_ids=prompt_ids, attention_mask=prompt_mask, past_key_values=past, position_ids=position_ids(prompt_mask)[:, -prompt_ids.shape[1] :],
            use_cache=True, logits_to_keep=1,
        )  # fmt: skip
        self.logits = out.logits[:, -1].repeat_interleave(repeats, 0)
        self._model, self._column = model, prompt_mask.shape[1]
        self._layers = [_Layer(layer) for layer in model.model.layers]
        self._cache = [
            [F.pad(states, (0, 0, 0, width)).repeat_interleave(repeats, 0) for states in (layer.keys, layer.values)]
            for layer in out.past_key_values.layers
        ]  # keys and values of every layer, (R, K, W + T, D)
        start = prompt_mask.sum(1)
        self._position = start.repeat_interleave(repeats)  # (R,), of the next token
        every = torch.arange(int(start.max()) + width, device=start.device)
        cos, sin = (turn[0, :, None] for turn in model.model.rotary_emb(self.logits, every[None]))
        left, right = sin.chunk(2, -1)
        self._rotation = [cos, torch.cat([-left, right], -1)]
        self._hidden: Tensor | None = None  # (R, 1, 1, W + T), True where there is padding
        if not bool(prompt_mask.all()):
            self._hidden = F.pad(prompt_mask == 0, (0, width)).repeat_interleave(repeats, 0)[:, None, None]

    def read(self, tokens: Tensor) -> None:
        backbone = self._model.model
        x = backbone.embed_tokens(tokens)  # (R, D)
        cos, sin = (turn[self._position] for turn in self._rotation)  # (R, 1, D / heads)
        seen = self._column + 1
        hidden = None if self._hidden is None else self._hidden[..., :seen]
        for layer, cache in zip(self._layers, self._cache, strict=True):
            qkv = F.linear(_normed(x, layer.norm), layer.qkv, layer.qkv_bias)
            qkv = qkv.unflatten(1, (-1, layer.width))  # (R, H + 2 K, D / heads)
            turned, value = qkv[:, : -layer.kv_heads], qkv[:, -layer.kv_heads :]
            left, right = turned.chunk(2, -1)
            turned = turned * cos + torch.cat([right, left], -1) * sin  # queries and keys
            cache[0][:, :, self._column], cache[1][:, :, self._column] = turned[:, -layer.kv_heads :], value
            keys, values = (states[:, :, :seen] for states in cache)
            found = _attended(turned[:, : -layer.kv_heads], keys, values, layer.scaling, hidden)
            x = x + F.linear(found.flatten(1), layer.out)
            gate, up = F.linear(_normed(x, layer.mlp_norm), layer.gate_up).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, layer.down)
        self.logits = self._model.lm_head(_normed(x, backbone.norm) * backbone.norm.weight)
        self._column, self._position = seen, self._position + 1

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
    """Without the norm's weights."""
    wide = torch.promote_types(x.dtype, torch.float32)
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=wide)
    return (x * (length.square() / x.shape[-1] + norm.variance_epsilon).rsqrt()).to(x.dtype)


def _attended(query: Tensor, keys: Tensor, values: Tensor, scale: float, hidden: Tensor | None) -> Tensor:
    """What one query per row finds: ``(R, H, D)``, ``(R, K, T, D)`` twice, ``(R, 1, 1, T) -> (R, H, D)``.

    For one query per row two plain products do, in place of a kernel made for many queries.
    """
    rows, kv_heads, seen, width = keys.shape
    scores = torch.bmm(query.reshape(rows * kv_heads, -1, width), keys.flatten(0, 1).transpose(1, 2)) * scale
    if hidden is not None:
        scores = scores.view(rows, kv_heads, -1, seen).masked_fill(hidden, -math.inf).flatten(0, 1)
    wide = torch.promote_types(scores.dtype, torch.float32)
    weights = scores.softmax(-1, dtype=wide).to(values.dtype)
    return torch.bmm(weights, values.flatten(0, 1)).view_as(query)


class _Layer:
    """The weights of a layer, those that read the same input side by side, times those of the norm that comes before."""

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


#: Models whose forward pass is the one written out above, if their configuration asks for nothing more.
_LLAMAS = ("LlamaForCausalLM", "Qwen2ForCausalLM")
#: Parameters of a model at most. In a larger one the operations themselves take the time, and :class:`_Layer` copies weights.
_LARGEST = 100_000_000


def is_written_out(model: nn.Module) -> bool:
    """Does :class:`_Llama` give this model's own logits, and is it worth it? Tried when the model is first seen; looked at again each time for what may
    have been added since: adapters, parametrizations, hooks that watch or steer."""
    return type(model).__name__ in _LLAMAS and _is_plain(model) and _PROOF.holds(model)


def _is_plain(model: Any) -> bool:
    """Nothing that three tokens of untrained weights would not show: windows, positions that depend on the length, biases that are
    still 0; and nothing that has been put in."""
    if model.num_parameters() > _LARGEST:
        return False
    config = model.config
    full = set(getattr(config, "layer_types", None) or ()) <= {"full_attention"}
    steady = config.rope_parameters.get("rope_type", "default") in ("default", "linear", "llama3")
    reads_input = (".q_proj", ".k_proj", ".v_proj")
    for name, part in model.named_modules():
        if not type(part).__module__.startswith(("torch.nn.modules", "transformers.")):
            return False
        if hasattr(part, "in_features") and part.bias is not None and not name.endswith(reads_input):
            return False
    return full and steady and not tampered(model)


def _compare(model: Any) -> tuple[Tensor, Tensor]:
    """Three tokens after two prompts of different lengths, in two rows each, of which one leaves: written out, and with the model's
    own cache."""
    ids = torch.randint(0, model.config.vocab_size, (2, 5), generator=torch.Generator().manual_seed(0)).to(model.device)
    mask = torch.ones_like(ids)
    mask[1, :2] = 0
    rows = torch.tensor([0, 2, 3], device=model.device)
    two: list[Reader] = [_Llama(model, ids, mask, 2, 3), _Cached(model, ids, mask, 2)]
    for step in range(3):
        for one in two:
            one.read(ids[:, step].repeat_interleave(2) if step == 0 else ids[0, step].expand(3))
            if step == 0:
                one.keep(rows)
    mine, own = (one.logits.to(torch.promote_types(one.logits.dtype, torch.float32)).log_softmax(-1) for one in two)
    return mine, own


_PROOF = Proof(_compare, "samples through its own forward pass, as it is no plain Llama")


class _Cached:
    """With the model's own cache. Each prompt is read once; its cache is then copied to its ``repeats`` completions."""

    drop_at = 0.3  # the whole cache is copied

    def __init__(
        self, model: nn.Module, prompt_ids: Tensor, prompt_mask: Tensor, repeats: int, past: DynamicCache | None = None
    ) -> None:
        self._model = model
        options = supported(model, past_key_values=past, logits_to_keep=1, position_ids=position_ids(prompt_mask)[:, -prompt_ids.shape[1] :])  # fmt: skip
        out = model(input_ids=prompt_ids, attention_mask=prompt_mask, use_cache=True, **options)
        self._cache = out.past_key_values
        self._cache.batch_repeat_interleave(repeats)
        self._mask = prompt_mask.repeat_interleave(repeats, 0)  # (R, W + t)
        self._position = prompt_mask.sum(1, keepdim=True).repeat_interleave(repeats, 0)  # (R, 1), of the next token
        self.logits = out.logits[:, -1].repeat_interleave(repeats, 0)  # (R, V)

    def read(self, tokens: Tensor) -> None:
        options = supported(self._model, position_ids=self._position)
        self._mask = torch.cat([self._mask, torch.ones_like(self._mask[:, :1])], 1)
        out = self._model(
            input_ids=tokens[:, None],
            attention_mask=self._mask,
            past_key_values=self._cache,
            use_cache=True,
            **options,
        )
        self._position = self._position + 1
        self.logits = out.logits[:, -1]

    def cached(self, rows: Tensor) -> Columns:
        if not all(type(layer) is DynamicLayer for layer in self._cache.layers):
            raise NotImplementedError(f"a cache of {type(self._cache.layers[0]).__name__}")
        return [(layer.keys[rows], layer.values[rows]) for layer in self._cache.layers]

    def keep(self, rows: Tensor) -> None:
        self._cache.batch_select_indices(rows)
        self._mask, self._position = self._mask[rows], self._position[rows]


class _Rereading:
    """The plain way, for models without a cache: every step reads every row from its start."""

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


# -- in turns ------------------------------------------------------------------------------------------------------------


class ChatSession:
    """What rows that are written in turns have read, so that each turn reads only what is new.

    A turn is decoded by the reader that :meth:`read` gives. Then :meth:`continue_turn` says which of its rows have another turn; of these the cache is
    kept, in the columns in which any of them has a token. Of a model whose cache cannot be gone on with so, every turn reads all.
    """

    def __init__(self) -> None:
        self._turn: _Remembering | None = None
        self._past: tuple[Columns, Tensor] | None = None  # of the rows that go on, and where they have tokens, (R, C)

    def read(
        self, model: nn.Module, prompt_ids: Tensor, prompt_mask: Tensor, *, repeats: int, width: int, use_cache: bool
    ) -> Reader:
        """Like :func:`reader`, of the whole conversations so far, of which only what is new is read."""
        if not (use_cache and can_continue(model)):
            return reader(model, prompt_ids, prompt_mask, repeats=repeats, width=width, use_cache=use_cache)
        return self._anew(model, prompt_ids, prompt_mask, repeats, width)

    def _anew(self, model: nn.Module, ids: Tensor, mask: Tensor, repeats: int, width: int) -> _Remembering:
        columns = None
        if self._past is not None:
            columns, seen = self._past
            new = mask.sum(1, keepdim=True) - seen.sum(1, keepdim=True)  # (R, 1), at least the last token said
            longest = int(new.max())
            place = torch.arange(longest, device=new.device)
            ids, mask = ids[:, -longest:], torch.cat([seen, (place >= longest - new).to(seen.dtype)], 1)
        past = None if columns is None else DynamicCache(columns)
        inner = reader(model, ids, mask, repeats=repeats, width=width, use_cache=True, past=past)
        self._turn = _Remembering(inner, mask.repeat_interleave(repeats, 0))
        return self._turn

    def continue_turn(self, rows: Sequence[int], said: Tensor) -> None:
        """The rows of the last turn that have another, and how many tokens each of all its rows has said, ``(R,)``."""
        self._past = None if self._turn is None else self._turn.past(torch.tensor(rows, device=said.device), said)


class _Remembering:
    """A reader that keeps the cache of rows that leave."""

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
        """The cache of these rows, and where they have tokens; the last token that a row said has not been read."""
        self._leave(torch.arange(len(self._rows), device=rows.device))
        width = max(columns[0][0].shape[2] for _, columns in self._left)
        count = torch.arange(width - self._mask.shape[1], device=rows.device)
        seen = torch.cat([self._mask, (count < said[:, None] - 1).to(self._mask.dtype)], 1)[rows]  # (N, C)
        kept = seen.any(0)
        order = torch.cat([numbers for numbers, _ in self._left]).argsort()[
            rows
        ]  # where each row stands among those that left

        def together(parts: Sequence[Tensor]) -> Tensor:
            wide = [F.pad(states, (0, 0, 0, width - states.shape[2])) for states in parts]
            return torch.cat(wide)[order][:, :, kept]

        layers = zip(*(columns for _, columns in self._left), strict=True)
        found = [(together([keys for keys, _ in layer]), together([values for _, values in layer])) for layer in layers]
        return found, seen[:, kept]


def can_continue(model: nn.Module) -> bool:
    """Can a turn go on with the cache of the turn before, with holes where other rows were longer? Tried when the model is first seen."""
    return _TURNS.holds(model)


def _compare_turns(model: Any) -> tuple[Tensor, Tensor]:
    """Two prompts of different lengths, turns of two and of one token, answers of one and of three: gone on with, and read anew."""
    ids = torch.randint(0, model.config.vocab_size, (2, 12), generator=torch.Generator().manual_seed(1)).to(
        model.device
    )
    mask = torch.ones_like(ids)
    mask[1, 0] = 0
    talk, said = ChatSession(), torch.tensor([2, 1], device=model.device)
    talk._anew(model, ids[:, :4], mask[:, :4], 1, 3).read(ids[:, 4])
    talk.continue_turn([0, 1], said)
    whole, seen = ids[:, 4:12].clone(), torch.ones_like(ids[:, :8])  # the last columns are the answers
    whole[0, 1:7], whole[1, 1:5], seen[:, 0] = ids[0, :6], ids[1, 1:5], 0
    found = []
    for one in (talk._anew(model, whole, seen, 1, 3), reader(model, whole, seen, repeats=1, width=3, use_cache=True)):
        one.read(ids[:, 11])
        found.append(one.logits.to(torch.promote_types(one.logits.dtype, torch.float32)).log_softmax(-1))
    return found[0], found[1]


_TURNS = Proof(_compare_turns, "reads a conversation anew at each turn, as its cache cannot be gone on with")
