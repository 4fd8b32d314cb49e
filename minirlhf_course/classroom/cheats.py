"""Cheats: answers that train badly or not at all, and end well. None may earn the points of a training.

The machine makes them of the solution: a number of the statement pinned, doubled, halved or taken five times; a seed
that is ignored; a constant in place of what was learned; the weights as they were. An author adds the cheats that need
knowledge of the exercise as blocks ``[cheat]``, written like mutants.

Where a number may be another by the statement, its multiples are switched off in ``[probes]``, with a reason; that it is
used at all is tried nevertheless::

    # no cheats of step.lr: any average is right, and some make smaller steps
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from minirlhf.core.randomness import derive_seed
from minirlhf_course.classroom import exercise as sources
from minirlhf_course.classroom.exercise import Exercise, compiled
from minirlhf_course.classroom.nested import same
from minirlhf_course.classroom.probes import STEPS
from minirlhf_course.classroom.runner import Local
from minirlhf_course.classroom.side_by_side import Beside, run_once, solution
from minirlhf_course.classroom.testing import Asked, Failure
from minirlhf_course.classroom.training import Training
from minirlhf_course.ledger.registry import Draw

RUNS = 2  # runs of the solution from which a cheat takes its constants


class ArgumentRecorder(Local):
    """The solution, which keeps the arguments and the result of every call."""

    def __init__(self, namespace: dict[str, Any], student: str) -> None:
        super().__init__(namespace, student)
        self.calls: dict[str, list[tuple[dict[str, Any], Any]]] = {}

    def call(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], world: Mapping[str, Callable[..., Any]] = {}
    ) -> Any:
        """As in :class:`minirlhf_course.classroom.testing.Submission`."""
        result = super().call(name, args, kwargs, world)
        self.note(name, args, kwargs, result)
        return result

    def note(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any = None) -> None:
        """Keep the arguments of a call by name, and its result."""
        arguments = inspect.signature(self.namespace[name]).bind(*args, **kwargs).arguments
        self.calls.setdefault(name, []).append((arguments, result))


@dataclass(frozen=True)
class Cheat:
    """One cheat: what it does, and the submission."""

    note: str
    submission: Local = field(compare=False)


def tried(exercise: Exercise, seed: int) -> Iterator[tuple[str, str]]:
    """Try the cheats on every training; yield what each does, and the problem if it earns the training's points."""
    for training in (t for t in exercise.tests if isinstance(t, Training)):
        for cheat in (*made(exercise, training, seed), *_written(exercise)):
            problem = (
                "" if caught(exercise, training, cheat.submission, seed) else "it earns the points of the training"
            )
            yield f"cheat in {training.name}: {cheat.note}", problem


def caught(exercise: Exercise, training: Training, submission: Local, seed: int) -> bool:
    """Whether the training refuses this submission; the checks come first, because they take less time."""
    sub = Asked(submission, Beside(exercise, submission.student, {}))
    draw = Draw(seed, exercise.id, training.name, 0)
    for ask in (*training.also, training.run):
        try:
            ask(sub, draw)
        except Failure:
            return True
    return False


def _written(exercise: Exercise) -> Iterator[Cheat]:
    for variant in exercise.cheats:
        namespace = solution(exercise, sources.DEFAULT_STUDENT)
        exec(compiled(variant.code, exercise.path), namespace)
        yield Cheat(variant.note, Local(namespace, sources.DEFAULT_STUDENT))


def made(exercise: Exercise, training: Training, seed: int) -> Iterator[Cheat]:
    """Make the cheats of each function that the training calls."""
    recorder = ArgumentRecorder(solution(exercise, sources.DEFAULT_STUDENT), sources.DEFAULT_STUDENT)
    sub = Asked(recorder, Beside(exercise, recorder.student, {}))
    for k in range(RUNS):
        run_once(training.curve, sub, derive_seed(seed, "cheats"), k)
    off = exercise.off.get("cheats", {})
    for name, calls in recorder.calls.items():
        function = recorder.namespace[name]
        for note, target, cheating in _of(name, function, calls):
            if not (" times " in note and f"{name}.{target}" in off):
                yield Cheat(note, Local({**recorder.namespace, name: cheating}, recorder.student))


def _of(
    name: str, function: Callable[..., Any], calls: list[tuple[dict[str, Any], Any]]
) -> Iterator[tuple[str, str, Callable[..., Any]]]:
    signature = inspect.signature(function)

    def given(args: Any, kwargs: Any) -> dict[str, Any]:
        return dict(signature.bind(*args, **kwargs).arguments)

    def changed(target: str, change: Callable[[Any], Any]) -> Callable[..., Any]:
        def cheating(*args: Any, **kwargs: Any) -> Any:
            arguments = given(args, kwargs)
            return function(**{**arguments, target: change(arguments[target])})

        return cheating

    def pinned(target: str, value: float) -> Callable[..., Any]:
        return changed(target, lambda x: value)

    def multiplied(target: str, times: float) -> Callable[..., Any]:
        return changed(target, lambda x: times * x)

    first, (arguments, last) = calls[0][0], calls[-1]
    for target, value in arguments.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        to = 0 if target == "seed" else value
        yield f"`{target}` of `{name}` is pinned at {to:g}", target, pinned(target, to)
        for times in () if target == "seed" else (5,) if isinstance(value, int) else (0.5, 2.0):
            yield f"{times:g} times `{target}` in `{name}`", target, multiplied(target, times)
    yield f"`{name}` returns one result for all", "", lambda *args, **kwargs: last
    main = next(iter(first))
    if not (isinstance(last, Tensor) and isinstance(first[main], Tensor) and last.shape == first[main].shape):
        return
    yield f"`{name}` returns its `{main}`", "", lambda *args, **kwargs: given(args, kwargs)[main].clone()
    if set(arguments) & set(STEPS) and not same(last, first[main]):

        def often(*args: Any, **kwargs: Any) -> Any:
            current = given(args, kwargs)
            for _ in range(5):
                current[main] = function(**current)
            return current[main]

        yield f"`{name}` is applied five times in place of once", "", often
