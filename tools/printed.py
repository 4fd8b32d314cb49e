"""Evaluate the printed formulas of the book, with every misprint that the rules make: ``python tools/printed.py [chapter | label ...]``.

Without arguments all of them. It prints one line per label, what was missed, the digest of what has neither legend nor
pin, and the totals that the ledger's page gives.
"""

import collections
import secrets
import sys
import time
from pathlib import Path

import torch

from minirlhf_course.chapters import load_legends
from minirlhf_course.ledger.formulas import proof
from minirlhf_course.ledger.formulas.displays import displays
from minirlhf_course.ledger.formulas.items import digest
from minirlhf_course.ledger.pages import scientific

BOOK = Path(__file__).resolve().parents[1] / "book"


def main() -> int:
    """The exit status is 1 if a formula is wrong, edited since it was pinned, without a legend, or misses a misprint."""
    torch.set_num_threads(1)
    known, seed, start = load_legends(), secrets.randbelow(2**31), time.perf_counter()
    noticed: collections.Counter[str] = collections.Counter()
    worst, evaluated, pinned, faults, labels = 0.0, 0, 0, 0, 0
    for page in sorted(BOOK.glob("*.md")):
        for label, latex, *_ in displays(page.read_text(encoding="utf-8")):
            if not label or (sys.argv[1:] and not {label, page.name[:2]} & set(sys.argv[1:])):
                continue
            labels += 1
            if label in known.legends:
                found = proof.prove(latex, known.legends[label], seed)
                how = collections.Counter(wrong.how for wrong in found.misprints)
                noticed += how
                evaluated += found.passed
                worst = max(worst, found.error)
                faults += not found.passed or bool(how["missed"])
                said = f"FAILED {found.message}" if not found.passed else f"{dict(how)}"
                print(f"{label:38} error {scientific(found.error):>8}  {1000 * found.seconds:5.0f} ms  {said}")
                for wrong in found.misprints:
                    if wrong.how == "missed":
                        print(f"    missed ({wrong.kind}): {wrong.latex}")
            elif label in known.pins and known.pins[label].digest == digest(latex):
                pinned += 1
                print(f"{label:38} read, not evaluated: {known.pins[label].because}")
            else:
                faults += 1
                print(f"{label:38} EDITED or without a legend; its digest is {digest(latex)}")
    print(
        f"seed {seed}: {labels} labels, {evaluated} evaluated ({evaluated / max(labels, 1):.0%}), {pinned} read only, worst error "
        f"{scientific(worst)}; misprints: {noticed.total()}, {dict(noticed)}; {time.perf_counter() - start:.0f} s"
    )
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
