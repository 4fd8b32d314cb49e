"""Verifiers: token-level reward models of correctness, of the whole completion (outcome) or of each step (process)."""

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
from minirlhf.core.options import option
from minirlhf.data.collate import batch_indices, collate
from minirlhf.data.types import PreferenceExample, Stepped, TokenBatch, Tokens
from minirlhf.equations.aggregation import aggregate, token_mean
from minirlhf.equations.reward_losses import outcome_loss, process_loss
from minirlhf.trainers.config import DISABLE_DROPOUT, TrainerConfig
from minirlhf.trainers.history import History
from minirlhf.trainers.likelihood import negative_log_likelihood
from minirlhf.trainers.loop import RunProvenance, TrainerCallback, TrainingLoop

E = TypeVar("E", PreferenceExample, Stepped)

#: Target of a step that is labelled neither right nor wrong; None: the step is left out.
NEUTRAL: dict[str, float | None] = {"left out": None, "right": 1.0, "wrong": 0.0}


@dataclass(frozen=True)
class _VerifierConfig(TrainerConfig):
    """Settings of both verifiers."""

    disable_dropout: bool = option(True, DISABLE_DROPOUT)


@dataclass(frozen=True)
class OutcomeConfig(_VerifierConfig):
    """Settings of an outcome reward model."""

    nll_coefficient: float = option(
        0.0, "weight of the negative log-likelihood of the correct completions, mean per token"
    )

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
class ProcessConfig(_VerifierConfig):
    """Settings of a process reward model."""

    neutral: str = option("left out", f"target of steps labelled 0 (neutral): {', '.join(NEUTRAL)}")

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
    """Fit each token's logit to the correctness of the whole completion.

    ``model`` is a :class:`~minirlhf.models.heads.ValueModel`.

    Args:
        replies: examples with one completion each, labelled by ``desirable``.
        language_model: for ``nll_coefficient``: a causal LM on the same backbone; its output layer is not trained.
        run: ``out``, ``tokenizer``, ``resume``, ``origin``, ``watch``, ``quiet``, as for
            :func:`~minirlhf.trainers.reward.train_reward`.

    Returns:
        The metrics: ``loss`` (nats per token), ``accuracy`` (fraction of the batch whose last logit has
        the right sign).
    """
    if (language_model is not None) != bool(config.nll_coefficient):
        raise ValueError("language_model and nll_coefficient belong together; expected both or neither")
    if any(e.desirable is None or len(e.completions) != 1 for e in replies):
        raise ValueError(
            "replies: expected single completions labelled right or wrong, as returned by `labelled(answer, desirable)`"
        )

    def loss_fn(
        picked: Sequence[PreferenceExample], batch: TokenBatch, weights: Tensor, rows: Tensor, scores: Tensor
    ) -> Tensor:
        labels = torch.tensor([float(bool(picked[i].desirable)) for i in rows]).to(scores)
        part = batch.select(rows)
        loss = aggregate(outcome_loss(scores, labels, part.loss_mask), weights[rows], part.loss_mask)
        if language_model is not None:
            num_marked = max(1, sum(sum(e.chosen.loss_mask[1:]) for e in picked if e.desirable))
            correct = [picked[i].chosen for i in rows if picked[i].desirable]
            if correct:
                nll_term = negative_log_likelihood(language_model, correct, pad_token_id) / num_marked
                loss = loss + config.nll_coefficient * nll_term
        return loss

    def accuracy(picked: Sequence[PreferenceExample], batch: TokenBatch, scores: Tensor) -> float:
        labels = torch.tensor([bool(e.desirable) for e in picked])
        return float(((_last(scores, batch) > 0) == labels).float().mean())

    tokens = lambda e: (e.chosen, e.chosen.loss_mask)
    return _train(model, replies, config, tokens, loss_fn, accuracy, pad_token_id=pad_token_id, name=name, **run)


