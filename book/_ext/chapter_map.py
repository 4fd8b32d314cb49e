"""``{chapter-map}``: how the chapters depend on one another, as a drawing and as a table, from their manifests."""

import html
import textwrap
from typing import Any

from chapters import chapter_link, written
from docutils import nodes
from proofs import shows_outcomes, table
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective

from minirlhf_course.chapters import Chapter
from minirlhf_course.chapters import chapters as all_chapters

WIDTH, HEIGHT, GAP_X, GAP_Y = 128, 44, 16, 34  # a box and the space between boxes, in the drawing's units


def corner(chapter: Chapter) -> tuple[int, int]:
    """Left and top of its box."""
    column, row = chapter.place
    return column * (WIDTH + GAP_X) + 4, row * (HEIGHT + GAP_Y) + 4


def _arrow(start: Chapter, end: Chapter) -> str:
    (x0, y0), (x1, y1) = corner(start), corner(end)
    x0, y0, x1, bend = x0 + WIDTH // 2, y0 + HEIGHT, x1 + WIDTH // 2, GAP_Y * 0.7
    return f'<path d="M{x0},{y0} C{x0},{y0 + bend} {x1},{y1 - bend} {x1},{y1 - 5}" marker-end="url(#map-tip)"/>'


def _box(c: Chapter, address: str | None) -> str:
    x, y = corner(c)
    lines = textwrap.wrap(f"{c.number} {c.short}", 19)
    first = y + HEIGHT / 2 + 4.5 - 7 * (len(lines) - 1)
    text = "".join(
        f'<text x="{x + WIDTH // 2}" y="{first + 14 * i:g}">{html.escape(t)}</text>' for i, t in enumerate(lines)
    )
    box = f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>{text}'
    if address is None:
        return f'<g class="planned">{box}</g>'
    return f'<a href="{html.escape(address)}">{box}</a>'


def draw(chapters: list[Chapter], addresses: dict[int, str]) -> str:
    """The map as SVG; chapters that have an address are links."""
    by_number = {c.number: c for c in chapters}
    width = max(corner(c)[0] for c in chapters) + WIDTH + 4
    height = max(corner(c)[1] for c in chapters) + HEIGHT + 4
    tip = '<marker id="map-tip" viewBox="0 0 8 8" refX="4" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    arrows = "".join(_arrow(by_number[n], c) for c in chapters for n in c.needs)
    boxes = "".join(_box(c, addresses.get(c.number)) for c in chapters)
    return (
        f'<figure class="map"><svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">'
        f"<title>Which chapters build on which; the table below says the same in words</title><defs>{tip}"
        f'<path d="M0,0 L8,4 L0,8 z"/></marker></defs><g class="arrows">{arrows}</g>{boxes}</svg></figure>'
    )


class chapter_map(nodes.General, nodes.Element):
    """Stands for map and table until it is known which chapters are there."""


class ChapterMapDirective(SphinxDirective):
    """The place of the map."""

    def run(self) -> list[nodes.Node]:
        """Leave it for when all pages are known."""
        shows_outcomes(self.env)
        return [chapter_map()]


class Maps(SphinxPostTransform):
    """Draw, before the links to chapters are made."""

    default_priority = 3

    def run(self, **kwargs: Any) -> None:
        """On the page that has the map."""
        for node in list(self.document.findall(chapter_map)):
            chapters = list(all_chapters())
            pages, builder = written(self.env), self.app.builder
            here = self.env.docname
            addresses = {number: builder.get_relative_uri(here, page) for number, page in pages.items()}
            picture = draw(chapters, addresses)
            node.replace_self([nodes.raw("", picture, format="html"), self._table(chapters)])

    def _table(self, chapters: list[Chapter]) -> nodes.table:
        def links(numbers: list[int]) -> nodes.Node:
            found: list[nodes.Node] = []
            for n in numbers:
                found += [nodes.Text(", ")] if found else []
                found.append(chapter_link("", "", chapter=n, short=True))
            return nodes.inline("", "", *found)

        rows = [
            [
                nodes.Text(str(c.number)),
                nodes.Text(c.short),
                links([*c.needs]),
                links([d.number for d in chapters if c.number in d.needs]),
            ]
            for c in sorted(chapters, key=lambda c: c.number)
        ]
        return table(["Chapter", "", "best read before it", "leads to"], rows, [8, 40, 26, 26])


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.setup_extension("chapters")
    app.setup_extension("proofs")
    app.add_node(chapter_map)
    app.add_directive("chapter-map", ChapterMapDirective)
    app.add_post_transform(Maps)
    return {"version": "1", "parallel_read_safe": False, "parallel_write_safe": False}
