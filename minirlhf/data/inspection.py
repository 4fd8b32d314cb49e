"""A look at data before training: what would be read, what dropped or refused, how long it is, and which tokens are learned.

Nothing here decides anything: the loader's own :class:`~minirlhf.data.loaders.Scan` and the trainers' own
:func:`~minirlhf.data.chat.encode` are run and written down.
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
)

Turns: TypeAlias = tuple[list[Message], int]  # messages, and how many of them are context


@dataclass(frozen=True)
class Token:
    """One token of a rendered conversation: whose turn it belongs to, and whether a loss is taken on it."""

    id: int
    text: str
    role: str
    trained: bool


@dataclass
class Survey:
    """What a data set holds.

    Attributes:
        rows: the usable ones, ``(where, record)``.
        dropped, refused: reason -> places. The first are left out and counted, the others end a training run.
        broken: why nothing could be read any further, if that happened.
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
        """Would a training run accept it?"""
        return bool(self.rows) and not self.refused and self.broken is None


def survey(scan: Scan) -> Survey:
    """Read everything, going on after a broken row."""
    found = Survey(scan.source)
    try:
        for where, outcome in scan:
            if isinstance(outcome, UserError):
                found.refused.setdefault(str(outcome).removeprefix(f"{where}: "), []).append(where)
            elif isinstance(outcome, IdenticalPairError):
                found.refused.setdefault(f"{outcome}; {EXPECTED_DIFFERENT}", []).append(where)
            elif isinstance(outcome, InvalidRecordError):
                found.dropped.setdefault(str(outcome), []).append(where)
            else:
                found.rows.append((where, outcome))
    except UserError as problem:
        found.broken = str(problem)
    found.format = scan.form.name if scan.form else ""
    found.ignored = tuple(scan.ignored)
    return found


def sequences(example: Example) -> dict[str, Turns]:
    """The conversations that a trainer makes of a record, by name; of a prompt without an answer, the prompt."""
    match example:
        case Conversation(messages, context):
            return {"conversation": (messages, context)}
        case Comparison(prompt, chosen, rejected):
            return {"chosen": ([*prompt, *chosen], len(prompt)), "rejected": ([*prompt, *rejected], len(prompt))}
        case UnpairedPreference(prompt, completion, desirable):
            return {"desirable" if desirable else "undesirable": ([*prompt, *completion], len(prompt))}
        case Ranking(prompt, tiers):
            replies = [(n, reply) for n, tier in enumerate(tiers, 1) for reply in tier]
            numbered = enumerate(replies, 1)
            return {f"reply {i} (rank {n})": ([*prompt, *reply], len(prompt)) for i, (n, reply) in numbered}
        case StepLabeledCompletion(prompt, steps):
            return {"reply in steps": ([*prompt, chat.stepwise(steps)], len(prompt))}
        case Problem(prompt, _, str(solution)):
            return {"solution": ([*prompt, {"role": "assistant", "content": solution}], len(prompt))}
    return {"prompt": (example.prompt, len(example.prompt))}


def texts(rows: Iterable[tuple[str, Example]]) -> Iterable[str]:
    """What a tokenizer for this data is trained on: every conversation as plain text."""
    for _, example in rows:
        for messages, _ in sequences(example).values():
            yield "\n".join(message["content"] for message in messages)


def tokens(tokenizer: Any, messages: list[Message], context: int) -> list[Token]:
    """The conversation as the trainers see it. One that ends with the user's turn is a prompt: the model answers next."""
    answered = messages[-1]["role"] == "assistant"
    text = chat.render(tokenizer, messages, add_generation_prompt=not answered)
    coded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    trained = [False] * len(coded["input_ids"])
    if answered:
        trained = chat.encode(tokenizer, messages, first_turn=context).loss_mask
    ends = _turn_ends(tokenizer, messages, text)
    listed = []
    for token, (start, end), learned in zip(coded["input_ids"], coded["offset_mapping"], trained, strict=True):
        turn = next((i for i, stop in enumerate(ends) if start < stop), len(messages))
        role = messages[turn]["role"] if turn < len(messages) else "assistant"
        shown = text[start:end] or tokenizer.convert_ids_to_tokens(token)
        listed.append(Token(int(token), shown, role, learned))
    return listed


def _turn_ends(tokenizer: Any, messages: Sequence[Message], text: str) -> list[int]:
    """Where each turn ends in the text. If the template rewrites earlier turns, what it adds is one turn with the next."""
    ends: list[int] = []
    for turn in range(1, len(messages)):
        part = chat.render(tokenizer, messages[:turn])
        ends.append(len(part) if text.startswith(part) else (ends[-1] if ends else 0))
    return [*ends, len(chat.render(tokenizer, messages))]


@dataclass(frozen=True)
class Lengths:
    """Token counts of one kind of sequence."""

    name: str
    counts: np.ndarray
    trained: int

    def row(self) -> list[str]:
        """Number, minimum, 5 %, median, mean, 95 %, maximum, all tokens, and the share that a loss is taken on."""
        c = self.counts
        low, middle, high = np.percentile(c, [5, 50, 95])
        cells = [len(c), c.min(), low, middle, c.mean(), high, c.max(), c.sum()]
        return [*(f"{float(cell):,.0f}" for cell in cells), f"{self.trained / max(1, c.sum()):.0%}"]


@dataclass(frozen=True)
class Counted:
    """Lengths by kind, how many tokens are the unknown one, and the rows longer than ``context``: ``(where, tokens)``."""

    lengths: list[Lengths]
    unknown: int
    context: int
    too_long: list[tuple[str, int]]

    def histogram(self, bins: int = 24) -> tuple[np.ndarray, np.ndarray]:
        """Counts ``(bins,)`` and edges ``(bins + 1,)`` over all sequences."""
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
                coded = chat.encode(tokenizer, messages, first_turn=first)
                ids, learned = coded.input_ids, sum(coded.loss_mask)
            else:
                ids, learned = chat.encode_prompt(tokenizer, messages), 0
            counts.setdefault(kind, []).append(len(ids))
            trained[kind] = trained.get(kind, 0) + learned
            unknown += 0 if tokenizer.unk_token_id is None else ids.count(tokenizer.unk_token_id)
            longest = max(longest, len(ids))
        if longest > context:
            too_long.append((where, longest))
    lengths = [Lengths(kind, np.array(sizes), trained[kind]) for kind, sizes in counts.items()]
    return Counted(lengths, unknown, context, too_long)


def places(wheres: Sequence[str], shown: int = 12) -> str:
    """``lines 3, 87 and 12 more``: the numbers alone where all places are of one file."""
    heads = {where.rpartition(" ")[0] for where in wheres}
    if len(heads) == 1 and all(where.rpartition(" ")[2].isdecimal() for where in wheres):
        unit = heads.pop().rpartition(" ")[2]
        numbers = [where.rpartition(" ")[2] for where in wheres]
        more = f" and {len(numbers) - shown} more" if len(numbers) > shown else ""
        return f"{unit}{'s' if len(numbers) > 1 else ''} {', '.join(numbers[:shown])}{more}"
    return "; ".join(wheres[:shown]) + (f" and {len(wheres) - shown} more" if len(wheres) > shown else "")
