"""Argument checks: one clear ``ValueError`` that names the argument and its shape.

The functions of the equation layer declare the constraints on their arguments in a decorator, so that their bodies
hold only the formula::

    @takes(logps="B T", rewards="B", mask=MASK, gamma=UNIT)
    def some_return(logps: Tensor, rewards: Tensor, mask: Tensor, *, gamma: float) -> Tensor: ...

A string names the axes of a finite tensor: the same letter is the same size in every argument, a digit is that exact
size, and ``...`` stands for any axes that all arguments share. There is no broadcasting: ``(B,)`` against ``(B, T)`` is
an error. Other rules state further conditions, or pass on a prepared tensor (:func:`sampled`). Arguments that are None
are not checked. The text of the rules is appended to the function's docstring as its "Raises".
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError

F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class Arguments:
    """The bindings made by the arguments checked so far: each axis with its size and its argument, and the mask."""

    sizes: dict[str, tuple[Any, str]] = field(default_factory=dict)
    masks: list[Tensor] = field(default_factory=list)

    @property
    def mask(self) -> Tensor:
        """The function's mask, which is checked first. Rules that read it require a mask among the arguments."""
        return self.masks[0]


@dataclass(frozen=True)
class Rule:
    """A condition on an argument: its text, and a function that checks the value and returns what the body receives."""

    says: str
    apply: Callable[[str, Any, Arguments], Any]


def takes(**rules: Rule | str) -> Callable[[F], F]:
    """Check the arguments of the decorated function, the mask first; see the head of this module."""
    plan = {name: finite(rule) if isinstance(rule, str) else rule for name, rule in rules.items()}

    def decorate(function: F) -> F:
        parameters = inspect.signature(function).parameters
        if unknown := plan.keys() - parameters.keys():
            raise TypeError(f"{function.__name__} has no argument {', '.join(sorted(unknown))}")
        steps = [(name, list(parameters).index(name), rule.apply) for name, rule in plan.items()]
        steps.sort(key=lambda step: plan[step[0]] is not MASK)

        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            bindings, positional = Arguments(), list(args)
            for name, position, apply in steps:
                if position < len(positional):
                    if positional[position] is not None:
                        positional[position] = apply(name, positional[position], bindings)
                elif kwargs.get(name) is not None:
                    kwargs[name] = apply(name, kwargs[name], bindings)
                elif name not in kwargs and parameters[name].default is inspect.Parameter.empty:
                    break  # the function's own TypeError names what is missing
            return function(*positional, **kwargs)

        _document(checked, plan)
        checked.__rules__ = {name: rule.says for name, rule in plan.items()}  # type: ignore[attr-defined]
        return cast(F, checked)

    return decorate


def _document(function: Any, plan: dict[str, Rule]) -> None:
    """Append the text of the rules to the docstring; arguments with the same rule are listed together."""
    names_by_rule: dict[str, list[str]] = {}
    for name, rule in plan.items():
        names_by_rule.setdefault(rule.says, []).append(name)
    conditions = "; ".join(f"{', '.join(names)}: {says}" for says, names in names_by_rule.items())
    function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\nRaises: ValueError unless {conditions}."


def _holds(interval: str) -> Callable[[Any], Any]:
    """Return a test whether a number, or each number of a tensor, lies in ``"[a, b)"``; NaN, and what is no number,
    lies in no interval."""
    low, high = (float(x) for x in interval[1:-1].split(","))
    above = (lambda x: x >= low) if interval[0] == "[" else (lambda x: x > low)
    below = (lambda x: x <= high) if interval[-1] == "]" else (lambda x: x < high)
    return lambda x: isinstance(x, Real | Tensor) and above(x) & below(x)


def _written(axes: str) -> str:
    names = axes.split()
    return f"({', '.join(names)}{',' if len(names) == 1 else ''})"


# -- rules for tensors -------------------------------------------------------------------------------------------


