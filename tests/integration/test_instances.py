"""Several runs of one model at once, through a real server and a real worker."""

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from moorage_client import ModelStatus, SyncClient
from moorage_protocol import inference as pb
from tests.integration.test_runtimes import write_onnx, write_torch_export, write_torchscript
from tests.support.calls import Call, Calls, calls_to, output_of, request_of, rows_of
from tests.support.polling import eventually
from tests.support.running_server import RunningServer, running_server
from tests.support.toy_models import DEDICATED, EXPLICIT, write_python_model, write_simulated_model
from tests.support.worker_processes import kill, load_alone

TWO = "instances = 2\n"
PAUSE_S = 0.3

# No run ends before another is there too: alone, it breaks.
MEETING = """
    import threading
    import time

    from moorage import Model

    class Meeting(Model):
        def load(self, context):
            self.both = threading.Barrier(2)

        def infer(self, inputs, batch):
            self.both.wait(timeout=10.0)
            time.sleep(0.3)
            return {"y": inputs["x"] * 2}
"""

# Says of its run: what came in, the most runs that were under way so far, its thread, and how often load was called.
COUNTING = """
    import threading
    import time

    from moorage import Model

    class Counting(Model):
        loads = 0

        def load(self, context):
            Counting.loads += 1
            self.lock = threading.Lock()
            self.under_way = self.most = 0

        def infer(self, inputs, batch):
            with self.lock:
                self.under_way += 1
                self.most = max(self.most, self.under_way)
            time.sleep(0.3)
            y = inputs["x"].clone()
            y[:, 1], y[:, 2], y[:, 3] = self.most, threading.get_ident() % 65536, Counting.loads
            with self.lock:
                self.under_way -= 1
            return {"y": y}
"""

# Finds no memory where another run is under way.
GREEDY = """
    import threading
    import time

    from moorage import Model

    class Greedy(Model):
        def load(self, context):
            self.lock = threading.Lock()
            self.under_way = 0

        def infer(self, inputs, batch):
            with self.lock:
                self.under_way += 1
            try:
                time.sleep(0.3)
                if self.under_way > 1:
                    raise MemoryError
                return {"y": inputs["x"] * 2}
            finally:
                with self.lock:
                    self.under_way -= 1
"""

