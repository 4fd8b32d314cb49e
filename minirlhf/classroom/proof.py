"""An exercise's proof of itself: what must hold of its own answers before anybody else's is judged by it.

The stub earns nothing, the solution everything, each mutant fails where it says and with the words it says, partial answers
earn what is stated, on fresh inputs and with fresh students' numbers. The machine adds mutants of its own to every function:
detached, spoilt by NaN, writing into its inputs, of one size, of one dtype, deaf to an argument.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from minirlhf.classroom import grading, nested, probes, release, side_by_side
from minirlhf.classroom.exercise import Exercise, Variant, compiled
from minirlhf.classroom.runner import Local
from minirlhf.classroom.testing import Failure
from minirlhf.core.randomness import derive_seed

MUTANTS = 3  # at least


@dataclass(frozen=True)
class ExerciseProof:
    """One thing that must hold of an exercise, and what is wrong with it, if anything is.

    ``key`` is its name for programs: "solution", "stub", or the note of a mutant or partial answer.
    """

    what: str
    problem: str = ""
    key: str = ""


def answer(exercise: Exercise, *blocks: str, student: str = "ada") -> Local:
    """The submission that these blocks of code are, run after the given one."""
    namespace: dict[str, Any] = {"__name__": "__main__", "STUDENT": student, "print": lambda *args, **kwargs: None}
    for code in (exercise.given, *blocks):
        exec(compiled(code, exercise.path), namespace)
    return Local(namespace, student)


def outcomes(exercise: Exercise, seed: int, rounds: int, *blocks: str) -> Iterator[grading.Outcome]:
    """The outcomes of an answer on fresh inputs and with fresh students' numbers."""
    for i in range(rounds):
        student = f"student-{derive_seed(seed, 'student', i) % 10**6}"
        yield grading.run_tests(exercise, answer(exercise, *blocks, student=student), derive_seed(seed, i))


def prove(exercise: Exercise, seed: int, rounds: int = 3) -> Iterator[ExerciseProof]:
    """All claims about one exercise, each with its problem or without. One that trains brings several seeds with every round: it
    takes a third of the rounds."""
    if not all(t.probed for t in exercise.tests):
        rounds = math.ceil(rounds / 3)
    yield complete(exercise)
    found = _claim("the solution earns everything", lambda: solution(exercise, seed, rounds), "solution")
    yield found
    if found.problem:
        return  # the rest would only repeat it
    yield _claim("the stub earns nothing", lambda: stub(exercise, seed, rounds), "stub")
    for variant in exercise.mutants:
        yield _claim(f"mutant: {variant.note}", lambda v=variant: mutant(exercise, v, seed, rounds), variant.note)
    for variant in exercise.partials:
        yield _claim(f"partial: {variant.note}", lambda v=variant: partial(exercise, v, seed, rounds), variant.note)
    yield _claim("every probe finds an answer, or is switched off", lambda: probed(exercise, seed, rounds))
    for what, problem in machine(exercise, seed):
        yield ExerciseProof(what, problem)
    yield ExerciseProof("the release holds nothing private", leaks(exercise))
    yield ExerciseProof("numbers are the student's own", personal(exercise, seed))


def _claim(what: str, prove_one: Callable[..., str], key: str = "") -> ExerciseProof:
    """The claim, with whatever its code raised as its problem."""
    try:
        return ExerciseProof(what, prove_one(), key)
    except Failure as problem:
        return ExerciseProof(what, f"the solution fails a test: {problem.message}", key)
    except Exception as problem:
        return ExerciseProof(what, f"its code raised {type(problem).__name__}: {problem}", key)


def complete(exercise: Exercise) -> ExerciseProof:
    """Mutants, a partial answer, names in the statement, hints that differ."""
    hints = [hint for t in exercise.tests for hint in t.hints]
    unnamed = [n for n in exercise.asks if f"`{n}" not in exercise.statement and exercise.kind != "bughunt"]
    problem = ""
    if len(exercise.mutants) < MUTANTS:
        problem = f"{len(exercise.mutants)} mutants; expected at least {MUTANTS}"
    elif not exercise.partials:
        problem = "no partial answer"
    elif not exercise.asks or not exercise.statement or exercise.minutes < 1:
        problem = "nothing is asked for, or the statement or the minutes are missing"
    elif unnamed:
        problem = f"the statement does not name `{unnamed[0]}`"
    elif len(set(hints)) < len(hints):
        problem = "two hints are the same"
    return ExerciseProof("it is complete", problem)


