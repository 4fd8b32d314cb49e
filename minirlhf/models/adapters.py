"""LoRA adapters through ``peft``, an optional dependency: few weights are trained, and the model without them is the
reference.

``peft`` wraps a causal LM itself. Of a model with a head (reward, value) it wraps the backbone, and all weights of the
head are trained. Checkpoints of such a model hold the adapter (and the head), not the base.
"""

from __future__ import annotations

import copy
import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from minirlhf.core.errors import UserError
from minirlhf.core.randomness import derive_seed


def require_peft() -> Any:
    """Return the package ``peft``, or raise a :class:`UserError` that says how to install it."""
    try:
        import peft
    except ImportError:
        message = "LoRA needs the package peft: pip install 'minirlhf[lora]'"
        raise UserError(message, argument="peft", expected="minirlhf[lora]", problem="missing") from None
    return peft


def is_adapted(model: nn.Module) -> bool:
    """Return whether this model, or the backbone below its head, has adapters."""
    return hasattr(getattr(model, "backbone", model), "peft_config")


def add_lora(
    model: nn.Module, *, lora_r: int, lora_alpha: float | None = None, lora_dropout: float = 0.0, seed: int = 0
) -> Any:
    """Add a new adapter to every linear layer except the output layer; freeze the base. Initially the outputs do not
    change.

    Args:
        model: a causal LM, or a model with a ``backbone``; its layers are changed in place.
        lora_r: rank.
        lora_alpha: the adapter's output is multiplied by ``lora_alpha / lora_r``; None: twice the rank.
        lora_dropout: dropout rate of the adapter's input during training.
        seed: seed of the adapter's initial weights.

    Raises:
        UserError: ``peft`` is not installed, or a number is out of range.
    """
    if lora_r < 1 or not 0.0 <= lora_dropout < 1.0 or (lora_alpha is not None and not lora_alpha > 0):
        raise UserError(
            f"{lora_r=}, {lora_alpha=}, {lora_dropout=}; expected a rank ≥ 1, alpha > 0, dropout in [0, 1)",
            argument="lora_r",
            value=lora_r,
            expected=1,
        )
    largest = max(
        (min(m.in_features, m.out_features) for m in model.modules() if isinstance(m, nn.Linear)), default=lora_r
    )
    if lora_r > largest:
        raise UserError(
            f"lora_r = {lora_r}: no weight of the model has a rank above {largest}; expected a lower rank, such as 8",
            argument="lora_r",
            value=lora_r,
            expected=largest,
        )
    peft = require_peft()
    config = peft.LoraConfig(
        r=lora_r,
        lora_alpha=2 * lora_r if lora_alpha is None else lora_alpha,
        lora_dropout=lora_dropout,
        target_modules="all-linear",
    )
    return _wrapped(model, config, seed)


def like(policy: nn.Module, model: nn.Module) -> Any:
    """Add a new adapter of the policy's rank to every linear layer of ``model``."""
    peft_config: Any = policy.peft_config
    config = copy.deepcopy(peft_config["default"])
    config.target_modules = "all-linear"  # peft has replaced it by the list of the policy's layers
    return _wrapped(model, config, seed=1)


def _wrapped(model: nn.Module, config: Any, seed: int) -> Any:
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message=".*gradient_checkpointing", category=FutureWarning
        )  # peft asks for it
        torch.manual_seed(derive_seed("adapter", seed))
        backbone: Any = getattr(model, "backbone", None)
        if backbone is None:
            config.task_type = "CAUSAL_LM"
            return require_peft().get_peft_model(model, config)
        config.task_type = "FEATURE_EXTRACTION"
        model.backbone = require_peft().get_peft_model(backbone, config)
    return model


def without(policy: Any) -> Any:
    """Return a copy of the base of a causal LM with adapters."""
    return copy.deepcopy(policy).unload()


def merged(model: Any) -> Any:
    """Return a copy of the model with the adapter merged into the weights; the model itself if it has no adapter."""
    if not is_adapted(model):
        return model
    merged_model = copy.deepcopy(model)
    if hasattr(merged_model, "backbone"):
        merged_model.backbone = merged_model.backbone.merge_and_unload()
        return merged_model
    return merged_model.merge_and_unload()


