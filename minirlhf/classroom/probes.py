"""What the machine asks of every graded function, unasked: seven questions that no author has to write.

The tests of an exercise are run once on its own solution, and the calls that they make are kept. From each call follow
*probes*, held against the solution: other sizes, float32, each number varied, NaN behind the mask, fractions where a test
used whole numbers, gradients, integers that are integers; and no probe may come back with its inputs changed. A function
is probed when all tests that call it have passed; the last of them fails if a probe does.

A block ``[probes]`` of the source switches off what an exercise does not ask for, with a reason::

    # %% [probes]
    # no gradient: a formula's value is asked for, in whatever library
    # no size, float32 of solve: all values within `error` are right
    # no gradient of loss.returns: data
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from minirlhf.classroom import worker
from minirlhf.classroom.exercise import Exercise
from minirlhf.classroom.nested import (
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
from minirlhf.classroom.side_by_side import Beside, solution
from minirlhf.classroom.testing import Asked, Failure, Submission, expect, show
from minirlhf.ledger.registry import Draw

ORDER = ("inputs", "integers", "nan", "keywords", "size", "values", "float32", "gradient")  # as a learner meets them
FEW = 3  # calls of a function; its tests are run on further inputs where they make fewer
CALLS = 5  # per function: the first one of each test, then others
MOST = 12  # runs of a test for a function that has said the same to all: a wrong answer may be this constant
VARIATIONS = 2  # of a number, of those that change the answer; and zero where it has a default
TOLERANCE = 1e-4
FLOAT32_TOLERANCE = 2e-3

HINTS = {
    "inputs": (
        "Whoever calls your function still needs what was handed to it. Which line writes into an argument?",
        "`x[…] = …`, `x += …` and methods that end in `_` write into the tensor itself. Work on `x.clone()`, or make a new tensor.",
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
    "integers": "integers and bools come back as such.",
    "keywords": "another value of an argument.",
    "size": "inputs of another size.",
    "values": "inputs that are no whole numbers.",
    "float32": "inputs in float32.",
    "nan": "NaN behind the mask.",
    "gradient": "the gradient of the answer.",
}


class Probed(Failure):
    """A failed probe. ``kind`` is which; its hints are ``HINTS[kind]``."""

    def __init__(self, kind: str, message: str, lines: tuple[str, ...] = (), **facts: Any) -> None:
        super().__init__(message, lines, **facts)
        self.kind = kind
        self.named = (f"{kind} (found by the machine)",)


@dataclass(frozen=True, eq=False)
class ProbeCall:
    """One question to a function: a test's own, or one derived from it."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    test: str = ""
    parameters: tuple[str, ...] = ()  # the function's, by position

    def label(self, key: int | str) -> str:
        """What the learner calls an argument."""
        if isinstance(key, str):
            return key
        return self.parameters[key] if key < len(self.parameters) else f"argument {key + 1}"


@dataclass(frozen=True)
class Probe:
    """A call, what the solution answers, and which gradients it has."""

    kind: str
    call: ProbeCall
    said: str  # what is unusual about it: "with epsilon = 0.32"
    want: Any = None
    tolerance: float = TOLERANCE
    target: str = ""  # the argument that is varied
    gradients: tuple[tuple[int | str, str, Tensor, Tensor], ...] = ()  # (key, name, right one, where it is smooth)


@dataclass(frozen=True)
class ProbePlan:
    """All probes of one exercise for one seed. ``unusable``: (kind, function, argument) on which the solution has no answer."""

    by_function: dict[str, tuple[Probe, ...]] = field(default_factory=dict)
    called_by: dict[str, tuple[str, ...]] = field(default_factory=dict)  # function -> names of the tests that call it
    calls: dict[str, tuple[ProbeCall, ...]] = field(
        default_factory=dict
    )  # function -> the calls that its probes come from
    unusable: tuple[tuple[str, str, str], ...] = ()


