"""B34: whoever stops waiting in the moment of being served takes nothing along, and wakes those behind."""

import random
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import pytest

from moorage_client import SyncClient
from moorage_client.errors import DeadlineExceeded
from tests.integration.cases.conftest import SharedServer, small_server, trial_of
from tests.integration.cases.ledger import Ledger, ledger_watched
from tests.support.calls import Call, Calls, Failure, request_of, rows_of
from tests.support.polling import eventually
from tests.support.toy_models import write_simulated_model

_MIB = 2**20
_CALLS = 10_000
_AT_ONCE = 8
_SERVICE_S = 0.004
_EARLIER_OR_LATER_S = 0.002
_AT_ONCE_S = 0.05  # and what the machine takes
_SHARE = '[memory]\nworkspace_per_row = "1 MiB"\n'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedServer]:
    """A budget of ten, and models that take one for each row of a run."""
    folder = tmp_path_factory.mktemp("cancelled")
    models = folder / "models"
    write_simulated_model(models, "single", run_s=_SERVICE_S, max_batch_size=1)
    write_simulated_model(models, "weighted", run_s=_SERVICE_S, max_batch_size=10, extra=_SHARE)
    write_simulated_model(models, "holding", run_s=0.8, max_batch_size=5, extra=_SHARE)
    for number in range(10):
        write_simulated_model(models, f"one{number}", max_batch_size=1, extra=_SHARE)
    with small_server(folder, weights_mib={}) as shared:
        yield shared


@pytest.fixture
def trial(server: SharedServer) -> Iterator[SharedServer]:
    with trial_of(server) as shared:
        yield shared


@pytest.fixture
def ledger(trial: SharedServer) -> Iterator[Ledger]:
    with ledger_watched(trial.server.grpc) as ledger:
        yield ledger


def _rows(count: int) -> list[float]:
    return [1.0] * count


def _storm(calls: Calls, model: str, count: int, service_s: float, *, most_rows: int) -> Counter[str]:
    """Calls whose deadline is about the time that one takes; how they ended. Half of them say it by parameter."""
    chances = random.Random(34)
    outcomes: Counter[str] = Counter()
    under_way: deque[Call] = deque()
    around_s = max(_EARLIER_OR_LATER_S, service_s / 2)
    for number in range(count):
        deadline_s = service_s + chances.uniform(-around_s, around_s)
        tensor = rows_of(*_rows(chances.randint(1, most_rows)))
        if number % 2:
            under_way.append(calls.start(request_of(model, tensor, parameters={"timeout": int(deadline_s * 1e6)})))
        else:
            under_way.append(calls.start(request_of(model, tensor), deadline_s))
        if len(under_way) == _AT_ONCE:
            outcomes[_ended(under_way.popleft())] += 1
    outcomes.update(_ended(call) for call in under_way)
    return outcomes


def _service_s(calls: Calls, model: str) -> float:
    """What a call takes here, its way included."""
    seconds = []
    for _ in range(30):
        call = calls.start(request_of(model, rows_of(1)))
        assert not isinstance(call.outcome(), Failure)
        seconds.append(call.seconds)
    return median(seconds)


def _ended(call: Call) -> str:
    outcome = call.outcome()
    return outcome.code if isinstance(outcome, Failure) else "OK"


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("model", "count", "rows"), [("single", _CALLS, 1), ("weighted", _CALLS // 4, 10)])
def test_a_storm_of_deadlines_in_the_moment_of_service(
    trial: SharedServer, ledger: Ledger, model: str, count: int, rows: int
) -> None:
    outcomes = _storm(trial.calls, model, count, _service_s(trial.calls, model), most_rows=rows)
    assert set(outcomes) == {"OK", "DEADLINE_EXCEEDED"}
    assert min(outcomes.values()) > count // 200, f"both happen often, {outcomes}"
    whole = trial.calls.start(request_of(model, rows_of(*_rows(rows))))
    assert not isinstance(whole.outcome(), Failure)
    assert whole.seconds < 0.2
    eventually(lambda: not ledger.device().leased_bytes.get("workspace"), within_s=1.0, what="nothing is in use")


def _small_ones(calls: Calls) -> list[Call]:
    return [calls.start(request_of(f"one{number}", rows_of(1)), 5.0) for number in range(10)]


def _seconds_until_all_are_done(calls: list[Call]) -> float:
    """From the first look on. Raises AssertionError where one fails."""
    before_s = [call.seconds for call in calls]
    assert not [call for call in calls if isinstance(call.outcome(), Failure)]
    return max(call.seconds - waited_s for call, waited_s in zip(calls, before_s, strict=True))


def test_a_large_waiter_that_gives_up_wakes_the_small_ones(trial: SharedServer, ledger: Ledger) -> None:
    """Five are in use; ten are asked for; then one each by ten others, which may not take what the ten wait for."""
    holding = trial.calls.start(request_of("holding", rows_of(*_rows(5))))
    eventually(lambda: ledger.device().leased_bytes.get("workspace") == 5 * _MIB, what="five are in use")
    large = trial.calls.start(request_of("weighted", rows_of(*_rows(10))))
    eventually(lambda: ledger.model("weighted").waiting_rows == 10, what="the large one waits")
    small = _small_ones(trial.calls)
    eventually(lambda: all(ledger.model(f"one{number}").waiting_rows for number in range(10)), what="all wait")
    assert not any(call.is_done for call in small)
    large.cancel()
    assert _seconds_until_all_are_done(small) < _AT_ONCE_S + 0.1
    assert not holding.is_done
    assert not isinstance(holding.outcome(), Failure)


def _take(client: SyncClient, size_bytes: int) -> None:
    with client.hold("cpu", size_bytes, max_wait_s=0.3):
        pass


def test_a_large_hold_that_gives_up_wakes_the_small_ones(trial: SharedServer, ledger: Ledger) -> None:
    holding = trial.calls.start(request_of("holding", rows_of(*_rows(5))))
    eventually(lambda: ledger.device().leased_bytes.get("workspace") == 5 * _MIB, what="five are in use")
    with SyncClient(trial.server.grpc) as client:
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(_take, client, 10 * _MIB)
            eventually(lambda: ledger.device().waiting, what="the hold waits")
            small = _small_ones(trial.calls)
            eventually(lambda: all(ledger.model(f"one{number}").waiting_rows for number in range(10)), what="all wait")
        assert isinstance(waiting.exception(), DeadlineExceeded)
    assert _seconds_until_all_are_done(small) < _AT_ONCE_S + 0.1
    assert not holding.is_done
    assert not isinstance(holding.outcome(), Failure)


def test_beside_a_hold_what_no_longer_fits_is_refused_and_the_rest_goes_on(trial: SharedServer, ledger: Ledger) -> None:
    """A hold lasts as long as its holder likes: nobody is kept waiting for its end."""
    with SyncClient(trial.server.grpc) as client, client.hold("cpu", 5 * _MIB):
        large = trial.calls.failure(request_of("weighted", rows_of(*_rows(10))))
        assert large.code == "RESOURCE_EXHAUSTED"
        assert large.figures["bytes_needed"] == str(10 * _MIB)
        assert f"held {5 * _MIB}" in large.figures["held_by"]
        assert large.retry_after_s
        assert large.seconds < 0.2
        assert _seconds_until_all_are_done(_small_ones(trial.calls)) < _AT_ONCE_S + 0.1
        assert ledger.device().leased_bytes["held"] == 5 * _MIB
    assert not isinstance(trial.calls.start(request_of("weighted", rows_of(*_rows(10)))).outcome(), Failure)
