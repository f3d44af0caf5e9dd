"""B08: callers that give up use nothing up. What has expired is not computed, and the next call is served at once."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.cases.conftest import RUN_BYTES, WEIGHTS_BYTES, WITH_MEMORY, SharedServer, small_server, trial_of
from tests.integration.cases.ledger import Ledger, ledger_watched
from tests.support.calls import Calls, Failure, output_of, request_of, rows_of
from tests.support.polling import eventually
from tests.support.toy_models import EXPLICIT, ON_DEMAND, write_python_model, write_simulated_model

_MILLISECONDS = 1000
_BY_DEADLINE = 200
_BY_PARAMETER = 50
_RUN_S = 0.5
_LOAD_S = 0.4
_LONG_S = 3.0
_QUEUE = "[scheduling]\nmax_queue_rows = 8\n"


_HASTY = 1.0
# Takes half a second, and answers with how many rows of hasty callers it has computed.
_COUNTS = """
    import time
    from moorage import Model

    class Counts(Model):
        def load(self, context):
            self.hasty = 0

        def infer(self, inputs, batch):
            time.sleep(0.5)
            self.hasty += int((inputs["x"][:, 0] == 1).sum())
            return {"y": inputs["x"] * 0 + self.hasty}
"""


@pytest.fixture(scope="module", autouse=True)
def models(shared_server: SharedServer) -> Iterator[None]:
    root, calls = shared_server.models, shared_server.calls
    extra = WITH_MEMORY + _QUEUE
    write_simulated_model(root, "half_a_second", run_s=_RUN_S, max_batch_size=1, top=EXPLICIT, extra=extra)
    write_python_model(root, "counts", _COUNTS, max_batch_size=1, top=EXPLICIT, extra=_QUEUE)
    for name in ("half_a_second", "counts"):
        calls.load(name)
    yield
    for name in ("half_a_second", "counts"):
        calls.unload(name)
    calls.unload("waking")  # it holds memory that other trials don't know of


@pytest.fixture
def watched(shared_server: SharedServer) -> Iterator[SharedServer]:
    """As everywhere; these models may keep their weights, and nothing else."""
    weights = dict.fromkeys(("half_a_second", "waking"), WEIGHTS_BYTES)
    models = {**shared_server.baseline.models, **weights}
    with trial_of(replace(shared_server, baseline=replace(shared_server.baseline, models=models))) as trial:
        yield trial


def _runs(calls: Calls, model: str) -> int:
    """Also those that nobody waited for any more."""
    return int(calls.statistics()[model].execution_count)


def _hasty(calls: Calls, model: str) -> list[Failure]:
    """How calls end that are given a tenth of the time that they would take, 250 of them."""
    parameter: dict[str, bool | int | float | str] = {"timeout": 50 * _MILLISECONDS}
    under_way = [calls.start(request_of(model, rows_of(1)), 0.05) for _ in range(_BY_DEADLINE)]
    under_way += [calls.start(request_of(model, rows_of(_HASTY), parameters=parameter)) for _ in range(_BY_PARAMETER)]
    outcomes = [call.outcome() for call in under_way]
    failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    assert len(failures) == len(outcomes)
    return failures


def test_hasty_callers_of_a_busy_model(watched: SharedServer) -> None:
    calls = watched.calls
    before = _runs(calls, "half_a_second")
    with ledger_watched(watched.server.grpc) as ledger:
        failures = _hasty(calls, "half_a_second")
        _check_hasty(failures)
        assert max(failed.seconds for failed in failures) < _RUN_S, "nobody waited for the model"
        eventually(lambda: not ledger.model("half_a_second").waiting_rows, within_s=0.5, what="nobody waits")
        patient = calls.start(request_of("half_a_second", rows_of(1)))
        assert not isinstance(patient.outcome(), Failure)
        assert patient.seconds < 2 * _RUN_S + 0.2, "the run that was under way, and its own"
        # A call may have begun before its deadline; each such run takes half a second, so there were three at most.
        assert _runs(calls, "half_a_second") - before <= 3
        next_one = calls.start(request_of("half_a_second", rows_of(1)))
        assert not isinstance(next_one.outcome(), Failure)
        assert next_one.seconds < _RUN_S + 0.2
    assert ledger.most_bytes["half_a_second"] == {"weights": WEIGHTS_BYTES, "workspace": RUN_BYTES}, "one run's"


def test_hasty_callers_of_a_model_that_is_not_there(watched: SharedServer) -> None:
    """They bring it in, and then it is there for those who wait."""
    calls = watched.calls
    assert "unloaded" in calls.index()["waking"].reason
    with ledger_watched(watched.server.grpc) as ledger:
        _check_hasty(_hasty(calls, "waking"))
        patient = calls.start(request_of("waking", rows_of(1)))
        assert not isinstance(patient.outcome(), Failure)
        assert patient.seconds < 2 * _LOAD_S + 0.2
        assert _runs(calls, "waking") == 1
        eventually(lambda: ledger.model("waking").leased_bytes == {"weights": WEIGHTS_BYTES}, what="the run's are back")


def test_hasty_callers_of_memory_that_is_taken(tmp_path: Path) -> None:
    """They get none of it, nothing is kept for them once they have gone, and their model is not even loaded."""
    models = tmp_path / "models"
    memory = '[memory]\nweights = "{} MiB"\nworkspace_fixed = "{} MiB"\n'
    write_simulated_model(models, "busy", run_s=_LONG_S, extra=memory.format(1, 6))
    write_simulated_model(models, "little", extra=memory.format(1, 1))
    write_simulated_model(models, "hungry", top=ON_DEMAND, extra=memory.format(2, 4) + _QUEUE)
    with (
        small_server(tmp_path, weights_mib={"busy": 1, "little": 1, "hungry": 2}) as small,
        trial_of(small),
        ledger_watched(small.server.grpc) as ledger,
    ):
        _try_hasty_callers_of_memory(small.calls, ledger)


def _try_hasty_callers_of_memory(calls: Calls, ledger: Ledger) -> None:
    busy = calls.start(request_of("busy", rows_of(1)))
    eventually(lambda: ledger.model("busy").running_requests, what="it computes")
    _check_hasty(_hasty(calls, "hungry"))
    eventually(lambda: not ledger.device().waiting, within_s=0.5, what="nobody waits for memory")
    assert ledger.model("hungry").leased_bytes == {}
    calls.infer(request_of("little", rows_of(1)))
    assert not busy.is_done, "little was served beside it"
    patient = calls.start(request_of("hungry", rows_of(1)))
    assert not isinstance(patient.outcome(), Failure)
    assert not isinstance(busy.outcome(), Failure)
    assert max(busy.seconds, patient.seconds) < _LONG_S + 0.5
    assert (_runs(calls, "hungry"), ledger.counts()["hungry"].loads) == (1, 1)


def test_what_has_expired_is_not_computed(watched: SharedServer) -> None:
    """Row by row: only what had begun in time. And of a model that is known to take longer nothing is even begun."""
    calls = watched.calls
    began_s = time.monotonic()
    _check_hasty(_hasty(calls, "counts"))
    seconds = time.monotonic() - began_s
    computed = _computed(calls)
    assert computed <= 1 + int(seconds / _RUN_S), "one at a time, while they came"
    refused = _hasty(calls, "counts")
    _check_hasty(refused)
    assert "DEADLINE_CANNOT_BE_MET" in {failed.reason for failed in refused}
    assert _computed(calls) == computed


def _computed(calls: Calls) -> int:
    """Asked by one who has time, and is served as if nobody else had come."""
    patient = calls.start(request_of("counts", rows_of(2 * _HASTY)))
    answer = patient.outcome()
    assert patient.seconds < 2 * _RUN_S + 0.2, "the run that was under way, and its own"
    return int(output_of(answer)[0, 0])


def _check_hasty(failures: list[Failure]) -> None:
    assert {failed.code for failed in failures} <= {"DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"}
