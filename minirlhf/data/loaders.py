"""Load real data: a file, a folder or a dataset on the hub, read into records of one format.

``load(source)`` reports the rows that it read, the rows that it dropped, and why. Any error in the data is one
:class:`~minirlhf.core.errors.UserError` that names the file, the line or row, and the field.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from minirlhf.core.errors import UserError
from minirlhf.core.randomness import derive_seed
from minirlhf.data import formats, transcripts
from minirlhf.data.formats import Format, Row
from minirlhf.data.messages import (
    FOR_TEMPLATE,
    READ_FIELDS,
    SAME_ROLE,
    WEIGHTS,
    is_empty,
    template_inputs,
    unpacked,
)
from minirlhf.data.readers import RowLocation, one_line, read_rows
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

R = TypeVar("R")

#: The source that errors name for rows that do not come from a file.
IN_MEMORY = "the data"
EXPECTED_DIFFERENT = "expected two different replies (--drop-identical true leaves such rows out)"


@dataclass(frozen=True)
class Dropped:
    """A row that was left out: its location, the reason in words, and the field and the kind of problem."""

    where: str
    reason: str
    argument: str | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Records:
    """The result of :func:`load`.

    Attributes:
        source: as given.
        format: a name of :data:`minirlhf.data.formats.FORMATS`.
        examples: all of one type, in the order of the source.
        dropped: the rows that were left out.
        ignored: fields that the format does not use.
        repeated: whether the completions, as texts, repeated their prompt, which was removed.
    """

    source: str
    format: str
    examples: tuple[Example, ...]
    dropped: tuple[Dropped, ...] = ()
    ignored: tuple[str, ...] = ()
    repeated: bool = False

    def __len__(self) -> int:
        return len(self.examples)

    def __str__(self) -> str:
        """``data.jsonl: 798 rows in format hh-rlhf; dropped 2 × "chosen is empty" (first data.jsonl, line 87)``."""
        text = f"{self.source}: {len(self)} rows in format {self.format}"
        for reason, count in Counter(row.reason for row in self.dropped).most_common():
            first = next(row.where for row in self.dropped if row.reason == reason)
            text += f"; dropped {count} × {reason!r} (first {first})"
        text += "; completions repeat the prompt, which is removed" if self.repeated else ""
        of_problems = any(isinstance(example, Problem) for example in self.examples)
        what = "other fields, which a grader can name" if of_problems else "fields not used"
        return text + (f"; {what}: {', '.join(self.ignored)}" if self.ignored else "")

    def notes(self) -> list[str]:
        """Return what is odd about the rows, though each is well formed."""
        margins = [e.margin for e in self.examples if isinstance(e, Comparison) and e.margin is not None]
        labels = {e.desirable for e in self.examples if isinstance(e, UnpairedPreference)}
        notes = []
        if negative := sum(margin < 0 for margin in margins):
            notes.append(
                f"{negative} of {len(margins)} margins are negative: the rejected completion has the higher score"
            )
        for scored, what, only in (
            (True, "with a score", "train reward --loss regression"),
            (False, "to compare", "train sft"),
        ):
            alone = [e for e in self.examples if isinstance(e, Ranking) and len(e.tiers) == 1]
            if single := sum((e.scores is not None) is scored for e in alone):
                notes.append(f"{single} of {len(self)} rows have one reply {what}: only {only} learns from them")
        spoken = Counter(str(e.columns["lang"]) for e in self.examples if e.columns.get("lang"))
        if len(spoken) > 1:
            counted = ", ".join(f"{name} {count}" for name, count in spoken.most_common(8))
            notes.append(f"the rows are in {len(spoken)} languages (field lang: {counted}), and all of them are read")
        if len(labels) == 1:
            notes.append(f"every label is {labels.pop()}: there is nothing to tell apart")
        steps = {label for e in self.examples if isinstance(e, StepLabeledCompletion) for label in e.labels}
        if steps and len(steps - {0}) < 2:
            notes.append(
                "the steps lack labels of one kind: true or 1 is right, false or -1 wrong, 0 neither of the two"
            )
        pairs = [(e.prompt, e.chosen, e.rejected) for e in self.examples if isinstance(e, Comparison)]
        told = {repr(pair) for pair in pairs}
        if both := sum(repr((prompt, b, a)) in told for prompt, a, b in pairs):
            notes.append(
                f"{both} pairs are also there the other way round: what is chosen in one is rejected in the other"
            )
        labelled: dict[str, set[bool]] = {}
        for e in self.examples:
            if isinstance(e, UnpairedPreference):
                labelled.setdefault(repr((e.prompt, e.completion)), set()).add(e.desirable)
        if both := sum(len(given) > 1 for given in labelled.values()):
            notes.append(f"{both} of the completions have both labels, true in one row and false in another")
        if twice := sum(_describes_its_tools(e) for e in self.examples):
            notes.append(
                f"{twice} of {len(self)} rows describe their tools in a message and in the field tools: a template that "
                "writes tools writes them twice; expected one of the two"
            )
        silent = sum(
            any(m["role"] == "assistant" and is_empty(m) for m in e.messages[e.context :])
            for e in self.examples
            if isinstance(e, Conversation)
        )
        if silent:
            notes.append(
                f"{silent} of {len(self)} conversations have an empty assistant turn, which teaches to say nothing"
            )
        laid_out = [mark[0] for e in self.examples if (mark := transcripts.MARKS.search(_whole_prompt(e)))]
        if len(laid_out) > 0.05 * len(self):
            plain = not formats.FORMATS[self.format].templated
            what, so = (
                ("texts", "all of it is learned, the user's turns too; expected messages to learn the completions only")
                if plain
                else ("prompts", "the chat template writes its own turns around them")
            )
            shown = laid_out[0].strip()[:40]
            notes.append(
                f"{len(laid_out)} of {len(self)} {what} hold marks of turns ({shown!r}), which stay as text: {so}"
            )
        return [f"{self.source}: {note}" for note in notes]

    def conversations(self) -> list[Conversation]:
        """Return the data of supervised fine-tuning: conversations, the better completions, worked solutions."""
        return self._as(_conversations, "a reply to imitate", Conversation)

    def comparisons(self) -> list[Comparison]:
        """Return the data of a reward model or a loss on pairs; a ranking gives all its pairs."""
        return self._as(_comparisons, "a chosen and a rejected reply", Comparison)

    def judgements(self) -> list[UnpairedPreference]:
        """Return the data of a loss on single completions; a comparison gives a desirable and an undesirable one."""
        needed = "a label for each reply (true or false), or a chosen and a rejected one"
        return self._as(_judgements, needed, UnpairedPreference)

    def rankings(self) -> list[Ranking]:
        """Return the data of a listwise loss; a comparison is a list of two."""
        return self._as(_rankings, "ranked replies", Ranking)

    def ratings(self) -> list[Ranking]:
        """Return the data of a regression: completions with a score each, of one prompt one or more."""
        rated = lambda e: ([e] if e.scores else []) if isinstance(e, Ranking) else None
        return self._as(rated, "a score for each reply", Ranking)

    def stepped(self) -> list[StepLabeledCompletion]:
        """Return the data of a process reward model."""
        return self._as(
            lambda example: [example] if isinstance(example, StepLabeledCompletion) else None,
            "steps with labels",
            StepLabeledCompletion,
        )

    def problems(self) -> list[Problem]:
        """Return the prompts of reinforcement learning, with a reference for the grader if the data have one."""
        return self._as(_problems, "a prompt that ends with a user turn", Problem)

    def hold_out(self, fraction: float = 0.1, seed: int = 0) -> tuple[Records, Records]:
        """Split into (training, held out).

        Rows with the same prompt form a group, which stays together. The system message is not part of the prompt here.
        The groups are ordered at random by their prompt and the seed, and taken in this order, each one that brings the
        number of held-out rows closer to the fraction. Each side gets at least one group. If the fraction is 0 or if all
        rows have the same prompt, all rows are for training and none is held out.

        Raises:
            UserError: a fraction outside [0, 1).
        """
        if not 0 <= fraction < 1:
            raise UserError(
                f"the held-out fraction {fraction} is outside [0, 1)",
                argument="fraction",
                value=fraction,
                expected="[0, 1)",
            )
        prompts = _group_keys(self.examples)
        sizes = Counter(prompts)
        drawn = sorted(sizes, key=lambda prompt: (derive_seed(seed, "hold out", prompt), prompt))
        wanted = fraction * len(self.examples)
        held: set[str] = set()
        if fraction and len(sizes) > 1:
            count = 0
            for prompt in drawn:
                if abs(count + sizes[prompt] - wanted) < abs(count - wanted) and len(held) < len(sizes) - 1:
                    held.add(prompt)
                    count += sizes[prompt]
            held = held or {min(drawn, key=lambda prompt: sizes[prompt])}
        sides = [
            tuple(example for example, prompt in zip(self.examples, prompts, strict=True) if (prompt in held) is side)
            for side in (False, True)
        ]
        return replace(self, examples=sides[0]), replace(self, examples=sides[1], dropped=())

    def _as(self, convert: Callable[[Example], list[R] | None], needed: str, kind: type[R]) -> list[R]:
        facts: dict[str, Any] = {
            "argument": "format",
            "value": self.format,
            "expected": kind.__name__,
            "file": self.source,
        }
        records: list[R] = []
        note = f" (fields not used: {', '.join(self.ignored)})" if self.ignored else ""
        for example in self.examples:
            converted = convert(example)
            if converted is None:
                message = (
                    f"{self.source}: its rows, read as {self.format!r}{note}, do not have {needed}, which this needs"
                    + ("; --completion-field NAME and kin read another field" if self.ignored else "")
                )
                raise UserError(message, **facts)
            records += converted
        if not records:
            message = f"{self.source}: none of its rows, read as {self.format!r}{note}, has {needed}, which this needs"
            raise UserError(message, **facts, problem="empty")
        return records


class Scan:
    """Iterate over the rows of a source, each read or refused; :func:`load` stops at the first refused row.

    Iterating gives ``(where, outcome)``: the location, and a record, or :class:`InvalidRecordError`, or the
    :class:`UserError` of a broken row. An error in the file itself (half a line of JSON, say) is raised, because
    nothing can be read after it.

    Attributes:
        form: the format, None until it has been detected from a row.
        ignored: fields that the format does not use.
        repeated: whether the completions repeat their prompt; decided from the first rows.
    """

    def __init__(
        self,
        source: str | Path | Sequence[Row],
        *,
        split: str | None = None,
        format: str | None = None,
        limit: int | None = None,
        cluster: str | None = None,
        choices: str | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> None:
        if limit is not None and limit < 1:
            message = f"limit {limit} leaves no row; expected at least 1"
            raise UserError(message, argument="limit", value=limit, expected=1)
        self.rows = None if isinstance(source, str | Path) else source
        self.source = str(source) if self.rows is None else IN_MEMORY
        self.split, self.limit, self.cluster, self.choices = split, limit, cluster, choices
        self.form = formats.get(format) if format else None
        self.fields = dict(fields or {})
        self.ignored: dict[str, None] = {}
        self.repeated = False
        self._names: set[str] = set()

    def __iter__(self) -> Iterator[tuple[RowLocation, Example | InvalidRecordError | UserError]]:
        in_memory = ((RowLocation(IN_MEMORY, n, "row"), _native(row)) for n, row in enumerate(self.rows or (), 1))
        rows = read_rows(self.source, self.split) if self.rows is None else in_memory
        head, rows = _peeked(islice(rows, self.limit))
        first = [renamed for _, row in head if isinstance(renamed := formats.renamed(row, self.fields), Mapping)]
        self.repeated = transcripts.repeats_prompt(first)
        # Not of the first row alone: a field may be null there.
        self._names = {name for row in first for name in _names(row)}
        form = self._detected()
        if form is not None and form.gather is not None:
            rows = form.gather((where, _present(row) if isinstance(row, Mapping) else row) for where, row in rows)
        for where, row in rows:
            try:
                yield where, self._read(row)
            except InvalidRecordError as reason:
                yield where, reason
            except UserError as problem:
                message = f"{where}: {one_line(problem)}"
                yield where, UserError.about(message, problem, file=where.file, line=where.line)

    def _detected(self) -> Format | None:
        """Return the format; None if it is unknown, which the first row will report."""
        try:
            return self.form or formats.detect(self._names)
        except UserError:
            return None

    def _read(self, found: object) -> Example:
        if not isinstance(found, dict):
            raise UserError(f"expected an object with named fields, found {str(found)[:40]!r}", expected="object")
        row: Row = formats.renamed(found, self.fields, required=True)
        row = _unpacked(_present(row))
        if self.form is None:
            self.form = formats.detect(self._names)
        row = transcripts.without_prompt(row) if self.repeated else row
        beside = (*FOR_TEMPLATE, *formats.ANSWERS, "system") if self.form.templated else ()
        known = (*self.form.columns, *self.form.optional, *beside)
        self.ignored.update(
            dict.fromkeys(str(name) for name in row if name not in (*known, self.cluster, self.choices))
        )
        self.ignored.update(dict.fromkeys(_ignored_in_messages(row, known)))
        _require_fields(row, self.form)
        rewritten = _unpacked(self.form.rewritten(row))
        example = replace(self.form.parse(rewritten), columns=dict(row))
        if self.form.templated:
            example = _with_template_inputs(_with_system(example, rewritten), rewritten)
        example = example if self.cluster is None else _in_cluster(example, row, self.cluster)
        return example if self.choices is None else _with_choices(example, row, self.choices)


#: How many rows decide the format, and whether the completions repeat their prompt.
PEEKED = 64
#: The fields that may hold messages.
MESSAGE_FIELDS = ("messages", "conversations", "prompt", *transcripts.COMPLETIONS)


def _present(row: Row) -> dict[str, Any]:
    """Return the row with None in place of NaN, which is how pandas writes a missing value."""
    return {name: None if isinstance(value, float) and value != value else value for name, value in row.items()}


def _native(value: Any) -> Any:
    """Return a value of a row in memory with lists and numbers of Python in place of NumPy's, which pandas gives."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {name: _native(item) for name, item in value.items()}
    return [_native(item) for item in value] if isinstance(value, list) else value


