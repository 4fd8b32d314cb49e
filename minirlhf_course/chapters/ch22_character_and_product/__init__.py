"""Chapter 22, Character and product: what only it needs."""
