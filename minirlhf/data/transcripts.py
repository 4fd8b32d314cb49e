"""Transcripts as texts, and completions that repeat their prompt: what stands in the text fields of a row."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from minirlhf.core.errors import UserError
from minirlhf.data.messages import require_text
from minirlhf.data.records import Message

_TURN = re.compile(r"(?:\A|\n\n)(Human|Assistant):")
#: The same where one line break separates the turns.
_LINE_TURN = re.compile(r"(?:\A|\n)(Human|Assistant):")

#: Marks of turns in a text that a chat template has already rendered, or that is written as a dialogue of another form.
MARKS = re.compile(
    r"<\|im_start\|>|<extra_id_1>|<\|start_header_id\|>|<start_of_turn>|\[INST\]|<\|(?:user|assistant)\|>|<｜(?:User|Assistant)｜>"
    r"|^### ?(?:Instruction|Response|Human|User|Assistant)\b|\A\s*(?:User|USER|Human|Q): .*\n+(?:Assistant|ASSISTANT|AI|A):\s*\Z",
    re.MULTILINE | re.DOTALL,
)


def transcript(text: str, field: str = "text") -> list[Message]:
    """Return the messages of an HH-RLHF transcript; consecutive turns of the same speaker become one."""
    text = require_text(text, field).replace("\r\n", "\n")
    if _TURN.split(text)[0].strip() or not _TURN.search(text):
        raise UserError(
            f"field {field!r} is not a transcript: expected '\\n\\nHuman:' at its beginning, found {text[:30]!r}; for a pair "
            "of completions, name the field of the question (--prompt-field NAME)",
            argument=field,
            value=text[:30],
            expected="transcript",
        )
    return dialogue(text, _TURN)


def dialogue(text: str, turn: re.Pattern[str]) -> list[Message]:
    """Return the turns of a transcript; what stands before the first one is the system message."""
    preamble, *rest = turn.split(text)
    messages: list[Message] = [{"role": "system", "content": preamble.strip()}] if preamble.strip() else []
    for speaker, content in zip(rest[::2], rest[1::2], strict=True):
        role = "user" if speaker == "Human" else "assistant"
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] = f"{messages[-1]['content']}\n\n{content.strip()}".strip()
        else:
            messages.append({"role": role, "content": content.strip()})
    return messages


def turn_pattern(text: str) -> re.Pattern[str] | None:
    """Return the pattern of the turns if a text is a transcript; None if it is an ordinary text.

    A transcript has a turn of the human, and begins with one as HH-RLHF does, or ends where the assistant speaks next.
    """
    for turn, gap in ((_TURN, "\n\n"), (_LINE_TURN, "\n")):
        begins = gap == "\n\n" and text.startswith("\n\nHuman:")
        ends = text.rstrip().endswith(f"{gap}Assistant:") and "Human" in turn.split(text)[1::2]
        if begins or ends:
            return turn
    return None


#: The fields that hold a completion beside the field ``prompt``.
COMPLETIONS = ("completion", "chosen", "rejected")


def repeats_prompt(rows: Sequence[object]) -> bool:
    """Return whether the completions of these rows, where they are texts, all begin with the text of their prompt.

    That one completion does so proves little: an answer may begin like its question.
    """
    found = [
        (str(row["prompt"]), reply)
        for row in rows
        if isinstance(row, Mapping) and isinstance(row.get("prompt"), str) and turn_pattern(row["prompt"]) is None
        for reply in _replies(row)
    ]
    some = any(len(prompt.split()) > 1 and _rest(prompt, reply) for prompt, reply in found)
    return some and all(_rest(prompt, reply) is not None for prompt, reply in found)


def without_prompt(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the row without the prompt at the beginning of its completions."""
    if not isinstance(row.get("prompt"), str):
        return row

    def shortened(reply: object) -> object:
        rest = _rest(row["prompt"], reply) if isinstance(reply, str) else None
        return reply if rest is None else rest

    changed: dict[str, Any] = {field: shortened(row[field]) for field in COMPLETIONS if field in row}
    if isinstance(row.get("responses"), list):
        changed["responses"] = [shortened(reply) for reply in row["responses"]]
    return {**row, **changed}


def _replies(row: Mapping[str, Any]) -> list[str]:
    listed = row["responses"] if isinstance(row.get("responses"), list) else []
    return [reply for reply in (*(row.get(field) for field in COMPLETIONS), *listed) if isinstance(reply, str)]


def _rest(prompt: str, reply: str) -> str | None:
    """Return what follows the prompt in a text that repeats it; None if it does not."""
    begun, rest = reply.lstrip()[: len(prompt.strip())], reply.lstrip()[len(prompt.strip()) :]
    return rest if begun == prompt.strip() and begun and not rest[:1].isalnum() else None
