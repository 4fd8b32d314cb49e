"""Figures that one can touch: what one consists of, where they are found, and how Python draws them.

A figure is two files in ``book/figures``: ``NAME.py`` says what there is to set and to see, and computes it with the library
(:data:`FIGURE`, the *oracle*); ``NAME.js`` computes the same in the reader's browser, from the same data. Everything that is drawn
is a named *series*, every number and word beside it a named value, and both sides give all of them under these names. So what a test
or the reader's browser compares is everything that the figure shows.

Axes, ticks and legends are drawn here, once, and do not move: a figure in which the axes follow the curve hides what changes. In the browser
only the shapes are set anew. Without JavaScript, and in print, the picture is that of the settings with which the figure starts.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from functools import cache, cached_property
from html import escape
from pathlib import Path
from typing import Any

from asking import Ask, Settled, module, prose

from minirlhf.core.errors import ArgumentError

FOLDER = Path(__file__).resolve().parents[1] / "figures"

State = Mapping[str, Any]
Values = Mapping[str, Any]

# -- what a figure consists of -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Slider:
    """A number to set: one of ``values``, from left to right; ``start`` is where it stands first."""

    name: str
    label: str
    values: Sequence[float]
    start: float
    form: str = "g"

    @property
    def texts(self) -> list[str]:
        """The values as they are shown."""
        return [format(value, self.form).replace("-", "−") for value in self.values]


@dataclass(frozen=True)
class Choice:
    """One of some ``options`` to choose; ``start`` is chosen first."""

    name: str
    label: str
    values: Sequence[str]
    start: str

    @property
    def texts(self) -> list[str]:
        """The options themselves."""
        return list(self.values)


@dataclass(frozen=True)
class Mark:
    """A series in a panel.

    Attributes:
        series: its name; its values are ``[xs, ys]``, of bars the heights, of squares ``[xs, ys, sides]`` (1 fills a cell of the grid
            of whole numbers), of arrows ``[xs, ys, directions]`` (0 up, 1 right, 2 down, 3 left).
        label: its line in the legend; empty for none.
        kind: "line", "points", "bars", "squares" or "arrows".
        colour: 0 to 5, a place of the palette.
        dashed: a line of strokes; of bars their outline only.
        wide: a broad pale line, for what others are to lie on.
    """

    series: str
    label: str = ""
    kind: str = "line"
    colour: int = 0
    dashed: bool = False
    wide: bool = False

    @property
    def classes(self) -> str:
        """For the style sheet, of what is drawn and of its sign in the legend."""
        return f"touch-{self.kind} touch-c{self.colour}" + " touch-dashed" * self.dashed + " touch-wide" * self.wide


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes:
        title: what one sees in it, in a few words.
        x, y: names of the axes, with units.
        xlim, ylim: their ends. For bars the x axis is the places 0, 1, ….
        marks: what is drawn, in this order.
        names: words below the bars; of a long list, "" for those that have no room.
        log: "x", "y" or "xy": axes that are logarithmic.
    """

    title: str
    x: str
    y: str
    xlim: tuple[float, float]
    ylim: tuple[float, float]
    marks: Sequence[Mark]
    names: Sequence[str] = ()
    log: str = ""


@dataclass(frozen=True)
class Reading:
    """A value beside the picture: a number with so many ``digits`` behind the point, or, with None, words."""

    name: str
    label: str
    digits: int | None = 3


