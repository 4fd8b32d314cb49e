"""Scalar heads on a language model: one number per sequence (reward, outcome) or one per token (value, process).

The backbone is a causal LM without its output layer. A model with a head is saved as the backbone's own
``save_pretrained`` folder with two more files, so that other tools can open the backbone.
"""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from minirlhf.core.calling import position_ids, supported
from minirlhf.core.errors import UserError, unknown
from minirlhf.core.masking import last_index, masked_mean, zero_where_masked
from minirlhf.core.randomness import generator
from minirlhf.core.validate import require_mask
from minirlhf.engine import reading
from minirlhf.models import checkpoints, classifiers
from minirlhf.models.tokenizers import load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

HEAD_JSON, HEAD_WEIGHTS = "head.json", "head.safetensors"


def last_token(scores: Tensor, attention_mask: Tensor) -> Tensor:
    """Return the score at each row's last token that is not padding, padding on either side:
    ``(B, S), (B, S) -> (B,)``."""
    return scores.gather(1, last_index(attention_mask)[:, None]).squeeze(1)


def mean(scores: Tensor, attention_mask: Tensor) -> Tensor:
    """Return the mean score over each row's tokens without padding, the prompt's tokens included.
    ``(B, S) -> (B,)``."""
    return masked_mean(scores, attention_mask, -1)


POOLINGS = {"last": last_token, "mean": mean}


def head_scores(
    backbone: nn.Module, head: nn.Module, input_ids: Tensor, attention_mask: Tensor, prefix: Tensor | None = None
) -> Tensor:
    """Return one number for every token, computed from it and the tokens before it; differentiable.

    Args:
        backbone: a transformer without output layer.
        head: maps its hidden states to one number, ``(…, D) -> (…, 1)``.
        input_ids, attention_mask: ``(B, S)``, padded on either side.
        prefix: ``(B,)``, the number of tokens at each row's start that may be processed once for all rows that share
            them; None: 0.

    Returns:
        ``(B, S)``, float32 or wider, 0 at padding.
    """
    require_mask(attention_mask, "attention_mask")
    if reading.packs(backbone, input_ids):
        hidden, index = reading.states(backbone, input_ids, attention_mask, prefix)  # (N, D), (B, S)
        scores = head(hidden).squeeze(-1)[index]
    else:
        options = supported(backbone, position_ids=position_ids(attention_mask), use_cache=False)
        hidden = backbone(input_ids=input_ids, attention_mask=attention_mask, **options).last_hidden_state
        scores = head(hidden).squeeze(-1)  # (B, S, D) -> (B, S)
    if scores.dtype in (torch.float16, torch.bfloat16):
        scores = scores.float()
    return zero_where_masked(scores, attention_mask)


