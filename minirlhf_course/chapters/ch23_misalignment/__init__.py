"""Chapter 23, When training goes wrong: what only it needs."""
