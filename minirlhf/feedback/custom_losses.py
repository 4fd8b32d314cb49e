"""Call a loss that a reader wrote, and check what it returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from minirlhf.core.errors import UserError
from minirlhf.feedback import custom_rewards


def is_custom(loss: str) -> bool:
    """Return whether a loss is named as a function in a file, ``FILE.py:NAME``."""
    return custom_rewards.is_named(loss)


def call_loss(
    named: str, function: Callable[..., Any], *args: Any, shape: Sequence[int], grad: bool, **kwargs: Any
) -> Tensor:
    """Return ``function(*args, **kwargs)``.

    Args:
        named: ``FILE.py:NAME``, for errors.
        shape: the shape that the result must have.
        grad: whether a gradient must flow through the result.

    Raises:
        UserError: the function fails, or its result has another shape or no gradient.
    """
    try:
        losses = function(*args, **kwargs)
    except Exception as error:  # user code may raise anything
        raise custom_rewards.failure(named, error, "loss") from error
    expected = tuple(shape)
    if not isinstance(losses, Tensor) or tuple(losses.shape) != expected:
        value: Any = tuple(losses.shape) if isinstance(losses, Tensor) else losses
        raise UserError(
            f"loss {named!r} returned {value!r}; expected a tensor of shape {expected}, one loss each, without .mean()",
            argument="loss",
            value=value,
            expected=expected,
            problem="shape",
        )
    if grad and not losses.requires_grad:
        message = f"loss {named!r}: no gradient flows through its result; expected a function of the policy's outputs"
        raise UserError(message, argument="loss", value=named, problem="no gradient")
    return losses
