"""Small programs: from three examples to a line of Python, which the sandbox runs on numbers that were not shown.

    0 gives 1 , 2 gives 5 , 3 gives 7
    return x * 2 + 1

A reply is right if ``def f(x):`` with this line computes what the hidden program does for every x from 0 to 9. It need not be the same
text: ``return x + x + 1`` is right as well. The difficulty is the number of operations, one or two.

Every word of this world is harmless, so that all programs of a process share one box. :meth:`SmallPrograms.exam` asks the same as a
HumanEval problem, for the grader ``tests`` and its two boxes.
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
    """``- 1 2`` for −12."""
    return " ".join([MINUS] * (number < 0) + list(str(abs(number))))


@cache
def programs_of() -> dict[tuple[int, ...], str]:
    """The shortest line for each function of this world, by its values at :data:`INPUTS`."""
    found: dict[tuple[int, ...], str] = {tuple(INPUTS): "return x"}
    lines = [(f"x {sign} {a}", [f(x, a) for x in INPUTS]) for sign, f in FIRST.items() for a in range(1, 10)]
    lines += [("x * x", [x * x for x in INPUTS])]
    longer = [
        (f"{text if sign in '+-' else f'( {text} )'} {sign} {b}", [f(y, b) for y in values])
        for text, values in lines
        for sign, f in FIRST.items()
        for b in range(1, 10)
    ]
    for text, values in [*lines, *longer]:
        found.setdefault(tuple(values), f"return {text}")
    return found


@cache
def _splits() -> dict[str, list[str]]:
    """Prompts by function: all of one function are in one split, and no two functions agree on the examples of a prompt."""
    asked: dict[str, list[tuple[int, ...]]] = {}
    for values in programs_of():
        for shown in SHOWN:
            asked.setdefault(_prompt(values, shown), []).append(values)
    hidden = {prompt: owners[0] for prompt, owners in asked.items() if len(owners) == 1}
    functions = mixed((json.dumps(values) for values in set(hidden.values())), "small_programs")
    test = set(functions[: len(functions) // 6])
    in_order = mixed(hidden, "small_programs", "prompts")
    return {
        "train": [prompt for prompt in in_order if json.dumps(hidden[prompt]) not in test],
        "test": [prompt for prompt in in_order if json.dumps(hidden[prompt]) in test],
    }


def _prompt(values: tuple[int, ...], shown: tuple[int, ...]) -> str:
    return f" {COMMA} ".join(f"{x} {GIVES} {_spelt(values[x])}" for x in shown)


@cache
def _hidden() -> dict[str, tuple[int, ...]]:
    """The values at all inputs, by prompt."""
    wanted = set(_splits()["train"]) | set(_splits()["test"])
    every = ((_prompt(values, shown), values) for values in programs_of() for shown in SHOWN)
    return {prompt: values for prompt, values in every if prompt in wanted}


class SmallPrograms:
    """See the head of this module. A :class:`~minirlhf.data.tasks.base.Task`."""

    name = "small_programs"
    words = (*DIGITS, GIVES, COMMA, "return", "x", "+", "-", "*", "//", "%", "(", ")")
    max_completion_length = 9

    def prompts(self, split: Split) -> list[str]:
        """Three examples each of a function; a function of which one prompt is in a split has all its prompts there."""
        return list(_splits()[split])

    def operations(self, prompt: str) -> int:
        """The difficulty of a prompt of this world: operations of its shortest program."""
        return sum(word in FIRST for word in self.reference(prompt).split())

    def reference(self, prompt: str) -> str:
        """A shortest program."""
        return programs_of()[_hidden()[prompt]]

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """The same."""
        return self.reference(prompt)

    def grade(self, prompt: str, completion: str) -> float:
        """1 if the line computes the hidden function for every input, else 0. It must be one line of this world's words."""
        wanted = _hidden().get(prompt)
        if wanted is None or not self._is_line(completion):
            return 0.0
        return float(_outputs(completion) == wanted)

    def _is_line(self, completion: str) -> bool:
        """Whether it is a ``return`` of an expression in the words of this world."""
        words = completion.split(" ")
        if len(words) > 4 * self.max_completion_length or not set(words) <= set(self.words) or words[0] != "return":
            return False
        try:
            ast.parse(completion.removeprefix("return").strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
        return True

    def exam(self, prompt: str) -> dict[str, str]:
        """The same question as a row in HumanEval's format."""
        body = "".join(f"    assert candidate({x}) == {y}\n" for x, y in zip(INPUTS, _hidden()[prompt], strict=True))
        given = f'def f(x):\n    """{prompt}"""\n'
        return {"prompt": given, "entry_point": "f", "test": f"def check(candidate):\n{body}"}


@lru_cache(maxsize=100_000)
def _outputs(line: str) -> tuple[object, ...]:
    """What the line computes for every input, None where it fails."""
    return tuple(programs.outputs(f"def f(x):\n    {line}\n", "f", [(x,) for x in INPUTS]))


SMALL_PROGRAMS = SmallPrograms()
