"""Extract the code cells of a submitted file. Standard library only, because for a class it runs in a sandbox."""

from __future__ import annotations

import ast
import codecs
import json
import re

from minirlhf.core.errors import UserError

MAX_CELLS = 5000
MAX_PARSED = 1 << 20  # a longer cell (in characters) is not parsed as Python
Cells = list[tuple[str, str]]  # (name, code); "cell 3" counts the code cells of a file from 1
BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
COOKIE = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")  # PEP 263


def text_of(raw: bytes, name: str) -> str:
    """Decode a file: UTF-8, UTF-16 with a byte order mark, or the encoding declared in a Python file's first two lines.

    Raises:
        UserError: the file has none of these encodings.
    """
    encoding = next((codec for bom, codec in BOMS if raw.startswith(bom)), "")
    cookies = [COOKIE.match(line) for line in raw[:400].split(b"\n")[:2]] if name.endswith(".py") else []
    encoding = encoding or next((cookie[1].decode("ascii") for cookie in cookies if cookie), "utf-8")
    try:
        return raw.decode(encoding)
    except (UnicodeDecodeError, LookupError) as problem:
        message = f"{name} is not UTF-8 text; save it as UTF-8 and hand in again"
        raise UserError(message, value=encoding, expected="utf-8", file=name) from problem


def code_cells(text: str, name: str) -> Cells:
    """Return the code cells of a notebook, or of a Python file with ``# %%`` lines.

    Raises:
        UserError: the file is not a notebook, or it has too many cells.
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
    """Replace notebook commands (``%…``, ``!…``) by blank lines, so that line numbers stay the same.

    A cell that is valid Python stays unchanged, because a line of an expression may begin with ``%``.
    """
    is_command = [line.lstrip()[:1] in ("%", "!") for line in code.split("\n")]
    if not any(is_command) or _is_python(code):
        return code
    lines = zip(code.split("\n"), is_command, strict=True)
    return "\n".join("" if skip else line for line, skip in lines)


def _is_python(code: str) -> bool:
    if len(code) > MAX_PARSED:
        return False
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
