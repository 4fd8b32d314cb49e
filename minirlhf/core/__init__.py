"""Masking, log-probabilities, the exact oracle, the check registry. Imports no higher layer."""
