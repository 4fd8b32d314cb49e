"""Readers of rows from a file, a folder, a table that ``datasets`` saved, or the hub.

Every reader yields ``(where, row)``: the location that an error names, and the row as it was read.
"""

from __future__ import annotations

import codecs
import csv
import difflib
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO, TypeAlias

from minirlhf.core.errors import UserError
from minirlhf.core.hub import offline_if_unreachable


class RowLocation(str):
    """The location of a row, as errors write it: ``line`` (or row) of ``file``, counted from 1."""

    file: str
    line: int
    unit: str

    def __new__(cls, file: object, line: int, unit: str = "line") -> RowLocation:
        location = super().__new__(cls, f"{file}, {unit} {line}")
        location.file, location.line, location.unit = str(file), line, unit
        return location

    def __reduce__(self) -> tuple[Any, ...]:  # for copies
        return RowLocation, (self.file, self.line, self.unit)


Rows: TypeAlias = Iterator[tuple[RowLocation, Any]]

#: Maximum number of characters of a JSON line. The longest conversations have a thousandth of that.
LONGEST_LINE = 2**26


def read_rows(source: str, split: str | None = None) -> Rows:
    """Return the rows of a source: a path that exists, or else a name on the hub. See
    :func:`minirlhf.data.loaders.load`.

    Raises:
        UserError: there is no source of that name, it is not readable, or not in the format of the file's suffix.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        return _folder_rows(path, split)
    if path.exists() and split is not None:
        raise UserError(
            f"{source}: split = {split!r} of a single file; expected a folder or a name on the hub",
            argument="split",
            value=split,
            file=source,
        )
    if path.exists():
        return _file_rows(path)
    if source.startswith((".", "/", "~")) or _suffix(path) in READERS:
        nearest = _nearest(path)
        hint = f"; did you mean {nearest!r}?" if nearest else ""
        raise UserError(
            f"{source}: there is no such file or folder{hint}", file=source, expected=nearest, problem="missing"
        )
    if re.fullmatch(r"[\w.-]+(/[\w.-]+)?(:[\w.-]+)?", source):
        return _hub_rows(source, split)
    raise UserError(
        f"{source!r} is neither a file or folder that exists nor a name on the hub", file=source, problem="missing"
    )


def one_line(problem: Exception) -> str:
    """Return the message of an exception without line breaks."""
    return " ".join(str(problem).split())


def _nearest(path: Path) -> str | None:
    folder = path.parent
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    close = difflib.get_close_matches(path.name, names, n=1)
    return str(folder / close[0]) if close else None


def _suffix(path: Path) -> str:
    return path.with_suffix("").suffix.lower() if path.suffix.lower() == ".gz" else path.suffix.lower()


def _file_rows(path: Path) -> Rows:
    read = READERS.get(_suffix(path))
    if read is None:
        raise UserError(
            f"{path}: cannot read {path.suffix or 'a file without an ending'}; supported are {', '.join(READERS)}",
            value=path.suffix,
            expected=list(READERS),
            file=path,
            problem="ending",
        )
    try:
        yield from read(path)
    except UnicodeDecodeError as problem:
        raise _not_utf8(path) from problem
    except (OSError, EOFError, zlib.error) as problem:
        raise UserError(f"{path}: cannot be read: {one_line(problem)}", file=path, problem="unreadable") from problem


def _not_utf8(path: Path) -> UserError:
    """Return the error for a file that is not UTF-8, with the first line that is not."""
    opened: Any = gzip.open if path.suffix.lower() == ".gz" else open
    # Damage to a compressed file can appear here first, because the text was read in larger pieces.
    with suppress(OSError, EOFError, zlib.error), opened(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError as problem:
                utf16 = number == 1 and line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
                hint = "; it looks like UTF-16; save it as UTF-8" if utf16 else ""
                return UserError(
                    f"{path}, line {number}: not UTF-8 text ({problem.reason}){hint}",
                    value="UTF-16" if utf16 else None,
                    expected="UTF-8",
                    file=path,
                    line=number,
                )
    return UserError(f"{path}: not UTF-8 text", expected="UTF-8", file=path)


def _folder_rows(folder: Path, split: str | None) -> Rows:
    if (folder / "state.json").exists() or (folder / "dataset_dict.json").exists():
        yield from _saved_rows(folder, split)
        return
    files = [
        p for p in sorted(folder.rglob("*")) if p.is_file() and _suffix(p) in READERS and not p.name.startswith(".")
    ]
    if not files:
        raise UserError(
            f"{folder}: no file in it ends in {', '.join(READERS)}",
            expected=list(READERS),
            file=folder,
            problem="empty",
        )
    selected = [p for p in files if (split or "train") in _name_parts(p.relative_to(folder))]
    if split and not selected:
        raise UserError(
            f"{folder}: no file for the split {split!r}; found {', '.join(p.name for p in files[:8])}",
            argument="split",
            value=split,
            expected=[p.name for p in files],
            file=folder,
        )
    for path in selected or files:
        yield from _file_rows(path)


def _name_parts(path: Path) -> list[str]:
    return re.split(r"[^a-z0-9]+", str(path).lower())


def _open(path: Path) -> TextIO:
    """Open a file as text; a byte order mark is skipped."""
    opened: Any = gzip.open if path.suffix.lower() == ".gz" else open
    return opened(path, "rt", encoding="utf-8-sig", newline="")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; of a name that is there twice, Python's reader would keep the last value."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(
            f"the name {next(name for name in names if names.count(name) > 1)!r} is there twice in an object"
        )
    return found


def _parse_json(text: str, path: Path, line: int | None = None) -> Any:
    """Return the JSON value of a text, which is one line of a file or the whole file."""
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as problem:
        where = RowLocation(path, line or problem.lineno)
        message = f"{where}: not valid JSON: {problem.msg} at column {problem.colno}"
        raise UserError(message, value=problem.colno, file=path, line=where.line, problem="json") from problem
    except (ValueError, RecursionError) as problem:  # e.g. a number with thousands of digits, or thousands of brackets
        message = f"{RowLocation(path, line) if line else path}: not usable JSON: {problem}"
        raise UserError(message, file=path, line=line, problem="json") from problem


def _read_jsonl(path: Path) -> Rows:
    with _open(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), ""), 1):
            if len(line) > LONGEST_LINE:
                raise UserError(
                    f"{path}, line {number}: longer than {LONGEST_LINE:,} characters; expected one row on each line",
                    expected=LONGEST_LINE,
                    file=path,
                    line=number,
                    problem="length",
                )
            if line.strip():
                where = RowLocation(path, number)
                try:
                    row = _parse_json(line, path, number)
                except UserError as problem:
                    spans_lines = number == 1 and line.strip() in ("{", "[")
                    hint = (
                        "; rows that go over several lines are read from a file whose name ends in .json"
                        if spans_lines
                        else ""
                    )
                    expected = {"expected": ".json"} if spans_lines else {}
                    raise UserError.about(f"{problem}{hint}", problem, **expected) from problem
                if number == 1 and isinstance(row, list):
                    raise UserError(
                        f"{where}: a list; expected one row on each line (a list of rows is read from a .json file)",
                        expected=".json",
                        file=path,
                        line=number,
                        problem="list",
                    )
                yield where, row


def _read_json(path: Path) -> Rows:
    """Read a list of rows or, as in many files with this suffix, one row on each line."""
    with _open(path) as file:
        text = file.read()
    if text.lstrip().startswith("{"):
        objects = _objects(text, path)
        first = next(objects)
        yield from _listed(first[1], path) or [first]
        yield from objects
        return
    rows = _parse_json(text, path) if text.strip() else []
    if not isinstance(rows, list):
        raise UserError(
            f"{path}: expected a list of rows or one row on each line", value=rows, expected="list", file=path
        )
    for number, row in enumerate(rows, 1):
        yield RowLocation(path, number, "row"), row


#: Fields that hold one text in every format.
_SINGLE = ("prompt", "question", "instruction", "problem", "query", "text")


def _listed(row: Any, path: Path) -> list[tuple[RowLocation, Any]]:
    """Return the rows of an object whose only value is a list of rows: ``{"data": [...]}``; empty for any other.

    Raises:
        UserError: the object has columns, not rows.
    """
    if not isinstance(row, dict) or not row:
        return []
    values = list(row.values())
    numbers = [[*value.keys()] if isinstance(value, dict) else None for value in values]
    numbered = numbers[0] and numbers[0][0] == "0" and all(found == numbers[0] for found in numbers)
    texts = [name for name in _SINGLE if isinstance(row.get(name), list) and all(isinstance(x, str) for x in row[name])]
    if numbered or (texts and all(isinstance(value, list) for value in values)):
        raise UserError(
            f"{path}: an object of columns; expected a list of rows (in pandas: to_json(..., orient='records'))",
            value=list(row),
            expected="list",
            file=path,
            problem="columns",
        )
    name, rows = next(iter(row.items()))
    if len(row) > 1 or name not in ("data", "rows", "train", "examples", "instances") or not isinstance(rows, list):
        return []
    return [(RowLocation(path, number, "row"), item) for number, item in enumerate(rows, 1)]


def _objects(text: str, path: Path) -> Rows:
    """Yield consecutive JSON objects, each on one line or over several lines."""
    blank, read = re.compile(r"\s*"), json.JSONDecoder(object_pairs_hook=_unique).raw_decode
    position, line, counted = 0, 1, 0
    while (position := blank.match(text, position).end()) < len(text):  # type: ignore[union-attr]
        line, counted = line + text.count("\n", counted, position), position
        where = RowLocation(path, line)
        try:
            row, position = read(text, position)
        except json.JSONDecodeError as problem:
            message = f"{path}, line {problem.lineno}: not valid JSON: {problem.msg} at column {problem.colno}"
            raise UserError(message, value=problem.colno, file=path, line=problem.lineno, problem="json") from problem
        except (ValueError, RecursionError) as problem:
            raise UserError(f"{where}: not usable JSON: {problem}", file=path, line=line, problem="json") from problem
        yield where, row


def _read_csv(path: Path) -> Rows:
    csv.field_size_limit(LONGEST_LINE)  # Python's default is 131,072 characters
    with _open(path) as file:
        reader = csv.DictReader(file, strict=True)
        try:
            columns = list(reader.fieldnames or ())
            duplicates = [name for name in columns if columns.count(name) > 1]
            if duplicates:
                message = f"{path}, line 1: the column {duplicates[0]!r} is there twice"
                raise UserError(message, argument=duplicates[0], file=path, line=1, problem="duplicate")
            for row in reader:
                where = RowLocation(path, reader.line_num)
                if None in row or None in row.values():
                    message = f"{where}: expected {len(columns)} columns, as in the first line"
                    raise UserError(message, argument="columns", expected=len(columns), file=path, line=where.line)
                yield where, row
        except csv.Error as problem:
            message = f"{path}, line {reader.line_num}: not valid CSV: {problem}"
            raise UserError(message, file=path, line=reader.line_num, problem="csv") from problem


def _read_parquet(path: Path) -> Rows:
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches():
                for row in batch.to_pylist():
                    number += 1
                    yield RowLocation(path, number, "row"), _without_nulls(row)
    except pyarrow.ArrowException as problem:
        message = f"{path}: not a readable Parquet file: {one_line(problem)}"
        raise UserError(message, file=path, problem="parquet") from problem


READERS: dict[str, Callable[[Path], Rows]] = {
    ".jsonl": _read_jsonl,
    ".json": _read_json,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}


def _saved_rows(folder: Path, split: str | None) -> Rows:
    """Yield the rows that ``save_to_disk`` of the ``datasets`` library wrote."""
    import datasets

    try:
        saved = datasets.load_from_disk(str(folder))
    except Exception as problem:  # the library raises whatever its file readers raise
        raise UserError(
            f"{folder}: cannot be read: {one_line(problem)}", file=folder, problem="unreadable"
        ) from problem
    return _table_rows(str(folder), saved, split)


def _hub_rows(source: str, split: str | None) -> Rows:
    """Yield the rows of a dataset on the hub, or in its local cache if there is no network."""
    import datasets

    name, _, config = source.partition(":")
    try:
        with offline_if_unreachable():
            dataset = datasets.load_dataset(name, config or None)
    except Exception as problem:  # network, name, configuration, file formats: any of a dozen types
        raise UserError(
            f"{source}: there is no such file or folder, and loading it from the hub failed: {one_line(problem)}",
            file=source,
            problem="missing",
        ) from problem
    return _table_rows(source, dataset, split)


def _table_rows(source: str, table: Any, split: str | None) -> Rows:
    """Yield the rows of a ``datasets`` table or dictionary of splits."""
    if not isinstance(table, dict):
        table = {split or "train": table}
    name = split or ("train" if "train" in table else next(iter(table)))
    if name not in table:
        message = f"{source}: no split {name!r}; it has {', '.join(table)}"
        raise UserError(message, argument="split", value=name, expected=list(table), file=source)
    for number, row in enumerate(table[name], 1):
        yield RowLocation(f"{source} ({name})", number, "row"), _without_nulls(row)


def _without_nulls(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row without the nulls in its lists of objects.

    In a table all objects of a list have the same fields. What one tool call or message lacks is null there, and a chat
    template would write it.
    """

    def bare(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: bare(item) for key, item in value.items() if item is not None}
        return [bare(item) for item in value] if isinstance(value, list) else value

    return {key: bare(value) if isinstance(value, list) else value for key, value in row.items()}
