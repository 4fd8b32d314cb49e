"""Fast equivalents of a plain forward pass, each verified on every model at its first use.

Other parts of the package import only two modules:

==================  ==============================================================================
:mod:`.reading`     log-probabilities, rewards and values of a batch without its padding
:mod:`.decoding`    the logits of the next token during sampling
==================  ==============================================================================

They use :mod:`.packing`, which lays out a batch as one long row, :mod:`.attention`, which restricts each token's
attention to its own row, and :mod:`.proof`, which compares with the plain forward pass. Of this package they import
:mod:`minirlhf.core` only.
"""