class Recorder:
    """The solution as a submission that remembers what it was asked."""

    def __init__(self, namespace: dict[str, Any], student: str) -> None:
        self.namespace, self.student = namespace, student
        self.calls: list[ProbeCall] = []
        self.answers: dict[ProbeCall, Any] = {}
        self.test = ""

    def _asked(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], Any]:
        parameters = tuple(inspect.signature(self.namespace[name]).parameters)
        self.calls.append(ProbeCall(name, copied(args), copied(kwargs), self.test, parameters))
        return copied(args), copied(kwargs)

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """As in :class:`minirlhf.classroom.testing.Submission`."""
        args, kwargs = self._asked(name, args, kwargs)
        answer = copied(self.namespace[name](*args, **kwargs))
        self.answers[self.calls[-1]] = copied(answer)
        return answer

    def differing(self, calls: Sequence[ProbeCall], among: Sequence[ProbeCall]) -> list[ProbeCall]:
        """Which calls ``among`` others have another answer than all of ``calls``, if these have one in common; else none."""
        told = [self.answers[c] for c in calls if c in self.answers]
        if not told or not all(same(answer, told[0]) for answer in told):
            return []
        return [c for c in among if c in self.answers and not same(self.answers[c], told[0])]

    def is_constant(self, name: str) -> bool:
        """Whether the function has been called, and has answered the same each time."""
        told = [answer for call, answer in self.answers.items() if call.name == name]
        return bool(told) and all(same(answer, told[0]) for answer in told)

    def gradient(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], wrt: int) -> Any:
        """As in :class:`minirlhf.classroom.testing.Submission`."""
        args, kwargs = self._asked(name, args, kwargs)
        return worker.gradient(self.namespace[name], args, kwargs, wrt)

    def examine(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], wrt: list[int | str]) -> Any:
        """As in :class:`minirlhf.classroom.testing.Submission`."""
        return worker.examine(self.namespace[name], copied(args), copied(kwargs), wrt)

    def value(self, name: str) -> Any:
        """As in :class:`minirlhf.classroom.testing.Submission`."""
        return copied(self.namespace[name])


# -- the plan ----------------------------------------------------------------------------------------------------

_lock = threading.Lock()


def plan(exercise: Exercise, seed: int, student: str) -> ProbePlan:
    """The probes of an exercise; those of a personal one are the student's own. Made once per seed."""
    if "function" not in exercise.asks.values():
        return ProbePlan()
    with _lock:
        return _plan(_Key(exercise), seed, student if exercise.is_personal else "")


class _Key:
    """An exercise as a key: its source's place and text."""

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
    for number in range(MOST):
        counts = {name: sum(c.name == name for c in recorder.calls) for name in functions}
        few = {c.test for c in recorder.calls if counts[c.name] < FEW}
        constant = {c.test for c in recorder.calls if recorder.is_constant(c.name)}
        for test in tests:
            again = (test.name in few and number < test.rounds) or (test.name in constant and test.rounds > 1)
            if number == 0 or again:
                recorder.test = test.name
                test.run(Asked(recorder, Beside(exercise, student, {})), Draw(seed, exercise.id, test.name, number))
    found: dict[str, tuple[Probe, ...]] = {}
    called_by: dict[str, tuple[str, ...]] = {}
    calls: dict[str, tuple[ProbeCall, ...]] = {}
    unusable: list[tuple[str, str, str]] = []
    for name in functions:
        mine = [c for c in recorder.calls if c.name == name]
        called_by[name] = tuple(dict.fromkeys(c.test for c in mine))
        first = list({c.test: c for c in reversed(mine)}.values())[::-1]
        most = [*first, *(c for c in mine if c not in first)][:CALLS]
        calls[name] = (*most, *recorder.differing(most, mine)[:1])
        made = _Making(exercise, recorder, name, mine)
        for call in calls[name]:
            made.derive(call)
        found[name] = tuple(sorted(made.probes, key=lambda p: ORDER.index(p.kind)))
        unusable += made.unusable()
    return ProbePlan(found, called_by, calls, tuple(unusable))


