"""Text and JSON for readers of the ledger: a table of checks, a page on one equation, the list of derivations.

:mod:`minirlhf_course.ledger.registry` holds the registry and runs single checks; this module formats their outcomes.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import math
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minirlhf.core import provenance
from minirlhf.core.equation import Equation
from minirlhf_course.ledger import claims
from minirlhf_course.ledger.registry import Chain, Check, Ledger, Result, run, run_wrong

# A wrong variant counts as rejected when its error exceeds this multiple of the tolerance.
REJECTION = 1000.0
# A wrong variant that by chance agrees on one seed's inputs, such as a cosine of short vectors, is rejected on another's.
SEEDS = 3


@dataclass(frozen=True)
class CheckOutcome:
    """Results of one check on one seed, and of every wrong variant, which it must reject on this seed or the next two."""

    result: Result
    wrong: Mapping[str, Result]

    @property
    def accepted(self) -> list[str]:
        """The wrong variants without a finite wrong value. A variant that raises is one: it computed nothing."""
        return [name for name, variant in self.wrong.items() if not _rejected(variant)]


def _rejected(variant: Result) -> bool:
    return not variant.message and variant.error > REJECTION * variant.check.tolerance


def outcome(entry: Check, seed: int) -> CheckOutcome:
    """Run a check on a seed, and each wrong variant until one of :data:`SEEDS` seeds rejects it."""
    wrong = {}
    for name, variant in entry.wrong.items():
        for further in range(SEEDS):
            wrong[name] = run_wrong(entry, variant, seed + further)
            if _rejected(wrong[name]):
                break
    return CheckOutcome(run(entry, seed), wrong)


# -- numbers and text --------------------------------------------------------------------------------------------


def scientific(x: float) -> str:
    """``2.2e-16``, ``1e-9``, ``0``: two digits, without padding."""
    if x == 0 or not math.isfinite(x):
        return f"{x:g}"
    mantissa, exponent = f"{x:.1e}".split("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"


def written(number: float) -> str:
    """Format a number as in print, with no-break spaces: ``1.6 × 10⁻¹⁶``."""
    digits, _, power = scientific(number).partition("e")
    if power in ("", "0"):
        return digits
    ten = "10" + power.translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return ten if digits == "1" else f"{digits}\u00a0×\u00a0{ten}"


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def shorten(text: str, width: int) -> str:
    """``text`` in at most ``width`` characters, with an ellipsis where it was cut."""
    return text if len(text) <= width else text[: width - 1] + "…"


# -- the table ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """Column widths for a set of checks, so that rows can be printed as the checks finish."""

    label: int
    claim: int
    against: int

    @classmethod
    def fit(cls, checks: Sequence[Check], width: int | None) -> Table:
        """Columns for these checks, within ``width`` characters if it is given."""
        label, claim, against = (
            max(len(text) for text in column)
            for column in zip(*[(c.label, c.claim, c.against) for c in checks], strict=True)
        )
        if width is not None:
            against = min(against, width - label - claim - 46)  # 46: the other columns and the gaps
        return cls(max(label, 5), max(claim, 5), max(against, 15))

    def line(self, label: str, claim: str, against: str, error: str, tolerance: str, time: str, mark: str) -> str:
        """One line of the table."""
        texts = f"{label:<{self.label}}  {claim:<{self.claim}}  {shorten(against, self.against):<{self.against}}"
        return f"{texts}  {error:>11}  {tolerance:>9}  {time:>8}  {mark:<6}"

    def header(self) -> str:
        """The names of the columns."""
        names = ("label", "claim", "checked against", "worst error", "tolerance", "time", "")
        return self.line(*names).rstrip()

    def row(self, result: Result) -> str:
        """One finished check."""
        c = result.check
        mark = "✓" if result.passed else "FAILED"
        numbers = (scientific(result.error), scientific(c.tolerance), f"{1000 * result.seconds:.1f} ms")
        return self.line(c.label, c.claim, c.against, *numbers, mark).rstrip()


def run_and_print(checks: Sequence[Check], seed: int, width: int | None = None) -> bool:
    """Run the checks, print each when it is done, return whether all hold. ``width`` None: no limit to a line."""
    table, start, results = Table.fit(checks, width), time.perf_counter(), []
    print(table.header())
    for entry in checks:
        results.append(run(entry, seed))
        print(table.row(results[-1]), flush=True)
    seconds, failed = time.perf_counter() - start, [result for result in results if not result.passed]
    print("\n" + "\n\n".join([*map(failure, failed), summary(results, seconds)]))
    return not failed


def replay(result: Result) -> str:
    """The command that repeats this check on the same inputs."""
    return f"minirlhf verify {result.check.label} --seed {result.seed}"


def failure(result: Result) -> str:
    """Describe a failed check and the command that repeats it."""
    c = result.check
    detail = result.message or f"error {scientific(result.error)}, tolerance {scientific(c.tolerance)}"
    return f"{c.label} ({c.claim}): {c.statement}\n  {detail}\n  replay: {replay(result)}"


def summary(results: Sequence[Result], seconds: float) -> str:
    """Summarise all results in one line."""
    failed = sum(not r.passed for r in results)
    checks = _count(len(results), "check")
    outcome = f"{failed} of {checks} FAILED" if failed else f"{checks} passed"
    equations = _count(len({r.check.label for r in results}), "equation")
    return f"{outcome}, {equations}, {seconds:.1f} s, seed {results[0].seed}"


def as_json(results: Sequence[Result], seconds: float) -> dict[str, Any]:
    """The results as plain data. An error that is not finite becomes null."""
    return {
        "seed": results[0].seed,
        "seconds": seconds,
        "passed": sum(r.passed for r in results),
        "failed": sum(not r.passed for r in results),
        "checks": [
            {
                "label": r.check.label,
                "claim": r.check.claim,
                "chapter": r.check.chapter,
                "statement": r.check.statement,
                "against": r.check.against,
                "follows": r.check.follows,
                "wrong": list(r.check.wrong),
                "error": r.error if math.isfinite(r.error) else None,
                "tolerance": r.check.tolerance,
                "passed": r.passed,
                "seconds": r.seconds,
                "message": r.message,
            }
            for r in results
        ],
    }


# -- where an equation is implemented ----------------------------------------------------------------------------


def holds_equations(module: str) -> bool:
    """Whether it is the oracle's, a module of the library's equations, or declares those that only one chapter needs."""
    of_chapter = module.startswith("minirlhf_course.chapters.") and "\n@equation(" in provenance.source(module)
    return of_chapter or module.startswith(("minirlhf.core.", "minirlhf.equations."))


@functools.cache
def homes() -> dict[str, tuple[Callable[..., Any], ...]]:
    """Map each label to the functions and classes that declare it by ``@equation``."""
    functions: dict[str, tuple[Callable[..., Any], ...]] = {}
    for name in provenance.all_modules():
        if holds_equations(name):
            for _, member in inspect.getmembers(importlib.import_module(name), callable):
                if getattr(member, "__module__", None) == name:
                    for label in Equation.of(member).labels:
                        functions[label] = (*functions.get(label, ()), member)
    return functions


def unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function under decorators and ``functools.partial``."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.unwrap(function)


def _is_named(thing: Callable[..., Any]) -> bool:
    return inspect.isclass(thing) or (inspect.isfunction(thing) and thing.__name__ != "<lambda>")


def implementations(checks: Sequence[Check]) -> list[Callable[..., Any]]:
    """The library's functions behind these checks: first those that name the labels, then those under test."""
    functions = [home for c in checks for home in homes().get(c.label, ())] + [c.of for c in checks]
    return [f for f in dict.fromkeys(map(unwrapped, functions)) if _is_named(f)]


