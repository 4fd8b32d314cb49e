"""Check the book's equations against exact oracles, on fresh inputs at every run.

Without arguments the whole ledger is run. Exit status 1 means that a check failed; the command that repeats it on the
same inputs is printed. With a Markdown file it is the reader's own derivation that is checked, in a box of its own.
"""

from __future__ import annotations

import argparse
import json
import secrets
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from minirlhf.core.errors import UserError, unknown

if TYPE_CHECKING:
    from minirlhf.ledger.registry import Check, Ledger


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "labels",
        nargs="*",
        metavar="LABEL",
        help="equations to check, e.g. eq:k3; or one file of your own, e.g. mine.md",
    )
    parser.add_argument("--chapter", type=int, metavar="N", help="the equations of one chapter")
    parser.add_argument("--all", action="store_true", help="every equation (the default)")
    parser.add_argument("--seed", type=int, metavar="S", help="repeat the inputs of an earlier run")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--html", metavar="PAGE", help="write your own file, with its marks, as a page")
    parser.add_argument("--show", metavar="LABEL", help="a reader's page: statement, code and check of one equation")
    parser.add_argument("--chains", action="store_true", help="list the derivations and their steps")
    parser.add_argument(
        "--peers", action="store_true", help="where other libraries agree, and where conventions differ"
    )


def _selected(args: argparse.Namespace, ledger: Ledger) -> list[Check]:
    for label in args.labels:
        if label not in ledger.labels():
            raise unknown("label", label, ledger.labels())
    checks = ledger.select(args.labels, args.chapter)
    if not checks:
        chapters = sorted({c.chapter for c in ledger.checks.values()})
        raise UserError(
            f"chapter {args.chapter} has no checks; chapters that have: {', '.join(map(str, chapters))}",
            argument="--chapter",
            value=args.chapter,
            expected=chapters,
        )
    return checks


def _one_mode(args: argparse.Namespace) -> None:
    given = {
        "LABEL": bool(args.labels),
        "--chapter": args.chapter is not None,
        "--all": args.all,
        "--show": args.show is not None,
        "--chains": args.chains,
        "--peers": args.peers,
    }
    chosen = [name for name, on in given.items() if on]
    if len(chosen) > 1:
        raise UserError(f"{' and '.join(chosen)} do not go together; give one of them", argument=" ".join(chosen))
    if args.json and chosen and chosen[0] in ("--show", "--chains", "--peers"):
        raise UserError(f"--json does not go with {chosen[0]}", argument="--json", value=chosen[0])


def _own(args: argparse.Namespace, path: Path, seed: int) -> int:
    """Check a reader's own derivation: proof marks, or the first step that fails."""
    if len(args.labels) > 1 or args.json or args.chapter is not None:
        raise UserError(
            f"{path} is a file of your own; give it alone, with --seed and --html if you like",
            argument="LABEL",
            value=str(path),
        )
    from minirlhf.classroom import runner
    from minirlhf.classroom.testing import Failure
    from minirlhf.ledger.formulas import derivation
    from minirlhf.report import derivation as report

    text, steps = derivation.read(path)
    cell = ("cell of the checker", "from minirlhf.ledger.formulas.derivation_names import check")
    limits = runner.Limits(cpu=60, wall=180.0, memory=2 << 30)
    with runner.Server() as server:
        box = runner.SandboxedSubmission(server, [cell], derivation.library(), "", limits)
        try:
            verdicts = box.call("check", ([step.as_data() for step in steps], seed), {})
        except Failure as problem:
            raise UserError.about(f"{path}: {problem}", problem, file=path) from None
        finally:
            box.close()
    print(derivation.report(path, steps, verdicts, seed))
    if args.html:
        report.write(Path(args.html), path.name, text, steps, verdicts, seed)
        print(f"wrote {args.html}")
    return 0 if all(verdict["holds"] for verdict in verdicts) else 1


def _verify(checks: list[Check], seed: int, as_json: bool) -> int:
    from minirlhf.ledger import pages as reader
    from minirlhf.ledger.registry import run as run_check

    if not as_json:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        return 0 if reader.run_and_print(checks, seed, width) else 1
    start = time.perf_counter()
    results = [run_check(entry, seed) for entry in checks]
    print(json.dumps(reader.as_json(results, time.perf_counter() - start), indent=2, ensure_ascii=False))
    return 0 if all(result.passed for result in results) else 1


def run(args: argparse.Namespace) -> int:
    """Run the command; 1 if a check failed."""
    import torch

    from minirlhf.chapters import load_checks
    from minirlhf.ledger import pages as reader

    _one_mode(args)
    torch.set_num_threads(1)
    seed = secrets.randbelow(2**31) if args.seed is None else args.seed
    own = [label for label in args.labels if label.endswith(".md")]
    if own:
        return _own(args, Path(own[0]), seed)
    if args.html:
        raise UserError(
            "--html goes with a file of your own: minirlhf verify mine.md --html page.html",
            argument="--html",
            value=args.html,
        )
    ledger = load_checks()
    width = shutil.get_terminal_size((120, 24)).columns
    if args.show is not None:
        if args.show not in ledger.labels():
            raise unknown("label", args.show, ledger.labels())
        text, passed = reader.page(ledger, args.show, seed, width)
        promises, kept = reader.promises(ledger, args.show, seed)
        print(f"{text}\n\n{promises}")
        return 0 if passed and kept else 1
    if args.chains:
        print(reader.chain_list(ledger, width))
        return 0
    if args.peers:
        from minirlhf.ledger import peers

        measured = peers.rows(seed)
        print(f"{peers.table(measured)}\nseed {seed}")
        return 0 if all(row.holds for row in measured) else 1
    return _verify(_selected(args, ledger), seed, args.json)
