"""Chapter 1, Introduction: what only it needs."""
