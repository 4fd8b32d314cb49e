"""The API for the hidden tests of an exercise: ``test``, ``expect``, ``fail`` and inputs with few digits.

A test is a function ``(sub, draw)``. ``sub`` behaves like the student's module, ``sub.f(x)`` and
``sub.value("answer")``, but runs in another process when a class is graded; ``draw`` gives fresh random inputs
(:class:`minirlhf_course.ledger.registry.Draw`). The comparison and the expected values stay in the grader's process.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import torch
from torch import Tensor

from minirlhf.core.errors import Facts
from minirlhf_course.ledger.registry import Draw

SHOWN = 12  # of a tensor with more entries, only the entry with the largest error is shown
RELATED = 1e-3  # of the largest entry: at 5 % nearly half of all wrong numbers would be related to the right one
PREPOSITION = re.compile(
    r",| (?:of|with|in|at|for|when|where|by|that|from|on|as|to|under|without|after|before|beside) "
)
PLURAL = {"is": "are", "has": "have", "holds": "hold", "lacks": "lack", "does": "do"}
worst_error: ContextVar[float] = ContextVar("worst_error", default=0.0)


class Failure(Facts, Exception):
    """An answer is wrong: one sentence, the counterexample as lines, and the matching well-known mistakes (``named``).

    Programs read its facts (see :class:`minirlhf.core.errors.Facts`); ``problem`` is "wrong" if nothing more specific
    is known.
    """

    def __init__(self, message: str, lines: tuple[str, ...] = (), named: tuple[str, ...] = (), **facts: Any) -> None:
        super().__init__(message, **facts)
        self.message, self.lines, self.named = message, lines, named


class Submission(Protocol):
    """A submitted answer whose functions can be called, in this process or in another."""

    student: str

    def call(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], world: Mapping[str, Callable[..., Any]] = {}
    ) -> Any:
        """Return the result of the student's function ``name``.

        Functions in ``args`` and ``kwargs`` are handles, see :mod:`minirlhf_course.classroom.handles`. Those in ``world`` stand
        in for the submission's global functions of the same names during the call.
        """

    def gradient(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], wrt: int) -> Any:
        """Return the derivative of the (summed) result with respect to the ``wrt``-th argument, by autograd."""

    def examine(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], wrt: list[int | str]) -> Any:
        """Return the result and gradients, see :func:`minirlhf_course.classroom.worker.examine`."""

    def effects(self) -> dict[str, Any]:
        """Return the side effects so far, see :class:`minirlhf_course.classroom.side_effects.SideEffects`."""

    def seconds(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
        """Return the seconds of computing that a call takes in the process in which it runs."""

    def value(self, name: str) -> Any:
        """Return the student's value ``name``."""

    def fresh(self) -> Submission:
        """Return the same submission in a state in which nothing has been called, or itself if there is none."""


class Surroundings(Protocol):
    """The context of an answer that trains, see :class:`minirlhf_course.classroom.side_by_side.Beside`."""

    def part(self, number: str) -> Asked:
        """Return the earlier answer that runs in this one."""

    def reference(self, run: Callable[[Asked, Draw], Sequence[float]], base: int, k: int) -> Sequence[float]:
        """Return the reference solution's curve for one seed."""

    def solution(self) -> Asked:
        """Return the reference solution."""