def _names(row: Row) -> Iterator[str]:
    """Yield the names of the fields that are not null, of those in an object or in the first object of a list, and
    ``answer.####`` for a text with the mark of GSM8K."""
    for name, value in _present(row).items():
        if value is not None:
            yield name
        inner = value[0] if isinstance(value, list) and value else value
        if isinstance(inner, Mapping):
            yield from (f"{name}.{key}" for key in inner)
        if isinstance(value, str) and "####" in value:
            yield f"{name}.####"


def _unpacked(row: Row) -> dict[str, Any]:
    """Return the row with the messages that stand in a text as messages."""
    return {name: unpacked(value) if name in MESSAGE_FIELDS else value for name, value in row.items()}


def _peeked(rows: Iterator[R]) -> tuple[list[R], Iterator[R]]:
    """Return the first rows, and all rows; an error in reading the first rows is raised at its place among all rows."""
    head: list[R] = []
    try:
        for row in islice(rows, PEEKED):
            head.append(row)
    except UserError as problem:
        return head, chain(head, _raising(problem))
    return head, chain(head, rows)


def _raising(problem: UserError) -> Iterator[Any]:
    raise problem
    yield


def load(
    source: str | Path | Sequence[Row],
    *,
    split: str | None = None,
    format: str | None = None,
    limit: int | None = None,
    drop_identical: bool = False,
    cluster: str | None = None,
    choices: str | None = None,
    fields: Mapping[str, str] | None = None,
) -> Records:
    """Read a data set.

    Args:
        source: a ``.jsonl``, ``.json`` or ``.csv`` file (also with ``.gz``), a ``.parquet`` file, a folder of such
            files or one that ``datasets`` saved, or else a name on the hub, ``owner/name`` or ``owner/name:config``; or
            the rows themselves, dictionaries.
        split: of a folder, the files that have this word in their name (``train-00001.parquet``); of the hub, the
            split. By default ``train`` where there is such a thing, else everything.
        format: a name of :data:`~minirlhf.data.formats.FORMATS`; detected from the fields of the first rows by default.
        limit: read at most this many rows.
        drop_identical: leave out (and count) rows whose two replies are equal; otherwise they are an error.
        cluster: the field of the rows that says which problems belong together.
        choices: the field of the rows that lists the answers to choose from. The right one is named by its text, its
            number from 0 on, or its letter from A on.
        fields: names of fields of the formats, each with the name that it has in the rows: ``{"prompt": "query"}``. A
            dot leads into an object: ``{"answer": "reward_model.ground_truth"}``.

    Raises:
        UserError: nothing there, not readable, an unknown format, a broken row, or no row of any use.
    """
    scan = Scan(source, split=split, format=format, limit=limit, cluster=cluster, choices=choices, fields=fields)
    examples: list[Example] = []
    dropped: list[Dropped] = []
    for where, outcome in scan:
        if isinstance(outcome, UserError):
            raise outcome
        if isinstance(outcome, IdenticalPairError) and not drop_identical:
            raise UserError.about(
                f"{where}: {outcome}; {EXPECTED_DIFFERENT}", outcome, file=where.file, line=where.line
            )
        if isinstance(outcome, InvalidRecordError):
            dropped.append(Dropped(where, str(outcome), outcome.argument, outcome.problem))
        else:
            examples.append(outcome)
    form = scan.form
    if form is None or not (examples or dropped):
        raise UserError(f"{scan.source}: there are no rows", argument="rows", file=scan.source, problem="empty")
    if not examples:
        first = dropped[0]
        raise UserError(
            f"{first.where}: {first.reason}; none of the {len(dropped)} rows of {scan.source} can be used",
            argument=first.argument,
            value=len(dropped),
            file=scan.source,
            problem=first.problem,
        )
    return Records(scan.source, form.name, tuple(examples), tuple(dropped), tuple(scan.ignored), scan.repeated)


