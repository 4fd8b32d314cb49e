"""The check registry: what proves each labelled equation, keyed by (label, claim).

A check computes the same quantity twice: with the function under test and with an independent oracle. It draws fresh
inputs from a seed, computes expectations exactly (never by sampling), and names wrong variants that it must reject::

    @check("eq:k3", "value", "The expectation of k3 under π is KL(π‖π_ref).",
           of=kl.k3, against="KL summed over all outcomes",
           wrong={"log-ratio reversed": lambda logps, ref_logps: kl.k3(ref_logps, logps)})
    def _(k3, draw):
        p, q = draw.distribution(5), draw.distribution(5)
        return (p * k3(p.log(), q.log())).sum(), exact.divergence(p, q)

The modules ``minirlhf_course.chapters.chNN_name.checks`` (and ``checks_topic``, where one file would be too long) hold the checks of chapter NN.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError
from minirlhf.core.exact import ToyLM
from minirlhf.core.randomness import derive_seed, generator

Comparison: TypeAlias = tuple[Tensor | float, Tensor | float]
LABEL = re.compile(r"eq:[a-z0-9]+(-[a-z0-9]+)*")


class Draw:
    """Random inputs for one check, all float64, reproducible from its seed."""

    def __init__(self, *keys: int | str) -> None:
        self._keys = keys
        self._rng = generator(*keys)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Uniform numbers in ``[low, high)``."""
        return low + (high - low) * torch.rand(shape, dtype=torch.float64, generator=self._rng)

    def normal(self, *shape: int, scale: float = 1.0) -> Tensor:
        """Normal numbers with mean 0."""
        return scale * torch.randn(shape, dtype=torch.float64, generator=self._rng)

    def integer(self, low: int, high: int) -> int:
        """One integer in ``low .. high``, both included."""
        return int(torch.randint(low, high + 1, (1,), generator=self._rng))

    def permutation(self, n: int) -> Tensor:
        """A random order of ``0 .. n−1``."""
        return torch.randperm(n, generator=self._rng)

    def distribution(self, *shape: int, scale: float = 1.0) -> Tensor:
        """Probabilities along the last axis, none of them near 0."""
        return self.normal(*shape, scale=scale).clamp(-2.5 * scale, 2.5 * scale).softmax(-1)

    def logps(self, *shape: int) -> Tensor:
        """Log-probabilities of tokens: negative numbers between about −4 and −0.05."""
        return -self.uniform(*shape, low=0.05, high=4.0)

    def away_from(self, kinks: Iterable[float], *shape: int, low: float, high: float, margin: float = 0.02) -> Tensor:
        """Uniform numbers in ``[low, high)`` at least ``margin`` away from every kink, so that no check is unlucky."""
        points = sorted(kinks)
        x = self.uniform(*shape, low=low, high=high)
        for _ in range(1000):
            near = torch.zeros_like(x, dtype=torch.bool)
            for kink in points:
                near |= (x - kink).abs() < margin
            if not bool(near.any()):
                return x
            x = torch.where(near, self.uniform(*shape, low=low, high=high), x)
        raise ArgumentError(
            f"no room between {low} and {high} at {margin} from {points}", argument="margin", value=margin
        )

    def mask(self, rows: int, width: int) -> Tensor:
        """A right-padded token mask ``(rows, width)`` of ragged lengths: none empty, one full, one of several not full."""
        lengths = torch.randint(1, width + 1, (rows,), generator=self._rng)
        full = self.integer(0, rows - 1)
        lengths[full] = width
        if rows > 1 and bool((lengths == width).all()):  # without padding no check could notice that it is counted
            lengths[(full + 1) % rows] = max(1, width - 1)
        return torch.arange(width)[None, :] < lengths[:, None]

    def holed_mask(self, rows: int, width: int) -> Tensor:
        """A token mask with holes, as for tool output inside a completion; every row keeps at least its last token."""
        mask = torch.rand(rows, width, generator=self._rng) < 0.7
        mask[:, -1] = True
        if width > 1 and bool(mask.all()):
            mask[0, 0] = False
        return mask

    def toy(self, vocab_size: int = 3, max_len: int = 3, num_prompts: int = 1, scale: float = 1.0) -> ToyLM:
        """An enumerable language model with random logits."""
        return ToyLM(vocab_size, max_len, num_prompts, seed=self.integer(0, 2**31), scale=scale)


@dataclass(frozen=True)
class Check:
    """One entry of the ledger. ``statement`` is the claim in words."""

    label: str
    claim: str
    statement: str
    against: str
    of: Callable[..., Any]
    compare: Callable[[Callable[..., Any], Draw], Comparison | Iterable[Comparison]]
    wrong: Mapping[str, Callable[..., Any]]
    tolerance: float
    follows: str | None
    chapter: int

    @property
    def key(self) -> tuple[str, str]:
        """``(label, claim)``, unique in the ledger."""
        return self.label, self.claim


@dataclass(frozen=True)
class Chain:
    """A derivation: labelled steps. Each step has a check that equates it with the previous step."""

    name: str
    title: str
    labels: tuple[str, ...]
    chapter: int


@dataclass(frozen=True)
class Result:
    """Outcome of one check on one seed."""

    check: Check
    seed: int
    error: float
    seconds: float
    message: str = ""

    @property
    def passed(self) -> bool:
        """True if the two computations agree within the tolerance."""
        return self.error <= self.check.tolerance


