"""Compare two files of completions for the same prompts with a judge model, each pair in both orders."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from minirlhf.core.calling import context_length
from minirlhf.core.errors import UserError
from minirlhf.core.statistics import sign_test
from minirlhf.data.chat import encode_prompt
from minirlhf.data.loaders import Records
from minirlhf.data.records import Message, Reply
from minirlhf.equations.ai_feedback import split_position_bias
from minirlhf.feedback.judge import Judge, Verdicts, question, verdicts_of
from minirlhf.feedback.length_control import length_controlled
from minirlhf.trainers.evaluation import Estimate
from minirlhf_cli.files.measure import Measurement

#: Names of the numbers of a comparison, in tables and JSON files.
WIN_RATE, PREFERENCE, PLACE = "win rate of CANDIDATE", "preference for OURS, nats", "liking for place 1, nats"
AGREEMENT = "same verdict both ways"


@dataclass(frozen=True)
class Pair:
    """One prompt and the completion of each file."""

    prompt: list[Message]
    candidate: Reply
    baseline: Reply


@dataclass(frozen=True)
class MatchedPairs:
    """The pairs of two files, and the number of completions without a partner in the other file."""

    pairs: list[Pair]
    alone: int


def match(candidate: Records, baseline: Records) -> MatchedPairs:
    """Pair completions of the same prompt, in the order of the first file.

    The k-th completion of a prompt is paired with the k-th completion of this prompt in the other file.

    Raises:
        UserError: the files have no common prompt.
    """
    unmatched: dict[str, list[Reply]] = {}
    for prompt, reply in _exchanges(baseline):
        unmatched.setdefault(_key(prompt), []).append(reply)
    pairs, alone = [], 0
    for prompt, reply in _exchanges(candidate):
        partners = unmatched.get(_key(prompt))
        if partners:
            pairs.append(Pair(prompt, reply, partners.pop(0)))
        else:
            alone += 1
    if not pairs:
        first = _key(_exchanges(candidate)[0][0])
        raise UserError(
            f"{candidate.source} and {baseline.source} have no common prompt (the first prompt of {candidate.source} is "
            f"{first[:60]}); expected completions of the same prompts",
            argument="prompt",
            problem="mismatch",
            file=baseline.source,
        )
    return MatchedPairs(pairs, alone + sum(map(len, unmatched.values())))


def _exchanges(records: Records) -> list[tuple[list[Message], Reply]]:
    """Return for each conversation the prompt up to the last user turn, and the completion after it."""
    exchanges = []
    for conversation in records.conversations():
        last_user = max((i for i, m in enumerate(conversation.messages) if m["role"] == "user"), default=None)
        if last_user is None:
            raise UserError(f"{records.source}: a conversation without a question; expected a prompt and an answer")
        exchanges.append((conversation.messages[: last_user + 1], conversation.messages[last_user + 1 :]))
    return exchanges


def _key(prompt: Sequence[Message]) -> str:
    return json.dumps([[m["role"], m["content"]] for m in prompt], ensure_ascii=False)


def _text(reply: Reply) -> str:
    return "\n".join(m["content"] for m in reply)


@dataclass(frozen=True)
class JudgedFiles:
    """The verdicts of a judge on pairs.

    Attributes:
        pairs: the judged pairs; pairs of equal completions are not judged.
        equal: the pairs of equal completions, which count as ties.
        verdicts: in the given order, the candidate is the first completion.
        log_odds: of the verdicts in the given and the exchanged order, ``(N,)`` each, in nats, positive for the
            completion shown first; None for written verdicts.
    """

    pairs: list[Pair]
    equal: list[Pair]
    verdicts: Verdicts
    log_odds: tuple[Tensor, Tensor] | None

    @property
    def won(self) -> int:
        """Number of pairs for which ``candidate`` wins in both orders."""
        return self.verdicts.scores.count(1.0)

    @property
    def lost(self) -> int:
        """Number of pairs for which ``baseline`` wins in both orders."""
        return self.verdicts.scores.count(0.0)

    @property
    def sign_test_p(self) -> float:
        """The p-value of the sign test over prompts; prompts with equally many wins on both sides are left out."""
        margins: dict[str, float] = {}
        for pair, score in zip(self.pairs, self.verdicts.scores, strict=True):
            margins[_key(pair.prompt)] = margins.get(_key(pair.prompt), 0.0) + score - 0.5
        return sign_test(sum(x > 0 for x in margins.values()), sum(x < 0 for x in margins.values()))

    def numbers(self) -> list[Measurement]:
        """Return the measurements, with 95 % intervals over prompts; every prompt has the same weight."""
        scores = {id(pair): score for pair, score in zip(self.pairs, self.verdicts.scores, strict=True)}
        all_pairs = [*self.pairs, *self.equal]
        values = [scores.get(id(pair), 0.5) for pair in all_pairs]
        measurements = [self._share(WIN_RATE, all_pairs, values)]
        if self.log_odds is not None:
            preference, position_bias = split_position_bias(*self.log_odds)
            num_prompts = len({_key(pair.prompt) for pair in self.pairs})
            measurements += [
                Measurement.of(PREFERENCE, _over_prompts(self.pairs, preference.tolist()), num_prompts),
                Measurement.of(PLACE, _over_prompts(self.pairs, position_bias.tolist()), num_prompts),
            ]
        agreement = [
            float(a is not None and a == b) for a, b in zip(self.verdicts.given, self.verdicts.exchanged, strict=True)
        ]
        measurements.append(self._share(AGREEMENT, self.pairs, agreement))
        longer = [
            (pair, score if len(_text(pair.candidate)) > len(_text(pair.baseline)) else 1 - score)
            for pair, score in zip(self.pairs, self.verdicts.scores, strict=True)
            if len(_text(pair.candidate)) != len(_text(pair.baseline))
        ]
        if longer:
            pairs, wins = zip(*longer, strict=True)
            measurements.append(self._share("the longer answer wins", pairs, wins))
        return measurements

    def length_controlled(self) -> list[Measurement]:
        """Return the win rate at equal length, and the judge's length bias; lengths are in characters.

        Raises:
            UserError: lengths and verdicts do not determine the regression.
        """
        pairs = [*self.pairs, *self.equal]
        scores = torch.tensor([*self.verdicts.scores, *([0.5] * len(self.equal))], dtype=torch.float64)
        candidate, baseline = (
            torch.tensor([len(_text(reply)) for reply in replies], dtype=torch.float64)
            for replies in ([p.candidate for p in pairs], [p.baseline for p in pairs])
        )
        try:
            fit = length_controlled(scores, candidate, baseline, [_key(pair.prompt) for pair in pairs])
        except ValueError:
            raise UserError(
                f"--length-controlled: the length differences of {len(pairs)} pairs are all equal, or they determine "
                "every verdict; expected verdicts for and against longer completions",
                argument="--length-controlled",
                value=len(pairs),
            ) from None
        half_width = 1.96 * fit.length_bias_error
        return [
            Measurement("win rate at equal length", fit.win_rate, fit.low, fit.high),
            Measurement(
                "liking for length, nats", fit.length_bias, fit.length_bias - half_width, fit.length_bias + half_width
            ),
        ]

    @staticmethod
    def _share(name: str, pairs: Sequence[Pair], values: Sequence[float]) -> Measurement:
        """Return the fraction with one vote per prompt; a prompt with several pairs votes with their mean."""
        num_prompts = len({_key(pair.prompt) for pair in pairs})
        if num_prompts == len(pairs):
            return Measurement.of_votes(name, torch.tensor(values))
        return Measurement.of_shares(name, _over_prompts(pairs, values), num_prompts, len(pairs))

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per judged pair: prompt, completions, both verdicts, and the log-odds if there are any."""
        rows = []
        for i, pair in enumerate(self.pairs):
            row: dict[str, Any] = {"prompt": pair.prompt, "ours": _text(pair.candidate), "theirs": _text(pair.baseline)}
            row |= {
                "score": self.verdicts.scores[i],
                "given": self.verdicts.given[i],
                "exchanged": self.verdicts.exchanged[i],
            }
            if self.log_odds is not None:
                row |= {"lean_given": float(self.log_odds[0][i]), "lean_exchanged": float(self.log_odds[1][i])}
            rows.append(row)
        return rows


