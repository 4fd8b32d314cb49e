"""The progress of a grading run, so that an interrupted run can resume.

The journal is a file of JSON lines beside the grades: first the run's seed and a fingerprint of the exercises, then
one line per student. It is deleted when the run is complete. An incomplete line is ignored, and a student with a new
submission is graded again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from minirlhf_course.classroom.exercise import Exercise


def fingerprint(exercises: Sequence[Exercise]) -> str:
    """Return a hash of the exercises' sources."""
    digest = hashlib.sha256()
    for e in exercises:
        digest.update(e.id.encode() + e.path.read_bytes())
    return digest.hexdigest()


class Journal:
    """One run's journal; a context manager.

    Args:
        path: the journal's file.
        exercises: the exercises that are graded.
        seed: the seed of the hidden inputs; None takes the seed of the interrupted run, or ``fresh``.
        fresh: the seed of a new run.

    Attributes:
        seed: the run's seed.
        done: the results so far, by student.
    """

    def __init__(self, path: Path, exercises: Sequence[Exercise], seed: int | None, fresh: int) -> None:
        self.path, self.judge = path, fingerprint(exercises)
        head, lines = self._read()
        resumes = head.get("judge") == self.judge and seed in (None, head.get("seed"))
        self.seed = int(head["seed"]) if resumes else fresh if seed is None else seed
        self.done: dict[str, dict[str, Any]] = {line["student"]: line for line in lines} if resumes else {}
        entries = [{"judge": self.judge, "seed": self.seed}, *self.done.values()]
        self.path.write_text("".join(json.dumps(line) + "\n" for line in entries), encoding="utf-8")
        self._file = self.path.open("a", encoding="utf-8")

    def _read(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        try:
            text = self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return {}, []
        entries = []
        for line in text.splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict):
                entries.append(entry)
        head = entries[0] if entries and "judge" in entries[0] else {}
        return head, [e for e in entries[1:] if {"student", "digest", "rows", "tried", "page"} <= e.keys()]

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def finished(self, student: str, digest: str) -> bool:
        """Whether this version of the student's work is graded already."""
        return student in self.done and self.done[student]["digest"] == digest

    def add(self, data: dict[str, Any]) -> None:
        """Record one student's results."""
        self.done[data["student"]] = data
        self._file.write(json.dumps(data) + "\n")
        self._file.flush()

    def end(self) -> None:
        """Delete the journal, because the run is complete."""
        self._file.close()
        self.path.unlink(missing_ok=True)
