"""A reward model on 800 real pairs: ``MINIRLHF_HH=FILE python -m minirlhf_course.chapters.ch08_reward_models.study_real`` (two minutes of one core).

It needs a file that is not part of this repository: 800 rows of the harmless part of anthropics/hh-rlhf (MIT licence), JSONL with ``chosen`` and
``rejected``. How these rows were chosen is not known. The SHA-256 digest of the file is
dfabb8cb321b647b06f7dc97e9eeb21de738f3880654bd1cf788b8628915457f. Only numbers are stored, no texts. A *seed* is a fold of the pairs that is
held out, so that each pair is held out once. Writes ``study_real.json``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from minirlhf.data import loaders
from minirlhf.data.records import Comparison
from minirlhf_course.chapters.ch08_reward_models.real_pairs import (
    RealPlan,
    by_words,
    longer,
    reward_of,
    split,
    toy_pairs,
)
from minirlhf_course.evidence import Study, real_file, settings


def measure(pairs: Sequence[Comparison], fold: int, plan: RealPlan) -> dict[str, float]:
    """A reward model and two rules on the part that is held out."""
    train, held = split(pairs, fold, plan.folds)
    rules = {"held_out": float(len(held)), "longer": longer(held), "words": by_words(train, held)}
    return rules | reward_of(train, held, plan, fold)


def one_seed(fold: int) -> dict[str, float]:
    """The file of ``MINIRLHF_HH``."""
    return measure(loaders.load(real_file("MINIRLHF_HH")).comparisons(), fold, RealPlan())


def probe() -> dict[str, float | str]:
    """The same for a few steps, on forty pairs of the assistant world."""
    full = RealPlan()
    training = replace(full.training, max_steps=4, batch_size=8)
    plan = replace(full, vocabulary=300, tokens=24, epochs=2, training=training)
    numbers = measure(toy_pairs(40), 0, plan)
    del numbers["minutes"]
    return numbers | settings(plan=full)


STUDY = Study(one_seed, probe)

if __name__ == "__main__":
    STUDY.main(__file__)
