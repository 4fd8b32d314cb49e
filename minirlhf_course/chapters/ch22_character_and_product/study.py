"""Character training by self-ranking, its controls, and the specification's verdicts: ``python -m minirlhf_course.chapters.ch22_character_and_product.study`` (about ten minutes).

Ten seeds. A small assistant answers questions. It becomes warm by DPO on its own ranking of its own answers (``self``, and ``long`` with four
times more steps), by imitating the answers that it ranks first (``best``), or by imitating answers that it writes under the system prompt
(``prompted``). The control is DPO on a random ranking (``random``). Learning rates were chosen on seeds 100 and 101 by the gold reward
after thirty steps. Writes ``study.json``.
"""

from __future__ import annotations

from dataclasses import replace

from minirlhf.data.tasks.assistant import ASSISTANT
from minirlhf.recipes.offline import PREFERENCES
from minirlhf.stages import pipeline
from minirlhf.trainers.offline import OfflineConfig
from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch22_character_and_product import character
from minirlhf_course.evidence import Study, settings

LONG = 120


def one_seed(
    seed: int,
    base: SFTConfig = character.BASE,
    dpo: OfflineConfig = character.DPO,
    imitate: SFTConfig = character.IMITATE,
    long: int = LONG,
    queries: int = character.QUERIES,
    examples: int = character.EXAMPLES,
) -> dict[str, float]:
    """What each model does on the test questions, which rules turn red, what the switches do, and how good its own ranking is."""
    start = character.base(replace(base, seed=seed), examples=examples)
    prompts = ASSISTANT.prompts("test")
    found = character.ranked(start, seed=seed, queries=queries)
    pairs = found.pairs(start.tokenizer, found.scores)
    recipe = PREFERENCES["dpo"].with_(beta=character.BETA)
    aligned = lambda some, steps: pipeline.align(
        start, some, pipeline.AlignPlan(recipe, replace(dpo, max_steps=steps, seed=seed)), quiet=True
    )
    plan = replace(imitate, seed=seed)
    models = {
        "before": start,
        "self": aligned(pairs, dpo.max_steps),
        "long": aligned(pairs, long),
        "random": aligned(found.pairs(start.tokenizer, character.shuffled(found, seed)), dpo.max_steps),
        "best": character.imitated(start, found.best(start.tokenizer), plan),
        "prompted": character.imitated(start, character.prompted(start, found.prompts, seed=seed + 1), plan),
    }
    said = {name: [y for [y] in character.replies(model, prompts, seed=seed)] for name, model in models.items()}
    numbers = {"agreement": found.agreement}
    before = character.kept(prompts, said["before"])
    for name, answers in said.items():
        numbers |= {f"{name}_{what}": value for what, value in character.measured(prompts, answers).items()}
        if name != "before":
            red = character.alarms(before, character.kept(prompts, answers))
            numbers |= {f"{name}_red_{rule}": value for rule, value in red.items()}
    for toggle in character.TOGGLES[1:]:
        answers = [y for [y] in character.replies(start, prompts, toggle, seed=seed)]
        numbers |= {f"asked_{toggle.replace(' ', '_')}_{what}": x for what, x in character.measured(prompts, answers).items()}  # fmt: skip
    return numbers


def probe() -> dict[str, float | str]:
    """Few steps, few queries."""
    few = replace(character.BASE, max_steps=60, batch_size=16)
    found = one_seed(
        1, few, replace(character.DPO, max_steps=3), replace(character.IMITATE, max_steps=3), 5, 24, 600
    )  # fmt: skip
    return found | settings(
        base=character.BASE,
        dpo=character.DPO,
        imitate=character.IMITATE,
        recipe=PREFERENCES["dpo"].with_(beta=character.BETA),
    )


STUDY = Study(one_seed, probe, seeds=10)

if __name__ == "__main__":
    STUDY.main(__file__)
