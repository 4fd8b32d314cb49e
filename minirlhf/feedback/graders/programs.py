"""Programs: the reference is tests, and the completion is run in the sandbox."""

from __future__ import annotations

import ast
import json
import math
import re
from dataclasses import dataclass

from minirlhf.sandbox import programs

_FENCE = re.compile(r"^([ \t]*)(?:```|~~~)[^\n`]*\n(.*?)(?:^[ \t]*(?:```|~~~)|\Z)", re.DOTALL | re.MULTILINE)
LONGEST = 100_000  # characters of a program


@dataclass(frozen=True)
class ProgramTests:
    """What a program is asked: HumanEval's ``prompt``, ``entry_point`` and ``test``, as the JSON object of a reference."""

    prompt: str
    entry_point: str
    test: str

    @classmethod
    def read(cls, reference: str) -> ProgramTests | None:
        """From a reference; None if it is none."""
        try:
            asked = json.loads(reference)
            found = cls(*(asked[name] for name in ("prompt", "entry_point", "test")))
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        texts = all(isinstance(text, str) for text in (found.prompt, found.entry_point, found.test))
        return found if texts and found.entry_point.isidentifier() else None

    def program(self, completion: str) -> str:
        """The program that a completion makes: it goes on from the prompt, or defines the function anew after it.

        What stands in its last ``<answer>…</answer>`` is the completion, if it has one; there, or else in the whole, what stands in a fence (three
        backquotes or tildes, whatever language they name); of several fences the last one that defines the function.
        """
        completion = "\n".join(completion.splitlines()) + "\n"
        if "<answer>" in completion:
            completion = completion.rpartition("<answer>")[2].partition("</answer>")[0]
        fenced = [re.sub(rf"(?m)^{found[1]}", "", found[2]) for found in _FENCE.finditer(completion)]
        defines = re.compile(rf"(?m)^(?:async\s+)?def\s+{self.entry_point}\b|^{self.entry_point}\s*=")
        code = next((code for code in reversed(fenced) if defines.search(code)), fenced[-1] if fenced else completion)
        return f"{self.setup}\n\n{code}" if defines.search(code) else self.prompt + code

    @property
    def setup(self) -> str:
        """The prompt as a program of its own; a head of a function without a body gets one."""
        try:
            ast.parse(self.prompt)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return f"{self.prompt}\n    pass\n"
        return self.prompt


def tests(completion: str, reference: str) -> float:
    """1 if the program passes all tests of the reference, else 0; see :class:`ProgramTests` and :func:`minirlhf.sandbox.programs.examine`."""
    share = tests_share(completion, reference)
    return share if math.isnan(share) else float(share == 1.0)


def tests_share(completion: str, reference: str) -> float:
    """The share of the tests' assertions that hold: partial credit. 0 for a program that ends, hangs, or breaks the tests off."""
    exam = ProgramTests.read(reference)
    if exam is None:
        return math.nan
    program = exam.program(completion[:LONGEST])
    verdict = programs.examine(program, exam.entry_point, setup=exam.setup, tests=exam.test)
    return math.nan if verdict is None else verdict.share
