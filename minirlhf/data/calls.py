"""Tool calls as text: how they are written, and one reader for what a model makes of that.

A call stands between ``<tool_call>`` and ``</tool_call>`` (Hermes, Qwen), or is the whole reply, and is written in one of two ways::

    {"name": "calculator", "arguments": {"expression": "12*34"}}        JSON
    calculator(expression="12*34")                                      Python

Several calls are a list of these. :func:`read_calls` takes any text: what is no call is text, and a call that cannot be made comes back with the
reason, which the model can be told. Nothing is evaluated.
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
#: Characters of one call at most, and brackets in brackets: Python's own reader can take very long on what is broken and deep.
LONGEST, DEEPEST = 8_000, 20
#: Digits of a whole number at most: Python's json writes no more than 4,300. And the names of a schema that a reason lists.
DIGITS, NAMED = 4_000, 20
LARGEST = 10**DIGITS

#: A tool as chat templates take it: ``{"type": "function", "function": {"name", "description", "parameters"}}``, with the JSON Schema of its
#: arguments. ``transformers.utils.get_json_schema`` makes one of a function's type hints and docstring.
Schema: TypeAlias = Mapping[str, Any]
Form: TypeAlias = Literal["json", "python"]


@dataclass(frozen=True)
class ToolCall:
    """A call that can be made: the tool is there, and the arguments are what its schema asks for.

    Attributes:
        id: what the tool's answer names, so that answers in another order still find their calls.
    """

    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class BadCall:
    """A call that cannot be made.

    Attributes:
        name: the tool that it names, as far as that can be read; may be empty.
        problem: why, in one line, to be told to who wrote it.
        kind: why, in one or two words.
        argument: the argument that it is about; may be empty.
    """

    id: str
    name: str
    problem: str
    kind: str = ""
    argument: str = ""


@dataclass(frozen=True)
class Reply:
    """What a turn of the assistant says.

    Attributes:
        thought: what stands up to the last ``</think>`` outside a call, wherever it was opened, and behind a ``<think>`` outside a call that is never
            closed; no call is made from there. (What a template opened before the turn began, and nobody closed, looks like any other text.)
        text: what is neither thought nor call, without white space around it.
        calls: in their order.
    """

    thought: str
    text: str
    calls: tuple[ToolCall | BadCall, ...]


def _by_name(schemas: Sequence[Schema]) -> dict[str, Schema]:
    """The schemas by the name of their tool; ``ValueError`` if two have the same."""
    found = {schema["function"]["name"]: schema for schema in schemas}
    if len(found) != len(schemas):
        said = f"schemas holds {len(schemas)} tools of {len(found)} names; expected one name each"
        raise ArgumentError(said, argument="schemas", value=len(schemas), expected=len(found), problem="duplicate")
    return found


# -- writing ---------------------------------------------------------------------------------------------------------


def describe_tools(schemas: Sequence[Schema], form: Form) -> str:
    """What a system message says of the tools: a line of JSON for each, and how to call them; as JSON, too, where a name is none of Python's."""
    shapes = {"json": '{"name": NAME, "arguments": {ARGUMENT: VALUE}}', "python": "NAME(ARGUMENT=VALUE)"}
    shape = shapes[form]
    if not all(_python_can(schema["function"]["name"], _arguments(schema)[0]) for schema in schemas):
        shape = shapes["json"]
    listed = "\n".join(json.dumps(schema["function"], ensure_ascii=False) for schema in schemas)
    return f"You can call these tools:\n{listed}\nTo call one, write {OPEN}{shape}{CLOSE} and stop."


def write_call(name: str, arguments: Mapping[str, Any], form: Form) -> str:
    """A call as a model should write it, with its marks; as JSON, too, where a name is none of Python's."""
    if form == "json" or not _python_can(name, arguments):
        body = json.dumps({"name": name, "arguments": dict(arguments)}, ensure_ascii=False).replace("</", "<\\/")
    else:
        body = f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})".replace("</", "<\\x2f")
    return f"{OPEN}{body}{CLOSE}"


