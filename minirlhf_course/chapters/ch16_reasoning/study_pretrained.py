"""Twelve claims of the book on a pretrained model: ``python -m minirlhf_course.chapters.ch16_reasoning.study_pretrained`` (about 25 minutes of one core).

The model is SmolLM2-135M-Instruct (``make real``). Three seeds, each with its own questions: Dr. GRPO and SFT on
additions, DPO on pairs of the base model's own completions, and a control without training. A seed's completions are stored beside this file, and are
sampled again only if the plan changes. Writes ``study_pretrained.json``.
"""

from minirlhf.core.randomness import threads
from minirlhf.recipes import DR_GRPO
from minirlhf.recipes.offline import PREFERENCES
from minirlhf_course.chapters.ch16_reasoning.pretrained import (
    PLAN,
    beginner,
    brief_plan,
    questions,
    recorded,
    run_rate,
    run_repeated,
    run_seed,
)
from minirlhf_course.chapters.ch16_reasoning.pretrained_claims import (
    CLAIMS,
    describe_repeated,
    divergence,
    measure,
)
from minirlhf_course.evidence import Study, settings
from minirlhf_course.evidence.claims import verdicts


def one_seed(seed: int) -> dict[str, float]:
    """All claims with one seed, on one thread."""
    with threads(1):
        record = recorded(f"seed_{seed}", PLAN, lambda start: run_seed(start, PLAN, seed))
        control = recorded(f"repeated_{seed}", PLAN, lambda start: run_repeated(start, PLAN, seed))
    costs = {f"minutes_{name}": seconds / 60 for name, seconds in record["seconds"].items()}
    return (
        measure(record)
        | describe_repeated(control, record)
        | costs
        | {"minutes": sum(costs.values()), "memory": record["memory"]}
    )


def probe() -> dict[str, float | str]:
    """Two steps of every run, from a tiny model."""
    plan = brief_plan()
    start = beginner(plan)
    record = run_seed(start, plan, 1)
    numbers = measure(record)
    for name, history in (("rl", record["rl_metrics"]), ("sft", record["sft_metrics"])):
        numbers |= {f"{name}_{key}_{step}": x for key, values in history.items() for step, x in enumerate(values)}
    found = verdicts(CLAIMS, [numbers, numbers, numbers])
    numbers |= {f"{name}_{part}": getattr(v, part) for name, v in found.items() for part in ("lowest", "confirmed")}
    numbers |= describe_repeated(run_repeated(start, plan, 1), record)
    faster = run_rate(start, plan, 1, 3.0)
    numbers |= {f"faster_{name}": divergence(faster[name]) for name in ("rl", "sft")}
    numbers["faster_dpo"] = sum(faster["dpo"]["chosen_dpo"])
    train, held_out, _ = questions(PLAN, 0)
    numbers |= {"asked": float(sum(q.a + q.b for q in train)), "asked_held_out": float(sum(q.a for q in held_out))}
    return numbers | settings(plan=PLAN, rl=DR_GRPO, dpo=PREFERENCES["dpo"].with_(beta=PLAN.beta))


STUDY = Study(one_seed, probe, seeds=3)

if __name__ == "__main__":
    STUDY.main(__file__)
