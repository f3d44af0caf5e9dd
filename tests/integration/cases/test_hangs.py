"""Models that never come back, and models that take their worker along: nothing waits for ever."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage_client import SyncClient
from moorage_protocol import inference as pb
from tests.support.calls import Calls, Failure, calls_to, output_of, request_of, rows_of
from tests.support.polling import eventually
from tests.support.running_server import RunningServer, running_server
from tests.support.toy_models import ECHO, write_python_model

HANG_TIMEOUT_S = 0.5

# Hangs in infer where a row's first value is 1, in unload where the model has seen a 2; a 666 ends the process.
TREACHEROUS = """
    import os
    import threading
    import time
    from moorage import Model

    class Treacherous(Model):
        def load(self, context):
            self.hangs = False

        def infer(self, inputs, batch):
            first = inputs["x"][:, 0]
            if (first == 666).any():
                os._exit(7)
            if (first == 1).any():
                threading.Event().wait()
            if (first == 3).any():
                time.sleep(0.5)
            self.hangs |= bool((first == 2).any())
            return {"y": inputs["x"]}

        def unload(self):
            if self.hangs:
                threading.Event().wait()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningServer, Calls, Path]]:
    folder = tmp_path_factory.mktemp("hangs")
    models = folder / "models"
    write_python_model(models, "treacherous", TREACHEROUS)
    write_python_model(models, "echo", ECHO)
    environment = {"MOORAGE_SERVER__HANG_TIMEOUT_S": str(HANG_TIMEOUT_S)}
    with running_server(models, folder, environment=environment) as running, calls_to(running.grpc) as calls:
        eventually(calls.is_ready, within_s=30, what="the server is ready")
        yield running, calls, models


def ask(calls: Calls, number: float, timeout_s: float = 20.0) -> object:
    return calls.start(request_of("treacherous", rows_of(number)), timeout_s=timeout_s).outcome()


def answered(calls: Calls, number: float) -> bool:
    outcome = ask(calls, number)
    return not isinstance(outcome, Failure) and output_of(outcome)[0, 0] == number  # type: ignore[arg-type]


def test_a_run_that_never_ends_is_ended(server: tuple[RunningServer, Calls, Path]) -> None:
    _, calls, _ = server
    hung = ask(calls, 1, timeout_s=0.3)
    assert isinstance(hung, Failure)
    assert hung.code == "DEADLINE_EXCEEDED"
    eventually(lambda: answered(calls, 5), within_s=15, what="the model serves again")


def test_a_run_whose_caller_gives_up_is_ended_long_before_the_deadline(
    server: tuple[RunningServer, Calls, Path],
) -> None:
    running, calls, _ = server
    call = calls.start(request_of("treacherous", rows_of(1)), timeout_s=3600.0)
    with SyncClient(running.grpc) as client:
        eventually(lambda: any(model.running_requests for model in client.snapshot().models), what="it runs")
    call.cancel()
    eventually(lambda: answered(calls, 5), within_s=15, what="the model serves again")


def test_a_model_that_hangs_can_be_unloaded(server: tuple[RunningServer, Calls, Path]) -> None:
    _, calls, _ = server
    ask(calls, 1, timeout_s=0.3)
    calls.unload("treacherous", timeout_s=10)
    calls.load("treacherous")
    assert answered(calls, 5)


def test_an_unload_that_never_ends_is_ended(server: tuple[RunningServer, Calls, Path]) -> None:
    _, calls, _ = server
    assert answered(calls, 2)
    calls.unload("treacherous", timeout_s=10)
    calls.load("treacherous")
    assert answered(calls, 5)


def test_a_request_that_kills_workers_does_not_take_its_batch_mates_along(
    server: tuple[RunningServer, Calls, Path],
) -> None:
    running, calls, _ = server
    busy = calls.start(request_of("treacherous", rows_of(3)))
    mates = [calls.start(request_of("treacherous", rows_of(number))) for number in (10, 666, 11, 12)]
    assert not isinstance(busy.outcome(), Failure)
    outcomes = [mate.outcome() for mate in mates]
    assert [output_of(outcomes[index])[0, 0] for index in (0, 2, 3)] == [10, 11, 12]
    killer = outcomes[1]
    assert isinstance(killer, Failure)
    assert killer.code == "UNAVAILABLE"
    assert "3 times under this request" in killer.message
    assert "status 7" in running.logs


def test_a_broken_folder_that_comes_later_is_listed_until_it_is_mended(
    server: tuple[RunningServer, Calls, Path],
) -> None:
    _, calls, models = server
    folder = write_python_model(models, "late", ECHO)
    good = (folder / "model.toml").read_text()
    (folder / "model.toml").write_text("runtime = 7\n" + good.replace("runtime", "# runtime"))
    failed = calls.failure(_load("late"), method="RepositoryModelLoad")
    assert failed.code == "FAILED_PRECONDITION"
    assert "runtime" in calls.index()["late"].reason
    (folder / "model.toml").write_text(good)
    calls.load("late")
    assert calls.index()["late"].state == "READY"


def test_a_model_that_can_do_nothing_is_refused(server: tuple[RunningServer, Calls, Path]) -> None:
    _, calls, models = server
    write_python_model(models, "idle", "from moorage import Model\n\nclass Idle(Model):\n    pass\n")
    failed = calls.failure(_load("idle"), method="RepositoryModelLoad")
    assert failed.code == "FAILED_PRECONDITION"
    assert "does not define infer" in failed.message
    assert "BrokenContract" not in failed.message


def _load(name: str) -> pb.RepositoryModelLoadRequest:
    return pb.RepositoryModelLoadRequest(model_name=name)