def _python_can(name: str, arguments: Iterable[str]) -> bool:
    """Whether Python has a call with such names."""
    return all(each.isidentifier() and not keyword.iskeyword(each) for each in (name, *arguments))


def opening(choice: str, form: Form) -> str:
    """With what a turn is begun for the model, for it to go on: the words of ``tool_choice``.

    Args:
        choice: ``auto``: nothing, the model decides. ``any``: a call is opened. The name of a tool: a call of this tool is. ``none``: nothing, and
            whoever reads the reply makes no call of it.
    """
    if choice in ("auto", "none"):
        return ""
    if choice == "any":
        return OPEN
    return OPEN + (f'{{"name": {json.dumps(choice)}, "arguments": ' if form == "json" else f"{choice}(")


# -- reading ---------------------------------------------------------------------------------------------------------

_THOUGHT = re.compile(r"\s*" + re.escape(THOUGHT))
#: An id that a call may bring along, and those that are given here.
_ID, _OURS = re.compile(r"[A-Za-z0-9_.-]{1,64}"), re.compile(r"call_\d+")


class _Unreadable(Facts, Exception):
    """Why a text is no call, in one line; ``name``: the tool that it names, as far as one can see."""

    def __init__(self, message: str, name: str = "", **facts: Any) -> None:
        super().__init__(message, **facts)
        self.name = name


def read_calls(text: str, schemas: Sequence[Schema], *, first_id: int = 0) -> Reply:
    """Read a turn of the assistant. Takes any text, raises nothing, in a time that grows with the length of the text.

    Args:
        text: the turn, without the token that ends it.
        schemas: the tools that there are.
        first_id: the number of the first call without an id of its own: ``call_0``, ``call_1`` ….
    """
    thought, rest = _apart(text)
    tools = _by_name(schemas)
    said, bodies = _between_marks(rest)
    if not bodies and _looks_like_calls(rest, tools):
        said, bodies = [], [rest]
    calls: list[ToolCall | BadCall] = []
    taken: set[str] = set()
    for body in bodies:
        try:
            found = _calls_in(body)
        except _Unreadable as problem:
            calls.append(_bad(f"call_{first_id + len(calls)}", problem.name, problem))
            continue
        for one in found:
            calls.append(_checked(one, tools, f"call_{first_id + len(calls)}", taken))
            taken.add(calls[-1].id)
    return Reply(thought, " ".join(filter(None, (part.strip() for part in said))), tuple(calls))


def _between_marks(text: str) -> tuple[list[str], list[str]]:
    """What stands outside the marks, and what within; a mark that is not closed runs to the end."""
    said, bodies, at = [], [], 0
    while (start := text.find(OPEN, at)) >= 0:
        end = text.find(CLOSE, start)
        said.append(text[at:start])
        bodies.append(text[start + len(OPEN) : end if end >= 0 else len(text)])
        at = end + len(CLOSE) if end >= 0 else len(text)
    return [*said, text[at:]], bodies


def _apart(text: str) -> tuple[str, str]:
    """The thoughts, and what is none. A call's own marks are those that stand between the end of one and the nearest beginning before it: a thought may
    mention how a call begins."""
    every = (OPEN, CLOSE, THOUGHT, THOUGHT_ENDS)
    marks = sorted((at, mark) for mark in every for at in _places(text, mark))
    outside: list[tuple[int, str]] = []
    begun: int | None = None  # how many of these stand before the call that is open
    for at, mark in marks:
        if mark == OPEN:
            begun = len(outside)
        elif mark == CLOSE:
            if begun is not None:
                del outside[begun:]
            begun = None
        else:
            outside.append((at, mark))
    last = max((at + len(mark) for at, mark in outside if mark == THOUGHT_ENDS), default=0)
    if begun is not None:  # a call that runs to the end
        del outside[begun:]
    open_at = min((at for at, mark in outside if mark == THOUGHT and at >= last), default=len(text))
    head = _THOUGHT.match(text)
    thoughts = (
        text[min(head.end(), last) if head else 0 : max(0, last - len(THOUGHT_ENDS))],
        text[open_at + len(THOUGHT) :],
    )
    return "\n".join(filter(None, (thought.strip() for thought in thoughts))), text[last:open_at]


