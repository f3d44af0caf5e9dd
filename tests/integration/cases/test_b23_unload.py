"""B23: unload answers once the memory is free, whatever was under way; swapping all day leaks nothing."""

import re
import time
from collections.abc import Iterator

import psutil
import pytest

from moorage_client import SyncClient
from moorage_protocol import inference as pb
from tests.integration.cases.conftest import SharedServer
from tests.support.after_check import Baseline, after_check
from tests.support.calls import Failure, calls_to, output_of, request_of, rows_of
from tests.support.polling import eventually
from tests.support.running_server import running_server
from tests.support.sentinel import sentinel
from tests.support.toy_models import DEDICATED, ECHO, EXPLICIT, SLOW, write_python_model, write_simulated_model

_MIB = 1024 * 1024
_WEIGHTS_MIB = 64
_ROUNDS = 50

# Real memory, and a moment to give it back in which a hasty load would find none.
_FAT = """
    import time
    import torch
    from moorage import Model

    class Fat(Model):
        def load(self, context):
            self.weights = torch.ones(context.parameters["weights_mib"] * 2**20 // 4)

        def infer(self, inputs, batch):
            return {"y": inputs["x"] * self.weights[0]}

        def unload(self):
            time.sleep(0.02)
"""


@pytest.fixture(scope="module")
def small_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedServer]:
    """A budget that holds one of the two large models."""
    folder = tmp_path_factory.mktemp("unload")
    models = folder / "models"
    memory = f'[memory]\nweights = "{_WEIGHTS_MIB} MiB"\n[parameters]\nweights_mib = {_WEIGHTS_MIB}\n'
    write_python_model(models, "a", _FAT, top=EXPLICIT, extra=memory)
    write_python_model(models, "b", _FAT, top=EXPLICIT, extra=memory)
    write_python_model(models, "slow", SLOW, top=EXPLICIT, max_batch_size=1)
    write_simulated_model(models, "loading", load_s=0.6, top=EXPLICIT, extra='[memory]\nweights = "1 MiB"')
    write_python_model(models, "echo", ECHO, extra=DEDICATED)
    budget = f"{_WEIGHTS_MIB + 16}MiB"
    with running_server(models, folder, budget=budget) as server, calls_to(server.grpc) as calls:
        eventually(calls.is_ready, within_s=50.0, what="the server is ready")
        calls.load("a")
        calls.unload("a")
        yield SharedServer(server, models, calls, Baseline.of(server, calls))


@pytest.fixture
def trial(small_server: SharedServer) -> Iterator[SharedServer]:
    with sentinel(small_server.server.grpc):
        yield small_server
    after_check(small_server.server, small_server.calls, small_server.baseline)


def _state(trial: SharedServer, model: str) -> str:
    return str(trial.calls.index()[model].reason)


