"""Tool calls as text: how to write them, and one parser for what models write.

A call is between ``<tool_call>`` and ``</tool_call>`` (Hermes, Qwen), or is the whole completion, in one of two forms::

    {"name": "calculator", "arguments": {"expression": "12*34"}}        JSON
    calculator(expression="12*34")                                      Python

Several calls are a list of these. :func:`read_calls` accepts any text: everything outside calls is text, and an invalid
call is returned with the reason, which can be shown to the model. Nothing is evaluated.
"""

from __future__ import annotations

import ast
import json
import keyword
import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from minirlhf.core.errors import ArgumentError, Facts

OPEN, CLOSE = "<tool_call>", "</tool_call>"
THOUGHT, THOUGHT_ENDS = "<think>", "</think>"
#: Maximum characters of one call, and maximum depth of brackets: Python's parser can be very slow on broken, deeply
#: nested text.
LONGEST, DEEPEST = 8_000, 20
#: Maximum digits of an integer (Python's json writes at most 4,300), and the number of schema names that a reason
#: lists.
DIGITS, NAMED = 4_000, 20
LARGEST = 10**DIGITS

#: A tool as chat templates take it: ``{"type": "function", "function": {"name", "description", "parameters"}}``, with
#: the JSON Schema of its arguments. ``transformers.utils.get_json_schema`` makes one of a function's type hints and
#: docstring.
Schema: TypeAlias = Mapping[str, Any]
Form: TypeAlias = Literal["json", "python"]


@dataclass(frozen=True)
class ToolCall:
    """A valid call: the tool exists, and the arguments fit its schema.

    Attributes:
        id: the id that the tool's output repeats, so that outputs in another order can be matched to their calls.
    """

    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class BadCall:
    """An invalid call.

    Attributes:
        name: the tool that it names, if that can be read; may be empty.
        problem: the reason in one line, to be shown to the model.
        kind: the reason in one or two words.
        argument: the argument that the reason concerns; may be empty.
    """

    id: str
    name: str
    problem: str
    kind: str = ""
    argument: str = ""


@dataclass(frozen=True)
class AssistantTurn:
    """The parts of an assistant turn.

    Attributes:
        reasoning: the text up to the last ``</think>`` outside a call, wherever it was opened, and the text after a
            ``<think>`` outside a call that is never closed; no call is read from there. A thought that a template
            opened before the turn began, and that is never closed, looks like any other text.
        text: everything that is neither thought nor call, without white space around it.
        calls: the calls in their order.
    """

    reasoning: str
    text: str
    calls: tuple[ToolCall | BadCall, ...]


def _by_name(schemas: Sequence[Schema]) -> dict[str, Schema]:
    """Return the schemas by the name of their tool; ``ValueError`` if two have the same name."""
    by_name = {schema["function"]["name"]: schema for schema in schemas}
    if len(by_name) != len(schemas):
        message = f"schemas holds {len(schemas)} tools of {len(by_name)} names; expected one name each"
        raise ArgumentError(message, argument="schemas", value=len(schemas), expected=len(by_name), problem="duplicate")
    return by_name


# -- writing ---------------------------------------------------------------------------------------------------------


def describe_tools(schemas: Sequence[Schema], form: Form) -> str:
    """Return the tool part of a system message: one line of JSON per tool, and how to call them.

    If a name is not a Python identifier, calls are written as JSON in either form.
    """
    shapes = {"json": '{"name": NAME, "arguments": {ARGUMENT: VALUE}}', "python": "NAME(ARGUMENT=VALUE)"}
    shape = shapes[form]
    if not all(_python_can(schema["function"]["name"], _arguments(schema)[0]) for schema in schemas):
        shape = shapes["json"]
    tools = "\n".join(json.dumps(schema["function"], ensure_ascii=False) for schema in schemas)
    return f"You can call these tools:\n{tools}\nTo call one, write {OPEN}{shape}{CLOSE} and stop."


def write_call(name: str, arguments: Mapping[str, Any], form: Form) -> str:
    """Return a call with its marks, as a model should write it; as JSON if a name is not a Python identifier."""
    if form == "json" or not _python_can(name, arguments):
        body = json.dumps({"name": name, "arguments": dict(arguments)}, ensure_ascii=False).replace("</", "<\\/")
    else:
        body = f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})".replace("</", "<\\x2f")
    return f"{OPEN}{body}{CLOSE}"


def _python_can(name: str, arguments: Iterable[str]) -> bool:
    """Return whether these names are valid in a Python call."""
    return all(each.isidentifier() and not keyword.iskeyword(each) for each in (name, *arguments))


