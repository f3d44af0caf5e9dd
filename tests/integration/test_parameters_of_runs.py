"""Callers with parameters of their own: which share a run, and what the model is told of each."""

from collections.abc import Iterator

import pytest

from moorage_protocol import inference as pb
from tests.support.calls import Calls, calls_to, output_of, request_of, rows_of
from tests.support.polling import eventually
from tests.support.running_server import running_server
from tests.support.toy_models import write_python_model

# Multiplies each caller's rows by the factor that they asked for, and says how many rows the run had.
_SCALES = """
    import time
    from moorage import Model

    class Scales(Model):
        def infer(self, inputs, batch):
            time.sleep(0.1)
            y, row = inputs["x"].clone(), 0
            for request in batch.requests:
                y[row : row + request.rows] *= float(request.parameters["factor"])
                row += request.rows
            y[:, 3] = batch.rows
            return {"y": y}
"""


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calls]:
    folder = tmp_path_factory.mktemp("parameters")
    shares = '[batching]\nper_request_parameters = ["factor"]\n'
    write_python_model(folder / "models", "shares", _SCALES, extra=shares)
    write_python_model(folder / "models", "apart", _SCALES)
    with running_server(folder / "models", folder) as server, calls_to(server.grpc) as opened:
        eventually(opened.is_ready, within_s=60.0, what="the server is ready")
        yield opened


def rows_of_runs(calls: Calls, model: str, factors: list[int]) -> list[int]:
    """How many rows the run of each had that waited while another ran; each is answered by its own parameters."""
    first = calls.start(request_of(model, rows_of(1), parameters={"factor": "1"}))
    started = [
        calls.start(request_of(model, rows_of(number), parameters={"factor": str(factor)}))
        for number, factor in enumerate(factors)
    ]
    assert isinstance(first.outcome(), pb.ModelInferResponse)
    found = []
    for number, (factor, call) in enumerate(zip(factors, started, strict=True)):
        answer = call.outcome()
        assert isinstance(answer, pb.ModelInferResponse), answer
        (row,) = output_of(answer)
        assert row[0] == number * factor
        found.append(int(row[3]))
    return found


def test_parameters_that_are_per_request_differ_within_a_run(calls: Calls) -> None:
    assert max(rows_of_runs(calls, "shares", [2, 3, 4, 5])) == 4


def test_others_are_computed_apart_and_those_between_them_are_passed_by(calls: Calls) -> None:
    assert max(rows_of_runs(calls, "apart", [2, 3, 2, 3, 2, 3])) == 3
