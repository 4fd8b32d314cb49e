"""DPO against the proxy that it is: no reward model, the same comparisons, measured as it goes."""

from __future__ import annotations

import copy

import torch

from minirlhf.chapters.ch20_overoptimization.curves import Curve
from minirlhf.chapters.ch20_overoptimization.language_model import LanguageWorld
from minirlhf.feedback.rewards import task_problems
from minirlhf.models.sampling import Sampling
from minirlhf.recipes.offline import get_preference
from minirlhf.stages import pipeline
from minirlhf.trainers.evaluation import evaluate
from minirlhf.trainers.offline import OfflineConfig, train_offline


def dpo(
    world: LanguageWorld,
    *,
    segments: int = 10,
    steps: int = 50,
    learning_rate: float = 1e-3,
    beta: float = 0.05,
    seed: int = 0,
    quiet: bool = True,
) -> Curve:
    """DPO on the same comparisons, measured after every ``steps`` updates on fresh replies to all test prompts.

    Each segment starts its optimizer anew; the reference stays the policy at the start. With 1,600 comparisons a segment is
    one pass over them.
    """
    model = copy.deepcopy(world.start.model)
    ref_model = copy.deepcopy(world.start.model).requires_grad_(False).eval()
    tokenizer, task = world.start.tokenizer, world.task
    examples = pipeline.pair_tokens(tokenizer, world.pairs)
    problems = task_problems(task, "test")
    scores, worth = world.drawn
    rows = [(0.0, float(scores.mean()), float(worth.mean()))]
    for segment in range(segments):
        config = OfflineConfig(max_steps=steps, batch_size=32, learning_rate=learning_rate, seed=1000 * seed + segment)
        train_offline(
            model,
            examples,
            get_preference("dpo").with_(beta=beta),
            config,
            pad_token_id=tokenizer.pad_token_id,
            ref_model=ref_model,
            quiet=quiet,
        )
        found = evaluate(
            model,
            problems,
            world.gold,
            tokenizer=tokenizer,
            sampling=Sampling(max_completion_length=task.max_completion_length),
            ref_model=ref_model,
            seed=seed,
        )
        proxy = world.proxy(found.problems, found.completions)
        rows.append((max(0.0, found.divergence.mean) ** 0.5, sum(proxy) / len(proxy), found.reward.mean))
    return Curve(*torch.tensor(rows, dtype=torch.float64).T)
