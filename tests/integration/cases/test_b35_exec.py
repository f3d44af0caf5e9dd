"""B35: workers are started by exec while calls are under way, and inherit nothing of the server's but their sockets."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.integration.cases.conftest import SharedServer
from tests.support.after_check import Baseline, after_check
from tests.support.calls import Calls, Failure, calls_to, request_of, rows_of
from tests.support.polling import eventually
from tests.support.running_server import RunningServer, running_server
from tests.support.sentinel import sentinel
from tests.support.toy_models import DEDICATED, ECHO, write_python_model, write_simulated_model
from tests.support.worker_processes import kill, pids

_VICTIMS = [f"victim{number}" for number in range(5)]
_ROUNDS = 10
_UP_WITHIN_S = 5.0  # a simulated worker takes about 0.3 s; there are five at once, on few processors, under load


@pytest.fixture(scope="module")
def server_of_many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedServer]:
    folder = tmp_path_factory.mktemp("exec")
    for name in _VICTIMS:
        write_simulated_model(folder / "models", name, run_s=0.01, extra=DEDICATED)
    write_python_model(folder / "models", "echo", ECHO)
    with running_server(folder / "models", folder) as server, calls_to(server.grpc) as calls:
        eventually(calls.is_ready, within_s=50.0, what="the server is ready")
        yield SharedServer(server, folder / "models", calls, Baseline.of(server, calls))


def _is_echo(pid: int) -> bool:
    return any("torch" in region.path for region in psutil.Process(pid).memory_maps())


def _inherited(pid: int) -> dict[int, str]:
    """What a process has open, by descriptor."""
    folder = Path(f"/proc/{pid}/fd")
    found = {}
    for entry in folder.iterdir():
        try:
            found[int(entry.name)] = os.readlink(entry)
        except OSError:
            continue  # closed meanwhile
    return found


def _check_descriptors(server: RunningServer) -> None:
    """Sockets that are no network's, memory without a name, the log, and for a moment what the kernel says of it."""
    for pid in pids(server):
        assert psutil.Process(pid).net_connections(kind="inet") == []
        assert all(not connection.laddr for connection in psutil.Process(pid).net_connections(kind="unix"))
        strange = [
            target
            for descriptor, target in _inherited(pid).items()
            if not target.startswith(("socket:", "/memfd:moorage-lane", "/dev/null", "/dev/urandom", f"/proc/{pid}/"))
            and not (descriptor in (1, 2) and target == str(server.log_file))
        ]
        assert not strange, strange


@contextmanager
def _traffic(target: str, outcomes: list[object]) -> Iterator[None]:
    """Calls of all the victims, over and over; how each ended."""
    stop = threading.Event()

    def run() -> None:
        with calls_to(target) as calls:
            while not stop.is_set():
                under_way = [calls.start(request_of(name, rows_of(1))) for name in _VICTIMS]
                outcomes.extend(call.outcome() for call in under_way)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.timeout(180)
def test_fifty_workers_killed_under_load(server_of_many: SharedServer) -> None:
    server, calls = server_of_many.server, server_of_many.calls
    outcomes: list[object] = []
    with sentinel(server.grpc), _traffic(server.grpc, outcomes):
        seen = pids(server)
        victims = {pid for pid in seen if not _is_echo(pid)}
        assert len(victims) == len(_VICTIMS)
        for _ in range(_ROUNDS):
            for pid in victims:
                kill(pid)
            began_s = time.monotonic()
            victims = eventually(lambda seen=seen: _new(server, seen), within_s=15.0, what="five new workers")  # type: ignore[misc]
            eventually(lambda: all(map(calls.is_model_ready, _VICTIMS)), within_s=15.0, what="all are ready")
            assert time.monotonic() - began_s < _UP_WITHIN_S
            _check_descriptors(server)
            seen |= victims
            victims = _loaded_again(server, calls, seen)
            seen |= victims
    failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    assert all(failed.code == "UNAVAILABLE" and failed.retry_after_s for failed in failures), failures[:3]
    assert len(outcomes) >= 4 * len(_VICTIMS)
    assert "fork" not in server.logs.lower()
    after_check(server, calls, server_of_many.baseline)


def _loaded_again(server: RunningServer, calls: Calls, seen: set[int]) -> set[int]:
    """The victims' workers after an unload and a load of each: started for the first time, so no back-off grows."""
    for name in _VICTIMS:
        calls.unload(name)
        calls.load(name)
    return eventually(lambda: _new(server, seen), within_s=15.0, what="five workers of loaded models")


def _new(server: RunningServer, seen: set[int]) -> set[int]:
    fresh = pids(server) - seen
    return fresh if len(fresh) == len(_VICTIMS) else set()


def test_workers_are_programs_of_their_own(server_of_many: SharedServer) -> None:
    server = server_of_many.server
    own = psutil.Process(server.pid)
    for worker in server.workers():
        assert worker.ppid() == server.pid
        assert worker.cmdline() != own.cmdline()
        assert os.getsid(worker.pid) == worker.pid, "a signal to the terminal's group is not for workers"
        assert not any("grpc" in region.path for region in worker.memory_maps()), "workers do not load gRPC"
