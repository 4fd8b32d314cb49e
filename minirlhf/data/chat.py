"""Chat templates, and the mask of the tokens that the assistant wrote.

A conversation is a list of messages ``{"role": ..., "content": ...}``. A template (Jinja, as ``transformers``
tokenizers carry it) renders it as one text; ``{% generation %}`` marks the assistant's text. The loss of a trainer
covers only the assistant's tokens: its words and the token that ends its turn, in *every* turn.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from minirlhf.core.errors import ArgumentError, UserError
from minirlhf.data import rendering
from minirlhf.data.records import ROLES, Message, thought_and_answer
from minirlhf.data.types import Tokens

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Special tokens of the tokenizers made here, in the order of their ids. Padding and EOS are different tokens.
PAD, EOS, USER, ASSISTANT, SYSTEM, UNK = "<pad>", "<eos>", "<user>", "<assistant>", "<system>", "<unk>"
SPECIAL_TOKENS = (PAD, EOS, USER, ASSISTANT, SYSTEM, UNK)

_BAD_ROLE = "{{ raise_exception('unknown role ' ~ message['role']) }}"


#: What the templates of text write beside the content: the tools, a thought, tool calls.
_TOOLS = "{{ 'Tools:' }}{% for tool in tools %}{{ '\n' ~ (tool | tojson) }}{% endfor %}"
_THOUGHT = "{{ '<think>\n' ~ message['reasoning_content'] ~ '\n</think>\n\n' if message['reasoning_content'] }}"
_CALLS = (
    "{% for call in message['tool_calls'] or [] %}{{ '\n' if message['content'] or not loop.first }}"
    "{{ '<tool_call>\n' ~ ({'name': call['function']['name'], 'arguments': call['function']['arguments']} | tojson)"
    " ~ '\n</tool_call>' }}{% endfor %}"
)


def _role_tokens(gap: str, *roles: str, tools: str = "", thought: str = "", calls: str = "") -> str:
    """Return a template in which a token announces each role and the end-of-sequence token ends the assistant's turns.

    ``roles`` are the allowed roles other than the assistant; ``tools``, ``thought`` and ``calls`` write more than the
    content.
    """
    return (
        f"{tools}{{% for message in messages %}}"
        f"{{{{ '{gap}' if not loop.first }}}}"
        "{% if message['role'] == 'assistant' %}"
        f"<assistant>{gap}{{% generation %}}{thought}"
        f"{{{{ message['content'] ~ '{gap}' if message['content'] }}}}{calls}{{{{ eos_token }}}}{{% endgeneration %}}"
        f"{{% elif message['role'] in {roles} %}}"
        f"{{{{ '<' ~ message['role'] ~ '>' }}}}{gap}{{{{ message['content'] }}}}"
        f"{{% else %}}{_BAD_ROLE}{{% endif %}}"
        "{% endfor %}"
        f"{{{{ '{gap}<assistant>' if add_generation_prompt }}}}"
    )


#: ``<user> tell me about cats <assistant> cats sleep a lot <eos>``: for word-level tokenizers, which split at spaces.
WORDS = _role_tokens(" ", "user", "system")

#: The same with the role ``tool``, for environments with tools: ``… <eos> <tool> 4 0 8 <assistant>``. ``<tool>`` is one
#: of the tokenizer's words.
WORDS_AND_TOOLS = _role_tokens(" ", "user", "system", "tool")

#: The same without spaces around the special tokens: for tokenizers that keep spaces (trained on data, byte-level).
TURNS = _role_tokens(
    *("", "user", "system", "tool"),
    tools=f"{{% if tools %}}<system>{_TOOLS}{{% endif %}}",
    thought=_THOUGHT,
    calls=_CALLS,
)

#: ChatML: for tokenizers that have ``<|im_start|>`` and ``<|im_end|>``.
CHATML = (
    f"{{% if tools %}}{{{{ '<|im_start|>system\n' }}}}{_TOOLS}{{{{ '<|im_end|>\n' }}}}{{% endif %}}"
    "{% for message in messages %}"
    "{{ '<|im_start|>' ~ message['role'] ~ '\n' }}"
    "{% if message['role'] == 'assistant' %}"
    f"{{% generation %}}{_THOUGHT}{{{{ message['content'] }}}}{_CALLS}{{{{ '<|im_end|>' }}}}{{% endgeneration %}}"
    "{% elif message['role'] in ('user', 'system', 'tool') %}{{ message['content'] ~ '<|im_end|>' }}"
    f"{{% else %}}{_BAD_ROLE}{{% endif %}}"
    "{{ '\n' }}"
    "{% endfor %}"
    "{{ '<|im_start|>assistant\n' if add_generation_prompt }}"
)

#: ``User: ...`` / ``Assistant: ...`` in plain words: for a pretrained tokenizer that has no template of its own.
TRANSCRIPT = (
    f"{{% if tools %}}{{{{ 'System: ' }}}}{_TOOLS}{{{{ '\n\n' }}}}{{% endif %}}"
    "{% for message in messages %}"
    "{{ '\n\n' if not loop.first }}"
    "{% if message['role'] == 'assistant' %}"
    "Assistant:{% generation %}{{ ' ' }}"
    f"{_THOUGHT}{{{{ message['content'] }}}}{_CALLS}{{{{ eos_token }}}}{{% endgeneration %}}"
    "{% elif message['role'] in ('user', 'system', 'tool') %}{{ message['role'] | capitalize ~ ': ' ~ message['content'] }}"
    f"{{% else %}}{_BAD_ROLE}{{% endif %}}"
    "{% endfor %}"
    "{{ '\n\nAssistant:' if add_generation_prompt }}"
)

#: The contents alone, separated by spaces: for a base model, which was not trained on turns and only continues text.
PLAIN = "{% for message in messages %}{{ ' ' if not loop.first }}{{ message['content'] }}{% endfor %}"


def conversation(*contents: str) -> list[Message]:
    """Return messages that alternate between user and assistant, beginning with the user.

    Raises:
        ArgumentError: a content is no text, such as a prompt that is a list of messages already.
    """
    for content in contents:
        if not isinstance(content, str):
            raise ArgumentError(
                f"conversation: expected texts, got a {type(content).__name__}",
                argument="contents",
                value=content,
                expected=str,
            )
    return [{"role": ROLES[1 + turn % 2], "content": content} for turn, content in enumerate(contents)]


def render(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], *, add_generation_prompt: bool = False
) -> str:
    """Return the conversation as one text, rendered by the tokenizer's template.

    ``add_generation_prompt`` appends the header of an assistant turn, so that a model writes that turn next.

    Raises:
        UserError: the tokenizer has no template, or its template refuses these messages.
    """
    return rendering.render(tokenizer, messages, add_generation_prompt)[0]


def encode_prompt(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]) -> list[int]:
    """Return the token ids before the completion: a prefix of the ids that :func:`encode` gives with the completion."""
    text = render(tokenizer, messages, add_generation_prompt=True)
    rendering.require_rendered(text, messages)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def encode_untrusted(tokenizer: PreTrainedTokenizerBase, heard: Sequence[Message]) -> list[int]:
    """Return the token ids of the messages between two assistant turns.

    They begin after the token that ends the first turn and stop where the second turn begins. A tool output that
    contains ``<|im_end|>`` must not end a turn. Therefore a space breaks up special tokens, tokens added to the
    vocabulary, and role tokens such as ``<tool>``, in the content, the name and the id of each message.

    Raises:
        UserError: the tokenizer has no template, or its template renders the earlier turn differently because of these
            messages. Most templates that drop thoughts do so when a user speaks, and not when a tool does.
    """
    dialogue = conversation("go on", "<think>\nso\n</think>\n\nwell")
    text, [(_, end)] = assistant_spans(tokenizer, dialogue)
    special = {*tokenizer.all_special_tokens, *tokenizer.get_added_vocab(), *(f"<{role}>" for role in ROLES)}
    pattern = re.compile("|".join(re.escape(token) for token in sorted(special, key=len, reverse=True) if len(token.strip()) > 1))  # fmt: skip
    escaped = [
        {
            key: value if key == "role" else pattern.sub(lambda match: f"{match[0][0]} {match[0][1:]}", value)
            for key, value in message.items()
        }
        for message in heard
    ]
    rendered = render(tokenizer, [*dialogue, *escaped], add_generation_prompt=True)
    if not rendered.startswith(text[:end]):
        raise UserError(
            "the tokenizer's chat template rewrites earlier turns when messages follow; sampling in turns cannot use it",
            argument="chat_template",
            problem="rewrites",
        )
    return list(tokenizer(rendered[end:], add_special_tokens=False)["input_ids"])


def encode(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], *, first_turn: int = 0, strict: bool = True
) -> Tokens:
    """Return the conversation as token ids, with the mask of the assistant's tokens.

    Args:
        tokenizer: a fast tokenizer with a chat template.
        messages: any number of turns.
        first_turn: only messages from this index on are in the mask; earlier messages are context, whatever their role.
        strict: refuse a template that leaves out a part of what the assistant says. A sampled completion may be
            malformed in a way that a template drops.

    Raises:
        UserError: the tokenizer is not fast, has no template, its template refuses these messages, the assistant's
            turns cannot be located in it, or the template leaves out a part of what the assistant says in them.
    """
    if not tokenizer.is_fast:
        raise UserError(
            f"{type(tokenizer).__name__} is a slow tokenizer; masks need the character offsets of a fast one",
            argument="tokenizer",
            value="slow",
            expected="fast",
        )
    text, turn_spans = _learned_spans(tokenizer, messages, first_turn)
    spans = [span for spans in turn_spans.values() for span in spans]
    encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    if not encoding["input_ids"]:
        reason = "the tokenizer's chat template makes an empty text of this conversation"
        raise UserError(reason, argument="chat_template", problem="empty")
    # A token belongs to the assistant if it starts in its span. A token that straddles the start belongs to the prompt.
    mask = [any(start <= offset < end for start, end in spans) for offset, _ in encoding["offset_mapping"]]
    if turn_spans and not any(mask):
        raise UserError(
            "the tokenizer's chat template renders no text of the assistant, so there is nothing to learn",
            argument="chat_template",
            problem="silent",
        )
    if strict:
        rendering.require_rendered(text, messages)
    for turn, written in turn_spans.items() if strict else ():
        rendering.require_written("".join(text[slice(*span)] for span in written), messages[turn], turn)
    return Tokens(list(encoding["input_ids"]), mask)


def encode_whole(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]) -> Tokens:
    """Return the conversation as token ids, all in the mask, including the user's turns and the template's own text.

    Raises:
        UserError: there is no template, it refuses these messages, renders them as an empty text, or leaves out a reply.
    """
    text = render(tokenizer, messages)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    if not ids:
        reason = "the tokenizer's chat template makes an empty text of this conversation"
        raise UserError(reason, argument="chat_template", problem="empty")
    rendering.require_rendered(text, messages)
    for turn, message in enumerate(messages):
        if message["role"] == "assistant":  # a template may drop the thoughts of earlier turns
            last = turn + 1 == len(messages)
            said = message if last else {"role": "assistant", "content": thought_and_answer(message)[1]}
            rendering.require_written(text, said, turn)
    return Tokens(list(ids), [True] * len(ids))


def is_marked(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether the chat template marks the assistant's text by ``{% generation %}``."""
    return bool(rendering.MARKED.search(rendering.template_of(tokenizer)))


