"""What crosses between grader and submission: plain data survives unchanged, everything else is refused."""

import contextlib
import math
import socket
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minirlhf.sandbox import wire
from minirlhf.sandbox.wire import WireError, decode, encode

scalars = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(max_size=8)
plain = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=4) | st.integers(-9, 9), inner, max_size=3)
    ),
    max_leaves=10,
)
json_values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["tensor", "tuple", "dict", "set", "bytes", "x"]), inner, max_size=2)
    ),
    max_leaves=12,
)


keys = st.text(max_size=4) | st.integers(-9, 9) | st.floats(allow_nan=False) | st.binary(max_size=3)
wide = st.recursive(
    scalars | st.binary(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.sets(keys | st.tuples(keys), max_size=3)
        | st.dictionaries(keys, inner, max_size=3)
    ),
    max_leaves=10,
)


@pytest.mark.parametrize("wide_data", [False, True], ids=["plain", "wide"])
@given(st.data())
def test_wire_data_comes_back_unchanged(wide_data, data):
    """``wide`` is what programs may answer."""
    value = data.draw(wide if wide_data else plain)
    back = decode(encode(value, wide=wide_data), wide=wide_data)
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize("shape", [(1,), (1, 1), (3,), (2, 1)])
def test_wire_expanded_tensor_comes_back_unchanged(shape):
    """PyTorch calls one entry with the stride 0 contiguous, but cannot view its bytes."""
    expanded = torch.tensor(2.5, dtype=torch.float64).expand(shape)
    assert torch.equal(decode(encode(expanded)), expanded)


@pytest.mark.parametrize("data", [{"set": [1]}, {"bytes": "eA=="}, {"dict": [[1.5, 2]]}, {"dict": [[None, 2]]}])
def test_wire_decode_refuses_wide_data_by_default(data):
    decode(data, wide=True)
    with pytest.raises(WireError):
        decode(data)


@pytest.mark.parametrize(
    "data", [{"set": [[1]]}, {"dict": [[{"dict": []}, 1]]}, {"set": 1}, {"bytes": 7}, {"bytes": "!"}]
)
def test_wire_decode_refuses_malformed_sets_and_bytes(data):
    with pytest.raises(WireError):
        decode(data, wide=True)


@pytest.mark.parametrize("dtype", wire.dtypes().values(), ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3)])
def test_wire_tensors_come_back_unchanged(dtype, shape):
    tensor = (10 * torch.rand(shape)).to(dtype)
    back = decode(encode(tensor))
    assert back.dtype == dtype
    assert back.shape == tensor.shape
    assert torch.equal(back, tensor)


def test_wire_carries_special_floats_views_and_arrays():
    tensor = torch.tensor([[math.nan, math.inf], [-math.inf, -0.0]]).t().requires_grad_()
    back = decode(encode(tensor))
    assert torch.equal(back.isnan(), tensor.isnan())
    assert torch.equal(back.nan_to_num(), tensor.nan_to_num())
    assert not back.requires_grad
    assert torch.equal(decode(encode(np.arange(3.0))), torch.arange(3.0, dtype=torch.float64))
    assert decode(encode(np.float64(0.5))) == 0.5


@pytest.mark.parametrize(
    "value",
    [
        object(),
        len,
        {1.5: 2},
        {"a": {3}},
        1j,
        torch.zeros(1, dtype=torch.complex64),
        torch.eye(2).to_sparse(),
        [[lambda: 0]],
        b"x",
    ],
)
def test_wire_encode_refuses_anything_else(value):
    with pytest.raises(WireError):
        encode(value)


def test_wire_refuses_deep_nests_on_both_sides():
    nest: list = []
    for _ in range(100):
        nest = [nest]
    for direction in (encode, decode):
        with pytest.raises(WireError, match=str(wire.MAX_DEPTH)):
            direction(nest)


@given(json_values)
@settings(max_examples=500)
def test_wire_decode_of_any_json_is_data_or_error(value):
    for wide in (False, True):
        with contextlib.suppress(WireError):
            decode(value, wide=wide)


@pytest.mark.parametrize(
    "body",
    [
        ["float64", [2], "AAAA"],
        ["float64", [-1], ""],
        ["float64", [True], "AAAAAAAAAAA="],
        ["object", [1], "AAAAAAAAAAA="],
        ["float64", [1], "!!!"],
        ["float64", [1] * 9, "AAAAAAAAAAA="],
        ["float64", "1", "AAAAAAAAAAA="],
        [["float64"], [1], "AAAAAAAAAAA="],
        ["float64", [1]],
        None,
    ],
)
def test_wire_decode_refuses_malformed_tensors(body):
    with pytest.raises(WireError):
        decode({"tensor": body})


def test_wire_boolean_tensor_holds_zero_and_one():
    assert decode({"tensor": ["bool", [3], "AAEC"]}).tolist() == [False, True, True]  # bytes 0, 1, 2


def talk(raw, deadline=60.0):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(raw)
        theirs.shutdown(socket.SHUT_WR)
        return wire.receive(ours, time.monotonic() + deadline)


def test_wire_messages_are_framed():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wire.send(theirs, {"a": [1, "é"]})
        wire.send(theirs, {"b": None})
        assert wire.receive(ours) == {"a": [1, "é"]}
        assert wire.receive(ours) == {"b": None}
        with pytest.raises(TimeoutError):
            wire.receive(ours, time.monotonic() + 0.05)
        with pytest.raises(WireError, match=str(wire.MAX_FRAME)):
            wire.send(theirs, {"a": "x" * wire.MAX_FRAME})


@pytest.mark.parametrize("raw", [b"\xff\xff\xff\xff", b"\0\0\0\x02{]", b"\0\0\0\x02[]", b"\0\0\0\x04\xff\xff\xff\xff"])
def test_wire_receive_refuses_what_is_no_message(raw):
    with pytest.raises(WireError):
        talk(raw)


@pytest.mark.parametrize("raw", [b"", b"\0\0", b"\0\0\0\x09{}"])
def test_wire_receive_of_cut_message_is_end(raw):
    assert talk(raw) is None
