"""Chapter 14, Direct alignment: what only it needs."""