def stepwise(steps: Sequence[str]) -> Message:
    """Return a completion in steps as one message, one line per step."""
    return {"role": "assistant", "content": "\n".join(steps)}


def encode_steps(
    tokenizer: PreTrainedTokenizerBase, prompt: Sequence[Message], steps: Sequence[str]
) -> tuple[Tokens, tuple[int, ...]]:
    """Return the token ids of a prompt and a completion in steps, and the position of each step's last token.

    Raises:
        UserError: as :func:`encode`, or two steps end in the same token.
    """
    messages = [*prompt, stepwise(steps)]
    tokens = encode(tokenizer, messages, first_turn=len(prompt))
    text, [(start, _)] = assistant_spans(tokenizer, messages, first_turn=len(prompt))
    offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    ends, cursor = [], start
    for step in steps:
        cursor = text.index(step, cursor) + len(step)
        ends.append(max(i for i, (begin, _) in enumerate(offsets) if begin < cursor))
    if len(set(ends)) < len(ends):
        raise UserError(
            f"two of {len(steps)} steps end in the same token of the tokenizer; expected at least one token per step",
            argument="steps",
            value=len(steps),
            problem="duplicate",
        )
    return tokens, tuple(ends)


def assistant_spans(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], *, first_turn: int = 0
) -> tuple[str, list[tuple[int, int]]]:
    """Return the rendered conversation and the span ``start .. end − 1`` in it of each assistant turn from
    ``first_turn`` on.

    A template with ``{% generation %}`` marks the spans. For any other template, prefixes of the conversation are
    rendered: the turn is the text after its header, without white space after its closing token (if it has one). Where
    the template writes the turn differently when other turns follow, its content is looked for in the whole text.

    Raises:
        UserError: a turn cannot be located, or the marks do not belong to the turns.
    """
    text, turns = _learned_spans(tokenizer, messages, first_turn)
    return text, [(spans[0][0], spans[-1][1]) for spans in turns.values()]


