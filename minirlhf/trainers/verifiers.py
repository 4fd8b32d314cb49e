"""Verifiers: reward models with one number per token, fitted to whether a reply is right (outcome) or each of its steps (process)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from minirlhf.core.calling import evaluating
from minirlhf.core.errors import UserError, unknown
from minirlhf.core.masking import last_index
from minirlhf.data.collate import batch_indices, collate
from minirlhf.data.types import PreferenceExample, Stepped, TokenBatch, Tokens
from minirlhf.equations.aggregation import aggregate, token_mean
from minirlhf.equations.reward_losses import outcome_loss, process_loss
from minirlhf.trainers.config import TrainerConfig, option
from minirlhf.trainers.history import History
from minirlhf.trainers.likelihood import negative_log_likelihood
from minirlhf.trainers.loop import RunProvenance, TrainerCallback, TrainingLoop

E = TypeVar("E", PreferenceExample, Stepped)

#: What a step that is neither right nor wrong is taken for; None: it is left out.
NEUTRAL: dict[str, float | None] = {"left out": None, "right": 1.0, "wrong": 0.0}


@dataclass(frozen=True)
class OutcomeConfig(TrainerConfig):
    """Settings of an outcome reward model."""

    nll_coefficient: float = option(0.0, "weight of the right replies' mean negative log-likelihood, per token")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.nll_coefficient >= 0:
            raise UserError(
                f"nll_coefficient = {self.nll_coefficient!r}; expected at least 0",
                argument="nll_coefficient",
                value=self.nll_coefficient,
                expected=0,
            )


@dataclass(frozen=True)
class ProcessConfig(TrainerConfig):
    """Settings of a process reward model."""

    neutral: str = option("left out", f"what a step labelled 0 is taken for: {', '.join(NEUTRAL)}")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.neutral not in NEUTRAL:
            raise unknown("neutral", self.neutral, NEUTRAL)


def train_outcome(
    model: nn.Module,
    replies: Sequence[PreferenceExample],
    config: OutcomeConfig,
    *,
    pad_token_id: int,
    language_model: nn.Module | None = None,
    name: str = "orm",
    **run: Any,
) -> History:
    """Fit each token's logit to whether the whole reply is right; ``model`` is a :class:`~minirlhf.models.heads.ValueModel`.

    Args:
        replies: one answer each, with ``desirable``.
        language_model: for ``nll_coefficient``: a causal LM on the same backbone; its output layer stays as it is.
        run: where the run goes, as for :func:`~minirlhf.trainers.reward.train_reward`.

    Returns:
        The metrics: ``loss`` (nats per token), ``accuracy`` (share of the batch whose last token is on the right side of 0).
    """
    if (language_model is not None) != bool(config.nll_coefficient):
        raise ValueError("language_model and nll_coefficient go together; expected both or neither")
    if any(e.desirable is None or len(e.answers) != 1 for e in replies):
        raise ValueError(
            "replies: expected single answers that are labelled right or wrong, as `labelled(answer, right)` makes them"
        )

    def of(
        whole: Sequence[PreferenceExample], batch: TokenBatch, weights: Tensor, rows: Tensor, scores: Tensor
    ) -> Tensor:
        labels = torch.tensor([float(bool(whole[i].desirable)) for i in rows]).to(scores)
        part = batch.select(rows)
        loss = aggregate(outcome_loss(scores, labels, part.loss_mask), weights[rows], part.loss_mask)
        if language_model is not None:
            marked = max(1, sum(sum(e.chosen.loss_mask[1:]) for e in whole if e.desirable))
            right = [whole[i].chosen for i in rows if whole[i].desirable]
            if right:
                term = negative_log_likelihood(language_model, right, pad_token_id) / marked
                loss = loss + config.nll_coefficient * term
        return loss

    def right(whole: Sequence[PreferenceExample], batch: TokenBatch, scores: Tensor) -> float:
        labels = torch.tensor([bool(e.desirable) for e in whole])
        return float(((_last(scores, batch) > 0) == labels).float().mean())

    tokens = lambda e: (e.chosen, e.chosen.loss_mask)
    return _train(model, replies, config, tokens, of, right, pad_token_id=pad_token_id, name=name, **run)


def train_process(
    model: nn.Module,
    replies: Sequence[Stepped],
    config: ProcessConfig,
    *,
    pad_token_id: int,
    name: str = "prm",
    **run: Any,
) -> History:
    """Fit the logit at each step's last token to the step's label; ``model`` is a :class:`~minirlhf.models.heads.ValueModel`.

    Returns:
        The metrics: ``loss`` (nats per step), ``accuracy`` (share of the batch's steps that are on the right side of 0).

    Raises:
        UserError: a reply in which no step is labelled.
    """

    def labelled(e: Stepped) -> list[bool]:
        marks = [False] * len(e.tokens)
        for end, label in zip(e.ends, e.labels, strict=True):
            marks[end] = bool(label) or NEUTRAL[config.neutral] is not None
        return marks

    if unlabelled := [e for e in replies if not any(labelled(e))]:
        raise UserError(
            f"{len(unlabelled)} of {len(replies)} replies have no step that is right or wrong; leave them out",
            argument="labels",
            value=len(unlabelled),
            expected=len(replies),
            problem="missing",
        )

    def targets(whole: Sequence[Stepped], shape: torch.Size) -> Tensor:
        found = torch.zeros(shape)
        neutral = NEUTRAL[config.neutral]
        for row, e in enumerate(whole):
            for end, label in zip(e.ends, e.labels, strict=True):
                found[row, end] = float(label > 0) if label or neutral is None else neutral
        return found

    def of(whole: Sequence[Stepped], batch: TokenBatch, weights: Tensor, rows: Tensor, scores: Tensor) -> Tensor:
        labels = targets(whole, batch.input_ids.shape)[rows].to(scores)
        ends = batch.loss_mask[rows]
        return aggregate(process_loss(scores, labels, ends), weights[rows], ends)

    def right(whole: Sequence[Stepped], batch: TokenBatch, scores: Tensor) -> float:
        labels = targets(whole, batch.input_ids.shape)
        ends = batch.loss_mask.cpu()
        return float(((scores.cpu() > 0) == (labels > 0.5))[ends].float().mean())

    tokens = lambda e: (e.tokens, labelled(e))
    return _train(model, replies, config, tokens, of, right, pad_token_id=pad_token_id, name=name, **run)


def _train(
    model: nn.Module,
    examples: Sequence[E],
    config: TrainerConfig,
    tokens: Callable[[E], tuple[Tokens, list[bool]]],
    of: Callable[[Sequence[E], TokenBatch, Tensor, Tensor, Tensor], Tensor],
    right: Callable[[Sequence[E], TokenBatch, Tensor], float],
    *,
    pad_token_id: int,
    name: str,
    out: Path | str | None = None,
    tokenizer: Any = None,
    resume: bool = False,
    origin: RunProvenance | None = None,
    watch: TrainerCallback | None = None,
    quiet: bool = False,
) -> History:
    """The loop of both: the mean over all marked tokens of the batch, however it is split."""
    loop = TrainingLoop(
        name, model, config, out=out, tokenizer=tokenizer, resume=resume, origin=origin, watch=watch, quiet=quiet
    )
    for step in loop:
        whole = [examples[i] for i in batch_indices(len(examples), config.batch_size, step, config.seed)]
        marked = [Tokens(read.input_ids, marks) for read, marks in map(tokens, whole)]
        batch = collate(marked, pad_token_id).to(next(model.parameters()).device)
        weights = token_mean(batch.loss_mask)  # (B, S)
        seen: list[Tensor] = []
        size = config.micro_batch_size or len(batch)
        metrics = loop.update(_parts(model, batch, size, seen, partial(of, whole, batch, weights)))
        loop.log(**metrics, accuracy=right(whole, batch, torch.cat(seen)))
    return loop.history


def _parts(
    model: nn.Module, batch: TokenBatch, size: int, seen: list[Tensor], of: Callable[[Tensor, Tensor], Tensor]
) -> Iterator[Tensor]:
    """The loss of each micro-batch; its scores ``(b, S)`` are kept."""
    for rows in torch.arange(len(batch)).split(size):
        part = batch.select(rows)
        scores = model(part.input_ids, part.attention_mask)
        seen.append(scores.detach())
        yield of(rows, scores)


def _last(scores: Tensor, batch: TokenBatch) -> Tensor:
    """``(B,)``, the score at each row's last real token."""
    return scores.gather(1, last_index(batch.attention_mask)[:, None]).squeeze(1).cpu()


@torch.no_grad()
def token_scores(
    model: nn.Module, replies: Sequence[Tokens], *, pad_token_id: int, batch_size: int = 64
) -> list[Tensor]:
    """The score of every token of each reply with its prompt, ``(S,)`` each. Replies of like length are read together."""
    order = sorted(range(len(replies)), key=lambda i: len(replies[i]))
    found: dict[int, Tensor] = {}
    for start in range(0, len(replies), batch_size):
        rows = order[start : start + batch_size]
        batch = collate([replies[i] for i in rows], pad_token_id).to(next(model.parameters()).device)
        with evaluating(model):
            scores = model(batch.input_ids, batch.attention_mask).cpu()
        found |= {i: row[: len(replies[i])] for i, row in zip(rows, scores, strict=True)}
    return [found[i] for i in range(len(replies))]
