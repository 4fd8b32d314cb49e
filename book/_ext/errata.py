"""``{errata}``: every erratum of ``minirlhf verify errata``: where it stands, what is printed, whether a later edition still has it, what holds, the numbers, computed when the page is built, and the code."""

from __future__ import annotations

from typing import Any

from details import fold
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from minirlhf_course.errata.catalogue import errata
from minirlhf_course.errata.erratum import Erratum, Found


class Errata(SphinxDirective):
    """One section per erratum; ``erratum-which-psi`` is the address of ``which_psi``."""

    def run(self) -> list[nodes.Node]:
        """Compute each; one that does not hold stops the build."""
        return [self._entry(one) for one in errata().values()]

    def _entry(self, one: Erratum) -> nodes.Node:
        found = one.compute()
        if not found.holds:
            raise self.error(f"the erratum {one.name} does not hold: {found}")
        address = nodes.make_id(f"erratum-{one.name}")
        entry = nodes.section("", nodes.title(text=one.title), ids=[address], names=[address])
        lines = nodes.field_list()
        for title, text in (
            ("where", one.where),
            ("it says", one.says),
            ("today", one.today),
            ("correct", one.correction),
            ("computed", numbers(found)),
        ):
            lines += nodes.field("", nodes.field_name(text=title), nodes.field_body("", nodes.paragraph(text=text)))
        entry += lines
        entry += fold("The computation", nodes.literal_block(one.code, one.code, language="python"))
        return entry


def numbers(found: Found) -> str:
    """The quantity: as printed, as corrected, and computed independently."""
    printed = "not a number" if found.printed != found.printed else f"{found.printed:.4g}"
    return (
        f"{found.quantity}: as printed {printed}, corrected {found.right:.4g}, computed independently {found.exact:.4g}"
    )


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("errata", Errata)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
