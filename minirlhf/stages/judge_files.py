"""Two files of answers to the same prompts, compared by a language model that judges: each pair in both orders, with intervals."""

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
from minirlhf.stages.measure import Measurement
from minirlhf.trainers.evaluation import Estimate

#: Names of the numbers of a comparison, in tables and JSON files.
WIN_RATE, PREFERENCE, PLACE = "win rate of OURS", "preference for OURS, nats", "liking for place 1, nats"
AGREEMENT = "same verdict both ways"


@dataclass(frozen=True)
class Pair:
    """One prompt and the reply of each file."""

    prompt: list[Message]
    ours: Reply
    theirs: Reply


@dataclass(frozen=True)
class MatchedPairs:
    """The pairs of two files, and how many answers have no partner in the other file."""

    pairs: list[Pair]
    alone: int


def match(ours: Records, theirs: Records) -> MatchedPairs:
    """Answers to the same prompt, in the order of the first file; the k-th to a prompt meets the k-th of the other file.

    Raises:
        UserError: no prompt stands in both.
    """
    waiting: dict[str, list[Reply]] = {}
    for prompt, reply in _exchanges(theirs):
        waiting.setdefault(_key(prompt), []).append(reply)
    pairs, alone = [], 0
    for prompt, reply in _exchanges(ours):
        partners = waiting.get(_key(prompt))
        if partners:
            pairs.append(Pair(prompt, reply, partners.pop(0)))
        else:
            alone += 1
    if not pairs:
        first = _key(_exchanges(ours)[0][0])
        raise UserError(
            f"{ours.source} and {theirs.source} have no prompt in common (the first of {ours.source} is {first[:60]}); expected "
            "answers to the same prompts",
            argument="prompt",
            problem="mismatch",
            file=theirs.source,
        )
    return MatchedPairs(pairs, alone + sum(map(len, waiting.values())))


def _exchanges(records: Records) -> list[tuple[list[Message], Reply]]:
    """What each conversation answers last, and the answer."""
    found = []
    for c in records.conversations():
        asked = max((i for i, m in enumerate(c.messages) if m["role"] == "user"), default=None)
        if asked is None:
            raise UserError(f"{records.source}: a conversation without a question; expected a prompt and an answer")
        found.append((c.messages[: asked + 1], c.messages[asked + 1 :]))
    return found


def _key(prompt: Sequence[Message]) -> str:
    return json.dumps([[m["role"], m["content"]] for m in prompt], ensure_ascii=False)


def _text(reply: Reply) -> str:
    return "\n".join(m["content"] for m in reply)


@dataclass(frozen=True)
class JudgedFiles:
    """What a judge says of pairs.

    Attributes:
        pairs: those that it was asked about; of equal answers it was not.
        equal: how many pairs have equal answers, which are ties.
        verdicts: ours is the first reply.
        leans: as given and exchanged, ``(N,)`` each, in nats towards the reply shown first; None where verdicts were written.
    """

    pairs: list[Pair]
    equal: list[Pair]
    verdicts: Verdicts
    leans: tuple[Tensor, Tensor] | None

    @property
    def won(self) -> int:
        """Pairs on which both orders are for ours."""
        return self.verdicts.scores.count(1.0)

    @property
    def lost(self) -> int:
        """Pairs on which both orders are for theirs."""
        return self.verdicts.scores.count(0.0)

    @property
    def sign_test_p(self) -> float:
        """How likely a split of the prompts at least as uneven is, if each prompt that one side wins more often than the other were a coin toss."""
        ahead: dict[str, float] = {}
        for pair, score in zip(self.pairs, self.verdicts.scores, strict=True):
            ahead[_key(pair.prompt)] = ahead.get(_key(pair.prompt), 0.0) + score - 0.5
        return sign_test(sum(x > 0 for x in ahead.values()), sum(x < 0 for x in ahead.values()))

    def numbers(self) -> list[Measurement]:
        """With 95 % intervals over prompts; every prompt counts the same."""
        scores = {id(pair): score for pair, score in zip(self.pairs, self.verdicts.scores, strict=True)}
        everything = [*self.pairs, *self.equal]
        values = [scores.get(id(pair), 0.5) for pair in everything]
        found = [self._share(WIN_RATE, everything, values)]
        if self.leans is not None:
            prefers, place = split_position_bias(*self.leans)
            prompts = len({_key(pair.prompt) for pair in self.pairs})
            found += [
                Measurement.of(PREFERENCE, _over_prompts(self.pairs, prefers.tolist()), prompts),
                Measurement.of(PLACE, _over_prompts(self.pairs, place.tolist()), prompts),
            ]
        agree = [
            float(a is not None and a == b) for a, b in zip(self.verdicts.given, self.verdicts.exchanged, strict=True)
        ]
        found.append(self._share(AGREEMENT, self.pairs, agree))
        longer = [
            (pair, score if len(_text(pair.ours)) > len(_text(pair.theirs)) else 1 - score)
            for pair, score in zip(self.pairs, self.verdicts.scores, strict=True)
            if len(_text(pair.ours)) != len(_text(pair.theirs))
        ]
        if longer:
            pairs, won = zip(*longer, strict=True)
            found.append(self._share("the longer answer wins", pairs, won))
        return found

    def length_controlled(self) -> list[Measurement]:
        """The win rate at equal length, and how much the judge likes length; characters are counted.

        Raises:
            UserError: lengths and verdicts do not allow a regression.
        """
        pairs = [*self.pairs, *self.equal]
        scores = torch.tensor([*self.verdicts.scores, *([0.5] * len(self.equal))], dtype=torch.float64)
        ours, theirs = (
            torch.tensor([len(_text(reply)) for reply in replies], dtype=torch.float64)
            for replies in ([p.ours for p in pairs], [p.theirs for p in pairs])
        )
        try:
            found = length_controlled(scores, ours, theirs, [_key(pair.prompt) for pair in pairs])
        except ValueError:
            raise UserError(
                f"--length-controlled: the lengths of {len(pairs)} pairs all differ by as much, or they decide every verdict; expected "
                "verdicts for and against longer answers",
                argument="--length-controlled",
                value=len(pairs),
            ) from None
        reach = 1.96 * found.liking_error
        return [
            Measurement("win rate at equal length", found.win_rate, found.low, found.high),
            Measurement("liking for length, nats", found.liking, found.liking - reach, found.liking + reach),
        ]

    @staticmethod
    def _share(name: str, pairs: Sequence[Pair], values: Sequence[float]) -> Measurement:
        """One vote of each prompt; where a prompt has several pairs, the mean of the prompts' shares."""
        prompts = len({_key(pair.prompt) for pair in pairs})
        if prompts == len(pairs):
            return Measurement.of_votes(name, torch.tensor(values))
        return Measurement.of_shares(name, _over_prompts(pairs, values), prompts, len(pairs))

    def rows(self) -> list[dict[str, Any]]:
        """One for each pair that was judged: prompt, answers, both verdicts, and the leans where there are any."""
        found = []
        for i, pair in enumerate(self.pairs):
            row: dict[str, Any] = {"prompt": pair.prompt, "ours": _text(pair.ours), "theirs": _text(pair.theirs)}
            row |= {
                "score": self.verdicts.scores[i],
                "given": self.verdicts.given[i],
                "exchanged": self.verdicts.exchanged[i],
            }
            if self.leans is not None:
                row |= {"lean_given": float(self.leans[0][i]), "lean_exchanged": float(self.leans[1][i])}
            found.append(row)
        return found


