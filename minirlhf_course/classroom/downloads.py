"""Read the download of a class's work from a learning platform and assign its files to students.

A platform is defined by two functions: one returns the platform's key of the student who owns a path in the download,
the other the key of a student on the roster. The formats and where they are documented:

* Canvas, ``doejane_LATE_1234_5678_homework-1.py``: name, lateness, user id, file id, file name
  (``lib/content_zipper.rb`` of Canvas's public source); the roster is the exported gradebook, whose column ``ID`` is
  the user id.
* Moodle, ``Jane Doe_1234_assignsubmission_file_/homework.py``: name, participant number (``importziplib.php`` of
  Moodle's public source); the roster is the grading worksheet, whose column ``Identifier`` is ``Participant 1234``.
* GitHub Classroom, ``homework-janedoe/homework.py``: a clone per student, named by assignment and GitHub user; the
  roster is ``classroom_roster.csv``, and the assignment's grades file has the repository and the time of each.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath

from minirlhf.core.errors import UserError
from minirlhf_course.classroom.roster import PARTICIPANT, Enrolled
from minirlhf_course.classroom.submission import MAX_BYTES, files_of, normalised, read_safely

MAX_FILES = 100_000  # per archive
CANVAS = re.compile(r"(?i)(?P<prefix>.*?_(?:(?P<late>late)_)?(?P<key>\d+)_\d+)_(?P<name>.+)")
MOODLE = re.compile(r"(?P<prefix>.+_(?P<key>\d+)_assignsubmission_(?P<plugin>[a-z]+)_?)(?P<name>.*)")
STAMP = re.compile(r"(?<!\d)(20\d\d)-?(\d\d)-?(\d\d)[T_ -](\d\d)[-.:h]?(\d\d)(?:[-.:]?(\d\d))?(?!\d)")
AGAIN = re.compile(r"(.+)-(\d{1,2})")  # Canvas numbers resubmissions: homework.py, homework-1.py
MONTHS = {
    m: i for i, m in enumerate(["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1)
}
MOODLE_TIME = re.compile(
    r"(?:\w+, )?(\d{1,2}) ([A-Za-z]{3})[a-z]* (\d{4}),? (\d{1,2}):(\d\d)(?::\d\d)?(?:\s?([AaPp])[Mm])?"
)


@dataclass(frozen=True)
class Place:
    """The owner of a path in a download: the student's key, the file's own path, and the feedback's prefix."""

    key: str
    name: str
    prefix: str
    late: bool = False


@dataclass
class Collected:
    """One student's work: files by path, lateness if the platform reports it, and notes on files that were left out."""

    prefix: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    late: bool = False
    handed_in: datetime | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Platform:
    """How one platform's downloads are read. ``place(path, roster)`` is None for a path that is not an answer."""

    name: str
    export: str  # the platform's name for its roster
    place: Callable[[PurePosixPath, Sequence[Enrolled]], Place | None]
    key: Callable[[Enrolled], str]
    time: Callable[[Enrolled, Path], datetime | None]


# -- the platforms ---------------------------------------------------------------------------------------------------


def _canvas_place(path: PurePosixPath, roster: Sequence[Enrolled]) -> Place | None:
    match = CANVAS.fullmatch(path.name)
    return Place(match["key"], match["name"], match["prefix"], bool(match["late"])) if match else None


def _moodle_place(path: PurePosixPath, roster: Sequence[Enrolled]) -> Place | None:
    for i, part in enumerate(path.parts):
        if match := MOODLE.fullmatch(part):
            inner_path = PurePosixPath(*([match["name"]] if match["name"] else []), *path.parts[i + 1 :])
            is_submission = match["plugin"] == "file" and inner_path.name
            return Place(match["key"], str(inner_path), match["prefix"]) if is_submission else None
    return None


def _github_place(path: PurePosixPath, roster: Sequence[Enrolled]) -> Place | None:
    for i, part in enumerate(path.parts[:-1]):
        users = [key for s in roster if (key := _github_key(s))]
        matches = [u for u in users if re.fullmatch(rf"(?:.+-)?{re.escape(u)}(?:-\d+)?", part, re.IGNORECASE)]
        if matches:
            return Place(max(matches, key=len), str(PurePosixPath(*path.parts[i + 1 :])), part)
    return None


