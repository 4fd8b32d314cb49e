"""Our own attention inside other people's models.

``transformers`` lets a program put its own function in place of a model's attention (vLLM runs these models through the same
door). All else (embeddings, positions, norms, feed-forward layers, soft-caps, adapters) stays the model's. So the tokens of a
batch can be laid out in whatever way wastes least: the model sees one long row of tokens, and a :class:`Layout` knows which of
them belong together. It carries the rules "only what is before me" and "only my own row", so no mask is needed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minirlhf.core.calling import supported

NAME = "minirlhf"
_LOCK = threading.RLock()  # two models may share a configuration


@dataclass(frozen=True)
class AttentionOptions:
    """How a layer attends.

    Attributes:
        scaling: factor on the products of queries and keys; None: one over the root of their width.
        window: a token sees itself and so many tokens less one before it; None: all of them.
        softcap: the scores are squeezed to ± this by a tanh; None: they are not.
        dropout: share of the attention weights that are set to 0.
    """

    scaling: float | None = None
    window: int | None = None
    softcap: float | None = None
    dropout: float = 0.0


class Layout(Protocol):
    """Which tokens of the one long row see which."""

    def attend(self, layer: nn.Module, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions) -> Tensor:
        """``query (N, H, D)``, ``key`` and ``value (N, K, D)`` of the row's tokens (``K`` divides ``H``) to ``(N, H, D)``."""
        ...


#: What models hand to attention functions beside what these need; it concerns caches and positions, which are dealt with elsewhere.
_HARMLESS = frozenset({"use_cache", "position_ids", "cache_position", "position_embeddings", "output_attentions"})


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    layout: Layout,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    """The function that the models call.

    Raises:
        TypeError: the model brings a mask of its own making, or something else that might change who sees whom.
    """
    unknown = sorted(name for name, value in more.items() if value is not None and name not in _HARMLESS)
    if attention_mask is not None or unknown:
        raise TypeError(
            f"{type(module).__name__} hands over {unknown or 'a mask'}, of which minirlhf's attention knows nothing"
        )
    q, k, v = (states.squeeze(0).transpose(0, 1) for states in (query, key, value))  # (1, H, N, D) -> (N, H, D)
    return layout.attend(module, q, k, v, AttentionOptions(scaling, sliding_window, softcap, dropout)).unsqueeze(
        0
    ), None


def scaled_dot_product(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    options: AttentionOptions,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    """Ordinary attention: ``(R, H, Q, D), (R, K, L, D), (R, K, L, D) -> (R, H, Q, D)``.

    Args:
        mask: added to the scores, broadcastable to ``(R, 1, Q, L)``: 0 or −inf.
        causal: in place of a mask, the first query sees the first key, the second the first two, and so on.
    """
    if mask is not None and query.is_cuda and key.shape[1] != query.shape[1]:  # together these take the slow way there
        key, value = (states.repeat_interleave(query.shape[1] // states.shape[1], 1) for states in (key, value))
    if options.softcap is None:
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=options.dropout, is_causal=causal, scale=options.scaling,
            enable_gqa=key.shape[1] != query.shape[1],
        )  # fmt: skip
    repeats = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    scaling = query.shape[-1] ** -0.5 if options.scaling is None else options.scaling
    scores = options.softcap * torch.tanh(query @ key.transpose(-1, -2) * scaling / options.softcap)  # (R, H, Q, L)
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    if mask is not None:
        scores = scores + mask
    return F.dropout(scores.softmax(-1, dtype=torch.float32).to(value.dtype), options.dropout) @ value


def read(
    model: nn.Module, input_ids: Tensor, position_ids: Tensor, layout: Layout, *, keep: Tensor | None = None
) -> Tensor:
    """Send one long row of tokens through a model; only within :func:`ours`.

    Args:
        model: a causal LM, or a backbone without output layer; see :func:`replaceable`.
        input_ids, position_ids: ``(N,)``.
        keep: ``(M,)``, the tokens after which a causal LM predicts; None: all.

    Returns:
        Of a causal LM logits ``(M, V)``, of a backbone the last hidden states ``(N, D)``.
    """
    options = {} if keep is None else {"logits_to_keep": keep}
    out = model(input_ids=input_ids[None], position_ids=position_ids[None], use_cache=False, layout=layout, **options)
    found: Tensor = (out.logits if hasattr(out, "logits") else out.last_hidden_state).squeeze(0)
    return found


@contextmanager
def use_project_attention(model: nn.Module) -> Iterator[None]:
    """Within the block the model's attention is ours, and it is called by :func:`read` only; one thread at a time."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, _attend)
    configs = {id(c): c for part in model.modules() if (c := getattr(part, "config", None)) is not None}.values()
    with _LOCK:
        before = [(c, c._attn_implementation_internal) for c in configs if hasattr(c, "_attn_implementation_internal")]
        try:
            for config, _ in before:
                config._attn_implementation_internal = NAME
            yield
        finally:
            for config, usual in before:
                config._attn_implementation_internal = usual


# -- may this model be read so? ----------------------------------------------------------------------------------

#: Architectures whose layers tell the attention function how far they see. Of others with windows the proof, which is short,
#: could not notice that they keep it to themselves.
WINDOWED = frozenset({"gemma2", "mistral", "phi3", "qwen2", "qwen3"})


def replaceable(model: nn.Module) -> bool:
    """Does this architecture let its attention be replaced, and tell it all it must know? Then :func:`read` can be tried.

    Not if its positions turn by an angle that depends on the longest of them, as fewer tokens are read here.
    """
    unwrap = getattr(model, "get_base_model", None)  # peft's
    base: Any = unwrap() if unwrap else model
    if not getattr(type(base), "_supports_attention_backend", False) or not supported(model, position_ids=None):
        return False
    config = base.config.get_text_config()
    if any(name in str(getattr(config, "rope_parameters", "")) for name in ("'dynamic'", "'longrope'")):
        return False
    kinds = set(getattr(config, "layer_types", None) or ())
    looks_far = kinds <= {"full_attention"} and (bool(kinds) or getattr(config, "sliding_window", None) is None)
    return looks_far or (config.model_type in WINDOWED and kinds <= {"full_attention", "sliding_attention"})
