"""Learning from given preferences: one loop for every loss of :mod:`minirlhf.equations.preference_losses`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from minirlhf.core.errors import UserError
from minirlhf.core.randomness import generator
from minirlhf.data.collate import batch_indices, collate_answers
from minirlhf.data.types import Tokens
from minirlhf.equations.preference_losses import ListLogps, Needs, PairLogps, UnpairedLogps
from minirlhf.models.adapters import reference_of
from minirlhf.models.reference import answer_logps, reference_logps, require_same_vocabulary
from minirlhf.recipes.offline import OptimizerBatch, Preference, Record, describe_preference
from minirlhf.trainers.config import TrainerConfig, setting
from minirlhf.trainers.history import History
from minirlhf.trainers.loop import Loop


@dataclass(frozen=True)
class OfflineConfig(TrainerConfig):
    """Settings of learning from preferences. ``batch_size`` counts examples: pairs, single answers or lists."""

    learning_rate: float = setting(3e-4, "peak learning rate of AdamW")


@dataclass(frozen=True)
class Compared:
    """One example: ``K`` answers to one prompt, which each of them repeats.

    Attributes:
        answers: for a pair the chosen and the rejected one; in a list the best first.
        desirable: for a single answer, whether it is a good one.
        margin: for a pair, by how much the chosen one is better, if known.
        scores: for a list, how good each answer is, if known.
    """

    answers: tuple[Tokens, ...]
    desirable: bool | None = None
    margin: float | None = None
    scores: tuple[float, ...] | None = None

    @property
    def kind(self) -> type[Record]:
        """The record that this example is a row of; two answers without scores are a pair."""
        if self.desirable is not None:
            return UnpairedLogps
        return PairLogps if len(self.answers) == 2 and self.scores is None else ListLogps


def pair(chosen: Tokens, rejected: Tokens, margin: float | None = None) -> Compared:
    """Two answers of which one is better."""
    return Compared((chosen, rejected), margin=margin)


def labelled(answer: Tokens, desirable: bool) -> Compared:
    """One answer and whether it is a good one."""
    return Compared((answer,), desirable=desirable)


def ranked(answers: Sequence[Tokens], scores: Sequence[float] | None = None) -> Compared:
    """Answers from best to worst."""
    return Compared(tuple(answers), scores=None if scores is None else tuple(scores))


def as_kind(examples: Sequence[Compared], kind: type[Record], loss: str) -> list[Compared]:
    """The same preferences as rows of another record: pairs as single answers or lists of two, lists as pairs.

    Raises:
        UserError: no examples; single answers where answers must be compared (naming the losses that take them); answers that
            are equal; lists of different lengths.
    """
    if not examples:
        raise UserError(f"{loss}: no examples to learn from")
    found: list[Compared] = []
    for number, example in enumerate(examples, 1):
        if len(set(map(repr, example.answers))) < len(example.answers):
            raise UserError(f"example {number}: two of its answers are the same tokens, so neither can be preferred")
        if example.kind is kind:
            found.append(example)
        elif example.kind is UnpairedLogps:
            takers = ", ".join(Needs.losses(UnpairedLogps))
            raise UserError(
                f"{loss} compares answers to one prompt, example {number} is a single answer with a label; losses that take those: {takers}"
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
        raise UserError(f"{loss} needs lists of one length; the data have {', '.join(map(str, sorted(sizes)))} answers")
    return found


def train_offline(
    model: nn.Module,
    examples: Sequence[Compared],
    recipe: Preference,
    config: OfflineConfig,
    *,
    pad_token_id: int,
    ref_model: nn.Module | None = None,
    out: Path | str | None = None,
    tokenizer: Any = None,
    resume: bool = False,
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
    recipe.try_out()
    needs = recipe.needs
    examples = as_kind(examples, needs.record, recipe.name)
    data = _Data(examples, pad_token_id, config.seed, mismatched=recipe.mismatched)
    if needs.reference:
        if ref_model is not None:
            require_same_vocabulary(model, ref_model)
        data.ask(ref_model or reference_of(model))
    everything = torch.arange(len(examples))
    data.context(model, recipe, everything[:2], everything, {})  # raises where a margin or a score is missing
    loop = Loop(
        name or recipe.name,
        model,
        config,
        settings={"recipe": describe_preference(recipe)},
        dropout=False,
        out=out,
        tokenizer=tokenizer,
        resume=resume,
        quiet=quiet,
    )
    for step in loop:
        rows = torch.from_numpy(batch_indices(len(examples), config.batch_size, step, config.seed))
        context = data.context(model, recipe, rows, rows, loop.memory)
        seen: list[tuple[Tensor, Tensor]] = []
        metrics = loop.update(_losses(model, data, recipe, rows, context, config, seen))
        loop.log(**metrics, **_observe(recipe, data, rows, seen))
    return loop.history


class HeldOut:
    """Examples to measure with: build it before the training, as the reference is asked then.

    Args:
        recipe, ref_model, pad_token_id: as for :func:`train_offline`.
    """

    def __init__(
        self, examples: Sequence[Compared], recipe: Preference, ref_model: nn.Module, *, pad_token_id: int
    ) -> None:
        self._recipe = recipe
        self._data = _Data(as_kind(examples, recipe.needs.record, recipe.name), pad_token_id, 0, mismatched=False)
        if recipe.needs.reference:
            self._data.ask(ref_model)

    def __len__(self) -> int:
        return len(self._data.examples)

    @torch.no_grad()
    def measure(self, model: nn.Module, batch_size: int = 64) -> dict[str, float]:
        """The metrics of :func:`train_offline` but the loss, over all examples."""
        rows = torch.arange(len(self))
        seen = [self._data.logps(model, part, self._recipe.needs)[1:] for part in rows.split(batch_size)]
        return _observe(self._recipe, self._data, rows, seen)


def _losses(
    model: nn.Module,
    data: _Data,
    recipe: Preference,
    rows: Tensor,
    context: Sequence[Tensor],
    config: OfflineConfig,
    seen: list[tuple[Tensor, Tensor]],
) -> Iterator[Tensor]:
    """The loss of each micro-batch; they add up to the mean over the batch. ``seen`` gets log-probs and lengths ``(b, K)``."""
    size = config.micro_batch_size or len(rows)
    for start in range(0, len(rows), size):
        part = slice(start, start + size)
        record, logps, lengths = data.logps(model, rows[part], recipe.needs)
        seen.append((logps.detach(), lengths))
        yield recipe.loss(record, *(c[part] if c.dim() else c for c in context)).sum() / len(rows)


class _Data:
    """The examples as tensors on demand, and what the reference says of them."""

    def __init__(self, examples: Sequence[Compared], pad_token_id: int, seed: int, *, mismatched: bool) -> None:
        self.examples, self.pad = examples, pad_token_id
        self.width = len(examples[0].answers)  # K
        self.reference: Tensor | None = None  # (N, K)
        self.other: list[Tokens] = []  # for each example the answer of another one
        self.other_reference: Tensor | None = None  # (N,)
        if mismatched:
            order = torch.randperm(len(examples), generator=generator("mismatched", seed)).tolist()
            giver = dict(zip(order, [*order[1:], order[0]], strict=True))
            self.other = [_swap(e.answers[0], examples[giver[i]].answers[0]) for i, e in enumerate(examples)]

    def ask(self, reference: nn.Module) -> None:
        """Have the reference rate every answer."""
        everything = [answer for example in self.examples for answer in example.answers] + self.other
        logps = reference_logps(reference, everything, pad_token_id=self.pad)
        count = len(self.examples) * self.width
        self.reference, self.other_reference = logps[:count].view(-1, self.width), logps[count:]

    def logps(self, model: nn.Module, rows: Tensor, needs: Needs[Any]) -> tuple[Record, Tensor, Tensor]:
        """The record of these rows, and its log-probabilities and lengths, ``(b, K)`` each."""
        answers = [answer for row in rows.tolist() for answer in self.examples[row].answers]
        batch = collate_answers(answers, self.pad).to(next(model.parameters()).device)
        logps = answer_logps(model, batch).view(-1, self.width)
        lengths = batch.mask.sum(-1).view(-1, self.width)
        refs = None if self.reference is None else self.reference[rows].to(logps)
        return self._record(needs, rows, logps, refs, lengths), logps, lengths

    def _record(self, needs: Needs[Any], rows: Tensor, logps: Tensor, refs: Tensor | None, lengths: Tensor) -> Record:
        if needs.record is UnpairedLogps:
            labels = torch.tensor([bool(self.examples[row].desirable) for row in rows.tolist()], device=logps.device)
            return UnpairedLogps(logps[:, 0], None if refs is None else refs[:, 0], lengths[:, 0], labels)
        if needs.record is ListLogps:
            return ListLogps(logps, refs, lengths)
        known = (None, None) if refs is None else refs.unbind(-1)
        return PairLogps(*logps.unbind(-1), *known, *lengths.unbind(-1))

    def mismatched(self, model: nn.Module, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities ``(b,)`` of other examples' answers, under the policy and the reference."""
        assert self.other_reference is not None
        batch = collate_answers([self.other[row] for row in rows.tolist()], self.pad)
        logps = answer_logps(model, batch.to(next(model.parameters()).device))
        return logps, self.other_reference[rows].to(logps)

    @torch.no_grad()
    def context(
        self, model: nn.Module, recipe: Preference, rows: Tensor, numbered: Tensor, memory: dict[str, Tensor]
    ) -> list[Tensor]:
        """What the loss takes from a whole batch: log-probabilities of ``rows``, numbers in the data of ``numbered``."""
        whole = OptimizerBatch(
            lambda: self.logps(model, rows, recipe.needs)[0],
            lambda: self.mismatched(model, rows),
            self.numbers("margin", numbered),
            self.numbers("scores", numbered),
            memory,
        )
        return [part(whole) for part in recipe.context]

    def numbers(self, name: str, rows: Tensor) -> Tensor | None:
        """Margins ``(b,)`` or scores ``(b, K)``; None if one example has none."""
        values = [getattr(self.examples[row], name) for row in rows.tolist()]
        return None if any(value is None for value in values) else torch.tensor(values, dtype=torch.float32)

    def better(self, rows: Tensor) -> Tensor:
        """``(b, K)``, True on the answers that should become more likely."""
        if self.examples[0].desirable is not None:
            return torch.tensor([[bool(self.examples[row].desirable)] for row in rows.tolist()])
        return (torch.arange(self.width) == 0).expand(len(rows), -1)


