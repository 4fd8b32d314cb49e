"""The command line: ``minirlhf COMMAND``. Each command is one module, imported only when it is called.

A command module has two functions: ``configure(parser)`` adds its arguments, ``run(args)`` does the work and returns the
exit status (None means 0). Status 1 means that a check failed, 2 that the input was invalid.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from minirlhf import __version__
from minirlhf.core.errors import UserError, unknown
from minirlhf_cli import without_torch
from minirlhf_cli.foreign_options import hint

# name -> (module, one line of help). A new command needs one line here and one module; "class grade" is a sub-command.
COMMANDS: dict[str, tuple[str, str]] = {
    "tour": ("tour", "the whole pipeline on tiny models in two minutes, with a report"),
    "tour overopt": ("overopt", "optimise a proxy reward, track the gold reward: all figures of over-optimisation"),
    "train": ("train", "train on your own data or on a toy task"),
    "plan": ("plan", "memory and time of a training run before it starts, and what to change if it does not fit"),
    "evaluate": ("evaluate", "measure models on files of problems, with confidence intervals and paired comparisons"),
    "evaluate bestofn": ("bestofn", "best-of-n completions for a file of prompts, and the gain for each n"),
    "evaluate judge": ("judge", "compare two files of completions with a language-model judge, in both orders"),
    "evaluate power": ("power", "sample size to compare two models, or the minimum detectable effect"),
    "evaluate spec": ("spec", "check a model against rules that must or should hold, and find regressions"),
    "chat": ("chat", "talk to a model, or to two side by side, and see the most probable tokens"),
    "data": ("data", "inspect data: format, token counts, dropped rows, loss mask, label biases; write sample files"),
    "plot": ("plot", "plot the metrics of runs: overlaid, seeds as bands; or for TensorBoard"),
    "explain": ("explain", "one sample of a training step by token: reward, advantage, gradient share"),
    "doctor": ("doctor", "diagnose a run from its metrics; without a run, check this machine and estimate its speed"),
    "doctor faq": ("faq", "frequent questions about runs: an answer, and a command that demonstrates it"),
    "doctor gallery": ("gallery", "runs that one changed line breaks: watch them, or guess the line in a quiz"),
    "doctor metrics": ("metrics", "what the metrics of a run mean, and what a bad curve indicates"),
    "recipes": ("recipes", "the online algorithms as one table of their components"),
    "models": ("models", "trained checkpoints by name: list, train, copy"),
    "export": ("export", "export a run to another framework: model, data, grader, script, differences"),
    "verify": ("verify", "check the book's equations against exact reference values"),
    "verify errata": ("errata", "errors in the texts that the course teaches from, each with its computation"),
    "verify studies": ("studies", "experiments over several seeds: which results are stale and why; rerun them"),
    "check": ("check", "check your answers to a chapter's exercises, with hints"),
    "check progress": ("progress", "your progress through the exercises: points, and what is next"),
    "challenge": ("challenge", "most gold reward within a KL limit and a budget of labels: start, score, board"),
    "class release": ("release", "make the exercises' notebooks for students, without solutions"),
    "class export": ("class_export", "package a chapter for Moodle, Canvas, Gradescope, GitHub or Otter"),
    "class calendar": (
        "class_calendar",
        "the weeks of a syllabus as a calendar file, from the first day of the course",
    ),
    "class collect": ("collect", "sort a download from Canvas, Moodle or GitHub Classroom, to grade it"),
    "class grade": ("grade", "grade a class's submissions, each in its own sandbox"),
    "class export-grades": (
        "export_grades",
        "return grades: marks and feedback for Canvas, Moodle or GitHub Classroom",
    ),
    "class simulate": ("simulate", "generate a class of submissions of all kinds, to rehearse grading"),
    "class new-exercise": ("new_exercise", "for authors: create a new exercise from a skeleton"),
    "class check-exercise": ("check_exercise", "for authors: self-test exercises, in seconds"),
}


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are :class:`UserError`, so that all invalid input ends the same way."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see '{self.prog} --help')", problem="usage")


def _usage(group: str = "") -> str:
    """Return the commands, or those of one group, one per line."""
    names = [name for name in COMMANDS if f"{name} ".startswith(group and f"{group} ")]
    width = max(map(len, names))
    rows = "\n".join(f"  {name:<{width}}  {COMMANDS[name][1]}" for name in names)
    command = f"{group} COMMAND" if group else "COMMAND"
    return f"usage: minirlhf {command} [...]\n\n{rows}\n\n'minirlhf {command} --help' tells more. This is minirlhf {__version__}."


def find_command(argv: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Split the arguments after the name of a command, which has one word or two.

    Raises:
        UserError: no command has this name; the message has the nearest.
    """
    for words in (2, 1):
        if (name := " ".join(argv[:words])) in COMMANDS:
            return name, argv[words:]
    group = [name for name in COMMANDS if name.startswith(f"{argv[0]} ")]
    if group and len(argv) > 1:
        raise unknown("command", " ".join(argv[:2]), group)
    moved = [name for name in COMMANDS if name.endswith(f" {argv[0]}")]
    raise unknown("command", argv[0], moved or {name.split()[0] for name in COMMANDS})


