"""Where policies come to rest if the learning rate does not: ``python -m minirlhf_course.chapters.ch05_rlhf_problem.study_constant_rate`` (about a minute).

The runs of ``study.py`` let the learning rate fall to 0, which hides noise that stays, and brings every run to a halt. Here RLOO and
the same with z-scores, β = ½, keep theirs; so do runs with the KL's sign reversed, or without KL, whose KL is looked at before their end
as well.
"""

import copy
from dataclasses import replace

from minirlhf.data.toys import poem_critic
from minirlhf.equations import kl, rlhf
from minirlhf.equations.advantages import group_zscore
from minirlhf.recipes import RLOO
from minirlhf.trainers.online import OnlineConfig
from minirlhf.trainers.toy import TOY_RUN, train_toy
from minirlhf_course.evidence import Study, settings

BETA, LAST, LATE = 0.5, 20, 100
CONSTANT = replace(TOY_RUN, lr_scheduler_type="constant")
AT_A_CONSTANT_RATE = {"rloo": RLOO.with_(beta=BETA), "zscore": RLOO.with_(advantage=group_zscore, beta=BETA)}
UNHELD = {
    "reversed_2": RLOO.with_(beta=2.0, estimator=lambda logps, ref_logps: kl.k1(ref_logps, logps)),
    "reversed_0.5": RLOO.with_(beta=0.5, estimator=lambda logps, ref_logps: kl.k1(ref_logps, logps)),
    "no_kl": RLOO.with_(kl=None),
}


def one_seed(seed: int, constant: OnlineConfig = CONSTANT) -> dict[str, float]:
    """The gaps over the last steps of the first two runs; the KL of the others at the end, and how much of it came late."""
    world = poem_critic()
    ref_logps = world.reference.distribution()[0].log().detach()
    best = float(rlhf.optimal_value(ref_logps, world.rewards, beta=BETA))
    numbers: dict[str, float] = {}

    def run(recipe):
        policy = copy.deepcopy(world.reference)
        return train_toy(policy, world.rewards[None], recipe, replace(constant, seed=seed), ref_model=world.reference)

    for name, recipe in AT_A_CONSTANT_RATE.items():
        history = run(recipe)
        reached = [r - BETA * d for r, d in zip(history["exact_reward"], history["exact_kl"], strict=True)]
        numbers[f"{name}_gap"] = best - sum(reached[-LAST:]) / len(reached[-LAST:])
        numbers[f"{name}_grad_norm"] = sum(history["grad_norm"][-LAST:]) / len(history["grad_norm"][-LAST:])
    for name, recipe in UNHELD.items():
        distances = run(recipe)["exact_kl"]
        numbers[f"{name}_kl"] = distances[-1]
        numbers[f"{name}_kl_left"] = distances[-1] - distances[min(LATE, len(distances)) - 1]
    return numbers


def probe() -> dict[str, float | str]:
    """Every run of the study, for three steps."""
    few = {"max_steps": 3}
    said = settings(constant=CONSTANT, **AT_A_CONSTANT_RATE, **UNHELD)
    return one_seed(0, replace(CONSTANT, **few)) | said


STUDY = Study(one_seed, probe, seeds=10)

if __name__ == "__main__":
    STUDY.main(__file__)
