"""Reinforcement learning with small networks, in environments small enough to know the exact answer."""
