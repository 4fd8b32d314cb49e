"""Generic claims: what every labelled function promises, whatever it computes. One implementation serves all functions.

The checks of a function call it with their inputs. We record these calls, change the inputs, and call the function
again. What must then hold follows from the function's signature and its ``@equation``.

=============  ==================================================================================================
``mask``       entries where the mask is 0, even NaN, change neither the value nor the gradient, and the result is 0
               there; an extra column that is masked in all rows changes nothing, at any position (only behind all
               other columns if there are integer tensors, or if the function is declared ``positional``)
``valid``      the same for the rewards of a group that could not be graded
``gradient``   along a random direction autograd gives the same derivative as finite differences; and it gives zero
               for the arguments that ``gradient=`` does not list
``batch``      leading axes ``...`` are independent: a stack of inputs gives the stack of results
``inputs``     no argument is changed
``keywords``   the checks pass two values other than the default for every keyword, and one for a flag
=============  ==================================================================================================

The gradient of a formula with a stop-gradient is not the derivative of its value. The checks of its label state which
gradient it has.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import torch
from torch import Tensor

from minirlhf.core.equation import Equation
from minirlhf.core.randomness import derive_seed
from minirlhf_course.ledger.registry import Check, Draw

Path: TypeAlias = tuple[str | int, ...]
Function: TypeAlias = Callable[..., Any]

# Calls tested per function; step of the finite differences, and their tolerance for rounding and curvature.
CALLS, STEP, TOLERANCE = 8, 1e-6, 1e-5


# -- the inputs that checks draw -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """One call of a function by a check; its tensors have no autograd history."""

    function: Function
    arguments: Mapping[str, Any]

    def __call__(self, changes: Mapping[Path, Tensor] | None = None) -> list[Tensor]:
        """Call the function with some tensors of its arguments replaced; return the tensors of its result."""
        copies = {path: t.clone() for path, t in self.tensors.items()} | dict(changes or {})
        arguments = {name: _replaced(value, (name,), copies) for name, value in self.arguments.items()}
        bound = inspect.signature(self.function).bind_partial()
        bound.arguments.update(arguments)
        return list(_leaves(self.function(*bound.args, **bound.kwargs), ()).values())

    @property
    def tensors(self) -> dict[Path, Tensor]:
        """Every tensor in the arguments, including tensors inside records and lists."""
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
    return {inner: t for key, item in value.items() for inner, t in _leaves(item, (*path, key)).items()}


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
        )  # a named tuple takes its fields one by one
    return value


def record(checks: Iterable[Check], seeds: Iterable[int]) -> dict[Function, list[Call]]:
    """Record the calls of each function under test: the first of every check and seed, then the second ..."""
    calls_of: dict[Function, list[list[Call]]] = {}
    for entry, seed in itertools.product(checks, seeds):
        calls: list[Call] = []
        signature = inspect.signature(entry.of)

        @functools.wraps(entry.of)
        def candidate(
            *args: Any, _entry: Check = entry, _calls: list[Call] = calls, _signature: Any = signature, **kwargs: Any
        ) -> Any:
            bound = _signature.bind(*args, **kwargs)
            arguments = {name: _plain(value) for name, value in bound.arguments.items()}
            _calls.append(Call(_entry.of, arguments))
            return _entry.of(*args, **kwargs)

        outcome = entry.compare(candidate, Draw(derive_seed(seed, entry.label, entry.claim)))
        if not isinstance(outcome, tuple):
            list(outcome)
        calls_of.setdefault(entry.of, []).append(calls)
    return {
        of: [call for calls in itertools.zip_longest(*lists) for call in calls if call is not None]
        for of, lists in calls_of.items()
    }


def _plain(value: Any) -> Any:
    """Copy an argument and its tensors, so that later changes in place do not affect the recorded call."""
    return _replaced(value, (), {path: t.detach().clone() for path, t in _leaves(value, ()).items()})


# -- what a function declares --------------------------------------------------------------------------------------


def flows(call: Call, path: Path) -> bool:
    """Return whether a gradient should flow in this argument; for a field of a record, the record must list it too."""
    record = call.arguments[str(path[0])]
    declared = [(path[0], Equation.of(call.function).gradient)]
    if len(path) > 1 and dataclasses.is_dataclass(record):
        declared.append((path[-1], Equation.of(type(record)).gradient))
    return all(listed is None or name in listed for name, listed in declared)


# -- the claims: each yields its violations ---------------------------------------------------------------------------


def _close(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a.double(), b.double(), rtol=1e-9, atol=1e-12, equal_nan=True)


class BrokenClaim(str):
    """A sentence about a violated promise.

    Attributes:
        kind: ``changed``, ``flows``, ``derivative``, ``result``, ``not 0``, ``gradient``, ``column``,
            ``stack``, ``error``.
        argument: the argument whose gradient or value is wrong.
        promise: the name of the promise in :data:`PROMISES`.
    """

    kind: str
    argument: str | None
    promise: str

    def __new__(cls, sentence: str, *, kind: str, argument: object = None, promise: str = "") -> Self:
        """Create the sentence and attach its facts."""
        claim = super().__new__(cls, sentence)
        claim.kind, claim.promise = kind, promise
        claim.argument = None if argument is None else str(argument)
        return claim

    def __reduce__(self) -> tuple[Any, ...]:  # for copies
        return functools.partial(BrokenClaim, str(self), **vars(self)), ()


def inputs(call: Call, draw: Draw) -> Iterator[BrokenClaim]:
    """No argument is changed."""
    originals = {path: t.clone() for path, t in call.tensors.items()}
    call(originals)
    for path, t in originals.items():
        if not _close(t, call.tensors[path]):
            yield BrokenClaim(f"changes its argument {path[-1]}", kind="changed", argument=path[-1])


def gradient(call: Call, draw: Draw) -> Iterator[BrokenClaim]:
    """Autograd gives the derivative of the value in each argument, and zero in each excluded argument."""
    weights = [draw.normal(*t.shape) * t.isfinite() for t in call() if t.is_floating_point()]
    if not weights:
        return

    def total(path: Path, x: Tensor) -> Tensor:
        results = [t for t in call({path: x}) if t.is_floating_point()]
        return torch.stack(
            [(w * t.masked_fill(w == 0, 0.0)).sum() for w, t in zip(weights, results, strict=True)]
        ).sum()

    for path, tensor in call.tensors.items():
        if not tensor.is_floating_point():
            continue
        leaf = tensor.double().requires_grad_()
        value = total(path, leaf)
        grad = torch.autograd.grad(value, leaf, allow_unused=True)[0] if value.requires_grad else None
        grad = torch.zeros_like(leaf) if grad is None else grad
        if not flows(call, path):
            if bool((grad != 0).any()):
                message = f"a gradient flows in {path[-1]}, which the function's declaration excludes"
                yield BrokenClaim(message, kind="flows", argument=path[-1])
        elif not Equation.of(call.function).stop_gradient:
            x = leaf.detach()
            direction = _direction(x, draw)
            actual = float((grad.masked_fill(direction == 0, 0.0) * direction).sum())
            tolerance = TOLERANCE * (1 + float(value.detach().abs()))

            def value_along(step: float, path: Path = path, x: Tensor = x, direction: Tensor = direction) -> float:
                return float(total(path, x + step * direction).detach())

            exact = _slope(value_along, tolerance)
            if exact is not None and not abs(actual - exact) <= tolerance + TOLERANCE * abs(exact):
                message = (
                    f"the gradient in {path[-1]} is not the derivative of the value: {actual:.6g}, expected {exact:.6g}"
                )
                yield BrokenClaim(message, kind="derivative", argument=path[-1])


def _slope(value: Callable[[float], float], tolerance: float) -> float | None:
    """The derivative at 0 by central differences; None at a kink, a jump, or the edge of the argument's domain."""
    try:
        center, ends, half = value(0.0), (value(STEP), value(-STEP)), (value(STEP / 2), value(-STEP / 2))
    except ValueError:
        return None
    slope = (ends[0] - ends[1]) / (2 * STEP)
    others = [(ends[0] - center) / STEP, (center - ends[1]) / STEP, (half[0] - half[1]) / STEP]
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
    """Entries outside the mask never matter: neither other numbers, nor NaN, nor an extra column."""
    yield from _hidden(call, draw, "mask", call.arguments.get("mask"))


