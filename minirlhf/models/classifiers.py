"""Reward models as other libraries keep them: ``AutoModelForSequenceClassification`` with one label, as TRL trains and vLLM serves it.

There the score is a linear layer without a bias at the last token that is not padding. Ours has a bias (which no preference can
see) and may take the mean over all tokens; the first is left out on the way there, the second cannot go.
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

#: What OpenRLHF calls its reward models, whose files are those of a sequence classifier.
OPENRLHF = "RewardModel"


def is_classifier(folder: str | Path) -> bool:
    """Does this folder hold such a model (or an adapter of one)?"""
    kind = str((_config(_base(folder)).get("architectures") or [""])[0])
    return kind.endswith("ForSequenceClassification") or kind == OPENRLHF


def _base(folder: str | Path) -> str | Path:
    return adapters.base_of(folder) if adapters.is_adapter(folder) else folder


def _config(folder: str | Path) -> dict[str, Any]:
    """What ``config.json`` says; nothing if there is none that can be read."""
    try:
        found = json.loads(Path(folder, "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def read_classifier(folder: str | Path) -> tuple[PreTrainedModel, Tensor, Tensor | None]:
    """Its backbone, and the weight ``(1, D)`` and bias ``(1,)`` of its score.

    Raises:
        UserError: more than one label, a head of more than one layer, or files that do not belong together.
    """
    base = _base(folder)
    described = _config(base)
    theirs = {"num_labels": 1} if OPENRLHF in (described.get("architectures") or []) else {}
    from transformers import AutoModelForSequenceClassification as loader

    try:
        model, report = loader.from_pretrained(
            base, use_safetensors=True, output_loading_info=True, dtype=torch.float32, local_files_only=True, **theirs
        )
    except Exception as problem:  # transformers raises almost anything for files it does not understand
        said = f"{folder}: cannot be loaded ({str(problem).strip().splitlines()[0]})"
        raise UserError(said, argument="model", file=folder, problem="unreadable") from problem
    if missing := sorted(report["missing_keys"]):
        said = f"{folder}: no fitting weights for {', '.join(missing[:3])}"
        raise UserError(said, argument="weights", value=missing, file=folder, problem="missing")
    if adapters.is_adapter(folder):
        model = adapters.merge(model, folder)
    if model.config.num_labels != 1:
        said = f"{folder}: a classifier of {model.config.num_labels} labels; a reward model has one"
        raise UserError(said, argument="num_labels", value=model.config.num_labels, expected=1, file=folder)
    score = getattr(model, "score", None)
    if not isinstance(score, nn.Linear) or not _scores_the_last_token(model, score):
        raise UserError(
            f"{folder}: a {type(model).__name__} does not score by one linear layer at the last token; a reward model does",
            argument="model",
            value=type(model).__name__,
            file=folder,
            problem="head",
        )
    weight, bias = score.weight.detach(), None if score.bias is None else score.bias.detach()
    if theirs and described.get("normalize_reward"):  # (score − mean) / std, where it is asked
        mean, std = (float(described.get(name, default)) for name, default in (("mean", 0.0), ("std", 1.0)))
        weight, bias = weight / std, ((0.0 if bias is None else bias) - mean) / std * torch.ones(1)
    return model.base_model, weight, bias


def save_adapter(base: PreTrainedModel, checkpoint: Path, folder: Path) -> None:
    """The adapter and the head of one of our reward models as an adapter of the classifier ``base``, in ``peft``'s folder.

    Args:
        base: the classifier that the run began with.
        checkpoint: of the run.
    """
    peft = adapters.require_peft()
    plan = peft.LoraConfig.from_pretrained(str(checkpoint))
    plan.task_type, plan.modules_to_save = "SEQ_CLS", ["score"]
    wrapped = peft.get_peft_model(base, plan)
    ours, theirs = "base_model.model.", f"base_model.model.{base.base_model_prefix}."
    learned = {name.replace(ours, theirs, 1): w for name, w in load_file(checkpoint / adapters.WEIGHTS).items()}
    learned["base_model.model.score.weight"] = load_file(checkpoint / "head.safetensors")["weight"]
    peft.set_peft_model_state_dict(wrapped, learned)
    wrapped.save_pretrained(str(folder))


@torch.no_grad()
def _scores_the_last_token(model: Any, head: nn.Linear) -> bool:
    """Is its score of a text without padding the head's output at the last token? An encoder's is made of the first one."""
    with evaluating(model):
        ids = torch.arange(1, 5)[None] + (model.config.pad_token_id or 0)  # no padding among them
        ids = ids % model.config.get_text_config().vocab_size
        hidden = model.base_model(input_ids=ids).last_hidden_state
        return torch.allclose(model(input_ids=ids).logits, head(hidden[:, -1]), atol=1e-4, rtol=1e-4)


def as_classifier(model: Any, tokenizer: PreTrainedTokenizerBase) -> tuple[PreTrainedModel, float]:
    """The same scores from such a model, up to the constant that is also returned: ours − theirs.

    Args:
        model: a :class:`~minirlhf.models.heads.RewardModel`.
        tokenizer: says which token is padding.

    Raises:
        UserError: it scores by the mean over tokens, or there is no such class for its backbone.
    """
    if model.pooling != "last":
        raise UserError(
            f"a reward model with pooling {model.pooling!r} cannot be kept as a sequence classifier, which scores the last token",
            argument="pooling",
            value=model.pooling,
            expected="last",
        )
    config = copy.deepcopy(model.config)
    config.num_labels, config.pad_token_id = 1, tokenizer.pad_token_id
    from transformers import AutoModelForSequenceClassification as loader

    try:
        plain = loader.from_config(config).to(dtype=model.head.weight.dtype)
    except ValueError as problem:
        raise UserError(
            f"there is no sequence classifier of {type(model.backbone).__name__} in transformers"
        ) from problem
    plain.base_model.load_state_dict(model.backbone.state_dict())
    with torch.no_grad():
        plain.score.weight.copy_(model.head.weight)
    return plain.eval(), float(model.head.bias.detach())
