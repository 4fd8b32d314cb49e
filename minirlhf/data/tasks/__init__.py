"""Small tasks: prompts, references and a string grader each. A new task is one file in this folder."""

from __future__ import annotations

import importlib
import pkgutil

from minirlhf.core.errors import ArgumentError, unknown
from minirlhf.data.tasks.base import Split, Task


def find() -> dict[str, Task]:
    """Return every task that a module of this folder defines, by its name.

    Raises:
        ValueError: a module defines no object with all members of :class:`Task`.
    """
    tasks: dict[str, Task] = {}
    for module in sorted(info.name for info in pkgutil.iter_modules(__path__) if info.name != "base"):
        values = vars(importlib.import_module(f"{__name__}.{module}")).values()
        objects = [value for value in values if isinstance(value, Task) and not isinstance(value, type)]
        if not objects:
            message = f"{__name__}.{module}: defines no task; expected an object with all members of base.Task"
            raise ArgumentError(message, argument=module, expected="Task", problem="missing")
        tasks.update({task.name: task for task in objects})
    return tasks


TASKS = find()

__all__ = ["TASKS", "Split", "Task", "find", "get"]


def get(name: str) -> Task:
    """Return the task of this name, ``-`` and ``_`` alike; an unknown name is a ``UserError`` with the nearest one."""
    task = TASKS.get(name.replace("-", "_"))
    if task is None:
        raise unknown("task", name, TASKS)
    return task
