"""Chapter 4, From policy gradients to PPO: what only it needs."""