Spans: TypeAlias = list[tuple[int, int]]


def _learned_spans(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], first_turn: int
) -> tuple[str, dict[int, Spans]]:
    """Return the rendered conversation, and for each assistant turn from ``first_turn`` on its learned spans in it."""
    text, marked = rendering.render(tokenizer, messages)
    turns = [turn for turn, message in enumerate(messages) if message["role"] == "assistant"]
    if rendering.is_verbatim(messages) or is_marked(tokenizer):
        found = _by_turn(tokenizer, messages, turns, text, marked)
        return text, {turn: spans for turn, spans in found.items() if turn >= first_turn}
    return text, {turn: [_span_of(tokenizer, messages, turn, text)] for turn in turns if turn >= first_turn}


def _by_turn(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], turns: list[int], text: str, marked: Spans
) -> dict[int, Spans]:
    """Return the marked spans of each assistant turn: one, or several with the messages of others around all of them."""
    if len(marked) == len(turns):
        return {turn: [span] for turn, span in zip(turns, marked, strict=True)}
    found: dict[int, Spans] = {}
    starts = [0, *(_content_start(tokenizer, messages, turn - 1, text) for turn in turns[1:]), len(text)]
    if None not in starts:
        bounds = zip(turns, starts, starts[1:], strict=False)
        found = {turn: [s for s in marked if int(low or 0) <= s[0] < int(high or 0)] for turn, low, high in bounds}
    if not found or not all(found.values()):
        raise UserError(
            f"the tokenizer's chat template marks {len(marked)} assistant turns in a conversation with {len(turns)}",
            argument="chat_template",
            value=len(marked),
            expected=len(turns),
            problem="marks",
        )
    return found


