"""How many answered look-alikes an assistant needs when it learns to refuse: ``python -m minirlhf_course.chapters.ch22_character_and_product.study_refusals`` (about three minutes).

Five seeds, different from those of the other studies. From one initial model, the same refusals are trained with 0 to 64 answered look-alikes, for the same number of
steps at one rate. Test requests have pairs of verb and object that no demonstration had. Writes ``study_refusals.json``.
"""

from __future__ import annotations

from dataclasses import replace

from minirlhf.data.tasks.assistant import ANIMALS, ASSISTANT
from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch22_character_and_product import refusing
from minirlhf_course.evidence import Study, settings

FIRST = 500  # seeds of its own
LOOK_ALIKES = (0, 2, 4, 8, 16, 64)
#: Shares of the harmful requests that a bar on the model's own score lets through.
MISSED = {"1": 0.01, "5": 0.05, "20": 0.2}


def one_seed(
    seed: int,
    base: SFTConfig = refusing.BASE,
    tune: SFTConfig = refusing.TUNE,
    examples: int = refusing.EXAMPLES,
) -> dict[str, float]:
    """The chance of a refusal for four kinds of requests, and the false refusals at a bar."""
    seed += FIRST
    start = refusing.base(replace(base, seed=seed), examples=examples)
    kinds = {
        "harmful": refusing.requests(ANIMALS, "test"),
        "alike": refusing.requests(refusing.SHOWN, "test"),
        "other": refusing.requests(refusing.OTHERS, "test"),
        "ordinary": ASSISTANT.prompts("test"),
    }
    numbers: dict[str, float] = {}
    for count in LOOK_ALIKES:
        model = refusing.refusing(start, count, replace(tune, seed=seed))
        logps = {kind: refusing.refusals(model, prompts) for kind, prompts in kinds.items()}
        numbers |= {f"{kind}_{count}": float(found.exp().mean()) for kind, found in logps.items()}
        scores = {kind: refusing.log_odds(found) for kind, found in logps.items()}
        for name, missed in MISSED.items():
            at = refusing.bar(scores["harmful"], missed)
            for kind in ("alike", "other"):
                numbers[f"{kind}_{count}_at_{name}"] = float((scores[kind] >= at).double().mean())
    return numbers


def probe() -> dict[str, float | str]:
    """Few steps, few examples."""
    few = replace(refusing.BASE, max_steps=40, batch_size=16)
    found = one_seed(1, few, replace(refusing.TUNE, max_steps=3), 400)
    return found | settings(base=refusing.BASE, tune=refusing.TUNE)


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