@dataclass(frozen=True)
class Figure:
    """What ``book/figures/NAME.py`` calls ``FIGURE``.

    Attributes:
        title: what it lets one do.
        alt: what one sees in it as it starts, for those who do not see it; it may hold fields for the numbers that ``ask`` finds.
        controls: what can be set.
        panels: what is drawn.
        readings: what is written beside it.
        data: what the computation starts from, in JSON's types; called once.
        oracle: the values of all series and readings, computed by the library from the data and a state.
        ask: what is to be predicted before it is moved.
        tolerance: how far a number in the browser may be from Python's, relative to the larger of it and 1.
    """

    title: str
    alt: str
    controls: Sequence[Slider | Choice]
    panels: Sequence[Panel]
    readings: Sequence[Reading]
    data: Callable[[], dict[str, Any]]
    oracle: Callable[[dict[str, Any], State], Values]
    ask: Ask
    tolerance: float = 1e-9
    name: str = field(default="", compare=False)

    @property
    def start(self) -> dict[str, Any]:
        """The state in which it begins."""
        return {control.name: control.start for control in self.controls}

    def drawn(self, seed: int, count: int) -> list[dict[str, Any]]:
        """``count`` states, drawn at random."""
        generator = random.Random(f"{self.name} {seed}")
        return [{c.name: generator.choice(list(c.values)) for c in self.controls} for _ in range(count)]

    @cached_property
    def _settled(self) -> Settled:  # it may take half a minute, and a build asks several times
        data = self.data()
        return self.ask.settled(lambda **changes: self.oracle(data, self.start | changes))

    def asked(self) -> Settled:
        """:attr:`ask` with its answer, which is computed from the oracle's values at settings, once."""
        return self._settled

    @property
    def promised(self) -> set[str]:
        """The names of everything that it shows."""
        return {mark.series for panel in self.panels for mark in panel.marks} | {r.name for r in self.readings}


@cache
def load(name: str) -> Figure:
    """The figure of that name."""
    path = FOLDER / f"{name}.py"
    if not path.is_file():
        there = ", ".join(sorted(p.stem for p in FOLDER.glob("*.py")))
        message = f"there is no figure {name!r} in book/figures; there are {there}"
        raise ArgumentError(message, argument="figure", value=name, expected=there.split(", "))
    figure: Figure = module(path, f"book_figure_{name}").FIGURE
    object.__setattr__(figure, "name", name)
    return figure


def names() -> list[str]:
    """All figures."""
    return sorted(path.stem for path in FOLDER.glob("*.py"))


# -- drawing -----------------------------------------------------------------------------------------------------

WIDTH, HEIGHT = 364, 254
LEFT, RIGHT, TOP, BOTTOM = 50, 350, 26, 208  # the axes' place in it
LETTER = 6.6  # width of one, on average
EDGE = 6  # what stands at an end of an axis is not cut in half
RADIUS = 3.5


def _place(value: float, low: float, high: float, log: bool) -> float:
    """0 at the low end of an axis, 1 at its high end."""
    if log:
        return (math.log(value) - math.log(low)) / (math.log(high) - math.log(low)) if value > 0 else -1e6
    return (value - low) / (high - low)


def _points(panel: Panel, xs: Sequence[float], ys: Sequence[float]) -> list[tuple[float, float]]:
    across, up = RIGHT - LEFT, BOTTOM - TOP
    return [
        (across * _place(x, *panel.xlim, "x" in panel.log), up * (1 - _place(y, *panel.ylim, "y" in panel.log)))
        for x, y in zip(xs, ys, strict=True)
    ]


def _square(x: float, y: float, cell: float, side: float) -> str:
    a = cell * side
    return f"M{x - a / 2:.2f} {y - a / 2:.2f}h{a:.2f}v{a:.2f}h{-a:.2f}z"


def _arrow(x: float, y: float, cell: float, direction: int) -> str:
    across, up = ((0, -1), (1, 0), (0, 1), (-1, 0))[direction]
    far, head = 0.42 * cell, 0.1 * cell
    tip = (x + far * across, y + far * up)
    sides = [(tip[0] - head * (across + s * up), tip[1] - head * (up + s * across)) for s in (1, -1)]
    line = f"M{x:.2f} {y:.2f}L{tip[0]:.2f} {tip[1]:.2f}"
    return f"{line}M{sides[0][0]:.2f} {sides[0][1]:.2f}L{tip[0]:.2f} {tip[1]:.2f}L{sides[1][0]:.2f} {sides[1][1]:.2f}"


def shape(panel: Panel, mark: Mark, value: Any) -> str:
    """The ``d`` of the path that shows a series; ``touch.js`` does the same."""
    if mark.kind == "bars":
        side = 0.4 * (RIGHT - LEFT) / (panel.xlim[1] - panel.xlim[0])
        base = (BOTTOM - TOP) * (1 - _place(max(0.0, panel.ylim[0]), *panel.ylim, False))
        tops = _points(panel, range(len(value)), value)
        return "".join(f"M{x - side:.2f} {base:.2f}V{y:.2f}h{2 * side:.2f}V{base:.2f}z" for x, y in tops)
    found = _points(panel, *value[:2])
    if mark.kind in ("squares", "arrows"):
        wide = (RIGHT - LEFT) / (panel.xlim[1] - panel.xlim[0])
        high = (BOTTOM - TOP) / abs(panel.ylim[1] - panel.ylim[0])
        cell = min(wide, high)
        drawn = _square if mark.kind == "squares" else _arrow
        return "".join(drawn(x, y, cell, what) for (x, y), what in zip(found, value[2], strict=True))
    if mark.kind == "points":
        r = RADIUS
        return "".join(f"M{x - r:.2f} {y:.2f}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0" for x, y in found)
    return "".join(f"{'L' if i else 'M'}{x:.2f} {y:.2f}" for i, (x, y) in enumerate(found))


