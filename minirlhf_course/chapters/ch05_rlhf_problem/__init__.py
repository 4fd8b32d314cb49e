"""Chapter 5, The RLHF problem: what only it needs."""
