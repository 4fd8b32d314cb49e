"""Exercises that train: an answer is run on several seeds, and held against ours on the same seeds.

A training has no right number. So a test under ``@trains`` returns a *curve*: how good the policy is after so many steps, the higher
the better, measured by the test itself. The last entry counts. It is taken of the answer and of our solution, seed by seed, and
the answer passes if the interval of the mean difference (95 %, Student's t) lies above ``−bar`` altogether::

    # uses: 02.6                              in the header: the earlier answers that run in it

    @trains(points=3, hints=(…, …), seeds=6, bar=0.1, what="the policy's accuracy")
    def learns(sub, draw):
        "The policy learns the game."
        sample = sub.part("02.6").sample      # the student's own where it is right, else ours
        …
        return [accuracy after 0, 5, … steps]

:func:`bars` measures what a bar is worth: how often our solution passes against itself on *other* seeds, as another right answer
would, and how often a mutant fails.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.classroom import exercise as sources
from minirlhf.classroom.exercise import Exercise
from minirlhf.classroom.runner import Local
from minirlhf.classroom.side_by_side import Beside, Curve, run_once, solution
from minirlhf.classroom.testing import Asked, Failure, Test, fail, show, test
from minirlhf.core.errors import ArgumentError
from minirlhf.core.randomness import derive_seed
from minirlhf.evidence import paired
from minirlhf.ledger.registry import Draw

FLAT = 1e-9  # a curve that moves less does not move
SHOWN = 8  # points of a curve that are shown
BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Training(Test):
    """A test that trains. ``curve`` is one run: the higher its last entry, the better."""

    curve: Curve = lambda sub, draw: ()
    seeds: int = 0
    bar: float = 0.0


def trains(
    *, points: float, hints: tuple[str, str], bar: float, seeds: int = 6, what: str = "the policy's score"
) -> Callable[[Curve], Training]:
    """Make the decorated function, one run, a hidden test over paired seeds.

    Args:
        points: what it is worth, all or nothing.
        hints: two, the second nearer to the answer than the first.
        bar: how far the mean of the last entries may lie below ours; in the curve's own unit.
        seeds: how many runs; at least 3.
        what: names the last entry in the message.

    Raises:
        ValueError: no docstring, no points, not two hints, fewer than three seeds, or a bar that is not positive.
    """
    if seeds < 3 or not bar > 0:
        raise ArgumentError(
            f"{seeds=}, {bar=}; expected at least 3 seeds and a positive bar", argument="seeds, bar", value=(seeds, bar)
        )

    def build(run: Curve) -> Training:
        def judged(sub: Asked, draw: Draw) -> None:
            base = draw.integer(0, 2**31 - 1)
            mine = [run_once(run, sub, base, k) for k in range(seeds)]
            ours = [list(sub.beside.reference(run, base, k)) for k in range(seeds)]
            judge(mine, ours, bar, what)

        judged.__name__, judged.__doc__ = run.__name__, run.__doc__
        made = test(points=points, hints=hints, rounds=1)(judged)
        fields = {name: getattr(made, name) for name in Test.__dataclass_fields__}
        return Training(**{**fields, "probed": False}, curve=run, seeds=seeds, bar=bar)

    return build


# -- judging -----------------------------------------------------------------------------------------------------


def judge(mine: Sequence[Sequence[float]], ours: Sequence[Sequence[float]], bar: float, what: str) -> None:
    """Hold curves of the same seeds against each other.

    Args:
        mine, ours: one curve per seed, of the answer and of the solution.
        bar, what: see :func:`trains`.

    Raises:
        Failure: the answer's runs end further below ours than ``bar``, or may do so as far as these seeds can tell.
    """
    middle = tuple(_mean(curves) for curves in (mine, ours))
    lines = tuple(f"{whose} {_picture(c, middle)}" for whose, c in zip(("yours:", "ours: "), middle, strict=True))
    starts, ends = [c[0] for c in mine], [c[-1] for c in mine]
    sinks = all(map(math.isfinite, starts)) and all(x < math.inf for x in ends)  # −∞ is below every start; NaN is not
    worse = (
        ("it gets worse as it trains",) if sinks and statistics.fmean(ends) < statistics.fmean(starts) - bar / 2 else ()
    )
    if not all(math.isfinite(x) for curve in mine for x in curve):
        message = "; ".join((f"{what} is NaN or infinite in a run", *worse))
        raise Failure(message, lines, worse, value="worse" if worse else None, problem="not finite")
    found = paired.differences({"yours": [c[-1] for c in mine], "ours": [c[-1] for c in ours]})["yours", "ours"]
    low, high = found.interval
    if low >= -bar:
        return
    said = f"{what} ends {_signed(found.mean)} ours over {found.seeds} paired runs (95 % interval {low:+.3g} to {high:+.3g}); at most {bar:g} below is right"
    named, kind = worse, "worse" if worse else "below"
    if all(max(curve) - min(curve) < FLAT for curve in mine):
        named, kind = ("nothing changes: the run ends where it began",), "flat"
    raise Failure("; ".join((said, *named)), lines, named, value=found.mean, expected=-bar, problem=kind)


def _signed(gap: float) -> str:
    return f"{abs(gap):.3g} {'below' if gap < 0 else 'above'}"


def _mean(curves: Sequence[Sequence[float]]) -> list[float]:
    return [statistics.fmean(column) for column in zip(*curves, strict=True)]


def _picture(curve: Sequence[float], both: Sequence[Sequence[float]]) -> str:
    """A curve in blocks, on the scale of both, and some of its numbers."""
    known = [x for c in both for x in c if math.isfinite(x)]
    low, reach = min(known, default=0.0), max(known, default=0.0) - min(known, default=0.0)
    blocks = "".join(
        "·" if not math.isfinite(x) else BARS[round((len(BARS) - 1) * (x - low) / reach)] if reach else BARS[0]
        for x in curve
    )
    step = max(1, math.ceil((len(curve) - 1) / (SHOWN - 1)))
    return f"{blocks}  {show(torch.tensor([*curve[:-1:step], curve[-1]], dtype=torch.float64).round(decimals=3))}"


def weights_of(got: object, like: Tensor) -> Tensor:
    """New weights as a student's step gave them.

    Raises:
        Failure: they are not weights ``like`` the old ones, or one is NaN or infinite.
    """
    if not isinstance(got, Tensor) or got.shape != like.shape or not got.is_floating_point():
        shape = f"a tensor of shape {tuple(got.shape)}" if isinstance(got, Tensor) else type(got).__name__
        fail(f"expected the new weights, a tensor of shape {tuple(like.shape)}; got {shape}")
    if not bool(got.isfinite().all()):
        fail("the new weights hold NaN or an infinity")
    return got.detach().to(like.dtype)


# -- what a bar is worth -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bar:
    """How one kind of answer fares at a bar: in runs of other seeds than the reference's."""

    test: str
    answer: str
    mean: float  # of the last entries
    deviation: float  # between seeds
    passes: float  # share of comparisons