def _ignored_in_messages(row: Row, known: Iterable[str]) -> Iterator[str]:
    """Yield the fields of messages that are not read: ``messages.weight``."""
    for name in known:
        value = row.get(name)
        for message in value if isinstance(value, list) else ():
            if isinstance(message, dict) and "role" in message:
                read = READ_FIELDS.get(str(SAME_ROLE.get(str(message["role"]), message["role"])), ())
                read = (*read, *WEIGHTS) if name in ("messages", "conversations") else read
                yield from (f"{name}.{key}" for key, value in message.items() if key not in read and value is not None)


def _in_cluster(example: Example, row: Row, field: str) -> Problem:
    problems = _problems(example)
    if not problems:
        raise UserError(
            f"cluster {field!r}: the row is not a problem; expected a prompt that ends with a user turn",
            argument="cluster",
            value=field,
            expected="Problem",
        )
    name = row.get(field)
    if not isinstance(name, str | int) or isinstance(name, bool) or name == "":
        raise UserError(
            f"field {field!r}, the cluster, is {str(name)[:40]!r}; expected a name or a whole number",
            argument=field,
            value=name,
            expected="name",
        )
    return replace(problems[0], cluster=str(name))


def _with_choices(example: Example, row: Row, field: str) -> Problem:
    problems = _problems(example)
    if not problems:
        raise UserError(
            f"choices {field!r}: the row is not a problem; expected a prompt that ends with a user turn",
            argument="choices",
            value=field,
            expected="Problem",
        )
    options = formats.choices_of(row, field)
    if problems[0].choices == options:
        return problems[0]
    if problems[0].reference is None:
        raise UserError(
            f"field {field!r} has choices, but the row has no answer; expected one in {', '.join(formats.ANSWERS)}",
            argument="answer",
            expected=list(formats.ANSWERS),
            problem="missing",
        )
    return replace(problems[0], reference=formats.choice_named(problems[0].reference, options), choices=options)


