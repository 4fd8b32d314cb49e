"""Chapter 3, Markov decision processes: what only it needs."""
