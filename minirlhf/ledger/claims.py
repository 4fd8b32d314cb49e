"""Generic claims: what every labelled function promises, whatever it computes. Made here for all of them, not written 200 times.

The checks of a function hand it their inputs; these are recorded, changed, and handed to it again. What then must hold follows
from the function's signature and its docstring.

=============  ==================================================================================================
``mask``       what stands where the mask is 0 never matters, not even NaN, neither in value nor in gradient, and the
               result is 0 there; a column that nobody sampled changes nothing, wherever it stands (behind all others where
               integers stand beside it, or where "a gap in the mask" has a meaning by the docstring)
``valid``      the same of the rewards of a group that could not be graded
``gradient``   along a random direction autograd gives what finite differences give; and nothing at all in the arguments
               that the docstring of function or module excludes: "no gradient", "gradients run through ``x`` only"
``batch``      leading axes ``...`` are independent: a stack of inputs gives the stack of results
``inputs``     no argument is changed
``keywords``   the checks hand over every keyword with two values that are not its default, of which a flag has one
=============  ==================================================================================================

A docstring that writes ``sg[x]``, the stop-gradient, in its formula means another gradient than that of the value: the checks of its
label state which.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import torch
from torch import Tensor

from minirlhf.core.randomness import derive_seed
from minirlhf.ledger.registry import Check, Draw

Path: TypeAlias = tuple[str | int, ...]
Function: TypeAlias = Callable[..., Any]

# Calls of one function that the claims look at, and how far rounding and curvature may take finite differences.
CALLS, STEP, TOLERANCE = 8, 1e-6, 1e-5


# -- the inputs that checks draw -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """One call that a check made of a function, its tensors without history."""

    function: Function
    arguments: Mapping[str, Any]

    def __call__(self, changes: Mapping[Path, Tensor] | None = None) -> list[Tensor]:
        """The tensors that the function returns, some of those in its arguments being replaced."""
        copies = {path: t.clone() for path, t in self.tensors.items()} | dict(changes or {})
        given = {name: _replaced(value, (name,), copies) for name, value in self.arguments.items()}
        bound = inspect.signature(self.function).bind_partial()
        bound.arguments.update(given)
        return list(_leaves(self.function(*bound.args, **bound.kwargs), ()).values())

    @property
    def tensors(self) -> dict[Path, Tensor]:
        """Every tensor in the arguments, those inside of records and lists included."""
        return {path: t for name, value in self.arguments.items() for path, t in _leaves(value, (name,)).items()}


def _leaves(value: Any, path: Path) -> dict[Path, Tensor]:
    if isinstance(value, Tensor):
        return {path: value}
    if dataclasses.is_dataclass(value):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    elif isinstance(value, tuple | list):
        value = dict(enumerate(value))
    elif not isinstance(value, dict):
        return {}
    return {inner: t for key, part in value.items() for inner, t in _leaves(part, (*path, key)).items()}


def _replaced(value: Any, path: Path, changes: Mapping[Path, Tensor]) -> Any:
    if isinstance(value, Tensor):
        return changes.get(path, value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return type(value)(**{name: _replaced(part, (*path, name), changes) for name, part in fields.items()})
    if isinstance(value, tuple | list):
        parts = [_replaced(part, (*path, i), changes) for i, part in enumerate(value)]
        return (
            type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
        )  # a named tuple takes them one by one
    return value


def record(checks: Iterable[Check], seeds: Iterable[int]) -> dict[Function, list[Call]]:
    """Every call that these checks make of the function under test: the first of each check and seed, then the second ..."""
    made: dict[Function, list[list[Call]]] = {}
    for entry, seed in itertools.product(checks, seeds):
        calls: list[Call] = []
        signature = inspect.signature(entry.of)

        @functools.wraps(entry.of)
        def candidate(
            *args: Any, _entry: Check = entry, _calls: list[Call] = calls, _signature: Any = signature, **kwargs: Any
        ) -> Any:
            bound = _signature.bind(*args, **kwargs)
            plain = {name: _plain(value) for name, value in bound.arguments.items()}
            _calls.append(Call(_entry.of, plain))
            return _entry.of(*args, **kwargs)

        outcome = entry.compare(candidate, Draw(derive_seed(seed, entry.label, entry.claim)))
        if not isinstance(outcome, tuple):
            list(outcome)
        made.setdefault(entry.of, []).append(calls)
    return {
        of: [call for calls in itertools.zip_longest(*lists) for call in calls if call is not None]
        for of, lists in made.items()
    }


def _plain(value: Any) -> Any:
    """Tensors as they were handed over: a copy, so that nothing done to them later is seen."""
    return _replaced(value, (), {path: t.detach().clone() for path, t in _leaves(value, ()).items()})


# -- what a docstring says ---------------------------------------------------------------------------------------


def flows(call: Call, path: Path) -> bool:
    """Whether a gradient should flow in this argument, by the docstring of the function or else of its module.

    In a field of a record, it must by the record's docstring too.
    """
    module = sys.modules[call.function.__module__]
    sayings = [call.function.__doc__, module.__doc__]
    record = call.arguments[str(path[0])]
    inside = len(path) == 1 or not dataclasses.is_dataclass(record) or _allows(str(path[-1]), [type(record).__doc__])
    return inside and _allows(str(path[0]), sayings)


def _allows(name: str, docstrings: Iterable[str | None]) -> bool:
    for text in docstrings:
        said = " ".join((text or "").split())
        if found := re.search(r"[Gg]radients run through ((?:``\w+``(?:, | and )?)+) only", said):
            return f"``{name}``" in found.group(1)
        if re.search(r"[Nn]o gradient flows|[.;,] [Nn]o gradient[.;,]", said):
            return False
    return True


def stops_gradients(function: Function) -> bool:
    """Whether the formula in its docstring holds a stop-gradient."""
    return "sg[" in (function.__doc__ or "")


# -- the claims: each yields what is wrong ---------------------------------------------------------------------------


def _close(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a.double(), b.double(), rtol=1e-9, atol=1e-12, equal_nan=True)


class BrokenClaim(str):
    """A sentence about a promise that is not kept.

    Attributes:
        kind: of problem: ``changed``, ``flows``, ``derivative``, ``result``, ``not 0``, ``gradient``, ``column``, ``stack``, ``error``.
        argument: whose gradient or value it is about.
        promise: its name in :data:`PROMISES`.
    """

    kind: str
    argument: str | None
    promise: str

    def __new__(cls, sentence: str, *, kind: str, argument: object = None, promise: str = "") -> Self:
        """The sentence and its facts."""
        problem = super().__new__(cls, sentence)
        problem.kind, problem.promise = kind, promise
        problem.argument = None if argument is None else str(argument)
        return problem

    def __reduce__(self) -> tuple[Any, ...]:  # for copies
        return functools.partial(BrokenClaim, str(self), **vars(self)), ()


def inputs(call: Call, draw: Draw) -> Iterator[BrokenClaim]:
    """No argument is changed."""
    given = {path: t.clone() for path, t in call.tensors.items()}
    call(given)
    for path, t in given.items():
        if not _close(t, call.tensors[path]):
            yield BrokenClaim(f"changes its argument {path[-1]}", kind="changed", argument=path[-1])


def gradient(call: Call, draw: Draw) -> Iterator[BrokenClaim]:
    """Autograd is the derivative of the value, in each argument that is not excluded; there it is nothing."""
    weights = [draw.normal(*t.shape) * t.isfinite() for t in call() if t.is_floating_point()]
    if not weights:
        return

    def total(path: Path, x: Tensor) -> Tensor:
        results = [t for t in call({path: x}) if t.is_floating_point()]
        return torch.stack(
            [(w * t.masked_fill(w == 0, 0.0)).sum() for w, t in zip(weights, results, strict=True)]
        ).sum()

    for path, given in call.tensors.items():
        if not given.is_floating_point():
            continue
        leaf = given.double().requires_grad_()
        here = total(path, leaf)
        slope = torch.autograd.grad(here, leaf, allow_unused=True)[0] if here.requires_grad else None
        slope = torch.zeros_like(leaf) if slope is None else slope
        if not flows(call, path):
            if bool((slope != 0).any()):
                message = f"a gradient flows in {path[-1]}, which the documentation excludes"
                yield BrokenClaim(message, kind="flows", argument=path[-1])
        elif not stops_gradients(call.function):
            x = leaf.detach()
            direction = _direction(x, draw)
            got = float((slope.masked_fill(direction == 0, 0.0) * direction).sum())
            size = TOLERANCE * (1 + float(here.detach().abs()))

            def along(step: float, path: Path = path, x: Tensor = x, direction: Tensor = direction) -> float:
                return float(total(path, x + step * direction).detach())

            exact = _slope(along, size)
            if exact is not None and not abs(got - exact) <= size + TOLERANCE * abs(exact):
                message = (
                    f"the gradient in {path[-1]} is not the derivative of the value: {got:.6g}, expected {exact:.6g}"
                )
                yield BrokenClaim(message, kind="derivative", argument=path[-1])


def _slope(value: Callable[[float], float], tolerance: float) -> float | None:
    """The derivative at 0 by central differences; None at a kink, a jump, or the edge of what the argument may be."""
    try:
        here, ends, half = value(0.0), (value(STEP), value(-STEP)), (value(STEP / 2), value(-STEP / 2))
    except ValueError:
        return None
    slope = (ends[0] - ends[1]) / (2 * STEP)
    others = [(ends[0] - here) / STEP, (here - ends[1]) / STEP, (half[0] - half[1]) / STEP]
    return slope if all(abs(other - slope) <= tolerance + TOLERANCE * abs(slope) for other in others) else None


def _direction(x: Tensor, draw: Draw) -> Tensor:
    """A random direction, within the simplex where ``x`` holds distributions; 0 where x is not finite."""
    direction = draw.normal(*x.shape)
    if x.dim() and torch.allclose(x.sum(-1), torch.ones_like(x.sum(-1))) and bool((x >= 0).all()):
        direction = x * (direction - (x * direction).sum(-1, keepdim=True))
    elif x.dim() == 2 and torch.allclose(x.sum(), torch.ones_like(x.sum())) and bool((x >= 0).all()):
        direction = x * (direction - (x * direction).sum())
    return direction.masked_fill(~x.isfinite(), 0.0)


def mask(call: Call, draw: Draw) -> Iterator[BrokenClaim]:
    """What is not sampled never matters: other numbers there, NaN there, a column more."""
    yield from _hidden(call, draw, "mask", call.arguments.get("mask"))


def valid(call: Call, draw: Draw) -> Iterator[BrokenClaim]:
    """The same of rewards that could not be graded; ``valid`` may be left out, and all count."""
    if "valid" in inspect.signature(call.function).parameters:
        grid = next(t for t in call.tensors.values() if t.dim() == 2)
        yield from _hidden(call, draw, "valid", call.arguments.get("valid", torch.ones_like(grid, dtype=torch.bool)))


def _hidden(call: Call, draw: Draw, by: str, given: Any) -> Iterator[BrokenClaim]:
    if not isinstance(given, Tensor) or given.dim() != 2:
        return
    call = Call(call.function, {**call.arguments, by: given})
    rows, width = given.shape
    ragged = given.bool() & (draw.uniform(rows, width) < 0.7)
    ragged[torch.arange(rows), given.bool().int().argmax(-1)] = True  # no row is empty
    tokens = {p: t for p, t in call.tensors.items() if t.shape[:2] == given.shape and p != (by,)}
    flags = {p: t & ragged for p, t in tokens.items() if t.dtype == torch.bool}
    counts = {p: t for p, t in tokens.items() if not t.is_floating_point() and t.dtype != torch.bool}
    floats = {p: t.double() for p, t in tokens.items() if t.is_floating_point()}
    base = {(by,): ragged.to(given.dtype), **flags}

    # Logits beside token ids predict the next place, and so does the mask of the next place rule over them.
    ruled = dict.fromkeys(tokens, ragged)
    if "input_ids" in call.arguments:
        ruled[("logits",)] = torch.cat([ragged[:, 1:], torch.zeros_like(ragged[:, :1])], 1)

    def outside(path: Path, value: float | Tensor) -> Tensor:
        t = floats[path]
        shown = ruled[path].view(rows, width, *[1] * (t.dim() - 2))
        # A check's own NaN stood outside its mask, and so it does here.
        return torch.where(shown, t.nan_to_num(), value)

    try:
        plain = call(base | {p: outside(p, draw.normal(*t.shape)) for p, t in floats.items()})
    except ValueError:  # too few tokens are left for it
        return
    with_nan = {p: outside(p, torch.nan).requires_grad_() for p in floats}
    got = call(base | with_nan)
    if not all(_close(a, b) for a, b in zip(plain, got, strict=True)):
        yield BrokenClaim(f"what stands outside the {by} changes the result", kind="result")
    for t in got:
        if t.shape[:2] == given.shape and width > 1 and bool((t.detach()[~ragged] != 0).any()):
            yield BrokenClaim(f"the result is not 0 outside the {by}", kind="not 0")
    roots = [t for t in got if t.requires_grad]
    if roots and floats:
        total = torch.stack([t.masked_fill(~t.detach().isfinite(), 0.0).sum() for t in roots]).sum()
        slopes = torch.autograd.grad(total, list(with_nan.values()), allow_unused=True)
        for path, slope in zip(with_nan, slopes, strict=True):
            if slope is not None and not bool(slope.isfinite().all() and (slope[~ruled[path]] == 0).all()):
                message = f"what stands outside the {by} reaches the gradient in {path[-1]}"
                yield BrokenClaim(message, kind="gradient", argument=path[-1])

    # Where integers stand or gaps say something, the place of a token has a meaning; elsewhere a column may come anywhere.
    placed = counts or "input_ids" in call.arguments or "gap in the mask" in (call.function.__doc__ or "")
    at = width if by == "mask" and placed else draw.integer(0, width)
    shown = {**base, **{p: outside(p, 0.0) for p in floats}, **counts}
    wider: dict[Path, Tensor] = {p: torch.cat([t[:, :at], _nobody(t), t[:, at:]], 1) for p, t in shown.items()}
    for a, b in zip(plain, call(wider), strict=True):
        if b.shape[:2] == (rows, width + 1):
            empty, b = b[:, at], torch.cat([b[:, :at], b[:, at + 1 :]], 1)
            if bool((empty != 0).any()):
                yield BrokenClaim("the result is not 0 in a column that nobody sampled", kind="not 0")
        if not _close(a, b):
            yield BrokenClaim("a column that nobody sampled changes the result", kind="column")


def _nobody(t: Tensor) -> Tensor:
    column = torch.zeros_like(t[:, :1])
    return column.fill_(torch.nan) if t.is_floating_point() and t.dim() >= 2 else column


def batch(call: Call, draw: Draw) -> Iterator[BrokenClaim]:
    """Leading axes are independent: two inputs in a stack give their two results."""
    said = {path: getattr(call.function, "__rules__", {}).get(str(path[0]), "") for path in call.tensors}
    # Where "..." stands in the shape, as in (K, ..., V): there the stack's axis goes.
    place = {
        path: found.start(1) // 3 for path, rule in said.items() if (found := re.match(r"\((?:\w, )?(\.\.\.)", rule))
    }
    here: dict[Path, Tensor] = {path: call.tensors[path] for path in place}
    if not here or any(t.dim() == 0 for t in here.values()) or not call():
        return  # nothing to stack, or a number as the result
    there: dict[Path, Tensor] = {path: t.flip(-1) for path, t in here.items()}
    try:
        alone = [call(here), call(there)]
        together = call({path: torch.stack([t, there[path]], place[path]) for path, t in here.items()})
    except ValueError:
        return
    for a, b, both in zip(*alone, together, strict=True):
        if not _close(torch.stack([a, b]), both):
            yield BrokenClaim("a stack of two inputs does not give the two results", kind="stack")


PROMISES: dict[str, Callable[[Call, Draw], Iterator[BrokenClaim]]] = {
    "inputs": inputs,
    "gradient": gradient,
    "mask": mask,
    "valid": valid,
    "batch": batch,
}


def is_applicable(call: Call) -> bool:
    """Whether the function takes these arguments without their history; what it is to differentiate has none here."""
    try:
        call()
    except ValueError:
        return False
    return True


def violated_claims(calls: Iterable[Call], seed: int) -> list[BrokenClaim]:
    """Which promises a function does not keep on the first :data:`CALLS` of these calls; empty if all is well."""
    found: dict[BrokenClaim, None] = {}
    first = itertools.islice(filter(is_applicable, calls), CALLS)
    for (i, call), (name, promise) in itertools.product(enumerate(first), PROMISES.items()):
        try:
            problems = list(promise(call, Draw(seed, name, i)))
        except Exception as error:  # what the function took, it takes without padding or in a stack too
            problems = [BrokenClaim(f"{type(error).__name__}: {error}", kind="error")]
        for problem in problems:
            message = f"{name}: {call.function.__module__}.{call.function.__name__}: {problem}"
            found[BrokenClaim(message, kind=problem.kind, argument=problem.argument, promise=name)] = None
    return list(found)


def keywords(function: Function, calls: Iterable[Call]) -> dict[str, list[Any]]:
    """Keywords that the checks do not vary, with the values other than the default that they hand over.

    Two such values are asked for; of a flag, and of a number of 0 or 1 such as ``ddof``, there is only one.
    """
    missing = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is not parameter.KEYWORD_ONLY:
            continue
        seen: list[Any] = []
        for call in calls:
            value = call.arguments.get(name, parameter.default)
            if value is not parameter.default and not any(_same(value, other) for other in [parameter.default, *seen]):
                seen.append(value)
        needed = 1 if isinstance(parameter.default, bool) or name == "ddof" else 2
        if len(seen) < needed:
            missing[name] = seen
    return missing


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape and bool((a == b).all())
    return a is b or bool(a == b)