def _cells(student: Enrolled) -> Mapping[str, str]:
    return {normalised(c): v for c, v in student.cells.items()}


def _canvas_key(student: Enrolled) -> str:
    return _cells(student).get("id", "")


def _moodle_key(student: Enrolled) -> str:
    match = PARTICIPANT.fullmatch(_cells(student).get("identifier", ""))
    return match[1] if match else ""


def _github_key(student: Enrolled) -> str:
    return _cells(student).get("github_username", "").casefold()


def _no_time(student: Enrolled, path: Path) -> datetime | None:
    return None


def _moodle_time(student: Enrolled, path: Path) -> datetime | None:
    text = _cells(student).get("last modified (submission)", "")
    if text in ("", "-"):
        return None
    match = MOODLE_TIME.fullmatch(text)
    if not match or match[2].lower() not in MONTHS:
        raise UserError(
            f"{path}: {text!r} is not a time; expected 'Friday, 20 November 2026, 11:59 PM', Moodle set to English",
            value=text,
            problem="time",
            file=path,
        )
    hour = int(match[4])
    if match[6]:
        hour = hour % 12 + (12 if match[6] in "Pp" else 0)
    return _moment(path, text, int(match[3]), MONTHS[match[2].lower()], int(match[1]), hour, int(match[5]))


def _github_time(student: Enrolled, path: Path) -> datetime | None:
    text = _cells(student).get("submission_timestamp", "")
    if not text:
        return None
    try:
        return datetime.fromisoformat(text.replace(" UTC", "+00:00").replace(" +", "+"))
    except ValueError:
        message = f"{path}: {text!r} is no time; expected 2026-11-20 23:59:00 UTC"
        raise UserError(message, value=text, problem="time", file=path) from None


def _moment(path: Path, text: str, *numbers: int) -> datetime:
    try:
        return datetime(*numbers)  # type: ignore[arg-type]
    except ValueError:
        raise UserError(f"{path}: {text!r} is not a time", value=text, problem="time", file=path) from None


PLATFORMS = {
    p.name: p
    for p in (
        Platform("canvas", "the exported gradebook", _canvas_place, _canvas_key, _no_time),
        Platform(
            "moodle", "the grading worksheet, with Moodle set to English", _moodle_place, _moodle_key, _moodle_time
        ),
        Platform(
            "github", "classroom_roster.csv, or the assignment's grades", _github_place, _github_key, _github_time
        ),
    )
}


# -- reading -----------------------------------------------------------------------------------------------------


def entries(download: Path) -> Iterator[tuple[PurePosixPath, bytes | str]]:
    """Yield the files of an archive or a folder: path, and the bytes or the reason why they were not read.

    Raises:
        UserError: the download does not exist or is not an archive, or the archive has too many files.
    """
    if download.is_dir():
        for path in files_of(download):
            inner = PurePosixPath(path.relative_to(download).as_posix().encode("utf-8", "replace").decode())
            try:
                yield inner, read_safely(path)
            except UserError as problem:
                yield inner, str(problem)
        return
    try:
        archive = zipfile.ZipFile(download)
    except (OSError, zipfile.BadZipFile) as problem:
        message = f"{download} cannot be read; expected the platform's .zip, or a folder"
        raise UserError(message, file=download, problem="unreadable") from problem
    with archive:
        if len(archive.infolist()) > MAX_FILES:
            raise UserError(f"{download} holds more than {MAX_FILES} files")
        for info in archive.infolist():
            inside = PurePosixPath(info.filename.replace("\\", "/"))
            hidden = any(part.startswith((".", "__MACOSX")) for part in inside.parts)
            if not (info.is_dir() or hidden or inside.is_absolute()):
                yield inside, _unpacked(archive, info)


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes | str:
    """Return a member's bytes, or the reason why it was not read. The size in its header is not trusted."""
    try:
        with archive.open(info) as file:
            raw = file.read(MAX_BYTES + 1)
    except (RuntimeError, zipfile.BadZipFile, NotImplementedError, EOFError, OSError, ValueError) as problem:
        return f"{PurePosixPath(info.filename).name} cannot be unpacked ({type(problem).__name__})"
    if len(raw) > MAX_BYTES:
        return f"{PurePosixPath(info.filename).name} is larger than {MAX_BYTES >> 20} MB"
    return raw


