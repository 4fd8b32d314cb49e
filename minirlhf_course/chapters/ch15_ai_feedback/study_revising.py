"""Critique and revise, round by round, beside the law of the flaws that are left: ``python -m minirlhf_course.chapters.ch15_ai_feedback.study_revising`` (about three minutes of one core).

Five seeds, each with a model that writes, criticises and revises. The rates of the law are measured on one revision of first replies of their own;
the chains begin with others. Writes ``study_revising.json``.
"""

from __future__ import annotations

from dataclasses import replace

from minirlhf_course.chapters.ch15_ai_feedback import revising as lab
from minirlhf_course.chapters.ch15_ai_feedback.revising import FLAWS, RevisingPlan
from minirlhf_course.evidence import Study, settings

PLAN = RevisingPlan()


def one_seed(seed: int, plan: RevisingPlan = PLAN) -> dict[str, float]:
    """Critiques, rates, chains, the law, and a policy fine-tuned on what the chains end in."""
    model = lab.taught(plan, seed)
    tested, trained = (lab.in_turn(lab.asked(split), plan.chains) for split in ("test", "train"))
    others = lab.chains(model, tested, 0, seed + 1000).replies[0]
    numbers = {f"critique_{k}": x for k, x in lab.critiques_right(model, tested, others, seed).items()}
    measured = lab.rates(model, tested, others, seed)
    numbers |= {f"{change}_{k}": x for k, found in measured.items() for change, x in found.items()}
    truly = lab.rates(model, tested, others, seed, critic=False)
    numbers |= {f"true_critic_repair_{k}": found["repair"] for k, found in truly.items()}

    chains = lab.chains(model, tested, plan.rounds, seed)
    first = chains.flaws(0)
    for number in range(plan.rounds + 1):
        found = chains.flaws(number)
        numbers[f"gold_{number}"] = chains.gold(number)
        numbers[f"flaws_{number}"] = sum(found.values()) / len(found)
        numbers |= {f"{k}_{number}": x for k, x in found.items()}
        by_flaw = {k: lab.predicted(measured[k], first[k], number) for k in FLAWS}
        numbers |= {f"law_{k}_{number}": x for k, x in by_flaw.items()}
        numbers[f"law_{number}"] = sum(by_flaw.values()) / len(by_flaw)
        mean = {change: sum(measured[k][change] for k in FLAWS) / len(FLAWS) for change in ("repair", "harm")}
        numbers[f"pooled_law_{number}"] = lab.predicted(mean, numbers["flaws_0"], number)

    learnt_from = lab.chains(model, trained, plan.rounds, seed + 2000)
    numbers["plain_before"] = lab.plain_gold(model, tested, seed)
    for name, replies in (("revised", learnt_from.replies[-1]), ("unrevised", learnt_from.replies[0])):
        policy = lab.kept(model, trained, replies, plan, seed)
        numbers[f"plain_{name}"] = lab.plain_gold(policy, tested, seed)
    return numbers


def probe() -> dict[str, float | str]:
    """A model after some steps, one round, few chains."""
    plan = replace(
        PLAN, lessons=480, training=replace(PLAN.training, max_steps=30, batch_size=16), chains=32, rounds=1,
        kept=replace(PLAN.kept, max_steps=2, batch_size=8),
    )  # fmt: skip
    return one_seed(1, plan) | settings(plan=PLAN)


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
