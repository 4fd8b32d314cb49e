"""Distillation: a student matches a teacher's token distributions on completions of the data, teacher or student."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from minirlhf.core.calling import evaluating
from minirlhf.core.errors import ArgumentError
from minirlhf.core.randomness import derive_seed, generator
from minirlhf.data.collate import batch_indices, collate_completions
from minirlhf.data.types import CompletionBatch, Tokens
from minirlhf.equations.aggregation import aggregate, token_mean
from minirlhf.equations.distillation import forward_kl_distillation, sequence_level
from minirlhf.models.forward import completion_logits
from minirlhf.models.reference import require_same_vocabulary
from minirlhf.models.sampling import left_pad, sample
from minirlhf.recipes.distill import (
    Distillation,
    DistillationBatch,
    FullDistributionLoss,
    Sampled,
    TokenLoss,
    describe_distillation,
)
from minirlhf.recipes.spelling import to_config
from minirlhf.trainers.config import CompletionsConfig
from minirlhf.trainers.history import History
from minirlhf.trainers.loop import RunProvenance, TrainerCallback, TrainingLoop


@dataclass(frozen=True)
class DistillConfig(CompletionsConfig):
    """Settings of distillation. ``temperature`` applies to both distributions that are compared, and to sampling."""


def train_distill(
    model: nn.Module,
    teacher: nn.Module,
    examples: Sequence[Tokens],
    recipe: Distillation,
    config: DistillConfig,
    *,
    eos_token_id: int | Sequence[int],
    pad_token_id: int,
    seen_by_teacher: Sequence[Tokens] | None = None,
    out: Path | str | None = None,
    tokenizer: Any = None,
    resume: bool = False,
    origin: RunProvenance | None = None,
    watch: TrainerCallback | None = None,
    name: str | None = None,
    quiet: bool = False,
) -> History:
    """Minimise the recipe's loss. ``model`` is the student and is changed in place.

    Args:
        teacher: the frozen teacher. Its size may differ from the student's; its vocabulary must be the same.
        examples: prompts with completions. A step that samples its completions uses the prompts only.
        recipe: an entry of :data:`~minirlhf.recipes.distill.DISTILLATIONS`.
        seen_by_teacher: the same examples in the same order, with the teacher's own prompts, for example with a hint.
            The teacher may then be a copy of the student. None: teacher and student see the same prompts.

    Returns:
        The metrics: ``loss``, ``grad_norm``, ``learning_rate``, ``tokens`` (completion tokens per batch),
        ``own_answers`` (1 if the student sampled the completions, else 0).

    Raises:
        UserError: the recipe refuses a hyperparameter, or the two models have different vocabularies.
        ValueError: ``seen_by_teacher`` and ``examples`` differ in length.
    """
    if seen_by_teacher is not None and len(seen_by_teacher) != len(examples):
        raise ArgumentError(
            f"seen_by_teacher has {len(seen_by_teacher)} examples; expected {len(examples)}, as examples",
            argument="seen_by_teacher",
            value=len(seen_by_teacher),
            expected=len(examples),
        )
    recipe = recipe.resolved(temperature=config.temperature)
    require_same_vocabulary(model, teacher, "student", "teacher")
    model_config: Any = model.config
    recipe.validate(vocabulary=model_config.vocab_size)
    config = config.for_examples(len(examples))
    loop = TrainingLoop(
        name or recipe.name,
        model,
        config,
        settings={} if out is None else {"recipe": describe_distillation(recipe), **to_config(recipe)},
        dropout=False,
        out=out,
        tokenizer=tokenizer,
        resume=resume,
        origin=origin,
        watch=watch,
        quiet=quiet,
    )
    teacher.eval()
    for step in loop:
        rows = batch_indices(len(examples), config.batch_size, step, config.seed)
        picked = [examples[i] for i in rows]
        on_policy = float(torch.rand((), generator=generator("own answers", config.seed, step))) < recipe.own_answers
        for_teacher = picked if seen_by_teacher is None else [seen_by_teacher[i] for i in rows]
        if on_policy or recipe.from_teacher:
            sampler, prompted = (model, picked) if on_policy else (teacher, for_teacher)
            completions = sampled_completions(
                sampler, prompted, config, step, eos_token_id=eos_token_id, pad_token_id=pad_token_id
            )
        else:
            completions = collate_completions(picked, pad_token_id)
        device = next(model.parameters()).device
        batch, teacher_batch = (after(_prompts(x), completions, pad_token_id).to(device) for x in (picked, for_teacher))
        weights = recipe.weights(batch.mask)  # over the whole batch, before it is split
        metrics = loop.update(_losses(model, teacher, batch, teacher_batch, weights, recipe.compared, config))
        loop.log(**metrics, tokens=int(batch.mask.sum()), own_answers=float(on_policy))
    return loop.history


def unused_sampling_options(recipe: Distillation) -> dict[str, str]:
    """Return the sampling options without effect in this recipe, and why."""
    if recipe.samples:
        return {}
    names = ("max_completion_length", "top_k", "top_p", "min_p")
    return dict.fromkeys(names, f"{recipe.name} samples nothing; its completions come from the data")


def sampled_completions(
    sampler: nn.Module,
    examples: Sequence[Tokens],
    config: DistillConfig,
    step: int,
    *,
    eos_token_id: int | Sequence[int],
    pad_token_id: int,
) -> CompletionBatch:
    """Return the prompts of these examples with completions that ``sampler`` samples."""
    rollout = sample(
        sampler,
        _prompts(examples),
        sampling=config.sampling(),
        eos_token_id=eos_token_id,
        pad_token_id=pad_token_id,
        seed=derive_seed("distillation", config.seed),
        step=step,
    )
    return CompletionBatch(rollout.input_ids, rollout.attention_mask, rollout.mask)


def _prompts(examples: Sequence[Tokens]) -> list[list[int]]:
    return [list(example.input_ids[: example.loss_mask.index(True)]) for example in examples]


def after(prompts: Sequence[Sequence[int]], answers: CompletionBatch, pad_token_id: int) -> CompletionBatch:
    """Return the same completions after other prompts, as the input of one of the two models."""
    width = answers.mask.shape[1]
    ids, mask = left_pad(prompts, pad_token_id, answers.mask.device)
    return CompletionBatch(
        torch.cat([ids, answers.input_ids[:, -width:]], 1),
        torch.cat([mask, answers.attention_mask[:, -width:]], 1),
        answers.mask,
    )


def _losses(
    model: nn.Module,
    teacher: nn.Module,
    batch: CompletionBatch,
    teacher_batch: CompletionBatch,
    weights: Tensor,
    loss_fn: TokenLoss,
    config: DistillConfig,
) -> Iterator[Tensor]:
    """Yield the loss of each micro-batch; they sum to the batch loss. ``teacher_batch`` is the teacher's input."""
    for rows in torch.arange(len(batch)).split(config.micro_batch_size or len(batch)):
        part = batch.select(rows)
        outputs = both(model, teacher, part, teacher_batch.select(rows), config.temperature)
        yield aggregate(loss_fn(outputs), weights[rows], part.mask)


