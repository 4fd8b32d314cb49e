"""The validation of an exercise: what must hold for its own answers before it grades a student's answer.

The stub earns 0 points, the solution all points. Each mutant fails the stated test with the stated words, and each
partial answer earns the stated points. All of this is checked on fresh inputs and with fresh students' numbers. In
addition, mutants are generated for every function: detached, propagating NaN, writing into its inputs, correct for
one size or one dtype only, ignoring an argument.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from minirlhf.core.randomness import derive_seed
from minirlhf_course.classroom import cheats, derivation, grading, nested, probes, release, side_by_side
from minirlhf_course.classroom.exercise import Exercise, Variant, compiled
from minirlhf_course.classroom.runner import Local
from minirlhf_course.classroom.testing import Asked, Failure
from minirlhf_course.classroom.training import Training
from minirlhf_course.ledger.registry import Draw

VARIED = 6  # further draws of the tests, in which each number has to take two values
MUTANTS = 3  # minimum number of mutants per exercise
ROUND = (0.0, 0.5, 1.0, 2.0, 10.0, 100.0)  # constants that mean nothing by themselves
PRINTED_SHAPE = re.compile(r"\(([^()]*,[^()]*)\)")
MARKS = ("points", "bar", "tolerance", "atol", "abs_tol", "level")  # what is published, or no data


@dataclass(frozen=True)
class ExerciseProof:
    """One claim about an exercise, and the problem if it does not hold.

    ``key`` is the claim's name for programs: "solution", "stub", or the note of a mutant or partial answer.
    """

    what: str
    problem: str = ""
    key: str = ""


def answer(exercise: Exercise, *blocks: str, student: str = "ada") -> Local:
    """Return the submission that results from running these blocks of code after the given block."""

    def run() -> dict[str, Any]:
        namespace: dict[str, Any] = {"__name__": "__main__", "STUDENT": student, "print": lambda *args, **kwargs: None}
        for code in (exercise.given, *blocks):
            exec(compiled(code, exercise.path), namespace)
        return namespace

    return Local(run(), student, run)


def outcomes(exercise: Exercise, seed: int, rounds: int, *blocks: str) -> Iterator[grading.Outcome]:
    """Grade an answer ``rounds`` times, with fresh inputs and fresh students' numbers."""
    for i in range(rounds):
        student = f"student-{derive_seed(seed, 'student', i) % 10**6}"
        yield grading.run_tests(exercise, answer(exercise, *blocks, student=student), derive_seed(seed, i))


def prove(exercise: Exercise, seed: int, rounds: int = 3) -> Iterator[ExerciseProof]:
    """Check all claims about one exercise; a claim that does not hold carries its problem.

    An exercise that trains uses several seeds in every round, so it takes a third of the rounds.
    """
    if not all(t.probed for t in exercise.tests):
        rounds = math.ceil(rounds / 3)
    yield complete(exercise)
    solution_proof = _claim("the solution earns everything", lambda: solution(exercise, seed, rounds), "solution")
    yield solution_proof
    if solution_proof.problem:
        return  # the other claims would fail for the same reason
    yield _claim("the stub earns nothing", lambda: stub(exercise, seed, rounds), "stub")
    for variant in exercise.mutants:
        yield _claim(f"mutant: {variant.note}", lambda v=variant: mutant(exercise, v, seed, rounds), variant.note)
    for variant in exercise.partials:
        yield _claim(f"partial: {variant.note}", lambda v=variant: partial(exercise, v, seed, rounds), variant.note)
    yield _claim("every probe finds an answer, or is switched off", lambda: probed(exercise, seed, rounds))
    yield _claim("every number and every size takes two values", lambda: varied(exercise, seed))
    for what, problem in machine(exercise, derive_seed(seed, 0)):  # whose probes the first round has made
        yield ExerciseProof(what, problem)
    for test, words in exercise.edges:
        yield ExerciseProof(f"edge: {words}: asked by {test}", edge(exercise, test, words), "edge")
    for what, problem in cheats.tried(exercise, seed):
        yield ExerciseProof(what, problem)
    yield ExerciseProof("hidden data share no constant with what students read", published(exercise), "published")
    yield ExerciseProof("the release holds nothing private", leaks(exercise, derive_seed(seed, 0)))
    yield ExerciseProof("numbers are the student's own", personal(exercise, seed))


def _claim(what: str, prove_one: Callable[..., str], key: str = "") -> ExerciseProof:
    """Check one claim; an exception in its code becomes its problem."""
    try:
        return ExerciseProof(what, prove_one(), key)
    except Failure as problem:
        return ExerciseProof(what, f"the solution fails a test: {problem.message}", key)
    except Exception as problem:
        return ExerciseProof(what, f"its code raised {type(problem).__name__}: {problem}", key)


