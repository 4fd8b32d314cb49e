"""A learner's progress: the best score of each exercise on this machine, and the next exercise."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby

from minirlhf.core.folders import cache_folder
from minirlhf_course.classroom.exercise import Exercise
from minirlhf_course.classroom.grading import Outcome

BAR = 10  # length of a chapter's bar, in characters


@dataclass(frozen=True)
class ExerciseScore:
    """One exercise: the most points earned so far, and how often it was checked."""

    points: float = 0.0
    checks: int = 0


class Progress:
    """The best scores, stored in the cache; if the cache is not writable, they last for this session only."""

    def __init__(self) -> None:
        self.path = cache_folder() / "progress.json"
        self.reached = self._read()

    def _read(self) -> dict[str, ExerciseScore]:
        try:
            scores = json.loads(self.path.read_text(encoding="utf-8"))
            return {str(k): ExerciseScore(float(v["points"]), int(v["checks"])) for k, v in scores.items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return {}

    def add(self, outcome: Outcome) -> None:
        """Count a check and keep the best score."""
        before = self.reached.get(outcome.exercise.id, ExerciseScore())
        self.reached[outcome.exercise.id] = ExerciseScore(max(before.points, outcome.points), before.checks + 1)
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            draft = self.path.with_suffix(f".{os.getpid()}")
            draft.write_text(json.dumps({k: asdict(v) for k, v in self.reached.items()}), encoding="utf-8")
            draft.replace(self.path)


def table(exercises: Sequence[Exercise], reached: Mapping[str, ExerciseScore]) -> str:
    """Return one line per chapter and one per exercise, with the next exercise at the end."""
    lines = []
    for _, chapter in groupby(exercises, lambda e: e.chapter):
        chapter_exercises = list(chapter)
        earned = sum(min(e.points, reached.get(e.id, ExerciseScore()).points) for e in chapter_exercises)
        max_points = sum(e.points for e in chapter_exercises)
        num_filled = int(BAR * earned / max_points)
        name = chapter_exercises[0].path.parent.name.replace("_", " ")
        lines.append(f"{'█' * num_filled}{'░' * (BAR - num_filled)}  {earned:>3g} of {max_points:g}  {name}")
        for e in chapter_exercises:
            r = reached.get(e.id, ExerciseScore())
            mark = "✓" if r.points >= e.points else "·" if r.checks else " "
            tries = f", {r.checks} checks" if r.checks > 1 else ", 1 check" if r.checks else ""
            lines.append(f"  {mark} {e.id}  {r.points:g} of {e.points:g}  {e.title} ({e.kind}, {e.minutes} min{tries})")
    return "\n".join([*lines, "", after(exercises, reached)])


def following(exercises: Sequence[Exercise], reached: Mapping[str, ExerciseScore]) -> Exercise | None:
    """Return the next exercise: in the first unfinished chapter, a begun exercise before others, then the shortest."""
    undone = [e for e in exercises if reached.get(e.id, ExerciseScore()).points < e.points]
    candidates = [e for e in undone if e.chapter == undone[0].chapter]
    return min(candidates, key=lambda e: (e.id not in reached, e.minutes), default=None)


def after(exercises: Sequence[Exercise], reached: Mapping[str, ExerciseScore]) -> str:
    """Describe the next exercise and how long it takes, in words."""
    chosen = following(exercises, reached)
    if chosen is None:
        return "all done"
    undone = [e for e in exercises if reached.get(e.id, ExerciseScore()).points < e.points]
    left = sum(e.minutes for e in undone)
    return f"next: {chosen.id} {chosen.title}, about {chosen.minutes} minutes ({left / 60:.0f} hours to the end)"
