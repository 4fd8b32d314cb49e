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

# name -> (module, one line of help). A new command needs one line here and one module.
COMMANDS: dict[str, tuple[str, str]] = {
    "tour": ("minirlhf_cli.commands.tour", "the whole pipeline on tiny models in two minutes, with a report"),
    "train": ("minirlhf_cli.commands.train", "train on your own data or on a toy task"),
    "evaluate": (
        "minirlhf_cli.commands.evaluate",
        "measure models on files of problems, with confidence intervals and paired comparisons",
    ),
    "power": ("minirlhf_cli.commands.power", "sample size to compare two models, or the minimum detectable effect"),
    "bestofn": (
        "minirlhf_cli.commands.bestofn",
        "best-of-n completions for a file of prompts, and the gain for each n",
    ),
    "judge": (
        "minirlhf_cli.commands.judge",
        "compare two files of completions with a language-model judge, in both orders",
    ),
    "spec": (
        "minirlhf_cli.commands.spec",
        "check a model against rules that must or should hold, and find regressions",
    ),
    "export": (
        "minirlhf_cli.commands.export",
        "export a run to another framework: model, data, grader, script, differences",
    ),
    "data": (
        "minirlhf_cli.commands.data",
        "inspect data: format, token counts, dropped rows, loss mask, label biases; write sample files",
    ),
    "explain": (
        "minirlhf_cli.commands.explain",
        "one sample of a training step by token: reward, advantage, gradient share",
    ),
    "recipes": ("minirlhf_cli.commands.recipes", "the online algorithms as one table of their components"),
    "chat": ("minirlhf_cli.commands.chat", "talk to a model, or to two side by side, and see the most probable tokens"),
    "plot": ("minirlhf_cli.commands.plot", "plot the metrics of runs: overlaid, seeds as bands; or for TensorBoard"),
    "metrics": ("minirlhf_cli.commands.metrics", "what the metrics of a run mean, and what a bad curve indicates"),
    "overopt": (
        "minirlhf_cli.commands.overopt",
        "optimise a proxy reward, track the gold reward: all figures of over-optimisation",
    ),
    "zoo": ("minirlhf_cli.commands.zoo", "trained checkpoints by name: list, train, copy"),
    "doctor": (
        "minirlhf_cli.commands.doctor",
        "diagnose a run from its metrics; without a run, check this machine and estimate its speed",
    ),
    "ask": (
        "minirlhf_cli.commands.ask",
        "frequent questions about runs: an answer, and a command that demonstrates it",
    ),
    "gallery": (
        "minirlhf_cli.commands.gallery",
        "runs that one changed line breaks: watch them, or guess the line in a quiz",
    ),
    "errata": (
        "minirlhf_cli.commands.errata",
        "errors in the texts that the course teaches from, each with its computation",
    ),
    "verify": ("minirlhf_cli.commands.verify", "check the book's equations against exact reference values"),
    "studies": (
        "minirlhf_cli.commands.studies",
        "experiments over several seeds: which results are stale and why; rerun them",
    ),
    "check": ("minirlhf_cli.commands.check", "check your answers to a chapter's exercises, with hints"),
    "progress": ("minirlhf_cli.commands.progress", "your progress through the exercises: points, and what is next"),
    "release": ("minirlhf_cli.commands.release", "make the exercises' notebooks for students, without solutions"),
    "rehearse": ("minirlhf_cli.commands.rehearse", "generate a class of submissions of all kinds, to rehearse grading"),
    "collect": (
        "minirlhf_cli.commands.collect",
        "sort a download from Canvas, Moodle or GitHub Classroom, to grade it",
    ),
    "grade": ("minirlhf_cli.commands.grade", "grade a class's submissions, each in its own sandbox"),
    "hand-back": (
        "minirlhf_cli.commands.hand_back",
        "return grades: marks and feedback for Canvas, Moodle or GitHub Classroom",
    ),
    "new-exercise": ("minirlhf_cli.commands.new_exercise", "for authors: create a new exercise from a skeleton"),
    "prove": ("minirlhf_cli.commands.prove", "for authors: self-test exercises, in seconds"),
}


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are :class:`UserError`, so that all invalid input ends the same way."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see '{self.prog} --help')", problem="usage")


def _usage() -> str:
    rows = "\n".join(f"  {name:<12} {summary}" for name, (_, summary) in COMMANDS.items())
    return f"usage: minirlhf COMMAND [...]\n\n{rows}\n\n'minirlhf COMMAND --help' tells more. This is minirlhf {__version__}."


def dispatch(argv: Sequence[str]) -> int:
    """Run one command and return its exit status; errors propagate."""
    if not argv or argv[0] in ("-h", "--help"):
        print(_usage())
        return 0
    if argv[0] == "--version":
        print(__version__)
        return 0
    if argv[0] not in COMMANDS:
        raise unknown("command", argv[0], COMMANDS)
    module_name, summary = COMMANDS[argv[0]]
    module = importlib.import_module(module_name)
    parser = Parser(
        prog=f"minirlhf {argv[0]}",
        description=module.__doc__ or summary,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.configure(parser)
    args, extra = parser.parse_known_args(argv[1:])
    if extra:
        raise _unknown_argument(extra[0], parser, argv[1:])
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
        return unknown(f"option of '{parser.prog}'", name.split("=")[0], options)
    return UserError(f"unexpected argument {name!r} (see '{parser.prog} --help')", argument=name, problem="unknown")


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point. Invalid input prints one line on standard error and returns exit status 2; Ctrl-C returns 130."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that cannot encode Greek letters shows "?"
            stream.reconfigure(errors="replace")
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
    except KeyboardInterrupt:
        print("minirlhf: interrupted", file=sys.stderr)
        return 130