def complete(exercise: Exercise) -> ExerciseProof:
    """Check the number of mutants, a partial answer, the names in the statement, and that all hints differ."""
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
    """Return the problem if the stub earns points, else an empty string."""
    for outcome in outcomes(exercise, seed, rounds, exercise.stub):
        if outcome.points or not outcome.reason:
            return f"it earns {outcome.points:g}"
    return ""


def solution(exercise: Exercise, seed: int, rounds: int) -> str:
    """Return the problem if the solution does not earn all points, else an empty string."""
    for outcome in outcomes(exercise, seed, rounds, exercise.solution):
        if outcome.reason or outcome.points != exercise.points:
            return f"it earns {outcome.points:g} of {exercise.points:g}: {outcome.reason}"
    return ""


def mutant(exercise: Exercise, variant: Variant, seed: int, rounds: int) -> str:
    """Return the problem if the first test that a mutant fails, or its message, is not the stated one."""
    names = [t.name for t in exercise.tests]
    catching = variant.caught_by.split(" or ")  # one of two, where the hidden draws decide which
    if not set(catching) <= set(names):
        return f"no test {variant.caught_by!r}; there are {', '.join(names)}"
    for outcome in outcomes(exercise, seed, rounds, exercise.solution, variant.code):
        failed = outcome.first_failure
        if failed is None:
            return "a wrong answer earned all points"
        if failed.test.name not in catching:
            return f"caught by {failed.test.name}, not by {variant.caught_by}: {failed.message}"
        if variant.says not in " ".join([failed.message, *failed.lines]):
            return f"caught, but it does not say {variant.says!r}: {failed.message}"
    return ""


def partial(exercise: Exercise, variant: Variant, seed: int, rounds: int) -> str:
    """Return the problem if a partial answer does not earn the stated points."""
    if not 0 < variant.points < exercise.points:
        return f"{variant.points:g} points is not a part of {exercise.points:g}"
    for outcome in outcomes(exercise, seed, rounds, exercise.solution, variant.code):
        if outcome.points != variant.points:
            return f"it earns {outcome.points:g}, not {variant.points:g}: {outcome.reason}"
    return ""


def leaks(exercise: Exercise, seed: int) -> str:
    """Return the problem if the release contains a private line; ``seed``: of the probes that its text names."""
    for text in release.texts([exercise], seed):
        if leaked_lines := release.leaks(exercise, text):
            return f"it holds {leaked_lines[0]!r}"
    return ""


def edge(exercise: Exercise, test: str, words: str) -> str:
    """Return the problem if no such test exists, or the statement does not say these words."""
    if test not in (names := [t.name for t in exercise.tests]):
        return f"no test {test!r}; there are {', '.join(names)}"
    said = " ".join(f"{exercise.statement} {exercise.stub}".split())
    return "" if words in said else "the statement does not say it"


def published(exercise: Exercise) -> str:
    """Return the problem if a constant of the tests stands in what students read, else an empty string.

    Students read the given code, the stub and what each test asks. If hidden data are made with a constant that is
    printed there, an answer can subtract it. A constant that is only compared makes no data.
    """
    read = _constants(ast.parse(f"{exercise.given}\n{exercise.stub}"))
    for t in exercise.tests:
        read |= {float(number) for number in re.findall(r"\d*\.\d+", t.asks)}
    common = (read & _constants(ast.parse(exercise.hidden))) - {*ROUND, *exercise.shared}
    if not common:
        return ""
    numbers = ", ".join(f"{x:g}" for x in sorted(common))
    return f"{numbers}: draw them in the tests, or write in [shared]: # {numbers}: why they give nothing away"


def _constants(tree: ast.AST) -> set[float]:
    """Return the floating-point constants of code, but for those of the keywords ``MARKS``."""
    found: set[float] = set()
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Constant) and isinstance(node.value, float):
            found.add(node.value)
        elif not isinstance(node, ast.Compare) and not (isinstance(node, ast.keyword) and node.arg in MARKS):
            waiting += ast.iter_child_nodes(node)
    return found


def personal(exercise: Exercise, seed: int) -> str:
    """Return the problem if one student's numbers are accepted for several other students."""
    if not exercise.is_personal:
        return "a numeric exercise depends on the student" if exercise.kind == "numeric" else ""
    original = answer(exercise, exercise.solution, student="ada")
    other_students = ("bob", "eve", "grace", "zoe", "max")
    copies = [Local({**original.namespace, "STUDENT": name}, name) for name in other_students]
    accepted = [c.student for c in copies if not grading.run_tests(exercise, c, seed).reason]
    return f"ada's numbers are right for {' and '.join(accepted)}" if len(accepted) > 1 else ""


