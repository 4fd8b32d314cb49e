"""One-line functions for notebooks beside those of :mod:`minirlhf.notebook`: plot, verify. ``import minirlhf`` gives them, too."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from minirlhf.core.errors import UserError, unknown
from minirlhf.trainers.history import History
from minirlhf_course.chapters import load_checks
from minirlhf_course.ledger.pages import run_and_print
from minirlhf_course.report import curves

__all__ = ["plot", "verify"]


def plot(
    runs: History | Sequence[History] | Mapping[str, History | Sequence[History]], *names: str, window: int = 1
) -> Any:
    """Plot metrics against the step: a panel per metric, a curve per run, and a band for several seeds of a run.

    Args:
        runs: one history, or one for each seed, or ``{label: history}``, or ``{label: [a history for each seed]}``.
        names: the metrics; none: all except times and learning rate.
        window: each point of a curve is the mean over this many steps, the last of which is its own.

    Returns:
        A matplotlib figure.

    Raises:
        UserError: no history, or a metric that no run has.

    >>> from minirlhf.trainers.history import History
    >>> one, other = (History(rows=[{"step": k, "reward": k * slope} for k in range(3)]) for slope in (1, 2))
    >>> figure = plot({"GRPO": one, "DAPO": other}, "reward")
    >>> [ax.get_title() for ax in figure.axes]
    ['reward']
    """
    named: Mapping[str, Any] = runs if isinstance(runs, Mapping) else {"": runs}
    groups = {
        label: [curves.LoggedRun(Path(label), history, {}) for history in _listed(run)] for label, run in named.items()
    }
    if not any(groups.values()):
        raise UserError("no history to plot; expected what train returned", argument="runs", problem="empty")
    return curves.figure(
        groups, curves.choose([run for group in groups.values() for run in group], names), window=window
    )


def verify(*labels: str, seed: int | None = None) -> bool:
    """Check equations of the book against exact oracles, on fresh inputs, and print the outcome as ``minirlhf verify`` does.

    Args:
        labels: labels of equations, such as ``"eq:k3"``; none: every equation (under a minute).
        seed: the seed of an earlier call repeats its inputs; None: a random seed.

    Returns:
        Whether all of the equations hold.

    Raises:
        UserError: no equation has this label (the message names the nearest).

    >>> verify("eq:k3", seed=0)  # doctest: +ELLIPSIS
    label ...
    True
    """
    ledger = load_checks()
    for label in labels:
        if label not in ledger.labels():
            raise unknown("label", label, ledger.labels())
    return run_and_print(ledger.select(labels), secrets.randbelow(2**31) if seed is None else seed)


def _listed(histories: History | Sequence[History]) -> list[History]:
    return [histories] if isinstance(histories, History) else list(histories)
