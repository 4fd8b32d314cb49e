"""Offline against online, with the same prompts: ``python -m minirlhf_course.chapters.ch14_direct_alignment.study_online``
(about five minutes of one core).

The assistant task, five seeds, the sizes of :mod:`.study`. Offline and online runs label completions of all training prompts;
each round has its own block of prompts. In :mod:`.study` all rounds had nearly the same prompts.
"""

from dataclasses import replace

from minirlhf.data import tasks
from minirlhf.stages import pipeline, zoo
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.history import History
from minirlhf_course.chapters.ch14_direct_alignment import direct
from minirlhf_course.evidence import Study, brief, initial_models, settings, trace

FEWER = 4  # D2PO has one label in so many


def one_seed(seed: int) -> dict[str, float]:
    """Return gold reward and KL at the end of every run."""
    task, sft = tasks.get("assistant"), Trained(*zoo.load("assistant-sft", quiet=True), History())
    plan, training = pipeline.with_seed(direct.PAIRS, seed), replace(direct.TRAINING, seed=seed)
    pairs, _ = pipeline.preferences(task, sft, plan)
    few = replace(plan, pairs=plan.pairs // FEWER)
    online = lambda loss, some=plan, **options: direct.rounds(task, sft, some, loss, training, disjoint=True, **options)
    policies = {
        "offline": direct.learn(sft, direct.compared(sft, pairs, task), "dpo", training),
        "fixed": online("dpo"),
        "moving": online("dpo", moving=True),
        "sppo": online("sppo", moving=True),
        "d2po": direct.with_discriminator(task, sft, plan, "dpo", training, disjoint=True),
        "few": online("dpo", few),
    }
    numbers = {"prompts": float(len({pair.prompt for pair in pairs}))}
    for name, policy in policies.items():
        metrics = direct.measure(task, policy, sft)
        numbers |= {f"{name}_gold": metrics.gold, f"{name}_kl": metrics.kl, f"{name}_length": metrics.length}
    return numbers


def probe() -> dict[str, float | str]:
    """Return two steps of the online runs, from a brief initial model."""
    task, (_, sft, numbers) = tasks.get("assistant"), initial_models.assistant()
    plan = brief(direct.PAIRS, batch_size=8, pairs=48, held_out=8)
    training = replace(direct.TRAINING, max_steps=2, batch_size=8)
    pairs, _ = pipeline.preferences(task, sft, plan)
    policies = {
        "offline": direct.learn(sft, direct.compared(sft, pairs, task), "dpo", training),
        "fixed": direct.rounds(task, sft, plan, "dpo", training, count=2, disjoint=True),
        "sppo": direct.rounds(task, sft, plan, "sppo", training, count=2, moving=True, disjoint=True),
        "d2po": direct.with_discriminator(task, sft, plan, "dpo", training, count=2, disjoint=True),
    }
    for name, policy in policies.items():
        numbers |= trace(name, policy.history)
    metrics = direct.measure(task, policies["fixed"], sft, replies=1)
    numbers |= {"gold": metrics.gold, "kl": metrics.kl, "length": metrics.length}
    rows = {"dpo": direct.row("dpo"), "sppo_moving": direct.row("sppo")}
    return numbers | settings(pairs=direct.PAIRS, training=direct.TRAINING, **rows)


STUDY = Study(one_seed, probe)

if __name__ == "__main__":
    STUDY.main(__file__)
