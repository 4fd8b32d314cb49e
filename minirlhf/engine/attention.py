"""The project's attention function inside models of ``transformers``.

``transformers`` lets a program replace a model's attention function (vLLM runs these models through the same
interface). Everything else stays the model's own: embeddings, positions, norms, feed-forward layers, soft-caps,
adapters. So a batch can be laid out in the way that wastes least. The model receives one long row of tokens, and a
:class:`Layout` knows which tokens belong together. The layout enforces causality and the separation of the rows, so no
mask is needed.
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
    """Options of a layer's attention.

    Attributes:
        scaling: factor on the products of queries and keys; None: 1 / √width.
        window: a token attends to itself and the ``window − 1`` tokens before it; None: all tokens before it.
        softcap: a tanh limits the scores to ± this value; None: no limit.
        dropout: fraction of the attention weights that are set to 0.
    """

    scaling: float | None = None
    window: int | None = None
    softcap: float | None = None
    dropout: float = 0.0


class Layout(Protocol):
    """Defines which tokens of the long row attend to which."""

    def attend(self, layer: nn.Module, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions) -> Tensor:
        """Attend: ``query (N, H, D)``, ``key`` and ``value (N, K, D)`` to ``(N, H, D)``; ``K`` divides ``H``."""
        ...


#: Arguments that models pass and this function ignores: caches and positions, which are handled elsewhere.
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
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """The attention function that the models call.

    Raises:
        TypeError: the model passes its own mask, or another argument that might change which tokens attend to which.
    """
    unknown = sorted(name for name, value in kwargs.items() if value is not None and name not in _HARMLESS)
    if attention_mask is not None or unknown:
        raise TypeError(
            f"{type(module).__name__} passes {unknown or 'a mask'} to its attention, which minirlhf does not support"
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
    """Plain attention: ``(R, H, Q, D), (R, K, L, D), (R, K, L, D) -> (R, H, Q, D)``.

    Args:
        mask: added to the scores, broadcastable to ``(R, 1, Q, L)``: 0 or −inf.
        causal: instead of a mask; query ``i`` attends to the first ``i + 1`` keys.
    """
    if mask is not None and query.is_cuda and key.shape[1] != query.shape[1]:  # CUDA has no fast kernel for both
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
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(future, -torch.inf)
    if mask is not None:
        scores = scores + mask
    return F.dropout(scores.softmax(-1, dtype=torch.float32).to(value.dtype), options.dropout) @ value


def read(
    model: nn.Module, input_ids: Tensor, position_ids: Tensor, layout: Layout, *, keep: Tensor | None = None
) -> Tensor:
    """Send one long row of tokens through a model; only within :func:`use_project_attention`.

    Args:
        model: a causal LM, or a backbone without output layer; see :func:`replaceable`.
        input_ids, position_ids: ``(N,)``.
        keep: ``(M,)``, indices of the tokens whose logits a causal LM returns; None: all.

    Returns:
        For a causal LM the logits ``(M, V)``, for a backbone the last hidden states ``(N, D)``.
    """
    options = {} if keep is None else {"logits_to_keep": keep}
    out = model(input_ids=input_ids[None], position_ids=position_ids[None], use_cache=False, layout=layout, **options)
    result: Tensor = (out.logits if hasattr(out, "logits") else out.last_hidden_state).squeeze(0)
    return result


@contextmanager
def use_project_attention(model: nn.Module) -> Iterator[None]:
    """Replace the model's attention within the block; call it only through :func:`read`, in one thread at a time."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, _attend)
    configs = {id(c): c for part in model.modules() if (c := getattr(part, "config", None)) is not None}.values()
    with _LOCK:
        saved = [(c, c._attn_implementation_internal) for c in configs if hasattr(c, "_attn_implementation_internal")]
        try:
            for config, _ in saved:
                config._attn_implementation_internal = NAME
            yield
        finally:
            for config, implementation in saved:
                config._attn_implementation_internal = implementation


# -- supported architectures -------------------------------------------------------------------------------------

#: Architectures whose layers pass their attention window to the attention function. For other architectures with
#: windows the short example of the proof could not detect that the window is missing.
WINDOWED = frozenset({"gemma2", "mistral", "phi3", "qwen2", "qwen3"})


def replaceable(model: nn.Module) -> bool:
    """Return whether this architecture lets its attention be replaced and passes all options that it needs.

    Then :func:`read` can be tried. It cannot if the rotary angles depend on the largest position, since fewer tokens
    are read here.
    """
    unwrap = getattr(model, "get_base_model", None)  # peft's
    base: Any = unwrap() if unwrap else model
    if not getattr(type(base), "_supports_attention_backend", False) or not supported(model, position_ids=None):
        return False
    config = base.config.get_text_config()
    if any(name in str(getattr(config, "rope_parameters", "")) for name in ("'dynamic'", "'longrope'")):
        return False
    types = set(getattr(config, "layer_types", None) or ())
    no_window = types <= {"full_attention"} and (bool(types) or getattr(config, "sliding_window", None) is None)
    return no_window or (config.model_type in WINDOWED and types <= {"full_attention", "sliding_attention"})
