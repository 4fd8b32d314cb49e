"""The command line: ``minirlhf COMMAND``. Each command is one module, imported only when it is called.

A command module has two functions: ``configure(parser)`` adds its arguments, ``run(args)`` does the work and returns the
exit status (None is 0). Exit status 1 means that something was checked and found wrong, 2 that the input was bad.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import NoReturn

from minirlhf import __version__
from minirlhf.core.errors import UserError, unknown

# name -> (module, one line of help). A new command is one line here and one module.
COMMANDS: dict[str, tuple[str, str]] = {
    "verify": ("minirlhf.cli.verify", "check the book's equations against exact oracles"),
}


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are :class:`UserError`, so that all bad input ends the same way."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see '{self.prog} --help')")


def _usage() -> str:
    rows = "\n".join(f"  {name:<10} {text}" for name, (_, text) in COMMANDS.items())
    return f"usage: minirlhf COMMAND [...]\n\n{rows}\n\n'minirlhf COMMAND --help' tells more. This is minirlhf {__version__}."


def dispatch(argv: Sequence[str]) -> int:
    """Run one command and return its exit status; errors propagate."""
    if not argv or argv[0] in ("-h", "--help"):
        print(_usage())
        return 0
    if argv[0] == "--version":
        print(__version__)
        return 0
    if argv[0] not in COMMANDS:
        raise unknown("command", argv[0], COMMANDS)
    module_name, text = COMMANDS[argv[0]]
    module = importlib.import_module(module_name)
    parser = Parser(
        prog=f"minirlhf {argv[0]}",
        description=module.__doc__ or text,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.configure(parser)
    return int(module.run(parser.parse_args(argv[1:])) or 0)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point: bad input is one line on standard error and exit status 2; Ctrl-C is 130."""
    try:
        return dispatch(sys.argv[1:] if argv is None else argv)
    except UserError as problem:
        print(f"minirlhf: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("minirlhf: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
