"""A tool server on standard input and output: a register that knows today's values.

It speaks the Model Context Protocol without its package, as JSON-RPC 2.0 with one message per line. It offers one tool,
one resource and one prompt.

Start it with ``python -m minirlhf_course.chapters.ch17_tools.register``; notebook 17 talks to it through
:class:`~minirlhf.feedback.servers.ToolServer`. The file imports nothing from the library, so it starts at once if it is
started by its path. Started by its name as a module, Python imports the package around it first, which takes a second.

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
#: JSON-RPC's error codes, and the protocol's own code for a missing resource.
NOT_JSON, NO_REQUEST, NO_METHOD, BAD_PARAMS, NO_RESOURCE = -32700, -32600, -32601, -32602, -32002


class Refused(Exception):
    """A request is answered with an error; the arguments are its code and its message."""


def initialize(params: dict[str, Any]) -> dict[str, Any]:
    """Return the edition, the capabilities and the server's name."""
    offers: dict[str, dict[str, Any]] = {"tools": {}, "resources": {}, "prompts": {}}
    return {"protocolVersion": EDITION, "capabilities": offers, "serverInfo": {"name": "register", "version": "1"}}


def tools(params: dict[str, Any]) -> dict[str, Any]:
    """Return the one tool, with the JSON Schema of its argument."""
    place = {"type": "string", "description": "its name."}
    schema = {"type": "object", "properties": {"place": place}, "required": ["place"]}
    return {"tools": [{"name": "lookup", "description": "Look today's value of a place up.", "inputSchema": schema}]}


def call(params: dict[str, Any]) -> dict[str, Any]:
    """Return the tool's result; an unknown place gives a result with ``isError``, for the model to read."""
    if params.get("name") != "lookup":
        raise Refused(BAD_PARAMS, f"there is no tool {str(params.get('name'))[:40]!r}")
    place = _text(params.get("arguments"), "place").strip()
    known = place in TODAY
    text = TODAY[place] if known else f"nothing is known of {place[:40]!r}"
    return {"content": [{"type": "text", "text": text}], "isError": not known}


def resources(params: dict[str, Any]) -> dict[str, Any]:
    """Return the one resource."""
    return {"resources": [{"uri": PLACES, "name": "places", "mimeType": "text/plain"}]}


def read(params: dict[str, Any]) -> dict[str, Any]:
    """Return the resource's text."""
    if params.get("uri") != PLACES:
        raise Refused(NO_RESOURCE, f"there is no resource {str(params.get('uri'))[:40]!r}")
    return {"contents": [{"uri": PLACES, "mimeType": "text/plain", "text": " ".join(TODAY)}]}


def prompts(params: dict[str, Any]) -> dict[str, Any]:
    """Return the one prompt."""
    place = {"name": "place", "description": "its name", "required": True}
    return {"prompts": [{"name": "find", "description": "Ask for a place.", "arguments": [place]}]}


def prompt(params: dict[str, Any]) -> dict[str, Any]:
    """Return the prompt with its argument filled in."""
    if params.get("name") != "find":
        raise Refused(BAD_PARAMS, f"there is no prompt {str(params.get('name'))[:40]!r}")
    content = {"type": "text", "text": f"find {_text(params.get('arguments'), 'place')}"}
    return {"messages": [{"role": "user", "content": content}]}


METHODS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "initialize": initialize, "ping": lambda params: {}, "tools/list": tools, "tools/call": call, "resources/list": resources,
    "resources/read": read, "prompts/list": prompts, "prompts/get": prompt,
}  # fmt: skip


def _text(arguments: Any, name: str) -> str:
    value = arguments.get(name) if isinstance(arguments, dict) else None
    if not isinstance(value, str):
        raise Refused(BAD_PARAMS, f"the argument {name!r} is missing or no text")
    return value


def answered(line: str | bytes) -> dict[str, Any] | None:
    """Return the message that answers a line, whatever the line contains; None for a notification, which has no answer.

    A request's id is a string or an integer, never null.
    """
    request_id: Any = None
    try:
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            raise Refused(NOT_JSON, "this is no JSON") from None
        if not isinstance(request, dict) or not isinstance(request.get("method"), str):
            raise Refused(NO_REQUEST, "this is no request")
        if "id" not in request:
            return None
        if type(request["id"]) not in (str, int):
            raise Refused(NO_REQUEST, "an id is text or a whole number")
        request_id, params = request["id"], request.get("params", {})
        if request["method"] not in METHODS:
            raise Refused(NO_METHOD, f"there is no method {request['method'][:40]!r}")
        if not isinstance(params, dict):
            raise Refused(BAD_PARAMS, "params are no object")
        return {"jsonrpc": "2.0", "id": request_id, "result": METHODS[request["method"]](params)}
    except Refused as error:
        code, message = error.args
        return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}}


def main() -> None:
    """Answer until the input ends."""
    for line in sys.stdin.buffer:  # bytes: a line that is not UTF-8 is not JSON either, and must not stop the server
        answer = answered(line)
        if answer is not None:
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
