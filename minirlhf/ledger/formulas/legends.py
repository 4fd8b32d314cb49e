"""What the ink of each label stands for: legends, registered beside the label's checks.

A legend draws the inputs of the label's check and says what each piece of the printed formula is, the library's output among them::

    @ink("eq:odpo")
    def _(draw):
        pair, legend = answers(draw)
        offset = draw.uniform(8)
        return legend | {r"\\Delta": offset, r"\\ell_{\\text{ODPO}}": pl.odpo(pair, offset, beta=BETA)}

A formula that cannot be evaluated, a rule in words, is :func:`not_evaluated`: its reason is shown, and an edit asks for a second reading.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from minirlhf.core.randomness import derive_seed
from minirlhf.ledger.registry import LABEL, Draw


@dataclass(frozen=True)
class SymbolTable:
    """How to evaluate the formula that is printed at a label.

    Attributes:
        label: ``eq:name``.
        build: draws inputs and gives ``{piece of ink: value}``; see :mod:`minirlhf.ledger.formulas.reader`.
        tolerance: largest ``|a − b| / max(1, |b|)`` between neighbouring sides.
        linear: do products multiply vectors and matrices?
        harmless: misprints that leave the claim true, each with the reason; a piece of their tokens tells which.
    """

    label: str
    build: Callable[[Draw], Mapping[str, Any]]
    tolerance: float
    linear: bool
    harmless: Mapping[str, str]

    def values(self, seed: int) -> Mapping[str, Any]:
        """The legend on the inputs of this seed."""
        return self.build(Draw(derive_seed(seed, self.label, "ink")))


@dataclass(frozen=True)
class NotEvaluated:
    """A formula that is read by people only: its digest (:func:`.items.digest`) and why."""

    label: str
    digest: str
    because: str


@dataclass
class Printings:
    """All legends and pins, in the order of their registration."""

    legends: dict[str, SymbolTable] = field(default_factory=dict)
    pins: dict[str, NotEvaluated] = field(default_factory=dict)

    def claim(self, label: str) -> None:
        """Make sure that a label is well formed and free.

        Raises:
            ValueError: it is not.
        """
        if not LABEL.fullmatch(label):
            raise ValueError(f"label {label!r}; expected the form 'eq:some-name'")
        if label in self.legends or label in self.pins:
            raise ValueError(f"{label} has a legend or a pin already")


PRINTINGS = Printings()


def symbols_of(
    label: str, *, tolerance: float = 1e-9, linear: bool = False, harmless: Mapping[str, str] | None = None
) -> Callable[[Callable[[Draw], Mapping[str, Any]]], Callable[[Draw], Mapping[str, Any]]]:
    """Register the decorated function as the legend of ``label``; see :class:`SymbolTable`.

    Raises:
        ValueError: a malformed label, or one that has a legend or a pin already.
    """
    PRINTINGS.claim(label)

    def register(build: Callable[[Draw], Mapping[str, Any]]) -> Callable[[Draw], Mapping[str, Any]]:
        PRINTINGS.legends[label] = SymbolTable(label, build, tolerance, linear, harmless or {})
        return build

    return register


def not_evaluated(label: str, digest: str, because: str) -> None:
    """Say that the formula with this digest was read with care and why it is not evaluated.

    Raises:
        ValueError: a malformed label, or one that has a legend or a pin already.
    """
    PRINTINGS.claim(label)
    PRINTINGS.pins[label] = NotEvaluated(label, digest, because)
