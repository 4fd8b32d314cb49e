"""``{measured}`ch05_frontier rloo_2_gap .4f```: what a study found over its seeds, so that no number of the text is typed.

The range from the smallest to the largest, "0.0000 to 0.0001"; with several names, joined by commas, over all of them; with
``mean`` before the format, the mean. A format like ``.0%`` gives percents. The study is ``studies/NAME.json``.
"""

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxRole

from minirlhf import evidence
from minirlhf.core.errors import UserError, unknown

STUDIES = Path(__file__).resolve().parents[2] / "studies"


def told(numbers: list[float], form: str) -> str:
    """``"1.94 to 2.05"``, ``"3 to 9 %"``, or one number if all print alike.

    Raises:
        ValueError: ``form`` is not a format of numbers.
    """
    percent = form.endswith("%")
    low, high = (f"{x * (100 if percent else 1) + 0.0:{form.replace('%', 'f')}}" for x in (min(numbers), max(numbers)))
    return f"{low if low == high else f'{low} to {high}'}{' %' if percent else ''}".replace("-", "−")


class Measured(SphinxRole):
    """The numbers, as text."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Look them up; a study or a name that does not exist is an error."""
        try:
            study, names, *mean, form = self.text.split()
            if mean not in ([], ["mean"]):
                raise ValueError(f"{mean[0]!r} is not 'mean'")
            found = evidence.read(STUDIES / f"{study}.json")
            numbers = []
            for name in names.split(","):
                if any(name not in seed for seed in found["seeds"].values()):
                    raise unknown(f"measurement of {study}", name, next(iter(found["seeds"].values())))
                numbers += evidence.values(found, name)
            text = told([sum(numbers) / len(numbers)] if mean else numbers, form)
        except (UserError, ValueError) as problem:
            said = self.inliner.reporter.error(f"{{measured}} {self.text!r}: {problem}", line=self.lineno)
            return [], [said]
        self.env.note_dependency(str(STUDIES / f"{study}.json"))
        return [nodes.Text(text)], []


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the role."""
    app.add_role("measured", Measured())
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
