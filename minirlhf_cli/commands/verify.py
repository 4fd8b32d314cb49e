"""Check the book's equations against exact reference values, on fresh inputs in each run.

Without arguments, all equations are checked. Exit status 1 means that a check failed; the command that repeats it on
the same inputs is printed. A Markdown file is checked as the reader's own derivation, in a sandbox.
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
from minirlhf_course import chapters

if TYPE_CHECKING:
    from minirlhf_course.ledger.registry import Check


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "labels",
        nargs="*",
        metavar="LABEL",
        help="equations to check, e.g. eq:k3; or one file of your own, e.g. mine.md",
    )
    parser.add_argument("--chapter", type=int, metavar="N", help="check the equations of one chapter")
    parser.add_argument("--all", action="store_true", help="check all equations (default)")
    parser.add_argument("--seed", type=int, metavar="S", help="repeat the inputs of an earlier run")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--html", metavar="PAGE", help="write your own file with its check marks as an HTML page")
    parser.add_argument("--show", metavar="LABEL", help="show statement, code and check of one equation")
    parser.add_argument("--chains", action="store_true", help="list the derivations and their steps")
    parser.add_argument(
        "--peers", action="store_true", help="compare with other libraries: agreements and differing conventions"
    )


def _require_checks(args: argparse.Namespace) -> None:
    """Refuse a label or a chapter without checks, before the checks, which import torch, are loaded."""
    known = chapters.read_labels()
    for label in [*args.labels, *([] if args.show is None else [args.show])]:
        if label not in known:
            raise unknown("label", label, known)
    checked = [chapter.number for chapter in chapters.chapters() if chapter.checks]
    if args.chapter is not None and args.chapter not in checked:
        raise UserError(
            f"chapter {args.chapter} has no checks; chapters that have: {', '.join(map(str, checked))}",
            argument="--chapter",
            value=args.chapter,
            expected=checked,
        )


def _one_mode(args: argparse.Namespace) -> None:
    modes = {
        "LABEL": bool(args.labels),
        "--chapter": args.chapter is not None,
        "--all": args.all,
        "--show": args.show is not None,
        "--chains": args.chains,
        "--peers": args.peers,
    }
    selected = [name for name, is_set in modes.items() if is_set]
    if len(selected) > 1:
        raise UserError(f"{' and '.join(selected)} are mutually exclusive", argument=" ".join(selected))
    if args.json and selected and selected[0] in ("--show", "--chains", "--peers"):
        raise UserError(f"--json does not go with {selected[0]}", argument="--json", value=selected[0])


def _own(args: argparse.Namespace, path: Path, seed: int) -> int:
    """Check a reader's own derivation; print check marks, or the first step that fails."""
    if len(args.labels) > 1 or args.json or args.chapter is not None:
        raise UserError(
            f"{path} is a file of your own; only --seed and --html can be combined with it",
            argument="LABEL",
            value=str(path),
        )
    from minirlhf_course.classroom import runner
    from minirlhf_course.classroom.testing import Failure
    from minirlhf_course.ledger.formulas import derivation
    from minirlhf_course.report import derivation as report

    text, steps = derivation.read(path)
    cell = ("cell of the checker", "from minirlhf_course.ledger.formulas.derivation_names import check")
    limits = runner.Limits(cpu=60, wall=180.0, memory=2 << 30)
    with runner.Server() as server:
        sandbox = runner.SandboxedSubmission(server, [cell], derivation.library(), "", limits)
        try:
            verdicts = sandbox.call("check", ([step.as_data() for step in steps], seed), {})
        except Failure as error:
            raise UserError.about(f"{path}: {error}", error, file=path) from None
        finally:
            sandbox.close()
    print(derivation.report(path, steps, verdicts, seed))
    if args.html:
        report.write(Path(args.html), path.name, text, steps, verdicts, seed)
        print(f"saved to {args.html}")
    return 0 if all(map(derivation.passed, verdicts)) else 1


def _verify(checks: list[Check], seed: int, as_json: bool) -> int:
    from minirlhf_course.ledger import pages as reader
    from minirlhf_course.ledger.registry import run as run_check

    if not as_json:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        return 0 if reader.run_and_print(checks, seed, width) else 1
    start = time.perf_counter()
    results = [run_check(check, seed) for check in checks]
    print(json.dumps(reader.as_json(results, time.perf_counter() - start), indent=2, ensure_ascii=False))
    return 0 if all(result.passed for result in results) else 1


def run(args: argparse.Namespace) -> int:
    """Run the command; return 1 if a check failed."""
    _one_mode(args)
    seed = secrets.randbelow(2**31) if args.seed is None else args.seed
    own_files = [label for label in args.labels if label.endswith(".md")]
    if own_files:
        return _own(args, Path(own_files[0]), seed)
    if args.html:
        raise UserError(
            "--html needs a file of your own: minirlhf verify mine.md --html page.html",
            argument="--html",
            value=args.html,
        )
    _require_checks(args)
    import torch

    from minirlhf_course.ledger import pages as reader

    torch.set_num_threads(1)
    ledger = chapters.load_checks()
    width = shutil.get_terminal_size((120, 24)).columns
    if args.show is not None:
        text, passed = reader.page(ledger, args.show, seed, width)
        invariants, invariants_hold = reader.promises(ledger, args.show, seed)
        print(f"{text}\n\n{invariants}")
        return 0 if passed and invariants_hold else 1
    if args.chains:
        print(reader.chain_list(ledger, width))
        return 0
    if args.peers:
        from minirlhf_course.ledger import peers

        comparisons = peers.rows(seed)
        print(f"{peers.table(comparisons)}\nseed {seed}")
        return 0 if all(row.holds for row in comparisons) else 1
    return _verify(ledger.select(args.labels, args.chapter), seed, args.json)
