"""Render conversations with a chat template: give each template what it reads, in the form in which it reads it.

Templates differ in where they look for a thought (``reasoning_content``, ``thinking``, or the content itself), in the
form of the content (a text, or a list of parts) and of a tool call's arguments (an object, or a text of JSON). A
template is a program, so what it reads is found out by rendering short conversations.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from minirlhf.core.errors import UserError
from minirlhf.data.records import VERBATIM, Message, call_texts, thought_and_answer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

#: The fields in which published templates look for a thought, the most frequent first.
THOUGHTS = ("reasoning_content", "thinking", "reasoning")
#: What a conversation passes to its template; it stands in the first message.
FOR_TEMPLATE = ("tools", "chat_template_kwargs")

MARKED = re.compile(r"\{%-?\s*generation\s*-?%\}")


@dataclass(frozen=True)
class _Reading:
    """What a chat template reads.

    Attributes:
        parts: the content is a list of parts, ``[{"type": "text", "text": "..."}]``, and not a text.
        thought: the field of the thought; empty if there is none.
        splits: a thought in the content, between ``<think>`` and ``</think>``, is written like one in its field.
        folds: it refuses system messages (Gemma 1 and 2 do), so that they go in front of the first user turn.
    """

    parts: bool = False
    thought: str = ""
    splits: bool = True
    folds: bool = False


def render(
    tokenizer: PreTrainedTokenizerBase, messages: Iterable[Message], add_generation_prompt: bool = False
) -> tuple[str, list[tuple[int, int]]]:
    """Return the text, and the spans inside ``{% generation %}`` (none if the template has no such marks).

    A message that is :data:`~minirlhf.data.records.VERBATIM` is the whole text, which is also its span.

    Raises:
        UserError: there is no template, it refuses the messages, fails on them, or writes none of the tools given.
    """
    from jinja2 import TemplateError

    messages = list(messages)
    if is_verbatim(messages):
        text = _plain(tokenizer, messages[0]["content"])
        return text, [(0, len(text))]
    if not tokenizer.chat_template:
        raise UserError(
            f"the tokenizer {tokenizer.name_or_path!r} has no chat template; set tokenizer.chat_template, for instance "
            "to minirlhf.data.chat.TRANSCRIPT",
            argument="chat_template",
            problem="missing",
        )
    tools = next((message["tools"] for message in messages if message.get("tools")), None)
    template = template_of(tokenizer, tools)
    special = json.dumps(tokenizer.special_tokens_map, sort_keys=True, default=str)
    # Rows made for several models carry arguments of one of them; transformers leaves out what a template does not read.
    arguments = {name: value for name, value in row_arguments(messages).items() if reads(template, name)}
    arguments |= {"tools": tools} if tools else {}
    reading = _reading(template, special)
    messages = _folded(messages) if reading.folds else messages
    adapted = [_adapted(message, reading) for message in messages]
    try:
        text, spans = _call(template, special, adapted, add_generation_prompt, arguments)
        text.encode()  # fails on half of a surrogate pair, which no tokenizer accepts
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
    if tools:
        without = {name: value for name, value in arguments.items() if name != "tools"}
        bare = [{key: value for key, value in message.items() if key != "functions"} for message in adapted]
        _require_tools(text, tools, lambda: _call(template, special, bare, add_generation_prompt, without)[0])
    return text, spans


def row_arguments(messages: Iterable[Message]) -> Mapping[str, Any]:
    """Return the arguments of the chat template that a row brings (``chat_template_kwargs``)."""
    return next((m["chat_template_kwargs"] for m in messages if m.get("chat_template_kwargs")), {})


def reads(template: str, name: str) -> bool:
    """Return whether a chat template has a name in it."""
    return bool(re.search(rf"\b{re.escape(name)}\b", template))


def is_verbatim(messages: Sequence[Message]) -> bool:
    """Return whether the messages are a single text that no chat template writes."""
    return len(messages) == 1 and bool(messages[0].get(VERBATIM))


def beginning(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the ids of the tokens that the tokenizer, called plainly, puts in front of a text: often one, or none."""
    plain, bare = (list(tokenizer("a", add_special_tokens=special)["input_ids"]) for special in (True, False))
    starts = (i for i in range(len(plain) - len(bare) + 1) if plain[i : i + len(bare)] == bare)
    return plain[: next(starts, 0)]


