"""B17: whoever is put out to make room may be wanted again at any moment; both come to their turn, and nobody hangs."""

import random
import time
from collections.abc import Iterator

import pytest

from tests.integration.cases.conftest import SharedServer, small_server, trial_of
from tests.integration.cases.ledger import Ledger, ledger_watched
from tests.support.calls import Call, Calls, Failure, output_of, request_of, rows_of
from tests.support.polling import eventually
from tests.support.toy_models import DEDICATED, ON_DEMAND, write_fat_model, write_simulated_model

# In each role. Fewer where all goes: after an unload the worker looks at all its objects, for a tenth of a second.
_ROUNDS = {"offloaded": 100, "unloaded": 20}
_LATEST_S = 0.02
_LIMIT_S = 5.0
_LOAD_S = 0.02
_SIX_OF_TEN = '[memory]\nweights = "6 MiB"\n'


@pytest.fixture(scope="module", params=["offloaded", "unloaded"])
def way(request: pytest.FixtureRequest) -> str:
    """Where a victim's weights go: beside the device, or away altogether."""
    return str(request.param)


@pytest.fixture(scope="module")
def server(way: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedServer]:
    """A budget of ten, and models of six."""
    folder = tmp_path_factory.mktemp("revived")
    models = folder / "models"
    write_fat_model(models, "a", 6, load_s=_LOAD_S, top=ON_DEMAND)
    write_fat_model(models, "b", 6, load_s=_LOAD_S, top=ON_DEMAND)
    write_simulated_model(
        models,
        "steps",
        run_s=0.01,
        top=ON_DEMAND,
        extra=_SIX_OF_TEN + 'state = "1 MiB"',
        simulated="steps = 60\nstate = 1048576",
    )
    endless = f"{ON_DEMAND}load_timeout_s = 0.5\n"
    write_simulated_model(models, "endless", load_s=600.0, top=endless, extra=_SIX_OF_TEN + DEDICATED)
    host = "0 B" if way == "unloaded" else "40 MiB"
    with small_server(folder, weights_mib={"a": 6, "b": 6, "steps": 6}, host_budget=host) as shared:
        shared.calls.infer(request_of("a", rows_of(0)))  # its process takes seconds to come up, once
        yield shared


@pytest.fixture
def trial(server: SharedServer) -> Iterator[SharedServer]:
    with trial_of(server) as shared:
        yield shared
        _both_serve(shared.calls)


@pytest.fixture
def ledger(trial: SharedServer) -> Iterator[Ledger]:
    with ledger_watched(trial.server.grpc) as ledger:
        yield ledger


def _both_serve(calls: Calls) -> None:
    """One call to each within two load times; the rest of the bound is the machine's."""
    for name in ("a", "b"):
        began_s = time.monotonic()
        assert output_of(calls.infer(request_of(name, rows_of(3)), timeout_s=_LIMIT_S)).tolist() == [[3.0] * 4]
        assert time.monotonic() - began_s < 2 * _LOAD_S + 1.0


def _call(calls: Calls, model: str, number: float, *, delay_ms: int = 0, priority: int = 3) -> Call:
    parameters: dict[str, bool | int | float | str] = {"priority": priority}
    if delay_ms:
        parameters["delay_ms"] = delay_ms
    return calls.start(request_of(model, rows_of(number), parameters=parameters), _LIMIT_S)


def _answers(under_way: list[Call]) -> list[float]:
    """All are answered: nothing here takes half as long as a call may."""
    outcomes = [call.outcome() for call in under_way]
    failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    assert not failures, f"{len(failures)} of {len(outcomes)}, {failures[:3]}"
    return [float(output_of(outcome)[0, 0]) for outcome in outcomes]


@pytest.mark.parametrize(("first", "second"), [("b", "a"), ("a", "b")])
def test_a_victim_is_called_while_it_goes(
    trial: SharedServer, ledger: Ledger, way: str, first: str, second: str
) -> None:
    moments = random.Random(17)
    _answers([_call(trial.calls, second, 0)])
    for number in range(_ROUNDS[way]):
        forcing = _call(trial.calls, first, number)
        time.sleep(moments.uniform(0.0, _LATEST_S))
        revived = _call(trial.calls, second, -number)
        assert _answers([forcing, revived]) == [number, -number]
    assert sum(ledger.evictions().values()) >= _ROUNDS[way], "it was about eviction"


def test_with_twenty_callers_on_each_side(trial: SharedServer, ledger: Ledger) -> None:
    for number in range(10):
        under_way = [_call(trial.calls, "ab"[index % 2], number) for index in range(40)]
        assert _answers(under_way) == [number] * 40


def test_a_victim_in_the_middle_of_a_run_ends_it_first(trial: SharedServer, ledger: Ledger) -> None:
    for number in range(5):
        busy = _call(trial.calls, "a", number, delay_ms=300)
        eventually(lambda: ledger.model("a").running_requests, what="it runs")
        forcing = _call(trial.calls, "b", number)
        later = [_call(trial.calls, "a", number, delay_ms=300) for _ in range(5)]
        assert _answers([forcing]) == [number]
        assert busy.is_done
        assert not any(call.is_done for call in later), "those who came after it do not hold it up"
        assert _answers([busy]) == [number]
        assert _answers(later) == [number] * 5


def test_a_stepped_victim_is_done_with_its_requests_first(trial: SharedServer, ledger: Ledger) -> None:
    """They take 0.6 s. More of them keep coming, and could share its steps for ever."""
    under_way = [_call(trial.calls, "steps", 0)]
    eventually(lambda: ledger.model("steps").running_requests, what="it runs")
    forcing = _call(trial.calls, "b", 5)

    def is_in() -> bool:
        if sum(not call.is_done for call in under_way) < 8:
            under_way.append(_call(trial.calls, "steps", 0))
        return forcing.is_done

    eventually(is_in, what="b has its turn")
    assert _answers([forcing]) == [5.0]
    assert forcing.seconds < 0.6 + 1.0
    assert _answers(under_way) == [0.0] * len(under_way)


def test_a_stepped_victim_gives_way_to_higher_priority(trial: SharedServer, ledger: Ledger) -> None:
    busy = _call(trial.calls, "steps", 0)
    eventually(lambda: ledger.model("steps").running_requests, what="it runs")
    assert _answers([_call(trial.calls, "b", 5, priority=1)]) == [5.0]
    assert not busy.is_done
    assert _answers([busy]) == [0.0]
    assert ledger.counts()["steps"].preemptions


def test_a_load_that_never_ends_fails_its_callers_and_lets_others_load(trial: SharedServer, ledger: Ledger) -> None:
    _answers([_call(trial.calls, "a", 1)])
    waiting = [_call(trial.calls, "endless", 1) for _ in range(3)]
    eventually(lambda: "endless loading" in ledger.states, what="it loads")
    other = _call(trial.calls, "b", 4)
    outcomes = [call.outcome() for call in waiting]
    assert {outcome.code for outcome in outcomes} == {"FAILED_PRECONDITION"}
    assert "not loaded within 0.5 s" in outcomes[0].message
    assert _answers([other]) == [4.0]
    assert "endless" in trial.server.logs
