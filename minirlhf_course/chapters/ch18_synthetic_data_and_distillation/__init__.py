"""Chapter 18, Synthetic data and distillation: what only it needs."""
