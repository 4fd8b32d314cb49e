"""What a run from files starts with: the machine, numbers fit for the model's size, one line that says so, and the record of it.

What a run does not say of itself is found out later, at a cost: that the weights were bfloat16, that replies never ended, that a
resumed run was given other data.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import logging
import platform
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from minirlhf.core.calling import context_length
from minirlhf.core.errors import UserError, unknown
from minirlhf.data.chat import Ends
from minirlhf.models.tiny import num_parameters
from minirlhf.trainers.config import TrainerConfig

log = logging.getLogger(__name__)

C = TypeVar("C", bound=TrainerConfig)

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}

#: From so many parameters on a model is taken for a pretrained one, for which the settings of a tiny one are wrong.
PRETRAINED = 20_000_000
#: What then takes the place of a default, for training every weight; adapters (LoRA) learn at :data:`ADAPTER` times the rate.
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
    """The device of this name; by default the first GPU, or the CPU where there is none.

    Raises:
        UserError: no such device here.
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as problem:
        reason = str(problem).strip().splitlines()[0]
        raise UserError(
            f"device = {name!r}: not there ({reason[:120]}); `minirlhf doctor` says what is",
            argument="device",
            value=name,
            problem="missing",
        ) from None


def dtype_of(name: str) -> torch.dtype:
    """The number format of this name."""
    if name not in DTYPES:
        raise unknown("dtype", name, DTYPES)
    return DTYPES[name]


def defaults_for_model_size(
    config: C, given: Collection[str], model: nn.Module, *, adapter: bool
) -> tuple[C, dict[str, str]]:
    """The settings, with those that nobody gave fit for the model's size; and for each such setting where its value is from."""
    source = {name: "given" if name in given else "default for a tiny model" for name in FIT[type(config).__name__]}
    if num_parameters(model) < PRETRAINED:
        return config, source
    changed = {name: value for name, value in FIT[type(config).__name__].items() if name not in given}
    if adapter and "learning_rate" in changed:
        changed["learning_rate"] *= ADAPTER
    kind = "an adapter on a pretrained model" if adapter else "a pretrained model"
    return dataclasses.replace(config, **changed), {**source, **dict.fromkeys(changed, f"default for {kind}")}


def log_unused_options(idle: Iterable[str]) -> None:
    """Say what somebody asked for and does nothing."""
    for sentence in idle:
        log.warning("%s", sentence)


def run_banner(name: str, model: nn.Module, ends: Ends, config: TrainerConfig, source: Mapping[str, str]) -> str:
    """Model, number format, device, end tokens, context and learning rate, and where each came from, in one line."""
    weight = next(model.parameters())
    count, context = num_parameters(model), context_length(model)
    size = f"{count / 1e6:,.1f} M" if count >= 1e6 else f"{count:,}"
    kind = type(getattr(model, "backbone", model)).__name__
    taught = "chat template" in ends.found.values()
    untaught = (
        "" if taught else ", which the chat template does not write behind a reply: nothing teaches the model to end"
    )
    settings = ", ".join(f"{key} {getattr(config, key):g} ({where})" for key, where in source.items())
    return (
        f"{name}: {kind}, {size} parameters, {str(weight.dtype).removeprefix('torch.')} on {weight.device}; replies end at "
        f"{ends}{untaught}; reads {'any number of' if context is None else context} tokens; {settings}"
    )


# -- the record --------------------------------------------------------------------------------------------------


def digest(values: Iterable[Any]) -> str:
    """A hash (16 hex digits) of records, in their order."""
    found = hashlib.sha256()
    for value in values:
        plain = dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value
        found.update(json.dumps(plain, sort_keys=True, ensure_ascii=False).encode())
    return found.hexdigest()[:16]


def model_digest(model: nn.Module) -> str:
    """A hash (16 hex digits) of a model's names, shapes and up to 4,096 evenly spaced values of each tensor."""
    found = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        flat = tensor.detach().flatten()
        some = flat[:: max(1, len(flat) // 4096)].to(device="cpu", dtype=torch.float64)
        found.update(
            f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode() + np.ascontiguousarray(some.numpy()).tobytes()
        )
    return found.hexdigest()[:16]


def file_digest(path: str | Path) -> str:
    """A hash (16 hex digits) of a file."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def versions() -> dict[str, str]:
    """Python's and those of the libraries that compute."""
    names = ("minirlhf", "torch", "transformers", "tokenizers", "peft")
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