def _swap(prompt_of: Tokens, answer_of: Tokens) -> Tokens:
    """The prompt of one exchange with the answer of another."""
    cut, start = prompt_of.loss_mask.index(True), answer_of.loss_mask.index(True)
    return Tokens(
        prompt_of.input_ids[:cut] + answer_of.input_ids[start:],
        prompt_of.loss_mask[:cut] + answer_of.loss_mask[start:],
    )


def _observe(recipe: Preference, data: _Data, rows: Tensor, seen: list[tuple[Tensor, Tensor]]) -> dict[str, float]:
    logps, lengths = (torch.cat(parts).cpu() for parts in zip(*seen, strict=True))  # (B, K)
    rewards = logps / lengths if recipe.needs.lengths else logps
    if data.reference is not None:
        known = data.reference[rows]
        rewards = rewards - (known / lengths if recipe.needs.lengths else known)
    rewards = recipe.options().get("beta", 1.0) * rewards
    found = {}
    better = data.better(rows)
    for name, where in (("chosen", better), ("rejected", ~better)):
        if bool(where.any()):  # a batch of single answers may have no good or no bad one
            found[f"{name}_logp"], found[f"{name}_reward"] = float(logps[where].mean()), float(rewards[where].mean())
    if len(found) == 4:
        found["margin"] = found["chosen_reward"] - found["rejected_reward"]
    if data.width > 1:
        found["accuracy"] = float((rewards[:, 0] > rewards[:, 1:].amax(-1)).float().mean())
    return found
