"""Multiple choice without generation: the most probable of the given answers, by several scoring methods."""

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

#: Scoring methods: the log-likelihood of the answer; the same divided by its tokens, characters or bytes
#: (eq:normalised-score), or minus the log-likelihood without the question (eq:pointwise-information); or the
#: likelihood of its letter in a lettered list.
WAYS = ("sum", "token", "character", "byte", "pmi", "letter")


@dataclass(frozen=True)
class MultipleChoiceResult:
    """The choices of a model.

    Attributes:
        picked: for each problem, method -> chosen answer.
        right: method -> ``(P,)``: 1 if the right answer has the best score, 1/t if t answers share it, else 0.
        tokens: ``(P,)``: number of tokens of the answer chosen by "sum", including the end token.
    """

    picked: list[dict[str, str]]
    right: dict[str, Tensor]
    tokens: Tensor


def choose(model: Any, tokenizer: Any, problems: Sequence[Problem], *, batch_size: int = 64) -> MultipleChoiceResult:
    """Score every answer of every problem, ``batch_size`` answers at once.

    The likelihood is that of the answer as a complete completion, with its end token. Otherwise ``7`` could never be
    less probable than ``72``. "letter" is left out if the tokenizer has one token for several letters.

    Raises:
        UserError: a question with its answer exceeds the model's context, or two answers have the same tokens.
    """
    if not problems:
        raise UserError("no problems to answer", argument="problems", problem="empty")
    plain, prior, lettered = [], [], []
    for problem in problems:
        prompt, last = problem.prompt[:-1], problem.prompt[-1]
        letters = string.ascii_uppercase[: len(problem.choices)]
        lines = [f"{letter}. {choice}" for letter, choice in zip(letters, problem.choices, strict=True)]
        question: Message = {**last, "content": "\n".join([last["content"], *lines])}
        plain += [_reply(tokenizer, problem.prompt, choice) for choice in problem.choices]
        prior += [_reply(tokenizer, [*prompt, {**last, "content": ""}], choice) for choice in problem.choices]
        lettered += [_reply(tokenizer, [*prompt, question], letter) for letter in letters]
    methods = [method for method in WAYS if method != "letter" or _differ(lettered, problems) is None]
    if (duplicate := _differ(plain, problems)) is not None:
        raise UserError(
            f"two choices of the problem {duplicate.prompt[-1]['content'][:60]!r} have the same tokens for this model; expected different choices",
            argument="choices",
            problem="duplicate",
        )
    plain_logps, prior_logps = (_likelihoods(model, tokenizer, rows, batch_size) for rows in (plain, prior))
    letter_logps = _likelihoods(model, tokenizer, lettered, batch_size) if "letter" in methods else plain_logps
    lengths = torch.tensor([sum(row.loss_mask) for row in plain])
    picked: list[dict[str, str]] = []
    right: dict[str, list[float]] = {method: [] for method in methods}
    tokens, start = [], 0
    for problem in problems:
        rows = slice(start, start + len(problem.choices))
        start, answer = rows.stop, problem.choices.index(str(problem.reference))
        sizes = {
            "sum": torch.ones(len(problem.choices)), "token": lengths[rows],
            "character": torch.tensor([len(choice) for choice in problem.choices]),
            "byte": torch.tensor([len(choice.encode()) for choice in problem.choices]),
        }  # fmt: skip
        scores = {method: normalised_scores(plain_logps[rows], size.double()) for method, size in sizes.items()}
        scores |= {"pmi": pointwise_information(plain_logps[rows], prior_logps[rows]), "letter": letter_logps[rows]}
        picked.append({method: problem.choices[int(scores[method].argmax())] for method in methods})
        tokens.append(int(lengths[rows][int(scores["sum"].argmax())]))
        for method in methods:
            best = scores[method] == scores[method].max()
            right[method].append(float(best[answer]) / int(best.sum()))
    accuracies = {method: torch.tensor(shares, dtype=torch.float64) for method, shares in right.items()}
    return MultipleChoiceResult(picked, accuracies, torch.tensor(tokens))


def _reply(tokenizer: Any, prompt: Sequence[Message], text: str) -> Tokens:
    return encode(tokenizer, [*prompt, {"role": "assistant", "content": text}], first_turn=len(prompt))


def _differ(rows: Sequence[Tokens], problems: Sequence[Problem]) -> Problem | None:
    """Return the first problem with two answers that have the same tokens; None if there is none."""
    start = 0
    for problem in problems:
        choices = rows[start : start + len(problem.choices)]
        start += len(choices)
        if len({tuple(row.input_ids) for row in choices}) < len(choices):
            return problem
    return None


@torch.no_grad()
def _likelihoods(model: Any, tokenizer: Any, rows: Sequence[Tokens], batch_size: int) -> Tensor:
    """Return ``(N,)`` float64: the log-probability of the tokens in each row's loss mask."""
    longest, context = max(map(len, rows)), context_length(model)
    if context is not None and longest > context:
        raise UserError(
            f"the longest question with its answer has {longest} tokens, the model reads {context}; expected shorter ones",
            argument="choices",
            value=longest,
            expected=context,
            problem="too long",
        )
    device, logps_batches = next(model.parameters()).device, []
    with evaluating(model):
        for start in range(0, len(rows), batch_size):
            batch = collate(rows[start : start + batch_size], tokenizer.pad_token_id)
            ids, mask, target = (x.to(device) for x in (batch.input_ids, batch.attention_mask, batch.loss_mask[:, 1:]))
            logps = completion_logps(model, ids, mask, ids.shape[1] - 1, wanted=target)
            logps_batches.append(logps.double().masked_fill(~target, 0.0).sum(1).cpu())
    return torch.cat(logps_batches)