class _Making:
    """The probes of one function, and what was tried in vain."""

    def __init__(self, exercise: Exercise, recorder: Recorder, name: str, calls: Sequence[ProbeCall]) -> None:
        self.exercise, self.recorder, self.name = exercise, recorder, name
        self.signature = inspect.signature(recorder.namespace[name])
        self.fractions = {  # the arguments in which a test has used fractions
            argument
            for call in calls
            for argument, (_, value) in _named(self.signature, call)
            if any(bool((x != x.round()).any()) for x in tensors(value) if x.is_floating_point())
        }
        self.probes: list[Probe] = []
        self.tried: set[tuple[str, str]] = set()

    def unusable(self) -> list[tuple[str, str, str]]:
        """What was tried, and came to nothing for every call."""
        usable = {(p.kind, p.target) for p in self.probes}
        return [(kind, self.name, target) for kind, target in sorted(self.tried - usable)]

    def is_off(self, kind: str, argument: str = "") -> bool:
        targets = self.exercise.off.get(kind, {})
        return any(t in targets for t in ("", self.name, *([f"{self.name}.{argument}"] if argument else ())))

    def answer(self, call: ProbeCall) -> Any:
        """What the solution says; None if it cannot, or says NaN where the call's own test did not."""
        try:
            return self.recorder.examine(call.name, call.args, call.kwargs, [])["result"]
        except Exception:
            return None

    def add(self, kind: str, target: str, said: str, call: ProbeCall, base: Any, **more: Any) -> bool:
        """Keep the derived call if the solution has an answer to it."""
        self.tried.add((kind, target))
        want = self.answer(call)
        if want is None or not finite(want):
            return False
        if kind == "keywords" and same(want, base):
            return False  # an answer that does not notice could not be found out
        self.probes.append(Probe(kind, call, said, want, target=target, **more))
        return True

    def derive(self, call: ProbeCall) -> None:
        base = self.answer(call)
        if base is None:
            raise RuntimeError(f"{self.exercise.path}: the solution's `{self.name}` cannot be asked twice")
        arguments = dict(_named(self.signature, call))
        self._plain(call, base, arguments)
        for kind in ("nan", "keywords", "size", "values", "float32"):
            if not self.is_off(kind):
                getattr(self, f"_{kind}")(call, base, arguments)

    def _plain(self, call: ProbeCall, base: Any, arguments: dict[str, tuple[int | str, Any]]) -> None:
        """The call itself, for inputs, integers and gradients."""
        if not self.is_off("inputs"):
            self.probes.append(Probe("inputs", call, "", base))
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
            right, near = (self.recorder.examine(c.name, c.args, c.kwargs, keys)["gradients"] for c in (call, moved))
        except RuntimeError:  # the solution itself cannot be differentiated
            return
        gradients = []
        for (key, name), g, other in zip(wrt, right, near, strict=True):
            smooth = ~((g - other).abs() > 1e-3 * (1 + g.abs()))  # at a kink, right answers may differ
            gradients.append((key, name, g, smooth))
        self.probes.append(Probe("gradient", call, "", base, gradients=tuple(gradients)))

    def _moved(self, call: ProbeCall, keys: Sequence[int | str]) -> ProbeCall:
        """The call a little to one side."""
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
                noticed = 0
                others = {v for k, v in arguments.values() if type(v) is int and k != key}
                for other in _variations(value, has_default):
                    if type(other) is int and value not in others and other in others:
                        continue  # two indices that differ may have to
                    said = f"with `{name}` = {show(other)}"
                    if noticed < VARIATIONS or other == 0:
                        noticed += self.add("keywords", name, said, _with(call, {key: other}), base)

    def _size(self, call: ProbeCall, base: Any, arguments: dict[str, tuple[int | str, Any]]) -> None:
        values = [value for _, value in arguments.values()]
        for n in sorted({size for value in values for size in axes(value)}):
            larger = 0
            for m, end in ((n + 1, ""), (n + 1, "on"), (n + 1, "back"), (2 * n, "")):
                if m == n + 1 or not larger:  # twice as many, where one more does not fit
                    stretched = {key: stretch(value, n, m, end) for key, value in arguments.values()}
                    said = f"where {m} stands for {n} in its inputs' sizes"
                    larger += self.add("size", "", said, _with(call, stretched), base)

    def _values(self, call: ProbeCall, base: Any, arguments: dict[str, tuple[int | str, Any]]) -> None:
        for name, (key, value) in arguments.items():
            if name not in self.fractions and not self.is_off("values", name) and has_whole_floats(value):
                broken = mapped(value, lambda x: 0.7 * x + 0.15 if holds_whole_floats(x) else x)
                self.add("values", name, f"with fractions in `{name}`", _with(call, {key: broken}), base)

    def _float32(self, call: ProbeCall, base: Any, arguments: dict[str, tuple[int | str, Any]]) -> None:
        def narrow(x: Tensor) -> Tensor:
            return x.float() if x.dtype == torch.float64 else x

        narrowed = {key: mapped(value, narrow) for key, value in arguments.values()}
        if not any(x.dtype == torch.float64 for _, v in arguments.values() for x in tensors(v)):
            return
        back = {
            key: mapped(value, lambda x: x.double() if x.dtype == torch.float32 else x)
            for key, value in narrowed.items()
        }
        exact, rough = self.answer(_with(call, back)), self.answer(_with(call, narrowed))
        self.tried.add(("float32", ""))
        if exact is None or rough is None or not finite(exact) or not same(rough, exact, FLOAT32_TOLERANCE / 4):
            return  # in float32 the solution itself is far off: a matter of conditioning
        probe = Probe("float32", _with(call, narrowed), "in float32", exact, tolerance=FLOAT32_TOLERANCE)
        self.probes.append(probe)

    def _nan(self, call: ProbeCall, base: Any, arguments: dict[str, tuple[int | str, Any]]) -> None:
        for name, (_, mask) in arguments.items():
            named = "mask" in name or "valid" in name
            if not (named and isinstance(mask, Tensor) and mask.dtype == torch.bool and not bool(mask.all())):
                continue
            spoilt, where = {}, []
            for other, (key, x) in arguments.items():
                fits = isinstance(x, Tensor) and x.is_floating_point() and x.shape[: mask.dim()] == mask.shape
                if fits and not self.is_off("nan", other):
                    behind = ~mask.reshape(*mask.shape, *[1] * (x.dim() - mask.dim()))
                    spoilt[key] = x.masked_fill(behind, torch.nan)
                    where.append(f"`{other}`")
            if spoilt and not self.is_off("nan", name):
                said = f"with NaN in {' and '.join(where)} where `{name}` is False"
                self.add("nan", name, said, _with(call, spoilt), base)


