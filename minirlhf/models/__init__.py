"""Tiny language models and tokenizers, heads, sampling, checkpoints."""
