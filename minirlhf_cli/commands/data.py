"""Look at data before training on it.

  minirlhf data inspect pairs.jsonl                       what it is, token counts, what would be dropped and why
  minirlhf data inspect pairs.jsonl --row 12              the row at line 12, token by token
  minirlhf data inspect pairs.jsonl --model runs/sft      with that model's tokenizer and context
  minirlhf data inspect pairs.jsonl --html pairs.html     the same as a page
  minirlhf data biases pairs.jsonl                        what the chosen replies have more of, tested: length, apologies, ...
  minirlhf data overlap test.jsonl train.jsonl            contamination: which test items share n-grams with training data
  minirlhf data formats                                   every format and what it looks like
  minirlhf data samples --out .                           small files to try the other commands on

In the token view the colour is the role; tokens on a coloured ground are learned from, the others are only read. Exit status
1 means that a training run would refuse the data.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import sys
import textwrap
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minirlhf.core.errors import UserError
from minirlhf.data import formats, loaders
from minirlhf.data.loaders import Scan

if TYPE_CHECKING:
    from minirlhf.data.inspection import Counted, Survey, Token

ANSI = {"system": 35, "user": 34, "assistant": 32}
BARS = " ▁▂▃▄▅▆▇█"


def configure(parser: argparse.ArgumentParser) -> None:
    """Five sub-commands."""
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="inspect | biases | overlap | formats | samples"
    )
    made = commands.add_parser("samples", help="write small data files to try the commands on", allow_abbrev=False)
    made.add_argument("--out", type=Path, default=Path("."), metavar="FOLDER", help="default: this folder")
    commands.add_parser("formats", help="the formats that are recognised", allow_abbrev=False)
    drawn = commands.add_parser("biases", help="test what the chosen replies have more of", allow_abbrev=False)
    both = commands.add_parser(
        "overlap", help="n-grams that an evaluation set shares with training data", allow_abbrev=False
    )
    both.add_argument("evaluation", metavar="EVAL", help="evaluation data: file, folder, or hub name")
    both.add_argument("training", metavar="TRAIN", help="training data: file, folder, or hub name")
    both.add_argument("--n", type=int, default=8, metavar="INT", help="words per n-gram (default: 8)")
    both.add_argument(
        "--text", choices=("prompt", "all"), default="prompt",
        help="text of an evaluation item to compare: its prompt, or also its completion or reference (default: prompt)",
    )  # fmt: skip
    both.add_argument("--show", type=int, default=10, metavar="INT", help="items to list (default: 10)")
    both.add_argument("--json", type=Path, metavar="FILE", help="write the overlap of every item as JSON")
    sub = commands.add_parser("inspect", help="look at a data set", allow_abbrev=False)
    for each in (drawn, sub):
        each.add_argument("source", metavar="FILE", help="file (.jsonl, .json, .csv, .parquet), folder, or hub name")
        each.add_argument("--format", help="format of the data; else detected from its fields")
        each.add_argument("--split", help="split of a folder or hub data set")
        each.add_argument("--limit", type=int, help="read this many rows at most")
    sub.add_argument("--tokenizer", metavar="NAME", help="folder or hub name; else one is trained on the data")
    sub.add_argument("--model", metavar="NAME", help="folder, zoo or hub name: its tokenizer and its context")
    sub.add_argument("--chat-template", metavar="FILE", help="file with a chat template; else the tokenizer's")
    sub.add_argument("--vocab-size", type=int, default=2048, help="of a tokenizer trained on the data (default: 2048)")
    sub.add_argument("--context", type=int, help="tokens that the model reads (default: the model's, or 512)")
    sub.add_argument("--row", type=int, metavar="N", help="show the row at this line of the file (default: the first)")
    sub.add_argument("--html", type=Path, metavar="FILE", help="also write a page, with ten rows")
    sub.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="of the token view")


def run(args: argparse.Namespace) -> int:
    """Print the report; 1 if a training run would refuse the data."""
    if args.command == "formats":
        for form in formats.FORMATS.values():
            print(f"{form.name}\n{textwrap.indent(textwrap.dedent(_doc(form)), '  ')}\n")
        return 0
    if args.command == "biases":
        return _biases(args)
    if args.command == "overlap":
        return _overlap(args)
    if args.command == "samples":
        from minirlhf.data import samples

        print("\n".join(f"wrote {path}" for path in samples.write(args.out)))
        return 0
    from minirlhf.data import inspection
    from minirlhf.models.tokenizers import find_unread_arguments, report_unread

    scan = Scan(args.source, split=args.split, format=args.format, limit=args.limit)
    found = inspection.survey(scan)
    if not found.rows and not found.dropped:
        raise UserError(found.broken or _first(found) or f"{args.source}: it holds no rows")
    print("\n".join(_summary(found)))
    if not found.rows:
        return 1
    tokenizer, context, about = _tokenizer(args, found)
    counted = inspection.count(tokenizer, found.rows, context)
    print("\n".join(_lengths(counted, about)))
    spoken = [messages for _, example in found.rows for messages, _ in inspection.sequences(example).values()]
    for line in report_unread(find_unread_arguments(tokenizer, spoken)):
        print(f"  {line}")
    where, example = _row(found, args.row)
    color = args.color == "always" or (args.color == "auto" and sys.stdout.isatty() and "NO_COLOR" not in os.environ)
    print(f"\n{where}" + (f"   {_legend()}" if color else "   (u user, a assistant, s system; + learned from)"))
    width = min(shutil.get_terminal_size((120, 24)).columns, 160)
    for name, (messages, first) in inspection.sequences(example).items():
        print(f"\n{name}")
        print("\n".join(_cells(inspection.tokens(tokenizer, messages, first), width, color)))
    if args.html is not None:
        from minirlhf_cli.reports.survey import write

        write(args.html, found, counted, tokenizer, about)
        print(f"\nwritten: {args.html}")
    return 0 if found.sound else 1


def _overlap(args: argparse.Namespace) -> int:
    """Print which items of an evaluation set share n-grams with training data."""
    import dataclasses
    import json

    from minirlhf.core.folders import require_writable, write_text_atomic
    from minirlhf_cli.files import overlap

    if args.json is not None:
        require_writable(args.json)
    evaluation, training = loaders.load(args.evaluation), loaders.load(args.training)
    items = overlap.overlap_with_training(evaluation, training, n=args.n, whole=args.text == "all")
    print(f"{evaluation}\n{training}\n")
    print("\n".join(overlap.report(items, args.n, args.show)))
    if args.json is not None:
        data = {"n": args.n, "text": args.text, "items": [dataclasses.asdict(item) for item in items]}
        write_text_atomic(args.json, json.dumps(data, indent=2, ensure_ascii=False) + "\n")
        print(f"saved to {args.json}")
    return 0


def _biases(args: argparse.Namespace) -> int:
    """Print the battery's table."""
    from minirlhf.feedback import biases

    records = loaders.load(args.source, split=args.split, format=args.format, limit=args.limit)
    pairs = records.comparisons()
    try:
        found = biases.run_bias_tests(biases.differences(pairs), list(biases.TRAITS))
    except ValueError as problem:
        message = f"{args.source}: the traits of its {len(pairs):,} pairs cannot be told apart ({problem})"
        raise UserError.about(message, problem, file=args.source) from None
    print(f"{records}\n{len(pairs):,} pairs, chosen against rejected\n")
    rows = [["trait", "differ", "chosen has more", "p", "odds beside the others", "p", "would be seen from"]]
    for one in found:
        low, high = (math.exp(one.weight + side * 1.96 * one.error) for side in (-1, 1))
        beside = (
            f"× {math.exp(one.weight):.2f} [{low:.2f}, {high:.2f}]" if math.isfinite(one.weight) else "too few differ"
        )
        rows.append(
            [
                one.attribute,
                f"{one.differ:,}",
                f"{one.fraction:.0%}" if one.differ else "",
                f"{one.p_value:.2g}",
                beside,
                f"{one.joint_p_value:.2g}" if math.isfinite(one.joint_p_value) else "",
                f"× {math.exp(one.smallest):.2f}" if math.isfinite(one.smallest) else "",
            ]
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print(
            "  ".join(
                [row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]
            ).rstrip()
        )
    print(
        "\nlength and markup: odds per doubling; the others: if the trait is there. p: Holm's correction over the traits; the last column: found "
        "in four of five such files after that correction.\nNone of this says that a trait is a bias: better replies may have more of it. "
        "Which reply was shown first is not in such a file, so a liking for a place cannot be seen."
    )
    if len(pairs) > len(records):
        print(
            "Several pairs come from one ranking and are not independent: intervals are too narrow, and p-values too small."
        )
    return 0


def _doc(form: formats.Format) -> str:
    first, _, rest = form.example.partition("\n")
    return f"{first}\n{textwrap.dedent(rest)}".strip().replace("``", "")


def _first(found: Survey) -> str | None:
    return next((f"{wheres[0]}: {reason}" for reason, wheres in found.refused.items()), None)


def _row(found: Survey, number: int | None) -> tuple[str, Any]:
    if number is None:
        return found.rows[0]
    for where, example in found.rows:
        if where.endswith(f" {number}"):
            return where, example
    for reason, wheres in {**found.refused, **found.dropped}.items():
        if any(where.endswith(f" {number}") for where in wheres):
            problem = "dropped" if reason in found.dropped else "refused"
            message = f"{found.source}, row {number}: cannot be shown: {reason}"
            raise UserError(message, argument="--row", value=number, file=found.source, problem=problem)
    message = f"{found.source}: there is no row {number}; the last is {found.rows[-1][0].rpartition(' ')[2]}"
    raise UserError(message, argument="--row", value=number, file=found.source, problem="missing")


def _tokenizer(args: argparse.Namespace, found: Survey) -> tuple[Any, int, str]:
    """A tokenizer, the context, and a word on where they come from."""
    from minirlhf.data import inspection
    from minirlhf.models.tokenizers import describe_template, load_tokenizer, train_tokenizer, write_beginning

    context = None
    if args.model is not None and args.tokenizer is not None:
        message = "--model and --tokenizer do not go together; a model brings its own tokenizer"
        raise UserError(message, argument="--tokenizer", expected="--model", problem="exclusive")
    if args.model is not None:
        from minirlhf.core.calling import context_length
        from minirlhf.stages import named

        model, tokenizer = named.model_by_name(args.model)
        context, about = context_length(model), f"tokenizer of {args.model}"
    elif args.tokenizer is not None:
        tokenizer, about = load_tokenizer(args.tokenizer, complete=True), f"tokenizer {args.tokenizer}"
    else:
        tokenizer = train_tokenizer(inspection.texts(found.rows), args.vocab_size)
        about = f"tokenizer trained on this data, {len(tokenizer)} tokens, as for a preset"
    if args.chat_template is not None:
        from minirlhf_cli.files.prepared import read_template

        tokenizer.chat_template = read_template(args.chat_template)
        write_beginning(tokenizer)
    described = describe_template(tokenizer)
    return tokenizer, args.context or context or 512, f"{about}, {described}" if described else about


def _summary(found: Survey) -> list[str]:
    from minirlhf.data import inspection

    dropped, refused = (sum(map(len, reasons.values())) for reasons in (found.dropped, found.refused))
    record = type(found.rows[0][1]).__name__ if found.rows else "nothing"
    lines = [f"{found.source}", f"  format    {found.format}, read as {record}"]
    lines.append(f"  rows      {len(found.rows):,} used, {dropped:,} dropped, {refused:,} refused")
    for title, reasons in (("dropped", found.dropped), ("refused", found.refused)):
        for reason, wheres in sorted(reasons.items(), key=lambda item: -len(item[1])):
            lines.append(f"  {title}   {len(wheres):,} × {reason} ({inspection.places(wheres)})")
    if found.broken:
        lines.append(f"  broken    {found.broken}; nothing after it was read")
    if found.ignored:
        lines.append(f"  not used  {', '.join(found.ignored)}")
    return lines


def _lengths(counted: Counted, about: str) -> list[str]:
    from minirlhf.data import inspection

    head = ["", "sequences", "min", "5 %", "median", "mean", "95 %", "max", "tokens", "learned"]
    rows = [head, *([part.name, *part.row()] for part in counted.lengths)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = [f"\ntokens ({about})"]
    lines += [
        "  "
        + "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
    counts, edges = counted.histogram()
    bars = "".join(BARS[-(-8 * int(c) // max(1, int(counts.max())))] for c in counts)
    lines.append(f"  {edges[0]:.0f} {bars} {edges[-1]:.0f} tokens; the highest bar is {counts.max():,} sequences")
    if counted.unknown:
        share = counted.unknown / sum(int(part.counts.sum()) for part in counted.lengths)
        lines.append(f"  {counted.unknown:,} tokens ({share:.1%}) are words that this tokenizer does not know")
    if counted.too_long:
        where = inspection.places([where for where, _ in counted.too_long])
        lines.append(
            f"  {len(counted.too_long):,} rows are longer than the context of {counted.context} tokens ({where}): an error in "
            "training, or left out and counted with --drop-long true; nothing is ever cut off"
        )
    else:
        lines.append(f"  all fit into the context of {counted.context} tokens")
    return lines


def _legend() -> str:
    words = [f"\033[{code}m{role}\033[0m" for role, code in ANSI.items()]
    return ", ".join(words) + f"; \033[30;{ANSI['assistant'] + 10}m learned from \033[0m"


def visible(text: str) -> str:
    """White space and control characters as something that can be seen."""
    shown = text.replace("\n", "⏎").replace("\t", "⇥").replace(" ", "·")
    return "".join(c if c.isprintable() else "�" for c in shown)


def columns(text: str) -> int:
    """Columns of a terminal that a text takes: Chinese characters take two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _cells(tokens: list[Token], width: int, color: bool) -> list[str]:
    """Tokens with their ids below; without colour a third line says role and mask."""
    lines: list[str] = []
    row: list[tuple[str, str, str, Token]] = []

    def flush() -> None:
        if color:
            lines.append("".join(_paint(text, token) + " " for text, _, _, token in row))
            lines.append("".join(f"\033[2m{number}\033[0m " for _, number, _, _ in row))
        else:
            lines.extend("".join(f"{cell} " for cell in line).rstrip() for line in list(zip(*row, strict=True))[:3])
        row.clear()

    used = 0
    for token in tokens:
        text, number, mark = visible(token.text), str(token.id), token.role[0] + ("+" if token.trained else "")
        size = max(columns(text), len(number), 2)
        if row and used + size + 1 > width:
            flush()
            used = 0
        row.append((text + " " * (size - columns(text)), number.ljust(size), mark.ljust(size), token))
        used += size + 1
    flush()
    return lines


def _paint(text: str, token: Token) -> str:
    code = ANSI.get(token.role, 37)
    return f"\033[30;{code + 10}m{text}\033[0m" if token.trained else f"\033[{code}m{text}\033[0m"
