"""Tiny random models of many architectures, for tests."""

import torch
import transformers

VOCAB = 19
SMALL = {
    "vocab_size": VOCAB,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": None,
    "initializer_range": 0.3,  # so that tokens differ clearly in probability, and mistakes in log-probability
}
GROUPED = {**SMALL, "num_key_value_heads": 1, "head_dim": 8}
SLIDING = {**GROUPED, "sliding_window": 4}
GPT2_NAMES = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}
ARCHITECTURES = {
    "Llama": SMALL,
    "GPT2": {k: v for k, v in SMALL.items() if k in ("vocab_size", "pad_token_id", "eos_token_id", "initializer_range")}
    | GPT2_NAMES,
    "Qwen2": GROUPED,
    "Qwen3": GROUPED,
    "Gemma": GROUPED,
    "Gemma2": {**SLIDING, "query_pre_attn_scalar": 8, "layer_types": ["sliding_attention", "full_attention"]},
    "Mistral": SLIDING,
    "Phi": SMALL,
    "Phi3": {**SMALL, "original_max_position_embeddings": 64},
}


def build(name: str):
    """A random model of this architecture, always the same, in ``eval`` mode."""
    config = getattr(transformers, f"{name}Config")(**ARCHITECTURES[name])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return getattr(transformers, "GPT2LMHeadModel" if name == "GPT2" else f"{name}ForCausalLM")(config).eval()
