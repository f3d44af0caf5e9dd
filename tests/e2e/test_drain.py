"""SIGTERM finishes what was accepted and leaves nothing; a second one does not wait."""

import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.support.calls import Failure, calls_to, output_of, request_of, rows_of
from tests.support.polling import eventually
from tests.support.running_server import RunningServer, running_server
from tests.support.shared_memory import shared_memory
from tests.support.toy_models import ECHO, EXPLICIT, SLOW, write_python_model, write_simulated_model


def _family(server: RunningServer) -> list[psutil.Process]:
    return psutil.Process(server.pid).children(recursive=True)


def _live(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [process for process in processes if process.is_running()]


def test_twenty_requests_running_and_queued_are_all_answered(tmp_path: Path) -> None:
    models = tmp_path / "models"
    write_python_model(models, "slow", SLOW, max_batch_size=2, extra="[parameters]\ndelay_s = 0.1\n")
    write_python_model(models, "echo", ECHO)
    before = shared_memory()
    with running_server(models, tmp_path) as server, calls_to(server.grpc) as calls:
        eventually(calls.is_ready, within_s=50.0, what="the server is ready")
        family = _family(server)
        assert family
        assert shared_memory() > before, "lanes are seen while they are there"
        under_way = [calls.start(request_of("slow", rows_of(number))) for number in range(20)]
        eventually(lambda: "rows waiting" in calls.index()["slow"].reason, what="they run and wait")
        began_s = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: not calls.is_ready(), within_s=0.5, what="it says that it goes")
        assert calls.is_live(), "it still answers those who ask"
        assert not calls.is_model_ready("echo")
        refused = calls.failure(request_of("echo", rows_of(1)))
        assert refused.code == "UNAVAILABLE"
        assert refused.retry_after_s
        answers = [output_of(call.outcome())[0, 0] for call in under_way]
        assert answers == list(range(20))
        assert server.process.wait(20.0) == 0
        assert time.monotonic() - began_s < 20.0, "well within the grace of 30 s"
        assert not _live(family)
    assert shared_memory() <= before
    assert "Traceback" not in server.logs


def test_without_work_it_ends_at_once(tmp_path: Path) -> None:
    write_simulated_model(tmp_path / "models", "idle")
    with running_server(tmp_path / "models", tmp_path) as server, calls_to(server.grpc) as calls:
        eventually(calls.is_ready, what="the server is ready")
        began_s = time.monotonic()
        assert server.terminate() == 0
        assert time.monotonic() - began_s < 4.0


def test_ctrl_c_drains_as_well(tmp_path: Path) -> None:
    write_simulated_model(tmp_path / "models", "slow", run_s=0.3)
    with running_server(tmp_path / "models", tmp_path) as server, calls_to(server.grpc) as calls:
        eventually(calls.is_ready, what="the server is ready")
        call = calls.start(request_of("slow", rows_of(1)))
        eventually(lambda: calls.statistics()["slow"] is not None and not call.is_done)
        time.sleep(0.05)
        server.process.send_signal(signal.SIGINT)
        assert not isinstance(call.outcome(), Failure)
        assert server.process.wait(20.0) == 0


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_does_not_wait(tmp_path: Path, second: signal.Signals) -> None:
    models = tmp_path / "models"
    write_simulated_model(models, "endless", run_s=20.0)
    with running_server(models, tmp_path) as server, calls_to(server.grpc) as calls:
        eventually(calls.is_ready, what="the server is ready")
        family = _family(server)
        under_way = [calls.start(request_of("endless", rows_of(1))) for _ in range(3)]
        eventually(lambda: "rows waiting" in calls.index()["endless"].reason, what="one runs")
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: not calls.is_ready(), what="it drains")
        began_s = time.monotonic()
        server.process.send_signal(second)
        assert server.process.wait(10.0) == 1
        assert time.monotonic() - began_s < 3.0
        assert not _live(family)
        outcomes = [call.outcome() for call in under_way]
        assert {outcome.code for outcome in outcomes} <= {"UNAVAILABLE", "CANCELLED"}


def test_what_takes_longer_than_the_grace_is_given_up(tmp_path: Path) -> None:
    models = tmp_path / "models"
    write_simulated_model(models, "endless", run_s=20.0)
    write_simulated_model(models, "other", top=EXPLICIT)
    grace = {"MOORAGE_SERVER__GRACE_S": "0.5"}
    with running_server(models, tmp_path, environment=grace) as server, calls_to(server.grpc) as calls:
        eventually(calls.is_ready, what="the server is ready")
        family = _family(server)
        call = calls.start(request_of("endless", rows_of(1)))
        time.sleep(0.2)
        began_s = time.monotonic()
        assert server.terminate() == 1
        assert time.monotonic() - began_s < 4.0
        assert not _live(family)
        assert isinstance(call.outcome(), Failure)
