"""Whose instruction counts: ``python -m minirlhf_course.chapters.ch10_instruction_tuning.study_hierarchy`` (eight minutes).

Ten seeds. A translator is trained on 1,500 exchanges in which nobody disagrees, and on 0, 15 or 60 more in which system and user do. Half of the
words occur in these conflicts; the other half is held out, and each half is tested. Without conflicts a second translator is trained and tested
with the system message last. Writes ``study_hierarchy.json``.
"""

from dataclasses import replace

from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch10_instruction_tuning.translator import (
    ATTACK,
    FORMS,
    OBEY,
    obedient,
    obeyed,
    split_words,
    without_conflict,
)
from minirlhf_course.evidence import Study, settings

CONFLICTS = (0, 15, 60)


def one_seed(seed: int, plan: SFTConfig = OBEY) -> dict[str, float]:
    """Every number of conflicts with one seed."""
    plan = replace(plan, seed=seed)
    trained_words, held_out = split_words(seed)
    numbers: dict[str, float] = {}
    for conflicts in CONFLICTS:
        trained = obedient(conflicts, plan)
        for name, words in (("", held_out), ("trained_", trained_words)):
            known, unknown = obeyed(trained, FORMS[0], words), obeyed(trained, ATTACK, words)
            numbers |= {f"{name}{who}_{conflicts}": share for who, share in known.items()}
            numbers |= {
                f"{name}attack_{conflicts}": unknown["system"],
                f"{name}attack_user_{conflicts}": unknown["user"],
            }
        numbers[f"alone_{conflicts}"] = without_conflict(trained)
    last = obeyed(obedient(0, plan, system_last=True), FORMS[0], held_out, system_last=True)
    return numbers | {f"last_{who}_0": share for who, share in last.items()}


def probe() -> dict[str, float | str]:
    """Twenty steps of each."""
    return one_seed(0, replace(OBEY, max_steps=20)) | settings(plan=OBEY)


STUDY = Study(one_seed, probe, seeds=10)

if __name__ == "__main__":
    STUDY.main(__file__)
