"""pass@k before and after RL, each kind of RL at its own learning rate: ``python -m minirlhf_course.chapters.ch16_reasoning.study_narrowing`` (a minute).

Twenty seeds of 48 strategies and 300 problems, 1,200 steps. The rates of the first, second and fourth arm were chosen from 1, 3.5 and 14 on four other
seeds, by what each arm is after: pass@1 for plain RL, pass@1 less the KL term at a β of .05, and pass@8 for pay of sole successes. On four further
seeds pass@8 chose the β, of .02, .05, .1, .2 and .4, and the rate of the third arm, and for the last a rate of 14, 28 and 56. Writes ``study_narrowing.json``.
"""

import torch

from minirlhf_course.chapters.ch16_reasoning.tables import ARMS, Narrowing, pass_at, solved_by
from minirlhf_course.evidence import Study, settings

TRIES = (1, 4, 8, 64, 256)
PLAN = Narrowing(steps=1200)


def one_seed(seed: int, plan: Narrowing = PLAN) -> dict[str, float]:
    """pass@k of every arm, and whether the way that gets most weight is the one that solves most problems."""
    table = solved_by(seed, plan)
    policies = {"before": torch.zeros(plan.strategies, dtype=torch.float64)}
    for name, arm in ARMS.items():
        policies[name] = arm.improve(table, seed, plan)
    numbers = {f"pass_{name}_{k}": pass_at(logits, table, k) for name, logits in policies.items() for k in TRIES}
    numbers["best_way"] = float(policies["rl"].argmax() == table.mean(0).argmax())
    return numbers


def probe() -> dict[str, float | str]:
    """A few steps."""
    small = Narrowing(problems=30, strategies=6, steps=20, prompts=4, group=4)
    return one_seed(1, small) | settings(plan=PLAN, **ARMS)


STUDY = Study(one_seed, probe, seeds=20)

if __name__ == "__main__":
    STUDY.main(__file__)
