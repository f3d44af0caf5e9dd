"""B22: a worker that dies takes nobody else down, hangs no call, shows in readiness, and is back by itself.

Every model here has a worker of its own, so that each trial kills one that nobody has killed before; the sentinel's
model is another's neighbour all through.
"""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from moorage_protocol import inference as pb
from tests.integration.cases.conftest import SharedServer
from tests.support.after_check import Baseline, after_check
from tests.support.calls import Call, Failure, calls_to, output_of, request_of, rows_of
from tests.support.polling import eventually
from tests.support.running_server import running_server
from tests.support.sentinel import sentinel
from tests.support.toy_models import DEDICATED, ECHO, EXPLICIT, write_python_model, write_simulated_model
from tests.support.worker_processes import gone, kill, load_alone, next_pid, pids

_NOTICED_S = 2.0  # documented: five heartbeats of 0.2 s missed; the rest is the machine's
_MEMORY = '[memory]\nweights = "8 MiB"\n'

# Keeps the interpreter's lock, as a native library may that forgets to release it.
_HOLDS_THE_LOCK = """
    import ctypes
    from moorage import Model

    class HoldsTheLock(Model):
        def infer(self, inputs, batch):
            ctypes.PyDLL(None).usleep(3_000_000)
            return {"y": inputs["x"]}
"""

_EXITS = """
    import os
    from moorage import Model

    class Exits(Model):
        def load(self, context):
            os._exit(1)

        def infer(self, inputs, batch):
            return {}
"""

_SEGFAULTS = """
    import ctypes
    from moorage import Model

    class Segfaults(Model):
        def load(self, context):
            ctypes.string_at(0)

        def infer(self, inputs, batch):
            return {}
"""


@pytest.fixture(scope="module")
def killing_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedServer]:
    folder = tmp_path_factory.mktemp("killed")
    models = folder / "models"
    write_python_model(models, "echo", ECHO, extra=DEDICATED + _MEMORY)
    write_simulated_model(models, "left", extra=_MEMORY)
    write_simulated_model(models, "right", extra=_MEMORY)
    for name in ("idle", "stopped", "often"):
        write_simulated_model(models, name, top=EXPLICIT, extra=DEDICATED + _MEMORY)
    write_simulated_model(models, "busy", run_s=0.3, max_batch_size=1, top=EXPLICIT, extra=DEDICATED + _MEMORY)
    write_simulated_model(models, "loading", load_s=1.0, top=EXPLICIT, extra=DEDICATED + _MEMORY)
    write_python_model(models, "holds", _HOLDS_THE_LOCK, top=EXPLICIT, extra=DEDICATED)
    write_python_model(models, "exits", _EXITS, top=EXPLICIT)
    write_python_model(models, "segfaults", _SEGFAULTS, top=EXPLICIT, extra=DEDICATED)
    with running_server(models, folder) as server, calls_to(server.grpc) as calls:
        eventually(calls.is_ready, within_s=50.0, what="the server is ready")
        yield SharedServer(server, models, calls, Baseline.of(server, calls))


@pytest.fixture
def trial(killing_server: SharedServer) -> Iterator[SharedServer]:
    """Sentinel beside, after-check behind; what a trial loaded it unloads."""
    with sentinel(killing_server.server.grpc):
        yield killing_server
    for name, entry in killing_server.calls.index().items():
        if name not in ("echo", "left", "right") and "unloaded" not in entry.reason:
            killing_server.calls.unload(name)
    after_check(killing_server.server, killing_server.calls, killing_server.baseline)


def _all_end_well(under_way: list[Call]) -> int:
    """How many were answered; the others must have been told to come again."""
    outcomes = [call.outcome() for call in under_way]
    failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    assert all(failed.code == "UNAVAILABLE" and failed.retry_after_s for failed in failures), failures
    return len(outcomes) - len(failures)


def test_idle(trial: SharedServer) -> None:
    pid = load_alone(trial.server, trial.calls, "idle")
    held = trial.calls.memory_bytes()
    kill(pid)
    eventually(lambda: not trial.calls.is_model_ready("idle"), within_s=1.0, what="it is seen")
    assert trial.calls.is_live()
    eventually(lambda: trial.calls.is_model_ready("idle"), what="it is back")
    assert trial.calls.memory_bytes() == held, "released once, charged once"
    assert output_of(trial.calls.infer(request_of("idle", rows_of(1)))).tolist() == [[0.0] * 4]
    assert "ended by SIGKILL" in trial.server.logs


