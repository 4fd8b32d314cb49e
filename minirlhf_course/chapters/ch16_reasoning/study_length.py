"""Length on request at two prices: ``python -m minirlhf_course.chapters.ch16_reasoning.study_length`` (about eight minutes of one core).

Five seeds, each with a fresh policy from supervised fine-tuning that obeys one time in five, and three runs of 160 rollouts: LCPO-exact at .3 and
at .1 a step, LCPO-max at .5 with δ = 1. Steps and right answers are counted on 700 games. Writes ``study_length.json``.
"""

from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import RLPlan, SFTPlan
from minirlhf_course.chapters.ch16_reasoning.asked_length import RL, RUNS, SFT, SIZES, WORLD, measured, train
from minirlhf_course.evidence import Study, brief, settings, trace


def one_seed(seed: int, sft: SFTPlan = SFT, rl: RLPlan = RL, count: int = SIZES["test"]) -> dict[str, float]:
    """Every run with one seed."""
    begin = pipeline.sft_from_scratch(WORLD, pipeline.with_seed(sft, seed), quiet=True)
    policies = {"sft": begin} | {name: train(name, begin, seed, rl) for name in RUNS}
    return {
        f"{name}_{key}": value for name, policy in policies.items() for key, value in measured(policy, count).items()
    }


def probe() -> dict[str, float | str]:
    """Three rollouts of each, from a brief start."""
    sft, rl = brief(SFT, 20, batch_size=16, demonstrations=320), brief(RL, 3, batch_size=4, num_generations=4)
    numbers = one_seed(1, sft, rl, 140)
    begin = pipeline.sft_from_scratch(WORLD, pipeline.with_seed(sft, 1), quiet=True)
    numbers |= trace("start", begin.history)
    for name in RUNS:
        numbers |= trace(name, train(name, begin, 1, rl).history, "grad_norm", "reward")
    return numbers | settings(sft=SFT, rl=RL)


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