def collect(
    platform: Platform, downloads: Sequence[Path], roster: Sequence[Enrolled], path: Path
) -> tuple[dict[str, Collected], list[str]]:
    """Return the work of all students by id, and the paths without an owner. A student's last download counts.

    Raises:
        UserError: the roster is not an export of this platform, or no file belongs to a student on it.
    """
    by_key = {platform.key(s): s.id for s in roster if platform.key(s)}
    if not by_key:
        message = f"{path} is not what {platform.name} exports; expected {platform.export}"
        raise UserError(message, argument=platform.name, file=path, problem="mismatch")
    collected: dict[str, Collected] = {}
    strangers: list[str] = []
    for download in downloads:
        files_by_student: dict[str, list[tuple[Place, PurePosixPath, bytes | str]]] = {}
        for file_path, content in entries(download):
            place = platform.place(file_path, roster)
            if place and place.key in by_key:
                files_by_student.setdefault(by_key[place.key], []).append((place, file_path, content))
            else:
                strangers.append(str(file_path))
        collected |= {student: _one(files) for student, files in files_by_student.items()}
    if not collected:
        example = f", such as {strangers[0]!r}" if strangers else ""
        raise UserError(
            f"nothing in {downloads[0]} belongs to a student in {path}{example}; is it {platform.name}'s download?",
            argument=platform.name,
            value=strangers[0] if strangers else None,
            file=downloads[0],
            problem="strangers",
        )
    for student in roster:
        if student.id in collected and (time := platform.time(student, path)):
            collected[student.id].handed_in = time
    return collected, strangers


def _one(files: Sequence[tuple[Place, PurePosixPath, bytes | str]]) -> Collected:
    """Collect one student's files of one download; of resubmitted files only the last version."""
    collected = Collected(files[0][0].prefix)
    times = {str(file_path): time for _, file_path, _ in files if (time := _stamp(str(file_path)))}
    latest = max(times.values(), default=None)
    last_attempts: dict[str, int] = {}
    for place, _, _ in files:
        base_name, attempt = _again(place.name)
        last_attempts[base_name] = max(attempt, last_attempts.get(base_name, 0))
    for place, file_path, content in files:
        base_name, attempt = _again(place.name)
        collected.late |= place.late
        if attempt < last_attempts[base_name] or times.get(str(file_path), latest) != latest:
            collected.notes.append(f"{place.name}: handed in again later")
        elif isinstance(content, str):
            collected.notes.append(content)
        else:
            collected.prefix = place.prefix
            collected.files[_harmless(place.name)] = content
    collected.handed_in = latest
    return collected


def _again(name: str) -> tuple[str, int]:
    """Split a file's path into the path without the attempt number, and the number (0 if it has none)."""
    path = PurePosixPath(name)
    match = AGAIN.fullmatch(path.stem)
    return (str(path.with_name(match[1] + path.suffix)), int(match[2])) if match else (name, 0)


def _stamp(text: str) -> datetime | None:
    """Parse a time in a path, such as 2026-11-20T23-59; None if there is none."""
    if match := STAMP.search(text):
        try:
            return datetime(*(int(n) for n in match.groups() if n))  # type: ignore[arg-type]
        except ValueError:
            return None
    return None


def _harmless(name: str) -> str:
    """Return a sanitised relative path that stays inside its folder."""
    parts = [re.sub(r"[^\w .()+-]", "_", part).strip() for part in PurePosixPath(name).parts]
    return "/".join(part.lstrip(".")[:120] or "_" for part in parts if part not in ("/", "..", "."))
