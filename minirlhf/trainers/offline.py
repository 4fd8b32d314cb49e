"""Learning from given preferences: one loop for every loss of :mod:`minirlhf.equations.preference_losses`."""

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
from minirlhf.core.randomness import generator
from minirlhf.data.collate import batch_indices, collate_completions
from minirlhf.data.types import PreferenceExample, Tokens, labelled, pair, ranked
from minirlhf.equations.preference_losses import ListLogps, Needs, PairLogps, UnpairedLogps
from minirlhf.losses import preference_loss
from minirlhf.models.adapters import reference_of
from minirlhf.models.reference import preference_logps, reference_logps, require_same_vocabulary
from minirlhf.recipes.offline import OptimizerBatch, PreferenceRecipe, Record, describe_preference
from minirlhf.recipes.spelling import to_config
from minirlhf.trainers.config import TrainerConfig, option
from minirlhf.trainers.history import History
from minirlhf.trainers.loop import RunProvenance, TrainerCallback, TrainingLoop


@dataclass(frozen=True)
class OfflineConfig(TrainerConfig):
    """Settings of learning from preferences. ``batch_size`` counts examples: pairs, single answers or lists."""

    learning_rate: float = option(3e-4, "peak learning rate of AdamW")


def record_type(example: PreferenceExample) -> type[Record]:
    """The record that an example is a row of; two answers without scores are a pair."""
    if example.desirable is not None:
        return UnpairedLogps
    return PairLogps if len(example.answers) == 2 and example.scores is None else ListLogps


def convert_examples(examples: Sequence[PreferenceExample], kind: type[Record], loss: str) -> list[PreferenceExample]:
    """The same preferences as rows of another record: pairs as single answers or lists of two, lists as pairs.

    Raises:
        UserError: no examples; single answers where answers must be compared (naming the losses that take them); answers that
            are equal; lists of different lengths.
    """
    if not examples:
        raise UserError(f"{loss}: no examples to learn from", argument="examples", problem="empty")
    found: list[PreferenceExample] = []
    for number, example in enumerate(examples, 1):
        if len(set(map(repr, example.answers))) < len(example.answers):
            raise UserError(
                f"example {number}: two of its answers are the same tokens, so neither can be preferred",
                argument="answers",
                line=number,
                problem="duplicate",
            )
        if record_type(example) is kind:
            found.append(example)
        elif record_type(example) is UnpairedLogps:
            takers = ", ".join(Needs.losses(UnpairedLogps))
            raise UserError(
                f"{loss} compares answers to one prompt, example {number} is a single answer with a label; losses that take those: {takers}",
                argument="loss",
                value=loss,
                expected=Needs.losses(UnpairedLogps),
                line=number,
            )
        elif kind is UnpairedLogps:
            found += [labelled(answer, i == 0) for i, answer in enumerate(example.answers)]
        elif kind is PairLogps:
            scores = example.scores
            for i, j in combinations(range(len(example.answers)), 2):
                margin = None if scores is None else scores[i] - scores[j]
                found.append(pair(example.answers[i], example.answers[j], margin))
        else:
            found.append(ranked(example.answers, None if example.margin is None else (example.margin, 0.0)))
    sizes = {len(example.answers) for example in found}
    if len(sizes) > 1:
        raise UserError(
            f"{loss} needs lists of one length; the data have {', '.join(map(str, sorted(sizes)))} answers",
            argument="answers",
            value=sorted(sizes),
        )
    return found


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
    """Minimise the mean loss over given preferences; ``model`` is changed in place.

    Args:
        recipe: the loss with its numbers, a row of :data:`~minirlhf.recipes.offline.PREFERENCES`.
        ref_model: the frozen reference; None means ``model`` as it is now (its adapter, if it has one, off). It is asked once about every answer, before the
            training, and what it says is kept on disk.

    Returns:
        The metrics: ``loss``; ``chosen_logp`` and ``rejected_logp`` (nats per answer); ``chosen_reward``, ``rejected_reward``
        and ``margin`` (implicit rewards); ``accuracy`` (share of the batch whose best answer has the highest reward).

    Raises:
        UserError: examples of a kind that the loss cannot take, or numbers that it refuses.
    """
    others = recipe.validate()
    examples = convert_examples(examples, recipe.needs.record, recipe.name)
    data = _PreferenceDataset(examples, recipe, pad_token_id, others_from=config.seed if others else None)
    if recipe.needs.reference:
        if ref_model is not None:
            require_same_vocabulary(model, ref_model)
        data.precompute_ref_logps(ref_model or reference_of(model))
    data.context(model, torch.arange(len(data))[:2], {})  # raises where a margin or a score is missing
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
        seen: list[tuple[Tensor, Tensor]] = []
        metrics = loop.update(_losses(model, data, rows, context, config.micro_batch_size, seen))
        loop.log(**metrics, **data.compute_metrics(rows, seen))
    return loop.history


