"""Ensembles of reward models on a trained language model. The members share one initial transformer, as fine-tuned
reward models do."""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.feedback.rewards import model_reward
from minirlhf_course.chapters.ch20_overoptimization.language_model import (
    LanguagePlan,
    LanguageWorld,
    calibrated,
    train_proxy,
)


def more_grades(world: LanguageWorld, plan: LanguagePlan, *, count: int = 2) -> Tensor:
    """Return the scores of further reward models for ``world.texts``, ``(count, P, M)``, in units of gold.

    They are trained on the world's comparisons from its transformer. They differ from its proxy in the head's initial
    weights and the order of the data.
    """
    rows = []
    for k in range(count):
        seed = 1000 * (k + 1) + plan.reward.training.seed
        raw = model_reward(train_proxy(world.start, world.pairs, plan, seed=seed), world.start.tokenizer)
        scores = torch.tensor(raw(world.problems, world.texts), dtype=torch.float64).view_as(world.drawn[0])
        rows.append(calibrated(raw, scores, world.drawn[1])[1])
    return torch.stack(rows)
