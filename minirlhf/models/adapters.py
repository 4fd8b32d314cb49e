"""LoRA adapters through ``peft``, an extra: few weights to train, and the model without them is the reference.

A causal LM becomes ``peft``'s wrapper of it; a model with a head (reward, value) gets its backbone wrapped, and its head is
trained whole. Checkpoints of such a model hold the adapter (and the head), not the base.
"""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from minirlhf.core.errors import UserError
from minirlhf.core.randomness import derive_seed


def require_peft() -> Any:
    """The package, or a :class:`UserError` that says how it is installed."""
    try:
        import peft
    except ImportError:
        said = "LoRA needs the package peft: pip install 'minirlhf[lora]'"
        raise UserError(said, argument="peft", expected="minirlhf[lora]", problem="missing") from None
    return peft


def is_adapted(model: nn.Module) -> bool:
    """Does this model, or the backbone below its head, have adapters?"""
    return hasattr(getattr(model, "backbone", model), "peft_config")


def add_lora(
    model: nn.Module, *, lora_r: int, lora_alpha: float | None = None, lora_dropout: float = 0.0, seed: int = 0
) -> Any:
    """The model with a fresh adapter on every linear layer but the output's; the base is frozen. At first it changes nothing.

    Args:
        model: a causal LM, or a model with a ``backbone``; its layers are changed in place.
        lora_r: rank.
        lora_alpha: the adapter's output is multiplied by ``lora_alpha / lora_r``; None: twice the rank.
        lora_dropout: of the adapter's input while training.
        seed: of the adapter's initial weights.

    Raises:
        UserError: no ``peft``, or a number out of range.
    """
    if lora_r < 1 or not 0.0 <= lora_dropout < 1.0 or (lora_alpha is not None and not lora_alpha > 0):
        raise UserError(
            f"{lora_r=}, {lora_alpha=}, {lora_dropout=}; expected a rank ≥ 1, alpha > 0, dropout in [0, 1)",
            argument="lora_r",
            value=lora_r,
            expected=1,
        )
    peft = require_peft()
    plan = peft.LoraConfig(
        r=lora_r,
        lora_alpha=2 * lora_r if lora_alpha is None else lora_alpha,
        lora_dropout=lora_dropout,
        target_modules="all-linear",
    )
    return _wrapped(model, plan, seed)


def like(policy: nn.Module, model: nn.Module) -> Any:
    """``model`` with a fresh adapter of the policy's rank on every linear layer."""
    peft_config: Any = policy.peft_config
    plan = copy.deepcopy(peft_config["default"])
    plan.target_modules = "all-linear"  # by now it lists the policy's own layers
    return _wrapped(model, plan, seed=1)


def _wrapped(model: nn.Module, plan: Any, seed: int) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(derive_seed("adapter", seed))
        backbone: Any = getattr(model, "backbone", None)
        if backbone is None:
            plan.task_type = "CAUSAL_LM"
            return require_peft().get_peft_model(model, plan)
        plan.task_type = "FEATURE_EXTRACTION"
        model.backbone = require_peft().get_peft_model(backbone, plan)
    return model


def without(policy: Any) -> Any:
    """A copy of the base of a causal LM with adapters."""
    return copy.deepcopy(policy).unload()


def merged(model: Any) -> Any:
    """A plain model in which the adapter has been added to the weights; the model itself if it has none."""
    if not is_adapted(model):
        return model
    plain = copy.deepcopy(model)
    if hasattr(plain, "backbone"):
        plain.backbone = plain.backbone.merge_and_unload()
        return plain
    return plain.merge_and_unload()


def restore(model: Any, folder: str | Path) -> None:
    """Put the adapter (and the head) of a checkpoint into a model that has adapters of the same shape, in place.

    Raises:
        ValueError: the folder holds another adapter.
    """
    backbone = getattr(model, "backbone", model)
    stored = load_file(Path(folder, WEIGHTS))
    report = require_peft().set_peft_model_state_dict(backbone, stored)
    if report.unexpected_keys or any("lora_" in name for name in report.missing_keys):
        raise ValueError(f"another adapter, with {len(stored)} weights")
    if backbone is not model:
        model.head.load_state_dict(load_file(Path(folder, "head.safetensors")))


# -- folders of peft ---------------------------------------------------------------------------------------------

#: The files of such a folder.
PLAN, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def is_adapter(folder: str | Path) -> bool:
    """Does this folder hold an adapter and no model?"""
    return Path(folder, PLAN).is_file() and not Path(folder, "config.json").is_file()


def base_of(folder: str | Path) -> str:
    """The base of an adapter: a folder, looked for from here and from the folders above the adapter, or a hub name.

    Raises:
        UserError: it names none.
    """
    try:
        name = str(json.loads(Path(folder, PLAN).read_text(encoding="utf-8"))["base_model_name_or_path"] or "")
    except (ValueError, KeyError, TypeError):
        name = ""
    if not name:
        raise UserError(
            f"{folder}: an adapter whose {PLAN} names no base (base_model_name_or_path)",
            argument="base_model_name_or_path",
            file=folder,
            problem="missing",
        )
    places = [Path(name), *(above / name for above in Path(folder).resolve().parents)]
    return next((str(place) for place in places if (place / "config.json").is_file()), name)


def merge(base: Any, folder: str | Path) -> Any:
    """The base with the adapter of a folder added to its weights.

    Raises:
        UserError: no ``peft``, or an adapter of another model.
    """
    try:
        merged: Any = require_peft().PeftModel.from_pretrained(base, str(folder)).merge_and_unload()
        return merged.requires_grad_(True)  # peft froze the base
    except (RuntimeError, ValueError, KeyError, OSError) as problem:
        reason = str(problem).strip().splitlines()[0]
        message = f"{folder}: this adapter does not fit its base ({reason[:160]})"
        raise UserError(message, argument="adapter", file=folder, problem="shape") from problem


def copy_files(source: Path, folder: Path) -> None:
    """The adapter of a checkpoint by itself."""
    folder.mkdir()
    for name in (PLAN, WEIGHTS):
        shutil.copy(source / name, folder / name)


def rename_base(folder: Path, name: str) -> None:
    """Say what the base is."""
    plan = json.loads((folder / PLAN).read_text(encoding="utf-8"))
    (folder / PLAN).write_text(json.dumps({**plan, "base_model_name_or_path": name}, indent=2) + "\n", encoding="utf-8")


class AdapterOff(nn.Module):
    """A model with adapters as it would be without them: the reference of a policy that trains nothing else."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.adapted = model
        self.config = model.config

    def get_base_model(self) -> nn.Module:
        """The causal LM itself."""
        base: nn.Module = self.adapted.get_base_model()
        return base

    def forward(self, *args: Any, **options: Any) -> Any:
        """As the causal LM's."""
        with self.adapted.disable_adapter():
            return self.adapted(*args, **options)


def reference_of(model: nn.Module) -> nn.Module:
    """The model that a policy is compared with, as it is now: its base if it has adapters, else the model itself."""
    return AdapterOff(model) if is_adapted(model) else model


def copy_of_reference(model: nn.Module) -> nn.Module:
    """The same, and it stays as it is while the policy learns."""
    return AdapterOff(model) if is_adapted(model) else copy.deepcopy(model).requires_grad_(False).eval()