def opening(choice: str, form: Form) -> str:
    """Return the beginning of a turn that the model continues, for the values of ``tool_choice``.

    Args:
        choice: ``auto``: nothing, the model decides. ``any``: the mark that opens a call. The name of a tool: the
            beginning of a call of this tool. ``none``: nothing, and the caller must not read calls from the completion.
    """
    if choice in ("auto", "none"):
        return ""
    if choice == "any":
        return OPEN
    return OPEN + (f'{{"name": {json.dumps(choice)}, "arguments": ' if form == "json" else f"{choice}(")


# -- reading ---------------------------------------------------------------------------------------------------------

_THOUGHT = re.compile(r"\s*" + re.escape(THOUGHT))
#: Ids that a call may bring along, and the ids that this module assigns.
_ID, _OURS = re.compile(r"[A-Za-z0-9_.-]{1,64}"), re.compile(r"call_\d+")


class _Unreadable(Facts, Exception):
    """The reason why a text is not a call, in one line; ``name``: the tool that it names, if that can be read."""

    def __init__(self, message: str, name: str = "", **facts: Any) -> None:
        super().__init__(message, **facts)
        self.name = name


def read_calls(text: str, schemas: Sequence[Schema], *, first_id: int = 0) -> AssistantTurn:
    """Read an assistant turn. Accepts any text, never raises, in a time that grows with the length of the text.

    Args:
        text: the turn, without the token that ends it.
        schemas: the available tools.
        first_id: the number of the first call without an id of its own: ``call_0``, ``call_1`` ….
    """
    thought, rest = _apart(text)
    tools = _by_name(schemas)
    texts, bodies = _between_marks(rest)
    if not bodies and _looks_like_calls(rest, tools):
        texts, bodies = [], [rest]
    calls: list[ToolCall | BadCall] = []
    taken: set[str] = set()
    for body in bodies:
        try:
            raw_calls = _calls_in(body)
        except _Unreadable as problem:
            calls.append(_bad(f"call_{first_id + len(calls)}", problem.name, problem))
            continue
        for raw in raw_calls:
            calls.append(_checked(raw, tools, f"call_{first_id + len(calls)}", taken))
            taken.add(calls[-1].id)
    return AssistantTurn(thought, " ".join(filter(None, (part.strip() for part in texts))), tuple(calls))


def _between_marks(text: str) -> tuple[list[str], list[str]]:
    """Return the texts outside the marks, and the texts inside; an unclosed call runs to the end."""
    texts, bodies, position = [], [], 0
    while (start := text.find(OPEN, position)) >= 0:
        end = text.find(CLOSE, start)
        texts.append(text[position:start])
        bodies.append(text[start + len(OPEN) : end if end >= 0 else len(text)])
        position = end + len(CLOSE) if end >= 0 else len(text)
    return [*texts, text[position:]], bodies


def _apart(text: str) -> tuple[str, str]:
    """Return the thoughts and the rest.

    A call is what is between a closing mark and the nearest opening mark before it: a thought may mention how a call
    begins.
    """
    every = (OPEN, CLOSE, THOUGHT, THOUGHT_ENDS)
    marks = sorted((at, mark) for mark in every for at in _places(text, mark))
    outside: list[tuple[int, str]] = []
    num_before: int | None = None  # how many of these are before the open call
    for at, mark in marks:
        if mark == OPEN:
            num_before = len(outside)
        elif mark == CLOSE:
            if num_before is not None:
                del outside[num_before:]
            num_before = None
        else:
            outside.append((at, mark))
    last = max((at + len(mark) for at, mark in outside if mark == THOUGHT_ENDS), default=0)
    if num_before is not None:  # a call that runs to the end
        del outside[num_before:]
    open_at = min((at for at, mark in outside if mark == THOUGHT and at >= last), default=len(text))
    head = _THOUGHT.match(text)
    thoughts = (
        text[min(head.end(), last) if head else 0 : max(0, last - len(THOUGHT_ENDS))],
        text[open_at + len(THOUGHT) :],
    )
    return "\n".join(filter(None, (thought.strip() for thought in thoughts))), text[last:open_at]


def _places(text: str, mark: str) -> Iterator[int]:
    """Yield the positions of a mark."""
    position = text.find(mark)
    while position >= 0:
        yield position
        position = text.find(mark, position + len(mark))


def _looks_like_calls(text: str, tools: Mapping[str, Schema]) -> bool:
    """Return whether a text without marks consists of calls. All names must be tools, which excludes prose."""
    try:
        calls = _calls_in(text)
    except _Unreadable:
        return False
    return all(name in tools for name, _, _ in calls)


#: A call as it was written: its name, a function from the schema to its arguments, and its id.
_Raw: TypeAlias = tuple[str, Callable[[Schema], Any], str | None]


