"""Chapter 8, Reward models: what only it needs."""