STEPPED = """
    from moorage import Step, SteppedModel

    class Stepped(SteppedModel):
        def start(self, inputs, request):
            return inputs["x"]

        def step(self, states):
            return [Step({"y": state}, True) for state in states]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("instances")
    models = folder / "models"
    write_python_model(models, "meeting", MEETING, max_batch_size=1, top=TWO)
    write_python_model(models, "counting", COUNTING, max_batch_size=1, top=TWO)
    write_python_model(models, "dying", COUNTING, max_batch_size=1, top=TWO + EXPLICIT, extra=DEDICATED)
    write_python_model(models, "greedy", GREEDY, max_batch_size=1, top=TWO)
    write_python_model(models, "stepped", STEPPED, top=TWO)
    write_simulated_model(models, "gone", run_s=0.3, max_batch_size=1, top=TWO)
    split = "[batching]\nsplit_requests = true\n"
    write_python_model(models, "split", COUNTING, max_batch_size=2, top=TWO, extra=split)
    write_simulated_model(models, "many", top="instances = 16\n")
    for write in (write_torchscript, write_torch_export, write_onnx):
        write(models)
    for manifest in (models / name / "model.toml" for name in ("torchscript", "torch_export", "onnx")):
        manifest.write_text(TWO + manifest.read_text())
    slots = {"MOORAGE_DEVICES__CPU__RUN_SLOTS": "4"}
    with running_server(models, folder, environment=slots) as running:
        yield running


@pytest.fixture
def calls(server: RunningServer) -> Iterator[Calls]:
    with calls_to(server.grpc) as calls:
        eventually(lambda: calls.is_model_ready("onnx"), within_s=60.0, what="the last model is ready")
        yield calls


def ask(calls: Calls, model: str, *firsts: float) -> list[Call]:
    return [calls.start(request_of(model, rows_of(first))) for first in firsts]


def answers(under_way: list[Call]) -> list[list[float]]:
    return [output_of(call.outcome())[0].tolist() for call in under_way]


def test_two_runs_go_on_at_once_and_each_caller_gets_their_own_rows(calls: Calls) -> None:
    for number in range(3):
        pair = ask(calls, "meeting", 10 * number + 1, 10 * number + 2)
        assert [answer[0] for answer in answers(pair)] == [20 * number + 2, 20 * number + 4]
        assert max(call.seconds for call in pair) < 2 * PAUSE_S


def test_there_are_never_more_than_instances_over_one_load(calls: Calls) -> None:
    numbers = [float(number) for number in range(7)]
    found = answers(ask(calls, "counting", *numbers))
    assert [answer[0] for answer in found] == numbers
    assert max(answer[1] for answer in found) == 2
    assert len({answer[2] for answer in found}) == 2
    assert {answer[3] for answer in found} == {1.0}


def test_pieces_of_one_request_are_computed_side_by_side_and_come_back_in_order(calls: Calls) -> None:
    numbers = [float(number) for number in range(8)]
    answer = output_of(calls.infer(request_of("split", rows_of(*numbers))))
    assert answer[:, 0].tolist() == numbers
    assert answer[:, 1].max() == 2


def test_a_killed_worker_takes_both_along_and_both_are_answered(server: RunningServer, calls: Calls) -> None:
    """They are tried again one by one, so that neither can take the other along a second time."""
    pid = load_alone(server, calls, "dying")
    pair = ask(calls, "dying", 1.0, 2.0)
    eventually(lambda: running(server, "dying") == 2, what="both run")
    kill(pid)
    found = answers(pair)
    assert [answer[0] for answer in found] == [1.0, 2.0]
    assert [answer[1] for answer in found] == [1.0, 1.0]
    found = answers(ask(calls, "dying", 3.0, 4.0, 5.0))
    assert [answer[0] for answer in found] == [3.0, 4.0, 5.0]
    assert max(answer[1] for answer in found) == 2
    assert {answer[3] for answer in found} == {1.0}


def status_of(server: RunningServer, model: str) -> ModelStatus:
    with SyncClient(server.grpc) as client:
        return next(each for each in client.snapshot().models if each.name == model)


def running(server: RunningServer, model: str) -> int:
    return status_of(server, model).running_requests


def test_runs_that_find_no_memory_beside_each_other_are_tried_again_one_by_one(
    server: RunningServer, calls: Calls
) -> None:
    assert [answer[0] for answer in answers(ask(calls, "greedy", 1.0, 2.0))] == [2.0, 4.0]
    counts = status_of(server, "greedy").residency_counts
    assert counts.oom_alone == counts.out_of_memory > 0
    assert counts.oom_halved == counts.oom_refused == 0
    assert [answer[0] for answer in answers(ask(calls, "greedy", 3.0, 4.0, 5.0))] == [6.0, 8.0, 10.0]
    assert status_of(server, "greedy").residency_counts == counts, "for a while they don't try it again"


def test_it_is_unloaded_once_both_runs_have_ended(server: RunningServer, calls: Calls) -> None:
    pair = ask(calls, "gone", 1.0, 2.0)
    eventually(lambda: running(server, "gone") == 2, what="both run")
    calls.unload("gone")
    assert answers(pair) == [[0.0] * 4] * 2
    calls.load("gone")
    assert answers(ask(calls, "gone", 1.0, 2.0)) == [[0.0] * 4] * 2


@pytest.mark.parametrize("runtime", ["torchscript", "torch_export", "onnx"])
def test_every_runtime_computes_in_several_threads(server: RunningServer, runtime: str) -> None:
    """Rows that are alike in no two requests, some alone and some together with others."""
    failures: list[str] = []

    def caller(number: int) -> None:
        with SyncClient(server.grpc) as client:
            for turn in range(20):
                x = np.full((1 + turn % 2, 4), 100 * number + turn, np.float32)
                y = client.infer(runtime, {"x": x})["y"]
                if not np.array_equal(y, x * np.array([1.0, 2.0, 3.0, 4.0], np.float32) + 1):
                    failures.append(f"caller {number}, turn {turn}: {y}")

    threads = [threading.Thread(target=caller, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert not any(thread.is_alive() for thread in threads)
    assert not failures


def test_a_stepped_model_with_instances_is_refused_and_told_why(calls: Calls) -> None:
    request = pb.RepositoryModelLoadRequest(model_name="stepped")
    failure = calls.failure(request, method="RepositoryModelLoad")
    assert failure.code == "FAILED_PRECONDITION"
    why = "instances: expected 1 of a stepped model, which takes one step at a time over all its requests, got 2"
    assert why in failure.message
    assert why in calls.index()["stepped"].reason


def test_tools_are_told_how_many_there_are(server: RunningServer) -> None:
    with SyncClient(server.grpc) as client:
        assert [group.count for group in client.config("meeting").instance_group] == [2]


def test_more_of_them_than_run_slots_are_told_of_in_the_log(server: RunningServer, calls: Calls) -> None:
    assert answers(ask(calls, "many", 1.0, 2.0)) == [[0.0] * 4] * 2
    told = [line for line in server.logs.splitlines() if "instances =" in line]
    assert len(told) == 1
    assert "model many: instances = 16, and no device of its has more than 4 run_slots" in told[0]
