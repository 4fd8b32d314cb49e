"""DPO on the model's own ranking and imitation of prompted answers, 120 steps at two rates each: ``python -m minirlhf_course.chapters.ch22_character_and_product.study_rates`` (about five minutes).

Five seeds, different from those of ``study.py``. Is imitation better only because DPO had few steps at a high rate? Writes ``study_rates.json``.
"""

from __future__ import annotations

from dataclasses import replace

from minirlhf.data.tasks.assistant import ASSISTANT
from minirlhf.recipes.offline import PREFERENCES
from minirlhf.stages import pipeline
from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch22_character_and_product import character
from minirlhf_course.evidence import Study, settings

STEPS = 120
#: Rates of DPO and of imitation, slow and fast.
DPO_RATES, IMITATION_RATES = (3e-5, 1e-4), (3e-4, 1e-3)
SPEEDS = ("slow", "fast")
FIRST = 300  # seeds of its own


def one_seed(
    seed: int,
    base: SFTConfig = character.BASE,
    steps: int = STEPS,
    queries: int = character.QUERIES,
    examples: int = character.EXAMPLES,
) -> dict[str, float]:
    """True reward, warmth and correctness of each way at each rate."""
    seed += FIRST
    start = character.base(replace(base, seed=seed), examples=examples)
    prompts = ASSISTANT.prompts("test")
    found = character.ranked(start, seed=seed, queries=queries)
    pairs = found.pairs(start.tokenizer, found.scores)
    shown = character.prompted(start, found.prompts, seed=seed + 1)
    recipe = PREFERENCES["dpo"].with_(beta=character.BETA)
    numbers: dict[str, float] = {}

    def note(name: str, model: pipeline.Trained) -> None:
        told = character.measured(prompts, [y for [y] in character.replies(model, prompts, seed=seed)])
        numbers.update({f"{name}_{what}": told[what] for what in ("gold", "warm", "no_wrong", "one_polite")})

    note("before", start)
    for speed, dpo_rate, rate in zip(SPEEDS, DPO_RATES, IMITATION_RATES, strict=True):
        plan = replace(character.DPO, max_steps=steps, learning_rate=dpo_rate, seed=seed)
        note(f"self_{speed}", pipeline.align(start, pairs, pipeline.AlignPlan(recipe, plan), quiet=True))
        imitate = replace(character.IMITATE, max_steps=steps, learning_rate=rate, seed=seed)
        note(f"prompted_{speed}", character.imitated(start, shown, imitate))
    return numbers


def probe() -> dict[str, float | str]:
    """Few steps, few queries."""
    few = replace(character.BASE, max_steps=60, batch_size=16)
    return one_seed(1, few, 3, 24, 600) | settings(
        base=character.BASE,
        dpo=character.DPO,
        imitate=character.IMITATE,
        recipe=PREFERENCES["dpo"].with_(beta=character.BETA),
    )


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