def _calls_in(body: str) -> list[_Raw]:
    """Return at least one call, in either form."""
    body = body.strip()
    if len(body) > LONGEST:
        raise _Unreadable(f"the call has {len(body)} characters; expected at most {LONGEST}", problem="length")
    if _depth(body) > DEEPEST:
        raise _Unreadable(f"more than {DEEPEST} brackets stand in one another", problem="depth")
    calls = _of_json(body) if body.lstrip("[ \t\r\n").startswith("{") else _of_python(body)
    if not calls:
        raise _Unreadable("no call stands there", problem="empty")
    return calls


def _depth(body: str) -> int:
    """Return the maximum depth of open brackets outside quotes."""
    depth = deepest = 0
    quote, escaped = "", False
    for c in body:
        if quote:
            quote, escaped = ("" if c == quote and not escaped else quote), c == "\\" and not escaped
        elif c in "\"'":
            quote = c
        elif c in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif c in ")]}":
            depth -= 1
    return deepest


def _of_json(body: str) -> list[_Raw]:
    value = _loaded(body, "the call is")
    return [_of_object(each) for each in (value if isinstance(value, list) else [value])]


def _loaded(text: str, what: str, name: str = "") -> Any:
    """Return the value of a JSON text; ``what`` begins the error message if it is not valid."""

    def constant(name: str) -> Any:
        raise ValueError(f"{name} is no JSON value")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        duplicates = [key for key, times in Counter(key for key, _ in pairs).items() if times > 1]
        if duplicates:
            message = f"{duplicates[0][:80]!r:.82} is given twice"
            raise ArgumentError(message, argument=duplicates[0], problem="duplicate")
        return dict(pairs)

    try:
        return json.loads(text, parse_constant=constant, object_pairs_hook=once)
    except (ValueError, RecursionError) as problem:
        facts = {"problem": "json"} | getattr(problem, "facts", {})
        raise _Unreadable(f"{what} not valid JSON: {_line(problem)}", name, **facts) from None


def _of_object(value: Any) -> _Raw:
    """Read ``{"name", "arguments"}``; Llama writes ``parameters``, OpenAI ``{"function": {...}, "id"}`` and strings."""
    call_id = value.get("id") if isinstance(value, dict) else None
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise _Unreadable('a call is an object with "name" and "arguments"', problem="form")
    name: str = value["name"]
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = _loaded(arguments, "the arguments are", name)
    return name, lambda schema: arguments, call_id if isinstance(call_id, str) and call_id else None


def _of_python(body: str) -> list[_Raw]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about invalid escapes
            statements = ast.parse(body).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        raise _Unreadable(f"the call is neither JSON nor Python: {_line(problem)}", problem="syntax") from None
    calls = []
    for statement in statements:
        value = statement.value if isinstance(statement, ast.Expr) else None
        for node in value.elts if isinstance(value, ast.List | ast.Tuple) else [value]:
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                raise _Unreadable("a call is written NAME(ARGUMENT=VALUE)", problem="form")
            calls.append(_of_node(node, node.func.id))
    return calls


def _of_node(node: ast.Call, name: str) -> _Raw:
    try:
        positional = [ast.literal_eval(each) for each in node.args]
        by_key = [(each.arg, ast.literal_eval(each.value)) for each in node.keywords]
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise _Unreadable("arguments are plain values: texts, numbers, lists", name, problem="values") from None
    named = [(key, value) for key, value in by_key if key is not None]
    if len(named) < len(by_key):
        raise _Unreadable("arguments are given by their names, not by **", name, problem="unpacked")
    for inner in ast.walk(node):
        keys = [key.value for key in inner.keys if isinstance(key, ast.Constant)] if isinstance(inner, ast.Dict) else []
        duplicates = [key for key, times in Counter(key for key in keys if isinstance(key, str)).items() if times > 1]
        if duplicates:  # keys other than strings are refused elsewhere; a long number cannot even be printed
            message = f"{duplicates[0][:80]!r:.82} is given twice"
            raise _Unreadable(message, name, argument=duplicates[0], problem="duplicate")

    def bound(schema: Schema) -> Any:
        order = list(_arguments(schema)[0])
        if len(positional) > len(order):
            message = f"{len(positional)} arguments; expected at most {len(order)}"
            raise _Unreadable(message, name, value=len(positional), expected=len(order), problem="too many")
        pairs = [*zip(order, positional, strict=False), *named]
        repeated = [key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i])]
        if repeated:
            message = f"argument {repeated[0][:80]!r:.82} is given twice"
            raise _Unreadable(message, name, argument=repeated[0], problem="duplicate")
        return dict(pairs)

    return name, bound, None


def _bad(number: str, name: str, problem: _Unreadable) -> BadCall:
    return BadCall(number, name, str(problem), problem.problem or "", problem.argument or "")


