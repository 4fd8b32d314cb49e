"""Chapter 9, Regularisation: what only it needs."""
