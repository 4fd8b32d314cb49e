"""Checkpoints: folders that appear whole or not at all, and are refused if a byte of them has changed.

A checkpoint is a ``save_pretrained`` folder (so any ``transformers`` tool can open it) with three files more:
``state.safetensors`` and ``state.json`` for whatever else a run has to remember, and ``manifest.json`` with the size and
SHA-256 of every file. Nothing is pickled. It is written under another name, flushed to the disk, and then renamed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers.utils import logging

from minirlhf.core.errors import ArgumentError, UserError
from minirlhf.core.folders import PARTIAL, sync
from minirlhf.models import adapters

MANIFEST, TENSORS, INFO = "manifest.json", "state.safetensors", "state.json"
_STEP = re.compile(r"step-(\d+)")


class Saveable(Protocol):
    """A model or tokenizer: whatever writes itself into a folder."""

    def save_pretrained(self, folder: str | Path, /) -> Any:
        """Write all files needed to load it again."""


@dataclass(frozen=True)
class Loaded:
    """What a checkpoint remembers besides its models, which their own loaders read from ``folder`` and its sub-folders.

    Attributes:
        folder: where it is.
        tensors: as they were saved, on the CPU.
        info: as it was saved, after a trip through JSON.
    """

    folder: Path
    tensors: dict[str, Tensor]
    info: dict[str, Any]


@contextmanager
def quietly() -> Iterator[None]:
    """Run the block without ``transformers``' progress bars and warnings: for local files, which take no time."""
    bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def step_folder(run_dir: str | Path, step: int) -> Path:
    """Where a run keeps its checkpoint after ``step`` steps."""
    return Path(run_dir, "checkpoints", f"step-{step:06d}")


