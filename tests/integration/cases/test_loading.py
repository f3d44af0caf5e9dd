"""Loading: it never delays what is resident, swaps without a gap, and leaves what served where it fails."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import grpc
import pytest

from moorage_protocol import inference as pb
from tests.integration.cases.conftest import SharedServer
from tests.support.calls import Calls, Failure, calls_to, output_of, request_of, rows_of
from tests.support.polling import eventually
from tests.support.toy_models import EXPLICIT, write_python_model, write_simulated_model

_SLEEPS = """
    import time
    from moorage import Model

    class Sleeps(Model):
        def load(self, context):
            time.sleep(3.0)

        def infer(self, inputs, batch):
            return {"y": inputs["x"]}
"""

_BUSY = """
    import time
    from moorage import Model

    class Busy(Model):
        def load(self, context):
            end = time.monotonic() + 2.0
            while time.monotonic() < end:
                sum(range(1000))

        def infer(self, inputs, batch):
            return {"y": inputs["x"]}
"""

_PLUS = """
    import time
    from moorage import Model

    class Plus(Model):
        def load(self, context):
            time.sleep(LOAD_S)

        def infer(self, inputs, batch):
            return {"y": inputs["x"] + AMOUNT}
"""

_FAILS = """
    from moorage import Model

    class Fails(Model):
        def load(self, context):
            raise ERROR

        def infer(self, inputs, batch):
            return {}
"""


def _plus(amount: int, load_s: float = 0.0) -> str:
    return _PLUS.replace("AMOUNT", str(amount)).replace("LOAD_S", str(load_s))


@pytest.mark.parametrize(("name", "code"), [("sleeps", _SLEEPS), ("busy", _BUSY)])
def test_a_long_load_does_not_delay_the_neighbours(watched: SharedServer, name: str, code: str) -> None:
    """The sentinel's model is in the same worker. Triton server #7014: readiness was false during any load."""
    calls = watched.calls
    write_python_model(watched.models, name, code, top=EXPLICIT)
    load = calls.start(pb.RepositoryModelLoadRequest(model_name=name), method="RepositoryModelLoad")
    looks = 0

    def is_loaded() -> bool:
        nonlocal looks
        looks += 1
        assert calls.is_live()
        assert calls.is_ready()
        assert calls.is_model_ready("echo")
        return load.is_done

    eventually(is_loaded, what="it is loaded")
    assert looks > 20
    assert not isinstance(load.outcome(), Failure)
    calls.unload(name)


@contextmanager
def _traffic(target: str, model: str) -> Iterator[list[float]]:
    """Calls one after another, each with a zero; what came back, in order. Raises where one failed."""
    answers: list[float] = []
    errors: list[object] = []
    stop = threading.Event()

    def run() -> None:
        with calls_to(target) as calls:
            while not stop.is_set():
                try:
                    answers.append(float(output_of(calls.infer(request_of(model, rows_of(0))))[0, 0]))
                except grpc.RpcError as error:
                    errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not errors, errors[:3]


def _load_failure(calls: Calls, name: str) -> Failure:
    return calls.failure(pb.RepositoryModelLoadRequest(model_name=name), method="RepositoryModelLoad")


