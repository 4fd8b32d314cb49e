"""Layer 1: every equation of the book, each as one pure function of tensors and named hyperparameters."""