def _losses(
    model: nn.Module,
    data: _PreferenceDataset,
    rows: Tensor,
    context: Sequence[Tensor],
    micro_batch_size: int | None,
    seen: list[tuple[Tensor, Tensor]],
) -> Iterator[Tensor]:
    """The loss of each micro-batch; they add up to the mean over the batch. ``seen`` gets log-probs and lengths ``(b, K)``."""
    for part in torch.arange(len(rows)).split(micro_batch_size or len(rows)):
        record, logps, lengths = data.record(model, rows[part])
        seen.append((logps.detach(), lengths))
        here = (c[part] if c.dim() else c for c in context)
        yield preference_loss(data.recipe.loss, record, *here, batch_size=len(rows))


class EvalPreferences:
    """Examples to measure with: build it before the training, as the reference is asked then.

    Args:
        recipe, ref_model, pad_token_id: as for :func:`train_offline`.
    """

    def __init__(
        self,
        examples: Sequence[PreferenceExample],
        recipe: PreferenceRecipe,
        ref_model: nn.Module,
        *,
        pad_token_id: int,
    ) -> None:
        alone = replace(recipe, context=())  # the loss itself is not computed
        self._data = _PreferenceDataset(
            convert_examples(examples, recipe.needs.record, recipe.name), alone, pad_token_id
        )
        if recipe.needs.reference:
            self._data.precompute_ref_logps(ref_model)

    def __len__(self) -> int:
        return len(self._data)

    @torch.no_grad()
    def measure(self, model: nn.Module, batch_size: int = 64) -> dict[str, float]:
        """The metrics of :func:`train_offline` but the loss, over all examples."""
        rows = torch.arange(len(self))
        with evaluating(model):
            seen = [self._data.record(model, part)[1:] for part in rows.split(batch_size)]
        return self._data.compute_metrics(rows, seen)


