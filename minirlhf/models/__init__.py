"""Layer 3: tiny language models and tokenizers, heads, sampling, checkpoints."""