class Asked:
    """A test's view of a submission: ``sub.f(x)``, ``sub.value("v")``, ``sub.gradient("f", x)``, ``sub.student``."""

    def __init__(
        self,
        submission: Submission,
        beside: Surroundings | None = None,
        world: Mapping[str, Callable[..., Any]] | None = None,
        called: set[str] | None = None,
    ) -> None:
        self._submission, self._beside, self._world = submission, beside, world or {}
        self._called = set() if called is None else called  # the names of the functions that were called
        self.student = submission.student

    @property
    def beside(self) -> Surroundings:
        """The context of the answer: earlier answers and the reference solution."""
        if self._beside is None:
            raise ValueError("no earlier answers and no reference solution exist outside a test")
        return self._beside

    def part(self, number: str) -> Asked:
        """Return an earlier answer (``sub.part("02.6").sample``): the student's own if correct, else the reference."""
        return self.beside.part(number)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        world = (self._world,) if self._world else ()
        self._called.add(name)
        return lambda *args, **kwargs: self._submission.call(name, args, kwargs, *world)

    @property
    def aside(self) -> Asked:
        """This submission, for calls of which no probes are made: edges, beyond which nothing is promised."""
        unrecorded = getattr(self._submission, "unrecorded", self._submission)
        return Asked(unrecorded, self._beside, self._world, self._called)

    def in_world(self, **world: Callable[..., Any]) -> Asked:
        """Return this submission in another world: these functions stand in for its global ones of the same names."""
        return Asked(self._submission, self._beside, world, self._called)

    def seconds(self, name: str, *tries: tuple[Any, ...]) -> float:
        """Return the fewest seconds of computing that ``name(*args)`` takes, for ``args`` in ``tries``.

        Every try has other inputs, so that an answer that is remembered saves no time.
        """
        if len({repr(args) for args in tries}) < max(2, len(tries)):
            raise ValueError("expected two tries or more, each with other inputs")
        return min(float(self._submission.seconds(name, args, {})) for args in tries)

    def value(self, name: str) -> Any:
        """Return the student's value ``name``; raise :class:`Failure` if it is still None."""
        value = self._submission.value(name)
        if value is None:
            raise Failure(f"`{name}` is still None", argument=name, problem="none")
        return value

    def number(self, name: str) -> float:
        """Return the student's value ``name`` as a number."""
        value = self.value(name)
        if isinstance(value, Tensor) and value.numel() == 1:
            value = value.item()
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Failure(f"`{name}` is {_kind(value)}; expected one number", argument=name, expected=float)
        return float(value)

    def truth(self, name: str) -> bool:
        """Return the student's value ``name``, True or False; a NumPy or torch bool is accepted too."""
        value = self.value(name)
        if isinstance(value, Tensor) and value.numel() == 1 and value.dtype == torch.bool:
            value = value.item()
        if not isinstance(value, bool):
            fail(f"`{name}` is neither True nor False")
        return value

    def choice(self, name: str, options: str) -> str:
        """Return the student's value ``name`` as one of the letters ``options``, such as ``"abcd"``."""
        value = self.value(name)
        if not isinstance(value, str) or len(value.strip()) != 1 or value.strip().lower() not in options:
            message = f"`{name}` is {show(value)!r}; expected one of the letters {', '.join(options)}"
            raise Failure(message, argument=name, value=value, expected=options)
        return value.strip().lower()

    def gradient(self, name: str, *args: Any, wrt: int = 0, **kwargs: Any) -> Any:
        """Return d(sum of ``name(*args)``)/d(argument ``wrt``), by autograd in the student's process."""
        self._called.add(name)
        return self._submission.gradient(name, args, kwargs, wrt)


@dataclass(frozen=True)
class Panel:
    """One panel: the learner's curve and the correct curve over ``x``, each ``(N,)``."""

    title: str
    x: Tensor
    yours: Tensor
    right: Tensor
    along: str
    up: str


@dataclass(frozen=True)
class Picture:
    """Panels side by side, and a sentence about what they show, which is the figure's alt text."""

    says: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Test:
    """One hidden test. ``asks`` is its docstring: what the test checks, shown in feedback."""

    name: str
    asks: str
    points: float
    hints: tuple[str, str]
    rounds: int
    against: str
    run: Callable[[Asked, Draw], None]
    probed: bool = True  # whether automatic probes may be derived from its calls


def test(
    *, points: float, hints: tuple[str, str], rounds: int = 3, against: str = ""
) -> Callable[[Callable[[Asked, Draw], None]], Test]:
    """Make the decorated function a hidden test.

    Args:
        points: the points for passing; there is no partial credit.
        hints: two hints, the second closer to the solution than the first. Neither contains the solution's code.
        rounds: number of fresh inputs that the test runs on.
        against: for a derivation, the oracle in a few words; a passed test then prints a proof mark.

    Raises:
        ValueError: no docstring, points ≤ 0, rounds < 1, or not two hints.
    """

    def build(run: Callable[[Asked, Draw], None]) -> Test:
        name = run.__name__
        asks = " ".join((run.__doc__ or "").split())
        if not asks:
            raise ValueError(f"test {name} has no docstring; expected one that says what the test checks")
        if points <= 0 or rounds < 1 or len(hints) != 2 or not all(hints):
            raise ValueError(f"test {name}: expected points > 0, rounds ≥ 1 and two hints")
        return Test(name, asks, points, hints, rounds, against, run)

    return build


def fail(message: str, **given: Any) -> NoReturn:
    """Fail the test because the answer is wrong. ``given``: the inputs to show."""
    raise Failure(message, tuple(f"{name} = {show(value)}" for name, value in given.items()))


def named(mistakes: Sequence[str]) -> str:
    """Return the predicate that names these mistakes; a mistake is a clause after "when" or a sentence with "that"."""
    if any(mistake.split()[0] in ("that", "this", "those", "these") for mistake in mistakes):
        return f"is wrong: {'; or '.join(mistakes)}"
    return f"is what comes out when {', or when '.join(mistakes)}"


