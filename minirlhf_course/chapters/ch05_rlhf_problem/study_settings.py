"""RLOO and GRPO at other learning rates, and for longer: ``python -m minirlhf_course.chapters.ch05_rlhf_problem.study_settings`` (about three minutes).

The other studies of the chapter train for 120 steps at one learning rate. Here, at β = ½, both methods train at a third and at three times that
rate, and at the same rate for four times as many steps. Writes ``study_settings.json``.
"""

import copy
from dataclasses import replace

from minirlhf.data.toys import poem_critic
from minirlhf.equations import rlhf
from minirlhf.recipes import GRPO, RLOO
from minirlhf.trainers.online import OnlineConfig
from minirlhf.trainers.toy import TOY_RUN, train_toy
from minirlhf_course.evidence import Study, settings

BETA = 0.5
METHODS = {"rloo": RLOO.with_(beta=BETA), "grpo": GRPO.with_(beta=BETA)}
RUNS = {
    "third": replace(TOY_RUN, learning_rate=TOY_RUN.learning_rate / 3),
    "same": TOY_RUN,
    "triple": replace(TOY_RUN, learning_rate=3 * TOY_RUN.learning_rate),
    "long": replace(TOY_RUN, max_steps=4 * TOY_RUN.max_steps),
}


def one_seed(seed: int, steps: int | None = None) -> dict[str, float]:
    """KL at the end, and the distance of the objective from its optimum."""
    world = poem_critic()
    ref_logps = world.reference.distribution()[0].log().detach()
    best = float(rlhf.optimal_value(ref_logps, world.rewards, beta=BETA))
    numbers: dict[str, float] = {}

    def run(method: str, name: str, config: OnlineConfig) -> None:
        policy = copy.deepcopy(world.reference)
        config = replace(config, seed=seed, max_steps=steps or config.max_steps)
        recipe = METHODS[method]
        last = train_toy(policy, world.rewards[None], recipe, config, ref_model=world.reference).last
        numbers[f"{method}_{name}_kl"] = last["exact_kl"]
        numbers[f"{method}_{name}_gap"] = best - (last["exact_reward"] - BETA * last["exact_kl"])

    for method in METHODS:
        for name, config in RUNS.items():
            run(method, name, config)
    return numbers


def probe() -> dict[str, float | str]:
    """Every run of the study, for two steps."""
    return one_seed(0, 2) | settings(**METHODS, **RUNS)


STUDY = Study(one_seed, probe)

if __name__ == "__main__":
    STUDY.main(__file__)
