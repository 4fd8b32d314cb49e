"""minirlhf: a small, readable companion to RLHF and post-training."""

__version__ = "0.1.0"
