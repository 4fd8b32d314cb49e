"""Long to short, four ways: ``python -m minirlhf_course.chapters.ch16_reasoning.study_shorter`` (about five minutes of one core).

Games of one to six swaps, five seeds. A model that mostly thinks six steps, whatever the game; its mean with one that mostly thinks one; fine-tuning
on its shortest right replies; DPO with these against longer ones; RL with Kimi's reward for length, and on answers alone. Every way but the mean has
7,680 replies sampled and 60 updates. Each is measured at two settings, after a look at a few on one other seed, 90. On 600 games. Writes
``study_shorter.json``.
"""

from dataclasses import replace

from minirlhf_course.chapters.ch16_reasoning.shorter import (
    Shortening,
    measured,
    merged,
    preferred,
    reinforced,
    sampled,
    shortest,
    starts,
)
from minirlhf_course.evidence import Study, brief, settings, trace

PLAN = Shortening()


def one_seed(seed: int, plan: Shortening = PLAN, count: int = 600) -> dict[str, float]:
    """Every model with one seed."""
    plan = plan.with_seed(seed)
    policies = starts(plan)
    long = policies["long"]
    found = sampled(long, plan)
    short = policies["short"]
    policies |= {f"merged_{i}": merged(long, short, share) for i, share in enumerate(plan.shares)}
    policies |= {f"shortest_{i}": shortest(long, found, plan, rate) for i, rate in enumerate(plan.rates)}
    policies |= {f"preferred_{i}": preferred(long, found, plan, rate) for i, rate in enumerate(plan.dpo_rates)}
    policies |= {f"reinforced_{i}": reinforced(long, plan, weight) for i, weight in enumerate(plan.weights)}
    return {
        f"{name}_{key}": value for name, policy in policies.items() for key, value in measured(policy, count).items()
    }


def probe() -> dict[str, float | str]:
    """A little of each, from brief starts."""
    few = replace(
        PLAN, base=brief(PLAN.base, 40, batch_size=16, demonstrations=640), long=brief(PLAN.long, demonstrations=64),
        short=brief(PLAN.short, demonstrations=64), prompts=24, of_each=4,
        kept=replace(PLAN.kept, max_steps=3, batch_size=8), dpo=brief(PLAN.dpo, batch_size=8),
        rl=brief(PLAN.rl, 3, batch_size=4, num_generations=4),
    )  # fmt: skip
    begun = starts(few.with_seed(1))
    found = sampled(begun["long"], few)
    numbers = one_seed(1, few, 60) | trace("base", begun["base"].history) | trace("long", begun["long"].history)
    numbers |= trace("dpo", preferred(begun["long"], found, few, 1e-4).history)
    numbers |= trace("rl", reinforced(begun["long"], few, 0.3).history, "grad_norm", "reward")
    return numbers | settings(plan=PLAN)


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
