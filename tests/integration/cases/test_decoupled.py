"""Models that answer a request as often as they like, on streams of a real server."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import psutil
import pytest

from moorage_protocol import inference as pb
from tests.integration.cases.conftest import SharedServer
from tests.support.after_check import Baseline
from tests.support.calls import Calls, Tensor, calls_to, output_of, request_of, rows_of
from tests.support.polling import eventually
from tests.support.running_server import running_server
from tests.support.sentinel import sentinel
from tests.support.toy_models import DEDICATED, ECHO, EXPLICIT, write_fat_model, write_python_model
from tests.support.worker_processes import kill, load_alone

MIB = 2**20
_DECOUPLED = "decoupled = true\n"

# Its n-th answer, counted from 0, is x + n; parameters say how many, how long each takes, and where it goes wrong.
_COUNTS = """
    import time
    from moorage import InvalidInput, Model

    class Counts(Model):
        def infer(self, inputs, batch):
            (asked,) = batch.requests
            for number in range(asked.parameters["answers"]):
                time.sleep(asked.parameters.get("delay_ms", 0) / 1000)
                if number == asked.parameters.get("raises_at"):
                    raise ValueError("secret detail of an answer")
                if number == asked.parameters.get("refuses_at"):
                    raise InvalidInput("that is far enough")
                yield {"y": inputs["x"] + number}
"""

# Likewise, but in steps over all its requests, of 10 ms each; its folder tells how many there were.
_STEPS = """
    import time
    from moorage import Step, SteppedModel

    class Steps(SteppedModel):
        def load(self, context):
            self.file = context.path / "steps"
            self.count = 0

        def start(self, inputs, request):
            return {"y": inputs["x"], "left": request.parameters["answers"]}

        def step(self, states):
            time.sleep(0.01)
            self.count += 1
            self.file.write_text(str(self.count))
            steps = [Step({"y": state["y"].clone()}, done=state["left"] == 1) for state in states]
            for state in states:
                state["y"] += 1
                state["left"] -= 1
            return steps
"""

# Decoupled, and yet with one answer.
_ONCE = """
    from moorage import Model

    class Once(Model):
        def infer(self, inputs, batch):
            return {"y": inputs["x"] * 2}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedServer]:
    folder = tmp_path_factory.mktemp("decoupled")
    models = folder / "models"
    write_python_model(models, "echo", ECHO, extra=DEDICATED)
    write_python_model(models, "counts", _COUNTS, top=_DECOUPLED, shape="[-1]")
    write_python_model(models, "steps", _STEPS, top=_DECOUPLED, shape="[-1]", extra='[memory]\nstate = "2 MiB"')
    write_python_model(models, "dies", _STEPS, top=_DECOUPLED + EXPLICIT, extra=DEDICATED)
    write_python_model(models, "once", _ONCE, top=_DECOUPLED)
    write_python_model(models, "lists", _ONCE.replace('{"y": inputs["x"] * 2}', "[1, 2]"), top=_DECOUPLED)
    write_python_model(models, "wrong", _ONCE.replace('return {"y"', 'yield {"z"'), top=_DECOUPLED)
    write_python_model(models, "yields", _COUNTS)
    write_fat_model(models, "fat", 28)
    with running_server(models, folder, budget="32MiB") as running, calls_to(running.grpc) as calls:
        eventually(calls.is_ready, within_s=50.0, what="the server is ready")
        yield SharedServer(running, models, calls, Baseline.of(running, calls))


@pytest.fixture
def calls(server: SharedServer) -> Calls:
    return server.calls


def asked(model: str, answers: int, *tensors: Tensor, request_id: str = "", **parameters: Any) -> pb.ModelInferRequest:
    tensors = tensors or (rows_of(1),)
    return request_of(model, *tensors, parameters={"answers": answers, **parameters}, request_id=request_id)


def firsts(answers: Sequence[Any]) -> list[float]:
    """The first number of each answer."""
    failed = [answer.error_message for answer in answers if answer.error_message]
    assert not failed, failed[:3]
    return [float(output_of(answer.infer_response).flat[0]) for answer in answers]


@pytest.mark.parametrize("model", ["counts", "steps"])
def test_every_answer_comes_as_it_is_made(calls: Calls, model: str) -> None:
    began_s = time.monotonic()
    came_s: list[float] = []
    answers = []
    for answer in calls.stream([asked(model, 20, delay_ms=20)]):
        came_s.append(time.monotonic() - began_s)
        answers.append(answer)
    assert firsts(answers) == [1.0 + number for number in range(20)]
    assert came_s[-1] > 0.2
    assert came_s[0] < came_s[-1] / 4, "not all at the end"


def test_requests_on_one_stream_and_on_others_each_get_their_own(calls: Calls) -> None:
    requests = [asked("counts", 30 + number, rows_of(100 * number), request_id=str(number)) for number in range(8)]
    requests += [request_of("echo", rows_of(number), request_id="echo") for number in range(8)]
    others = [calls.stream([asked("counts", 50, rows_of(7))]) for _ in range(4)]
    found: dict[str, list[float]] = {}
    for answer in calls.stream(requests):
        found.setdefault(answer.infer_response.id, []).extend(firsts([answer]))
    for number in range(8):
        assert found[str(number)] == [100.0 * number + step for step in range(30 + number)]
    assert found["echo"] == [float(number) for number in range(8)]
    for other in others:
        assert firsts(list(other)) == [7.0 + step for step in range(50)]


def test_one_that_answers_once_is_one_too(calls: Calls) -> None:
    assert firsts(list(calls.stream([request_of("once", rows_of(4))]))) == [8.0]


