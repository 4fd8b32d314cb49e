"""One call that makes the whole figure set: :func:`overopt`, in a notebook, or ``minirlhf overopt`` in a terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minirlhf.core.errors import UserError, unknown
from minirlhf.equations.overoptimization import coupled_approval, decoupled_approval
from minirlhf.models.checkpoints import write_text_atomic
from minirlhf.overoptimization import figures, habits, remedies, tampering, words
from minirlhf.overoptimization.curves import OPTIMIZERS, Curve, optimise, tilt_curve
from minirlhf.overoptimization.detector import detection
from minirlhf.overoptimization.errors import decomposed
from minirlhf.overoptimization.fits import Verdict, judge
from minirlhf.overoptimization.proxies import CLASSES, compare, fit, fit_everything, in_gold_units
from minirlhf.overoptimization.remedies import Evidence
from minirlhf.overoptimization.words import Outcomes
from minirlhf.plotting import panels, png

Function = Callable[[str, str], float]  # (prompt, reply) -> number


@dataclass
class Report:
    """What was measured.

    Attributes:
        curves: per optimiser, one for each seed.
        verdicts: per optimiser, which form fits; empty with fewer than three seeds.
        overrated: replies that the proxy overstates most: reply, proxy, gold, probability under the reference.
        figures: name -> matplotlib figure.
        notes: lines of text.
    """

    curves: dict[str, list[Curve]]
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    overrated: list[tuple[str, float, float, float]] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def table(self) -> str:
        """Start, peak and end of gold for each optimiser, means over seeds; then the verdicts and the overrated replies."""
        lines = ["optimiser           gold: start    peak   (at √KL)     end (at √KL)   seeds that fall"]
        for name, found in self.curves.items():
            mean = lambda values: sum(values) / len(values)
            peak, place = mean([c.peak[1] for c in found]), mean([c.peak[0] for c in found])
            fell = sum(c.fall > 0.05 for c in found)
            lines.append(
                f"{name:18} {mean([float(c.gold[0]) for c in found]):12.2f} {peak:7.2f} {place:11.2f} "
                f"{mean([float(c.gold[-1]) for c in found]):7.2f} {mean([float(c.distance[-1]) for c in found]):9.2f} "
                f"{fell:9} of {len(found)}"
            )
        lines += [f"{name}: {verdict.sentence}" for name, verdict in self.verdicts.items()]
        if self.overrated:
            lines.append("the proxy overstates most (proxy, gold, chance under the reference):")
            lines += [f"  {reply:34} {p:6.2f} {g:6.2f}   {q:.1e}" for reply, p, g, q in self.overrated]
        return "\n".join([*lines, *self.notes])

    def write(self, out: Path | str) -> Path:
        """All figures as PNG, the curves as JSON and the table as text, into a folder."""
        out = Path(out)
        if out.exists() and not out.is_dir():
            raise UserError(f"{out}: is a file; --out names a folder")
        out.mkdir(parents=True, exist_ok=True)
        for name, figure in self.figures.items():
            (out / f"{name}.png").write_bytes(png(figure))
        rows = {
            name: [{key: getattr(c, key).tolist() for key in ("distance", "proxy", "gold")} for c in found]
            for name, found in self.curves.items()
        }
        write_text_atomic(out / "curves.json", json.dumps(rows) + "\n")
        write_text_atomic(out / "table.txt", self.table() + "\n")
        return out


def overopt(
    task: str = "words",
    *,
    proxy: str | Function = "counts",
    gold: Function | None = None,
    optimizer: str = "all",
    pairs: int = 400,
    seeds: int = 20,
) -> Report:
    """Optimise a proxy and watch the gold.

    Args:
        task: ``words``, the seven-word world, where all is exact and takes seconds; or ``assistant``, a trained language
            model (a minute for each seed).
        proxy: a class of reward models that is learned from comparisons (``counts``, ``pairs``, ``triples``; for
            ``assistant`` the learned proxy is a reward model), or a function ``(prompt, reply) -> number``.
        gold: such a function in place of the world's own gold.
        optimizer: ``tilt``, ``best-of-n``, ``policy-gradient``, or ``all``.
        pairs: comparisons that a learned proxy learns from.
        seeds: repetitions of comparisons and training. A given proxy learns nothing: there is one curve then.

    Raises:
        UserError: an unknown name, or a function that does not give finite numbers.
    """
    if task not in ("words", "assistant"):
        raise unknown("task", task, ("words", "assistant"))
    if optimizer not in (*OPTIMIZERS, "all"):
        raise unknown("optimizer", optimizer, (*OPTIMIZERS, "all"))
    if isinstance(proxy, str) and proxy not in CLASSES:
        raise unknown("proxy class", proxy, CLASSES)
    if pairs < 1 or seeds < 1:
        raise UserError(f"pairs = {pairs}, seeds = {seeds}; expected at least 1")
    chosen = OPTIMIZERS if optimizer == "all" else (optimizer,)
    if task == "assistant":
        from minirlhf.overoptimization.assistant import assistant_report

        return assistant_report(Report, proxy=None if isinstance(proxy, str) else proxy, gold=gold, optimizers=chosen, pairs=pairs, seeds=seeds)  # fmt: skip
    return _words(proxy, gold, chosen, pairs, seeds)


def _words(proxy: str | Function, gold: Function | None, optimizers: Sequence[str], pairs: int, seeds: int) -> Report:
    world = words.replies()
    if gold is not None:
        world = Outcomes(world.texts, world.ref_logps, world.grade(gold, "gold"), world.counts)
    if isinstance(proxy, str):
        proxies = [fit(world, compare(world, pairs, seed=s), proxy) for s in range(seeds)]
    else:
        scores = world.grade(proxy, "proxy")
        if float(scores.max() - scores.min()) == 0:
            raise UserError(f"the proxy gives {float(scores[0])} to every reply; it has to prefer something")
        proxies = [in_gold_units(scores, world)]
    report = Report({name: [optimise(name, world, p) for p in proxies] for name in optimizers})
    if len(proxies) >= 3:
        report.verdicts = {name: judge(found) for name, found in report.curves.items()}
    excess = (proxies[0] - world.gold).argsort(descending=True)[:5].tolist()
    report.overrated = [
        (world.texts[i], float(proxies[0][i]), float(world.gold[i]), float(world.probs[i])) for i in excess
    ]
    report.figures["curves"], axes = panels(len(report.curves), 3.4, 2.9)
    figures.overview(axes, report.curves)
    if report.verdicts:
        report.figures["fits"], axes = panels(len(report.verdicts), 3.6, 2.9)
        figures.fits(axes, report.verdicts)
    if isinstance(proxy, str) and gold is None:
        _add_studies(report, proxy, pairs, seeds)
    return report


def _add_studies(report: Report, proxy_class: str, pairs: int, seeds: int) -> None:
    """The figures that need a proxy which is learned in the world as it is."""
    world = words.bags()
    evidence = [Evidence(world, compare(world, pairs, seed=s), proxy_class, s) for s in range(seeds)]
    report.figures["data"], (ax,) = panels(1, 4.4, 3.2)
    by_size = {
        f"{size} comparisons": [
            tilt_curve(world.ref_logps, fit(world, compare(world, size, seed=s), proxy_class), world.gold)
            for s in range(seeds)
        ]
        for size in (50, 200, 1600)
    }
    limit = fit_everything(world, proxy_class)
    by_size["all there could be"] = [tilt_curve(world.ref_logps, limit, world.gold)]
    figures.gold_curves(ax, by_size)
    report.figures["remedies"], (ax,) = panels(1, 5.6, 3.4)
    gold = {name: [remedies.curve_of(name, e).gold_by(2.0) for e in evidence] for name in remedies.REMEDIES}
    gold["constraints"] = [remedies.constrained_curve(e).gold_by(2.0) for e in evidence]
    oracle = tilt_curve(world.ref_logps, world.gold, world.gold).gold_at(2.0)
    figures.remedies(ax, gold, oracle=oracle)
    ax.set_title("Gold at √KL = 2, or where the path ends before")
    report.figures["errors"], (ax,) = panels(1, 4.4, 3.2)
    few = range(min(seeds, 3))
    parts = {f"√KL = {d:g}": [decomposed(proxy_class, pairs, s, distance=d, best_in_class=limit) for s in few] for d in (1.0, 1.5, 2.0)}  # fmt: skip
    figures.errors(ax, parts)
    report.figures["detector"], (ax,) = panels(1, 4.4, 3.6)
    figures.detector(ax, detection(evidence[0]))
    report.figures["tampering"], axes = panels(2, 4.0, 2.9)
    sheet = tampering.score_sheet()
    runs = {"coupled": tampering.train(sheet, coupled_approval), "decoupled": tampering.train(sheet, decoupled_approval)}  # fmt: skip
    figures.tampering(axes, runs)
    report.figures["habits"], axes = panels(2, 4.0, 3.0)
    figures.habit(axes[0], habits.over_refusal(), 2)
    figures.habit(axes[1], habits.sycophancy(), 0)