def expect(
    got: Any,
    want: Tensor | float,
    *,
    what: str = "the result",
    given: Mapping[str, Any] | None = None,
    mistakes: Mapping[str, Tensor | float] | None = None,
    tolerance: float = 1e-5,
    reveal: bool = True,
    floor: float = 1.0,
) -> None:
    """Compare an answer with the correct one; raise :class:`Failure` with a counterexample if they differ.

    Args:
        got: the student's answer, of any type.
        want: the correct answer, from an oracle.
        what: the name of the answer in the message.
        given: the inputs, shown with the counterexample.
        mistakes: the results of well-known mistakes; the message names those that match the answer.
        tolerance: largest ``|got − want| / max(floor, |want|)``.
        reveal: whether the message may show the correct answer.
        floor: the size below which errors count as of this size.
    """
    right = torch.as_tensor(want, dtype=torch.float64)
    answer = _as_tensor(got, right, what)
    error = _error(answer, right, floor)
    if error <= tolerance:
        worst_error.set(max(worst_error.get(), error))
        return
    lines = [f"{name} = {show(value)}" for name, value in (given or {}).items()]
    lines += _compare(answer, right) if reveal else [f"yours: {show(answer)}"]

    def failure(predicate: str, problem: str, recognised: Sequence[str] = ()) -> Failure:
        return Failure(sentence(what, predicate), tuple(lines), tuple(recognised), problem=problem, argument=what)

    matches = []
    for mistake, value in (mistakes or {}).items():
        wrong = torch.as_tensor(value, dtype=torch.float64)
        is_another = wrong.shape == right.shape and _error(wrong, right, floor) > tolerance
        if is_another and _error(answer, wrong, floor) <= tolerance:
            matches.append(mistake)
    if matches:
        raise failure(named(matches), "mistake", matches)
    if not bool(torch.isfinite(answer).all()):
        raise failure("holds NaN or an infinity", "not finite")
    if _is_close(-answer, right, tolerance, floor):
        raise failure("has the wrong sign", "sign")
    if _is_close(answer, 100 * right, tolerance, floor):
        raise failure("is a hundred times too large: is it in percent?", "percent")
    if not reveal and error <= 5 * tolerance:
        raise failure("is near, but not near enough", "near")
    kind, clause = _resemblance(answer, right, tolerance, floor)
    raise failure(clause, kind, [clause]) if clause else failure("is wrong", "wrong")


def _resemblance(answer: Tensor, right: Tensor, tolerance: float, floor: float) -> tuple[str, str]:
    """Relate a wrong answer to the correct one: return a kind and a clause, or two empty strings."""

    def same(a: Tensor) -> bool:
        return bool(torch.isfinite(a).all()) and _is_close(a, right, tolerance, floor)

    both_integers = right.numel() == 1 and bool((answer == answer.round()).all() and (right == right.round()).all())
    is_trivial = both_integers or (answer.numel() == 1 and float(answer) in (0.0, 1.0))
    if right.numel() == 0 or is_trivial or _error(right, torch.zeros_like(right)) <= tolerance:
        return "", ""  # one integer is often a multiple of another, and 1 of one half, by chance
    for times in range(2, 13):
        if same(answer / times):
            return (
                "multiple",
                f"is {times} times as large as it should be: is something added up where a mean is meant, or counted twice?",
            )
        if same(answer * times):
            return "fraction", f"is 1/{times} of what it should be: is a mean taken where a sum is meant?"
    transforms = (
        ("reciprocal", "is upside down: it is 1 over what it should be", torch.reciprocal),
        ("square", "is the square of what it should be", torch.sqrt),
        ("root", "is the root of what it should be", torch.square),
        ("exponential", "lacks an exponential", torch.exp),
        ("logarithm", "lacks a logarithm", torch.log),
        ("bits", "is in bits; it should be in nats", lambda x: x * math.log(2)),
        ("nats", "is in nats; it should be in bits", lambda x: x / math.log(2)),
    )
    for kind, clause, inverse in transforms:
        if same(inverse(answer)):
            return kind, clause
    all_integers = bool((answer == answer.round()).all())  # a one-hot distribution is not a rounded answer
    for digits in range(2 if right.numel() < 3 else 1, 6):  # one number with one decimal could match by chance
        rounded = right.round(decimals=digits)
        shows = _error(right, rounded) > 1e-6  # else single precision alone may bring an answer as near as this
        if not all_integers and shows and _error(answer, rounded) <= 1e-7:
            return "rounded", f"is rounded to {digits} decimal{'s' * (digits > 1)}, and more are asked for"
    if answer.numel() < 2:
        return "", ""
    if answer.dim() == 2 and answer.shape[0] == answer.shape[1] and same(answer.T):
        return "transposed", "has its rows and columns exchanged"
    if same(answer - (answer - right).mean()):
        return "shifted", "is off by the same number everywhere"
    if same(answer.flatten().sort().values[right.flatten().argsort().argsort()].reshape(right.shape)):
        return "reordered", "holds the right numbers in another order"
    if _distributions(right) and not bool((right == right.round()).all()) and not _distributions(answer):
        if bool((answer < 0).any()):
            return "negative", "holds a negative probability"
        return "sum", "does not sum to 1, as probabilities do"
    return "", ""


