"""A term that links to the glossary says what it means, so that nobody has to leave the page for it.

It is a plain ``title``, with its formulas in letters; ``reading.js`` shows it as it shows equations, so that keyboard and touch reach it too.
"""

from typing import Any

from docutils import nodes
from plain_formulas import letters
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms.post_transforms import SphinxPostTransform

PAGE = "glossary"
MOST = 700  # letters of a tooltip: all meanings of a word that has several


def said(node: nodes.Node) -> str:
    """The text of a paragraph, in which formulas are letters."""
    if isinstance(node, nodes.math):
        return letters(node.astext()) or "…"
    return node.astext() if isinstance(node, nodes.Text) else "".join(map(said, node.children))


def meanings(env: BuildEnvironment) -> dict[str, str]:
    """The first paragraph of each entry, by the anchor of its term."""
    found: dict[str, str] = {}
    if PAGE not in env.all_docs:
        return found
    for glossary in env.get_doctree(PAGE).findall(addnodes.glossary):
        for item in glossary.findall(nodes.definition_list_item):
            text = next((said(p) for p in item.findall(nodes.paragraph)), "")
            short = text if len(text) <= MOST else f"{text[:MOST].rsplit(' ', 1)[0]} …"
            found |= {anchor: short for term in item.findall(nodes.term) for anchor in term["ids"]}
    return found


class Tooltips(SphinxPostTransform):
    """After Sphinx has resolved the references."""

    default_priority = 20

    def run(self, **kwargs: Any) -> None:
        """On each page as it is written."""
        links = [n for n in self.document.findall(nodes.reference) if "#term-" in n.get("refuri", "")]
        if links:
            known = meanings(self.env)
            for link in links:
                meaning = known.get(link["refuri"].partition("#")[2])
                if meaning:
                    link["reftitle"] = meaning


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the transform, and the script that helps with reading."""
    app.add_post_transform(Tooltips)
    app.add_js_file("reading.js", loading_method="defer")
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
