"""The plan of an exercise's probes: the tests run on the solution, their calls are recorded, and probes are derived."""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from minirlhf_course.classroom import awkward, worker
from minirlhf_course.classroom.exercise import Exercise
from minirlhf_course.classroom.nested import (
    axes,
    copied,
    finite,
    first_sizes,
    has_empty_row,
    has_whole_floats,
    holds_whole_floats,
    integers,
    is_whole,
    leaves,
    mapped,
    resize,
    same,
    select,
    shapes,
    stretch,
    tensors,
)
from minirlhf_course.classroom.probes import AWKWARD, OPTIONAL, ORDER, STEPS, TOLERANCE, Probe, ProbeCall, ProbePlan
from minirlhf_course.classroom.runner import Local
from minirlhf_course.classroom.side_by_side import Beside, solution
from minirlhf_course.classroom.testing import Asked, show
from minirlhf_course.ledger.registry import Draw

FEW = 3  # minimum calls of a function; if there are fewer, its tests run on further inputs
CALLS = 5  # calls per function that yield probes: the first call of each test, then others
MOST = 12  # maximum runs of a test while the function's result is constant: a wrong answer may be this constant
VARIATIONS = 2  # variations per number that change the result; 0 is added for a default or the size of a step
FLOAT32_TOLERANCE = 2e-3
AWKWARD_CALLS = 2  # calls whose numbers are replaced by awkward ones
GROUPS = (3, 6, 7)  # sizes of groups of equal numbers: the computed deviation of as many 0.1 is not exactly 0
NEARBY = (1, 2, 3, 5, 8, 13)  # steps to numbers at which an answer that is made of rounding errors is another one
BUMP = 1e-7  # breaks a tie
GAP = 1e-6  # a small difference that is none of rounding
MIDDLE = 30.0  # a size between those of the tests and the end of a range, at which exponentials are still finite
OFFSET = 1e7  # added to all numbers: of the squares of such numbers two digits are left behind the point
PRECISION = {  # tolerance and floor, see Probe
    "ties": (TOLERANCE, 1.0),
    "gaps": (0.05, GAP),
    "scale": (1e-3, 1e-6),
    "offset": (1e-3, 1e-3),
}
FAR = dict(zip(("tolerance", "floor"), PRECISION["scale"], strict=True))
LONG = 128  # least length of a long axis
TIMES = (10, 100)  # how much larger integers get
QUICK = 0.02  # seconds of the solution for what is long: other right answers may be slower
REPEATED = 3  # calls of a function that are repeated


class Recorder:
    """The solution as a submission that records its calls and results."""

    def __init__(self, namespace: dict[str, Any], student: str) -> None:
        self.namespace, self.student = namespace, student
        self.unrecorded = Local(namespace, student)
        self.calls: list[ProbeCall] = []
        self.answers: dict[ProbeCall, Any] = {}
        self.test = ""

    def _asked(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], Any]:
        parameters = tuple(inspect.signature(self.namespace[name]).parameters)
        self.calls.append(ProbeCall(name, copied(args), copied(kwargs), self.test, parameters))
        return copied(args), copied(kwargs)

    def call(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], world: Mapping[str, Callable[..., Any]] = {}
    ) -> Any:
        """As in :class:`minirlhf_course.classroom.testing.Submission`; worlds belong to trainings, which are not recorded."""
        args, kwargs = self._asked(name, args, kwargs)
        answer = copied(self.namespace[name](*args, **kwargs))
        self.answers[self.calls[-1]] = copied(answer)
        return answer

    def differing(self, calls: Sequence[ProbeCall], among: Sequence[ProbeCall]) -> list[ProbeCall]:
        """If all ``calls`` have the same result, return those in ``among`` with another result; else an empty list."""
        answers = [self.answers[c] for c in calls if c in self.answers]
        if not answers or not all(same(answer, answers[0]) for answer in answers):
            return []
        return [c for c in among if c in self.answers and not same(self.answers[c], answers[0])]

    def is_constant(self, name: str) -> bool:
        """Whether the function has been called and has returned the same result each time."""
        answers = [answer for call, answer in self.answers.items() if call.name == name]
        return bool(answers) and all(same(answer, answers[0]) for answer in answers)

    def seconds(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
        """As in :class:`minirlhf_course.classroom.testing.Submission`."""
        return self.unrecorded.seconds(name, args, kwargs)

    def gradient(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], wrt: int) -> Any:
        """As in :class:`minirlhf_course.classroom.testing.Submission`."""
        args, kwargs = self._asked(name, args, kwargs)
        return worker.gradient(self.namespace[name], args, kwargs, wrt)

    def examine(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], wrt: list[int | str]) -> Any:
        """As in :class:`minirlhf_course.classroom.testing.Submission`."""
        return worker.examine(self.namespace[name], copied(args), copied(kwargs), wrt)

    def value(self, name: str) -> Any:
        """As in :class:`minirlhf_course.classroom.testing.Submission`."""
        return copied(self.namespace[name])

    def fresh(self) -> Recorder:
        """As in :class:`minirlhf_course.classroom.testing.Submission`."""
        return self

    def effects(self) -> dict[str, Any]:
        """As in :class:`minirlhf_course.classroom.testing.Submission`; the solution's own calls are not watched."""
        return {}


