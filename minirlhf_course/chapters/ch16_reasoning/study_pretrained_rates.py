"""The runs on a pretrained model at two other learning rates: ``python -m minirlhf_course.chapters.ch16_reasoning.study_pretrained_rates`` (about 15 minutes of one core).

The same questions and settings as seed 0 of ``study_pretrained``, with learning rates a third and three times as large,
for RL, SFT and DPO. Writes ``study_pretrained_rates.json``.
"""

from typing import Any

import numpy as np

from minirlhf.core.randomness import threads
from minirlhf_course.chapters.ch16_reasoning.pretrained import PLAN, questions, recorded, run_rate, run_seed
from minirlhf_course.chapters.ch16_reasoning.pretrained_claims import accuracy, divergence, entropy
from minirlhf_course.evidence import Study, settings

FACTORS = {"low": 1 / 3, "high": 3.0}


def one_seed(seed: int) -> dict[str, float]:
    """Accuracy, KL and entropy after RL and SFT, and the change of DPO's chosen completions, also in the main study's run of this seed."""
    numbers = {}
    for name, factor in FACTORS.items():
        with threads(1):
            record = recorded(f"rate_{name}", PLAN, lambda start, factor=factor: run_rate(start, PLAN, seed, factor))
        numbers |= measured(name, record)
    return numbers | measured("middle", recorded(f"seed_{seed}", PLAN, lambda start: run_seed(start, PLAN, seed)))


def measured(name: str, record: dict[str, Any]) -> dict[str, float]:
    """The measurements of the runs at one rate."""
    numbers = {}
    for run in ("rl", "sft"):
        rows = record[run]
        numbers |= {f"{name}_{run}_right": accuracy(rows), f"{name}_{run}_kl": divergence(rows)}
        numbers[f"{name}_{run}_neg_logp"] = entropy(rows)
    dpo = record["dpo"]
    return numbers | {f"{name}_dpo_chosen": float(np.mean(np.subtract(dpo["chosen_dpo"], dpo["chosen_base"])))}


def probe() -> dict[str, float | str]:
    """The measurements of a record made by hand; ``study_pretrained`` probes the runs."""
    row = {"grade": [1, 0, 1], "logp": [-0.5, -2.0, -1.0], "base": [-3.0, -1.0, -1.5], "length": [2, 3, 2]}
    record = {"rl": [row], "sft": [row], "dpo": {"chosen_base": [-1.0, -2.0], "chosen_dpo": [-3.0, -1.0]}}
    asked = questions(PLAN, 0)[0]
    numbers = measured("one", record) | {"asked": float(sum(q.a for q in asked))}
    return numbers | settings(plan=PLAN, **FACTORS)


STUDY = Study(one_seed, probe, seeds=1)

if __name__ == "__main__":
    STUDY.main(__file__)
