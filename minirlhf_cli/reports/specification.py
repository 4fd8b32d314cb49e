"""The results of ``minirlhf evaluate spec`` as one self-contained HTML page: the rules, regressions, and completions that
violate rules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt

from minirlhf.core.folders import write_text_atomic
from minirlhf_cli.files.specification import RuleResult
from minirlhf_course.report import templates
from minirlhf_course.report.plotting import PALETTE, data_uri, png

_COLOURS = {"holds": PALETTE["blue"], "open": PALETTE["orange"], "fails": PALETTE["red"]}


def write(path: Path, title: str, model: str, against: str | None, found: Sequence[RuleResult]) -> None:
    """Write the HTML page."""
    alt = "; ".join(
        f"{r.clause.name}: {r.rate.value:.3f} [{r.rate.low:.3f}, {r.rate.high:.3f}], {r.verdict}" for r in found
    )
    page = templates.render(
        "spec", title=title, model=model, against=against, found=found, figure=data_uri(_rates(found)), alt=alt,
        stops=[r.clause.name for r in found if r.blocks_release],
    )  # fmt: skip
    write_text_atomic(path, page)


def _rates(results: Sequence[RuleResult]) -> bytes:
    """Draw the rate of each rule with its interval, and the required rate."""
    fig, ax = plt.subplots(figsize=(7, 1.0 + 0.35 * len(results)), layout="constrained")
    for row, result in enumerate(results):
        colour = _COLOURS[result.verdict]
        ax.plot([result.rate.low, result.rate.high], [row, row], color=colour, lw=2)
        ax.plot(result.rate.value, row, "o", color=colour)
        ax.plot(result.clause.at_least, row, "|", color="black", ms=14)
    ax.set(yticks=range(len(results)), yticklabels=[f"{r.clause.level}: {r.clause.name}" for r in results])
    ax.set(xlabel="share of replies that keep the rule (mark: what is asked for)", xlim=(-0.02, 1.02))
    ax.set_ylim(len(results) - 0.5, -0.5)
    ax.spines[["top", "right"]].set_visible(False)
    image = png(fig)
    plt.close(fig)
    return image
