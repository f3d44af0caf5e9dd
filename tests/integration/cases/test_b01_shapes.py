"""B01: a shape that is negative, that overflows, or that has more dimensions than anything, costs only its sender."""

import psutil
import pytest

from tests.integration.cases.conftest import SharedServer
from tests.support.calls import Failure, Tensor, output_of, request_of

_PROMPT_S = 0.1
_LITTLE_BYTES = 64 * 1024 * 1024

_WRONG = [
    pytest.param("echo", [-1, 4], 16, id="negative rows"),
    pytest.param("echo", [-1, -4], 16, id="two negatives whose product is right"),
    pytest.param("sheet", [-1, 4], 16, id="negative where any size is allowed"),
    pytest.param("sheet", [-1, -4], 16, id="two negatives where any size is allowed"),
    pytest.param("echo", [2**32, 2**32], 0, id="a product that wraps to zero"),
    pytest.param("sheet", [2**32, 2**32], 0, id="a product that wraps to zero, any size allowed"),
    pytest.param("sheet", [2**62, 4], 0, id="bytes that wrap to zero"),
    pytest.param("line", [2**63 - 1], 4, id="the largest number"),
    pytest.param("line", [-(2**63)], 4, id="the smallest number"),
    pytest.param("line", [2**62], 0, id="no bytes for very many elements"),
    pytest.param("sheet", [2**62, 0], 0, id="no elements, but a stride that overflows"),
    pytest.param("echo", [1] * 1000, 4, id="a thousand dimensions"),
    pytest.param("echo", [1, 4], 15, id="one byte too few"),
    pytest.param("echo", [1, 4], 17, id="one byte too many"),
    pytest.param("echo", [9, 4], 144, id="more rows than a run may have"),
]


@pytest.mark.parametrize(("model", "shape", "size_bytes"), _WRONG)
def test_a_wrong_shape_is_refused_at_once(
    shared_server: SharedServer, model: str, shape: list[int], size_bytes: int
) -> None:
    request = request_of(model, Tensor(shape, bytes(size_bytes)))
    process = psutil.Process(shared_server.server.pid)
    before_bytes = process.memory_info().rss
    # The quickest of three: the server's own promptness, not the machine's at one moment.
    failures = [shared_server.calls.failure(request) for _ in range(3)]
    assert {failed.code for failed in failures} == {"INVALID_ARGUMENT"}
    assert "'x'" in failures[0].message
    assert min(failed.seconds for failed in failures) < _PROMPT_S
    assert process.memory_info().rss - before_bytes < _LITTLE_BYTES


def test_all_of_them_at_once_disturb_nobody(watched: SharedServer) -> None:
    requests = [request_of(item.values[0], Tensor(item.values[1], bytes(item.values[2]))) for item in _WRONG]  # type: ignore[arg-type, call-overload]
    outcomes = [call.outcome() for call in [watched.calls.start(request) for _ in range(20) for request in requests]]
    assert all(isinstance(outcome, Failure) and outcome.code == "INVALID_ARGUMENT" for outcome in outcomes)
    assert output_of(watched.calls.infer(request_of("line", Tensor([1], bytes(4))))).tolist() == [0.0]


def test_what_is_no_message_at_all_is_refused(watched: SharedServer) -> None:
    request = request_of("echo", Tensor([1, 4], bytes(16)))
    garbage = request.SerializeToString()[:-3]
    assert watched.calls.raw("ModelInfer", garbage).code == "INVALID_ARGUMENT"


def test_far_too_long_parameters_are_refused(watched: SharedServer) -> None:
    """Parameters travel to the worker in a bounded message; what a client puts there can't break the connection."""
    tensor = Tensor([1, 4], bytes(16))
    long = "x" * (2 * 1024 * 1024)
    for request in (
        request_of("echo", tensor, parameters={"note": long}),
        request_of("echo", tensor, parameters={long: 1}),
        request_of("echo", tensor, request_id=long),
    ):
        failed = watched.calls.failure(request)
        assert failed.code == "INVALID_ARGUMENT"
        assert failed.message.startswith(("parameters:", "id:"))