def train_process(
    model: nn.Module,
    replies: Sequence[Stepped],
    config: ProcessConfig,
    *,
    pad_token_id: int,
    name: str = "prm",
    **run: Any,
) -> History:
    """Fit the logit at each step's last token to the step's label.

    ``model`` is a :class:`~minirlhf.models.heads.ValueModel`.

    Returns:
        The metrics: ``loss`` (nats per step), ``accuracy`` (fraction of the batch's steps whose logit has the
        right sign).

    Raises:
        UserError: a completion has no labelled step.
    """

    def step_mask(e: Stepped) -> list[bool]:
        mask = [False] * len(e.tokens)
        for end, label in zip(e.ends, e.labels, strict=True):
            mask[end] = bool(label) or NEUTRAL[config.neutral] is not None
        return mask

    if unlabelled := [e for e in replies if not any(step_mask(e))]:
        raise UserError(
            f"{len(unlabelled)} of {len(replies)} completions have no step labelled right or wrong; leave them out",
            argument="labels",
            value=len(unlabelled),
            expected=len(replies),
            problem="missing",
        )

    def step_targets(picked: Sequence[Stepped], shape: torch.Size) -> Tensor:
        values = torch.zeros(shape)
        neutral = NEUTRAL[config.neutral]
        for row, e in enumerate(picked):
            for end, label in zip(e.ends, e.labels, strict=True):
                values[row, end] = float(label > 0) if label or neutral is None else neutral
        return values

    def loss_fn(picked: Sequence[Stepped], batch: TokenBatch, weights: Tensor, rows: Tensor, scores: Tensor) -> Tensor:
        labels = step_targets(picked, batch.input_ids.shape)[rows].to(scores)
        ends = batch.loss_mask[rows]
        return aggregate(process_loss(scores, labels, ends), weights[rows], ends)

    def accuracy(picked: Sequence[Stepped], batch: TokenBatch, scores: Tensor) -> float:
        labels = step_targets(picked, batch.input_ids.shape)
        ends = batch.loss_mask.cpu()
        return float(((scores.cpu() > 0) == (labels > 0.5))[ends].float().mean())

    tokens = lambda e: (e.tokens, step_mask(e))
    return _train(model, replies, config, tokens, loss_fn, accuracy, pad_token_id=pad_token_id, name=name, **run)


def _train(
    model: nn.Module,
    examples: Sequence[E],
    config: _VerifierConfig,
    tokens: Callable[[E], tuple[Tokens, list[bool]]],
    loss_fn: Callable[[Sequence[E], TokenBatch, Tensor, Tensor, Tensor], Tensor],
    accuracy: Callable[[Sequence[E], TokenBatch, Tensor], float],
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
    """Train either verifier on the mean loss over all marked tokens of the batch, independent of micro-batches."""
    config = config.for_examples(len(examples))
    loop = TrainingLoop(
        name, model, config, dropout=not config.disable_dropout, out=out, tokenizer=tokenizer,
        resume=resume, origin=origin, watch=watch, quiet=quiet,
    )  # fmt: skip
    for step in loop:
        picked = [examples[i] for i in batch_indices(len(examples), config.batch_size, step, config.seed)]
        marked = [Tokens(example_tokens.input_ids, mask) for example_tokens, mask in map(tokens, picked)]
        batch = collate(marked, pad_token_id).to(next(model.parameters()).device)
        weights = token_mean(batch.loss_mask)  # (B, S)
        scores: list[Tensor] = []
        size = config.micro_batch_size or len(batch)
        metrics = loop.update(_parts(model, batch, size, scores, partial(loss_fn, picked, batch, weights)))
        loop.log(**metrics, accuracy=accuracy(picked, batch, torch.cat(scores)))
    return loop.history


def _parts(
    model: nn.Module, batch: TokenBatch, size: int, outputs: list[Tensor], loss_fn: Callable[[Tensor, Tensor], Tensor]
) -> Iterator[Tensor]:
    """Yield the loss of each micro-batch, and append its scores ``(b, S)`` to ``outputs``."""
    for rows in torch.arange(len(batch)).split(size):
        part = batch.select(rows)
        scores = model(part.input_ids, part.attention_mask)
        outputs.append(scores.detach())
        yield loss_fn(rows, scores)


def _last(scores: Tensor, batch: TokenBatch) -> Tensor:
    """Return ``(B,)``, the score at the last non-padding token of each row."""
    return scores.gather(1, last_index(batch.attention_mask)[:, None]).squeeze(1).cpu()


@torch.no_grad()
def token_scores(
    model: nn.Module, replies: Sequence[Tokens], *, pad_token_id: int, batch_size: int = 64
) -> list[Tensor]:
    """Return the score of every token of each prompt and completion, ``(S,)`` each. Similar lengths share a batch."""
    order = sorted(range(len(replies)), key=lambda i: len(replies[i]))
    scores_by_index: dict[int, Tensor] = {}
    for start in range(0, len(replies), batch_size):
        rows = order[start : start + batch_size]
        batch = collate([replies[i] for i in rows], pad_token_id).to(next(model.parameters()).device)
        with evaluating(model):
            scores = model(batch.input_ids, batch.attention_mask).cpu()
        scores_by_index |= {i: row[: len(replies[i])] for i, row in zip(rows, scores, strict=True)}
    return [scores_by_index[i] for i in range(len(replies))]
