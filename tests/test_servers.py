"""Servers of tools: what is asked, what comes back, and what a server may do wrong."""

import asyncio
import importlib.util
import json
import os
import sys

import patience
import pytest

from minirlhf.chapters.ch17_tools import register
from minirlhf.core.errors import UserError
from minirlhf.data.calls import BadCall, read_calls
from minirlhf.feedback.servers import ToolServer

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


def test_a_server_by_hand():
    with ToolServer([sys.executable, "-c", PLAIN]) as server:
        box = server.toolbox()
        assert [schema["function"]["name"] for schema in box.schemas] == ["double", "fail"]
        reply = read_calls('<tool_call>double(a=4, name="n")</tool_call><tool_call>fail(a=1)</tool_call><tool_call>double(a="x")</tool_call>', box.schemas)  # fmt: skip
        assert isinstance(reply.calls[2], BadCall), "the server's own schema decides"
        said = [box.answer(call) for call in reply.calls]
        assert [answer.content for answer in said[:2]] == ["n8\n(image)", "error: it broke"]
        assert [answer.failed for answer in said] == [False, True, True]
        with pytest.raises(UserError, match="no such thing"):
            server.resources()
    assert server._process.returncode is not None, "it is gone"


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("pass", "has ended"),
        ("print('hello', flush=True); input()", "no message of JSON-RPC"),
        ("print('[]', flush=True); input()", "no message of JSON-RPC"),
        ("print('[{}, 5]', flush=True); input()", "said '5', which is no message of JSON-RPC"),
        ("print('[' * 100000, flush=True); input()", "no message of JSON-RPC"),
        ("import sys; sys.stdout.buffer.write(b'\\xff\\n'); sys.stdout.flush(); input()", "no message of JSON-RPC"),
        ('print(\'{"id": 1}\', flush=True); input()', "'result' was expected"),
        ('print(\'{"id": 1, "result": 5}\', flush=True); input()', "'result' was expected"),
        ('print(\'{"id": 1, "error": "no"}\', flush=True); input()', "an error without a message"),
        ('print(\'{"id": 1, "result": {"protocolVersion": "1999-01-01"}}\', flush=True); input()', "speaks the protocol of '1999-01-01'"),
        ("import sys\nwhile True: sys.stdout.write('x' * 100000)", "no message of JSON-RPC"),
        ("import time; time.sleep(60)  # sleep", "no answer to initialize in 1 seconds"),
        ("import time\nwhile True: print('{}', flush=True); time.sleep(0.1)  # sleep", "no answer to initialize in 1 seconds"),
    ],
)  # fmt: skip
def test_bad_servers_are_refused_in_one_line(program, problem):
    with pytest.raises(UserError, match=problem) as refused:
        ToolServer([sys.executable, "-c", program], patience=1 if "sleep" in program else 30)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("edition", ["2025-03-26", "2025-11-25"])
def test_editions_and_several_messages_in_a_line(edition):
    """The first of the two has messages in lists."""
    several = (
        "[{'jsonrpc': '2.0', 'method': 'notifications/message'}, {'jsonrpc': '2.0', 'id': got['id'], 'result': result}]"
    )
    program = PLAIN.replace('p["protocolVersion"], "cap', f'"{edition}", "cap').replace("say(id=got[\"id\"], result=result)", f"print(json.dumps({several}), flush=True)")  # fmt: skip
    assert program.count(several) == 1 and f'"{edition}"' in program
    with ToolServer([sys.executable, "-c", program]) as server:
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
    ("ask", "answer", "problem"),
    [
        (lambda server: server.tools(), {}, "'tools' was expected"),
        (lambda server: server.tools(), {"tools": [{"name": "a"}]}, "'inputSchema' was expected"),
        (lambda server: server.tools(), {"tools": [3]}, "'name' was expected"),
        (lambda server: server.tools(), {"tools": [TOOL, TOOL]}, "two of its tools have the name 'a'"),
        (lambda server: server.tools(), {"tools": [], "nextCursor": "more"}, "more than 1000 pages"),
        (lambda server: server.call("a"), {"content": "b"}, "'content' was expected"),
        (lambda server: server.call("a"), {"content": [{"text": 3}]}, "'text' was expected"),
        (lambda server: server.resources(), {"resources": [{}]}, "'uri' was expected"),
        (lambda server: server.read("a"), {"contents": None}, "'contents' was expected"),
        (lambda server: server.prompts(), {"prompts": {}}, "'prompts' was expected"),
        (lambda server: server.prompt("a"), {"messages": [{"role": "user"}]}, "'content' was expected"),
        (lambda server: server.prompt("a", name="b"), {"messages": "c"}, "'messages' was expected"),
        (
            lambda server: server.prompt("a"),
            {"messages": [{"role": "system", "content": {"type": "text", "text": "b"}}]},
            "its prompt speaks as 'system'",
        ),
    ],
)
def test_answers_that_are_none_are_refused_in_one_line(ask, answer, problem):
    with ToolServer([sys.executable, "-c", SAYS, json.dumps([{}, answer])]) as server:
        with pytest.raises(UserError, match=problem) as refused:
            ask(server)
        assert "\n" not in str(refused.value)


def test_the_text_of_a_resource_is_told():
    """A tool may give back a resource itself, in place of a text."""
    parts = [
        {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}},
        {"type": "resource", "resource": {"uri": "file:///b", "blob": "AA=="}},
        {"type": "resource", "resource": 5},
        {"type": "text", "text": "beside"},
    ]
    with ToolServer([sys.executable, "-c", SAYS, json.dumps([{}, {"content": parts}])]) as server:
        assert server.call("a") == "inside\n(resource)\n(resource)\nbeside"