def _places(text: str, mark: str) -> Iterator[int]:
    """Where a mark stands."""
    at = text.find(mark)
    while at >= 0:
        yield at
        at = text.find(mark, at + len(mark))


def _looks_like_calls(text: str, tools: Mapping[str, Schema]) -> bool:
    """Is a reply without marks, as a whole, calls? All of its names must be tools: prose in brackets is no call."""
    try:
        found = _calls_in(text)
    except _Unreadable:
        return False
    return all(name in tools for name, _, _ in found)


#: Name, arguments by position and by name (or what stands in their place), and id of a call as it was written.
_Raw: TypeAlias = tuple[str, Callable[[Schema], Any], str | None]


def _calls_in(body: str) -> list[_Raw]:
    """At least one call, in either form."""
    body = body.strip()
    if len(body) > LONGEST:
        raise _Unreadable(f"the call has {len(body)} characters; expected at most {LONGEST}", problem="length")
    if _depth(body) > DEEPEST:
        raise _Unreadable(f"more than {DEEPEST} brackets stand in one another", problem="depth")
    found = _of_json(body) if body.lstrip("[ \t\r\n").startswith("{") else _of_python(body)
    if not found:
        raise _Unreadable("no call stands there", problem="empty")
    return found


def _depth(body: str) -> int:
    """How many brackets are open at most, those in quotes aside."""
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
    """The value of a text in JSON; ``what`` begins the sentence that says why it is none."""

    def constant(name: str) -> Any:
        raise ValueError(f"{name} is no JSON value")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        twice = [key for key, times in Counter(key for key, _ in pairs).items() if times > 1]
        if twice:
            said = f"{twice[0][:80]!r:.82} is given twice"
            raise ArgumentError(said, argument=twice[0], problem="duplicate")
        return dict(pairs)

    try:
        return json.loads(text, parse_constant=constant, object_pairs_hook=once)
    except (ValueError, RecursionError) as problem:
        facts = {"problem": "json"} | getattr(problem, "facts", {})
        raise _Unreadable(f"{what} not valid JSON: {_line(problem)}", name, **facts) from None


def _of_object(value: Any) -> _Raw:
    """Of ``{"name", "arguments"}``; ``parameters`` is Llama's word, ``{"function": {...}, "id"}`` and arguments as a string OpenAI's."""
    given = value.get("id") if isinstance(value, dict) else None
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise _Unreadable('a call is an object with "name" and "arguments"', problem="form")
    name: str = value["name"]
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = _loaded(arguments, "the arguments are", name)
    return name, lambda schema: arguments, given if isinstance(given, str) and given else None


def _of_python(body: str) -> list[_Raw]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes
            statements = ast.parse(body).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        raise _Unreadable(f"the call is neither JSON nor Python: {_line(problem)}", problem="syntax") from None
    found = []
    for statement in statements:
        value = statement.value if isinstance(statement, ast.Expr) else None
        for node in value.elts if isinstance(value, ast.List | ast.Tuple) else [value]:
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                raise _Unreadable("a call is written NAME(ARGUMENT=VALUE)", problem="form")
            found.append(_of_node(node, node.func.id))
    return found


