"""Sort the download of a learning platform into one folder per student, for minirlhf class grade.

PLATFORM is canvas, moodle or github. DOWNLOAD is the archive of all submissions that the platform makes, or a folder;
if a student is in several of them, the last one counts. The roster is the platform's export: Canvas's gradebook,
Moodle's grading worksheet, GitHub Classroom's classroom_roster.csv (or an assignment's grades, which has the times).
Writes into OUT

  submissions/ID/...   the work to grade; of repeated submissions, the last
  roster.csv           student, name, also: for grade --roster; folders and STUDENT may use any of these names
  times.csv            student, handed_in: for grade --times, if the platform exports the times
  collected.csv        for each student: the files, whether they are late, the files left out; then all unmatched files

examples:
  minirlhf class collect canvas submissions.zip --roster gradebook.csv --out class
  minirlhf class collect moodle homework.zip --roster worksheet.csv --out class
  minirlhf class collect github homework-submissions --roster classroom_roster.csv --grades grades.csv --out class
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from minirlhf.core.errors import UserError
from minirlhf_course.classroom import downloads, handback, marks, roster
from minirlhf_course.classroom.grading import plain

OURS = ("submissions", "roster.csv", "times.csv", "collected.csv")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("platform", metavar="PLATFORM", help=f"one of {', '.join(downloads.PLATFORMS)}")
    parser.add_argument("download", nargs="+", type=Path, metavar="DOWNLOAD", help="archive or folder")
    parser.add_argument("--roster", type=Path, required=True, help="the CSV file that the platform exports")
    parser.add_argument("--grades", type=Path, help="github: the assignment's grades, which have the times")
    parser.add_argument("--id", default="", help="the roster's column of student ids; default: the first known one")
    parser.add_argument("--out", type=Path, required=True, help="folder to write into")
    parser.add_argument("--replace", action="store_true", help="replace the files of an earlier collect")


def run(args: argparse.Namespace) -> int:
    """Sort the download and write the files of OUT."""
    platform = handback.platform(args.platform)
    if args.grades and platform.name != "github":
        raise UserError("--grades is for github only: for Canvas and Moodle, --roster has all that is needed")
    if not args.replace and any((args.out / name).exists() for name in OURS):
        message = f"{args.out} holds collected work already; name another folder, or --replace it"
        raise UserError(message, argument="--replace", file=args.out, problem="exists")
    students = roster.read(args.roster, args.id)
    collected, unmatched = downloads.collect(platform, args.download, students, args.roster)
    if args.grades:
        grades_by_key = {platform.key(s): s for s in roster.read(args.grades)}
        for s in students:
            if s.id in collected and (grade_row := grades_by_key.get(platform.key(s))):
                collected[s.id].handed_in = platform.time(grade_row, args.grades) or collected[s.id].handed_in
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.out) as draft:
        _write(Path(draft), students, collected, unmatched)
        for name in OURS:
            old, new = args.out / name, Path(draft) / name
            if old.is_dir():
                shutil.rmtree(old)
            else:
                old.unlink(missing_ok=True)
            if new.exists():
                new.rename(old)
    for name in unmatched[:10]:
        print(f"warning: {plain(name)!r} matches no student on the roster", file=sys.stderr)
    if len(unmatched) > 10:
        print(f"warning: and {len(unmatched) - 10} more, see collected.csv", file=sys.stderr)
    late = sum(c.late for c in collected.values())
    flagged = f", {late} flagged late" if late else ""
    print(f"{len(collected)} of {len(students)} students submitted work{flagged}: {args.out / 'submissions'}")
    return 0


def _write(
    out: Path, students: list[roster.Enrolled], collected: dict[str, downloads.Collected], unmatched: list[str]
) -> None:
    """Write all files of OUT into a temporary folder."""
    rows = [["student", "key", "late", "handed_in", "files", "note"]]
    times = [["student", "handed_in"]]
    for s in students:
        work = collected.get(s.id, downloads.Collected(notes=["nothing handed in"]))
        when = work.handed_in.isoformat() if work.handed_in else ""
        rows.append([s.id, work.prefix, "yes" if work.late else "", when, str(len(work.files)), "; ".join(work.notes)])
        times += [[s.id, when]] if when else []
        for name, content in work.files.items():
            path = out / "submissions" / s.id.replace("/", "_") / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    rows += [["", "", "", "", "", f"{name}: nobody's on the roster"] for name in unmatched]
    marks.write(rows, out / "collected.csv")
    marks.write([["student", roster.ALSO], *([s.id, "; ".join(s.also)] for s in students)], out / "roster.csv")
    if len(times) > 1:
        marks.write(times, out / "times.csv")
