"""Executable errata: errors in the texts that the course teaches from, each with the computation that shows it."""
