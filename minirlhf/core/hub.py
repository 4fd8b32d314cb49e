"""The Hugging Face hub where there is no network: fail at once, in place of a minute of retries."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

PATIENCE = 3.0  # seconds in which the hub must accept a connection


@contextmanager
def offline_if_unreachable() -> Iterator[None]:
    """Run the block in the hub client's offline mode, which reads cached files only, if the hub cannot be reached."""
    from huggingface_hub import constants

    was_offline = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = was_offline or not _is_reachable(constants.ENDPOINT)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = was_offline


def _is_reachable(endpoint: str) -> bool:
    """Return whether a server accepts connections; behind a proxy, which may answer where we cannot look, always true."""
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return True
    url = urlsplit(endpoint)
    try:
        socket.create_connection((url.hostname or "", url.port or 443), PATIENCE).close()
    except OSError:
        return False
    return True
