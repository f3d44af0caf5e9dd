"""Requests with more rows than a run may have, on a model that splits them: one answer, one error, one count."""

import random
from collections.abc import Iterator

import numpy as np
import pytest

from moorage_client import SyncClient
from tests.integration.cases.conftest import SharedServer
from tests.support.calls import Call, Failure, output_of, request_of, rows_of
from tests.support.polling import eventually
from tests.support.stepped_models import RUNNING
from tests.support.toy_models import DEDICATED, EXPLICIT, POISON, SLOW, write_python_model

_SPLIT = "[batching]\nsplit_requests = true\n"
_MOST_ROWS = 8

# Each row for itself. It fails where its run is larger than it may be, or not told the request's id.
_CURVED = """
    from moorage import Model

    class Curved(Model):
        def infer(self, inputs, batch):
            asked = batch.requests[0]
            assert asked.id == "an id"
            assert batch.rows == len(inputs["x"]) <= asked.parameters["most_rows"]
            return {"y": inputs["x"] / (inputs["x"].abs() + 1)}
"""

_SHOUT = """
    from moorage import Model

    class Shout(Model):
        def infer(self, inputs, batch):
            words = [word.upper() * 2 for word in inputs["x"]]
            return {"y": [words[first : first + 2] for first in range(0, len(words), 2)]}
"""

# As many columns as the first row's first number says.
_WIDE = """
    from moorage import Model

    class Wide(Model):
        def infer(self, inputs, batch):
            return {"y": inputs["x"][:, : int(inputs["x"][0, 0])]}
"""

# Every row takes 32 MiB while it runs, of a process that may not have more than 5 of them.
_TIGHT = """
    import resource
    import torch
    from moorage import Model

    ROW_BYTES = 32 * 2**20

    class Tight(Model):
        def load(self, context):
            self.limited = False

        def limit(self):
            with open("/proc/self/statm") as file:
                used = int(file.read().split()[0]) * resource.getpagesize()
            limit = used + 5 * ROW_BYTES
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            self.limited = True

        def infer(self, inputs, batch):
            if not self.limited:
                self.limit()  # not before: the lane's memory counts too
            greedy = 8 if (inputs["x"] == 666).any() else 1
            space = torch.empty(greedy * batch.rows * ROW_BYTES, dtype=torch.uint8)
            return {"y": inputs["x"] + 1}
"""


@pytest.fixture(scope="module", autouse=True)
def models(shared_server: SharedServer) -> Iterator[None]:
    root, calls = shared_server.models, shared_server.calls
    narrow = f"{_SPLIT}[scheduling]\nmax_queue_rows = 30\n"
    write_python_model(root, "curved", _CURVED, extra=_SPLIT, top=EXPLICIT)
    write_python_model(root, "curved_whole", _CURVED, max_batch_size=256, top=EXPLICIT)
    write_python_model(root, "shout", _SHOUT, datatype="BYTES", shape="[2]", extra=_SPLIT, top=EXPLICIT)
    write_python_model(root, "wide", _WIDE, shape="[-1]", extra=_SPLIT, top=EXPLICIT)
    write_python_model(root, "poison_split", POISON, extra=_SPLIT, top=EXPLICIT)
    write_python_model(root, "slow_split", SLOW, extra=narrow, top=EXPLICIT)
    write_python_model(root, "tight_split", _TIGHT, extra=_SPLIT + DEDICATED, top=EXPLICIT)
    write_python_model(root, "running_split", RUNNING, shape="[-1]", extra=_SPLIT, top=EXPLICIT)
    names = ("curved", "curved_whole", "shout", "wide", "poison_split", "slow_split", "tight_split")
    for name in names:
        calls.load(name)
    yield
    for name in names:
        calls.unload(name)


