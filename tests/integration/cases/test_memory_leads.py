"""Smaller reports about memory, one trial each."""

import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.integration.cases.conftest import SharedServer
from tests.integration.cases.ledger import ledger_watched
from tests.support.calls import Call, Failure, output_of, request_of, rows_of
from tests.support.polling import eventually
from tests.support.toy_models import EXPLICIT, SLOW, write_python_model

_FAILING = 10_000
_AT_ONCE = 32
_MIB = 2**20

Parameters = dict[str, bool | int | float | str]

# Waits as long as it is told, and says which run this was.
_ORDER = """
    import time
    import torch
    from moorage import Model

    class Order(Model):
        def load(self, context):
            self.runs = 0

        def infer(self, inputs, batch):
            time.sleep(batch.requests[0].parameters.get("delay_ms", 0) / 1000)
            self.runs += 1
            return {"y": torch.full_like(inputs["x"], self.runs)}
"""

_RAISING = """
    from moorage import Model

    class Raising(Model):
        def infer(self, inputs, batch):
            buffer = inputs["x"].new_zeros(2**14)
            raise RuntimeError("with a buffer in its frame")
"""


@pytest.fixture(scope="module", autouse=True)
def models(shared_server: SharedServer) -> Iterator[None]:
    root, calls = shared_server.models, shared_server.calls
    names = ("order", "scratch", "chosen", "raising")
    write_python_model(root, "raising", _RAISING, top=EXPLICIT, max_batch_size=1)
    write_python_model(root, "order", _ORDER, top=EXPLICIT, max_batch_size=1)
    limit = '[memory]\nworkspace_per_row = "1 MiB"\nlimit = "4 MiB"\n'
    write_python_model(root, "scratch", SLOW, top=EXPLICIT, max_batch_size=8, extra=limit)
    write_python_model(root, "chosen", SLOW, top=EXPLICIT)
    for name in names:
        calls.load(name)
    yield
    for name in names:
        calls.unload(name)


def _lanes_bytes(pid: int) -> int:
    """What the nameless memory behind a process's lanes takes."""
    total = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if "moorage-lane" in os.readlink(entry):
                total += entry.stat().st_blocks * 512
        except OSError:
            continue
    return total


@pytest.mark.timeout(120)
def test_ten_thousand_failing_calls_and_shared_memory(watched: SharedServer) -> None:
    """Triton server #7481: shared memory between server and worker grew, with raised errors under suspicion."""
    calls = watched.calls
    processes = [psutil.Process(watched.server.pid), *watched.server.workers()]
    readings: list[tuple[int, int]] = []
    under_way: deque[Call] = deque()
    for number in range(_FAILING):
        under_way.append(calls.start(request_of("raising", rows_of(1))))
        if len(under_way) == _AT_ONCE:
            outcome = under_way.popleft().outcome()
            assert isinstance(outcome, Failure)
            assert outcome.code == "INTERNAL"
        if number in (1000, _FAILING - 1):
            rss_bytes = sum(process.memory_info().rss for process in processes)
            readings.append((_lanes_bytes(watched.server.pid), rss_bytes))
    assert not [call for call in under_way if not isinstance(call.outcome(), Failure)]
    early, late = readings
    assert late[0] <= early[0] + 64 * 1024, "lanes"
    assert late[1] <= early[1] + 24 * _MIB, "resident memory"
    assert not [name for name in os.listdir("/dev/shm") if "moorage" in name]


def test_scratch_memory_beyond_a_models_limit(watched: SharedServer) -> None:
    """Of the kind of triton server #7148: a pool that is used up makes calls wait or fail, never succeed empty."""
    calls = watched.calls
    with ledger_watched(watched.server.grpc) as ledger:
        for rows in (5, 8):
            refused = calls.failure(request_of("scratch", rows_of(*[1.0] * rows)))
            assert refused.code == "FAILED_PRECONDITION"
            assert refused.figures["bytes_needed"] == str(rows * _MIB)
            assert refused.figures["bytes_capacity"] == str(4 * _MIB)
        parameters: Parameters = {"delay_ms": 5}
        firsts = [float(1 + number % 7) for number in range(100)]
        under_way = [
            calls.start(request_of("scratch", rows_of(*[first] * 3), parameters=parameters)) for first in firsts[:80]
        ]
        for first, call in zip(firsts, under_way, strict=False):
            outcome = call.outcome()
            assert not isinstance(outcome, Failure), outcome
            assert output_of(outcome).tolist() == [[first] * 4] * 3
        assert not ledger.device().leased_bytes.get("workspace")


def test_the_order_is_by_the_callers_priority(watched: SharedServer) -> None:
    """Triton server #7116: the priority was 1 at the edge and 0 where it was to be obeyed."""
    calls = watched.calls
    first = calls.start(request_of("order", rows_of(1), parameters={"delay_ms": 400}))
    priorities: tuple[int | str, ...] = (5, 3, "1", 4, 2, "5", 1)
    eventually(lambda: calls.index()["order"].state == "READY")
    waiting: list[tuple[int, Call]] = []
    for number, priority in enumerate(priorities, 1):
        call = calls.start(request_of("order", rows_of(1), parameters={"priority": priority}))
        eventually(lambda number=number: f"{number} rows waiting" in calls.index()["order"].reason)  # type: ignore[misc]
        waiting.append((int(priority), call))
    assert not first.is_done
    runs = [(output_of(call.outcome())[0, 0], priority) for priority, call in waiting]
    assert [priority for _, priority in sorted(runs)] == sorted(priority for priority, _ in waiting)


def test_parameters_of_requests_never_load_a_model_again(watched: SharedServer) -> None:
    """Ollama PR #8029: two clients with different options made one model reload back and forth."""
    calls = watched.calls
    with ledger_watched(watched.server.grpc) as ledger:
        before = ledger.counts()["chosen"]
        for number in range(40):
            parameters: Parameters = {"context_length": 2048 * (1 + number % 2), "gpu_layers": number % 3}
            assert output_of(calls.infer(request_of("chosen", rows_of(number), parameters=parameters)))[0, 0] == number
            if number % 10 == 0:
                calls.load("chosen")
        assert ledger.counts()["chosen"] == before
        assert before.loads == 1