def save(
    folder: str | Path,
    model: Saveable | nn.Module | None = None,
    tokenizer: Saveable | None = None,
    *,
    extra_tensors: Mapping[str, Tensor] | None = None,
    extra_json: Mapping[str, Any] | None = None,
    parts: Mapping[str, Saveable | nn.Module] | None = None,
) -> Path:
    """Write a checkpoint; after a return it is on the disk, and before it there is nothing by that name.

    An older checkpoint of the same name is replaced. A process that is killed in between leaves a hidden folder that ends in
    ``.partial``; :func:`prune` removes it.

    Args:
        folder: its name; the folder above is made if needed.
        model, tokenizer: written into the folder itself.
        extra_tensors: further tensors by name, an optimizer's moments for instance.
        extra_json: further JSON values.
        parts: further models, each into the sub-folder of its name (a critic, say).

    Raises:
        UserError: it cannot be written (no space, no permission); nothing is left behind.
    """
    target = Path(folder)
    partial = target.with_name(f".{target.name}.{os.getpid()}{PARTIAL}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        contents: list[tuple[Any, Path]] = [(model, partial), (tokenizer, partial)]
        contents += [(part, partial / name) for name, part in (parts or {}).items()]
        with quietly():
            for content, place in contents:
                if content is not None:
                    content.save_pretrained(place)
        _write_state(partial, extra_tensors or {}, extra_json or {})
        _write_manifest(partial)
        _flush(partial)
        _put_in_place(partial, target)
    except (OSError, SafetensorError) as problem:
        shutil.rmtree(partial, ignore_errors=True)
        said = f"{target}: the checkpoint cannot be written ({problem})"
        raise UserError(said, file=target, problem="not writable") from problem
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return target


def find_corruption(folder: str | Path) -> UserError | None:
    """Why this checkpoint must not be used; None if every file is as it was written.

    Its facts: ``argument`` is the name of the file, ``problem`` is "missing", "added", "size", "altered" or "unreadable".
    """
    root = Path(folder)
    try:
        listed: dict[str, dict[str, Any]] = json.loads((root / MANIFEST).read_text(encoding="utf-8"))["files"]
        found = {str(path.relative_to(root)) for path in _files(root)} - {MANIFEST}
        for name in sorted(listed.keys() | found):
            if name not in found:
                return UserError(f"{name} is missing", argument=name, problem="missing")
            if name not in listed:
                return UserError(f"{name} was added", argument=name, problem="added")
            if (root / name).stat().st_size != listed[name]["bytes"]:
                return UserError(f"{name} has another size", argument=name, problem="size")
            if _sha256(root / name) != listed[name]["sha256"]:
                return UserError(f"{name} was altered", argument=name, problem="altered")
    except FileNotFoundError:
        return UserError(f"no {MANIFEST}", argument=MANIFEST, problem="missing")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        return UserError(f"{MANIFEST} is unreadable ({problem})", argument=MANIFEST, problem="unreadable")
    return None


def raise_if_corrupt(folder: str | Path) -> None:
    """Raise :class:`UserError` if this folder has a manifest and differs from it; a folder without one passes."""
    if Path(folder, MANIFEST).is_file() and (reason := find_corruption(folder)):
        raise UserError.about(f"{folder}: damaged checkpoint ({reason})", reason, file=folder)


def load(folder: str | Path) -> Loaded:
    """Open a checkpoint after comparing every file with its manifest.

    Raises:
        UserError: it does not exist or is damaged.
    """
    path = Path(folder)
    if not path.is_dir():
        raise UserError(f"{path}: no such checkpoint folder", file=path, problem="missing")
    if reason := find_corruption(path):
        raise UserError.about(f"{path}: damaged checkpoint ({reason})", reason, file=path)
    return Loaded(path, load_file(path / TENSORS), json.loads((path / INFO).read_text(encoding="utf-8")))


def steps(run_dir: str | Path) -> list[int]:
    """The steps at which a run has checkpoints, in order, whether they are sound or not."""
    root = step_folder(run_dir, 0).parent
    names = [path.name for path in root.iterdir() if path.is_dir()] if root.is_dir() else []
    return sorted(int(found.group(1)) for name in names if (found := _STEP.fullmatch(name)))


def load_latest(run_dir: str | Path) -> Loaded | None:
    """The newest sound checkpoint of a run, or None if it has none yet. A damaged one is passed over with a warning.

    Raises:
        UserError: it has checkpoints, and all of them are damaged.
    """
    refused = []
    for step in reversed(steps(run_dir)):
        folder = step_folder(run_dir, step)
        try:
            return load(folder)
        except UserError as problem:
            warnings.warn(f"{problem}; using the one before", stacklevel=2)
            refused.append(folder.name)
    if refused:
        raise UserError(
            f"{run_dir}: every checkpoint is damaged ({', '.join(refused)}); start the run anew in another folder",
            value=refused,
            file=run_dir,
        )
    return None


def delete_checkpoints_after(run_dir: str | Path, step: int) -> None:
    """Remove the checkpoints of a run that are newer than ``step``: it goes on from there and writes them again."""
    for newer in steps(run_dir):
        if newer > step:
            shutil.rmtree(step_folder(run_dir, newer))


def prune(run_dir: str | Path, keep: int = 2) -> None:
    """Remove all but the newest ``keep`` checkpoints of a run, and what killed processes left half-written."""
    if keep < 1:
        raise ArgumentError(f"{keep=}; expected at least 1", argument="keep", value=keep, expected=1)
    for step in steps(run_dir)[:-keep]:
        shutil.rmtree(step_folder(run_dir, step))
    for path in step_folder(run_dir, 0).parent.glob(f".*{PARTIAL}"):
        shutil.rmtree(path)


def restore_weights(model: nn.Module, folder: str | Path) -> None:
    """Put the weights of a checkpoint into a model of the same class and shapes, in place.

    A model that is saved in a way of its own (a head on another model) has a method ``restore(folder)``.

    Raises:
        UserError: the folder holds another model.
    """
    kind: Any = type(model)
    restore: Any = getattr(model, "restore", None)
    try:
        if adapters.is_adapted(model):
            adapters.restore(model, folder)
            return
        if restore is not None:
            restore(folder)
            return
        with quietly():
            stored = kind.from_pretrained(folder)
        model.load_state_dict(stored.state_dict())
    except (OSError, RuntimeError, ValueError, SafetensorError) as problem:
        reason = str(problem).strip().splitlines()[0]
        said = f"{folder}: its weights do not fit this {kind.__name__} ({reason})"
        raise UserError(said, expected=kind.__name__, file=folder, problem="mismatch") from problem


# -- inside ------------------------------------------------------------------------------------------------------


def _files(root: Path) -> list[Path]:
    """All files below, without the hidden ones that desktops scatter."""
    return sorted(
        path
        for path in root.rglob("*")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(root).parts)
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_state(folder: Path, tensors: Mapping[str, Tensor], info: Mapping[str, Any]) -> None:
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, folder / TENSORS)
    (folder / INFO).write_text(json.dumps(dict(info), indent=1), encoding="utf-8")


def _write_manifest(folder: Path) -> None:
    files = {
        str(path.relative_to(folder)): {"bytes": path.stat().st_size, "sha256": _sha256(path)}
        for path in _files(folder)
    }
    (folder / MANIFEST).write_text(json.dumps({"files": files}, indent=1), encoding="utf-8")


def _flush(folder: Path) -> None:
    """Have the system write the files, then the folders that name them, to the disk."""
    for path in [*_files(folder), *(p for p in folder.rglob("*") if p.is_dir()), folder]:
        sync(path)


def _put_in_place(partial: Path, target: Path) -> None:
    """Rename, moving an older checkpoint of that name out of the way first; a folder of another kind is left alone."""
    older = target.with_name(f".{target.name}.{os.getpid()}.older{PARTIAL}")
    replaces = target.is_dir() and any(target.iterdir())
    if replaces:
        if not (target / MANIFEST).is_file():
            raise OSError("the folder exists and is not a checkpoint; choose another name")
        os.rename(target, older)
    try:
        os.rename(partial, target)
    except OSError:
        if replaces:
            os.rename(older, target)
        raise
    if replaces:
        shutil.rmtree(older)
    sync(target.parent)