def shape(axes: str) -> Rule:
    """A tensor of these axes with any values."""

    def apply(name: str, tensor: Tensor, bindings: Arguments) -> Tensor:
        _bind(name, tensor, axes.split(), bindings)
        return tensor

    return Rule(_written(axes), apply)


def finite(axes: str, interval: str | None = None) -> Rule:
    """A tensor of these axes without NaN or infinities, and within an interval such as ``"[0, 1]"``."""
    in_interval = None if interval is None else _holds(interval)

    def apply(name: str, tensor: Tensor, bindings: Arguments) -> Tensor:
        _bind(name, tensor, axes.split(), bindings)
        require_finite(**{name: tensor})
        if in_interval is not None and not bool(in_interval(tensor).all()):
            raise ArgumentError(
                f"{name} of shape {tuple(tensor.shape)} holds values outside {interval}",
                argument=name,
                expected=interval,
            )
        return tensor

    return Rule(f"{_written(axes)}, finite" if interval is None else f"{_written(axes)} in {interval}", apply)


def under_mask(axes: str = "B T", interval: str | None = None) -> Rule:
    """A tensor of these axes that is finite, or within an interval, under the mask; padding may hold anything."""
    in_interval = None if interval is None else _holds(interval)

    def apply(name: str, tensor: Tensor, bindings: Arguments) -> Tensor:
        _bind(name, tensor, axes.split(), bindings)
        mask = bindings.mask
        for _ in range(tensor.dim() - mask.dim()):
            mask = mask.unsqueeze(-1)
        require_finite_where(mask, **{name: tensor})
        if in_interval is not None and not bool(in_interval(tensor[mask.bool()]).all()):
            raise ArgumentError(
                f"{name} of shape {tuple(tensor.shape)} holds values outside {interval} under the mask",
                argument=name,
                expected=interval,
            )
        return tensor

    return Rule(f"{_written(axes)}, {'finite' if interval is None else f'in {interval}'} under the mask", apply)


def sampled(*, gradient: bool) -> Rule:
    """Like :func:`under_mask` for ``(B, T)``; the body gets 0 outside the mask, and a constant unless ``gradient``."""
    inner = under_mask()

    def apply(name: str, tensor: Tensor, bindings: Arguments) -> Tensor:
        inner.apply(name, tensor, bindings)
        mask = bindings.mask.bool()
        tensor = tensor if gradient else tensor.detach()
        return torch.where(mask, tensor, torch.zeros((), dtype=tensor.dtype, device=tensor.device))

    return Rule(inner.says, apply)


def _mask(name: str, mask: Tensor, bindings: Arguments) -> Tensor:
    require_mask(mask, name)
    _bind(name, mask, ["B", "T"], bindings)
    bindings.masks.append(mask)
    return mask


MASK = Rule("(B, T) of zeros and ones, no row empty", _mask)


def distribution(axes: str) -> Rule:
    """A tensor whose last axis holds probabilities that sum to 1, to within rounding."""

    def apply(name: str, tensor: Tensor, bindings: Arguments) -> Tensor:
        _bind(name, tensor, axes.split(), bindings)
        require_distributions(**{name: tensor})
        return tensor

    return Rule(f"{_written(axes)}, a distribution along the last axis", apply)


def boolean(axes: str) -> Rule:
    """A bool tensor of these axes."""

    def apply(name: str, tensor: Tensor, bindings: Arguments) -> Tensor:
        _bind(name, tensor, axes.split(), bindings)
        if tensor.dtype != torch.bool:
            raise ArgumentError(
                f"{name} of shape {tuple(tensor.shape)} has dtype {tensor.dtype}; expected bool",
                argument=name,
                value=tensor.dtype,
                expected=torch.bool,
            )
        return tensor

    return Rule(f"{_written(axes)} bool", apply)


# -- rules for numbers -------------------------------------------------------------------------------------------


