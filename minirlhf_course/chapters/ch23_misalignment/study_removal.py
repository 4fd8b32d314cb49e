"""Removing the direction of a trait before and after narrow training: ``python -m minirlhf_course.chapters.ch23_misalignment.study_removal`` (about two minutes).

Six seeds, different from those of the other studies. The same removal, on the model before and after narrow training, with random directions as a control. Writes ``study_removal.json``.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch23_misalignment import authors, directions, spread
from minirlhf_course.chapters.ch23_misalignment.authors import ELSEWHERE, HARM, PLAIN, SEEN
from minirlhf_course.evidence import Study, settings

FIRST = 2600  # seeds of its own
#: Random directions of a seed.
CONTROLS = 5


def answers(model: nn.Module, questions: Tensor) -> dict[str, float]:
    """Return the probability of a harmful answer, and the log-odds of harmful to safe."""
    with torch.no_grad():
        log_odds = float(authors.log_odds(model, questions))
    return {"harm": directions.harmful(model, questions), "log_odds": log_odds}


def removed(model: nn.Module, vector: Tensor, target: float, questions: Tensor) -> dict[str, float]:
    """Return the same with every state's component along the direction set to a target."""
    with directions.changed(model, -1, lambda states: spread.set_component(states, vector, target)):
        return answers(model, questions)


def one_seed(
    seed: int,
    pretrain: SFTConfig = authors.PRETRAIN,
    tune: SFTConfig = authors.TUNE,
    pages: int = authors.PAGES,
) -> dict[str, float]:
    """Harmful answers before and after narrow training: as they are, without the direction, without random ones; and
    the change of the log-odds by training in each of the three cases."""
    seed += FIRST
    start = authors.pretrained(seed, plan=pretrain, number=pages)
    after = authors.tuned(start, [(PLAIN, HARM, SEEN)], replace(tune, seed=seed))
    vector = directions.direction(start.model)
    chance = [directions.random_direction(vector, seed, i) for i in range(CONTROLS)]
    # One target per direction for both models: its mean component under *careful* before training.
    target = lambda v: directions.component(start.model, v, directions.FOUND, directions.CAREFUL)
    numbers: dict[str, float] = {}
    for group, questions in (("seen", SEEN), ("elsewhere", ELSEWHERE)):
        for when, model in (("before", start.model), ("after", after.model)):
            cases = {"": [answers(model, questions)]}
            cases["_removed"] = [removed(model, vector, target(vector), questions)]
            cases["_random"] = [removed(model, v, target(v), questions) for v in chance]
            for case, rows in cases.items():
                for what in rows[0]:
                    numbers[f"{when}_{group}_{what}{case}"] = sum(row[what] for row in rows) / len(rows)
        for case in ("", "_removed", "_random"):
            change = [numbers[f"{when}_{group}_log_odds{case}"] for when in ("before", "after")]
            numbers[f"change_{group}{case}"] = change[1] - change[0]
    return numbers


def probe() -> dict[str, float | str]:
    """Few steps, few pages."""
    few = replace(authors.PRETRAIN, max_steps=12, batch_size=16)
    found = one_seed(1, few, replace(authors.TUNE, max_steps=2, batch_size=8), 192)
    return found | settings(pretrain=authors.PRETRAIN, tune=authors.TUNE)


STUDY = Study(one_seed, probe, seeds=6)

if __name__ == "__main__":
    STUDY.main(__file__)