def both(
    model: nn.Module,
    teacher: nn.Module,
    batch: CompletionBatch,
    teacher_batch: CompletionBatch,
    sampled_at: float = 1.0,
) -> DistillationBatch:
    """Return the logits of student and teacher for these completions; a gradient flows through the student only.

    Args:
        batch: the student's input.
        teacher_batch: the teacher's input, the same completions after the teacher's prompts.
    """
    width = batch.mask.shape[1]
    with torch.no_grad():
        teacher_logits = completion_logits(teacher, teacher_batch.input_ids, teacher_batch.attention_mask, width)[
            :, :-1
        ]  # (B, T, V)
    logits = completion_logits(model, batch.input_ids, batch.attention_mask, width)[:, :-1]
    return DistillationBatch(logits, teacher_logits, batch.input_ids[:, -width:], batch.mask, sampled_at)


@torch.no_grad()
def divergence_on_batch(
    model: nn.Module, teacher: nn.Module, examples: Sequence[Tokens], *, pad_token_id: int, batch_size: int = 64
) -> dict[str, float]:
    """Return ``loss`` (the student's nats per token) and ``forward_kl`` (KL(teacher ‖ student)) on the examples."""
    measures: dict[str, TokenLoss] = {
        "loss": Sampled(sequence_level),
        "forward_kl": FullDistributionLoss(forward_kl_distillation),
    }
    totals, num_tokens = dict.fromkeys(measures, 0.0), 0
    with evaluating(model), evaluating(teacher):
        for start in range(0, len(examples), batch_size):
            batch = collate_completions(examples[start : start + batch_size], pad_token_id)
            batch, batch_tokens = batch.to(next(model.parameters()).device), int(batch.mask.sum())
            outputs = both(model, teacher, batch, batch)
            for key, measure in measures.items():
                totals[key] += batch_tokens * float(aggregate(measure(outputs), token_mean(outputs.mask), outputs.mask))
            num_tokens += batch_tokens
    return {key: value / num_tokens for key, value in totals.items()}