def valid(call: Call, draw: Draw) -> Iterator[BrokenClaim]:
    """The same for rewards that could not be graded; if a call omits ``valid``, all rewards count."""
    if "valid" in inspect.signature(call.function).parameters:
        grid = next(t for t in call.tensors.values() if t.dim() == 2)
        yield from _hidden(call, draw, "valid", call.arguments.get("valid", torch.ones_like(grid, dtype=torch.bool)))


def _hidden(call: Call, draw: Draw, name: str, mask: Any) -> Iterator[BrokenClaim]:
    if not isinstance(mask, Tensor) or mask.dim() != 2:
        return
    call = Call(call.function, {**call.arguments, name: mask})
    rows, width = mask.shape
    ragged = mask.bool() & (draw.uniform(rows, width) < 0.7)
    ragged[torch.arange(rows), mask.bool().int().argmax(-1)] = True  # no row is empty
    tokens = {p: t for p, t in call.tensors.items() if t.shape[:2] == mask.shape and p != (name,)}
    flags = {p: t & ragged for p, t in tokens.items() if t.dtype == torch.bool}
    integers = {p: t for p, t in tokens.items() if not t.is_floating_point() and t.dtype != torch.bool}
    floats = {p: t.double() for p, t in tokens.items() if t.is_floating_point()}
    base = {(name,): ragged.to(mask.dtype), **flags}

    # Logits that come with token ids predict the next position, so the mask of the next position applies to them.
    masks = dict.fromkeys(tokens, ragged)
    if "input_ids" in call.arguments:
        masks[("logits",)] = torch.cat([ragged[:, 1:], torch.zeros_like(ragged[:, :1])], 1)

    def outside(path: Path, value: float | Tensor) -> Tensor:
        t = floats[path]
        visible = masks[path].view(rows, width, *[1] * (t.dim() - 2))
        # NaN in a check's own inputs was outside its mask, so it is outside this smaller mask too.
        return torch.where(visible, t.nan_to_num(), value)

    try:
        expected = call(base | {p: outside(p, draw.normal(*t.shape)) for p, t in floats.items()})
    except ValueError:  # too few tokens are left for the function
        return
    with_nan = {p: outside(p, torch.nan).requires_grad_() for p in floats}
    actual = call(base | with_nan)
    if not all(_close(a, b) for a, b in zip(expected, actual, strict=True)):
        yield BrokenClaim(f"what stands outside the {name} changes the result", kind="result")
    for t in actual:
        if t.shape[:2] == mask.shape and width > 1 and bool((t.detach()[~ragged] != 0).any()):
            yield BrokenClaim(f"the result is not 0 outside the {name}", kind="not 0")
    outputs = [t for t in actual if t.requires_grad]
    if outputs and floats:
        total = torch.stack([t.masked_fill(~t.detach().isfinite(), 0.0).sum() for t in outputs]).sum()
        grads = torch.autograd.grad(total, list(with_nan.values()), allow_unused=True)
        for path, grad in zip(with_nan, grads, strict=True):
            if grad is not None and not bool(grad.isfinite().all() and (grad[~masks[path]] == 0).all()):
                message = f"what stands outside the {name} reaches the gradient in {path[-1]}"
                yield BrokenClaim(message, kind="gradient", argument=path[-1])

    # With integers, or if gaps have a meaning, the position of a token matters; otherwise any column will do.
    positional = integers or "input_ids" in call.arguments or Equation.of(call.function).positional
    column = width if name == "mask" and positional else draw.integer(0, width)
    tensors = {**base, **{p: outside(p, 0.0) for p in floats}, **integers}
    wider: dict[Path, Tensor] = {
        p: torch.cat([t[:, :column], _nobody(t), t[:, column:]], 1) for p, t in tensors.items()
    }
    for a, b in zip(expected, call(wider), strict=True):
        if b.shape[:2] == (rows, width + 1):
            inserted, b = b[:, column], torch.cat([b[:, :column], b[:, column + 1 :]], 1)
            if bool((inserted != 0).any()):
                yield BrokenClaim("the result is not 0 in a column that nobody sampled", kind="not 0")
        if not _close(a, b):
            yield BrokenClaim("a column that nobody sampled changes the result", kind="column")