def _with_system(example: Example, row: Row) -> Example:
    """Return the example with the text in the row's field ``system`` as the system message, unless it has one."""
    text = row.get("system")
    messages = example.messages if isinstance(example, Conversation) else example.prompt
    if not isinstance(text, str) or not text.strip() or messages[0]["role"] == "system":
        return example
    messages = [{"role": "system", "content": text}, *messages]
    if isinstance(example, Conversation):
        return replace(example, messages=messages, context=example.context + bool(example.context))
    return replace(example, prompt=messages)


def _with_template_inputs(example: Example, row: Row) -> Example:
    """Return the example with ``tools`` and ``chat_template_kwargs`` of the row in its first message."""
    inputs = template_inputs(row)
    if not inputs:
        return example
    if isinstance(example, Conversation):
        first, *rest = example.messages
        return replace(example, messages=[{**first, **inputs}, *rest])
    first, *rest = example.prompt
    return replace(example, prompt=[{**first, **inputs}, *rest])


def _require_fields(row: Row, form: Format) -> None:
    missing = [field for field in form.columns if row.get(field) is None and field not in form.nullable]
    if missing:
        present = ", ".join(name for name in row if row[name] is not None)
        raise UserError(
            f"field {missing[0]!r} is missing; found {present or 'no fields'}, but the format is {form.name} "
            f"({', '.join(form.fields)}), the same for all rows",
            argument=missing[0],
            expected=form.name,
            problem="missing",
        )


