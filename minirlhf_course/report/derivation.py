"""The HTML page of ``minirlhf verify mine.md --html page.html``: the text, its formulas with check marks, its code
folded."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from minirlhf.core.folders import write_text_atomic
from minirlhf_course.ledger.formulas.derivation import Step, passed, report_lines
from minirlhf_course.ledger.formulas.displays import displays, fences
from minirlhf_course.report import templates

# LaTeX macros that matplotlib's mathtext does not know, and their replacements.
_MACROS = [
    (r"\\piref(?![A-Za-z])", r"\\pi_{\\mathrm{ref}}"),
    (r"\\piold(?![A-Za-z])", r"\\pi_{\\mathrm{old}}"),
    (r"\\E(?![A-Za-z])", r"\\mathbb{E}"),
    (r"\\KL(?![A-Za-z])", r"\\mathrm{KL}"),
    (r"\\([td]?)frac(\d)(\d)", r"\\\1frac{\2}{\3}"),
    (r"\\frac(?![A-Za-z])", r"\\dfrac"),
    (r"\\tfrac(?![A-Za-z])", r"\\frac"),
    (r"\\operatorname\{(\w+)\}", r"\\mathrm{\1}"),
    (r"\\text\{", r"\\mathrm{"),
    (r"\\[bB]igg?[lrm]?(?![A-Za-z])", ""),
    (r"\\!", ""),
]


def drawn(latex: str, size: float = 13.0) -> Markup | None:
    """Return a formula as an SVG image with a font size of ``size`` points; None if matplotlib cannot typeset it."""
    from matplotlib import mathtext
    from matplotlib.font_manager import FontProperties

    for pattern, replacement in _MACROS:
        latex = re.sub(pattern, replacement, latex)
    buffer = io.StringIO()
    try:
        mathtext.math_to_image(f"${' '.join(latex.split())}$", buffer, format="svg", prop=FontProperties(size=size))
    except ValueError:
        return None
    return Markup(buffer.getvalue()[buffer.getvalue().index("<svg") :])


def _inline(paragraph: str) -> Markup:
    """Return a paragraph with its formulas ``$…$`` as images."""
    pieces = re.split(r"\$([^$]+)\$", paragraph)
    return Markup("").join(
        (drawn(piece, 11.0) or Markup("<code>{}</code>").format(piece)) if index % 2 else Markup.escape(piece)
        for index, piece in enumerate(pieces)
    )


def _parts(text: str, marks: Mapping[int, Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the parts of the file in order: headings and paragraphs, displayed formulas with their marks, code."""
    lines = text.splitlines()
    blocks = [
        (block.line, block.last, {"kind": "display", "latex": block.latex, **marks.get(block.line, {})})
        for block in displays(text)
    ]
    blocks += [(block.line, block.last, {"kind": "code", "code": block.code}) for block in fences(text)]
    start = 0
    for first, last, part in [*sorted(blocks, key=lambda item: item[0]), (len(lines) + 1, 0, None)]:
        for paragraph in re.split(r"\n\s*\n", "\n".join(lines[start : first - 1])):
            heading = re.match(r"(#+)\s+(.*)", paragraph.strip())
            if heading:
                yield {"kind": "heading", "level": min(len(heading[1]), 4), "text": heading[2]}
            elif paragraph.strip():
                yield {"kind": "paragraph", "text": _inline(paragraph.strip())}
        if part:
            yield part
        start = last


def write(
    path: Path, name: str, text: str, steps: Sequence[Step], verdicts: Sequence[Mapping[str, Any]], seed: int
) -> None:
    """Write the HTML page."""
    marks: dict[int, dict[str, Any]] = {
        step.line: {"label": step.label, "mark": ["not tried"], "holds": None} for step in steps
    }
    for step, verdict in zip(steps, verdicts, strict=False):
        marks[step.line] |= {"mark": report_lines(verdict), "holds": passed(verdict)}
    parts = [
        part | {"picture": drawn(part["latex"])} if part["kind"] == "display" else part for part in _parts(text, marks)
    ]
    num_passed = sum(map(passed, verdicts))
    write_text_atomic(
        path, templates.render("derivation", title=name, parts=parts, held=num_passed, steps=len(steps), seed=seed)
    )
