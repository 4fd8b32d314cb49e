"""Records as the examples of the trainers, tokenised with the conversation's own template."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from minirlhf.core.errors import UserError
from minirlhf.data.chat import encode, encode_whole, stepwise
from minirlhf.data.loaders import Records
from minirlhf.data.records import Comparison, Conversation, Message, Ranking, StepLabeledCompletion, UnpairedPreference
from minirlhf.data.types import PreferenceExample, Tokens, labelled, pair, ranked
from minirlhf.equations.preference_losses import ListLogps, UnpairedLogps

Messages: TypeAlias = list[Message]


def answer(tokenizer: Any, prompt: Messages, reply: Messages) -> Tokens:
    return _named([*prompt, *reply], lambda messages: encode(tokenizer, messages, first_turn=len(prompt)))


def _named(messages: Messages, encoded: Callable[[Messages], Tokens]) -> Tokens:
    """The encoded messages; an error names the conversation."""
    try:
        return encoded(messages)
    except UserError as problem:
        first = " ".join(messages[0]["content"].split())
        raise UserError.about(f"the conversation that begins {first[:60]!r}: {problem}", problem) from problem


def every_reply(tokenizer: Any, conversation: Conversation) -> Tokens:
    """The assistant's turns are learned, each with the token that ends it, but for those that the data give as context."""
    messages, given = conversation.messages, conversation.context
    return answer(tokenizer, messages[:given], messages[given:])


def last_reply(tokenizer: Any, conversation: Conversation) -> Tokens:
    """The assistant's last turn is learned, with the token that ends it."""
    return every_reply(tokenizer, of_last_reply(conversation))


def every_token(tokenizer: Any, conversation: Conversation) -> Tokens:
    """All is learned: every speaker's words, and what the template writes around them."""
    return _named(conversation.messages, lambda messages: encode_whole(tokenizer, messages))


#: Which tokens of a conversation are learned.
TRAIN_ON: Mapping[str, Callable[[Any, Conversation], Tokens]] = {
    "assistant": every_reply,
    "last": last_reply,
    "all": every_token,
}


def of_last_reply(conversation: Conversation) -> Conversation:
    """The same conversation, of which all before the assistant's last turn is context."""
    turns = [turn for turn, message in enumerate(conversation.messages) if message["role"] == "assistant"]
    return Conversation(conversation.messages, turns[-1])


def conversations(
    tokenizer: Any, records: Records, learned: Callable[[Any, Conversation], Tokens] = every_reply
) -> list[Tokens]:
    """What is imitated; ``learned`` is one of :data:`TRAIN_ON`."""
    return [learned(tokenizer, conversation) for conversation in records.conversations()]


def pairs(tokenizer: Any, records: Records) -> list[PreferenceExample]:
    return [
        pair(answer(tokenizer, c.prompt, c.chosen), answer(tokenizer, c.prompt, c.rejected), c.margin, c.num_ranked)
        for c in records.comparisons()
    ]


def rankings(tokenizer: Any, records: Records) -> list[PreferenceExample]:
    """From best to worst; of tied replies the first."""
    return [ranked([answer(tokenizer, r.prompt, reply) for reply in r.strict()], r.scores) for r in records.rankings()]


def judged(tokenizer: Any, records: Records) -> list[PreferenceExample]:
    """Single replies with their label."""
    return [labelled(answer(tokenizer, j.prompt, j.completion), j.desirable) for j in records.judgements()]


def kind_for(records: Records, kind: type[Any]) -> type[Any]:
    """What comes closest to what a loss of this kind compares: single replies stay single."""
    return UnpairedLogps if any(isinstance(example, UnpairedPreference) for example in records.examples) else kind


def compared(tokenizer: Any, records: Records, kind: type[Any]) -> list[PreferenceExample]:
    """The records as the examples that come closest to what a loss of this kind compares."""
    made = {UnpairedLogps: judged, ListLogps: rankings}.get(kind_for(records, kind), pairs)
    return made(tokenizer, records)


def replies(records: Records) -> Iterator[Messages]:
    """Every reply with its prompt, whether it is a good one or not."""
    for example in records.examples:
        match example:
            case Comparison(prompt, chosen, rejected):
                yield from ([*prompt, *chosen], [*prompt, *rejected])
            case UnpairedPreference(prompt, completion):
                yield [*prompt, *completion]
            case StepLabeledCompletion(prompt, steps):
                yield [*prompt, stepwise(steps)]
            case Ranking(prompt, tiers):
                yield from ([*prompt, *reply] for tier in tiers for reply in tier)


def replies_of(needed: Callable[[Records], object]) -> Callable[[Records], Iterator[Messages]]:
    """:func:`replies`, of records that have what is ``needed``: what they lack is said before a tokenizer is trained on nothing."""

    def texts(records: Records) -> Iterator[Messages]:
        needed(records)
        return replies(records)

    return texts
