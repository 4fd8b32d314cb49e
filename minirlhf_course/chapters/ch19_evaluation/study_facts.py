"""A world in which it is known what a model can know: ``python -m minirlhf_course.chapters.ch19_evaluation.study_facts`` (about two minutes).

Ten seeds. Of each, one model that has read the world's texts, its two tuned copies, the one that cites and the one that lists. The answers of the tuned models are about
names that they were not tuned on.
"""

from dataclasses import replace

from minirlhf.equations.reward_losses import expected_calibration_error
from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch19_evaluation import facts
from minirlhf_course.evidence import Study, settings

#: What a wrong answer costs.
PENALTY = 3.0


def answered(prefix: str, found: facts.GradedAnswers) -> dict[str, float]:
    """Rates, what they earn, and what the confidence in what was answered is worth."""
    threshold = PENALTY / (1 + PENALTY)
    numbers = {f"{prefix}_{key}": value for key, value in found.rates().items()}
    numbers[f"{prefix}_earned"] = found.earned(PENALTY)
    numbers[f"{prefix}_chosen_earned"] = found.earned(PENALTY, from_confidence=threshold)
    numbers[f"{prefix}_surely_wrong"] = float(
        ((found.confidence >= threshold) & ~found.right & ~found.silent).double().mean()
    )
    risks = found.risks()
    for part in (1, 2):  # of all that was asked, thirds
        at = len(found.right) * part // 3
        numbers[f"{prefix}_risk_{part}"] = float(risks[min(at, len(risks)) - 1]) if len(risks) else 0.0
    said = ~found.silent
    if said.any():
        confidence, right = found.confidence[said].double(), found.right[said].double()
        numbers[f"{prefix}_confidence"] = float(confidence.mean())
        numbers[f"{prefix}_overconfidence"] = float((confidence - right).mean())
        numbers[f"{prefix}_calibration"] = float(expected_calibration_error(confidence, right))
    return numbers


def one_seed(
    seed: int,
    reading: SFTConfig = facts.READING,
    tuning: SFTConfig = facts.TUNING,
    listing: SFTConfig = facts.LISTING,
    texts: int = facts.TEXTS,
) -> dict[str, float]:
    """Five models and what they answer."""
    world = facts.FactWorld.of(seed)
    knower = facts.model(world, plan=reading, texts=texts)
    numbers: dict[str, float] = {}
    for group in facts.GROUPS:
        numbers |= answered(f"all_{group}", facts.asked(knower, world.groups[group], world.city))
    numbers |= answered("all", facts.asked(knower, facts.NAMES, world.city))
    for source in ("wiki", "forum"):
        numbers[f"repeats_{source}"] = facts.by_source(knower, world, source)
    cited = facts.cited(facts.citing(knower, world, plan=tuning), world)
    numbers |= {f"cited_{key}": value for key, value in cited.items()}
    numbers |= {f"choice_{key}": value for key, value in facts.multiple_choice(knower, world).items()}
    models = {"plain": knower} | {how: facts.taught(knower, world, how, plan=tuning) for how in ("truth", "abstain")}
    for how, of in models.items():
        groups = {group: facts.asked(of, names, world.city) for group, names in facts.halves(world)[1].items()}
        numbers |= answered(how, facts.GradedAnswers.joined(groups.values()))
        for group, found in groups.items():
            numbers |= {f"{how}_{group}_{key}": value for key, value in found.rates().items()}
        if how == "plain":  # a threshold from the answers by which the others were tuned
            fitted = facts.earns_most(facts.asked(of, facts.halves(world)[0], world.city), PENALTY)
            numbers["plain_fitted"] = min(fitted, 1.0)
            numbers["plain_fitted_earned"] = facts.GradedAnswers.joined(groups.values()).earned(
                PENALTY, from_confidence=fitted
            )
    for name, rehearsed in (("listed", 20), ("unrehearsed", 0)):
        found_lists = facts.verified(knower, world, plan=listing, rehearsed=rehearsed)
        numbers |= {f"{name}_{key}": value for key, value in found_lists.items()}
    return numbers


def probe() -> dict[str, float | str]:
    """Three steps of every model."""
    plans = {"reading": facts.READING, "tuning": facts.TUNING, "listing": facts.LISTING}
    found = one_seed(0, **{name: replace(plan, max_steps=3) for name, plan in plans.items()}, texts=60)
    return found | settings(**plans)


STUDY = Study(one_seed, probe, seeds=10)

if __name__ == "__main__":
    STUDY.main(__file__)
