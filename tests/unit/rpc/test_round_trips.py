"""Whatever a client encodes is what the model gets, and what is damaged on the way is refused or still consistent."""

import contextlib
import math
import struct
from typing import Any, NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from moorage.domain.errors import InvalidRequest, MoorageError
from moorage.domain.model import ModelSpec
from moorage.domain.tensor import Datatype, OutputTensor, TensorSpec, element_count
from moorage_protocol import inference as pb
from tests.unit.rpc.echo_backend import echo_spec
from tests.unit.rpc.messages import decode, raw_request, typed_request

NUMPY = {
    "UINT8": "<u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8", "INT8": "<i1", "INT16": "<i2", "INT32": "<i4",
    "INT64": "<i8", "FP32": "<f4", "FP64": "<f8",
}  # fmt: skip
FIELDS = {
    "BOOL": "bool_contents", "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents",
    "UINT64": "uint64_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip


class Sample(NamedTuple):
    name: str
    datatype: str
    shape: tuple[int, ...]
    data: bytes


@st.composite
def samples(draw: st.DrawFn, name: str, rows: int | None) -> Sample:
    datatype = draw(st.sampled_from([member.value for member in Datatype]))
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    if rows is not None:
        shape = (rows, *shape)
    count = math.prod(shape)
    if datatype == "BYTES":
        elements = draw(st.lists(st.binary(max_size=6), min_size=count, max_size=count))
        data = b"".join(struct.pack("<I", len(element)) + element for element in elements)
    elif datatype == "BOOL":
        data = bytes(draw(st.lists(st.integers(0, 1), min_size=count, max_size=count)))
    else:
        size = count * Datatype(datatype).item_bytes
        data = draw(st.binary(min_size=size, max_size=size))
    return Sample(name, datatype, shape, data)


@st.composite
def cases(draw: st.DrawFn) -> tuple[ModelSpec, list[Sample]]:
    max_batch_size = draw(st.sampled_from([0, 4]))
    rows = draw(st.integers(1, 4)) if max_batch_size else None
    names = draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True))
    tensors = [draw(samples(name, rows)) for name in names]
    specs = [_spec(tensor, rows, draw(st.booleans())) for tensor in tensors]
    return echo_spec("echo", *specs, max_batch_size=max_batch_size), draw(st.permutations(tensors))


def _spec(tensor: Sample, rows: int | None, anything: bool) -> TensorSpec:
    shape = tensor.shape[1:] if rows is not None else tensor.shape
    return TensorSpec(tensor.name, tensor.datatype, [-1] * len(shape) if anything else shape)


def typed_contents(tensor: Sample) -> dict[str, Any]:
    """The elements of a sample, as a client's library would put them."""
    if tensor.datatype == "BYTES":
        values: list[Any] = []
        position = 0
        while position < len(tensor.data):
            (length,) = struct.unpack_from("<I", tensor.data, position)
            values.append(tensor.data[position + 4 : position + 4 + length])
            position += 4 + length
    elif tensor.datatype == "BOOL":
        values = [bool(byte) for byte in tensor.data]
    else:
        values = np.frombuffer(tensor.data, NUMPY[tensor.datatype]).tolist()
    return {FIELDS[tensor.datatype]: values}


@given(cases())
def test_raw_inputs_arrive_bit_for_bit(case: tuple[ModelSpec, list[Sample]]) -> None:
    spec, tensors = case
    request, render = decode(spec, raw_request("echo", *tensors))
    arrived = {tensor.name: (tensor.shape, bytes(tensor.data)) for tensor in request.inputs}
    assert arrived == {tensor.name: (tensor.shape, tensor.data) for tensor in tensors}
    assert [tensor.name for tensor in request.inputs] == [tensor.name for tensor in spec.inputs]

    outputs = tuple(OutputTensor(t.name, t.datatype, t.shape, t.data) for t in request.inputs)
    response = pb.ModelInferResponse.FromString(render(outputs))
    assert [tensor.name for tensor in response.outputs] == [tensor.name for tensor in spec.outputs]
    assert list(response.raw_output_contents) == [bytes(output.data) for output in outputs]


@given(cases())
def test_typed_inputs_give_the_same_answer_typed(case: tuple[ModelSpec, list[Sample]]) -> None:
    spec, tensors = case
    if any(tensor.datatype in ("FP16", "BF16") or _has_nan(tensor) for tensor in tensors):
        return
    message = typed_request("echo", *[(t.name, t.datatype, t.shape, typed_contents(t)) for t in tensors])
    request, render = decode(spec, message)
    raw, _ = decode(spec, raw_request("echo", *tensors))
    assert [bytes(tensor.data) for tensor in request.inputs] == [bytes(tensor.data) for tensor in raw.inputs]

    outputs = tuple(OutputTensor(t.name, t.datatype, t.shape, t.data) for t in request.inputs)
    response = pb.ModelInferResponse.FromString(render(outputs))
    assert not response.raw_output_contents
    assert {t.name: t.contents for t in response.outputs} == {t.name: t.contents for t in message.inputs}


def _has_nan(tensor: Sample) -> bool:
    """Python's floats do not keep every NaN's payload, and no NaN equals itself."""
    if not tensor.datatype.startswith("FP"):
        return False
    return bool(np.isnan(np.frombuffer(tensor.data, NUMPY[tensor.datatype])).any())


@given(cases(), st.data())
def test_damaged_requests_are_refused_or_consistent(case: tuple[ModelSpec, list[Sample]], data: st.DataObject) -> None:
    spec, tensors = case
    at = data.draw(st.integers(0, len(tensors) - 1))
    tensors[at] = data.draw(_damaged(tensors[at]))
    try:
        request, _ = decode(spec, raw_request("echo", *tensors))
    except InvalidRequest:
        return
    for tensor in request.inputs:
        assert all(size >= 0 for size in tensor.shape)
        if tensor.datatype is Datatype.BYTES:
            contents = typed_contents(Sample(tensor.name, "BYTES", tensor.shape, bytes(tensor.data)))
            assert len(contents["bytes_contents"]) == element_count(tensor.shape)
        else:
            assert len(tensor.data) == element_count(tensor.shape) * tensor.datatype.item_bytes


@st.composite
def _damaged(draw: st.DrawFn, tensor: Sample) -> Sample:
    sizes = st.one_of(st.integers(-4, 4), st.integers(-(2**63), 2**63 - 1))
    shape = draw(st.one_of(st.just(tensor.shape), st.lists(sizes, max_size=4).map(tuple)))
    data = draw(st.one_of(st.just(tensor.data), st.binary(max_size=40), st.just(tensor.data + b"\x00")))
    datatype = draw(st.one_of(st.just(tensor.datatype), st.sampled_from([*Datatype]), st.text(max_size=4)))
    return Sample(tensor.name, str(datatype), shape, data)


@given(st.binary(max_size=200), st.integers(0, 2))
def test_any_bytes_are_a_request_or_refused(body: bytes, kind: int) -> None:
    spec = echo_spec("echo", TensorSpec("x", "BYTES", [-1]))
    good = raw_request("echo", ("x", "BYTES", [1], b"\x00\x00\x00\x00")).SerializeToString()
    with contextlib.suppress(MoorageError):
        decode(spec, [body, good + body, body + bytes(20_000)][kind])