def bars(exercise: Exercise, seed: int, runs: int, comparisons: int = 4000) -> Iterator[Bar]:
    """Measure the bars of an exercise's trainings.

    Every answer is run on ``runs`` seeds of its own; comparisons are made by drawing as many of them as the test takes, and as many of the
    reference's, which are independent of them. That is what a right answer meets that uses randomness in another way than ours.

    Args:
        runs: of each answer; at least a few times the test's seeds.
        comparisons: drawn for each answer.
    """
    for made in (t for t in exercise.tests if isinstance(t, Training)):
        beside = Beside(exercise, sources.DEFAULT_STUDENT, {})
        base = derive_seed(seed, exercise.id, made.name)
        ours = [beside.reference(made.curve, base, k)[-1] for k in range(runs)]
        right = solution(exercise, sources.DEFAULT_STUDENT)
        for note, code in (("solution", ""), *((m.note, m.code) for m in exercise.mutants if m.caught_by == made.name)):
            namespace = dict(right)
            exec(sources.compiled(exercise.given + "\n" + exercise.solution + "\n" + code, exercise.path), namespace)
            sub = Asked(Local(namespace, sources.DEFAULT_STUDENT), beside)
            ends = []
            for k in range(runs):
                try:
                    ends.append(run_once(made.curve, sub, base + 1, k)[-1])
                except Failure:
                    ends.append(math.nan)
            passed = _share(ends, ours, made, torch.Generator().manual_seed(base))
            known = [x for x in ends if math.isfinite(x)]
            spread = statistics.stdev(known) if len(known) > 1 else math.nan
            yield Bar(made.name, note, statistics.fmean(known) if known else math.nan, spread, passed(comparisons))


def _share(
    mine: Sequence[float], ours: Sequence[float], made: Training, rng: torch.Generator
) -> Callable[[int], float]:
    def passes() -> bool:
        some = [torch.randperm(len(x), generator=rng)[: made.seeds].tolist() for x in (mine, ours)]
        try:
            judge([[mine[i]] for i in some[0]], [[ours[i]] for i in some[1]], made.bar, "")
        except Failure:
            return False
        return True

    return lambda count: sum(passes() for _ in range(count)) / count
