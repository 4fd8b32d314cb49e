"""Convert records to the trainers' examples, tokenised with the model's chat template."""

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
    """Return the encoded messages; an error names the conversation."""
    try:
        return encoded(messages)
    except UserError as problem:
        first = " ".join(messages[0]["content"].split())
        raise UserError.about(f"the conversation that begins {first[:60]!r}: {problem}", problem) from problem


def every_completion(tokenizer: Any, conversation: Conversation) -> Tokens:
    """Encode with all assistant turns after ``conversation.context`` learned, each with its end token."""
    messages, num_context = conversation.messages, conversation.context
    return answer(tokenizer, messages[:num_context], messages[num_context:])


def last_completion(tokenizer: Any, conversation: Conversation) -> Tokens:
    """Encode with only the last assistant turn learned, with its end token."""
    return every_completion(tokenizer, of_last_completion(conversation))


def every_token(tokenizer: Any, conversation: Conversation) -> Tokens:
    """Encode with all tokens learned: all speakers' turns and the tokens of the template."""
    return _named(conversation.messages, lambda messages: encode_whole(tokenizer, messages))


#: Which tokens of a conversation are learned.
TRAIN_ON: Mapping[str, Callable[[Any, Conversation], Tokens]] = {
    "assistant": every_completion,
    "last": last_completion,
    "all": every_token,
}


def of_last_completion(conversation: Conversation) -> Conversation:
    """Return the conversation with everything before the last assistant turn as context."""
    turns = [index for index, message in enumerate(conversation.messages) if message["role"] == "assistant"]
    return Conversation(conversation.messages, turns[-1])


def conversations(
    tokenizer: Any, records: Records, learned: Callable[[Any, Conversation], Tokens] = every_completion
) -> list[Tokens]:
    """Return the examples of supervised fine-tuning; ``learned`` is a value of :data:`TRAIN_ON`."""
    return [learned(tokenizer, conversation) for conversation in records.conversations()]


def pairs(tokenizer: Any, records: Records) -> list[PreferenceExample]:
    return [
        pair(answer(tokenizer, c.prompt, c.chosen), answer(tokenizer, c.prompt, c.rejected), c.margin, c.num_ranked)
        for c in records.comparisons()
    ]


def rankings(tokenizer: Any, records: Records) -> list[PreferenceExample]:
    """Return rankings from best to worst; of tied completions only the first is used."""
    return [ranked([answer(tokenizer, r.prompt, reply) for reply in r.strict()], r.scores) for r in records.rankings()]


def judged(tokenizer: Any, records: Records) -> list[PreferenceExample]:
    """Return single completions with their labels."""
    return [labelled(answer(tokenizer, j.prompt, j.completion), j.desirable) for j in records.judgements()]


def kind_for(records: Records, kind: type[Any]) -> type[Any]:
    """Return the kind of examples for a loss of this kind; unpaired completions stay unpaired."""
    return UnpairedLogps if any(isinstance(example, UnpairedPreference) for example in records.examples) else kind


def compared(tokenizer: Any, records: Records, kind: type[Any]) -> list[PreferenceExample]:
    """Return the records as examples for a loss of this kind (:func:`kind_for`)."""
    convert = {UnpairedLogps: judged, ListLogps: rankings}.get(kind_for(records, kind), pairs)
    return convert(tokenizer, records)


def completions(records: Records) -> Iterator[Messages]:
    """Yield every completion with its prompt, good or bad."""
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


def completions_of(needed: Callable[[Records], object]) -> Callable[[Records], Iterator[Messages]]:
    """Return :func:`completions` with a check first: ``needed(records)`` raises if the records lack something.

    So the error comes before a tokenizer is trained on no text.
    """

    def texts(records: Records) -> Iterator[Messages]:
        needed(records)
        return completions(records)

    return texts
