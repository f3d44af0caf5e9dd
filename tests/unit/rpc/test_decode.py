"""Tensors in both encodings: what is taken, and what is refused, naming the input and both figures."""

import struct
import time
from typing import Any

import pytest

from moorage.domain.model import ModelSpec
from moorage.domain.tensor import TensorSpec
from tests.unit.rpc.echo_backend import echo_spec
from tests.unit.rpc.messages import decode, raw_request, refusal, typed_request

FLAT = echo_spec("echo", TensorSpec("x", "FP32", [-1]))
MATRIX = echo_spec("echo", TensorSpec("x", "FP32", [-1, -1]))
TEXT = echo_spec("echo", TensorSpec("x", "BYTES", [-1]))


@pytest.mark.parametrize(
    ("spec", "shape", "data"),
    [
        (MATRIX, [-1, 4], bytes(16)),
        (MATRIX, [-1, -4], bytes(16)),
        (MATRIX, [-1, -1], bytes(4)),
        (MATRIX, [2**32, 2**32], b""),
        (MATRIX, [2**62, 4], b""),
        (MATRIX, [0, 2**62], b""),
        (FLAT, [2**63 - 1], bytes(4)),
        (FLAT, [-(2**63)], bytes(4)),
        (FLAT, [1] * 1000, bytes(4)),
        (FLAT, [], bytes(4)),
        (MATRIX, [1, 4], bytes(15)),
        (MATRIX, [1, 4], bytes(17)),
        (TEXT, [2**62], bytes(4)),
    ],
)
def test_hostile_shapes_are_refused_at_once_by_name(spec: ModelSpec, shape: list[int], data: bytes) -> None:
    began = time.perf_counter()
    message = refusal(spec, raw_request("echo", ("x", spec.inputs[0].datatype, shape, data)))
    assert "input 'x'" in message
    assert len(message) < 400
    assert time.perf_counter() - began < 0.1


@pytest.mark.parametrize("shape", [[0], [3]])
def test_raw_and_typed_give_the_same_bytes(shape: list[int]) -> None:
    values = [1.5, -0.0, float("inf")][: shape[0]]
    data = struct.pack(f"<{len(values)}f", *values)
    raw, _ = decode(FLAT, raw_request("echo", ("x", "FP32", shape, data)))
    typed, _ = decode(FLAT, typed_request("echo", ("x", "FP32", shape, {"fp32_contents": values})))
    assert bytes(raw.inputs[0].data) == bytes(typed.inputs[0].data) == data
    assert raw.inputs[0].shape == typed.inputs[0].shape == tuple(shape)


@pytest.mark.parametrize(
    ("datatype", "field", "values", "data"),
    [
        ("BOOL", "bool_contents", [True, False], b"\x01\x00"),
        ("INT8", "int_contents", [-128, 127], b"\x80\x7f"),
        ("INT16", "int_contents", [-2, 3], b"\xfe\xff\x03\x00"),
        ("INT32", "int_contents", [-(2**31), 1], struct.pack("<2i", -(2**31), 1)),
        ("INT64", "int64_contents", [-(2**63), 1], struct.pack("<2q", -(2**63), 1)),
        ("UINT8", "uint_contents", [0, 255], b"\x00\xff"),
        ("UINT16", "uint_contents", [1, 65535], b"\x01\x00\xff\xff"),
        ("UINT32", "uint_contents", [1, 2**32 - 1], struct.pack("<2I", 1, 2**32 - 1)),
        ("UINT64", "uint64_contents", [1, 2**64 - 1], struct.pack("<2Q", 1, 2**64 - 1)),
        ("FP32", "fp32_contents", [0.5, 2.0], struct.pack("<2f", 0.5, 2.0)),
        ("FP64", "fp64_contents", [0.1, 2.0], struct.pack("<2d", 0.1, 2.0)),
        ("BYTES", "bytes_contents", [b"", b"\xff\x00"], b"\x00\x00\x00\x00\x02\x00\x00\x00\xff\x00"),
    ],
)
def test_every_typed_field(datatype: str, field: str, values: list[Any], data: bytes) -> None:
    spec = echo_spec("echo", TensorSpec("x", datatype, [2]))
    request, _ = decode(spec, typed_request("echo", ("x", datatype, [2], {field: values})))
    assert request.inputs[0].data == data


