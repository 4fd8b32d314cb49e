"""``{verdicts} STUDY``: a table of ``real-model.md``: the effect of each prediction of a study in every run, and the verdict by the page's rule.

* ``{verdict}`NAME``` prints the verdict on one of the first twelve predictions, ``{verdict}`confirmed``` the number of these with this verdict.
* ``{model-samples}`` prints the first completion of the first questions of each half, before and after training, of seed 0.
* ``{model-runs}`` is a figure, drawn from the study: the runs' rewards by steps, and accuracy against KL.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from docutils import nodes
from machines_table import _row
from measured import WORDS, result, results
from sphinx.application import Sphinx
from sphinx.directives.patches import Figure
from sphinx.util.docutils import SphinxDirective, SphinxRole

from minirlhf_course.chapters.ch08_reward_models.frozen import FROZEN
from minirlhf_course.chapters.ch16_reasoning import pretrained_claims
from minirlhf_course.chapters.ch16_reasoning.pretrained_claims import CLAIMS
from minirlhf_course.chapters.ch16_reasoning.pretrained_own import OWN
from minirlhf_course.chapters.ch16_reasoning.pretrained_selection import SELECTION
from minirlhf_course.evidence.claims import ClaimVerdict, verdicts
from minirlhf_course.report import plotting

STUDY = "ch16_pretrained"

#: The predictions of each study, in the order of the page, which numbers them through.
PREDICTIONS = {
    STUDY: CLAIMS,
    "ch16_pretrained_selection": SELECTION,
    "ch16_pretrained_own": OWN,
    "ch08_frozen": FROZEN,
}
COLOURS = {"rl": plotting.PALETTE["blue"], "sft": plotting.PALETTE["orange"]}
HEAD = ["", "prediction", "effect in each run", "interval of all runs", "detectable distance", "verdict"]


def found(study: str = STUDY) -> dict[str, ClaimVerdict]:
    """The verdicts of a study's runs."""
    return verdicts(PREDICTIONS[study], list(result(study)["seeds"].values()))


def rows(study: str = STUDY) -> list[list[str]]:
    """The table's rows, without its head."""
    cells = []
    before = list(PREDICTIONS)[: list(PREDICTIONS).index(study)]
    for number, (name, verdict) in enumerate(found(study).items(), 1 + sum(len(PREDICTIONS[s]) for s in before)):
        claim = PREDICTIONS[study][name]
        floor = f"; floor {_signed(claim.floor)}" if claim.floor else ""
        unit = f", {claim.unit}" if claim.unit else ""
        interval = f"[{_signed(verdict.lowest)}, {_signed(verdict.highest)}]"
        effects = ", ".join(map(_signed, verdict.effects))
        cells.append(
            [str(number), f"{claim.title}{unit}{floor}", effects, interval, f"{verdict.detectable:.2f}", verdict.word]
        )
    return cells


def _signed(number: float) -> str:
    return f"{number:.2f}".replace("-", "−")


class Verdicts(SphinxDirective):
    """The table."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        """It depends on the study's result."""
        study = self.arguments[0] if self.arguments else STUDY
        self.env.note_dependency(str(results()[study]))
        return [_table(HEAD, rows(study))]


def _table(head: list[str], body: list[list[str]]) -> nodes.container:
    group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in head), cols=len(head))
    group += nodes.thead("", _row(head))
    group += nodes.tbody("", *map(_row, body))
    return nodes.container("", nodes.table("", group, classes=["recipes"]), classes=["recipe-table"])


class Samples(SphinxDirective):
    """The completions are not selected: they are the first of their questions, and these the first of their half."""

    def run(self) -> list[nodes.Node]:
        """It depends on the record of seed 0."""
        path = Path(pretrained_claims.__file__).with_name("pretrained_seed_0.json")
        self.env.note_dependency(str(path))
        record = json.loads(path.read_text(encoding="utf-8"))
        columns = {"base": "base model", "rl": "Dr. GRPO", "sft": "SFT"}
        first = [
            i for hard in (False, True) for i in [i for i, q in enumerate(record["base"]) if q["hard"] == hard][:2]
        ]
        body = [[record["base"][i]["question"], *(record[name][i]["text"][0] for name in columns)] for i in first]
        return [_table(["question", *columns.values()], body)]


class VerdictRole(SphinxRole):
    """One verdict, or the number of predictions with a verdict."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """A name that is neither is an error."""
        words = {name: verdict.word for name, verdict in found().items()}
        counts = Counter(words.values())
        if self.text in words:
            return [nodes.Text(words[self.text])], []
        if self.text in ("confirmed", "not confirmed", "not decided"):
            return [nodes.Text(WORDS[counts[self.text]])], []
        message = f"{{verdict}} {self.text!r}: neither a prediction ({', '.join(words)}) nor a verdict"
        return [], [self.inliner.reporter.error(message, line=self.lineno)]


def drawing() -> bytes:
    """Rewards of Dr. GRPO by steps, and accuracy of Dr. GRPO and SFT against KL: a line for each seed."""
    seeds = list(result(STUDY)["seeds"].values())
    steps = [name for name in seeds[0] if name.startswith("rl_reward_")]
    figure, (rewards, distances) = plotting.panels(2)
    for seed, (numbers, marker) in enumerate(zip(seeds, "os^", strict=True)):
        look = {"marker": marker, "ms": 4}
        reached = [numbers[step] for step in steps]
        rewards.plot(range(1, len(steps) + 1), reached, color=COLOURS["rl"], label=f"seed {seed}", **look)
        for name, label, line in (("rl", "Dr. GRPO", "-"), ("sft", "SFT", "--")):
            points = [(0.0, numbers["base_right"])]
            points += [(numbers[f"{name}_kl_{i}"], numbers[f"{name}_right_{i}"]) for i in (1, 2)]
            points.append((numbers[f"{name}_kl"], numbers[f"{name}_right"]))
            distances.plot(*zip(*points, strict=True), line, color=COLOURS[name], label=label, **look)
    rewards.set(xlabel="step of Dr. GRPO", ylabel="reward of 32 completions", ylim=(0, 1))
    distances.set(xlabel="KL from the base model, nats per completion", ylabel="held-out accuracy", ylim=(0, 1))
    handles, labels = distances.get_legend_handles_labels()
    distances.legend(handles[:2], labels[:2], frameon=False)
    rewards.legend(frameon=False, loc="upper left")
    return plotting.png(figure)


class ModelRuns(Figure, SphinxDirective):
    """The figure, drawn when the page is built."""

    required_arguments = 0
    optional_arguments = 0

    def run(self) -> list[nodes.Node]:
        """Write the image where Sphinx finds it, then go on as an ordinary figure."""
        self.env.note_dependency(str(results()[STUDY]))
        target = Path(self.env.srcdir) / "_generated" / "model-runs.png"
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(drawing())
        self.arguments = [f"/_generated/{target.name}"]
        return super().run()


def setup(app: Sphinx) -> dict[str, Any]:
    """Register them."""
    app.add_directive("verdicts", Verdicts)
    app.add_directive("model-samples", Samples)
    app.add_directive("model-runs", ModelRuns)
    app.add_role("verdict", VerdictRole())
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
