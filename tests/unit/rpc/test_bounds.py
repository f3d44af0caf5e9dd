"""What a request may have protobuf parse: exact bounds, honest words, and no time spent on what is beyond them."""

import time

import pytest

from moorage.domain.errors import InvalidRequest
from moorage.rpc.bounds import (
    BOUNDED_FROM_BYTES,
    MAX_FIELDS,
    MAX_NESTED_FIELDS,
    MAX_NUMBER_BYTES,
    MAX_OTHER_BYTES,
    Malformed,
    check_bounds,
)
from moorage.rpc.guard import MAX_BODY_BYTES, parse
from moorage.rpc.wire import parse_inference, varint
from moorage_protocol import inference as pb

INPUT, OUTPUT, RAW, PARAMETER = 0x2A, 0x32, 0x3A, 0x22
CONTENTS = 0x2A
ELEMENT, FP32, SHAPE = 0x42, 0x32, 0x1A
MANY = 19_000_000


def field(tag: int, value: bytes = b"") -> bytes:
    return bytes((tag,)) + varint(len(value)) + value


def contents(*values: bytes) -> bytes:
    """A request of one input, with these contents and nothing else."""
    return field(INPUT, field(CONTENTS, b"".join(values)))


def refusal(body: bytes) -> str:
    with pytest.raises(InvalidRequest) as caught:
        check_bounds(body)
    return str(caught.value)


@pytest.mark.parametrize("long_first", [False, True])
def test_elements_and_other_nested_fields(long_first: bool) -> None:
    first = field(ELEMENT, bytes(200)) if long_first else b""
    room = MAX_NESTED_FIELDS - 1 - long_first  # the contents are a field of their input
    check_bounds(contents(first, field(ELEMENT) * room))
    assert refusal(contents(first, field(ELEMENT) * (room + 1))) == (
        "input contents: expected at most 65536 elements and other fields in typed contents, "
        "got 65537 or more; send raw_input_contents"
    )


def test_numbers_that_are_not_packed_are_fields() -> None:
    number = b"\x35\x00\x00\x80\x3f"
    check_bounds(contents(number * (MAX_NESTED_FIELDS - 1)))
    assert "65536 elements" in refusal(contents(number * MAX_NESTED_FIELDS))


def test_the_nested_fields_of_all_tensors_count_together() -> None:
    half = field(ELEMENT) * (MAX_NESTED_FIELDS // 2 - 1)
    check_bounds(contents(half) * 2)
    refusal(contents(half) * 2 + field(OUTPUT, field(0x0A)))
    names = field(OUTPUT, field(0x0A) * MAX_NESTED_FIELDS)
    check_bounds(names)
    assert refusal(names + field(INPUT, field(0x0A))) == (
        "request: expected at most 65536 fields in inputs and outputs, got 65537 or more"
    )


def test_bytes_of_numbers() -> None:
    check_bounds(contents(field(FP32, bytes(MAX_NUMBER_BYTES))))
    check_bounds(contents(field(ELEMENT, bytes(2 * MAX_NUMBER_BYTES))))
    assert refusal(contents(field(FP32, bytes(MAX_NUMBER_BYTES)), field(FP32, bytes(4)))) == (
        "input contents: expected at most 8388608 bytes of numbers in typed contents, "
        "got 8388612 or more; send raw_input_contents"
    )


@pytest.mark.parametrize(
    "at_limit", [field(PARAMETER, bytes(MAX_OTHER_BYTES)), field(INPUT, field(SHAPE, bytes(MAX_OTHER_BYTES)))]
)
def test_bytes_of_everything_else(at_limit: bytes) -> None:
    check_bounds(at_limit + field(RAW, bytes(MAX_OTHER_BYTES)))
    assert refusal(at_limit + field(PARAMETER, b"x")) == (
        "request: expected at most 4194304 bytes of names, shapes and parameters, got 4194305 or more"
    )


@pytest.mark.parametrize("tag", [INPUT, OUTPUT, RAW, PARAMETER])
def test_fields_of_the_request(tag: int) -> None:
    check_bounds(field(tag) * MAX_FIELDS)
    assert refusal(field(tag) * (MAX_FIELDS + 1)) == (
        "request: expected at most 4096 inputs, outputs and other fields, got 4097 or more"
    )


@pytest.mark.parametrize(
    "body",
    [contents(field(ELEMENT) * MANY), contents(field(ELEMENT, bytes(200)), field(ELEMENT) * MANY),
     contents(field(FP32, bytes(4 * MANY))), field(INPUT) * MANY, field(OUTPUT) * MANY, field(RAW) * MANY,
     field(OUTPUT, field(0x12) * MANY), field(INPUT, b"\x18\x01" * MANY), field(PARAMETER, field(0x0A) * MANY)],
    ids=["elements", "long element", "numbers", "inputs", "outputs", "raw entries", "output parameters", "shape",
         "parameters"],
)  # fmt: skip
def test_what_is_beyond_is_refused_in_no_time(body: bytes) -> None:
    began_s = time.perf_counter()
    with pytest.raises(InvalidRequest):
        parse_inference(body)
    assert time.perf_counter() - began_s < 0.5


def test_short_requests_are_not_walked_and_raw_contents_do_not_count() -> None:
    parse_inference(field(INPUT) * (BOUNDED_FROM_BYTES // 2 - 1))
    request = pb.ModelInferRequest(
        inputs=[pb.ModelInferRequest.InferInputTensor(name="x")], raw_input_contents=[bytes(16 * 1024 * 1024)]
    )
    message, raw = parse_inference(request.SerializeToString())
    assert [tensor.name for tensor in message.inputs] == ["x"]
    assert len(raw[0]) == 16 * 1024 * 1024


@pytest.mark.parametrize(
    "body", [b"\x2a", b"\x2a\x05", b"\x2a\x02\x2a\x01", contents(b"\x42\x05"), b"\x0b\x0c", b"\x0e", b"\xff" * 20]
)
def test_bytes_that_are_no_message(body: bytes) -> None:
    with pytest.raises(Malformed):
        check_bounds(body)
    with pytest.raises(InvalidRequest, match="bytes that do not parse"):
        parse_inference(field(0x1A, bytes(BOUNDED_FROM_BYTES)) + body)


def test_requests_without_tensors_are_short() -> None:
    name = "x" * (MAX_BODY_BYTES - 4)
    body = pb.ModelReadyRequest(name=name).SerializeToString()
    assert len(body) == MAX_BODY_BYTES
    assert parse(pb.ModelReadyRequest, body).name == name
    with pytest.raises(InvalidRequest, match="at most 1048576 bytes, got 1048578"):
        parse(pb.ModelReadyRequest, body + b"\x12\x00")
