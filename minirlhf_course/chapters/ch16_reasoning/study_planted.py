"""Is the second thought in the base model? ``python -m minirlhf_course.chapters.ch16_reasoning.study_planted`` (four minutes of one core).

Five seeds of two bases of the shell game: one whose demonstrator never errs, one whose demonstrator errs once in half of its chains and takes it
back. Each before and after RL on answers. A wrong position is planted in 300 chains, and the model writes on. Writes ``study_planted.json``.
"""

from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import RLPlan, SFTPlan
from minirlhf_course.chapters.ch16_reasoning.planted import BASES, RL, SFT, measured
from minirlhf_course.evidence import Study, brief, settings, trace


def one_seed(seed: int, sft: SFTPlan = SFT, rl: RLPlan = RL, count: int = 300) -> dict[str, float]:
    """Both bases, before and after RL."""
    numbers: dict[str, float] = {}
    for name, task in BASES.items():
        before = pipeline.sft_from_scratch(task, pipeline.with_seed(sft, seed), quiet=True)
        after = pipeline.rl(task, before, pipeline.with_seed(rl, seed), quiet=True)
        for when, policy in (("before", before), ("after", after)):
            numbers |= {f"{name}_{when}_{key}": value for key, value in measured(policy, count, seed).items()}
    return numbers


def probe() -> dict[str, float | str]:
    """Three rollouts of each, from brief starts."""
    sft, rl = brief(SFT, 20, batch_size=16, demonstrations=320), brief(RL, 3, batch_size=4, num_generations=4)
    numbers = one_seed(1, sft, rl, 40)
    for name, task in BASES.items():
        start = pipeline.sft_from_scratch(task, pipeline.with_seed(sft, 1), quiet=True)
        numbers |= trace(name, start.history) | trace(f"{name}_rl", pipeline.rl(task, start, rl, quiet=True).history)
    return numbers | settings(sft=SFT, rl=RL)


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
