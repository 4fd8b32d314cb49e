"""Which part of a completion is its answer: thoughts are none."""

from __future__ import annotations

from typing import TypeAlias

from minirlhf.core.errors import UserError
from minirlhf.data.calls import THOUGHT, THOUGHT_ENDS

#: The texts that open and close a thought.
ThoughtTags: TypeAlias = tuple[str, str]

THOUGHTS: ThoughtTags = (THOUGHT, THOUGHT_ENDS)


def answer_part(text: str, thoughts: ThoughtTags = THOUGHTS) -> str:
    """Return the text after the last closing tag; all of a text without tags.

    The thought may have been opened by the chat template, so a closing tag needs no opening one. A thought that is
    never closed was cut off before the answer: the result is then empty.
    """
    opening, closing = thoughts
    rest = text.rpartition(closing)[2]
    return "" if opening in rest else rest


def is_open(text: str, thoughts: ThoughtTags = THOUGHTS) -> bool:
    """Return whether a thought is open at the end of a text."""
    opening, closing = thoughts
    return opening in text.rpartition(closing)[2]


def parse_tags(text: str) -> ThoughtTags:
    """Parse ``OPENING,CLOSING``, such as ``<think>,</think>``.

    Raises:
        UserError: the text is not two different tags.
    """
    opening, _, closing = (part.strip() for part in text.partition(","))
    if not opening or not closing or opening == closing or "," in closing:
        message = f"thought_tags {text!r}: expected OPENING,CLOSING, such as {','.join(THOUGHTS)}"
        raise UserError(message, argument="thought_tags", value=text, expected=",".join(THOUGHTS))
    return opening, closing
