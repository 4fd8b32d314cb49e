"""Chapter 17, Tools: what only it needs."""
