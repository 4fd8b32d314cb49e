"""The library in other words: with this folder on PYTHONPATH every sentence that it says is spelled backwards.

A test that fails then holds prose: it asks for the words of an error, a help text or a message, where it should ask for facts. What is
respelled: the words of raised errors, of what is printed, logged or warned, of help texts, and of any other string of four words. Names,
flags, numbers, paths and docstrings stay. Worlds and prompts (``data``, ``chapters``, ``exercises``) stay too: their words are their data.
"""

import ast
import re
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SPEAKING = [*ROOT.glob("minirlhf*/"), ROOT / "tools", ROOT / "book" / "_ext"]
DATA = [
    ROOT / folder
    for folder in (
        "minirlhf/data",
        "minirlhf/models",
        "minirlhf/sandbox",
        "minirlhf_course/chapters",
        "minirlhf_course/tour",
        "minirlhf_course/gallery",
        "minirlhf_course/classroom/skeleton.py",
        "minirlhf_course/classroom/rehearsal.py",
    )
]
DATA += [ROOT / "tools" / "chapter.py", ROOT / "book" / "_ext" / "labelling.py"]  # write files and a page
DATA += [ROOT / "minirlhf_cli" / "export" / name for name in ("scripts.py", "grader.py", "hooks.py")]  # write programs
DATA.append(ROOT / "book" / "_ext" / "plain_formulas.py")  # lists of commands, which are split
WORD = re.compile(r"(?<![\w/.$@%{\-=\\])[A-Za-z][a-z]{2,}(?![\w/\-=(\\]|\.\w)")
CODE = re.compile(r"(?m)^ *(?:import|from|def) \w+[^\n]*\n")
SAYING = re.compile(r"(?:.*Error|Facts|about|refuse\w*|print|warn|warning|info|fail|exit|UserError|Failure|Unusable)$")

PATTERNS = {"compile", "_present", "findall"}  # take regular expressions, which are no prose


def respelled(text: str) -> str:
    """The same text with each plain word backwards."""
    return WORD.sub(lambda word: word[0][::-1], text)


class Respell(ast.NodeTransformer):
    """Respells what is said; ``everything`` also other strings of at least four words."""

    def __init__(self, everything: bool) -> None:
        self.everything, self.saying = everything, 0

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, str) and (" " not in node.value or CODE.search(node.value)):
            return node  # a name, or a program
        if isinstance(node.value, str) and (
            self.saying
            or (self.everything and " " in node.value and "(?" not in node.value and len(WORD.findall(node.value)) >= 4)
        ):
            return ast.copy_location(ast.Constant(respelled(node.value)), node)
        return node

    def _said(self, node: ast.AST) -> ast.AST:
        self.saying += 1
        node = self.generic_visit(node)
        self.saying -= 1
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return self._said(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in PATTERNS:
            return node
        if name in {"unknown", "get"}:  # arguments are facts, a kind and names; or a key
            return node
        return self._said(node) if SAYING.match(name) else self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        if node.arg in {"argument", "value", "expected", "problem", "file", "line", "end", "sep", "encoding"}:
            return node  # facts
        return self._said(node) if node.arg in {"help", "description", "epilog"} else self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        return node  # keys

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return node if isinstance(node.value, ast.Constant) else self.generic_visit(node)  # a docstring


def _get_code(self: Any, fullname: str) -> Any:
    path = Path(self.get_filename(fullname)).resolve()
    if not any(path.is_relative_to(folder) for folder in SPEAKING):
        return _plain(self, fullname)
    everything = not any(path.is_relative_to(folder) for folder in DATA)
    tree = Respell(everything).visit(ast.parse(self.get_data(str(path))))
    return compile(ast.fix_missing_locations(tree), str(path), "exec")


_plain, SourceFileLoader.get_code = SourceFileLoader.get_code, _get_code  # type: ignore[method-assign]