# -- the plan ----------------------------------------------------------------------------------------------------

_lock = threading.Lock()


def plan(exercise: Exercise, seed: int, student: str) -> ProbePlan:
    """Return the probes of an exercise, cached per seed; a personal exercise has probes per student."""
    if "function" not in exercise.asks.values():
        return ProbePlan()
    with _lock:
        return _plan(_Key(exercise), seed, student if exercise.is_personal else "")


class _Key:
    """A cache key for an exercise: its path, solution, given code, switched-off probes and tests."""

    def __init__(self, exercise: Exercise) -> None:
        self.exercise = exercise
        self.identity = (exercise.path, exercise.solution, exercise.given, exercise.off, exercise.tests)

    def __hash__(self) -> int:
        return hash(self.identity[:3])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.identity == other.identity


@functools.lru_cache(maxsize=256)
def _plan(key: _Key, seed: int, student: str) -> ProbePlan:
    with warnings.catch_warnings():  # of the solution, about inputs that no test has
        warnings.simplefilter("ignore")
        return _planned(key.exercise, seed, student)


def _planned(exercise: Exercise, seed: int, student: str) -> ProbePlan:
    recorder = Recorder(solution(exercise, student), student)
    functions = [name for name, kind in exercise.asks.items() if kind == "function"]
    tests = [t for t in exercise.tests if t.probed]
    for repeat in range(MOST):
        counts = {name: sum(c.name == name for c in recorder.calls) for name in functions}
        rare = {c.test for c in recorder.calls if counts[c.name] < FEW}
        constant = {c.test for c in recorder.calls if recorder.is_constant(c.name)}
        for test in tests:
            again = (test.name in rare and repeat < test.rounds) or (test.name in constant and test.rounds > 1)
            if repeat == 0 or again:
                recorder.test = test.name
                test.run(Asked(recorder, Beside(exercise, student, {})), Draw(seed, exercise.id, test.name, repeat))
    probes_by_function: dict[str, tuple[Probe, ...]] = {}
    called_by: dict[str, tuple[str, ...]] = {}
    calls: dict[str, tuple[ProbeCall, ...]] = {}
    repeatable: dict[str, tuple[ProbeCall, ...]] = {}
    unusable: list[tuple[str, str, str]] = []
    for name in functions:
        function_calls = [c for c in recorder.calls if c.name == name]
        called_by[name] = tuple(dict.fromkeys(c.test for c in function_calls))
        first_calls = list({c.test: c for c in reversed(function_calls)}.values())[::-1]
        selected = [*first_calls, *(c for c in function_calls if c not in first_calls)][:CALLS]
        calls[name] = (*selected, *recorder.differing(selected, function_calls)[:1])
        derivation = _Making(exercise, recorder, name, function_calls)
        for call in calls[name]:
            derivation.derive(call)
        probes_by_function[name] = tuple(sorted(derivation.probes, key=lambda p: ORDER.index(p.kind)))
        repeatable[name] = derivation.repeatable(calls[name])
        unusable += derivation.unusable()
    return ProbePlan(probes_by_function, called_by, repeatable, calls, tuple(unusable))


