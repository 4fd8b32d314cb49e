"""Tool calls as text: what is written comes back, and what is no call is told from what is."""

import json

import pytest
from facts import raises
from hypothesis import given
from hypothesis import strategies as st
from transformers.utils import get_json_schema

from minirlhf.data import calls
from minirlhf.data.calls import BadCall, ToolCall, read_calls, write_call


def find(key: str, count: int = 1, exact: bool | None = None, tags: list[str] | None = None) -> str:
    """Find something.

    Args:
        key: what to find.
        count: how many.
        exact: whether the key must match.
        tags: marks that it must have.
    """
    return key


def say(word: str) -> None:
    """Say a word.

    Args:
        word: what to say. (choices: ["yes", "no"])
    """


SCHEMAS = [get_json_schema(find), get_json_schema(say)]
LONG = "a" * 3_000
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)


def only(text):
    """The one call of a reply that says nothing else."""
    reply = read_calls(text, SCHEMAS)
    assert reply.text == "" and len(reply.calls) == 1, reply
    return reply.calls[0]


@pytest.mark.parametrize("form", ["json", "python"])
@given(
    key=TEXTS, count=st.integers(-(10**20), 10**20), exact=st.none() | st.booleans(), tags=st.lists(TEXTS, max_size=3)
)
def test_read_calls_reads_what_write_call_writes(form, key, count, exact, tags):
    arguments = {"key": key, "count": count, "exact": exact, "tags": tags}
    body = write_call("find", arguments, form)
    if calls.CLOSE not in json.dumps(arguments) and calls.OPEN not in json.dumps(arguments):
        assert only(body) == ToolCall("call_0", "find", arguments)
        assert only(body.removesuffix(calls.CLOSE)) == ToolCall("call_0", "find", arguments), (
            "the sampler stopped there"
        )


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"name": "find", "arguments": {"key": "a"}}', {"key": "a"}),
        ('{"name": "find", "parameters": {"key": "a"}}', {"key": "a"}),
        ('[{"name": "find", "arguments": "{\\"key\\": \\"a\\"}"}]', {"key": "a"}),
        ('find(key="a")', {"key": "a"}),
        ('[find("a", 2)]', {"key": "a", "count": 2}),
        ('[\t{"name": "find", "arguments": {"key": "a"}}]', {"key": "a"}),
        ('[\r\n{"name": "find", "arguments": {"key": "a"}}]', {"key": "a"}),
        ("find('a', tags=('b', 'c'))", {"key": "a", "tags": ["b", "c"]}),
        ('find( " a " )', {"key": " a "}),
    ],
)
def test_read_calls_reads_forms_of_models(text, arguments):
    """With the marks, and as the whole reply without."""
    for framed in (text, f"{calls.OPEN}\n{text}\n{calls.CLOSE}", f"<think>hm</think>{text}"):
        assert only(framed) == ToolCall("call_0", "find", arguments)


def test_read_calls_ids_are_given_or_counted():
    spoken = '{"id": "x7", "function": {"name": "say", "arguments": {"word": "no"}}}'
    reply = read_calls(f"{calls.OPEN}[{spoken}, {spoken[12:]}]", SCHEMAS, first_id=3)
    assert isinstance(reply.calls[0], BadCall), "cut in the middle, it is no JSON"
    two = f"{calls.OPEN}{spoken}{calls.CLOSE} and {calls.OPEN}say('yes'); find('a'){calls.CLOSE}"
    reply = read_calls(two, SCHEMAS, first_id=3)
    assert [call.id for call in reply.calls] == ["x7", "call_4", "call_5"] and reply.text == "and"


@pytest.mark.parametrize(
    "text",
    [
        "the answer is 4",
        "find",
        "I could find(it)",
        "print('a')",
        "[1, 2]",
        '{"a": 1}',
        "",
        "<think>say('no')",
        "42",
        "(see find)",
    ],
)
def test_read_calls_prose_is_no_call(text):
    reply = read_calls(text, SCHEMAS)
    assert reply.calls == () and (reply.text == text or reply.reasoning)


def test_read_calls_thought_is_no_call():
    reply = read_calls("<think> say('no') <tool_call>say('no')</tool_call> </think>\nfine", SCHEMAS)
    assert (reply.reasoning, reply.text, reply.calls) == ("say('no') <tool_call>say('no')</tool_call>", "fine", ())


