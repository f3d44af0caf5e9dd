"""B19: a run that finds no memory fails alone, keeps none, and what used to fit fits afterwards."""

from collections.abc import Iterator

import pytest

from tests.integration.cases.conftest import SharedServer
from tests.support.calls import Call, Calls, Failure, Tensor, output_of, request_of, rows_of
from tests.support.toy_models import DEDICATED, EXPLICIT, write_python_model

_ROUNDS = 100
_MIB = 1024 * 1024

# Takes memory for every run, and more than there is for more than 8 rows. Says in y how many of the buffers of
# failed runs are still there.
_CAPPED = """
    import weakref
    import torch
    from moorage import Model

    def cpu(): torch.empty(2**50)
    def cuda(): raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
    def python(): raise MemoryError
    def chained():
        try:
            cpu()
        except RuntimeError as error:
            raise MemoryError("of the second kind") from error

    class Capped(Model):
        def load(self, context):
            self.failed = []

        def infer(self, inputs, batch):
            alive = sum(buffer() is not None for buffer in self.failed)
            buffer = torch.ones(batch.rows, 2**16)
            if batch.rows > 8:
                self.failed.append(weakref.ref(buffer))
                globals()[batch.requests[0].parameters["by"]]()
            return {"y": inputs["x"] * 0 + alive}
"""

# As after an assertion on the device: from the first 666 on, no call works in this process.
_SPOILT = """
    import torch
    from moorage import Model

    class Spoilt(Model):
        def load(self, context):
            self.spoilt = False

        def infer(self, inputs, batch):
            self.spoilt |= bool((inputs["x"][:, 0] == 666).any())
            if self.spoilt:
                raise torch.AcceleratorError("CUDA error: device-side assert triggered")
            return {"y": inputs["x"]}
"""

# Answers more than a lane can carry, without having it: memory that was never touched, or one row again and again.
_ENDLESS = """
    import torch
    from moorage import Model

    class Endless(Model):
        def infer(self, inputs, batch):
            rows = int(inputs["x"][0, 0])
            if batch.requests[0].parameters.get("repeated"):
                return {"y": torch.zeros(1, 1, 2**20).expand(1, rows, 2**20)}
            return {"y": torch.empty(1, rows, 2**20)}
"""


@pytest.fixture(scope="module", autouse=True)
def models(shared_server: SharedServer) -> Iterator[None]:
    root, calls = shared_server.models, shared_server.calls
    write_python_model(root, "capped", _CAPPED, top=EXPLICIT, max_batch_size=16)
    write_python_model(root, "spoilt", _SPOILT, top=EXPLICIT, extra=DEDICATED)
    endless = write_python_model(root, "endless_output", _ENDLESS, top=EXPLICIT)
    manifest = (endless / "model.toml").read_text()
    head, _, output = manifest.rpartition("shape = [4]")
    (endless / "model.toml").write_text(f"{head}shape = [-1, -1]{output}")
    for name in ("capped", "endless_output"):
        calls.load(name)
    yield
    for name in ("capped", "spoilt", "endless_output"):
        calls.unload(name)


def _start(calls: Calls, rows: int, by: str = "cpu") -> Call:
    return calls.start(request_of("capped", _tensor(rows), parameters={"by": by}))


def _tensor(rows: int) -> Tensor:
    return rows_of(*[1.0] * rows)


def _still_there(call: Call) -> float:
    outcome = call.outcome()
    assert not isinstance(outcome, Failure), outcome
    return float(output_of(outcome).max())


@pytest.mark.parametrize("by", ["cpu", "cuda", "python", "chained"])
def test_what_used_to_fit_fits_after_what_does_not(watched: SharedServer, by: str) -> None:
    """The buffers of the failed run are gone before the next begins."""
    calls = watched.calls
    for _ in range(_ROUNDS // 4):
        assert _still_there(_start(calls, 4, by)) == 0
        failed = _start(calls, 16, by).outcome()
        assert isinstance(failed, Failure)
        assert failed.code == "RESOURCE_EXHAUSTED"
        assert failed.retry_after_s
        assert _still_there(_start(calls, 4, by)) == 0
        assert _still_there(_start(calls, 8, by)) == 0


def test_batch_mates_of_one_that_is_too_large(watched: SharedServer) -> None:
    """Together they are too large, and one of them by itself: the others are served, one by one."""
    calls = watched.calls
    under_way = [_start(calls, rows) for rows in (3, 2, 4, 4, 9, 5, 4, 2) * 5]
    outcomes = [call.outcome() for call in under_way]
    failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    assert {failed.code for failed in failures} == {"RESOURCE_EXHAUSTED"}
    assert len(failures) == 5
    assert isinstance(outcomes[4], Failure)


def test_outputs_that_do_not_fit_are_an_error_and_never_empty(watched: SharedServer) -> None:
    """Triton server #7148 and #8177: with its scratch memory used up, the call succeeded without data."""
    calls = watched.calls
    for repeated in (True, False) * 3:
        too_large = request_of("endless_output", rows_of(2**12 - 2**11 + 2), parameters={"repeated": repeated})
        failed = calls.failure(too_large)
        assert failed.code == "RESOURCE_EXHAUSTED"
        assert failed.seconds < 2.0
        fitting = calls.infer(request_of("endless_output", rows_of(1)))
        assert len(fitting.raw_output_contents[0]) == 4 * _MIB


def test_a_process_whose_device_is_spoilt_is_replaced(watched: SharedServer) -> None:
    """As of vllm #57719: one client's odd request must not fail everybody else's until the next restart."""
    calls = watched.calls
    calls.load("spoilt")
    assert calls.infer(request_of("spoilt", rows_of(1))).outputs
    numbers = [1, 2, 3, 666, 4, 5, 6, 7]
    outcomes = [call.outcome() for call in [calls.start(request_of("spoilt", rows_of(number))) for number in numbers]]
    failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    assert [failed.code for failed in failures] == ["INTERNAL"], failures[:2]
    assert isinstance(outcomes[3], Failure)
    served = calls.start(request_of("spoilt", rows_of(7)))
    assert not isinstance(served.outcome(), Failure)
