"""Weak labels and strong students, twenty seeds: ``python -m minirlhf_course.chapters.ch24_oversight.study_weak`` (under a minute).

Linear students learn from weak labels whose errors they can or cannot represent, with and without the auxiliary confidence loss. Writes
``study_weak.json``.
"""

from __future__ import annotations

import torch

from minirlhf.core.randomness import generator
from minirlhf_course.chapters.ch24_oversight import weak
from minirlhf_course.evidence import Study

FIRST = 2600  # seeds of its own
#: The part of the weak error's variance, 1, that lies inside the student's features.
INSIDE = (0.0, 0.25, 0.5, 1.0)
STEPS = (1, 2, 3, 10, 40, 160, 640)
#: Of the clusters: the weight α of the confidence loss, and the steps in which it grows.
ARMS = {"plain": (0.0, 1), "sure": (0.5, 128), "fast": (0.5, 2), "fast25": (0.25, 2), "fast75": (0.75, 2)}


def linear(seed: int, size: int, steps: int) -> dict[str, float]:
    """The linear world: accuracies, gap recovered, and what the confidence loss changes."""
    numbers: dict[str, float] = {}
    for inside in INSIDE:
        rng = generator("linear", seed, int(100 * inside))
        data = weak.linear(rng, size, inside=inside, outside=1 - inside)
        test = weak.linear(rng, size, inside=inside, outside=1 - inside)
        right = float((test.weak == test.labels).double().mean())
        name = f"in{100 * inside:.0f}"
        numbers[f"{name}_weak"] = right
        for arm, alpha in (("plain", 0.0), ("sure", 0.5)):
            weights = weak.fit(data.inputs, data.weak, steps=steps, alpha=alpha, ramp=steps // 5)
            found = weak.accuracy(weights, test)
            numbers[f"{name}_{arm}"] = found
            numbers[f"{name}_{arm}_gap"] = (found - right) / (1 - right)
    return numbers


def noise(seed: int) -> dict[str, float]:
    """Labels with 30 % independent errors: a student with few or many of them, against true labels."""
    numbers: dict[str, float] = {}
    for size in (100, 400, 1600):
        rng = generator("noise", seed, size)
        data, test = (weak.linear(rng, n, inside=0.0, outside=0.0) for n in (size, 20_000))
        flips = torch.rand(size, generator=rng, dtype=torch.float64) < 0.3
        noisy = torch.where(flips, 1 - data.labels, data.labels)
        fewer = round(weak.equivalent_labels(size, error=0.3))
        for name, labels, count in (("noisy", noisy, size), ("fewer", data.labels, fewer), ("true", data.labels, size)):
            direction = data.inputs[:count].T @ (2 * labels[:count] - 1)
            numbers[f"noise_{size}_{name}"] = weak.accuracy(direction, test)
    return numbers


def clusters(seed: int, size: int, few: int, steps: tuple[int, ...]) -> dict[str, float]:
    """The clusters: both losses at the same steps of one run, with a weight of the confidence loss that grows slowly or fast."""
    numbers: dict[str, float] = {}
    kinds = {"noise": (False, size), "few": (False, few), "bias": (True, size)}
    for kind, (systematic, count) in kinds.items():
        rng = generator("clusters", seed, kind)
        data, test = (weak.clusters(rng, n, gap=1.5, systematic=systematic) for n in (count, 20_000))
        numbers[f"{kind}_weak"] = float((test.weak == test.labels).double().mean())
        numbers[f"{kind}_ceiling"] = weak.accuracy(weak.fit(data.inputs, data.labels, steps=steps[-1]), test)
        for arm, (alpha, ramp) in ARMS.items():
            for n in steps:
                weights = weak.fit(data.inputs, data.weak, steps=n, alpha=alpha, ramp=ramp)
                numbers[f"{kind}_{arm}_{n}"] = weak.accuracy(weights, test)
    return numbers


def one_seed(seed: int, size: int = 20_000, steps: int = 120) -> dict[str, float]:
    """All of it."""
    seed += FIRST
    full = size == 20_000
    return (
        linear(seed, size, steps) | noise(seed) | clusters(seed, 1000 if full else 100, 60, STEPS if full else (2, 10))
    )


def probe() -> dict[str, float | str]:
    """Fewer labels, fewer steps."""
    with torch.no_grad():
        return dict(one_seed(1, 1000, 10))


STUDY = Study(one_seed, probe, seeds=20)

if __name__ == "__main__":
    STUDY.main(__file__)
