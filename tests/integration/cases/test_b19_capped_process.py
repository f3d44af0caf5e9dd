"""B19 where memory really runs out: in a process that may have some rows' worth of it, and no more."""

import random
import resource
from collections.abc import Iterator

import psutil
import pytest

from moorage_client import SyncClient
from tests.integration.cases.conftest import SharedServer
from tests.support.calls import Call, Calls, Failure, Tensor, output_of, request_of, rows_of
from tests.support.onnx_models import ROW_BYTES, save_hungry
from tests.support.toy_models import DEDICATED, EXPLICIT, write_python_model
from tests.support.worker_processes import load_alone

_TOUCHED_BYTES = 2**20  # of each row
_ROUNDS = 10
# Of 512 MiB that it would like to have, onnxruntime's arena takes nine tenths of nine tenths where that is there. What
# it leaves has to be enough for all else in the process.
_HUNGRY_ROWS = 14
_HUGE = -1.0  # takes twenty rows' worth by itself

# Every row takes 32 MiB while it runs, in a block of its own, as malloc keeps none so large, and writes to 256 pages.
_TIGHT = """
    import resource
    import time
    import torch
    from moorage import Model

    ROW_BYTES = 32 * 2**20

    class Tight(Model):
        def load(self, context):
            self.limited = False

        def limit(self):
            time.sleep(0.3)  # so that the next run is full
            with open("/proc/self/statm") as file:
                used = int(file.read().split()[0]) * resource.getpagesize()
            limit = used + 12 * ROW_BYTES
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            self.limited = True

        def infer(self, inputs, batch):
            if not self.limited:
                self.limit()  # not before: the lane's memory counts too
            x = inputs["x"]
            rows = int(torch.where(x[:, 0] == -1, 20, 1).sum())
            space = []
            for _ in range(rows):
                space.append(torch.empty(ROW_BYTES, dtype=torch.uint8))
                space[-1][:: 2**17] = 1
            y = x + 1
            y[:, 1] = batch.rows
            return {"y": y}
"""


@pytest.fixture
def tight(watched: SharedServer) -> Iterator[int]:
    """The model's process."""
    extra = "[scheduling]\nmax_queue_rows = 4096\n" + DEDICATED
    write_python_model(watched.models, "tight", _TIGHT, top=EXPLICIT, max_batch_size=16, extra=extra)
    yield load_alone(watched.server, watched.calls, "tight")
    watched.calls.unload("tight")


def _start(calls: Calls, *values: float) -> Call:
    return calls.start(request_of("tight", rows_of(*values)))


def _limit(calls: Calls) -> None:
    """Its first run draws the limit."""
    assert not isinstance(_start(calls, 0.0).outcome(), Failure)


def _out_of_memory(shared: SharedServer, name: str = "tight") -> int:
    with SyncClient(shared.server.grpc) as client:
        model = next(model for model in client.snapshot().models if model.name == name)
    return model.residency_counts.out_of_memory


def test_no_room_for_whole_batches_is_room_for_everybody_in_smaller_ones(watched: SharedServer, tight: int) -> None:
    """A thousand requests of one row, of which sixteen would share a run: no room for that, but for half of it."""
    calls, chance, sent = watched.calls, random.Random(4), 0
    while sent < 1000:
        burst = min(chance.randint(1, 48), 1000 - sent) if sent else 48  # these wait until the limit is drawn
        under_way = [_start(calls, float(sent + number)) for number in range(burst)]
        for number, call in enumerate(under_way):
            outcome = call.outcome()
            assert not isinstance(outcome, Failure), outcome
            assert output_of(outcome)[0, 0] == sent + number + 1
        sent += burst
    assert 1 <= _out_of_memory(watched) <= 3


