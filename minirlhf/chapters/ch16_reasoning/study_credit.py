"""Credit from outcomes and from continuations in a table: ``python -m minirlhf.chapters.ch16_reasoning.study_credit`` (40 seconds of one core).

Twenty seeds, 200 to 219. Once as many sampled steps for each kind of credit, continuations among them, once as many updates. The rates were chosen from 4, 8
and 16 on twenty other seeds, for each of the two; 2 and 32 were worse on four of them. Writes ``study_credit.json``.
"""

from dataclasses import replace

from minirlhf.chapters.ch16_reasoning.credit_tables import (
    StepChain,
    StepCredit,
    begin,
    beta_of_best,
    noise,
    questions,
    right_ends,
    trained,
)
from minirlhf.core.randomness import generator
from minirlhf.evidence import Study, settings

PLAN = StepChain()
UPDATES = 150
#: Rates for equal samples and for equal updates.
ARMS = {
    "outcome": (StepCredit("outcome", 8.0), StepCredit("outcome", 8.0)),
    "cloned": (StepCredit("cloned", 8.0), StepCredit("cloned", 8.0)),
    "one": (StepCredit("continued", 8.0, 1), StepCredit("continued", 4.0, 1)),
    "four": (StepCredit("continued", 16.0, 4), StepCredit("continued", 16.0, 4)),
    "exact": (StepCredit("exact", 16.0), StepCredit("exact", 16.0)),
}
PASSED = (0.1, 0.5)


def one_seed(seed: int, plan: StepChain = PLAN, updates: int = UPDATES, draws: int = 200) -> dict[str, float]:
    """Every kind of credit: the noise of its first gradient, what an update costs, and right ends at equal samples and at equal updates."""
    numbers = {"start": right_ends(begin(plan), questions(plan, 500, generator("asked", seed)))}
    for name, (of_samples, of_updates) in ARMS.items():
        found = trained(of_samples, plan, seed)
        numbers |= {f"{name}_samples": found["right"], f"{name}_cost": found["cost"]}
        equal = replace(plan, budget=10**9, updates=updates)
        numbers[f"{name}_updates"] = trained(of_updates, equal, seed)["right"]
        numbers[f"{name}_noise"] = noise(of_samples, plan, seed, draws)
    return numbers | {f"beta_{round(10 * passed)}": beta_of_best(passed, 8) for passed in PASSED}


def probe() -> dict[str, float | str]:
    """A few updates of each."""
    small = StepChain(steps=4, kinds=6, group=4, budget=600)
    return one_seed(1, small, 5, 20) | settings(
        plan=PLAN, **{f"{name}_{i}": arm for name, two in ARMS.items() for i, arm in enumerate(two)}
    )


STUDY = Study(one_seed, probe, seeds=20, first_seed=200)

if __name__ == "__main__":
    STUDY.main(__file__)
