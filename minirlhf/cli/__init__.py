"""The command line: ``minirlhf COMMAND``. Each command is one module, imported only when it is called.

A command module has two functions: ``configure(parser)`` adds its arguments, ``run(args)`` does the work and returns the
exit status (None is 0). Exit status 1 means that something was checked and found wrong, 2 that the input was bad.
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

# name -> (module, one line of help). A new command is one line here and one module.
COMMANDS: dict[str, tuple[str, str]] = {
    "tour": ("minirlhf.cli.tour", "the whole pipeline on tiny models in two minutes, with a report"),
    "train": ("minirlhf.cli.train", "train on your own data or on a tiny world"),
    "evaluate": (
        "minirlhf.cli.evaluate",
        "measure models on files of problems, with intervals, and compare them in pairs",
    ),
    "power": ("minirlhf.cli.power", "how many problems tell two models apart, and which difference so many find"),
    "bestofn": ("minirlhf.cli.bestofn", "answer a file of prompts with the best of n replies, and say what n is worth"),
    "judge": (
        "minirlhf.cli.judge",
        "compare two files of answers by a model that judges, in both orders, with intervals",
    ),
    "spec": ("minirlhf.cli.spec", "check a model against rules that must or should hold, and see which got worse"),
    "export": ("minirlhf.cli.export", "take a run to a big engine: model, data, grader, script, and the differences"),
    "data": (
        "minirlhf.cli.data",
        "look at data: format, token counts, what is dropped or learned, what labels are drawn by",
    ),
    "explain": ("minirlhf.cli.explain", "one sample of a training step, token by token: reward, advantage, push"),
    "recipes": ("minirlhf.cli.recipes", "the online algorithms as one table of choices"),
    "chat": ("minirlhf.cli.chat", "talk to a model, or to two side by side, and see what else it might have said"),
    "plot": ("minirlhf.cli.plot", "draw the metrics of runs: overlaid, seeds as bands; or for TensorBoard"),
    "metrics": ("minirlhf.cli.metrics", "what the numbers in a run's metrics mean, and what a bad curve says"),
    "overopt": (
        "minirlhf.cli.overopt",
        "optimise a proxy reward, watch the true one: all figures of over-optimisation",
    ),
    "zoo": ("minirlhf.cli.zoo", "trained checkpoints by name: list, train, copy"),
    "doctor": (
        "minirlhf.cli.doctor",
        "what is wrong with a run, from its metrics; without a run, with this machine, and what will be slow here",
    ),
    "ask": ("minirlhf.cli.ask", "questions that people ask about runs: an answer, and a command that shows it"),
    "gallery": ("minirlhf.cli.gallery", "runs that one changed line breaks: see them happen, or be asked which line"),
    "errata": (
        "minirlhf.cli.errata",
        "what the texts that the course teaches from have wrong, each with its computation",
    ),
    "verify": ("minirlhf.cli.verify", "check the book's equations against exact oracles"),
    "studies": ("minirlhf.cli.studies", "measurements over several seeds: what is stale and why, and run that"),
    "check": ("minirlhf.cli.check", "check your answers to a chapter's exercises, with hints"),
    "progress": ("minirlhf.cli.progress", "your way through the exercises: points, and what is next"),
    "release": ("minirlhf.cli.release", "make the exercises' notebooks for students, without solutions"),
    "rehearse": ("minirlhf.cli.rehearse", "make a class of submissions of all kinds, to rehearse grading on"),
    "collect": ("minirlhf.cli.collect", "sort what Canvas, Moodle or GitHub Classroom hands out, to grade it"),
    "grade": ("minirlhf.cli.grade", "grade a class's submissions, each in a box of its own"),
    "hand-back": ("minirlhf.cli.hand_back", "marks and feedback as Canvas, Moodle or GitHub Classroom takes them"),
    "new-exercise": ("minirlhf.cli.new_exercise", "for authors: a new exercise to begin from"),
    "prove": ("minirlhf.cli.prove", "for authors: let exercises prove themselves, in seconds"),
}


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are :class:`UserError`, so that all bad input ends the same way."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see '{self.prog} --help')", problem="usage")


def _usage() -> str:
    rows = "\n".join(f"  {name:<12} {text}" for name, (_, text) in COMMANDS.items())
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
    module_name, text = COMMANDS[argv[0]]
    module = importlib.import_module(module_name)
    parser = Parser(
        prog=f"minirlhf {argv[0]}",
        description=module.__doc__ or text,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.configure(parser)
    args, extra = parser.parse_known_args(argv[1:])
    if extra:
        raise _unknown_argument(extra[0], parser, argv[1:])
    return int(module.run(args) or 0)


def _unknown_argument(given: str, parser: argparse.ArgumentParser, argv: Sequence[str]) -> UserError:
    """The error for an argument that the command, or the sub-command among ``argv``, does not take."""
    options: set[str] = set()
    for action in parser._actions:
        options.update(action.option_strings)
        for name, sub in (action.choices or {}).items() if isinstance(action, argparse._SubParsersAction) else ():
            if name in argv:
                return _unknown_argument(given, sub, argv)
    if given.startswith("-"):
        return unknown(f"option of '{parser.prog}'", given.split("=")[0], options)
    return UserError(f"unexpected argument {given!r} (see '{parser.prog} --help')", argument=given, problem="unknown")


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point: bad input is one line on standard error and exit status 2; Ctrl-C is 130."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal without Greek letters shows "?" for them
            stream.reconfigure(errors="replace")
    try:
        status = dispatch(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader (`| head`) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except UserError as problem:
        print(f"minirlhf: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("minirlhf: interrupted", file=sys.stderr)
        return 130
