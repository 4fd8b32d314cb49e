"""Reward models as other libraries keep them: ``AutoModelForSequenceClassification`` with one label, as TRL trains and vLLM serves it.

There the score is a linear layer without a bias at the last token that is not padding. Ours has a bias (which no preference can
see) and may take the mean over all tokens; the first is left out on the way there, the second cannot go.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, PreTrainedModel, PreTrainedTokenizerBase

from minirlhf.core.calling import evaluating
from minirlhf.core.errors import UserError


def is_classifier(folder: str | Path) -> bool:
    """Does this folder hold such a model?"""
    file = Path(folder, "config.json")
    if not file.is_file():
        return False
    try:
        kinds = json.loads(file.read_text(encoding="utf-8")).get("architectures") or [""]
    except (ValueError, AttributeError):
        return False
    return str(kinds[0]).endswith("ForSequenceClassification")


def read_classifier(folder: str | Path) -> tuple[PreTrainedModel, Tensor, Tensor | None]:
    """Its backbone, and the weight ``(1, D)`` and bias ``(1,)`` of its score.

    Raises:
        UserError: more than one label, a head of more than one layer, or files that do not belong together.
    """
    loader: Any = AutoModelForSequenceClassification
    try:
        model, report = loader.from_pretrained(
            folder, use_safetensors=True, output_loading_info=True, dtype=torch.float32, local_files_only=True
        )
    except Exception as problem:  # transformers raises almost anything for files it does not understand
        raise UserError(f"{folder}: cannot be loaded ({str(problem).strip().splitlines()[0]})") from problem
    if missing := sorted(report["missing_keys"]):
        raise UserError(f"{folder}: no fitting weights for {', '.join(missing[:3])}")
    if model.config.num_labels != 1:
        raise UserError(f"{folder}: a classifier of {model.config.num_labels} labels; a reward model has one")
    head = getattr(model, "score", None)
    if not isinstance(head, nn.Linear) or not _scores_the_last_token(model, head):
        raise UserError(
            f"{folder}: a {type(model).__name__} does not score by one linear layer at the last token; a reward model does"
        )
    return model.base_model, head.weight.detach(), None if head.bias is None else head.bias.detach()


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
            f"a reward model with pooling {model.pooling!r} cannot be kept as a sequence classifier, which scores the last token"
        )
    config = copy.deepcopy(model.config)
    config.num_labels, config.pad_token_id = 1, tokenizer.pad_token_id
    loader: Any = AutoModelForSequenceClassification
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
