"""One style for all figures: a colour-safe palette, plain axes, figures as bytes."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

import matplotlib

#: The eight colours of Okabe and Ito, which readers with any common colour vision can distinguish.
PALETTE = {
    "blue": "#0072B2",
    "orange": "#E69F00",
    "green": "#009E73",
    "red": "#D55E00",
    "purple": "#CC79A7",
    "sky": "#56B4E9",
    "yellow": "#F0E442",
    "black": "#000000",
}


def panels(columns: int, width: float = 4.0, height: float = 3.0) -> tuple[Any, Any]:
    """Make a figure with a row of axes, without changing matplotlib's global state; return ``(figure, axes)``."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"font.size": 9}):
        figure = Figure(figsize=(width * columns, height), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(1, columns, squeeze=False)[0]
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25, lw=0.6)
    return figure, axes


def smooth(values: Sequence[float], window: int) -> list[float]:
    """Return the mean of the last ``window`` values at every position (of fewer at the start)."""
    return [sum(values[max(0, i + 1 - window) : i + 1]) / min(i + 1, window) for i in range(len(values))]


def png(figure: Any, dpi: int = 150) -> bytes:
    """Return the figure as PNG bytes without a time stamp: the same figure gives the same bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()


def data_uri(image: bytes) -> str:
    """Return PNG bytes as a data URI, which embeds them in a page."""
    return "data:image/png;base64," + base64.b64encode(image).decode()
