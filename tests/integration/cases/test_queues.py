"""Who is served first, who is refused before waiting, and what is there when it is asked for.

Of the kin of B25 and B28, and of B26 what needs no budget of its own.
"""

import time

import pytest

from moorage_protocol import inference as pb
from tests.integration.cases.conftest import SharedServer
from tests.support.calls import Call, Failure, request_of, rows_of
from tests.support.polling import eventually
from tests.support.toy_models import EXPLICIT, SLOW, write_python_model, write_simulated_model

_MICROSECONDS = 1_000_000


@pytest.fixture(scope="module", autouse=True)
def models(shared_server: SharedServer) -> None:
    root = shared_server.models
    bounds = "[scheduling]\nmax_queue_rows = 4\n"
    write_python_model(root, "narrow", SLOW, max_batch_size=1, extra=bounds, top=EXPLICIT)
    write_simulated_model(root, "huge", top=EXPLICIT, extra='[memory]\nweights = "100 GiB"')
    write_simulated_model(root, "hungry", top=EXPLICIT, extra='[memory]\nworkspace_per_row = "1 GiB"')
    limited = "[rate_limit]\nrequests_per_s = 2\nburst_s = 2\n"
    write_python_model(root, "limited", SLOW, extra=limited, top=EXPLICIT)
    shared_server.calls.load("narrow")
    shared_server.calls.load("limited")
    shared_server.calls.load("hungry")


def test_who_is_due_first_is_served_first(watched: SharedServer) -> None:
    """Of one model, whoever came first, and by the `timeout` parameter as by the call's own deadline."""
    calls = watched.calls
    first = calls.start(request_of("narrow", rows_of(1), parameters={"delay_ms": 600}))
    eventually(lambda: watched.running_requests("narrow"), what="it runs")
    late = [_due_after(watched, timeout_s) for timeout_s in (25, 15, 20)]
    last = calls.start(request_of("narrow", rows_of(1), parameters={"delay_ms": 50}), 10.0)
    under_way = [first, *late, last]
    eventually(lambda: "4 rows waiting" in calls.index()["narrow"].reason, what="all of them wait")
    assert not first.is_done
    assert not [call for call in under_way if isinstance(call.outcome(), Failure)]
    in_order = sorted(under_way, key=lambda call: call.ended_s)
    assert [under_way.index(call) for call in in_order] == [0, 4, 2, 3, 1]


def _due_after(watched: SharedServer, timeout_s: int) -> Call:
    parameters: dict[str, bool | int | float | str] = {"delay_ms": 50, "timeout": timeout_s * _MICROSECONDS}
    return watched.calls.start(request_of("narrow", rows_of(1), parameters=parameters))


def test_more_than_the_rate_limit_is_refused_before_it_waits_and_told_when_to_come_back(watched: SharedServer) -> None:
    calls = watched.calls
    outcomes = [call.outcome() for call in [calls.start(request_of("limited", rows_of(1))) for _ in range(20)]]
    refused = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    assert len(outcomes) - len(refused) == 4, "as many as may come in two seconds"
    assert {(failed.code, failed.reason) for failed in refused} == {("RESOURCE_EXHAUSTED", "RATE_LIMITED")}
    assert "2 requests per second" in refused[0].message
    retry_after_s = refused[-1].retry_after_s
    assert retry_after_s is not None
    assert 0.0 < retry_after_s <= 0.5
    time.sleep(retry_after_s)
    assert not isinstance(calls.start(request_of("limited", rows_of(1))).outcome(), Failure)


def test_a_deadline_that_can_not_be_met_is_told_at_once_with_the_figures(watched: SharedServer) -> None:
    calls = watched.calls
    calls.unload("narrow")
    calls.load("narrow")
    slow = request_of("narrow", rows_of(1), parameters={"delay_ms": 300})
    for _ in range(3):
        calls.infer(slow)
    before = calls.statistics()["narrow"].execution_count
    first, second = calls.start(slow), calls.start(slow)
    hasty = calls.start(slow, 0.5).outcome()  # before the second, which is due later
    assert isinstance(hasty, Failure)
    assert (hasty.code, hasty.reason) == ("DEADLINE_EXCEEDED", "DEADLINE_CANNOT_BE_MET")
    assert "deadline cannot be met" in hasty.message
    assert float(hasty.figures["run_s"]) == pytest.approx(0.3, rel=0.2)
    assert float(hasty.figures["wait_s"]) == pytest.approx(0.3, rel=0.3)
    assert hasty.seconds < 0.2
    assert not first.is_done
    patient = calls.start(slow, 5.0)
    assert not [call for call in (first, second, patient) if isinstance(call.outcome(), Failure)]
    assert calls.statistics()["narrow"].execution_count - before == 3


def test_what_can_never_fit_is_refused_with_the_figures(watched: SharedServer) -> None:
    calls = watched.calls
    failed = calls.failure(pb.RepositoryModelLoadRequest(model_name="huge"), method="RepositoryModelLoad")
    assert failed.code == "FAILED_PRECONDITION"
    assert failed.figures["bytes_needed"] == str(100 * 2**30)
    assert failed.figures["bytes_capacity"] == str(2 * 2**30)
    assert failed.seconds < 1.0
    failed = calls.failure(request_of("hungry", rows_of(1, 2, 3)))
    assert failed.code == "FAILED_PRECONDITION"
    assert failed.figures["bytes_needed"] == str(3 * 2**30)


def test_a_model_that_loads_on_demand_is_ready_cold_and_loaded_once(watched: SharedServer) -> None:
    calls = watched.calls
    assert calls.is_model_ready("cold")
    assert "unloaded" in calls.index()["cold"].reason
    under_way = [calls.start(request_of("cold", rows_of(number))) for number in range(50)]
    assert not [call for call in under_way if isinstance(call.outcome(), Failure)]
    assert "resident" in calls.index()["cold"].reason
    assert watched.server.logs.count("model cold/1 loaded") == 1


def test_a_model_that_is_loaded_by_hand_waits_for_that(watched: SharedServer) -> None:
    calls = watched.calls
    assert not calls.is_model_ready("manual")
    refused = calls.failure(request_of("manual", rows_of(1)))
    assert refused.code == "UNAVAILABLE"
    assert refused.retry_after_s
    loads = [
        calls.start(pb.RepositoryModelLoadRequest(model_name="manual"), method="RepositoryModelLoad") for _ in range(10)
    ]
    assert not [load for load in loads if isinstance(load.outcome(), Failure)]
    assert calls.is_model_ready("manual")
    assert watched.server.logs.count("model manual/1 loaded") == 1, "ten loads at once are one load"
    assert not isinstance(calls.start(request_of("manual", rows_of(1))).outcome(), Failure)
    calls.unload("manual")
    assert calls.failure(request_of("manual", rows_of(1))).code == "UNAVAILABLE"
