"""One call that makes the whole figure set: :func:`overopt`, in a notebook, or ``minirlhf overopt`` in a terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minirlhf.chapters.ch20_overoptimization import figures
from minirlhf.chapters.ch20_overoptimization.curves import OPTIMIZERS, Curve, optimise
from minirlhf.chapters.ch20_overoptimization.figure_set import add_given, add_learned, add_other_worlds
from minirlhf.chapters.ch20_overoptimization.fits import FitVerdict, judge, single_verdict
from minirlhf.core.errors import UserError, unknown
from minirlhf.core.folders import write_text_atomic
from minirlhf.data import seven_words
from minirlhf.data.seven_words import Outcomes, bags
from minirlhf.feedback.proxies import CLASSES, compare, fit, rescale_to_gold
from minirlhf.report.plotting import panels, png

Function = Callable[[str, str], float]  # (prompt, reply) -> number


@dataclass
class OveroptimisationReport:
    """What was measured.

    Attributes:
        curves: per optimiser, one for each seed.
        verdicts: per optimiser, which form fits; empty with fewer than three seeds.
        overrated: replies that the proxy overstates most: reply, proxy, gold, and the probability under the reference where it
            is known; in the mean over seeds they may be others: these are of the first.
        figures: name -> matplotlib figure.
        notes: lines of text.
    """

    curves: dict[str, list[Curve]]
    verdicts: dict[str, FitVerdict] = field(default_factory=dict)
    overrated: list[tuple[str, float, float, float | None]] = field(default_factory=list)
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
            known = self.overrated[0][-1] is not None
            lines.append(f"the proxy overstates most (proxy, gold{', chance under the reference' if known else ''}):")
            width = max(len(reply) for reply, *_ in self.overrated)
            for reply, p, g, q in self.overrated:
                lines.append(f"  {reply:{width}} {p:6.2f} {g:6.2f}" + ("" if q is None else f"   {q:.1e}"))
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


#: task -> (optimisers, learned proxies, comparisons by default, seeds by default).
TASKS: dict[str, tuple[tuple[str, ...], tuple[str, ...], int, int]] = {
    "words": (OPTIMIZERS, tuple(CLASSES), 400, 20),
    "assistant": (("best-of-n", "policy-gradient", "dpo"), ("reward-model",), 1600, 1),
}


def overopt(
    task: str = "words",
    *,
    proxy: str | Function | None = None,
    gold: Function | None = None,
    optimizer: str = "all",
    pairs: int | None = None,
    seeds: int | None = None,
) -> OveroptimisationReport:
    """Optimise a proxy and watch the gold.

    Args:
        task: ``words``, the seven-word world, where all is exact and takes seconds; or ``assistant``, a trained language
            model (a minute for each seed).
        proxy: what is optimised. A class of reward models that is learned from comparisons: ``counts`` (default), ``pairs`` or
            ``triples`` for ``words``, ``reward-model`` for ``assistant``; or a function ``(prompt, reply) -> number``.
        gold: such a function in place of the world's own gold.
        optimizer: ``tilt``, ``best-of-n``, ``policy-gradient`` for ``words``, the last two or ``dpo`` for ``assistant``; or ``all``.
        pairs: comparisons that a learned proxy learns from; 400 for ``words``, 1,600 for ``assistant``.
        seeds: repetitions of comparisons and training; 20 and 1. A given proxy learns nothing: ``words`` has one curve then.

    Raises:
        UserError: an unknown name, or a function that does not give finite numbers.
    """
    if task not in TASKS:
        raise unknown("task", task, TASKS)
    optimizers, learned, usual_pairs, usual_seeds = TASKS[task]
    if optimizer not in (*optimizers, "all"):
        raise unknown(f"optimizer for the task {task}", optimizer, (*optimizers, "all"))
    proxy = learned[0] if proxy is None else proxy
    if isinstance(proxy, str) and proxy not in learned:
        raise unknown(f"proxy for the task {task}", proxy, learned)
    pairs, seeds = usual_pairs if pairs is None else pairs, usual_seeds if seeds is None else seeds
    if pairs < 1 or seeds < 1:
        raise UserError(
            f"pairs = {pairs}, seeds = {seeds}; expected at least 1", argument="pairs, seeds", value=(pairs, seeds)
        )
    chosen = optimizers if optimizer == "all" else (optimizer,)
    if task == "assistant":
        from minirlhf.chapters.ch20_overoptimization.assistant import assistant_report

        given = None if isinstance(proxy, str) else proxy
        found: OveroptimisationReport = assistant_report(
            OveroptimisationReport, proxy=given, gold=gold, optimizers=chosen, pairs=pairs, seeds=seeds
        )
        return found
    return _words(proxy, gold, chosen, pairs, seeds)


def _words(
    proxy: str | Function, gold: Function | None, optimizers: Sequence[str], pairs: int, seeds: int
) -> OveroptimisationReport:
    world = seven_words.replies()
    if gold is not None:
        world = Outcomes(world.texts, world.ref_logps, world.grade(gold, "gold"), world.counts)
    if isinstance(proxy, str):
        proxies = [fit(world, compare(world, pairs, seed=s), proxy) for s in range(seeds)]
    else:
        proxies = [rescale_to_gold(world.grade(proxy, "proxy"), world)]
    report = OveroptimisationReport({name: [optimise(name, world, p) for p in proxies] for name in optimizers})
    excess = (proxies[0] - world.gold).argsort(descending=True)[:5].tolist()
    report.overrated = [
        (world.texts[i], float(proxies[0][i]), float(world.gold[i]), float(world.probs[i])) for i in excess
    ]
    report.figures["curves"], axes = panels(len(report.curves), 3.4, 2.9)
    figures.overview(axes, report.curves)
    if len(proxies) >= 3:
        report.verdicts = {name: judge(found) for name, found in report.curves.items()}
        report.figures["fits"], axes = panels(len(report.verdicts), 3.6, 2.9)
        figures.fits(axes, report.verdicts)
    else:
        report.notes += [single_verdict(name, found[0]) for name, found in report.curves.items()]
    if isinstance(proxy, str):
        learned = bags() if gold is None else world  # a gold of one's own may look at the order of words
        add_learned(report.figures, learned, proxy, pairs, seeds)
        if gold is None:
            add_other_worlds(report.figures)
    else:
        add_given(report.figures, world, proxies[0])
    return report
