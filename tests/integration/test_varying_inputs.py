"""Callers with tensors of different lengths who share runs: the model sees what each sent, and each gets its own."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from moorage_protocol import inference as pb
from tests.support.calls import Calls, Tensor, calls_to, request_of
from tests.support.polling import eventually
from tests.support.running_server import running_server
from tests.support.varying_models import write_varying_models

Values = NDArray[np.float32]
PADDING = -1.5

# Rows and length of what each caller sends at the same moment.
callers = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 40)), min_size=1, max_size=16)


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calls]:
    folder = tmp_path_factory.mktemp("varying")
    write_varying_models(folder / "models")
    with running_server(folder / "models", folder) as server, calls_to(server.grpc) as opened:
        eventually(opened.is_ready, within_s=60.0, what="the server is ready")
        yield opened


def some(number: int, rows: int, length: int) -> Values:
    """Different for every caller."""
    return np.random.default_rng(number).integers(1, 1000, (rows, length)).astype(np.float32)


def tensor_of(array: Values) -> Tensor:
    return Tensor(array.shape, array.tobytes())


def together(calls: Calls, model: str, tensors: Sequence[Tensor]) -> list[pb.ModelInferResponse]:
    """What all of them are answered, asked at once."""
    started = [calls.start(request_of(model, tensor)) for tensor in tensors]
    answers = [call.outcome() for call in started]
    for answer in answers:
        assert isinstance(answer, pb.ModelInferResponse), answer
    return answers


def runs_of(calls: Calls, model: str) -> tuple[int, int]:
    """How many rows it has answered, and in how many runs."""
    statistics = calls.statistics()[model]
    return statistics.inference_count, statistics.execution_count


def output(answer: pb.ModelInferResponse, name: str, dtype: str) -> NDArray[np.generic]:
    index = [output.name for output in answer.outputs].index(name)
    return np.frombuffer(answer.raw_output_contents[index], dtype).reshape(answer.outputs[index].shape)


def words(answer: pb.ModelInferResponse) -> list[bytes]:
    """What `seen` says of each row."""
    data, found = answer.raw_output_contents[0], []
    while data:
        size = int.from_bytes(data[:4], "little")
        found.append(data[4 : 4 + size])
        data = data[4 + size :]
    return found


@settings(max_examples=40, deadline=None)
@given(callers)
def test_a_ragged_model_sees_each_tensor_as_it_was_sent(calls: Calls, asked: list[tuple[int, int]]) -> None:
    sent = [some(number, *shape) for number, shape in enumerate(asked)]
    answers = together(calls, "ragged", list(map(tensor_of, sent)))
    for array, answer in zip(sent, answers, strict=True):
        assert words(answer) == [row.tobytes() for row in array]


@settings(max_examples=40, deadline=None)
@given(callers)
def test_a_padded_model_sees_each_row_and_the_padding_behind_it(calls: Calls, asked: list[tuple[int, int]]) -> None:
    sent = [some(number, *shape) for number, shape in enumerate(asked)]
    for array, answer in zip(sent, together(calls, "padded", list(map(tensor_of, sent))), strict=True):
        rows, length = array.shape
        y = output(answer, "y", "<f4")
        assert len(y) == rows
        assert np.array_equal(y[:, :length], array)
        assert (y[:, length:] == PADDING).all()
        assert output(answer, "length", "<i8").tolist() == [[length]] * rows


@pytest.mark.parametrize("model", ["ragged", "padded"])
def test_callers_of_different_lengths_share_runs(calls: Calls, model: str) -> None:
    before = runs_of(calls, model)
    together(calls, model, [tensor_of(some(number, 1, number)) for number in range(64)])
    inferences, executions = np.subtract(runs_of(calls, model), before)
    assert inferences == 64
    assert executions < 32


def test_callers_of_other_models_share_them_only_with_their_like(calls: Calls) -> None:
    before = runs_of(calls, "equal")
    together(calls, "equal", [tensor_of(some(number, 1, number)) for number in range(8)])
    assert np.subtract(runs_of(calls, "equal"), before).tolist() == [8, 8]


def test_words_of_different_numbers_share_runs(calls: Calls) -> None:
    sent = [[f"{number}-{index}".encode() for index in range(2 * number)] for number in range(24)]
    data = [b"".join(len(word).to_bytes(4, "little") + word for word in texts) for texts in sent]
    tensors = [Tensor((2, len(texts) // 2), raw, "BYTES") for texts, raw in zip(sent, data, strict=True)]
    answers = together(calls, "ragged_bytes", tensors)
    for number, (texts, answer) in enumerate(zip(sent, answers, strict=True)):
        assert words(answer) == [b",".join(texts[:number]), b",".join(texts[number:])]
    assert max(output(answer, "members", "<i8").max() for answer in answers) > 1


def test_a_caller_alone_is_a_list_of_one(calls: Calls) -> None:
    array = some(1, 2, 5)
    (answer,) = together(calls, "ragged", [tensor_of(array)])
    assert words(answer) == [row.tobytes() for row in array]
    assert output(answer, "members", "<i8").tolist() == [[1], [1]]


@pytest.mark.parametrize("runtime", ["torchscript", "torch_export", "onnx"])
def test_runtimes_that_take_tensors_take_padded_ones(calls: Calls, runtime: str) -> None:
    model = f"sum_{runtime}"
    before = runs_of(calls, model)
    sent = [some(number, 1 + number % 2, 1 + number) for number in range(32)]
    for array, answer in zip(sent, together(calls, model, list(map(tensor_of, sent))), strict=True):
        assert output(answer, "y", "<f4").tolist() == array.sum(1, keepdims=True).tolist()
    inferences, executions = np.subtract(runs_of(calls, model), before)
    assert executions < 32 < inferences


def test_what_takes_tensors_is_not_loaded_with_lists(calls: Calls) -> None:
    failed = calls.failure(pb.RepositoryModelLoadRequest(model_name="refused"), method="RepositoryModelLoad")
    assert failed.code == "FAILED_PRECONDITION"
    assert "input 'x': ragged is not supported by runtime = 'torchscript'" in failed.message


@pytest.mark.parametrize(
    ("tensor", "told"),
    [
        (Tensor((2,), bytes(8)), "input 'x' shape: expected [-1,-1] with 1 to 8 rows, got [2]"),
        (Tensor((9, 1), bytes(36)), "input 'x' shape: expected [-1,-1] with 1 to 8 rows (more where"),
        (Tensor((1, 2), bytes(16), "FP64"), "input 'x' datatype: expected FP32, got 'FP64'"),
        (Tensor((1, 2), bytes(4)), "input 'x' raw data: expected 8 bytes"),
    ],
)
@pytest.mark.parametrize("model", ["ragged", "padded"])
def test_every_other_rule_stays(calls: Calls, model: str, tensor: Tensor, told: str) -> None:
    failed = calls.failure(request_of(model, tensor))
    assert failed.code == "INVALID_ARGUMENT"
    assert told in failed.message
