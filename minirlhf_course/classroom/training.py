"""Exercises that train: an answer runs on several seeds and is compared with the reference solution on the same seeds.

A training run has no single correct result. A test under ``@trains`` therefore returns a *curve*: the policy's score
after increasing numbers of steps (higher is better), measured by the test itself. Only the last entry counts. It is
computed for the answer and for the reference solution, seed by seed. The answer passes if the lower end of the 95 %
interval of the mean difference (Student's t) is at least ``−bar``.

A bar alone lets a wrong method pass whose end is good: weights that are overwritten, five times the steps, a learning
rate of its own. So the checks ``also`` ask an answer that passes the bar what it *does*, for example :func:`steps_by`
and :func:`points_along`. :func:`minirlhf_course.classroom.cheats.tried` holds every training to such cheats::

    # uses: 02.6                              in the header: earlier exercises whose answers run in this one

    @trains(points=3, hints=(…, …), seeds=6, bar=0.1, what="the policy's accuracy", also=(one_step,))
    def learns(sub, draw):
        "The policy learns the game."
        sample = sub.part("02.6").sample      # the student's own if it is correct, else the reference
        …
        return [accuracy after 0, 5, … steps]

:func:`bars` measures how well a bar discriminates: how often the reference solution passes against itself on *other*
seeds, as another correct answer would, and how often each mutant passes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError
from minirlhf.core.randomness import derive_seed
from minirlhf_course.classroom import exercise as sources
from minirlhf_course.classroom.exercise import Exercise
from minirlhf_course.classroom.runner import Local
from minirlhf_course.classroom.side_by_side import Beside, Curve, run_once, solution
from minirlhf_course.classroom.testing import Asked, Failure, Test, expect, fail, show, test
from minirlhf_course.evidence import paired
from minirlhf_course.ledger.registry import Draw

FLAT = 1e-9  # a curve whose range is smaller counts as constant
AGAIN = 8  # calls of the runs that are asked again, at most
SHOWN = 8  # number of points of a curve that are shown
BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Training(Test):
    """A test that trains. ``curve`` performs one run and returns its curve; a higher last entry is better.

    ``also``: what an answer that passes the bar is asked besides.
    """

    curve: Curve = lambda sub, draw: ()
    seeds: int = 0
    bar: float = 0.0
    also: tuple[Callable[[Asked, Draw], None], ...] = ()


def trains(
    *,
    points: float,
    hints: tuple[str, str],
    bar: float,
    seeds: int = 6,
    what: str = "the policy's score",
    also: tuple[Callable[[Asked, Draw], None], ...] = (),
    fixed: tuple[str, ...] = (),
    alike: tuple[str, ...] = (),
) -> Callable[[Curve], Training]:
    """Make the decorated function, one run, a hidden test over paired seeds.

    Args:
        points: the points for passing; there is no partial credit.
        hints: two hints, the second closer to the solution than the first.
        bar: the margin by which the mean of the last entries may be below the reference, in the curve's unit.
        seeds: number of paired runs; at least 3.
        what: the name of the last entry in the message.
        also: checks of what the answer does, run in this order if it passes the bar; each raises :class:`Failure`.
        fixed: functions whose result the statement fixes. Some calls of the runs are asked again, in another order, and
            compared with the solution's results.
        alike: functions with a free method. They are asked again as well, and must answer as in the runs.

    Raises:
        ValueError: no docstring, no points, not two hints, fewer than three seeds, or a bar that is not positive.
    """
    if seeds < 3 or not bar > 0:
        raise ArgumentError(
            f"{seeds=}, {bar=}; expected at least 3 seeds and a positive bar", argument="seeds, bar", value=(seeds, bar)
        )

    def build(run: Curve) -> Training:
        def compare(sub: Asked, draw: Draw) -> None:
            base = draw.integer(0, 2**31 - 1)
            calls = _Calls(sub._submission, {*fixed, *alike})
            recorded = Asked(calls, sub._beside, sub._world, sub._called)
            candidate = [run_once(run, recorded, base, k) for k in range(seeds)]
            reference = [list(sub.beside.reference(run, base, k)) for k in range(seeds)]
            judge(candidate, reference, bar, what)
            for check in also:
                check(sub, draw)
            ask_again(sub, calls.made, fixed, draw)

        compare.__name__, compare.__doc__ = run.__name__, run.__doc__
        hidden_test = test(points=points, hints=hints, rounds=1)(compare)
        fields = {name: getattr(hidden_test, name) for name in Test.__dataclass_fields__}
        return Training(**{**fields, "probed": False}, curve=run, seeds=seeds, bar=bar, also=also)

    return build


# -- calls of the runs --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Call:
    """One call of a run. ``wrt``: the argument of a gradient; None: a plain call."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    wrt: int | None
    result: Any

    def ask(self, submission: Any) -> Any:
        """Return the result of the same call of another submission, or of the same one later."""
        if self.wrt is None:
            return submission.call(self.name, self.args, self.kwargs)
        return submission.gradient(self.name, self.args, self.kwargs, self.wrt)


