"""Executable errata: what the texts that the course teaches from have wrong, each with the computation that shows it."""
