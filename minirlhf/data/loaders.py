"""Real data: a file, a folder or a data set of the hub, read into records of one format.

``load(source)`` says what it found, what it dropped and why; whatever is wrong with the data is one
:class:`~minirlhf.core.errors.UserError` that names the file, the line or row, and the field.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from minirlhf.core.errors import UserError
from minirlhf.core.randomness import derive_seed
from minirlhf.data import formats
from minirlhf.data.chat import Message
from minirlhf.data.formats import Comparison, Conversation, Example, Format, Identical, Problem, Row, Unusable
from minirlhf.data.readers import one_line, read_rows


@dataclass(frozen=True)
class Dropped:
    """A row that was left out: where it stands and why."""

    where: str
    reason: str


@dataclass(frozen=True)
class Records:
    """What :func:`load` read.

    Attributes:
        source: as given.
        format: a name of :data:`minirlhf.data.formats.FORMATS`.
        examples: all of one type, in the order of the source.
        dropped: the rows that were left out.
        ignored: fields that the format does not use.
    """

    source: str
    format: str
    examples: tuple[Example, ...]
    dropped: tuple[Dropped, ...] = ()
    ignored: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.examples)

    def __str__(self) -> str:
        """``data.jsonl: 798 rows in format hh-rlhf; dropped 2 × "chosen is empty" (first data.jsonl, line 87)``."""
        text = f"{self.source}: {len(self)} rows in format {self.format}"
        for reason, count in Counter(row.reason for row in self.dropped).most_common():
            first = next(row.where for row in self.dropped if row.reason == reason)
            text += f"; dropped {count} × {reason!r} (first {first})"
        return text + (f"; fields not used: {', '.join(self.ignored)}" if self.ignored else "")

    def conversations(self) -> list[Conversation]:
        """What supervised fine-tuning imitates: conversations, chosen replies, worked solutions."""
        return [self._as(example, _conversation, "a reply to imitate") for example in self.examples]

    def comparisons(self) -> list[Comparison]:
        """What a reward model or a preference loss learns from."""
        return [self._as(example, _comparison, "a chosen and a rejected reply") for example in self.examples]

    def problems(self) -> list[Problem]:
        """What reinforcement learning answers: prompts, with a reference for the grader where the data have one."""
        return [self._as(example, _problem, "a prompt that ends with a user turn") for example in self.examples]

    def hold_out(self, fraction: float = 0.1, seed: int = 0) -> tuple[Records, Records]:
        """Split into (training, held out). A row's side depends on its prompt and the seed, not on the other rows.

        Rows with the same prompt stay together. Each side gets at least one prompt.

        Raises:
            UserError: fewer than two different prompts.
        """
        if not 0 < fraction < 1:
            raise UserError(f"the held-out share {fraction} is not between 0 and 1")
        places = [derive_seed(seed, "hold out", _opening(example)) / 2**63 for example in self.examples]
        distinct = sorted(set(places))
        if len(distinct) < 2:
            raise UserError(f"{self.source}: all rows have the same prompt; there is nothing to hold out")
        cut = min(max(fraction, distinct[0]), distinct[-2])  # neither side is empty
        placed = list(zip(self.examples, places, strict=True))
        kept = tuple(example for example, place in placed if place > cut)
        held = tuple(example for example, place in placed if place <= cut)
        return replace(self, examples=kept), replace(self, examples=held, dropped=())

    def _as(self, example: Example, convert: Callable[[Example], Any], needed: str) -> Any:
        converted = convert(example)
        if converted is None:
            raise UserError(f"{self.source}: its rows, in format {self.format}, do not have {needed}, which this needs")
        return converted


def load(
    source: str | Path,
    *,
    split: str | None = None,
    format: str | None = None,
    limit: int | None = None,
    drop_identical: bool = False,
) -> Records:
    """Read a data set.

    Args:
        source: a ``.jsonl``, ``.json`` or ``.csv`` file (also with ``.gz``), a ``.parquet`` file, a folder of such files
            or one that ``datasets`` saved, or else a name on the hub, ``owner/name`` or ``owner/name:config``.
        split: of a folder, the files that have this word in their name (``train-00001.parquet``); of the hub, the split.
            By default ``train`` where there is such a thing, else everything.
        format: a name of :data:`~minirlhf.data.formats.FORMATS`; detected from the fields of the first row by default.
        limit: read at most this many rows.
        drop_identical: leave out (and count) rows whose two replies are equal; otherwise they are an error.

    Raises:
        UserError: nothing there, not readable, an unknown format, a broken row, or no row of any use.
    """
    if limit is not None and limit < 1:
        raise UserError(f"limit {limit} leaves no row; expected at least 1")
    form = formats.get(format) if format else None
    examples: list[Example] = []
    dropped: list[Dropped] = []
    ignored: dict[str, None] = {}
    for where, row in islice(read_rows(str(source), split), limit):
        try:
            if not isinstance(row, dict):
                raise UserError(f"expected an object with named fields, found {str(row)[:40]!r}")
            form = form or formats.detect(name for name, value in row.items() if value is not None)
            ignored.update(dict.fromkeys(name for name in row if name not in (*form.fields, *form.optional)))
            examples.append(_parse(row, form))
        except Unusable as reason:
            if isinstance(reason, Identical) and not drop_identical:
                raise UserError(
                    f"{where}: {reason}; expected two different replies (--drop-identical true leaves such rows out)"
                ) from None
            dropped.append(Dropped(where, str(reason)))
        except UserError as problem:
            raise UserError(f"{where}: {one_line(problem)}") from problem
    if form is None or not (examples or dropped):
        raise UserError(f"{source}: it holds no rows")
    if not examples:
        raise UserError(
            f"{dropped[0].where}: {dropped[0].reason}; none of the {len(dropped)} rows of {source} can be used"
        )
    return Records(str(source), form.name, tuple(examples), tuple(dropped), tuple(ignored))


def _parse(row: Row, form: Format) -> Example:
    missing = [field for field in form.fields if row.get(field) is None]
    if missing:
        found = ", ".join(name for name in row if row[name] is not None)
        raise UserError(f"field {missing[0]!r} is missing; found {found or 'no fields'}")
    return form.parse(row)


# -- one record as another --------------------------------------------------------------------------------------------


def _conversation(example: Example) -> Conversation | None:
    match example:
        case Conversation():
            return example
        case Comparison(prompt, chosen):
            return Conversation([*prompt, *chosen], context=len(prompt))
        case Problem(prompt, _, str(solution)):
            return Conversation([*prompt, {"role": "assistant", "content": solution}], context=len(prompt))
    return None


def _comparison(example: Example) -> Comparison | None:
    return example if isinstance(example, Comparison) else None


def _problem(example: Example) -> Problem | None:
    match example:
        case Conversation(messages):
            prompt, reference = messages[:-1], messages[-1]["content"]
            return Problem(prompt, reference) if prompt and prompt[-1]["role"] == "user" else None
        case Comparison(prompt):
            return Problem(prompt)
    return example


def _opening(example: Example) -> str:
    """The text by which rows are held out: the prompt, or the first question of a conversation."""
    messages: list[Message] = example.messages[:1] if isinstance(example, Conversation) else example.prompt
    return "\n".join(message["content"] for message in messages)
