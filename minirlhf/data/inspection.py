"""Inspect data before training: the rows read, dropped or refused, their lengths, and the tokens with a loss.

This module decides nothing: it runs the loader's own :class:`~minirlhf.data.loaders.Scan` and the trainers' own
:func:`~minirlhf.data.chat.encode`, and records the results.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from minirlhf.core.errors import UserError
from minirlhf.data import chat
from minirlhf.data.loaders import EXPECTED_DIFFERENT, Scan
from minirlhf.data.records import (
    Comparison,
    Conversation,
    Example,
    IdenticalPairError,
    InvalidRecordError,
    Message,
    Problem,
    Ranking,
    StepLabeledCompletion,
    UnpairedPreference,
    text_of,
)

Turns: TypeAlias = tuple[list[Message], int]  # messages, and how many of them are context


@dataclass(frozen=True)
class Token:
    """One token of a rendered conversation: the role of its turn, and whether the loss covers it."""

    id: int
    text: str
    role: str
    trained: bool


@dataclass
class Survey:
    """The contents of a dataset.

    Attributes:
        rows: the usable ones, ``(where, record)``.
        dropped, refused: reason -> locations. Dropped rows are left out and counted; refused rows end a training run.
        broken: why reading stopped before the end, if it did.
    """

    source: str
    format: str = ""
    ignored: tuple[str, ...] = ()
    rows: list[tuple[str, Example]] = field(default_factory=list)
    dropped: dict[str, list[str]] = field(default_factory=dict)
    refused: dict[str, list[str]] = field(default_factory=dict)
    broken: str | None = None

    @property
    def sound(self) -> bool:
        """Whether a training run would accept the data."""
        return bool(self.rows) and not self.refused and self.broken is None


def survey(scan: Scan) -> Survey:
    """Read all rows, continuing after a broken row."""
    result = Survey(scan.source)
    try:
        for where, outcome in scan:
            if isinstance(outcome, UserError):
                result.refused.setdefault(str(outcome).removeprefix(f"{where}: "), []).append(where)
            elif isinstance(outcome, IdenticalPairError):
                result.refused.setdefault(f"{outcome}; {EXPECTED_DIFFERENT}", []).append(where)
            elif isinstance(outcome, InvalidRecordError):
                result.dropped.setdefault(str(outcome), []).append(where)
            else:
                result.rows.append((where, outcome))
    except UserError as problem:
        result.broken = str(problem)
    result.format = scan.form.name if scan.form else ""
    result.ignored = tuple(scan.ignored)
    return result


def sequences(example: Example) -> dict[str, Turns]:
    """Return the conversations that a trainer makes of a record, by name; of a prompt alone, the prompt."""
    match example:
        case Conversation(messages, context):
            return {"conversation": (messages, context)}
        case Comparison(prompt, chosen, rejected):
            return {"chosen": ([*prompt, *chosen], len(prompt)), "rejected": ([*prompt, *rejected], len(prompt))}
        case UnpairedPreference(prompt, completion, desirable):
            return {"desirable" if desirable else "undesirable": ([*prompt, *completion], len(prompt))}
        case Ranking(prompt, tiers):
            ranked = [(n, turns) for n, tier in enumerate(tiers, 1) for turns in tier]
            numbered = enumerate(ranked, 1)
            return {f"reply {i} (rank {n})": ([*prompt, *turns], len(prompt)) for i, (n, turns) in numbered}
        case StepLabeledCompletion(prompt, steps):
            return {"reply in steps": ([*prompt, chat.stepwise(steps)], len(prompt))}
        case Problem(prompt, _, str(solution)):
            return {"solution": ([*prompt, {"role": "assistant", "content": solution}], len(prompt))}
    return {"prompt": (example.prompt, len(example.prompt))}


def texts(rows: Iterable[tuple[str, Example]]) -> Iterable[str]:
    """Yield the texts on which to train a tokenizer for this data: every conversation as plain text."""
    for _, example in rows:
        for messages, _ in sequences(example).values():
            yield "\n".join(text_of(message) for message in messages)


def tokens(tokenizer: Any, messages: list[Message], context: int) -> list[Token]:
    """Return the tokens of the conversation as the trainers see it; if a user turn ends it, it is a prompt."""
    answered = messages[-1]["role"] == "assistant"
    text = chat.render(tokenizer, messages, add_generation_prompt=not answered)
    encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    trained = [False] * len(encoding["input_ids"])
    if answered:
        trained = chat.encode(tokenizer, messages, first_turn=context).loss_mask
    ends = _turn_ends(tokenizer, messages, text)
    result = []
    for token, (start, end), in_loss in zip(encoding["input_ids"], encoding["offset_mapping"], trained, strict=True):
        turn = next((i for i, stop in enumerate(ends) if start < stop), len(messages))
        role = messages[turn]["role"] if turn < len(messages) else "assistant"
        piece = text[start:end] or tokenizer.convert_ids_to_tokens(token)
        result.append(Token(int(token), piece, role, in_loss))
    return result


def _turn_ends(tokenizer: Any, messages: Sequence[Message], text: str) -> list[int]:
    """Return where each turn ends in the text. If the template rewrites a turn, it is merged with the next one."""
    ends: list[int] = []
    for turn in range(1, len(messages)):
        part = _rendered(tokenizer, messages[:turn])
        ends.append(len(part) if part and text.startswith(part) else (ends[-1] if ends else 0))
    return [*ends, len(chat.render(tokenizer, messages))]


def _rendered(tokenizer: Any, messages: Sequence[Message]) -> str:
    """Return the rendered messages; empty if the template refuses them, as some do a system message alone."""
    try:
        return chat.render(tokenizer, messages)
    except UserError:
        return ""


@dataclass(frozen=True)
class Lengths:
    """Token counts of one kind of sequence."""

    name: str
    counts: np.ndarray
    trained: int

    def row(self) -> list[str]:
        """Return number, minimum, 5 %, median, mean, 95 %, maximum, total, and the fraction of tokens with a loss."""
        c = self.counts
        low, middle, high = np.percentile(c, [5, 50, 95])
        cells = [len(c), c.min(), low, middle, c.mean(), high, c.max(), c.sum()]
        return [*(f"{float(cell):,.0f}" for cell in cells), f"{self.trained / max(1, c.sum()):.0%}"]


@dataclass(frozen=True)
class Counted:
    """Lengths by kind, the number of unknown tokens, and the rows longer than ``context``: ``(where, tokens)``."""

    lengths: list[Lengths]
    unknown: int
    context: int
    too_long: list[tuple[str, int]]

    def histogram(self, bins: int = 24) -> tuple[np.ndarray, np.ndarray]:
        """Return counts ``(bins,)`` and edges ``(bins + 1,)`` over all sequences."""
        return np.histogram(np.concatenate([part.counts for part in self.lengths]), bins=bins)


def count(tokenizer: Any, rows: Sequence[tuple[str, Example]], context: int) -> Counted:
    """Tokenise every row as the trainers do."""
    counts: dict[str, list[int]] = {}
    trained: dict[str, int] = {}
    too_long = []
    unknown = 0
    for where, example in rows:
        longest = 0
        for name, (messages, first) in sequences(example).items():
            kind = re.sub(r"reply \d+ \((rank \d+)\)", r"\1", name)
            if messages[-1]["role"] == "assistant":
                encoded = chat.encode(tokenizer, messages, first_turn=first)
                ids, num_trained = encoded.input_ids, sum(encoded.loss_mask)
            else:
                ids, num_trained = chat.encode_prompt(tokenizer, messages), 0
            counts.setdefault(kind, []).append(len(ids))
            trained[kind] = trained.get(kind, 0) + num_trained
            unknown += 0 if tokenizer.unk_token_id is None else ids.count(tokenizer.unk_token_id)
            longest = max(longest, len(ids))
        if longest > context:
            too_long.append((where, longest))
    lengths = [Lengths(kind, np.array(sizes), trained[kind]) for kind, sizes in counts.items()]
    return Counted(lengths, unknown, context, too_long)


def places(wheres: Sequence[str], shown: int = 12) -> str:
    """Return ``lines 3, 87 and 12 more``: only the numbers if all locations are in one file."""
    prefixes = {where.rpartition(" ")[0] for where in wheres}
    if len(prefixes) == 1 and all(where.rpartition(" ")[2].isdecimal() for where in wheres):
        unit = prefixes.pop().rpartition(" ")[2]
        numbers = [where.rpartition(" ")[2] for where in wheres]
        rest = f" and {len(numbers) - shown} more" if len(numbers) > shown else ""
        return f"{unit}{'s' if len(numbers) > 1 else ''} {', '.join(numbers[:shown])}{rest}"
    return "; ".join(wheres[:shown]) + (f" and {len(wheres) - shown} more" if len(wheres) > shown else "")
