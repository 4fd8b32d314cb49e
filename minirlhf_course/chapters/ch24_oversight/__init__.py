"""Chapter 24, Oversight: what only it needs."""