# -- conversions to another record type: a list, or None if the conversion makes no sense -----------------------------


def _conversations(example: Example) -> list[Conversation] | None:
    match example:
        case Conversation():
            return [example]
        case Comparison(prompt, turns) | Ranking(prompt, [[turns, *_], *_]) | UnpairedPreference(prompt, turns, True):
            return [Conversation([*prompt, *turns], context=len(prompt))]
        case UnpairedPreference():
            return []  # an undesirable completion is not imitated
        case Problem(prompt, _, str(solution)):
            return [Conversation([*prompt, {"role": "assistant", "content": solution}])]
    return None


def _comparisons(example: Example) -> list[Comparison] | None:
    if isinstance(example, Ranking):
        return example.comparisons()
    return [example] if isinstance(example, Comparison) else None


def _judgements(example: Example) -> list[UnpairedPreference] | None:
    match example:
        case UnpairedPreference():
            return [example]
        case Comparison(prompt, chosen, rejected):
            return [UnpairedPreference(prompt, chosen, True), UnpairedPreference(prompt, rejected, False)]
    return None


def _rankings(example: Example) -> list[Ranking] | None:
    match example:
        case Ranking():
            return [example] if len(example.tiers) > 1 else []
        case Comparison(prompt, chosen, rejected):
            return [Ranking(prompt, [[chosen], [rejected]])]
    return None


