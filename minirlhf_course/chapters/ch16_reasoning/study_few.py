"""RL on a few questions, in a table: ``python -m minirlhf_course.chapters.ch16_reasoning.study_few`` (half a minute of one core).

Twenty seeds, 300 to 319: outcomes of the same two, eight or thirty-two questions over and over, and of a new question in each update, on equally
many sampled steps. Right ends on the questions that were asked, and on others. The rates were chosen on ten other seeds. Writes ``study_few.json``.
"""

import torch
from torch import Tensor

from minirlhf.core.randomness import generator
from minirlhf_course.chapters.ch16_reasoning.credit_tables import (
    StepChain,
    StepCredit,
    begin,
    credited,
    questions,
    right_ends,
)
from minirlhf_course.evidence import Study, settings

PLAN = StepChain()
RATES = {2: 8.0, 8: 8.0, 32: 8.0, 0: 8.0}


def trained_on(few: Tensor | None, rate: float, plan: StepChain, seed: int) -> Tensor:
    """Logits ``(kinds, 5)`` after the budget, from questions ``(Q, steps)`` or from new ones; every update draws one of them."""
    draws, logits, used = generator("on few", seed), begin(plan), 0
    while used < plan.budget:
        asked = questions(plan, 1, draws)[0] if few is None else few[int(torch.randint(len(few), (), generator=draws))]
        slope, taken = credited(logits, asked, StepCredit("outcome", rate), plan, draws)
        logits, used = logits + rate * slope, used + taken
    return logits


def one_seed(seed: int, plan: StepChain = PLAN) -> dict[str, float]:
    """Every number of questions; 0 stands for new ones."""
    asked = questions(plan, 500, generator("asked", seed))
    numbers = {"start": right_ends(begin(plan), asked)}
    for count, rate in RATES.items():
        few = questions(plan, count, generator("few", seed)) if count else None
        logits = trained_on(few, rate, plan, seed)
        numbers[f"right_{count}"] = right_ends(logits, asked)
        if few is not None:
            numbers |= {f"own_{count}": right_ends(logits, few), f"kinds_{count}": few.unique().numel() / plan.kinds}
    return numbers


def probe() -> dict[str, float | str]:
    """A few updates of each."""
    return one_seed(1, StepChain(steps=4, kinds=6, group=4, budget=600)) | settings(
        plan=PLAN, **{f"rate_{count}": rate for count, rate in RATES.items()}
    )


STUDY = Study(one_seed, probe, seeds=20, first_seed=300)

if __name__ == "__main__":
    STUDY.main(__file__)
