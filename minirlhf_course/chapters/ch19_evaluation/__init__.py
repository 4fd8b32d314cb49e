"""Chapter 19, Evaluation: what only it needs."""
