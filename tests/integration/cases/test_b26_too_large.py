"""B26: what can never fit is told so at once; what fits alone comes to its turn; and nobody spins meanwhile."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from moorage_protocol import inference as pb
from tests.integration.cases.conftest import SharedServer, small_server, trial_of
from tests.integration.cases.ledger import Ledger, ledger_watched
from tests.support.calls import Call, Calls, Failure, calls_to, output_of, request_of, rows_of
from tests.support.polling import eventually
from tests.support.toy_models import EXPLICIT, ON_DEMAND, write_simulated_model

_MIB = 2**20
_SHARE = '[memory]\nworkspace_per_row = "1 MiB"\n'
_RUN_S = 0.02


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedServer]:
    """A budget of ten; runs that take one for each row, and models that take eleven, or ten."""
    folder = tmp_path_factory.mktemp("large")
    models = folder / "models"
    for name in ("rows", "other_rows"):
        write_simulated_model(models, name, run_s=_RUN_S, max_batch_size=20, extra=_SHARE)
    write_simulated_model(models, "long", run_s=1.5, max_batch_size=5, extra=_SHARE)
    write_simulated_model(models, "ten", top=ON_DEMAND, extra='[memory]\nweights = "10 MiB"\n')
    write_simulated_model(models, "eleven", extra='[memory]\nweights = "11 MiB"\n')
    write_simulated_model(models, "eleven_by_hand", top=EXPLICIT, extra='[memory]\nweights = "11 MiB"\n')
    run_too_large = '[memory]\nweights = "6 MiB"\nworkspace_fixed = "5 MiB"\n'
    write_simulated_model(models, "six_and_five", top=ON_DEMAND, extra=run_too_large)
    with small_server(folder, weights_mib={"ten": 10}) as shared:
        yield shared


@pytest.fixture
def trial(server: SharedServer) -> Iterator[SharedServer]:
    with trial_of(server) as shared:
        yield shared


@pytest.fixture
def ledger(trial: SharedServer) -> Iterator[Ledger]:
    with ledger_watched(trial.server.grpc) as ledger:
        yield ledger


@contextmanager
def _steady_flow(calls: Calls, *models: str) -> Iterator[list[Call]]:
    """Calls of one row, always ten of them under way; those that were begun. All must be answered."""
    begun = [calls.start(request_of(models[number % len(models)], rows_of(1)), 5.0) for number in range(10)]
    yield begun
    assert not [call for call in begun if isinstance(call.outcome(), Failure)]


def _go_on(calls: Calls, begun: list[Call], *models: str) -> None:
    """Begin as many as have ended."""
    ended = sum(call.is_done for call in begun)
    missing = range(10 - (len(begun) - ended))
    begun += [calls.start(request_of(models[number % len(models)], rows_of(1)), 5.0) for number in missing]
    eventually(lambda: sum(call.is_done for call in begun) > ended, what="another ends")


def test_eleven_of_ten_rows_are_refused_at_once(trial: SharedServer, ledger: Ledger) -> None:
    calls = trial.calls
    with _steady_flow(calls, "rows") as begun:
        for _ in range(20):
            refused = calls.failure(request_of("rows", rows_of(*[1.0] * 11)))
            assert refused.code == "FAILED_PRECONDITION"
            assert refused.reason == "MODEL_TOO_LARGE"
            assert (refused.figures["bytes_needed"], refused.figures["bytes_capacity"]) == (
                f"{11 * _MIB}",
                f"{10 * _MIB}",
            )
            assert str(11 * _MIB) in refused.message
            assert refused.retry_after_s is None
            assert refused.seconds < 0.1
            _go_on(calls, begun, "rows")
        assert sum(call.is_done for call in begun) >= 10, "those behind it flow"


@pytest.mark.parametrize("flow", [("rows",), ("other_rows",), ("rows", "other_rows")])
def test_ten_of_ten_rows_come_to_their_turn(trial: SharedServer, ledger: Ledger, flow: tuple[str, ...]) -> None:
    """Within a few runs of those who were there before, though more of one row keep coming."""
    calls = trial.calls
    for _ in range(5):
        with _steady_flow(calls, *flow) as begun:
            large = calls.start(request_of("rows", rows_of(*[1.0] * 10)), 5.0)
            while not large.is_done:
                _go_on(calls, begun, *flow)
            assert output_of(large.outcome()).shape == (10, 4)
            assert large.seconds < 20 * _RUN_S


def test_a_model_of_ten_comes_in_beside_a_steady_flow(trial: SharedServer, ledger: Ledger) -> None:
    calls = trial.calls
    with _steady_flow(calls, "rows") as begun:
        large = calls.start(request_of("ten", rows_of(1)), 5.0)
        while not large.is_done:
            _go_on(calls, begun, "rows")
        assert not isinstance(large.outcome(), Failure)
        assert large.seconds < 30 * _RUN_S


def test_nobody_spins_while_somebody_waits(trial: SharedServer) -> None:
    """Half of the memory is in a long run; ten and ten more wait for it."""
    with calls_to(trial.server.grpc) as calls:
        holding = calls.start(request_of("long", rows_of(*[1.0] * 5)))
        waiting = [calls.start(request_of(name, rows_of(*[1.0] * 10)), 10.0) for name in ("rows", "other_rows") * 10]
        eventually(lambda: "waiting" in calls.index()["rows"].reason, what="they wait")
        process = psutil.Process(trial.server.pid)
        before_s, began_s = sum(process.cpu_times()[:2]), time.monotonic()
        eventually(lambda: time.monotonic() - began_s > 0.8, what="a while has passed")
        spent_s = sum(process.cpu_times()[:2]) - before_s
        assert not holding.is_done
        # The sentinel's calls and the check of the ledger after every event are most of it.
        assert spent_s < 0.3
        assert not [call for call in (holding, *waiting) if isinstance(call.outcome(), Failure)]


def test_a_model_that_can_never_fit_is_reported_at_start(trial: SharedServer) -> None:
    calls = trial.calls
    logged = [line for line in trial.server.logs.splitlines() if "model eleven/1" in line and "error" in line]
    assert len(logged) == 1
    assert f"needs {11 * _MIB} bytes, but cpu has a capacity of {10 * _MIB} bytes" in logged[0]
    entry = calls.index()["eleven"]
    assert entry.state == "UNAVAILABLE"
    assert f"{11 * _MIB}" in entry.reason
    assert not calls.is_model_ready("eleven")
    assert calls.is_ready(), "the others serve"
    failed = calls.failure(request_of("eleven", rows_of(1)))
    assert failed.code == "UNAVAILABLE"
    assert failed.seconds < 0.1


@pytest.mark.parametrize(("model", "needed"), [("eleven_by_hand", 11), ("six_and_five", 11)])
def test_a_load_that_can_never_fit_is_refused_at_once(trial: SharedServer, model: str, needed: int) -> None:
    for method, request in (
        ("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name=model)),
        ("ModelInfer", request_of(model, rows_of(1))),
    ):
        if model == "eleven_by_hand" and method == "ModelInfer":
            continue
        failed = trial.calls.failure(request, method=method)
        assert failed.code in ("FAILED_PRECONDITION", "UNAVAILABLE")
        assert f"{needed * _MIB}" in failed.message
        assert failed.seconds < 0.3
