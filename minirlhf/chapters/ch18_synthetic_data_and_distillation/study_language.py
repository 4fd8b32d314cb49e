"""Language models that learn from language models: ``python -m minirlhf.chapters.ch18_synthetic_data_and_distillation.study_language`` (about six minutes).

Five seeds. Four generations of models of documents, each trained on what the one before wrote, or on everything that was ever written, with
as many steps; and a pool of questions that a model fills, with two filters. Writes ``study_language.json``.
"""

from dataclasses import replace

import torch

from minirlhf.chapters.ch18_synthetic_data_and_distillation import generations, instructions
from minirlhf.evidence import Study, settings
from minirlhf.trainers.sft import SFTConfig

LAST, ROUNDS = 4, 2
#: ROUGE-L from which a question is one that the pool has: as in Self-Instruct, and so that one word may differ.
ALIKE = {"strict": 0.7, "loose": 0.9}


def one_seed(
    seed: int, pages: SFTConfig = generations.TRAINING, questions: SFTConfig = instructions.TRAINING,
    last: int = LAST, rounds: int = ROUNDS, written: int = instructions.WRITTEN,
) -> dict[str, float]:  # fmt: skip
    """Both worlds with one seed; of the questions of all rounds together, how many a filter keeps, and how many of these are valid."""
    numbers: dict[str, float] = {}
    for name, keep in (("replace", False), ("accumulate", True)):
        line = generations.lineage(keep=keep, seed=seed, generations=last, plan=pages)
        for g, one in enumerate(line, 1):
            numbers |= {f"{name}_nats_{g}": one.real_nats, f"{name}_triples_{g}": one.triples}
    for name, alike in ALIKE.items():
        found = instructions.grow(alike=alike, seed=seed, rounds=rounds, plan=questions, written=written)
        valid, novel, likely = (torch.cat([getattr(r, key) for r in found]) for key in ("valid", "novel", "likely"))
        filters = {"written": torch.ones_like(valid), "novel": novel, "likely": likely, "both": novel & likely}
        for key, kept in filters.items():
            numbers |= {f"{name}_{key}": float(kept.sum()), f"{name}_{key}_valid": float((kept & valid).sum())}
        numbers |= {f"{name}_pool": float(found[-1].pool), f"{name}_junk": float(found[-1].junk)}
    return numbers


def probe() -> dict[str, float | str]:
    """Two steps of every model."""
    pages, questions = replace(generations.TRAINING, max_steps=2), replace(instructions.TRAINING, max_steps=2)
    numbers = one_seed(0, pages, questions, last=2, rounds=2, written=6)
    return numbers | settings(pages=generations.TRAINING, questions=instructions.TRAINING)


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