#: Stands for the content of a message while its place is looked for.
_PLACEHOLDER = "\N{LEFT WHITE SQUARE BRACKET}reply\N{RIGHT WHITE SQUARE BRACKET}"


def _content_start(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], turn: int, text: str) -> int | None:
    """Return where the content of a message begins in the rendered conversation; None if this cannot be told.

    What follows the last thought in it counts as the content; of a message without content, it is the name of the first
    function that is called. A placeholder replaces it: the texts before and after it stay the same, unless the template
    depends on the content.
    """
    message = messages[turn]
    content = thought_and_answer(message)[1]
    if content:
        before, _, after = message["content"].rpartition(content)
        changed = {**message, "content": f"{before}{_PLACEHOLDER}{after}"}
    elif calls := message.get("tool_calls"):
        content = calls[0]["function"]["name"]
        first = {**calls[0], "function": {**calls[0]["function"], "name": _PLACEHOLDER}}
        changed = {**message, "tool_calls": [first, *calls[1:]]}
    else:
        return None
    try:
        before, found, after = render(tokenizer, [*messages[:turn], changed, *messages[turn + 1 :]]).partition(
            _PLACEHOLDER
        )
    except UserError:  # a template that wants certain contents
        return None
    here = found and text.startswith(before) and text[len(before) :].endswith(after)
    between = text[len(before) : len(text) - len(after)]
    return len(before) if here and rendering.squeezed(between) == rendering.squeezed(content) else None


def _span_of(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], turn: int, text: str) -> tuple[int, int]:
    """Return the span of an assistant turn in the rendered conversation of a template without marks."""
    header = render(tokenizer, messages[:turn], add_generation_prompt=True)
    rendered = text if turn + 1 == len(messages) else render(tokenizer, messages[: turn + 1])
    content = messages[turn]["content"].strip()
    if text.startswith(rendered) and rendered.startswith(header):
        added = rendered[len(header) :]
        closing = added.split(content, 1)[-1] if content else added
        return len(header), len(header) + len(added.rstrip() if closing.strip() else added)
    begins = _content_start(tokenizer, messages, turn, text)
    opening = _common(header, render(tokenizer, messages[:turn]) if turn else "")
    start = None if begins is None else _after_last(text[:begins], header[opening:])
    last = turn + 1 == len(messages)
    end = None if begins is None else len(text.rstrip()) if last else _turn_end(tokenizer, messages[turn], text, begins)
    if start is None or end is None:
        system = [message for message in messages[:1] if message["role"] == "system"]
        rendering.require_rendered(text, system)  # in some templates it goes where an assistant follows
        raise UserError(
            f"the tokenizer's chat template rewrites earlier turns, so the assistant's message {turn + 1} cannot "
            "be located; train on the last turn only (--train-on last), or use a template with "
            "{% generation %} marks (--chat-template FILE), such as minirlhf.data.chat.CHATML",
            argument="chat_template",
            value=turn + 1,
            problem="rewrites",
        )
    return start, end


