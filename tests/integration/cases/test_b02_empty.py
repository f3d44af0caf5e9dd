"""B02: nothing is data too. Tensors without elements come back as they went, in both encodings, and hurt nobody."""

import pytest

from tests.integration.cases.conftest import SharedServer
from tests.support.calls import Failure, Tensor, output_of, request_of, rows_of

_EMPTY = [
    pytest.param("line", "FP32", [0], id="FP32 [0]"),
    pytest.param("sheet", "FP32", [2, 0], id="FP32 [2,0]"),
    pytest.param("sheet", "FP32", [0, 3], id="FP32 [0,3]"),
    pytest.param("rows", "FP32", [3, 0], id="three rows of nothing"),
    pytest.param("line_bytes", "BYTES", [0], id="BYTES [0]"),
    pytest.param("line_bf16", "BF16", [0], id="BF16 [0]"),
    pytest.param("line_bool", "BOOL", [0], id="BOOL [0]"),
]


@pytest.mark.parametrize(("model", "datatype", "shape"), _EMPTY)
def test_raw_in_raw_out(watched: SharedServer, model: str, datatype: str, shape: list[int]) -> None:
    response = watched.calls.infer(request_of(model, Tensor(shape, b"", datatype)))
    assert [(item.datatype, list(item.shape)) for item in response.outputs] == [(datatype, shape)]
    assert list(response.raw_output_contents) == [b""]


@pytest.mark.parametrize(("model", "datatype", "shape"), [item for item in _EMPTY if item.values[1] != "BF16"])
def test_typed_in_typed_out(watched: SharedServer, model: str, datatype: str, shape: list[int]) -> None:
    response = watched.calls.infer(request_of(model, Tensor(shape, None, datatype, typed={})))
    assert [(item.datatype, list(item.shape)) for item in response.outputs] == [(datatype, shape)]
    assert not response.raw_output_contents
    assert not response.outputs[0].contents.ListFields()


def test_a_scalar_is_served(watched: SharedServer) -> None:
    response = watched.calls.infer(request_of("scalar", Tensor([], b"\0\0\x80\x3f")))
    assert list(response.outputs[0].shape) == []
    assert response.raw_output_contents[0] == b"\0\0\x80\x3f"


def test_a_model_may_answer_with_nothing(watched: SharedServer) -> None:
    response = watched.calls.infer(request_of("nothing", rows_of(1, 2)))
    assert list(response.outputs[0].shape) == [2, 0]
    assert list(response.raw_output_contents) == [b""]


def test_no_rows_are_refused_at_once_and_the_neighbours_are_served(watched: SharedServer) -> None:
    calls = watched.calls
    first = calls.start(request_of("slow", rows_of(1), parameters={"delay_ms": 400}))
    neighbours = [calls.start(request_of("slow", rows_of(number))) for number in (2, 3)]
    empty = calls.start(request_of("slow", Tensor([0, 4], b"")))
    last = calls.start(request_of("slow", rows_of(4)))
    refused = empty.outcome()
    assert isinstance(refused, Failure)
    assert refused.code == "INVALID_ARGUMENT"
    assert not first.is_done, "the refusal waited for the model"
    answers = [output_of(call.outcome())[0, 0] for call in (first, *neighbours, last)]
    assert answers == [1, 2, 3, 4]


def test_rows_of_nothing_share_a_run_with_rows_of_nothing(watched: SharedServer) -> None:
    calls = watched.calls
    under_way = [calls.start(request_of("rows", Tensor([2, width], bytes(8 * width)))) for width in (0, 3, 0, 0, 3)]
    shapes = [list(call.outcome().outputs[0].shape) for call in under_way]
    assert shapes == [[2, 0], [2, 3], [2, 0], [2, 0], [2, 3]]
