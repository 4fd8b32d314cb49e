"""Graders of programs: the reference holds tests, and the completion is run in the sandbox."""

from __future__ import annotations

import ast
import json
import math
import re
from dataclasses import dataclass

from minirlhf.feedback.graders.thoughts import THOUGHTS, ThoughtTags, answer_part
from minirlhf.sandbox import programs

_FENCE = re.compile(r"^([ \t]*)(?:```|~~~)[^\n`]*\n(.*?)(?:^[ \t]*(?:```|~~~)|\Z)", re.DOTALL | re.MULTILINE)
LONGEST = 100_000  # characters of a program


@dataclass(frozen=True)
class ProgramTests:
    """A problem of a reference: a JSON object with HumanEval's ``prompt``, ``entry_point`` and ``test``."""

    prompt: str
    entry_point: str
    test: str

    @classmethod
    def read(cls, reference: str) -> ProgramTests | None:
        """Parse a reference; None if it is no such JSON object."""
        try:
            fields = json.loads(reference)
            parsed = cls(*(fields[name] for name in ("prompt", "entry_point", "test")))
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        all_strings = all(isinstance(text, str) for text in (parsed.prompt, parsed.entry_point, parsed.test))
        return parsed if all_strings and parsed.entry_point.isidentifier() else None

    def program(self, completion: str) -> str:
        """Return the program of a completion, which continues the prompt or defines the function anew after it.

        The code is searched in the last ``<answer>…</answer>`` if there is one, else in the whole completion. If that
        text has fences (three backquotes or tildes, with any language), the code is in a fence: the last one that
        defines the function, else the last one.
        """
        completion = "\n".join(completion.splitlines()) + "\n"
        if "<answer>" in completion:
            completion = completion.rpartition("<answer>")[2].partition("</answer>")[0]
        fenced = [re.sub(rf"(?m)^{match[1]}", "", match[2]) for match in _FENCE.finditer(completion)]
        defines = re.compile(rf"(?m)^(?:async\s+)?def\s+{self.entry_point}\b|^{self.entry_point}\s*=")
        code = next((code for code in reversed(fenced) if defines.search(code)), fenced[-1] if fenced else completion)
        return f"{self.setup}\n\n{code}" if defines.search(code) else self.prompt + code

    @property
    def setup(self) -> str:
        """The prompt as a complete program: a function header without a body gets one."""
        try:
            ast.parse(self.prompt)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return f"{self.prompt}\n    pass\n"
        return self.prompt


def tests(completion: str, reference: str, thoughts: ThoughtTags = THOUGHTS) -> float:
    """Return 1 if the program passes all tests of the reference, else 0.

    See :class:`ProgramTests` and :func:`minirlhf.sandbox.programs.examine`.
    """
    fraction = tests_share(completion, reference, thoughts)
    return fraction if math.isnan(fraction) else float(fraction == 1.0)


def tests_share(completion: str, reference: str, thoughts: ThoughtTags = THOUGHTS) -> float:
    """Return the fraction of the tests' assertions that hold. 0 for a program that exits, hangs or aborts the tests."""
    problem = ProgramTests.read(reference)
    if problem is None:
        return math.nan
    program = problem.program(answer_part(completion, thoughts)[:LONGEST])
    verdict = programs.examine(program, problem.entry_point, setup=problem.setup, tests=problem.test)
    return math.nan if verdict is None else verdict.pass_rate
