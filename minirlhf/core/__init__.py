"""Layer 0: masking, log-probabilities, the exact oracle, the check registry. Imports nothing above itself."""
