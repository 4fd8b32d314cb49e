"""Chapter 6, The nature of preferences: what only it needs."""