@pytest.mark.parametrize("rows", [1, 8, 9, 64, 100, 256])
def test_the_answer_is_byte_for_byte_that_of_one_run(watched: SharedServer, rows: int) -> None:
    x = np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)
    before = watched.calls.statistics()["curved"]
    with SyncClient(watched.server.grpc) as client:
        split = client.infer("curved", {"x": x}, request_id="an id", parameters={"most_rows": _MOST_ROWS})["y"]
        whole = client.infer("curved_whole", {"x": x}, request_id="an id", parameters={"most_rows": rows})["y"]
    assert split.shape == (rows, 4)
    assert split.tobytes() == whole.tobytes()
    after = watched.calls.statistics()["curved"]
    assert after.inference_stats.success.count - before.inference_stats.success.count == 1
    assert after.inference_stats.queue.count - before.inference_stats.queue.count == 1
    assert after.inference_count - before.inference_count == rows
    assert after.execution_count - before.execution_count == -(-rows // _MOST_ROWS)


def test_strings_keep_their_order(watched: SharedServer) -> None:
    chance = random.Random(5)
    words = [[chance.randbytes(chance.randint(0, 40)) for _ in range(2)] for _ in range(77)]
    with SyncClient(watched.server.grpc) as client:
        shouted = client.infer("shout", {"x": words})["y"]
    assert shouted.tolist() == [[word.upper() * 2 for word in row] for row in words]


def test_more_rows_than_may_wait_are_an_error_as_are_more_than_a_run_has_where_nothing_is_split(
    watched: SharedServer,
) -> None:
    failed = watched.calls.failure(request_of("curved", rows_of(*range(257))))
    assert failed.code == "INVALID_ARGUMENT"
    assert failed.message == "input 'x' shape: expected [-1,4] with 1 to 256 rows, got [257,4]"
    failed = watched.calls.failure(request_of("echo", rows_of(*range(9))))
    assert failed.code == "INVALID_ARGUMENT"
    assert "with 1 to 8 rows (more where its model.toml says batching.split_requests = true)" in failed.message


def test_many_at_once_get_their_own_rows(watched: SharedServer) -> None:
    chance = random.Random(11)
    asked = []
    for number in range(60):
        values = [float(number * 1000 + row) for row in range(chance.randint(1, 60))]
        asked.append((values, watched.calls.start(request_of("slow_split", rows_of(*values)))))
    refused = 0
    for values, call in asked:
        outcome = call.outcome()
        if isinstance(outcome, Failure):
            assert outcome.code in ("RESOURCE_EXHAUSTED", "INVALID_ARGUMENT")
            assert (outcome.code == "INVALID_ARGUMENT") == (len(values) > 30)
            refused += 1
        else:
            assert output_of(outcome)[:, 0].tolist() == values
    assert refused < 60


def test_one_poisoned_row_fails_its_request_and_no_other(watched: SharedServer) -> None:
    calls = watched.calls
    before = calls.statistics()["poison_split"]
    others = [calls.start(request_of("poison_split", rows_of(*range(number, number + 5)))) for number in range(10)]
    values = [float(row) for row in range(40)]
    values[21] = 666.0
    failed = calls.failure(request_of("poison_split", rows_of(*values)))
    assert (failed.code, failed.reason) == ("INTERNAL", "INFERENCE_FAILED")
    assert "secret" not in failed.message
    for number, call in enumerate(others):
        assert output_of(call.outcome())[:, 0].tolist() == [float(row) for row in range(number, number + 5)]
    after = calls.statistics()["poison_split"]
    assert after.inference_stats.fail.count - before.inference_stats.fail.count == 1
    assert after.inference_stats.success.count - before.inference_stats.success.count == 10


def test_pieces_of_different_widths_fail_that_request_alone(watched: SharedServer) -> None:
    width = 4
    equal = output_of(watched.calls.infer(request_of("wide", rows_of(*[2.0] * 20, width=width))))
    assert equal.shape == (20, 2)
    failed = watched.calls.failure(request_of("wide", rows_of(*[2.0] * 8, *[3.0] * 8, *[2.0] * 8, width=width)))
    assert (failed.code, failed.reason) == ("INTERNAL", "CONTRACT_BROKEN")
    assert "output 'y': expected one shape beyond the rows for all pieces of a split request" in failed.message
    assert "got [2] and [3]" in failed.message


def test_a_queue_without_room_for_all_pieces_refuses_all_of_them_at_once(watched: SharedServer) -> None:
    calls = watched.calls
    first = calls.start(request_of("slow_split", rows_of(1), parameters={"delay_ms": 800}))
    eventually(lambda: _running(watched, "slow_split") == 1, what="it runs")
    waiting = calls.start(request_of("slow_split", rows_of(*range(16))))
    eventually(lambda: "16 rows waiting" in calls.index()["slow_split"].reason, what="sixteen rows wait")
    refused = calls.failure(request_of("slow_split", rows_of(*range(20))))
    assert (refused.code, refused.reason) == ("RESOURCE_EXHAUSTED", "QUEUE_FULL")
    assert (refused.figures["waiting"], refused.figures["asked"], refused.figures["limit"]) == ("16", "20", "30")
    assert refused.seconds < 0.4
    assert not first.is_done
    assert "16 rows waiting" in calls.index()["slow_split"].reason
    assert output_of(waiting.outcome())[:, 0].tolist() == [float(row) for row in range(16)]
    assert not isinstance(first.outcome(), Failure)


def test_a_caller_that_goes_takes_what_was_not_computed_yet_along(watched: SharedServer) -> None:
    calls = watched.calls
    before = calls.statistics()["slow_split"]
    leaving = calls.start(request_of("slow_split", rows_of(*range(24)), parameters={"delay_ms": 800}))
    eventually(lambda: _running(watched, "slow_split") == 1, what="its first piece runs")
    leaving.cancel()
    eventually(lambda: "waiting" not in calls.index()["slow_split"].reason, within_s=0.5, what="nothing of it waits")
    last = calls.start(request_of("slow_split", rows_of(5)))
    assert output_of(last.outcome())[0, 0] == 5
    after = calls.statistics()["slow_split"]
    assert after.execution_count - before.execution_count == 2
    assert after.inference_count - before.inference_count == 1


def test_a_deadline_holds_for_all_pieces_together(watched: SharedServer) -> None:
    calls = watched.calls
    before = calls.statistics()["slow_split"].execution_count
    slow = request_of("slow_split", rows_of(*range(24)), parameters={"delay_ms": 400})
    failed = calls.start(slow, 0.6).outcome()
    assert failed.code == "DEADLINE_EXCEEDED"
    eventually(lambda: _running(watched, "slow_split") == 0, what="it has ended")
    assert calls.statistics()["slow_split"].execution_count - before <= 2


def test_one_that_finds_no_memory_is_computed_in_what_there_is(watched: SharedServer) -> None:
    calls = watched.calls
    assert not isinstance(calls.start(request_of("tight_split", rows_of(1))).outcome(), Failure)
    values = [float(row) for row in range(40)]
    assert output_of(calls.infer(request_of("tight_split", rows_of(*values))))[:, 0].tolist() == [v + 1 for v in values]
    found = _out_of_memory(watched)
    assert 1 <= found <= 2
    values[3] = 666.0
    refused, behind = _start_two(watched, values)
    failed = refused.outcome()
    assert isinstance(failed, Failure)
    assert (failed.code, failed.reason) == ("RESOURCE_EXHAUSTED", "OUT_OF_MEMORY")
    assert output_of(behind.outcome())[:, 0].tolist() == [float(row + 1) for row in range(12)]
    assert _out_of_memory(watched) > found


def _start_two(shared: SharedServer, values: list[float]) -> tuple[Call, Call]:
    refused = shared.calls.start(request_of("tight_split", rows_of(*values)))
    return refused, shared.calls.start(request_of("tight_split", rows_of(*range(12))))


def test_a_stepped_model_gets_pieces_too(watched: SharedServer) -> None:
    calls = watched.calls
    calls.load("running_split")
    values = [row / 10 for row in range(30)]
    split = output_of(calls.infer(request_of("running_split", rows_of(*values, width=3))))
    apart = [output_of(calls.infer(request_of("running_split", rows_of(value, width=3)))) for value in values]
    assert split.shape == (30, 3)
    assert np.allclose(split, np.concatenate(apart))
    counted = calls.statistics()["running_split"]
    assert counted.inference_stats.success.count == 31
    calls.unload("running_split")


def test_it_can_be_asked_what_would_happen(watched: SharedServer) -> None:
    with SyncClient(watched.server.grpc) as client:
        assert client.explain("curved", 200).verdict == "now"


def _running(shared: SharedServer, model: str) -> int:
    with SyncClient(shared.server.grpc) as client:
        return next(entry.running_requests for entry in client.snapshot().models if entry.name == model)


def _out_of_memory(shared: SharedServer) -> int:
    with SyncClient(shared.server.grpc) as client:
        model = next(model for model in client.snapshot().models if model.name == "tight_split")
    return model.residency_counts.out_of_memory
