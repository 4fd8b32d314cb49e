"""Small programs: infer a line of Python from three examples; the sandbox runs it on inputs that were not shown.

    0 gives 1 , 2 gives 5 , 3 gives 7
    return x * 2 + 1

A completion is right if ``def f(x):`` with this line agrees with the hidden program for every x from 0 to 9. The text
may differ: ``return x + x + 1`` is also right. The difficulty is the number of operations, one or two.

Every word of this task is harmless, so all programs of a process share one sandbox. :meth:`SmallPrograms.exam` returns
the same question as a HumanEval problem, for the grader ``tests`` and its two sandboxes.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from functools import cache, lru_cache

import numpy as np

from minirlhf.data.tasks.base import Split, mixed
from minirlhf.sandbox import programs

DIGITS = tuple("0123456789")
INPUTS = range(10)
SHOWN = ((0, 2, 3), (1, 4, 7), (0, 5, 9), (2, 6, 8))
MINUS, GIVES, COMMA = "-", "gives", ","
FIRST: dict[str, Callable[[int, int], int]] = {
    "+": lambda x, a: x + a,
    "-": lambda x, a: x - a,
    "*": lambda x, a: x * a,
    "//": lambda x, a: x // a,
    "%": lambda x, a: x % a,
}


def _spelt(number: int) -> str:
    """Return ``- 1 2`` for −12."""
    return " ".join([MINUS] * (number < 0) + list(str(abs(number))))


@cache
def programs_of() -> dict[tuple[int, ...], str]:
    """Return the shortest line for each function of this task, by its values at :data:`INPUTS`."""
    shortest: dict[tuple[int, ...], str] = {tuple(INPUTS): "return x"}
    lines = [(f"x {sign} {a}", [f(x, a) for x in INPUTS]) for sign, f in FIRST.items() for a in range(1, 10)]
    lines += [("x * x", [x * x for x in INPUTS])]
    longer = [
        (f"{text if sign in '+-' else f'( {text} )'} {sign} {b}", [f(y, b) for y in values])
        for text, values in lines
        for sign, f in FIRST.items()
        for b in range(1, 10)
    ]
    for text, values in [*lines, *longer]:
        shortest.setdefault(tuple(values), f"return {text}")
    return shortest


@cache
def _splits() -> dict[str, list[str]]:
    """Return prompts split by function: all prompts of a function are in one split; no prompt fits two."""
    by_prompt: dict[str, list[tuple[int, ...]]] = {}
    for values in programs_of():
        for shown in SHOWN:
            by_prompt.setdefault(_prompt(values, shown), []).append(values)
    hidden = {prompt: matching[0] for prompt, matching in by_prompt.items() if len(matching) == 1}
    functions = mixed((json.dumps(values) for values in set(hidden.values())), "small_programs")
    test_functions = set(functions[: len(functions) // 6])
    in_order = mixed(hidden, "small_programs", "prompts")
    return {
        "train": [prompt for prompt in in_order if json.dumps(hidden[prompt]) not in test_functions],
        "test": [prompt for prompt in in_order if json.dumps(hidden[prompt]) in test_functions],
    }


def _prompt(values: tuple[int, ...], shown: tuple[int, ...]) -> str:
    return f" {COMMA} ".join(f"{x} {GIVES} {_spelt(values[x])}" for x in shown)


@cache
def _hidden() -> dict[str, tuple[int, ...]]:
    """Return the values at all inputs, by prompt."""
    prompts = set(_splits()["train"]) | set(_splits()["test"])
    pairs = ((_prompt(values, shown), values) for values in programs_of() for shown in SHOWN)
    return {prompt: values for prompt, values in pairs if prompt in prompts}


class SmallPrograms:
    """See the head of this module. A :class:`~minirlhf.data.tasks.base.Task`."""

    name = "small_programs"
    words = (*DIGITS, GIVES, COMMA, "return", "x", "+", "-", "*", "//", "%", "(", ")")
    max_completion_length = 9

    def prompts(self, split: Split) -> list[str]:
        """Return the prompts, three examples of a function each; all prompts of a function are in the same split."""
        return list(_splits()[split])

    def operations(self, prompt: str) -> int:
        """Return the difficulty of a prompt of this task: the number of operations of its shortest program."""
        return sum(word in FIRST for word in self.reference(prompt).split())

    def reference(self, prompt: str) -> str:
        """Return a shortest program."""
        return programs_of()[_hidden()[prompt]]

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """Return the reference."""
        return self.reference(prompt)

    def grade(self, prompt: str, completion: str) -> float:
        """Return 1 if the completion, one line of this task's words, equals the hidden function on all inputs, else
        0."""
        expected = _hidden().get(prompt)
        if expected is None or not self._is_line(completion):
            return 0.0
        return float(_outputs(completion) == expected)

    def _is_line(self, completion: str) -> bool:
        """Return whether it is a ``return`` of an expression in the words of this task."""
        words = completion.split(" ")
        if len(words) > 4 * self.max_completion_length or not set(words) <= set(self.words) or words[0] != "return":
            return False
        try:
            ast.parse(completion.removeprefix("return").strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
        return True

    def exam(self, prompt: str) -> dict[str, str]:
        """Return the same question as a row in HumanEval's format."""
        body = "".join(f"    assert candidate({x}) == {y}\n" for x, y in zip(INPUTS, _hidden()[prompt], strict=True))
        stub = f'def f(x):\n    """{prompt}"""\n'
        return {"prompt": stub, "entry_point": "f", "test": f"def check(candidate):\n{body}"}


@lru_cache(maxsize=100_000)
def _outputs(line: str) -> tuple[object, ...]:
    """Return the result of the line for every input, None where it fails."""
    return tuple(programs.outputs(f"def f(x):\n    {line}\n", "f", [(x,) for x in INPUTS]))


SMALL_PROGRAMS = SmallPrograms()
