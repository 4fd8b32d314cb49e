"""A cache of trained checkpoints: each is built on first use, under a hash of everything that determines it.

It is safe when two processes start at once (one trains, the other waits). A damaged entry is built again.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import json
import platform
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from filelock import FileLock

from minirlhf.core.errors import UserError
from minirlhf.core.folders import cache_folder
from minirlhf.models import checkpoints


def fingerprint(determinants: Mapping[str, Any]) -> str:
    """Return a hash (16 hex digits) of settings, of the versions of ``torch`` and ``transformers``, and of the machine
    type.

    Settings are JSON values and dataclasses of them; a function enters with its name and the options bound to it.
    """

    def to_json(value: Any) -> Any:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {"": type(value).__name__, **{f.name: getattr(value, f.name) for f in dataclasses.fields(value)}}
        if isinstance(value, functools.partial) and not value.args:
            return {"": value.func, **value.keywords}
        if inspect.isfunction(value) and value.__name__.isidentifier():  # a lambda has no name that identifies it
            return value.__name__
        raise TypeError(f"{value!r} of type {type(value).__name__} cannot be part of a cache key")

    payload = {**determinants, "torch": torch.__version__, "transformers": transformers.__version__}
    payload["machine"] = platform.machine()
    return hashlib.sha256(json.dumps(payload, sort_keys=True, default=to_json).encode()).hexdigest()[:16]


def folder_of(name: str, determinants: Mapping[str, Any]) -> Path:
    """Return the path of the checkpoint ``name`` with these determinants, whether it exists or not."""
    return cache_folder() / f"{name}-{fingerprint(determinants)}"


def cached(name: str, determinants: Mapping[str, Any], build: Callable[[], tuple[Any, Any]], *, note: str = "") -> Path:
    """Return the folder of the checkpoint ``name`` with these determinants; build and save it first if it does not
    exist.

    Args:
        name: the readable part of the folder's name.
        determinants: everything that the result depends on: settings (dataclasses, JSON values), a source hash,
            parents.
        build: trains from scratch and returns ``(model, tokenizer)``.
        note: printed when the checkpoint has to be built.

    Raises:
        UserError: the cache folder cannot be written.
    """
    folder = folder_of(name, determinants)
    root = folder.parent
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = FileLock(root / f"{folder.name}.lock")
        lock.acquire()
    except OSError as error:
        message = f"{root}: the cache cannot be written ({error.strerror}); set MINIRLHF_CACHE"
        raise UserError(message, argument="MINIRLHF_CACHE", file=root, problem="not writable") from None
    try:
        if folder.exists():
            reason = checkpoints.find_corruption(folder)
            if reason is None:
                return folder
            print(f"{folder}: damaged ({reason}); building it again", file=sys.stderr)
            shutil.rmtree(folder)
        if note:
            print(note, file=sys.stderr, flush=True)
        model, tokenizer = build()
        checkpoints.save(folder, model, tokenizer)
        return folder
    finally:
        lock.release()