def _distributions(x: Tensor) -> bool:
    """Whether each row is a distribution: no entry below 0, and a sum of 1."""
    return bool((x >= 0).all()) and float((x.sum(-1) - 1).abs().max()) <= 1e-5


def _as_tensor(got: Any, right: Tensor, what: str) -> Tensor:
    if got is None:
        raise Failure(sentence(what, "is None: is a `return` missing?"), problem="none")
    if isinstance(got, bool | int | float) and right.dim() == 0:
        return torch.tensor(float(got), dtype=torch.float64)
    if not isinstance(got, Tensor):
        message = sentence(what, f"is {_kind(got)}; expected {_kind(right)}")
        raise Failure(message, value=type(got).__name__, problem="type")
    if got.shape != right.shape:
        message = sentence(what, f"has shape {tuple(got.shape)}; expected {tuple(right.shape)}")
        raise Failure(message, value=tuple(got.shape), expected=tuple(right.shape), problem="shape")
    return got.detach().to(torch.float64)


def _error(a: Tensor, b: Tensor, floor: float = 1.0) -> float:
    """Return the largest relative error; equal infinities agree, NaN never agrees."""
    gap = torch.where(a == b, 0.0, (a - b).abs() / b.abs().clamp(min=floor))
    error = gap.max().item() if gap.numel() else 0.0
    return error if error == error else float("inf")


def _is_close(a: Tensor, b: Tensor, tolerance: float, floor: float) -> bool:
    """Whether two tensors are so close that a relation between them is no chance, whatever the test's tolerance."""
    gaps = (a - b)[a != b].abs()
    return _error(a, b, floor) <= tolerance and (
        not gaps.numel() or float(gaps.max()) <= RELATED * float(b.abs().max())
    )


def sentence(subject: str, predicate: str) -> str:
    """Return "the loss is wrong", or "the row means are wrong" if the noun of ``subject`` is a plural."""
    noun = PREPOSITION.split(subject)[0].split()[-1]
    is_clause = subject.split()[0] in ("what", "who", "how", "whether")
    verb, _, rest = predicate.partition(" ")
    if is_clause or not noun.endswith("s") or noun.endswith(("ss", "us", "is", "as")):
        return f"{subject} {predicate}"
    return f"{subject} {PLURAL.get(verb, verb)} {rest}"


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}" if value.dim() else "one number"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _compare(answer: Tensor, right: Tensor) -> list[str]:
    if right.numel() <= SHOWN:
        clean = right.round(decimals=9) + 0.0  # rounding errors of the oracle, and −0, would confuse the learner
        return [f"yours:    {show(answer)}", f"expected: {show(clean)}"]
    gap = (answer - right).abs().nan_to_num(nan=float("inf"))
    where = torch.unravel_index(gap.argmax(), gap.shape)
    index = [int(i) for i in where]
    return [f"at {index}: yours {show(answer[where])}, expected {show(right[where])}"]


def show(value: Any) -> str:
    """Format a value as one short line."""
    if isinstance(value, Tensor):
        if value.numel() > 4 * SHOWN:
            return f"(a tensor of shape {tuple(value.shape)})"
        return _list(value.tolist())
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    return text if len(text) <= 200 else text[:197] + "..."


def _list(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_list(v) for v in value) + "]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def tidy(x: Tensor, digits: int = 1) -> Tensor:
    """Round ``x``, so that a counterexample can be typed in by hand."""
    return torch.round(x, decimals=digits) + 0.0  # adding 0.0 turns −0 into 0


def tidy_distribution(draw: Draw, size: int, parts: int = 20) -> Tensor:
    """Sample a probability vector ``(size,)`` whose entries are positive multiples of ``1/parts``."""
    if size > parts:
        raise ValueError(f"size = {size}; expected at most parts = {parts}")
    cuts = draw.permutation(parts - 1)[: size - 1].sort().values + 1  # (size-1,), distinct integers in 1 .. parts-1
    edges = torch.cat([torch.tensor([0]), cuts, torch.tensor([parts])]).double()
    return edges.diff() / parts
