"""``{derivation} derivations/mine.md``: a reader's own file as it is written, and what ``minirlhf verify`` says of it in this build.

``:fails: label`` names the step that is wrong on purpose; that another one fails, or none, is a warning.
"""

from pathlib import Path
from typing import Any, ClassVar

from details import fold
from docutils import nodes
from docutils.parsers.rst import directives
from proofs import shows_outcomes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from minirlhf_course.ledger.formulas import derivation, derivation_names

logger = logging.getLogger(__name__)


class DerivationDirective(SphinxDirective):
    """The file, folded, and the verdict."""

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {"fails": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        """Check the file; its blocks are the book's own, so they run in this process."""
        shows_outcomes(self.env)
        path = Path(self.env.srcdir) / self.arguments[0]
        self.env.note_dependency(str(path))
        text, steps = derivation.read(path)
        seed = self.config.ledger_seed
        verdicts = derivation_names.check([step.as_data() for step in steps], seed)
        wrong = next((step.label for step, found in zip(steps, verdicts, strict=False) if not found["holds"]), None)
        if wrong != self.options.get("fails"):
            said = f"the step that fails is {wrong}, expected {self.options.get('fails')}"
            logger.warning(f"{self.arguments[0]}: {said}", location=self.env.docname, type="ledger")
        command = f"$ minirlhf verify {path.name} --seed {seed}"
        shown = f"{command}\n{derivation.report(Path(path.name), steps, verdicts, seed)}"
        return [
            fold(path.name, nodes.literal_block(text, text, language="markdown"), classes=("fold",)),
            nodes.literal_block(shown, shown, language="text"),
        ]


def setup(app: Sphinx) -> dict[str, Any]:
    """One directive."""
    app.setup_extension("proofs")
    app.add_directive("derivation", DerivationDirective)
    return {"version": "1", "parallel_read_safe": False, "parallel_write_safe": False}