def _plain(tokenizer: PreTrainedTokenizerBase, content: str) -> str:
    """Return a text with the tokens that begin and end a text, unless it has them already."""
    before = "".join(str(token) for token in tokenizer.convert_ids_to_tokens(beginning(tokenizer)))
    after = str(tokenizer.eos_token or "")
    return ("" if content.startswith(before) else before) + content + ("" if content.endswith(after) else after)


def template_of(tokenizer: PreTrainedTokenizerBase, tools: Sequence[Any] | None = None) -> str:
    """Return the chat template; of several by name the one for tools if there are tools, else the default.

    Raises:
        UserError: there are several, and none is the default.
    """
    try:
        return str(cast(Any, tokenizer).get_chat_template(tools=tools))
    except ValueError:
        names = sorted(cast(Any, tokenizer).chat_template)
        raise UserError(
            f"the tokenizer has chat templates by name ({', '.join(names)}), and none is the default; expected one of them "
            "as a file (--chat-template FILE)",
            argument="chat_template",
            value=names,
            expected="default",
            problem="missing",
        ) from None


def require_rendered(text: str, messages: Iterable[Message]) -> None:
    """Raise :class:`UserError` unless a rendered text contains what the system, the user and the tools say.

    White space is ignored. A template may read a switch such as ``/no_think`` in place of writing it, and write the data
    that a tool returned in another form, so of these only the words must be there.
    """
    written = squeezed(text)
    for turn, message in enumerate(messages):
        if message["role"] == "assistant":
            continue
        parts = re.split(r"/(?:no_)?think\b", message["content"])
        if message["role"] == "tool":
            parts = [word for part in parts for word in re.findall(r"\w+", part)]
        missing = next((part for part in parts if not _is_written(part, written)), None)
        if missing is not None:
            raise UserError(
                f"the tokenizer's chat template leaves out {missing.strip()[:40]!r} of the message {turn + 1} "
                f"({message['role']}); expected a template that writes it (--chat-template FILE), or data without it",
                argument="chat_template",
                value=turn + 1,
                expected="content",
                problem="leaves out",
            )


