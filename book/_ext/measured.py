"""``{measured}`ch05 rloo_2_gap .4f```: what a study found over its seeds, so that no number of the text is typed.

===============================  =====================================================================================
``NAME .2f``                     the range from the smallest to the largest, "1.94 to 2.05"; over all of them, if several
                                 names are joined by commas or meant by a star; a format like ``.0%`` gives percents
``NAME mean .2f``                the mean; so do ``median``, ``min`` and ``max``
``NAME > OTHER count``           in how many seeds, "18 of 20", "four of five", "all five"; several names are counted together;
                                 ``<`` likewise; OTHER may be a number; ``|NAME|`` is without sign
``NAME > OTHER and N < M count`` in how many seeds both hold
``NAME,NAME > OTHER each``       the same, but counted one by one: "two to four of five"
``NAME > OTHER number``          like count, without "of 20"
===============================  =====================================================================================

Runs that share their seeds are compared by the differences, seed by seed (:mod:`minirlhf_course.evidence.paired`: t intervals of 95 %, and
Holm's correction where several pairs are looked at). The word says what the sentence says, and the build fails where it does not hold:

====================================  ================================================================================
``NAME vs OTHER larger .2f``          by how much, with the interval: "0.31 [0.12, 0.50]"; an error if it is not larger
``NAME vs OTHER smaller .2f``         likewise, also as a size without sign
``NAME vs OTHER alike .2f``           the smallest difference that would have been found in four of five such studies,
                                      "0.04"; an error if they can be told apart
``NAME vs OTHER difference .2f``      the difference and its interval, with signs, "−0.01 [−0.05, 0.03]"; claims nothing
``NAME vs 0 larger .2f``              a number of each seed against one, "0.31 [0.12, 0.50]"
``NAME,NAME vs OTHER larger .2f``     several names are one family of pairs: the differences of all, "0.1 to 0.4"
``NAME vs OTHER among NAMES alike``   one pair of a family: all pairs of these names were looked at
``NAME vs OTHER of NAMES alike``      likewise, where each of these names was compared with OTHER
``NAME,NAME,NAME significant``        how many pairs of these can be told apart, "47 of 136"
``NAME,NAME,NAME unseen .2f``         the differences that were too small to be found in the others, "0.04 to 0.15"
====================================  ================================================================================

``minirlhf verify studies`` lists the studies.
"""

from collections.abc import Callable, Mapping
from fnmatch import filter as matching
from functools import cache
from operator import gt, lt
from statistics import fmean, median
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxRole

from minirlhf.core.errors import ArgumentError, UserError, unknown
from minirlhf_course import evidence

