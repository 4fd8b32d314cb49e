"""Records passed between sampling, feedback and training. Rows are prompt-major: row ``p * G + g``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeAlias, TypeVar, cast, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from minirlhf.core.errors import ArgumentError, UserError

R = TypeVar("R", bound="_Rows")


class _Rows:
    """Base class of records whose tensors all have the batch as their first axis."""

    def _map(self: R, transform: Callable[[Tensor], Tensor]) -> R:
        record = cast(Any, self)
        values = {f.name: getattr(record, f.name) for f in fields(record)}
        return cast(R, replace(record, **{k: transform(v) for k, v in values.items() if isinstance(v, Tensor)}))

    def select(self: R, rows: Tensor) -> R:
        """Return the record with these rows only: ``rows`` is an index or boolean tensor ``(B,)``."""
        return self._map(lambda tensor: tensor[rows])

    def to(self: R, device: torch.device | str) -> R:
        """Return the record on another device."""
        return self._map(lambda tensor: tensor.to(device))


@dataclass(frozen=True)
class Rollout(_Rows):
    """Completions sampled by a policy: ``B = P × G`` rows of a left-padded prompt and a right-padded completion of
    width ``T``.

    Attributes:
        input_ids: ``(B, W + T)``: prompt of width ``W``, then the completion.
        attention_mask: ``(B, W + T)``, 1 on real tokens.
        mask: ``(B, T)``, True iff the policy sampled that token. EOS counts; padding and tool output do not.
        old_logps: ``(B, T)``, log-probabilities of the sampling policy with the temperature applied and without
            truncation (top-k, top-p, min-p): the denominator of the policy ratio. 0 outside the mask.
        behavior_logps: ``(B, T)``, log-probabilities of the actual sampling distribution (after top-k, top-p or min-p,
            possibly of an older policy): the denominator of importance corrections. 0 outside the mask.
        policy_version: ``(B, T)``, the number of updates of the policy that sampled the token; −1 outside the mask.
        terminated: ``(B,)``, True if EOS or a stop sequence ended the completion, False if it was truncated.
        num_generations: ``G``, the number of completions per prompt.
    """

    input_ids: Tensor
    attention_mask: Tensor
    mask: Tensor
    old_logps: Tensor
    behavior_logps: Tensor
    policy_version: Tensor
    terminated: Tensor
    num_generations: int

    def __post_init__(self) -> None:
        rows, width = self.mask.shape
        for name in ("old_logps", "behavior_logps", "policy_version"):
            if getattr(self, name).shape != (rows, width):
                raise ValueError(
                    f"{name} has shape {tuple(getattr(self, name).shape)}; expected {(rows, width)}, as mask"
                )
        if self.input_ids.shape != self.attention_mask.shape or self.input_ids.shape[0] != rows:
            raise ValueError(
                f"input_ids {tuple(self.input_ids.shape)} and attention_mask {tuple(self.attention_mask.shape)} must agree "
                f"and have {rows} rows"
            )

    def __len__(self) -> int:
        return self.mask.shape[0]

    @property
    def prompt_width(self) -> int:
        """``W``, the number of columns of ``input_ids`` that hold the prompt."""
        return self.input_ids.shape[1] - self.mask.shape[1]

    @property
    def completion_ids(self) -> Tensor:
        """``(B, T)``, the completion part of ``input_ids``."""
        return self.input_ids[:, self.prompt_width :]

    def grouped(self, per_row: Tensor) -> Tensor:
        """Add the group axis to a per-row tensor: ``(B, ...) -> (P, G, ...)``."""
        return per_row.view(-1, self.num_generations, *per_row.shape[1:])

    @staticmethod
    def concatenate(parts: Sequence[Rollout], pad_token_id: int) -> Rollout:
        """Concatenate rollouts of equal group size, padded to the widest prompt on the left and the longest completion
        on the right; ``ValueError`` if the group sizes differ."""
        sizes = {part.num_generations for part in parts}
        if len(sizes) != 1:
            raise ArgumentError(
                f"rollouts with group sizes {sorted(sizes)}; expected the same size in all",
                argument="num_generations",
                value=sorted(sizes),
            )
        prompt_width = max(part.prompt_width for part in parts)
        completion_width = max(part.mask.shape[1] for part in parts)

        def concat(name: str, value: int | bool, left: bool = False) -> Tensor:
            return torch.cat(
                [
                    F.pad(
                        getattr(part, name),
                        ((prompt_width - part.prompt_width) if left else 0, completion_width - part.mask.shape[1]),
                        value=value,
                    )
                    for part in parts
                ]
            )

        return Rollout(
            input_ids=concat("input_ids", pad_token_id, left=True),
            attention_mask=concat("attention_mask", 0, left=True),
            mask=concat("mask", False),
            old_logps=concat("old_logps", 0),
            behavior_logps=concat("behavior_logps", 0),
            policy_version=concat("policy_version", -1),
            terminated=torch.cat([part.terminated for part in parts]),
            num_generations=sizes.pop(),
        )


#: Which end of a sequence truncation keeps, by TRL's names.
TruncationMode: TypeAlias = Literal["keep_start", "keep_end"]
TRUNCATION_MODES: tuple[str, ...] = get_args(TruncationMode)


@dataclass(frozen=True)
class Tokens:
    """One tokenised sequence.

    Attributes:
        input_ids: ``S`` token ids, at least one.
        loss_mask: ``S`` booleans, True on the tokens that the loss predicts. In a conversation these are the
            assistant's tokens: its words and the token that ends its turn.
    """

    input_ids: list[int]
    loss_mask: list[bool]

    def __post_init__(self) -> None:
        if len(self.input_ids) != len(self.loss_mask) or not self.input_ids:
            raise ArgumentError(
                f"{len(self.input_ids)} token ids, {len(self.loss_mask)} entries of loss_mask; expected equal lengths, at least 1",
                argument="loss_mask",
                value=len(self.loss_mask),
                expected=len(self.input_ids),
            )

    def __len__(self) -> int:
        return len(self.input_ids)

    def truncated(self, max_length: int, mode: TruncationMode) -> Tokens | None:
        """Return at most ``max_length`` tokens from one end; None if no token is left that the loss predicts."""
        part = slice(max_length) if mode == "keep_start" else slice(-max_length, None)
        mask = self.loss_mask[part]
        return Tokens(self.input_ids[part], mask) if any(mask[1:]) else None


@dataclass(frozen=True)
class TokenBatch(_Rows):
    """Padded sequences to train on or to score.

    Attributes:
        input_ids: ``(B, S)``.
        attention_mask: ``(B, S)``, 1 on real tokens.
        loss_mask: ``(B, S)``, True on the tokens that the loss predicts; never on the first token.
    """

    input_ids: Tensor
    attention_mask: Tensor
    loss_mask: Tensor

    def __len__(self) -> int:
        return self.input_ids.shape[0]

    @property
    def mask(self) -> Tensor:
        """``(B, S − 1)``, True on the tokens that the loss predicts: ``loss_mask`` without the first column."""
        return self.loss_mask[:, 1:]


@dataclass(frozen=True)
class PackedBatch(_Rows):
    """Rows that each hold several sequences, one after another; no sequence attends to another.

    Attributes:
        input_ids: ``(B, S)``.
        documents: ``(B, S)``, the index of the token's sequence within its row, from 0; −1 at padding.
        loss_mask: ``(B, S)``, True on the tokens that the loss predicts; never on the first token of a sequence.
    """

    input_ids: Tensor
    documents: Tensor
    loss_mask: Tensor

    def __len__(self) -> int:
        return self.input_ids.shape[0]

    @property
    def mask(self) -> Tensor:
        """``(B, S − 1)``, True on the tokens that the loss predicts."""
        return self.loss_mask[:, 1:]

    def unpack(self) -> TokenBatch:
        """Return the ``D`` sequences, from the first row to the last, each in a row of its own: ``(D, longest)``."""
        real = self.documents >= 0
        rows = torch.arange(len(self), device=real.device)[:, None]
        _, lengths = (rows * real.shape[1] + self.documents)[real].unique_consecutive(return_counts=True)  # (D,)
        valid = torch.arange(int(lengths.max()), device=real.device) < lengths[:, None]  # (D, longest)
        ids, loss_mask = (
            torch.zeros(valid.shape, dtype=values.dtype, device=real.device).masked_scatter(valid, values[real])
            for values in (self.input_ids, self.loss_mask)
        )
        return TokenBatch(ids, valid.long(), loss_mask)


@dataclass(frozen=True)
class CompletionBatch(_Rows):
    """Prompts of width ``W``, padded on the left, and given completions of width ``T``, padded on the right.

    Attributes:
        input_ids, attention_mask: ``(B, W + T)``.
        mask: ``(B, T)``, True on the tokens of the completion; user turns in between are not part of it.
    """

    input_ids: Tensor
    attention_mask: Tensor
    mask: Tensor

    def __len__(self) -> int:
        return self.input_ids.shape[0]


@dataclass(frozen=True)
class PreferenceExample:
    """One tokenised preference: ``K`` completions of one prompt. Each of them contains the prompt.

    Attributes:
        completions: for a pair, the chosen and the rejected completion; for a list, the best first.
        desirable: for a single completion, whether it is desirable.
        margin: for a pair, by how much the chosen completion is better, if known.
        num_ranked: for a pair, how many completions were ranked together, of which these are two.
        scores: for a list, the score of each completion, if known.
    """

    completions: tuple[Tokens, ...]
    desirable: bool | None = None
    margin: float | None = None
    scores: tuple[float, ...] | None = None
    num_ranked: int = 2

    def __len__(self) -> int:
        """Return the number of tokens of the longest completion, including its prompt."""
        return max(map(len, self.completions))

    def truncated(self, max_length: int, mode: TruncationMode) -> PreferenceExample | None:
        """Return the example with each completion truncated; None if one has nothing left, or two became the same."""
        cut = [completion.truncated(max_length, mode) for completion in self.completions]
        left = tuple(completion for completion in cut if completion is not None)
        num_different = len(set(map(repr, self.completions)))
        if len(left) < len(cut) or len(set(map(repr, left))) < num_different:
            return None
        return replace(self, completions=left)

    @property
    def chosen(self) -> Tokens:
        """The best completion."""
        return self.completions[0]

    @property
    def rejected(self) -> Tokens:
        """The worst completion."""
        return self.completions[-1]


def pair(chosen: Tokens, rejected: Tokens, margin: float | None = None, num_ranked: int = 2) -> PreferenceExample:
    """Return a preference between two completions."""
    return PreferenceExample((chosen, rejected), margin=margin, num_ranked=num_ranked)


def labelled(answer: Tokens, desirable: bool) -> PreferenceExample:
    """Return one completion with its label, desirable or not."""
    return PreferenceExample((answer,), desirable=desirable)


def ranked(answers: Sequence[Tokens], scores: Sequence[float] | None = None) -> PreferenceExample:
    """Return completions ranked from best to worst."""
    return PreferenceExample(tuple(answers), scores=None if scores is None else tuple(scores))


def require_different_completions(examples: Sequence[PreferenceExample]) -> None:
    """Raise :class:`UserError` if two completions of an example have the same tokens, so that neither can be better."""
    for number, example in enumerate(examples, 1):
        if len(set(map(repr, example.completions))) < len(example.completions):
            raise UserError(
                f"example {number}: two of its completions are identical, so neither can be preferred",
                argument="answers",
                line=number,
                problem="duplicate",
            )


@dataclass(frozen=True)
class Stepped:
    """One tokenised completion in steps.

    Attributes:
        tokens: the prompt and the completion.
        ends: the position of each step's last token.
        labels: 1, 0 or −1 for each step.
    """

    tokens: Tokens
    ends: tuple[int, ...]
    labels: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.ends) != len(self.labels) or not self.ends:
            raise ValueError(
                f"{len(self.ends)} step ends, {len(self.labels)} labels; expected equal numbers, at least one"
            )

    def __len__(self) -> int:
        return len(self.tokens)

    def truncated(self, max_length: int, mode: TruncationMode) -> Stepped | None:
        """Return the example with the steps whose last token is left; None if there is no such step.

        The tokens of a step that is cut in two stay, without its label.
        """
        tokens = self.tokens.truncated(max_length, mode)
        removed = max(0, len(self) - max_length) if mode == "keep_end" else 0
        steps = [(e - removed, n) for e, n in zip(self.ends, self.labels, strict=True) if 0 <= e - removed < max_length]
        if tokens is None or not steps:
            return None
        ends, labels = zip(*steps, strict=True)
        return Stepped(tokens, ends, labels)


@dataclass(frozen=True)
class PreferencePair:
    """One comparison, as text or as chat messages already rendered to text."""

    prompt: str
    chosen: str
    rejected: str
    margin: float | None = None
