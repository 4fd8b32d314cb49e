"""The start of a run from files: device, dtype, defaults for the model's size, banner, and digests for its record.

A run prints and records these facts because they are costly to find out later: that the weights were bfloat16, that
completions never ended, or that a resumed run got other data.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import logging
import os
import platform
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from minirlhf.core.calling import context_length
from minirlhf.core.errors import UserError, unknown
from minirlhf.data.chat import EndTokens
from minirlhf.data.records import FromRow, Problem
from minirlhf.models.tiny import num_parameters
from minirlhf.trainers.config import TrainerConfig

log = logging.getLogger(__name__)

C = TypeVar("C", bound=TrainerConfig)

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}

#: A model with this many parameters or more is treated as pretrained; the settings of a tiny model are wrong for it.
PRETRAINED = 20_000_000
#: A model with fewer parameters is computed on one thread.
TINY = 1_000_000
#: Defaults for training all weights of a pretrained model. Adapters (LoRA) learn at :data:`ADAPTER` times the rate.
FIT: Mapping[str, Mapping[str, Any]] = {
    "SFTConfig": {"learning_rate": 2e-5},
    "RewardConfig": {"learning_rate": 1e-5},
    "OutcomeConfig": {"learning_rate": 1e-5},
    "ProcessConfig": {"learning_rate": 1e-5},
    "OfflineConfig": {"learning_rate": 1e-6},
    "DistillConfig": {"learning_rate": 2e-5, "max_completion_length": 256},
    "OnlineConfig": {"learning_rate": 1e-6, "max_completion_length": 256},
    "RejectionConfig": {"learning_rate": 2e-5, "max_completion_length": 256},
}
ADAPTER = 10.0


def device_of(name: str | None) -> torch.device:
    """Return the device of this name; by default the first CUDA GPU, or the CPU without one.

    Raises:
        UserError: the device does not exist on this machine.
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as problem:
        reason = str(problem).strip().splitlines()[0]
        raise UserError(
            f"device = {name!r}: not available ({reason[:120]}); `minirlhf doctor` lists the available devices",
            argument="device",
            value=name,
            problem="missing",
        ) from None


def dtype_of(name: str) -> torch.dtype:
    """Return the torch dtype of this name."""
    if name not in DTYPES:
        raise unknown("dtype", name, DTYPES)
    return DTYPES[name]


def defaults_for_model_size(
    config: C, given: Collection[str], model: nn.Module, *, adapter: bool
) -> tuple[C, dict[str, str]]:
    """Return the settings with defaults for the model's size where the user chose none, and each value's origin."""
    origins = {name: "given" if name in given else "default for a tiny model" for name in FIT[type(config).__name__]}
    if num_parameters(model) < PRETRAINED:
        return config, origins
    changed = {name: value for name, value in FIT[type(config).__name__].items() if name not in given}
    if adapter and "learning_rate" in changed:
        changed["learning_rate"] *= ADAPTER
    kind = "an adapter on a pretrained model" if adapter else "a pretrained model"
    return dataclasses.replace(config, **changed), {**origins, **dict.fromkeys(changed, f"default for {kind}")}


def log_unused_options(idle: Iterable[str]) -> None:
    """Log a warning for each option that the user set and that has no effect."""
    for message in idle:
        log.warning("%s", message)


def limit_threads(model: nn.Module) -> None:
    """Compute a tiny model on one CPU thread, because more threads slow it down; a set ``OMP_NUM_THREADS`` stays."""
    on_cpu = next(model.parameters()).device.type == "cpu"
    if on_cpu and num_parameters(model) < TINY and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)


def has_dropout(model: nn.Module) -> bool:
    """Return whether the model has dropout when it is trained, as layers or in its configuration."""
    config = getattr(getattr(model, "backbone", model), "config", None)
    rates = [value for name, value in vars(config).items() if "drop" in name] if config is not None else []
    layers = [module.p for module in model.modules() if isinstance(module, nn.Dropout)]
    return any(isinstance(rate, float) and rate > 0 for rate in (*rates, *layers))


def run_banner(
    name: str,
    model: nn.Module,
    ends: EndTokens,
    config: TrainerConfig,
    source: Mapping[str, str],
    template: str = "",
) -> str:
    """Return one line with model, dtype, device, template, end tokens, context and settings, with the origin of each
    setting.

    ``template`` describes the chat template if there is something to say of it.
    """
    parameter = next(model.parameters())
    num_params, context = num_parameters(model), context_length(model)
    size = f"{num_params / 1e6:,.1f} M" if num_params >= 1e6 else f"{num_params:,}"
    class_name = type(getattr(model, "backbone", model)).__name__
    learns_end = "chat template" in ends.found.values()
    warning = (
        ""
        if learns_end
        else ", which the chat template does not write behind a reply: nothing teaches the model to end"
    )
    settings = ", ".join(f"{key} {getattr(config, key):g} ({origin})" for key, origin in source.items())
    return (
        f"{name}: {class_name}, {size} parameters, {str(parameter.dtype).removeprefix('torch.')} on {parameter.device}; "
        f"{template + '; ' if template else ''}replies end at "
        f"{ends}{warning}; reads {'any number of' if context is None else context} tokens; {settings}"
    )


# -- the record --------------------------------------------------------------------------------------------------


def digest(values: Iterable[Any]) -> str:
    """Return a hash (16 hex digits) of the records, in their order."""
    sha256 = hashlib.sha256()
    for value in values:
        record = dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value
        if isinstance(value, FromRow) and not isinstance(value, Problem):
            del record["columns"]  # only graders of problems read them
        sha256.update(json.dumps(record, sort_keys=True, ensure_ascii=False, default=str).encode())
    return sha256.hexdigest()[:16]


def model_digest(model: nn.Module) -> str:
    """Return a hash (16 hex digits) of the names, shapes and up to 4,096 evenly spaced values of a model's tensors."""
    sha256 = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        flat = tensor.detach().flatten()
        sample = flat[:: max(1, len(flat) // 4096)].to(device="cpu", dtype=torch.float64)
        sha256.update(
            f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode() + np.ascontiguousarray(sample.numpy()).tobytes()
        )
    return sha256.hexdigest()[:16]


def file_digest(path: str | Path) -> str:
    """Return a hash (16 hex digits) of a file."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that compute."""
    names = ("minirlhf", "torch", "transformers", "tokenizers", "peft")
    found_versions = {"python": platform.python_version()}
    for name in names:
        try:
            found_versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found_versions
