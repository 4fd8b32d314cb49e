"""Headless Chromium for tests: open a page, hear all that goes wrong, ask what it shows. Needs no driver and no port.

Chromium speaks its DevTools protocol over two pipes when it is started with ``--remote-debugging-pipe``.
"""

import base64
import json
import os
import select
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from patience import CEILING, until

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions"),
)

# What is in the window stands when MathJax says so, and the rest of a page of the book when it is asked for (mathematics.js);
# a page without mathematics has no MathJax.
STANDS = "window.MathJax && MathJax.startup ? MathJax.startup.promise.then(() => true) : true"
SETTLED = f"Promise.resolve({STANDS}).then(() => {{ window.minirlhfTypeset?.(); return true; }})"


@dataclass
class Page:
    """What a page asked for and complained about while it was loaded."""

    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


class Browser:
    """One Chromium with one tab; use as a context manager. It may be slow; what hangs for ``CEILING`` seconds fails."""

    def __init__(self, chromium: str, profile: Path) -> None:
        ours_out, self._in = os.pipe()
        self._out, ours_in = os.pipe()
        # Chromium reads commands from descriptor 3 and writes to descriptor 4.
        shell = f'exec "$0" "$@" 3<&{ours_out} 4>&{ours_in}'
        flags = [*FLAGS, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", shell, chromium, *flags],
            pass_fds=(ours_out, ours_in),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(ours_out)
        os.close(ours_in)
        self._buffer, self._count, self._session = b"", 0, ""
        self.page, self._url = Page(), "about:blank"
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=CEILING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        os.close(self._in)
        os.close(self._out)

    # -- the protocol --------------------------------------------------------------------------------------------

    def _receive(self, deadline: float, method: str) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._out], [], [], left)[0]:
                raise TimeoutError(f"Chromium did not answer {method} within {CEILING:.0f} s")
            chunk = os.read(self._out, 1 << 20)
            if not chunk:
                raise ConnectionError(f"Chromium has gone; it was asked for {method}")
            self._buffer += chunk
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def _hear(self, message: dict[str, Any]) -> None:
        method, about = message.get("method", ""), message.get("params", {})
        of = about.get("response") or about.get("entry") or {}
        if of.get("url", "").endswith("/favicon.ico"):  # Chromium asks for it when it likes; no page of ours has one
            return
        if method == "Network.requestWillBeSent":
            self.page.requests.append(about["request"]["url"])
        elif method == "Network.responseReceived" and about["response"]["status"] >= 400:
            self.page.complaints.append(f"status {about['response']['status']}: {about['response']['url']}")
        elif method == "Network.loadingFailed" and not about.get("canceled"):
            self.page.complaints.append(f"not loaded: {about['errorText']}")
        elif method == "Runtime.exceptionThrown":
            details = about["exceptionDetails"]
            text = details.get("exception", {}).get("description") or details["text"]
            self.page.complaints.append(f"exception: {text}")
        elif method == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            said = " ".join(str(a.get("value", a.get("description"))) for a in about["args"])
            self.page.complaints.append(f"console {about['type']}: {said}")
        elif method == "Log.entryAdded" and about["entry"]["level"] == "error":
            self.page.complaints.append(f"log: {about['entry']['text']} {about['entry'].get('url', '')}".rstrip())

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command and its result; events that arrive meanwhile are heard."""
        self._count += 1
        command: dict[str, Any] = {"id": self._count, "method": method, "params": params}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._in, json.dumps(command).encode() + b"\0")
        deadline = time.monotonic() + CEILING
        while True:
            message = self._receive(deadline, method)
            if message.get("id") == self._count:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                return message["result"]
            self._hear(message)

    # -- what tests do -------------------------------------------------------------------------------------------

    def open(self, url: str) -> Page:
        """Load a page and wait until its mathematics is typeset."""
        self.page, self._url = Page(), url
        self.call("Page.navigate", url=url)
        self.until("document.readyState == 'complete' && location.href != 'about:blank'")
        self.ask(SETTLED)
        return self.page

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression on the page, awaited if it is a promise."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression[:200]}: {answer['exceptionDetails']['exception']['description']}")
        return answer["result"].get("value")

    def until(self, expression: str) -> Any:
        """The value of an expression as soon as it is true."""
        return until(lambda: self.ask(expression), f"{expression} on {self._url}")

    def look(self, path: Path, width: int, height: int, dark: bool = False) -> None:
        """A screenshot, on a phone if it is narrow."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.resize(width, height)
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def resize(self, width: int, height: int) -> None:
        """Change the window; a narrow one is a phone."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)
