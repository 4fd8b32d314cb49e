"""The R1 recipe in miniature, stage by stage: ``python -m minirlhf_course.chapters.ch16_reasoning.study_stages`` (about six minutes of one core).

Seven seeds, each with a base model of its own. Every stage is measured on 200 games that no stage has seen and 200 rows of digits, which nothing keeps apart from those trained on; so are
their controls: RL with a KL term, and rejection sampling into another model. Writes ``study_stages.json``.
"""

from dataclasses import replace

from minirlhf_course.chapters.ch16_reasoning.two_alphabets import Stages, controls, every_stage, measured
from minirlhf_course.evidence import Study, brief, settings, trace

STAGES = Stages()


def one_seed(seed: int, plan: Stages = STAGES) -> dict[str, float]:
    """Every stage with one seed."""
    plan = plan.with_seed(seed)
    stages = every_stage(plan)
    stages |= controls(plan, stages)
    return {
        f"{name}_{key}": value
        for name, policy in stages.items()
        for key, value in measured(policy, plan.measured).items()
    }


def probe() -> dict[str, float | str]:
    """Two steps of every stage, from a base that was trained for twenty."""
    few = {"batch_size": 4, "num_generations": 4}
    plan = replace(
        STAGES,
        base=brief(STAGES.base, 20, batch_size=16, demonstrations=320),
        cold=brief(STAGES.cold, demonstrations=8, batch_size=4),
        first=brief(STAGES.first, **few),
        second=brief(STAGES.second, **few),
        kept=replace(STAGES.kept, max_steps=2, batch_size=4),
        asked=8,
        general=8,
        measured=16,
    )
    numbers = one_seed(1, plan)
    stages = every_stage(plan)
    for name, policy in (stages | controls(plan, stages)).items():
        numbers |= trace(name, policy.history, "grad_norm")
    return numbers | settings(
        beta=STAGES.beta, base=STAGES.base, cold=STAGES.cold, first=STAGES.first, kept=STAGES.kept, second=STAGES.second
    )


STUDY = Study(one_seed, probe, seeds=7)

if __name__ == "__main__":
    STUDY.main(__file__)