@pytest.mark.parametrize(
    ("body", "kind", "argument"),
    [
        ("shout(word='yes')", "unknown tool", ""),
        ("find()", "missing", "key"),
        ("find(key=1)", "type", "key"),
        ("find(key='a', count=True)", "type", "count"),
        ("find(key='a', tags=['b', 1])", "type", "tags"),
        ("find(key='a', colour='b')", "unknown argument", "colour"),
        ("find('a', key='b')", "duplicate", "key"),
        ("find('a', 1, True, [], 5)", "too many", ""),
        ("find(key=open('a'))", "values", ""),
        ("find(**{'key': 'a'})", "unpacked", ""),
        ("os.system('a')", "form", ""),
        ("find(key={1: 2})", "values", ""),
        ("find('\\ud800')", "surrogate", ""),
        ("say(word='maybe')", "type", "word"),
        ("find(key={'a': 1, 'a': 2})", "duplicate", "a"),
        ("find(key={0x" + "f" * 3_600 + ": 1, 0x" + "f" * 3_600 + ": 2})", "values", ""),
        ("find(key={'" + LONG + "': 1, '" + LONG + "': 2})", "duplicate", LONG),
        ('{"name": "find", "arguments": {"' + LONG + '": 1, "' + LONG + '": 2}}', "duplicate", LONG),
        ("find(" + LONG + "=1, " + LONG + "=2)", "duplicate", LONG),
        (
            '{"name": "find", "arguments": {"' + "\\u0001" * 300 + '": 1, "' + "\\u0001" * 300 + '": 2}}',
            "duplicate",
            "\u0001" * 300,
        ),
        ("find(key='a', count=0x" + "f" * 5_000 + ")", "digits", ""),
        ('{"name": "say", "arguments": [1]}', "form", ""),
        ('{"name": 3}', "form", ""),
        ('{"name": "find", "arguments": {"key": NaN}}', "json", ""),
        ('{"name": "find", "arguments": {"key": "a", "count": 1e999}}', "values", ""),
        ("", "empty", ""),
        ("(" * 25, "depth", ""),
        ("x" * 9000, "length", ""),
    ],
    ids=lambda given: given[:40],
)
def test_read_calls_bad_call_says_why(body, kind, argument):
    call = only(f"{calls.OPEN}{body}{calls.CLOSE}")
    assert isinstance(call, BadCall) and (call.kind, call.argument) == (kind, argument) and call.problem
    assert "\n" not in call.problem and len(call.problem) < 200


class Counted(str):
    """A text that counts the characters that are looked at or copied, of itself and of its parts; it can do what the reader needs and nothing else."""

    looked = 0

    def _part(self, text):
        Counted.looked += len(text)
        return Counted(text)

    def find(self, mark, start=0):
        at = str.find(self, mark, start)
        Counted.looked += (len(self) if at < 0 else at + len(mark)) - start
        return at

    def __getitem__(self, place):
        return self._part(str.__getitem__(self, place))

    def __iter__(self):
        Counted.looked += len(self)
        return str.__iter__(self)

    def partition(self, mark):
        Counted.looked += len(self)
        return tuple(map(Counted, str.partition(self, mark)))

    def strip(self, *which):
        return self._part(str.strip(self, *which))

    def lstrip(self, *which):
        return self._part(str.lstrip(self, *which))


for _name in ("index", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "replace", "split", "splitlines", "count", "endswith", "translate", "removeprefix", "removesuffix"):  # fmt: skip
    setattr(Counted, _name, property(lambda self, name=_name: pytest.fail(f"{name} is not counted yet")))


def test_read_calls_time_grows_linearly_with_text():
    """Marks, quotes and brackets by the ten thousand: eight times the text, at most nine times as many. What stands in one call is limited."""
    for piece in (
        calls.OPEN,
        f"{calls.OPEN}find(",
        f"{calls.OPEN}{{",
        '"',
        f"{calls.OPEN}say('no'){calls.CLOSE}",
        f"{calls.CLOSE} {calls.OPEN}",
        "<think>",
        "</think>",
        "<think></think>",
        f"{calls.OPEN}</think>",
        f"{calls.OPEN}{calls.CLOSE}</think>",
        f"{calls.OPEN}</think>{calls.OPEN}{calls.CLOSE}",
        f"<think>{calls.CLOSE}",
        "find('a');",
    ):
        looked = []
        for count in (1_000, 8_000):
            text, Counted.looked = Counted(piece * count), 0
            read_calls(text, SCHEMAS)
            looked.append(Counted.looked)
        assert len(piece) * 8_000 <= looked[1] < 9 * looked[0], piece


