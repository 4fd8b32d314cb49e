"""Check your own answers: a counterexample for each error, and the next hint. Never the solution.

Looks for notebooks and Python files of the chapter in the working folder, or reads the files named by --file. With
--watch the command keeps running, checks again whenever you save, and prints what has changed; Ctrl-C ends it.

examples:
  minirlhf class release --chapter 05 --out .      get the exercises
  minirlhf check 05                          check all of the chapter
  minirlhf check 05.2 --file mine.ipynb
  minirlhf check 05 --watch
  minirlhf check 04.5 --picture mine.png     your gradient beside the correct one, if the exercise has a picture
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

from minirlhf.core.errors import UserError
from minirlhf_course.classroom import checker, watch
from minirlhf_course.classroom import exercise as sources
from minirlhf_course.classroom.checker import Verdict
from minirlhf_course.classroom.exercise import Exercise
from minirlhf_course.classroom.runner import Server
from minirlhf_course.classroom.submission import SUFFIXES, StudentSubmission, read_files


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("what", nargs="+", metavar="WHAT", help="a chapter (05) or an exercise (05.2)")
    parser.add_argument("--file", type=Path, action="append", help="a file with answers; repeat for more")
    parser.add_argument("--student", help="your student id; default: the value of STUDENT in the file")
    parser.add_argument("--watch", action="store_true", help="check again at every save; print the changes")
    parser.add_argument("--picture", type=Path, help="write the picture of one exercise into this PNG file")
    parser.add_argument("--exercises", type=Path, help="folder of the exercises' sources")


def run(args: argparse.Namespace) -> int:
    """Check, print a verdict per exercise, and return 1 if one is not solved."""
    exercises = sources.load(sources.folder(args.exercises), args.what)
    if args.picture and (len(exercises) != 1 or not exercises[0].picture or args.watch):
        with_picture = [e.id for e in sources.load(sources.folder(args.exercises)) if e.picture]
        message = f"--picture is for one exercise that has a picture: {', '.join(with_picture)}"
        raise UserError(message, argument="--picture", expected=with_picture)
    for path in args.file or ():
        if path.suffix not in SUFFIXES or not path.is_file():
            message = f"no file {path}; expected a notebook (.ipynb) or a Python file (.py)"
            raise UserError(message, argument="--file", file=path, problem="missing")
    with Server() as server:
        if args.watch:
            return _watch(args, server, exercises)
        submission = _handed(args, exercises)
        student = args.student or checker.student_of(submission)
        verdicts = checker.check_files(server, exercises, submission, student)
        if args.picture:
            args.picture.write_bytes(checker.picture_of(server, exercises[0], submission, student))
    print("\n\n".join(map(repr, verdicts)))
    print(f"\n{_sum(verdicts)}")
    return 0 if all(v.passed for v in verdicts) else 1


def _files(args: argparse.Namespace) -> list[Path]:
    return args.file or sorted(p for p in Path().iterdir() if p.suffix in SUFFIXES and p.is_file())


def _handed(args: argparse.Namespace, exercises: Sequence[Exercise]) -> StudentSubmission:
    """Return the answers in the files.

    Raises:
        UserError: the files hold no answers.
    """
    submission = read_files(_files(args))
    if not any(e.id in submission.sections for e in exercises):
        chapter = exercises[0].chapter
        problems = "; ".join(submission.problems)
        raise UserError(
            problems
            if args.file and problems
            else f"no answers to {', '.join(args.what)} here; 'minirlhf class release --chapter {chapter} --out .' writes the exercises",
            value=args.what,
            file=args.file[0] if args.file else None,
            problem="missing",
        )
    return submission


def _sum(verdicts: Iterable[Verdict]) -> str:
    listed = list(verdicts)
    return f"{sum(v.outcome.points for v in listed):g} of {sum(v.outcome.exercise.points for v in listed):g} points"


def _watch(args: argparse.Namespace, server: Server, exercises: Sequence[Exercise]) -> int:
    """Check at every save until interrupted, the shortest exercises first."""
    order = sorted(exercises, key=lambda e: e.minutes)
    checked_code: dict[str, object] = {}
    verdicts: dict[str, Verdict] = {}

    def check_changed() -> None:
        submission = _handed(args, exercises)
        student = args.student or checker.student_of(submission)
        current = {e.id: (student, (s := submission.answer(e)) and s.cells) for e in order}
        changed = [e for e in order if current[e.id] != checked_code.get(e.id)]
        new_messages = []
        for verdict in checker.check_files(server, changed, submission, student):
            number = verdict.outcome.exercise.id
            if number not in verdicts or verdict.says != verdicts[number].says:
                new_messages.append(repr(verdict))
            verdicts[number] = verdict
        checked_code.update(current)
        print("\n\n".join(new_messages) if new_messages else "saved; no verdict has changed")
        print(f"\n{_sum(verdicts.values())}; waiting for you to save (Ctrl-C ends)\n", flush=True)

    try:
        check_changed()
        for _ in watch.saves(lambda: _files(args)):
            try:
                check_changed()
            except UserError as error:  # a half-written notebook, or a marker that is being typed
                print(f"{error}\n", flush=True)
    except KeyboardInterrupt:
        print()
    return 0 if verdicts and all(v.passed for v in verdicts.values()) else 1