@pytest.mark.timeout(120)
def test_fifty_rounds_of_swapping(trial: SharedServer) -> None:
    """The load of one is asked for while the other is still being unloaded: it waits for the memory, and gets it."""
    calls = trial.calls
    sizes: list[int] = []
    workers = trial.server.workers()
    calls.load("a")
    for number in range(_ROUNDS):
        leaving, coming = ("a", "b") if number % 2 == 0 else ("b", "a")
        unload = calls.start(pb.RepositoryModelUnloadRequest(model_name=leaving), method="RepositoryModelUnload")
        eventually(lambda name=leaving: not calls.is_model_ready(name), what="the unload has begun")  # type: ignore[misc]
        calls.load(coming)
        assert not isinstance(unload.outcome(), Failure)
        assert output_of(calls.infer(request_of(coming, rows_of(number)))).tolist() == [[number] * 4]
        assert calls.memory_bytes() == {coming: _WEIGHTS_MIB * _MIB}
        sizes.append(sum(worker.memory_info().rss for worker in workers) // _MIB)
    calls.unload("a" if _ROUNDS % 2 == 0 else "b")
    assert {worker.pid for worker in trial.server.workers()} == {worker.pid for worker in workers}
    early, late = sizes[5 : _ROUNDS // 2], sizes[_ROUNDS // 2 :]
    # A model that stayed behind would show as its whole weight.
    assert max(late) - max(early) < _WEIGHTS_MIB // 4, sizes
    after_unload = sum(worker.memory_info().rss for worker in workers) // _MIB
    assert after_unload < min(sizes) - _WEIGHTS_MIB // 2, "the system has the memory back"


def test_a_load_puts_out_whoever_is_idle_and_both_serve(trial: SharedServer) -> None:
    calls = trial.calls
    calls.load("a")
    calls.load("b")
    assert calls.memory_bytes() == {"b": _WEIGHTS_MIB * _MIB}
    assert calls.is_model_ready("a"), "its next request brings it back"
    assert "offloaded" in _state(trial, "a")
    assert output_of(calls.infer(request_of("a", rows_of(3)))).tolist() == [[3.0] * 4]
    assert calls.memory_bytes() == {"a": _WEIGHTS_MIB * _MIB}
    assert calls.is_model_ready("b")
    calls.unload("b")
    calls.unload("a")


def test_a_load_that_finds_no_room_is_refused_and_leaves_what_is_there(trial: SharedServer) -> None:
    """A pinned model is not put out, a hold even less."""
    calls = trial.calls
    calls.load("a")
    with SyncClient(trial.server.grpc) as client:
        client.set_policy("a", pinned=True)
        began_s = time.monotonic()
        failed = calls.failure(pb.RepositoryModelLoadRequest(model_name="b"), method="RepositoryModelLoad")
        assert time.monotonic() - began_s < 0.5
        _is_refused_for_want_of_memory(failed, rf"a/1\S* weights {_WEIGHTS_MIB * _MIB}")
        client.set_policy("a", pinned=False)
        with client.hold("cpu", 20 * _MIB):
            failed = calls.failure(pb.RepositoryModelLoadRequest(model_name="b"), method="RepositoryModelLoad")
            _is_refused_for_want_of_memory(failed, f"held {20 * _MIB}")
    assert calls.is_model_ready("a")
    calls.unload("a")
    calls.load("b")
    calls.unload("b")


def _is_refused_for_want_of_memory(failed: Failure, holder: str) -> None:
    assert failed.code == "RESOURCE_EXHAUSTED"
    assert failed.figures["bytes_needed"] == str(_WEIGHTS_MIB * _MIB)
    assert re.search(holder, failed.figures["held_by"])
    assert failed.retry_after_s


def test_unloading_what_was_put_out(trial: SharedServer) -> None:
    """Its copy beside the device goes too, and a move that is under way ends first."""
    calls = trial.calls
    for _ in range(3):
        calls.load("a")
        load = calls.start(pb.RepositoryModelLoadRequest(model_name="b"), method="RepositoryModelLoad")
        eventually(lambda: "resident" not in _state(trial, "a"), what="it is on its way out")
        calls.unload("a")
        assert not isinstance(load.outcome(), Failure)
        calls.unload("b")
    with SyncClient(trial.server.grpc) as client:
        (device,) = client.snapshot().devices
    assert device.host_leased_bytes == 0
    assert calls.memory_bytes() == {}


def test_during_a_request_with_two_queued(trial: SharedServer) -> None:
    calls = trial.calls
    calls.load("slow")
    delay: dict[str, bool | int | float | str] = {"delay_ms": 500}
    under_way = [calls.start(request_of("slow", rows_of(number), parameters=delay)) for number in range(3)]
    eventually(lambda: "2 rows waiting" in _state(trial, "slow"), what="two are queued")
    unload = calls.start(pb.RepositoryModelUnloadRequest(model_name="slow"), method="RepositoryModelUnload")
    eventually(lambda: not calls.is_model_ready("slow"), within_s=0.4, what="it takes no new work")
    refused = calls.failure(request_of("slow", rows_of(9)))
    assert refused.code == "UNAVAILABLE"
    assert [output_of(call.outcome())[0, 0] for call in under_way] == [0, 1, 2]
    assert not isinstance(unload.outcome(), Failure)
    assert unload.seconds > 1.0, "it waited for the accepted work"
    assert "unloaded" in _state(trial, "slow")


def test_twice_at_once_and_once_more(trial: SharedServer) -> None:
    calls = trial.calls
    calls.load("a")
    request = pb.RepositoryModelUnloadRequest(model_name="a")
    unloads = [calls.start(request, method="RepositoryModelUnload") for _ in range(2)]
    assert not [unload for unload in unloads if isinstance(unload.outcome(), Failure)]
    calls.unload("a")
    assert calls.memory_bytes() == {}


def test_while_it_is_loading(trial: SharedServer) -> None:
    """A load that a worker has begun is finished, and the model goes as soon as it is there."""
    calls = trial.calls
    load = calls.start(pb.RepositoryModelLoadRequest(model_name="loading"), method="RepositoryModelLoad")
    eventually(lambda: "loading on" in _state(trial, "loading"), what="it is loading")
    began_s = time.monotonic()
    calls.unload("loading")
    assert time.monotonic() - began_s < 3.0
    load.outcome()
    assert not calls.is_model_ready("loading")
    assert calls.memory_bytes() == {}


def test_while_it_waits_to_load(trial: SharedServer) -> None:
    """A load that has not begun is called off, at once."""
    calls = trial.calls
    first = calls.start(pb.RepositoryModelLoadRequest(model_name="loading"), method="RepositoryModelLoad")
    eventually(lambda: "loading on" in _state(trial, "loading"), what="it is loading")
    second = calls.start(pb.RepositoryModelLoadRequest(model_name="slow"), method="RepositoryModelLoad")
    eventually(lambda: "waiting for its worker" in _state(trial, "slow"), what="it waits for its turn")
    calls.unload("slow")
    assert not first.is_done
    failed = second.outcome()
    assert isinstance(failed, Failure)
    assert failed.code == "UNAVAILABLE"
    assert not isinstance(first.outcome(), Failure)
    calls.unload("loading")


def test_a_caller_that_goes_during_an_unload_does_not_stop_it(trial: SharedServer) -> None:
    calls = trial.calls
    calls.load("slow")
    accepted = [calls.start(request_of("slow", rows_of(1), parameters={"delay_ms": 300})) for _ in range(2)]
    eventually(lambda: "1 rows waiting" in _state(trial, "slow"), what="one runs and one waits")
    failed = calls.failure(pb.RepositoryModelUnloadRequest(model_name="slow"), 0.1, "RepositoryModelUnload")
    assert failed.code == "DEADLINE_EXCEEDED"
    assert not [call for call in accepted if isinstance(call.outcome(), Failure)]
    eventually(lambda: "unloaded" in _state(trial, "slow"), within_s=2.0, what="it is unloaded")
    assert psutil.Process(trial.server.pid).is_running()
