"""Chat templates, and which tokens of a conversation the assistant wrote.

A conversation is a list of messages ``{"role": ..., "content": ...}``. A template (Jinja, as ``transformers`` tokenizers
carry it) turns it into one text; ``{% generation %}`` marks what the assistant writes. The loss of a trainer lies on the
assistant's tokens: its words and the token that ends its turn, in *every* turn, and nothing else.
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

# Special tokens of the tokenizers made here, in the order of their ids. Padding is not the end of a sequence.
PAD, EOS, USER, ASSISTANT, SYSTEM, UNK = "<pad>", "<eos>", "<user>", "<assistant>", "<system>", "<unk>"
SPECIAL_TOKENS = (PAD, EOS, USER, ASSISTANT, SYSTEM, UNK)

_BAD_ROLE = "{{ raise_exception('unknown role ' ~ message['role']) }}"


def _role_tokens(gap: str, *roles: str) -> str:
    """A template in which a token announces each speaker and the end-of-sequence token ends the assistant's turns. ``roles``: who may speak,
    beside the assistant."""
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

#: The same with a speaker more, for worlds with tools: ``… <eos> <tool> 4 0 8 <assistant>``. ``<tool>`` is one of the tokenizer's words.
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

#: The contents alone, with spaces between: for a base model, which has never seen a turn and just goes on writing.
PLAIN = "{% for message in messages %}{{ ' ' if not loop.first }}{{ message['content'] }}{% endfor %}"

_MARKED = re.compile(r"\{%-?\s*generation\s*-?%\}")


def conversation(*contents: str) -> list[Message]:
    """Messages that alternate between user and assistant, beginning with the user."""
    return [{"role": ROLES[1 + turn % 2], "content": content} for turn, content in enumerate(contents)]


def render(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], *, add_generation_prompt: bool = False
) -> str:
    """The conversation as one text, by the tokenizer's template.

    ``add_generation_prompt`` appends what announces the assistant, so that a model answers next.

    Raises:
        UserError: the tokenizer has no template, or its template refuses these messages.
    """
    return _render(tokenizer, messages, add_generation_prompt)[0]


def encode_prompt(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]) -> list[int]:
    """Token ids after which the assistant's reply begins; a prefix of what :func:`encode` gives with the reply."""
    text = render(tokenizer, messages, add_generation_prompt=True)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def encode_untrusted(tokenizer: PreTrainedTokenizerBase, heard: Sequence[Message]) -> list[int]:
    """Token ids of what an assistant hears between two of its turns, from behind the token that ends the first to where the second begins.

    A tool that says ``<|im_end|>`` must not end a turn by it: special tokens, those that a tokenizer has added to its words, and ``<tool>`` and the like are
    broken up by a blank, in what was heard and in the name and the id that come with it.

    Raises:
        UserError: no template, or one that writes the turn before otherwise because of what was heard; most of those that drop thoughts do so
            when a user speaks, and not when a tool does.
    """
    talk = conversation("go on", "<think>\nso\n</think>\n\nwell")
    text, [(_, end)] = assistant_spans(tokenizer, talk)
    special = {*tokenizer.all_special_tokens, *tokenizer.get_added_vocab(), *(f"<{role}>" for role in ROLES)}
    marks = re.compile("|".join(re.escape(token) for token in sorted(special, key=len, reverse=True) if len(token.strip()) > 1))  # fmt: skip
    plain = [
        {
            key: said if key == "role" else marks.sub(lambda found: f"{found[0][0]} {found[0][1:]}", said)
            for key, said in message.items()
        }
        for message in heard
    ]
    whole = render(tokenizer, [*talk, *plain], add_generation_prompt=True)
    if not whole.startswith(text[:end]):
        raise UserError(
            "the tokenizer's chat template rewrites earlier turns when something is said after them; sampling in turns needs one that does not",
            argument="chat_template",
            problem="rewrites",
        )
    return list(tokenizer(whole[end:], add_special_tokens=False)["input_ids"])


