"""Layer 1: fast ways to do what a plain forward pass does, each proved on every model at its first use.

Two doors, and nothing else is imported from outside:

==================  ==============================================================================
:mod:`.reading`     log-probabilities, rewards and values of a batch without its padding
:mod:`.decoding`    the next token of rows that are being written
==================  ==============================================================================

Behind them: :mod:`.packing` lays a batch out as one long row, :mod:`.attention` lets each token of it see its own row,
:mod:`.proof` compares with the plain way. Of this package they import :mod:`minirlhf.core` only.
"""
