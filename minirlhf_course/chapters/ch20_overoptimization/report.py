"""One call that makes the whole figure set: :func:`overopt`, in a notebook, or ``minirlhf tour overopt`` in a terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minirlhf.core.errors import UserError, unknown
from minirlhf.core.folders import write_text_atomic
from minirlhf.data import seven_words
from minirlhf.data.seven_words import Outcomes, bags
from minirlhf.feedback.proxies import CLASSES, compare, fit, rescale_to_gold
from minirlhf_course.chapters.ch20_overoptimization import figures
from minirlhf_course.chapters.ch20_overoptimization.curves import OPTIMIZERS, Curve, optimise
from minirlhf_course.chapters.ch20_overoptimization.figure_set import add_given, add_learned, add_other_worlds
from minirlhf_course.chapters.ch20_overoptimization.fits import FitVerdict, judge, single_verdict
from minirlhf_course.report.plotting import panels, png

Function = Callable[[str, str], float]  # (prompt, completion) -> number


@dataclass
class OveroptimisationReport:
    """The measurements, figures and notes of :func:`overopt`.

    Attributes:
        curves: per optimiser, one for each seed.
        verdicts: per optimiser, which form fits; empty with fewer than three seeds.
        overrated: completions that the proxy overstates most: completion, proxy, gold, and the probability under the
            reference where it is known. They are those of the first seed; by the mean over seeds they may be others.
        figures: name -> matplotlib figure.
        notes: lines of text.
    """

    curves: dict[str, list[Curve]]
    verdicts: dict[str, FitVerdict] = field(default_factory=dict)
    overrated: list[tuple[str, float, float, float | None]] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def table(self) -> str:
        """Return the gold reward at start, peak and end for each optimiser, means over seeds; then the verdicts and
        the overrated completions."""
        lines = ["optimiser           gold: start    peak   (at √KL)     end (at √KL)   seeds that fall"]
        for name, runs in self.curves.items():
            mean = lambda values: sum(values) / len(values)
            peak, peak_at = mean([c.peak[1] for c in runs]), mean([c.peak[0] for c in runs])
            fell = sum(c.fall > 0.05 for c in runs)
            lines.append(
                f"{name:18} {mean([float(c.gold[0]) for c in runs]):12.2f} {peak:7.2f} {peak_at:11.2f} "
                f"{mean([float(c.gold[-1]) for c in runs]):7.2f} {mean([float(c.distance[-1]) for c in runs]):9.2f} "
                f"{fell:9} of {len(runs)}"
            )
        lines += [f"{name}: {verdict.sentence}" for name, verdict in self.verdicts.items()]
        if self.overrated:
            has_q = self.overrated[0][-1] is not None
            lines.append(f"the proxy overstates most (proxy, gold{', chance under the reference' if has_q else ''}):")
            width = max(len(text) for text, *_ in self.overrated)
            for text, p, g, q in self.overrated:
                lines.append(f"  {text:{width}} {p:6.2f} {g:6.2f}" + ("" if q is None else f"   {q:.1e}"))
        return "\n".join([*lines, *self.notes])

    def write(self, out: Path | str) -> Path:
        """Write all figures as PNG, the curves as JSON and the table as text into a folder."""
        out = Path(out)
        if out.exists() and not out.is_dir():
            raise UserError(f"{out}: is a file; --out names a folder")
        out.mkdir(parents=True, exist_ok=True)
        for name, figure in self.figures.items():
            (out / f"{name}.png").write_bytes(png(figure))
        rows = {
            name: [{key: getattr(c, key).tolist() for key in ("distance", "proxy", "gold")} for c in runs]
            for name, runs in self.curves.items()
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
    """Optimise a proxy and measure the gold reward.

    Args:
        task: ``words``, the seven-word world, where all is exact and takes seconds; or ``assistant``, a trained
            language model (a minute for each seed).
        proxy: what is optimised. A class of reward models that is learned from comparisons: ``counts`` (default),
            ``pairs`` or ``triples`` for ``words``, ``reward-model`` for ``assistant``; or a function
            ``(prompt, completion) -> number``.
        gold: such a function in place of the world's own gold reward.
        optimizer: ``tilt``, ``best-of-n``, ``policy-gradient`` for ``words``, the last two or ``dpo`` for
            ``assistant``; or ``all``.
        pairs: comparisons that a learned proxy learns from; 400 for ``words``, 1,600 for ``assistant``.
        seeds: repetitions of comparisons and training; 20 and 1. A given proxy is not learned, so ``words`` has one
            curve then.

    Raises:
        UserError: an unknown name, or a function that does not return finite numbers.
    """
    if task not in TASKS:
        raise unknown("task", task, TASKS)
    optimizers, learned, default_pairs, default_seeds = TASKS[task]
    if optimizer not in (*optimizers, "all"):
        raise unknown(f"optimizer for the task {task}", optimizer, (*optimizers, "all"))
    proxy = learned[0] if proxy is None else proxy
    if isinstance(proxy, str) and proxy not in learned:
        raise unknown(f"proxy for the task {task}", proxy, learned)
    pairs, seeds = default_pairs if pairs is None else pairs, default_seeds if seeds is None else seeds
    if pairs < 1 or seeds < 1:
        raise UserError(
            f"pairs = {pairs}, seeds = {seeds}; expected at least 1", argument="pairs, seeds", value=(pairs, seeds)
        )
    selected = optimizers if optimizer == "all" else (optimizer,)
    if task == "assistant":
        from minirlhf_course.chapters.ch20_overoptimization.assistant import assistant_report

        given_proxy = None if isinstance(proxy, str) else proxy
        report: OveroptimisationReport = assistant_report(
            OveroptimisationReport, proxy=given_proxy, gold=gold, optimizers=selected, pairs=pairs, seeds=seeds
        )
        return report
    return _words(proxy, gold, selected, pairs, seeds)


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
    most_overrated = (proxies[0] - world.gold).argsort(descending=True)[:5].tolist()
    report.overrated = [
        (world.texts[i], float(proxies[0][i]), float(world.gold[i]), float(world.probs[i])) for i in most_overrated
    ]
    report.figures["curves"], axes = panels(len(report.curves), 3.4, 2.9)
    figures.overview(axes, report.curves)
    if len(proxies) >= 3:
        report.verdicts = {name: judge(runs) for name, runs in report.curves.items()}
        report.figures["fits"], axes = panels(len(report.verdicts), 3.6, 2.9)
        figures.fits(axes, report.verdicts)
    else:
        report.notes += [single_verdict(name, runs[0]) for name, runs in report.curves.items()]
    if isinstance(proxy, str):
        outcomes = bags() if gold is None else world  # a given gold function may depend on the order of words
        add_learned(report.figures, outcomes, proxy, pairs, seeds)
        if gold is None:
            add_other_worlds(report.figures)
    else:
        add_given(report.figures, world, proxies[0])
    return report