CALL = "<tool_call>find(key='a')</tool_call>"


@pytest.mark.parametrize(
    "text",
    [f"I could {CALL} hm</think>no", f"Well. <think>{CALL}</think>no", f"<think>a</think> <think>{CALL}</think>no", f"<think>a</think>b {CALL} c</think>no"],
)  # fmt: skip
def test_read_calls_thought_opened_before_turn_is_no_call(text):
    """A template may open the thought before the turn begins."""
    reply = read_calls(text, SCHEMAS)
    assert reply.calls == () and reply.text == "no" and CALL in reply.reasoning
    assert len(read_calls(text + CALL, SCHEMAS).calls) == 1


@pytest.mark.parametrize("begun", ["", "<think>", "Well. <think>"])
def test_read_calls_thought_may_mention_mark_of_call(begun):
    reply = read_calls(f"{begun}I should write {calls.OPEN} and stop.\n</think>\n{CALL} so", SCHEMAS)
    assert [type(call) for call in reply.calls] == [ToolCall] and reply.text == "so"
    assert reply.reasoning.endswith(f"I should write {calls.OPEN} and stop.")


@pytest.mark.parametrize("before", ["", "Ok. ", "<think>a</think>x ", f"{CALL} "])
def test_read_calls_unclosed_thought_is_no_call(before):
    reply = read_calls(f"{before}<think> maybe {CALL}", SCHEMAS)
    assert len(reply.calls) == before.count(CALL) and reply.reasoning.endswith(f"maybe {CALL}")
    assert reply.text == before.removeprefix("<think>a</think>").removeprefix(CALL).strip()
    for whole in ("<tool_call>find(key='<think>')</tool_call>", "<tool_call>find(key='<think>')"):
        assert [call.arguments for call in read_calls(whole, SCHEMAS).calls] == [{"key": "<think>"}], "no thought"


def test_read_calls_marks_within_call_are_text():
    for form in ("json", "python"):
        for said in ("</think>", "</tool_call>"):
            written = calls.write_call("find", {"key": said}, form)
            [call] = read_calls(f"<think>so</think>{written}", SCHEMAS).calls
            assert call.arguments == {"key": said}
    assert len(read_calls("<tool_call>find(key='</think>')</tool_call>", SCHEMAS).calls) == 1
    mentioned = f"<think>a {calls.OPEN} first</think>{CALL}"
    assert [call.name for call in read_calls(mentioned, SCHEMAS).calls] == ["find"]


def test_read_calls_ids_are_distinct():
    """One that somebody else has, or could be given, is not kept; nor one that is no plain word."""
    ids = ["call_1", None, "x", "x", "<|im_end|>", "\ud800", "y" * 65, "z-1.a"]
    listed = [{"name": "find", "arguments": {"key": "a"}} | ({"id": each} if each else {}) for each in ids]
    found = [call.id for call in read_calls(calls.OPEN + json.dumps(listed), SCHEMAS).calls]
    assert found == ["call_0", "call_1", "x", "call_3", "call_4", "call_5", "call_6", "z-1.a"]


def test_write_call_name_not_of_python_is_json():
    schema = {"type": "function", "function": {"name": "get-weather", "description": "", "parameters": {"type": "object", "properties": {"from": {"type": "string"}}}}}  # fmt: skip
    written = calls.write_call("get-weather", {"from": "here"}, "python")
    [call] = read_calls(written, [schema]).calls
    assert (call.name, call.arguments) == ("get-weather", {"from": "here"})
    assert '"name": NAME' in calls.describe_tools([schema], "python")
    assert "NAME(ARGUMENT=VALUE)" in calls.describe_tools(SCHEMAS, "python")


def test_read_calls_enum_bool_is_no_integer_and_deep_schema_is_read():
    def reads(kind, value):
        schema = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": kind}}}}  # fmt: skip
        [call] = read_calls(f'{calls.OPEN}{{"name": "f", "arguments": {{"x": {value}}}}}', [schema]).calls
        return isinstance(call, ToolCall)

    deep = {"type": "string"}
    for _ in range(3_000):
        deep = {"anyOf": [deep]}
    assert reads(deep, '"a"')
    assert reads({"enum": [1, 2]}, "1") and not reads({"enum": [1, 2]}, "true") and reads({"enum": [True]}, "true")
    assert not reads({}, '1, "x": 2'), "a key twice"


