"""Chapter 2, Language models as policies: what only it needs."""
