"""Reward models in the format of other libraries: ``AutoModelForSequenceClassification`` with one label.

TRL trains this format and vLLM serves it. Its score is a linear layer without bias at the last token that is not
padding. Our reward model has a bias, on which preferences do not depend, and can take the mean over all tokens. The
conversion drops the bias; a model with mean pooling cannot be converted.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from minirlhf.core.calling import evaluating
from minirlhf.core.errors import UserError
from minirlhf.models import adapters

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

#: The architecture name of OpenRLHF's reward models, whose files are those of a sequence classifier.
OPENRLHF = "RewardModel"


def is_classifier(folder: str | Path) -> bool:
    """Return whether this folder holds a sequence classifier (or an adapter of one)."""
    kind = str((_config(_base(folder)).get("architectures") or [""])[0])
    return kind.endswith("ForSequenceClassification") or kind == OPENRLHF


def _base(folder: str | Path) -> str | Path:
    return adapters.base_of(folder) if adapters.is_adapter(folder) else folder


def _config(folder: str | Path) -> dict[str, Any]:
    """Return the contents of ``config.json``; an empty dict if it is missing or unreadable."""
    try:
        config = json.loads(Path(folder, "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}


def read_classifier(folder: str | Path) -> tuple[PreTrainedModel, Tensor, Tensor | None]:
    """Return the classifier's backbone, and the weight ``(1, D)`` and bias ``(1,)`` of its score; no bias: None.

    Raises:
        UserError: more than one label, a head of more than one layer, or files that do not belong together.
    """
    base = _base(folder)
    config = _config(base)
    extras = {"num_labels": 1} if OPENRLHF in (config.get("architectures") or []) else {}
    from transformers import AutoModelForSequenceClassification as loader

    try:
        model, report = loader.from_pretrained(
            base, use_safetensors=True, output_loading_info=True, dtype=torch.float32, local_files_only=True, **extras
        )
    except Exception as error:  # transformers raises almost anything for files it does not understand
        message = f"{folder}: cannot be loaded ({str(error).strip().splitlines()[0]})"
        raise UserError(message, argument="model", file=folder, problem="unreadable") from error
    if missing := sorted(report["missing_keys"]):
        message = f"{folder}: no fitting weights for {', '.join(missing[:3])}"
        raise UserError(message, argument="weights", value=missing, file=folder, problem="missing")
    if adapters.is_adapter(folder):
        model = adapters.merge(model, folder)
    if model.config.num_labels != 1:
        message = f"{folder}: a classifier of {model.config.num_labels} labels; a reward model has one"
        raise UserError(message, argument="num_labels", value=model.config.num_labels, expected=1, file=folder)
    score = getattr(model, "score", None)
    if not isinstance(score, nn.Linear) or not _scores_the_last_token(model, score):
        raise UserError(
            f"{folder}: {type(model).__name__} does not score with one linear layer at the last token, as a reward model must",
            argument="model",
            value=type(model).__name__,
            file=folder,
            problem="head",
        )
    weight, bias = score.weight.detach(), None if score.bias is None else score.bias.detach()
    if extras and config.get("normalize_reward"):  # (score − mean) / std, if the model's config asks for it
        mean, std = (float(config.get(name, default)) for name, default in (("mean", 0.0), ("std", 1.0)))
        weight, bias = weight / std, ((0.0 if bias is None else bias) - mean) / std * torch.ones(1)
    return model.base_model, weight, bias


def save_adapter(base: PreTrainedModel, checkpoint: Path, folder: Path) -> None:
    """Save the adapter and the head of one of our reward models as an adapter of the classifier ``base``, in ``peft``'s
    format.

    Args:
        base: the classifier that the run began with.
        checkpoint: the checkpoint of the run.
        folder: the folder to write.
    """
    peft = adapters.require_peft()
    config = peft.LoraConfig.from_pretrained(str(checkpoint))
    config.task_type, config.modules_to_save = "SEQ_CLS", ["score"]
    peft_model = peft.get_peft_model(base, config)
    prefix, classifier_prefix = "base_model.model.", f"base_model.model.{base.base_model_prefix}."
    weights = {
        name.replace(prefix, classifier_prefix, 1): w for name, w in load_file(checkpoint / adapters.WEIGHTS).items()
    }
    weights["base_model.model.score.weight"] = load_file(checkpoint / "head.safetensors")["weight"]
    peft.set_peft_model_state_dict(peft_model, weights)
    peft_model.save_pretrained(str(folder))


@torch.no_grad()
def _scores_the_last_token(model: Any, head: nn.Linear) -> bool:
    """Return whether the model's score of a text without padding is the head's output at the last token.

    An encoder scores with the first token.
    """
    with evaluating(model):
        ids = torch.arange(1, 5)[None] + (model.config.pad_token_id or 0)  # none of these ids is padding
        ids = ids % model.config.get_text_config().vocab_size
        hidden = model.base_model(input_ids=ids).last_hidden_state
        return torch.allclose(model(input_ids=ids).logits, head(hidden[:, -1]), atol=1e-4, rtol=1e-4)


def as_classifier(model: Any, tokenizer: PreTrainedTokenizerBase) -> tuple[PreTrainedModel, float]:
    """Convert a reward model to a sequence classifier with the same scores up to a constant, which is also returned.

    The constant is the reward model's score minus the classifier's score.

    Args:
        model: a :class:`~minirlhf.models.heads.RewardModel`.
        tokenizer: defines the padding token.

    Raises:
        UserError: the model scores by the mean over tokens, or transformers has no sequence classifier for its
            backbone.
    """
    if model.pooling != "last":
        raise UserError(
            f"a reward model with pooling {model.pooling!r} cannot be saved as a sequence classifier, which scores the last token",
            argument="pooling",
            value=model.pooling,
            expected="last",
        )
    config = copy.deepcopy(model.config)
    config.num_labels, config.pad_token_id = 1, tokenizer.pad_token_id
    from transformers import AutoModelForSequenceClassification as loader

    try:
        classifier = loader.from_config(config).to(dtype=model.head.weight.dtype)
    except ValueError as error:
        raise UserError(f"transformers has no sequence classifier for {type(model.backbone).__name__}") from error
    classifier.base_model.load_state_dict(model.backbone.state_dict())
    with torch.no_grad():
        classifier.score.weight.copy_(model.head.weight)
    return classifier.eval(), float(model.head.bias.detach())
