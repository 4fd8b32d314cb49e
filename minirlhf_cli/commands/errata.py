"""Errors in the texts that the course teaches from, each with the computation that demonstrates it.

minirlhf verify errata                 all errata: value as printed, as corrected, and by an independent computation
minirlhf verify errata which_psi       one erratum in full, with its code
"""

from __future__ import annotations

import argparse
import shutil
import textwrap


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the argument: the name of an erratum."""
    parser.add_argument("name", nargs="?", help="an erratum; without a name, all errata")


def run(args: argparse.Namespace) -> int:
    """Compute the errata; return 1 if a correction does not hold."""
    from minirlhf_course.errata.catalogue import errata, get

    selected = errata().values() if args.name is None else [get(args.name)]
    all_hold = True
    for erratum in selected:
        result = erratum.compute()
        all_hold = all_hold and result.holds
        numbers = (
            f"as printed {result.printed:.4g}, corrected {result.right:.4g}, computed independently {result.exact:.4g}"
        )
        if args.name is None:
            print(f"{erratum.name:<22}{numbers}{'' if result.holds else '   DOES NOT HOLD'}")
            continue
        width = min(shutil.get_terminal_size((100, 24)).columns, 120)
        print(f"{erratum.title}\n")
        for label, text in (("where", erratum.where), ("says", erratum.says), ("today", erratum.today), ("correct", erratum.correction), ("measured", f"{result.quantity}: {numbers}")):  # fmt: skip
            print(textwrap.fill(text, width, initial_indent=f"{label:<10}", subsequent_indent=" " * 10))
        print(f"\n{textwrap.indent(erratum.code, '  ')}")
    return 0 if all_hold else 1
