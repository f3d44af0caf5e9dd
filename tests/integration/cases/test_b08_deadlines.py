"""B08: callers that give up use nothing up. What has expired is not computed, and the next call is served at once."""

from collections.abc import Iterator

import pytest

from tests.integration.cases.conftest import SharedServer
from tests.support.calls import Calls, Failure, request_of, rows_of
from tests.support.polling import eventually
from tests.support.toy_models import EXPLICIT, write_simulated_model

_MILLISECONDS = 1000
_BY_DEADLINE = 200
_BY_PARAMETER = 50
_RUN_S = 0.5
_LOAD_S = 0.4


@pytest.fixture(scope="module", autouse=True)
def models(shared_server: SharedServer) -> Iterator[None]:
    root, calls = shared_server.models, shared_server.calls
    queue = "[scheduling]\nmax_queue_rows = 8\n"
    write_simulated_model(root, "half_a_second", run_s=_RUN_S, max_batch_size=1, top=EXPLICIT, extra=queue)
    calls.load("half_a_second")
    yield
    calls.unload("half_a_second")


def _runs(calls: Calls, model: str) -> int:
    """Also those that nobody waited for any more."""
    return int(calls.statistics()[model].execution_count)


def _hasty(calls: Calls, model: str) -> list[Failure]:
    """How calls end that are given a tenth of the time that they would take, 250 of them."""
    parameter: dict[str, bool | int | float | str] = {"timeout": 50 * _MILLISECONDS}
    under_way = [calls.start(request_of(model, rows_of(1)), 0.05) for _ in range(_BY_DEADLINE)]
    under_way += [calls.start(request_of(model, rows_of(1), parameters=parameter)) for _ in range(_BY_PARAMETER)]
    outcomes = [call.outcome() for call in under_way]
    failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    assert len(failures) == len(outcomes)
    return failures


def test_hasty_callers_of_a_busy_model(watched: SharedServer) -> None:
    calls = watched.calls
    before = _runs(calls, "half_a_second")
    failures = _hasty(calls, "half_a_second")
    assert {failed.code for failed in failures} <= {"DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"}
    assert max(failed.seconds for failed in failures) < _RUN_S, "nobody waited for the model"
    eventually(lambda: "waiting" not in calls.index()["half_a_second"].reason, within_s=0.5, what="nobody waits")
    patient = calls.start(request_of("half_a_second", rows_of(1)))
    assert not isinstance(patient.outcome(), Failure)
    assert patient.seconds < 2 * _RUN_S + 0.2, "the run that was under way, and its own"
    # A call may have begun before its deadline; each such run takes half a second, so there were three at most.
    assert _runs(calls, "half_a_second") - before <= 3
    next_one = calls.start(request_of("half_a_second", rows_of(1)))
    assert not isinstance(next_one.outcome(), Failure)
    assert next_one.seconds < _RUN_S + 0.2


def test_hasty_callers_of_a_model_that_is_not_there(watched: SharedServer) -> None:
    """They bring it in, and then it is there for those who wait."""
    calls = watched.calls
    assert "unloaded" in calls.index()["waking"].reason
    failures = _hasty(calls, "waking")
    assert {failed.code for failed in failures} <= {"DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"}
    patient = calls.start(request_of("waking", rows_of(1)))
    assert not isinstance(patient.outcome(), Failure)
    assert patient.seconds < 2 * _LOAD_S + 0.2
    assert _runs(calls, "waking") == 1
