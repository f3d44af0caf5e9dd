"""B25: who waits is told at the deadline and not when the model is free, is never computed, and leaves its place."""

import time
from collections.abc import Iterator

import pytest

from tests.integration.cases.conftest import SharedServer
from tests.support.after_check import after_check
from tests.support.calls import Call, Failure, Parameter, output_of, request_of, rows_of
from tests.support.polling import eventually
from tests.support.sentinel import sentinel
from tests.support.toy_models import EXPLICIT, SLOW, write_python_model

_MICROSECONDS = 1_000_000
_PLACES = 4
_RUN_MS = 1200
_TIMEOUT_S = 0.2
_LATE_S = 0.2  # as the case says, and as late as a call of another model was at worst meanwhile
_MANY = 1000


@pytest.fixture(autouse=True)
def models(shared_server: SharedServer) -> Iterator[None]:
    """Loaded anew for each trial: while nothing is known of their runs nobody is refused for what these take."""
    for name, places in (("few_places", _PLACES), ("many_places", 2 * _MANY)):
        extra = f"[scheduling]\nmax_queue_rows = {places}\n"
        write_python_model(shared_server.models, name, SLOW, max_batch_size=1, extra=extra, top=EXPLICIT)
        shared_server.calls.load(name)
    yield
    for name in ("few_places", "many_places"):
        shared_server.calls.unload(name)


def _runs(shared: SharedServer, model: str) -> int:
    return int(shared.calls.statistics()[model].execution_count)


def _hold(shared: SharedServer, model: str, milliseconds: int) -> Call:
    """A call that has the model for so long, and has begun."""
    first = shared.calls.start(request_of(model, rows_of(1), parameters={"delay_ms": milliseconds}))
    eventually(lambda: shared.running_requests(model), what="it runs")
    return first


def _fill(shared: SharedServer, places: int) -> list[Call]:
    """Callers who have no deadline."""
    return [shared.calls.start(request_of("few_places", rows_of(10.0 + number))) for number in range(places)]


def _check_served(filling: list[Call]) -> None:
    for number, call in enumerate(filling):
        assert output_of(call.outcome())[0, 0] == 10.0 + number


@pytest.mark.parametrize("by", ["timeout parameter", "gRPC deadline"])
def test_a_deadline_passes_while_the_model_is_busy(shared_server: SharedServer, by: str) -> None:
    calls = shared_server.calls
    before = _runs(shared_server, "few_places")
    with sentinel(shared_server.server.grpc) as bystander:
        first = _hold(shared_server, "few_places", _RUN_MS)
        timeout: dict[str, Parameter] = {}
        if by == "timeout parameter":
            timeout = {"timeout": int(_TIMEOUT_S * _MICROSECONDS)}
        hasty = calls.start(request_of("few_places", rows_of(2), parameters=timeout), 30.0 if timeout else _TIMEOUT_S)
        filling = _fill(shared_server, _PLACES - 1)
        assert calls.failure(request_of("few_places", rows_of(2))).code == "RESOURCE_EXHAUSTED", "its place is taken"
        failed = hasty.outcome()
        filling.append(calls.start(request_of("few_places", rows_of(10.0 + len(filling)))))
        eventually(lambda: "4 rows waiting" in calls.index()["few_places"].reason, within_s=0.5, what="it is another's")
        assert not first.is_done
        assert isinstance(failed, Failure)
        assert failed.code == "DEADLINE_EXCEEDED"
        _check_served(filling)
    assert _TIMEOUT_S - 0.01 < failed.seconds < _TIMEOUT_S + _LATE_S + max(bystander.seconds)
    assert not isinstance(first.outcome(), Failure)
    assert _runs(shared_server, "few_places") - before == 1 + _PLACES
    after_check(shared_server.server, calls, shared_server.baseline)


def test_a_caller_that_goes_leaves_the_queue_at_once(watched: SharedServer) -> None:
    calls = watched.calls
    before = _runs(watched, "few_places")
    first = _hold(watched, "few_places", _RUN_MS)
    leaving = [calls.start(request_of("few_places", rows_of(2))) for _ in range(_PLACES)]
    eventually(lambda: "4 rows waiting" in calls.index()["few_places"].reason, what="four wait")
    for call in leaving:
        call.cancel()
    eventually(lambda: "waiting" not in calls.index()["few_places"].reason, within_s=0.5, what="the queue is empty")
    filling = _fill(watched, _PLACES)
    assert not first.is_done
    _check_served(filling)
    assert output_of(first.outcome())[0, 0] == 1
    assert _runs(watched, "few_places") - before == 1 + _PLACES


def test_a_thousand_that_wait_expire_together(shared_server: SharedServer) -> None:
    """No sentinel: it would share its process with the thousand."""
    calls = shared_server.calls
    before = _runs(shared_server, "many_places")
    first = _hold(shared_server, "many_places", 4000)
    began_s = time.monotonic()
    end_s = began_s + 2.0
    waiting = []
    for _ in range(_MANY):
        timeout = int((end_s - time.monotonic()) * _MICROSECONDS)
        waiting.append(calls.start(request_of("many_places", rows_of(2), parameters={"timeout": timeout})))
    last = calls.start(request_of("many_places", rows_of(3)))
    eventually(lambda: "1001 rows waiting" in calls.index()["many_places"].reason, what="all of them wait")
    heard_s = time.monotonic() - began_s
    outcomes = [call.outcome() for call in waiting]
    assert not first.is_done, "at their deadline, not when the model is free"
    assert {outcome.code for outcome in outcomes} == {"DEADLINE_EXCEEDED"}
    ended_s = max(call.ended_s for call in waiting)
    assert ended_s < end_s + _LATE_S + 2 * heard_s, "telling a thousand took much longer than hearing them"
    eventually(
        lambda: calls.index()["many_places"].reason.count("1 rows waiting"), within_s=0.5, what="their places are free"
    )
    assert not isinstance(first.outcome(), Failure)
    assert output_of(last.outcome())[0, 0] == 3
    assert _runs(shared_server, "many_places") - before == 2
    after_check(shared_server.server, calls, shared_server.baseline)