# -- probes and generated mutants --------------------------------------------------------------------------------


def probed(exercise: Exercise, seed: int, rounds: int) -> str:
    """Return the problem if the solution has no answer to a probe that is not switched off."""
    for i in range(rounds):
        for kind, name, argument in derivation.plan(exercise, derive_seed(seed, i), "ada").unusable:
            target = f"{name}.{argument}" if argument else name
            return f"the solution has no answer to the probe {kind!r}; mend it, or write in [probes]: # no {kind} of {target}: why"
    return ""


def varied(exercise: Exercise, seed: int) -> str:
    """Return the problem if an argument is one number, text or size in all calls: an answer may hold it instead of the argument."""
    recorder = cheats.ArgumentRecorder(side_by_side.solution(exercise, "ada"), "ada")
    sub = Asked(recorder, side_by_side.Beside(exercise, "ada", {}))
    for name, asked in derivation.plan(exercise, derive_seed(seed, 0), "ada").by_function.items():
        for probe in asked:
            recorder.note(name, probe.call.args, probe.call.kwargs)
    single = _single(exercise, recorder)
    for i in range(VARIED):  # a number that is drawn may be the same by chance
        for t in exercise.tests:
            draw = Draw(seed, exercise.id, t.name, i)
            if isinstance(t, Training) and i == 0:
                side_by_side.run_once(t.curve, sub, seed, i)
            for ask in t.also if isinstance(t, Training) else (t.run,):
                ask(sub, draw)
        if not (single := _single(exercise, recorder)):
            return ""
    (target, value), *_ = single.items()
    return (
        f"`{target}` {value} in every call; ask for another value, or write in [probes]: # no varied of {target}: why"
    )


def _single(exercise: Exercise, recorder: cheats.ArgumentRecorder) -> dict[str, str]:
    """Return the arguments that were one number, text or size in all calls, with what they were.

    A size that a printed shape fixes, such as the 3 of ``(N, 3)``, is no argument.
    """
    off, found = exercise.off.get("varied", {}), {}
    printed = " ".join(PRINTED_SHAPE.findall(f"{exercise.statement} {exercise.stub}"))
    fixed = {int(n) for n in re.findall(r"\b\d+\b", printed)}
    for name, calls in recorder.calls.items():
        signature = inspect.signature(recorder.namespace[name])
        for argument, parameter in signature.parameters.items():
            if f"{name}.{argument}" in off:
                continue
            values = [arguments.get(argument, parameter.default) for arguments, _ in calls]
            if all(isinstance(v, bool | int | float | str) for v in values):
                if len(set(map(repr, values))) == 1:
                    found[f"{name}.{argument}"] = f"is {values[0]!r}"
                continue
            sizes = [dict(nested.sizes(v)) for v in values]
            for path, n in sizes[0].items():
                if n not in fixed and all(s.get(path) == n for s in sizes):
                    found[f"{name}.{argument}"] = f"has the size {n} ({', '.join(map(str, path))})"
    return found


def machine(exercise: Exercise, seed: int) -> Iterator[tuple[str, str]]:
    """Grade the generated mutants of every graded function; a mutant that earns all points is a problem."""
    plan = derivation.plan(exercise, seed, "ada")
    namespace = side_by_side.solution(exercise, "ada") if plan.by_function else {}
    for name, function_probes in plan.by_function.items():
        is_random = bool({"", name} & set(exercise.off.get("random", {})))
        for note, kind, function in _mutants(namespace[name], function_probes, plan.calls[name], is_random):
            mutant = Local({**namespace, name: function}, "ada")
            caught = _is_caught(exercise, name, plan, mutant) or grading.run_tests(exercise, mutant, seed).reason
            yield (
                f"machine's mutant of `{name}`: {note}",
                "" if caught else f"it earned all points; is there a probe {kind!r}?",
            )


def _is_caught(exercise: Exercise, name: str, plan: probes.ProbePlan, submission: Local) -> bool:
    try:
        for call in plan.calls[name][:1]:
            submission.call(name, call.args, call.kwargs)
        probes.ask_all(exercise, name, plan, submission)
    except Failure:
        return True
    return False