def encode(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], *, first_turn: int = 0) -> Tokens:
    """The conversation as token ids, with the mask of the assistant's tokens.

    Args:
        tokenizer: a fast tokenizer with a chat template.
        messages: any number of turns.
        first_turn: only messages from this index on are in the mask; those before are context, whoever wrote them.

    Raises:
        UserError: no fast tokenizer, no template, one that refuses these messages, or one in which the assistant's
            turns cannot be found.
    """
    if not tokenizer.is_fast:
        raise UserError(
            f"{type(tokenizer).__name__} is a slow tokenizer; masks need the positions that a fast one gives",
            argument="tokenizer",
            value="slow",
            expected="fast",
        )
    text, spans = assistant_spans(tokenizer, messages, first_turn=first_turn)
    turns = [turn for turn, message in enumerate(messages) if message["role"] == "assistant" and turn >= first_turn]
    if len(spans) != len(turns):
        raise UserError(
            f"the tokenizer's chat template marks {len(spans)} turns of the assistant in a conversation that has {len(turns)}",
            argument="chat_template",
            value=len(spans),
            expected=len(turns),
            problem="marks",
        )
    coded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    if not coded["input_ids"]:
        said = "the tokenizer's chat template makes an empty text of this conversation"
        raise UserError(said, argument="chat_template", problem="empty")
    # A token belongs to the assistant if it starts in its span: one that straddles the start was part of the prompt.
    inside = [any(start <= at < end for start, end in spans) for at, _ in coded["offset_mapping"]]
    if turns and not any(inside):
        raise UserError(
            "the tokenizer's chat template writes nothing of what the assistant says, so there is nothing to learn",
            argument="chat_template",
            problem="silent",
        )
    return Tokens(list(coded["input_ids"]), inside)


def encode_whole(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]) -> Tokens:
    """The conversation as token ids, every one of them in the mask: what the user says and what the template writes, too.

    Raises:
        UserError: no template, one that refuses these messages, or one that makes an empty text of them.
    """
    ids = tokenizer(render(tokenizer, messages), add_special_tokens=False)["input_ids"]
    if not ids:
        said = "the tokenizer's chat template makes an empty text of this conversation"
        raise UserError(said, argument="chat_template", problem="empty")
    return Tokens(list(ids), [True] * len(ids))


