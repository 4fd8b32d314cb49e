"""Inputs of the preference losses: records of the log-probabilities of completions, and which loss takes which record.

A record holds sums over the completion's tokens. Losses that use means per token call :meth:`PairLogps.per_token`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import require_finite, require_shapes

P = ParamSpec("P")
R = TypeVar("R", "PairLogps", "UnpairedLogps", "ListLogps")


@equation(gradient=("chosen", "rejected"))
@dataclass(frozen=True)
class PairLogps:
    """Log-probabilities of a chosen and a rejected completion of each of ``B`` prompts.

    Attributes:
        chosen, rejected: ``(B,)``, sums over the completion's tokens under the policy.
        ref_chosen, ref_rejected: ``(B,)``, the same under the reference; None for reference-free losses.
        chosen_lengths, rejected_lengths: ``(B,)``, tokens per completion (≥ 1); None if the loss does not need lengths.
    Raises:
        ValueError: a shape other than ``(B,)``, a value that is not finite, a length below 1, only one of a pair of
            optional tensors.
    """

    chosen: Tensor
    rejected: Tensor
    ref_chosen: Tensor | None = None
    ref_rejected: Tensor | None = None
    chosen_lengths: Tensor | None = None
    rejected_lengths: Tensor | None = None

    def __post_init__(self) -> None:
        _validate("B", vars(self))
        for a, b in (("ref_chosen", "ref_rejected"), ("chosen_lengths", "rejected_lengths")):
            if (getattr(self, a) is None) != (getattr(self, b) is None):
                raise ArgumentError(
                    f"PairLogps has one of {a} and {b} but not the other; give both or neither",
                    argument=a,
                    expected=b,
                    problem="one of two",
                )

    @property
    def has_reference(self) -> bool:
        """True if the record has the reference's log-probabilities."""
        return self.ref_chosen is not None

    @property
    def has_lengths(self) -> bool:
        """True if the record has the completions' lengths."""
        return self.chosen_lengths is not None

    @property
    def chosen_logratios(self) -> Tensor:
        """``(B,)``, ``log π(y_w)/π_ref(y_w)``."""
        return self.chosen - _present(self.ref_chosen, "ref_chosen").detach()

    @property
    def rejected_logratios(self) -> Tensor:
        """``(B,)``, ``log π(y_l)/π_ref(y_l)``."""
        return self.rejected - _present(self.ref_rejected, "ref_rejected").detach()

    @property
    def margins(self) -> Tensor:
        """``(B,)``, ``h``: the log-ratio of the chosen minus the log-ratio of the rejected completion."""
        return self.chosen_logratios - self.rejected_logratios

    def per_token(self) -> PairLogps:
        """The same pairs with every sum divided by its completion's length. Lengths become 1: it is idempotent."""
        chosen_lengths = _present(self.chosen_lengths, "chosen_lengths").to(self.chosen.dtype)
        rejected_lengths = _present(self.rejected_lengths, "rejected_lengths").to(self.rejected.dtype)
        return PairLogps(
            self.chosen / chosen_lengths,
            self.rejected / rejected_lengths,
            None if self.ref_chosen is None else self.ref_chosen / chosen_lengths,
            None if self.ref_rejected is None else self.ref_rejected / rejected_lengths,
            torch.ones_like(chosen_lengths),
            torch.ones_like(rejected_lengths),
        )

    def swapped(self) -> PairLogps:
        """The same pairs with every label flipped."""
        return PairLogps(
            self.rejected, self.chosen, self.ref_rejected, self.ref_chosen, self.rejected_lengths, self.chosen_lengths
        )

    def unpaired(self) -> UnpairedLogps:
        """``2B`` single completions: first the chosen (desirable) ones, then the rejected ones."""
        desirable = torch.arange(2 * len(self.chosen), device=self.chosen.device) < len(self.chosen)
        return UnpairedLogps(
            torch.cat([self.chosen, self.rejected]),
            _joined(torch.cat, self.ref_chosen, self.ref_rejected),
            _joined(torch.cat, self.chosen_lengths, self.rejected_lengths),
            desirable,
        )

    def ranked(self) -> ListLogps:
        """Lists of two completions, the chosen one first."""
        stack = functools.partial(torch.stack, dim=-1)
        return ListLogps(
            stack([self.chosen, self.rejected]),
            _joined(stack, self.ref_chosen, self.ref_rejected),
            _joined(stack, self.chosen_lengths, self.rejected_lengths),
        )


@equation(gradient=("logps",))
@dataclass(frozen=True)
class UnpairedLogps:
    """Log-probabilities of ``B`` single completions with binary labels.

    Attributes:
        logps: ``(B,)``, sums over the completion's tokens under the policy.
        ref_logps: ``(B,)``, the same under the reference, or None.
        lengths: ``(B,)``, tokens per completion, or None.
        desirable: ``(B,)`` bool, True for a desirable completion (thumbs up).
    Raises:
        ValueError: a shape other than ``(B,)``, a value that is not finite, a length below 1, labels that are not bool.
    """

    logps: Tensor
    ref_logps: Tensor | None
    lengths: Tensor | None
    desirable: Tensor

    def __post_init__(self) -> None:
        _validate("B", vars(self))
        if self.desirable.dtype != torch.bool:
            raise ArgumentError(
                f"desirable of shape {tuple(self.desirable.shape)} is {self.desirable.dtype}; expected bool",
                argument="desirable",
                value=self.desirable.dtype,
                expected=torch.bool,
            )

    @property
    def has_reference(self) -> bool:
        """True if the record has the reference's log-probabilities."""
        return self.ref_logps is not None

    @property
    def has_lengths(self) -> bool:
        """True if the record has the completions' lengths."""
        return self.lengths is not None

    @property
    def logratios(self) -> Tensor:
        """``(B,)``, ``log π(y)/π_ref(y)``."""
        return self.logps - _present(self.ref_logps, "ref_logps").detach()