def ticks(low: float, high: float, log: bool) -> list[float]:
    """Round numbers along an axis, four to seven of them."""
    if log:
        decades = range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)
        steps = (1,) if len(decades) > 3 else (1, 2, 5)
        found = [m * 10.0**d for d in range(decades.start - 1, decades.stop + 1) for m in steps]
        return [value for value in found if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _tick(value: float) -> str:
    return f"{value:g}".replace("-", "−")


def _text(words: str) -> str:
    """Words with the apostrophes that print has, for HTML, where no tag may stand: an index behind its sign, π_old, is a word behind it."""
    return escape(words.replace("'", "’")).replace("_", " ")


def _html(words: str) -> str:
    """The same where tags may stand: an index stands below."""
    return re.sub(r"_(\w+)", r"<sub>\1</sub>", escape(words.replace("'", "’")))


def _drawn(words: str) -> str:
    """The same in a drawing."""
    index = (
        '<tspan dy="3" font-size="9">\\1</tspan><tspan dy="-3">\u200b</tspan>'  # the next sign stands on the line again
    )
    return re.sub(r"_(\w+)", index, escape(words.replace("'", "’")))


def svg(panel: Panel, values: Values) -> str:
    """A panel as it stands with these values."""
    out = [f'<text class="touch-title" x="0" y="13">{_drawn(panel.title)}</text>']
    if panel.names:
        at = [(x, name) for x, name in enumerate(panel.names) if name]
    else:
        at = [(x, _tick(x)) for x in ticks(*sorted(panel.xlim), "x" in panel.log)]
    places = [LEFT + (RIGHT - LEFT) * _place(x, *panel.xlim, "x" in panel.log) for x, _ in at]
    # Words that would run into one another stand on two lines, by turns.
    rows = 2 if panel.names and any(
        (len(a[1]) + len(b[1]) + 1) * LETTER / 2 > q - p for a, b, p, q in zip(at, at[1:], places, places[1:], strict=False)
    ) else 1  # fmt: skip
    for n, ((_, text), px) in enumerate(zip(at, places, strict=True)):
        out.append(f'<path class="touch-axis" d="M{px:.1f} {BOTTOM}v4"/>')
        down = BOTTOM + (17 if rows == 1 else 14 + 12 * (n % 2))
        out.append(f'<text text-anchor="middle" x="{px:.1f}" y="{down}">{escape(text)}</text>')
    for y in ticks(*sorted(panel.ylim), "y" in panel.log):
        py = BOTTOM - (BOTTOM - TOP) * _place(y, *panel.ylim, "y" in panel.log)
        out.append(f'<path class="touch-grid" d="M{LEFT} {py:.1f}H{RIGHT}"/>')
        out.append(f'<text text-anchor="end" x="{LEFT - 5}" y="{py + 4:.1f}">{_tick(y)}</text>')
    out.append(f'<path class="touch-axis" d="M{LEFT} {BOTTOM}H{RIGHT}"/>')
    out.append(f'<text text-anchor="middle" x="{(LEFT + RIGHT) / 2}" y="{HEIGHT - 5}">{_drawn(panel.x)}</text>')
    out.append(
        f'<text text-anchor="middle" transform="translate(11 {(TOP + BOTTOM) / 2}) rotate(-90)">{_drawn(panel.y)}</text>'
    )
    box = f'x="{LEFT - EDGE}" y="{TOP - EDGE}" width="{RIGHT - LEFT + 2 * EDGE}" height="{BOTTOM - TOP + 2 * EDGE}"'
    out.append(f'<svg {box} viewBox="{-EDGE} {-EDGE} {RIGHT - LEFT + 2 * EDGE} {BOTTOM - TOP + 2 * EDGE}">')
    for mark in panel.marks:
        out.append(
            f'<path class="{mark.classes}" data-series="{mark.series}" d="{shape(panel, mark, values[mark.series])}"/>'
        )
    out.append("</svg>")
    return f'<svg class="touch-panel" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true">{"".join(out)}</svg>'


def _said(reading: Reading, value: Any) -> str:
    """A number as the page writes it; ``touch.js`` does the same."""
    if reading.digits is None:
        return escape(str(value))
    # As a browser rounds: of what lies in the middle, to the larger size.
    text = str(Decimal(value).quantize(Decimal(1).scaleb(-reading.digits), rounding=ROUND_HALF_UP))
    return text.replace("-", "−" if float(text) else "")


def _control(control: Slider | Choice) -> str:
    name, label = escape(control.name), _html(control.label)
    if isinstance(control, Choice):
        options = "".join(
            f"<option{' selected' if value == control.start else ''}>{escape(value)}</option>"
            for value in control.values
        )
        return f'<label>{label} <select name="{name}" autocomplete="off">{options}</select></label>'
    at = list(control.values).index(control.start)
    return (
        f'<label>{label} <input type="range" name="{name}" min="0" max="{len(control.values) - 1}" step="1" value="{at}" autocomplete="off" '
        f'aria-valuetext="{control.texts[at]}"> <output>{control.texts[at]}</output></label>'
    )


def _legend(panel: Panel) -> str:
    told = [f'<span><i class="{m.classes}"></i>{_html(m.label)}</span>' for m in panel.marks if m.label]
    return f'<p class="touch-legend">{"".join(told)}</p>'


def html(figure: Figure, folder: str) -> tuple[str, str, str]:
    """The figure for a page: how it begins, its heading, and the rest, before which a page may say more; ``folder`` is where its scripts are."""
    data = figure.data()
    values = figure.oracle(data, figure.start)
    readings = [
        f'<div><dt>{_html(r.label)}</dt><dd data-value="{r.name}">{_said(r, values[r.name])}</dd></div>'
        for r in figure.readings
    ]
    spec = {
        "data": data,
        "start": figure.start,
        "shows": dict(figure.ask.shows),
        "tolerance": figure.tolerance,
        "controls": [{"name": c.name, "values": list(c.values), "texts": c.texts} for c in figure.controls],
        "panels": [
            {
                "xlim": panel.xlim,
                "ylim": panel.ylim,
                "log": panel.log,
                "marks": [{"series": m.series, "kind": m.kind} for m in panel.marks],
            }
            for panel in figure.panels
        ],
        "digits": {r.name: r.digits for r in figure.readings},
        "size": {"across": RIGHT - LEFT, "up": BOTTOM - TOP, "radius": RADIUS},
    }
    held = json.dumps(spec, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    begin = f'<div class="touch" data-figure="{figure.name}" data-folder="{folder}" role="group" aria-label="{_text(figure.title)}">'
    body = (
        '<div class="touch-controls" hidden>'
        + "".join(map(_control, figure.controls))
        + '<button type="button">back to the start</button></div>'
        + f'<div class="touch-panels" role="img" aria-label="As it starts. {_text(prose(figure.alt, figure.asked().found))}">'
        + "".join(f"<div>{svg(panel, values)}{_legend(panel)}</div>" for panel in figure.panels)
        + f'</div><dl class="touch-readings" aria-live="polite">{"".join(readings)}</dl>'
        + '<details class="proof-mark touch-mark" hidden><summary>computed in your browser · hold it against Python</summary>'
        + "<p></p></details>"
        + f'<script type="application/json">{held}</script></div>'
        + f'<script defer src="{folder}/touch.js"></script><script defer src="{folder}/{figure.name}.js"></script>'
    )
    return begin, f'<p class="touch-heading">{_text(figure.title)}</p>', body


def proof(figure: Figure, seed: int, count: int = 12) -> str:
    """What Python finds at the start and at ``count`` states drawn by ``seed``: a script, which a page can load from a file as well."""
    data = figure.data()
    told = [[state, dict(figure.oracle(data, state))] for state in (figure.start, *figure.drawn(seed, count))]
    return f"touch.held({json.dumps(figure.name)}, {json.dumps(told, ensure_ascii=False, separators=(',', ':'))});\n"
