"""Export the metrics of a run to TensorBoard or to Weights & Biases during the run."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from minirlhf.core.errors import UserError, unknown

#: The sub-folder of a run for its event files: ``tensorboard --logdir`` finds them below the run's folder or a folder
#: of runs.
FOLDER = "tensorboard"


def require(report_to: str | None) -> None:
    """Raise :class:`UserError` unless ``report_to`` is None or the name of an installed reporter in :data:`REPORTS`."""
    if report_to is not None and report_to not in REPORTS:
        raise unknown("report_to", report_to, REPORTS)
    if report_to is not None:
        INSTALLED[report_to]()


def summary_writer() -> Any:
    """Return the class ``SummaryWriter``, or raise a :class:`UserError` that says how to install TensorBoard."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError("TensorBoard is not installed; pip install 'minirlhf[tensorboard]'") from None
    return SummaryWriter


def open_writer(folder: Path) -> Any:
    """Return a writer of event files; earlier events are replaced.

    Raises:
        UserError: TensorBoard is not installed, or the folder cannot be written.
    """
    try:
        return summary_writer()(str(folder), purge_step=0)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror})") from None


def write_row(writer: Any, row: dict[str, float]) -> None:
    """Write the metrics of one step."""
    for name, value in row.items():
        if name != "step":
            writer.add_scalar(name, value, int(row["step"]))


@contextmanager
def tensorboard(run: Path, seconds: float = 2.0) -> Iterator[None]:
    """Copy new rows of the run's ``metrics.jsonl`` to its :data:`FOLDER` every ``seconds`` seconds and when the block
    ends.

    The copying runs in a thread of its own, so the run does not wait for it. A line is copied only when it is complete.
    """
    with open_writer(run / FOLDER) as writer:

        def write(rows: list[dict[str, float]]) -> None:
            for row in rows:
                write_row(writer, row)
            writer.flush()

        with _following(run / "metrics.jsonl", write, seconds):
            yield


def wandb_module() -> Any:
    """Return the module ``wandb``, or raise a :class:`UserError` that says how to install it."""
    try:
        import wandb
    except ImportError:
        message = "Weights & Biases is not installed; pip install 'minirlhf[wandb]'"
        raise UserError(message, argument="report_to", value="wandb", problem="missing") from None
    return wandb


@contextmanager
def wandb(run: Path, seconds: float = 2.0) -> Iterator[None]:
    """Log new rows of the run's ``metrics.jsonl`` to a run of Weights & Biases, which is called as the folder is.

    Its own variables apply: WANDB_PROJECT (default: minirlhf), WANDB_MODE=offline. A resumed run becomes a new run there,
    with all rows.
    """
    project = os.environ.get("WANDB_PROJECT", "minirlhf")
    try:
        logged = wandb_module().init(project=project, name=run.name)
    except UserError:
        raise
    except Exception as error:  # a login, a network, a service: any of a dozen types
        message = f"report_to = 'wandb': no run was started ({' '.join(str(error).split())[:120]}); WANDB_MODE=offline needs no login"
        raise UserError(message, argument="report_to", value="wandb", problem="fails") from error

    def write(rows: list[dict[str, float]]) -> None:
        for row in rows:
            logged.log({name: value for name, value in row.items() if name != "step"}, step=int(row["step"]))

    try:
        with _following(run / "metrics.jsonl", write, seconds):
            yield
    finally:
        logged.finish()


@contextmanager
def _following(file: Path, write: Callable[[list[dict[str, float]]], None], seconds: float) -> Iterator[None]:
    """Call ``write`` with the new rows of a growing file every ``seconds`` seconds, in a thread, and at the end."""
    offset = 0

    def write_new_rows() -> None:
        nonlocal offset
        if not file.is_file():
            return
        with file.open("rb") as metrics:
            metrics.seek(offset)
            lines, newline, _ = metrics.read().rpartition(b"\n")
        offset += len(lines) + len(newline)
        write([json.loads(line) for line in lines.splitlines()])

    done = threading.Event()

    def poll() -> None:
        while not done.wait(seconds):
            write_new_rows()

    thread = threading.Thread(target=poll, name="report", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        write_new_rows()


#: Reporters by their name in the option ``report_to``, and the check that each is installed.
REPORTS = {"tensorboard": tensorboard, "wandb": wandb}
INSTALLED: dict[str, Callable[[], Any]] = {"tensorboard": summary_writer, "wandb": wandb_module}


def reporting(report_to: str | None, run: Path) -> Any:
    """Return a context manager that reports the run in this folder to ``report_to``; None: it does nothing."""
    return nullcontext() if report_to is None else REPORTS[report_to](run)
