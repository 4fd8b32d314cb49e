"""Automatic tests of every graded function, called probes, which no author has to write.

The tests of an exercise run once on its own solution, and their calls are recorded. Each call yields *probes*, whose
results are compared with the solution's: other sizes, float32, each number varied, NaN where the mask is False,
fractions where a test used whole numbers, gradients, and integer dtypes. A function is probed when all tests that call
it have passed. If a probe fails, the last of these tests fails.

No call, of a test, a training or a probe, may change its inputs, or draw from or seed the global generators of random
numbers (:mod:`minirlhf_course.classroom.side_effects`). This needs no solution; that of the inputs is never off.

A block ``[probes]`` of the source switches off the probes that an exercise does not need, with a reason::

    # %% [probes]
    # no gradient: a formula's value is asked for, in whatever library
    # no size, float32 of solve: all values within `error` are right
    # no gradient of loss.returns: data
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from minirlhf_course.classroom import worker
from minirlhf_course.classroom.exercise import Exercise
from minirlhf_course.classroom.nested import (
    axes,
    copied,
    finite,
    has_whole_floats,
    holds_whole_floats,
    is_whole,
    leaves,
    mapped,
    same,
    stretch,
    tensors,
)
from minirlhf_course.classroom.runner import Local
from minirlhf_course.classroom.side_by_side import Beside, solution
from minirlhf_course.classroom.testing import Asked, Failure, Submission, expect, show
from minirlhf_course.ledger.registry import Draw

ORDER = (
    "inputs",
    "random",
    "integers",
    "nan",
    "keywords",
    "size",
    "values",
    "float32",
    "gradient",
)  # as shown to a learner
FEW = 3  # minimum calls of a function; if there are fewer, its tests run on further inputs
CALLS = 5  # calls per function that yield probes: the first call of each test, then others
MOST = 12  # maximum runs of a test while the function's result is constant: a wrong answer may be this constant
VARIATIONS = 2  # variations per number that change the result; 0 is added if the argument has a default
TOLERANCE = 1e-4
FLOAT32_TOLERANCE = 2e-3

HINTS = {
    "inputs": (
        "Whoever calls your function still needs what was handed to it. Which line writes into an argument?",
        "`x[…] = …`, `x += …` and methods that end in `_` write into the tensor itself. Work on `x.clone()`, or make a new tensor.",
    ),
    "random": (
        "Others draw random numbers, too. Which line seeds, or draws from, a generator that everybody shares?",
        "Make a `torch.Generator` of your own and pass it on, `generator=rng`; `torch.manual_seed`, `numpy.random.…` and `random.…` change what others draw.",
    ),
    "integers": (
        "What is counted or used as an index is an integer, and True or False is a bool. What dtype does your answer have?",
        "Convert at the end with `.long()`, `.bool()` or `int(…)`, or do not leave the integers in the first place.",
    ),
    "keywords": (
        "One of the arguments takes another value here. Is it used, everywhere it should be?",
        "Look for a number in your code that stands where the argument of this name belongs.",
    ),
    "size": (
        "The same function, on inputs of another size. Which number in your code is a size?",
        "Take sizes from the inputs, `x.shape`, and reduce over axes by their position, not by how long they were.",
    ),
    "values": (
        "The tests before used whole numbers only. Does your code rely on it?",
        "Compare numbers with each other, not with 0 and 1.",
    ),
    "float32": (
        "Models compute in float32. Which tensor in your code has a dtype of its own?",
        "Give new tensors the dtype of the input: `torch.zeros_like(x)`, `x.new_tensor(…)`, `dtype=x.dtype`.",
    ),
    "nan": (
        "What stands behind the mask means nothing, so it may be NaN. What is 0 · NaN?",
        "Do not multiply by a mask. `torch.where(mask, x, 0.0)` drops what is behind it, whatever it is.",
    ),
    "gradient": (
        "An optimiser will differentiate this. Follow each input to the result: is there a place where its gradient is cut, or should be?",
        "`.detach()`, `.item()`, `float(…)`, `torch.tensor(…)`, NumPy and `no_grad` cut a gradient; what is data should be cut off, what is learned must not be.",
    ),
}

ASKS = {
    "inputs": "what is handed to a function stays as it is.",
    "random": "the global random numbers of torch, NumPy and Python stay as they are.",
    "integers": "integers and bools come back as such.",
    "keywords": "another value of an argument.",
    "size": "inputs of another size.",
    "values": "inputs that are no whole numbers.",
    "float32": "inputs in float32.",
    "nan": "NaN behind the mask.",
    "gradient": "the gradient of the answer.",
}


class Probed(Failure):
    """A probe failed. ``kind`` is the kind of the probe; its hints are ``HINTS[kind]``."""

    def __init__(self, kind: str, message: str, lines: tuple[str, ...] = (), **facts: Any) -> None:
        super().__init__(message, lines, **facts)
        self.kind = kind
        self.named = (f"{kind} (found by the machine)",)


@dataclass(frozen=True, eq=False)
class ProbeCall:
    """One call of a function: recorded from a test, or derived from a recorded call."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    test: str = ""
    parameters: tuple[str, ...] = ()  # names of the function's parameters, by position

    def label(self, key: int | str) -> str:
        """Return an argument's name for the learner."""
        if isinstance(key, str):
            return key
        return self.parameters[key] if key < len(self.parameters) else f"argument {key + 1}"


