"""The failure gallery: runs that one changed line breaks, made live in seconds.

minirlhf gallery                     all failures, one line each
minirlhf gallery sign                run it beside the healthy one: the line, the metrics, cause, fix, what the doctor says
minirlhf gallery sign --out runs/x   the same, and keep the metrics of both for `minirlhf plot` and `minirlhf doctor`
minirlhf gallery --quiz 5            five panels: which line was changed, if one was?
"""

from __future__ import annotations

import argparse
import math
import random
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from minirlhf.core.errors import UserError

if TYPE_CHECKING:
    from minirlhf.gallery.failure import BrokenRun
    from minirlhf.trainers.history import History

BARS = "▁▂▃▄▅▆▇█"
CHOICES = 5
#: The answer to a panel of a healthy run, and the share of such panels.
NOTHING, HEALTHY = "Nothing: the run is healthy", 0.2


def configure(parser: argparse.ArgumentParser) -> None:
    """A name, or a quiz."""
    parser.add_argument("name", nargs="?", help="a failure; without a name, all of them")
    parser.add_argument("--seed", type=int, default=0, help="of the run, or of the quiz (default 0)")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="write the metrics of both runs there")
    parser.add_argument("--quiz", type=int, metavar="N", help="show N panels, and ask")


def run(args: argparse.Namespace) -> int:
    """List, show one, or ask."""
    from minirlhf.gallery.catalogue import gallery, get

    if args.seed < 0:
        raise UserError(f"--seed {args.seed}; expected at least 0", argument="--seed", value=args.seed, expected=0)
    if args.quiz is not None:
        if args.name is not None or args.out is not None:
            raise UserError(
                "--quiz goes with --seed alone: it picks the failures itself", argument="--quiz", expected="--seed"
            )
        if not 1 <= args.quiz <= len(gallery()):
            raise UserError(
                f"--quiz {args.quiz}; expected 1 to {len(gallery())}",
                argument="--quiz",
                value=args.quiz,
                expected=(1, len(gallery())),
            )
        return quiz(args.quiz, args.seed)
    if args.name is None:
        if args.out is not None:
            raise UserError(
                "--out needs the name of a failure: minirlhf gallery lists them", argument="--out", expected="NAME"
            )
        for failure in gallery().values():
            print(f"{failure.name:<22}{failure.title}")
        return 0
    show(get(args.name), args.seed, args.out)
    return 0


def show(failure: BrokenRun, seed: int, out: Path | None) -> None:
    """Both runs, and what there is to say."""
    from minirlhf.report.diagnosis import diagnose

    if out is not None and out.exists() and any(out.iterdir()):
        raise UserError(
            f"{out} is there already and not empty; name another folder", argument="--out", problem="exists", file=out
        )
    print(f"{failure.title}\n\n  {failure.line}\n")
    if failure.source:
        print(textwrap.indent(failure.source, "  "))
    broken, healthy = failure.run(seed), failure.healthy.run(seed)
    panel(failure.panel, broken, healthy)
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    for title, text in (
        ("symptom", failure.symptom), ("cause", failure.cause), ("fix", failure.fix), ("check", failure.check),
    ):  # fmt: skip
        print(textwrap.fill(text, width, initial_indent=f"{title:<10}", subsequent_indent=" " * 10))
    named = [f"{finding.title} ({finding.evidence})" for finding in diagnose(broken)] or ["nothing"]
    print(textwrap.fill("; ".join(named), width, initial_indent=f"{'doctor':<10}", subsequent_indent=" " * 10))
    if out is not None:
        for name, history in (("broken", broken), ("healthy", healthy)):
            write(history, out / name)
        print(f"written: {out}/broken, {out}/healthy; minirlhf plot {out}/broken {out}/healthy")


def write(history: History, folder: Path) -> None:
    """The metrics as a run writes them."""
    from minirlhf.trainers.history import History

    folder.mkdir(parents=True)
    file = History(folder / "metrics.jsonl")
    for row in history:
        file.append(int(row["step"]), **{name: value for name, value in row.items() if name != "step"})


