"""The experiments over several seeds: which results still match this code, and why others do not.

minirlhf verify studies            list them; exit status 1 if one is stale
minirlhf verify studies --run      rerun the stale studies only
minirlhf verify studies NAME ...   the same for some studies

A study is stale if its own code (its script, and the modules of its chapter that it imports) has changed, or if its
probe (a few seconds of it) gives other numbers. --record is for an edit of its own code that changes no behaviour, and
for a probe that was rewritten. It is refused if an unchanged probe gives other numbers, or if a number of the old probe
has changed or disappeared, also under another name, unless --accept names that number. A new setting that is not 0, 1
or nothing also needs --accept.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: names of studies, and actions."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="names of studies (default: all)")
    parser.add_argument("--run", action="store_true", help="rerun the stale studies, minutes each")
    parser.add_argument(
        "--record",
        action="store_true",
        help="store the code and the probe of today without a rerun, after an edit that changes no behaviour",
    )
    parser.add_argument(
        "--accept",
        action="append",
        default=[],
        metavar="NUMBER",
        help="with --record and one name: a number of the probe that changed or disappeared as the probe was rewritten, or a new "
        "setting that equals the previous behaviour; repeatable",
    )


def run(args: argparse.Namespace) -> int:
    """List, run or record; return 1 if a study is stale afterwards."""
    from minirlhf.core.errors import UserError, unknown
    from minirlhf_course.evidence.study import discover

    all_studies = discover()
    for name in args.names:
        if name not in all_studies:
            raise unknown("study", name, all_studies)
    if args.record and (args.run or not args.names):
        raise UserError("--record needs the names of studies, and excludes --run", argument="--record")
    if args.accept and not (args.record and len(args.names) == 1):
        raise UserError("--accept needs --record and the name of one study", argument="--accept", expected="--record")
    num_stale = 0
    for name in args.names or all_studies:
        script = all_studies[name]
        if args.record:
            print(f"{name}: recorded. Accepted without a rerun:", *script.record(args.accept), sep="\n    ")
        start = time.process_time()
        reasons = script.stale()
        print(f"{name:24} {'stale: ' + '; '.join(reasons) if reasons else 'fresh'}", end="", flush=True)
        print(f"  ({time.process_time() - start:.1f} s)")
        if reasons and args.run:
            process = subprocess.run([sys.executable, "-P", str(script.path)])
            num_stale += process.returncode != 0
        else:
            num_stale += bool(reasons)
    return 1 if num_stale else 0