def _turn_end(tokenizer: PreTrainedTokenizerBase, message: Message, text: str, begins: int) -> int | None:
    """Return where a turn whose content begins at ``begins`` ends, after its closing token; None if it lacks one that
    the template writes elsewhere."""
    closing = _closing_of(tokenizer)[0]
    if message.get("tool_calls"):
        end = text.find(closing, begins) if closing else -1
        return end + len(closing) if end >= 0 else None
    end = begins + len(thought_and_answer(message)[1])
    following = text[end:].lstrip()
    special = {*tokenizer.all_special_tokens, *tokenizer.get_added_vocab()}
    token = max((token for token in special if following.startswith(token)), key=len, default="")
    if closing and not token:
        return None
    return len(text) - len(following) + len(token) if closing else end


def _common(first: str, second: str) -> int:
    """Return the length of the common beginning of two texts."""
    return next(
        (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )


def _after_last(text: str, header: str) -> int | None:
    """Return the end of the last occurrence of a turn's header; it may lack the ``<think>`` that opens the reply."""
    for opening in (header, header.partition("<think>")[0]):
        if opening and opening in text:
            return text.rindex(opening) + len(opening)
    return None


# -- tokens that end a completion --------------------------------------------------------------------------------
# The tokenizer's end-of-sequence token is one of three sources, and not the one that matters for chat: base models
# often set it to <|endoftext|> and close turns by <|im_end|>. A sampler that waits for the wrong token never detects
# the end.


@dataclass(frozen=True)
class EndTokens:
    """The tokens that end a completion.

    Attributes:
        found: token id -> its source: ``chat template``, ``tokenizer`` or ``generation_config``.
        closing: the text that the chat template writes after a completion; empty if there is none.
        names: token id -> the token as text.
    """

    found: dict[int, str]
    closing: str
    names: dict[int, str]

    @property
    def ids(self) -> list[int]:
        """The token ids, ascending."""
        return sorted(self.found)

    def __str__(self) -> str:
        """``<|im_end|> (chat template), <|endoftext|> (tokenizer)``."""
        return ", ".join(f"{self.names[token_id]} ({source})" for token_id, source in self.found.items())


def end_tokens(tokenizer: PreTrainedTokenizerBase, model: Any = None) -> EndTokens:
    """Return the tokens that end a completion: the token with which the chat template closes the assistant's turn, the
    tokenizer's end-of-sequence token, and the tokens that the model's ``generation_config`` names.

    The template's closing text counts if it is one token, or if it begins with a special token (followed by white
    space, say).
    """
    closing, token = _closing_of(tokenizer)
    eos_ids: Any = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    sources: dict[int, str] = {}
    for source, ids in (
        ("chat template", [token]),
        ("tokenizer", [tokenizer.eos_token_id]),
        ("generation_config", eos_ids if isinstance(eos_ids, list | tuple) else [eos_ids]),
    ):
        for i in ids:
            if i is not None:
                sources.setdefault(int(i), source)
    return EndTokens(sources, closing, {i: str(tokenizer.convert_ids_to_tokens(i)) for i in sources})


def declare_ends(model: Any, tokenizer: PreTrainedTokenizerBase) -> None:
    """Set the model's ``generation_config.eos_token_id``, in place, to the tokens that end a completion.

    Other libraries look there and not in the template. A model that gives scores has no ``generation_config`` and stays
    unchanged.
    """
    config: Any = getattr(model, "generation_config", None)
    if config is not None:
        ids = end_tokens(tokenizer, model).ids
        config.eos_token_id = ids[0] if len(ids) == 1 else ids


def _closing_of(tokenizer: PreTrainedTokenizerBase) -> tuple[str, int | None]:
    """Return the text after the completion in the assistant's span, and its token id."""
    content = "fine"
    try:
        text, spans = assistant_spans(tokenizer, conversation("how are you", content))
    except UserError:  # no template, or one for another kind of conversation: encoding the data will report it
        return "", None
    if not spans:
        return "", None
    closing = text[slice(*spans[-1])].rpartition(content)[2].strip()
    ids = tokenizer(closing, add_special_tokens=False)["input_ids"] if closing else []
    if len(ids) == 1 or (ids and ids[0] in tokenizer.all_special_ids):
        return closing, int(ids[0])
    return closing, None
