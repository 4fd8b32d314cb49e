"""What ``minirlhf spec`` has found as one HTML page that needs nothing else: the rules, what got worse, and replies that break them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt

from minirlhf.core.folders import write_text_atomic
from minirlhf.report import templates
from minirlhf.report.plotting import PALETTE, data_uri, png
from minirlhf.stages.specification import RuleResult

_COLOURS = {"holds": PALETTE["blue"], "open": PALETTE["orange"], "fails": PALETTE["red"]}


def write(path: Path, title: str, model: str, against: str | None, found: Sequence[RuleResult]) -> None:
    """Write the page."""
    alt = "; ".join(
        f"{f.clause.name}: {f.rate.value:.3f}, {f.rate.low:.3f} to {f.rate.high:.3f}, {f.verdict}" for f in found
    )
    page = templates.render(
        "spec", title=title, model=model, against=against, found=found, figure=data_uri(_rates(found)), alt=alt,
        stops=[f.clause.name for f in found if f.blocks_release],
    )  # fmt: skip
    write_text_atomic(path, page)


def _rates(found: Sequence[RuleResult]) -> bytes:
    """Each rule's rate with its interval, and the bar."""
    fig, ax = plt.subplots(figsize=(7, 1.0 + 0.35 * len(found)), layout="constrained")
    for row, f in enumerate(found):
        colour = _COLOURS[f.verdict]
        ax.plot([f.rate.low, f.rate.high], [row, row], color=colour, lw=2)
        ax.plot(f.rate.value, row, "o", color=colour)
        ax.plot(f.clause.at_least, row, "|", color="black", ms=14)
    ax.set(yticks=range(len(found)), yticklabels=[f"{f.clause.level}: {f.clause.name}" for f in found])
    ax.set(xlabel="share of replies that keep the rule (mark: what is asked for)", xlim=(-0.02, 1.02))
    ax.set_ylim(len(found) - 0.5, -0.5)
    ax.spines[["top", "right"]].set_visible(False)
    image = png(fig)
    plt.close(fig)
    return image
