"""The proof marks: every numbered equation is checked when the book is built, and shows against what.

A label of the book without a check, a failing check, a wrong variant that passes, and a check of a finished chapter
whose equation is not on the page are warnings, and warnings are errors. So is a printed formula that does not hold, and
one that was edited since it was last read, where it is not evaluated. (That misprints are noticed is asserted by the tests, on
a fixed seed; on a fresh one an input may fall where a misprint does not matter, and the mark says how many were noticed.)
"""

import collections
import functools
import json
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import torch
from anchors import followed
from details import fold
from docutils import nodes
from numbering import checked_by
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from minirlhf_course.chapters import load_checks, load_legends
from minirlhf_course.ledger import pages as reader
from minirlhf_course.ledger.formulas import proof
from minirlhf_course.ledger.formulas.items import digest
from minirlhf_course.ledger.pages import CheckOutcome

logger = logging.getLogger(__name__)
torch.set_num_threads(1)

# So many of the misprints that rules make of a formula are tried at every build; the tests try more.
MISPRINTS = 12
# What is printed at each label of this build.
_PRINT: dict[str, str] = {}
PLACE = "_static/proofs"  # of what marks hold, in the finished site


@functools.cache
def outcomes(label: str, seed: int) -> tuple[CheckOutcome, ...]:
    """All checks of a label, run once per build; the site and the one page share them."""
    return tuple(reader.outcome(c, seed) for c in load_checks().select([label]))


@functools.cache
def printed(label: str, latex: str, seed: int) -> proof.Printed | None:
    """What came of evaluating the formula on the page; None for one without a legend."""
    legend = load_legends().legends.get(label)
    return legend and proof.prove(latex, legend, seed, MISPRINTS)


def equations(env: BuildEnvironment) -> dict[str, str]:
    """Every numbered equation of the book and the page that it stands on."""
    return {label: page for label, (page, _) in env.domains.math_domain.equations.items()}


# -- what must hold ----------------------------------------------------------------------------------------------


def _complain(text: str, page: str | None = None) -> None:
    logger.warning(text, location=page, type="ledger")


