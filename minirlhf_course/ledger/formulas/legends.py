"""Symbol definitions for the printed formula of each label, registered beside the label's checks.

The decorated function draws the inputs of the label's check and gives each symbol of the formula a value. One of these
values is the library's output::

    @symbols_of("eq:odpo")
    def _(draw):
        pair, legend = answers(draw)
        offset = draw.uniform(8)
        return legend | {r"\\Delta": offset, r"\\ell_{\\text{ODPO}}": pl.odpo(pair, offset, beta=BETA)}

A formula that cannot be evaluated, such as a rule in words, is registered with :func:`not_evaluated`. Readers see the
reason. After an edit the digest no longer matches, and the formula must be read again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from minirlhf.core.randomness import derive_seed
from minirlhf_course.ledger.registry import LABEL, Draw


@dataclass(frozen=True)
class SymbolTable:
    """How to evaluate the printed formula of a label.

    Attributes:
        label: ``eq:name``.
        build: draws inputs and returns ``{symbol in LaTeX: value}``; see :mod:`minirlhf_course.ledger.formulas.reader`.
        tolerance: largest ``|a − b| / max(1, |b|)`` between neighbouring sides.
        linear: whether products multiply vectors and matrices.
        harmless: misprint variants that leave the claim true: ``{piece of the variant's tokens: reason}``.
    """

    label: str
    build: Callable[[Draw], Mapping[str, Any]]
    tolerance: float
    linear: bool
    harmless: Mapping[str, str]

    def values(self, seed: int) -> Mapping[str, Any]:
        """The symbol definitions on the inputs of this seed."""
        return self.build(Draw(derive_seed(seed, self.label, "ink")))


@dataclass(frozen=True)
class NotEvaluated:
    """A formula that only people check: its digest (:func:`.items.digest`) and the reason."""

    label: str
    digest: str
    because: str


@dataclass
class Printings:
    """All symbol tables and all pins (formulas that are not evaluated), in the order of their registration."""

    legends: dict[str, SymbolTable] = field(default_factory=dict)
    pins: dict[str, NotEvaluated] = field(default_factory=dict)

    def claim(self, label: str) -> None:
        """Make sure that a label is well formed and not registered yet.

        Raises:
            ValueError: the label is malformed or registered already.
        """
        if not LABEL.fullmatch(label):
            raise ValueError(f"label {label!r}; expected the form 'eq:some-name'")
        if label in self.legends or label in self.pins:
            raise ValueError(f"{label} has symbol definitions or a pin already; register each label once")


PRINTINGS = Printings()


def symbols_of(
    label: str, *, tolerance: float = 1e-9, linear: bool = False, harmless: Mapping[str, str] | None = None
) -> Callable[[Callable[[Draw], Mapping[str, Any]]], Callable[[Draw], Mapping[str, Any]]]:
    """Register the decorated function as the symbol definitions of ``label``; see :class:`SymbolTable`.

    Raises:
        ValueError: a malformed label, or one that has symbol definitions or a pin already.
    """
    PRINTINGS.claim(label)

    def register(build: Callable[[Draw], Mapping[str, Any]]) -> Callable[[Draw], Mapping[str, Any]]:
        PRINTINGS.legends[label] = SymbolTable(label, build, tolerance, linear, harmless or {})
        return build

    return register


def not_evaluated(label: str, digest: str, because: str) -> None:
    """Register (pin) a formula with this digest as read with care, and the reason why it is not evaluated.

    Raises:
        ValueError: a malformed label, or one that has symbol definitions or a pin already.
    """
    PRINTINGS.claim(label)
    PRINTINGS.pins[label] = NotEvaluated(label, digest, because)