def _nobody(t: Tensor) -> Tensor:
    """A column of ``t`` that nobody sampled: NaN if it holds floating-point numbers, else 0."""
    column = torch.zeros_like(t[:, :1])
    return column.fill_(torch.nan) if t.is_floating_point() and t.dim() >= 2 else column


def batch(call: Call, draw: Draw) -> Iterator[BrokenClaim]:
    """Leading axes are independent: two inputs in a stack give their two results."""
    shapes = {path: getattr(call.function, "__rules__", {}).get(str(path[0]), "") for path in call.tensors}
    # The stack's axis goes to the position of "..." in the shape, as in (K, ..., V).
    stack_axis = {
        path: match.start(1) // 3 for path, rule in shapes.items() if (match := re.match(r"\((?:\w, )?(\.\.\.)", rule))
    }
    first: dict[Path, Tensor] = {path: call.tensors[path] for path in stack_axis}
    if not first or any(t.dim() == 0 for t in first.values()) or not call():
        return  # nothing to stack, or the result is a number
    second: dict[Path, Tensor] = {path: t.flip(-1) for path, t in first.items()}
    try:
        separate = [call(first), call(second)]
        stacked = call({path: torch.stack([t, second[path]], stack_axis[path]) for path, t in first.items()})
    except ValueError:
        return
    for a, b, both in zip(*separate, stacked, strict=True):
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
    """Return whether the function accepts the recorded arguments, which have no autograd history to differentiate."""
    try:
        call()
    except ValueError:
        return False
    return True


