"""``{engine} steps`` (or ``memory``, ``profile``): what ``benchmarks/engine.py --json benchmarks/engine.json`` measured, as a table.

``{benchmark}`turns found.nano.2.times .2f``` is one number of ``benchmarks/turns.json``, ``{benchmark}`packing seconds.a/seconds.b .2f``` the
ratio of two.
"""

import functools
import json
import operator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective, SphinxRole

RESULT = Path(__file__).resolve().parents[2] / "benchmarks" / "engine.json"
SLASH = "\u00a0/\u00a0"  # keeps two numbers on one line
NAMES = {"sampling": "sampling", "grpo": "GRPO", "dpo": "DPO", "sft": "SFT", "reward": "reward model"}


def steps(rows: list[dict[str, Any]]) -> list[list[str]]:
    """A row for each trainer, model, prompt and number of threads; in a cell the value at fixed and at varying lengths."""
    found = [["", "model", "prompt", "threads", "ms", "× floor", "× peer", "× defaults"]]
    settings: dict[tuple[Any, ...], dict[bool, dict[str, float]]] = {}
    for row in sorted(rows, key=lambda row: list(NAMES).index(row["job"])):
        key = row["job"], row["size"], row["prompt"], row["threads"]
        settings.setdefault(key, {})[row["varying"]] = row["seconds"]
    for (job, *key), lengths in settings.items():
        both = [lengths[varying] for varying in (False, True)]
        peer = "generate" if job == "sampling" else "trl"
        beside = _over(both, peer) + (f"; {_over(both, 'trl_cached')}" if job == "dpo" else "")
        default = _over(both[:1], "trl_defaults") if "trl_defaults" in both[0] else ""
        milliseconds = SLASH.join(f"{seconds['ours'] * 1e3:.0f}" for seconds in both)
        found.append([NAMES[job], *map(str, key), milliseconds, _over(both, "floor"), beside, default])
    return found


def _over(both: list[dict[str, float]], side: str) -> str:
    """Our time over another's."""
    return SLASH.join(f"{seconds['ours'] / seconds[side]:.2f}" for seconds in both)


def memory(rows: list[dict[str, Any]]) -> list[list[str]]:
    """A row for each trainer: megabytes at the peak."""
    found = [["", "model", "prompt", "ours, MB", "TRL, MB", "×"]]
    for row in rows:
        ours, peer = (row["megabytes"][side] for side in ("ours", "trl"))
        found.append(
            [NAMES[row["job"]], row["size"], str(row["prompt"]), f"{ours:.0f}", f"{peer:.0f}", f"{ours / peer:.2f}"]
        )
    return found


def profile(rows: list[dict[str, Any]]) -> list[list[str]]:
    """A row for each trainer: where its time goes."""
    kinds = list(rows[0]["shares"])
    found = [["", "model", *kinds]]
    for row in rows:
        found.append(
            [NAMES[row["job"]], row["size"], *(f"{row['shares'][kind]:.0%}".replace("%", " %") for kind in kinds)]
        )
    return found


TABLES = {"steps": steps, "memory": memory, "profile": profile}


class Engine(SphinxDirective):
    """The table of one part."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """An unknown part is an error."""
        part = self.arguments[0]
        if part not in TABLES:
            return [
                self.state.document.reporter.error(
                    f"{{engine}} {part!r}: not one of {', '.join(TABLES)}", line=self.lineno
                )
            ]
        self.env.note_dependency(str(RESULT))
        head, *body = TABLES[part](json.loads(RESULT.read_text(encoding="utf-8"))[part])
        group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in head), cols=len(head))
        group += nodes.thead("", _row(head))
        group += nodes.tbody("", *(_row(cells) for cells in body))
        return [nodes.container("", nodes.table("", group, classes=["recipes"]), classes=["recipe-table"])]


class Benchmark(SphinxRole):
    """One number."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """A file, a key or a form that does not exist is an error."""
        try:
            name, _, asked = self.text.partition(" ")
            keys, _, form = asked.rpartition(" ")
            path = RESULT.with_name(f"{name}.json")
            stored = json.loads(path.read_text("utf-8"))
            found = [functools.reduce(lambda part, key: part[key], one.split("."), stored) for one in keys.split("/")]
            number = functools.reduce(operator.truediv, found)
            if number != number:  # NaN
                raise ValueError("not a number")
            text = format(number, form).replace("%", " %")
            text = text.removeprefix("0") if len(found) > 1 else text
        except (OSError, KeyError, TypeError, ValueError, ZeroDivisionError) as problem:
            said = self.inliner.reporter.error(f"{{benchmark}} {self.text!r}: {problem!r}", line=self.lineno)
            return [], [said]
        self.env.note_dependency(str(path))
        return [nodes.Text(text)], []


def _row(cells: list[str]) -> nodes.row:
    return nodes.row("", *(nodes.entry("", nodes.paragraph("", cell)) for cell in cells))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register directive and role."""
    app.add_directive("engine", Engine)
    app.add_role("benchmark", Benchmark())
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