class _Calls:
    """A submission that records the calls of some of its functions."""

    def __init__(self, submission: Any, names: set[str]) -> None:
        self.submission, self.names, self.made = submission, names, list[_Call]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.submission, name)

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], *world: Any) -> Any:
        """As in :class:`minirlhf_course.classroom.testing.Submission`."""
        result = self.submission.call(name, args, kwargs, *world)
        if name in self.names:
            self.made.append(_Call(name, args, kwargs, None, result))
        return result

    def gradient(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], wrt: int) -> Any:
        """As in :class:`minirlhf_course.classroom.testing.Submission`."""
        result = self.submission.gradient(name, args, kwargs, wrt)
        if name in self.names:
            self.made.append(_Call(name, args, kwargs, wrt, result))
        return result


def ask_again(sub: Asked, calls: Sequence[_Call], fixed: Sequence[str], draw: Draw) -> None:
    """Ask an eighth of the calls of the runs again, at most ``AGAIN``, the latest first.

    Raises:
        Failure: the answer is another one than in the run, or another one than the solution's for a function in ``fixed``.
    """
    if not calls:
        return
    count = min(AGAIN, math.ceil(len(calls) / 8))
    reference = sub.beside.solution()._submission
    for at in sorted(draw.permutation(len(calls))[:count].tolist(), reverse=True):
        made = calls[at]
        if made.name in fixed:
            what = f"the result of `{made.name}` in a run of the training"
            expect(made.result, made.ask(reference), what=what, tolerance=1e-3, reveal=False)
        what = f"the result of `{made.name}`, asked again with the inputs of the training,"
        expect(made.ask(sub._submission), made.result, what=what, tolerance=1e-3, reveal=False)


# -- judging -----------------------------------------------------------------------------------------------------


def judge(mine: Sequence[Sequence[float]], ours: Sequence[Sequence[float]], bar: float, what: str) -> None:
    """Compare an answer's curves with the reference curves of the same seeds.

    Args:
        mine, ours: one curve per seed, of the answer and of the solution.
        bar, what: see :func:`trains`.

    Raises:
        Failure: a value of the answer is NaN or infinite, or the lower end of the 95 % interval is below ``−bar``.
    """
    means = tuple(_mean(curves) for curves in (mine, ours))
    lines = tuple(f"{whose} {_picture(c, means)}" for whose, c in zip(("yours:", "ours: "), means, strict=True))
    starts, ends = [c[0] for c in mine], [c[-1] for c in mine]
    valid = all(map(math.isfinite, starts)) and all(x < math.inf for x in ends)  # −∞ < every start; NaN is not
    decline = (
        ("it gets worse as it trains",) if valid and statistics.fmean(ends) < statistics.fmean(starts) - bar / 2 else ()
    )
    if not all(math.isfinite(x) for curve in mine for x in curve):
        message = "; ".join((f"{what} is NaN or infinite in a run", *decline))
        raise Failure(message, lines, decline, value="worse" if decline else None, problem="not finite")
    difference = paired.differences({"yours": [c[-1] for c in mine], "ours": [c[-1] for c in ours]})["yours", "ours"]
    low, high = difference.interval
    if low >= -bar:
        return
    summary = f"{what} ends {_signed(difference.mean)} ours over {difference.seeds} paired runs [{low:+.3g}, {high:+.3g}] (95 % interval); at most {bar:g} below is right"
    mistakes, kind = decline, "worse" if decline else "below"
    if all(max(curve) - min(curve) < FLAT for curve in mine):
        mistakes, kind = ("nothing changes: the run ends where it began",), "flat"
    raise Failure("; ".join((summary, *mistakes)), lines, mistakes, value=difference.mean, expected=-bar, problem=kind)


