"""Layer 6: the training loops. They hold no equations."""