def only_prints(argv: Sequence[str]) -> bool:
    """Whether these arguments ask for help or for the table of recipes, so that nothing is computed."""
    return "-h" in argv or "--help" in argv or argv[:1] == ["recipes"]


def dispatch(argv: Sequence[str]) -> int:
    """Run one command and return its exit status; errors propagate."""
    if not argv or argv[0] in ("-h", "--help"):
        print(_usage())
        return 0
    if argv[0] == "--version":
        print(__version__)
        return 0
    if (
        argv[0] not in COMMANDS
        and argv[1:] in ([], ["-h"], ["--help"])
        and any(c.startswith(f"{argv[0]} ") for c in COMMANDS)
    ):
        print(_usage(argv[0]))
        return 0
    name, rest = find_command(argv)
    module_name, summary = COMMANDS[name]
    module = importlib.import_module(f"{__name__}.commands.{module_name}")
    nested = [command for command in COMMANDS if command.startswith(f"{name} ")]
    parser = Parser(
        prog=f"minirlhf {name}",
        description=module.__doc__ or summary,
        epilog=f"see also: {', '.join(f'minirlhf {command}' for command in nested)}" if nested else None,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.configure(parser)
    args, extra = parser.parse_known_args(rest)
    if extra:
        raise _unknown_argument(extra[0], parser, rest)
    return int(module.run(args) or 0)


def _unknown_argument(name: str, parser: argparse.ArgumentParser, argv: Sequence[str]) -> UserError:
    """Return the error for an argument that the command, or the sub-command among ``argv``, does not accept."""
    options: set[str] = set()
    for action in parser._actions:
        options.update(action.option_strings)
        for command, sub in (action.choices or {}).items() if isinstance(action, argparse._SubParsersAction) else ():
            if command in argv:
                return _unknown_argument(name, sub, argv)
    if name.startswith("-"):
        kind, option = f"option of '{parser.prog}'", name.split("=")[0]
        return hint(kind, option, options) or unknown(kind, option, options)
    return UserError(f"unexpected argument {name!r} (see '{parser.prog} --help')", argument=name, problem="unknown")


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point. Invalid input prints one line on standard error and returns exit status 2; Ctrl-C returns 130."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that cannot encode Greek letters shows "?"
            stream.reconfigure(errors="replace")
    if argv is None and only_prints(sys.argv[1:]):  # this process is the command's own, and ends after it
        without_torch.install()
    try:
        status = dispatch(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader (`| head`) has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except UserError as error:
        print(f"minirlhf: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # a name that is too long, a file that vanished, a full disk
        if error.filename is None:
            raise
        name = str(error.filename)
        shown = name if len(name) <= 200 else f"{name[:200]}…"
        print(f"minirlhf: {shown}: {error.strerror}; expected a path that can be used", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("minirlhf: interrupted", file=sys.stderr)
        return 130