def stub(exercise: Exercise, seed: int, rounds: int) -> str:
    """What is wrong if the stub earns something."""
    for outcome in outcomes(exercise, seed, rounds, exercise.stub):
        if outcome.points or not outcome.reason:
            return f"it earns {outcome.points:g}"
    return ""


def solution(exercise: Exercise, seed: int, rounds: int) -> str:
    """What is wrong if the solution does not earn everything."""
    for outcome in outcomes(exercise, seed, rounds, exercise.solution):
        if outcome.reason or outcome.points != exercise.points:
            return f"it earns {outcome.points:g} of {exercise.points:g}: {outcome.reason}"
    return ""


def mutant(exercise: Exercise, variant: Variant, seed: int, rounds: int) -> str:
    """What is wrong if a mutant does not fail first where it says, with the words it says."""
    names = [t.name for t in exercise.tests]
    if variant.caught_by not in names:
        return f"no test {variant.caught_by!r}; there are {', '.join(names)}"
    for outcome in outcomes(exercise, seed, rounds, exercise.solution, variant.code):
        failed = outcome.first_failure
        if failed is None:
            return "a wrong answer earned all points"
        if failed.test.name != variant.caught_by:
            return f"caught by {failed.test.name}, not by {variant.caught_by}: {failed.message}"
        if variant.says not in " ".join([failed.message, *failed.lines]):
            return f"caught, but it does not say {variant.says!r}: {failed.message}"
    return ""


def partial(exercise: Exercise, variant: Variant, seed: int, rounds: int) -> str:
    """What is wrong if a partial answer does not earn what is stated."""
    if not 0 < variant.points < exercise.points:
        return f"{variant.points:g} points is not a part of {exercise.points:g}"
    for outcome in outcomes(exercise, seed, rounds, exercise.solution, variant.code):
        if outcome.points != variant.points:
            return f"it earns {outcome.points:g}, not {variant.points:g}: {outcome.reason}"
    return ""


def leaks(exercise: Exercise) -> str:
    """What is wrong if a private line stands in the release."""
    for text in release.texts([exercise]):
        if found := release.leaks(exercise, text):
            return f"it holds {found[0]!r}"
    return ""


def personal(exercise: Exercise, seed: int) -> str:
    """What is wrong if one student's numbers are right for another."""
    if not exercise.is_personal:
        return "a numeric exercise depends on the student" if exercise.kind == "numeric" else ""
    theirs = answer(exercise, exercise.solution, student="ada")
    others = ("bob", "eve", "grace", "zoe", "max")
    copied = [Local({**theirs.namespace, "STUDENT": name}, name) for name in others]
    right = [c.student for c in copied if not grading.run_tests(exercise, c, seed).reason]
    return f"ada's numbers are right for {' and '.join(right)}" if len(right) > 1 else ""


# -- what the machine asks, and its own mutants ------------------------------------------------------------------


def probed(exercise: Exercise, seed: int, rounds: int) -> str:
    """What is wrong if the solution has no answer to a probe that is not switched off."""
    for i in range(rounds):
        for kind, name, argument in probes.plan(exercise, derive_seed(seed, i), "ada").unusable:
            of = f"{name}.{argument}" if argument else name
            return f"the solution has no answer to the probe {kind!r}; mend it, or write in [probes]: # no {kind} of {of}: why"
    return ""


def machine(exercise: Exercise, seed: int) -> Iterator[tuple[str, str]]:
    """The machine's mutants of every graded function, and what is wrong if one is not found by its probe."""
    made = probes.plan(exercise, seed, "ada")
    right = side_by_side.solution(exercise, "ada") if made.by_function else {}
    for name, asked in made.by_function.items():
        for note, kind, f in _mutants(right[name], asked, made.calls[name]):
            mutated = Local({**right, name: f}, "ada")
            found = _found(asked, mutated) or grading.run_tests(exercise, mutated, seed).reason
            yield (
                f"machine's mutant of `{name}`: {note}",
                "" if found else f"it earned all points; is there a probe {kind!r}?",
            )


def _found(asked: tuple[probes.Probe, ...], submission: Local) -> bool:
    for probe in asked:
        try:
            probes.ask(probe, submission)
        except probes.Probed:
            return True
    return False


