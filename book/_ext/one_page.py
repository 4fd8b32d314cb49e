"""The whole book as ``one-page.html`` beside the site: all but the library's pages, which it links to. The PDF is its print.

Of a notebook, which the site has whole, the one page shows the figures. For the print it holds contents, whose page numbers
``tools/book.py`` fills in, and a running head for each chapter.
"""

import json
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from anchors import anchor, followed
from docutils import nodes
from library import API
from numbering import APPENDICES, chapter_of
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.builders.singlehtml import SingleFileHTMLBuilder
from sphinx.util.console import darkgreen
from sphinx.util.nodes import inline_all_toctrees


@dataclass(frozen=True)
class Line:
    """A line of the contents: a page of the book, or a section of a chapter."""

    level: int
    anchor: str
    title: str


def contents(tree: nodes.document, env: Any) -> list[Line]:
    """The pages in their order, and the sections of those that have a number."""
    found = []
    for page in tree.findall(addnodes.start_of_file):
        top = next(page.findall(nodes.section), None)
        if top is None:
            continue
        name, numbers = page["docname"], env.toc_secnumbers.get(page["docname"], {})
        found.append(Line(1, top["ids"][0], titled(numbers.get("") or APPENDICES.get(name, ())[:1], top)))
        if chapter_of(name) and not name.startswith("notebooks/"):
            for section in top.children:
                if isinstance(section, nodes.section):
                    number = numbers.get(f"#{section['ids'][0].removeprefix(f'{name}:')}", ())
                    found.append(Line(2, section["ids"][0], titled(number, section)))
    return found


def titled(number: Any, section: nodes.section) -> str:
    """The title of a section behind its number."""
    title = section[section.first_child_matching_class(nodes.title)].astext()
    return f"{'.'.join(map(str, number))} {title}".strip() if number else title


def only_figures(notebook: addnodes.start_of_file) -> None:
    """Leave a notebook its title and its figures, each with what it shows; every anchor leads to the title."""
    top = next(notebook.findall(nodes.section))
    title, images = top[top.first_child_matching_class(nodes.title)], list(notebook.findall(nodes.image))
    anchors = [name for node in notebook.findall(nodes.Element) for name in node.get("ids", [])]
    name = f"{notebook['docname']}.ipynb"
    shown = [
        nodes.container("", image.deepcopy(), nodes.paragraph(text=image.get("alt", "")), classes=["shown"])
        for image in images
    ]
    whole = nodes.section(
        "",
        title,
        nodes.paragraph(
            "", "What it draws; questions, code and results are in ", nodes.literal("", name), nodes.Text(".")
        ),
        *shown,
    )
    whole["ids"] = list(dict.fromkeys([*top["ids"], *anchors]))
    notebook.children = []
    notebook += whole


def print_style(lines: list[Line]) -> str:
    """A running head for each page of the book, the number of the sheet at its foot, and where the contents go."""
    rules = [
        f"@page p{i} {{ @top-right {{ content: {json.dumps(line.title, ensure_ascii=False)}; font: 9px sans-serif; color: #555 }} }}\n"
        f"[id={json.dumps(line.anchor)}] {{ page: p{i} }}"
        for i, line in enumerate(lines)
        if line.level == 1
    ]
    return (
        "<style>@page { @bottom-center { content: counter(page); font: 9px sans-serif } }\n"
        + "\n".join(rules).replace("</", "<\\/")
        + "</style>"
    )


def printed_contents(lines: list[Line]) -> str:
    """The contents as they are printed; the page numbers are filled in when they are known."""
    items = "".join(
        f'<li class="level-{line.level}"><a href="#{escape(line.anchor)}">{escape(line.title)}</a>'
        f'<span class="sheet" data-of="{escape(line.anchor)}"></span></li>'
        for line in lines
    )
    return f'<nav class="printed-contents" aria-label="Contents of the print"><p>Contents</p><ol>{items}</ol></nav>'


class OnePage(SingleFileHTMLBuilder):
    """Sphinx's builder of that name, with unique anchors, into the folder that already holds the site."""

    def get_output_path(self, page_name: str, /) -> Path:
        """The one page."""
        return Path(self.outdir) / "one-page.html"

    def get_target_uri(self, docname: str, typ: str | None = None) -> str:
        """The library's pages stay where the site has them."""
        return f"{docname}.html" if docname.startswith(f"{API}/") else super().get_target_uri(docname, typ)

    def assemble_doctree(self) -> nodes.document:
        """All pages in the order of the contents, with their references resolved and their anchors made unique."""
        root = self.config.root_doc
        left_out = [page for page in self.env.all_docs if page.startswith(f"{API}/")]
        tree = inline_all_toctrees(self, set(), root, self.env.get_doctree(root), darkgreen, [root, *left_out])
        tree["docname"] = root
        self.env.resolve_references(tree, root, self)
        for page in tree.findall(addnodes.start_of_file):
            if page["docname"].startswith("notebooks/"):
                only_figures(page)
            for node in page.findall(nodes.Element):
                for key in ("ids", "backrefs"):
                    node[key] = [anchor(page["docname"], name) for name in node.get(key, [])]
                if "refid" in node:
                    node["refid"] = anchor(page["docname"], node["refid"])
        self.lines = contents(tree, self.env)
        return tree

    def assemble_toc_secnumbers(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """Numbers of sections, found by the unique anchors."""
        numbers = {
            f"{page}/{f'#{anchor(page, name[1:])}' if name else ''}": number
            for page, anchors in self.env.toc_secnumbers.items()
            for name, number in anchors.items()
        }
        return {self.config.root_doc: numbers}

    def assemble_toc_fignumbers(self) -> dict[str, dict[str, dict[str, tuple[int, ...]]]]:
        """Numbers of figures and equations, likewise."""
        numbers = {
            f"{page}/{kind}": {anchor(page, name): number for name, number in found.items()}
            for page, kinds in self.env.toc_fignumbers.items()
            for kind, found in kinds.items()
        }
        return {self.config.root_doc: numbers}

    def finish(self) -> None:
        """Make the links follow the anchors; all else the site has already."""
        self.copy_image_files()
        page = self.get_output_path("")
        html = followed(page.read_text(encoding="utf-8"))
        html = html.replace("</head>", f"{print_style(self.lines)}</head>", 1)
        html = html.replace(
            '<div class="toctree-wrapper', f'{printed_contents(self.lines)}<div class="toctree-wrapper', 1
        )
        page.write_text(html, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Take the place of the builder ``singlehtml``, whose name the theme knows."""
    app.add_builder(OnePage, override=True)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
