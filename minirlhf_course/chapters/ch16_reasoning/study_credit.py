"""Credit from outcomes and from continuations in a table: ``python -m minirlhf_course.chapters.ch16_reasoning.study_credit`` (two minutes of one core).

Forty seeds, 400 to 439. Each kind of credit for as many updates, at one rate and at twice that rate, which some runs do not survive; and for as many
sampled steps, continuations among them, at the rate of 4, 8 and 16 that served it best on twenty other seeds. The noise of its gradient is that
at the first policy and that at one which has learned from outcomes. Writes ``study_credit.json``.
"""

from dataclasses import replace

from minirlhf.core.randomness import generator
from minirlhf_course.chapters.ch16_reasoning.credit_tables import (
    StepChain,
    StepCredit,
    begin,
    beta_of_best,
    learned,
    noise,
    questions,
    right_ends,
)
from minirlhf_course.evidence import Study, settings

PLAN = StepChain()
UPDATES, LATE = 150, 60
RATES = {"slow": 8.0, "fast": 16.0}
#: With the rates for equal samples.
ARMS = {
    "outcome": StepCredit("outcome", 8.0),
    "cloned": StepCredit("cloned", 8.0),
    "one": StepCredit("continued", 8.0, 1),
    "four": StepCredit("continued", 16.0, 4),
    "exact": StepCredit("exact", 16.0),
}
PASSED = (0.1, 0.5)


def one_seed(
    seed: int, plan: StepChain = PLAN, updates: int = UPDATES, late: int = LATE, draws: int = 60
) -> dict[str, float]:
    """Every kind of credit: its noise, what an update costs, and right ends at equal updates and at equal samples."""
    asked = questions(plan, 500, generator("asked", seed))
    equal = replace(plan, budget=10**9, updates=updates)
    places = {"first": begin(plan), "late": learned(ARMS["outcome"], replace(equal, updates=late), seed)[0]}
    numbers = {f"right_{place}": right_ends(logits, asked) for place, logits in places.items()}
    for name, credit in ARMS.items():
        logits, numbers[f"{name}_cost"] = learned(credit, plan, seed)
        numbers[f"{name}_samples"] = right_ends(logits, asked)
        for pace, rate in RATES.items():
            logits, _ = learned(replace(credit, learning_rate=rate), equal, seed)
            numbers[f"{name}_{pace}"] = right_ends(logits, asked)
        for place, logits in places.items():
            numbers[f"{name}_noise_{place}"] = noise(credit, logits, plan, seed, draws)
    return numbers | {f"beta_{round(10 * passed)}": beta_of_best(passed, 8) for passed in PASSED}


def probe() -> dict[str, float | str]:
    """A few updates of each."""
    small = StepChain(steps=4, kinds=6, group=4, budget=600)
    return one_seed(1, small, 5, 2, 20) | settings(plan=PLAN, **ARMS)


STUDY = Study(one_seed, probe, seeds=40, first_seed=400)

if __name__ == "__main__":
    STUDY.main(__file__)
