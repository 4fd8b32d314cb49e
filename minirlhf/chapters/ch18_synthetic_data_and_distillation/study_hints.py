"""A model that teaches itself with a hint: ``python -m minirlhf.chapters.ch18_synthetic_data_and_distillation.study_hints`` (about ten minutes).

Ten base models. Each learns from 3,200 answers in four ways: its own answers compared with what it says with the hint; the right answers
compared so; the right answers imitated; its own answers rewarded if they are right. Learning rates were tried on seed 100: 5e-4 and 1e-3
and 2e-3 for all. Writes ``study_hints.json``.
"""

from dataclasses import replace

import torch

from minirlhf.chapters.ch18_synthetic_data_and_distillation import hinted
from minirlhf.chapters.ch18_synthetic_data_and_distillation.hinted import BASE, DISTILL, IMITATE, ONLINE, Answered
from minirlhf.equations.synthetic import compounded_errors
from minirlhf.evidence import Study, settings, trace
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.distill import DistillConfig
from minirlhf.trainers.sft import SFTConfig

ROWS = {"own": "on_policy_kd", "given": "kd"}


def told(name: str, found: Answered) -> dict[str, float]:
    """Numbers of a model, and how many errors the law predicts from its error and recovery."""
    rates = torch.tensor([found.error, found.recovery], dtype=torch.float64)
    expected = compounded_errors(*rates, length=hinted.DIGITS)
    return {f"{name}_{key}": value for key, value in vars(found).items()} | {f"{name}_expected": float(expected)}


def one_seed(
    seed: int, plan: SFTConfig = BASE, distill: DistillConfig = DISTILL, imitate: SFTConfig = IMITATE,
    online: OnlineConfig = ONLINE, asked: int = hinted.ASKED,
) -> dict[str, float]:  # fmt: skip
    """Every run with one seed."""
    start = hinted.base(replace(plan, seed=seed))
    runs = {name: hinted.distilled(start, row, replace(distill, seed=seed)) for name, row in ROWS.items()}
    runs["imitated"] = hinted.imitated(start, replace(imitate, seed=seed))
    runs["rewarded"] = hinted.rewarded(start, replace(online, seed=seed))
    numbers = told("base", hinted.answered(start, asked=asked)) | told(
        "hinted", hinted.answered(start, hint=True, asked=asked)
    )
    for name, model in runs.items():
        numbers |= told(name, hinted.answered(model, asked=asked))
    return numbers


def probe() -> dict[str, float | str]:
    """Two steps of each."""
    two: dict[str, int] = {"max_steps": 2, "batch_size": 4}
    start = hinted.base(replace(BASE, **two))
    runs: dict[str, Trained] = {
        name: hinted.distilled(start, row, replace(DISTILL, **two)) for name, row in ROWS.items()
    }
    runs |= {"imitated": hinted.imitated(start, replace(IMITATE, **two))}
    runs |= {"rewarded": hinted.rewarded(start, replace(ONLINE, max_steps=2, batch_size=2, num_generations=4))}
    numbers = {key: value for name, run in runs.items() for key, value in trace(name, run.history).items()}
    numbers |= told("base", hinted.answered(start, asked=4)) | told("hint", hinted.answered(start, hint=True, asked=4))
    return numbers | settings(base=BASE, distill=DISTILL, imitate=IMITATE, online=ONLINE)


STUDY = Study(one_seed, probe, seeds=10)

if __name__ == "__main__":
    STUDY.main(__file__)
