"""Tiny causal language models: ordinary ``transformers`` Llamas, small enough to train in seconds on a CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from minirlhf.core.errors import unknown
from minirlhf.core.randomness import derive_seed

if TYPE_CHECKING:
    from transformers import LlamaConfig, PreTrainedModel, PreTrainedTokenizerBase

#: Standard deviation of the initial weights. It is three times the usual 0.02, with which models of this width learn
#: far more slowly.
INIT_STD = 0.06


@dataclass(frozen=True)
class Preset:
    """The sizes of a tiny model; the feed-forward width is 2.75 times ``hidden_size``."""

    hidden_size: int
    layers: int
    heads: int

    @property
    def intermediate_size(self) -> int:
        """The width of the gated feed-forward layer."""
        return self.hidden_size * 11 // 4


#: About 0.1 M parameters (almost every notebook), 0.8 M (speed, harder tasks), 5 M (real text); embeddings come on top.
PRESETS = {"nano": Preset(64, 2, 2), "micro": Preset(128, 4, 4), "small": Preset(256, 6, 8)}


def preset(name: str) -> Preset:
    """Return the sizes of the preset ``name``; raise a :class:`UserError` with the nearest name if there is none."""
    if name not in PRESETS:
        raise unknown("model preset", name, PRESETS)
    return PRESETS[name]


def tiny_config(name: str, tokenizer: PreTrainedTokenizerBase, *, context: int = 1024) -> LlamaConfig:
    """Return the configuration of a preset for this tokenizer's vocabulary: tied embeddings, ``context`` positions."""
    from transformers import LlamaConfig

    sizes = preset(name)
    return LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=sizes.hidden_size,
        intermediate_size=sizes.intermediate_size,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        max_position_embeddings=context,
        initializer_range=INIT_STD,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def tiny_model(name: str, tokenizer: PreTrainedTokenizerBase, *, seed: int = 0, context: int = 1024) -> PreTrainedModel:
    """Return a newly initialised model of a preset.

    The weights depend on ``(name, vocabulary size, seed)`` only: PyTorch's global generator is neither used nor
    changed.
    """
    from transformers import LlamaForCausalLM

    config = tiny_config(name, tokenizer, context=context)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed("init", name, seed))
        return LlamaForCausalLM(config)


def num_parameters(model: torch.nn.Module) -> int:
    """Return the number of parameters of a model; tied parameters count once."""
    return sum(p.numel() for p in model.parameters())
