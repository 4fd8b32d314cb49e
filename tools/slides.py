"""Slides: ``book/slides/NN.md`` becomes ``build/slides/NN.html`` and, with Chromium, ``NN.pdf``: ``make slides``.

A deck is Markdown with ``$math$``; a line ``---`` begins a new slide. ``![alt](05:frontier)`` is the figure ``frontier`` of
chapter 05's notebook; an empty alt text takes the one of the notebook. Everything works offline. Arrow keys turn pages.
"""

import argparse
import html
import json
import re
import runpy
import shutil
import sys
import time
from pathlib import Path

from book import BOOK, ROOT, print_pdf, vendor_mathjax

sys.path.insert(0, str(BOOK / "_ext"))

from notebook_figures import figure

from minirlhf.core.errors import Facts

PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="stylesheet" href="deck.css">
<script>window.MathJax = {mathjax}</script>
<script defer src="{place}/tex-chtml-full.js"></script>
<script defer src="deck.js"></script>
</head>
<body>
<main>
{slides}
</main>
</body>
</html>
"""


class Refused(Facts, Exception):
    """A deck that cannot be built, with what is wrong."""


def renderer():
    """Markdown with tables and mathematics; the latter is left for MathJax."""
    from markdown_it import MarkdownIt
    from mdit_py_plugins.dollarmath import dollarmath_plugin

    def mathematics(content: str, options: dict) -> str:
        opening, closing = (r"\[", r"\]") if options["display_mode"] else (r"\(", r"\)")
        return f"{opening}{html.escape(content.strip())}{closing}"

    return MarkdownIt("commonmark").enable("table").use(dollarmath_plugin, renderer=mathematics)


HELD = re.compile(r"([(\[“‘]*)(<span class=\"math inline\">.*?</span>)([.,;:!?)\]”’…-]*)", re.DOTALL)


def held(page: str) -> str:
    """HTML in which no line is broken between a formula and the signs that touch it."""
    return HELD.sub(lambda m: f'<span class="held">{m[0]}</span>' if m[1] or m[3] else m[0], page)


def take_figures(text: str, out: Path) -> str:
    """``![alt](05:frontier)`` with the image written beside the deck.

    Raises:
        Refused: no such figure.
    """

    def take(match: re.Match[str]) -> str:
        alt, chapter, name = match.groups()
        try:
            image, about = figure(chapter, name)
        except ValueError as problem:
            raise Refused.about(str(problem), problem) from None
        (out / f"{chapter}-{name}.png").write_bytes(image)
        return f"![{alt or about['alt']}]({chapter}-{name}.png)"

    return re.sub(r"!\[([^\]]*)\]\((\d\d):([a-z0-9-]+)\)", take, text)


def deck(source: Path, out: Path, mathjax: dict, place: str) -> Path:
    """One deck, whose MathJax lies in the folder ``place`` as seen from ``out``.

    Raises:
        Refused: not 3 to 5 slides, no title, or a figure that the notebook does not have.
    """
    parts = re.split(r"^---$", take_figures(source.read_text(encoding="utf-8"), out), flags=re.MULTILINE)
    title = re.match(r"\s*# (.+)", parts[0])
    if not 3 <= len(parts) <= 5 or title is None:
        message = f"{source.name}: expected 3 to 5 slides, the first with '# title'; found {len(parts)}"
        problem = "no title" if title is None else "too few" if len(parts) < 3 else "too many"
        raise Refused(message, value=len(parts), expected="[3, 5]", problem=problem, file=source.name)
    markdown = renderer()
    slides = "\n".join(
        f'<section id="{i}">\n{held(markdown.render(part))}</section>' for i, part in enumerate(parts, 1)
    )
    text = PAGE.format(title=html.escape(title[1]), mathjax=json.dumps(mathjax), place=place, slides=slides)
    target = out / f"{source.stem}.html"
    target.write_text(text, encoding="utf-8")
    return target


def decks(source: Path, out: Path, place: str) -> list[Path]:
    """All decks of a folder. Raises as :func:`deck`."""
    out.mkdir(parents=True, exist_ok=True)
    for name in ("deck.css", "deck.js"):
        shutil.copy(BOOK / "slides" / name, out / name)
    mathjax = runpy.run_path(str(BOOK / "conf.py"))["mathjax3_config"]
    return [deck(one, out, mathjax, place) for one in sorted(source.glob("[0-9][0-9].md"))]


def main() -> int:
    """Parse the arguments and build all decks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, default=BOOK / "slides", help="folder of the decks")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "slides", help="where they go")
    parser.add_argument("--no-pdf", action="store_true", help="HTML only")
    args = parser.parse_args()
    start, out = time.perf_counter(), args.out.resolve()
    vendor_mathjax(BOOK)
    shutil.copytree(BOOK / "_static" / "mathjax", out / "mathjax", dirs_exist_ok=True)
    try:
        made = decks(args.source, out, "mathjax")
    except Refused as problem:
        print(f"slides: {problem}", file=sys.stderr)
        return 1
    for one in [] if args.no_pdf else made:
        print_pdf(one, one.with_suffix(".pdf"))
    print(f"slides: {len(made)} decks in {out}, {time.perf_counter() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
