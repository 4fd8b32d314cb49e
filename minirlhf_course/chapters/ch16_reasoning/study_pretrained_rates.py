"""Dr. GRPO on a pretrained model at two other learning rates: ``python -m minirlhf_course.chapters.ch16_reasoning.study_pretrained_rates`` (about 12 minutes of one core).

The same questions and settings as seed 0 of ``study_pretrained``, with rates a third and three times as large. Writes
``study_pretrained_rates.json``.
"""

import math

from minirlhf.core.randomness import threads
from minirlhf_course.chapters.ch16_reasoning.pretrained import PLAN, questions, recorded, run_rate
from minirlhf_course.chapters.ch16_reasoning.pretrained_claims import accuracy, divergence, entropy
from minirlhf_course.evidence import Study, settings

RATES = {"low": 6e-6, "high": 6e-5}


def one_seed(seed: int) -> dict[str, float]:
    """Accuracy, KL and entropy after each of the runs."""
    numbers = {}
    for name, rate in RATES.items():
        with threads(1):
            record = recorded(f"rate_{name}", PLAN, lambda start, rate=rate: run_rate(start, PLAN, seed, rate))
        numbers |= measured(name, record["rl"])
    return numbers


def measured(name: str, rows: list[dict[str, object]]) -> dict[str, float]:
    """Accuracy, KL and entropy of the completions of a run."""
    return {f"{name}_right": accuracy(rows), f"{name}_kl": divergence(rows), f"{name}_neg_logp": entropy(rows)}


def probe() -> dict[str, float | str]:
    """The measurements of three completions; ``study_pretrained`` probes the runs."""
    row = {"grade": [1, 0, 1], "logp": [-0.5, -2.0, -1.0], "base": [-3.0, -1.0, -1.5], "length": [2, 3, 2]}
    asked = questions(PLAN, 0)[0]
    numbers = measured("one", [row]) | {"asked": float(math.fsum(q.a for q in asked))}
    return numbers | settings(plan=PLAN, **RATES)


STUDY = Study(one_seed, probe, seeds=1)

if __name__ == "__main__":
    STUDY.main(__file__)