def examine(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Run the checks of the book's equations and complain; returns the pages that show outcomes, to be written anew."""
    known, placed = load_checks(), equations(env)
    for label, page in placed.items():
        checks = known.select([label])
        if not checks:
            _complain(f"equation {label} has no check in the ledger", page)
        elif checks[0].chapter and checks[0].chapter != checked_by(page):
            _complain(
                f"equation {label} belongs to chapter {checks[0].chapter:02d}, which checks it; refer to it", page
            )
        for outcome in outcomes(label, app.config.ledger_seed):
            c = outcome.result.check
            if not outcome.result.passed:
                _complain(f"a check failed: {reader.failure(outcome.result)}", page)
            for name in outcome.accepted:
                _complain(f"{label} ({c.claim}) does not reject the wrong variant {name!r}", page)
    for c in known.checks.values():
        if c.chapter in app.config.finished_chapters and c.label not in placed:
            _complain(f"chapter {c.chapter:02d} is finished, but {c.label} ({c.claim}) is not on its page")
    return sorted({*placed.values(), *getattr(env, "outcome_pages", ())} & env.all_docs.keys())


def examine_print(app: Sphinx, env: BuildEnvironment) -> None:
    """Evaluate the printed formulas and complain about those that are wrong, or that were edited since they were read."""
    known, placed = load_legends(), equations(env)
    for page in sorted(set(placed.values())):
        for node in env.get_doctree(page).findall(nodes.math_block):
            label, latex = node.get("label"), node.astext()
            if label in placed:
                _PRINT[label] = latex
            pin, found = (
                known.pins.get(label),
                printed(label, latex, app.config.ledger_seed) if label in placed else None,
            )
            if label in placed and label not in known.legends and label not in known.pins:
                _complain(
                    f"{label} has no legend: say what its signs are, or pin {digest(latex)} with the reason", page
                )
            if pin and pin.digest != digest(latex):
                _complain(
                    f"the formula of {label} was edited; read it again, and if it is right, pin {digest(latex)}", page
                )
            if found and not found.passed:
                why = found.message or f"its sides differ by {reader.scientific(found.error)}"
                _complain(f"the printed formula of {label} is not what its legend says: {why}", page)


def shows_outcomes(env: BuildEnvironment) -> None:
    """Note that the page being read shows outcomes or where equations stand, so that each build writes it anew."""
    env.outcome_pages = getattr(env, "outcome_pages", set()) | {env.docname}


# -- the mark ----------------------------------------------------------------------------------------------------


def equation_link(label: str, page: str) -> nodes.Node:
    """The equation's number as a link, resolved by Sphinx."""
    where = {"refdomain": "math", "reftype": "eq", "reftarget": label, "refdoc": page, "refwarn": True}
    return addnodes.pending_xref("", nodes.literal("", label), **where)


def count(n: int, noun: str) -> str:
    """``1 check``, ``2 checks``."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def listing(thing: Callable[..., Any]) -> list[nodes.Node]:
    """File, line and code of a function."""
    where, code = reader.source(thing)
    text = "\n".join(code)
    return [
        nodes.paragraph("", where, classes=["proof-where"]),
        nodes.literal_block(text, text, language="python", force=False),
    ]


def _one(outcome: CheckOutcome, placed: dict[str, str], page: str) -> nodes.definition_list_item:
    c = outcome.result.check
    mark = "✓" if outcome.result.passed else "✗"
    said = nodes.paragraph("", c.statement)
    against = nodes.paragraph("", f"Checked against: {c.against}.")
    if c.follows:
        link = equation_link(c.follows, page) if c.follows in placed else nodes.literal("", c.follows)
        against += [nodes.Text(" Follows "), link, nodes.Text(".")]
    numbers = (
        f"Worst error {reader.written(outcome.result.error)}, tolerance {reader.written(c.tolerance)}."
        f" Wrong on purpose, and rejected: "
        + "; ".join(f"{name} (error {reader.written(variant.error)})" for name, variant in outcome.wrong.items())
        + "."
    )
    body = nodes.definition("", said, against, nodes.paragraph("", numbers, classes=["proof-numbers"]))
    return nodes.definition_list_item("", nodes.term("", f"{mark} {c.claim}"), body)


def mark(label: str, placed: dict[str, str], page: str, seed: int) -> nodes.Node:
    """The folded proof of one equation."""
    done = outcomes(label, seed)
    passed = all(o.result.passed for o in done)
    checks = [o.result.check for o in done]
    functions = reader.implementations(checks)
    command = f"minirlhf verify {label} --seed {seed}"
    return fold(
        f"{'✓' if passed else '✗'} {count(len(done), 'check')}",
        kept(
            "",
            nodes.definition_list("", *(_one(o, placed, page) for o in done)),
            fold(f"Code of {count(len(functions), 'function')}", *(n for f in functions for n in listing(f))),
            fold(f"Code of {count(len(checks), 'check')}", *(n for c in checks for n in listing(c.compare))),
            page=page,
            key=label,
        ),
        nodes.paragraph("", "Run it yourself: ", nodes.literal("", command), classes=["proof-numbers"]),
        classes=("proof-mark", "passed" if passed else "failed"),
    )


def print_summary(seed: int) -> nodes.Node:
    """How many of the printed formulas were evaluated in this build, and what became of their misprints."""
    done = [(label, printed(label, latex, seed)) for label, latex in _PRINT.items()]
    found = [one for _, one in done if one]
    how = collections.Counter(wrong.how for one in found for wrong in one.misprints)
    worst = max((one.error for one in found), default=0.0)
    return nodes.paragraph(
        "",
        f"Of {len(done)} printed formulas {len(found)} are evaluated, with a worst error of {reader.written(worst)}; "
        f"{how.total()} misprints of them were made for this page: {how['value']} gave a wrong value, {how['refused']} could not be "
        f"read, {how['harmless']} would be true as well. {count(len(done) - len(found), 'formula')} are read only.",
    )


def print_mark(label: str, latex: str, page: str, seed: int) -> nodes.Node | None:
    """The second mark: was the formula on the page itself evaluated, or only read?"""
    known = load_legends()
    if label in known.pins:
        reason = nodes.paragraph("", f"Why it is not evaluated: {known.pins[label].because}.")
        return fold("read, not evaluated", reason, classes=("proof-mark", "print-mark", "pinned"))
    found = printed(label, latex, seed)
    if found is None:
        return None
    refused = sum(wrong.how == "refused" for wrong in found.misprints)
    seen = sum(wrong.how in ("value", "refused") for wrong in found.misprints)
    harmless = sum(wrong.how == "harmless" for wrong in found.misprints)
    legend = known.legends[label]
    signs = [
        part
        for sign, value in found.explained
        for part in (nodes.math("", sign.replace("#", r"\cdot")), nodes.Text(f": {value}"), nodes.Text("; "))
    ]
    tried = count(len(found.misprints), "misprint")
    folded = fold(
        f"{'✓' if found.passed else '✗'} as printed",
        kept(
            "",
            nodes.paragraph(
                "",
                "The formula above was read as it is printed, its signs were given the values below, and its sides were "
                "compared. "
                + (
                    f"Then {tried} of it, made by rule, went the same way: {seen - refused} gave a wrong value, {refused} "
                    "could not be read" + (f", {harmless} would be true as well." if harmless else ".")
                    if found.misprints
                    else "No rule makes a misprint of it."
                ),
            ),
            nodes.paragraph("", "", nodes.Text("The signs in this run: "), *signs[:-1], classes=["proof-numbers"]),
            *(nodes.paragraph("", "Not evaluated: ", nodes.math("", words)) for words in found.remarks),
            fold("Code of the legend", *listing(legend.build)),
            page=page,
            key=f"{label} as printed",
        ),
        classes=("proof-mark", "print-mark", "passed" if found.passed else "failed"),
    )
    numbers = f" · worst error {reader.written(found.error)}" + (
        f" · {seen} of {tried} noticed" if found.misprints else ""
    )
    folded[0] += nodes.inline("", numbers, classes=["mark-numbers"])  # shown when it is open
    return folded


def in_a_line(marks: nodes.container) -> nodes.paragraph:
    """What the marks of an equation say while they are closed, for the EPUB: a reading device loads nothing into them."""
    return nodes.paragraph(text=" · ".join(one[0].astext() for one in marks), classes=["proof-marks"])


# -- the table of all equations ----------------------------------------------------------------------------------


class ledger_table(nodes.General, nodes.Element):
    """Stands for the table until all equations are known."""


class LedgerDirective(SphinxDirective):
    """``{ledger}``: every numbered equation with its formula, its checks, what they claim, and the worst error."""

    def run(self) -> list[nodes.Node]:
        """Leave a place for the table."""
        shows_outcomes(self.env)
        return [ledger_table()]


def table(header: list[str], rows: list[list[nodes.Node]], widths: list[int]) -> nodes.table:
    """A docutils table of inline nodes."""
    group = nodes.tgroup("", *(nodes.colspec(colwidth=w) for w in widths), cols=len(widths))

    def row(cells: list[nodes.Node]) -> nodes.row:
        return nodes.row("", *(nodes.entry("", nodes.paragraph("", "", cell)) for cell in cells))

    group += nodes.thead("", row([nodes.Text(h) for h in header]))
    group += nodes.tbody("", *map(row, rows))
    return nodes.table("", group)


def _worst(label: str, seed: int) -> CheckOutcome:
    """The check of a label whose error comes nearest to its tolerance."""
    return max(outcomes(label, seed), key=lambda o: o.result.error / o.result.check.tolerance)


def _compact(labels: list[str], page: str, seed: int) -> list[nodes.Node]:
    """A table with a line for each equation, as paper has room for."""
    rows = []
    for label in labels:
        worst = _worst(label, seed).result
        texts = [
            str(len(outcomes(label, seed))),
            reader.written(worst.error),
            reader.written(worst.check.tolerance),
        ]
        rows.append([equation_link(label, page), nodes.literal("", label), *map(nodes.Text, texts)])
    return [table(["Equation", "Label", "Checks", "Worst error", "Tolerance"], rows, [12, 40, 12, 18, 18])]


def _entry(label: str, page: str, home: str, seed: int) -> nodes.Node:
    """One equation: number, label, how well it holds, the formula, and what its checks claim."""
    done, worst = outcomes(label, seed), _worst(label, seed).result
    numbers = f"{count(len(done), 'check')}, worst error {reader.written(worst.error)}, tolerance {reader.written(worst.check.tolerance)}"
    entry = nodes.container(classes=["ledger-entry", f"of-chapter-{checked_by(home)}"])
    entry += nodes.paragraph(
        *("", "", equation_link(label, page), nodes.Text(" "), nodes.literal("", label)),
        nodes.inline("", numbers, classes=["proof-numbers"]),
        classes=["ledger-head"],
    )
    entry += nodes.math_block("", _PRINT[label], label=None, number=None, **{"no-wrap": False})
    for one in done:
        claim = nodes.emphasis("", f"{one.result.check.claim}: ")
        entry += nodes.paragraph("", "", claim, nodes.Text(one.result.check.statement))
    return entry


def _all_equations(env: BuildEnvironment, page: str, seed: int, compact: bool) -> list[nodes.Node]:
    placed = equations(env)
    numbers = {label: number for docname in env.toc_fignumbers for label, number in _numbers(env, docname).items()}
    labels = [
        label
        for label in sorted(placed, key=lambda label: [(isinstance(n, str), n) for n in numbers.get(label, ())])
        if outcomes(label, seed)
    ]
    if not labels:
        return []
    done = [o for label in labels for o in outcomes(label, seed)]
    others = len(set(load_checks().labels()) - set(placed))
    told = (
        f"{count(len(labels), 'equation')}, {count(len(done), 'check')}, "
        f"{count(sum(len(o.wrong) for o in done), 'wrong variant')} rejected, seed {seed}."
        + (
            f" The ledger holds {count(others, 'equation')} more, whose chapters are still to be written."
            if others
            else ""
        )
    )
    head = [nodes.paragraph("", told), print_summary(seed)]
    if compact:
        return [*head, *_compact(labels, page, seed)]
    entries = (_entry(label, page, placed[label], seed) for label in labels)
    return [*head, nodes.container("", *entries, classes=["ledger-entries"])]


def _numbers(env: BuildEnvironment, docname: str) -> dict[str, tuple[int, ...]]:
    found = env.toc_fignumbers.get(docname, {}).get("displaymath", {})
    return {
        label: found.get(nodes.make_id(f"equation-{label}"), ())
        for label, page in equations(env).items()
        if page == docname
    }


# -- what a mark holds -------------------------------------------------------------------------------------------


class kept(nodes.General, nodes.Element):
    """Inside of a mark: it weighs more than the page, so it is put into a script that the page loads when a mark is opened."""


# What marks hold, as HTML: by builder, page and mark.
_KEPT: dict[tuple[str, str], dict[str, str]] = {}


def _enter(translator: Any, node: kept) -> None:
    node["begins"] = len(translator.body)


def _leave(translator: Any, node: kept) -> None:
    builder = translator.builder.name
    inside = "".join(translator.body[node["begins"] :])
    del translator.body[node["begins"] :]
    _KEPT.setdefault((builder, node["page"]), {})[node["key"]] = inside
    where = f"{PLACE}/{builder}/{node['page']}.js"
    up = "../" * (builder == "html") * node["page"].count("/")
    translator.body.append(f'<div class="proof-kept" data-from="{up}{where}" data-key="{escape(node["key"])}"></div>')


def write_kept(app: Sphinx, exception: Exception | None) -> None:
    """A script for each page with marks, which works from a folder too, where a page may read no other file."""
    for (builder, page), inside in _KEPT.items():
        if exception is None and builder == app.builder.name:
            html = {key: followed(text) if builder == "singlehtml" else text for key, text in inside.items()}
            path = Path(app.outdir) / PLACE / builder / f"{page}.js"
            path.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps(html, ensure_ascii=False)
            path.write_text(f"minirlhfKept({json.dumps(page)}, {text});\n", encoding="utf-8")


class Marks(SphinxPostTransform):
    """Put marks and table in, before Sphinx resolves the references in them."""

    default_priority = 5

    def run(self, **kwargs: Any) -> None:
        """On each page as it is written."""
        seed, placed = self.config.ledger_seed, equations(self.env)
        page = self.env.docname
        for node in list(self.document.findall(nodes.math_block)):
            if node.get("label") in placed and load_checks().select([node["label"]]):
                home = placed[node["label"]]
                marks = [
                    mark(node["label"], placed, home, seed),
                    print_mark(node["label"], node.astext(), home, seed),
                ]
                shown = nodes.container("", *filter(None, marks), classes=["proof-marks"])
                at = node.parent.index(node) + 1
                node.parent[at:at] = [in_a_line(shown) if self.app.builder.name == "epub" else shown]
        for node in list(self.document.findall(ledger_table)):
            node.replace_self(_all_equations(self.env, page, seed, compact=self.app.builder.name != "html"))


def record(app: Sphinx, exception: Exception | None) -> None:
    """Leave this run's results beside the pages, as ``minirlhf verify --json`` prints them."""
    results = [o.result for label in equations(app.env) for o in outcomes(label, app.config.ledger_seed)]
    if exception is None and results and app.builder.name == "html":
        data = reader.as_json(results, sum(r.seconds for r in results))
        text = json.dumps(data, indent=1, ensure_ascii=False)
        (Path(app.outdir) / "ledger.json").write_text(text + "\n", encoding="utf-8")


def script(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """Load the ledger's filter where the ledger is."""
    if doctree is not None and next(
        doctree.findall(lambda n: "ledger-entries" in getattr(n, "attributes", {}).get("classes", ())), None
    ):
        app.add_js_file("ledger.js", loading_method="defer")


def setup(app: Sphinx) -> dict[str, Any]:
    """Check after reading; mark while writing."""
    app.setup_extension("details")
    app.add_config_value("finished_chapters", [], "env", [list])
    app.add_config_value("ledger_seed", 0, "", [int])
    app.add_node(ledger_table)
    app.add_node(kept, html=(_enter, _leave))
    app.add_directive("ledger", LedgerDirective)
    app.add_post_transform(Marks)
    app.connect("env-updated", examine)
    app.connect("env-updated", examine_print)
    app.connect("html-page-context", script)
    app.connect("build-finished", record)
    app.connect("build-finished", write_kept)
    return {"version": "1", "parallel_read_safe": False, "parallel_write_safe": False}
