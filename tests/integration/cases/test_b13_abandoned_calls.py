"""B13: a burst of callers who go costs nobody anything: not their batch-mates, nor those after, nor other models."""

import random
import time
from collections.abc import Iterator

import pytest

from tests.integration.cases.conftest import SharedServer
from tests.integration.cases.mirror import MOST_ROWS, check_own_rows, write_mirror
from tests.support.after_check import after_check
from tests.support.calls import Call, Calls, Failure, Tensor, request_of, rows_of
from tests.support.polling import eventually
from tests.support.sentinel import sentinel
from tests.support.toy_models import ECHO, EXPLICIT, write_python_model

_SEEDS = 50
_NORMAL = 20
_LEAVING = 100
_GONE_WITHIN_S = 0.04
# Each of them has nothing, or too much, from which its cost could be told.
_ODD = (
    request_of("mirror", Tensor((0, 4), b"")),
    request_of("mirror", rows_of(1), parameters={"priority": "high"}),
    request_of("mirror", rows_of(1), parameters={"priority": 0.5}),
    request_of("mirror", rows_of(1), parameters={"timeout": -1}),
    request_of("mirror", rows_of(1), parameters={"timeout": "soon"}),
    request_of("mirror", rows_of(*map(float, range(MOST_ROWS + 1)))),
)


@pytest.fixture(scope="module", autouse=True)
def models(shared_server: SharedServer) -> Iterator[None]:
    write_mirror(shared_server.models, "mirror")
    write_python_model(shared_server.models, "neighbour", ECHO, top=EXPLICIT)
    for name in ("mirror", "neighbour"):
        shared_server.calls.load(name)
    yield
    for name in ("mirror", "neighbour"):
        shared_server.calls.unload(name)


@pytest.fixture(scope="module", autouse=True)
def bystander(shared_server: SharedServer, models: None) -> Iterator[None]:
    """One for all bursts together: so many calls have a 99th percentile. The after-check is for when it has ended."""
    with sentinel(shared_server.server.grpc, "neighbour"):
        yield
    after_check(shared_server.server, shared_server.calls, shared_server.baseline)


def _normal(calls: Calls) -> list[Call]:
    return [calls.start(request_of("mirror", rows_of(float(number), 7.0))) for number in range(_NORMAL)]


def _check_normal(normal: list[Call]) -> None:
    for number, call in enumerate(normal):
        check_own_rows(call.outcome(), [float(number), 7.0])


def _check_at_rest(shared: SharedServer) -> None:
    """The server serves, and has nothing left to do for the model."""
    assert shared.calls.is_ready()
    assert "waiting" not in shared.calls.index()["mirror"].reason
    eventually(lambda: not shared.running_requests("mirror"), within_s=1.0, what="nothing runs")


@pytest.mark.parametrize("seed", range(_SEEDS))
def test_those_who_leave_cost_nobody_anything(shared_server: SharedServer, seed: int) -> None:
    """A hundred go while they wait, while they are computed, and while they are answered."""
    calls, chance = shared_server.calls, random.Random(seed)
    leaving = [calls.start(request_of("mirror", rows_of(float(number)))) for number in range(_LEAVING)]
    beside = _normal(calls)
    began_s = time.monotonic()
    for at_s, call in sorted(((chance.uniform(0, _GONE_WITHIN_S), call) for call in leaving), key=lambda item: item[0]):
        time.sleep(max(0.0, began_s + at_s - time.monotonic()))
        call.cancel()
    after = _normal(calls)
    _check_normal(beside)
    _check_normal(after)
    failed = calls.failure(_ODD[seed % len(_ODD)])
    assert failed.code == "INVALID_ARGUMENT", failed
    _check_normal(_normal(calls))
    _check_at_rest(shared_server)


def test_who_can_not_be_judged_is_refused_alone(shared_server: SharedServer) -> None:
    """Amid those who wait, and not after them."""
    calls = shared_server.calls
    normal = _normal(calls)
    odd = [calls.start(request) for request in _ODD]
    more = _normal(calls)
    for call in odd:
        failed = call.outcome()
        assert isinstance(failed, Failure)
        assert failed.code == "INVALID_ARGUMENT", failed
    _check_normal(normal)
    _check_normal(more)
    _check_at_rest(shared_server)


def test_nothing_is_left_when_all_have_gone(shared_server: SharedServer) -> None:
    calls = shared_server.calls
    under_way = [calls.start(request_of("mirror", rows_of(1.0))) for _ in range(200)]
    for call in under_way:
        call.cancel()
    eventually(lambda: "waiting" not in calls.index()["mirror"].reason, within_s=2.0, what="nobody waits")
    _check_normal(_normal(calls))
    _check_at_rest(shared_server)
