"""Layer 8: the long task of :mod:`.two_worlds` with a learning rate for each recipe, and hesitation given the kind of completion.

A direct answer is a guess, and mostly wrong; an answer after a chain of thought is mostly right. The policy can see which
of the two it is writing. So hesitation is compared within one kind of completion.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from minirlhf.recipes import Recipe
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.history import History
from minirlhf_course.chapters.ch13_group_relative_methods import group_family, two_worlds
from minirlhf_course.chapters.ch13_group_relative_methods.two_worlds import Contest

#: Learning rates that are tried, as multiples of the contest's.
FACTORS = (1.0, 2.0, 4.0, 8.0)

#: For each recipe the factor with the largest mean area over two seeds that no study uses, see :func:`tried`.
CHOSEN = {"clip": 2.0, "by_token": 2.0, "no_ratio": 1.0, "gspo": 4.0, "dr_grpo": 2.0, "ppo": 4.0}


def thinks(prompt: str, text: str) -> bool:
    """Return whether a completion begins with a chain of thought."""
    return text.startswith("think")


def direct_wrong(prompt: str, text: str) -> bool:
    """Return whether a completion is a direct answer, and wrong."""
    return not thinks(prompt, text) and two_worlds.LONG.task.grade(prompt, text) != 1.0


#: Kinds of completions.
KINDS: dict[str, Callable[[str, str], bool]] = {"thinks": thinks, "direct_wrong": direct_wrong}


def _fraction(kind: str) -> Callable[[str, str], float]:
    """Return a function that is 1 for completions of a kind, else 0."""
    return lambda prompt, text: float(KINDS[kind](prompt, text))


def _words(kind: str) -> Callable[[str, str], float]:
    """Return a function that counts the ``hm`` in completions of a kind; 0 for other completions."""
    return lambda prompt, text: text.split().count("hm") * float(KINDS[kind](prompt, text))


#: The long task with one more rollout, because at some rates completions become shorter.
LONG = replace(
    two_worlds.LONG,
    training=replace(two_worlds.LONG.training, max_steps=two_worlds.LONG.training.max_steps + 1),
    shares={kind: _fraction(kind) for kind in KINDS} | {f"hm_{kind}": _words(kind) for kind in KINDS},
)


def run(contest: Contest, begin: Trained, recipe: Recipe, *, seed: int, factor: float) -> History:
    """Train with the contest's learning rate times ``factor``; return the history."""
    training = replace(contest.training, learning_rate=factor * contest.training.learning_rate)
    return two_worlds.train(replace(contest, training=training), begin, recipe, seed=seed).history


def tried(begin: Trained, *, seeds: tuple[int, ...] = (100, 101)) -> dict[str, dict[float, float]]:
    """Return the mean area of every recipe at every factor; :data:`CHOSEN` has the best ones (about five minutes)."""
    found: dict[str, dict[float, float]] = {}
    for name, recipe in two_worlds.recipes(LONG).items():
        for factor in FACTORS:
            curves = [group_family.curve(run(LONG, begin, recipe, seed=seed, factor=factor), LONG.at) for seed in seeds]
            found.setdefault(name, {})[factor] = sum(map(sum, curves)) / (len(curves) * len(LONG.at))
    return found


def measured(contest: Contest, history: History) -> dict[str, float]:
    """Return the metrics of a run, see :func:`two_worlds.measured`, and the hesitation given the kind.

    ``hm_thinks`` and ``hm_direct_wrong`` are words of hesitation, means over rollouts five to twelve: after equal numbers
    of updates. ``hm_gap`` is their difference.
    """
    metrics = two_worlds.measured(contest, history)
    for kind in KINDS:
        words, fraction = (sum(history[key][:12][-8:]) for key in (f"hm_{kind}", kind))
        metrics[f"hm_{kind}"] = words / fraction if fraction else math.nan
    return metrics | {"hm_gap": metrics["hm_direct_wrong"] - metrics["hm_thinks"]}


def one_seed(contest: Contest, begin: Trained, seed: int) -> dict[str, float]:
    """Train every recipe at its own learning rate, on the same prompts in the same order; return the metrics."""
    metrics: dict[str, float] = {}
    for name, recipe in two_worlds.recipes(contest).items():
        history = run(contest, begin, recipe, seed=seed, factor=CHOSEN[name])
        metrics |= {f"{name}_{key}": value for key, value in measured(contest, history).items()}
    return metrics
