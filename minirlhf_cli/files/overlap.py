"""Contamination: the n-grams that an evaluation set shares with training data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from minirlhf.core.errors import UserError
from minirlhf.data.inspection import sequences
from minirlhf.data.loaders import Records
from minirlhf.data.records import Conversation, Example, Problem, text_of
from minirlhf.equations.evaluation import ngram_overlap, ngrams

_WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """Return the words of a text in lower case, without punctuation."""
    return _WORD.findall(text.casefold())


@dataclass(frozen=True)
class OverlapItem:
    """One item of the evaluation set.

    Attributes:
        number: its place in the data, from 1.
        text: what was compared.
        overlap: the fraction of its n-grams that occur in the training data. A text of fewer than n words has 1 if it
            is one of the training texts, else None.
        shared: the first n-gram that occurs there, as text.
    """

    number: int
    text: str
    overlap: float | None
    shared: str = ""


def overlap_with_training(evaluation: Records, training: Records, *, n: int, whole: bool = False) -> list[OverlapItem]:
    """Return the overlap of every item of the evaluation set with all text of the training data.

    Args:
        n: words per n-gram.
        whole: compare the item's prompt and its completion or reference; False: the prompt only.
    """
    if n < 1:
        raise UserError(f"--n {n}: expected at least 1", argument="--n", value=n, expected=1)
    texts = [tuple(words(text)) for example in training.examples for text in texts_of(example)]
    seen = {gram for text in texts for gram in ngrams(text, n=n)}
    short = {text for text in texts if 0 < len(text) < n}
    items = []
    for number, example in enumerate(evaluation.examples, 1):
        text = "\n".join(texts_of(example)) if whole else prompt_of(example)
        tokens = words(text)
        if len(tokens) < n:
            is_there = tuple(tokens) in short
            items.append(OverlapItem(number, text, 1.0 if is_there else None, " ".join(tokens) if is_there else ""))
            continue
        shared = next((gram for gram in ngrams(tokens, n=n) if gram in seen), ())
        items.append(OverlapItem(number, text, ngram_overlap(tokens, seen, n=n), " ".join(map(str, shared))))
    return items


def prompt_of(example: Example) -> str:
    """Return what the user says, without the system message; of a conversation, up to the last reply."""
    messages = example.messages if isinstance(example, Conversation) else example.prompt
    return "\n".join(message["content"] for message in messages if message["role"] == "user")


def texts_of(example: Example) -> Iterator[str]:
    """Yield each text of a row: the messages of every completion with its prompt, and the reference."""
    if isinstance(example, Problem) and isinstance(example.reference, str):
        yield example.reference
    yield from dict.fromkeys(text_of(message) for messages, _ in sequences(example).values() for message in messages)


def report(items: Sequence[OverlapItem], n: int, num_shown: int) -> list[str]:
    """Return the lines of the report: counts, and the items with the largest overlap."""
    compared = [item for item in items if item.overlap is not None]
    hit = sorted((item for item in compared if item.overlap), key=lambda item: -(item.overlap or 0.0))
    mean = sum(item.overlap or 0.0 for item in compared) / max(1, len(compared))
    half = sum((item.overlap or 0.0) >= 0.5 for item in compared)
    lines = [
        f"{len(items):,} items, {n}-grams of words",
        f"  share one with the training data    {len(hit):,} of {len(compared):,} ({len(hit) / max(1, len(compared)):.1%})",
        f"  share half of them or more          {half:,}",
        f"  mean fraction shared                {mean:.3f}",
        f"  shorter than {n} words, not there     {len(items) - len(compared):,}",
    ]
    lines += [""] * bool(hit)
    lines += [f"  item {i.number}: {i.overlap:.2f} shared, first {i.shared[:80]!r}" for i in hit[:num_shown]]
    return lines + ([f"  and {len(hit) - num_shown:,} more"] if len(hit) > num_shown else [])
