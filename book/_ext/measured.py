"""``{measured}`ch05 rloo_2_gap .4f```: what a study found over its seeds, so that no number of the text is typed.

===============================  =====================================================================================
``NAME .2f``                     the range from the smallest to the largest, "1.94 to 2.05"; over all of them, if several
                                 names are joined by commas or meant by a star; a format like ``.0%`` gives percents
``NAME mean .2f``                the mean; so do ``min`` and ``max``
``NAME > OTHER count``           in how many seeds, "18 of 20", "four of five", "all five"; several names are counted together;
                                 ``<`` likewise; OTHER may be a number; ``|NAME|`` is without sign
``NAME,NAME > OTHER each``       the same, but counted one by one: "two to four of five"
``NAME > OTHER number``          like count, without "of 20"
``NAME,NAME,NAME apart``         how many pairs of these differ by three deviations of their difference, "47 of 136"
===============================  =====================================================================================

``minirlhf studies`` lists the studies.
"""

from collections.abc import Callable
from fnmatch import filter as matching
from itertools import combinations
from operator import gt, lt
from statistics import fmean
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxRole

from minirlhf import evidence
from minirlhf.core.errors import UserError, unknown

WORDS = ["none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
PARTS: dict[str, Callable[[list[float]], float]] = {"mean": fmean, "min": min, "max": max}


def told(text: str) -> str:
    """What the role's text asks for.

    Raises:
        UserError, ValueError: no such study, measurement or form.
    """
    try:
        study, names, *rest, form = text.split()
    except ValueError:
        raise ValueError(f"{text!r}: expected a study, a measurement and a form") from None
    found = evidence.result(study)
    known = list(next(iter(found["seeds"].values())))

    def lists(names: str) -> list[list[float]]:
        """The numbers of each measurement that is meant."""
        meant = []
        for name in names.split(","):
            here = matching(known, name.strip("|"))
            if not here:
                raise unknown(f"measurement of {study}", name, known)
            meant += [[abs(x) if "|" in name else x for x in evidence.values(found, one)] for one in here]
        return meant

    columns = lists(names)
    numbers = [x for column in columns for x in column]
    match rest:
        case []:
            return _apart(columns) if form == "apart" else _range(numbers, form)
        case [part] if part in PARTS:
            return _range([PARTS[part](numbers)], form)
        case [("<" | ">") as sign, other] if form in ("count", "each", "number"):
            [others] = [[float(other)] * len(columns[0])] if _is_number(other) else lists(other)
            beyond = gt if sign == ">" else lt
            counts = [sum(map(beyond, column, others)) for column in columns]
            if form == "each":
                return _count(counts, len(others))
            said = _count([sum(counts)], len(others) * len(columns))
            return said if form == "count" else said.split(" of ")[0].removeprefix("all ")
    raise ValueError(f"{' '.join([*rest, form])!r} is none of its forms")


def _is_number(text: str) -> bool:
    return text.lstrip("-").replace(".", "", 1).isdigit()


def _range(numbers: list[float], form: str) -> str:
    """``"1.94 to 2.05"``, ``"3 to 9 %"``, or one number if all print alike."""
    percent = form.endswith("%")
    low, high = (f"{x * (100 if percent else 1) + 0.0:{form.replace('%', 'f')}}" for x in (min(numbers), max(numbers)))
    return f"{low if low == high else f'{low} to {high}'}{' %' if percent else ''}".replace("-", "−")


def _count(counts: list[int], total: int) -> str:
    """``"18 of 20"``, ``"all five"``, ``"two to four of five"``: in words where the total is at most twelve."""
    said = [*WORDS[:1], *(WORDS[1 : total + 1] if total < len(WORDS) else map(str, range(1, total + 1)))]
    low, high = min(counts), max(counts)
    if low == total:
        return f"all {said[total]}"
    return f"{said[low] if low == high else f'{said[low]} to {said[high]}'} of {said[total]}"


def _apart(columns: list[list[float]]) -> str:
    """Pairs, seed by seed."""
    pairs = list(combinations(columns, 2))
    margins = [evidence.margin([x - y for x, y in zip(a, b, strict=True)], 0.0) for a, b in pairs]
    return _count([sum(abs(m) >= 3 for m in margins)], len(pairs))


class Measured(SphinxRole):
    """The numbers, as text."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Look them up; a study, a name or a form that does not exist is an error."""
        try:
            text = told(self.text)
        except (UserError, ValueError) as problem:
            said = self.inliner.reporter.error(f"{{measured}} {self.text!r}: {problem}", line=self.lineno)
            return [], [said]
        self.env.note_dependency(str(evidence.results()[self.text.split()[0]]))
        return [nodes.Text(text)], []


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the role."""
    app.add_role("measured", Measured())
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