def _checked(raw: _Raw, tools: Mapping[str, Schema], number: str, taken: Container[str]) -> ToolCall | BadCall:
    """Return the call, valid if the tool exists and accepts the arguments. Its own id is kept if no other can have
    it."""
    name, bind, call_id = raw
    if call_id and call_id not in taken and _ID.fullmatch(call_id) and not _OURS.fullmatch(call_id):
        number = call_id
    if name not in tools:
        name = name[:80].encode("utf-8", "replace").decode()  # it may hold half of a surrogate pair
        return BadCall(number, name, f"there is no tool {name!r}; there are: {_listed(tools)}", "unknown tool")
    try:
        arguments = _plain(bind(tools[name]))
    except _Unreadable as problem:
        return _bad(number, name, problem)
    properties, required = _arguments(tools[name])
    if not isinstance(arguments, dict):
        return BadCall(number, name, "arguments are an object of names and values", "form")
    missing = [key for key in required if key not in arguments]
    if missing:
        return BadCall(number, name, f"argument {missing[0]!r} is missing", "missing", missing[0])
    for key, value in arguments.items():
        if key not in properties:
            reason = f"there is no argument {key[:80]!r}; there are: {_listed(properties)}"
            return BadCall(number, name, reason, "unknown argument", key)
        if not _fits(value, properties[key]):
            return BadCall(number, name, f"argument {key!r} is no {_kind(properties[key])}", "type", key)
    return ToolCall(number, name, arguments)


def _arguments(schema: Schema) -> tuple[Mapping[str, Any], Sequence[str]]:
    """Return the schemas of a tool's arguments by name, and the required names; none if the schema has none."""
    parameters = _object(schema["function"].get("parameters"))
    required = parameters.get("required")
    names = required if isinstance(required, list | tuple) else ()
    return _object(parameters.get("properties")), [name for name in names if isinstance(name, str)]


def _object(value: Any) -> Mapping[str, Any]:
    """Return part of a schema as a mapping; anything else that the author of the schema wrote there is ignored."""
    return value if isinstance(value, Mapping) else {}


def _plain(value: Any, depth: int = 0) -> Any:
    """Return the value as JSON can hold it, tuples as lists.

    :class:`_Unreadable` if JSON cannot hold it, or if it is nested deeper than :data:`DEEPEST`: arguments given as a
    string hide their brackets from the earlier check.
    """
    if depth > DEEPEST:
        raise _Unreadable(f"more than {DEEPEST} brackets stand in one another", problem="depth")
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {_plain(key): _plain(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, depth + 1) for each in value]
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _Unreadable("a text holds half of a surrogate pair", problem="surrogate") from None
        return value
    if isinstance(value, int) and abs(value) >= LARGEST:
        raise _Unreadable(f"a number has more than {DIGITS} digits", problem="digits")
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise _Unreadable("arguments are plain values: texts, numbers, lists", problem="values")


_KINDS: Mapping[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}


def _fits(value: Any, schema: Any, depth: int = 0) -> bool:
    """Return whether a value fits a JSON Schema: its type, its choices, the items of a list. Nothing else is checked.

    The schema ``True`` accepts anything, ``False`` nothing. Values more than :data:`DEEPEST` levels down are not
    checked.
    """
    if schema is False:
        return False
    if depth > DEEPEST:
        return True
    schema = _object(schema)
    if value is None and schema.get("nullable"):
        return True
    if isinstance(schema.get("anyOf"), list | tuple):
        return any(_fits(value, each, depth + 1) for each in schema["anyOf"])
    if isinstance(schema.get("enum"), list | tuple) and not any(
        value == each and isinstance(value, bool) == isinstance(each, bool) for each in schema["enum"]
    ):
        return False
    kinds = _kinds(schema)
    if kinds and not any(_KINDS.get(kind, lambda _: True)(value) for kind in kinds):
        return False
    return not isinstance(value, list) or all(_fits(each, schema.get("items"), depth + 1) for each in value)


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    """Return the types that a schema allows; none if it does not name any."""
    kinds = schema.get("type")
    return [kind for kind in (kinds if isinstance(kinds, list | tuple) else [kinds]) if isinstance(kind, str)]


def _kind(schema: Any) -> str:
    schema = _object(schema)
    if isinstance(schema.get("enum"), list | tuple):
        return f"choice among {_listed(schema['enum'])}"
    return " or ".join(_kinds(schema)) or "value of the expected kind"


def _listed(names: Iterable[Any]) -> str:
    """Return names of a schema in one line, cut in number and length, as a schema may have many and long ones."""
    texts = [" ".join(str(name).split())[:80] for name in names]
    rest = f" and {len(texts) - NAMED} more" if len(texts) > NAMED else ""
    return f"{', '.join(texts[:NAMED])}{rest}" if texts else "none"


def _line(problem: BaseException) -> str:
    """Return the first line of an error, cut short."""
    text = problem.msg if isinstance(problem, SyntaxError | json.JSONDecodeError) else str(problem)
    return (text.splitlines() or [""])[0][:120] or type(problem).__name__
