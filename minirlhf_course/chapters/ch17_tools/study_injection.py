"""Injected requests, before and after training on them, and after training on text that requests nothing:
``python -m minirlhf_course.chapters.ch17_tools.study_injection`` (two minutes of one core).

Five seeds. The fine-tuned policy, in whose training only users made requests. The same after 60 steps on conversations, half of them with a request in the tool's
output; after the same number of steps with nothing injected; and after the same number with remarks that request nothing. Writes ``study_injection.json``.
"""

from dataclasses import replace

from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch17_tools.injection import DISTRUST, OBEY, arms, examined
from minirlhf_course.evidence import Study, settings, trace


def one_seed(seed: int, plan: SFTConfig = OBEY, defence: SFTConfig = DISTRUST, count: int = 200) -> dict[str, float]:
    """Return the measurements of all policies on the same cases."""
    return {
        f"{name}_{key}": value
        for name, trained in arms(seed, plan, defence).items()
        for key, value in examined(trained, count).items()
    }


def probe() -> dict[str, float | str]:
    """Run a few steps of each arm."""
    plan, defence = replace(OBEY, max_steps=60), replace(DISTRUST, max_steps=4)
    numbers = one_seed(0, plan, defence, 12)
    for name, trained in arms(1, replace(plan, max_steps=3), replace(defence, max_steps=3)).items():
        numbers |= trace(name, trained.history)
    return numbers | settings(plan=OBEY, defence=DISTRUST)


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
