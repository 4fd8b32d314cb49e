"""Layer 2: reinforcement learning with tables, in environments small enough to compute exactly."""