@pytest.mark.parametrize(
    ("datatype", "contents", "figures"),
    [
        ("INT8", {"int_contents": [1, 300]}, ("int_contents[1]", "-128 to 127", "300")),
        ("INT16", {"int_contents": [1, -32769]}, ("int_contents[1]", "-32768 to 32767", "-32769")),
        ("UINT8", {"uint_contents": [256, 1]}, ("uint_contents[0]", "0 to 255", "256")),
        ("UINT16", {"uint_contents": [1, 65536]}, ("uint_contents[1]", "0 to 65535", "65536")),
        ("INT64", {"fp32_contents": [1.0, 2.0]}, ("int64_contents", "fp32_contents")),
        ("INT64", {"int64_contents": [1, 2], "int_contents": [1]}, ("int64_contents", "int_contents")),
        ("FP16", {"fp32_contents": [1.0, 2.0]}, ("raw_input_contents", "fp32_contents")),
        ("BF16", {"fp32_contents": [1.0, 2.0]}, ("raw_input_contents", "fp32_contents")),
        ("FP16", None, ("raw_input_contents", "no data")),
        ("BYTES", {"bytes_contents": [b"a"]}, ("2 elements", "got 1")),
        ("FP32", {"fp32_contents": [1.0, 2.0, 3.0]}, ("2 elements", "got 3")),
        ("FP32", {}, ("2 elements", "got 0")),
        ("FP32", None, ("2 elements", "got 0")),
    ],
)
def test_typed_contents_that_disagree(datatype: str, contents: dict[str, Any] | None, figures: tuple[str, ...]) -> None:
    spec = echo_spec("echo", TensorSpec("x", datatype, [2]))
    message = refusal(spec, typed_request("echo", ("x", datatype, [2], contents)))
    assert "input 'x'" in message
    assert all(figure in message for figure in figures)


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_half_precision_bits_pass_unchanged(datatype: str) -> None:
    spec = echo_spec("echo", TensorSpec("x", datatype, [6]))
    bits = struct.pack("<6H", 0x3C00, 0x8000, 0x0001, 0x7C00, 0x7E2A, 0x7BFF)
    request, _ = decode(spec, raw_request("echo", ("x", datatype, [6], bits)))
    assert request.inputs[0].data == bits


def test_boolean_bytes_above_one_are_refused() -> None:
    spec = echo_spec("echo", TensorSpec("x", "BOOL", [4]))
    message = refusal(spec, raw_request("echo", ("x", "BOOL", [4], bytes([0, 1, 2, 255]))))
    assert message == "input 'x' raw data[2]: expected 0 or 1, got 2"


@pytest.mark.parametrize(
    ("shape", "data", "figures"),
    [
        ([0], b"\x00", ("0 bytes", "1 bytes")),
        ([1], b"\x03\x00\x00", ("4 bytes or more", "3 bytes")),
        ([1], b"\x03\x00\x00\x00ab", ("element 0", "3 bytes", "got 2 bytes")),
        ([1], b"\x01\x00\x00\x00ab", ("expected 5 bytes", "got 6 bytes")),
        ([1], b"\x01\x00\x00\x00a\x01\x00\x00\x00b", ("expected 5 bytes", "got 10 bytes")),
        ([2], b"\x05\x00\x00\x00abcde", ("element 1", "four bytes", "got 0 bytes")),
        ([2], b"\xff\xff\xff\xff\x00\x00\x00\x00", ("element 0", "4294967295 bytes", "got 4 bytes")),
    ],
)
def test_malformed_elements(shape: list[int], data: bytes, figures: tuple[str, ...]) -> None:
    message = refusal(TEXT, raw_request("echo", ("x", "BYTES", shape, data)))
    assert "input 'x' raw data" in message
    assert all(figure in message for figure in figures)