def folds_system(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether the chat template refuses system messages, so that they go in front of the first user turn."""
    template = tokenizer.chat_template
    special = json.dumps(tokenizer.special_tokens_map, sort_keys=True, default=str)
    return isinstance(template, str) and _reading(template, special).folds


def _folded(messages: list[Message]) -> list[Message]:
    """Return the messages with those of the system, at the beginning, in front of the first user turn's text."""
    start = next((i for i, message in enumerate(messages) if message["role"] != "system"), len(messages))
    if not 0 < start < len(messages) or messages[start]["role"] != "user":
        return messages
    said = "\n\n".join(message["content"] for message in messages[: start + 1])
    return [{**messages[0], **messages[start], "content": said}, *messages[start + 1 :]]


def squeezed(text: str) -> str:
    """Return the text without white space, for comparisons with what a template wrote."""
    return "".join(text.split())


def require_written(learned: str, message: Message, turn: int) -> None:
    """Raise :class:`UserError` unless the learned text of an assistant turn contains everything that the turn says.

    White space is ignored. ``learned`` is what the template marks or writes as the assistant's turn ``turn`` (from 0).
    """
    written, is_apart = squeezed(learned), bool(message.get("reasoning_content"))
    thought, answer = thought_and_answer(message)
    said = {"content": [answer], "reasoning_content": [thought], "tool_calls": _call_words(message)}
    for field, texts in said.items():
        missing = [text for text in texts if not _is_written(text, written)]
        if missing:
            part = {"content": "reply", "reasoning_content": "thought"}.get(field, "tool call")
            raise UserError(
                f"the tokenizer's chat template leaves out the {part} {missing[0][:40]!r} of the assistant's message "
                f"{turn + 1}, so it would not be learned; expected a template that writes it (--chat-template FILE), "
                "--train-on last if it writes it in the last turn only"
                + (
                    ", or the thought in the content, between <think> and </think>"
                    if part == "thought" and is_apart
                    else ""
                ),
                argument="chat_template",
                value=turn + 1,
                expected=field,
                problem="leaves out",
            )


def _call_words(message: Message) -> list[str]:
    """Return the names of the called functions and the texts among their arguments."""
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    return [text for f in functions for text in (f["name"], *_texts(f["arguments"]))]


def _texts(value: Any) -> list[str]:
    """Return the texts in a JSON value."""
    if isinstance(value, Mapping):
        return [text for item in value.values() for text in _texts(item)]
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    return [value] if isinstance(value, str) else []


def _is_written(text: str, written: str) -> bool:
    """Return whether a text without white space contains ``text``, as it is or escaped as in JSON."""
    forms = (text, json.dumps(text, ensure_ascii=False)[1:-1], json.dumps(text)[1:-1])
    return any(squeezed(form) in written for form in forms)


def _require_tools(text: str, tools: Sequence[Mapping[str, Any]], render_without: Callable[[], str]) -> None:
    """Raise :class:`UserError` unless a rendered text has the name of each tool, not only because it is called."""
    try:
        ignored = render_without() == text
    except Exception:  # a template that needs tools has read them
        ignored = False
    for tool in tools:
        name = str(tool.get("function", tool).get("name", ""))
        if ignored or name not in text:
            raise UserError(
                f"the tokenizer's chat template does not write the tool {name!r}; expected a template that writes tools "
                "(--chat-template FILE), or data without the field tools",
                argument="chat_template",
                value=name,
                expected="tools",
                problem="leaves out",
            )


# -- what a template reads -----------------------------------------------------------------------------------------


def _adapted(message: Message, reading: _Reading) -> dict[str, Any]:
    """Return the message with the fields that the template reads."""
    adapted = {key: value for key, value in message.items() if key not in FOR_TEMPLATE}
    if "tool_calls" in adapted:
        adapted["function_calls"] = adapted.get("function_calls") or "\n".join(call_texts(adapted["tool_calls"]))
    if message["role"] == "assistant" and reading.thought:
        if not adapted.get("reasoning_content") and "</think>" in message["content"] and not reading.splits:
            adapted["reasoning_content"], adapted["content"] = thought_and_answer(message)
        if thought := adapted.pop("reasoning_content", None):
            adapted[reading.thought] = thought
    if reading.parts:
        adapted["content"] = [{"type": "text", "text": message["content"]}]
    return adapted


@functools.lru_cache(maxsize=256)
def _reading(template: str, special: str) -> _Reading:
    """Find out what a template reads, from how it renders short conversations."""
    question, thought, answer = "qzx question", "qzx thought", "qzx answer"  # words of no template

    def text(content: str | list[Any], system: Sequence[Mapping[str, Any]] = (), **fields: Any) -> str:
        messages = [*system, {"role": "user", "content": question if isinstance(content, str) else [_part(question)]}]
        reply = {"role": "assistant", "content": content, **fields}
        try:
            return _call(template, special, [*messages, reply], False, {})[0]
        except Exception:  # a template for other conversations: rendering the data will report it
            return ""

    as_parts = text([_part(answer)])
    # A template that writes the list itself, as Python prints it, does not read parts.
    parts = answer not in text(answer) and answer in as_parts and "'type'" not in as_parts
    content: Any = [_part(answer)] if parts else answer
    plain = text(content)
    folds = bool(plain) and not text(content, [{"role": "system", "content": [_part("qzx")] if parts else "qzx"}])
    for field in THOUGHTS:
        separate = text(content, (), **{field: thought})
        if thought in separate and thought not in plain:
            inline = text(f"<think>\n{thought}\n</think>\n\n{answer}")
            return _Reading(parts, field, inline.count("</think>") <= separate.count("</think>"), folds)
    return _Reading(parts, folds=folds)


def _part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _call(
    template: str, special: str, messages: Sequence[Mapping[str, Any]], prompt: bool, arguments: Mapping[str, Any]
) -> tuple[str, list[tuple[int, int]]]:
    """Call the template; arguments of tool calls are objects, or texts of JSON for a template that fails on objects."""
    from transformers.utils.chat_template_utils import render_jinja_template

    def call(conversation: Sequence[Mapping[str, Any]]) -> tuple[str, list[tuple[int, int]]]:
        # cast: the function is annotated as returning a string
        texts, spans = cast(Any, render_jinja_template)(
            conversations=[list(conversation)],
            chat_template=template,
            return_assistant_tokens_mask=bool(MARKED.search(template)),
            add_generation_prompt=prompt,
            **{**json.loads(special), **arguments},
        )
        return texts[0], [(start, end) for start, end in spans[0]] if spans else []

    try:
        return call(messages)
    except TypeError:
        if not any(message.get("tool_calls") for message in messages):
            raise
        return call([_with_json_arguments(message) for message in messages])


def _with_json_arguments(message: Mapping[str, Any]) -> dict[str, Any]:
    calls = [
        {**call, "function": {**call["function"], "arguments": json.dumps(call["function"]["arguments"])}}
        for call in message.get("tool_calls") or ()
    ]
    return {**message, "tool_calls": calls} if calls else dict(message)