def number(interval: str, why: str = "") -> Rule:
    """A number in an interval such as ``"[0, 1)"``; ``why`` ends the error message."""
    in_interval = _holds(interval)
    reason = f", {why}" if why else ""

    def apply(name: str, value: Any, bindings: Arguments) -> Any:
        if not in_interval(value):
            raise ArgumentError(
                f"{name} = {value!r}; expected a number in {interval}{reason}",
                argument=name,
                value=value,
                expected=interval,
            )
        return value

    return Rule(f"in {interval}", apply)


def at_least(low: int) -> Rule:
    """An integer of at least ``low``."""

    def apply(name: str, value: Any, bindings: Arguments) -> Any:
        if not (hasattr(value, "__index__") and value >= low):
            raise ArgumentError(
                f"{name} = {value!r}; expected an integer of at least {low}", argument=name, value=value, expected=low
            )
        return value

    return Rule(f"an integer of at least {low}", apply)


def _simple(says: str, is_valid: Callable[[Any], bool]) -> Rule:
    def apply(name: str, value: Any, bindings: Arguments) -> Any:
        if not is_valid(value):
            raise ArgumentError(f"{name} = {value!r}; expected {says}", argument=name, value=value, expected=says)
        return value

    return Rule(says, apply)


POSITIVE = _simple("a finite number > 0", lambda x: isinstance(x, Real | Tensor) and 0.0 < float(x) < math.inf)
NOT_NEGATIVE = _simple("a finite number ≥ 0", lambda x: isinstance(x, Real | Tensor) and 0.0 <= float(x) < math.inf)
FINITE = _simple("a finite number", lambda x: isinstance(x, Real | Tensor) and math.isfinite(float(x)))
UNIT = number("[0, 1]")
DDOF = _simple("0 or 1", lambda x: x in (0, 1))


def _bind(name: str, tensor: Tensor, axes: list[str], bindings: Arguments) -> None:
    """Check a tensor against its axes and record their sizes."""
    if not isinstance(tensor, Tensor):
        raise _no_tensor(name, tensor, _written(" ".join(axes)))
    shape = tuple(tensor.shape)
    if "..." in axes:
        ellipsis = axes.index("...")
        end = len(shape) - (len(axes) - ellipsis - 1)
        if end < ellipsis:
            raise _wrong_shape(name, shape, axes)
        sizes: list[Any] = [*shape[:ellipsis], shape[ellipsis:end], *shape[end:]]
    elif len(axes) == len(shape):
        sizes = list(shape)
    else:
        raise _wrong_shape(name, shape, axes)
    for axis, size in zip(axes, sizes, strict=True):
        expected, source = (int(axis), "") if axis.isdigit() else bindings.sizes.setdefault(axis, (size, name))
        if size != expected:
            why = f" with {axis} = {expected} ({f'as in {source}' if source else 'fixed'})"
            raise _wrong_shape(name, shape, axes, why)


def _no_tensor(name: str, value: Any, expected: str) -> ArgumentError:
    kind = type(value).__name__
    message = f"{name} is of type {kind}; expected a tensor of shape {expected}"
    return ArgumentError(message, argument=name, value=kind, expected=expected, problem="type")


def _wrong_shape(name: str, shape: tuple[int, ...], axes: list[str], why: str = "") -> ArgumentError:
    expected = f"({', '.join(axes)})"
    message = f"{name} has shape {shape}; expected {expected}{why}"
    return ArgumentError(message, argument=name, value=shape, expected=expected, problem="shape")


# -- the same checks as plain functions --------------------------------------------------------------------------


def require_shapes(**named: tuple[Tensor, str]) -> dict[str, int]:
    """Check every tensor against its named axes: ``require_shapes(logps=(logps, "B T"), rewards=(rewards, "B"))``.

    Returns:
        The size of each axis letter.

    Raises:
        ValueError: naming the argument, its shape and the axes expected of it.
    """
    bindings = Arguments()
    for name, (tensor, axes) in named.items():
        _bind(name, tensor, axes.split(), bindings)
    return {axis: size for axis, (size, _) in bindings.sizes.items()}