@equation(gradient=("logps",))
@dataclass(frozen=True)
class ListLogps:
    """Log-probabilities of ``K`` completions of each of ``B`` prompts; rankings run from best to worst.

    Attributes:
        logps: ``(B, K)``, sums over the completion's tokens under the policy.
        ref_logps: ``(B, K)``, the same under the reference, or None.
        lengths: ``(B, K)``, tokens per completion, or None.
    Raises:
        ValueError: a shape other than ``(B, K)``, fewer than two completions, a value that is not finite, a length
            below 1.
    """

    logps: Tensor
    ref_logps: Tensor | None = None
    lengths: Tensor | None = None

    def __post_init__(self) -> None:
        _validate("B K", vars(self))
        if self.logps.shape[1] < 2:
            raise ArgumentError(
                f"logps has shape {tuple(self.logps.shape)}; expected (B, K) with K ≥ 2 completions",
                argument="logps",
                value=tuple(self.logps.shape),
                problem="too few",
            )

    @property
    def has_reference(self) -> bool:
        """True if the record has the reference's log-probabilities."""
        return self.ref_logps is not None

    @property
    def has_lengths(self) -> bool:
        """True if the record has the completions' lengths."""
        return self.lengths is not None

    @property
    def logratios(self) -> Tensor:
        """``(B, K)``, ``log π(y)/π_ref(y)``."""
        return self.logps - _present(self.ref_logps, "ref_logps").detach()


# -- which loss takes which record -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Needs(Generic[R]):
    """The inputs that a loss needs. As a decorator it declares and checks them: ``@Needs(PairLogps, lengths=True)``.

    The errors list the losses that accept the given record.

    Attributes:
        record: the class of the loss's record.
        reference: whether the loss reads the reference's log-probabilities.
        lengths: whether the loss reads the completions' lengths.
        per_token: whether the implicit reward is a mean, not a sum, over the completion's tokens.
        loss: False for a function of a record that is not a loss; it is checked, but not listed by :meth:`losses`.
    """

    record: type[R]
    reference: bool = True
    lengths: bool = False
    per_token: bool = False
    loss: bool = True

    def __call__(self, function: Callable[Concatenate[R, P], Tensor]) -> Callable[Concatenate[R, P], Tensor]:
        """Return the function with a check of its record at every call."""

        @functools.wraps(function)
        def checked(batch: R, /, *args: P.args, **kwargs: P.kwargs) -> Tensor:
            self._check(function.__name__, batch)
            return function(batch, *args, **kwargs)

        if self.loss:
            _DECLARED[checked] = self
        return checked

    @staticmethod
    def of(loss: Callable[..., Tensor]) -> Needs[Any]:
        """The inputs of a loss (or of a ``functools.partial`` of it); ``ValueError`` if it has no ``@Needs``."""
        while isinstance(loss, functools.partial):
            loss = loss.func
        if loss not in _DECLARED:
            name = getattr(loss, "__name__", repr(loss))
            raise ArgumentError(
                f"{name} is not declared as a preference loss: decorate it with @Needs(PairLogps) or another record",
                argument="loss",
                value=name,
                problem="not declared",
            )
        return _DECLARED[loss]

    @staticmethod
    def losses(record: type[object], *, reference: bool = True, lengths: bool = True) -> list[str]:
        """Names of this package's losses that accept the record, given whether it has a reference and lengths."""
        return sorted(
            loss.__name__
            for loss, need in _DECLARED.items()
            if need.record is record
            and (reference or not need.reference)
            and (lengths or not need.lengths)
            and loss.__module__.startswith(f"{__package__}.")
        )

    def _check(self, name: str, batch: R) -> None:
        kind = self.record.__name__
        if not isinstance(batch, self.record):
            accepted = self.losses(type(batch))
            hint = f"; losses of {type(batch).__name__}: {', '.join(accepted)}" if accepted else ""
            raise TypeError(f"{name} takes {kind}, not {type(batch).__name__}{hint}")
        if self.reference and not batch.has_reference:
            reference_free = ", ".join(self.losses(self.record, reference=False)) or "none"
            raise ArgumentError(
                f"{name} needs the reference's log-probabilities (ref_…), which this {kind} does not have; losses "
                f"without a reference: {reference_free}",
                argument="reference",
                value=name,
                expected=self.losses(self.record, reference=False),
                problem="missing",
            )
        if self.lengths and not batch.has_lengths:
            raise ArgumentError(
                f"{name} needs the completions' lengths, which this {kind} does not have",
                argument="lengths",
                value=name,
                problem="missing",
            )


_DECLARED: dict[Callable[..., Tensor], Needs[Any]] = {}

# -- helpers -----------------------------------------------------------------------------------------------------


def _validate(axes: str, named: dict[str, Tensor | None]) -> None:
    present = {name: tensor for name, tensor in named.items() if tensor is not None}
    require_shapes(**{name: (tensor, axes) for name, tensor in present.items()})
    require_finite(**present)
    for name, tensor in present.items():
        if name.endswith("lengths") and not bool((tensor >= 1).all()):
            raise ArgumentError(
                f"{name} of shape {tuple(tensor.shape)} contains a length below 1", argument=name, expected=1
            )


def _present(tensor: Tensor | None, name: str) -> Tensor:
    if tensor is None:
        raise ArgumentError(f"{name} is missing from this record", argument=name, problem="missing")
    return tensor


def _joined(join: Callable[[list[Tensor]], Tensor], a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return None if a is None or b is None else join([a, b])
