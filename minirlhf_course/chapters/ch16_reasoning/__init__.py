"""Chapter 16, Reasoning: what only it needs."""