def test_what_goes_wrong_with_one_is_told_after_its_answers_and_to_nobody_else(
    server: SharedServer, calls: Calls
) -> None:
    requests = [
        asked("counts", 20, request_id="good"),
        asked("counts", 20, request_id="raises", raises_at=3),
        asked("counts", 20, request_id="refuses", refuses_at=5),
    ]
    found: dict[str, list[Any]] = {"good": [], "raises": [], "refuses": []}
    for answer in calls.stream(requests):
        found[answer.infer_response.id].append(answer)
    assert firsts(found["good"]) == [1.0 + number for number in range(20)]
    assert firsts(found["raises"][:-1]) == [1.0, 2.0, 3.0]
    assert "INTERNAL" in found["raises"][-1].error_message
    assert "secret" not in found["raises"][-1].error_message
    assert "secret detail of an answer" in server.server.logs
    assert firsts(found["refuses"][:-1]) == [1.0 + number for number in range(5)]
    assert "INVALID_ARGUMENT" in found["refuses"][-1].error_message
    assert "that is far enough" in found["refuses"][-1].error_message


@pytest.mark.parametrize(("model", "words"), [("lists", "got list"), ("wrong", "infer returned outputs ['z']")])
def test_an_author_is_told_what_infer_may_give(calls: Calls, model: str, words: str) -> None:
    (answer,) = calls.stream([request_of(model, rows_of(4))])
    assert words in answer.error_message


def test_one_that_is_not_declared_so_is_told_what_to_declare(calls: Calls) -> None:
    failed = calls.failure(asked("yields", 2))
    assert failed.code == "INTERNAL"
    assert (
        "infer must return a dict of outputs, got generator; who yields has to say decoupled = true" in failed.message
    )


def test_a_unary_call_is_refused_and_clients_are_told(calls: Calls) -> None:
    assert calls.failure(asked("counts", 2)).code == "UNIMPLEMENTED"
    answer = calls("ModelConfig", pb.ModelConfigRequest(name="counts"))
    assert answer.config.model_transaction_policy.decoupled


def test_a_worker_that_is_killed_costs_no_answer_and_none_comes_twice(server: SharedServer, calls: Calls) -> None:
    pid = load_alone(server.server, calls, "dies")
    stream = calls.stream([asked("dies", 40)])
    answers = [next(stream) for _ in range(10)]
    kill(pid)
    answers += list(stream)
    assert firsts(answers) == [1.0 + number for number in range(40)]


def test_a_cancelled_stream_ends_the_work(server: SharedServer, calls: Calls) -> None:
    stream = calls.stream([asked("steps", 100_000)])
    next(stream)
    stream.cancel()
    eventually(lambda: server.running_requests("steps") == 0, what="nothing of it runs")


def test_who_does_not_read_stops_its_own_work_and_holds_up_nobody(server: SharedServer, calls: Calls) -> None:
    """100,000 answers of 64 KiB, of which one in a while is read."""
    process = psutil.Process(server.server.pid)
    large = Tensor((1, 16384), bytes(65536))
    with sentinel(server.server.grpc):
        stream = calls.stream([asked("counts", 100_000, large)], timeout_s=60.0)
        next(stream)
        before_bytes = process.memory_info().rss
        for _ in range(10):
            next(stream)
            time.sleep(0.2)
        grown_bytes = process.memory_info().rss - before_bytes
        stream.cancel()
    assert grown_bytes < 48 * MIB, "the window of 16 MiB and 32 more"


def test_the_memory_of_one_that_is_not_read_is_there_for_anybody(server: SharedServer, calls: Calls) -> None:
    """Of 32 MiB the weights of a model of the same priority are 28; three states keep two each."""
    large = Tensor((1, 16384), bytes(65536))
    streams = [calls.stream([asked("steps", 100_000, large)], timeout_s=60.0) for _ in range(3)]
    for stream in streams:
        assert firsts([next(stream)]) == [0.0]
    counted = server.models / "steps" / "1" / "steps"

    def stand_still() -> bool:
        before = counted.read_text()
        time.sleep(0.5)
        return counted.read_text() == before

    eventually(stand_still, within_s=20.0, what="all are paused")
    assert server.running_requests("steps"), "some are still where they ran"
    answer = calls.infer(request_of("fat", rows_of(3)), timeout_s=30.0)
    assert output_of(answer).tolist() == [[3.0] * 4]
    for stream in streams:
        answers = [next(stream) for _ in range(200)]
        assert firsts(answers) == [1.0 + number for number in range(200)], "they go on where they were"
        stream.cancel()


def test_empty_finals_come_to_whoever_asks(calls: Calls) -> None:
    request = asked("counts", 3)
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    answers = list(calls.stream([request]))
    finals = [answer.infer_response.parameters["triton_final_response"].bool_param for answer in answers]
    assert finals == [False, False, False, True]
    assert not answers[-1].infer_response.outputs


def test_cancelled_streams_leave_nothing(server: SharedServer, calls: Calls) -> None:
    process = psutil.Process(server.server.pid)

    def cancelled(count: int) -> None:
        for _ in range(count):
            stream = calls.stream([asked("steps", 1000), request_of("echo", rows_of(1))])
            next(stream)
            stream.cancel()
        eventually(lambda: server.running_requests("steps") == 0, what="nothing of it runs")

    cancelled(500)
    before_bytes, descriptors = process.memory_info().rss, process.num_fds()
    cancelled(1500)
    assert process.memory_info().rss - before_bytes < 8 * MIB
    assert process.num_fds() <= descriptors + 2
