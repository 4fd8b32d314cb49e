"""The code cells of what somebody handed in. Standard library only: for a class it runs in a box, like what it reads."""

from __future__ import annotations

import ast
import codecs
import json
import re

from minirlhf.core.errors import UserError

MAX_CELLS = 5000
MAX_PARSED = 1 << 20  # characters of a cell that are looked at for notebook commands
Cells = list[tuple[str, str]]  # (name, code); "cell 3" counts the code cells of a file from 1
BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
COOKIE = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")  # PEP 263


def text_of(raw: bytes, name: str) -> str:
    """The text of a file: UTF-8, UTF-16 with its mark, or what a Python file's first two lines declare.

    Raises:
        UserError: it is none of these.
    """
    encoding = next((e for mark, e in BOMS if raw.startswith(mark)), "")
    declared = [COOKIE.match(line) for line in raw[:400].split(b"\n")[:2]] if name.endswith(".py") else []
    encoding = encoding or next((m[1].decode("ascii") for m in declared if m), "utf-8")
    try:
        return raw.decode(encoding)
    except (UnicodeDecodeError, LookupError) as problem:
        message = f"{name} is not UTF-8 text; save it as UTF-8 and hand in again"
        raise UserError(message, value=encoding, expected="utf-8", file=name) from problem


def code_cells(text: str, name: str) -> Cells:
    """The code cells of a notebook, or of a Python file with ``# %%`` lines.

    Raises:
        UserError: the notebook is not one, or there are too many cells.
    """
    if name.endswith(".ipynb"):
        try:
            sources = [cell["source"] for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
            codes = [source if isinstance(source, str) else "".join(source) for source in sources]
        except (ValueError, KeyError, TypeError, RecursionError) as problem:
            raise UserError(f"{name} is not a notebook (nbformat 4)", file=name, problem="notebook") from problem
    else:
        parts = re.split(r"(?m)^(?=# %%)", text)
        codes = [part for part in parts if part.strip() and not part.startswith("# %% [markdown]")]
    if len(codes) > MAX_CELLS:
        message = f"{name} has {len(codes)} cells; at most {MAX_CELLS} are read"
        raise UserError(message, argument="cells", value=len(codes), expected=MAX_CELLS, file=name)
    return [(f"cell {i}", without_magics(code)) for i, code in enumerate(codes, 1)]


def without_magics(code: str) -> str:
    """Notebook commands (``%…``, ``!…``) are no Python; they become blank lines, so that line numbers stay.

    Only where the cell is no Python as it stands: a line of an expression may begin with ``%``.
    """
    commands = [line.lstrip()[:1] in ("%", "!") for line in code.split("\n")]
    if not any(commands) or _is_python(code):
        return code
    lines = zip(code.split("\n"), commands, strict=True)
    return "\n".join("" if command else line for line, command in lines)


def _is_python(code: str) -> bool:
    if len(code) > MAX_PARSED:
        return False
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
