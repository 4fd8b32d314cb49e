"""Tool servers: programs that offer tools, resources and prompts over standard input and output, by the Model Context
Protocol.

This is the client's half, as far as a conversation with tools needs it: ``initialize``, the three lists, and the three
ways to use their entries. Messages are JSON-RPC 2.0, one per line, or several in a list, as the version of March 2025
allows. Requests of a server to its client are declined, except ``ping``.
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from minirlhf.core.errors import UserError
from minirlhf.data.calls import Schema
from minirlhf.feedback.tools import Toolbox

#: The newest supported version of the protocol. The client proposes it, and a server answers with the version that it
#: uses.
PROTOCOL = "2025-11-25"
#: Supported versions: their messages do not differ as far as they are used here.
SPOKEN = ("2024-11-05", "2025-03-26", "2025-06-18", PROTOCOL)
#: Maximum number of characters of a message, and of messages that wait to be read.
LONGEST, WAITING = 10_000_000, 20
#: Maximum number of pages of a list. It stops a server that always announces another page.
PAGES = 1_000

_Kind = TypeVar("_Kind")


class ToolServer:
    """A server as a child process; as a context manager it ends the process on exit.

    A model calls its ``tools``, an application shows its ``resources``, and a user picks its ``prompts``. The author of
    the server wrote all of their texts, the descriptions included.

    Args:
        command: the program and its arguments.
        patience: seconds to wait for an answer, whatever other messages arrive meanwhile.

    A separate thread writes to the server, so that the time limit also holds for a server that reads nothing.

    Raises:
        UserError: the program cannot be started, ends, does not answer in time, sends a message that is not JSON-RPC,
            or violates the protocol.
    """

    def __init__(self, command: Sequence[str], *, patience: float = 30.0) -> None:
        self._command, self._patience, self._last = list(command), patience, 0
        try:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, encoding="utf-8", errors="replace"
            )  # fmt: skip
        except OSError as error:
            raise UserError(
                f"{self._command[0]}: the server cannot be started ({error.strerror})",
                argument=self._command[0],
                problem="not started",
            ) from None
        self._lines: queue.Queue[str] = queue.Queue(WAITING)
        self._heard: list[Any] = []  # the rest of a line with several messages
        self._outbox: queue.Queue[str | None] = queue.Queue()
        for target in (self._listen, self._write):
            threading.Thread(target=target, daemon=True).start()
        try:
            about = {"name": "minirlhf", "version": "1"}
            version = self._ask("initialize", protocolVersion=PROTOCOL, capabilities={}, clientInfo=about).get("protocolVersion", PROTOCOL)  # fmt: skip
            if version not in SPOKEN:
                raise self._bad(
                    f"the server uses protocol version {str(version)[:20]!r}; expected one of {', '.join(SPOKEN)}",
                    argument="protocolVersion",
                    value=version,
                    expected=SPOKEN,
                )
            self._send({"method": "notifications/initialized"})
        except UserError:
            self.close()
            raise

    def __enter__(self) -> ToolServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the input of the server, and kill it if it does not exit within 2 seconds."""
        self._outbox.put(None)
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def toolbox(self) -> Toolbox:
        """Return its tools as a toolbox, which an episode takes."""
        return Toolbox.elsewhere(self.tools(), self.call)

    def tools(self) -> list[Schema]:
        """Return the schemas of its tools, as chat templates take them."""
        schemas: dict[str, Schema] = {}
        for tool in self._all("tools"):
            name = self._part(tool, "name", str)
            if name in schemas:
                raise self._bad(
                    f"two of its tools have the name {name[:60]!r}", argument="name", value=name, problem="duplicate"
                )
            about = {"name": name, "description": tool.get("description") or "", "parameters": self._part(tool, "inputSchema", dict)}  # fmt: skip
            schemas[name] = {"type": "function", "function": about}
        return list(schemas.values())

    def call(self, tool: str, /, **arguments: Any) -> str:
        """Return the text of a tool's result; ``RuntimeError`` with this text if the tool reports a failure."""
        result = self._ask("tools/call", name=tool, arguments=arguments)
        text = self._text(self._part(result, "content", list))
        if result.get("isError"):
            raise RuntimeError(text or "the tool failed")
        return text

    def resources(self) -> dict[str, str]:
        """Return address and name of each resource."""
        return {self._part(resource, "uri", str): resource.get("name", "") for resource in self._all("resources")}

    def read(self, address: str) -> str:
        """Return the text of a resource."""
        return self._text(self._part(self._ask("resources/read", uri=address), "contents", list))

    def prompts(self) -> dict[str, str]:
        """Return name and description of each prompt."""
        return {self._part(prompt, "name", str): prompt.get("description", "") for prompt in self._all("prompts")}

    def prompt(self, name: str, /, **arguments: str) -> list[dict[str, str]]:
        """Return the messages of a prompt. Only the roles ``user`` and ``assistant`` are allowed, not ``system``."""
        parts = self._part(self._ask("prompts/get", name=name, arguments=arguments), "messages", list)
        messages = [
            {"role": self._part(part, "role", str), "content": self._text([self._part(part, "content", dict)])}
            for part in parts
        ]
        for message in messages:
            if message["role"] not in ("user", "assistant"):
                raise self._bad(
                    f"its prompt has a message with the role {message['role'][:40]!r}; expected 'user' or 'assistant'",
                    argument="role",
                    value=message["role"],
                    expected=("user", "assistant"),
                )
        return messages

    # -- messages ------------------------------------------------------------------------------------------------------

    def _bad(self, message: str, **facts: Any) -> UserError:
        return UserError(f"{self._command[0]}: {message}", **facts)

    def _part(self, message: Any, name: str, kind: type[_Kind]) -> _Kind:
        """Return a field of a message that the protocol requires."""
        value = message.get(name) if isinstance(message, dict) else None
        if not isinstance(value, kind):
            raise self._bad(
                f"says {json.dumps(message)[:60]!r}, where a message with {name!r} was expected",
                argument=name,
                value=value,
                expected=kind,
            )
        return value

    def _text(self, parts: Sequence[Any]) -> str:
        """Join the texts of a message's parts and resources. Of a part of another kind, the kind's name is taken."""
        resources = [_object(_object(part).get("resource")) for part in parts]
        texts = [
            resource
            if "text" in resource
            else part
            if "text" in _object(part)
            else {"text": f"({_object(part).get('type', 'data')})"}
            for part, resource in zip(parts, resources, strict=True)
        ]
        return "\n".join(self._part(part, "text", str) for part in texts)

    def _all(self, kind: str) -> list[Any]:
        """Return all pages of a list, at most :data:`PAGES`."""
        items: list[Any] = []
        page: dict[str, Any] = {}
        for _ in range(PAGES):
            answer = self._ask(f"{kind}/list", **page)
            items += self._part(answer, kind, list)
            if not answer.get("nextCursor"):
                return items
            page = {"cursor": answer["nextCursor"]}
        raise self._bad(
            f"its list of {kind} has more than {PAGES} pages", argument=kind, expected=PAGES, problem="too long"
        )

    def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._last += 1
        self._send({"id": self._last, "method": method, "params": params})
        deadline = time.monotonic() + self._patience
        while True:
            message = self._hear(method, deadline)
            if "method" in message and "id" in message:  # a request of the server
                is_ping = message["method"] == "ping"
                self._send(
                    {"id": message["id"]}
                    | ({"result": {}} if is_ping else {"error": {"code": -32601, "message": "not offered"}})
                )
            elif message.get("id") == self._last:
                if "error" in message:
                    error = _object(message["error"])
                    raise self._bad(
                        f"{method}: {error.get('message', 'an error without a message')}",
                        argument=method,
                        value=error.get("code"),
                        problem="error",
                    )
                return self._part(message, "result", dict)

    def _send(self, message: Mapping[str, Any]) -> None:
        self._outbox.put(json.dumps({"jsonrpc": "2.0", **message}) + "\n")

    def _write(self) -> None:
        """Write queued messages until the queue is closed or the server stops reading."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError), self._process.stdin as stdin:
            while (line := self._outbox.get()) is not None:
                stdin.write(line)
                stdin.flush()

    def _hear(self, method: str, deadline: float) -> dict[str, Any]:
        timeout = self._bad(
            f"no answer to {method} in {self._patience:g} seconds",
            argument=method,
            expected=self._patience,
            problem="late",
        )
        remaining = deadline - time.monotonic()
        if remaining <= 0:  # even if another message is waiting
            raise timeout
        if self._heard:
            return self._message(self._heard.pop(0))
        try:
            line = self._lines.get(timeout=remaining)
        except queue.Empty:
            raise timeout from None
        if not line:
            self._lines.put("")  # so that the next reader also sees the end
            raise self._bad("the server has ended", argument=method, problem="ended")
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = line.strip()
        is_batch = isinstance(message, list) and message
        self._heard = message[1:] if is_batch else []
        return self._message(message[0] if is_batch else message)

    def _message(self, message: Any) -> dict[str, Any]:
        if not isinstance(message, dict):
            raise self._bad(
                f"said {str(message)[:60]!r}, which is no message of JSON-RPC", value=message, problem="not JSON-RPC"
            )
        return message

    def _listen(self) -> None:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline(LONGEST):
            self._lines.put(line)
        self._lines.put("")


def _object(value: Any) -> dict[str, Any]:
    """Return a JSON object, or an empty one in place of any other value."""
    return value if isinstance(value, dict) else {}
