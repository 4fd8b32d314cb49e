"""Layer 3: reinforcement learning with small networks, on worlds small enough to know the answer."""
