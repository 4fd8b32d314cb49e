"""A challenge whose scores anybody can replay: most gold reward within a KL limit and a budget of gold labels.

  minirlhf challenge start --out try                      a file to start from, and three baselines
  minirlhf challenge score try/mine.py --seed 0           its score in the worlds of this seed, and a digest
  minirlhf challenge board submissions --out board.html   all files of a folder, in the worlds of a fresh seed

A submission is one Python file with a function train(). It runs in a sandbox without this package, a network, or the
gold reward. Its score is computed outside, from the policy that it returns. Exit status 1 means that it was refused.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Three sub-commands."""
    commands = parser.add_subparsers(dest="command", required=True, metavar="start | score | board")
    begun = commands.add_parser("start", help="write a file to start from, and the baselines", allow_abbrev=False)
    begun.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="folder for the files")
    scored = commands.add_parser("score", help="score one submission", allow_abbrev=False)
    scored.add_argument("file", type=Path, metavar="FILE", help="a submission")
    scored.add_argument("--seed", type=int, default=0, metavar="INT", help="seed of the worlds (default: 0)")
    board = commands.add_parser("board", help="score a folder and write its board", allow_abbrev=False)
    board.add_argument("folder", type=Path, metavar="FOLDER", help="folder with one Python file per submission")
    board.add_argument("--out", type=Path, required=True, metavar="FILE", help="the HTML page to write")
    board.add_argument(
        "--seed", type=int, metavar="INT", help="seed of the worlds (default: a fresh one, printed first)"
    )
    board.add_argument(
        "--allow-weak-isolation",
        action="store_true",
        help="score even if this system cannot hide this process from a submission; only for authors you trust",
    )


def run(args: argparse.Namespace) -> int:
    """Run one sub-command; return 1 if the submission is refused."""
    from minirlhf.core.errors import UserError

    seed = getattr(args, "seed", None)
    if seed is not None and not 0 <= seed < 1 << 63:
        message = f"--seed {seed}: expected an integer from 0 to 2^63 − 1"
        raise UserError(message, argument="--seed", value=seed, expected="[0, 2^63)")
    return {"start": _start, "score": _score, "board": _board}[args.command](args)


def _start(args: argparse.Namespace) -> int:
    from importlib.resources import files

    from minirlhf.core.errors import UserError

    sources = sorted(files("minirlhf_course.challenge.entries").iterdir(), key=lambda source: source.name)
    texts = {s.name: s.read_text(encoding="utf-8") for s in sources if s.name.endswith(".py") and s.name[0] != "_"}
    if args.out.exists() and not args.out.is_dir():
        raise UserError(f"--out {args.out}: is a file; expected a folder", argument="--out", problem="file")
    for name in texts:
        if (args.out / name).exists():
            message = f"{args.out / name}: exists already; choose another folder"
            raise UserError(message, argument="--out", problem="exists", file=args.out / name)
    args.out.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (args.out / name).write_text(text, encoding="utf-8")
        print(f"wrote {args.out / name}")
    return 0


def _score(args: argparse.Namespace) -> int:
    import sys

    from minirlhf.sandbox import isolation
    from minirlhf_course.challenge import scoring
    from minirlhf_course.classroom.grading import plain

    source = scoring.read_source(args.file)
    with scoring.Servers([args.file.resolve().parent]) as servers:
        if not isolation.isolated(servers.first.level):
            print("warning: this system cannot isolate the file; score only authors you trust", file=sys.stderr)
        entry = scoring.score(servers, args.file.stem, source, args.seed)
    if entry.problem is not None:
        print(f"{args.file}: refused: {plain(str(entry.problem))}")
        return 1
    print("world   score    gold      KL  labels")
    for number, row in enumerate(entry.worlds, 1):
        print(f"{number:>5}  {row.score:6.3f}  {row.gold:6.3f}  {row.kl:6.3f}  {row.labels:>6}")
    print(f"score {entry.mean('score'):.6f}, standard error {entry.standard_error:.3f}")
    print(f"digest {entry.digest}, seed {args.seed}")
    return 0


def _board(args: argparse.Namespace) -> int:
    import secrets
    import sys

    from tqdm import tqdm

    from minirlhf.core.errors import UserError
    from minirlhf.core.folders import require_writable, write_text_atomic
    from minirlhf.sandbox import isolation
    from minirlhf_course.challenge import board, scoring

    paths = board.submissions(args.folder)
    require_writable(args.out)
    seed = secrets.randbits(62) if args.seed is None else args.seed
    print(f"seed {seed}", file=sys.stderr)
    with scoring.Servers([args.folder.resolve()]) as servers:
        if not isolation.isolated(servers.first.level) and not args.allow_weak_isolation:
            raise UserError(
                "this system cannot hide the scoring process from a submission; use Linux with user namespaces, or "
                "--allow-weak-isolation for authors you trust",
                argument="--allow-weak-isolation",
                value=servers.first.level,
            )
        results = list(tqdm(board.entries(servers, paths, seed), total=len(paths), desc="scoring", unit="submission"))
    write_text_atomic(args.out, board.page(results, seed))
    for entry in board.ranked(results):
        print(
            f"{entry.mean('score'):9.6f}  {entry.digest}  {entry.name}"
            if entry.worlds
            else f"  refused  {'':16}  {entry.name}"
        )
    print(f"wrote {args.out}; --seed {seed} replays it")
    return 0