def test_a_swap_leaves_no_gap_and_a_failed_load_leaves_what_served(watched: SharedServer) -> None:
    calls, models = watched.calls, watched.models
    write_python_model(models, "plus", _plus(1), top=EXPLICIT)
    calls.load("plus")
    with _traffic(watched.server.grpc, "plus") as answers:
        eventually(lambda: len(answers) > 10)
        write_python_model(models, "plus", _plus(2, load_s=0.3), top=EXPLICIT)
        calls.load("plus")
        seen = len(answers)
        eventually(lambda: len(answers) > seen + 10)
        write_python_model(models, "plus", _FAILS.replace("ERROR", 'ValueError("no such weights")'), top=EXPLICIT)
        failed = _load_failure(calls, "plus")
        assert failed.code == "FAILED_PRECONDITION"
        assert "no such weights" in failed.message
        assert calls.is_model_ready("plus")
        (models / "plus" / "model.toml").write_text("runtime = ")
        assert _load_failure(calls, "plus").code == "FAILED_PRECONDITION"
        seen = len(answers)
        eventually(lambda: len(answers) > seen + 10)
        # Two versions: the newer one takes over, beside the older that stays as it is.
        write_python_model(models, "plus", _plus(3, load_s=0.3), top=f'{EXPLICIT}versions = "all"', version=2)
        write_python_model(models, "plus", _plus(2), top=f'{EXPLICIT}versions = "all"')
        calls.load("plus")
        seen = len(answers)
        eventually(lambda: len(answers) > seen + 10)
        # A third version that fails stands before nobody.
        failing = _FAILS.replace("ERROR", "ValueError()")
        write_python_model(models, "plus", failing, top=f'{EXPLICIT}versions = "all"', version=4)
        assert _load_failure(calls, "plus").code == "FAILED_PRECONDITION"
        seen = len(answers)
        eventually(lambda: len(answers) > seen + 10)
    changes = [before for before, after in pairwise(answers) if before != after]
    assert set(answers) == {1.0, 2.0, 3.0}
    assert len(changes) <= 6, "two callers, two swaps: answers do not go back and forth"
    assert answers[-1] == 3.0
    calls.unload("plus")
    assert not calls.is_model_ready("plus")


def test_a_swap_goes_on_when_its_caller_has_gone(watched: SharedServer) -> None:
    calls, models = watched.calls, watched.models
    write_python_model(models, "left_alone", _plus(1), top=EXPLICIT)
    calls.load("left_alone")
    write_python_model(models, "left_alone", _plus(2, load_s=0.5), top=EXPLICIT)
    failed = calls.failure(pb.RepositoryModelLoadRequest(model_name="left_alone"), 0.2, "RepositoryModelLoad")
    assert failed.code == "DEADLINE_EXCEEDED"
    assert output_of(calls.infer(request_of("left_alone", rows_of(0))))[0, 0] == 1
    eventually(lambda: output_of(calls.infer(request_of("left_alone", rows_of(0))))[0, 0] == 2, what="it takes over")
    calls.unload("left_alone")


def test_an_unload_during_a_swap_takes_both(watched: SharedServer) -> None:
    calls, models = watched.calls, watched.models
    write_python_model(models, "both", _plus(1), top=EXPLICIT)
    calls.load("both")
    write_python_model(models, "both", _plus(2, load_s=0.5), top=EXPLICIT)
    load = calls.start(pb.RepositoryModelLoadRequest(model_name="both"), method="RepositoryModelLoad")
    time.sleep(0.2)
    calls.unload("both")
    load.outcome()
    assert calls.failure(request_of("both", rows_of(0))).code == "UNAVAILABLE"
    assert not calls.is_model_ready("both")


@pytest.mark.parametrize(
    "error", ["SystemExit(0)", "KeyboardInterrupt()", "OSError(2, 'x', '/secret')", "RuntimeError('\\udcff')"]
)
def test_whatever_a_load_raises_only_that_load_fails(watched: SharedServer, error: str) -> None:
    write_python_model(watched.models, "fails", _FAILS.replace("ERROR", error), top=EXPLICIT)
    failed = _load_failure(watched.calls, "fails")
    assert failed.code == "FAILED_PRECONDITION"
    assert "secret" not in failed.message
    assert str(watched.models) not in failed.message
    assert "Traceback" not in failed.message
    assert error.partition("(")[0].replace("OSError", "FileNotFoundError") in watched.calls.index()["fails"].reason


def test_a_load_that_takes_too_long_is_ended_and_the_next_goes_on(watched: SharedServer) -> None:
    """In a worker of its own: ending a load means ending its process."""
    top = f"{EXPLICIT}load_timeout_s = 1.0\n"
    extra = '[placement]\nisolation = "dedicated"\n'
    write_simulated_model(watched.models, "endless", load_s=600.0, top=top, extra=extra)
    failed = _load_failure(watched.calls, "endless")
    assert failed.code == "FAILED_PRECONDITION"
    assert "not loaded within 1 s" in failed.message
    assert failed.seconds < 3.0
    write_simulated_model(watched.models, "endless", top=top, extra=extra)
    watched.calls.load("endless")
    watched.calls.unload("endless")
