"""Servers of tools: what is asked, what comes back, and what a server may do wrong."""

import asyncio
import importlib.util
import json
import os
import sys

import patience
import pytest
from facts import raises

from minirlhf.core.errors import UserError
from minirlhf.data.calls import BadCall, read_calls
from minirlhf.feedback.servers import PAGES, ToolServer
from minirlhf_course.chapters.ch17_tools import register

#: By hand, line by line: what the protocol says, and a request, a notice and a second page in between.
PLAIN = """
import json, sys
def say(**message): print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
TOOLS = [{"name": n, "description": d, "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}, "name": {"type": "string"}}, "required": ["a"]}} for n, d in (("double", "twice a"), ("fail", "fails"))]
for line in sys.stdin:
    got = json.loads(line)
    assert got["jsonrpc"] == "2.0"
    if "id" not in got or "method" not in got:
        if got.get("id") == "q": assert got["error"]["code"] == -32601
        if got.get("id") == "p": assert got["result"] == {}
        continue
    method, p = got["method"], got.get("params", {})
    if method == "initialize":
        assert p["protocolVersion"] and p["clientInfo"]["name"] and p["capabilities"] == {}
        result = {"protocolVersion": p["protocolVersion"], "capabilities": {}, "serverInfo": {"name": "plain", "version": "0"}}
    elif method == "tools/list":
        say(id="p", method="ping"); say(id="q", method="roots/list"); say(method="notifications/message", params={})
        result = {"tools": TOOLS[1:]} if p.get("cursor") else {"tools": TOOLS[:1], "nextCursor": "2"}
    elif method == "tools/call" and p["name"] == "double":
        result = {"content": [{"type": "text", "text": p["arguments"].get("name", "") + str(2 * p["arguments"]["a"])}, {"type": "image", "data": ""}]}
    elif method == "tools/call":
        result = {"content": [{"type": "text", "text": "it broke"}], "isError": True}
    else:
        say(id=got["id"], error={"code": -32601, "message": "no such thing"}); continue
    say(id=got["id"], result=result)
"""


def serve(program, *arguments):
    """A server that runs this Python program, and is waited for however busy the machine is."""
    return ToolServer([sys.executable, "-c", program, *arguments], patience=patience.CEILING)


def test_tool_server_talks_to_plain_server():
    with serve(PLAIN) as server:
        box = server.toolbox()
        assert [schema["function"]["name"] for schema in box.schemas] == ["double", "fail"]
        reply = read_calls('<tool_call>double(a=4, name="n")</tool_call><tool_call>fail(a=1)</tool_call><tool_call>double(a="x")</tool_call>', box.schemas)  # fmt: skip
        assert isinstance(reply.calls[2], BadCall), "the server's own schema decides"
        said = [box.execute(call) for call in reply.calls]
        assert [answer.content for answer in said[:2]] == ["n8\n(image)", "error: it broke"]
        assert [answer.failed for answer in said] == [False, True, True]
        with raises(UserError, argument="resources/list", value=-32601, problem="error"):
            server.resources()
    assert server._process.returncode is not None, "it is gone"


