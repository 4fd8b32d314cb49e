"""Where a reply ends: the tokens that a model was taught to close a turn with, wherever that is written down.

A tokenizer's end-of-sequence token is one of three places, and not the one that counts for chat: base models often keep
``<|endoftext|>`` there and close turns by ``<|im_end|>``. A sampler that waits for the wrong token never sees a reply end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase

from minirlhf.core.errors import UserError
from minirlhf.data.chat import assistant_spans, conversation


@dataclass(frozen=True)
class Ends:
    """The tokens that end a reply.

    Attributes:
        found: token id -> where it was found: ``chat template``, ``tokenizer`` or ``generation_config``.
        closing: what the chat template writes behind a reply; empty if it writes nothing.
        names: token id -> the token as text.
    """

    found: dict[int, str]
    closing: str
    names: dict[int, str]

    @property
    def ids(self) -> list[int]:
        """The token ids, ascending."""
        return sorted(self.found)

    def __str__(self) -> str:
        """``<|im_end|> (chat template), <|endoftext|> (tokenizer)``."""
        return ", ".join(f"{self.names[i]} ({where})" for i, where in self.found.items())


def ends_of(tokenizer: PreTrainedTokenizerBase, model: Any = None) -> Ends:
    """What ends a reply: the token by which the chat template closes the assistant's turn, the tokenizer's end of sequence,
    and what the model's ``generation_config`` names.

    The template's closing counts if it is one token (or begins with a special one, with white space behind it, say).
    """
    closing, token = _closing(tokenizer)
    listed: Any = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    found: dict[int, str] = {}
    for where, ids in (
        ("chat template", [token]),
        ("tokenizer", [tokenizer.eos_token_id]),
        ("generation_config", listed if isinstance(listed, list | tuple) else [listed]),
    ):
        for i in ids:
            if i is not None:
                found.setdefault(int(i), where)
    return Ends(found, closing, {i: str(tokenizer.convert_ids_to_tokens(i)) for i in found})


def _closing(tokenizer: PreTrainedTokenizerBase) -> tuple[str, int | None]:
    """The text behind the reply in the assistant's span, and the token that it is."""
    said = "fine"
    try:
        text, spans = assistant_spans(tokenizer, conversation("how are you", said))
    except UserError:  # no template, or one for another kind of conversation: encoding the data will say so
        return "", None
    if not spans:
        return "", None
    closing = text[slice(*spans[-1])].rpartition(said)[2].strip()
    ids = tokenizer(closing, add_special_tokens=False)["input_ids"] if closing else []
    if len(ids) == 1 or (ids and ids[0] in tokenizer.all_special_ids):
        return closing, int(ids[0])
    return closing, None