def test_in_a_request_with_five_queued(trial: SharedServer) -> None:
    pid = load_alone(trial.server, trial.calls, "busy")
    under_way = [trial.calls.start(request_of("busy", rows_of(number))) for number in range(6)]
    eventually(lambda: "5 rows waiting" in trial.calls.index()["busy"].reason, what="five are queued")
    kill(pid)
    assert _all_end_well(under_way) == 6, "inference is idempotent: a request is tried again on the next worker"


def test_during_a_load(trial: SharedServer) -> None:
    before = pids(trial.server)
    load = trial.calls.start(pb.RepositoryModelLoadRequest(model_name="loading"), method="RepositoryModelLoad")
    pid = next_pid(trial.server, before)
    eventually(lambda: "waiting" not in trial.calls.index()["loading"].reason, what="it is being built")
    kill(pid)
    assert not isinstance(load.outcome(), Failure)
    assert trial.calls.is_model_ready("loading")


@pytest.mark.timeout(90)
def test_five_times_in_a_row(trial: SharedServer) -> None:
    known = pids(trial.server)
    pid = load_alone(trial.server, trial.calls, "often")
    kill(pid)
    began_s = time.monotonic()
    for _ in range(4):
        known.add(pid)
        pid = next_pid(trial.server, known)
        kill(pid)
    assert time.monotonic() - began_s > 0.5 + 1.0 + 2.0, "it is started again later each time"
    eventually(lambda: "ended by SIGKILL" in trial.calls.index()["often"].reason, within_s=2.0, what="the reason shows")
    assert not trial.calls.is_model_ready("often")
    refused = trial.calls.failure(request_of("often", rows_of(1)))
    assert refused.code == "UNAVAILABLE"
    assert "in a row" in refused.message
    assert refused.retry_after_s
    assert refused.seconds < 1.0
    assert trial.calls.is_live()
    eventually(lambda: trial.calls.is_model_ready("often"), within_s=20.0, what="it is back")
    assert trial.calls.infer(request_of("often", rows_of(1))).outputs


def test_stopped_rather_than_killed(trial: SharedServer) -> None:
    pid = load_alone(trial.server, trial.calls, "stopped")
    os.kill(pid, signal.SIGSTOP)
    call = trial.calls.start(request_of("stopped", rows_of(1)))
    assert 0.5 < gone(pid, within_s=5.0) < _NOTICED_S
    assert _all_end_well([call]) == 1
    assert "no sign of life" in trial.server.logs


def test_a_model_that_holds_the_interpreter_is_not_taken_for_dead(trial: SharedServer) -> None:
    pid = load_alone(trial.server, trial.calls, "holds")
    call = trial.calls.start(request_of("holds", rows_of(5)))
    assert output_of(call.outcome()).tolist() == [[5.0] * 4]
    assert call.seconds > 2.9
    assert psutil.Process(pid).is_running()


@pytest.mark.timeout(90)
def test_a_load_that_ends_its_worker_is_given_up_and_the_others_come_back(trial: SharedServer) -> None:
    failed = trial.calls.failure(pb.RepositoryModelLoadRequest(model_name="exits"), 60.0, "RepositoryModelLoad")
    assert failed.code == "FAILED_PRECONDITION"
    assert "exited with status 1" in failed.message
    assert "exited with status 1" in trial.calls.index()["exits"].reason
    for name in ("left", "right"):
        eventually(lambda name=name: trial.calls.is_model_ready(name), what=f"{name} is back")  # type: ignore[misc]
    assert trial.server.logs.count("ended: exited with status 1") == 3


@pytest.mark.timeout(90)
def test_a_load_that_crashes_is_given_up(trial: SharedServer) -> None:
    failed = trial.calls.failure(pb.RepositoryModelLoadRequest(model_name="segfaults"), 60.0, "RepositoryModelLoad")
    assert failed.code == "FAILED_PRECONDITION"
    assert "SIGSEGV" in failed.message


def test_folder_of_the_trial(killing_server: SharedServer, tmp_path: Path) -> None:
    """Nothing of all this leaves a core or any other file behind."""
    assert {path.name for path in killing_server.models.parent.iterdir()} == {
        "models",
        killing_server.server.log_file.name,
    }
