"""The training loops. They hold no equations."""