def _problems(example: Example) -> list[Problem] | None:
    match example:
        case Problem():
            return [example]
        case Conversation(messages):
            prompt, reply = messages[:-1], messages[-1]
            if not prompt or prompt[-1]["role"] not in formats.MAY_BE_ANSWERED:
                return None
            reference, solution = reply["content"], None
        case _:
            prompt, reference, solution = example.prompt, None, None
    answer, more = formats.right_answers(example.columns)
    if answer is not None:
        reference, solution = answer, reference
    return [Problem(prompt, reference, solution, alternatives=more, columns=example.columns)]


def _group_keys(examples: Sequence[Example]) -> list[str]:
    """Return the text by which each row is held out or not; rows with the same text stay together.

    This is the prompt without its system message. The prompt of a conversation reaches to its first user turn. If all
    conversations begin alike (with a greeting, say), it reaches to the first user turn at which they differ.
    """
    longest = max((_num_user_turns(example) for example in examples), default=0)
    keys: list[str] = []
    for turns in range(1, max(longest, 1) + 1):
        keys = [_opening(example, turns) for example in examples]
        if len(set(keys)) > 1:
            break
    return keys


def _describes_its_tools(example: Example) -> bool:
    """Return whether a system or user message of an example already has the names of all its tools, as in JSON."""
    messages: list[Message] = example.messages if isinstance(example, Conversation) else example.prompt
    names = [tool["function"]["name"] for message in messages[:1] for tool in message.get("tools", ())]
    text = "\n".join(message["content"] for message in messages if message["role"] in ("system", "user"))
    return bool(names) and all(re.search(rf"""["']name["']\s*:\s*["']{re.escape(name)}["']""", text) for name in names)


def _whole_prompt(example: Example) -> str:
    messages: list[Message] = example.messages if isinstance(example, Conversation) else example.prompt
    return "\n".join(message["content"] for message in messages)


def _num_user_turns(example: Example) -> int:
    return sum(m["role"] == "user" for m in example.messages) if isinstance(example, Conversation) else 1


def _opening(example: Example, turns: int) -> str:
    """Return the prompt as one text: of a conversation, all messages up to its ``turns``-th user turn."""
    messages: list[Message] = example.messages if isinstance(example, Conversation) else example.prompt
    users = [i for i, message in enumerate(messages) if message["role"] == "user"]
    if isinstance(example, Conversation) and users:
        messages = messages[: users[min(turns, len(users)) - 1] + 1]
    return "\n".join(message["content"] for message in messages if message["role"] != "system")
