"""Whose instruction counts: ``python -m minirlhf_course.chapters.ch10_instruction_tuning.study_hierarchy`` (five minutes).

Ten seeds. A translator is trained on 1,500 exchanges in which nobody disagrees, and on 0, 15 or 60 more in which system and user do. Writes
``study_hierarchy.json``.
"""

from dataclasses import replace

from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch10_instruction_tuning.translator import (
    ATTACK,
    FORMS,
    OBEY,
    obedient,
    obeyed,
    without_conflict,
)
from minirlhf_course.evidence import Study, settings

CONFLICTS = (0, 15, 60)


def one_seed(seed: int, plan: SFTConfig = OBEY) -> dict[str, float]:
    """Every number of conflicts with one seed."""
    numbers: dict[str, float] = {}
    for conflicts in CONFLICTS:
        trained = obedient(conflicts, replace(plan, seed=seed))
        known, unknown = obeyed(trained, FORMS[0]), obeyed(trained, ATTACK)
        numbers |= {f"{who}_{conflicts}": share for who, share in known.items()}
        numbers |= {f"attack_{conflicts}": unknown["system"], f"attack_user_{conflicts}": unknown["user"]}
        numbers[f"alone_{conflicts}"] = without_conflict(trained)
    return numbers


def probe() -> dict[str, float | str]:
    """Twenty steps of each."""
    return one_seed(0, replace(OBEY, max_steps=20)) | settings(plan=OBEY)


STUDY = Study(one_seed, probe, seeds=10)

if __name__ == "__main__":
    STUDY.main(__file__)
