"""Multiple choice without generating: which of the given answers a model finds likeliest, by every way of comparing them."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from minirlhf.core.calling import context_length, evaluating
from minirlhf.core.errors import UserError
from minirlhf.data.chat import encode
from minirlhf.data.collate import collate
from minirlhf.data.records import Message, Problem
from minirlhf.data.types import Tokens
from minirlhf.equations.evaluation import normalised_scores, pointwise_information
from minirlhf.models.forward import completion_logps

#: How answers are compared: by their log-likelihood as it is, divided by their tokens, characters or bytes (eq:normalised-score), less that
#: without the question (eq:pointwise-information); or by the likelihood of their letter, when they are listed under letters.
WAYS = ("sum", "token", "character", "byte", "pmi", "letter")


@dataclass(frozen=True)
class MultipleChoiceResult:
    """What a model has chosen.

    Attributes:
        picked: to each problem, the answer that is chosen by each way.
        right: by each way ``(P,)``, 1 where the right answer is chosen, 1/t where it is one of t answers of one score, else 0.
        tokens: ``(P,)``, how many the answer has that is chosen by "sum", with the one that ends it.
    """

    picked: list[dict[str, str]]
    right: dict[str, Tensor]
    tokens: Tensor


def choose(model: Any, tokenizer: Any, problems: Sequence[Problem], *, batch_size: int = 64) -> MultipleChoiceResult:
    """Ask about every answer of every problem, ``batch_size`` answers at once.

    The likelihood is that of the answer as a whole reply, with the token that ends it: else ``7`` could never be less likely than ``72``.
    "letter" is left out where the tokenizer has one token for several letters.

    Raises:
        UserError: a question with its answer that is longer than the model's context, or two answers that are the same tokens.
    """
    if not problems:
        raise UserError("no problems to answer", argument="problems", problem="empty")
    bare, empty, listed = [], [], []
    for problem in problems:
        prompt, last = problem.prompt[:-1], problem.prompt[-1]
        letters = string.ascii_uppercase[: len(problem.choices)]
        shown = [f"{letter}. {choice}" for letter, choice in zip(letters, problem.choices, strict=True)]
        asked: Message = {**last, "content": "\n".join([last["content"], *shown])}
        bare += [_reply(tokenizer, problem.prompt, choice) for choice in problem.choices]
        empty += [_reply(tokenizer, [*prompt, {**last, "content": ""}], choice) for choice in problem.choices]
        listed += [_reply(tokenizer, [*prompt, asked], letter) for letter in letters]
    ways = [way for way in WAYS if way != "letter" or _differ(listed, problems) is None]
    if (alike := _differ(bare, problems)) is not None:
        raise UserError(
            f"two choices of the problem {alike.prompt[-1]['content'][:60]!r} are the same tokens to this model; expected choices that differ",
            argument="choices",
            problem="duplicate",
        )
    of_bare, of_empty = (_likelihoods(model, tokenizer, rows, batch_size) for rows in (bare, empty))
    of_letter = _likelihoods(model, tokenizer, listed, batch_size) if "letter" in ways else of_bare
    lengths = torch.tensor([sum(row.loss_mask) for row in bare])
    picked: list[dict[str, str]] = []
    right: dict[str, list[float]] = {way: [] for way in ways}
    tokens, at = [], 0
    for problem in problems:
        part = slice(at, at + len(problem.choices))
        at, answer = part.stop, problem.choices.index(str(problem.reference))
        sizes = {
            "sum": torch.ones(len(problem.choices)), "token": lengths[part],
            "character": torch.tensor([len(choice) for choice in problem.choices]),
            "byte": torch.tensor([len(choice.encode()) for choice in problem.choices]),
        }  # fmt: skip
        scores = {way: normalised_scores(of_bare[part], size.double()) for way, size in sizes.items()}
        scores |= {"pmi": pointwise_information(of_bare[part], of_empty[part]), "letter": of_letter[part]}
        picked.append({way: problem.choices[int(scores[way].argmax())] for way in ways})
        tokens.append(int(lengths[part][int(scores["sum"].argmax())]))
        for way in ways:
            best = scores[way] == scores[way].max()
            right[way].append(float(best[answer]) / int(best.sum()))
    found = {way: torch.tensor(shares, dtype=torch.float64) for way, shares in right.items()}
    return MultipleChoiceResult(picked, found, torch.tensor(tokens))


def _reply(tokenizer: Any, prompt: Sequence[Message], said: str) -> Tokens:
    return encode(tokenizer, [*prompt, {"role": "assistant", "content": said}], first_turn=len(prompt))


def _differ(rows: Sequence[Tokens], problems: Sequence[Problem]) -> Problem | None:
    """The first problem with two answers that are the same tokens, None if there is none."""
    at = 0
    for problem in problems:
        some = rows[at : at + len(problem.choices)]
        at += len(some)
        if len({tuple(row.input_ids) for row in some}) < len(some):
            return problem
    return None


@torch.no_grad()
def _likelihoods(model: Any, tokenizer: Any, rows: Sequence[Tokens], batch_size: int) -> Tensor:
    """``(N,)`` float64: log-probabilities of what is marked in each row."""
    longest, context = max(map(len, rows)), context_length(model)
    if context is not None and longest > context:
        raise UserError(
            f"the longest question with its answer has {longest} tokens, the model reads {context}; expected shorter ones",
            argument="choices",
            value=longest,
            expected=context,
            problem="too long",
        )
    device, found = next(model.parameters()).device, []
    with evaluating(model):
        for start in range(0, len(rows), batch_size):
            batch = collate(rows[start : start + batch_size], tokenizer.pad_token_id)
            ids, mask, marked = (x.to(device) for x in (batch.input_ids, batch.attention_mask, batch.loss_mask[:, 1:]))
            logps = completion_logps(model, ids, mask, ids.shape[1] - 1, wanted=marked)
            found.append(logps.double().masked_fill(~marked, 0.0).sum(1).cpu())
    return torch.cat(found)
