"""Rules that are thought about, against the same answers without a thought: ``python -m minirlhf_course.chapters.ch15_ai_feedback.study_rules`` (about four minutes of one core).

Five seeds, each with a rulebook of its own. Every way to learn is asked about combinations that it has not seen; then one rule changes, is
taught on three of twelve names, and the others are asked about. The learning rate of each way is the best of 1e-3, 2e-3 and 4e-3 on seed 100
(thoughts were as good with all three). Writes ``study_rules.json``.
"""

from __future__ import annotations

from dataclasses import replace

from minirlhf_course.chapters.ch15_ai_feedback import rules as lab
from minirlhf_course.chapters.ch15_ai_feedback.rules import RulesPlan
from minirlhf_course.evidence import Study, settings

PLAN = RulesPlan()


def one_seed(seed: int, plan: RulesPlan = PLAN) -> dict[str, float]:
    """Every way with one rulebook."""
    spec, seen, unseen = lab.drawn(seed, plan)
    numbers: dict[str, float] = {}
    for way in lab.WAYS:
        model = lab.taught(spec, seen, way, plan, seed)
        numbers |= {f"{way}_seen": lab.right(model, spec, seen), f"{way}_unseen": lab.right(model, spec, unseen)}
        after, new, untaught, others = lab.amended(model, spec, seen, way, plan, seed)
        if way in lab.THINKING:
            numbers[f"{way}_obeyed"] = lab.obeyed(model, spec, unseen)
        numbers |= {f"{way}_follows": lab.right(after, new, untaught), f"{way}_keeps": lab.right(after, new, others)}
    return numbers


def probe() -> dict[str, float | str]:
    """Some steps of every way."""
    plan = replace(
        PLAN, lessons=320, training=replace(PLAN.training, max_steps=40, batch_size=16),
        changed=replace(PLAN.changed, max_steps=4, batch_size=8),
    )  # fmt: skip
    return one_seed(1, plan) | settings(plan=PLAN)


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
