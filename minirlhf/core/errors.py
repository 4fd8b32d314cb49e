"""The one error that a user may see, and the nearest-name hint that goes into it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Bad input from outside: a file, a flag, a name. The command line prints it as one line and exits with 2.

    The message names what is wrong and what would be right. Programming errors are ``ValueError`` or ``TypeError``.
    """


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """A :class:`UserError` for a name that does not exist, with the nearest one that does; a short list of names is given whole."""
    options = sorted(known)
    close = difflib.get_close_matches(name, options, n=1, cutoff=0.4)
    hint = f"did you mean {close[0]!r}?" if close else ""
    listed = f"known: {', '.join(options)}" if len(options) <= 20 or not hint else ""
    said = name if len(name) <= 80 else f"{name[:80]}…"
    return UserError(f"unknown {kind} {said!r}: {' '.join(filter(None, (hint, listed)))}")
