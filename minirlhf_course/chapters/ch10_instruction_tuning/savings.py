"""What packing saves on conversations with another distribution of lengths: a lab of chapter 10."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from minirlhf.core.errors import UserError
from minirlhf.data.chat import conversation, encode
from minirlhf.data.packing import Packing
from minirlhf.models.tokenizers import train_tokenizer

WIDTHS, BATCH, VOCABULARY = (1024, 2048), 32, 2048


def questions(file: Path) -> list[tuple[str, str]]:
    """Read questions and worked answers from a JSONL file with ``question`` and ``answer``.

    Raises:
        UserError: there is no such file, or a row lacks ``question`` or ``answer``.
    """
    if not file.is_file():
        raise UserError(f"{file}: no such file; expected JSONL with question and answer")
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    if incomplete := [line for line, row in enumerate(rows, 1) if not {"question", "answer"} <= row.keys()]:
        raise UserError(f"{file}, line {incomplete[0]}: expected question and answer")
    return [(row["question"], row["answer"]) for row in rows]


def lengths(pairs: Sequence[tuple[str, str]], vocabulary: int = VOCABULARY) -> list[int]:
    """Return the number of tokens of each conversation, with a tokenizer trained on these texts."""
    tokenizer = train_tokenizer([text for pair in pairs for text in pair], vocabulary)
    return [len(encode(tokenizer, conversation(*pair))) for pair in pairs]


def savings(lengths: Sequence[int], widths: Sequence[int], batch: int, seed: int) -> dict[str, float]:
    """Measure packing into rows of each width.

    Returns:
        The ``longest`` and the ``mean`` length. For each width: the number of ``rows``, the fraction of their tokens
        that is ``filled``, and the fraction of tokens ``saved`` compared with padded batches in the order of a seed.
    """
    statistics = {"longest": float(max(lengths)), "mean": sum(lengths) / len(lengths)}
    for width in widths:
        packing = Packing.of(lengths, width)
        statistics |= {f"rows_{width}": float(len(packing.rows)), f"filled_{width}": packing.filled}
        statistics[f"saved_{width}"] = packing.saved(batch, seed)
    return statistics
