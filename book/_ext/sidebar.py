"""The contents beside every page name pages alone: Sphinx copies the headings of all pages for each of them, and then drops the copies."""

from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx


def without_headings(contents: nodes.bullet_list) -> nodes.bullet_list:
    """A copy of a page's contents: its title, and headings only where they list other pages."""
    short = contents.deepcopy()
    for entry in short.children:
        if len(entry) > 1 and not list(entry.findall(addnodes.toctree)):
            entry.pop(1)
    return short


def shorten(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """Let Sphinx see the short contents for as long as it makes those beside a page."""
    if app.builder.name != "html":
        return
    made, env = context["toctree"], app.env
    if not hasattr(app, "short_contents"):
        app.short_contents = {name: without_headings(contents) for name, contents in env.tocs.items()}  # type: ignore[attr-defined]

    def toctree(**options: Any) -> str:
        whole = env.tocs
        env.tocs = app.short_contents if options.get("titles_only") else whole  # type: ignore[attr-defined]
        try:
            return made(**options)
        finally:
            env.tocs = whole

    context["toctree"] = toctree


def setup(app: Sphinx) -> dict[str, Any]:
    """Listen."""
    app.connect("html-page-context", shorten)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