def test_what_used_to_fit_fits_after_what_does_not(watched: SharedServer, tight: int) -> None:
    """Nothing is kept of the rows that were there when the next one was not: eight would not fit beside them."""
    calls, process = watched.calls, psutil.Process(tight)
    _limit(calls)
    resident_bytes = []
    for _ in range(_ROUNDS):
        for rows in (4, 16, 4, 8):
            outcome = calls.start(request_of("tight", _rows(rows))).outcome()
            if rows == 16:
                assert isinstance(outcome, Failure)
                assert outcome.code == "RESOURCE_EXHAUSTED"
                resident_bytes.append(process.memory_info().rss)
            else:
                assert output_of(outcome).shape == (rows, 4)
    assert max(resident_bytes) - resident_bytes[0] < 4 * _TOUCHED_BYTES, "grows"
    assert process.is_running()


def _rows(rows: int) -> Tensor:
    return rows_of(*map(float, range(rows)))


def test_a_request_that_can_never_fit_is_refused_and_its_neighbours_are_served(
    watched: SharedServer, tight: int
) -> None:
    calls = watched.calls
    before = [_start(calls, float(number)) for number in range(8)]
    too_large = calls.start(request_of("tight", _rows(16)))
    behind = [_start(calls, float(number)) for number in range(8)]
    _check_refused(too_large)
    for number, call in enumerate([*before, *behind]):
        assert output_of(call.outcome())[0, 0] == number % 8 + 1


def test_a_single_row_that_can_never_fit_is_refused_and_those_in_its_run_are_served(
    watched: SharedServer, tight: int
) -> None:
    """They wait for the model together, and would fit but for that one."""
    calls = watched.calls
    first = _start(calls, 0.0)
    values = [float(number) for number in range(8)]
    values[4] = _HUGE
    under_way = [_start(calls, value) for value in values]
    _check_refused(under_way.pop(4))
    values.pop(4)
    for value, call in zip(values, under_way, strict=True):
        assert output_of(call.outcome())[0, 0] == value + 1
    assert not isinstance(first.outcome(), Failure)
    assert _out_of_memory(watched) >= 2, "of all, and of the one by itself"
    _check_refused(_start(calls, _HUGE))
    assert not isinstance(_start(calls, 1.0).outcome(), Failure)


def _check_refused(call: Call) -> None:
    failed = call.outcome()
    assert isinstance(failed, Failure)
    assert failed.code == "RESOURCE_EXHAUSTED"
    assert failed.retry_after_s


@pytest.fixture
def hungry(watched: SharedServer) -> Iterator[int]:
    """The process of a model of runtime = "onnx"."""
    extra = "[scheduling]\nmax_queue_rows = 4096\n" + DEDICATED
    folder = write_python_model(watched.models, "hungry", "", top=EXPLICIT, max_batch_size=16, extra=extra)
    manifest = folder / "model.toml"
    manifest.write_text(manifest.read_text().replace('"python"', '"onnx"'))
    save_hungry(folder / "1" / "model.onnx")
    yield load_alone(watched.server, watched.calls, "hungry")
    watched.calls.unload("hungry")


def test_onnxruntime_that_finds_no_memory_is_asked_for_less(watched: SharedServer, hungry: int) -> None:
    """Its exceptions are not those of Python or torch."""
    calls = watched.calls
    calls.infer(request_of("hungry", rows_of(0.0)))
    limit_bytes = psutil.Process(hungry).memory_info().vms + _HUNGRY_ROWS * ROW_BYTES
    resource.prlimit(hungry, resource.RLIMIT_AS, (limit_bytes, limit_bytes))
    under_way = [calls.start(request_of("hungry", rows_of(float(number)))) for number in range(96)]
    for number, call in enumerate(under_way):
        outcome = call.outcome()
        assert not isinstance(outcome, Failure), outcome
        assert output_of(outcome).tolist() == [[number + 1.0] * 4]
    assert 1 <= _out_of_memory(watched, "hungry") <= 3
    _check_refused(calls.start(request_of("hungry", _rows(16))))
    assert output_of(calls.infer(request_of("hungry", rows_of(1.0)))).tolist() == [[2.0] * 4]
    assert psutil.Process(hungry).is_running()