WORDS = ["none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
Family = Mapping[tuple[str, str], evidence.Difference]
PARTS: dict[str, Callable[[list[float]], float]] = {"mean": fmean, "median": median, "min": min, "max": max}


#: Reading a result again for each of its numbers takes a fifth of the time of reading the pages.
result, results = cache(evidence.result), cache(evidence.results)


def told(text: str) -> str:
    """What the role's text asks for.

    Raises:
        UserError, ValueError: no such study, measurement or form.
    """
    try:
        study, names, *rest, form = text.split()
    except ValueError:
        message = f"{text!r}: expected a study, a measurement and a form"
        raise ArgumentError(message, value=text, problem="missing") from None
    found = result(study)
    known = list(next(iter(found["seeds"].values())))

    def named(names: str) -> dict[str, list[float]]:
        """The numbers of each measurement that is meant."""
        meant = {}
        for name in names.split(","):
            here = matching(known, name.strip("|"))
            if not here:
                raise unknown(f"measurement of {study}", name, known)
            sized = abs if "|" in name else float
            meant |= {one: [sized(x) for x in evidence.values(found, one)] for one in here}
        return meant

    def lists(names: str) -> list[list[float]]:
        return list(named(names).values())

    def beyond(columns: list[list[float]], sign: str, other: str) -> list[list[bool]]:
        """In which seeds the numbers are above or below the others."""
        [others] = [[float(other)] * len(columns[0])] if _is_number(other) else lists(other)
        return [list(map(gt if sign == ">" else lt, column, others)) for column in columns]

    def counted(count: int, total: int) -> str:
        said = _count([count], total)
        return said if form == "count" else said.split(" of ")[0].removeprefix("all ")

    columns = lists(names)
    numbers = [x for column in columns for x in column]
    match rest:
        case []:
            return _significant(named(names)) if form == "significant" else _range(numbers, form)
        case ["unseen"]:
            return _range(
                [
                    pair.minimum_detectable_effect
                    for pair in evidence.differences(named(names)).values()
                    if not pair.significant
                ],
                form,
            )
        case ["vs", other, verdict]:
            given = named(names)
            against = {other: [float(other)] * len(columns[0])} if _is_number(other) else named(other)
            family = evidence.differences(given | against, [(name, one) for name in given for one in against])
            return _compared(family, verdict, form)
        case ["vs", other, ("among" | "of") as which, more, verdict]:
            members = named(more)
            each = None if which == "among" else [(name, other) for name in members]
            family = evidence.differences(members | named(other), each)
            pairs = [_pair(family, name, other) for name in named(names)]
            return _compared(dict(pairs), verdict, form)
        case [part] if part in PARTS:
            return _range([PARTS[part](numbers)], form)
        case [("<" | ">") as sign, other] if form in ("count", "each", "number"):
            counts = [sum(column) for column in beyond(columns, sign, other)]
            if form == "each":
                return _count(counts, len(columns[0]))
            return counted(sum(counts), len(numbers))
        case [("<" | ">") as sign, other, "and", more, ("<" | ">") as second, bound] if form in ("count", "number"):
            [one], [two] = beyond(columns, sign, other), beyond(lists(more), second, bound)
            return counted(sum(a and b for a, b in zip(one, two, strict=True)), len(one))
    asked = " ".join([*rest, form])
    raise ArgumentError(f"{asked!r} is none of its forms", argument="form", value=asked, problem="unknown")


def _is_number(text: str) -> bool:
    return text.lstrip("-").replace(".", "", 1).isdigit()


def _range(numbers: list[float], form: str) -> str:
    """``"1.94 to 2.05"``, ``"3 to 9 %"``, or one number if all print alike."""
    percent = form.endswith("%")
    form = form.replace("%", "f").replace(".", "z.", 1)  # no sign before what rounds to 0
    low, high = (f"{x * (100 if percent else 1):{form}}" for x in (min(numbers), max(numbers)))
    return f"{low if low == high else f'{low} to {high}'}{' %' if percent else ''}".replace("-", "−")


def _count(counts: list[int], total: int) -> str:
    """``"18 of 20"``, ``"all five"``, ``"two to four of five"``: in words where the total is at most twelve."""
    said = [*WORDS[:1], *(WORDS[1 : total + 1] if total < len(WORDS) else map(str, range(1, total + 1)))]
    low, high = min(counts), max(counts)
    if low == total:
        return f"all {said[total]}"
    return f"{said[low] if low == high else f'{said[low]} to {said[high]}'} of {said[total]}"


def _significant(columns: dict[str, list[float]]) -> str:
    """Pairs, seed by seed."""
    pairs = evidence.differences(columns).values()
    return _count([sum(pair.significant for pair in pairs)], len(pairs))


def _pair(family: Family, name: str, other: str) -> tuple[tuple[str, str], evidence.Difference]:
    """One pair of a family, the way round that is asked for."""
    if (name, other) in family:
        return (name, other), family[name, other]
    if (other, name) in family:
        return (name, other), -family[other, name]
    message = f"{name} and {other} are no pair of the family that is named"
    raise ArgumentError(message, argument="pair", value=[name, other], problem="unknown")


def _compared(family: Family, verdict: str, form: str) -> str:
    """What is said of the differences, if it is true of all."""
    for (name, other), pair in family.items():
        true = {
            "larger": pair.significant and pair.mean > 0,
            "smaller": pair.significant and pair.mean < 0,
            "alike": not pair.significant,
            "difference": True,
        }
        if verdict not in true:
            message = f"{verdict!r} is none of {', '.join(true)}"
            raise ArgumentError(message, argument="verdict", value=verdict, expected=list(true))
        if not true[verdict]:
            message = (
                f"{name} vs {other} is not {verdict}: {pair.mean:.3g} [{pair.interval[0]:.3g}, {pair.interval[1]:.3g}], "
                f"{pair.p_value}, larger in {pair.above} of {pair.seeds}"
            )
            raise ArgumentError(message, argument=verdict, value=pair.mean, problem="not shown")
    pairs = [-pair if verdict == "smaller" else pair for pair in family.values()]
    if verdict == "alike":
        return _range([pair.minimum_detectable_effect for pair in pairs], form)
    if len(pairs) > 1:
        return _range([pair.mean for pair in pairs], form)
    mean, low, high = (_range([x], form).removesuffix(" %") for x in (pairs[0].mean, *pairs[0].interval))
    return f"{mean} [{low}, {high}]{' %' if form.endswith('%') else ''}"


class Measured(SphinxRole):
    """The numbers, as text."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Look them up; a study, a name or a form that does not exist is an error."""
        try:
            text = told(self.text)
        except (UserError, ValueError) as problem:
            said = self.inliner.reporter.error(f"{{measured}} {self.text!r}: {problem}", line=self.lineno)
            return [], [said]
        self.env.note_dependency(str(results()[self.text.split()[0]]))
        return [nodes.Text(text)], []


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the role."""
    app.add_role("measured", Measured())
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
