"""``{touch} NAME``: a figure that the reader sets, computed in the browser and held to the library; see :mod:`figures`.

Above it stand what is asked before anything is moved, and what to try, which is the directive's content."""

import re
import shutil
from pathlib import Path
from typing import Any, ClassVar

import figures
import predictions
from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

SCRIPT = Path(__file__).resolve().parents[1] / "_static" / "touch.js"
PLACE = "_static/figures"  # of the scripts, in the finished site
STILL = "On the book's site this figure can be moved; here it stands still."  # on paper, in the EPUB, and without JavaScript


class touched(nodes.figure):
    """A figure with a number, whose caption stands first."""


class TouchDirective(SphinxDirective):
    """The figure; between its heading and its controls, what to predict and what to try (the content, Markdown)."""

    required_arguments = 1
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {"unasked": directives.flag}  # where nobody is asked to predict

    def run(self) -> list[nodes.Node]:
        """The figure as HTML, in a container, with the question and the content above its controls."""
        try:
            figure = figures.load(self.arguments[0])
            asked = figure.asked()
        except ValueError as error:
            raise self.error(str(error)) from None
        self.env.note_dependency(str(figures.FOLDER / f"{figure.name}.py"))
        self.env.note_dependency(str(figures.FOLDER / f"{figure.name}.js"))
        folder = "../" * self.env.docname.count("/") + PLACE
        folded = predictions.result()
        self.state.nested_parse(StringList([asked.told], source=f"{figure.name}.py"), self.content_offset, folded)
        begin, heading, body = figures.html(figure, folder)
        whole: nodes.Element
        if "unasked" in self.options:  # it has its number where it is asked about
            whole = nodes.container("", nodes.raw("", heading, format="html"), classes=["touch-whole"])
        else:
            close = nodes.raw("", "</figcaption>", format="html")  # else everything would belong to the caption
            whole = touched("", nodes.caption("", figure.title.replace("'", "’")), close, classes=["touch-whole"])
            whole["names"].append(f"touch-{figure.name}")
            self.state.document.note_explicit_target(whole)
        whole += nodes.raw("", begin, format="html")
        if "unasked" not in self.options:
            whole += predictions.form(asked, folded)
        whole += nodes.paragraph(text=STILL, classes=["touch-still"])
        self.state.nested_parse(self.content, self.content_offset, whole)
        body = body.replace("</span><span><i ", "</span> <span><i ")  # words apart where no style sheet is obeyed
        whole += nodes.raw("", body, format="html")
        return [whole]


PLACED = re.compile(r"^```\{touch\} (\w+)$", re.MULTILINE)


class TouchListDirective(SphinxDirective):
    """``{touch-list}``: every figure of a chapter that can be touched, by its title, in the book's order."""

    def run(self) -> list[nodes.Node]:
        """A list of links."""
        found = []
        for page in sorted(Path(self.env.srcdir).glob("[0-9][0-9]-*.md")):
            self.env.note_dependency(str(page))
            to_page = self.env.app.builder.get_relative_uri(self.env.docname, page.stem)
            for name in (n for n in PLACED.findall(page.read_text("utf-8")) if n in figures.names()):
                place = nodes.make_id(f"touch-{name}")
                link = nodes.reference("", figures.load(name).title, internal=True, refuri=f"{to_page}#{place}")
                found.append(nodes.list_item("", nodes.paragraph("", f"{int(page.stem[:2])} · ", link)))
        return [nodes.bullet_list("", *found, classes=["touch-list"])]


def scripts(out: Path, seed: int) -> None:
    """Put the scripts of all figures, and what Python found, where the pages look for them."""
    out.mkdir(parents=True, exist_ok=True)
    shutil.copy(SCRIPT, out / "touch.js")
    for name in figures.names():
        source = figures.FOLDER / f"{name}.js"
        if not source.is_file():
            raise ExtensionError(
                f"book/figures/{name}.py has no {name}.js beside it: nothing would move in the browser"
            )
        shutil.copy(source, out / f"{name}.js")
        (out / f"{name}.held.js").write_text(figures.proof(figures.load(name), seed), encoding="utf-8")


def finish(app: Sphinx, exception: Exception | None) -> None:
    """After the pages, once for site and one page."""
    if exception is None and app.builder.name == "html":
        scripts(Path(app.outdir) / PLACE, app.config.ledger_seed)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    tags = (lambda to, node: to.body.append(to.starttag(node, "figure")), lambda to, _: to.body.append("</figure>\n"))
    app.add_enumerable_node(touched, "figure", html=tags)
    app.add_directive("touch", TouchDirective)
    app.add_directive("touch-list", TouchListDirective)
    app.connect("build-finished", finish)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
