"""Four losses at three learning rates: ``python -m minirlhf_course.chapters.ch14_direct_alignment.study_rates`` (about eight
minutes of one core).

The assistant task, five seeds, the pairs and options of :mod:`.study`. A run ends when it passes one nat. It is measured every few
steps, so that interpolation spans little, and the numbers say how many pairs it had seen by then.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

from minirlhf.data import tasks
from minirlhf.stages import pipeline, zoo
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.history import History
from minirlhf_course.chapters.ch14_direct_alignment import direct
from minirlhf_course.evidence import Study, brief, initial_models, settings, trace

LOSSES = ("dpo", "dpo_nll", "simpo", "hinge")
#: Multiples of the rate of all other runs, and the steps between two measurements.
RATES = {"full": (1.0, 3), "lower": (0.4, 6), "lowest": (0.16, 12)}
NATS, LONGEST = 1.0, 144


def until(task, sft, examples, loss, training, every, first, folder):
    """Train until the policy passes :data:`NATS` or has taken :data:`LONGEST` steps.

    Return its metrics at this KL, and the number of steps there, both by interpolation between two measurements.
    """
    metrics, policy = [first], sft
    for stop in range(every, LONGEST + 1, every):
        policy = direct.learn(
            sft, examples, loss, replace(training, max_steps=stop), out=folder / loss, resume=stop > every
        )
        metrics.append(direct.measure(task, policy, sft))
        if metrics[-1].kl > NATS:
            break
    before, after = metrics[-2:]
    weight = min(1.0, (NATS - before.kl) / (after.kl - before.kl)) if after.kl > before.kl else 1.0
    return direct.at_kl(metrics, NATS), (len(metrics) - 2 + weight) * every, policy


def one_seed(seed: int) -> dict[str, float]:
    """Return gold reward, KL and pairs seen where each run passes one nat."""
    task, sft = tasks.get("assistant"), Trained(*zoo.load("assistant-sft", quiet=True), History())
    pairs, _ = pipeline.preferences(task, sft, pipeline.with_seed(direct.PAIRS, seed))
    examples, first = direct.compared(sft, pairs, task), direct.measure(task, sft, sft)
    numbers: dict[str, float] = {}
    for name, (factor, every) in RATES.items():
        training = replace(direct.TRAINING, seed=seed, learning_rate=factor * direct.TRAINING.learning_rate)
        for loss in LOSSES:
            with tempfile.TemporaryDirectory() as folder:
                metrics, steps, _ = until(task, sft, examples, loss, training, every, first, Path(folder))
            numbers |= {f"{loss}_{name}_gold": metrics.gold, f"{loss}_{name}_kl": metrics.kl}
            numbers[f"{loss}_{name}_pairs"] = steps * training.batch_size
    return numbers


def probe() -> dict[str, float | str]:
    """Return two steps of every loss, from a brief initial model."""
    task, (_, sft, numbers) = tasks.get("assistant"), initial_models.assistant()
    plan = brief(direct.PAIRS, batch_size=8, pairs=48, held_out=8)
    training = replace(direct.TRAINING, max_steps=2, batch_size=8)
    pairs, _ = pipeline.preferences(task, sft, plan)
    examples, first = direct.compared(sft, pairs, task), direct.measure(task, sft, sft, replies=1)
    for loss in LOSSES:
        numbers |= trace(loss, direct.learn(sft, examples, loss, training).history)
    with tempfile.TemporaryDirectory() as folder:
        fast = replace(training, learning_rate=30 * training.learning_rate)
        metrics, steps, policy = until(task, sft, examples, "dpo", fast, 2, first, Path(folder))
    numbers |= trace("until", policy.history) | {"gold": metrics.gold, "kl": metrics.kl, "steps": steps}
    rows = {loss: direct.row(loss) for loss in LOSSES}
    return numbers | settings(pairs=direct.PAIRS, training=direct.TRAINING, **rows)


STUDY = Study(one_seed, probe)

if __name__ == "__main__":
    STUDY.main(__file__)
