"""Decode sampled tokens to text."""

from __future__ import annotations

import re
from typing import Any

from minirlhf.data.types import Rollout

_BLANK_LINES = re.compile(r"\A(?:[^\S\n]*\n)+")


def completion_text(decoded: str) -> str:
    """Return a completion as graders read it: without blank lines before it and without white space after it.

    The indentation of its first line stays: a completion that is the body of a function, as in HumanEval, begins with
    it.
    """
    return _BLANK_LINES.sub("", decoded.rstrip())


def completion_texts(rollout: Rollout, tokenizer: Any) -> list[str]:
    """Return the completions as text, see :func:`completion_text`, without the end-of-sequence token.

    Other special tokens stay visible, so that graders see when a policy writes them.
    """
    texts = []
    for ids, mask, terminated in zip(
        rollout.completion_ids.tolist(), rollout.mask.tolist(), rollout.terminated.tolist(), strict=True
    ):
        tokens = [token for token, real in zip(ids, mask, strict=True) if real]
        texts.append(completion_text(tokenizer.decode(tokens[:-1] if terminated else tokens)))
    return texts
