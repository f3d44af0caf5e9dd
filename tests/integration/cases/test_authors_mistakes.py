"""A model that misbehaves in `infer` fails the requests of that run, tells its callers nothing, and serves the next.

Of the kin of B14 and B19: one caller's trouble is never another's.
"""

import re
from collections.abc import Iterator

import pytest

from tests.integration.cases.conftest import SharedServer
from tests.support.calls import Failure, output_of, request_of, rows_of
from tests.support.toy_models import EXPLICIT, write_python_model

_MISTAKES = """
    import torch
    from moorage import Model

    class Evil(RuntimeError):
        def __str__(self):
            raise ValueError("not even this")

    def wrong_rows(x): return {"y": x[:0]}
    def wrong_width(x): return {"y": x[:, :3]}
    def wrong_rank(x): return {"y": x[0]}
    def wrong_dtype(x): return {"y": x.double()}
    def wrong_name(x): return {"z": x}
    def one_too_many(x): return {"y": x, "z": x}
    def no_dict(x): return x
    def nothing(x): return None
    def no_tensor(x): return {"y": [[1.0, 2.0, 3.0, 4.0]]}
    def raises(x): raise RuntimeError("secret detail of the model")
    def raises_evil(x): raise Evil
    def raises_what_is_no_text(x): raise RuntimeError("secret detail of the model \\udcff")
    def raises_at_length(x): raise RuntimeError("secret detail of the model " * 10_000)
    def exits(x): raise SystemExit(3)
    def interrupts(x): raise KeyboardInterrupt
    def stops(x): raise StopIteration
    def recurses(x): return recurses(x)

    class Mistakes(Model):
        def infer(self, inputs, batch):
            mistake = batch.requests[0].parameters.get("mistake")
            return globals()[mistake](inputs["x"]) if mistake else {"y": inputs["x"]}
"""
_NAMES = re.findall(r"def (\w+)\(x\)", _MISTAKES)


@pytest.fixture(scope="module")
def mistakes(shared_server: SharedServer) -> Iterator[None]:
    write_python_model(shared_server.models, "mistakes", _MISTAKES, top=EXPLICIT)
    shared_server.calls.load("mistakes")
    yield
    shared_server.calls.unload("mistakes")


@pytest.mark.parametrize("mistake", _NAMES)
def test_it_is_internal_and_its_detail_is_in_the_log_only(watched: SharedServer, mistakes: None, mistake: str) -> None:
    failed = watched.calls.failure(request_of("mistakes", rows_of(1), parameters={"mistake": mistake}))
    assert failed.code == "INTERNAL"
    assert "secret" not in failed.message
    assert "Traceback" not in failed.message
    error_id = failed.figures["error_id"]
    assert error_id in failed.message
    logged = [line for line in watched.server.logs.splitlines() if error_id in line]
    assert len(logged) == 1
    assert "Traceback" in logged[0]
    assert output_of(watched.calls.infer(request_of("mistakes", rows_of(2)))).tolist() == [[2.0] * 4]


def test_other_rows_than_went_in_are_nobodys(watched: SharedServer, mistakes: None) -> None:
    failed = watched.calls.failure(request_of("mistakes", rows_of(1, 2), parameters={"mistake": "wrong_rows"}))
    assert "output 'y': expected 2 rows, got 0" in failed.message
    assert failed.reason == "CONTRACT_BROKEN"


def test_batch_mates_of_a_poisoned_row_are_served(watched: SharedServer) -> None:
    """They wait together behind a request that holds the model, so that they do share a run."""
    calls = watched.calls
    values = (1, 2, 666, 3, 4, 5)
    holding = [calls.start(request_of("poison", rows_of(0))) for _ in range(20)]
    under_way = [calls.start(request_of("poison", rows_of(value))) for value in values]
    outcomes = dict(zip(values, [call.outcome() for call in under_way], strict=True))
    poisoned = outcomes.pop(666)
    assert isinstance(poisoned, Failure)
    assert poisoned.code == "INTERNAL"
    assert {value: output_of(outcome)[0, 0] for value, outcome in outcomes.items()} == {1: 1, 2: 2, 3: 3, 4: 4, 5: 5}
    assert not [call for call in holding if isinstance(call.outcome(), Failure)]


def test_requests_of_other_shapes_and_datatypes_do_not_join(watched: SharedServer) -> None:
    calls = watched.calls
    slow = calls.start(request_of("rows", rows_of(0, width=9)))
    under_way = [calls.start(request_of("rows", rows_of(number, width=2 + number % 2))) for number in range(8)]
    shapes = [list(call.outcome().outputs[0].shape) for call in under_way]
    assert shapes == [[1, 2 + number % 2] for number in range(8)]
    assert not isinstance(slow.outcome(), Failure)