def test_read_calls_problem_of_long_schema_is_short():
    def said(call, properties, count=1):
        schemas = [{"type": "function", "function": {"name": f"f{i}", "parameters": {"type": "object", "properties": properties}}} for i in range(count)]  # fmt: skip
        [bad] = read_calls(calls.OPEN + call, schemas).calls
        assert isinstance(bad, BadCall) and "\n" not in bad.problem and len(bad.problem) < 2_000
        return bad.problem

    names = said("g()", {}, 300)
    assert "f18, f19" in names and "f20" not in names and "280" in names
    names = said("f0(x=1)", {f"n\n{i}": {} for i in range(30)})
    assert "n 19" in names and "n 20" not in names and "10" in names
    assert said("f0(x=1)", {"x": {"enum": ["a\n" * 500] * 21}}).split()[-2] == "1"


@pytest.mark.parametrize("levels", [19, 21, 300, 900, 3_000])
def test_read_calls_arguments_as_text_are_checked_alike(levels):
    """OpenAI's form: its brackets stand in quotes."""

    def asked(arguments):
        return only(calls.OPEN + json.dumps({"name": "find", "arguments": arguments}))

    call = asked('{"key": ' + "[" * levels + "]" * levels + "}")
    assert isinstance(call, BadCall) and (call.kind in ("depth", "json")) == (levels > 20)
    twice = asked('{"key": "a", "key": "b"}')
    assert (twice.kind, twice.argument) == ("duplicate", "key") and "NaN" in asked('{"key": NaN}').problem
    hidden = only(f'{calls.OPEN}find(key= # "\n{"[" * 150}{"]" * 150})')  # nor does a comment hide them
    assert isinstance(hidden, BadCall) and hidden.kind == "depth"


def test_calls_opening_begins_written_call():
    for form in ("json", "python"):
        assert calls.opening("auto", form) == calls.opening("none", form) == ""
        for choice in ("any", "find"):
            written = write_call("find", {"key": "a"}, form)
            assert written.startswith(calls.opening(choice, form))
        assert calls.opening("any", form) != calls.opening("find", form)


def test_describe_tools_holds_every_schema():
    for form in ("json", "python"):
        text = calls.describe_tools(SCHEMAS, form)
        assert all(json.dumps(schema["function"]) in text for schema in SCHEMAS) and calls.OPEN in text
    with raises(ValueError, argument="schemas", value=2, expected=1):
        read_calls("", [SCHEMAS[0], SCHEMAS[0]])


def foreign(parameters):
    """A schema that somebody else wrote."""
    return {
        "type": "function",
        "function": {"name": "far", **({} if parameters is None else {"parameters": parameters})},
    }


@pytest.mark.parametrize(
    ("properties", "takes"),
    [
        ({"a": True}, True),
        ({"a": False}, False),
        ({"a": {}}, True),
        ({"a": {"type": "array", "items": True}}, True),
        ({"a": {"type": "array", "items": False}}, False),
        ({"a": {"type": ["integer", "array"]}}, True),
        ({"a": {"type": ["integer", "null"]}}, False),
        ({"a": {"anyOf": [{"type": "string"}, True]}}, True),
        ({"a": {"anyOf": [False]}}, False),
        ({"a": {"enum": [[1], 2]}}, True),
        ({"a": {"type": "of another edition"}}, True),
    ],
)
def test_read_calls_foreign_schemas(properties, takes):
    """``far(a=[1])``; in a JSON Schema ``true`` is anything and ``false`` nothing."""
    [call] = read_calls("far(a=[1])", [foreign({"type": "object", "properties": properties})]).calls
    assert isinstance(call, ToolCall) == takes and (takes or (call.kind, call.argument) == ("type", "a"))


ODD = st.sampled_from((None, True, False, 5, "a", [], ["a"], {}, {"a": None}, [{}], {"a": {"type": 5}}, {"a": {"enum": 3}}, {"a": {"anyOf": 1}}, {"a": {"items": []}}))  # fmt: skip


@given(
    ODD, ODD, st.sampled_from(("far()", "far(a=[1])", "far(a=None, b=2)", '{"name": "far", "arguments": {"a": [[]]}}'))
)
def test_read_calls_any_schema_raises_nothing(properties, required, text):
    """A server of tools may send anything as the schema of its arguments."""
    for parameters in (None, properties, {"properties": properties, "required": required}):
        [call] = read_calls(text, [foreign(parameters)]).calls
        assert call.name == "far"
    assert isinstance(read_calls("far()", [foreign(None)]).calls[0], ToolCall)
