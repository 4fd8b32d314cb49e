"""Reward models of the assistant world, ten seeds: ``python -m minirlhf_course.chapters.ch08_reward_models.study_assistant`` (about four minutes of one core).

Eight epochs on 256 pairs, the same with labels without noise, and as many steps on pairs that are never repeated; last token against mean
pooling, centring and margins, each for one epoch of 1,600; a report card by kinds of damage. Writes ``study_assistant.json``.
"""

from __future__ import annotations

from dataclasses import replace

from minirlhf.data import tasks
from minirlhf.data.tasks.assistant import PRAISE
from minirlhf.stages import pipeline, zoo
from minirlhf.stages.pipeline import Trained
from minirlhf_course.chapters.ch08_reward_models.assistant_rewards import (
    GradersPlan,
    best_replies,
    epochs,
    labelled_pairs,
    offsets,
    quality,
    relabelled,
    report_card,
    trained,
    usual_replies,
    with_margins,
)
from minirlhf_course.evidence import Study, brief, initial_models, settings

#: The settings of the variants, and the epochs after which the study looks.
CENTRING, AFTER = 0.01, (1, 2, 4, 8)


def one_seed(seed: int, plan: GradersPlan | None = None, start: Trained | None = None) -> dict[str, float]:
    """All reward models of one seed, which draws pairs, heads and orders."""
    plan = plan or GradersPlan()
    start = start or Trained(*zoo.load("assistant-sft", quiet=True))
    pad, grade = start.tokenizer.pad_token_id, tasks.get("assistant").grade
    said, held_out = labelled_pairs(start, plan, seed)
    train, held = (pipeline.pair_tokens(start.tokenizer, pairs) for pairs in (said, held_out))
    agree = [grade(p.prompt, p.chosen) - grade(p.prompt, p.rejected) for p in held_out]
    numbers = {"gold_accuracy": sum((gap > 0) + 0.5 * (gap == 0) for gap in agree) / len(agree)}

    clean, clean_held = (
        pipeline.pair_tokens(start.tokenizer, relabelled(pairs, seed)) for pairs in (said[: plan.few], held_out)
    )
    arms = {"": (train[: plan.few], held), "clean_": (clean, clean_held), "fresh_": (train, held)}
    for arm, (examples, others) in arms.items():
        for epoch, looked in epochs(start, examples, others, plan, seed, after=AFTER).items():
            numbers |= {f"{arm}{name}_{epoch}": value for name, value in looked.items()}

    config, many = replace(plan.once, seed=seed), train[: plan.many]
    last = trained(start, many, config)
    models = {
        "last": last,
        "mean": trained(start, many, config, pooling="mean"),
        "centred": trained(start, many, replace(config, center_rewards_coefficient=CENTRING)),
        "margin": trained(start, with_margins(many, said[: plan.many]), config),
    }
    for name, model in models.items():
        numbers |= {f"{name}_{key}": value for key, value in quality(model, held, pad).items()}
        away = offsets(model, held, pad)
        numbers |= {f"{name}_offset": float(away.mean().abs()), f"{name}_offset_sd": float(away.std())}
    for name, replies in (("best", best_replies(plan)), ("usual", usual_replies(held_out))):
        for kind, row in report_card(start, last, replies, seed).items():
            numbers |= {f"{name}_{kind}_{key}": value for key, value in row.items()}
    praised = [sum(word in PRAISE for word in r.split()) for p in said[: plan.many] for r in (p.chosen, p.rejected)]
    once, more = (sum(x == 1 for x in praised), sum(x > 1 for x in praised))
    return numbers | {"praised_once": once / len(praised), "praised_more": more / len(praised)}


def probe() -> dict[str, float | str]:
    """Everything for a few steps, from a brief start."""
    _, start, numbers = initial_models.assistant()
    few = {"max_steps": 8, "batch_size": 8}
    plan = replace(
        GradersPlan(),
        pairs=brief(GradersPlan().pairs, pairs=48, held_out=16),
        few=16,
        many=32,
        repeated=replace(GradersPlan().repeated, **few),
        once=replace(GradersPlan().once, **few),
        damaged=6,
    )
    found = one_seed(0, plan, start)
    for name in [name for name in found if name.endswith("_offset")]:
        found[name] += found[
            f"{name}_sd"
        ]  # a mean of rewards of both signs is all rounding; beside their spread it is not
    return numbers | found | settings(plan=GradersPlan())


STUDY = Study(one_seed, probe, seeds=10)

if __name__ == "__main__":
    STUDY.main(__file__)
