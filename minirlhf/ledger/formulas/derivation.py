"""A reader's own derivation: a Markdown file with labelled equations, each with a block of Python that proves it.

``minirlhf verify mine.md`` reads it here; :mod:`.derivation_names` says what a block finds and leaves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minirlhf.core import provenance
from minirlhf.core.errors import UserError
from minirlhf.ledger.formulas.displays import displays, fences
from minirlhf.ledger.formulas.items import FormulaError
from minirlhf.ledger.pages import scientific

Verdict = Mapping[str, Any]


@dataclass(frozen=True)
class Step:
    """A labelled equation, the line on which it opens, and the blocks of Python that follow it."""

    label: str
    latex: str
    line: int
    blocks: tuple[tuple[str, int], ...]

    def as_data(self) -> dict[str, Any]:
        """What :func:`minirlhf.ledger.formulas.derivation_names.check` takes."""
        return {"latex": self.latex, "line": self.line, "blocks": [list(block) for block in self.blocks]}


def read(path: Path) -> tuple[str, list[Step]]:
    """The text of a file and its steps.

    Raises:
        UserError: no such file, no labelled equation, a label twice, or something that is never closed.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise UserError(
            f"{path}: {problem.strerror if isinstance(problem, OSError) else 'not a text in UTF-8'}",
            file=path,
            problem="unreadable",
        ) from None
    try:
        labelled = [found for found in displays(text) if found.label]
        blocks = [found for found in fences(text) if found.info.split()[:1] == ["python"]]
    except FormulaError as problem:
        raise UserError(f"{path}:{problem}", file=path, line=problem.line, problem="never closed") from None
    if not labelled:
        raise UserError(
            f"{path}: no labelled equation; write $$ on a line of its own, the formula, and $$ (my-label)",
            argument="label",
            file=path,
            problem="missing",
        )
    steps: list[Step] = []
    for number, found in enumerate(labelled):
        if any(found.label == step.label for step in steps):
            raise UserError(
                f"{path}:{found.line}: the label {found.label} is used twice",
                argument="label",
                value=found.label,
                file=path,
                line=found.line,
                problem="duplicate",
            )
        first = found.line if number else 0  # what stands before the first equation belongs to it
        end = labelled[number + 1].line if number + 1 < len(labelled) else len(text.splitlines()) + 1
        own = tuple((block.code, block.line) for block in blocks if first <= block.line < end)
        steps.append(Step(found.label or "", found.latex, found.line, own))
    return text, steps


def library() -> dict[str, str]:
    """The modules that a block may import, as ``{relative path: source}``: the oracle, the equations, and what runs blocks."""
    named = [name for name in provenance.all_modules() if name.startswith("minirlhf.equations")]
    wanted = provenance.closure(["minirlhf.ledger.formulas.derivation_names", *named])
    paths = {name: provenance.module_path(name).relative_to(provenance.PACKAGE.parent) for name in wanted}
    return {str(path): provenance.source(name) for name, path in paths.items()}


# -- what is said ------------------------------------------------------------------------------------------------


def _mark(verdict: Verdict) -> str:
    """What a step that holds has shown."""
    said = [f"worst error {scientific(verdict['error'])}"]
    if verdict["sides"]:
        said.append("both sides computed")
    if verdict["printed"]:
        seen = verdict["misprints"] - len(verdict["missed"])
        said.append(f"printed formula evaluated, {seen} of {verdict['misprints']} misprints noticed")
        if verdict["missed"]:
            said.append(f"{len(verdict['missed'])} would hold as well")
    return "; ".join(said)


def _failure(example: Mapping[str, Any]) -> list[str]:
    row = lambda xs: "  ".join(f"{x:.4g}" for x in xs)
    return [
        f"counterexample with {len(example['policy'])} replies:",
        f"  policy     {row(example['policy'])}",
        f"  reference  {row(example['reference'])}",
        f"  rewards    {row(example['rewards'])}",
        f"  beta       {example['beta']:.4g}",
        f"  left {example['left']}, right {example['right']}, where {example['relation']} was claimed",
    ]


def report_lines(verdict: Verdict) -> list[str]:
    """Lines on one step that was tried: what it has shown, or a counterexample."""
    if verdict["holds"]:
        return [_mark(verdict)]
    return ["does not hold", *_failure(verdict["counterexample"])]


def report(path: Path, steps: Sequence[Step], verdicts: Sequence[Verdict], seed: int) -> str:
    """Proof marks up to the first step that fails, which comes with a counterexample.

    Raises:
        UserError: a block or a formula that cannot be run or read; one line with file and line.
    """
    for step, verdict in zip(steps, verdicts, strict=False):
        if "broken" in verdict:
            message = f"{path}:{verdict['line']}: ({step.label}) {verdict['broken']}"
            raise UserError(message, file=path, line=verdict["line"], **verdict["facts"])
    width = max(len(step.label) for step in steps)
    lines = []
    for step, verdict in zip(steps, verdicts, strict=False):
        first, *more = report_lines(verdict)
        where = "" if verdict["holds"] else f" (line {step.line})"
        lines += [
            f"{'✓' if verdict['holds'] else '✗'} {step.label:<{width}}  {first}{where}",
            *(f"    {m}" for m in more),
        ]
        lines += [f"    would hold as well: {wrong}" for wrong in verdict.get("missed", ())]
    left = len(steps) - len(verdicts)
    if left:
        lines.append(f"{left} later {'step was' if left == 1 else 'steps were'} not tried")
    holding = sum(bool(verdict["holds"]) for verdict in verdicts)
    return "\n".join([*lines, f"{holding} of {len(steps)} steps hold, seed {seed}"])
