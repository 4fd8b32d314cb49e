"""What a page of the book needs to judge answers that are letters, words or numbers, as ``minirlhf check`` does.

The exercise's own tests are run here, on every letter that can be chosen, around the right number and at the numbers of
known mistakes. Their verdicts are written to the page, each encrypted with the answer that it belongs to, so that no answer
can be read in the page's source before it is given. This keeps honest readers from seeing answers by accident; it does not
stop anyone who tries all answers.

Numbers are grouped in cells of a width that is a power of two, and the cell is the key; the verdict holds the exact
interval. ``book/_static/answer.js`` does the same steps as :func:`digest`, :func:`encrypt` and :func:`cells`.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from minirlhf_course.classroom.exercise import DEFAULT_STUDENT, Exercise
from minirlhf_course.classroom.grading import WRONG_PICK, TestResult, run_test
from minirlhf_course.classroom.runner import Local
from minirlhf_course.classroom.testing import Test

KINDS = ("numeric", "choice")
FAR = 1234567.25  # a number that no exercise asks for
SEED = 7  # these tests draw nothing: each has one round on the student's own numbers


def fnv(text: str) -> int:
    """The 32-bit FNV-1a hash of the text's UTF-8 bytes."""
    value = 0x811C9DC5
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def digest(key: str) -> str:
    """Two hashes of a key, as sixteen hexadecimal digits."""
    return f"{fnv(f'{key}|1'):08x}{fnv(f'{key}|2'):08x}"


def encrypt(key: str, text: str) -> str:
    """The text as hexadecimal digits, each byte combined with a byte that follows from the key."""
    return "".join(f"{byte ^ fnv(f'{key}|+{i}') >> 8 & 0xFF:02x}" for i, byte in enumerate(text.encode()))


def cells(low: float, high: float) -> tuple[int, list[int]]:
    """The exponent of the widest power of two below the interval's width, and the cells of that width that it meets."""
    exponent = math.floor(math.log2(high - low)) if high > low else -20
    return exponent, list(range(math.floor(low / 2.0**exponent), math.floor(high / 2.0**exponent) + 1))


def encrypted_words(salt: str, verdicts: Mapping[str, tuple[bool, str]]) -> dict[str, str]:
    """The verdict and message of each word, encrypted with the word; by its digest."""
    return {
        digest(key): encrypt(key, json.dumps(verdict, ensure_ascii=False))
        for key, verdict in ((f"{salt}{word}", verdict) for word, verdict in verdicts.items())
    }


def encrypted_numbers(salt: str, verdicts: Sequence[tuple[float, float, bool, str]]) -> dict[str, str]:
    """The verdict and message of each interval ``(low, high, passed, message)``, encrypted with the cells that it meets.

    Of two intervals that meet in a cell, the earlier one counts.
    """
    table: dict[str, str] = {}
    for low, high, passed, message in verdicts:
        exponent, keys = cells(low, high)
        for key in (f"{salt}{exponent}:{cell}" for cell in keys):
            text = json.dumps([low, high, passed, message], ensure_ascii=False)
            table.setdefault(f"{exponent}:{digest(key)}", encrypt(key, text))
    return table


@dataclass
class Session:
    """The answers to one exercise, and its tests on them."""

    exercise: Exercise
    right: Mapping[str, Any]

    def result(self, test: Test, **changed: Any) -> TestResult:
        """The result of a test where these answers differ from the right ones."""
        answer = Local({**self.right, **changed, "STUDENT": DEFAULT_STUDENT}, DEFAULT_STUDENT)
        return run_test(self.exercise, test, answer, SEED, {})

    def names(self, test: Test) -> list[str]:
        """The answers without which the test fails."""
        return [name for name in self.right if not self.result(test, **{name: None}).passed]


def right_answers(exercise: Exercise) -> dict[str, Any]:
    """The solution's values for the names that the exercise asks for."""
    space: dict[str, Any] = {"STUDENT": DEFAULT_STUDENT}
    with contextlib.redirect_stdout(io.StringIO()):
        for code in (exercise.given, exercise.solution):
            exec(compile(code, exercise.id, "exec"), space)
    values = {name: space[name] for name in exercise.asks}
    return {name: value.item() if hasattr(value, "item") else value for name, value in values.items()}


def data_of(exercise: Exercise) -> str:
    """What the notebook's cell prints for the student of the page: the numbers of the task."""
    space: dict[str, Any] = {"STUDENT": DEFAULT_STUDENT}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        for code in (exercise.given, exercise.stub):
            exec(compile(code, exercise.id, "exec"), space)
    return printed.getvalue().rstrip()


def accepted(passes: Callable[[float], bool], right: float, guess: tuple[float, float] | None) -> tuple[float, float]:
    """The interval around the right number in which the test passes, to about one part in a million of its width.

    ``guess``: an interval to try first.
    """
    if guess is not None and guess[0] < guess[1]:
        low, high = guess
        margin = 1e-6 * (high - low)
        inside, outside = (low + margin, high - margin), (low - margin, high + margin)
        if all(map(passes, inside)) and not any(map(passes, outside)):
            return guess

    def edge(sign: int) -> float:
        inside, step = float(right), 1e-9 * max(1.0, abs(right))
        while passes(right + sign * step) and step < abs(FAR):
            inside, step = right + sign * step, 4 * step
        outside = right + sign * step
        for _ in range(22):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if passes(middle) else (inside, middle)
        return inside

    return edge(-1), edge(1)


