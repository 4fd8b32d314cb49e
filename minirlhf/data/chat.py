"""Chat templates, and the mask of the tokens that the assistant wrote.

A conversation is a list of messages ``{"role": ..., "content": ...}``. A template (Jinja, as ``transformers``
tokenizers carry it) renders it as one text; ``{% generation %}`` marks the assistant's text. The loss of a trainer
covers only the assistant's tokens: its words and the token that ends its turn, in *every* turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from minirlhf.core.errors import UserError
from minirlhf.data.records import ROLES, Message
from minirlhf.data.types import Tokens

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Special tokens of the tokenizers made here, in the order of their ids. Padding and EOS are different tokens.
PAD, EOS, USER, ASSISTANT, SYSTEM, UNK = "<pad>", "<eos>", "<user>", "<assistant>", "<system>", "<unk>"
SPECIAL_TOKENS = (PAD, EOS, USER, ASSISTANT, SYSTEM, UNK)

_BAD_ROLE = "{{ raise_exception('unknown role ' ~ message['role']) }}"


def _role_tokens(gap: str, *roles: str) -> str:
    """Return a template in which a token announces each role and the end-of-sequence token ends the assistant's turns.

    ``roles`` are the allowed roles other than the assistant.
    """
    return (
        "{% for message in messages %}"
        f"{{{{ '{gap}' if not loop.first }}}}"
        "{% if message['role'] == 'assistant' %}"
        f"<assistant>{gap}{{% generation %}}"
        f"{{{{ message['content'] ~ '{gap}' if message['content'] }}}}{{{{ eos_token }}}}{{% endgeneration %}}"
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
TURNS = _role_tokens("", "user", "system")

#: ChatML: for tokenizers that have ``<|im_start|>`` and ``<|im_end|>``.
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' ~ message['role'] ~ '\n' }}"
    "{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] ~ '<|im_end|>' }}{% endgeneration %}"
    "{% elif message['role'] in ('user', 'system', 'tool') %}{{ message['content'] ~ '<|im_end|>' }}"
    f"{{% else %}}{_BAD_ROLE}{{% endif %}}"
    "{{ '\n' }}"
    "{% endfor %}"
    "{{ '<|im_start|>assistant\n' if add_generation_prompt }}"
)

#: ``User: ...`` / ``Assistant: ...`` in plain words: for a pretrained tokenizer that has no template of its own.
TRANSCRIPT = (
    "{% for message in messages %}"
    "{{ '\n\n' if not loop.first }}"
    "{% if message['role'] == 'assistant' %}"
    "Assistant:{% generation %}{{ ' ' ~ message['content'] ~ eos_token }}{% endgeneration %}"
    "{% elif message['role'] in ('user', 'system', 'tool') %}{{ message['role'] | capitalize ~ ': ' ~ message['content'] }}"
    f"{{% else %}}{_BAD_ROLE}{{% endif %}}"
    "{% endfor %}"
    "{{ '\n\nAssistant:' if add_generation_prompt }}"
)

#: The contents alone, separated by spaces: for a base model, which was not trained on turns and only continues text.
PLAIN = "{% for message in messages %}{{ ' ' if not loop.first }}{{ message['content'] }}{% endfor %}"

_MARKED = re.compile(r"\{%-?\s*generation\s*-?%\}")


def conversation(*contents: str) -> list[Message]:
    """Return messages that alternate between user and assistant, beginning with the user."""
    return [{"role": ROLES[1 + turn % 2], "content": content} for turn, content in enumerate(contents)]


def render(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], *, add_generation_prompt: bool = False
) -> str:
    """Return the conversation as one text, rendered by the tokenizer's template.

    ``add_generation_prompt`` appends the header of an assistant turn, so that a model writes that turn next.

    Raises:
        UserError: the tokenizer has no template, or its template refuses these messages.
    """
    return _render(tokenizer, messages, add_generation_prompt)[0]


def encode_prompt(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]) -> list[int]:
    """Return the token ids before the completion: a prefix of the ids that :func:`encode` gives with the completion."""
    text = render(tokenizer, messages, add_generation_prompt=True)
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


def encode(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], *, first_turn: int = 0) -> Tokens:
    """Return the conversation as token ids, with the mask of the assistant's tokens.

    Args:
        tokenizer: a fast tokenizer with a chat template.
        messages: any number of turns.
        first_turn: only messages from this index on are in the mask; earlier messages are context, whatever their role.

    Raises:
        UserError: the tokenizer is not fast, has no template, its template refuses these messages, or the assistant's
            turns cannot be located in it.
    """
    if not tokenizer.is_fast:
        raise UserError(
            f"{type(tokenizer).__name__} is a slow tokenizer; masks need the character offsets of a fast one",
            argument="tokenizer",
            value="slow",
            expected="fast",
        )
    text, spans = assistant_spans(tokenizer, messages, first_turn=first_turn)
    turns = [turn for turn, message in enumerate(messages) if message["role"] == "assistant" and turn >= first_turn]
    if len(spans) != len(turns):
        raise UserError(
            f"the tokenizer's chat template marks {len(spans)} assistant turns in a conversation with {len(turns)}",
            argument="chat_template",
            value=len(spans),
            expected=len(turns),
            problem="marks",
        )
    encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    if not encoding["input_ids"]:
        reason = "the tokenizer's chat template makes an empty text of this conversation"
        raise UserError(reason, argument="chat_template", problem="empty")
    # A token belongs to the assistant if it starts in its span. A token that straddles the start belongs to the prompt.
    mask = [any(start <= offset < end for start, end in spans) for offset, _ in encoding["offset_mapping"]]
    if turns and not any(mask):
        raise UserError(
            "the tokenizer's chat template renders no text of the assistant, so there is nothing to learn",
            argument="chat_template",
            problem="silent",
        )
    return Tokens(list(encoding["input_ids"]), mask)


def encode_whole(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]) -> Tokens:
    """Return the conversation as token ids, all in the mask, including the user's turns and the template's own text.

    Raises:
        UserError: there is no template, it refuses these messages, or it renders them as an empty text.
    """
    ids = tokenizer(render(tokenizer, messages), add_special_tokens=False)["input_ids"]
    if not ids:
        reason = "the tokenizer's chat template makes an empty text of this conversation"
        raise UserError(reason, argument="chat_template", problem="empty")
    return Tokens(list(ids), [True] * len(ids))


def is_marked(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether the chat template marks the assistant's text by ``{% generation %}``."""
    return bool(_MARKED.search(tokenizer.get_chat_template()))


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
    rendered: the turn is the text after its header, without white space after its closing token (if it has one). A
    template that rewrites earlier turns (for example, removes their thoughts) therefore works if only the last turn is
    needed.
    """
    text, spans = _render(tokenizer, messages)
    if is_marked(tokenizer):
        num_context = sum(message["role"] == "assistant" for message in messages[:first_turn])
        return text, spans[num_context:]
    for turn, message in enumerate(messages):
        if message["role"] != "assistant" or turn < first_turn:
            continue
        header = render(tokenizer, messages[:turn], add_generation_prompt=True)
        rendered = render(tokenizer, messages[: turn + 1])
        if not (text.startswith(rendered) and rendered.startswith(header)):
            raise UserError(
                f"the tokenizer's chat template rewrites earlier turns, so the assistant's message {turn + 1} cannot "
                "be located; train on the last turn only (format prompt-completion), or use a template with "
                "{% generation %} marks (--chat-template FILE), such as minirlhf.data.chat.CHATML",
                argument="chat_template",
                value=turn + 1,
                problem="rewrites",
            )
        added = rendered[len(header) :]
        content = message["content"].strip()
        closing = added.split(content, 1)[-1] if content else added
        spans.append((len(header), len(header) + len(added.rstrip() if closing.strip() else added)))
    return text, spans


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


def _render(
    tokenizer: PreTrainedTokenizerBase, messages: Iterable[Message], add_generation_prompt: bool = False
) -> tuple[str, list[tuple[int, int]]]:
    """Return the text, and the spans inside ``{% generation %}`` (none if the template has no such marks)."""
    from jinja2 import TemplateError
    from transformers.utils.chat_template_utils import render_jinja_template

    if not tokenizer.chat_template:
        raise UserError(
            f"the tokenizer {tokenizer.name_or_path!r} has no chat template; set tokenizer.chat_template, for instance "
            "to minirlhf.data.chat.TRANSCRIPT",
            argument="chat_template",
            problem="missing",
        )
    template = tokenizer.get_chat_template()
    try:
        # cast: the function is annotated as returning a string
        texts, spans = cast(Any, render_jinja_template)(
            conversations=[list(messages)],
            chat_template=template,
            return_assistant_tokens_mask=bool(_MARKED.search(template)),
            add_generation_prompt=add_generation_prompt,
            **tokenizer.special_tokens_map,
        )
        texts[0].encode()  # fails on half of a surrogate pair, which no tokenizer accepts
    except TemplateError as problem:
        reason = " ".join(str(problem).split())
        message = f"the tokenizer's chat template refuses this conversation: {reason}"
        raise UserError(message, argument="chat_template", problem="refuses") from problem
    except Exception as problem:  # a template is a program; it can fail in any way
        raise UserError(
            f"the tokenizer's chat template fails on this conversation: {type(problem).__name__}: {' '.join(str(problem).split())}",
            argument="chat_template",
            value=type(problem).__name__,
            problem="fails",
        ) from problem
    return texts[0], [(start, end) for start, end in spans[0]] if spans else []
