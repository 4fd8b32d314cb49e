"""Trees of messages, one message in each row (OpenAssistant): a ranking of the replies to each question.

A row has ``message_id``, ``parent_id`` (null at the root), ``role`` (``prompter`` or ``assistant``), ``text``, and perhaps
``rank`` among the replies to one question (0 is the best) and ``deleted``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from minirlhf.data.messages import wrong
from minirlhf.data.readers import RowLocation, Rows
from minirlhf.data.records import InvalidRecordError

Message: TypeAlias = Mapping[str, Any]

#: The roles of the messages.
ROLES = {"prompter": "user", "assistant": "assistant"}


def threads(rows: Rows) -> Rows:
    """Yield a row for each question that has a reply: its own fields, ``prompt``, ``responses`` and ``ranks``.

    What cannot be used (a deleted message, one whose parent is missing) is yielded as it is, for :func:`require_usable`.
    """
    everything = list(rows)
    messages = {row["message_id"]: row for _, row in everything if _is_message(row)}
    replies: dict[str, list[Message]] = {}
    for row in messages.values():
        if row["role"] == "assistant" and isinstance(row.get("parent_id"), str) and not row.get("deleted"):
            replies.setdefault(row["parent_id"], []).append(row)
    for where, row in everything:
        if not _is_message(row) or row.get("deleted"):
            yield where, row
        elif row["role"] == "assistant":
            if not isinstance(row.get("parent_id"), str) or row["parent_id"] not in messages:
                yield where, row
        elif answered := replies.get(row["message_id"]):
            path = _path(row, messages)
            ranked = [reply for reply in answered if reply.get("rank") is not None] or answered
            ranks = [reply.get("rank") for reply in ranked] if ranked[0].get("rank") is not None else None
            prompt = None if path is None else [{"role": ROLES[m["role"]], "content": m.get("text")} for m in path]
            yield where, {**row, "prompt": prompt, "responses": [m.get("text") for m in ranked], "ranks": ranks}


def _is_message(row: object) -> bool:
    """Return whether a row has an id and one of the two roles."""
    if not isinstance(row, Mapping):
        return False
    number, role = row.get("message_id"), row.get("role")
    return isinstance(number, str) and isinstance(role, str) and role in ROLES


def _path(row: Message, messages: Mapping[str, Message]) -> list[Message] | None:
    """Return the messages from the root to this one; None if one of them is missing, deleted or its own ancestor."""
    path, seen = [row], {row["message_id"]}
    while (parent := path[0].get("parent_id")) is not None:
        above = messages.get(parent) if isinstance(parent, str) else None
        if above is None or parent in seen or above.get("deleted"):
            return None
        path, seen = [above, *path], {*seen, parent}
    return path


def require_usable(row: Message) -> None:
    """Raise an error for a row that :func:`threads` could not use.

    Raises:
        UserError: it has no id, or another role.
        InvalidRecordError: it was deleted, its parent is missing, or several replies have no rank.
    """
    if not _is_message(row):
        field = "role" if isinstance(row.get("message_id"), str) else "message_id"
        words = "prompter or assistant" if field == "role" else "text"
        raise wrong(field, row.get(field), words, expected="role" if field == "role" else "text")
    if row.get("deleted"):
        raise InvalidRecordError("the message was deleted", argument="deleted", problem="deleted")
    if row.get("prompt") is None:
        reason = "a message above it was deleted or is not in the file"
        raise InvalidRecordError(reason, argument="parent_id", problem="missing")
    if row.get("ranks") is None and len(row["responses"]) > 1:
        raise InvalidRecordError("several replies without a rank", argument="rank", problem="tied")


def threads_of_trees(rows: Rows) -> Rows:
    """Yield the same for whole trees, ``{"prompt": {..., "replies": [...]}}``, with the location of their tree."""
    for where, row in threads(_flattened(rows)):
        yield where, {k: v for k, v in row.items() if k != "parent_id"} if isinstance(row, Mapping) else row


def _flattened(rows: Rows) -> Rows:
    for where, row in rows:
        root = row.get("prompt") if isinstance(row, Mapping) else None
        if isinstance(root, Mapping):
            yield from _messages(where, root, row.get("message_tree_id"))
        else:
            yield where, row


def _messages(where: RowLocation, root: Message, tree: object) -> Iterator[tuple[RowLocation, Any]]:
    """Yield a message and all below it, each with the id of the message above it."""
    stack: list[tuple[Message, Any]] = [(root, None)]
    while stack:
        message, above = stack.pop()
        plain = {key: value for key, value in message.items() if key != "replies"}
        yield where, {**plain, "parent_id": above, "message_tree_id": tree}
        listed = message.get("replies")
        under = [reply for reply in (listed if isinstance(listed, list) else ()) if isinstance(reply, Mapping)]
        stack += [(reply, message.get("message_id")) for reply in reversed(under)]
