"""Votes and verifiers against tokens: ``python -m minirlhf_course.chapters.ch16_reasoning.study_inference`` (about five minutes of one core).

The shell game, five seeds: a fine-tuned policy answers 150 games 32 times each. A plain vote, votes weighted by whether a reply thinks aloud, by an
outcome and by a process reward model, the best by either, the most probable; beside them the same policy after RL. Both reward models learn from
the policy's own 2,000 replies to other games. Writes ``study_inference.json``.
"""

from dataclasses import replace

import torch

from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import SHELL_GAME_RL, SHELL_GAME_SFT, RLPlan, Trained
from minirlhf_course.chapters.ch16_reasoning.inference import (
    InferencePlan,
    accuracy,
    learn,
    pass_at,
    ranked_right,
    sample_tries,
    scores,
)
from minirlhf_course.chapters.ch16_reasoning.shell import WORLD
from minirlhf_course.evidence import Study, brief, initial_models, settings, trace

PLAN = InferencePlan()
COUNTS = (1, 2, 4, 8, 16, 32)


def one_seed(
    seed: int,
    begin: Trained | None = None,
    rl: RLPlan = SHELL_GAME_RL,
    plan: InferencePlan = PLAN,
    counts: tuple[int, ...] = COUNTS,
) -> dict[str, float]:
    """Every way to choose, with one seed."""
    if begin is None:
        begin = pipeline.sft_from_scratch(WORLD, pipeline.with_seed(SHELL_GAME_SFT, seed), quiet=True)
    plan = replace(plan, outcome=replace(plan.outcome, seed=seed), process=replace(plan.process, seed=seed))
    heads = learn(begin, sample_tries(begin, "train", 0, plan.labelled, plan.of_each, seed), plan)
    tries = sample_tries(begin, "test", 0, plan.prompts, plan.tries, seed)
    thinks = torch.tensor([[float(text.startswith("think")) for text in texts] for texts in tries.texts])
    said = scores(begin, heads, tries)
    values = {"plain": torch.ones_like(thinks), "thinks": thinks, "own": tries.logps, **said}
    ways = [("vote", "plain"), ("vote", "thinks"), ("vote", "outcome"), ("vote", "process"), ("best", "outcome"),
            ("best", "process"), ("best", "own")]  # fmt: skip
    numbers = {
        f"{how}_{name}_{count}": accuracy(tries, values[name], count, how, seed, plan.subsets)
        for how, name in ways
        for count in counts
    }
    trained = pipeline.rl(WORLD, begin, pipeline.with_seed(rl, seed), quiet=True)
    after = sample_tries(trained, "test", 0, plan.prompts, plan.tries, seed)
    for name, every in (("sft", tries), ("rl", after)):
        numbers |= {f"pass_{name}_{k}": pass_at(every, k) for k in counts}
        numbers[f"tokens_{name}"] = float(every.tokens.mean())
    numbers["thinks_right"] = float(tries.right[thinks == 1].mean())
    numbers["blurts_right"] = float(tries.right[thinks == 0].mean())
    for name in ("outcome", "process"):
        numbers[f"ranked_{name}"] = ranked_right(said[name], tries.right)
        numbers[f"ranked_{name}_thinking"] = ranked_right(said[name][thinks == 1], tries.right[thinks == 1])
    return numbers


def probe() -> dict[str, float | str]:
    """A little of each, from a brief start."""
    begin, numbers = initial_models.shell_game()
    plan = brief(SHELL_GAME_SFT, demonstrations=128)
    fresh = pipeline.sft_from_scratch(WORLD, pipeline.with_seed(plan, 1), quiet=True)
    numbers |= trace("fresh", fresh.history)
    few = replace(
        PLAN, prompts=12, tries=8, labelled=24, of_each=2, subsets=2,
        outcome=replace(PLAN.outcome, max_steps=3, batch_size=8), process=replace(PLAN.process, max_steps=3, batch_size=8),
    )  # fmt: skip
    numbers |= one_seed(1, begin, brief(SHELL_GAME_RL, batch_size=4, num_generations=4), few, (1, 4, 8))
    return numbers | settings(plan=PLAN, rl=SHELL_GAME_RL)


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
