"""Reward models of the assistant world, five seeds: ``python -m minirlhf.chapters.ch08_reward_models.study_assistant`` (about two minutes of one core).

Eight epochs on 384 pairs; last token against mean pooling, and centring, in one epoch of 1,600; a report card by kinds of damage. Writes ``study_assistant.json``.
"""

from __future__ import annotations

from dataclasses import replace

from minirlhf.chapters.ch08_reward_models.assistant_rewards import (
    GradersPlan,
    epochs,
    labelled_pairs,
    offsets,
    quality,
    report_card,
    trained,
)
from minirlhf.data import tasks
from minirlhf.evidence import Study, brief, settings, starts
from minirlhf.stages import pipeline, zoo
from minirlhf.stages.pipeline import Trained

#: The centring of the study, and the epochs after which it looks.
CENTRING, AFTER = 0.01, (1, 2, 4, 8)


def one_seed(seed: int, plan: GradersPlan | None = None, start: Trained | None = None) -> dict[str, float]:
    """All reward models of one seed, which draws pairs, heads and orders."""
    plan = plan or GradersPlan()
    start = start or Trained(*zoo.load("assistant-sft", quiet=True))
    pad = start.tokenizer.pad_token_id
    said, held_out = labelled_pairs(start, plan, seed)
    train, held = (pipeline.pair_tokens(start.tokenizer, pairs) for pairs in (said, held_out))
    grade = tasks.get("assistant").grade
    agree = [grade(p.prompt, p.chosen) - grade(p.prompt, p.rejected) for p in held_out]
    numbers = {"gold_accuracy": sum((gap > 0) + 0.5 * (gap == 0) for gap in agree) / len(agree)}

    history = epochs(start, train, held, plan, seed)
    looked = [row for row in history.rows if "held_nll" in row]
    for epoch in AFTER:
        row = looked[epoch - 1]
        numbers |= {f"{name}_{epoch}": row[name] for name in row if name.startswith(("seen_", "held_"))}

    config = replace(plan.once, seed=seed)
    last = trained(start, train, config)
    models = {
        "last": last,
        "mean": trained(start, train, config, pooling="mean"),
        "centred": trained(start, train, replace(config, center_rewards_coefficient=CENTRING)),
    }
    for name, model in models.items():
        numbers |= {f"{name}_{key}": value for key, value in quality(model, held, pad).items()}
        away = offsets(model, held, pad)
        numbers |= {f"{name}_offset": float(away.mean().abs()), f"{name}_offset_sd": float(away.std())}
    return numbers | {f"card_{kind}": share for kind, share in report_card(start, last, plan, seed).items()}


def probe() -> dict[str, float | str]:
    """Everything for a few steps, from a brief start."""
    _, start, numbers = starts.assistant()
    few = {"max_steps": 8, "batch_size": 8}
    plan = replace(
        GradersPlan(),
        pairs=brief(GradersPlan().pairs, pairs=48, held_out=16),
        few=16,
        repeated=replace(GradersPlan().repeated, **few),
        once=replace(GradersPlan().once, **few),
        damaged=6,
    )
    return numbers | one_seed(0, plan, start) | settings(plan=GradersPlan())


STUDY = Study(one_seed, probe)

if __name__ == "__main__":
    STUDY.main(__file__)
