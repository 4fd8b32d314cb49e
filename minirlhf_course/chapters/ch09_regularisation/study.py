"""Where the KL stands, who moves its price, and what the reference is: ``python -m minirlhf_course.chapters.ch09_regularisation.study`` (about five minutes).

The poem critic's forty replies, 64 sampled replies a step, ten seeds. Some runs also have two other learning rates, and the controller with a
high gain also has a new Adam after a hundred steps. Writes ``study.json``.
"""

import statistics
from dataclasses import replace

from minirlhf_course.chapters.ch09_regularisation.poem import ARMS, Arm, Poem, SampledRun, Steering, train
from minirlhf_course.evidence import Study, settings

BETA = 0.5
SHORT = SampledRun()
LONG = SampledRun(steps=300)
#: Rate of a refresh, and after how many steps each.
REFRESHES = {"hard": (1.0, 40), "average": (0.03, 1), "slow": (0.003, 1)}
#: Other learning rates than that of SHORT, and the arms that are trained with them too.
RATES = {"slow": 0.03, "fast": 0.3}
AT_OTHER_RATES = ("k1_reward", "k3_loss", "k1_loss", "none")
#: The controller with a high gain is read after these steps: before and after its Adam is renewed.
RENEWED, READ = 100, 150


def at_other_rates(seed: int, plan: SampledRun = SHORT) -> dict[str, float]:
    """Return the KL at the end of a run, by arm and learning rate."""
    poem, numbers = Poem(), {}
    for speed, rate in RATES.items():
        for name in AT_OTHER_RATES:
            table = train(poem, ARMS[name], Steering(BETA), replace(plan, learning_rate=rate), seed)
            numbers[f"{name}_{speed}_kl"] = poem.place(table)["kl"]
    return numbers


def high_gain(seed: int, long: SampledRun = LONG) -> dict[str, float]:
    """Return what the controller with a gain of 2 does, by learning rate and with a new Adam."""
    poem, numbers = Poem(), {}
    plan = replace(long, constant=True)
    plans = {"nervous": plan, "renewed": replace(plan, renewed_after=RENEWED)}
    plans |= {f"nervous_{speed}": replace(plan, learning_rate=rate) for speed, rate in RATES.items()}
    for name, each in plans.items():
        steering = Steering(BETA, target=0.5, gain=2.0)
        train(poem, ARMS["k1_reward"], steering, each, seed)
        last = steering.kls[-50:]
        numbers[f"gain_{name}_read"] = steering.kls[min(READ, len(steering.kls)) - 1]
        numbers[f"gain_{name}_late_kl"], numbers[f"gain_{name}_swing"] = statistics.fmean(last), max(last) - min(last)
        numbers[f"gain_{name}_most_beta"] = max(steering.betas)
    return numbers


def one_seed(seed: int, plan: SampledRun = SHORT, long: SampledRun = LONG) -> dict[str, float]:
    """Every run of the chapter on the poem."""
    poem, numbers = Poem(), {}
    in_reward = ARMS["k1_reward"]

    def run(name: str, arm: Arm, steering: Steering, plan: SampledRun) -> None:
        table = train(poem, arm, steering, plan, seed)
        numbers.update({f"{name}_{key}": value for key, value in poem.place(table).items()})
        last = steering.kls[-50:]
        numbers[f"{name}_beta"] = steering.beta
        numbers[f"{name}_late_kl"], numbers[f"{name}_swing"] = statistics.fmean(last), max(last) - min(last)
        numbers[f"{name}_most_kl"] = max(steering.kls)

    for name, arm in ARMS.items():
        run(name, arm, Steering(BETA), plan)
    for start in (0.1, 0.5, 3.0):
        run(f"adaptive_{start:g}", in_reward, Steering(start, target=0.5), long)
    constant = replace(long, constant=True)
    run("adaptive_calm", in_reward, Steering(BETA, target=0.5, gain=0.02), constant)
    run("adaptive_nervous", in_reward, Steering(BETA, target=0.5, gain=2.0), constant)
    run("adaptive_too_far", in_reward, Steering(BETA, target=8.0), constant)
    for name, (rate, every) in REFRESHES.items():
        run(f"refresh_{name}", in_reward, Steering(BETA, rate=rate, every=every), plan)
    return numbers | at_other_rates(seed, plan) | high_gain(seed, long)


def probe() -> dict[str, float | str]:
    """Every run of the study, for three steps."""
    return one_seed(0, SampledRun(steps=3), replace(LONG, steps=3)) | settings(plan=SHORT, long=LONG)


STUDY = Study(one_seed, probe, seeds=10)

if __name__ == "__main__":
    STUDY.main(__file__)