def counted(passes: Callable[[float], bool], right: int) -> list[tuple[float, float]]:
    """As :func:`accepted`, where only whole numbers pass: an interval around the right one and each neighbour that passes."""
    low = high = right
    while passes(low - 1) and right - low < 100:
        low -= 1
    while passes(high + 1) and high - right < 100:
        high += 1
    return [(x - 1e-9, x + 1e-9) for x in range(low, high + 1)]


def compared(test: Test, run: Callable[[], Any]) -> list[dict[str, Any]]:
    """The arguments of ``expect`` in its calls by this test while ``run`` runs it."""
    space, calls = test.run.__globals__, []
    original = space.get("expect")
    if original is None:
        return []

    def listen(got: Any, want: Any, **options: Any) -> None:
        calls.append({"want": want, **options})
        original(got, want, **options)

    space["expect"] = listen
    try:
        run()
    finally:
        space["expect"] = original
    return calls


def tolerated(want: float, tolerance: float = 1e-5, floor: float = 1.0, **_: Any) -> tuple[float, float]:
    """The interval that ``expect`` accepts."""
    half = tolerance * max(floor, abs(float(want)))
    return float(want) - half, float(want) + half


def _is_number(value: Any) -> bool:
    return getattr(value, "numel", lambda: 1)() == 1 and not isinstance(value, str) and math.isfinite(float(value))


def _numbers(session: Session, test: Test, name: str, salt: str) -> dict[str, str]:
    right = session.right[name]
    is_count = isinstance(right, int)

    def result(x: float) -> TestResult:
        return session.result(test, **{name: int(x) if is_count and x == int(x) else x})

    def passes(x: float) -> bool:
        return result(x).passed

    calls = [call for call in compared(test, lambda: result(FAR)) if _is_number(call["want"])]
    guesses = [ends for ends in (tolerated(**call) for call in calls) if ends[0] <= right <= ends[1]]
    only_whole = is_count and not (passes(right + 1e-7) or passes(right - 1e-7))
    right_ones = counted(passes, right) if only_whole else [accepted(passes, right, guesses[0] if guesses else None)]
    low, high = right_ones[0][0], right_ones[-1][1]
    half = (high - low) / 2
    known = [float(x) for call in calls for x in (call.get("mistakes") or {}).values() if _is_number(x)]
    spans = dict.fromkeys((*known, -right, 2 * right, right / 2, low - half, high + half), half) | {
        100 * right: 100 * half
    }
    verdicts, unknown_mistake = [(*ends, True, "") for ends in right_ones], result(FAR).message
    for x, width in spans.items():
        judged = result(x)
        if not judged.passed and judged.message != unknown_mistake:
            verdicts.append((x - width, x + width, False, judged.message))
    return encrypted_numbers(salt, verdicts)


def _words(session: Session, test: Test, name: str, salt: str, options: Sequence[str]) -> dict[str, str]:
    is_bool = isinstance(session.right[name], bool)
    results = {o: session.result(test, **{name: o == "True" if is_bool else o}) for o in options}
    return encrypted_words(salt, {option: (result.passed, result.message) for option, result in results.items()})


def _entry(session: Session, test: Test, name: str) -> dict[str, Any]:
    """The verdicts on one answer."""
    value, salt = session.right[name], f"{session.exercise.id}|{name}|"
    if isinstance(value, bool | str):
        asked = session.result(test, **{name: "?"}).facts.get("expected") or ()
        options = ["True", "False"] if isinstance(value, bool) else list(asked)
        return {"options": options, "verdicts": _words(session, test, name, salt, options)}
    otherwise = session.result(test, **{name: FAR}).message
    return {"options": [], "verdicts": _numbers(session, test, name, salt), "otherwise": otherwise}


def table(exercise: Exercise) -> dict[str, Any] | None:
    """All that the page needs of an exercise as plain data, or None where its answers cannot be judged in a page.

    That is where it asks for a function, a list or free text, or where one answer decides about several tests.
    """
    if exercise.kind not in KINDS or "function" in exercise.asks.values():
        return None
    right = right_answers(exercise)
    if not all(isinstance(value, bool | int | float | str) for value in right.values()):
        return None
    session = Session(exercise, right)
    test_of: dict[str, Test] = {}
    tests = []
    for test in exercise.tests:
        names = session.names(test)
        if not names or test_of.keys() & set(names):
            return None
        test_of |= dict.fromkeys(names, test)
        tests.append({"asks": test.asks, "points": test.points, "hints": list(test.hints), "names": names})
    answers = {name: _entry(session, test, name) for name, test in test_of.items()}
    if any(isinstance(right[name], str) and not entry["options"] for name, entry in answers.items()):
        return None
    free = {"options": next(iter(answers.values()))["options"], "verdicts": {}}  # a letter that earns nothing
    return {
        "id": exercise.id,
        "penalty": WRONG_PICK if exercise.kind == "choice" else 0.0,
        "printed": data_of(exercise),
        "tests": tests,
        "answers": {name: answers.get(name, free) for name in exercise.asks},
    }
