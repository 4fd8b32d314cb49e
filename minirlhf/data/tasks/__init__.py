"""Tiny worlds: prompts, references and a string grader each. A new world is one file of this folder; nothing lists it."""

from __future__ import annotations

import importlib
import pkgutil

from minirlhf.core.errors import ArgumentError, unknown
from minirlhf.data.tasks.base import Split, Task


def find() -> dict[str, Task]:
    """Every world that a module of this folder defines, by its name.

    Raises:
        ValueError: a module without a world; what it defines lacks something that :class:`Task` names.
    """
    worlds: dict[str, Task] = {}
    for module in sorted(found.name for found in pkgutil.iter_modules(__path__) if found.name != "base"):
        values = vars(importlib.import_module(f"{__name__}.{module}")).values()
        here = [value for value in values if isinstance(value, Task) and not isinstance(value, type)]
        if not here:
            said = f"{__name__}.{module}: no tiny world; expected an object with all that base.Task names"
            raise ArgumentError(said, argument=module, expected="Task", problem="missing")
        worlds.update({world.name: world for world in here})
    return worlds


TASKS = find()

__all__ = ["TASKS", "Split", "Task", "find", "get"]


def get(name: str) -> Task:
    """The task of this name, ``-`` and ``_`` alike; an unknown name is a ``UserError`` with the nearest one."""
    task = TASKS.get(name.replace("-", "_"))
    if task is None:
        raise unknown("task", name, TASKS)
    return task
