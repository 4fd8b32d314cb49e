"""Layer 7: over-optimisation, measured: worlds in which the gold reward is known, proxies for it, and what optimising does."""
