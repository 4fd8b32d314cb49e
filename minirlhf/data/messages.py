"""Read the messages of a row: content as a text or as parts, thoughts, tool calls and tools, as other libraries write them.

A message becomes a :data:`~minirlhf.data.records.Message`: ``tool_calls`` in the layout of OpenAI with arguments as an
object, the thought in ``reasoning_content``. The chat template decides how they are written.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from minirlhf.core.errors import UserError
from minirlhf.data.records import ROLES, InvalidRecordError, Message, thought_and_answer

#: Aliases of roles in messages.
SAME_ROLE = {"developer": "system", "function": "tool", "environment": "tool", "ipython": "tool"}
#: The role of each speaker in ShareGPT's conversations.
SPEAKERS = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "chatgpt": "assistant",
    "function_call": "assistant",
    "observation": "tool",
    "tool": "tool",
}
#: Fields of a message that hold a thought; of these the first one that is not empty is read.
THOUGHTS = ("reasoning_content", "reasoning", "thinking")
#: Fields of a message that hold calls of functions; of these the first one that is not empty is read.
CALLS = ("tool_calls", "function_calls", "function_call")
#: The fields of a message that are read, by its role.
READ_FIELDS = {
    **dict.fromkeys(("system", "user"), ("role", "content", "functions")),
    "assistant": ("role", "content", "functions", *THOUGHTS, *CALLS),
    "tool": ("role", "content", "name", "tool_call_id"),
}
#: Fields of a turn to imitate that say whether it is learned: 1 or true, 0 or false.
WEIGHTS = ("weight", "loss", "train")
#: Fields of a row that its chat template gets.
FOR_TEMPLATE = ("tools", "chat_template_kwargs")


def unpacked(value: object) -> object:
    """Return the messages that stand in a text as JSON or as Python prints them, which is how a CSV file holds them; any
    other value as it is."""
    if not isinstance(value, str) or not re.match(r"\s*\[\s*\{", value):
        return value
    printed = re.sub(r"\}\s*\n\s*\{", "}, {", value)  # NumPy prints no commas between the messages of an array
    for read, text in ((json.loads, value), (ast.literal_eval, value), (ast.literal_eval, printed)):
        with suppress(ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            found = read(text)
            turns = ({"role", "content"}, {"from", "value"})
            if all(isinstance(turn, dict) and any(names <= turn.keys() for names in turns) for turn in found):
                return found
    return value


def learned_part(turns: Sequence[Any], field: str) -> tuple[int, int]:
    """Return where the turns to learn begin, and where the conversation ends.

    A turn of the assistant with the ``weight`` 0 (or ``loss`` false) is context.

    Raises:
        UserError: a weight is neither 0 nor 1, or such a turn stands between two turns to learn.
        InvalidRecordError: no turn is learned.
    """
    learned: list[int] = []
    silent: list[int] = []
    for i, turn in enumerate(turns):
        if turn.get("role", SPEAKERS.get(str(turn.get("from")))) != "assistant":
            continue
        name, weight = next(((name, turn[name]) for name in WEIGHTS if turn.get(name) is not None), ("weight", 1))
        if weight not in (0, 1):
            raise wrong(f"{field}[{i}].{name}", weight, "0 or 1", expected="weight")
        (learned if weight else silent).append(i)
    if not silent:
        return 0, len(turns)
    if not learned:
        raise InvalidRecordError("every assistant turn has the weight 0", argument=field, problem="weight")
    between = [i for i in silent if learned[0] < i < learned[-1]]
    if between:
        raise UserError(
            f"{field}[{between[0]}] has the weight 0 and stands between turns to learn; expected such turns in front of them",
            argument=f"{field}[{between[0]}]",
            problem="weight",
        )
    return learned[0] if silent[0] < learned[0] else 0, learned[-1] + 1 if silent[-1] > learned[-1] else len(turns)


def read_messages(value: object, field: str, or_text: str = "") -> list[Message]:
    """Return the value of a field that must hold a list of messages with known roles."""
    if not isinstance(value, list):
        raise wrong(field, value, f"{or_text}a list of messages with role and content", expected="messages")
    messages = [_message(message, f"{field}[{turn}]") for turn, message in enumerate(value)]
    if not messages:
        raise InvalidRecordError(f"{field} is empty", argument=field, problem="empty")
    return messages


def read_turns(value: object) -> list[Message]:
    """Return ShareGPT's turns as messages."""
    if not isinstance(value, list):
        raise wrong(
            argument="conversations", value=value, words="a list of turns with from and value", expected="turns"
        )
    messages = []
    for index, turn in enumerate(value):
        where = f"conversations[{index}]"
        if not isinstance(turn, Mapping) or not {"from", "value"} <= turn.keys():
            error = f"{where} is {kind(turn)}; expected a turn with from and value"
            raise UserError(error, argument=where, value=turn, expected=["from", "value"])
        if not isinstance(turn["from"], str) or turn["from"] not in SPEAKERS:
            error = f"{where} is from {turn['from']!r}; expected one of {', '.join(SPEAKERS)}"
            raise UserError(error, argument=where, value=turn["from"], expected=list(SPEAKERS))
        said: dict[str, Any] = {"content": turn["value"]}
        if turn["from"] == "function_call" and _is_json_call(turn["value"]):
            said = {"content": "", "tool_calls": turn["value"]}
        thoughts = {key: turn[key] for key in THOUGHTS if key in turn}
        messages.append(_message({"role": SPEAKERS[turn["from"]], **said, **thoughts}, where, content="value"))
    if not messages:
        raise InvalidRecordError("conversations is empty", argument="conversations", problem="empty")
    return messages


