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

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from minirlhf_course.classroom.exercise import Exercise
from minirlhf_course.classroom.nested import is_whole, leaves, same
from minirlhf_course.classroom.testing import Failure, Submission, expect, show

AWKWARD = ("ties", "gaps", "scale", "offset")
OPTIONAL = ("single", *AWKWARD)  # asked where the solution has a stable answer, which it need not have
ORDER = (
    "inputs",
    "random",
    "again",
    "integers",
    "nan",
    "keywords",
    "size",
    "single",
    "values",
    *AWKWARD,
    "float32",
    "gradient",
)
TOLERANCE = 1e-4
STEPS = ("lr", "steps", "epochs", "iterations", "episodes")  # a function with one of these takes steps

HINTS = {
    "inputs": (
        "Whoever calls your function still needs what was handed to it. Which line writes into an argument?",
        "`x[…] = …`, `x += …` and methods that end in `_` write into the tensor itself. Work on `x.clone()`, or make a new tensor.",
    ),
    "random": (
        "Others draw random numbers, too. Which line seeds, or draws from, a generator that everybody shares?",
        "Make a `torch.Generator` of your own and pass it on, `generator=rng`; `torch.manual_seed`, `numpy.random.…` and `random.…` change what others draw.",
    ),
    "again": (
        "The same inputs once more. What does your code remember from one call to the next?",
        "A global variable, an attribute of the function, or a default value such as `seen=[]` lives on between calls. Make it inside the function.",
    ),
    "integers": (
        "What is counted or used as an index is an integer, and True or False is a bool. What dtype does your answer have?",
        "Convert at the end with `.long()`, `.bool()` or `int(…)`, or do not leave the integers in the first place.",
    ),
    "keywords": (
        "One of the arguments takes another value here. Is your code right for every value of it, or for the usual one only?",
        "Look for a number that stands where the argument belongs, and for a bound that the exercise does not ask for.",
    ),
    "size": (
        "The same function, on inputs of another size. Which number in your code is a size?",
        "Take sizes from the inputs, `x.shape`, and reduce over axes by their position, not by how long they were.",
    ),
    "single": (
        "A batch of one is a batch, too. Which axis of your result is lost?",
        "`squeeze()` without an axis drops every axis of size 1. Name the axis, `squeeze(-1)`, or index it, `[..., 0]`.",
    ),
    "ties": (
        "Some of these numbers are equal, and computers round: the mean of three 0.1 is not exactly 0.1. What does your code compare?",
        "Whether numbers are equal is seen from the largest and the smallest of them, not from a computed mean or standard deviation.",
    ),
    "gaps": (
        "These numbers differ, but only a little. How small a difference does your code take for none?",
        "Look for a number such as 1e-3 that nobody asked for: a threshold, a rounding, or something small that is added.",
    ),
    "scale": (
        "The same numbers, larger or smaller. Which number in your code has a scale of its own?",
        "Look for a bound, a threshold or a small number that is added, and that the exercise does not ask for.",
    ),
    "offset": (
        "The same large number is added to all of these. What does it do to your squares and exponentials?",
        "Take the differences first: subtract the mean before you square, and the largest number before you take an exponential.",
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
    "again": "the same call again, and in another order.",
    "integers": "integers and bools come back as such.",
    "keywords": "another value of an argument.",
    "size": "inputs of another size.",
    "single": "a batch of one.",
    "values": "inputs that are no whole numbers.",
    "ties": "numbers that are equal.",
    "gaps": "numbers that differ by a millionth.",
    "scale": "larger and smaller numbers.",
    "offset": "numbers far from 0.",
    "float32": "inputs in float32.",
    "nan": "NaN behind the mask.",
    "gradient": "the gradient of the answer.",
}


UNUSABLE = {
    "not finite": (
        "NaN and infinities come from 0 / 0, from the logarithm of 0 and from an exponential of a large number. Which is it here?",
        "Print the steps of your computation on these inputs, and find the first one that is not finite.",
    ),
    "raised": (
        "Your code stops on these inputs. Which line, and what does it take for granted about them?",
        "Run this call by itself, on the inputs above, and read the last lines of the error.",
    ),
}


def hints(kind: str, problem: str) -> tuple[str, str]:
    """Return two hints for a failed probe; what overflows or stops is no matter of, say, an unused argument."""
    return UNUSABLE.get(problem, HINTS[kind]) if kind in ("keywords", *AWKWARD) else HINTS[kind]


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
    floor: float = 1.0  # errors are relative to the right entry, or to this if it is larger
    target: str = ""  # the argument that is varied
    gradients: tuple[tuple[int | str, str, Tensor, Tensor], ...] = ()  # (key, name, gradient, where it is smooth)


@dataclass(frozen=True)
class ProbePlan:
    """All probes of one exercise and seed. ``unusable``: (kind, function, argument) without a solution's result."""

    by_function: dict[str, tuple[Probe, ...]] = field(default_factory=dict)
    called_by: dict[str, tuple[str, ...]] = field(default_factory=dict)  # function -> names of the tests that call it
    repeatable: dict[str, tuple[ProbeCall, ...]] = field(default_factory=dict)  # function -> calls to repeat
    calls: dict[str, tuple[ProbeCall, ...]] = field(
        default_factory=dict
    )  # function -> the calls that its probes come from
    unusable: tuple[tuple[str, str, str], ...] = ()


# -- running probes ----------------------------------------------------------------------------------------------


def ask_all(
    exercise: Exercise, name: str, plan: ProbePlan, submission: Submission, fresh: Submission | None = None
) -> None:
    """Run all probes of one function on a submission whose tests have run.

    ``fresh``: the same submission in a state in which nothing has been called.

    Raises:
        Probed: a result is wrong, or a call has had a side effect.
    """
    _untouched(exercise, name, submission)
    for probe in plan.by_function.get(name, ()):
        ask(probe, submission)
    again(plan.repeatable.get(name, ()), submission, fresh or submission)
    _untouched(exercise, name, submission)


def again(calls: tuple[ProbeCall, ...], submission: Submission, fresh: Submission) -> None:
    """Check that what a submission answers does not depend on what it was asked before.

    Raises:
        Probed: it does.
    """
    first = [_answer(call, submission) for call in calls]
    for other in (submission, *([fresh] if fresh is not submission else [])):
        for call, earlier in list(zip(calls, first, strict=True))[::-1]:
            later = _answer(call, other)
            if not same(later, earlier, TOLERANCE):
                arguments: dict[Any, Any] = {**dict(enumerate(call.args)), **call.kwargs}
                inputs = tuple(f"{call.label(key)} = {show(x)}" for key, x in arguments.items())
                how = "asked a second time" if other is submission else "asked before all other calls"
                answers = (f"at first: {_shown(earlier)}", f"now: {_shown(later)}")
                raise Probed("again", f"`{call.name}`, {how}, has another answer", (*inputs, *answers))


def _answer(call: ProbeCall, submission: Submission) -> Any:
    """Return what a submission answers, or the message if it raises."""
    try:
        return submission.examine(call.name, call.args, call.kwargs, [])
    except Failure as problem:
        if type(problem) is not Failure:  # for example, the process has ended
            raise
        return problem.message


def _shown(answer: Any) -> str:
    return show(answer["result"]) if isinstance(answer, dict) and "result" in answer else show(answer)


def _untouched(exercise: Exercise, name: str, submission: Submission) -> None:
    """Check that no call of a function so far has changed its inputs, an earlier result or the global random numbers."""
    noted = submission.effects().get(name, {})
    changed, drawn, earlier = (noted.get(kind) for kind in ("inputs", "random", "again"))
    if changed:
        lines = (f"before: {show(changed['before'])}", f"after:  {show(changed['after'])}")
        raise Probed("inputs", f"`{name}` has changed its `{changed['argument']}`, which belongs to the caller", lines)
    if earlier:
        lines = (f"at first: {show(earlier['before'])}", f"now: {show(earlier['after'])}")
        raise Probed("again", f"a call of `{name}` has changed the result of the call before it", lines)
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
        precision = probe.tolerance, probe.floor
        _compare(probe.kind, answer["result"], probe.want, f"the result of {label}", lines, precision)


def _whole(probe: Probe, got: Any, label: str, lines: tuple[str, ...]) -> None:
    for leaf, target in zip(leaves(got), leaves(probe.want), strict=False):
        if is_whole(target) and isinstance(leaf, Tensor | int | float) and not is_whole(leaf):
            kind = str(leaf.dtype).removeprefix("torch.") if isinstance(leaf, Tensor) else "float"
            types = "bools" if isinstance(target, bool) or getattr(target, "dtype", None) == torch.bool else "integers"
            raise Probed(
                "integers", f"{label} answers in {kind}; {types} are asked for", (*lines, f"yours: {show(got)}")
            )


def _compare(
    kind: str, actual: Any, expected: Any, what: str, lines: tuple[str, ...], precision: tuple[float, float]
) -> None:
    if isinstance(expected, list | tuple):
        if not isinstance(actual, list | tuple) or len(actual) != len(expected):
            raise Probed(kind, f"{what} is {show(actual)}; expected {len(expected)} entries", lines)
        for i, (actual_entry, expected_entry) in enumerate(zip(actual, expected, strict=True)):
            _compare(kind, actual_entry, expected_entry, f"entry {i} of {what}", lines, precision)
    elif isinstance(expected, dict):
        if not isinstance(actual, dict) or actual.keys() != expected.keys():
            raise Probed(kind, f"{what} is no dictionary with the names {sorted(map(str, expected))}", lines)
        for key, expected_entry in expected.items():
            _compare(kind, actual[key], expected_entry, f"{key!r} in {what}", lines, precision)
    elif isinstance(expected, Tensor | int | float):
        try:
            expect(actual, expected, what=what, tolerance=precision[0], floor=precision[1])
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