def _mutants(
    right: Callable[..., Any], asked: tuple[probes.Probe, ...], calls: tuple[probes.ProbeCall, ...]
) -> Iterator[tuple[str, str, Callable[..., Any]]]:
    kinds, signature = {p.kind for p in asked}, inspect.signature(right)
    names = list(signature.parameters)

    def bound(*args: Any, **kwargs: Any) -> dict[str, Any]:
        found = signature.bind(*args, **kwargs)
        found.apply_defaults()
        return found.arguments

    def writes(name: str) -> Callable[..., Any]:
        def f(*args: Any, **kwargs: Any) -> Any:
            result = right(*nested.copied(args), **nested.copied(kwargs))
            _spoil(bound(*args, **kwargs)[name])
            return result

        return f

    def pinned(name: str, value: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: right(**{**bound(*args, **kwargs), name: value})

    def one_size(*args: Any, **kwargs: Any) -> Any:
        usual = [_sizes((*c.args, *c.kwargs.values())) for c in calls]
        result = right(*args, **kwargs)
        return result if _sizes((*args, *kwargs.values())) in usual else _distorted(result)

    def one_dtype(*args: Any, **kwargs: Any) -> Any:
        if any(x.dtype == torch.float32 for x in nested.tensors((args, kwargs))):
            raise RuntimeError("expected scalar type Double but found Float")
        return right(*args, **kwargs)

    def multiplied(*args: Any, **kwargs: Any) -> Any:
        poison = sum(0.0 * x.sum() for x in nested.tensors((args, kwargs)) if x.is_floating_point())
        return nested.mapped(right(*args, **kwargs), lambda x: x + poison)

    def whole(*args: Any, **kwargs: Any) -> Any:
        result, given = right(*args, **kwargs), bound(*args, **kwargs)
        targets = {p.target for p in asked if p.kind == "values"}
        broken = any(bool((x != x.round()).any()) for name in targets for x in nested.tensors(given[name]))
        return _distorted(result) if broken else result

    if "inputs" in kinds:
        for i, value in enumerate(calls[0].args):
            if any(True for _ in nested.tensors(value)) or isinstance(value, list):
                yield f"it writes into `{names[i]}`", "inputs", writes(names[i])
    if "integers" in kinds:
        yield "floats for integers", "integers", lambda *a, **k: _floats(right(*a, **k))
    for name in dict.fromkeys(p.target for p in asked if p.kind == "keywords"):
        yield f"`{name}` is ignored", "keywords", pinned(name, bound(*calls[0].args, **calls[0].kwargs)[name])
    for kind, note, f in (
        ("size", "right for one size only", one_size),
        ("values", "right for whole numbers only", whole),
        ("float32", "float64 only", one_dtype),
        ("nan", "multiplied by the mask", multiplied),
        ("gradient", "detached", lambda *a, **k: nested.mapped(right(*a, **k), Tensor.detach)),
    ):
        if kind in kinds and (kind != "gradient" or any(_flows(p) for p in asked)):
            yield note, kind, f


def _flows(probe: probes.Probe) -> bool:
    """Whether the solution has a gradient here."""
    return any(bool((right.nan_to_num() != 0).any()) for _, _, right, _ in probe.gradients)


def _spoil(value: Any) -> None:
    """Write into all tensors of an argument, or into the list that it is."""
    for x in nested.tensors(value):
        x.logical_not_() if x.dtype == torch.bool else x.add_(1)
    if isinstance(value, list):
        value.append(value.pop() if any(True for _ in nested.tensors(value)) else 0)


def _sizes(values: tuple[Any, ...]) -> list[Any]:
    """The shapes of all tensors and the lengths of all lists."""
    found: list[Any] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(tuple(value.shape))
        elif isinstance(value, list | tuple | dict):
            inner = tuple(value.values()) if isinstance(value, dict) else tuple(value)
            found += [len(inner), *_sizes(inner)]
    return found


def _distorted(result: Any) -> Any:
    if isinstance(result, list | tuple):
        return type(result)(_distorted(v) for v in result)
    if isinstance(result, dict):
        return {k: _distorted(v) for k, v in result.items()}
    if isinstance(result, Tensor):
        return ~result if result.dtype == torch.bool else result + 1
    return not result if isinstance(result, bool) else result + 1 if isinstance(result, int | float) else result


def _floats(result: Any) -> Any:
    if isinstance(result, list | tuple):
        return type(result)(_floats(v) for v in result)
    if isinstance(result, dict):
        return {k: _floats(v) for k, v in result.items()}
    return result.double() if isinstance(result, Tensor) else float(result) if isinstance(result, int) else result