def is_marked(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Does the chat template mark by ``{% generation %}`` what the assistant writes?"""
    return bool(_MARKED.search(tokenizer.get_chat_template()))


def stepwise(steps: Sequence[str]) -> Message:
    """A reply in steps as one message, a line for each."""
    return {"role": "assistant", "content": "\n".join(steps)}


def encode_steps(
    tokenizer: PreTrainedTokenizerBase, prompt: Sequence[Message], steps: Sequence[str]
) -> tuple[Tokens, tuple[int, ...]]:
    """The prompt and a reply in steps as token ids, and the place of each step's last token.

    Raises:
        UserError: as :func:`encode`, or two steps end in one token.
    """
    messages = [*prompt, stepwise(steps)]
    tokens = encode(tokenizer, messages, first_turn=len(prompt))
    text, [(start, _)] = assistant_spans(tokenizer, messages, first_turn=len(prompt))
    offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    ends, at = [], start
    for step in steps:
        at = text.index(step, at) + len(step)
        ends.append(max(i for i, (begin, _) in enumerate(offsets) if begin < at))
    if len(set(ends)) < len(ends):
        raise UserError(
            f"two of {len(steps)} steps end in the same token of the tokenizer; expected one token or more each",
            argument="steps",
            value=len(steps),
            problem="duplicate",
        )
    return tokens, tuple(ends)


def assistant_spans(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], *, first_turn: int = 0
) -> tuple[str, list[tuple[int, int]]]:
    """The rendered conversation and, for each assistant turn from ``first_turn`` on, the characters ``start .. end − 1`` it wrote.

    A template with ``{% generation %}`` says so itself. Of any other, prefixes of the conversation are rendered: the turn
    is what it adds to the text that announces it, without white space after its closing token (if it has such a token). A
    template that rewrites earlier turns (it takes out their thoughts, say) can thus serve where the last one alone is wanted.
    """
    text, spans = _render(tokenizer, messages)
    if is_marked(tokenizer):
        earlier = sum(message["role"] == "assistant" for message in messages[:first_turn])
        return text, spans[earlier:]
    for turn, message in enumerate(messages):
        if message["role"] != "assistant" or turn < first_turn:
            continue
        before = render(tokenizer, messages[:turn], add_generation_prompt=True)
        through = render(tokenizer, messages[: turn + 1])
        if not (text.startswith(through) and through.startswith(before)):
            raise UserError(
                f"the tokenizer's chat template rewrites earlier turns, so what the assistant wrote in message {turn + 1} cannot "
                "be told apart; learn from the last reply alone (format prompt-completion), or give a template with "
                "{% generation %} marks (--chat-template FILE), such as minirlhf.data.chat.CHATML",
                argument="chat_template",
                value=turn + 1,
                problem="rewrites",
            )
        added = through[len(before) :]
        said = message["content"].strip()
        closing = added.split(said, 1)[-1] if said else added
        spans.append((len(before), len(before) + len(added.rstrip() if closing.strip() else added)))
    return text, spans


# -- where a reply ends ------------------------------------------------------------------------------------------
# A tokenizer's end-of-sequence token is one of three places, and not the one that counts for chat: base models often keep
# <|endoftext|> there and close turns by <|im_end|>. A sampler that waits for the wrong token never sees a reply end.


@dataclass(frozen=True)
class Ends:
    """The tokens that end a reply.

    Attributes:
        found: token id -> where it was found: ``chat template``, ``tokenizer`` or ``generation_config``.
        closing: what the chat template writes behind a reply; empty if it writes nothing.
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
        return ", ".join(f"{self.names[i]} ({where})" for i, where in self.found.items())


def ends_of(tokenizer: PreTrainedTokenizerBase, model: Any = None) -> Ends:
    """What ends a reply: the token by which the chat template closes the assistant's turn, the tokenizer's end of sequence,
    and what the model's ``generation_config`` names.

    The template's closing counts if it is one token (or begins with a special one, with white space behind it, say).
    """
    closing, token = _closing_of(tokenizer)
    listed: Any = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    found: dict[int, str] = {}
    for where, ids in (
        ("chat template", [token]),
        ("tokenizer", [tokenizer.eos_token_id]),
        ("generation_config", listed if isinstance(listed, list | tuple) else [listed]),
    ):
        for i in ids:
            if i is not None:
                found.setdefault(int(i), where)
    return Ends(found, closing, {i: str(tokenizer.convert_ids_to_tokens(i)) for i in found})


def declare_ends(model: Any, tokenizer: PreTrainedTokenizerBase) -> None:
    """Let the model's ``generation_config`` name what ends a reply, in place: other libraries look there, and not into the template.

    A model that gives scores has none and stays as it is.
    """
    config: Any = getattr(model, "generation_config", None)
    if config is not None:
        ids = ends_of(tokenizer, model).ids
        config.eos_token_id = ids[0] if len(ids) == 1 else ids


def _closing_of(tokenizer: PreTrainedTokenizerBase) -> tuple[str, int | None]:
    """The text behind the reply in the assistant's span, and the token that it is."""
    said = "fine"
    try:
        text, spans = assistant_spans(tokenizer, conversation("how are you", said))
    except UserError:  # no template, or one for another kind of conversation: encoding the data will say so
        return "", None
    if not spans:
        return "", None
    closing = text[slice(*spans[-1])].rpartition(said)[2].strip()
    ids = tokenizer(closing, add_special_tokens=False)["input_ids"] if closing else []
    if len(ids) == 1 or (ids and ids[0] in tokenizer.all_special_ids):
        return closing, int(ids[0])
    return closing, None


def _render(
    tokenizer: PreTrainedTokenizerBase, messages: Iterable[Message], add_generation_prompt: bool = False
) -> tuple[str, list[tuple[int, int]]]:
    """The text, and the spans inside ``{% generation %}`` (none if the template has no such marks)."""
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
        # cast: its own annotation says that it returns a string
        texts, spans = cast(Any, render_jinja_template)(
            conversations=[list(messages)],
            chat_template=template,
            return_assistant_tokens_mask=bool(_MARKED.search(template)),
            add_generation_prompt=add_generation_prompt,
            **tokenizer.special_tokens_map,
        )
        texts[0].encode()  # fails on half of a surrogate pair, which no tokenizer takes
    except TemplateError as problem:
        reason = " ".join(str(problem).split())
        said = f"the tokenizer's chat template refuses this conversation: {reason}"
        raise UserError(said, argument="chat_template", problem="refuses") from problem
    except Exception as problem:  # a template is a program; it can fail in any way
        raise UserError(
            f"the tokenizer's chat template fails on this conversation: {type(problem).__name__}: {' '.join(str(problem).split())}",
            argument="chat_template",
            value=type(problem).__name__,
            problem="fails",
        ) from problem
    return texts[0], [(start, end) for start, end in spans[0]] if spans else []
