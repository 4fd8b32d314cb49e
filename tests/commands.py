"""The commands that texts print: found, and asked whether they would begin to run as they stand."""

import importlib
import re
import shlex
from collections.abc import Iterator

from minirlhf.core.errors import UserError
from minirlhf_cli import COMMANDS, Parser, find_command
from minirlhf_cli.commands.train import TRAINERS, parse_settings

INLINE = re.compile(r"(?<!`)`(minirlhf\s[^`]+)`(?!`)")
BLOCK = re.compile(r"(?ms)^\s*```(?:shell|bash|sh|console|\{code-block\} shell)?\n(.*?)^\s*```$")


def printed(text: str) -> Iterator[str]:
    """Every command of a Markdown text, in a line or in a block, on one line."""
    for found in INLINE.finditer(BLOCK.sub("", text)):
        yield " ".join(found[1].split())
    for block in BLOCK.finditer(text):
        for line in block[1].replace("\\\n", " ").splitlines():
            for part in re.split(r"&&|\|\||;|\s#\s", line):
                if part.strip().startswith("minirlhf "):
                    yield " ".join(part.split())


def complaint(command: str) -> str | None:
    """Why a command would not begin as it stands: an unknown or missing argument. One that only names a command needs none."""
    words = shlex.split(command)[1:]
    try:
        name, given = find_command(words)
    except UserError as problem:
        return str(problem)
    module = importlib.import_module(f"minirlhf_cli.commands.{COMMANDS[name][0]}")
    parser = Parser(prog=f"minirlhf {name}", allow_abbrev=False)
    module.configure(parser)
    named = not any(word.startswith("-") for word in given)
    try:
        args, extra = parser.parse_known_args(given)
        if extra:
            return f"unknown argument {extra[0]}"
        if name == "train" and not named:
            values = {k: v for k, v in vars(args).items() if k not in ("trainer", "config", "resume")}
            source, _, _ = parse_settings(TRAINERS[args.trainer], values, "the flags")
            if source.data is None and getattr(source, "task", None) is None:
                return "neither --data nor --task"
    except SystemExit:
        return None if "--help" in given else "ends"
    except UserError as problem:
        only = named and len(given) <= 1 and "required" in str(problem)
        return None if only else str(problem)
    return None
