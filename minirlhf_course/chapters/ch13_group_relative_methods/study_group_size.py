"""Completions per prompt against prompts per batch: ``python -m minirlhf_course.chapters.ch13_group_relative_methods.study_group_size`` (about a minute).

Five sets of 64 prompts: the variance of a batch's gradient for five group sizes, predicted for the initial model of the sorting task.
"""

from functools import cache

import torch

from minirlhf_course.chapters.ch13_group_relative_methods import equations, group_size, two_worlds
from minirlhf_course.evidence import Study, settings


@cache
def begin() -> two_worlds.Trained:
    """Train the initial model that all seeds share."""
    return two_worlds.start(two_worlds.MIXED)


def predicted(parts: dict[str, float]) -> dict[str, float]:
    """Return the best group size, and the variance of batches of 128 completions relative to groups of eight."""
    v, s, w = (torch.tensor(parts[f"{name}_variance"]).double() for name in ("prompt", "own", "baseline"))
    at = {
        size: float(equations.group_gradient_variance(v, s, w, num_prompts=128 // size, num_generations=size))
        for size in (2, 4, 8, 16, 32)
    }
    ratios = {f"variance_{size}": value / at[8] for size, value in at.items()}
    return ratios | {"best_size": float(equations.best_group_size(v, w)), **parts}


def one_seed(seed: int) -> dict[str, float]:
    """Return the predictions from another set of prompts."""
    return predicted(group_size.variances(begin(), seed=seed, prompts=64, samples=16))


def probe() -> dict[str, float | str]:
    """Return the same from a briefly trained model, with few completions."""
    few = two_worlds.brief_contest(two_worlds.MIXED)
    found = group_size.variances(two_worlds.start(few), seed=0, prompts=8, samples=8)
    return {**found, **settings(sft=two_worlds.MIXED.sft)}


STUDY = Study(one_seed, probe)

if __name__ == "__main__":
    STUDY.main(__file__)
