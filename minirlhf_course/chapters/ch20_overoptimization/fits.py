"""Which law does the fall of the gold reward follow? Two forms fitted to measured curves, with bands over seeds and
a verdict that may be "neither".

Both forms are linear in α and β, so a fit is one least-squares solve.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError
from minirlhf.core.randomness import generator
from minirlhf_course.chapters.ch20_overoptimization import equations
from minirlhf_course.chapters.ch20_overoptimization.curves import Curve

#: name -> (the form, its peak); the functions are named after the paper's two optimisers.
FORMS: dict[str, tuple[Callable[..., Tensor], Callable[..., tuple[float, float]]]] = {
    "d(α − β d)": (equations.gold_best_of_n, equations.gold_best_of_n_peak),
    "d(α − β log d)": (equations.gold_rl, equations.gold_rl_peak),
}


@dataclass(frozen=True)
class Fit:
    """A form fitted to gained gold reward against distance.

    Attributes:
        form: a key of :data:`FORMS`.
        r2: fraction of the variance explained; negative if a horizontal line would fit better.
    """

    form: str
    alpha: float
    beta: float
    r2: float

    def __call__(self, distance: Tensor) -> Tensor:
        """Return the gold reward gained at some distances, by this fit."""
        return FORMS[self.form][0](distance, alpha=self.alpha, beta=self.beta)

    @property
    def peak(self) -> tuple[float, float]:
        """Distance and gain at the peak; both infinite unless α > 0 and β > 0 (for β ≤ 0 the fit never turns down)."""
        return FORMS[self.form][1](alpha=self.alpha, beta=self.beta) if self.beta > 0 < self.alpha else (torch.inf,) * 2


def explained(gain: Tensor, predicted: Tensor) -> float:
    """Return R²: one minus the squared error over the variance."""
    return 1 - float((gain - predicted).square().sum() / (gain - gain.mean()).square().sum())


def fit_form(distance: Tensor, gain: Tensor, form: str) -> Fit:
    """Fit a form by least squares. Both ``(K,)``; several curves may be joined into one."""
    if len(distance) < 3:
        raise ValueError(f"distance has shape {tuple(distance.shape)}; a fit of two numbers needs at least 3 points")
    function = FORMS[form][0]
    basis = torch.stack([function(distance, alpha=1.0, beta=0.0), function(distance, alpha=0.0, beta=1.0)], -1)
    alpha, beta = torch.linalg.lstsq(basis, gain).solution.tolist()
    return Fit(form, alpha, beta, explained(gain, function(distance, alpha=alpha, beta=beta)))


def on_a_grid(curves: Sequence[Curve], points: int = 40) -> tuple[Tensor, Tensor]:
    """Return distances ``(K,)`` that all curves reach, evenly spaced, and the gold reward that each curve has gained
    there ``(S, K)``.

    The spacing is even, because an optimiser that stays long at one distance would otherwise give it more weight.
    """
    reach = min(float(c.distance.max()) for c in curves)
    grid = torch.linspace(0, reach, points + 1, dtype=torch.float64)[1:]
    grid[-1] = reach
    return grid, torch.tensor(
        [[c.gold_at(d) - float(c.gold[0]) for d in grid.tolist()] for c in curves], dtype=torch.float64
    )


def single_verdict(name: str, curve: Curve) -> str:
    """Fit both forms to one curve and return the result in words. One curve has no bands: the uncertainty of the
    difference is unknown."""
    grid, gains = on_a_grid([curve])
    scores = [f"{form} has R² {fit_form(grid, gains[0], form).r2:.3f}" for form in FORMS]
    return f"{name}: {', '.join(scores)} on this one curve"


@dataclass(frozen=True)
class FitVerdict:
    """The fits of the two forms to some curves (one per seed), and their uncertainty.

    Attributes:
        grid: distances ``(K,)``.
        gains: ``(S, K)`` measured.
        pooled: a fit of each form to all seeds at once.
        bands: of each form, ``(2, K)``: 5th and 95th percentile of the pooled fit over bootstrap samples of the seeds.
        within: mean R² of each form fitted to each seed alone.
        held_out: mean R² of each form on a seed that was left out of its fit.
        difference: mean over seeds of R² of the first form minus R² of the second, with a 95 % interval over seeds.
    """

    grid: Tensor
    gains: Tensor
    pooled: dict[str, Fit]
    bands: dict[str, Tensor]
    within: dict[str, float]
    held_out: dict[str, float]
    difference: tuple[float, float, float]

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        first, second = FORMS
        mean, low, high = self.difference
        if low <= 0 <= high:
            return f"no significant difference (R² {self.within[first]:.3f} and {self.within[second]:.3f})"
        best, other = (first, second) if mean > 0 else (second, first)
        return f"{best} fits better (R² {self.within[best]:.3f} against {self.within[other]:.3f})"


def judge(curves: Sequence[Curve], *, draws: int = 200) -> FitVerdict:
    """Fit both forms to the curves of several seeds and compare them. The bootstrap resamples whole seeds, never
    points: points of one curve are not independent.

    Raises:
        ValueError: fewer than three curves.
    """
    if len(curves) < 3:
        raise ArgumentError(
            f"{len(curves)} curves; expected at least 3, one per seed", argument="curves", value=len(curves)
        )
    grid, gains = on_a_grid(curves)
    seeds = len(curves)

    def pooled(rows: Tensor, form: str) -> Fit:
        return fit_form(grid.repeat(len(rows)), gains[rows].flatten(), form)

    rng = generator("judge", seeds)
    resamples = [torch.randint(seeds, (seeds,), generator=rng) for _ in range(draws)]
    all_seeds = torch.arange(seeds)
    bands, seed_r2, held_out_r2 = {}, {}, {}
    for form in FORMS:
        lines = torch.stack([pooled(rows, form)(grid) for rows in resamples])
        bands[form] = torch.quantile(lines, torch.tensor([0.05, 0.95], dtype=torch.float64), 0)
        seed_r2[form] = torch.tensor([fit_form(grid, g, form).r2 for g in gains], dtype=torch.float64)
        held_out_r2[form] = [explained(gains[s], pooled(all_seeds[all_seeds != s], form)(grid)) for s in range(seeds)]
    first, second = FORMS
    differences = seed_r2[first] - seed_r2[second]
    means = torch.stack([differences[rows].mean() for rows in resamples])
    low, high = torch.quantile(means, torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return FitVerdict(
        grid=grid,
        gains=gains,
        pooled={form: pooled(all_seeds, form) for form in FORMS},
        bands=bands,
        within={form: float(r2.mean()) for form, r2 in seed_r2.items()},
        held_out={form: sum(r2) / seeds for form, r2 in held_out_r2.items()},
        difference=(float(differences.mean()), low, high),
    )