def panel(names: Sequence[str], broken: History, healthy: History | None) -> None:
    """These metrics, as far as the run has them, as bars from the first step to the last, and as numbers: the first row, the median of the last fifth.

    One value in twenty on either side does not set the scale: a single leap would make all else look alike.
    """
    for name in names:
        if not any(math.isfinite(row.get(name, math.nan)) for row in broken):
            continue
        rows = [("broken", broken)] if healthy is None else [("broken", broken), ("healthy", healthy)]
        shown = [(kind, [x for x in history[name] if math.isfinite(x)]) for kind, history in rows]
        every = sorted(x for _, values in shown for x in values)
        low, high = every[len(every) // 20], every[-1 - len(every) // 20]
        for kind, values in shown:
            label = f"{name:<22}" if healthy is None else f"{name:<22}{kind:<9}"
            print(
                f"{label}{bars(values, low, high)}  {values[0]:.3g} → {median(values[-max(1, len(values) // 5) :]):.3g}"
            )
    print()


def bars(values: Sequence[float], low: float, high: float, count: int = 40) -> str:
    """Means of neighbouring values as blocks between ``low`` and ``high``; what lies beyond is drawn as these."""
    size = max(1, math.ceil(len(values) / count))
    means = [sum(part) / len(part) for i in range(0, len(values), size) if (part := values[i : i + size])]
    span = high - low or 1.0
    return "".join(BARS[min(len(BARS) - 1, max(0, int((x - low) / span * len(BARS))))] for x in means)


def quiz(count: int, seed: int) -> int:
    """Ask; exit status 1 if an answer was wrong."""
    from minirlhf.core.randomness import derive_seed
    from minirlhf.gallery.catalogue import gallery

    draws, every = random.Random(derive_seed("gallery quiz", seed)), list(gallery().values())
    right = 0
    for number, failure in enumerate(draws.sample(every, count), 1):
        healthy = draws.random() < HEALTHY
        alike = [f for f in every if type(f.healthy) is type(failure.healthy)]
        names = list(dict.fromkeys(name for f in alike for name in f.panel))  # the same for all: a choice would tell
        others = _others(failure, alike)
        draws.shuffle(others)
        others = sorted(others, key=lambda f: _has_critic(f) != _has_critic(failure))[: CHOICES - 2]
        choices = [failure.title, *(other.title for other in others), NOTHING]
        draws.shuffle(choices)
        truth, told = (NOTHING, "This is the run without the fault") if healthy else (failure.title, failure.symptom)
        print(f"{number} of {count}. A run, first step to last:\n", flush=True)
        panel(names, (failure.healthy if healthy else failure).run(seed + number), None)
        for letter, choice in zip("ABCDE", choices, strict=False):
            print(f"  {letter}  {choice}")
        answer = ask("ABCDE"[: len(choices)])
        good = choices["ABCDE".index(answer)] == truth
        right += good
        print(f"{'Right' if good else f'No: {truth}'}. {told.rstrip('.')}.\n")
    print(f"{right} of {count} right")
    return 0 if right == count else 1


def _others(failure: BrokenRun, alike: Sequence[BrokenRun]) -> list[BrokenRun]:
    """Wrong answers: of runs that show the same metrics, and something else in them. Who speaks of a critic is asked for runs that have one:
    elsewhere the answer would be known to be wrong. The two of them share a finding, and the gradient tells them apart."""
    return [
        other
        for other in alike
        if other is not failure
        and (_has_critic(failure) or not _has_critic(other))
        and ((_has_critic(failure) and _has_critic(other)) or not set(other.findings) & set(failure.findings))
    ]


def _has_critic(failure: BrokenRun) -> bool:
    recipe = getattr(failure.healthy, "recipe", None)
    return recipe is not None and recipe.credit.critic is not None


def ask(letters: str) -> str:
    """One of the letters."""
    while True:
        try:
            answer = input(f"which? ({', '.join(letters)}) ").strip().upper()
        except EOFError:
            raise UserError(
                "the quiz asks at the keyboard, and there is none", argument="--quiz", problem="no keyboard"
            ) from None
        if answer in letters and len(answer) == 1:
            return answer
        print(f"expected one letter of {letters}", file=sys.stderr)