def is_empty(message: Message) -> bool:
    """Return whether a message has neither text nor tool calls."""
    return not message["content"].strip() and not message.get("tool_calls")


def template_inputs(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a row gives to its chat template beside the messages: ``tools`` and ``chat_template_kwargs``."""
    found: dict[str, Any] = {}
    if row.get("tools") not in (None, "", [], "[]"):
        found["tools"] = _tools(row["tools"], "tools")
    options = row.get("chat_template_kwargs")
    if options not in (None, "", {}):
        read = _json(options, "chat_template_kwargs")
        if not isinstance(read, Mapping):
            raise wrong("chat_template_kwargs", options, "an object", expected="object")
        found["chat_template_kwargs"] = {str(key): value for key, value in read.items() if value is not None}
    return found


# -- one message -------------------------------------------------------------------------------------------------------


def _message(message: object, where: str, content: str = "content") -> Message:
    """Read one message; ``content`` is the name of its content in error messages."""
    calling = isinstance(message, Mapping) and any(message.get(name) for name in CALLS)
    if not isinstance(message, Mapping) or "role" not in message or not ("content" in message or calling):
        error = f"{where} is {kind(message)}; expected a message with role and content"
        raise UserError(error, argument=where, value=message, expected=["role", "content"])
    role = SAME_ROLE.get(str(message["role"]), message["role"])
    if role not in ROLES:
        error = f"{where} has the role {role!r}; expected one of {', '.join((*ROLES, *SAME_ROLE))}"
        raise UserError(error, argument=where, value=role, expected=[*ROLES, *SAME_ROLE])
    calls = _calls(message, where) if role == "assistant" else []
    raw = message.get("content")
    if raw is None and not calls and isinstance(message.get("function_calls"), str):
        raw = message["function_calls"]  # calls in a language of their own are learned as they are written
    if role == "tool" and _is_data(raw):
        raw = json.dumps(raw, ensure_ascii=False)
    text, inner = ("", "") if raw is None and calls else _content(raw, f"{where}.{content}", role)
    result: Message = {"role": role, "content": text}
    if role == "assistant":
        thought = next((message[name] for name in THOUGHTS if message.get(name)), inner or None)
        if thought is not None:
            result["reasoning_content"] = require_text(thought, f"{where}.reasoning_content")
            inline, answer = thought_and_answer({"content": text})
            if inline == result["reasoning_content"].strip():  # the same thought, in both places
                result["content"] = answer
    if calls:
        result["tool_calls"] = calls
        if _calls_of_text(text) == [call["function"] for call in calls]:  # the same calls, in both places
            result["content"] = _WRITTEN_CALL.sub("", text).strip()
        if isinstance(message.get("function_calls"), str):
            result["function_calls"] = message["function_calls"]
    if role == "tool":
        result |= {key: str(message[key]) for key in ("name", "tool_call_id") if message.get(key)}
    elif message.get("functions"):
        result["tools"] = _tools(message["functions"], f"{where}.functions")
        raw = message["functions"]  # templates of this layout write it as it is
        result["functions"] = raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False)
    return result


#: Types of parts of a content that are text.
TEXT_PARTS = ("text", "input_text", "output_text")


def _is_data(content: object) -> bool:
    """Return whether the output of a tool is data and neither text nor a list of parts."""
    typed = isinstance(content, list) and all(
        isinstance(p, str) or (isinstance(p, Mapping) and "type" in p) for p in content
    )
    return isinstance(content, Mapping | list) and not typed


def _content(value: object, field: str, role: str) -> tuple[str, str]:
    """Return the content of a message as text, and the thought in it: a text, or a list of parts.

    A part is text. A part of the type ``thinking`` is a thought, which only the assistant has.
    """
    if not isinstance(value, list):
        return require_text(value, field), ""
    texts, thoughts = [], []
    for i, part in enumerate(value):
        where = f"{field}[{i}]"
        named = part.get("type", "text") if isinstance(part, Mapping) else "text"
        if named == "thinking" and role == "assistant":
            thoughts.append(require_text(part["thinking"] if "thinking" in part else part.get("text"), where))
        elif named in TEXT_PARTS:
            texts.append(require_text(part.get("text") if isinstance(part, Mapping) else part, where))
        else:
            error = (
                f"{where} is of the type {str(named)[:40]!r}; expected text or a thought of the assistant (thinking)"
            )
            raise UserError(error, argument=where, value=named, expected="text")
    return "".join(texts), "\n".join(thoughts)


def _calls(message: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    """Return the tool calls of a message; empty if it has none, or only ones in an unknown language."""
    for name in CALLS:
        value = message.get(name)
        if not value:
            continue
        if name == "function_calls" and isinstance(value, str) and not _is_json_call(value):
            return _python_calls(value)
        read = _json(value, f"{where}.{name}")
        calls = [read] if isinstance(read, Mapping) else read
        if not isinstance(calls, list):
            raise wrong(f"{where}.{name}", value, "a list of calls", expected="list")
        return [_call(call, f"{where}.{name}[{i}]") for i, call in enumerate(calls)]
    return []


_WRITTEN_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)


def _calls_of_text(text: str) -> list[Any]:
    """Return the calls between ``<tool_call>`` and its end in a content; empty if one of them is no JSON."""
    try:
        return [json.loads(found[1]) for found in _WRITTEN_CALL.finditer(text)]
    except (ValueError, RecursionError):
        return []


def _call(call: object, where: str) -> dict[str, Any]:
    function = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str) or not function["name"]:
        error = f"{where} is {kind(call)}; expected a call with the name of a function and its arguments"
        raise UserError(error, argument=where, value=call, expected=["name", "arguments"])
    arguments = function.get("arguments", function.get("parameters"))
    # A table of Arrow fills in the arguments of all other calls as null; in JSON text, null is an argument.
    filled = isinstance(arguments, Mapping)
    arguments = {} if arguments in (None, "") else _json(arguments, f"{where}.arguments")
    arguments = _without_nulls(arguments) if filled else arguments
    if not isinstance(arguments, Mapping):
        raise wrong(f"{where}.arguments", arguments, "an object", expected="object")
    name = {"id": str(call["id"])} if isinstance(call, Mapping) and call.get("id") else {}
    return {"type": "function", **name, "function": {"name": function["name"], "arguments": dict(arguments)}}


def _python_calls(text: str) -> list[dict[str, Any]]:
    """Return the calls in lines of Python such as ``look(place='Rome')``; empty if the text is something else."""
    try:
        lines = [node.value for node in ast.parse(text).body if isinstance(node, ast.Expr)]
        listed = [item for line in lines for item in (line.elts if isinstance(line, ast.List) else [line])]
        calls = [
            {
                "name": ast.unparse(call.func),
                "arguments": {str(k.arg): ast.literal_eval(k.value) for k in call.keywords},
            }
            for call in listed
            if isinstance(call, ast.Call) and not call.args and all(k.arg for k in call.keywords)
        ]
        json.dumps(calls)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return []
    complete = calls and len(calls) == len(listed) == len(ast.parse(text).body) + len(listed) - len(lines)
    return [{"type": "function", "function": call} for call in calls] if complete else []


def _tools(value: object, field: str) -> list[dict[str, Any]]:
    read = _json(value, field)
    if not isinstance(read, list):
        raise wrong(field, value, "a list of tools", expected="list")
    tools = []
    for i, tool in enumerate(read):
        tool = _without_nulls(tool) if isinstance(tool, Mapping) else _json(tool, f"{field}[{i}]")
        function = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            error = f"{field}[{i}] is {kind(tool)}; expected a tool with the name of a function"
            raise UserError(error, argument=f"{field}[{i}]", value=tool, expected="name")
        tools.append(dict(tool) if "function" in tool else {"type": "function", "function": dict(tool)})
    return tools


def _without_nulls(value: Any) -> Any:
    """Return an object without the names in it whose value is null, also in the objects within."""
    if isinstance(value, Mapping):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _is_json_call(value: object) -> bool:
    """Return whether a text is JSON that holds one call with a name, or a list of them."""
    try:
        read = json.loads(value) if isinstance(value, str) else None
    except (ValueError, RecursionError):
        return False
    calls = read if isinstance(read, list) else [read]
    return bool(calls) and all(isinstance(call, dict) and isinstance(call.get("name"), str) for call in calls)


def _json(value: object, field: str) -> Any:
    """Return a value; a text is read as JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise wrong(field, value, "valid JSON", expected="json") from None


# -- values ------------------------------------------------------------------------------------------------------------


def require_text(value: object, field: str) -> str:
    """Return a value that must be text."""
    if not isinstance(value, str):
        raise wrong(field, value, "text", expected="text")
    try:
        value.encode()
    except UnicodeEncodeError as problem:
        message = f"field {field!r} holds half of a surrogate pair, which is no valid Unicode"
        raise UserError(message, argument=field, problem="surrogate") from problem
    return value


def wrong(argument: str, value: object, words: str, *, expected: str) -> UserError:
    """Return the error for a field of the wrong type; ``words`` and ``expected`` describe and name the right type."""
    message = f"field {argument!r} is {kind(value)}; expected {words}"
    return UserError(message, argument=argument, value=value, expected=expected)


def kind(value: object) -> str:
    """Describe a value in the terms of JSON."""
    names = {dict: "an object", list: "a list", str: "text", bool: "a truth value", int: "a number", float: "a number"}
    return "missing (null)" if value is None else f"{names.get(type(value), type(value).__name__)}: {str(value)[:40]!r}"


def said(messages: Sequence[Message]) -> list[tuple[Any, ...]]:
    """Return what messages say, for comparisons: white space around each content is left out."""
    more = ("reasoning_content", "tool_calls", "name", "tool_call_id")
    return [(m["role"], m["content"].strip(), *(str(m[key]) if m.get(key) else "" for key in more)) for m in messages]