SAY = "print({!r}, flush=True); input()".format


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "facts"),
    [
        ("pass", {"argument": "initialize", "problem": "ended"}),
        (SAY("hello"), {"value": "hello", "problem": "not JSON-RPC"}),
        (SAY("[]"), {"value": [], "problem": "not JSON-RPC"}),
        (SAY("[{}, 5]"), {"value": 5, "problem": "not JSON-RPC"}),
        (SAY("[" * 100_000), {"problem": "not JSON-RPC"}),
        ("import sys; sys.stdout.buffer.write(b'\\xff\\n'); sys.stdout.flush(); input()", {"problem": "not JSON-RPC"}),
        (SAY('{"id": 1}'), {"argument": "result", "expected": dict}),
        (SAY('{"id": 1, "result": 5}'), {"argument": "result", "value": 5}),
        (SAY('{"id": 1, "error": "no"}'), {"argument": "initialize", "value": None, "problem": "error"}),
        (SAY('{"id": 1, "result": {"protocolVersion": "1999-01-01"}}'), {"argument": "protocolVersion", "value": "1999-01-01"}),
        ("import sys\nwhile True: sys.stdout.write('x' * 100000)", {"problem": "not JSON-RPC"}),
        ("import time; time.sleep(600)  # sleep", {"argument": "initialize", "problem": "late"}),
        ("import time\nwhile True: print('{}', flush=True); time.sleep(0.1)  # sleep", {"problem": "late"}),
    ],
)  # fmt: skip
def test_tool_server_refuses_bad_server_in_one_line(program, facts):
    with raises(UserError, **facts) as refused:
        ToolServer([sys.executable, "-c", program], patience=1 if "sleep" in program else patience.CEILING)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("edition", ["2025-03-26", "2025-11-25"])
def test_tool_server_reads_editions_and_message_lists(edition):
    """The first of the two has messages in lists."""
    several = (
        "[{'jsonrpc': '2.0', 'method': 'notifications/message'}, {'jsonrpc': '2.0', 'id': got['id'], 'result': result}]"
    )
    program = PLAIN.replace('p["protocolVersion"], "cap', f'"{edition}", "cap').replace("say(id=got[\"id\"], result=result)", f"print(json.dumps({several}), flush=True)")  # fmt: skip
    assert program.count(several) == 1 and f'"{edition}"' in program
    with serve(program) as server:
        assert len(server.tools()) == 2 and server.call("double", a=3) == "6\n(image)"


#: Answers each request with what is next in a list, whatever was asked.
SAYS = """
import json, sys
answers = iter(json.loads(sys.argv[1]))
for line in sys.stdin:
    got = json.loads(line)
    if "id" in got:
        print(json.dumps({"id": got["id"], "result": next(answers, {"tools": [], "nextCursor": "more"})}), flush=True)
"""
TOOL = {"name": "a", "inputSchema": {}}


@pytest.mark.parametrize(
    ("ask", "answer", "facts"),
    [
        (lambda server: server.tools(), {}, {"argument": "tools", "expected": list}),
        (lambda server: server.tools(), {"tools": [{"name": "a"}]}, {"argument": "inputSchema", "expected": dict}),
        (lambda server: server.tools(), {"tools": [3]}, {"argument": "name", "expected": str}),
        (lambda server: server.tools(), {"tools": [TOOL, TOOL]}, {"value": "a", "problem": "duplicate"}),
        (
            lambda server: server.tools(),
            {"tools": [], "nextCursor": "more"},
            {"expected": PAGES, "problem": "too long"},
        ),
        (lambda server: server.call("a"), {"content": "b"}, {"argument": "content", "value": "b"}),
        (lambda server: server.call("a"), {"content": [{"text": 3}]}, {"argument": "text", "value": 3}),
        (lambda server: server.resources(), {"resources": [{}]}, {"argument": "uri"}),
        (lambda server: server.read("a"), {"contents": None}, {"argument": "contents"}),
        (lambda server: server.prompts(), {"prompts": {}}, {"argument": "prompts", "value": {}}),
        (lambda server: server.prompt("a"), {"messages": [{"role": "user"}]}, {"argument": "content"}),
        (lambda server: server.prompt("a", name="b"), {"messages": "c"}, {"argument": "messages", "value": "c"}),
        (
            lambda server: server.prompt("a"),
            {"messages": [{"role": "system", "content": {"type": "text", "text": "b"}}]},
            {"argument": "role", "value": "system"},
        ),
    ],
)
def test_tool_server_refuses_bad_answer_in_one_line(ask, answer, facts):
    with serve(SAYS, json.dumps([{}, answer])) as server:
        with raises(UserError, **facts) as refused:
            ask(server)
        assert "\n" not in str(refused.value)


