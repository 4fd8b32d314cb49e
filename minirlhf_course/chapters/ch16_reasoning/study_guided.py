"""A verifier at every token, or at the end of several replies: ``python -m minirlhf_course.chapters.ch16_reasoning.study_guided`` (about three minutes of one core).

The shell game, five seeds: an outcome and a process reward model, trained on 2,000 of the policy's own replies, weigh each of the policy's six
likeliest tokens, by their value and by its exponential at three strengths; beside that single samples, those of them that think aloud, and the best
of 4 and 16 whole replies by the same models. 300 games. Writes ``study_guided.json``.
"""

from dataclasses import replace

from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import SHELL_GAME_SFT, Trained
from minirlhf_course.chapters.ch16_reasoning.decoding_tables import least_kl
from minirlhf_course.chapters.ch16_reasoning.guided import Weigh, by_exponential, by_value, guided
from minirlhf_course.chapters.ch16_reasoning.inference import InferencePlan, accuracy, learn, sample_tries, scores
from minirlhf_course.chapters.ch16_reasoning.planted import share
from minirlhf_course.chapters.ch16_reasoning.shell import WORLD
from minirlhf_course.evidence import Study, brief, initial_models, settings, trace

PLAN = InferencePlan(prompts=300, tries=16)
WEIGHTS: dict[str, Weigh] = {
    "value": by_value,
    "weak": by_exponential(1.0),
    "middle": by_exponential(0.25),
    "strong": by_exponential(0.05),
}


def one_seed(
    seed: int, begin: Trained | None = None, plan: InferencePlan = PLAN, counts: tuple[int, ...] = (4, 16)
) -> dict[str, float]:
    """Right answers, and replies that think aloud, of every way to decode; ``aloud`` is 0 where no sample thinks."""
    if begin is None:
        begin = pipeline.sft_from_scratch(WORLD, pipeline.with_seed(SHELL_GAME_SFT, seed), quiet=True)
    plan = replace(plan, outcome=replace(plan.outcome, seed=seed), process=replace(plan.process, seed=seed))
    heads = learn(begin, sample_tries(begin, "train", 0, plan.labelled, plan.of_each, seed), plan)
    tries = sample_tries(begin, "test", 0, plan.prompts, plan.tries, seed)
    said, sampled = scores(begin, heads, tries), float(tries.right.mean())
    thinking = [
        (float(right), text.startswith("think"))
        for texts, row in zip(tries.texts, tries.right, strict=True)
        for text, right in zip(texts, row, strict=True)
    ]
    aloud = [right == 1 for right, thinks in thinking if thinks]
    numbers = {"sampled": sampled, "sampled_thinks": len(aloud) / len(thinking), "aloud": share(aloud)}
    for name, head in heads.items():
        for count in counts:
            numbers[f"{name}_best_{count}"] = accuracy(tries, said[name], count, "best", seed, plan.subsets)
        for how, weigh in WEIGHTS.items():
            drawn = guided(begin, head, tries.prompts, weigh, seed=seed)
            right = [WORLD.grade(prompt, text) for prompt, text in zip(tries.prompts, drawn.texts, strict=True)]
            found = sum(right) / len(right)
            numbers |= {f"{name}_{how}": found, f"{name}_{how}_kl": drawn.kl}
            numbers[f"{name}_{how}_least"] = least_kl(sampled, found)
            numbers[f"{name}_{how}_thinks"] = sum(text.startswith("think") for text in drawn.texts) / len(right)
    return numbers


def probe() -> dict[str, float | str]:
    """A little of each, from a brief start."""
    begin, numbers = initial_models.shell_game()
    plan = brief(SHELL_GAME_SFT, demonstrations=128)
    fresh = pipeline.sft_from_scratch(WORLD, pipeline.with_seed(plan, 1), quiet=True)
    numbers |= trace("fresh", fresh.history)
    few = replace(
        PLAN, prompts=12, tries=4, labelled=24, of_each=2, subsets=2,
        outcome=replace(PLAN.outcome, max_steps=3, batch_size=8), process=replace(PLAN.process, max_steps=3, batch_size=8),
    )  # fmt: skip
    return numbers | one_seed(1, begin, few, (2, 4)) | settings(plan=PLAN)


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
