"""Bodies made to keep the event loop busy: refused, or answered raw, and the neighbours notice nothing."""

from collections.abc import Iterator

import numpy as np
import pytest

from moorage.rpc.wire import varint
from moorage_protocol import inference as pb
from tests.support.calls import Calls, Failure, Tensor, calls_to, request_of
from tests.support.polling import eventually
from tests.support.running_server import running_server
from tests.support.sentinel import sentinel
from tests.support.toy_models import ECHO, write_python_model

_ROUNDS = 4
_MANY = 19_000_000
_LENGTH_DELIMITED = 2

UNHEARD_OF = pb.ModelInferRequest(model_name="unheard-of").SerializeToString()
ONE_INPUT = pb.ModelInferRequest(inputs=[pb.ModelInferRequest.InferInputTensor()]).SerializeToString()
ONE_PARAMETER = pb.RepositoryModelLoadRequest(parameters={"": pb.ModelRepositoryParameter()}).SerializeToString()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of its own, as buffers of such sizes stay with the process, to be used again."""
    folder = tmp_path_factory.mktemp("floods")
    write_python_model(folder / "models", "echo", ECHO)
    for name, datatype in (("line", "FP32"), ("line_bytes", "BYTES")):
        write_python_model(folder / "models", name, ECHO, datatype=datatype, shape="[-1]", max_batch_size=0)
    with running_server(folder / "models", folder) as server, calls_to(server.grpc) as calls:
        eventually(calls.is_ready, within_s=50.0, what="the server is ready")
        yield server.grpc


@pytest.fixture
def calls(address: str) -> Iterator[Calls]:
    """A channel, with a sentinel on another beside the trial.

    Its bound is wider here: gRPC's own copies of an 80 MB message take a tenth of a second or two, whatever is in it.
    Read and answered without bounds, these bodies held everybody up for seconds.
    """
    with sentinel(address, limit_s=0.6), calls_to(address) as calls:
        yield calls


def _field(number: int, value: bytes) -> bytes:
    return bytes((number << 3 | _LENGTH_DELIMITED,)) + varint(len(value)) + value


def _one_input_holding(contents: bytes) -> bytes:
    """A request to a model that does not exist, whose one input has nothing but these contents."""
    return UNHEARD_OF + _field(5, _field(5, contents))


@pytest.mark.parametrize(
    ("method", "body", "told"),
    [
        ("ModelInfer", _one_input_holding(_field(8, b"") * _MANY), "send raw_input_contents"),
        ("ModelInfer", _one_input_holding(_field(6, bytes(4 * _MANY))), "send raw_input_contents"),
        ("ModelInfer", UNHEARD_OF + ONE_INPUT * _MANY, "at most 4096 inputs"),
        ("RepositoryModelLoad", ONE_PARAMETER * (_MANY // 4), "at most 1048576 bytes"),
    ],
    ids=["empty elements", "numbers", "empty inputs", "parameters of a load"],
)
def test_floods_are_refused(calls: Calls, method: str, body: bytes, told: str) -> None:
    for _ in range(_ROUNDS):
        outcome = calls.raw(method, body)
        assert isinstance(outcome, Failure)
        assert (outcome.code, told in outcome.message) == ("INVALID_ARGUMENT", True), outcome.message


def test_the_largest_typed_request_is_served_and_answered_raw(calls: Calls) -> None:
    values = np.arange(2_000_000, dtype=np.float32)
    request = request_of("line", Tensor(values.shape, typed={"fp32_contents": values.tolist()}))
    for _ in range(_ROUNDS):
        response = calls.infer(request)
        assert response.raw_output_contents[0] == values.tobytes()


def test_the_most_elements_are_served_and_answered_raw(calls: Calls) -> None:
    count = 65_000
    tensor = Tensor([count], None, "BYTES", typed={"bytes_contents": [b"ab"] * count})
    for _ in range(_ROUNDS):
        response = calls.infer(request_of("line_bytes", tensor))
        assert response.raw_output_contents[0] == b"\x02\0\0\0ab" * count


def test_a_small_typed_request_is_answered_typed(calls: Calls) -> None:
    response = calls.infer(request_of("line", Tensor([3], typed={"fp32_contents": [1, 2, 3]})))
    assert list(response.outputs[0].contents.fp32_contents) == [1, 2, 3]