def test_tool_server_call_reads_text_of_resources():
    """A tool may give back a resource itself, in place of a text."""
    parts = [
        {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}},
        {"type": "resource", "resource": {"uri": "file:///b", "blob": "AA=="}},
        {"type": "resource", "resource": 5},
        {"type": "text", "text": "beside"},
    ]
    with serve(SAYS, json.dumps([{}, {"content": parts}])) as server:
        assert server.call("a") == "inside\n(resource)\n(resource)\nbeside"


def test_tool_server_refuses_when_closed_or_not_started():
    server = serve(SAYS, "[{}]")
    server.close()
    for _ in range(2):
        with raises(UserError, argument="tools/list", problem="ended"):
            server.tools()
    with raises(UserError, argument="no-such-program-anywhere", problem="not started"):
        ToolServer(["no-such-program-anywhere"])


BEGUN = "import json, sys, time\ngot = json.loads(input())\nprint(json.dumps({'id': got['id'], 'result': {}}), flush=True)\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("then", "seconds", "ask", "method"),
    [
        # A pipe holds some 64 thousand characters: a call of a million would block whoever writes it.
        ("time.sleep(600)", 1, lambda server: server.call("say", text="x" * 1_000_000), "tools/call"),
        # There is always one more to read, also when the time is over.
        ("while True: print(json.dumps({'method': 'notice'}), flush=True)", -1, ToolServer.tools, "tools/list"),
    ],
    ids=["deaf", "talkative"],
)  # fmt: skip
def test_tool_server_patience_ends(then, seconds, ask, method):
    server = serve(BEGUN + then)
    server._patience = seconds
    with raises(UserError, argument=method, expected=seconds, problem="late"):
        ask(server)
    server.close()
    assert server._process.returncode is not None, "it is gone"


#: By the protocol's own package; its first edition calls the class FastMCP.
OFFICIAL = '''
try:
    from mcp.server import MCPServer
except ImportError:
    from mcp.server.fastmcp import FastMCP as MCPServer

server = MCPServer("desk")


@server.tool()
def add(a: int, b: int = 1) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool()
def fail(why: str) -> str:
    """Fail."""
    raise ValueError(why)


@server.resource("desk://rules")
def rules() -> str:
    """What holds here."""
    return "no running"


@server.prompt()
def ask(topic: str) -> str:
    """Ask about something."""
    return f"what is {topic}?"


server.run()
'''


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("mcp") is None,
    reason="the protocol's own package is not installed: pip install 'minirlhf[mcp]'",
)
def test_tool_server_talks_to_official_package():
    with serve(OFFICIAL) as server:
        box = server.toolbox()
        assert {schema["function"]["name"]: schema["function"]["description"] for schema in box.schemas} == {"add": "Add two numbers.", "fail": "Fail."}  # fmt: skip
        reply = read_calls('<tool_call>[{"name": "add", "arguments": {"a": 2, "b": 3}}, {"name": "add", "arguments": {"a": 2}}]</tool_call><tool_call>fail(why="rain")</tool_call>', box.schemas)  # fmt: skip
        said = [box.execute(call) for call in reply.calls]
        assert [answer.content for answer in said[:2]] == ["5", "3"]
        assert said[2].failed
        assert list(server.resources()) == ["desk://rules"] and server.read("desk://rules") == "no running"
        assert server.prompts() == {"ask": "Ask about something."}
        assert server.prompt("ask", topic="ice") == [{"role": "user", "content": "what is ice?"}]


# -- the course's own server ------------------------------------------------------------------------------------------

REGISTER = [sys.executable, "-m", "minirlhf_course.chapters.ch17_tools.register"]


