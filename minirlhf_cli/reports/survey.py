"""The report of ``minirlhf data inspect`` as one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from minirlhf.core.folders import write_text_atomic
from minirlhf.data import inspection
from minirlhf.data.inspection import Counted, Survey
from minirlhf_course.report import templates

SHOWN = 10


def write(path: Path, found: Survey, counted: Counted, tokenizer: Any, about: str) -> None:
    """Write the HTML page, with the first :data:`SHOWN` rows."""
    rows = [
        (where, [(name, inspection.tokens(tokenizer, *turns)) for name, turns in inspection.sequences(example).items()])
        for where, example in found.rows[:SHOWN]
    ]
    reasons = [
        (kind, len(locations), reason, inspection.places(locations))
        for kind, group in (("dropped", found.dropped), ("refused", found.refused))
        for reason, locations in group.items()
    ]
    counts, edges = counted.histogram()
    bars = [
        (float(count) / max(1, counts.max()), int(count), f"{low:.0f} to {high:.0f}")
        for count, low, high in zip(counts, edges, edges[1:], strict=False)
    ]
    text = templates.render(
        "inspect", found=found, record=type(found.rows[0][1]).__name__, reasons=reasons, counted=counted, about=about, bars=bars,
        edges=(round(edges[0]), round(edges[-1])), rows=rows,
        too_long=inspection.places([where for where, _ in counted.too_long]),
    )  # fmt: skip
    write_text_atomic(path, text)
