"""Chapter 2: what the printed formulas are made of."""

from __future__ import annotations

from minirlhf.ledger.ink.legends import pinned

pinned("eq:top-p", "1acf2cb03937", "a rule in words about sets of sets")