def source(thing: Callable[..., Any]) -> tuple[str, list[str]]:
    """``("minirlhf/equations/kl.py:42", lines of code)``, of the function under its decorators."""
    thing = inspect.unwrap(thing)
    lines, first = inspect.getsourcelines(thing)
    path = Path(inspect.getsourcefile(thing) or "").resolve()
    location = path.relative_to(provenance.ROOT) if path.is_relative_to(provenance.ROOT) else path.name
    return f"{location}:{max(first, 1)}", textwrap.dedent("".join(lines)).rstrip().splitlines()


# -- the page on one equation ------------------------------------------------------------------------------------


def _wrap_code(lines: Sequence[str], width: int) -> Iterator[str]:
    for line in lines:
        indent = line[: len(line) - len(line.lstrip())]
        wrapped = textwrap.wrap(
            line, width, subsequent_indent=f"{indent}  ↪ ", replace_whitespace=False, break_on_hyphens=False
        )
        yield from wrapped or [""]


def beside(left: Sequence[str], right: Sequence[str], width: int) -> list[str]:
    """Two listings in two columns if each gets at least 72 characters, otherwise one below the other."""
    column = (width - 3) // 2
    if column < 72:
        return [*_wrap_code(left, width), "", *_wrap_code(right, width)]
    a, b = list(_wrap_code(left, column)), list(_wrap_code(right, column))
    rows = max(len(a), len(b))
    a += [""] * (rows - len(a))
    b += [""] * (rows - len(b))
    return [f"{x:<{column}} │ {y}".rstrip() for x, y in zip(a, b, strict=True)]


