"""Chapter 15, AI feedback: what only it needs."""
