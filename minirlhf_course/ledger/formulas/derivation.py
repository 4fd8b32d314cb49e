"""A reader's own derivation: a Markdown file with labelled equations, each with a block of Python that proves it.

This module reads the file for ``minirlhf verify mine.md``; :mod:`.derivation_names` lists what a block can use and set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minirlhf.core import provenance
from minirlhf.core.errors import UserError
from minirlhf_course.ledger.formulas.displays import displays, fences
from minirlhf_course.ledger.formulas.items import FormulaError
from minirlhf_course.ledger.pages import scientific

Verdict = Mapping[str, Any]


@dataclass(frozen=True)
class Step:
    """A labelled equation, the line on which it opens, and the blocks of Python that follow it."""

    label: str
    latex: str
    line: int
    blocks: tuple[tuple[str, int], ...]

    def as_data(self) -> dict[str, Any]:
        """The step as :func:`minirlhf_course.ledger.formulas.derivation_names.check` takes it."""
        return {"latex": self.latex, "line": self.line, "blocks": [list(block) for block in self.blocks]}


def read(path: Path) -> tuple[str, list[Step]]:
    """Read a file; return its text and its steps.

    Raises:
        UserError: no such file, no labelled equation, a duplicate label, or a display or fence that is never closed.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise UserError(
            f"{path}: {problem.strerror if isinstance(problem, OSError) else 'the file is not UTF-8 text'}",
            file=path,
            problem="unreadable",
        ) from None
    try:
        labelled = [display for display in displays(text) if display.label]
        blocks = [fence for fence in fences(text) if fence.info.split()[:1] == ["python"]]
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
    for number, display in enumerate(labelled):
        if any(display.label == step.label for step in steps):
            raise UserError(
                f"{path}:{display.line}: the label {display.label} is used twice",
                argument="label",
                value=display.label,
                file=path,
                line=display.line,
                problem="duplicate",
            )
        first = display.line if number else 0  # blocks before the first equation belong to it
        end = labelled[number + 1].line if number + 1 < len(labelled) else len(text.splitlines()) + 1
        step_blocks = tuple((block.code, block.line) for block in blocks if first <= block.line < end)
        steps.append(Step(display.label or "", display.latex, display.line, step_blocks))
    return text, steps


def library() -> dict[str, str]:
    """The modules that a block may import, ``{relative path: source}``: oracle, equations, and what runs blocks."""
    equation_modules = [name for name in provenance.all_modules() if name.startswith("minirlhf.equations")]
    modules = provenance.closure(["minirlhf_course.ledger.formulas.derivation_names", *equation_modules])
    paths = {name: provenance.module_path(name).relative_to(provenance.ROOT) for name in modules}
    return {str(path): provenance.source(name) for name, path in paths.items()}


# -- the report --------------------------------------------------------------------------------------------------


def _mark(verdict: Verdict) -> str:
    """Describe what was verified for a step that holds."""
    if verdict.get("unused"):
        return "read, but not compared: no other step uses this definition; add one, or give its value in a legend"
    if verdict.get("defines"):
        return "a definition, so there is nothing to compare; later steps can use it"
    parts = [f"worst error {scientific(verdict['error'])}"]
    if verdict["sides"]:
        parts.append("both sides computed")
    if verdict["printed"]:
        num_noticed = verdict["misprints"] - len(verdict["missed"])
        parts.append(f"printed formula evaluated, {num_noticed} of {verdict['misprints']} misprints noticed")
        if verdict["missed"]:
            parts.append(f"{len(verdict['missed'])} would hold as well")
    return "; ".join(parts)


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
    """Describe one step that was tried: what was verified, or a counterexample."""
    if verdict["holds"]:
        return [_mark(verdict)]
    return ["does not hold", *_failure(verdict["counterexample"])]


def passed(verdict: Verdict) -> bool:
    """Whether a step holds, and something was compared: by itself, or by the step that uses its definition."""
    return bool(verdict["holds"]) and not verdict.get("unused")


def report(path: Path, steps: Sequence[Step], verdicts: Sequence[Verdict], seed: int) -> str:
    """Report the steps up to the first that fails, with its counterexample.

    Raises:
        UserError: a block cannot be run or a formula cannot be parsed; one line with file and line number.
    """
    for step, verdict in zip(steps, verdicts, strict=False):
        if "broken" in verdict:
            message = f"{path}:{verdict['line']}: ({step.label}) {verdict['broken']}"
            raise UserError(message, file=path, line=verdict["line"], **verdict["facts"])
    width = max(len(step.label) for step in steps)
    lines = []
    for step, verdict in zip(steps, verdicts, strict=False):
        first, *details = report_lines(verdict)
        location = "" if verdict["holds"] else f" (line {step.line})"
        lines += [
            f"{'✗' if not verdict['holds'] else '·' if verdict.get('unused') else '✓'} {step.label:<{width}}  {first}{location}",
            *(f"    {line}" for line in details),
        ]
        lines += [f"    would hold as well: {variant}" for variant in verdict.get("missed", ())]
    num_untried = len(steps) - len(verdicts)
    if num_untried:
        lines.append(f"{num_untried} later {'step was' if num_untried == 1 else 'steps were'} not tried")
    num_holding = sum(map(passed, verdicts))
    return "\n".join([*lines, f"{num_holding} of {len(steps)} steps hold, seed {seed}"])
