"""Where a trained policy comes to rest, against the exact optimum: ``python -m minirlhf_course.chapters.ch05_rlhf_problem.study`` (about three minutes).

The poem critic of chapter 05, 40 possible replies: RLOO with the KL in the reward, GRPO with its KL in the loss, no KL, and the
KL with its sign reversed. Writes ``study.json``.
"""

import copy
from dataclasses import replace

from minirlhf.core import exact
from minirlhf.data.toys import poem_critic
from minirlhf.equations import kl, rlhf
from minirlhf.equations.advantages import group_zscore
from minirlhf.recipes import GRPO, RLOO, KLInLoss
from minirlhf.trainers.online import OnlineConfig
from minirlhf.trainers.toy import TOY_RUN, train_toy
from minirlhf_course.chapters.ch05_rlhf_problem import equations
from minirlhf_course.evidence import Study, settings

BETAS = (2.0, 1.0, 0.5, 0.25)
SHORT = replace(TOY_RUN, max_steps=20)


def one_seed(seed: int, long: OnlineConfig = TOY_RUN, short: OnlineConfig = SHORT) -> dict[str, float]:
    """Every run of the chapter with one seed; the short ones use their rollouts several times."""
    world = poem_critic()
    ref_logps = world.reference.distribution()[0].log().detach()
    numbers: dict[str, float] = {}

    def run(name, recipe, config=long):
        policy = copy.deepcopy(world.reference)
        history = train_toy(
            policy,
            world.rewards[None],
            recipe,
            replace(config, seed=seed),
            ref_model=world.reference,
            monitors={"gold": world.gold[None]},
        )
        for key in ("reward", "kl", "gold"):
            numbers[f"{name}_{key}"] = history.last[f"exact_{key}"]
        numbers[f"{name}_log_ratio"] = sum(history["policy_log_ratio_max"]) / len(history)
        return policy.distribution()[0].log().detach()

    def against_the_optimum(name, recipe, beta):
        logps = run(name, recipe)
        best = rlhf.optimal_value(ref_logps, world.rewards, beta=beta)
        reached = equations.rlhf_objective(logps, ref_logps, world.rewards, beta=beta)
        numbers[f"{name}_gap"] = float(best - reached)
        earned = world.rewards - beta * (logps - ref_logps)  # by each reply, its charge paid
        centred = earned - exact.expectation(logps.exp(), earned)
        numbers[f"{name}_spread"] = float(exact.expectation(logps.exp(), centred**2).sqrt())

    for beta in BETAS:
        for name, recipe in (("rloo", RLOO), ("grpo", GRPO)):
            against_the_optimum(f"{name}_{beta:g}", recipe.with_(beta=beta), beta)
        run(f"reversed_{beta:g}", RLOO.with_(beta=beta, estimator=lambda logps, ref_logps: kl.k1(ref_logps, logps)))
    # One choice at a time, from RLOO to GRPO, at β = ½.
    against_the_optimum("zscore_k1_in_reward", RLOO.with_(advantage=group_zscore, beta=0.5), 0.5)
    against_the_optimum("loo_k2_in_loss", RLOO.with_(kl=KLInLoss(kl.k2, 0.5)), 0.5)
    against_the_optimum("loo_k3_in_loss", RLOO.with_(kl=KLInLoss(kl.k3, 0.5)), 0.5)
    run("no_kl", RLOO.with_(kl=None))
    for passes in (1, 2, 4, 8):
        run(f"passes_{passes}", GRPO.with_(num_iterations=passes), short)
    return numbers


def probe() -> dict[str, float | str]:
    """Every run of the study, for two steps."""
    two = replace(TOY_RUN, max_steps=2)
    return one_seed(0, two, two) | settings(run=TOY_RUN, rloo=RLOO, grpo=GRPO)


STUDY = Study(one_seed, probe)

if __name__ == "__main__":
    STUDY.main(__file__)
