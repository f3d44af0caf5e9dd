"""kill -9 of workers under load: no request hangs, none is lost silently, and a neighbour does not feel it."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.after_check import Baseline, after_check
from tests.support.calls import Call, Calls, Failure, calls_to, output_of, request_of, rows_of
from tests.support.polling import eventually
from tests.support.running_server import running_server
from tests.support.sentinel import percentile
from tests.support.toy_models import DEDICATED, ECHO, EXPLICIT, SLOW, write_python_model, write_simulated_model
from tests.support.worker_processes import kill, load_alone, pids

_REQUESTS = 200


@pytest.mark.timeout(90)
def test_two_hundred_requests_lose_their_worker(tmp_path: Path) -> None:
    models = tmp_path / "models"
    write_python_model(models, "slow", SLOW, extra="[parameters]\ndelay_s = 0.05\n")
    write_python_model(models, "echo", ECHO)
    with running_server(models, tmp_path) as server, calls_to(server.grpc) as calls:
        eventually(calls.is_ready, within_s=50.0, what="the server is ready")
        before = Baseline.of(server, calls)
        answers = [calls.start(request_of("slow", rows_of(number)), 30.0) for number in range(_REQUESTS)]
        eventually(lambda: sum(call.is_done for call in answers) > 20, what="some are answered")
        for pid in pids(server):
            kill(pid)
        eventually(lambda: not calls.is_model_ready("slow"), within_s=1.0, what="it is seen")
        assert calls.is_live()
        assert _answered(answers) > _REQUESTS // 2, "a worker back in seconds: waiting requests wait for it"
        after_check(server, calls, before)


def _answered(under_way: list[Call]) -> int:
    """How many got their own data back. The others were told to come again, and nobody anything else."""
    answered = 0
    for number, call in enumerate(under_way):
        outcome = call.outcome()
        if isinstance(outcome, Failure):
            assert outcome.code == "UNAVAILABLE", outcome
            assert outcome.retry_after_s, outcome
        else:
            assert output_of(outcome).tolist() == [[number] * 4]
            answered += 1
    return answered


@contextmanager
def _measured(target: str, model: str) -> Iterator[list[tuple[float, float]]]:
    """Call a model over and over during the block: when each call began, and the seconds it took."""
    calls: list[tuple[float, float]] = []
    stop = threading.Event()

    def run(own: Calls) -> None:
        while not stop.wait(0.005):
            began_s = time.monotonic()
            own.infer(request_of(model, rows_of(1)))
            calls.append((began_s, time.monotonic() - began_s))

    with calls_to(target) as own:
        thread = threading.Thread(target=run, args=(own,))
        thread.start()
        try:
            yield calls
        finally:
            stop.set()
            thread.join()


@pytest.mark.timeout(90)
def test_a_dedicated_models_crash_is_not_felt_by_another(tmp_path: Path) -> None:
    """Windows with and without a crash come in turn, so that the machine's own moods fall on both alike.

    The bound: p99 within three times the undisturbed one, and 20 ms for what starting a process takes of the
    processors. A neighbour that shared the fate would wait for a new worker: hundreds of milliseconds, or fail.
    """
    models = tmp_path / "models"
    write_simulated_model(models, "neighbour")
    names = [f"victim{number}" for number in range(4)]
    for name in names:
        write_simulated_model(models, name, extra=DEDICATED, top=EXPLICIT)
    with running_server(models, tmp_path) as server, calls_to(server.grpc) as calls:
        eventually(calls.is_ready, within_s=50.0, what="the server is ready")
        victims = [load_alone(server, calls, name) for name in names]
        quiet: list[float] = []
        disturbed: list[float] = []
        with _measured(server.grpc, "neighbour") as measured:
            for name, pid in zip(names, victims, strict=True):
                _add_window(measured, quiet)
                crash = calls.start(request_of(name, rows_of(1)))
                kill(pid)
                _add_window(measured, disturbed)
                assert not isinstance(crash.outcome(), Failure)
        assert len(disturbed) > 100
        assert percentile(disturbed, 0.99) < 3 * percentile(quiet, 0.99) + 0.02, (
            f"p99 {percentile(disturbed, 0.99):.4f} s disturbed, {percentile(quiet, 0.99):.4f} s quiet"
        )


def _add_window(measured: list[tuple[float, float]], into: list[float]) -> None:
    """Half a second of calls."""
    first = len(measured)
    time.sleep(0.5)
    into.extend(seconds for _, seconds in measured[first:])
