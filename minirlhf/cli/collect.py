"""Sort what a learning platform hands out into one folder per student, for minirlhf grade.

PLATFORM is canvas, moodle or github. DOWNLOAD is the archive that the platform makes of everybody's work, or a folder; of
several, the last one in which a student is counts. The roster is what the platform exports: Canvas's gradebook, Moodle's
grading worksheet, GitHub Classroom's classroom_roster.csv (or an assignment's grades, which has the times). Writes into OUT

  submissions/ID/...   what counts; of work handed in again, the last
  roster.csv           student, name, also: for grade --roster; folders and STUDENT may bear any of these names
  times.csv            student, handed_in: for grade --times, where the platform says when
  collected.csv        what was found of each student, late or not, what was left out, and what is nobody's

examples:
  minirlhf collect canvas submissions.zip --roster gradebook.csv --out class
  minirlhf collect moodle homework.zip --roster worksheet.csv --out class
  minirlhf collect github homework-submissions --roster classroom_roster.csv --grades grades.csv --out class
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from minirlhf.classroom import downloads, handback, marks, roster
from minirlhf.classroom.grading import plain
from minirlhf.core.errors import UserError

OURS = ("submissions", "roster.csv", "times.csv", "collected.csv")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("platform", metavar="PLATFORM", help=f"one of {', '.join(downloads.PLATFORMS)}")
    parser.add_argument("download", nargs="+", type=Path, metavar="DOWNLOAD", help="archive or folder")
    parser.add_argument("--roster", type=Path, required=True, help="the CSV file that the platform exports")
    parser.add_argument("--grades", type=Path, help="github: the assignment's grades, for the times")
    parser.add_argument("--id", default="", help="the roster's column of ids; default: the first known one")
    parser.add_argument("--out", type=Path, required=True, help="folder to write into")
    parser.add_argument("--replace", action="store_true", help="replace what an earlier collect wrote there")


def run(args: argparse.Namespace) -> int:
    """Sort the download."""
    platform = handback.platform(args.platform)
    if args.grades and platform.name != "github":
        raise UserError("--grades is for github: Canvas and Moodle have all in --roster")
    if not args.replace and any((args.out / name).exists() for name in OURS):
        message = f"{args.out} holds collected work already; name another folder, or --replace it"
        raise UserError(message, argument="--replace", file=args.out, problem="exists")
    people = roster.read(args.roster, args.id)
    found, strangers = downloads.collect(platform, args.download, people, args.roster)
    if args.grades:
        by_key = {platform.key(s): s for s in roster.read(args.grades)}
        for s in people:
            if s.id in found and (graded := by_key.get(platform.key(s))):
                found[s.id].handed_in = platform.time(graded, args.grades) or found[s.id].handed_in
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.out) as draft:
        _write(Path(draft), people, found, strangers)
        for name in OURS:
            old, new = args.out / name, Path(draft) / name
            if old.is_dir():
                shutil.rmtree(old)
            else:
                old.unlink(missing_ok=True)
            if new.exists():
                new.rename(old)
    for name in strangers[:10]:
        print(f"warning: {plain(name)!r} is nobody's on the roster", file=sys.stderr)
    if len(strangers) > 10:
        print(f"warning: and {len(strangers) - 10} more, see collected.csv", file=sys.stderr)
    late = sum(c.late for c in found.values())
    flagged = f", {late} flagged late" if late else ""
    print(f"{len(found)} of {len(people)} students handed in{flagged}: {args.out / 'submissions'}")
    return 0


def _write(
    out: Path, people: list[roster.Enrolled], found: dict[str, downloads.Collected], strangers: list[str]
) -> None:
    """All files of OUT, into a draft of it."""
    lines = [["student", "key", "late", "handed_in", "files", "note"]]
    times = [["student", "handed_in"]]
    for s in people:
        mine = found.get(s.id, downloads.Collected(notes=["nothing handed in"]))
        when = mine.handed_in.isoformat() if mine.handed_in else ""
        lines.append([s.id, mine.prefix, "yes" if mine.late else "", when, str(len(mine.files)), "; ".join(mine.notes)])
        times += [[s.id, when]] if when else []
        for name, content in mine.files.items():
            path = out / "submissions" / s.id.replace("/", "_") / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    lines += [["", "", "", "", "", f"{name}: nobody's on the roster"] for name in strangers]
    marks.write(lines, out / "collected.csv")
    marks.write([["student", roster.ALSO], *([s.id, "; ".join(s.also)] for s in people)], out / "roster.csv")
    if len(times) > 1:
        marks.write(times, out / "times.csv")
