"""What a budget for the thought does: ``python -m minirlhf_course.chapters.ch16_reasoning.study_budget`` (three minutes of one core).

Five seeds of the shell game's two bases of :mod:`~minirlhf_course.chapters.ch16_reasoning.planted`. Chains of the base that never errs are cut off after 0 to 6
swaps; chains of the base that takes errors back are made to go on by ``no``. 300 games. Writes ``study_budget.json``.
"""

from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import SFTPlan
from minirlhf_course.chapters.ch16_reasoning.budget import when_cut, when_told_to_wait
from minirlhf_course.chapters.ch16_reasoning.planted import BASES, SFT
from minirlhf_course.evidence import Study, brief, settings, trace


def one_seed(seed: int, sft: SFTPlan = SFT, count: int = 300) -> dict[str, float]:
    """Chains of one base cut off, those of the other made to wait."""
    plain, second = (
        pipeline.sft_from_scratch(BASES[name], pipeline.with_seed(sft, seed), quiet=True)
        for name in ("plain", "second")
    )
    cuts, waits = when_cut(plain, count, seed), when_told_to_wait(second, count, seed)
    return {f"cut_{key}": value for key, value in cuts.items()} | {f"wait_{key}": value for key, value in waits.items()}


def probe() -> dict[str, float | str]:
    """Forty games of brief starts."""
    sft = brief(SFT, 20, batch_size=16, demonstrations=320)
    numbers = one_seed(1, sft, 40) | settings(sft=SFT)
    for name, task in BASES.items():
        numbers |= trace(name, pipeline.sft_from_scratch(task, pipeline.with_seed(sft, 1), quiet=True).history)
    return numbers


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