def _of_node(node: ast.Call, name: str) -> _Raw:
    try:
        places = [ast.literal_eval(each) for each in node.args]
        by_key = [(each.arg, ast.literal_eval(each.value)) for each in node.keywords]
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise _Unreadable("arguments are plain values: texts, numbers, lists", name, problem="values") from None
    named = [(key, value) for key, value in by_key if key is not None]
    if len(named) < len(by_key):
        raise _Unreadable("arguments are given by their names, not by **", name, problem="unpacked")
    for inner in ast.walk(node):
        keys = [key.value for key in inner.keys if isinstance(key, ast.Constant)] if isinstance(inner, ast.Dict) else []
        again = [key for key, times in Counter(key for key in keys if isinstance(key, str)).items() if times > 1]
        if again:  # another key than a text is refused as such; a long number cannot even be written
            said = f"{again[0][:80]!r:.82} is given twice"
            raise _Unreadable(said, name, argument=again[0], problem="duplicate")

    def bound(schema: Schema) -> Any:
        order = list(_arguments(schema)[0])
        if len(places) > len(order):
            said = f"{len(places)} arguments; expected at most {len(order)}"
            raise _Unreadable(said, name, value=len(places), expected=len(order), problem="too many")
        pairs = [*zip(order, places, strict=False), *named]
        twice = [key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i])]
        if twice:
            said = f"argument {twice[0][:80]!r:.82} is given twice"
            raise _Unreadable(said, name, argument=twice[0], problem="duplicate")
        return dict(pairs)

    return name, bound, None


def _bad(number: str, name: str, problem: _Unreadable) -> BadCall:
    return BadCall(number, name, str(problem), problem.problem or "", problem.argument or "")


def _checked(raw: _Raw, tools: Mapping[str, Schema], number: str, taken: Container[str]) -> ToolCall | BadCall:
    """The call, if the tool is there and takes such arguments. An id of its own is kept if nobody else can have it."""
    name, bind, given = raw
    if given and given not in taken and _ID.fullmatch(given) and not _OURS.fullmatch(given):
        number = given
    if name not in tools:
        name = name[:80].encode("utf-8", "replace").decode()  # half of a surrogate pair may stand there
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
            said = f"there is no argument {key[:80]!r}; there are: {_listed(properties)}"
            return BadCall(number, name, said, "unknown argument", key)
        if not _fits(value, properties[key]):
            return BadCall(number, name, f"argument {key!r} is no {_kind(properties[key])}", "type", key)
    return ToolCall(number, name, arguments)


def _arguments(schema: Schema) -> tuple[Mapping[str, Any], Sequence[str]]:
    """The arguments of a tool with the schema of each, and those that are required; a tool whose schema names none has none."""
    parameters = _object(schema["function"].get("parameters"))
    required = parameters.get("required")
    names = required if isinstance(required, list | tuple) else ()
    return _object(parameters.get("properties")), [name for name in names if isinstance(name, str)]


def _object(value: Any) -> Mapping[str, Any]:
    """Part of a schema; whoever wrote the schema may have put something else there, which says nothing."""
    return value if isinstance(value, Mapping) else {}


def _plain(value: Any, depth: int = 0) -> Any:
    """What JSON can hold, tuples as lists; :class:`_Unreadable` for what it cannot, and for what is deeper than brackets may be: a text holds arguments unseen."""
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
    """Is it what this JSON Schema asks for? Type, choices, items of a list; what else a schema may say is not looked at. ``True`` takes anything, ``False`` nothing,
    and what stands more than :data:`DEEPEST` levels down is not looked at either."""
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
    """The types that a schema allows; none if it does not say."""
    kinds = schema.get("type")
    return [kind for kind in (kinds if isinstance(kinds, list | tuple) else [kinds]) if isinstance(kind, str)]


def _kind(schema: Any) -> str:
    schema = _object(schema)
    if isinstance(schema.get("enum"), list | tuple):
        return f"choice among {_listed(schema['enum'])}"
    return " or ".join(_kinds(schema)) or "value of the expected kind"


def _listed(names: Iterable[Any]) -> str:
    """Some names of a schema in one line, as whoever wrote it may have put many there, and long ones."""
    every = [" ".join(str(name).split())[:80] for name in names]
    more = f" and {len(every) - NAMED} more" if len(every) > NAMED else ""
    return f"{', '.join(every[:NAMED])}{more}" if every else "none"


def _line(problem: BaseException) -> str:
    """The first line of an error, short."""
    text = problem.msg if isinstance(problem, SyntaxError | json.JSONDecodeError) else str(problem)
    return (text.splitlines() or [""])[0][:120] or type(problem).__name__