class _Making:
    """Derives the probes of one function and records the attempts that gave no probe."""

    def __init__(self, exercise: Exercise, recorder: Recorder, name: str, calls: Sequence[ProbeCall]) -> None:
        self.exercise, self.recorder, self.name = exercise, recorder, name
        self.signature = inspect.signature(recorder.namespace[name])
        self.fractions = {  # the arguments for which a test has already used fractions
            argument
            for call in calls
            for argument, (_, value) in _named(self.signature, call)
            if any(bool((x != x.round()).any()) for x in tensors(value) if x.is_floating_point())
        }
        self.unit = {  # the arguments that are in [0, 1] in all calls, such as probabilities
            argument
            for argument in self.signature.parameters
            if all(
                awkward.in_unit_interval(value)
                for c in calls
                for n, (_, value) in _named(self.signature, c)
                if n == argument
            )
        }
        self.probes: list[Probe] = []
        self.long: set[int | str | tuple[str, ...]] = set()  # sizes and numbers that were made large or small
        self.num_calls = 0
        self.tried: set[tuple[str, str]] = set()

    def unusable(self) -> list[tuple[str, str, str]]:
        """Return the (kind, function, argument) that were tried but gave no probe for any call."""
        usable = {(p.kind, p.target) for p in self.probes}
        return [(kind, self.name, target) for kind, target in sorted(self.tried - usable)]

    def is_off(self, kind: str, argument: str = "") -> bool:
        targets = self.exercise.off.get(kind, {})
        return any(t in targets for t in ("", self.name, *([f"{self.name}.{argument}"] if argument else ())))

    def repeatable(self, calls: Sequence[ProbeCall]) -> tuple[ProbeCall, ...]:
        """Return some calls that the solution answers alike whenever it is asked, unless the answer may be random."""
        if self.is_off("random") or self.is_off("again"):
            return ()
        return tuple(c for c in (*calls[:REPEATED], *self._crossed(calls)) if same(self.answer(c), self.answer(c)))

    def _crossed(self, calls: Sequence[ProbeCall]) -> Iterator[ProbeCall]:
        """Yield calls with one argument of another, for every argument, if the solution answers them otherwise.

        What an answer remembers of the two, such as a cache by one argument alone, then shows.
        """
        done: set[int | str] = set()
        for one, other in itertools.pairwise(calls):
            if len(one.args) != len(other.args) or one.kwargs.keys() != other.kwargs.keys():
                continue
            for key in (*range(len(one.args)), *one.kwargs):
                crossed = _with(one, {key: _get(other, key)})
                known = [self.answer(one), self.answer(other), None]
                if key not in done and not any(same(self.answer(crossed), x) for x in known):
                    done.add(key)
                    yield crossed

    def answer(self, call: ProbeCall) -> Any:
        """Return the solution's result; None if the solution raises an exception."""
        try:
            return self.recorder.examine(call.name, call.args, call.kwargs, [])["result"]
        except Exception:
            return None

    def add(self, kind: str, target: str, said: str, call: ProbeCall, base: Any, **more: Any) -> bool:
        """Add a probe for the derived call if the solution has a finite result; return whether it was added."""
        if kind not in OPTIONAL:
            self.tried.add((kind, target))
        expected = self.answer(call)
        if expected is None or not finite(expected):
            return False
        if kind == "keywords" and same(expected, base):
            return False  # an answer that ignores this argument would pass, so the probe tests nothing
        self.probes.append(Probe(kind, call, said, expected, target=target, **more))
        return True

    def derive(self, call: ProbeCall) -> None:
        base = self.answer(call)
        if base is None:
            raise RuntimeError(f"{self.exercise.path}: the solution's `{self.name}` fails on a repeated call")
        arguments = dict(_named(self.signature, call))
        self._plain(call, base, arguments)
        for kind in ("nan", "keywords", "size", "values", "float32"):
            if not self.is_off(kind):
                getattr(self, f"_{kind}")(call, base, arguments)
        singles = list(self._singles(call, base, arguments))
        self.probes += [] if self.is_off("single") else singles
        self.num_calls += 1
        if self.num_calls <= AWKWARD_CALLS:
            ones = (_with(call, {key: 1}) for _, key in self._larger_than_one(arguments))
            for one in (call, *(p.call for p in singles[:2]), *ones):
                self._awkward(one)

    def _plain(self, call: ProbeCall, base: Any, arguments: dict[str, tuple[int | str, Any]]) -> None:
        """Add the probes that use the call unchanged: integers and gradients."""
        if not self.is_off("integers") and any(map(is_whole, leaves(base))):
            self.probes.append(Probe("integers", call, "", base))
        if self.is_off("gradient"):
            return
        wrt = [
            (key, name)
            for name, (key, value) in arguments.items()
            if isinstance(value, Tensor) and value.is_floating_point() and not self.is_off("gradient", name)
        ]
        if not wrt or not any(isinstance(x, Tensor) and x.is_floating_point() for x in leaves(base)):
            return
        self.tried.add(("gradient", ""))
        keys = [key for key, _ in wrt]
        moved = self._moved(call, keys)
        try:
            grads, nearby = (self.recorder.examine(c.name, c.args, c.kwargs, keys)["gradients"] for c in (call, moved))
        except RuntimeError:  # the solution is not differentiable
            return
        gradients = []
        for (key, name), grad, near_grad in zip(wrt, grads, nearby, strict=True):
            smooth = ~((grad - near_grad).abs() > 1e-3 * (1 + grad.abs()))  # at a kink, correct gradients may differ
            gradients.append((key, name, grad, smooth))
        self.probes.append(Probe("gradient", call, "", base, gradients=tuple(gradients)))

    def _moved(self, call: ProbeCall, keys: Sequence[int | str]) -> ProbeCall:
        """Return the call with a perturbation of at most 1e-6 added to each differentiated argument."""
        args, kwargs = list(call.args), dict(call.kwargs)
        for key in keys:
            x: Tensor = args[key] if isinstance(key, int) else kwargs[key]
            step = 1e-6 * torch.cos(1.0 + torch.arange(x.numel(), dtype=x.dtype)).reshape(x.shape)
            _put(args, kwargs, key, x + step)
        return replace(call, args=tuple(args), kwargs=kwargs)

    def _keywords(self, call: ProbeCall, base: Any, arguments: dict[str, tuple[int | str, Any]]) -> None:
        for name, parameter in self.signature.parameters.items():
            has_default = parameter.default is not parameter.empty
            key, value = arguments.get(name, (name, parameter.default))
            if isinstance(value, bool | int | float) and not self.is_off("keywords", name):
                num_kept = 0
                other_integers = {v for k, v in arguments.values() if type(v) is int and k != key}
                for variation in _variations(value, has_default or name in STEPS):
                    if type(variation) is int and value not in other_integers and variation in other_integers:
                        continue  # indices that differ may be required to differ
                    description = f"with `{name}` = {show(variation)}"
                    if num_kept < VARIATIONS or variation == 0:
                        num_kept += self.add("keywords", name, description, _with(call, {key: variation}), base)
                if type(value) is int and num_kept and name not in self.long:
                    self._large(call, base, name, key, value)
        ends = [(names, changes) for names, changes in self._ends(call) if names not in self.long]
        for names, changes in ends:
            self._add_stable(names, "", call, changes, base)
        self.long.update(names for names, _ in ends)

    def _large(self, call: ProbeCall, base: Any, name: str, key: int | str, value: int) -> None:
        """Add probes with an integer ten and a hundred times as large, where the solution still answers in time."""
        if value < 2 or not self._in_time(_with(call, {key: value + 1}), _with(call, {key: value + 2})):
            return
        for times in TIMES:
            steps = [value * k for k in (2, 4, 7, 10, 20, 40, 70, 100) if times // 10 < k <= times]
            steps[-1] += value % 2  # odd if it was odd, as the number of votes may have to be
            larger = [_with(call, {key: step}) for step in steps]
            if not self._in_time(*larger):
                return
            if self.add("keywords", name, f"with `{name}` = {steps[-1]}", larger[-1], base, **FAR):
                self.long.add(name)
            for names, changes in self._ends(call):  # where, say, a power of it has not vanished
                self._add_stable(names, f"`{name}` = {steps[-1]} and ", larger[-1], changes, base)

    def _ends(self, call: ProbeCall) -> Iterator[tuple[tuple[str, ...], dict[int | str, float]]]:
        """Yield far smaller, and far larger or in [0, 1] near 1, values of every positive number; then all far smaller."""
        arguments, smaller = dict(_named(self.signature, call)), {}
        for name, parameter in self.signature.parameters.items():
            key, x = arguments.get(name, (name, parameter.default))
            if type(x) is float and x > 0 and not self.is_off("keywords", name):
                smaller[name] = key, x / MIDDLE  # no further, since a series has to end
                yield (name,), {key: x / MIDDLE}
                yield (name,), {key: 1 - (1 - x) / 10 if name in self.unit else x * MIDDLE}
        if len(smaller) > 1:
            yield tuple(smaller), dict(smaller.values())

    def _add_stable(
        self, names: tuple[str, ...], said: str, call: ProbeCall, changes: dict[int | str, float], base: Any
    ) -> None:
        """Add a probe with other numbers, where rounding errors do not decide the solution's answer."""
        noisy, other = (_with(call, {key: by * x for key, x in changes.items()}) for by in (1 + 1e-9, 1.0))
        if self.is_off("scale"):
            return
        said += " and ".join(f"`{name}` = {show(x)}" for name, x in zip(names, changes.values(), strict=True))
        if _agree(self.answer(noisy), self.answer(other), "scale") and self._in_time(other):
            self.add("keywords", names[0], f"with {said}", other, base, **FAR)

    def _in_time(self, *calls: ProbeCall) -> bool:
        """Whether the solution answers these calls, each larger than the one before, and the last one quickly."""
        before = math.inf
        for call in calls:
            start = time.thread_time()
            answer = self.answer(call)
            seconds = time.thread_time() - start
            if answer is None or seconds > QUICK or seconds > 20 * before + QUICK / 10:
                return False
            before = seconds
        return True

    def _size(self, call: ProbeCall, base: Any, arguments: dict[str, tuple[int | str, Any]]) -> None:
        values = [value for _, value in arguments.values()]
        for n in sorted({size for value in values for size in axes(value)}):
            num_kept = 0
            for m, end in ((n + 1, ""), (n + 1, "on"), (n + 1, "back"), (2 * n, "")):
                if m == n + 1 or not num_kept:  # 2n only if n + 1 gives no probe
                    stretched = {key: stretch(value, n, m, end) for key, value in arguments.values()}
                    description = f"where {m} stands for {n} in its inputs' sizes"
                    num_kept += self.add("size", "", description, _with(call, stretched), base)
            self._longer(call, base, n)
            smaller = self._resized(call, n, n - 1) if n > 2 and not self.is_off("single") else None
            if smaller:
                self.add("size", "", f"where {n - 1} stands for {n} in its inputs' sizes", smaller, base)

    def _longer(self, call: ProbeCall, base: Any, n: int) -> None:
        """Add a probe in which an axis is as long as in practice, once for each size, where the solution is in time."""
        keys = (*range(len(call.args)), *call.kwargs)
        m, one = n, call
        while m < LONG and n not in self.long:
            m *= 2
            one = _with(call, {key: stretch(_get(call, key), n, m) for key in keys})
            is_large = any(x.numel() > LONG * 32 for key in keys for x in tensors(_get(one, key)))
            if is_large or not self._in_time(one):
                return
        said = f"where {m} stands for {n} in its inputs' sizes"
        if m > n and self.add("size", "", said, one, base):
            self.long.add(n)
            for name, (key, value) in _named(self.signature, one):
                if type(value) is int and value > 1 and not self.is_off("keywords", name):
                    larger = _with(one, {key: 10 * value})  # of so many entries it may take more
                    if self._in_time(larger):
                        self.add("size", "", f"{said}, and `{name}` = {10 * value}", larger, base)

    def _singles(self, call: ProbeCall, base: Any, arguments: dict[str, tuple[int | str, Any]]) -> Iterator[Probe]:
        """Yield the probes with a batch of one, or a small one, that the solution answers."""
        tolerance = math.inf if self.is_off("values") else TOLERANCE  # results that may be random have a shape only
        cut = () if self.is_off("size") else self._cut(call, [value for _, value in arguments.values()])
        for said, one in (*self._entries(call, base, arguments), *cut):
            want = self.answer(one)
            if want is not None and finite(want):
                yield Probe("single", one, said, want, tolerance)
        for name, key in self._larger_than_one(arguments):
            if not self.is_off("keywords", name):
                one = _with(call, {key: 1})
                want = self.answer(one)
                is_size = shapes(want) != shapes(base) and any(1 in shape for shape in shapes(want))
                if is_size and finite(want):
                    yield Probe("single", one, f"with `{name}` = 1", want, tolerance)

    def _larger_than_one(self, arguments: dict[str, tuple[int | str, Any]]) -> list[tuple[str, int | str]]:
        """Return the names and keys of integers that may become 1: beside another 1, indices may be required to differ."""
        numbers = {name: (key, value) for name, (key, value) in arguments.items() if type(value) is int}
        if any(value == 1 for _, value in numbers.values()):
            return []
        return [(name, key) for name, (key, value) in numbers.items() if value > 1]

    def _entries(
        self, call: ProbeCall, base: Any, arguments: dict[str, tuple[int | str, Any]]
    ) -> Iterator[tuple[str, ProbeCall]]:
        """Yield one entry of a first axis alone, if the solution then answers with this entry of its result.

        Where values are off the result may be random. Then only the shapes are compared, also those of two entries, since
        one alone may be broadcast.
        """
        for n in sorted({size for _, value in arguments.values() for size in first_sizes(value)}):

            def part(places: Sequence[int], tolerance: float, n: int = n) -> ProbeCall | None:
                cut = _with(call, {k: select(v, n, places, first_axis=True) for k, v in arguments.values()})
                answer, right = self.answer(cut), select(base, n, places, first_axis=True)
                is_part = answer is not None and shapes(right) != shapes(base) and same(answer, right, tolerance)
                return cut if is_part else None

            singles = [part([i], TOLERANCE) for i in (0, 1, n - 1)]
            if not all(singles) and self.is_off("values") and n > 2 and part([0, 1], math.inf):
                singles = [part([i], math.inf) for i in (0, 1, n - 1)]
            if all(singles):
                yield from (
                    (f"for entry {i} of {n} alone", one) for i, one in ((0, singles[0]), (n - 1, singles[2])) if one
                )

    def _cut(self, call: ProbeCall, values: Sequence[Any]) -> Iterator[tuple[str, ProbeCall]]:
        """Yield axes of size 1 and 2, and of the size of one group, where the solution takes other sizes at all."""
        keys = (*range(len(call.args)), *call.kwargs)
        for n in sorted({size for value in values for size in axes(value)}):
            if self.answer(_with(call, {key: stretch(_get(call, key), n, n + 1) for key in keys})) is None:
                continue
            groups = {v for v in values if type(v) is int and 1 < v < n and n % v == 0}
            for m in sorted({1, 2, *groups} - {n}):
                one = self._resized(call, n, m)
                if one and not self._meets_nan(one):
                    yield f"where {m} stands for {n} in its inputs' sizes", one

    def _meets_nan(self, call: ProbeCall) -> bool:
        """Whether a step of the solution is NaN, as the deviation of one number is: there no answer need be right."""
        steps = _Steps()
        with steps:
            self.answer(call)
        return steps.have_nan

    def _resized(self, call: ProbeCall, n: int, m: int) -> ProbeCall | None:
        """Return the call with ``m`` entries for ``n``; None if an integer may be an index or a length, or a row is lost.

        An integer may be ``m`` itself if it divides ``n``, as the size of a group does.
        """
        keys = (*range(len(call.args)), *call.kwargs)
        before = [_get(call, key) for key in keys]
        sizes = {m} & {v for v in before if type(v) is int and v > 0 and n % v == 0} if m > 1 else set()
        bound = [not (type(v) is int and self._is_free(call, key, n)) for key, v in zip(keys, before, strict=True)]
        for start in range(max(n - m, 0) + 1 if m > 1 else 1):
            after = [resize(value, n, m, start) for value in before]
            may_point = (integers(list(itertools.compress(after, bound))) - sizes) & set(range(min(m, n), n + 1))
            if not may_point and (has_empty_row(before) or not has_empty_row(after)):
                return _with(call, dict(zip(keys, after, strict=True)))
        return None

    def _is_free(self, call: ProbeCall, key: int | str, n: int) -> bool:
        """Whether an integer is no index or length in an axis of size ``n``: beyond it, too, each value has its result."""
        beyond = [self.answer(_with(call, {key: n + more})) for more in (2, 3)]
        return None not in beyond and not same(beyond[0], beyond[1])

    def _awkward(self, call: ProbeCall) -> None:
        """Add the probes of equal, of nearly equal, and of larger and smaller numbers."""
        for name, (key, value) in dict(_named(self.signature, call)).items():
            if self.is_off("values") or self.is_off("values", name):
                continue  # it may not hold other numbers
            for kind in AWKWARD:
                if not (self.is_off(kind) or self.is_off(kind, name)):
                    for said, other in getattr(self, f"_{kind}")(call, name, key, value):
                        self._add_once(kind, name, said, other)

    def _add_once(self, kind: str, name: str, said: str, call: ProbeCall) -> None:
        earlier = [(p.call.args, p.call.kwargs) for p in self.probes if p.kind == kind]
        if not any(same(inputs, (call.args, call.kwargs)) for inputs in earlier):
            tolerance, floor = PRECISION[kind]
            self.add(kind, name, said, call, None, tolerance=tolerance, floor=floor)

    def _ties(self, call: ProbeCall, name: str, key: int | str, value: Any) -> Iterator[tuple[str, ProbeCall]]:
        sized = [] if self.is_off("size") else [self._resized(call, n, m) for n in set(axes(value)) for m in GROUPS]
        for all_rows, one in ((True, call), (False, call), *((True, one) for one in sized if one)):
            given = _get(one, key)
            tied = awkward.replaced(given, functools.partial(awkward.equal, all_rows=all_rows))
            if not same(tied, given) and self._answers_ties(one, key, tied):
                yield f"with equal numbers in `{name}`", _with(one, {key: tied})

    def _answers_ties(self, call: ProbeCall, key: int | str, tied: Any) -> bool:
        """Whether the solution does not choose one of several equal numbers, since another choice may be right as well.

        One of them is made a little larger, then a little smaller. What stays with the one change and not with the other
        is a choice.
        """

        def answers(change: awkward.Change) -> Any:
            return self.answer(_with(call, {key: awkward.replaced(tied, change)}))

        right = answers(lambda x: x)
        if not all(
            _agree(answers(functools.partial(torch.mul, other=1 + k * 2.0**-52)), right, "ties") for k in NEARBY
        ):
            return False  # no answer, or one that is made of rounding errors
        for index in (0, -1):
            larger, smaller = (answers(functools.partial(awkward.bumped, index=index, by=by)) for by in (BUMP, -BUMP))
            if _moved(larger, right) != _moved(smaller, right):
                return False
        return True

    def _gaps(self, call: ProbeCall, name: str, key: int | str, value: Any) -> Iterator[tuple[str, ProbeCall]]:
        changes = [functools.partial(awkward.equal, all_rows=all_rows) for all_rows in (True, False)]
        cases: list[tuple[str, Any, Any]] = [(f"with small differences in `{name}`", value, c) for c in changes]
        for other, (_, x) in _named(self.signature, call):
            if other != name and awkward.are_of_a_kind(x, value):
                cases.append((f"with small differences between `{name}` and `{other}`", x, awkward.near))
        for said, start, change in cases:
            close, noisy = (
                _with(call, {key: awkward.replaced(start, functools.partial(change, gap=gap))})
                for gap in (GAP, GAP * (1 + 1e-9))
            )
            if not same(_get(close, key), start) and _agree(self.answer(noisy), self.answer(close), "gaps"):
                yield said, close

    def _scale(self, call: ProbeCall, name: str, key: int | str, value: Any) -> Iterator[tuple[str, ProbeCall]]:
        least, largest = self.exercise.range_of(self.name, name)
        sizes = (least,) if name in self.unit else (least, min(MIDDLE, largest), largest)
        changes: list[tuple[str, awkward.Change]] = [
            (f"with numbers up to {size:g} in `{name}`", functools.partial(awkward.reaching, size=size))
            for size in sizes
        ]
        if name in self.unit:
            said = f"with a probability near {least**2:g} in `{name}`"
            for order in (1, -1):  # the rarest entry may be one that does not matter
                changes.append((said, functools.partial(awkward.sharpened, smallest=least**2, order=order)))
            changes.append((f"with numbers near 1 in `{name}`", functools.partial(awkward.near_one, distance=least)))
        for said, change in changes:
            if other := self._changed(call, key, value, "scale", change):
                yield said, other

    def _changed(
        self, call: ProbeCall, key: int | str, value: Any, kind: str, change: awkward.Change
    ) -> ProbeCall | None:
        """Return the call with changed numbers; None if rounding errors in them decide the solution's answer."""

        def changed(by: float) -> ProbeCall:
            return _with(call, {key: awkward.replaced(value, lambda x: change(awkward.noisy(x, by)))})

        other, noisy = changed(0.0), changed(1e-9)
        is_other = not same(_get(other, key), value)
        return other if is_other and _agree(self.answer(noisy), self.answer(other), kind) else None

    def _offset(self, call: ProbeCall, name: str, key: int | str, value: Any) -> Iterator[tuple[str, ProbeCall]]:
        """Yield the call with a large number added to one argument, or to two, where the answer stays the same."""
        if isinstance(value, float):
            return  # a number alone may not matter for these inputs
        base, arguments = self.answer(call), dict(_named(self.signature, call))
        for other, (other_key, x) in arguments.items():
            if any(self.is_off(kind, n) for kind in ("values", "offset") for n in (name, other)) or other in self.unit:
                continue
            shifted = _with(call, {k: _shifted(v) for k, v in ((key, value), (other_key, x))})
            is_other = not any(same(_get(shifted, k), _get(call, k)) for k in (key, other_key))
            answer = self.answer(shifted) if is_other and name not in self.unit else None
            if answer is not None and same(answer, base, 1e-5, 1e-2):
                where = f"`{name}`" if other == name else f"`{name}` and `{other}`"
                yield f"with {OFFSET:,.0f} added in {where}", shifted

    def _values(self, call: ProbeCall, base: Any, arguments: dict[str, tuple[int | str, Any]]) -> None:
        for name, (key, value) in arguments.items():
            if name not in self.fractions and not self.is_off("values", name) and has_whole_floats(value):
                fractional = mapped(value, lambda x: 0.7 * x + 0.15 if holds_whole_floats(x) else x)
                self.add("values", name, f"with fractions in `{name}`", _with(call, {key: fractional}), base)

    def _float32(self, call: ProbeCall, base: Any, arguments: dict[str, tuple[int | str, Any]]) -> None:
        def to_float32(x: Tensor) -> Tensor:
            return x.float() if x.dtype == torch.float64 else x

        narrowed = {key: mapped(value, to_float32) for key, value in arguments.values()}
        if not any(x.dtype == torch.float64 for _, v in arguments.values() for x in tensors(v)):
            return
        widened = {
            key: mapped(value, lambda x: x.double() if x.dtype == torch.float32 else x)
            for key, value in narrowed.items()
        }
        exact, rounded = self.answer(_with(call, widened)), self.answer(_with(call, narrowed))
        self.tried.add(("float32", ""))
        if exact is None or rounded is None or not finite(exact) or not same(rounded, exact, FLOAT32_TOLERANCE / 4):
            return  # the solution itself is inaccurate in float32, because the problem is ill-conditioned
        probe = Probe("float32", _with(call, narrowed), "in float32", exact, tolerance=FLOAT32_TOLERANCE)
        self.probes.append(probe)

    def _nan(self, call: ProbeCall, base: Any, arguments: dict[str, tuple[int | str, Any]]) -> None:
        for name, (_, mask) in arguments.items():
            is_mask_name = "mask" in name or "valid" in name
            if not (is_mask_name and isinstance(mask, Tensor) and mask.dtype == torch.bool and not bool(mask.all())):
                continue
            poisoned, poisoned_names = {}, []
            for other, (key, x) in arguments.items():
                matches_mask = isinstance(x, Tensor) and x.is_floating_point() and x.shape[: mask.dim()] == mask.shape
                if matches_mask and not self.is_off("nan", other):
                    masked_out = ~mask.reshape(*mask.shape, *[1] * (x.dim() - mask.dim()))
                    poisoned[key] = x.masked_fill(masked_out, torch.nan)
                    poisoned_names.append(f"`{other}`")
            if poisoned and not self.is_off("nan", name):
                description = f"with NaN in {' and '.join(poisoned_names)} where `{name}` is False"
                self.add("nan", name, description, _with(call, poisoned), base)


class _Steps(TorchFunctionMode):
    """Watches for NaN in the results of all operations on tensors."""

    have_nan = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.have_nan |= any(bool(x.isnan().any()) for x in tensors(out) if x.is_floating_point())
        return out


def _named(signature: inspect.Signature, call: ProbeCall) -> Iterator[tuple[str, tuple[int | str, Any]]]:
    """Yield the call's arguments by name, each with its key (position or keyword) and value."""
    for i, (name, value) in enumerate(zip(signature.parameters, call.args, strict=False)):
        yield name, (i, value)
    for name, value in call.kwargs.items():
        yield name, (name, value)


def _get(call: ProbeCall, key: int | str) -> Any:
    return call.args[key] if isinstance(key, int) else call.kwargs[key]


def _shifted(value: Any) -> Any:
    if isinstance(value, float):
        return value + OFFSET
    return awkward.replaced(value, functools.partial(awkward.shifted, by=OFFSET))


def _agree(noisy: Any, answer: Any, kind: str) -> bool:
    """Whether the solution has an answer that rounding errors in its inputs do not change."""
    tolerance, floor = PRECISION[kind]
    return answer is not None and noisy is not None and same(noisy, answer, tolerance / 5, floor)


def _moved(answer: Any, right: Any) -> list[bool] | None:
    """Return for every entry of ``right`` whether it is another one in ``answer``; None if its form is another one."""
    pairs = list(zip(leaves(answer), leaves(right), strict=False))
    if len(pairs) < max(len(list(leaves(answer))), len(list(leaves(right)))):
        return None
    flags: list[bool] = []
    for a, b in pairs:
        x, y = (torch.as_tensor(v) if isinstance(v, Tensor | int | float) else v for v in (a, b))
        if not isinstance(x, Tensor) or not isinstance(y, Tensor):
            flags.append(bool(x != y))
        elif x.shape != y.shape:
            return None
        else:
            near = (x.double() - y.double()).abs() <= 1e3 * BUMP * y.double().abs().clamp(min=1)
            flags += (~(near | (x == y))).flatten().tolist()
    return flags


def _put(args: list[Any], kwargs: dict[str, Any], key: int | str, value: Any) -> None:
    if isinstance(key, int):
        args[key] = value
    else:
        kwargs[key] = value


def _with(call: ProbeCall, changes: dict[int | str, Any]) -> ProbeCall:
    args, kwargs = list(call.args), dict(call.kwargs)
    for key, value in changes.items():
        _put(args, kwargs, key, value)
    return replace(call, args=tuple(args), kwargs=kwargs)


def _variations(value: bool | int | float, may_vanish: bool) -> list[bool | int | float]:
    """Return other values of a number; values for which the solution has no finite result are dropped later."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, *([value - 1] if value > 1 else ()), value + 2]
    if value == 0:
        return [0.35]
    upward = value + 0.3 * (1 - value) if 0 < value < 1 else 1.7 * value if value != 1 else 0.8
    return [0.6 * value, upward, 0.1 * value, *([0.0] if may_vanish else ())]
