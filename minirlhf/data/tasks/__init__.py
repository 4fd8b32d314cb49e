"""Tiny worlds: prompts, references and a string grader each. A new task is one file and one line here."""

from __future__ import annotations

from minirlhf.core.errors import unknown
from minirlhf.data.tasks.assistant import ASSISTANT
from minirlhf.data.tasks.base import Split, Task
from minirlhf.data.tasks.phrasebook import PHRASEBOOK
from minirlhf.data.tasks.shell_game import SHELL_GAME
from minirlhf.data.tasks.sort_digits import SORT_DIGITS

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        ASSISTANT,
        SHELL_GAME,
        SORT_DIGITS,
        PHRASEBOOK,
    )
}

__all__ = ["TASKS", "Split", "Task", "get"]


def get(name: str) -> Task:
    """The task of this name, ``-`` and ``_`` alike; an unknown name is a ``UserError`` with the nearest one."""
    task = TASKS.get(name.replace("-", "_"))
    if task is None:
        raise unknown("task", name, TASKS)
    return task
