"""The impossible loss: ``python -m minirlhf_course.chapters.ch10_instruction_tuning.study_packing`` (two minutes).

Five seeds. Rows of six documents, in one language or in any, packed with their mask or without. Writes ``study_packing.json``.
"""

from dataclasses import replace
from statistics import fmean

from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch10_instruction_tuning.translator import LATE, PACK, fresh, looked_at, packed
from minirlhf_course.evidence import Study, settings


def one_seed(seed: int, plan: SFTConfig = PACK) -> dict[str, float]:
    """All four ways with one seed."""
    plan, numbers = replace(plan, seed=seed), {}
    for related in (True, False):
        for masked in (True, False):
            trained = fresh(seed)
            losses = packed(trained, plan, related=related, masked=masked)["loss"]
            found = looked_at(trained, seed, related=related, masked=masked)
            name = f"{'related' if related else 'mixed'}_{'masked' if masked else 'leaking'}"
            numbers[f"{name}_train"] = fmean(losses[-LATE:])
            numbers |= {f"{name}_{what}": value for what, value in found.items()}
    return numbers


def probe() -> dict[str, float | str]:
    """Two steps of each."""
    return one_seed(0, replace(PACK, max_steps=2, batch_size=2)) | settings(plan=PACK)


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