def _named(signature: inspect.Signature, call: ProbeCall) -> Iterator[tuple[str, tuple[int | str, Any]]]:
    """The call's arguments by name, with where each stands: a position or a keyword."""
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
    """Other values of a number; those that make no sense to the solution are dropped later."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, *([value - 1] if value > 1 else ()), value + 2]
    if value == 0:
        return [0.35]
    upward = value + 0.3 * (1 - value) if 0 < value < 1 else 1.7 * value if value != 1 else 0.8
    return [0.6 * value, upward, 0.1 * value, *([0.0] if has_default else ())]


# -- asking ------------------------------------------------------------------------------------------------------


def ask(probe: Probe, submission: Submission) -> None:
    """Put one probe to a submission.

    Raises:
        Probed: what came back is wrong, with the counterexample.
    """
    call, wrt = probe.call, [key for key, *_ in probe.gradients]
    given: dict[Any, Any] = {**dict(enumerate(call.args)), **call.kwargs}
    shown = tuple(f"{call.label(key)} = {show(value)}" for key, value in given.items())
    where = f"`{call.name}`{f' {probe.said}' if probe.said else ''}"
    try:
        answer = submission.examine(call.name, call.args, call.kwargs, wrt)
    except Failure as problem:
        if type(problem) is not Failure:  # the process has ended: not for a probe to judge
            raise
        raise Probed(probe.kind, f"{where}: {problem.message}", shown, **problem.facts) from problem
    if not (isinstance(answer, dict) and {"result", "args", "kwargs", "gradients"} <= answer.keys()):
        raise Probed(probe.kind, f"{where}: the answer is no plain data", shown)
    if probe.kind == "inputs":
        _unchanged(call, answer)
    elif probe.kind == "integers":
        _whole(probe, answer["result"], where, shown)
    elif probe.kind == "gradient":
        _gradients(probe, answer["gradients"], shown)
    else:
        _compare(probe.kind, answer["result"], probe.want, f"the result of {where}", shown, probe.tolerance)


def _unchanged(call: ProbeCall, answer: dict[str, Any]) -> None:
    before: dict[Any, Any] = {**dict(enumerate(call.args)), **call.kwargs}
    args = answer["args"] if isinstance(answer["args"], list | tuple) else ()
    kwargs = answer["kwargs"] if isinstance(answer["kwargs"], dict) else {}
    after: dict[Any, Any] = {**dict(enumerate(args)), **kwargs}
    for key, value in before.items():
        if not same(after.get(key), value):
            lines = (f"before: {show(value)}", f"after:  {show(after.get(key))}")
            raise Probed(
                "inputs", f"`{call.name}` has changed its {call.label(key)}, which belongs to the caller", lines
            )


def _whole(probe: Probe, got: Any, where: str, shown: tuple[str, ...]) -> None:
    for mine, right in zip(leaves(got), leaves(probe.want), strict=False):
        if is_whole(right) and isinstance(mine, Tensor | int | float) and not is_whole(mine):
            kind = str(mine.dtype).removeprefix("torch.") if isinstance(mine, Tensor) else "float"
            asked = "bools" if isinstance(right, bool) or getattr(right, "dtype", None) == torch.bool else "integers"
            raise Probed(
                "integers", f"{where} answers in {kind}; {asked} are asked for", (*shown, f"yours: {show(got)}")
            )


def _compare(kind: str, got: Any, want: Any, what: str, shown: tuple[str, ...], tolerance: float) -> None:
    if isinstance(want, list | tuple):
        if not isinstance(got, list | tuple) or len(got) != len(want):
            raise Probed(kind, f"{what} is {show(got)}; expected {len(want)} entries", shown)
        for i, (mine, right) in enumerate(zip(got, want, strict=True)):
            _compare(kind, mine, right, f"entry {i} of {what}", shown, tolerance)
    elif isinstance(want, dict):
        if not isinstance(got, dict) or got.keys() != want.keys():
            raise Probed(kind, f"{what} is no dictionary with the names {sorted(map(str, want))}", shown)
        for key, right in want.items():
            _compare(kind, got[key], right, f"{key!r} in {what}", shown, tolerance)
    elif isinstance(want, Tensor | int | float):
        try:
            expect(got, want, what=what, tolerance=tolerance)
        except Failure as problem:
            raise Probed(kind, problem.message, (*shown, *problem.lines), **problem.facts) from problem
    elif got != want:
        raise Probed(kind, f"{what} is wrong", (*shown, f"yours: {show(got)}"))


def _gradients(probe: Probe, got: Any, shown: tuple[str, ...]) -> None:
    found = got if isinstance(got, list | tuple) else ()
    for (_, name, right, smooth), mine in zip(probe.gradients, found, strict=False):
        if not isinstance(mine, Tensor) or mine.shape != right.shape:
            raise Probed("gradient", f"`{probe.call.name}` has no gradient in `{name}`", shown)
        where = smooth & ~right.isnan()
        a, b = torch.where(where, mine.double(), 0.0), torch.where(where, right.double(), 0.0)
        if same(a, b, TOLERANCE):
            continue
        lines = (*shown, f"your gradient in {name}:     {show(a)}", f"expected: {show(b)}")
        if not bool((a != 0).any()):
            raise Probed("gradient", f"no gradient of `{probe.call.name}` reaches `{name}`", lines)
        if not bool((b != 0).any()):
            raise Probed("gradient", f"a gradient of `{probe.call.name}` flows into `{name}`, and none should", lines)
        raise Probed("gradient", f"the gradient of `{probe.call.name}` in `{name}` is wrong", lines)