def test_a_closed_server_says_so():
    server = ToolServer([sys.executable, "-c", SAYS, "[{}]"])
    server.close()
    with pytest.raises(UserError, match="has ended"):
        server.tools()


def test_a_server_that_reads_nothing_is_not_waited_for_for_ever():
    """A pipe holds some 64 thousand characters: a call of a million would block whoever writes it."""
    deaf = "import json, sys, time\ngot = json.loads(sys.stdin.readline())\nprint(json.dumps({'id': got['id'], 'result': {}}), flush=True)\ntime.sleep(600)"
    server = ToolServer([sys.executable, "-c", deaf], patience=30)
    server._patience = 1
    with pytest.raises(UserError, match="no answer to tools/call in 1 seconds"):
        server.call("say", text="x" * 1_000_000)
    server.close()
    assert server._process.returncode is not None, "it is gone"


def test_a_server_that_never_stops_talking_is_not_waited_for_for_ever():
    """Long notices, so that there is always one more to read."""
    talks = "import json\ngot = json.loads(input())\nprint(json.dumps({'id': got['id'], 'result': {}}), flush=True)\nnotice = json.dumps({'method': 'notice', 'params': {'text': 'x' * 900_000}})\nwhile True: print(notice, flush=True)"
    server = ToolServer([sys.executable, "-c", talks], patience=30)
    server._patience = 1
    with pytest.raises(UserError, match="no answer to tools/list in 1 seconds"):
        server.tools()
    server.close()


def test_a_server_that_has_ended_says_so_each_time():
    two = "import json\ngot = json.loads(input())\nprint(json.dumps({'id': got['id'], 'result': {}}), flush=True)\ninput(); input()"
    with ToolServer([sys.executable, "-c", two]) as server:
        for _ in range(2):
            with pytest.raises(UserError, match="has ended"):
                server.tools()


def test_no_such_program():
    with pytest.raises(UserError, match="cannot be started"):
        ToolServer(["no-such-program-anywhere"])


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


@pytest.mark.skipif(
    importlib.util.find_spec("mcp") is None,
    reason="the protocol's own package is not installed: pip install 'minirlhf[mcp]'",
)
def test_a_server_by_the_official_package():
    with ToolServer([sys.executable, "-c", OFFICIAL], patience=120) as server:
        box = server.toolbox()
        assert {schema["function"]["name"]: schema["function"]["description"] for schema in box.schemas} == {"add": "Add two numbers.", "fail": "Fail."}  # fmt: skip
        reply = read_calls('<tool_call>[{"name": "add", "arguments": {"a": 2, "b": 3}}, {"name": "add", "arguments": {"a": 2}}]</tool_call><tool_call>fail(why="rain")</tool_call>', box.schemas)  # fmt: skip
        said = [box.answer(call) for call in reply.calls]
        assert [answer.content for answer in said[:2]] == ["5", "3"]
        assert said[2].failed
        assert list(server.resources()) == ["desk://rules"] and server.read("desk://rules") == "no running"
        assert server.prompts() == {"ask": "Ask about something."}
        assert server.prompt("ask", topic="ice") == [{"role": "user", "content": "what is ice?"}]


# -- the course's own server ------------------------------------------------------------------------------------------

REGISTER = [sys.executable, "-m", "minirlhf.chapters.ch17_tools.register"]


def test_the_courses_own_server():
    with ToolServer(REGISTER) as server:
        box = server.toolbox()
        assert [schema["function"]["name"] for schema in box.schemas] == ["lookup"]
        reply = read_calls('<tool_call>lookup(place="gold")</tool_call><tool_call>lookup(place="attic")</tool_call><tool_call>lookup(place=3)</tool_call>', box.schemas)  # fmt: skip
        assert isinstance(reply.calls[2], BadCall)
        said = [box.answer(call) for call in reply.calls[:2]]
        assert [answer.content for answer in said] == ["3", "error: nothing is known of 'attic'"]
        assert list(server.resources()) == [register.PLACES]
        assert server.read(register.PLACES).split() == list(register.TODAY)
        assert server.prompts() == {"find": "Ask for a place."}
        assert server.prompt("find", place="red") == [{"role": "user", "content": "find red"}]
        for ask, problem in (
            (lambda: server.call("drop"), "no tool 'drop'"),
            (lambda: server.call("lookup"), "'place' is missing"),
            (lambda: server.read("register://cellar"), "no resource 'register://cellar'"),
            (lambda: server.prompt("lose"), "no prompt 'lose'"),
            (lambda: server.prompt("find"), "'place' is missing"),
        ):
            with pytest.raises(UserError, match=problem):
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
def test_the_courses_own_server_refuses_by_the_protocols_numbers(line, code):
    said = register.answered(line)
    assert said["error"]["code"] == code and said["id"] == (None if code in (-32700, -32600) else 1)


def test_notices_are_not_answered():
    assert register.answered('{"jsonrpc": "2.0", "method": "notifications/initialized"}') is None


def test_a_byte_that_is_no_text_does_not_end_the_courses_own_server():
    asked, raw = '\udcff\n{"id": "a", "method": "ping"}\n', {"encoding": "utf-8", "errors": "surrogateescape"}
    said = patience.finished([sys.executable, register.__file__], usually=0.5, input=asked, **raw).stdout.splitlines()
    assert [json.loads(line).get("result") for line in said] == [None, {}]


@pytest.mark.skipif(
    importlib.util.find_spec("mcp") is None,
    reason="the protocol's own package is not installed: pip install 'minirlhf[mcp]'",
)
def test_the_official_client_understands_the_courses_own_server():
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

    begun, listed, found, lost, text, offered, asked = asyncio.run(asyncio.wait_for(talk(), 120))
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
