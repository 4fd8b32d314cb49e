"""Offline preference optimisation: one loop for every loss of :mod:`minirlhf.equations.preference_losses`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from minirlhf.core.calling import evaluating
from minirlhf.core.errors import UserError
from minirlhf.core.options import option
from minirlhf.core.randomness import generator
from minirlhf.data.collate import batch_indices, collate_completions
from minirlhf.data.types import PreferenceExample, Tokens, labelled, pair, ranked, require_different_completions
from minirlhf.equations.preference_losses import ListLogps, Needs, PairLogps, UnpairedLogps
from minirlhf.losses import preference_loss
from minirlhf.models.adapters import reference_of
from minirlhf.models.reference import preference_logps, reference_logps, require_same_vocabulary
from minirlhf.recipes.offline import OptimizerBatch, PreferenceRecipe, Record, describe_preference
from minirlhf.recipes.spelling import to_config
from minirlhf.trainers.config import TrainerConfig
from minirlhf.trainers.history import History
from minirlhf.trainers.loop import RunProvenance, TrainerCallback, TrainingLoop


@dataclass(frozen=True)
class OfflineConfig(TrainerConfig):
    """Settings of learning from preferences. ``batch_size`` counts examples: pairs, single completions or lists."""

    learning_rate: float = option(3e-4, "peak learning rate of AdamW")


def record_type(example: PreferenceExample) -> type[Record]:
    """Return the record type of an example; two completions without scores are a pair."""
    if example.desirable is not None:
        return UnpairedLogps
    return PairLogps if len(example.completions) == 2 and example.scores is None else ListLogps


def convert_examples(examples: Sequence[PreferenceExample], kind: type[Record], loss: str) -> list[PreferenceExample]:
    """Convert preferences to another record type: pairs to single completions or lists of two, lists to pairs.

    Raises:
        UserError: there are no examples; ``kind`` compares completions but an example has a single one (the message
            names the losses that take these); two completions of an example are equal; lists differ in length.
    """
    if not examples:
        raise UserError(f"{loss}: no examples to train on; expected at least one", argument="examples", problem="empty")
    require_different_completions(examples)
    converted: list[PreferenceExample] = []
    for number, example in enumerate(examples, 1):
        if record_type(example) is kind:
            converted.append(example)
        elif record_type(example) is UnpairedLogps:
            supported_losses = ", ".join(Needs.losses(UnpairedLogps))
            raise UserError(
                f"{loss} compares completions of one prompt, but example {number} is a single labelled one; losses "
                f"that take single completions: {supported_losses}",
                argument="loss",
                value=loss,
                expected=Needs.losses(UnpairedLogps),
                line=number,
            )
        elif kind is UnpairedLogps:
            converted += [labelled(answer, i == 0) for i, answer in enumerate(example.completions)]
        elif kind is PairLogps:
            scores = example.scores
            for i, j in combinations(range(len(example.completions)), 2):
                margin = None if scores is None else scores[i] - scores[j]
                converted.append(pair(example.completions[i], example.completions[j], margin))
        else:
            converted.append(ranked(example.completions, None if example.margin is None else (example.margin, 0.0)))
    sizes = {len(example.completions) for example in converted}
    if len(sizes) > 1:
        raise UserError(
            f"{loss} needs lists of equal length; the examples have {', '.join(map(str, sorted(sizes)))} completions",
            argument="answers",
            value=sorted(sizes),
        )
    return converted


def train_offline(
    model: nn.Module,
    examples: Sequence[PreferenceExample],
    recipe: PreferenceRecipe,
    config: OfflineConfig,
    *,
    pad_token_id: int,
    ref_model: nn.Module | None = None,
    out: Path | str | None = None,
    tokenizer: Any = None,
    resume: bool = False,
    origin: RunProvenance | None = None,
    watch: TrainerCallback | None = None,
    name: str | None = None,
    quiet: bool = False,
) -> History:
    """Minimise the mean loss over the preferences; ``model`` is changed in place.

    Args:
        recipe: the loss with its hyperparameters, an entry of :data:`~minirlhf.recipes.offline.PREFERENCES`.
        ref_model: the frozen reference. None: the initial ``model`` (with its adapter off, if it has one). Its
            log-probability of every completion is computed once, before training, and cached on disk.

    Returns:
        The metrics: ``loss``; ``chosen_logp`` and ``rejected_logp`` (nats per completion); ``chosen_reward``,
        ``rejected_reward`` and ``margin`` (implicit rewards); ``accuracy`` (fraction of the batch whose best completion
        has the highest implicit reward).

    Raises:
        UserError: the loss cannot take examples of this type, or it refuses a hyperparameter.
    """
    needs_mismatched = recipe.validate()
    examples = convert_examples(examples, recipe.needs.record, recipe.name)
    data = _PreferenceDataset(examples, recipe, pad_token_id, others_from=config.seed if needs_mismatched else None)
    if recipe.needs.reference:
        if ref_model is not None:
            require_same_vocabulary(model, ref_model)
        data.precompute_ref_logps(ref_model or reference_of(model), config.micro_batch_size)
    data.context(model, torch.arange(len(data))[:2], {})  # raises where a margin or a score is missing
    config = config.for_examples(len(data))
    loop = TrainingLoop(
        name or recipe.name,
        model,
        config,
        settings={} if out is None else {"recipe": describe_preference(recipe), **to_config(recipe)},
        dropout=False,
        out=out,
        tokenizer=tokenizer,
        resume=resume,
        origin=origin,
        watch=watch,
        quiet=quiet,
    )
    for step in loop:
        rows = torch.from_numpy(batch_indices(len(data), config.batch_size, step, config.seed))
        context = data.context(model, rows, loop.memory)
        outputs: list[tuple[Tensor, Tensor]] = []
        metrics = loop.update(_losses(model, data, rows, context, config.micro_batch_size, outputs))
        loop.log(**metrics, **data.compute_metrics(rows, outputs))
    return loop.history


def _losses(
    model: nn.Module,
    data: _PreferenceDataset,
    rows: Tensor,
    context: Sequence[Tensor],
    micro_batch_size: int | None,
    outputs: list[tuple[Tensor, Tensor]],
) -> Iterator[Tensor]:
    """Yield the loss of each micro-batch (sum: batch mean); ``outputs`` collects log-probs and lengths ``(b, K)``."""
    for part in torch.arange(len(rows)).split(micro_batch_size or len(rows)):
        record, logps, lengths = data.record(model, rows[part])
        outputs.append((logps.detach(), lengths))
        part_context = (c[part] if c.dim() else c for c in context)
        yield preference_loss(data.recipe.loss, record, *part_context, batch_size=len(rows))


class EvalPreferences:
    """Evaluation preferences. Build it before training, because it computes the reference's log-probabilities.

    Args:
        recipe, ref_model, pad_token_id: as for :func:`train_offline`.
        micro_batch_size: examples per forward pass; None: 64.
    """

    def __init__(
        self,
        examples: Sequence[PreferenceExample],
        recipe: PreferenceRecipe,
        ref_model: nn.Module,
        *,
        pad_token_id: int,
        micro_batch_size: int | None = None,
    ) -> None:
        self._rows = micro_batch_size or 64
        metrics_recipe = replace(recipe, context=())  # the loss itself is not computed
        self._data = _PreferenceDataset(
            convert_examples(examples, recipe.needs.record, recipe.name), metrics_recipe, pad_token_id
        )
        if recipe.needs.reference:
            self._data.precompute_ref_logps(ref_model, micro_batch_size)

    def __len__(self) -> int:
        return len(self._data)

    @torch.no_grad()
    def measure(self, model: nn.Module) -> dict[str, float]:
        """Return the metrics of :func:`train_offline`, without the loss, over all examples."""
        rows = torch.arange(len(self))
        with evaluating(model):
            outputs = [self._data.record(model, part)[1:] for part in rows.split(self._rows)]
        return self._data.compute_metrics(rows, outputs)


class _PreferenceDataset:
    """``N`` examples, converted to tensors on demand, and the reference's log-probabilities of their completions.

    ``others_from``: seed with which each example is assigned the completion of another example; None: none is assigned.
    """

    def __init__(
        self,
        examples: Sequence[PreferenceExample],
        recipe: PreferenceRecipe,
        pad_token_id: int,
        others_from: int | None = None,
    ) -> None:
        self.examples, self.recipe, self.pad = examples, recipe, pad_token_id
        self.width = len(examples[0].completions)  # K
        self.margins = _numbers([e.margin for e in examples])  # (N,)
        self.scores = _numbers([e.scores for e in examples])  # (N, K)
        if recipe.needs.record is UnpairedLogps:
            self.better = torch.tensor([[bool(e.desirable)] for e in examples])  # (N, 1)
        else:
            self.better = (torch.arange(self.width) == 0).expand(len(examples), -1)  # (N, K), the best completion
        self.reference: Tensor | None = None  # (N, K)
        self.other: list[Tokens] = []  # for each example the completion of another example
        self.other_reference: Tensor | None = None  # (N,)
        if others_from is not None:
            order = torch.randperm(len(examples), generator=generator("mismatched", others_from)).tolist()
            donor = dict(zip(order, [*order[1:], order[0]], strict=True))
            self.other = [_swap(e.completions[0], examples[donor[i]].completions[0]) for i, e in enumerate(examples)]

    def __len__(self) -> int:
        return len(self.examples)

    def precompute_ref_logps(self, reference: nn.Module, micro_batch_size: int | None = None) -> None:
        """Compute the reference's log-probability of every completion, ``micro_batch_size`` examples at a time."""
        completions = [completion for example in self.examples for completion in example.completions] + self.other
        rows = {} if micro_batch_size is None else {"batch_size": micro_batch_size * self.width}
        logps = reference_logps(reference, completions, pad_token_id=self.pad, **rows)
        num_own = len(self) * self.width
        self.reference, self.other_reference = logps[:num_own].view(-1, self.width), logps[num_own:]

    def record(self, model: nn.Module, rows: Tensor) -> tuple[Record, Tensor, Tensor]:
        """Return the loss's record of these rows, and their log-probabilities and lengths, ``(b, K)`` each."""
        completions = [completion for row in rows.tolist() for completion in self.examples[row].completions]
        flat_logps, lengths = _answer_logps(model, completions, self.pad)
        logps, lengths = flat_logps.view(-1, self.width), lengths.view(-1, self.width)
        ref_logps = None if self.reference is None else self.reference[rows].to(logps)
        record_class = self.recipe.needs.record
        record: Record
        if record_class is UnpairedLogps:
            labels = self.better[rows, 0].to(logps.device)
            record = UnpairedLogps(logps[:, 0], None if ref_logps is None else ref_logps[:, 0], lengths[:, 0], labels)
        elif record_class is ListLogps:
            record = ListLogps(logps, ref_logps, lengths)
        else:
            record = PairLogps(
                *logps.unbind(-1), *((None, None) if ref_logps is None else ref_logps.unbind(-1)), *lengths.unbind(-1)
            )
        return record, logps, lengths

    def mismatched(self, model: nn.Module, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log-probabilities ``(b,)`` of other examples' completions, under the policy and the reference."""
        assert self.other_reference is not None
        logps, _ = _answer_logps(model, [self.other[row] for row in rows.tolist()], self.pad)
        return logps, self.other_reference[rows].to(logps)

    @torch.no_grad()
    def context(self, model: nn.Module, rows: Tensor, memory: dict[str, Tensor]) -> list[Tensor]:
        """Return the batch-level inputs that the loss takes in addition to its record."""
        margins, scores = (None if x is None else x[rows] for x in (self.margins, self.scores))
        batch = OptimizerBatch(
            lambda: self.record(model, rows)[0], lambda: self.mismatched(model, rows), margins, scores, memory
        )
        return [part(batch) for part in self.recipe.context]

    def compute_metrics(self, rows: Tensor, seen: Sequence[tuple[Tensor, Tensor]]) -> dict[str, float]:
        """Return the metrics of a batch from the log-probabilities and lengths that :meth:`record` returned."""
        logps, lengths = (torch.cat(parts).cpu() for parts in zip(*seen, strict=True))  # (B, K)
        log_ratios = logps if self.reference is None else logps - self.reference[rows]
        rewards = self.recipe.number("beta", 1.0) * (log_ratios / lengths if self.recipe.per_token else log_ratios)
        metrics, better = {}, self.better[rows]
        for name, selected in (("chosen", better), ("rejected", ~better)):
            if bool(selected.any()):  # a batch of single completions may have no desirable or no undesirable one
                metrics[f"{name}_logp"] = float(logps[selected].mean())
                metrics[f"{name}_reward"] = float(rewards[selected].mean())
        if len(metrics) == 4:
            metrics["margin"] = metrics["chosen_reward"] - metrics["rejected_reward"]
        if self.width > 1:
            metrics["accuracy"] = float((rewards[:, 0] > rewards[:, 1:].amax(-1)).float().mean())
        return metrics


def _numbers(values: Sequence[Any]) -> Tensor | None:
    """Return the values as a tensor; None if one is missing."""
    return None if any(value is None for value in values) else torch.tensor(values, dtype=torch.float32)


def _answer_logps(model: nn.Module, completions: Sequence[Tokens], pad_token_id: int) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities of completions and their lengths in tokens, ``(B,)`` each."""
    batch = collate_completions(completions, pad_token_id).to(next(model.parameters()).device)
    return preference_logps(model, batch), batch.mask.sum(-1)


def _swap(prompt_of: Tokens, completion_of: Tokens) -> Tokens:
    """Return the prompt of one example with the completion of another."""
    prompt_end, start = prompt_of.loss_mask.index(True), completion_of.loss_mask.index(True)
    return Tokens(
        prompt_of.input_ids[:prompt_end] + completion_of.input_ids[start:],
        prompt_of.loss_mask[:prompt_end] + completion_of.loss_mask[start:],
    )
