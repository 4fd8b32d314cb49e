"""Distillation: a student learns what a teacher says at every token, on given answers, the teacher's, or its own."""

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
from minirlhf.trainers.config import RepliesConfig
from minirlhf.trainers.history import History
from minirlhf.trainers.loop import RunProvenance, TrainerCallback, TrainingLoop


@dataclass(frozen=True)
class DistillConfig(RepliesConfig):
    """Settings of distillation. ``temperature`` is that of both distributions that are compared, and of sampling."""


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
    """Minimise the recipe's loss; ``model``, the student, is changed in place.

    Args:
        teacher: never trained; another size is welcome, another vocabulary is not.
        examples: prompts with answers. Where a step's answers are sampled, only the prompts are used.
        recipe: a row of :data:`~minirlhf.recipes.distill.DISTILLATIONS`.
        seen_by_teacher: the same examples in the same order with the prompts that the teacher is shown, for example with a hint; the
            teacher may then be a copy of the student. None: both see the same.

    Returns:
        The metrics: ``loss``, ``grad_norm``, ``learning_rate``, ``tokens`` (of answers in the batch), ``own_answers`` (1 if the
        student wrote them, else 0).

    Raises:
        UserError: numbers that the recipe refuses, or models that do not know the same tokens.
        ValueError: ``seen_by_teacher`` has another number of examples.
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
    shared: Any = model.config
    recipe.validate(vocabulary=shared.vocab_size)
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
        given = [examples[i] for i in rows]
        own = float(torch.rand((), generator=generator("own answers", config.seed, step))) < recipe.own_answers
        shown = given if seen_by_teacher is None else [seen_by_teacher[i] for i in rows]
        if own or recipe.from_teacher:
            writer, asked = (model, given) if own else (teacher, shown)
            answers = student_completions(
                writer, asked, config, step, eos_token_id=eos_token_id, pad_token_id=pad_token_id
            )
        else:
            answers = collate_completions(given, pad_token_id)
        device = next(model.parameters()).device
        batch, told = (after(_prompts(some), answers, pad_token_id).to(device) for some in (given, shown))
        weights = recipe.weights(batch.mask)  # over the whole batch, before it is split
        metrics = loop.update(_losses(model, teacher, batch, told, weights, recipe.compared, config))
        loop.log(**metrics, tokens=int(batch.mask.sum()), own_answers=float(own))
    return loop.history


def idle_sampling(recipe: Distillation) -> dict[str, str]:
    """Settings of sampling that do nothing in this recipe, and why."""
    if recipe.samples:
        return {}
    names = ("max_completion_length", "top_k", "top_p", "min_p")
    return dict.fromkeys(names, f"in {recipe.name} nothing is sampled: the answers are those of the data")


def student_completions(
    writer: nn.Module,
    examples: Sequence[Tokens],
    config: DistillConfig,
    step: int,
    *,
    eos_token_id: int | Sequence[int],
    pad_token_id: int,
) -> CompletionBatch:
    """The prompts of these examples with answers that ``writer`` samples."""
    rollout = sample(
        writer,
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
    """The same answers, each after another prompt: what one of the models reads."""
    width = answers.mask.shape[1]
    ids, inside = left_pad(prompts, pad_token_id, answers.mask.device)
    return CompletionBatch(
        torch.cat([ids, answers.input_ids[:, -width:]], 1),
        torch.cat([inside, answers.attention_mask[:, -width:]], 1),
        answers.mask,
    )


def _losses(
    model: nn.Module,
    teacher: nn.Module,
    batch: CompletionBatch,
    told: CompletionBatch,
    weights: Tensor,
    compared: TokenLoss,
    config: DistillConfig,
) -> Iterator[Tensor]:
    """The loss of each micro-batch; they add up to that of the batch. ``told`` is what the teacher reads."""
    for rows in torch.arange(len(batch)).split(config.micro_batch_size or len(batch)):
        part = batch.select(rows)
        seen = both(model, teacher, part, told.select(rows), config.temperature)
        yield aggregate(compared(seen), weights[rows], part.mask)


def both(
    model: nn.Module, teacher: nn.Module, batch: CompletionBatch, told: CompletionBatch, sampled_at: float = 1.0
) -> DistillationBatch:
    """What student and teacher say of these answers; a gradient flows through the student only.

    Args:
        batch: what the student reads.
        told: what the teacher reads, the same answers after prompts of its own.
    """
    width = batch.mask.shape[1]
    with torch.no_grad():
        said = completion_logits(teacher, told.input_ids, told.attention_mask, width)[:, :-1]  # (B, T, V)
    logits = completion_logits(model, batch.input_ids, batch.attention_mask, width)[:, :-1]
    return DistillationBatch(logits, said, batch.input_ids[:, -width:], batch.mask, sampled_at)


@torch.no_grad()
def divergence_on_batch(
    model: nn.Module, teacher: nn.Module, examples: Sequence[Tokens], *, pad_token_id: int, batch_size: int = 64
) -> dict[str, float]:
    """On given answers: ``loss``, the student's nats per token, and ``forward_kl``, what of the teacher it has not learned there."""
    measures: dict[str, TokenLoss] = {
        "loss": Sampled(sequence_level),
        "forward_kl": FullDistributionLoss(forward_kl_distillation),
    }
    found, tokens = dict.fromkeys(measures, 0.0), 0
    with evaluating(model), evaluating(teacher):
        for start in range(0, len(examples), batch_size):
            batch = collate_completions(examples[start : start + batch_size], pad_token_id)
            batch, count = batch.to(next(model.parameters()).device), int(batch.mask.sum())
            seen = both(model, teacher, batch, batch)
            for key, measure in measures.items():
                found[key] += count * float(aggregate(measure(seen), token_mean(seen.mask), seen.mask))
            tokens += count
    return {key: value / tokens for key, value in found.items()}