class _PreferenceDataset:
    """``N`` examples as tensors on demand, and what the reference says of their answers.

    ``others_from``: seed by which each example gets another one's answer as well; None: it needs none.
    """

    def __init__(
        self,
        examples: Sequence[PreferenceExample],
        recipe: PreferenceRecipe,
        pad_token_id: int,
        others_from: int | None = None,
    ) -> None:
        self.examples, self.recipe, self.pad = examples, recipe, pad_token_id
        self.width = len(examples[0].answers)  # K
        self.margins = _numbers([e.margin for e in examples])  # (N,)
        self.scores = _numbers([e.scores for e in examples])  # (N, K)
        if recipe.needs.record is UnpairedLogps:
            self.better = torch.tensor([[bool(e.desirable)] for e in examples])  # (N, 1)
        else:
            self.better = (torch.arange(self.width) == 0).expand(len(examples), -1)  # (N, K), the best answer
        self.reference: Tensor | None = None  # (N, K)
        self.other: list[Tokens] = []  # for each example the answer of another one
        self.other_reference: Tensor | None = None  # (N,)
        if others_from is not None:
            order = torch.randperm(len(examples), generator=generator("mismatched", others_from)).tolist()
            giver = dict(zip(order, [*order[1:], order[0]], strict=True))
            self.other = [_swap(e.answers[0], examples[giver[i]].answers[0]) for i, e in enumerate(examples)]

    def __len__(self) -> int:
        return len(self.examples)

    def precompute_ref_logps(self, reference: nn.Module) -> None:
        """Have the reference rate every answer."""
        everything = [answer for example in self.examples for answer in example.answers] + self.other
        logps = reference_logps(reference, everything, pad_token_id=self.pad)
        count = len(self) * self.width
        self.reference, self.other_reference = logps[:count].view(-1, self.width), logps[count:]

    def record(self, model: nn.Module, rows: Tensor) -> tuple[Record, Tensor, Tensor]:
        """What the loss takes of these rows, and their log-probabilities and lengths, ``(b, K)`` each."""
        answers = [answer for row in rows.tolist() for answer in self.examples[row].answers]
        flat, lengths = _answer_logps(model, answers, self.pad)
        logps, lengths = flat.view(-1, self.width), lengths.view(-1, self.width)
        refs = None if self.reference is None else self.reference[rows].to(logps)
        kind = self.recipe.needs.record
        record: Record
        if kind is UnpairedLogps:
            labels = self.better[rows, 0].to(logps.device)
            record = UnpairedLogps(logps[:, 0], None if refs is None else refs[:, 0], lengths[:, 0], labels)
        elif kind is ListLogps:
            record = ListLogps(logps, refs, lengths)
        else:
            record = PairLogps(
                *logps.unbind(-1), *((None, None) if refs is None else refs.unbind(-1)), *lengths.unbind(-1)
            )
        return record, logps, lengths

    def mismatched(self, model: nn.Module, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities ``(b,)`` of other examples' answers, under the policy and the reference."""
        assert self.other_reference is not None
        logps, _ = _answer_logps(model, [self.other[row] for row in rows.tolist()], self.pad)
        return logps, self.other_reference[rows].to(logps)

    @torch.no_grad()
    def context(self, model: nn.Module, rows: Tensor, memory: dict[str, Tensor]) -> list[Tensor]:
        """What the loss takes from a whole batch beside its record."""
        margins, scores = (None if x is None else x[rows] for x in (self.margins, self.scores))
        whole = OptimizerBatch(
            lambda: self.record(model, rows)[0], lambda: self.mismatched(model, rows), margins, scores, memory
        )
        return [part(whole) for part in self.recipe.context]

    def compute_metrics(self, rows: Tensor, seen: Sequence[tuple[Tensor, Tensor]]) -> dict[str, float]:
        """Metrics of a batch, from its log-probabilities and lengths as :meth:`record` gave them, part by part."""
        logps, lengths = (torch.cat(parts).cpu() for parts in zip(*seen, strict=True))  # (B, K)
        gained = logps if self.reference is None else logps - self.reference[rows]
        rewards = self.recipe.number("beta", 1.0) * (gained / lengths if self.recipe.per_token else gained)
        found, better = {}, self.better[rows]
        for name, where in (("chosen", better), ("rejected", ~better)):
            if bool(where.any()):  # a batch of single answers may have no good or no bad one
                found[f"{name}_logp"] = float(logps[where].mean())
                found[f"{name}_reward"] = float(rewards[where].mean())
        if len(found) == 4:
            found["margin"] = found["chosen_reward"] - found["rejected_reward"]
        if self.width > 1:
            found["accuracy"] = float((rewards[:, 0] > rewards[:, 1:].amax(-1)).float().mean())
        return found


def _numbers(values: Sequence[Any]) -> Tensor | None:
    """The values as a tensor; None if one is missing."""
    return None if any(value is None for value in values) else torch.tensor(values, dtype=torch.float32)


def _answer_logps(model: nn.Module, answers: Sequence[Tokens], pad_token_id: int) -> tuple[Tensor, Tensor]:
    """Log-probabilities of answers and how many tokens they have, ``(B,)`` each."""
    batch = collate_completions(answers, pad_token_id).to(next(model.parameters()).device)
    return preference_logps(model, batch), batch.mask.sum(-1)


def _swap(prompt_of: Tokens, answer_of: Tokens) -> Tokens:
    """The prompt of one exchange with the answer of another."""
    cut, start = prompt_of.loss_mask.index(True), answer_of.loss_mask.index(True)
    return Tokens(
        prompt_of.input_ids[:cut] + answer_of.input_ids[start:],
        prompt_of.loss_mask[:cut] + answer_of.loss_mask[start:],
    )