def _signed(gap: float) -> str:
    return f"{abs(gap):.3g} {'below' if gap < 0 else 'above'}"


def _mean(curves: Sequence[Sequence[float]]) -> list[float]:
    return [statistics.fmean(values) for values in zip(*curves, strict=True)]


def _picture(curve: Sequence[float], curves: Sequence[Sequence[float]]) -> str:
    """Draw a curve as block characters, on the common scale of both curves, followed by some of its values."""
    finite_values = [x for c in curves for x in c if math.isfinite(x)]
    low, reach = min(finite_values, default=0.0), max(finite_values, default=0.0) - min(finite_values, default=0.0)
    blocks = "".join(
        "·" if not math.isfinite(x) else BARS[round((len(BARS) - 1) * (x - low) / reach)] if reach else BARS[0]
        for x in curve
    )
    step = max(1, math.ceil((len(curve) - 1) / (SHOWN - 1)))
    return f"{blocks}  {show(torch.tensor([*curve[:-1:step], curve[-1]], dtype=torch.float64).round(decimals=3))}"


def weights_of(got: object, like: Tensor) -> Tensor:
    """Return the new weights from a student's training step, in the dtype of ``like``.

    Raises:
        Failure: the result is not a float tensor of the shape of ``like``, or an entry is NaN or infinite.
    """
    if not isinstance(got, Tensor) or got.shape != like.shape or not got.is_floating_point():
        shape = f"a tensor of shape {tuple(got.shape)}" if isinstance(got, Tensor) else type(got).__name__
        fail(f"expected the new weights, a tensor of shape {tuple(like.shape)}; got {shape}")
    if not bool(got.isfinite().all()):
        fail("the new weights hold NaN or an infinity")
    return got.detach().to(like.dtype)


# -- what a step does --------------------------------------------------------------------------------------------


def moved(new: object, weights: Tensor, dim: int = -1) -> Tensor:
    """Return how far a step moves a table of logits; what is added to all logits along ``dim`` changes nothing."""
    difference = weights_of(new, weights) - weights
    return difference - difference.mean(dim, keepdim=True)


def steps_by(step: Callable[[float], object], weights: Tensor, lr: float, dim: int = -1) -> None:
    """Test that ``step(lr)`` is *one* step of size ``lr`` from ``weights``: 0 moves nothing, twice ``lr`` twice as far.

    So the learning rate is not the answer's own, the new weights are not made of anything but the old ones, and several
    steps are not taken in place of one: the second of them would have another gradient.

    Raises:
        Failure: it is not; ``problem`` is "rate".
    """
    still, once, twice = (moved(step(rate), weights, dim) for rate in (0.0, lr, 2 * lr))
    if float(still.abs().max()) > 1e-6 * (1 + float(weights.abs().max())):
        raise Failure("with `lr = 0` a step changes the weights", problem="rate", argument="lr", value=0.0)
    size = float(once.norm())
    if size < 1e-12:
        raise Failure(f"with `lr = {lr:g}` a step changes nothing", problem="rate", argument="lr", value=lr)
    if float((twice - 2 * once).norm()) > 1e-3 * size:
        ratio = float(twice.norm()) / size
        message = f"twice the `lr` should move the weights twice as far, in the same direction; it moves them {ratio:.3g} times as far"
        raise Failure(message, (f"lr = {lr:g} and {2 * lr:g}",), problem="rate", argument="lr", value=ratio)