def _paragraph(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(text, min(width, 100), initial_indent=indent, subsequent_indent=indent)


def _listing(thing: Callable[..., Any]) -> list[str]:
    location, code = source(thing)
    return [f"── {location} ──", *code]


def _told(outcome: CheckOutcome) -> list[str]:
    entry, result = outcome.result.check, outcome.result
    verdict = "✓" if result.passed else f"FAILED {result.message}".rstrip()
    lines = [
        f"  {entry.claim}: worst error {scientific(result.error)}, tolerance {scientific(entry.tolerance)}  {verdict}"
    ]
    accepted = outcome.accepted
    for name, variant in outcome.wrong.items():
        verdict = f"NOT REJECTED {variant.message}".rstrip() if name in accepted else "rejected"
        lines.append(f"    wrong on purpose, {name}: error {scientific(variant.error)}  {verdict}")
    return lines


def _neighbourhood(ledger: Ledger, chain: Chain, label: str, width: int) -> list[str]:
    lines = [f"Derivation {chain.name!r}: {chain.title}"]
    for number, step in enumerate(chain.labels, 1):
        here = "▸" if step == label else " "
        steps = [c for c in ledger.select([step]) if number == 1 or c.follows == chain.labels[number - 2]]
        lines.append(f" {here} {number}. {step}")
        lines += _paragraph(steps[0].statement, width, "       ")
    return lines


def page(
    ledger: Ledger, label: str, seed: int, width: int = 100, prove: Callable[[Check, int], CheckOutcome] = outcome
) -> tuple[str, bool]:
    """Describe one equation: statements, code and checks, a fresh run, the derivations that it belongs to.

    Args:
        label: a label of the ledger.
        seed: the seed of the fresh run.
        width: of the terminal; from 147 characters on, code and check are printed side by side.
        prove: runs a check and its wrong variants, or returns their stored outcome.

    Returns:
        The text, and whether all checks passed.
    """
    checks = ledger.select([label])
    rule = "─" * min(width, 100)
    lines = [f"{label}   (chapter {checks[0].chapter:02d})", rule]
    for c in checks:
        lines += _paragraph(f"{c.claim}: {c.statement}", width)
        lines += _paragraph(f"checked against: {c.against}", width, "    ")
    lines.append("")
    library = [line for f in implementations(checks) for line in [*_listing(f), ""]]
    proofs = [line for c in checks for line in [*_listing(c.compare), ""]]
    lines += beside(library, proofs, width)
    outcomes = [prove(c, seed) for c in checks]
    lines += [f"A fresh run, seed {seed}", *(line for proved in outcomes for line in _told(proved))]
    for chain in ledger.chains.values():
        if label in chain.labels:
            lines += ["", *_neighbourhood(ledger, chain, label, width)]
    return "\n".join(lines), all(proved.result.passed for proved in outcomes)


def promises(ledger: Ledger, label: str, seed: int) -> tuple[str, bool]:
    """Test the generic promises of this label's functions on the inputs of all their checks; return text and success.

    See :mod:`minirlhf_course.ledger.claims`.
    """
    under_test = {c.of for c in ledger.select([label])}
    entries = [c for c in ledger.checks.values() if c.of in under_test]
    lines, all_kept = [f"Promises of every function: {', '.join(claims.PROMISES)}"], True
    for function, calls in claims.record(entries, range(seed, seed + 3)).items():
        problems: list[str] = [*claims.violated_claims(calls, seed)]
        unvaried = ", ".join(claims.keywords(function, calls))
        problems += [f"keywords: {function.__name__}: no check varies {unvaried}"] if unvaried else []
        lines += [f"    {problem}" for problem in problems] or [f"    {function.__name__}: kept"]
        all_kept = all_kept and not problems
    return "\n".join(lines), all_kept


def chain_list(ledger: Ledger, width: int = 100) -> str:
    """All derivations, each with its steps."""
    blocks = []
    for c in ledger.chains.values():
        steps = textwrap.wrap(" → ".join(c.labels), width, initial_indent="    ", subsequent_indent="    ")
        blocks.append("\n".join([f"{c.name}  (chapter {c.chapter:02d}): {c.title}", *steps]))
    return "\n\n".join(blocks)
