"""What a run of grading has done so far, so that one that was cut off goes on where it stopped.

A file of JSON lines beside the grades: first what the run is (seed, exercises), then a line per student. It goes when
the run is done. A line that was cut off counts for nothing; a student who has handed in anew is graded anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from minirlhf.classroom.exercise import Exercise


def fingerprint(exercises: Sequence[Exercise]) -> str:
    """Of the sources that judge."""
    digest = hashlib.sha256()
    for e in exercises:
        digest.update(e.id.encode() + e.path.read_bytes())
    return digest.hexdigest()


class Journal:
    """One run's journal; a context manager.

    Args:
        path: the file.
        exercises: what is graded.
        seed: of the hidden inputs; None takes that of the run that was cut off, or ``fresh``.
        fresh: the seed of a run that begins.

    Attributes:
        seed: the run's.
        done: what is there already, by student.
    """

    def __init__(self, path: Path, exercises: Sequence[Exercise], seed: int | None, fresh: int) -> None:
        self.path, self.judge = path, fingerprint(exercises)
        head, lines = self._read()
        goes_on = head.get("judge") == self.judge and seed in (None, head.get("seed"))
        self.seed = int(head["seed"]) if goes_on else fresh if seed is None else seed
        self.done: dict[str, dict[str, Any]] = {line["student"]: line for line in lines} if goes_on else {}
        kept = [{"judge": self.judge, "seed": self.seed}, *self.done.values()]
        self.path.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
        self._file = self.path.open("a", encoding="utf-8")

    def _read(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        try:
            text = self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return {}, []
        found = []
        for line in text.splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict):
                found.append(entry)
        head = found[0] if found and "judge" in found[0] else {}
        return head, [e for e in found[1:] if {"student", "digest", "rows", "tried", "page"} <= e.keys()]

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def finished(self, student: str, digest: str) -> bool:
        """Whether this student's work, as it is now, is graded already."""
        return student in self.done and self.done[student]["digest"] == digest

    def add(self, data: dict[str, Any]) -> None:
        """Write one student down."""
        self.done[data["student"]] = data
        self._file.write(json.dumps(data) + "\n")
        self._file.flush()

    def end(self) -> None:
        """The run is done: nothing is left to go on with."""
        self._file.close()
        self.path.unlink(missing_ok=True)