def points_along(
    step: Tensor,
    right: Tensor,
    what: str = "the step",
    *,
    tolerance: float = 0.01,
    times: tuple[float, float] | None = None,
    mistakes: Mapping[str, Tensor] | None = None,
) -> None:
    """Test the direction of a step against that of ``right``, the exact step.

    Args:
        step: how far the weights moved, see :func:`moved`.
        right: the exact step, in the same coordinates.
        what: the name of the step in the message.
        tolerance: largest difference of an entry if both steps have length 1.
        times: how many times as long as the exact step it may be, at least and at most; None: any length.
        mistakes: the steps of well-known mistakes.

    Raises:
        Failure: the direction or the length is wrong.
    """
    unit = {mistake: _unit(value) for mistake, value in (mistakes or {}).items()}
    direction = f"the direction of {what}"
    expect(_unit(step), _unit(right), what=direction, tolerance=tolerance, reveal=False, mistakes=unit)
    ratio = float(step.norm() / right.norm())
    if times and not times[0] <= ratio <= times[1]:
        message = f"{what} is {ratio:.3g} times as long as the exact one"
        raise Failure(message, problem="length", value=ratio, expected=times)


def _unit(step: Tensor) -> Tensor:
    return step.double() / step.double().norm().clamp(min=1e-12)


# -- how well a bar discriminates --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bar:
    """How often one kind of answer passes a bar, with other seeds than those of the reference."""

    test: str
    answer: str
    mean: float  # mean of the last entries
    deviation: float  # standard deviation of the last entries across seeds
    passes: float  # fraction of comparisons that pass


def bars(exercise: Exercise, seed: int, runs: int, comparisons: int = 4000) -> Iterator[Bar]:
    """Measure the bars of an exercise's trainings.

    Every answer runs on ``runs`` seeds, independent of the reference's seeds. One comparison samples as many runs of
    the answer as the test has seeds, and the same number of the reference's runs. A correct answer that uses
    randomness in another way than the reference meets the same conditions.

    Args:
        runs: number of runs of each answer; at least a few times the test's seeds.
        comparisons: number of comparisons for each answer.
    """
    for item in (t for t in exercise.tests if isinstance(t, Training)):
        beside = Beside(exercise, sources.DEFAULT_STUDENT, {})
        base = derive_seed(seed, exercise.id, item.name)
        reference_ends = [beside.reference(item.curve, base, k)[-1] for k in range(runs)]
        solution_namespace = solution(exercise, sources.DEFAULT_STUDENT)
        for note, code in (("solution", ""), *((m.note, m.code) for m in exercise.mutants if m.caught_by == item.name)):
            namespace = dict(solution_namespace)
            exec(sources.compiled(exercise.given + "\n" + exercise.solution + "\n" + code, exercise.path), namespace)
            sub = Asked(Local(namespace, sources.DEFAULT_STUDENT), beside)
            ends = []
            for k in range(runs):
                try:
                    ends.append(run_once(item.curve, sub, base + 1, k)[-1])
                except Failure:
                    ends.append(math.nan)
            rate = _share(ends, reference_ends, item, torch.Generator().manual_seed(base))
            finite = [x for x in ends if math.isfinite(x)]
            std = statistics.stdev(finite) if len(finite) > 1 else math.nan
            yield Bar(item.name, note, statistics.fmean(finite) if finite else math.nan, std, rate(comparisons))


def _share(
    candidate: Sequence[float], reference: Sequence[float], training: Training, rng: torch.Generator
) -> Callable[[int], float]:
    def passes() -> bool:
        subsets = [torch.randperm(len(x), generator=rng)[: training.seeds].tolist() for x in (candidate, reference)]
        try:
            judge([[candidate[i]] for i in subsets[0]], [[reference[i]] for i in subsets[1]], training.bar, "")
        except Failure:
            return False
        return True

    return lambda count: sum(passes() for _ in range(count)) / count
