"""Chapter 13, Group-relative methods: what only it needs."""
