"""Byte-pair merges in miniature: which pieces of words a tokenizer learns, and how it then cuts a word.

Source: Sennrich, Haddow and Birch (2016), "Neural machine translation of rare words with subword units". Real tokenizers begin
with bytes and keep an order of merges like this one; here a word begins as its letters.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

Merge = tuple[str, str]


def learn(words: list[str], count: int) -> list[tuple[Merge, int]]:
    """The first ``count`` merges: at each step the most frequent pair of neighbours becomes one piece.

    Returns:
        Each merge with the number of times that the pair occurred. Of pairs that are equally frequent, the first in the alphabet.
    """
    found: list[tuple[Merge, int]] = []
    cuts = [list(word) for word in words]
    for _ in range(count):
        pairs = Counter(pair for pieces in cuts for pair in pairwise(pieces))
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        found.append((best, pairs[best]))
        cuts = [_joined(pieces, best) for pieces in cuts]
    return found


def cut(word: str, merges: list[Merge]) -> list[str]:
    """The word's pieces: its letters, joined by the merges in the order in which they were learned."""
    pieces = list(word)
    for merge in merges:
        pieces = _joined(pieces, merge)
    return pieces


def _joined(pieces: list[str], merge: Merge) -> list[str]:
    """Every occurrence of the pair as one piece, from the left."""
    made: list[str] = []
    for piece in pieces:
        if made and (made[-1], piece) == merge:
            made[-1] += piece
        else:
            made.append(piece)
    return made
