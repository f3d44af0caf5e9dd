import pytest

from moorage.domain.tensor import Datatype, OutputTensor, TensorSpec
from moorage.rpc.render import MAX_TYPED_BYTES, MAX_TYPED_ELEMENTS, MAX_TYPED_STRINGS
from moorage_protocol import inference as pb
from tests.unit.rpc.echo_backend import echo_spec
from tests.unit.rpc.messages import decode, raw_request, typed_request

SPEC = echo_spec("echo", TensorSpec("x", "FP32", [-1]))
VALUES = OutputTensor("x", Datatype.FP32, (2,), memoryview(b"\x00\x00\x80\x3f\x00\x00\x00\x40"))
HALF = OutputTensor("h", Datatype.BF16, (1,), memoryview(b"\x80\x3f"))
EMPTY = OutputTensor("e", Datatype.BYTES, (0,), memoryview(b""))
WORDS = OutputTensor("w", Datatype.BYTES, (2,), memoryview(b"\x02\x00\x00\x00ab\x00\x00\x00\x00"))
FLAGS = OutputTensor("f", Datatype.BOOL, (2,), memoryview(b"\x01\x00"))
RAW = raw_request("echo", ("x", "FP32", [1], bytes(4)), id="\u00fc" * 100)
TYPED = typed_request("echo", ("x", "FP32", [1], {"fp32_contents": [1.0]}))


def render(request: pb.ModelInferRequest, *outputs: OutputTensor) -> pb.ModelInferResponse:
    _, renderer = decode(SPEC, request)
    return pb.ModelInferResponse.FromString(renderer(outputs))


def test_raw_gets_one_entry_for_each_output_in_order() -> None:
    response = render(RAW, VALUES, EMPTY, HALF)
    assert (response.model_name, response.model_version, response.id) == ("echo", "1", "\u00fc" * 100)
    assert [(tensor.name, tensor.datatype, list(tensor.shape)) for tensor in response.outputs] == [
        ("x", "FP32", [2]),
        ("e", "BYTES", [0]),
        ("h", "BF16", [1]),
    ]
    assert list(response.raw_output_contents) == [bytes(VALUES.data), b"", bytes(HALF.data)]


def test_raw_of_many_sizes() -> None:
    for size in (0, 1, 127, 128, 16_383, 16_384, 3_000_000):
        data = memoryview(bytes(size))
        response = render(RAW, OutputTensor("x", Datatype.UINT8, (size,), data))
        assert list(response.raw_output_contents) == [data]
        assert list(response.outputs[0].shape) == [size]


def test_typed_gets_typed() -> None:
    response = render(TYPED, VALUES, EMPTY, WORDS, FLAGS)
    assert not response.raw_output_contents
    assert list(response.outputs[0].contents.fp32_contents) == [1.0, 2.0]
    assert response.outputs[1].HasField("contents")
    assert list(response.outputs[2].contents.bytes_contents) == [b"ab", b""]
    assert list(response.outputs[3].contents.bool_contents) == [True, False]


def test_half_precision_forces_raw_for_all() -> None:
    response = render(TYPED, VALUES, HALF)
    assert list(response.raw_output_contents) == [bytes(VALUES.data), bytes(HALF.data)]
    assert not any(tensor.HasField("contents") for tensor in response.outputs)


LIMITS = [
    pytest.param(Datatype.UINT8, MAX_TYPED_ELEMENTS, 1, id="elements"),
    pytest.param(Datatype.BYTES, MAX_TYPED_STRINGS, 4, id="strings"),
    pytest.param(Datatype.BYTES, 1, MAX_TYPED_BYTES, id="bytes"),
]


@pytest.mark.parametrize(("datatype", "count", "item_bytes"), LIMITS)
def test_typed_up_to_its_limits_and_raw_beyond(datatype: Datatype, count: int, item_bytes: int) -> None:
    def zeros(elements: int) -> OutputTensor:
        prefix = (item_bytes - 4).to_bytes(4, "little") if datatype is Datatype.BYTES else b""
        item = prefix + bytes(item_bytes - len(prefix))
        return OutputTensor("x", datatype, (elements,), memoryview(item * elements))

    within = render(TYPED, zeros(count))
    assert within.outputs[0].contents.ListFields()
    assert not within.raw_output_contents
    beyond = render(TYPED, zeros(count), zeros(1))
    assert [len(data) for data in beyond.raw_output_contents] == [count * item_bytes, item_bytes]
    assert not any(tensor.HasField("contents") for tensor in beyond.outputs)


def test_no_encoding_to_tell_by_gets_raw() -> None:
    response = render(typed_request("echo", ("x", "FP32", [0], None)), EMPTY)
    assert list(response.raw_output_contents) == [b""]


def test_empty_typed_contents_get_typed() -> None:
    response = render(typed_request("echo", ("x", "FP32", [0], {})), EMPTY)
    assert not response.raw_output_contents


@pytest.mark.parametrize("request_", [RAW, TYPED])
def test_only_the_outputs_asked_for_in_that_order(request_: pb.ModelInferRequest) -> None:
    spec = echo_spec("echo", TensorSpec("x", "FP32", [-1]), TensorSpec("y", "FP32", [-1], optional=True))
    asking = pb.ModelInferRequest()
    asking.CopyFrom(request_)
    asking.outputs.add(name="y")
    asking.outputs.add(name="x")
    _, renderer = decode(spec, asking)
    other = OutputTensor("y", Datatype.FP32, (0,), b"")
    response = pb.ModelInferResponse.FromString(renderer((VALUES, other, WORDS)))
    assert [tensor.name for tensor in response.outputs] == ["y", "x"]
