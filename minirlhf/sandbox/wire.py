"""The data format between a box and the outside: plain data in length-prefixed JSON, never an object.

Numbers, strings, bytes, lists, tuples, sets, dictionaries and tensors are rebuilt on arrival. So an overloaded
operator, a subclass or a pickle from the other side has no effect. Both sides use this module. It imports torch only
for tensors.
"""

from __future__ import annotations

import base64
import functools
import json
import math
import socket
import struct
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

MAX_FRAME = 8 << 20  # bytes of one message
MAX_DEPTH = 20
_HEADER = struct.Struct("!I")


class WireError(ValueError):
    """A value that may not be sent, or a malformed message."""


@functools.cache
def dtypes() -> dict[str, torch.dtype]:
    """The tensor dtypes that may be sent, by name."""
    import torch

    floats = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
    integers = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
    return {str(t).removeprefix("torch."): t for t in (*floats, *integers)}


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def encode(value: Any, depth: int = 0, *, wide: bool = False) -> Any:
    """``value`` as JSON data. NumPy arrays become tensors.

    Args:
        wide: allow also sets, bytes, and dictionaries with any key. Programs return such values; exercises do not.

    Raises:
        WireError: the value is, or contains, something other than plain data.
    """
    if depth > MAX_DEPTH:
        raise WireError(f"a value nested more than {MAX_DEPTH} deep")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if type(value).__module__ == "numpy" and hasattr(value, "__array__"):
        import torch

        value = torch.as_tensor(value)
    if _is_tensor(value):
        return {"tensor": _encode_tensor(value)}

    def inner(part: Any) -> Any:
        return encode(part, depth + 1, wide=wide)

    if isinstance(value, list):
        return [inner(v) for v in value]
    if isinstance(value, tuple):
        return {"tuple": [inner(v) for v in value]}
    if isinstance(value, dict) and (wide or all(isinstance(k, str | int) for k in value)):
        return {"dict": [[inner(k), inner(v)] for k, v in value.items()]}
    if wide and isinstance(value, set | frozenset):
        return {"set": [inner(v) for v in value]}
    if wide and isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode("ascii")}
    raise WireError(f"a {type(value).__name__}, where a tensor, a number, a string or a list of these is expected")


def _encode_tensor(tensor: torch.Tensor) -> list[Any]:
    import torch

    name = str(tensor.dtype).removeprefix("torch.")
    if name not in dtypes() or tensor.layout != torch.strided:
        raise WireError(f"a tensor of dtype {name} and layout {tensor.layout}")
    # A copy, because the only entry of an expanded tensor may have the stride 0 and still count as contiguous.
    flat = tensor.detach().cpu().clone(memory_format=torch.contiguous_format).reshape(-1)
    raw = flat.view(torch.uint8).numpy().tobytes()
    return [name, list(tensor.shape), base64.b64encode(raw).decode("ascii")]


def decode(data: Any, depth: int = 0, *, wide: bool = False) -> Any:
    """The value that :func:`encode` wrote, rebuilt from scratch.

    Raises:
        WireError: ``data`` is not what :func:`encode` writes.
    """
    if depth > MAX_DEPTH:
        raise WireError(f"a value nested more than {MAX_DEPTH} deep")
    if data is None or isinstance(data, bool | int | float | str):
        return data

    def inner(part: Any) -> Any:
        return decode(part, depth + 1, wide=wide)

    if isinstance(data, list):
        return [inner(v) for v in data]
    if not isinstance(data, dict) or len(data) != 1:
        raise WireError("malformed data")
    ((kind, body),) = data.items()
    if kind == "tensor":
        return _decode_tensor(body)
    if kind == "tuple" and isinstance(body, list):
        return tuple(inner(v) for v in body)
    if kind == "dict" and isinstance(body, list):
        if not all(isinstance(p, list) and len(p) == 2 and (wide or isinstance(p[0], str | int)) for p in body):
            raise WireError("a malformed dictionary")
        return {_key(inner(k)): inner(v) for k, v in body}
    if wide and kind == "set" and isinstance(body, list):
        return {_key(inner(v)) for v in body}
    if wide and kind == "bytes" and isinstance(body, str):
        return _raw(body, "bytes")
    raise WireError(f"malformed data of kind {str(kind)[:20]!r}")


def _key(value: Any) -> Any:
    """Return a value that can be an element of a set or a key of a dictionary."""
    if isinstance(value, set):
        return frozenset(value)
    try:
        hash(value)
    except TypeError as error:
        raise WireError(f"a {type(value).__name__} as a set element or key") from error
    return value


def _raw(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise WireError(f"{what} with malformed base64") from error


def _decode_tensor(body: Any) -> torch.Tensor:
    import torch

    if not (isinstance(body, list) and len(body) == 3 and isinstance(body[2], str)):
        raise WireError("a malformed tensor")
    name, shape, text = body
    if not isinstance(name, str) or name not in dtypes():
        raise WireError("a tensor of unknown dtype")
    if not isinstance(shape, list) or len(shape) > 8 or not all(type(n) is int and 0 <= n < 2**31 for n in shape):
        raise WireError("a tensor of malformed shape")
    raw = _raw(text, "a tensor")
    dtype = dtypes()[name]
    if len(raw) != math.prod(shape) * dtype.itemsize:
        raise WireError("a tensor whose bytes do not fit its shape")
    if not raw:
        return torch.empty(shape, dtype=dtype)
    flat = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
    return (flat != 0 if dtype is torch.bool else flat.view(dtype)).reshape(shape)


def send(sock: socket.socket, message: dict[str, Any], deadline: float | None = None) -> None:
    """Send one message; ``deadline`` is a time of :func:`time.monotonic`.

    Raises:
        WireError: the message is larger than ``MAX_FRAME``.
        TimeoutError, OSError: the other side does not read, or has ended.
    """
    raw = json.dumps(message).encode("ascii")
    if len(raw) > MAX_FRAME:
        raise WireError(f"a message of {len(raw)} bytes; at most {MAX_FRAME} may cross")
    _arm(sock, deadline)
    sock.sendall(_HEADER.pack(len(raw)) + raw)


def receive(sock: socket.socket, deadline: float | None = None) -> dict[str, Any] | None:
    """Return the next message, or None if the other side has closed.

    Raises:
        WireError: the received data is not a message.
        TimeoutError: no complete message arrived before the deadline.
    """
    header = _read(sock, _HEADER.size, deadline)
    if header is None:
        return None
    (length,) = _HEADER.unpack(header)
    if length > MAX_FRAME:
        raise WireError(f"a message of {length} bytes; at most {MAX_FRAME} may cross")
    raw = _read(sock, length, deadline)
    if raw is None:
        return None
    try:
        message = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise WireError("a message that is not JSON") from error
    if not isinstance(message, dict):
        raise WireError("a message that is not a JSON object")
    return message


def _arm(sock: socket.socket, deadline: float | None) -> None:
    if deadline is None:
        sock.settimeout(None)
        return
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError
    sock.settimeout(remaining)


def _read(sock: socket.socket, size: int, deadline: float | None) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        _arm(sock, deadline)
        try:
            part = sock.recv(min(size - len(parts), 1 << 20))
        except ConnectionError:
            return None
        if not part:
            return None
        parts += part
    return bytes(parts)
