"""Chapter 20, Over-optimisation: what only it needs."""
