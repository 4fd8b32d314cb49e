"""Chapter 21, Style and information: what only it needs."""
