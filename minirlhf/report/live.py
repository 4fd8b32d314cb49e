"""Layer 7: the metrics of a run, handed to TensorBoard while the run goes on."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from minirlhf.core.errors import UserError, unknown

#: Where the events of a run stand: ``tensorboard --logdir`` finds them below the run's folder, or a folder of runs.
FOLDER = "tensorboard"


def require(report_to: str | None) -> None:
    """Raise :class:`UserError` unless this is nothing, or something that can be reported to here."""
    if report_to is not None and report_to not in REPORTS:
        raise unknown("report_to", report_to, REPORTS)
    if report_to is not None:
        summary_writer()


def summary_writer() -> Any:
    """The class, or a :class:`UserError` that says how it is installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError("TensorBoard is not installed; pip install 'minirlhf[tensorboard]'") from None
    return SummaryWriter


def open_writer(folder: Path) -> Any:
    """A writer of events; what was written before is replaced.

    Raises:
        UserError: TensorBoard is not installed, or the folder cannot be written.
    """
    try:
        return summary_writer()(str(folder), purge_step=0)
    except OSError as problem:
        raise UserError(f"{folder}: cannot be written ({problem.strerror})") from None


def write_row(writer: Any, row: dict[str, float]) -> None:
    """The metrics of one step."""
    for name, value in row.items():
        if name != "step":
            writer.add_scalar(name, value, int(row["step"]))


@contextmanager
def tensorboard(run: Path, seconds: float = 2.0) -> Iterator[None]:
    """Inside, what is added to the run's ``metrics.jsonl`` is written to its :data:`FOLDER` every so many seconds, and at the end.

    Nothing of the run waits for it, and a line is taken once it is whole.
    """
    file, read = run / "metrics.jsonl", 0
    with open_writer(run / FOLDER) as writer:

        def take() -> None:
            nonlocal read
            if not file.is_file():
                return
            with file.open("rb") as metrics:
                metrics.seek(read)
                whole, newline, _ = metrics.read().rpartition(b"\n")
            read += len(whole) + len(newline)
            for line in whole.splitlines():
                write_row(writer, json.loads(line))
            writer.flush()

        done = threading.Event()

        def keep_on() -> None:
            while not done.wait(seconds):
                take()

        thread = threading.Thread(target=keep_on, name="tensorboard", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
            take()


#: By the name of the option.
REPORTS = {"tensorboard": tensorboard}


def reporting(report_to: str | None, run: Path) -> Any:
    """A context in which the run in this folder is reported, if that was asked for."""
    return nullcontext() if report_to is None else REPORTS[report_to](run)
