"""The memory of a Llama of any size in a training step, computed without allocating the model.

The layers run on PyTorch's device ``meta``, which stores shapes only.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

HALF = 2  # bytes of a number in 16 bits


@dataclass(frozen=True)
class MemoryProfile:
    """Memory of one model with 16-bit weights and activations; all except the first three in bytes per token.

    Attributes:
        layers: number of layers.
        parameters: number of trained parameters.
        multiplied: number of parameters in matrix products; an embedding table that is only looked up is not counted.
        cache: keys and values of all layers.
        activations: tensors that the layers save for the backward pass, without the attention matrices.
        tables: the attention matrices (all tokens of a row against all), for the row width of the profile.
        inputs: the inputs of the layers, which are all that gradient checkpointing saves.
        logits: the logits, in 32 bits.
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
        """Bytes per token with gradient checkpointing: the inputs of all layers and the activations of one recomputed
        layer."""
        return self.inputs + self.activations / self.layers


def profile_memory(config: LlamaConfig, *, width: int) -> MemoryProfile:
    """Compute the memory of a model for rows of ``width`` tokens."""
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    saved = activation_bytes_by_layer(config, width=width, device="meta")
    tables = sum(_bytes(t) for t in saved if t.shape[-2:] == (width, width))
    attention = model.model.layers[0].self_attn
    per_token = config.num_hidden_layers / width
    parameters = sum(p.numel() for p in model.parameters())
    lookup_only = 0 if config.tie_word_embeddings else model.model.embed_tokens.weight.numel()
    return MemoryProfile(
        layers=config.num_hidden_layers,
        parameters=parameters,
        multiplied=parameters - lookup_only,
        cache=HALF * config.num_hidden_layers * (attention.k_proj.out_features + attention.v_proj.out_features),
        activations=per_token * (sum(map(_bytes, saved)) - tables),
        tables=per_token * tables,
        inputs=HALF * config.num_hidden_layers * config.hidden_size,
        logits=4 * config.vocab_size,
    )


def activation_bytes_by_layer(
    config: LlamaConfig, *, width: int, device: str, attention: str = "eager"
) -> list[Tensor]:
    """Return the tensors that one layer saves for its backward pass on one row of ``width`` tokens.

    The weights and the position embeddings are not included.
    """
    config._attn_implementation = attention
    with torch.device(device):
        layer = LlamaDecoderLayer(config, 0).to(torch.bfloat16)  # type: ignore[no-untyped-call]
        states = torch.zeros(1, width, config.hidden_size, dtype=torch.bfloat16, requires_grad=True)
        head_dim = layer.self_attn.head_dim
        positions = tuple(torch.ones(1, width, head_dim, dtype=torch.bfloat16) for _ in range(2))
    excluded = {_storage(t) for t in (*layer.parameters(), *positions)}
    saved: dict[int, Tensor] = {}

    def save(tensor: Tensor) -> Tensor:
        if _storage(tensor) not in excluded:
            saved.setdefault(_storage(tensor), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        layer(states, attention_mask=None, position_embeddings=positions)
    return list(saved.values())


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _bytes(tensor: Tensor) -> int:
    return tensor.untyped_storage().nbytes()
