"""B20: a load puts out no more than it needs, once; failed loads leave nothing; two models in turn do not thrash."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from moorage_protocol import inference as pb
from tests.integration.cases.conftest import SharedServer, small_server, trial_of
from tests.integration.cases.ledger import Ledger, ledger_watched
from tests.support.calls import Calls, Failure, calls_to, request_of, rows_of
from tests.support.polling import eventually
from tests.support.toy_models import BROKEN, EXPLICIT, ON_DEMAND, write_python_model, write_simulated_model

_HOT = [f"hot{number}" for number in range(10)]
_WANTED_LEAST = ["hot5", "hot9"]
_NEWCOMERS = ["eleventh", "twelfth"]
_COLD = "cold"
_PAIR = ["left", "right"]
_ONE = '[memory]\nweights = "1 MiB"\n'
_LEAVES_S = 0.5
_MIN_RESIDENCY_S = 0.2


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedServer]:
    """A budget of ten, ten models of one, which take half a second to leave, and more that come later."""
    folder = tmp_path_factory.mktemp("cascades")
    models = folder / "models"
    for name in (*_HOT, *_NEWCOMERS, _COLD):
        leaves = f"restore_s = {_LEAVES_S}"
        write_simulated_model(models, name, load_s=0.05, top=ON_DEMAND, extra=_ONE, simulated=leaves)
    for name in _PAIR:
        six = '[memory]\nweights = "6 MiB"\n'
        write_simulated_model(models, name, load_s=0.02, top=ON_DEMAND, extra=six, simulated="restore_s = 0.02")
    write_python_model(models, "broken", BROKEN, top=EXPLICIT, extra=_ONE)
    write_python_model(models, "broken_later", BROKEN, top=ON_DEMAND, extra=_ONE)
    weights_mib = {**dict.fromkeys((*_HOT, *_NEWCOMERS, _COLD), 1), **dict.fromkeys(_PAIR, 6)}
    with small_server(folder, weights_mib=weights_mib, min_residency_s=_MIN_RESIDENCY_S) as shared:
        yield shared


@pytest.fixture
def trial(server: SharedServer) -> Iterator[SharedServer]:
    """All hot models are in memory, two of them asked for less than the others."""
    with trial_of(server) as shared:
        _all_answered(shared.calls, _HOT)
        for _ in range(2):
            _all_answered(shared.calls, [name for name in _HOT if name not in _WANTED_LEAST])
        yield shared


@pytest.fixture
def ledger(trial: SharedServer) -> Iterator[Ledger]:
    with ledger_watched(trial.server.grpc) as ledger:
        # What came in last may not go for as long as it took to come.
        eventually(lambda: ledger.device().leased_bytes.get("weights") == 10 * 2**20, what="the budget is full")
        yield ledger


def _all_answered(calls: Calls, models: list[str], timeout_s: float = 20.0) -> None:
    outcomes = [call.outcome() for call in [calls.start(request_of(name, rows_of(1)), timeout_s) for name in models]]
    assert not [outcome for outcome in outcomes if isinstance(outcome, Failure)]


def _more(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {name: count - before.get(name, 0) for name, count in after.items() if count > before.get(name, 0)}


def test_each_newcomer_puts_out_one(trial: SharedServer, ledger: Ledger) -> None:
    """The least wanted; while these go, the others serve on and nobody else is put out."""
    before = ledger.evictions()
    newcomers = [trial.calls.start(request_of(name, rows_of(1))) for name in _NEWCOMERS]
    eventually(lambda: len(_more(before, ledger.evictions())) == 2, what="two leave")
    served = trial.calls.start(request_of("hot0", rows_of(1)))
    assert not isinstance(served.outcome(), Failure)
    assert not any(call.is_done for call in newcomers), "half a second is not over"
    assert not [call for call in newcomers if isinstance(call.outcome(), Failure)]
    assert _more(before, ledger.evictions()) == dict.fromkeys(_WANTED_LEAST, 1)


def test_fifty_callers_of_a_cold_model_load_it_once(trial: SharedServer, ledger: Ledger) -> None:
    evictions, arrivals = ledger.evictions(), ledger.arrivals()
    _all_answered(trial.calls, [_COLD] * 50)
    assert ledger.arrivals() - arrivals == 1
    assert ledger.counts()[_COLD].loads == 1
    assert sum(_more(evictions, ledger.evictions()).values()) == 1


def test_a_hundred_failed_loads_leave_nothing_behind(trial: SharedServer, ledger: Ledger) -> None:
    """Room is made for the first, and is still there for the others; and trying again and again is slowed down."""
    evictions = ledger.evictions()
    request = pb.RepositoryModelLoadRequest(model_name="broken")
    failures = [trial.calls.failure(request, method="RepositoryModelLoad") for _ in range(100)]
    assert {failed.code for failed in failures} <= {"FAILED_PRECONDITION", "UNAVAILABLE"}
    assert "no such weights" in failures[0].message
    assert sum(_more(evictions, ledger.evictions()).values()) == 1
    assert ledger.device().leased_bytes.get("weights") == 9 * 2**20
    tried = sum(failed.code == "FAILED_PRECONDITION" for failed in failures)
    assert tried <= 6, "a load that fails is not tried again at once"
    assert all(failed.retry_after_s for failed in failures if failed.code == "UNAVAILABLE")


def test_requests_do_not_try_a_failed_load_again(trial: SharedServer, ledger: Ledger) -> None:
    outcomes = [trial.calls.failure(request_of("broken_later", rows_of(1))) for _ in range(20)]
    assert outcomes[0].code == "FAILED_PRECONDITION"
    assert {failed.code for failed in outcomes[1:]} == {"UNAVAILABLE"}
    assert max(failed.seconds for failed in outcomes[1:]) < 0.5


def test_two_clients_in_turn_over_two_models(trial: SharedServer, ledger: Ledger) -> None:
    """Each model stays for the documented time at least, so no more of them come in than that allows; both go on."""
    _all_answered(trial.calls, _PAIR)
    before, began_s = ledger.arrivals(), time.monotonic()
    with ThreadPoolExecutor(2) as clients:
        answered = list(clients.map(lambda order: _call_in_turn(trial.server.grpc, order), (_PAIR, _PAIR[::-1])))
    arrivals = ledger.arrivals() - before
    assert min(answered) >= 6
    assert arrivals <= 1 + (time.monotonic() - began_s) / _MIN_RESIDENCY_S


def _call_in_turn(target: str, models: list[str]) -> int:
    """Call one and the other for three seconds; how many calls were answered. Raises grpc.RpcError."""
    over = threading.Timer(3.0, lambda: None)
    over.start()
    answered = 0
    with calls_to(target) as calls:
        while over.is_alive():
            calls.infer(request_of(models[answered % 2], rows_of(1)), timeout_s=5.0)
            answered += 1
    over.join()
    return answered
