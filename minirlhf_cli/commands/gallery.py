"""The failure gallery: runs that one changed line breaks, trained live in seconds.

minirlhf doctor gallery                     list all failures, one line each
minirlhf doctor gallery sign                run it and the healthy run: line, metrics, cause, fix, and the doctor's diagnosis
minirlhf doctor gallery sign --out runs/x   the same, and save the metrics of both for `minirlhf plot` and `minirlhf doctor`
minirlhf doctor gallery --quiz 5            five panels: which line was changed, if any?
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

from minirlhf.core.errors import UserError, unknown
from minirlhf_cli.settings import require_at_least

if TYPE_CHECKING:
    from minirlhf.trainers.history import History
    from minirlhf_course.gallery.failure import BrokenRun

BARS = "▁▂▃▄▅▆▇█"
CHOICES = 5
#: The answer to a panel of a healthy run, and the probability of such a panel.
NOTHING, HEALTHY = "Nothing: the run is healthy", 0.2


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: the name of a failure, or a quiz."""
    parser.add_argument("name", nargs="?", help="a failure; without a name, list all failures")
    parser.add_argument("--seed", type=int, default=0, help="seed of the run or of the quiz (default: 0)")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="folder for the metrics of both runs")
    parser.add_argument("--quiz", type=int, metavar="N", help="quiz with N panels")


def run(args: argparse.Namespace) -> int:
    """List the failures, show one, or start the quiz."""
    from minirlhf_course.gallery.failure import texts  # not the runs, whose modules import torch

    require_at_least(0, args, "seed")
    if args.quiz is not None:
        if args.name is not None or args.out is not None:
            raise UserError(
                "--quiz goes with --seed only: it selects the failures itself", argument="--quiz", expected="--seed"
            )
        if not 1 <= args.quiz <= len(texts()):
            raise UserError(
                f"--quiz {args.quiz}; expected 1 to {len(texts())}",
                argument="--quiz",
                value=args.quiz,
                expected=(1, len(texts())),
            )
        return quiz(args.quiz, args.seed)
    if args.name is None:
        if args.out is not None:
            raise UserError(
                "--out needs the name of a failure; minirlhf doctor gallery lists the names",
                argument="--out",
                expected="NAME",
            )
        for name, text in texts().items():
            print(f"{name:<22}{text['title']}")
        return 0
    if args.name not in texts():
        raise unknown("failure", args.name, texts())
    from minirlhf_course.gallery.catalogue import gallery

    show(gallery()[args.name], args.seed, args.out)
    return 0


def show(failure: BrokenRun, seed: int, out: Path | None) -> None:
    """Run the failure and the healthy run; print their metrics, the cause, the fix and the diagnosis."""
    from minirlhf_course.report.diagnosis import diagnose

    if out is not None and out.exists() and any(out.iterdir()):
        raise UserError(f"{out} is not empty; name another folder", argument="--out", problem="exists", file=out)
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
    diagnosis = [f"{finding.title} ({finding.evidence})" for finding in diagnose(broken)] or ["nothing"]
    print(textwrap.fill("; ".join(diagnosis), width, initial_indent=f"{'doctor':<10}", subsequent_indent=" " * 10))
    if out is not None:
        for name, history in (("broken", broken), ("healthy", healthy)):
            write(history, out / name)
        print(f"saved to {out}/broken and {out}/healthy; plot them with: minirlhf plot {out}/broken {out}/healthy")


def write(history: History, folder: Path) -> None:
    """Write the metrics to a folder, in the format of a run."""
    from minirlhf.trainers.history import History

    folder.mkdir(parents=True)
    file = History(folder / "metrics.jsonl")
    for row in history:
        file.append(int(row["step"]), **{name: value for name, value in row.items() if name != "step"})


