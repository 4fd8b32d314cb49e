"""The models that have a name: tiny ones that are trained on first use, and a pretrained one from a Python package.

minirlhf models                          list them and whether they are cached
minirlhf models smollm2 --out DIR        copy one model to a folder
minirlhf models --all                    train all tiny models that are not cached
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: names of entries, or all."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="models to make if they are not cached")
    parser.add_argument("--all", action="store_true", help="all tiny models")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="copy the model to this folder (one name only)")


def run(args: argparse.Namespace) -> int:
    """List the models, or make those that are named."""
    from minirlhf.core.errors import UserError, unknown
    from minirlhf.models import pretrained
    from minirlhf.stages import zoo

    names = list(zoo.ENTRIES) if args.all else args.names
    for name in names:  # report unknown names before any training starts
        if name not in pretrained.WHEELS and name not in zoo.ENTRIES:
            raise unknown("model", name, [*zoo.ENTRIES, *pretrained.WHEELS])
    if args.out is not None and len(names) != 1:
        raise UserError(
            f"--out takes one model; {len(names)} were named", argument="--out", value=len(names), expected=1
        )
    if args.out is not None and args.out.exists():
        raise UserError(
            f"{args.out}: exists already; --out names a new folder", argument="--out", problem="exists", file=args.out
        )
    folders = {}
    for name in names:
        folders[name] = pretrained.folder(name) if name in pretrained.WHEELS else zoo.path(name)
        print(f"{name}: {folders[name]}")
    if args.out is not None:
        shutil.copytree(folders[names[0]], args.out)
        print(f"copied to {args.out}")
    if not names:
        for name, entry in zoo.ENTRIES.items():
            print(f"{name:18} {'cached' if zoo.is_cached(name) else '-':9} {entry.about}")
        for name, wheel in pretrained.WHEELS.items():
            state = "cached" if pretrained.is_cached(name) else "installed" if pretrained.is_installed(name) else "-"
            print(f"{name:18} {state:9} {wheel.about}")
    return 0