def restore(model: Any, folder: str | Path) -> None:
    """Load the adapter (and the head) of a checkpoint into a model that has adapters of the same shape, in place.

    Raises:
        ValueError: the adapter in the folder has other weights.
    """
    backbone = getattr(model, "backbone", model)
    stored = load_file(Path(folder, WEIGHTS))
    report = require_peft().set_peft_model_state_dict(backbone, stored)
    if report.unexpected_keys or any("lora_" in name for name in report.missing_keys):
        raise ValueError(f"the adapter in the folder, with {len(stored)} weights, does not fit the model's adapter")
    if backbone is not model:
        model.head.load_state_dict(load_file(Path(folder, "head.safetensors")))


# -- folders of peft ---------------------------------------------------------------------------------------------

#: The files of an adapter folder.
PLAN, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def is_adapter(folder: str | Path) -> bool:
    """Return whether this folder holds an adapter and no model."""
    return Path(folder, PLAN).is_file() and not Path(folder, "config.json").is_file()


def base_of(folder: str | Path) -> str:
    """Return the base of an adapter: a folder or a hub name.

    The folder is searched relative to the working directory and to the parent folders of the adapter.

    Raises:
        UserError: the adapter names no base.
    """
    try:
        name = str(json.loads(Path(folder, PLAN).read_text(encoding="utf-8"))["base_model_name_or_path"] or "")
    except (ValueError, KeyError, TypeError):
        name = ""
    if not name:
        raise UserError(
            f"{folder}: {PLAN} of this adapter names no base model (base_model_name_or_path)",
            argument="base_model_name_or_path",
            file=folder,
            problem="missing",
        )
    candidates = [Path(name), *(parent / name for parent in Path(folder).resolve().parents)]
    return next((str(path) for path in candidates if (path / "config.json").is_file()), name)


def merge(base: Any, folder: str | Path) -> Any:
    """Return the base with the adapter of a folder merged into its weights.

    Raises:
        UserError: ``peft`` is not installed, or the adapter belongs to another model.
    """
    try:
        merged: Any = require_peft().PeftModel.from_pretrained(base, str(folder)).merge_and_unload()
        return merged.requires_grad_(True)  # peft froze the base
    except (RuntimeError, ValueError, KeyError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        message = f"{folder}: this adapter does not fit its base ({reason[:160]})"
        raise UserError(message, argument="adapter", file=folder, problem="shape") from error


def copy_files(source: Path, folder: Path) -> None:
    """Copy the adapter's files of a checkpoint into a new folder."""
    folder.mkdir()
    for name in (PLAN, WEIGHTS):
        shutil.copy(source / name, folder / name)


def rename_base(folder: Path, name: str) -> None:
    """Change the name of the base in an adapter folder."""
    data = json.loads((folder / PLAN).read_text(encoding="utf-8"))
    (folder / PLAN).write_text(json.dumps({**data, "base_model_name_or_path": name}, indent=2) + "\n", encoding="utf-8")


class AdapterOff(nn.Module):
    """A model with its adapters disabled: the reference of a policy that trains adapters only."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.adapted = model
        self.config = model.config

    def get_base_model(self) -> nn.Module:
        """Return the causal LM itself."""
        base: nn.Module = self.adapted.get_base_model()
        return base

    def forward(self, *args: Any, **options: Any) -> Any:
        """Run the causal LM with the adapters disabled."""
        with self.adapted.disable_adapter():
            return self.adapted(*args, **options)


def reference_of(model: nn.Module) -> nn.Module:
    """Return the reference of a policy in its present state: its base if it has adapters, else the model itself."""
    return AdapterOff(model) if is_adapted(model) else model


def copy_of_reference(model: nn.Module) -> nn.Module:
    """Return the same reference, frozen: it does not change while the policy is trained."""
    return AdapterOff(model) if is_adapted(model) else copy.deepcopy(model).requires_grad_(False).eval()
