"""Chapter 11, Rejection sampling and best-of-n: what only it needs."""
