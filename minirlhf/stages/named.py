"""Load a language model by name: a zoo entry, a run's folder, a model folder, or a name on the hub."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import torch

from minirlhf.core.errors import UserError
from minirlhf.models import checkpoints, tiny
from minirlhf.models.loading import load_folder, load_model
from minirlhf.stages import zoo


def model_by_name(name: str, *, dtype: torch.dtype = torch.float32) -> tuple[Any, Any]:
    """Return ``(model, tokenizer)``, with weights in this ``dtype``. A zoo entry is trained first if it is not cached.

    Raises:
        UserError: no model has this name, or it is not a language model.
    """
    path = Path(name).expanduser()
    if path.is_dir():
        return load_folder(model_folder(path), complete_tokenizer=True, dtype=dtype)
    if name in zoo.ENTRIES:
        if zoo.ENTRIES[name].reads is not load_folder:
            raise UserError(
                f"{name}: {zoo.ENTRIES[name].about}; it gives scores; expected a language model",
                argument="model",
                value=name,
                expected="language model",
            )
        model, tokenizer = zoo.load(name)
        return model.to(dtype), tokenizer
    if name in tiny.PRESETS:
        raise UserError(
            f"{name}: the sizes of an untrained model; name a trained one ({', '.join(zoo.ENTRIES)}, a folder)",
            argument="model",
            value=name,
            expected=list(zoo.ENTRIES),
        )
    if "/" not in name and difflib.get_close_matches(name, zoo.ENTRIES, cutoff=0.7):
        zoo.get(name)  # raises with the nearest name
    return load_model(name, complete_tokenizer=True, dtype=dtype)


def model_folder(folder: Path) -> Path:
    """Return the folder of a run's model: ``model/``, else the newest checkpoint; else the folder itself."""
    if (folder / "config.json").is_file() and (folder / "metrics.jsonl").is_file():
        if (folder / "model").is_dir():
            return folder / "model"
        steps = checkpoints.steps(folder)
        if not steps:
            raise UserError(
                f"{folder}: this run has no checkpoint yet", argument="model", problem="missing", file=folder
            )
        return checkpoints.step_folder(folder, steps[-1])
    return folder