def _mutants(
    function: Callable[..., Any],
    function_probes: tuple[probes.Probe, ...],
    calls: tuple[probes.ProbeCall, ...],
    is_random: bool,
) -> Iterator[tuple[str, str, Callable[..., Any]]]:
    kinds, signature = {p.kind for p in function_probes}, inspect.signature(function)
    names = list(signature.parameters)

    def bound(*args: Any, **kwargs: Any) -> dict[str, Any]:
        bound_arguments = signature.bind(*args, **kwargs)
        bound_arguments.apply_defaults()
        return bound_arguments.arguments

    def writing(name: str) -> Callable[..., Any]:
        def mutated(*args: Any, **kwargs: Any) -> Any:
            result = function(*nested.copied(args), **nested.copied(kwargs))
            _spoil(bound(*args, **kwargs)[name])
            return result

        return mutated

    def ignoring(name: str, value: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: function(**{**bound(*args, **kwargs), name: value})

    def one_size_only(*args: Any, **kwargs: Any) -> Any:
        known_sizes = [_sizes((*c.args, *c.kwargs.values())) for c in calls]
        result = function(*args, **kwargs)
        return result if _sizes((*args, *kwargs.values())) in known_sizes else _distorted(result)

    def float64_only(*args: Any, **kwargs: Any) -> Any:
        if any(x.dtype == torch.float32 for x in nested.tensors((args, kwargs))):
            raise RuntimeError("expected scalar type Double but found Float")
        return function(*args, **kwargs)

    def propagates_nan(*args: Any, **kwargs: Any) -> Any:
        zero = sum(0.0 * x.sum() for x in nested.tensors((args, kwargs)) if x.is_floating_point())
        return nested.mapped(function(*args, **kwargs), lambda x: x + zero)

    def whole_numbers_only(*args: Any, **kwargs: Any) -> Any:
        result, arguments = function(*args, **kwargs), bound(*args, **kwargs)
        targets = {p.target for p in function_probes if p.kind == "values"}
        has_fractions = any(bool((x != x.round()).any()) for name in targets for x in nested.tensors(arguments[name]))
        return _distorted(result) if has_fractions else result

    def squeezed(*args: Any, **kwargs: Any) -> Any:
        return nested.mapped(function(*args, **kwargs), Tensor.squeeze)

    def drawing(*args: Any, **kwargs: Any) -> Any:
        torch.rand(())
        return function(*args, **kwargs)

    for i, value in enumerate(calls[0].args if calls else ()):
        if any(True for _ in nested.tensors(value)) or isinstance(value, list | dict):
            yield f"it writes into `{names[i]}`", "inputs", writing(names[i])
    if calls and not is_random:
        yield "it draws a random number that everybody shares", "random", drawing
    if "integers" in kinds:
        yield "floats for integers", "integers", lambda *a, **k: _floats(function(*a, **k))
    for name in dict.fromkeys(p.target for p in function_probes if p.kind == "keywords"):
        yield f"`{name}` is ignored", "keywords", ignoring(name, bound(*calls[0].args, **calls[0].kwargs)[name])
    for kind, note, mutated in (
        ("size", "right for one size only", one_size_only),
        ("single", "axes of size 1 are dropped", squeezed),
        ("values", "right for whole numbers only", whole_numbers_only),
        ("float32", "float64 only", float64_only),
        ("nan", "multiplied by the mask", propagates_nan),
        ("gradient", "detached", lambda *a, **k: nested.mapped(function(*a, **k), Tensor.detach)),
    ):
        if any(p.kind == kind and _tells(p) for p in function_probes):
            yield note, kind, mutated


def _tells(probe: probes.Probe) -> bool:
    """Whether the generated mutant fails this probe: a gradient is not zero, or an axis of size 1 is lost."""
    if probe.kind == "single":
        return any(1 in shape for shape in nested.shapes(probe.want))
    return probe.kind != "gradient" or any(bool((g.nan_to_num() != 0).any()) for _, _, g, _ in probe.gradients)


def _spoil(value: Any) -> bool:
    """Modify an argument in place, where it is nested deepest: a tensor, a list or a dictionary; False if it has none."""
    entries = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    if any(_spoil(entry) for entry in entries):
        return True
    if isinstance(value, Tensor):
        value.logical_not_() if value.dtype == torch.bool else value.add_(1)
    elif isinstance(value, list):
        value.append(0)
    elif isinstance(value, dict):
        value["spoiled"] = 0
    return isinstance(value, Tensor | list | dict)


def _sizes(values: tuple[Any, ...]) -> list[Any]:
    """Return the shapes of all tensors and the lengths of all lists, tuples and dicts."""
    sizes: list[Any] = []
    for value in values:
        if isinstance(value, Tensor):
            sizes.append(tuple(value.shape))
        elif isinstance(value, list | tuple | dict):
            items = tuple(value.values()) if isinstance(value, dict) else tuple(value)
            sizes += [len(items), *_sizes(items)]
    return sizes


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
