"""Checkpoints: folders that are written atomically and rejected if any byte of them has changed.

A checkpoint is a ``save_pretrained`` folder (so any ``transformers`` tool can open it) with three more files:
``state.safetensors`` and ``state.json`` for the rest of a run's state, and ``manifest.json`` with the size and SHA-256
of every file. Nothing is pickled. A checkpoint is written under another name, flushed to the disk, and then renamed.
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
    """An object that writes itself into a folder: a model or a tokenizer."""

    def save_pretrained(self, folder: str | Path, /) -> Any:
        """Write all files needed to load it again."""


@dataclass(frozen=True)
class Loaded:
    """The contents of a checkpoint except its models, which their own loaders read from ``folder`` and its sub-folders.

    Attributes:
        folder: the path of the checkpoint.
        tensors: the saved ``extra_tensors``, on the CPU.
        info: the saved ``extra_json``, as JSON returns it.
    """

    folder: Path
    tensors: dict[str, Tensor]
    info: dict[str, Any]


@contextmanager
def quietly() -> Iterator[None]:
    """Run the block without ``transformers``' progress bars and warnings; for local files, which load quickly."""
    show_bars, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if show_bars:
            logging.enable_progress_bar()


def step_folder(run_dir: str | Path, step: int) -> Path:
    """Return the path of a run's checkpoint after ``step`` steps."""
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
    """Write a checkpoint atomically: when the function returns, it is on the disk; until then no folder of this name
    appears.

    An older checkpoint of the same name is replaced. A process that is killed while saving leaves a hidden folder that
    ends in ``.partial``; :func:`prune` removes it.

    Args:
        folder: path of the checkpoint; its parent folder is created if needed.
        model, tokenizer: written into the folder itself.
        extra_tensors: further tensors by name, for example an optimizer's moments.
        extra_json: further JSON values.
        parts: further models (for example a critic), each written into the sub-folder of its name.

    Raises:
        UserError: the checkpoint cannot be written (no space, no permission); nothing is left behind.
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
            for content, path in contents:
                if content is not None:
                    with warnings.catch_warnings():  # peft tells of a padding token's embedding at every checkpoint
                        warnings.filterwarnings("ignore", message="Setting `save_embedding_layers`")
                        content.save_pretrained(path)
        _write_state(partial, extra_tensors or {}, extra_json or {})
        _write_manifest(partial)
        _flush(partial)
        _put_in_place(partial, target)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        message = f"{target}: the checkpoint cannot be written ({error})"
        raise UserError(message, file=target, problem="not writable") from error
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return target


def find_corruption(folder: str | Path) -> UserError | None:
    """Return the reason why this checkpoint is damaged, as an error; None if every file is as it was written.

    The facts of the error: ``argument`` is the name of the file, ``problem`` is "missing", "added", "size", "altered"
    or "unreadable".
    """
    root = Path(folder)
    try:
        expected: dict[str, dict[str, Any]] = json.loads((root / MANIFEST).read_text(encoding="utf-8"))["files"]
        actual = {str(path.relative_to(root)) for path in _files(root)} - {MANIFEST}
        for name in sorted(expected.keys() | actual):
            if name not in actual:
                return UserError(f"{name} is missing", argument=name, problem="missing")
            if name not in expected:
                return UserError(f"{name} was added", argument=name, problem="added")
            if (root / name).stat().st_size != expected[name]["bytes"]:
                return UserError(f"{name} has another size", argument=name, problem="size")
            if _sha256(root / name) != expected[name]["sha256"]:
                return UserError(f"{name} was altered", argument=name, problem="altered")
    except FileNotFoundError:
        return UserError(f"no {MANIFEST}", argument=MANIFEST, problem="missing")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return UserError(f"{MANIFEST} is unreadable ({error})", argument=MANIFEST, problem="unreadable")
    return None


def raise_if_corrupt(folder: str | Path) -> None:
    """Raise :class:`UserError` if this folder has a manifest and differs from it; a folder without a manifest
    passes."""
    if Path(folder, MANIFEST).is_file() and (reason := find_corruption(folder)):
        raise UserError.about(f"{folder}: damaged checkpoint ({reason})", reason, file=folder)


def load(folder: str | Path) -> Loaded:
    """Open a checkpoint after comparing every file with its manifest.

    Raises:
        UserError: the checkpoint does not exist or is damaged.
    """
    path = Path(folder)
    if not path.is_dir():
        raise UserError(f"{path}: no such checkpoint folder", file=path, problem="missing")
    if reason := find_corruption(path):
        raise UserError.about(f"{path}: damaged checkpoint ({reason})", reason, file=path)
    return Loaded(path, load_file(path / TENSORS), json.loads((path / INFO).read_text(encoding="utf-8")))


def steps(run_dir: str | Path) -> list[int]:
    """Return the steps at which a run has checkpoints, in order; damaged checkpoints are included."""
    root = step_folder(run_dir, 0).parent
    names = [path.name for path in root.iterdir() if path.is_dir()] if root.is_dir() else []
    return sorted(int(match.group(1)) for name in names if (match := _STEP.fullmatch(name)))


def load_latest(run_dir: str | Path) -> Loaded | None:
    """Load the newest undamaged checkpoint of a run; None if the run has none yet. A damaged one is skipped with a
    warning.

    Raises:
        UserError: the run has checkpoints, and all of them are damaged.
    """
    damaged = []
    for step in reversed(steps(run_dir)):
        folder = step_folder(run_dir, step)
        try:
            return load(folder)
        except UserError as error:
            warnings.warn(f"{error}; falling back to the previous checkpoint", stacklevel=2)
            damaged.append(folder.name)
    if damaged:
        raise UserError(
            f"{run_dir}: every checkpoint is damaged ({', '.join(damaged)}); start the run again in another folder",
            value=damaged,
            file=run_dir,
        )
    return None


def delete_checkpoints_after(run_dir: str | Path, step: int) -> None:
    """Remove the checkpoints of a run that are newer than ``step``; the run resumes from ``step`` and writes them
    again."""
    for newer in steps(run_dir):
        if newer > step:
            shutil.rmtree(step_folder(run_dir, newer))


def prune(run_dir: str | Path, keep: int = 2) -> None:
    """Remove all checkpoints of a run except the newest ``keep``, and all folders that killed processes left
    half-written."""
    if keep < 1:
        raise ArgumentError(f"{keep=}; expected at least 1", argument="keep", value=keep, expected=1)
    for step in steps(run_dir)[:-keep]:
        shutil.rmtree(step_folder(run_dir, step))
    for path in step_folder(run_dir, 0).parent.glob(f".*{PARTIAL}"):
        shutil.rmtree(path)


def restore_weights(model: nn.Module, folder: str | Path) -> None:
    """Load the weights of a checkpoint into a model of the same class and shapes, in place.

    A model with its own file format (a head on another model) has a method ``restore(folder)``.

    Raises:
        UserError: the weights in the folder do not fit the model.
    """
    model_class: Any = type(model)
    restore: Any = getattr(model, "restore", None)
    try:
        if adapters.is_adapted(model):
            adapters.restore(model, folder)
            return
        if restore is not None:
            restore(folder)
            return
        with quietly():
            stored = model_class.from_pretrained(folder)
        model.load_state_dict(stored.state_dict())
    except (OSError, RuntimeError, ValueError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0]
        message = f"{folder}: its weights do not fit this {model_class.__name__} ({reason})"
        raise UserError(message, expected=model_class.__name__, file=folder, problem="mismatch") from error


# -- inside ------------------------------------------------------------------------------------------------------


def _files(root: Path) -> list[Path]:
    """Return all files below the folder, except the hidden files that desktops create."""
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
    """Flush the files, then the folders that list them, to the disk."""
    for path in [*_files(folder), *(p for p in folder.rglob("*") if p.is_dir()), folder]:
        sync(path)


def _put_in_place(partial: Path, target: Path) -> None:
    """Rename ``partial`` to ``target``, after moving an older checkpoint of that name aside; any other folder is not
    touched."""
    older = target.with_name(f".{target.name}.{os.getpid()}.older{PARTIAL}")
    replacing = target.is_dir() and any(target.iterdir())
    if replacing:
        if not (target / MANIFEST).is_file():
            raise OSError("the folder exists and is not a checkpoint; choose another name")
        os.rename(target, older)
    try:
        os.rename(partial, target)
    except OSError:
        if replacing:
            os.rename(older, target)
        raise
    if replacing:
        shutil.rmtree(older)
    sync(target.parent)