@pytest.mark.slow
def test_register_server_answers_tool_server():
    with ToolServer(REGISTER, patience=patience.CEILING) as server:
        box = server.toolbox()
        assert [schema["function"]["name"] for schema in box.schemas] == ["lookup"]
        reply = read_calls('<tool_call>lookup(place="gold")</tool_call><tool_call>lookup(place="attic")</tool_call><tool_call>lookup(place=3)</tool_call>', box.schemas)  # fmt: skip
        assert isinstance(reply.calls[2], BadCall)
        said = [box.execute(call) for call in reply.calls[:2]]
        assert said[0].content == "3" and said[1].failed and "attic" in said[1].content
        assert list(server.resources()) == [register.PLACES]
        assert server.read(register.PLACES).split() == list(register.TODAY)
        assert server.prompts() == {"find": "Ask for a place."}
        assert server.prompt("find", place="red") == [{"role": "user", "content": "find red"}]
        for ask, code in (
            (lambda: server.call("drop"), register.BAD_PARAMS),
            (lambda: server.call("lookup"), register.BAD_PARAMS),
            (lambda: server.read("register://cellar"), register.NO_RESOURCE),
            (lambda: server.prompt("lose"), register.BAD_PARAMS),
            (lambda: server.prompt("find"), register.BAD_PARAMS),
        ):
            with raises(UserError, value=code, problem="error"):
                ask()


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("hello", -32700),
        ("[" * 100_000, -32700),
        (b'{"id": 1, "method": "\xff"}', -32700),
        ("[]", -32600),
        ('{"id": null, "method": "ping"}', -32600),
        ('{"id": true, "method": "ping"}', -32600),
        ('{"id": 1}', -32600),
        ('{"id": 1, "method": 5}', -32600),
        ('{"id": 1, "method": "roots/list"}', -32601),
        ('{"id": 1, "method": "ping", "params": []}', -32602),
        ('{"id": 1, "method": "tools/call", "params": {"name": "lookup", "arguments": 5}}', -32602),
    ],
)
def test_register_server_refuses_with_protocol_codes(line, code):
    said = register.answered(line)
    assert said["error"]["code"] == code and said["id"] == (None if code in (-32700, -32600) else 1)


def test_register_server_ignores_notices():
    assert register.answered('{"jsonrpc": "2.0", "method": "notifications/initialized"}') is None


def test_register_server_survives_undecodable_byte():
    asked, raw = '\udcff\n{"id": "a", "method": "ping"}\n', {"encoding": "utf-8", "errors": "surrogateescape"}
    said = patience.finished([sys.executable, register.__file__], usually=0.5, input=asked, **raw).stdout.splitlines()
    assert [json.loads(line).get("result") for line in said] == [None, {}]


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("mcp") is None,
    reason="the protocol's own package is not installed: pip install 'minirlhf[mcp]'",
)
def test_register_server_answers_official_client():
    """What our client alone would let pass is held by that of the protocol's own package, which validates each message."""
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    async def talk():
        command, *arguments = REGISTER
        async with (
            stdio_client(StdioServerParameters(command=command, args=arguments, env=dict(os.environ))) as (heard, said),
            ClientSession(heard, said) as session,
        ):
            begun = await session.initialize()
            listed = await session.list_tools()
            found = await session.call_tool("lookup", {"place": "gold"})
            lost = await session.call_tool("lookup", {"place": "attic"})
            places = await session.list_resources()
            text = await session.read_resource(places.resources[0].uri)
            offered = await session.list_prompts()
            asked = await session.get_prompt("find", {"place": "red"})
            return begun, listed, found, lost, text, offered, asked

    begun, listed, found, lost, text, offered, asked = asyncio.run(asyncio.wait_for(talk(), patience.CEILING))
    name = lambda model, *names: next(
        getattr(model, each) for each in names if hasattr(model, each)
    )  # editions of the package
    assert name(begun, "protocol_version", "protocolVersion") == register.EDITION
    assert [tool.name for tool in listed.tools] == ["lookup"]
    assert found.content[0].text == "3" and not name(found, "is_error", "isError")
    assert "attic" in lost.content[0].text and name(lost, "is_error", "isError")
    assert text.contents[0].text.split() == list(register.TODAY)
    assert [each.name for each in offered.prompts] == ["find"]
    assert asked.messages[0].content.text == "find red"
