"""Functions, operators and relations of printed formulas. A value is a number, a tensor or a finite set.

The last axis of a tensor holds the hidden outcomes (or a batch): ``E_π[r]`` sums over it, everything else is
elementwise along it. A gradient ``∇x`` has its components on the first axis, ``(D, outcomes)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from minirlhf_course.ledger.formulas.items import FormulaError

Value: TypeAlias = Any


def tensor(x: Value) -> Tensor:
    """Convert a number or a truth value to a float64 tensor; a tensor keeps its gradient."""
    if isinstance(x, frozenset | set):
        raise FormulaError("expected a number, not a set")
    return x.double() if isinstance(x, Tensor) else torch.tensor(float(x), dtype=torch.float64)


def _folded(f: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def fold(*xs: Value) -> Tensor:
        result, *rest = map(tensor, xs)
        for x in rest:
            result = f(result, x)
        return result

    return fold


minimum, maximum = _folded(torch.minimum), _folded(torch.maximum)


def divergence(p: Value, q: Value) -> Tensor:
    """``KL(p‖q)`` of two distributions over the last axis."""
    p, q = tensor(p), tensor(q)
    if not p.ndim:
        raise FormulaError("KL of two numbers; define the KL of two Bernoulli distributions as a symbol")
    return (p * (p.log() - q.log())).sum(-1)


def clip(x: Value, low: Value, high: Value) -> Tensor:
    """``x`` clipped to ``low`` and ``high``; the lower bound is applied first, as in ``torch.clamp``."""
    return minimum(maximum(x, low), high)


# -- arithmetic --------------------------------------------------------------------------------------------------


def quotient(a: Value, b: Value) -> Tensor:
    """``a / b``."""
    return tensor(a) / tensor(b)


def power(a: Value, b: Value) -> Value:
    """``a`` to the power ``b``; a matrix to the power −1 is its inverse."""
    if isinstance(a, Tensor) and a.ndim == 2 and isinstance(b, int) and b == -1:
        return torch.linalg.inv(a)
    return tensor(a) ** b


def product(a: Value, b: Value) -> Value:
    """``a b``, elementwise."""
    return a * b


def matrix_product(a: Value, b: Value) -> Value:
    """``a b`` in linear algebra, where a vector is a column and a number scales.

    Raises:
        FormulaError: a column to the left of a vector or matrix; it lacks a transpose.
    """
    if not (isinstance(a, Tensor) and isinstance(b, Tensor) and a.ndim and b.ndim):
        return a * b
    if a.ndim == 1:
        raise FormulaError("a column stands to the left of a vector or matrix; transpose it")
    result = a @ b
    return result[0] if result.shape == (1,) else result


def inner_product(a: Value, b: Value) -> Value:
    """``a · b``: a number for two vectors, otherwise :func:`matrix_product`."""
    vectors = isinstance(a, Tensor) and isinstance(b, Tensor) and a.ndim == b.ndim == 1
    return a @ b if vectors else matrix_product(a, b)


def transposed(a: Value) -> Value:
    """The transpose; a column becomes a row."""
    return (a[None] if a.ndim == 1 else a.mT) if isinstance(a, Tensor) and a.ndim else a


def total(xs: Sequence[Value]) -> Value:
    """The sum, 0 for no values."""
    return sum(xs)


def stacked(reduce: Callable[[Tensor], Tensor]) -> Callable[[Sequence[Value]], Tensor]:
    """Make a reduction over the values at all values of a running index."""

    def over(xs: Sequence[Value]) -> Tensor:
        if not xs:
            raise FormulaError("the running index has no values")
        return reduce(torch.stack(torch.broadcast_tensors(*map(tensor, xs))))

    return over


FUNCTIONS: dict[str, Callable[..., Value]] = {
    r"\log": lambda x: tensor(x).log(),
    r"\ln": lambda x: tensor(x).log(),
    r"\exp": lambda x: tensor(x).exp(),
    r"\cosh": lambda x: tensor(x).cosh(),
    r"\cos": lambda x: tensor(x).cos(),
    r"\sin": lambda x: tensor(x).sin(),
    r"\sigma": lambda x: tensor(x).sigmoid(),
    r"\min": minimum,
    r"\max": maximum,
    r"\KL": divergence,
    r"\mathrm{clip}": clip,
    r"\mathrm{sg}": lambda x: tensor(x).detach(),
    r"\mathrm{softmax}": lambda x: tensor(x).softmax(-1),
}

BIG: dict[str, Callable[[Sequence[Value]], Value]] = {
    r"\sum": total,
    r"\prod": math.prod,
    r"\max": stacked(lambda x: x.amax(0)),
    r"\min": stacked(lambda x: x.amin(0)),
}


# -- relations ---------------------------------------------------------------------------------------------------


def _equal(a: Value, b: Value) -> Tensor:
    if isinstance(a, frozenset | set) or isinstance(b, frozenset | set):
        return tensor(a == b)
    return tensor(tensor(a) == tensor(b))


def _element(a: Value, b: Value) -> Tensor:
    if not isinstance(b, frozenset | set | range | list):
        raise FormulaError("∈ needs a set on its right side")
    return tensor(int(a) in b)


# Each returns 1 where the relation holds and 0 elsewhere.
RELATIONS: dict[str, Callable[[Value, Value], Tensor]] = {
    "=": _equal,
    "<": lambda a, b: tensor(tensor(a) < tensor(b)),
    ">": lambda a, b: tensor(tensor(a) > tensor(b)),
    r"\ge": lambda a, b: tensor(tensor(a) >= tensor(b)),
    r"\le": lambda a, b: tensor(tensor(a) <= tensor(b)),
    r"\ne": lambda a, b: tensor(tensor(a) != tensor(b)),
    r"\in": _element,
}


# -- derivatives -------------------------------------------------------------------------------------------------


def derivative(x: Value, leaf: Tensor) -> Tensor:
    """``dx/dleaf``: components of the leaf on the first axes, hidden outcomes of ``x`` on the last."""
    x = tensor(x)
    if not x.requires_grad:
        return torch.zeros(leaf.shape + x.shape, dtype=torch.float64)

    basis = torch.eye(x.numel(), dtype=torch.float64).reshape(-1, *x.shape)
    (grad,) = torch.autograd.grad(
        x, leaf, basis, create_graph=True, is_grads_batched=True, allow_unused=True, materialize_grads=True
    )
    return grad.movedim(0, -1).reshape(leaf.shape + x.shape)


def slopes(x: Value, leaf: Tensor) -> Tensor:
    """``dx/dleaf``, entry by entry if both are batches of the same shape."""
    return derivative(tensor(x).sum(), leaf) if tensor(x).shape == leaf.shape else derivative(x, leaf)
