"""Byte-pair encoding in miniature: learn merges from words, then split a word into the learned pieces.

Source: Sennrich, Haddow and Birch (2016), "Neural machine translation of rare words with subword units". Real tokenizers begin
with bytes and keep an order of merges like this one; here a word begins as its letters.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

Merge = tuple[str, str]


def learn(words: list[str], count: int) -> list[tuple[Merge, int]]:
    """Learn the first ``count`` merges: each step merges the most frequent pair of adjacent pieces into one piece.

    Returns:
        Each merge with the number of occurrences of its pair. Ties go to the pair that is first in alphabetical order.
    """
    merges: list[tuple[Merge, int]] = []
    split_words = [list(word) for word in words]
    for _ in range(count):
        pair_counts = Counter(pair for pieces in split_words for pair in pairwise(pieces))
        if not pair_counts:
            break
        best = min(pair_counts, key=lambda pair: (-pair_counts[pair], pair))
        merges.append((best, pair_counts[best]))
        split_words = [_joined(pieces, best) for pieces in split_words]
    return merges


def cut(word: str, merges: list[Merge]) -> list[str]:
    """Split a word into pieces: begin with its letters and apply the merges in the order in which they were learned."""
    pieces = list(word)
    for merge in merges:
        pieces = _joined(pieces, merge)
    return pieces


def _joined(pieces: list[str], merge: Merge) -> list[str]:
    """Merge every occurrence of the pair into one piece, from the left."""
    merged: list[str] = []
    for piece in pieces:
        if merged and (merged[-1], piece) == merge:
            merged[-1] += piece
        else:
            merged.append(piece)
    return merged
