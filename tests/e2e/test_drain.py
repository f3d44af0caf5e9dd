"""SIGTERM: what was accepted is finished, what is new is refused, and nothing is left."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.support.calls import Call, Calls, Failure, calls_to, output_of, request_of, rows_of
from tests.support.polling import eventually
from tests.support.running_server import RunningServer, running_server
from tests.support.toy_models import SLOW, write_python_model

RUN_S = 0.1


@contextmanager
def serving_slow(folder: Path, *, run_s: float = RUN_S, grace_s: float = 30.0) -> Iterator[tuple[RunningServer, Calls]]:
    """A server with one model that takes run_s for each request, one at a time."""
    extra = f"[parameters]\ndelay_s = {run_s}"
    write_python_model(folder / "models", "slow", SLOW, extra=extra, max_batch_size=1)
    environment = {"MOORAGE_SERVER__GRACE_S": str(grace_s)}
    with (
        running_server(folder / "models", folder, environment=environment) as server,
        calls_to(server.grpc) as calls,
    ):
        eventually(calls.is_ready, within_s=30, what="the server is ready")
        yield server, calls


def accepted(calls: Calls, count: int) -> list[Call]:
    """Requests of which one runs and the others wait."""
    started = [calls.start(request_of("slow", rows_of(number))) for number in range(count)]
    eventually(lambda: f"{count - 1} rows waiting" in calls.index()["slow"].reason, what="all are accepted")
    return started


def nothing_left(server: RunningServer, workers: list[psutil.Process], shared_before: set[str]) -> None:
    assert not [worker for worker in workers if worker.is_running()]
    assert set(os.listdir("/dev/shm")) <= shared_before


def test_twenty_accepted_requests_are_all_answered(tmp_path: Path) -> None:
    shared_before = set(os.listdir("/dev/shm"))
    with serving_slow(tmp_path) as (server, calls):
        workers = server.workers()
        started = accepted(calls, 20)
        began_s = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        refused = eventually(lambda: late(calls), what="new work is refused")
        assert refused is not None
        assert refused.code == "UNAVAILABLE"
        assert not calls.is_ready()
        outcomes = [call.outcome() for call in started]
        assert [output_of(outcome)[0, 0] for outcome in outcomes] == list(range(20))
        assert server.process.wait(30) == 0
        assert time.monotonic() - began_s < 30.0
        nothing_left(server, workers, shared_before)
    assert "error" not in server.logs


def late(calls: Calls) -> Failure | None:
    outcome = calls.start(request_of("slow", rows_of(-1)), timeout_s=0.05).outcome()
    return outcome if isinstance(outcome, Failure) and outcome.code == "UNAVAILABLE" else None


def test_the_grace_is_an_end(tmp_path: Path) -> None:
    with serving_slow(tmp_path, run_s=5.0, grace_s=0.5) as (server, calls):
        workers = server.workers()
        started = accepted(calls, 3)
        began_s = time.monotonic()
        assert server.terminate() == 1
        assert time.monotonic() - began_s < 5.0
        assert {outcome.code for outcome in (call.outcome() for call in started)} == {"UNAVAILABLE"}
        assert not [worker for worker in workers if worker.is_running()]


def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    with serving_slow(tmp_path, run_s=5.0) as (server, calls):
        workers = server.workers()
        accepted(calls, 3)
        server.process.send_signal(signal.SIGINT)
        eventually(lambda: "draining" in server.logs, what="the drain has begun")
        began_s = time.monotonic()
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(10) == 1
        assert time.monotonic() - began_s < 3.0
        assert not [worker for worker in workers if worker.is_running()]


def test_an_idle_server_ends_at_once(tmp_path: Path) -> None:
    with serving_slow(tmp_path) as (server, _):
        began_s = time.monotonic()
        assert server.terminate() == 0
        assert time.monotonic() - began_s < 5.0
