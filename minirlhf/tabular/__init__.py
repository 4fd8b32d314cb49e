"""Layer 2: reinforcement learning with tables, on worlds small enough to be seen whole."""