@dataclass(frozen=True)
class Probe:
    """A call, the solution's result, and the solution's gradients."""

    kind: str
    call: ProbeCall
    said: str  # how the call differs from the recorded one: "with epsilon = 0.32"
    want: Any = None
    tolerance: float = TOLERANCE
    target: str = ""  # the argument that is varied
    gradients: tuple[tuple[int | str, str, Tensor, Tensor], ...] = ()  # (key, name, gradient, where it is smooth)


@dataclass(frozen=True)
class ProbePlan:
    """All probes of one exercise and seed. ``unusable``: (kind, function, argument) without a solution's result."""

    by_function: dict[str, tuple[Probe, ...]] = field(default_factory=dict)
    called_by: dict[str, tuple[str, ...]] = field(default_factory=dict)  # function -> names of the tests that call it
    calls: dict[str, tuple[ProbeCall, ...]] = field(
        default_factory=dict
    )  # function -> the calls that its probes come from
    unusable: tuple[tuple[str, str, str], ...] = ()


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
    exercise = key.exercise
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
        unusable += derivation.unusable()
    return ProbePlan(probes_by_function, called_by, calls, tuple(unusable))


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
        self.probes: list[Probe] = []
        self.tried: set[tuple[str, str]] = set()

    def unusable(self) -> list[tuple[str, str, str]]:
        """Return the (kind, function, argument) that were tried but gave no probe for any call."""
        usable = {(p.kind, p.target) for p in self.probes}
        return [(kind, self.name, target) for kind, target in sorted(self.tried - usable)]

    def is_off(self, kind: str, argument: str = "") -> bool:
        targets = self.exercise.off.get(kind, {})
        return any(t in targets for t in ("", self.name, *([f"{self.name}.{argument}"] if argument else ())))

    def answer(self, call: ProbeCall) -> Any:
        """Return the solution's result; None if the solution raises an exception."""
        try:
            return self.recorder.examine(call.name, call.args, call.kwargs, [])["result"]
        except Exception:
            return None

    def add(self, kind: str, target: str, said: str, call: ProbeCall, base: Any, **more: Any) -> bool:
        """Add a probe for the derived call if the solution has a finite result; return whether it was added."""
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
                for variation in _variations(value, has_default):
                    if type(variation) is int and value not in other_integers and variation in other_integers:
                        continue  # indices that differ may be required to differ
                    description = f"with `{name}` = {show(variation)}"
                    if num_kept < VARIATIONS or variation == 0:
                        num_kept += self.add("keywords", name, description, _with(call, {key: variation}), base)

    def _size(self, call: ProbeCall, base: Any, arguments: dict[str, tuple[int | str, Any]]) -> None:
        values = [value for _, value in arguments.values()]
        for n in sorted({size for value in values for size in axes(value)}):
            num_kept = 0
            for m, end in ((n + 1, ""), (n + 1, "on"), (n + 1, "back"), (2 * n, "")):
                if m == n + 1 or not num_kept:  # 2n only if n + 1 gives no probe
                    stretched = {key: stretch(value, n, m, end) for key, value in arguments.values()}
                    description = f"where {m} stands for {n} in its inputs' sizes"
                    num_kept += self.add("size", "", description, _with(call, stretched), base)

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


def _named(signature: inspect.Signature, call: ProbeCall) -> Iterator[tuple[str, tuple[int | str, Any]]]:
    """Yield the call's arguments by name, each with its key (position or keyword) and value."""
    for i, (name, value) in enumerate(zip(signature.parameters, call.args, strict=False)):
        yield name, (i, value)
    for name, value in call.kwargs.items():
        yield name, (name, value)


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