def panel(names: Sequence[str], broken: History, healthy: History | None) -> None:
    """Print the metrics that the run has as bars over the steps, with the first value and the median of the last 20 %.

    The largest and smallest 5 % of the values do not set the scale: one outlier would make all other values look equal.
    """
    for name in names:
        if not any(math.isfinite(row.get(name, math.nan)) for row in broken):
            continue
        rows = [("broken", broken)] if healthy is None else [("broken", broken), ("healthy", healthy)]
        curves = [(kind, [x for x in history[name] if math.isfinite(x)]) for kind, history in rows]
        all_values = sorted(x for _, values in curves for x in values)
        low, high = all_values[len(all_values) // 20], all_values[-1 - len(all_values) // 20]
        for kind, values in curves:
            label = f"{name:<22}" if healthy is None else f"{name:<22}{kind:<9}"
            print(
                f"{label}{bars(values, low, high)}  {values[0]:.3g} → {median(values[-max(1, len(values) // 5) :]):.3g}"
            )
    print()


def bars(values: Sequence[float], low: float, high: float, count: int = 40) -> str:
    """Draw means of neighbouring values as blocks between ``low`` and ``high``; values outside are clipped."""
    size = max(1, math.ceil(len(values) / count))
    means = [sum(part) / len(part) for i in range(0, len(values), size) if (part := values[i : i + size])]
    span = high - low or 1.0
    return "".join(BARS[min(len(BARS) - 1, max(0, int((x - low) / span * len(BARS))))] for x in means)


def quiz(count: int, seed: int) -> int:
    """Run the quiz; return 1 if an answer was wrong."""
    from minirlhf.core.randomness import derive_seed
    from minirlhf_course.gallery.catalogue import gallery

    rng, all_failures = random.Random(derive_seed("gallery quiz", seed)), list(gallery().values())
    num_correct = 0
    for number, failure in enumerate(rng.sample(all_failures, count), 1):
        healthy = rng.random() < HEALTHY
        similar = [f for f in all_failures if type(f.healthy) is type(failure.healthy)]
        names = list(dict.fromkeys(name for f in similar for name in f.panel))  # a selection would give the answer away
        others = _others(failure, similar)
        rng.shuffle(others)
        others = sorted(others, key=lambda f: _logs(f) != _logs(failure))[: CHOICES - 2]
        choices = [failure.title, *(other.title for other in others), NOTHING]
        rng.shuffle(choices)
        label, text = (NOTHING, "This is the run without the fault") if healthy else (failure.title, failure.symptom)
        print(f"{number} of {count}. A run, first step to last:\n", flush=True)
        panel(names, (failure.healthy if healthy else failure).run(seed + number), None)
        for letter, choice in zip("ABCDE", choices, strict=False):
            print(f"  {letter}  {choice}")
        answer = ask("ABCDE"[: len(choices)])
        correct = choices["ABCDE".index(answer)] == label
        num_correct += correct
        print(f"{'Right' if correct else f'No: {label}'}. {text.rstrip('.')}.\n")
    print(f"{num_correct} of {count} right")
    return 0 if num_correct == count else 1


def _others(failure: BrokenRun, similar: Sequence[BrokenRun]) -> list[BrokenRun]:
    """Return wrong answers: failures of the same kind of run with other findings.

    A failure of the critic is offered only for runs with a critic, and a failure that a logged cost shows only for runs
    that log the costs; elsewhere it would be obviously wrong. The two failures of the critic share a finding, but their
    gradient norms differ.
    """
    return [
        other
        for other in similar
        if other is not failure
        and _logs(other) <= _logs(failure)
        and ("critic" in _logs(other) or not set(other.findings) & set(failure.findings))
    ]


def _logs(failure: BrokenRun) -> set[str]:
    """Return the groups of metrics that only some online runs log: of a critic, and costs."""
    recipe = getattr(failure.healthy, "recipe", None)
    has = {
        "critic": recipe is not None and recipe.credit.critic is not None,
        "costs": getattr(failure.healthy, "costs", False),
    }
    return {name for name, logged in has.items() if logged}


def ask(letters: str) -> str:
    """Ask until the answer is one of the letters; return it."""
    while True:
        try:
            answer = input(f"which? ({', '.join(letters)}) ").strip().upper()
        except EOFError:
            raise UserError(
                "the quiz needs a keyboard, but standard input has ended", argument="--quiz", problem="no keyboard"
            ) from None
        if answer in letters and len(answer) == 1:
            return answer
        print(f"expected one letter of {letters}", file=sys.stderr)