def _over_prompts(pairs: Sequence[Pair], values: Sequence[float]) -> Estimate:
    """Return the mean of the prompts' means."""
    by_prompt: dict[str, list[float]] = {}
    for pair, value in zip(pairs, values, strict=True):
        by_prompt.setdefault(_key(pair.prompt), []).append(value)
    return Estimate.of(torch.tensor([sum(group) / len(group) for group in by_prompt.values()]))


def compare(judge: Judge, pairs: Sequence[Pair], *, written: bool = False) -> JudgedFiles:
    """Judge the pairs whose completions differ.

    Args:
        written: the judge writes its verdict, possibly after reasons; else the probabilities of the two verdicts are
            compared.

    Raises:
        UserError: no two completions differ, or the judge cannot read a word or a length.
    """
    distinct = [pair for pair in pairs if _text(pair.candidate) != _text(pair.baseline)]
    if not distinct:
        raise UserError(
            f"all {len(pairs)} pairs have equal completions; there is nothing to judge",
            argument="answers",
            value=len(pairs),
            problem="duplicate",
        )
    require_readable(judge, distinct, written=written)
    question_parts = [p.prompt for p in distinct], [p.candidate for p in distinct], [p.baseline for p in distinct]
    leans = None if written else judge.verdict_log_odds(*question_parts)
    verdicts = judge(*question_parts) if leans is None else verdicts_of(*leans)
    return JudgedFiles(distinct, [p for p in pairs if _text(p.candidate) == _text(p.baseline)], verdicts, leans)


def require_readable(judge: Judge, pairs: Sequence[Pair], *, written: bool) -> None:
    """Raise :class:`UserError` if a question exceeds the judge's context or has a word outside its vocabulary."""
    context, unknown = context_length(judge.model), judge.tokenizer.unk_token_id
    if not written and not judge.knows_verdicts:
        raise UserError(
            "the judge does not know the words [[A]] and [[B]]; is it trained to judge?",
            argument="--judge",
            expected=("[[A]]", "[[B]]"),
            problem="unknown",
        )
    max_verdict = judge.max_completion_length if written else judge.verdict_length
    for pair in pairs:
        ids = encode_prompt(judge.tokenizer, question(pair.prompt, pair.candidate, pair.baseline, ask=judge.ask))
        if context is not None and len(ids) + max_verdict > context:
            raise UserError(
                f"the judge reads {context} tokens; a question has {len(ids)} and its verdict may have {max_verdict}: "
                f"{_key(pair.prompt)[:60]}",
                argument="question",
                value=len(ids) + max_verdict,
                expected=context,
                problem="too long",
            )
        text = " ".join([*(m["content"] for m in pair.prompt), _text(pair.candidate), _text(pair.baseline)])
        for word in text.split():
            if unknown is not None and unknown in judge.tokenizer(word, add_special_tokens=False)["input_ids"]:
                raise UserError(
                    f"the judge does not know the word {word!r}; expected answers in its language, or another --judge",
                    argument="word",
                    value=word,
                    problem="unknown",
                )