def _variations(value: bool | int | float, has_default: bool) -> list[bool | int | float]:
    """Return other values of a number; values for which the solution has no finite result are dropped later."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, *([value - 1] if value > 1 else ()), value + 2]
    if value == 0:
        return [0.35]
    upward = value + 0.3 * (1 - value) if 0 < value < 1 else 1.7 * value if value != 1 else 0.8
    return [0.6 * value, upward, 0.1 * value, *([0.0] if has_default else ())]


# -- running probes ----------------------------------------------------------------------------------------------


def ask_all(exercise: Exercise, name: str, plan: ProbePlan, submission: Submission) -> None:
    """Run all probes of one function on a submission whose tests have run.

    Raises:
        Probed: a result is wrong, or a call has had a side effect.
    """
    _untouched(exercise, name, submission)
    for probe in plan.by_function.get(name, ()):
        ask(probe, submission)
    _untouched(exercise, name, submission)


def _untouched(exercise: Exercise, name: str, submission: Submission) -> None:
    """Check that no call of a function so far has changed its inputs or the global random numbers."""
    noted = submission.effects().get(name, {})
    changed, drawn = noted.get("inputs"), noted.get("random")
    if changed:
        lines = (f"before: {show(changed['before'])}", f"after:  {show(changed['after'])}")
        raise Probed("inputs", f"`{name}` has changed its `{changed['argument']}`, which belongs to the caller", lines)
    if drawn and not {"", name} & set(exercise.off.get("random", {})):
        message = f"`{name}` draws from, or seeds, the random numbers of {drawn['library']} that everybody shares"
        raise Probed("random", message, value=drawn["library"])


def ask(probe: Probe, submission: Submission) -> None:
    """Run one probe on a submission.

    Raises:
        Probed: the submission's result is wrong; the failure holds the counterexample.
    """
    call, wrt = probe.call, [key for key, *_ in probe.gradients]
    arguments: dict[Any, Any] = {**dict(enumerate(call.args)), **call.kwargs}
    lines = tuple(f"{call.label(key)} = {show(value)}" for key, value in arguments.items())
    label = f"`{call.name}`{f' {probe.said}' if probe.said else ''}"
    try:
        answer = submission.examine(call.name, call.args, call.kwargs, wrt)
    except Failure as problem:
        if type(problem) is not Failure:  # for example, the process has ended, which is not a failed probe
            raise
        raise Probed(probe.kind, f"{label}: {problem.message}", lines, **problem.facts) from problem
    if not (isinstance(answer, dict) and {"result", "gradients"} <= answer.keys()):
        raise Probed(probe.kind, f"{label}: the answer is no plain data", lines)
    if probe.kind == "integers":
        _whole(probe, answer["result"], label, lines)
    elif probe.kind == "gradient":
        _gradients(probe, answer["gradients"], lines)
    else:
        _compare(probe.kind, answer["result"], probe.want, f"the result of {label}", lines, probe.tolerance)


def _whole(probe: Probe, got: Any, label: str, lines: tuple[str, ...]) -> None:
    for leaf, target in zip(leaves(got), leaves(probe.want), strict=False):
        if is_whole(target) and isinstance(leaf, Tensor | int | float) and not is_whole(leaf):
            kind = str(leaf.dtype).removeprefix("torch.") if isinstance(leaf, Tensor) else "float"
            types = "bools" if isinstance(target, bool) or getattr(target, "dtype", None) == torch.bool else "integers"
            raise Probed(
                "integers", f"{label} answers in {kind}; {types} are asked for", (*lines, f"yours: {show(got)}")
            )


def _compare(kind: str, actual: Any, expected: Any, what: str, lines: tuple[str, ...], tolerance: float) -> None:
    if isinstance(expected, list | tuple):
        if not isinstance(actual, list | tuple) or len(actual) != len(expected):
            raise Probed(kind, f"{what} is {show(actual)}; expected {len(expected)} entries", lines)
        for i, (actual_entry, expected_entry) in enumerate(zip(actual, expected, strict=True)):
            _compare(kind, actual_entry, expected_entry, f"entry {i} of {what}", lines, tolerance)
    elif isinstance(expected, dict):
        if not isinstance(actual, dict) or actual.keys() != expected.keys():
            raise Probed(kind, f"{what} is no dictionary with the names {sorted(map(str, expected))}", lines)
        for key, expected_entry in expected.items():
            _compare(kind, actual[key], expected_entry, f"{key!r} in {what}", lines, tolerance)
    elif isinstance(expected, Tensor | int | float):
        try:
            expect(actual, expected, what=what, tolerance=tolerance)
        except Failure as problem:
            raise Probed(kind, problem.message, (*lines, *problem.lines), **problem.facts) from problem
    elif actual != expected:
        raise Probed(kind, f"{what} is wrong", (*lines, f"yours: {show(actual)}"))


def _gradients(probe: Probe, got: Any, inputs: tuple[str, ...]) -> None:
    gradients = got if isinstance(got, list | tuple) else ()
    for (_, name, expected, smooth), gradient in zip(probe.gradients, gradients, strict=False):
        if not isinstance(gradient, Tensor) or gradient.shape != expected.shape:
            raise Probed("gradient", f"`{probe.call.name}` has no gradient in `{name}`", inputs)
        compared = smooth & ~expected.isnan()
        a, b = torch.where(compared, gradient.double(), 0.0), torch.where(compared, expected.double(), 0.0)
        if same(a, b, TOLERANCE):
            continue
        lines = (*inputs, f"your gradient in {name}:     {show(a)}", f"expected: {show(b)}")
        if not bool((a != 0).any()):
            raise Probed("gradient", f"no gradient of `{probe.call.name}` reaches `{name}`", lines)
        if not bool((b != 0).any()):
            raise Probed("gradient", f"a gradient of `{probe.call.name}` flows into `{name}`, and none should", lines)
        raise Probed("gradient", f"the gradient of `{probe.call.name}` in `{name}` is wrong", lines)
