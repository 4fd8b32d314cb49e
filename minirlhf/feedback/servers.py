"""Servers of tools: another program that offers tools, resources and prompts over its standard input and output, as the Model Context Protocol has it.

The client's half, of what a conversation with tools needs: ``initialize``, the three lists, and the three ways to use what is on them. Messages are
JSON-RPC 2.0, one in each line, or several in a list, as the edition of March 2025 allows. What a server asks of its client is declined, but for ``ping``.
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

#: The newest edition of the protocol that is spoken, which is proposed; a server answers with the one that it speaks.
PROTOCOL = "2025-11-25"
#: Those whose messages are the same as far as they are used here.
SPOKEN = ("2024-11-05", "2025-03-26", "2025-06-18", PROTOCOL)
#: Characters of one message at most, and messages that may wait to be read.
LONGEST, WAITING = 10_000_000, 20
#: Pages of a list at most: a server that always has one more is not asked for ever.
PAGES = 1_000

_Kind = TypeVar("_Kind")


class ToolServer:
    """A server as a child process; a context manager, which ends it.

    Its ``tools`` are for a model to call, its ``resources`` for an application to show, its ``prompts`` for a user to pick. All that they say,
    the descriptions included, was written by whoever wrote the server.

    Args:
        command: the program and its arguments.
        patience: seconds to wait for an answer, whatever else is said meanwhile.

    What is sent to it is written by a thread of its own, so that a server that reads nothing is waited for no longer than one that says nothing.

    Raises:
        UserError: the program cannot be started, ends, does not answer in time or says what is no JSON-RPC, or not what the protocol asks for.
    """

    def __init__(self, command: Sequence[str], *, patience: float = 30.0) -> None:
        self._command, self._patience, self._last = list(command), patience, 0
        try:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, encoding="utf-8", errors="replace"
            )  # fmt: skip
        except OSError as problem:
            raise UserError(
                f"{self._command[0]}: the server cannot be started ({problem.strerror})",
                argument=self._command[0],
                problem="not started",
            ) from None
        self._lines: queue.Queue[str] = queue.Queue(WAITING)
        self._heard: list[Any] = []  # of a line with several messages
        self._outbox: queue.Queue[str | None] = queue.Queue()
        for work in (self._listen, self._write):
            threading.Thread(target=work, daemon=True).start()
        try:
            about = {"name": "minirlhf", "version": "1"}
            version = self._ask("initialize", protocolVersion=PROTOCOL, capabilities={}, clientInfo=about).get("protocolVersion", PROTOCOL)  # fmt: skip
            if version not in SPOKEN:
                raise self._bad(
                    f"speaks the protocol of {str(version)[:20]!r}; expected one of {', '.join(SPOKEN)}",
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
        """End the server: its input is closed, and if it does not go by itself it is ended."""
        self._outbox.put(None)
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def toolbox(self) -> Toolbox:
        """Its tools, as an episode takes them."""
        return Toolbox.elsewhere(self.tools(), self.call)

    def tools(self) -> list[Schema]:
        """As chat templates take them."""
        listed: dict[str, Schema] = {}
        for tool in self._all("tools"):
            name = self._part(tool, "name", str)
            if name in listed:
                raise self._bad(
                    f"two of its tools have the name {name[:60]!r}", argument="name", value=name, problem="duplicate"
                )
            about = {"name": name, "description": tool.get("description") or "", "parameters": self._part(tool, "inputSchema", dict)}  # fmt: skip
            listed[name] = {"type": "function", "function": about}
        return list(listed.values())

    def call(self, tool: str, /, **arguments: Any) -> str:
        """The text that a tool gives back; ``RuntimeError`` with its text where it says that it failed."""
        found = self._ask("tools/call", name=tool, arguments=arguments)
        said = self._text(self._part(found, "content", list))
        if found.get("isError"):
            raise RuntimeError(said or "the tool failed")
        return said

    def resources(self) -> dict[str, str]:
        """Address and name of each."""
        return {self._part(each, "uri", str): each.get("name", "") for each in self._all("resources")}

    def read(self, address: str) -> str:
        """A resource's text."""
        return self._text(self._part(self._ask("resources/read", uri=address), "contents", list))

    def prompts(self) -> dict[str, str]:
        """Name and description of each."""
        return {self._part(each, "name", str): each.get("description", "") for each in self._all("prompts")}

    def prompt(self, name: str, /, **arguments: str) -> list[dict[str, str]]:
        """A prompt's messages, by ``user`` and ``assistant``: as anybody else, the system's included, a server may not speak."""
        found = self._part(self._ask("prompts/get", name=name, arguments=arguments), "messages", list)
        messages = [
            {"role": self._part(each, "role", str), "content": self._text([self._part(each, "content", dict)])}
            for each in found
        ]
        for message in messages:
            if message["role"] not in ("user", "assistant"):
                raise self._bad(
                    f"its prompt speaks as {message['role'][:40]!r}; expected 'user' or 'assistant'",
                    argument="role",
                    value=message["role"],
                    expected=("user", "assistant"),
                )
        return messages

    # -- messages ------------------------------------------------------------------------------------------------------

    def _bad(self, message: str, **facts: Any) -> UserError:
        return UserError(f"{self._command[0]}: {message}", **facts)

    def _part(self, message: Any, name: str, kind: type[_Kind]) -> _Kind:
        """What the protocol asks for in a message."""
        found = message.get(name) if isinstance(message, dict) else None
        if not isinstance(found, kind):
            raise self._bad(
                f"says {json.dumps(message)[:60]!r}, where a message with {name!r} was expected",
                argument=name,
                value=found,
                expected=kind,
            )
        return found

    def _text(self, parts: Sequence[Any]) -> str:
        """The texts among a message's parts, those of resources in it as well; of another kind its name."""
        inner = [_object(_object(part).get("resource")) for part in parts]
        kinds = [
            each
            if "text" in each
            else part
            if "text" in _object(part)
            else {"text": f"({_object(part).get('type', 'data')})"}
            for part, each in zip(parts, inner, strict=True)
        ]
        return "\n".join(self._part(part, "text", str) for part in kinds)

    def _all(self, kind: str) -> list[Any]:
        """A list, page after page, of which there are at most :data:`PAGES`."""
        found: list[Any] = []
        page: dict[str, Any] = {}
        for _ in range(PAGES):
            answer = self._ask(f"{kind}/list", **page)
            found += self._part(answer, kind, list)
            if not answer.get("nextCursor"):
                return found
            page = {"cursor": answer["nextCursor"]}
        raise self._bad(
            f"its list of {kind} has more than {PAGES} pages", argument=kind, expected=PAGES, problem="too long"
        )

    def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._last += 1
        self._send({"id": self._last, "method": method, "params": params})
        until = time.monotonic() + self._patience
        while True:
            said = self._hear(method, until)
            if "method" in said and "id" in said:  # it asks us
                known = said["method"] == "ping"
                self._send(
                    {"id": said["id"]}
                    | ({"result": {}} if known else {"error": {"code": -32601, "message": "not offered"}})
                )
            elif said.get("id") == self._last:
                if "error" in said:
                    told = _object(said["error"])
                    raise self._bad(
                        f"{method}: {told.get('message', 'an error without a message')}",
                        argument=method,
                        value=told.get("code"),
                        problem="error",
                    )
                return self._part(said, "result", dict)

    def _send(self, message: Mapping[str, Any]) -> None:
        self._outbox.put(json.dumps({"jsonrpc": "2.0", **message}) + "\n")

    def _write(self) -> None:
        """What is to be sent, until there is no more or nobody to read it."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError), self._process.stdin as stdin:
            while (line := self._outbox.get()) is not None:
                stdin.write(line)
                stdin.flush()

    def _hear(self, method: str, until: float) -> dict[str, Any]:
        late = self._bad(
            f"no answer to {method} in {self._patience:g} seconds",
            argument=method,
            expected=self._patience,
            problem="late",
        )
        left = until - time.monotonic()
        if left <= 0:  # also where something else is waiting to be heard
            raise late
        if self._heard:
            return self._message(self._heard.pop(0))
        try:
            line = self._lines.get(timeout=left)
        except queue.Empty:
            raise late from None
        if not line:
            self._lines.put("")  # for whoever asks next
            raise self._bad("the server has ended", argument=method, problem="ended")
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            said = line.strip()
        several = isinstance(said, list) and said
        self._heard = said[1:] if several else []
        return self._message(said[0] if several else said)

    def _message(self, said: Any) -> dict[str, Any]:
        if not isinstance(said, dict):
            raise self._bad(
                f"said {str(said)[:60]!r}, which is no message of JSON-RPC", value=said, problem="not JSON-RPC"
            )
        return said

    def _listen(self) -> None:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline(LONGEST):
            self._lines.put(line)
        self._lines.put("")


def _object(value: Any) -> dict[str, Any]:
    """An object of JSON, or an empty one in place of something else."""
    return value if isinstance(value, dict) else {}