def violated_claims(calls: Iterable[Call], seed: int) -> list[BrokenClaim]:
    """Return the promises that a function violates on the first :data:`CALLS` of these calls; empty if it keeps all."""
    violations: dict[BrokenClaim, None] = {}
    first = itertools.islice(filter(is_applicable, calls), CALLS)
    for (i, call), (name, promise) in itertools.product(enumerate(first), PROMISES.items()):
        try:
            problems = list(promise(call, Draw(seed, name, i)))
        except Exception as error:  # the function must accept the same arguments without padding and in a stack
            problems = [BrokenClaim(f"{type(error).__name__}: {error}", kind="error")]
        for problem in problems:
            message = f"{name}: {call.function.__module__}.{call.function.__name__}: {problem}"
            violations[BrokenClaim(message, kind=problem.kind, argument=problem.argument, promise=name)] = None
    return list(violations)


def keywords(function: Function, calls: Iterable[Call]) -> dict[str, list[Any]]:
    """Return the keywords that the checks do not vary enough, with the non-default values that the checks pass.

    Two such values are required. A flag, and a number that is 0 or 1 such as ``ddof``, has only one.
    """
    missing = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is not parameter.KEYWORD_ONLY:
            continue
        values: list[Any] = []
        for call in calls:
            value = call.arguments.get(name, parameter.default)
            if value is not parameter.default and not any(
                _same(value, other) for other in [parameter.default, *values]
            ):
                values.append(value)
        num_required = 1 if isinstance(parameter.default, bool) or name == "ddof" else 2
        if len(values) < num_required:
            missing[name] = values
    return missing


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape and bool((a == b).all())
    return a is b or bool(a == b)
