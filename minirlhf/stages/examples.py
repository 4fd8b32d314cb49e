"""Records as the examples of the trainers, tokenised with the conversation's own template."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from minirlhf.core.errors import UserError
from minirlhf.data.chat import Message, encode, stepwise
from minirlhf.data.loaders import Records
from minirlhf.data.records import Comparison, Judgement, Ranking, SteppedReply
from minirlhf.data.types import Compared, Tokens, labelled, pair, ranked

Messages: TypeAlias = list[Message]


def answer(tokenizer: Any, prompt: Messages, reply: Messages) -> Tokens:
    try:
        return encode(tokenizer, [*prompt, *reply], first_turn=len(prompt))
    except UserError as problem:
        first = " ".join((prompt or reply)[0]["content"].split())
        raise UserError(f"the conversation that begins {first[:60]!r}: {problem}") from problem


def conversations(tokenizer: Any, records: Records) -> list[Tokens]:
    return [answer(tokenizer, c.messages[: c.context], c.messages[c.context :]) for c in records.conversations()]


def pairs(tokenizer: Any, records: Records) -> list[Compared]:
    return [
        pair(answer(tokenizer, c.prompt, c.chosen), answer(tokenizer, c.prompt, c.rejected), c.margin, c.num_ranked)
        for c in records.comparisons()
    ]


def rankings(tokenizer: Any, records: Records) -> list[Compared]:
    """From best to worst; of tied replies the first."""
    return [ranked([answer(tokenizer, r.prompt, reply) for reply in r.strict()], r.scores) for r in records.rankings()]


def judged(tokenizer: Any, records: Records) -> list[Compared]:
    """Single replies with their label."""
    return [labelled(answer(tokenizer, j.prompt, j.completion), j.desirable) for j in records.judgements()]


def replies(records: Records) -> Iterator[Messages]:
    """Every reply with its prompt, whether it is a good one or not."""
    for example in records.examples:
        match example:
            case Comparison(prompt, chosen, rejected):
                yield from ([*prompt, *chosen], [*prompt, *rejected])
            case Judgement(prompt, completion):
                yield [*prompt, *completion]
            case SteppedReply(prompt, steps):
                yield [*prompt, stepwise(steps)]
            case Ranking(prompt, tiers):
                yield from ([*prompt, *reply] for tier in tiers for reply in tier)


def replies_of(needed: Callable[[Records], object]) -> Callable[[Records], Iterator[Messages]]:
    """:func:`replies`, of records that have what is ``needed``: what they lack is said before a tokenizer is trained on nothing."""

    def texts(records: Records) -> Iterator[Messages]:
        needed(records)
        return replies(records)

    return texts
