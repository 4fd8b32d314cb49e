"""What a Llama of any size weighs in a training step, without making it: its layers are run on PyTorch's device ``meta``, which has shapes only."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

HALF = 2  # bytes of a number in 16 bits


@dataclass(frozen=True)
class MemoryProfile:
    """Of one model, with weights and activations of 16 bits; all but the first three in bytes per token.

    Attributes:
        layers: how many layers there are.
        parameters: how many numbers are trained.
        multiplied: those of them that a token is multiplied by: all but a table of embeddings that only looks up.
        cache: keys and values of all layers.
        activations: what the layers keep for the backward pass; tables of attention not counted.
        tables: those tables, of all tokens of a row against all, at the row's width that was asked for.
        inputs: the inputs of the layers, all that checkpointing keeps.
        logits: in 32 bits.
    """

    layers: int
    parameters: int
    multiplied: int
    cache: int
    activations: float
    tables: float
    inputs: int
    logits: int

    @property
    def checkpointed(self) -> float:
        """With checkpointing: the inputs of all layers, and one layer that is computed again."""
        return self.inputs + self.activations / self.layers


def profile_memory(config: LlamaConfig, *, width: int) -> MemoryProfile:
    """Weigh a model in rows of ``width`` tokens."""
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    kept = activation_bytes_by_layer(config, width=width, device="meta")
    tables = sum(_bytes(t) for t in kept if t.shape[-2:] == (width, width))
    attention = model.model.layers[0].self_attn
    per_token = config.num_hidden_layers / width
    parameters = sum(p.numel() for p in model.parameters())
    looked_up = 0 if config.tie_word_embeddings else model.model.embed_tokens.weight.numel()
    return MemoryProfile(
        layers=config.num_hidden_layers,
        parameters=parameters,
        multiplied=parameters - looked_up,
        cache=HALF * config.num_hidden_layers * (attention.k_proj.out_features + attention.v_proj.out_features),
        activations=per_token * (sum(map(_bytes, kept)) - tables),
        tables=per_token * tables,
        inputs=HALF * config.num_hidden_layers * config.hidden_size,
        logits=4 * config.vocab_size,
    )


def activation_bytes_by_layer(
    config: LlamaConfig, *, width: int, device: str, attention: str = "eager"
) -> list[Tensor]:
    """What one layer keeps for its backward pass on one row of ``width`` tokens; its weights and the tables of positions are not counted."""
    config._attn_implementation = attention
    with torch.device(device):
        layer = LlamaDecoderLayer(config, 0).to(torch.bfloat16)  # type: ignore[no-untyped-call]
        states = torch.zeros(1, width, config.hidden_size, dtype=torch.bfloat16, requires_grad=True)
        size = layer.self_attn.head_dim
        positions = tuple(torch.ones(1, width, size, dtype=torch.bfloat16) for _ in range(2))
    others = {_storage(t) for t in (*layer.parameters(), *positions)}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        if _storage(tensor) not in others:
            kept.setdefault(_storage(tensor), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        layer(states, attention_mask=None, position_embeddings=positions)
    return list(kept.values())


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _bytes(tensor: Tensor) -> int:
    return tensor.untyped_storage().nbytes()
