"""Reinforcement learning with tables, in environments small enough to compute exactly."""