def require_finite(**tensors: Tensor) -> None:
    """Raise ``ValueError`` if a tensor holds NaN or an infinity."""
    for name, tensor in tensors.items():
        bad = int((~torch.isfinite(tensor)).sum())
        if bad:
            raise ArgumentError(
                f"{name} of shape {tuple(tensor.shape)} holds {bad} non-finite value(s)",
                argument=name,
                value=bad,
                problem="not finite",
            )


def require_finite_where(mask: Tensor, **tensors: Tensor) -> None:
    """Like :func:`require_finite`, but only where ``mask`` is set: padding may hold anything."""
    for name, tensor in tensors.items():
        bad = int((~torch.isfinite(tensor) & mask.bool()).sum())
        if bad:
            raise ArgumentError(
                f"{name} of shape {tuple(tensor.shape)} holds {bad} non-finite value(s) under the mask",
                argument=name,
                value=bad,
                problem="not finite",
            )


def require_mask(mask: Tensor, name: str = "mask") -> None:
    """Raise ``ValueError`` unless the mask is ``(B, T)``, holds only zeros and ones, and has no empty row."""
    if not isinstance(mask, Tensor):
        raise _no_tensor(name, mask, "(B, T)")
    if mask.dim() != 2:
        shape = tuple(mask.shape)
        raise ArgumentError(
            f"{name} has shape {shape}; expected (B, T)",
            argument=name,
            value=shape,
            expected="(B, T)",
            problem="shape",
        )
    if mask.dtype != torch.bool and not bool(((mask == 0) | (mask == 1)).all()):
        raise ArgumentError(
            f"{name} of shape {tuple(mask.shape)} holds values other than 0 and 1", argument=name, expected=(0, 1)
        )
    empty = (~mask.bool().any(dim=-1)).nonzero().flatten().tolist()
    if empty:
        raise ArgumentError(
            f"{name} of shape {tuple(mask.shape)} has no sampled token in row(s) {empty[:5]}",
            argument=name,
            value=empty,
            problem="empty",
        )


def require_distributions(**named: Tensor) -> None:
    """Raise ``ValueError`` unless the last axis of every tensor holds a probability distribution."""
    for name, tensor in named.items():
        sums_to_one = (tensor.sum(-1, dtype=torch.float64) - 1).abs() <= rounding(tensor)
        bad = (~(sums_to_one & (tensor >= 0).all(-1))).nonzero().tolist()
        if bad:
            raise ArgumentError(
                f"{name} of shape {tuple(tensor.shape)} holds no probability distribution along its last axis at "
                f"{bad[:3]}: an entry is negative or NaN, or the entries do not sum to 1",
                argument=name,
                value=bad,
                problem="distribution",
            )


def rounding(tensor: Tensor) -> float:
    """Largest accepted distance from 1 of an exactly computed sum of probabilities of this dtype.

    In single and double precision it is 64 rounding steps, since the probabilities may have been computed in this
    dtype, for example by a linear solver. In half precision it is 4 steps, since probabilities are only stored in it,
    and 64 steps would accept almost anything (0.5 in bfloat16).
    """
    info = torch.finfo(tensor.dtype)
    return (64 if info.bits > 16 else 4) * info.eps


def require_positive(**numbers: float) -> None:
    """Raise ``ValueError`` unless every number is finite and > 0."""
    for name, value in numbers.items():
        POSITIVE.apply(name, value, Arguments())


def require_range(low: float, high: float, **numbers: float) -> None:
    """Raise ``ValueError`` unless every number lies in ``[low, high]``."""
    for name, value in numbers.items():
        if not (isinstance(value, Real | Tensor) and low <= float(value) <= high):
            raise ArgumentError(
                f"{name} = {value!r}; expected a number in [{low}, {high}]",
                argument=name,
                value=value,
                expected=(low, high),
            )
