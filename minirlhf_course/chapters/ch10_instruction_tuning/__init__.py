"""Chapter 10, Instruction tuning: what only it needs."""
