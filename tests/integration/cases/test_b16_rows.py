"""B16: the limit of a run counts rows, and so does what is charged for it."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import pytest

from tests.integration.cases.conftest import SharedServer
from tests.integration.cases.ledger import Ledger, ledger_watched
from tests.support.calls import Call, Failure, output_of, request_of, rows_of
from tests.support.toy_models import EXPLICIT, write_python_model

_MOST_ROWS = 8
_WITHIN_LIMIT = 5
_MIB = 2**20
_NAMES = ("charged", "limited")

# As `tag`, for long enough that what its run was charged can be looked at a few times.
_TAG = """
    import time
    import torch
    from moorage import Model

    class Tag(Model):
        def load(self, context):
            self.runs = 0

        def infer(self, inputs, batch):
            time.sleep(0.08 + max(member.parameters.get("delay_ms", 0) for member in batch.requests) / 1000)
            self.runs += 1
            y = inputs["x"].clone()
            y[:, 1] = batch.rows
            y[:, 2] = self.runs
            return {"y": y}
"""


@pytest.fixture(scope="module", autouse=True)
def models(shared_server: SharedServer) -> Iterator[None]:
    """Each row of theirs takes a MiB. The one may have as many as its runs may have, the other five."""
    tables = f"[batching]\nmax_queue_delay_s = 0.05\nlow_watermark = {_MOST_ROWS}\n[memory]\n"
    for name in _NAMES:
        memory = 'workspace_per_row = "1 MiB"\n' + (f'limit = "{_WITHIN_LIMIT} MiB"\n' if name == "limited" else "")
        write_python_model(
            shared_server.models, name, _TAG, max_batch_size=_MOST_ROWS, extra=tables + memory, top=EXPLICIT
        )
        shared_server.calls.load(name)
    yield
    for name in _NAMES:
        shared_server.calls.unload(name)


@pytest.fixture
def ledger(watched: SharedServer) -> Iterator[Ledger]:
    with ledger_watched(watched.server.grpc) as ledger:
        yield ledger


def _start(shared: SharedServer, model: str, sizes: Sequence[int]) -> list[Call]:
    return [
        shared.calls.start(request_of(model, rows_of(*[100.0 * number + row for row in range(size)])))
        for number, size in enumerate(sizes)
    ]


def _rows_of_runs(under_way: Sequence[Call], sizes: Sequence[int]) -> list[int]:
    """Of each run, as it says and as many as came back from it. Everybody has their own rows, in order."""
    told: dict[int, int] = {}
    counted: defaultdict[int, int] = defaultdict(int)
    for number, (call, size) in enumerate(zip(under_way, sizes, strict=True)):
        output = output_of(call.outcome())
        assert output[:, 0].tolist() == [100.0 * number + row for row in range(size)]
        for _, rows, run, _ in output.tolist():
            told[int(run)] = int(rows)
            counted[int(run)] += 1
    assert counted == told
    return sorted(counted.values())


@pytest.mark.parametrize("sizes", [[5] * 10, [8], [1, 7] * 5, [7, 1, 1] * 4, [8, 1, 8, 1]], ids=str)
def test_rows_are_counted_and_charged_and_not_requests(watched: SharedServer, ledger: Ledger, sizes: list[int]) -> None:
    most_rows = _rows_of_runs(_start(watched, "charged", sizes), sizes)[-1]
    assert most_rows <= _MOST_ROWS
    assert most_rows >= max(sizes)
    assert ledger.most_bytes["charged"] == {"workspace": most_rows * _MIB}, "of the largest run, by its rows"


def test_a_run_has_no_more_rows_than_its_model_may_be_charged_for(watched: SharedServer, ledger: Ledger) -> None:
    sizes = [1] * 12 + [2] * 4
    rows = _rows_of_runs(_start(watched, "limited", sizes), sizes)
    assert rows[-1] == _WITHIN_LIMIT
    assert ledger.most_bytes["limited"] == {"workspace": _WITHIN_LIMIT * _MIB}


def test_more_rows_than_the_limit_are_refused_at_once_with_the_limit(watched: SharedServer) -> None:
    """Without a look at the model, which computes meanwhile, and without a place in its queue."""
    calls = watched.calls
    first = calls.start(request_of("charged", rows_of(*[1.0] * _MOST_ROWS), parameters={"delay_ms": 500}))
    failed = calls.failure(request_of("charged", rows_of(*map(float, range(_MOST_ROWS + 1)))))
    assert not first.is_done
    assert failed.code == "INVALID_ARGUMENT"
    assert "8" in failed.message
    assert "9" in failed.message
    assert not isinstance(first.outcome(), Failure)