class ScalarModel(nn.Module):
    """A backbone and a linear layer from its last hidden states to one number per token; the base class of both models
    below.

    Args:
        backbone: the transformer without output layer, e.g. ``LlamaModel``.
        seed: of the head's initial weights.
    """

    kind: ClassVar[str]
    scale: ClassVar[float]  # approximate initial standard deviation of a score, because hidden states are normalised

    def __init__(self, backbone: PreTrainedModel, *, seed: int = 0) -> None:
        super().__init__()
        width = backbone.config.get_text_config().hidden_size
        self.backbone = backbone
        self.head = nn.Linear(width, 1, dtype=backbone.dtype, device=backbone.device)
        with torch.no_grad():
            weight = torch.randn(1, width, generator=generator("head", self.kind, seed))
            self.head.weight.copy_(weight * self.scale / math.sqrt(width + 1))
            self.head.bias.zero_()

    @classmethod
    def from_causal_lm(cls, model: PreTrainedModel, *, share: bool = False, **options: Any) -> Self:
        """Build the model on the backbone of a causal LM: on a copy, or with ``share`` on the same parameters.

        ``options`` are passed to the constructor. A ``peft`` model has to be merged first.
        """
        from transformers import PreTrainedModel

        if not isinstance(model, PreTrainedModel):
            raise TypeError(
                f"model is a {type(model).__name__}; expected a transformers causal LM (merge adapters first)"
            )
        backbone = cast("PreTrainedModel", model.base_model)
        return cls(backbone if share else copy.deepcopy(backbone), **options)

    @property
    def config(self) -> PreTrainedConfig:
        """The backbone's configuration."""
        return self.backbone.config

    @property
    def device(self) -> torch.device:
        """The device of the head's weights."""
        return self.head.weight.device

    def token_scores(self, input_ids: Tensor, attention_mask: Tensor, prefix: Tensor | None = None) -> Tensor:
        """Return one number for every token, computed from it and the tokens before it; 0 at padding. See
        :func:`head_scores`."""
        return head_scores(self.backbone, self.head, input_ids, attention_mask, prefix)

    def description(self) -> dict[str, Any]:
        """Return the constructor's options, as JSON values."""
        return {}

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the backbone's folder, the head's weights and its description."""
        self.backbone.save_pretrained(folder)
        weights = {name: w.detach().cpu().contiguous() for name, w in self.head.state_dict().items()}
        save_file(weights, Path(folder, HEAD_WEIGHTS))
        metadata = {"kind": self.kind, "options": self.description()}
        Path(folder, HEAD_JSON).write_text(json.dumps(metadata), encoding="utf-8")

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> Self:
        """Load a folder that :meth:`save_pretrained` wrote or, for a reward model, a sequence classifier of
        ``transformers``.

        A checkpoint is first compared with its manifest.

        Raises:
            UserError: no such model there, one of the other kind, a damaged one, or files that do not belong together.
        """
        path = Path(folder)
        checkpoints.raise_if_corrupt(path)
        if not (path / HEAD_JSON).is_file() and classifiers.is_classifier(path):
            with checkpoints.quietly():
                return cls._from_classifier(path)
        try:
            metadata = json.loads(Path(path, HEAD_JSON).read_text(encoding="utf-8"))
            kind, options = metadata["kind"], metadata["options"]
        except FileNotFoundError:
            message = f"{path}: not a {cls.kind} model (no {HEAD_JSON} in it)"
            raise UserError(message, argument=HEAD_JSON, expected=cls.kind, file=path, problem="missing") from None
        except (ValueError, KeyError, TypeError) as error:
            message = f"{path / HEAD_JSON}: unreadable ({error})"
            raise UserError(message, file=path / HEAD_JSON, problem="unreadable") from error
        if kind != cls.kind:
            message = f"{path}: a {kind} model; a {cls.kind} model is needed"
            raise UserError(message, argument="kind", value=kind, expected=cls.kind, file=path)
        from transformers import AutoModel

        try:
            with checkpoints.quietly():
                backbone = AutoModel.from_pretrained(
                    path, local_files_only=True, use_safetensors=True, dtype=torch.float32
                )
            model = cls(backbone, **options)
            model.head.load_state_dict(load_file(path / HEAD_WEIGHTS))
        except (OSError, ValueError, TypeError, RuntimeError, SafetensorError) as error:
            raise UserError(f"{path}: cannot be loaded ({error})", file=path, problem="unreadable") from error
        return model

    @classmethod
    def _from_classifier(cls, path: Path) -> Self:
        """Load a sequence classifier, see :mod:`minirlhf.models.classifiers`; only a reward model can."""
        message = f"{path}: a sequence classifier; a {cls.kind} model is needed"
        raise UserError(message, argument="kind", value="classifier", expected=cls.kind, file=path)

    @classmethod
    def load_with_tokenizer(cls, folder: str | Path) -> tuple[Self, PreTrainedTokenizerBase]:
        """Load the model and the tokenizer saved beside it.

        If the tokenizer pads with its end-of-sequence token, as TRL's classifiers do, it gets a padding token of its
        own, and the model an embedding row for this token.
        """
        model = cls.from_pretrained(folder)
        tokenizer = load_tokenizer(folder, own_padding=True)
        embeddings: Any = model.backbone.get_input_embeddings()
        if len(tokenizer) > embeddings.num_embeddings:
            model.backbone.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        return model, tokenizer


class RewardModel(ScalarModel):
    """One number per sequence.

    Args:
        backbone, seed: as for :class:`ScalarModel`.
        pooling: ``"last"``, the score at the last token, or ``"mean"``, the mean over all tokens; padding is excluded.
    """

    kind = "reward"
    scale = 1.0

    def __init__(self, backbone: PreTrainedModel, *, pooling: str = "last", seed: int = 0) -> None:
        super().__init__(backbone, seed=seed)
        if pooling not in POOLINGS:
            raise unknown("pooling", pooling, POOLINGS)
        self.pooling = pooling

    @classmethod
    def _from_classifier(cls, path: Path) -> Self:
        backbone, weight, bias = classifiers.read_classifier(path)
        model = cls(backbone)
        with torch.no_grad():
            model.head.weight.copy_(weight)
            if bias is not None:
                model.head.bias.copy_(bias)
        return model.eval()

    def description(self) -> dict[str, Any]:
        return {"pooling": self.pooling}

    def forward(self, input_ids: Tensor, attention_mask: Tensor, prefix: Tensor | None = None) -> Tensor:
        """Return rewards ``(B,)`` of sequences ``(B, S)`` padded on either side; ``prefix`` as for :func:`head_scores`.
        The zero point of the rewards is arbitrary."""
        return POOLINGS[self.pooling](self.token_scores(input_ids, attention_mask, prefix), attention_mask)


class ValueModel(ScalarModel):
    """One number per token: a critic, or the logits of an outcome or process reward model. It starts at exactly 0."""

    kind = "value"
    scale = 0.0

    def forward(self, input_ids: Tensor, attention_mask: Tensor, prefix: Tensor | None = None) -> Tensor:
        """Return the values ``(B, S)`` of the prefixes that end in each token; 0 at padding; ``prefix`` as for
        :func:`head_scores`.

        The value *before* token ``t`` is sampled is at position ``t − 1``: for the last ``T`` tokens take
        ``[:, −T−1:−1]``.
        """
        return self.token_scores(input_ids, attention_mask, prefix)
