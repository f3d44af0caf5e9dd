"""B04: where a request says one thing twice, differently, it is refused; never answered with less, or with a guess."""

import struct
from collections.abc import Sequence

import pytest

from moorage_protocol import inference as pb
from tests.integration.cases.conftest import SharedServer
from tests.support.calls import Tensor, output_of, request_of

_ROW = struct.pack("<4f", 1, 2, 3, 4)
_A, _B = Tensor([4], _ROW, name="a"), Tensor([4], _ROW, name="b")
_FLOATS = {"fp32_contents": [1.0, 2.0, 3.0, 4.0]}


def _without_second_entry() -> pb.ModelInferRequest:
    return request_of("two", _A, Tensor([4], None, name="b"))


def _with_a_spare_entry() -> pb.ModelInferRequest:
    request = request_of("echo", Tensor([1, 4], _ROW))
    request.raw_input_contents.append(_ROW)
    return request


# The request, the input that the message must name, and the figures (or words) it must hold.
_MISMATCHES = [
    pytest.param(
        request_of("line_bytes", Tensor([1], None, "BYTES", typed={"bytes_contents": [b"one", b"two"]})),
        "x",
        ["1", "2"],
        id="BYTES [1] with two elements",
    ),
    pytest.param(
        request_of("line", Tensor([4], None, typed={"fp32_contents": [1, 2, 3]})),
        "x",
        ["4", "3"],
        id="FP32 [4] with three elements",
    ),
    pytest.param(_without_second_entry(), "b", ["2", "1"], id="two inputs, one raw entry"),
    pytest.param(_with_a_spare_entry(), "x", ["1", "2"], id="one input, two raw entries"),
    pytest.param(request_of("line", Tensor([4], _ROW, typed=_FLOATS)), "x", ["raw", "fp32_contents"], id="both"),
    pytest.param(
        request_of("line_int64", Tensor([4], None, "INT64", typed=_FLOATS)),
        "x",
        ["int64_contents", "fp32_contents"],
        id="another datatype's field",
    ),
    pytest.param(request_of("two", _A, _A, _B), "a", ["twice"], id="a name twice"),
    pytest.param(request_of("two", _A), "b", ["without"], id="an input missing"),
    pytest.param(request_of("two", _A, _B, Tensor([4], _ROW, name="c")), "c", ["unknown"], id="an input too many"),
    pytest.param(
        request_of("line_int8", Tensor([2], None, "INT8", typed={"int_contents": [1, 300]})),
        "x",
        ["127", "300"],
        id="INT8 with 300",
    ),
    pytest.param(
        request_of("line_int8", Tensor([2], None, "INT8", typed={"int_contents": [1, -129]})),
        "x",
        ["-128", "-129"],
        id="INT8 with -129",
    ),
    pytest.param(request_of("line", Tensor([4], _ROW, "FLOAT")), "x", ["FP32", "FLOAT"], id="an unknown datatype"),
    pytest.param(request_of("line", Tensor([2], _ROW, "FP64")), "x", ["FP32", "FP64"], id="another datatype"),
    pytest.param(
        request_of("line_bytes", Tensor([1], struct.pack("<I", 9) + b"short", "BYTES")),
        "x",
        ["9", "5"],
        id="a BYTES element longer than the data",
    ),
    pytest.param(
        request_of("line_bytes", Tensor([1], struct.pack("<I", 1) + b"long", "BYTES")),
        "x",
        ["5", "8"],
        id="data behind the last BYTES element",
    ),
    pytest.param(request_of("line", Tensor([4])), "x", ["4", "0"], id="no data at all"),
]


@pytest.mark.parametrize(("request_", "name", "figures"), _MISMATCHES)
def test_it_is_refused_and_says_what_differs(
    watched: SharedServer, request_: pb.ModelInferRequest, name: str, figures: Sequence[str]
) -> None:
    failed = watched.calls.failure(request_)
    assert failed.code == "INVALID_ARGUMENT"
    assert f"'{name}'" in failed.message
    assert [figure for figure in figures if figure not in failed.message] == []
    assert {"field", "expected", "got"} <= failed.figures.keys()


def test_the_same_said_rightly_is_served(watched: SharedServer) -> None:
    calls = watched.calls
    assert output_of(calls.infer(request_of("two", _B, _A))).tolist() == [2, 4, 6, 8]
    typed = calls.infer(request_of("line_int8", Tensor([2], None, "INT8", typed={"int_contents": [127, -128]})))
    assert list(typed.outputs[0].contents.int_contents) == [127, -128]
    words = Tensor([2], None, "BYTES", typed={"bytes_contents": [b"one", b""]})
    assert list(calls.infer(request_of("line_bytes", words)).outputs[0].contents.bytes_contents) == [b"one", b""]
