"""The trained checkpoints that come with the project: list them, or train and cache some now.

minirlhf models                          list the entries and whether they are cached
minirlhf models assistant-sft --out DIR  copy one checkpoint to a folder
minirlhf models --all                    train all checkpoints that are not cached
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: names of entries, or all."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="entries to train if they are not cached")
    parser.add_argument("--all", action="store_true", help="all entries")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="copy the entry to this folder (one name only)")


def run(args: argparse.Namespace) -> int:
    """List the entries, or train those that are named."""
    from minirlhf.core.errors import UserError
    from minirlhf.stages import zoo

    names = list(zoo.ENTRIES) if args.all else args.names
    for name in names:
        zoo.get(name)  # report unknown names before any training starts
    if args.out is not None and len(names) != 1:
        raise UserError(
            f"--out takes one entry; {len(names)} were named", argument="--out", value=len(names), expected=1
        )
    if args.out is not None and args.out.exists():
        raise UserError(
            f"{args.out}: exists already; --out names a new folder", argument="--out", problem="exists", file=args.out
        )
    for name in names:
        print(f"{name}: {zoo.path(name)}")
    if args.out is not None:
        shutil.copytree(zoo.path(names[0]), args.out)
        print(f"copied to {args.out}")
    if not names:
        for name, entry in zoo.ENTRIES.items():
            print(f"{name:18} {'cached' if zoo.is_cached(name) else '-':8} {entry.about}")
    return 0