def _over_prompts(pairs: Sequence[Pair], values: Sequence[float]) -> Estimate:
    """The mean of the prompts' means."""
    of: dict[str, list[float]] = {}
    for pair, value in zip(pairs, values, strict=True):
        of.setdefault(_key(pair.prompt), []).append(value)
    return Estimate.of(torch.tensor([sum(some) / len(some) for some in of.values()]))


def compare(judge: Judge, pairs: Sequence[Pair], *, written: bool = False) -> JudgedFiles:
    """Judge the pairs whose answers differ.

    Args:
        written: let the judge write its verdicts, after reasons if it likes; else compare how likely the two verdicts are.

    Raises:
        UserError: no two answers differ; a word or a length that the judge cannot read.
    """
    differ = [pair for pair in pairs if _text(pair.ours) != _text(pair.theirs)]
    if not differ:
        raise UserError(
            f"all {len(pairs)} pairs have two equal answers; there is nothing to judge",
            argument="answers",
            value=len(pairs),
            problem="duplicate",
        )
    require_readable(judge, differ, written=written)
    asked = [p.prompt for p in differ], [p.ours for p in differ], [p.theirs for p in differ]
    leans = None if written else judge.verdict_log_odds(*asked)
    verdicts = judge(*asked) if leans is None else verdicts_of(*leans)
    return JudgedFiles(differ, [p for p in pairs if _text(p.ours) == _text(p.theirs)], verdicts, leans)


def require_readable(judge: Judge, pairs: Sequence[Pair], *, written: bool) -> None:
    """Raise :class:`UserError` if a question does not fit into the judge's context or has a word that it does not know."""
    context, unknown = context_length(judge.model), judge.tokenizer.unk_token_id
    if not written and not judge.knows_verdicts:
        raise UserError(
            "the judge does not know the words [[A]] and [[B]]; is it trained to judge?",
            argument="--judge",
            expected=("[[A]]", "[[B]]"),
            problem="unknown",
        )
    room = judge.max_completion_length if written else judge.verdict_length
    for pair in pairs:
        ids = encode_prompt(judge.tokenizer, question(pair.prompt, pair.ours, pair.theirs, ask=judge.ask))
        if context is not None and len(ids) + room > context:
            raise UserError(
                f"the judge reads {context} tokens; a question has {len(ids)} and its verdict may have {room}: {_key(pair.prompt)[:60]}",
                argument="question",
                value=len(ids) + room,
                expected=context,
                problem="too long",
            )
        text = " ".join([*(m["content"] for m in pair.prompt), _text(pair.ours), _text(pair.theirs)])
        for word in text.split():
            if unknown is not None and unknown in judge.tokenizer(word, add_special_tokens=False)["input_ids"]:
                raise UserError(
                    f"the judge does not know the word {word!r}; expected answers in its language, or another --judge",
                    argument="word",
                    value=word,
                    problem="unknown",
                )
