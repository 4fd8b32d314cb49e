"""Layer 1: every equation of the book once, as a pure function of tensors and named hyperparameters."""
