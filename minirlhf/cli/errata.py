"""Errata of the texts that the course teaches from, each with the computation that shows it.

minirlhf errata                 all of them: as printed, corrected, by another road
minirlhf errata which_psi       one of them whole, with its code
"""

from __future__ import annotations

import argparse
import shutil
import textwrap


def configure(parser: argparse.ArgumentParser) -> None:
    """A name."""
    parser.add_argument("name", nargs="?", help="an erratum; without a name, all of them")


def run(args: argparse.Namespace) -> int:
    """Compute; exit status 1 if one does not hold."""
    from minirlhf.errata.catalogue import errata, get

    chosen = errata().values() if args.name is None else [get(args.name)]
    ok = True
    for one in chosen:
        found = one.compute()
        ok = ok and found.holds
        numbers = f"as printed {found.printed:.4g}, corrected {found.right:.4g}, by another road {found.exact:.4g}"
        if args.name is None:
            print(f"{one.name:<22}{numbers}{'' if found.holds else '   DOES NOT HOLD'}")
            continue
        width = min(shutil.get_terminal_size((100, 24)).columns, 120)
        print(f"{one.title}\n")
        for label, text in (("where", one.where), ("says", one.says), ("truth", one.truth), ("measured", f"{found.quantity}: {numbers}")):  # fmt: skip
            print(textwrap.fill(text, width, initial_indent=f"{label:<10}", subsequent_indent=" " * 10))
        print(f"\n{textwrap.indent(one.code, '  ')}")
    return 0 if ok else 1
