"""The measurements over several seeds: which results are still those of this code, and why others are not.

minirlhf studies            list them; exit status 1 if one is stale
minirlhf studies --run      run those that are stale, and no others
minirlhf studies NAME ...   the same for some of them

A study is stale if its script or the sizes of its runs have changed, or if its probe, a few seconds of it, gives other numbers.
--record is for a probe that was itself rewritten: it is refused where the study has changed, where the same probe has moved, and where
a number that it had before is another one now or gone, also under another name, unless that number is named by --accept. So is a new
setting that is not 0, 1 or nothing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time


def configure(parser: argparse.ArgumentParser) -> None:
    """Names, and what to do."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="some of them (default: all)")
    parser.add_argument("--run", action="store_true", help="run what is stale, minutes each")
    parser.add_argument(
        "--record",
        action="store_true",
        help="store the probes of today's code and measure nothing: for those whose probe alone was rewritten",
    )
    parser.add_argument(
        "--accept",
        action="append",
        default=[],
        metavar="NUMBER",
        help="with --record and one name: a number of the probe that is another one or gone because the probe was rewritten, or a new "
        "setting whose value is what was done without it; 'sizes', if the lab's stand in another order only; repeat it for each",
    )


def run(args: argparse.Namespace) -> int:
    """List, run or record; 1 if something is stale in the end."""
    from minirlhf.core.errors import UserError, unknown
    from minirlhf.evidence.study import discover

    found = discover()
    for name in args.names:
        if name not in found:
            raise unknown("study", name, found)
    if args.record and (args.run or not args.names):
        raise UserError("--record goes with the names of studies, and not with --run", argument="--record")
    if args.accept and not (args.record and len(args.names) == 1):
        raise UserError(
            "--accept goes with --record and the name of one study", argument="--accept", expected="--record"
        )
    left = 0
    for name in args.names or found:
        script = found[name]
        if args.record:
            print(f"{name}: recorded. Taken on trust:", *script.record(args.accept), sep="\n    ")
        began = time.process_time()
        reasons = script.stale()
        print(f"{name:24} {'stale: ' + '; '.join(reasons) if reasons else 'fresh'}", end="", flush=True)
        print(f"  ({time.process_time() - began:.1f} s)")
        if reasons and args.run:
            done = subprocess.run([sys.executable, "-P", str(script.path)])
            left += done.returncode != 0
        else:
            left += bool(reasons)
    return 1 if left else 0
