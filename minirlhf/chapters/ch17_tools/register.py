"""A server of tools on standard input and output, as the Model Context Protocol has it and without its package: a register that knows today's values.

``python -m minirlhf.chapters.ch17_tools.register``; notebook 17 talks to it by :class:`~minirlhf.feedback.servers.ToolServer`. JSON-RPC 2.0, one message a line: one
tool, one resource, one prompt. The file imports nothing of the library, so that started by its path it is there at once; by its name as a module Python
imports the package around it first, which takes a second.

Source: the protocol's specification, edition of 18 June 2025.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

EDITION = "2025-06-18"
TODAY = {"red": "7", "blue": "9", "green": "1", "gold": "3", "pink": "2"}
PLACES = "register://places"
#: JSON-RPC's numbers, and the protocol's own for a resource that is not there.
NOT_JSON, NO_REQUEST, NO_METHOD, BAD_PARAMS, NO_RESOURCE = -32700, -32600, -32601, -32602, -32002


class Refused(Exception):
    """A request that gets an error: its number and what is said."""


def initialize(params: dict[str, Any]) -> dict[str, Any]:
    """Edition, what is offered, and the name."""
    offered: dict[str, dict[str, Any]] = {"tools": {}, "resources": {}, "prompts": {}}
    return {"protocolVersion": EDITION, "capabilities": offered, "serverInfo": {"name": "register", "version": "1"}}


def tools(params: dict[str, Any]) -> dict[str, Any]:
    """The one tool, with the JSON Schema of its argument."""
    place = {"type": "string", "description": "its name."}
    schema = {"type": "object", "properties": {"place": place}, "required": ["place"]}
    return {"tools": [{"name": "lookup", "description": "Look today's value of a place up.", "inputSchema": schema}]}


def call(params: dict[str, Any]) -> dict[str, Any]:
    """What the tool says; a place that it does not know is an answer, too, for the model to read."""
    if params.get("name") != "lookup":
        raise Refused(BAD_PARAMS, f"there is no tool {str(params.get('name'))[:40]!r}")
    place = _text(params.get("arguments"), "place").strip()
    known = place in TODAY
    said = TODAY[place] if known else f"nothing is known of {place[:40]!r}"
    return {"content": [{"type": "text", "text": said}], "isError": not known}


def resources(params: dict[str, Any]) -> dict[str, Any]:
    """The one resource."""
    return {"resources": [{"uri": PLACES, "name": "places", "mimeType": "text/plain"}]}


def read(params: dict[str, Any]) -> dict[str, Any]:
    """The resource's text."""
    if params.get("uri") != PLACES:
        raise Refused(NO_RESOURCE, f"there is no resource {str(params.get('uri'))[:40]!r}")
    return {"contents": [{"uri": PLACES, "mimeType": "text/plain", "text": " ".join(TODAY)}]}


def prompts(params: dict[str, Any]) -> dict[str, Any]:
    """The one prompt."""
    place = {"name": "place", "description": "its name", "required": True}
    return {"prompts": [{"name": "find", "description": "Ask for a place.", "arguments": [place]}]}


def prompt(params: dict[str, Any]) -> dict[str, Any]:
    """The prompt, filled in."""
    if params.get("name") != "find":
        raise Refused(BAD_PARAMS, f"there is no prompt {str(params.get('name'))[:40]!r}")
    asked = {"type": "text", "text": f"find {_text(params.get('arguments'), 'place')}"}
    return {"messages": [{"role": "user", "content": asked}]}


METHODS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "initialize": initialize, "ping": lambda params: {}, "tools/list": tools, "tools/call": call, "resources/list": resources,
    "resources/read": read, "prompts/list": prompts, "prompts/get": prompt,
}  # fmt: skip


def _text(arguments: Any, name: str) -> str:
    found = arguments.get(name) if isinstance(arguments, dict) else None
    if not isinstance(found, str):
        raise Refused(BAD_PARAMS, f"the argument {name!r} is missing or no text")
    return found


def answered(line: str | bytes) -> dict[str, Any] | None:
    """The message that answers a line, whatever stands in it; None for a notice, which is not answered. A request's id is text or a whole number, never null."""
    number: Any = None
    try:
        try:
            asked = json.loads(line)
        except (ValueError, RecursionError):
            raise Refused(NOT_JSON, "this is no JSON") from None
        if not isinstance(asked, dict) or not isinstance(asked.get("method"), str):
            raise Refused(NO_REQUEST, "this is no request")
        if "id" not in asked:
            return None
        if type(asked["id"]) not in (str, int):
            raise Refused(NO_REQUEST, "an id is text or a whole number")
        number, params = asked["id"], asked.get("params", {})
        if asked["method"] not in METHODS:
            raise Refused(NO_METHOD, f"there is no method {asked['method'][:40]!r}")
        if not isinstance(params, dict):
            raise Refused(BAD_PARAMS, "params are no object")
        return {"jsonrpc": "2.0", "id": number, "result": METHODS[asked["method"]](params)}
    except Refused as problem:
        code, said = problem.args
        return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": said}}


def main() -> None:
    """Answer until the input ends."""
    for line in sys.stdin.buffer:  # bytes: one that is no UTF-8 is no JSON either, and ends nothing
        answer = answered(line)
        if answer is not None:
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
