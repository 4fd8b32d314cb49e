"""From sampled tokens back to text."""

from __future__ import annotations

import re
from typing import Any

from minirlhf.data.types import Rollout

_BLANK_LINES = re.compile(r"\A(?:[^\S\n]*\n)+")


def completion_text(decoded: str) -> str:
    """A reply as graders read it: without blank lines before it and without white space behind it.

    The indentation of its first line stays: a reply that is the body of a function, as HumanEval asks for, begins with it.
    """
    return _BLANK_LINES.sub("", decoded.rstrip())


def completion_texts(rollout: Rollout, tokenizer: Any) -> list[str]:
    """The completions as text, see :func:`completion_text`, without the end-of-sequence token.

    Other special tokens stay visible: a policy that writes them must not look as if it had not.
    """
    texts = []
    for ids, mask, terminated in zip(
        rollout.completion_ids.tolist(), rollout.mask.tolist(), rollout.terminated.tolist(), strict=True
    ):
        kept = [token for token, real in zip(ids, mask, strict=True) if real]
        texts.append(completion_text(tokenizer.decode(kept[:-1] if terminated else kept)))
    return texts
