"""The metrics of a run: one row per step, stored in memory and in a JSONL file, with a plot method."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from minirlhf.core.errors import UserError
from minirlhf.core.folders import write_text_atomic


class History:
    """Rows ``{"step": k, name: number, ...}`` in the order of their steps, the first of which is 1."""

    def __init__(self, path: Path | None = None, rows: Sequence[dict[str, float]] = ()) -> None:
        self.path = path
        self.rows: list[dict[str, float]] = list(rows)

    @classmethod
    def read(cls, path: Path | str) -> History:
        """Read a ``metrics.jsonl``, or the one in a run's folder.

        Raises:
            UserError: there is no such file, or a line is no row of metrics.
        """
        path = Path(path)
        file = path / "metrics.jsonl" if path.is_dir() else path
        if not file.is_file():
            raise UserError(f"{file}: no such file; expected the metrics.jsonl of a run", problem="missing", file=file)
        rows = []
        for number, line in enumerate(file.read_bytes().splitlines(), 1):
            try:
                row = json.loads(line.decode())
            except (ValueError, RecursionError) as problem:
                reason = problem.msg if isinstance(problem, json.JSONDecodeError) else "not a line of UTF-8 text"
                raise UserError(
                    f"{file} line {number}: not JSON ({reason})", problem="not JSON", file=file, line=number
                ) from None
            has_step = isinstance(row, dict) and "step" in row
            if not has_step or not all(isinstance(value, int | float) for value in row.values()):
                raise UserError(
                    f"{file} line {number}: not a row of metrics; expected an object of numbers, with step",
                    argument=None if has_step else "step",
                    expected="step",
                    problem="not metrics",
                    file=file,
                    line=number,
                )
            rows.append(row)
        return cls(file, rows)

    def append(self, step: int, **metrics: float) -> None:
        """Add the row of a step, in memory and on disk."""
        row = {"step": step, **{name: float(value) for name, value in metrics.items()}}
        self.rows.append(row)
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as out:
                out.write(json.dumps(row) + "\n")

    @classmethod
    def resume(cls, path: Path, step: int) -> History:
        """Return the history of a run that resumes after ``step``; later rows and an incomplete last row are deleted.

        Runs of older versions count their rows from 0; theirs get the numbers of today.
        """
        if not path.is_file():
            return cls(path)
        complete_lines, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
        write_text_atomic(path, complete_lines and complete_lines + "\n")
        history = cls.read(path)
        if history.rows and history.rows[0]["step"] == 0:
            history.rows = [{**row, "step": row["step"] + 1} for row in history.rows]
        history.truncate(step)
        return history

    def truncate(self, step: int) -> None:
        """Delete all rows after ``step``; a resumed run writes them again."""
        self.rows = [row for row in self.rows if row["step"] <= step]
        if self.path is not None:
            write_text_atomic(self.path, "".join(json.dumps(row) + "\n" for row in self.rows))

    def __repr__(self) -> str:
        """Return the number of steps, first and last value of the main metrics, and the names of all."""
        if not self.rows:
            return "History(no steps)"
        main = [name for name in ("loss", "reward", "kl", "completion_length") if name in self.last]
        changes = ", ".join(f"{name} {self[name][0]:.4g} -> {self.last[name]:.4g}" for name in main)
        return f"History({len(self)} steps: {changes}; metrics: {', '.join(sorted(self.last))})"

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, float]]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> list[float]:
        """Return all values of one metric, NaN in rows that lack it."""
        if not any(name in row for row in self.rows):
            known = sorted({key for row in self.rows for key in row})
            raise KeyError(f"no metric {name!r}; this history has {', '.join(known)}")
        return [row.get(name, math.nan) for row in self.rows]

    @property
    def last(self) -> dict[str, float]:
        """The newest row."""
        return self.rows[-1]

    def plot(self, *names: str, axes: Any = None) -> Any:
        """Plot the named metrics (by default all except times) against the step, one panel each.

        Returns:
            The array of matplotlib axes.
        """
        import matplotlib.pyplot as plt

        if not names:
            names = tuple(k for k in self.last if k != "step" and not k.startswith("seconds"))
        if axes is None:
            num_columns = min(3, len(names))
            num_rows = math.ceil(len(names) / num_columns)
            _, axes = plt.subplots(num_rows, num_columns, figsize=(4 * num_columns, 2.6 * num_rows), squeeze=False)
        for ax, name in zip(axes.flat, names, strict=False):
            ax.plot(self["step"], self[name], lw=1.5)
            ax.set(title=name.replace("_", " "), xlabel="step")
            ax.grid(alpha=0.3)
        for ax in list(axes.flat)[len(names) :]:
            ax.set_visible(False)
        axes.flat[0].figure.tight_layout()
        return axes