@dataclass
class Ledger:
    """All checks and chains, in the order of their registration."""

    checks: dict[tuple[str, str], Check] = field(default_factory=dict)
    chains: dict[str, Chain] = field(default_factory=dict)

    def labels(self) -> list[str]:
        """Every label once, in order."""
        return list(dict.fromkeys(label for label, _ in self.checks))

    def select(self, labels: Iterable[str] = (), chapter: int | None = None) -> list[Check]:
        """The checks of these labels (all labels if none is given) and of this chapter (all chapters if None)."""
        label_set = set(labels)
        return [
            c
            for c in self.checks.values()
            if (not label_set or c.label in label_set) and (chapter is None or c.chapter == chapter)
        ]


LEDGER = Ledger()


def _chapter_of(module: str) -> int:
    match = re.search(r"\.chapters\.ch(\d\d)_\w+\.checks(?:_[a-z_]+)?$", module)
    return int(match.group(1)) if match else 0


def check(
    label: str,
    claim: str,
    statement: str,
    *,
    of: Callable[..., Any],
    against: str,
    wrong: Mapping[str, Callable[..., Any]],
    tolerance: float = 1e-9,
    follows: str | None = None,
    ledger: Ledger = LEDGER,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function as the check of ``(label, claim)``.

    Args:
        label: ``eq:name``, as in the book.
        claim: which property is checked: ``value``, ``gradient``, ``limit``, ``step`` ...
        statement: the claim in words, for readers.
        of: the function under test; the check receives it as an argument, so that a wrong variant can replace it.
        against: the oracle, in a few words.
        wrong: named variants with the signature of ``of`` that the check must reject; at least one.
        tolerance: largest ``|a − b| / max(1, |b|)``.
        follows: the label of the derivation step that this step is equated with.

    Raises:
        ValueError: malformed label, duplicate key, no statement, or no wrong variant.
    """
    if not LABEL.fullmatch(label):
        raise ArgumentError(
            f"label {label!r}; expected the form 'eq:some-name'", argument="label", value=label, expected="eq:some-name"
        )
    if not wrong:
        raise ArgumentError(
            f"check ({label}, {claim}) has no wrong variant; name one to reject", argument="wrong", problem="empty"
        )

    if not statement:
        raise ArgumentError(
            f"check ({label}, {claim}) has an empty statement; say in words what it checks",
            argument="statement",
            problem="empty",
        )

    def register(compare: Callable[..., Any]) -> Callable[..., Any]:
        if (label, claim) in ledger.checks:
            raise ArgumentError(
                f"check ({label}, {claim}) is registered twice",
                argument="check",
                value=(label, claim),
                problem="duplicate",
            )
        ledger.checks[label, claim] = Check(
            label,
            claim,
            statement,
            against,
            of,
            compare,
            dict(wrong),
            tolerance,
            follows,
            _chapter_of(compare.__module__ or ""),
        )
        return compare

    return register


def chain(name: str, title: str, labels: Iterable[str], *, module: str, ledger: Ledger = LEDGER) -> Chain:
    """Declare a derivation. Pass ``module=__name__``, from which the chapter is derived."""
    if name in ledger.chains:
        raise ArgumentError(f"chain {name!r} is declared twice", argument="chain", value=name, problem="duplicate")
    ledger.chains[name] = Chain(name, title, tuple(labels), _chapter_of(module))
    return ledger.chains[name]


def discrepancy(got: Tensor | float, expected: Tensor | float) -> float:
    """Largest ``|got − expected| / max(1, |expected|)``; infinite if a shape differs or anything is NaN."""
    a, b = (torch.as_tensor(x, dtype=torch.float64).detach() for x in (got, expected))
    if a.shape != b.shape:
        return math.inf
    if a.numel() == 0:
        raise ValueError("a check compared two empty tensors")
    error = ((a - b).abs() / b.abs().clamp(min=1.0)).max().item()
    return error if math.isfinite(error) else math.inf


def discrepancies(entry: Check, candidate: Callable[..., Any], seed: int) -> list[float]:
    """The discrepancy of every comparison that this check makes of ``candidate`` on the inputs of ``seed``."""
    outcome = entry.compare(candidate, Draw(derive_seed(seed, entry.label, entry.claim)))
    pairs = [outcome] if isinstance(outcome, tuple) else list(outcome)
    if not pairs:
        raise ValueError(f"check {entry.key} compared nothing")
    return [discrepancy(got, expected) for got, expected in pairs]


def evaluate(entry: Check, candidate: Callable[..., Any], seed: int) -> float:
    """The largest discrepancy over all comparisons that this check makes of ``candidate``."""
    return max(discrepancies(entry, candidate, seed))


def run(entry: Check, seed: int) -> Result:
    """Run one check. An exception inside it is a failure, not a crash."""
    return _timed(entry, seed, lambda: evaluate(entry, entry.of, seed))


def run_wrong(entry: Check, variant: Callable[..., Any], seed: int) -> Result:
    """Run one check on a wrong variant; the error is the largest finite discrepancy.

    A variant that raises, returns another shape or is infinite everywhere has computed nothing; the message says so.
    """

    def finite() -> float:
        finite_errors = [error for error in discrepancies(entry, variant, seed) if error < math.inf]
        if not finite_errors:
            raise ValueError("no comparison has a finite value of the expected shape")
        return max(finite_errors)

    return _timed(entry, seed, finite)


def _timed(entry: Check, seed: int, compute: Callable[[], float]) -> Result:
    start = time.perf_counter()
    try:
        error, message = compute(), ""
    except Exception as exception:
        error, message = math.inf, f"{type(exception).__name__}: {exception}"
    return Result(entry, seed, error, time.perf_counter() - start, message)
